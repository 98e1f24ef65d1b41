/* limits.c - measures reads from memory, and int8 and F32 arithmetic from registers; see limits.h. */
#include "cli/bench/limits.h"

#include "base/core/own.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define RUNS 5
#define RUN_S 0.02
#define BUFFER_BYTES ((size_t)64 << 20) /* of each thread */

double bench_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double bench_thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double bench_best_s(void (*once)(void *ctx), void *ctx)
{
    double best = HUGE_VAL;
    for (int run = 0; run < RUNS; run++) {
        double start = bench_thread_s(), took = 0;
        uint32_t calls = 0;
        while (took < RUN_S) {
            once(ctx);
            calls++;
            took = bench_thread_s() - start;
        }
        best = fmin(best, took / calls);
    }
    return best;
}

static _Thread_local volatile float keep; /* results are kept, so that loops are not removed */

#if defined(MUSTER_X86) || defined(MUSTER_NEON)
#    ifdef __clang__
#        define UNROLL _Pragma("unroll")
#    else
#        define UNROLL _Pragma("GCC unroll 16")
#    endif
#    define STEPS 20000
#    ifdef MUSTER_X86
#        define CHAINS 12 /* latency 4 times 2 units, and some more */
#    else
#        define CHAINS 16 /* latency 4 times 4 units */
#    endif

/* x * y + z of a vector type is one fused instruction: contraction is on by default. Chains that began with
 * equal values would be computed once. */
#    define F32_LOOP(name, attribute, bytes)                             \
        __attribute__((attribute, noinline)) static void name(void *ctx) \
        {                                                                \
            typedef float vector __attribute__((vector_size(bytes)));    \
            vector acc[CHAINS], half = (vector){ 0 } + 0.5f;             \
            (void)ctx;                                                   \
            UNROLL                                                       \
            for (int i = 0; i < CHAINS; i++)                             \
                acc[i] = half * (float)i;                                \
            for (int n = 0; n < STEPS; n++) {                            \
                UNROLL                                                   \
                for (int i = 0; i < CHAINS; i++)                         \
                    acc[i] = acc[i] * half + half;                       \
            }                                                            \
            UNROLL                                                       \
            for (int i = 0; i < CHAINS; i++)                             \
                keep += acc[i][0];                                       \
        }

/* `code` multiplies the bytes, or the pairs of BF16, of %1 by themselves and adds to %0, both of `bytes` bytes. */
#    define INT8_LOOP(name, attribute, bytes, reg, code)                 \
        __attribute__((attribute, noinline)) static void name(void *ctx) \
        {                                                                \
            typedef int ints __attribute__((vector_size(bytes)));        \
            ints acc[CHAINS], x = (ints){ 0 } + 0x03030303;              \
            (void)ctx;                                                   \
            UNROLL                                                       \
            for (int i = 0; i < CHAINS; i++)                             \
                acc[i] = (ints){ 0 } + i;                                \
            for (int n = 0; n < STEPS; n++) {                            \
                UNROLL                                                   \
                for (int i = 0; i < CHAINS; i++)                         \
                    __asm__(code : "+" reg(acc[i]) : reg(x));            \
            }                                                            \
            UNROLL                                                       \
            for (int i = 0; i < CHAINS; i++)                             \
                keep += (float)acc[i][0];                                \
        }
#endif

#ifdef MUSTER_X86
F32_LOOP(f32_avx512, target("avx512f"), 64)
F32_LOOP(f32_avx2, target("avx2,fma"), 32)
INT8_LOOP(int8_vnni, target("avx512f"), 64, "v", "vpdpbusd %1, %1, %0")
INT8_LOOP(bf16_avx512, target("avx512f"), 64, "v", "vdpbf16ps %1, %1, %0")
INT8_LOOP(int8_avx_vnni, target("avx2"), 32, "x", "%{vex%} vpdpbusd %1, %1, %0")

/* The operands change from step to step, or the product would be computed once. */
__attribute__((target("avx2"), noinline)) static void int8_avx2(void *ctx)
{
    typedef char bytes __attribute__((vector_size(32)));
    typedef unsigned short shorts __attribute__((vector_size(32))); /* sums wrap */
    shorts acc[CHAINS];
    bytes x = (bytes){ 0 } + 3;
    (void)ctx;
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        acc[i] = (shorts){ 0 } + (unsigned short)i;
    for (int n = 0; n < STEPS; n++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++)
            acc[i] += (shorts)__builtin_ia32_pmaddubsw256((bytes)acc[i], x);
    }
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        keep += (float)acc[i][0];
}

#    define AMX_TILES 4 /* of sums, 16 rows of 16; a step multiplies each by 64 bytes of columns */

/* Zeroes the tiles of sums, and two that are multiplied by one another. */
static void amx_begin(void)
{
    struct {
        uint8_t palette, start_row, unused[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1 };
    for (int i = 0; i < AMX_TILES + 2; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    __asm__ volatile("ldtilecfg %0\n\ttilezero %%tmm4\n\ttilezero %%tmm5" : : "m"(config));
}

#    define AMX_LOOP(name, code)                                                               \
        static void name(void *ctx)                                                            \
        {                                                                                      \
            (void)ctx;                                                                         \
            amx_begin();                                                                       \
            for (int n = 0; n < STEPS; n++)                                                    \
                __asm__ volatile(code " %tmm5, %tmm4, %tmm0\n\t" code                          \
                                      " %tmm5, %tmm4, %tmm1\n\t" code                          \
                                      " %tmm5, %tmm4, %tmm2\n\t" code " %tmm5, %tmm4, %tmm3"); \
            __asm__ volatile("tilerelease");                                                   \
        }

AMX_LOOP(int8_amx, "tdpbssd")
AMX_LOOP(bf16_amx, "tdpbf16ps")
#endif

#ifdef MUSTER_NEON
F32_LOOP(f32_neon, noinline, 16)
INT8_LOOP(int8_smlal, noinline, 16, "w", "smlal %0.8h, %1.8b, %1.8b")
INT8_LOOP(int8_sdot, target("arch=armv8.2-a+dotprod"), 16, "w", "sdot %0.4s, %1.16b, %1.16b")
#endif

/* Measures the int8 rate of the instructions that the kernels multiply quantised weights with. */
static double int8_gop_s(const struct ops *ops)
{
#ifdef MUSTER_X86
    double step = 2e-9 * STEPS * CHAINS;
    if (ops == &op_amx)
        return 2e-9 * STEPS * AMX_TILES * 16 * 16 * 64 / bench_best_s(int8_amx, NULL);
    if (ops == &op_avx512_vnni || ops == &op_avx512_bf16)
        return step * 64 / bench_best_s(int8_vnni, NULL);
    if (ops == &op_avx2_vnni) return step * 32 / bench_best_s(int8_avx_vnni, NULL);
    if (ops != &op_ref) return step * 32 / bench_best_s(int8_avx2, NULL);
#elif defined(MUSTER_NEON)
    double step = 2e-9 * STEPS * CHAINS;
    if (ops == &op_neon_dotprod) return step * 16 / bench_best_s(int8_sdot, NULL);
    if (ops == &op_neon) return step * 8 / bench_best_s(int8_smlal, NULL);
#endif
    (void)ops;
    return 0;
}

static double bf16_gop_s(const struct ops *ops)
{
#ifdef MUSTER_X86
    if (ops == &op_amx)
        return 2e-9 * STEPS * AMX_TILES * 16 * 16 * 32 / bench_best_s(bf16_amx, NULL);
    if (ops->bf16) return 2e-9 * STEPS * CHAINS * 32 / bench_best_s(bf16_avx512, NULL);
#endif
    (void)ops;
    return 0;
}

static double f32_gop_s(const struct ops *ops)
{
#ifdef MUSTER_X86
    double step = 2e-9 * STEPS * CHAINS;
    if (ops == &op_avx2 || ops == &op_avx2_vnni) return step * 8 / bench_best_s(f32_avx2, NULL);
    if (ops != &op_ref) return step * 16 / bench_best_s(f32_avx512, NULL);
#elif defined(MUSTER_NEON)
    if (ops != &op_ref) return 2e-9 * STEPS * CHAINS * 4 / bench_best_s(f32_neon, NULL);
#endif
    (void)ops;
    return 0;
}

static void read_buffer(void *ctx)
{
    const uint64_t *p = ctx;
    uint64_t sum[8] = { 0 };
    for (size_t i = 0; i < BUFFER_BYTES / sizeof *p; i += 8)
        for (int j = 0; j < 8; j++)
            sum[j] += p[i + (size_t)j];
    for (int j = 0; j < 8; j++)
        keep += (float)sum[j];
}

struct measured {
    const struct ops *ops;
    pthread_barrier_t *start; /* each loop begins on all threads at once */
    struct bench_limits got;
    bool no_memory;
};

static void freep(void *p)
{
    free(*(void **)p);
}

static void *measure(void *ctx)
{
    struct measured *m = ctx;
    CLEANUP(freep) void *buffer = aligned_alloc(BENCH_HUGE_PAGE, BUFFER_BYTES);
    m->no_memory = !buffer;
    if (buffer) {
        madvise(buffer, BUFFER_BYTES, MADV_HUGEPAGE); /* as the engine's weights */
        memset(buffer, 1, BUFFER_BYTES);
    }
    pthread_barrier_wait(m->start);
    if (buffer) m->got.read_gb_s = 1e-9 * (double)BUFFER_BYTES / bench_best_s(read_buffer, buffer);
    pthread_barrier_wait(m->start);
    m->got.int8_gop_s = int8_gop_s(m->ops);
    pthread_barrier_wait(m->start);
    m->got.bf16_gop_s = bf16_gop_s(m->ops);
    pthread_barrier_wait(m->start);
    m->got.f32_gop_s = f32_gop_s(m->ops);
    return NULL;
}

int bench_limits_measure(const struct ops *ops, uint32_t threads, struct bench_limits *ret,
                         struct err *err)
{
    struct measured m[BENCH_THREADS_MAX];
    pthread_t thread[BENCH_THREADS_MAX];
    pthread_barrier_t start;
    must(threads > 0 && threads <= BENCH_THREADS_MAX);
    int rc = -pthread_barrier_init(&start, NULL, threads);
    if (rc < 0) return err_set(err, rc, "no barrier for %u threads", threads);
    for (uint32_t i = 0; i < threads; i++)
        m[i] = (struct measured){ .ops = ops, .start = &start };
    for (uint32_t i = 1; i < threads; i++)
        must(pthread_create(&thread[i], NULL, measure, &m[i]) == 0);
    measure(&m[0]);
    *ret = m[0].got;
    bool no_memory = m[0].no_memory;
    for (uint32_t i = 1; i < threads; i++) {
        pthread_join(thread[i], NULL);
        ret->read_gb_s += m[i].got.read_gb_s;
        ret->int8_gop_s += m[i].got.int8_gop_s;
        ret->bf16_gop_s += m[i].got.bf16_gop_s;
        ret->f32_gop_s += m[i].got.f32_gop_s;
        no_memory = no_memory || m[i].no_memory;
    }
    pthread_barrier_destroy(&start);
    return no_memory ? err_set(err, -ENOMEM, "no memory for %u buffers of %zu bytes", threads,
                               BUFFER_BYTES)
                     : 0;
}
