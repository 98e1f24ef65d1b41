/* bits.h - does arithmetic that cannot wrap, alignment, and loads and stores of little-endian bytes.
 *
 * Layer: base/core (libc). Everything here is inline and pure.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The _fits functions write *ret and return true, or return false and leave it when the result would wrap. */
static inline bool add_fits(size_t a, size_t b, size_t *ret)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return false;
    *ret = sum;
    return true;
}

static inline bool mul_fits(size_t a, size_t b, size_t *ret)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product)) return false;
    *ret = product;
    return true;
}

/* `align` is a power of two. */
static inline bool align_fits(size_t value, size_t align, size_t *ret)
{
    size_t up;
    if (!add_fits(value, align - 1, &up)) return false;
    *ret = up & ~(align - 1);
    return true;
}

static inline bool is_power_of_two(uint64_t v)
{
    return v != 0 && (v & (v - 1)) == 0;
}

static inline uint32_t ceil_div_u32(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}

static inline size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* These load and store by memcpy, so `p` needs no alignment. The hosts we build for are
 * little-endian; a static assertion in err.c checks it. */
static inline uint16_t load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t load_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store_u32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline void store_u64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}
