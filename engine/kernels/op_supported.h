/* op_supported.h - may this processor run a row of ops_table?
 *
 * Layer: engine/kernels; for op.c and the rows
 */
#pragma once
#include <stdbool.h>

bool op_avx2_supported(void);
bool op_avx512_supported(void);
