/* sim_scaling.h - how the fleet follows its demand, by the options and the fleet's file.
 *
 * Layer: cli (simulator, controller/setup)
 */
#pragma once
#include "cli/simulate/sim_options.h"
#include "simulator/sim.h"

/* Nothing when neither names a policy. Of --config the scaling of each service that the fleet has is taken
 * as the controller takes it, where the fleet may change or a flag names a policy; flags are stronger, and
 * count for every service. -EINVAL with a sentence. */
int sim_scaling_config(const struct sim_options *o, struct sim_config *config,
                       struct sim_control_setup *control, struct err *err);

/* The options of scaling that are said and that this fleet has no use for, a bit each: an arm may have
 * one that is another's. What all arms have is a mistake, and the second makes its sentence. */
uint32_t sim_scaling_idle(const struct sim_options *o, const struct sim_config *config);
int sim_scaling_idle_say(uint32_t idle, struct err *err);
