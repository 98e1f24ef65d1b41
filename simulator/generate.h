/* generate.h - makes traces from one line of text: arrivals, lengths, tenants, conversations, shared prompts.
 *
 * Layer:   simulator (base/core)
 * Threads: pure
 * Chance:  streams keyed by (seed, entity, purpose): another rate changes no length, another length
 *          no arrival, so arms and seeds stay paired
 *
 *     poisson,rate=0.5,prompt=lognormal(64,1),output=lognormal(150,2.3),n=5000,tenants=10
 *
 * The first word says how arrivals are spaced; the rate may be a number, steps(2:330,4:360), or
 * bursts(low,high,low_s,high_s), which jumps between two rates after exponential times (MMPP).
 * generate_help lists everything.
 */
#pragma once
#include "base/core/buf.h"
#include "simulator/trace.h"

#define GENERATE_STEPS_MAX 64
#define GENERATE_TENANTS_MAX 100000
#define GENERATE_PARAMS_MAX 4

struct generate_shape;   /* a distribution, in generate_draw.h */
struct generate_spacing; /* how arrivals are spaced, likewise */

struct generate_dist {
    const struct generate_shape *shape; /* NULL: not given */
    double param[GENERATE_PARAMS_MAX];
};

struct generate_rate {
    double rate, for_s; /* for_s: INFINITY for the last step of an endless schedule */
};

struct generate_spec {
    const struct generate_spacing *spacing;
    double cv; /* of the gaps; gamma only */
    struct generate_rate step[GENERATE_STEPS_MAX];
    uint32_t step_count;
    bool bursts; /* the two steps alternate, and for_s are means */
    double n, duration_s;
    struct generate_dist prompt, output, turns, think_s;
    double output_max;             /* limit that requests state; 0: none */
    double tenants, zipf, heavy;   /* tenant k weighs 1 / k^zipf, the first `heavy` times that */
    double services;               /* each conversation is for one, by chance; 0: one */
    double system_tokens, systems; /* a shared prefix, one of so many */
    double block_tokens, context;
};

/* Parses the text. -EINVAL with a sentence that names the word, the values it takes and the nearest
 * known word. */
int generate_parse(struct str text, struct generate_spec *ret, struct err *err);
int generate_trace(const struct generate_spec *spec, uint64_t seed, struct trace **ret,
                   struct err *err);

int generate_help(struct buf *out);
