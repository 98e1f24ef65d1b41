/* sim_scaling.h - how the fleet follows its demand, by the options and the fleet's file.
 *
 * Layer: cli (simulator, controller/setup)
 */
#pragma once
#include "cli/sim_options.h"
#include "simulator/sim.h"

/* Nothing when neither names a row. Of --config the scaling of each service that the fleet has is taken
 * as the controller takes it, where the fleet may change or a flag names a row; flags are stronger, and
 * count for every service. -EINVAL with a sentence. */
int sim_scaling_config(const struct sim_options *o, struct sim_config *config,
                       struct sim_control_setup *control, struct err *err);
