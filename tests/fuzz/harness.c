/* harness.c - runs a target on one input and bounds what the run costs.
 *
 * A parser that is quadratic in its input neither crashes nor reads out of bounds, so the cost is a
 * finding of its own. Three measures; the first two add up to the units of struct fuzz_cost:
 *
 *     work          what parsers and tables charge themselves (base/core/work.h). In all builds.
 *     comparisons   clang calls a hook at each comparison it compiles (trace-cmp, which libFuzzer
 *                   uses to solve them); the linker wraps these calls with the counters below.
 *                   The same input gives the same number on any machine. Only in fuzz builds.
 *     CPU time      of this thread, against a bound far above what is usual; a run above it is
 *                   repeated, and the cheapest of RUNS counts. In all builds.
 *
 * Each has its blind spot: work is charged only where the code says so, memmove compares nothing,
 * and a busy machine has no exact time. */
#include "base/core/work.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define RUNS 3

/* The bound on CPU time of one run: a linear reader stays below it by a factor of twenty. */
#if defined(__SANITIZE_ADDRESS__) || defined(MUSTER_FUZZ)
#    define FLAT_NS 2000000000
#    define BYTE_NS 40000
#else
#    define FLAT_NS 200000000
#    define BYTE_NS 2000
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static uint64_t comparisons;
static double dearest; /* the costliest run's share of its bound on units */

#ifdef MUSTER_FUZZ
/* Tail calls, because libFuzzer tells comparisons apart by their return address. */
#    define COUNTED __attribute__((no_sanitize("address", "undefined", "coverage")))
#    define COUNT_CMP(name, type)                                 \
        void __real_##name(type a, type b);                       \
        void __wrap_##name(type a, type b);                       \
        COUNTED void __wrap_##name(type a, type b)                \
        {                                                         \
            comparisons++;                                        \
            __attribute__((musttail)) return __real_##name(a, b); \
        }
COUNT_CMP(__sanitizer_cov_trace_cmp1, uint8_t)
COUNT_CMP(__sanitizer_cov_trace_cmp2, uint16_t)
COUNT_CMP(__sanitizer_cov_trace_cmp4, uint32_t)
COUNT_CMP(__sanitizer_cov_trace_cmp8, uint64_t)
COUNT_CMP(__sanitizer_cov_trace_const_cmp1, uint8_t)
COUNT_CMP(__sanitizer_cov_trace_const_cmp2, uint16_t)
COUNT_CMP(__sanitizer_cov_trace_const_cmp4, uint32_t)
COUNT_CMP(__sanitizer_cov_trace_const_cmp8, uint64_t)
#endif

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void refuse(size_t len, uint64_t cost, const char *unit, uint64_t flat, uint64_t per_byte)
{
    fprintf(stderr, "fuzz: %zu bytes cost %llu %s: the bound is %llu and %llu a byte\n", len,
            (unsigned long long)cost, unit, (unsigned long long)flat, (unsigned long long)per_byte);
    abort();
}

#ifdef MUSTER_FUZZ
static void tell_dearest(void)
{
    fprintf(stderr, "fuzz: the dearest run took %.0f %% of its bound\n", 100 * dearest);
}
#endif

static void judge_units(size_t len)
{
#ifdef MUSTER_FUZZ
    static bool told;
    if (!told) told = atexit(tell_dearest) == 0;
#endif
    uint64_t units = work_units + comparisons;
    uint64_t bound = fuzz_cost.flat + len * fuzz_cost.per_byte;
    double share = (double)units / (double)bound;
    dearest = share > dearest ? share : dearest;
    if (units > bound)
        refuse(len, units, "units of work and comparisons", fuzz_cost.flat, fuzz_cost.per_byte);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint64_t bound_ns = FLAT_NS + len * BYTE_NS, least_ns = UINT64_MAX;
    for (int i = 0; i < RUNS && least_ns > bound_ns; i++) {
        uint64_t begun = cpu_ns();
        comparisons = work_units = 0;
        fuzz_one(data, len);
        uint64_t took = cpu_ns() - begun;
        least_ns = took < least_ns ? took : least_ns;
    }
    judge_units(len);
    if (least_ns > bound_ns) refuse(len, least_ns, "ns of CPU time", FLAT_NS, BYTE_NS);
    return 0;
}
