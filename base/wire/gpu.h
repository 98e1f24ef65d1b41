/* gpu.h - defines what an agent reports of its machine's accelerators: which there are, their readings, the faults
 * that their drivers told of, and whether the machine can go on.
 *
 * Layer:    base/wire (base/core)
 * Use:      parts of struct agent_report
 * Lifetime: decoded strings live in the arena
 */
#pragma once
#include "base/wire/field.h"

#define WIRE_GPUS_MAX 16   /* of one machine: the largest that clouds sell have 16 */
#define WIRE_FAULTS_MAX 16 /* kinds of faults of one machine */
#define WIRE_GPU_TEXT_BYTES_MAX 96
#define WIRE_FAULT_CODE_BYTES_MAX 24

/* Says if a machine's accelerators can go on. */
enum machine_health {
    MACHINE_WELL,
    MACHINE_FAILING, /* it may still serve: it is replaced first, and drained then */
    MACHINE_BROKEN,  /* nothing runs there any more: it is drained at once */
    MACHINE_HEALTH_COUNT
};
extern const char *const machine_health_names[MACHINE_HEALTH_COUNT]; /* well failing broken */

struct wire_gpu {
    struct str name;       /* of the product, as its driver says it */
    struct str uuid;       /* empty: the driver has none */
    struct str hardware;   /* its name in the hardware table; empty: not there */
    uint64_t memory_bytes; /* 0: unknown */
    bool mig;              /* an NVIDIA GPU cut into parts, of which ours may be one */
    bool measured;         /* false: the next two are unknown */
    uint64_t memory_used_bytes;
    double busy;           /* share of the last second or so in which a kernel ran */
    double celsius, watts; /* 0: unknown */
};
extern const struct field_set wire_gpu_set;

/* Faults of one kind since the agent's start. */
struct wire_fault {
    struct str code; /* xid_79, ecc, row_remap, ras, lost, ... */
    uint32_t count;
};
extern const struct field_set wire_fault_set;
