/* cmd_simulate_clouds.h - declares `muster simulate clouds`, which cmd_simulate.c calls.
 *
 * Layer: cli
 */
#pragma once

int simulate_clouds_run(int argc, char *const *argv);
