/* gpu.c - lists the fields of an accelerator and of its faults, as an agent reports them. */
#include "base/wire/gpu.h"

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
