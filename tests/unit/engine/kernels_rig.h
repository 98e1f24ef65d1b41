/* kernels_rig.h - what the tests of kernels share: memory, random inputs, distance from the truth, entries.
 *
 * Needs engine/kernels and base/core alone, so that the same tests run where nothing else is built
 * (tests/cross).
 */
#pragma once
#include "base/core/own.h"
#include "base/core/rng.h"
#include "engine/kernels/op.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#define NMSE_MAX 1e-10 /* F32 against double: about 1e-14, more where one output cancels */

static inline void freep(void *p)
{
    free(*(void **)p);
}

#define OWNED CLEANUP(freep)

/* Returns zeroed memory aligned to cache lines; the caller frees. */
static inline void *take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    assert_non_null(p);
    memset(p, 0, bytes);
    return p;
}

static inline float *random_floats(size_t count, struct rng *rng)
{
    float *x = take(count * sizeof *x);
    for (size_t i = 0; i < count; i++)
        x[i] = (float)rng_normal(rng);
    return x;
}

static inline double nmse(const float *got, const float *truth, size_t count)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)got[i] - (double)truth[i];
        off += d * d;
        all += (double)truth[i] * (double)truth[i];
    }
    return all > 0 ? off / all : off;
}

static inline bool is_fast(const struct ops *o)
{
    return o != &op_ref && o->supported();
}

#define EACH_FAST(o)                                                            \
    for (const struct ops *const *row_ = ops_table, *o = *row_; o; o = *++row_) \
        if (is_fast(o))
