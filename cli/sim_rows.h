/* sim_rows.h - rows of policies by the names that people type.
 *
 * Layer: cli (simulator)
 */
#pragma once
#include "simulator/sim.h"

/* "--OPTION: no row 'NAME', did you mean 'NEAR'?"; -EINVAL. */
int sim_no_row(const char *option, const char *kind, struct str name, struct err *err);

/* Rows of a preset, which stand behind those that flags or the file name. `ref` is for comparing
 * routers, in a world without chance in the engines. */
int sim_take_preset(struct str name, struct sim_config *c, struct err *err);
