/* cmd_bench_kernels.c - `muster bench kernels`: times single operations of the engine on one thread, beside
 * what this core can do. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "cli/bench/cmd_bench.h"
#include "cli/bench/limits.h"
#include "cli/command.h"
#include "cli/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SIDE_MAX 65536 /* of the matrix; its cells are bounded too */
#define CELLS_MAX ((int64_t)1 << 28)

struct kernels_options {
    struct str kernels, type;
    int64_t rows, cols;
    int output;
};

#define AT(member) .offset = offsetof(struct kernels_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "kernels", .type = CONFIG_TEXT, AT(kernels),
      .about = "Kernels, as avx2; the best that this processor runs by default." },
    { .name = "type", .letter = 't', .type = CONFIG_TEXT, AT(type),
      .about = "Type of weights, as q4_0; all of them and attention by default." },
    { .name = "rows", .type = CONFIG_INT, .default_text = "2048", .min = TILE_ROWS, .max = SIDE_MAX,
      AT(rows), .about = "Rows of the matrix." },
    { .name = "cols", .type = CONFIG_INT, .default_text = "2048", .min = QUANT_SUPER, .max = SIDE_MAX,
      AT(cols), .about = "Columns of the matrix, a multiple of 256." },
    REMOTE_OUTPUT_ROW(struct kernels_options, output),
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct kernels_options, rows);
static const struct opt_command usage = {
    .name = "muster bench kernels",
    .about = "Time single operations of the engine on one thread.",
    .options = &record,
    .notes = "GB/s are those of weights, or of K and V. A small matrix stays in the caches. Shares "
             "are of the int8\nrate for quantised types and of the F32 rate for the others.",
};

struct work {
    const struct ops *ops;
    void *scratch;
    struct gemm gemm;
    struct attend attend;
    uint32_t rows; /* of attention */
};

struct report {
    const struct bench_limits *limits;
    struct buf *out;
    struct json_writer *json; /* NULL: a table */
};

static void freep(void *p)
{
    free(*(void **)p);
}

static void *take(size_t bytes)
{
    /* Large ones lie in huge pages, as the engine's weights do. */
    size_t align = bytes < BENCH_HUGE_PAGE ? 64 : BENCH_HUGE_PAGE;
    bytes = (bytes + align - 1) / align * align;
    void *p = aligned_alloc(align, bytes);
    must(p);
    if (align > 64) madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

static void report_row(const struct report *r, const char *what, uint32_t tokens, double s,
                       double gop, double gbytes, double peak)
{
    double share = peak > 0 ? gop / s / peak : 0;
    if (r->json) {
        json_object(r->json);
        json_kv_text(r->json, "operation", what);
        json_kv_u64(r->json, "tokens", tokens);
        json_kv_f64(r->json, "us", s * 1e6);
        json_kv_f64(r->json, "gop_s", gop / s);
        json_kv_f64(r->json, "gb_s", gbytes / s);
        json_kv_f64(r->json, "peak_share", share);
        json_kv_f64(r->json, "bandwidth_share", gbytes / s / r->limits->read_gb_s);
        json_object_end(r->json);
        return;
    }
    buf_printf(r->out, "%-16s %6u %12.1f %8.1f %7.0f %8.1f %7.0f\n", what, tokens, s * 1e6, gop / s,
               100 * share, gbytes / s, 100 * gbytes / s / r->limits->read_gb_s);
}

static void gemm_once(void *ctx)
{
    struct work *w = ctx;
    w->ops->gemm(&w->gemm, 0, weight_tiles(w->gemm.w), w->scratch);
}

static void time_gemm(const struct ops *ops, enum weight_type_id type,
                      const struct kernels_options *o, uint32_t tokens, void *scratch,
                      const struct report *r)
{
    struct weight weight = { .type = type, .rows = (uint32_t)o->rows, .cols = (uint32_t)o->cols };
    size_t bytes = weight_tiles(&weight) * weight_tile_bytes(&weight);
    CLEANUP(freep) void *tiles = take(bytes);
    CLEANUP(freep) float *x = take(tokens * activation_stride(weight.cols) * sizeof(float));
    CLEANUP(freep) float *y = take(tokens * activation_stride(weight.rows) * sizeof(float));
    CLEANUP(freep) struct q8_super *x_q8 = take(tokens * q8_row_bytes(weight.cols));
    weight.tiles = tiles;
    bool rounded = ops->bf16_round && type == WEIGHT_BF16;
    struct work w = { .ops = ops,
                      .scratch = scratch,
                      .gemm = { .w = &weight,
                                .x = x,
                                .x_stride = activation_stride(weight.cols),
                                .x_q8 = x_q8,
                                .x_bf16 = rounded ? (const uint16_t *)(const void *)x_q8 : NULL,
                                .y = y,
                                .y_stride = activation_stride(weight.rows),
                                .tokens = tokens } };
    double s = bench_best_s(gemm_once, &w), gop = 2e-9 * weight.rows * weight.cols * tokens;
    report_row(r, weight_types[type].name, tokens, s, gop, 1e-9 * (double)bytes,
               ops_round(ops, type)               ? r->limits->int8_gop_s
               : ops->bf16 && type == WEIGHT_BF16 ? r->limits->bf16_gop_s
                                                  : r->limits->f32_gop_s);
}

static void attend_once(void *ctx)
{
    struct work *w = ctx;
    for (uint32_t r = 0; r < w->rows; r += w->ops->attend_rows) {
        w->attend.row_first = r;
        w->attend.row_count = min_u32(w->ops->attend_rows, w->rows - r);
        w->ops->attend(&w->attend, w->scratch);
    }
}

/* Times `count` queries at the end of a context: one KV head with a group of 4, heads of 64. */
static void time_attend(const struct ops *ops, enum kv_type type, uint32_t count, void *scratch,
                        const struct report *r)
{
    enum { HEAD_DIM = 64, GROUP = 4, PAGE_TOKENS = 64, CONTEXT = 2048 };
    struct kv_layout layout = { type, 1, 1, HEAD_DIM, PAGE_TOKENS, 0, 0 };
    uint32_t pages = CONTEXT / PAGE_TOKENS, table[CONTEXT / PAGE_TOKENS];
    size_t page_bytes = kv_page_bytes(&layout), stride = activation_stride(GROUP * HEAD_DIM);
    CLEANUP(freep) char *memory = take(pages * page_bytes);
    CLEANUP(freep) float *q = take(count * stride * sizeof(float));
    CLEANUP(freep) float *out = take(count * stride * sizeof(float));
    for (uint32_t i = 0; i < pages; i++)
        table[i] = i;
    struct work w = { .ops = ops,
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
                                  .out_head = HEAD_DIM,
                                  .group = GROUP,
                                  .position = CONTEXT - count,
                                  .scale = 0.125f } };
    double s = bench_best_s(attend_once, &w), keys = (CONTEXT - count) + (count + 1) / 2.0;
    static const char *const names[KV_TYPE_COUNT] = { [KV_F16] = "attention F16",
                                                      [KV_F32] = "attention F32",
                                                      [KV_Q8] = "attention Q8",
                                                      [KV_Q4] = "attention Q4" };
    report_row(r, names[type], count, s, 4e-9 * keys * count * GROUP * HEAD_DIM,
               1e-9 * (double)(pages * page_bytes), r->limits->f32_gop_s);
}

static int check(const struct kernels_options *o, const struct ops **ret_ops, int *ret_type,
                 struct err *err)
{
    enum weight_type_id type;
    *ret_ops = o->kernels.len ? ops_find(o->kernels) : ops_best();
    if (!*ret_ops || !(*ret_ops)->supported())
        return err_set(err, COMMAND_MISUSED, "--kernels " STR_FMT ": none of that name run here",
                       STR_ARG(o->kernels));
    *ret_type = -1;
    if (o->type.len && !weight_type_named(o->type, &type))
        return err_set(err, COMMAND_MISUSED, "--type " STR_FMT ": no such type; there are %s",
                       STR_ARG(o->type), weight_type_names());
    if (o->type.len) *ret_type = (int)type;
    if (o->cols % QUANT_SUPER != 0)
        return err_set(err, COMMAND_MISUSED, "--cols %lld: want a multiple of %u",
                       (long long)o->cols, QUANT_SUPER);
    if (o->rows * o->cols > CELLS_MAX)
        return err_set(err, COMMAND_MISUSED, "--rows times --cols: at most %lld",
                       (long long)CELLS_MAX);
    return 0;
}

static void time_all(const struct ops *ops, const struct kernels_options *o, int type,
                     const struct report *r)
{
    static const uint32_t tokens[] = { 1, 4, 32, 256 };
    CLEANUP(freep) void *scratch = take(OP_SCRATCH_BYTES);
    for (uint32_t i = 0; i < WEIGHT_TYPE_COUNT; i++)
        for (size_t t = 0; t < COUNT_OF(tokens) && (type < 0 || type == (int)i); t++)
            time_gemm(ops, i, o, tokens[t], scratch, r);
    for (uint32_t i = 0; i < KV_TYPE_COUNT && type < 0; i++) {
        time_attend(ops, i, 1, scratch, r);
        time_attend(ops, i, 256, scratch, r);
    }
}

static int bench_kernels(const void *options, struct err *err)
{
    const struct kernels_options *o = options;
    const struct ops *ops;
    int type = -1;
    struct bench_limits limits;
    int rc = check(o, &ops, &type, err);
    if (rc == 0) rc = bench_limits_measure(ops, 1, &limits, err);
    if (rc < 0) return rc;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    const bool json = o->output == REMOTE_JSON;
    const struct report r = { &limits, &out, json ? &w : NULL };
    if (json) {
        json_writer_init(&w, &out);
        json_object(&w);
        json_kv_text(&w, "kernels", ops->name);
        json_kv_f64(&w, "read_gb_s", limits.read_gb_s);
        json_kv_f64(&w, "int8_gop_s", limits.int8_gop_s);
        json_kv_f64(&w, "bf16_gop_s", limits.bf16_gop_s);
        json_kv_f64(&w, "f32_gop_s", limits.f32_gop_s);
        json_key(&w, "operations");
        json_array(&w);
    } else {
        buf_printf(
            &out,
            "limits of a core: %.1f GB/s read, %.0f GOP/s int8, %.0f GOP/s F32; %s, %d x %d\n",
            limits.read_gb_s, limits.int8_gop_s, limits.f32_gop_s, ops->name, (int)o->rows,
            (int)o->cols);
        buf_printf(&out, "%-16s %6s %12s %8s %7s %8s %7s\n", "OPERATION", "TOKENS", "US", "GOP/S",
                   "% PEAK", "GB/S", "% READ");
    }
    time_all(ops, o, type, &r);
    if (json) {
        json_array_end(&w);
        json_object_end(&w);
        buf_byte(&out, '\n');
    }
    return command_print(&out, err);
}

int bench_kernels_run(int argc, char *const *argv)
{
    struct kernels_options options;
    return command_run(&usage, argc, argv, &options, bench_kernels);
}
