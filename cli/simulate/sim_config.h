/* sim_config.h - holds the options of `muster simulate`, and makes the configuration of a run from them.
 *
 * Layer: cli (simulator, base/io)
 */
#pragma once
#include "base/io/config/opt.h"
#include "simulator/sim.h"

struct sim_options {
    struct str trace, model, fleet, config, preset, tenant_weights;
    struct str route, predict, fair, order, admit, preempt, chunk, evict;
    struct str migrate, role, perf, power, scale_policy, forecast, shaper, place;
    struct config_texts compare;
    double speed, bias, residual;
    /* The former name of power_limit_watts. */
    double scale_margin, lead_spread, launch_failures, budget_h, power_limit_watts, row_watts;
    int64_t lead_us, life_us, notice_us, zone_up_us, zone_down_us, scale_count;
    int64_t scale, requests, routers, seed, seeds, jobs;
    int overload; /* enum route_overload_rule */
    int64_t slo_ttft_us, slo_tpot_us, report_delay_us, event_lag_us, drain_us;
    int64_t link_bytes_s, link_us;
    int64_t seqs_max, batch_tokens, kv_tokens, output_max, swap_space, swap_rate;
    int64_t requests_max, held_max, hold_us_max, index_bytes, max_waiting;
    bool exact;
    int format, output;
    const bool *said; /* which options were given, by field; the parse owns it and must live on */
};

enum { SIM_OUTPUT_TABLE, SIM_OUTPUT_JSON };

#define SIM_FLAG_BYTES 32

/* Writes an option's name as it is typed: "scale-policy" for "scale_policy". */
void sim_option_flag(const char *name, char ret[SIM_FLAG_BYTES]);

/* Returns true if the option was given, even with its default as value. */
bool sim_option_is_set(const struct sim_options *o, const char *name);

/* The command's options, as fields. */
extern const struct config_record sim_options_record;

const struct config_field *sim_option_field(const char *name);
const void *sim_option_value(const struct sim_options *o, const struct config_field *f);

/* Returns -EINVAL with "--OPTION: no policy 'NAME', did you mean 'NEAR'?". */
int sim_no_policy(const char *option, const char *kind, struct str name, struct err *err);

/* Takes a preset, whose policies stand where neither a flag nor the file names one. `ref` is for comparing
 * routers: it also removes the random part of the engines' speeds. */
int sim_take_preset(struct str name, struct sim_config *c, struct err *err);

/* Makes the configuration of a run. -EINVAL with a sentence that names the option and the nearest policy.
 * The config points to *control where the fleet scales: both must live equally long. */
int sim_config_make(const struct sim_options *o, struct sim_config *ret,
                    struct sim_control_setup *control, struct err *err);
