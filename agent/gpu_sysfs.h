/* gpu_sysfs.h - finds AMD's GPUs in sysfs and reads their counters there.
 *
 * Layer:   agent (base/io)
 * Threads: the thread of gpu_watch.c: a file of sysfs asks the GPU's firmware
 * Source:  Linux, "amdgpu": "Misc AMDGPU driver information", "AMDGPU RAS Support", "GPU Power/Thermal Controls and
 *          Monitoring". amd-smi is not asked: it reads the same files
 */
#pragma once
#include "agent/gpu.h"

/* Lists the GPUs below `root` (/sys), in the order of their cards. Returns how many there are in `ret`. */
uint32_t gpu_sysfs_find(const char *root, struct gpu_device ret[WIRE_GPUS_MAX]);

void gpu_sysfs_read(const char *root, const struct gpu_device *d, struct gpu_sample *ret);
