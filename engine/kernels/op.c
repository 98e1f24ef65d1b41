/* op.c - the table of kernel rows and which of them this processor runs.
 *
 * The questions are asked here and not in the rows' own files: those are compiled for the
 * instruction set that the answer is about. */
#include "engine/kernels/op.h"

#ifdef MUSTER_X86
#    include <cpuid.h>

/* __builtin_cpu_supports also asks the operating system whether it saves the registers; it
 * knows no "f16c" in every compiler. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

bool op_avx2_supported(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool op_avx512_supported(void)
{
    return op_avx2_supported() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

const struct ops *const ops_table[] = {
#ifdef MUSTER_X86
    &op_avx512,
    &op_avx2,
#endif
    &op_ref,
    NULL,
};

const struct ops *ops_best(void)
{
    const struct ops *const *row = ops_table;
    while (!(*row)->supported())
        row++; /* ends at op_ref */
    return *row;
}

const struct ops *ops_find(struct str name)
{
    for (const struct ops *const *row = ops_table; *row; row++)
        if (str_eq(str_from((*row)->name), name)) return *row;
    return NULL;
}
