/* kernels.c - measures the kernels of ops_table against the most that this core can do.
 *
 *     bench_kernels [NAME...]     names in ops_table; all that this processor supports
 *
 * One thread. Each figure is the best of several runs of at least 20 ms, because other work on the
 * core can only make it slower. Peaks are measured first, by the same clock: F32
 * multiply-adds from registers, and reads of a buffer larger than the caches. CSV on stdout. */
#include "base/core/err.h"
#include "base/core/own.h"
#include "engine/kernels/half.h"
#include "engine/kernels/op.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define RUNS 5
#define RUN_S 0.02
#define BUFFER_BYTES ((size_t)128 << 20)

struct work {
    void (*once)(struct work *w);
    const struct ops *ops;
    void *scratch;
    struct gemm gemm;
    struct attend attend;
    uint32_t rows; /* of attention */
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Returns the seconds of one call in the best run. */
static double best_s(struct work *w)
{
    double best = HUGE_VAL;
    for (int run = 0; run < RUNS; run++) {
        double start = now_s(), took = 0;
        uint32_t calls = 0;
        while (took < RUN_S) {
            w->once(w);
            calls++;
            took = now_s() - start;
        }
        best = fmin(best, took / calls);
    }
    return best;
}

static void *take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    must(p);
    memset(p, 0, bytes);
    return p;
}

static void freep(void *p)
{
    free(*(void **)p);
}

/* ---- the core's peaks */

static volatile float keep;

#ifdef MUSTER_X86
#    ifdef __clang__
#        define UNROLL _Pragma("unroll")
#    else
#        define UNROLL _Pragma("GCC unroll 12")
#    endif
#    define PEAK_STEPS 20000
#    define PEAK_CHAINS 12 /* latency 4 times 2 units, and some more */

/* x * y + z of a vector type is one fused instruction: contraction is on by default. */
#    define PEAK(name, isa, bytes)                                              \
        __attribute__((target(isa), noinline)) static void name(struct work *w) \
        {                                                                       \
            typedef float vector __attribute__((vector_size(bytes)));           \
            vector acc[PEAK_CHAINS], half = (vector){ 0 } + 0.5f;               \
            (void)w;                                                            \
            for (int i = 0; i < PEAK_CHAINS; i++)                               \
                acc[i] = half;                                                  \
            for (int n = 0; n < PEAK_STEPS; n++) {                              \
                UNROLL                                                          \
                for (int i = 0; i < PEAK_CHAINS; i++)                           \
                    acc[i] = acc[i] * half + half;                              \
            }                                                                   \
            for (int i = 0; i < PEAK_CHAINS; i++)                               \
                keep += acc[i][0];                                              \
        }
PEAK(peak_avx512, "avx512f", 64)
PEAK(peak_avx2, "avx2,fma", 32)
#endif

/* Returns GFLOP/s of F32 multiply-adds; 0 for kernels without vectors of their own. */
static double peak_gflops(const struct ops *o)
{
#ifdef MUSTER_X86
    bool wide = o == &op_avx512;
    struct work w = { .once = wide ? peak_avx512 : peak_avx2 };
    if (o != &op_ref) return 2e-9 * PEAK_STEPS * PEAK_CHAINS * (wide ? 16 : 8) / best_s(&w);
#endif
    (void)o;
    return 0;
}

static void read_buffer(struct work *w)
{
    const uint64_t *p = w->scratch;
    uint64_t sum[8] = { 0 };
    for (size_t i = 0; i < BUFFER_BYTES / sizeof *p; i += 8)
        for (int j = 0; j < 8; j++)
            sum[j] += p[i + (size_t)j];
    for (int j = 0; j < 8; j++)
        keep += (float)sum[j];
}

static double peak_gbytes(void)
{
    CLEANUP(freep) void *buffer = take(BUFFER_BYTES);
    struct work w = { .once = read_buffer, .scratch = buffer };
    return 1e-9 * (double)BUFFER_BYTES / best_s(&w);
}

/* ---- matrix products */

static void gemm_once(struct work *w)
{
    w->ops->gemm(&w->gemm, 0, weight_tiles(w->gemm.w), w->scratch);
}

static void bench_gemm(const struct ops *o, enum weight_type_id type, uint32_t rows, uint32_t cols,
                       uint32_t tokens, double peak, void *scratch)
{
    struct weight weight = { .type = type, .rows = rows, .cols = cols };
    size_t bytes = weight_tiles(&weight) * weight_tile_bytes(&weight);
    CLEANUP(freep) void *tiles = take(bytes);
    CLEANUP(freep) float *x = take(tokens * activation_stride(cols) * sizeof(float));
    CLEANUP(freep) float *y = take(tokens * activation_stride(rows) * sizeof(float));
    CLEANUP(freep) struct q8_super *x_q8 = take(tokens * q8_row_bytes(cols));
    weight.tiles = tiles;
    struct work w = { .once = gemm_once,
                      .ops = o,
                      .scratch = scratch,
                      .gemm = { .w = &weight,
                                .x = x,
                                .x_stride = activation_stride(cols),
                                .x_q8 = x_q8,
                                .y = y,
                                .y_stride = activation_stride(rows),
                                .tokens = tokens } };
    double s = best_s(&w), gflops = 2e-9 * rows * cols * tokens / s;
    printf("gemm %s,%s,%ux%u,%u,%.1f,%.1f,%.1f,%.0f\n", weight_types[type].name, o->name, rows,
           cols, tokens, s * 1e6, gflops, 1e-9 * (double)bytes / s,
           peak > 0 ? 100 * gflops / peak : 0);
}

/* ---- attention */

static void attend_once(struct work *w)
{
    for (uint32_t r = 0; r < w->rows; r += w->ops->attend_rows) {
        w->attend.row_first = r;
        w->attend.row_count = min_u32(w->ops->attend_rows, w->rows - r);
        w->ops->attend(&w->attend, w->scratch);
    }
}

/* Times `count` queries at the end of a context: one KV head with a group of 4, heads of 64. */
static void bench_attend(const struct ops *o, enum kv_type type, uint32_t context, uint32_t count,
                         double peak, void *scratch)
{
    enum { HEAD_DIM = 64, GROUP = 4, PAGE_TOKENS = 64 };
    struct kv_layout layout = { type, 1, 1, HEAD_DIM, PAGE_TOKENS };
    uint32_t pages = ceil_div_u32(context, PAGE_TOKENS);
    size_t page_bytes = kv_page_bytes(&layout), stride = activation_stride(GROUP * HEAD_DIM);
    CLEANUP(freep) char *memory = take(pages * page_bytes);
    CLEANUP(freep) float *q = take(count * stride * sizeof(float));
    CLEANUP(freep) float *out = take(count * stride * sizeof(float));
    CLEANUP(freep) uint32_t *table = take(pages * sizeof *table);
    for (uint32_t i = 0; i < pages; i++)
        table[i] = i;
    struct work w = { .once = attend_once,
                      .ops = o,
                      .scratch = scratch,
                      .rows = count * GROUP,
                      .attend = { .layout = &layout,
                                  .head = memory,
                                  .page_bytes = page_bytes,
                                  .page_table = table,
                                  .q = q,
                                  .q_stride = stride,
                                  .out = out,
                                  .out_stride = stride,
                                  .group = GROUP,
                                  .position = context - count,
                                  .scale = 0.125f } };
    double s = best_s(&w), keys = (context - count) + (count + 1) / 2.0;
    double gflops = 4e-9 * keys * count * GROUP * HEAD_DIM / s;
    printf("attend %s,%s,%u keys,%u,%.1f,%.1f,%.1f,%.0f\n", type == KV_F16 ? "F16" : "F32", o->name,
           context, count, s * 1e6, gflops, 1e-9 * (double)(pages * page_bytes) / s,
           peak > 0 ? 100 * gflops / peak : 0);
}

static void bench_row(const struct ops *o, void *scratch)
{
    static const uint32_t shapes[][2] = { { 256, 256 }, { 4096, 256 }, { 2048, 2048 } };
    static const uint32_t tokens[] = { 1, 2, 4, 8, 16, 48, 256 };
    double peak = peak_gflops(o);
    printf("peak fma,%s,,,,%.1f,,100\n", o->name, peak);
    for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        size_t shape_count = type == WEIGHT_Q8_0 ? COUNT_OF(shapes) : 1;
        for (size_t s = 0; s < shape_count; s++)
            for (size_t t = 0; t < COUNT_OF(tokens); t++)
                bench_gemm(o, type, shapes[s][0], shapes[s][1], tokens[t], peak, scratch);
    }
    for (uint32_t type = 0; type < KV_TYPE_COUNT; type++) {
        bench_attend(o, type, 2048, 1, peak, scratch);
        bench_attend(o, type, 2048, 256, peak, scratch);
    }
}

int main(int argc, char **argv)
{
    CLEANUP(freep) void *scratch = take(OP_SCRATCH_BYTES);
    printf("op,kernels,shape,tokens,us,gflops,gbytes,percent_of_peak\n");
    printf("peak read,,%zu MiB,,,,%.1f,100\n", BUFFER_BYTES >> 20, peak_gbytes());
    if (argc > 1) {
        for (int i = 1; i < argc; i++) {
            const struct ops *o = ops_find(str_from(argv[i]));
            if (!o || !o->supported()) {
                fprintf(stderr, "bench_kernels: no kernels '%s' here\n", argv[i]);
                return 2;
            }
            bench_row(o, scratch);
        }
        return 0;
    }
    for (const struct ops *const *row = ops_table; *row; row++)
        if ((*row)->supported() && *row != &op_ref) bench_row(*row, scratch);
    return 0;
}
