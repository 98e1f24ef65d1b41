/* truth.c - tests the simulator against the real engine: one real run fits it, others test it.
 *
 *     bench_truth STEPS.csv FITTED.jsonl TESTED.jsonl AGAIN.jsonl [MAX_NUM_SEQS BATCH_TOKENS]
 *
 * STEPS.csv is `muster engine --step-log` of the run that `muster load --record FITTED.jsonl` made.
 * It gives the coefficients of a step; FITTED gives the seconds that a request spends before the
 * scheduler sees it. Requests pass that front one after another, since one thread reads HTTP and
 * tokenises: a burst reaches the scheduler spread out. Then TESTED's arrivals and lengths are simulated
 * and compared with what TESTED measured. AGAIN is the same load on the same engine once more, so that
 * the error stands beside the engine's own spread. tests/bench/truth.sh makes the files.
 *
 *     coefficients = argmin over non-negative of sum (predicted - measured)^2 / predicted
 *
 * A long step weighs as much as short ones of the same total time, and the predictions of all steps add
 * up to the measured total. The divisor is the prediction of the pass before.
 */
#include "base/core/buf.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "simulator/sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TERMS 5
#define PASSES 4
#define FILE_BYTES_MAX ((size_t)1 << 30)
#define TOKENISE_S 1.05e-6   /* a token; docs/performance.md */
#define FRONT_S_MAX 0.02     /* no request takes longer at the front */
#define CONTEXT_TOKENS 65536 /* more than any session of the run needs, so that KV is no limit */

struct normal {
    double info[TERMS][TERMS], target[TERMS];
    uint64_t rows;
};

struct means {
    double ttft_s, tpot_s;
    uint32_t requests, tpots;
};

static void die(const char *what, const struct err *err)
{
    fprintf(stderr, "bench_truth: %s: %s\n", what, err->text);
    exit(2);
}

static void read_whole(const char *path, struct buf *text)
{
    struct err err = { 0 };
    if (file_read(path, FILE_BYTES_MAX, text, &err) < 0) die(path, &err);
}

/* ---- fit ------------------------------------------------------------------------------------ */

static void add_step(struct normal *n, const double x[TERMS], double seconds, double expected_s)
{
    double weight = 1 / expected_s;
    for (int i = 0; i < TERMS; i++) {
        n->target[i] += weight * x[i] * seconds;
        for (int j = 0; j < TERMS; j++)
            n->info[i][j] += weight * x[i] * x[j];
    }
    n->rows++;
}

/* Adds all steps of the log. `before` has the last pass's coefficients; NULL in the first pass, which
 * divides by the measured seconds. */
static void add_steps(struct str rest, const double before[TERMS], struct normal *n)
{
    str_cut(&rest, '\n'); /* names */
    while (rest.len > 0) {
        struct str line = str_cut(&rest, '\n');
        double v[6] = { 0 };
        for (int i = 0; i < 6; i++)
            if (str_to_f64(str_cut(&line, ','), &v[i]) < 0) break;
        if (v[5] <= 0) continue;
        double x[TERMS] = { 1, v[0], v[2], v[4], v[3] - v[4] }, expected_s = 0;
        for (int i = 0; before && i < TERMS; i++)
            expected_s += before[i] * x[i];
        add_step(n, x, v[5], expected_s > 0 ? expected_s : v[5]);
    }
}

/* Solves for the terms in `set` by Gauss-Jordan elimination; the others are 0. Returns false when the
 * system is singular. */
static bool solve(const struct normal *n, unsigned set, double ret[TERMS])
{
    double a[TERMS][TERMS + 1];
    for (int i = 0; i < TERMS; i++) {
        bool in = set >> i & 1;
        for (int j = 0; j < TERMS; j++)
            a[i][j] = in && (set >> j & 1) ? n->info[i][j] : i == j;
        a[i][TERMS] = in ? n->target[i] : 0;
    }
    for (int k = 0; k < TERMS; k++) {
        if (!(fabs(a[k][k]) > 0)) return false;
        for (int i = 0; i < TERMS; i++) {
            double f = i == k ? 0 : a[i][k] / a[k][k];
            for (int j = k; j <= TERMS; j++)
                a[i][j] -= f * a[k][j];
        }
    }
    for (int i = 0; i < TERMS; i++)
        ret[i] = a[i][TERMS] / a[i][i];
    return true;
}

/* Finds the best non-negative terms by trying every set of free ones: 31 small systems. */
static void solve_allowed(const struct normal *n, double best[TERMS])
{
    double best_cost = INFINITY;
    for (unsigned set = 1; set < 1u << TERMS; set++) {
        double z[TERMS], cost = 0;
        if (!solve(n, set, z)) continue;
        bool allowed = true;
        for (int i = 0; i < TERMS; i++) {
            allowed = allowed && z[i] >= 0;
            cost -= z[i] * n->target[i];
        }
        if (!allowed || !(cost < best_cost)) continue;
        best_cost = cost;
        memcpy(best, z, sizeof z);
    }
}

static struct perf_coef fit(const char *path)
{
    CLEANUP(buf_fini) struct buf text = { .max = FILE_BYTES_MAX };
    read_whole(path, &text);
    double best[TERMS] = { 0 };
    uint64_t rows = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        struct normal n = { 0 };
        add_steps(buf_view(&text), pass > 0 ? best : NULL, &n);
        solve_allowed(&n, best);
        rows = n.rows;
    }
    return (struct perf_coef){ .step_s = best[0],
                               .prefill_token_s = best[1],
                               .decode_seq_s = best[2],
                               .kv_read_s = best[3],
                               .attend_s = best[4],
                               .samples = (double)rows,
                               .ratio_p90 = 1 };
}

/* ---- runs ----------------------------------------------------------------------------------- */

static void add_request(struct means *m, double ttft_s, double e2e_s, double tokens)
{
    m->ttft_s += ttft_s;
    m->requests++;
    if (tokens < 2) return;
    m->tpot_s += (e2e_s - ttft_s) / (tokens - 1);
    m->tpots++;
}

static struct means done(struct means m)
{
    m.ttft_s /= m.requests ? m.requests : 1;
    m.tpot_s /= m.tpots ? m.tpots : 1;
    return m;
}

static struct means measured(struct str text)
{
    struct means m = { 0 };
    while (text.len > 0) {
        struct json_reader r;
        double tokens = 0, ttft_s = -1, e2e_s = -1;
        json_reader_init(&r, str_cut(&text, '\n'));
        if (json_next(&r) != JSON_OBJECT) continue;
        while (json_next(&r) == JSON_KEY) {
            double *to = json_key_is(&r, "output_length") ? &tokens
                         : json_key_is(&r, "ttft_s")      ? &ttft_s
                         : json_key_is(&r, "e2e_s")       ? &e2e_s
                                                          : NULL;
            if (!to) {
                json_skip(&r);
                continue;
            }
            json_next(&r);
            json_f64(&r, to);
        }
        if (ttft_s >= 0) add_request(&m, ttft_s, e2e_s, tokens);
    }
    return done(m);
}

/* Returns `t` as it reaches the scheduler, behind a thread that takes front_s + TOKENISE_S a token. */
static struct trace *behind_front(const struct trace *t, double front_s)
{
    struct trace *seen;
    struct err err = { 0 };
    int64_t free_us = 0;
    if (trace_new(&seen, &err) < 0) die("trace", &err);
    for (uint32_t i = 0; i < t->count; i++) {
        struct trace_request r = t->request[i];
        int64_t from_us = r.at_us > free_us ? r.at_us : free_us;
        r.at_us = free_us =
            from_us + (int64_t)((front_s + TOKENISE_S * (double)r.prompt_tokens) * 1e6);
        if (trace_append(seen, &r, NULL, (struct str){ 0 }, &err) < 0) die("trace", &err);
    }
    return seen;
}

static struct means simulated(const struct trace *came, const struct perf_coef *step, uint32_t seqs,
                              uint32_t batch_tokens, double front_s)
{
    CLEANUP(trace_freep) struct trace *t = behind_front(came, front_s);
    struct sim_config c = { .seed = 1,
                            .pool_count = 1,
                            .routers = 1,
                            .kv_tokens = (uint64_t)CONTEXT_TOKENS * seqs,
                            .seqs_max = seqs,
                            .batch_tokens_max = batch_tokens,
                            .slo_ttft_s = 2, /* the engine's own default */
                            .slo_tpot_s = 0.2 };
    c.pool[0] = (struct sim_pool){ .has_step = true, .step = *step, .count = 1, .tp = 1 };
    struct sim_result r;
    struct err err = { 0 };
    if (sim_run(&c, t, &r, &err) < 0) die("simulation", &err);
    struct means m = { 0 };
    for (uint32_t i = 0; i < r.offered; i++) {
        const struct sim_outcome *o = &r.outcome[i];
        if (o->end != SIM_COMPLETED) continue;
        double ttft_s = (double)(o->first_us - came->request[i].at_us) * 1e-6;
        double e2e_s = (double)(o->last_us - came->request[i].at_us) * 1e-6;
        add_request(&m, ttft_s, e2e_s, o->generated);
    }
    sim_result_fini(&r);
    return done(m);
}

struct record {
    struct buf text;
    struct trace *trace;
    struct means real;
};

static void record_read(const char *path, struct record *ret)
{
    struct err err = { 0 };
    *ret = (struct record){ .text = { .max = FILE_BYTES_MAX } };
    read_whole(path, &ret->text);
    if (trace_parse(buf_view(&ret->text), TRACE_AUTO, &ret->trace, &err) < 0) die(path, &err);
    ret->real = measured(buf_view(&ret->text));
}

static void record_fini(struct record *r)
{
    buf_fini(&r->text);
    trace_free(r->trace);
}

/* Finds the front_s at which the simulated mean TTFT of the fitted run is the measured one. */
static double fit_front(const struct record *r, const struct perf_coef *step, uint32_t seqs,
                        uint32_t batch_tokens)
{
    double low_s = 0, high_s = FRONT_S_MAX;
    while (high_s - low_s > 1e-5) {
        double front_s = (low_s + high_s) / 2;
        bool late = simulated(r->trace, step, seqs, batch_tokens, front_s).ttft_s > r->real.ttft_s;
        *(late ? &high_s : &low_s) = front_s;
    }
    return low_s;
}

static void print_row(const char *what, double fitted, double real, double again)
{
    printf("%-5s %10.3f %10.3f %10.3f   %+7.1f %%   %+7.1f %%\n", what, fitted * 1e3, real * 1e3,
           again * 1e3, 100 * (fitted / real - 1), 100 * (again / real - 1));
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: bench_truth STEPS.csv FITTED.jsonl TESTED.jsonl AGAIN.jsonl "
                        "[MAX_NUM_SEQS BATCH_TOKENS]\n");
        return 2;
    }
    uint32_t seqs = argc > 5 ? (uint32_t)strtoul(argv[5], NULL, 10) : 16;
    uint32_t batch_tokens = argc > 6 ? (uint32_t)strtoul(argv[6], NULL, 10) : 256;
    struct record fitted, tested, again;
    record_read(argv[2], &fitted);
    record_read(argv[3], &tested);
    record_read(argv[4], &again);
    struct perf_coef step = fit(argv[1]);
    double front_s = fit_front(&fitted, &step, seqs, batch_tokens);
    struct means sim = simulated(tested.trace, &step, seqs, batch_tokens, front_s);
    printf("step: a %.3g  b %.3g  c %.3g  d %.3g  e %.3g s of %.0f steps; before it %.2f ms\n",
           step.step_s, step.prefill_token_s, step.decode_seq_s, step.kv_read_s, step.attend_s,
           step.samples, front_s * 1e3);
    printf("ms     simulated       real  real again   error       real again / real\n");
    print_row("TTFT", sim.ttft_s, tested.real.ttft_s, again.real.ttft_s);
    print_row("TPOT", sim.tpot_s, tested.real.tpot_s, again.real.tpot_s);
    record_fini(&fitted);
    record_fini(&tested);
    record_fini(&again);
    return 0;
}
