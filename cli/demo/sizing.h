/* sizing.h - measures the machine, fits the demo's fleet and load to it, and writes the configuration.
 *
 * Layer: cli (controller/config.h, simulator/trace.h, base/io)
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/io/config/config.h"
#include "simulator/trace.h"

/* demo_measure measures what this machine gives the demo's engines, in about a second.
 *
 * Threads: starts DEMO_THREADS threads and joins them before it returns
 */

#define DEMO_THREADS 4 /* as many engines as the demo's fleet has at most */

struct demo_machine {
    double cores;           /* CPU seconds a second that DEMO_THREADS busy threads got together */
    double step_s;          /* CPU seconds of one thread: the fixed part of a step ... */
    double prefill_token_s; /* ... of each prompt token ... */
    double decode_seq_s;    /* ... and of each sequence that decodes */
};

/* Runs the model at `path` on one thread while the others keep their cores busy, so that the figures hold
 * for a fleet under load beside the other processes of this machine. -EINVAL and the errors of
 * model_load. */
int demo_measure(const char *path, struct demo_machine *ret, struct err *err);

#define DEMO_PROMPT_MAX 1700 /* with DEMO_OUTPUT_MAX below the model's context of 2,048 */
#define DEMO_OUTPUT_MAX 200
#define DEMO_DIVIDE_MIN 16 /* a 512-token block of the trace becomes 32 */
#define DEMO_DIVIDE_MAX 256

/* The configured fleet, in cores. */
struct demo_shape {
    double largest;  /* every pool at its maximum */
    double fixed;    /* the instances of the comparison */
    double smallest; /* the smallest instance */
    double slo_ttft_s;
};

/* The rule that turns the trace's lengths into the demo's. */
struct demo_lengths {
    uint32_t divide;     /* prompts and their shared blocks */
    uint32_t tokens_max; /* longer prompts are cut */
};

struct demo_sizing {
    double share; /* the configuration's shares and cores are multiplied by this, 1 at most */
    struct demo_lengths lengths;
};

struct demo_sizing demo_size(const struct demo_machine *m, const struct demo_shape *shape);

/* Returns the CPU seconds of a request of the trace with these lengths, when nothing is cached. */
double demo_request_s(const struct demo_machine *m, const struct demo_lengths *lengths,
                      uint32_t prompt_tokens);

/* Returns the speed at which the arrivals of the trace from request `first` must come for `span_us` of
 * the replay to need `cores` in the mean. */
double demo_speed(const struct demo_machine *m, const struct demo_lengths *lengths,
                  const struct trace *trace, uint32_t first, int64_t span_us, double cores);

/* The growing phase has slow arrivals for BEFORE, then ever faster ones over RAMP, then full speed.
 * demo_ramp_us maps the time at which a request is due at full speed to the time at which it is sent. */
#define DEMO_BEFORE_US 10000000
#define DEMO_RAMP_US 15000000
#define DEMO_BEFORE_RATE 0.2 /* of the full speed */

int64_t demo_ramp_us(int64_t full_speed_us);

/* Returns the inverse: how much of the full-speed time has passed. */
int64_t demo_ramp_passed_us(int64_t us);

#define DEMO_FIXED_INSTANCES 3 /* the fleet that the policies are compared on */

/* Reads the first service's pools of this machine. -EINVAL names what the demo needs and the file lacks. */
int demo_shape_of(const struct config *config, struct demo_shape *ret, struct err *err);

/* Returns the model file of the first service; lives as long as the configuration. */
const char *demo_model_of(const struct config *config);

/* Appends the configuration file `text` with the cores and shares of the section `local` multiplied by
 * `share` and with first guesses of speed from `machine`. -EINVAL if the result does not load as such,
 * because the section is not written with one key a line. */
int demo_config_scale(struct str text, const struct demo_machine *machine, double share,
                      struct buf *out, struct err *err);
