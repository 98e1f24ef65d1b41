/* cmd_plan.h - what stands behind `muster plan` beside the choice of accelerators.
 *
 * Layer: cli
 */
#pragma once

/* `muster plan layers`, `move`, `load`: argv is without its own words; returns the exit status. */
int plan_layers_run(int argc, char *const *argv);
int plan_move_run(int argc, char *const *argv);
int plan_load_run(int argc, char *const *argv);
