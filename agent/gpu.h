/* gpu.h - defines an accelerator as this machine's drivers show it, for the two that read it: gpu_nvml.h and
 * gpu_sysfs.h.
 *
 * Layer:   agent (base/perf)
 * Threads: values; the thread of gpu_watch.h makes them
 */
#pragma once
#include "agent/core/gpu_health.h"
#include "base/core/str.h"

/* Describes a GPU by what does not change while the machine runs. Texts are of printable ASCII. */
struct gpu_device {
    char name[WIRE_GPU_TEXT_BYTES_MAX + 1]; /* of the product */
    char uuid[WIRE_GPU_TEXT_BYTES_MAX + 1]; /* empty: the driver has none */
    char card[16];                          /* in sysfs: cardN; empty: NVML's */
    uint32_t index;                         /* as the driver counts its own GPUs */
    const char *hardware;                   /* in the hardware table; NULL: not there */
    uint64_t memory_bytes;                  /* 0: unknown */
    bool mig;
};

/* Readings of one moment. */
struct gpu_sample {
    bool measured; /* memory and busy are known */
    uint64_t memory_used_bytes;
    double busy;           /* share of the last second or so */
    double celsius, watts; /* 0: unknown */
    struct gpu_counters counters;
};

/* Keeps the printable part of a text of a driver. */
void gpu_text(char *to, size_t size, struct str from);
