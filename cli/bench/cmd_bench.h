/* cmd_bench.h - the commands below `muster bench`. */
#pragma once

int bench_engine_run(int argc, char *const *argv);
int bench_kernels_run(int argc, char *const *argv);
