/* sim_config.h - the run that the options of `muster simulate` ask for.
 *
 * Layer: cli (simulator)
 */
#pragma once
#include "cli/simulate/sim_options.h"
#include "simulator/sim.h"

/* -EINVAL with a sentence that names the option and the nearest policy. The config points to *control
 * where the fleet scales: both live alike. */
int sim_config_make(const struct sim_options *o, struct sim_config *ret,
                    struct sim_control_setup *control, struct err *err);
