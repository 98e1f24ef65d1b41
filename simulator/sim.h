/* sim.h - runs a fleet in virtual time: the product's own decisions over a modelled world.
 *
 * Layer:    simulator (policies, every role core, base/core)
 * Time:     integer microseconds
 * Chance:   one seed; streams keyed by (seed, entity, purpose), so that two policies meet the same
 *           world
 * Rules:    (1) world and belief are apart: the world draws a hidden bias for each instance and a
 *               residual for each step and alone knows true output lengths; views hold only what
 *               an engine would report and a router would have seen
 *           (2) the same configuration, trace and seed give the same digest on every machine of
 *               one instruction set
 *           (3) skipping ahead changes no digest: `exact` computes step by step
 *           (4) every offered request counts: rejected, unfinished and too long ones are misses with
 *               infinite TTFT
 */
#pragma once
#include "simulator/config.h"
#include "simulator/result.h"

/* Runs a trace. -EINVAL with a sentence; -ENODATA when the trace lacks what a policy needs; -ENOMEM. The
 * result is the caller's: sim_result_fini. */
int sim_run(const struct sim_config *config, const struct trace *trace, struct sim_result *ret,
            struct err *err);
