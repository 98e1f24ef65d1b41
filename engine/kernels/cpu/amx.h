/* amx.h - sets up the tiles of AMX: registers of up to 16 rows of 64 bytes.
 *
 * Layer:   engine/kernels, for dot_avx512.c and bf16_amx.c, which are compiled for that instruction set
 * Threads: tiles belong to a thread; who configures them releases them before it returns
 */
#pragma once
#include <immintrin.h>
#include <stdint.h>

#define AMX_ROWS 16
#define AMX_ROW_BYTES ((size_t)64)

struct amx_config {
    uint8_t palette, start_row, unused[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

_Static_assert(sizeof(struct amx_config) == 64, "as ldtilecfg reads it");

/* Has what was written to memory, at `p` for one, be there: the intrinsics that load do not say that they read. */
static inline __attribute__((always_inline)) void amx_written(const void *p)
{
    __asm__ volatile("" : : "r"(p) : "memory");
}

/* Tiles are zero afterwards. */
static inline void amx_configure(const struct amx_config *config)
{
    amx_written(config);
    _tile_loadconfig(config);
}
