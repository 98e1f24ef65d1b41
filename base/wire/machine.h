/* machine.h - defines what an agent reports of its machine: the accelerators, their readings, the faults that their drivers
 * told of, whether the machine can go on; and the files of its engine's model.
 *
 * Layer:    base/wire (base/core)
 * Use:      parts of an agent's report and of the reply to it (report.h)
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

/* ---- the model's files, and agents that have them ---- */

#define WIRE_SEEDS_MAX 8u /* agents that one agent is told of */

/* The model that an agent fetches, or has fetched. The times are of this start of the agent; 0: not known. */
struct wire_weights {
    struct str sha256;     /* of the model (docs/models.md), in hex; empty: no digest is expected */
    bool whole;            /* it is there, and was compared */
    uint64_t bytes, total; /* that are there; of all files, 0: not known yet */
    uint64_t seed_bytes;   /* of these, from other agents */
    double rate;           /* bytes a second of the last seconds; 0 once it is whole */
    double fetch_s;        /* from the start of the fetch to its end, or until now */
    double load_s;         /* from the engine's start to its first ready */
    uint32_t port;         /* where the agent gives it to others; 0: nowhere */
};
extern const struct field_set wire_weights_set;

/* Another agent that has the model. */
struct wire_seed {
    struct str host;
    uint32_t port;
    bool tls;
    /* To sign as, and the key of that id in hex (auth.h); empty: nothing is signed. */
    struct str id, key;
};
extern const struct field_set wire_seed_set;
