/* t_optimum.c - compares order policies and presets with the best possible schedule (InferMax's bound).
 *
 *     requests of a prompt and an output, all there at once; memory for so many tokens
 *     a step: prompts whole, one token for each that decodes; costs a + b * prompt + c * decodes
 *     the least sum of end times over all schedules, by dynamic programming over progress
 *
 * A state is the progress of each request: nothing, or its prompt and some tokens. An optimum never
 * drops and recomputes: the memory that this frees would be free as well if the session began later.
 * So a state's future does not depend on how it was reached, and up to eight requests of a few tokens
 * are enumerated whole. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "engine/core/scheduler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REQUESTS_MAX 8
#define PAGE 16

static const struct perf_coef perf = { .step_s = 1e-3,
                                       .prefill_token_s = 1e-4,
                                       .decode_seq_s = 2e-4 };

struct job {
    uint32_t prompt, output;
};

struct puzzle {
    struct job job[REQUESTS_MAX];
    uint32_t count, pages, seqs_max;
    uint32_t radix[REQUESTS_MAX]; /* number of a request's states: 0, 1 .. output */
    double *best;                 /* least sum of end times from here on; NAN: not computed */
};

static uint32_t pages_of(const struct job *j, uint32_t done)
{
    /* The last token is returned but never computed. */
    return done == 0 || done == j->output ? 0 : (j->prompt + done - 1 + PAGE - 1) / PAGE;
}

/* Computes the step that advances the set `mask`: writes its seconds; returns true if its pages and
 * sequences fit. */
static bool step_of(const struct puzzle *p, const uint32_t *done, uint32_t mask, double *ret_s)
{
    uint32_t pages = 0, seqs = 0;
    struct perf_shape shape = { 0 };
    for (uint32_t i = 0; i < p->count; i++) {
        const struct job *j = &p->job[i];
        if (!(mask >> i & 1)) {
            pages += pages_of(j, done[i]);
            continue;
        }
        if (done[i] == j->output) return false;
        seqs++;
        pages += (j->prompt + done[i] + PAGE - 1) / PAGE; /* while the step runs */
        if (done[i] == 0) {
            shape.prefill_tokens += j->prompt;
        } else {
            shape.decoding_seqs++;
        }
    }
    *ret_s = perf_step_s(&perf, &shape);
    return pages <= p->pages && seqs <= p->seqs_max;
}

static double solve(struct puzzle *p, const uint32_t *done)
{
    uint32_t at = 0, open = 0, next[REQUESTS_MAX];
    for (uint32_t i = 0; i < p->count; i++) {
        at = at * p->radix[i] + done[i];
        open += done[i] < p->job[i].output;
    }
    if (open == 0) return 0;
    if (!isnan(p->best[at])) return p->best[at];
    double best = INFINITY;
    for (uint32_t mask = 1; mask < 1u << p->count; mask++) {
        double step_s;
        if (!step_of(p, done, mask, &step_s)) continue;
        for (uint32_t i = 0; i < p->count; i++)
            next[i] = done[i] + (mask >> i & 1);
        /* Each request that is not done waits for this step. */
        best = fmin(best, step_s * open + solve(p, next));
    }
    p->best[at] = best;
    return best;
}

static double optimum_s(struct puzzle *p)
{
    size_t states = 1;
    for (uint32_t i = 0; i < p->count; i++)
        states *= p->radix[i] = p->job[i].output + 1;
    p->best = malloc(states * sizeof *p->best);
    for (size_t i = 0; i < states; i++)
        p->best[i] = NAN;
    const uint32_t none[REQUESTS_MAX] = { 0 };
    double sum = solve(p, none);
    free(p->best);
    return sum / p->count;
}

/* Returns the mean end time of the real scheduler on the same machine. */
static double scheduled_s(const struct puzzle *p, const struct preset *preset, const char *order)
{
    struct sched_config config = {
        .pages = p->pages,
        .page_tokens = PAGE,
        .context_max = p->pages * PAGE,
        .seqs_max = p->seqs_max,
        .batch_tokens_max = 4096,
        .waiting_max = REQUESTS_MAX,
        .events_max = 8,
        .preset = preset,
        .policies.order = order ? order_find(str_from(order)) : NULL,
        .policies.chunk = chunk_find(STR("whole")),
    };
    struct scheduler *s = NULL;
    static const uint32_t ids[4096];
    assert_int_equal(sched_new(&config, &s, NULL), 0);
    for (uint32_t i = 0; i < p->count; i++) {
        struct session *session;
        struct sched_request req = { .id = i,
                                     .ids = ids,
                                     .prompt_tokens = p->job[i].prompt,
                                     .output_max = p->job[i].output,
                                     .predicted_p50 = p->job[i].output,
                                     .predicted_p90 = p->job[i].output,
                                     .predicted_mean = p->job[i].output };
        assert_int_equal(sched_submit(s, &req, &session, NULL), 0);
    }
    struct sched_result result[REQUESTS_MAX] = { 0 };
    double now_s = 0, sum = 0;
    for (uint32_t ended = 0; ended < p->count;) {
        const struct sched_batch *b = sched_plan(s, (int64_t)(now_s * 1e6), &perf);
        assert_true(b->count > 0);
        now_s += perf_step_s(&perf, &b->shape);
        sched_commit(s, result, (int64_t)(now_s * 1e6));
        for (struct session *x; (x = sched_next_ended(s)); sched_release(s, x), ended++)
            sum += now_s;
    }
    sched_free(s);
    return sum / p->count;
}

static struct puzzle draw(struct rng *rng, uint32_t count)
{
    struct puzzle p = { .count = count, .seqs_max = 4, .pages = 14 };
    for (uint32_t i = 0; i < count; i++) {
        p.job[i].prompt = 8 + (uint32_t)rng_below(rng, 90);
        p.job[i].output = 1 + (uint32_t)rng_below(rng, count > 6 ? 3 : 5);
    }
    return p;
}

static void t_known_answers(void **state)
{
    (void)state;
    /* One at a time, the shorter first: 1 + 2 and 1 + 4 ms of prompts. */
    struct puzzle p = { .count = 2, .seqs_max = 1, .pages = 14 };
    p.job[0] = (struct job){ 40, 1 }, p.job[1] = (struct job){ 20, 1 };
    assert_true(fabs(optimum_s(&p) - (3e-3 + 8e-3) / 2) < 1e-12);
    p.seqs_max = 2; /* together both take 7 ms, later on average */
    assert_true(fabs(optimum_s(&p) - (3e-3 + 8e-3) / 2) < 1e-12);
    p.job[0].prompt = p.job[1].prompt = 5; /* two steps would pay the fixed cost twice */
    assert_true(fabs(optimum_s(&p) - 2e-3) < 1e-12);
}

static void t_nobody_beats_the_optimum(void **state)
{
    (void)state;
    static const char *const orders[] = { "fcfs", "sjf_output", "sjf_work", "response_ratio",
                                          "srtf" };
    double gap[COUNT_OF(orders) + 1] = { 0 };
    struct rng rng;
    rng_seed(&rng, 8);
    const uint32_t puzzles = 24;
    for (uint32_t n = 0; n < puzzles; n++) {
        struct puzzle p = draw(&rng, n % 4 == 0 ? 8 : 6);
        double bound = optimum_s(&p);
        for (size_t i = 0; i < COUNT_OF(gap); i++) {
            bool infermax = i == COUNT_OF(orders);
            double got = scheduled_s(&p, infermax ? preset_find(STR("infermax")) : NULL,
                                     infermax ? NULL : orders[i]);
            if (got < bound * (1 - 1e-9)) fail_msg("puzzle %u: better than the best", n);
            gap[i] += got / bound - 1;
        }
    }
    for (size_t i = 0; i < COUNT_OF(gap); i++)
        printf("%s: %.1f %% above the optimum\n", i < COUNT_OF(orders) ? orders[i] : "infermax",
               100 * gap[i] / puzzles);
    assert_true(gap[2] < gap[0]); /* sjf_work against fcfs */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_known_answers),
        cmocka_unit_test(t_nobody_beats_the_optimum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
