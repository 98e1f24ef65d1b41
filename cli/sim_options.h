/* sim_options.h - the options of `muster simulate`, and the run that they ask for.
 *
 * Layer: cli (simulator, base/io)
 */
#pragma once
#include "base/io/opt.h"
#include "simulator/control.h"
#include "simulator/generate.h"
#include "simulator/sim.h"

struct sim_options {
    struct str trace, model, fleet, config, preset;
    struct str route, predict, fair, order, admit, preempt, chunk, evict;
    struct str migrate, role, perf, power, scale_policy, forecast, shaper, place;
    struct config_texts compare;
    double speed, bias, residual;
    double scale_margin, lead_spread, launch_failures, budget_h, row_watts;
    int64_t lead_us, life_us, notice_us, zone_up_us, zone_down_us, scale_count;
    int64_t scale, requests, routers, seed, seeds, jobs;
    int64_t slo_ttft_us, slo_tpot_us, report_delay_us, event_lag_us, drain_us;
    int64_t link_bytes_s, link_us;
    int64_t seqs_max, batch_tokens, kv_tokens, output_max, swap_space, swap_rate;
    bool exact;
    int format, output;
};

enum { SIM_OUTPUT_TABLE, SIM_OUTPUT_JSON };

#define SIM_FLAG_BYTES 32

/* "scale_policy" as it is typed: "scale-policy". */
void sim_option_flag(const char *name, char ret[SIM_FLAG_BYTES]);

/* Whether the option has another value than its default. */
bool sim_option_is_set(const struct sim_options *o, const char *name);

/* The command's words; notes are behind the options of --help. */
extern const struct config_record sim_options_record;

/* -EINVAL with a sentence that names the option and the nearest row. The config points to *control
 * where the fleet scales: both live alike. */
int sim_options_config(const struct sim_options *o, struct sim_config *ret,
                       struct sim_control_setup *control, struct err *err);

/* Rows of a preset, which stand behind those that flags or the file name. `ref` is for comparing
 * routers, in a world without chance in the engines. */
int sim_take_preset(struct str name, struct sim_config *c, struct err *err);

/* What a fleet's file says of rows and limits (sim_file.c); the rows live for ever. */
int sim_file_take(const char *path, struct sim_config *c, struct err *err);

/* A line that names what is taken of the file and what is not: rows and limits of engines only where
 * the fleet has any (not of ref8000). */
int sim_file_note(const char *path, bool engines, struct buf *out, struct err *err);

/* What the options say of scaling; nothing when they name no row. */
int sim_scaling_config(const struct sim_options *o, struct sim_config *config,
                       struct sim_control_setup *control, struct err *err);

/* COUNTxHARDWARE[:SUFFIX...][@DOLLARS_AN_INSTANCE_HOUR], joined by commas or plus signs. COUNT may
 * be MIN-MAX or MIN-START-MAX where the fleet scales; suffixes are tpN, a role, spot, zoneN. */
int sim_fleet_parse(struct str text, struct sim_config *ret, struct sim_control_setup *control,
                    struct err *err);

/* "--OPTION: no row 'NAME', did you mean 'NEAR'?"; -EINVAL. */
int sim_no_row(const char *option, const char *kind, struct str name, struct err *err);
