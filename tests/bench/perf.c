/* perf.c - measures the performance models: nanoseconds a call, and errors on an engine's own steps.
 *
 *     bench_perf [STEPS.csv MODEL HARDWARE]      a log of muster engine --step-log
 *
 * Errors are prequential: each step is estimated before it is observed. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "cli/plan/perf_fit.h"
#include "policies/perf/perf_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLS 1000000u
#define SHAPES 1024u

union bytes {
    max_align_t align;
    unsigned char of[PERF_STATE_BYTES_MAX];
};

static struct perf_shape any_shape(struct rng *rng)
{
    struct perf_shape s = { .decoding_seqs = 1 + (uint32_t)rng_below(rng, 100) };
    s.kv_tokens_decoding = s.kv_tokens_read = s.decoding_seqs * (100 + rng_below(rng, 2000));
    if (rng_below(rng, 2)) {
        s.prefill_tokens = 512;
        s.prefill_chunks = 1;
        s.kv_tokens_read += 512 * 300;
    }
    return s;
}

static void time_rows(const struct roofline *r)
{
    static struct perf_shape shape[SHAPES];
    struct rng rng;
    rng_seed(&rng, 1);
    for (uint32_t i = 0; i < SHAPES; i++)
        shape[i] = any_shape(&rng);
    double sum = 0;
    int64_t from_us = clock_mono_us();
    for (uint32_t i = 0; i < CALLS; i++)
        sum += roofline_step_s(r, &shape[i % SHAPES]);
    printf("roofline_step_s %.1f ns\n", 1e3 * (double)(clock_mono_us() - from_us) / CALLS);
    for (uint32_t p = 0; p < perf_count; p++) {
        const struct perf_setup setup = { .roofline = r };
        union bytes state = { 0 };
        perf_table[p]->init(&state, &setup);
        from_us = clock_mono_us();
        for (uint32_t i = 0; i < CALLS; i++)
            sum += perf_table[p]->step_s(&state, &shape[i % SHAPES]);
        double step_ns = 1e3 * (double)(clock_mono_us() - from_us) / CALLS;
        from_us = clock_mono_us();
        for (uint32_t i = 0; i < CALLS / 10; i++)
            perf_table[p]->observe(&state, &shape[i % SHAPES], 0.02);
        double observe_ns = 1e4 * (double)(clock_mono_us() - from_us) / CALLS;
        printf("%-18s step_s %6.1f ns, observe %7.1f ns, state %u bytes\n", perf_table[p]->name,
               step_ns, observe_ns, perf_table[p]->state_size);
    }
    if (!(sum > 0)) abort(); /* keeps the compiler from removing the loops */
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void judge(const struct perf_policy *p, const struct perf_table *t, const struct roofline *r)
{
    const struct perf_setup setup = { .roofline = r };
    union bytes state = { 0 };
    double *off = calloc(t->count, sizeof *off), sum = 0, early = 0, got_s = 0, took_s = 0;
    uint32_t below = 0, first = min_u32(100, t->count);
    struct perf_coef c;
    if (!off) abort();
    p->init(&state, &setup);
    for (uint32_t i = 0; i < t->count; i++) {
        const struct perf_sample *s = &t->sample[i];
        double got = p->step_s(&state, &s->shape);
        p->coef(&state, &c);
        below += s->seconds <= got * c.ratio_p90;
        off[i] = fabs(got / s->seconds - 1);
        sum += off[i];
        got_s += got, took_s += s->seconds;
        if (i < first) early += off[i] / first;
        p->observe(&state, &s->shape, s->seconds);
    }
    qsort(off, t->count, sizeof *off, by_size);
    printf("%-18s mean error %5.1f %%, median %5.1f, first %u steps %5.1f, all together %+5.1f, "
           "P90 covers %.3f\n",
           p->name, 100 * sum / t->count, 100 * off[t->count / 2], first, 100 * early,
           100 * (got_s / took_s - 1), (double)below / t->count);
    free(off);
}

static int judge_rows(const char *path, const char *model, const char *hardware)
{
    struct err err = { 0 };
    struct model_spec m;
    struct roofline r;
    const struct hardware *h = hardware_find(str_from(hardware));
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(perf_table_freep) struct perf_table *t = NULL;
    int rc = h ? 0 : err_set(&err, -ENOENT, "no hardware %s", hardware);
    if (rc >= 0) rc = model_spec_find(str_from(model), &m, &err);
    if (rc >= 0) rc = file_read(path, BUF_BYTES_MAX, &text, &err);
    if (rc >= 0) rc = perf_table_read(buf_view(&text), &m, &t, &err);
    if (rc >= 0 && !roofline_init(&r, h, &m, 1)) rc = -EINVAL;
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", path, err_text(&err, rc));
        return 1;
    }
    printf("%u steps of %s\n", t->count, path);
    for (uint32_t p = 0; p < perf_count; p++)
        judge(perf_table[p], t, &r);
    return 0;
}

int main(int argc, char **argv)
{
    struct model_spec m;
    struct roofline r;
    if (model_spec_find(STR("llama-3-8b"), &m, NULL) < 0) return 1;
    if (!roofline_init(&r, hardware_find(STR("a100")), &m, 1)) return 1;
    time_rows(&r);
    return argc == 4 ? judge_rows(argv[1], argv[2], argv[3]) : 0;
}
