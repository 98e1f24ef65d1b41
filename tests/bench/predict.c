/* predict.c - measures each predictor's microseconds for one prediction and for one observed output.
 *
 * Every predictor goes over the text trace (traces/text-5000.jsonl) twice, once to learn and once to be
 * timed, warm; hidden states and reports, which a trace lacks, are made up. Calls are timed in batches
 * of 16, because the clock ticks in microseconds. The median batch and the 99th percentile are printed,
 * which other work on the machine hardly moves.
 */
#include "base/core/rng.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "simulator/trace.h"

#include <stdio.h>
#include <stdlib.h>

#define TEXTS "traces/text-5000.jsonl" /* from the top of the tree */
#define BATCH 16

struct made {
    struct predict_features *f;
    float (*hidden)[PREDICT_HIDDEN_DIMS];
    uint32_t *tokens;
    uint32_t count;
};

struct figures {
    double median_us, p99_us;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct made make(const struct trace_features *of)
{
    uint32_t count = of->trace->count / BATCH * BATCH;
    struct made m = { .f = calloc(count, sizeof *m.f),
                      .hidden = calloc(count, sizeof *m.hidden),
                      .tokens = calloc(count, sizeof *m.tokens),
                      .count = count };
    struct rng rng;
    rng_seed(&rng, 1);
    must(m.f && m.hidden && m.tokens);
    for (uint32_t i = 0; i < count; i++) {
        trace_features_of(of, i, 0, &m.f[i]);
        for (uint32_t d = 0; d < PREDICT_HIDDEN_DIMS; d++)
            m.hidden[i][d] = (float)rng_normal(&rng);
        m.f[i].hidden = m.hidden[i];
        m.f[i].reported_tokens = 1 + (uint32_t)rng_below(&rng, 200);
        m.tokens[i] = of->trace->request[i].output_tokens;
    }
    return m;
}

static struct figures figures_of(double *batch_us, uint32_t batches)
{
    qsort(batch_us, batches, sizeof *batch_us, by_value);
    return (struct figures){ batch_us[batches / 2], batch_us[(batches - 1) * 99 / 100] };
}

static struct figures time_decide(const struct predict_policy *policy, const void *state,
                                  const struct made *m, double *batch_us, double *ret_sum)
{
    for (uint32_t b = 0; b < m->count / BATCH; b++) {
        int64_t from_us = clock_mono_us();
        for (uint32_t i = 0; i < BATCH; i++) {
            struct predict_verdict v;
            policy->decide(state, &m->f[b * BATCH + i], &v);
            *ret_sum += v.mean; /* keeps the compiler from removing the call */
        }
        batch_us[b] = (double)(clock_mono_us() - from_us) / BATCH;
    }
    return figures_of(batch_us, m->count / BATCH);
}

static struct figures time_observe(const struct predict_policy *policy, void *state,
                                   const struct made *m, double *batch_us)
{
    for (uint32_t b = 0; b < m->count / BATCH; b++) {
        int64_t from_us = clock_mono_us();
        for (uint32_t i = 0; i < BATCH; i++)
            policy->observe(state, &m->f[b * BATCH + i], m->tokens[b * BATCH + i], false);
        batch_us[b] = (double)(clock_mono_us() - from_us) / BATCH;
    }
    return figures_of(batch_us, m->count / BATCH);
}

int main(void)
{
    CLEANUP(buf_fini) struct buf text = { .max = 64 << 20 };
    CLEANUP(trace_freep) struct trace *trace = NULL;
    CLEANUP(trace_features_freep) struct trace_features *features = NULL;
    struct err err = { "" };
    int rc = file_read(TEXTS, 64 << 20, &text, &err);
    if (rc == 0) rc = trace_parse(buf_view(&text), TRACE_AUTO, &trace, &err);
    if (rc == 0) rc = trace_features_new(trace, &features, &err);
    if (rc < 0) {
        fprintf(stderr, "bench_predict: %s\n", err_text(&err, rc));
        return 1;
    }
    struct made m = make(features);
    double *batch_us = calloc(m.count / BATCH, sizeof *batch_us), sum = 0;
    must(batch_us != NULL);
    printf("predictor,bytes,decide_us,decide_p99_us,observe_us,observe_p99_us\n");
    for (uint32_t i = 0; i < predict_count; i++) {
        const struct predict_policy *policy = predict_table[i];
        void *state = malloc(policy->state_size);
        must(state != NULL);
        policy->init(state);
        time_observe(policy, state, &m, batch_us);
        struct figures observe = time_observe(policy, state, &m, batch_us);
        struct figures decide = time_decide(policy, state, &m, batch_us, &sum);
        printf("%s,%u,%.2f,%.2f,%.2f,%.2f\n", policy->name, policy->state_size, decide.median_us,
               decide.p99_us, observe.median_us, observe.p99_us);
        free(state);
    }
    free(batch_us);
    free(m.f);
    free(m.hidden);
    free(m.tokens);
    return sum > 0 ? 0 : 1;
}
