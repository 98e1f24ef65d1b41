/* sim_scaling.h - what the options say of a fleet that follows its demand.
 *
 * Layer: cli (simulator)
 */
#pragma once
#include "cli/sim_options.h"
#include "simulator/sim.h"

/* Nothing when they name no row; -EINVAL with a sentence. */
int sim_scaling_config(const struct sim_options *o, struct sim_config *config,
                       struct sim_control_setup *control, struct err *err);
