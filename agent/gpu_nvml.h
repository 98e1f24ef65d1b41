/* gpu_nvml.h - asks NVIDIA's management library about GPUs, and waits for their Xids.
 *
 * Layer:   agent
 * Threads: one thread of its own (gpu_watch.c): a call into a driver whose GPU has failed may take a minute
 * Source:  NVIDIA, "NVML API Reference Guide". The library is opened at run time under the name that the driver
 *          installs, by the dynamic linker's own search: no path, setting or folder of ours is asked. Functions that
 *          a driver does not have are left out; what only they tell is unknown then
 */
#pragma once
#include "agent/gpu.h"
#include "base/core/err.h"

struct nvml;

/* Opens the library and takes stock of its GPUs, at most WIRE_GPUS_MAX. -ENOENT: there is no library; -ENODEV: no
 * driver, or no GPU; -ENOSYS: a driver of before NVML's second version. */
int nvml_open(struct nvml **ret, struct err *err);
void nvml_free(struct nvml *n); /* NULL is fine; the library stays in memory */

uint32_t nvml_count(const struct nvml *n);
const struct gpu_device *nvml_device(const struct nvml *n, uint32_t i);
void nvml_read(const struct nvml *n, uint32_t i, struct gpu_sample *ret);

/* Waits `ms` for an Xid, which *ret_gpu and *ret_xid name. False: none came. Where this driver tells of none,
 * sleeps. */
bool nvml_wait(struct nvml *n, uint32_t ms, uint32_t *ret_gpu, uint32_t *ret_xid);

/* Returns NULL, or why no Xid can be heard here. */
const char *nvml_is_deaf(const struct nvml *n);
