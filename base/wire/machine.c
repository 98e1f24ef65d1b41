/* machine.c - lists the fields of an accelerator, of its faults and of a model's files, as an agent reports them. */
#include "base/wire/machine.h"

#include "base/core/hash.h"

const char *const machine_health_names[MACHINE_HEALTH_COUNT] = { "well", "failing", "broken" };

static const struct field gpu_rows[] = {
    FIELD(struct wire_gpu, name, FIELD_STR, .max = WIRE_GPU_TEXT_BYTES_MAX),
    FIELD(struct wire_gpu, uuid, FIELD_STR, .max = WIRE_GPU_TEXT_BYTES_MAX),
    FIELD(struct wire_gpu, hardware, FIELD_STR, .max = WIRE_GPU_TEXT_BYTES_MAX),
    FIELD(struct wire_gpu, memory_bytes, FIELD_U64),
    FIELD(struct wire_gpu, mig, FIELD_BOOL),
    FIELD(struct wire_gpu, measured, FIELD_BOOL),
    FIELD(struct wire_gpu, memory_used_bytes, FIELD_U64),
    FIELD(struct wire_gpu, busy, FIELD_F64, .max = 1),
    FIELD(struct wire_gpu, celsius, FIELD_F64, .max = 1e3),
    FIELD(struct wire_gpu, watts, FIELD_F64, .max = 1e5),
};
const struct field_set wire_gpu_set = FIELD_SET(struct wire_gpu, gpu_rows);

static const struct field fault_rows[] = {
    FIELD(struct wire_fault, code, FIELD_STR, .required = true, .min = 1,
          .max = WIRE_FAULT_CODE_BYTES_MAX),
    FIELD(struct wire_fault, count, FIELD_U32, .required = true),
};
const struct field_set wire_fault_set = FIELD_SET(struct wire_fault, fault_rows);

/* ---- the model's files ---- */

#define NAME_BYTES_MAX 128 /* of an address, as in report.h */
#define ID_BYTES_MAX 512   /* names an owner and a reader */

static const struct field weights_rows[] = {
    FIELD(struct wire_weights, sha256, FIELD_STR, .max = SHA256_HEX),
    FIELD(struct wire_weights, whole, FIELD_BOOL),
    FIELD(struct wire_weights, bytes, FIELD_U64),
    FIELD(struct wire_weights, total, FIELD_U64),
    FIELD(struct wire_weights, seed_bytes, FIELD_U64),
    FIELD(struct wire_weights, rate, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct wire_weights, fetch_s, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct wire_weights, load_s, FIELD_F64, FIELD_POSITIVE),
    FIELD(struct wire_weights, port, FIELD_U32, .max = 65535),
};
const struct field_set wire_weights_set = FIELD_SET(struct wire_weights, weights_rows);

static const struct field seed_rows[] = {
    FIELD(struct wire_seed, host, FIELD_STR, .required = true, .min = 1, .max = NAME_BYTES_MAX),
    FIELD(struct wire_seed, port, FIELD_U32, .required = true, .min = 1, .max = 65535),
    FIELD(struct wire_seed, tls, FIELD_BOOL),
    FIELD(struct wire_seed, id, FIELD_STR, .max = ID_BYTES_MAX),
    FIELD(struct wire_seed, key, FIELD_STR, .max = 64),
};
const struct field_set wire_seed_set = FIELD_SET(struct wire_seed, seed_rows);
