/* sizing.c - compute shares, lengths and speeds from the measured machine, and write the configuration.
 *
 *     share    = PART * cores / largest, 1 at most      the rest is for router, controller and load
 *     longest  = PROMPT_PART * SLO * smallest * share / prefill_token_s
 *     speed    = cores wanted / (CPU seconds of the slice / its length)
 *
 * The load is thus the same share of the fleet's capacity on every machine. On a slow machine prompts
 * shrink too, together with the blocks that they share: the TTFT SLO is in seconds, and a prompt that
 * takes longer to compute would be late even on an empty fleet. Rejected: a longer SLO, which would
 * make the SLO depend on the machine.
 *
 * The numbers of the section `local` are replaced line by line in the user's own file, so that everything
 * else stays as it was written. The result is loaded again and compared: a file in another style of YAML
 * is refused, not half changed. Rejected: printing the loaded configuration, which writes out every
 * default and so gives engines settings that the user did not choose.
 */

#include "cli/demo/sizing.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "cli/schema.h"
#include "controller/config.h"
#include "engine/model/model.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define PART 0.6
#define SHARE_LEAST 0.05 /* of a core: an engine refuses less */
#define PROMPT_PART 0.3
#define PROMPT_MIN 64
#define OUTPUT_TOKENS 60 /* mean of the shipped model's responses to replayed prompts, rounded up */
#define BATCH 2          /* sequences that share a decode step, in the mean */
#define SPEED_ROUNDS 4   /* the slice depends on the speed and the speed on the slice */
#define SPEED_MIN 0.1
#define SPEED_MAX 100

struct demo_sizing demo_size(const struct demo_machine *m, const struct demo_shape *shape)
{
    double least = fmin(1, SHARE_LEAST / shape->smallest);
    struct demo_sizing s = { .share = fmax(fmin(1, PART * m->cores / shape->largest), least) };
    double longest_s = PROMPT_PART * shape->slo_ttft_s * shape->smallest * s.share;
    double longest = floor(longest_s / m->prefill_token_s);
    s.lengths.tokens_max = (uint32_t)fmin(fmax(longest, PROMPT_MIN), DEMO_PROMPT_MAX);
    s.lengths.divide = DEMO_DIVIDE_MIN;
    while (s.lengths.divide < DEMO_DIVIDE_MAX &&
           s.lengths.divide * s.lengths.tokens_max < DEMO_DIVIDE_MIN * DEMO_PROMPT_MAX * 3 / 5) {
        s.lengths.divide *= 2; /* whole blocks of keys stay shared */
    }
    return s;
}

double demo_request_s(const struct demo_machine *m, const struct demo_lengths *lengths,
                      uint32_t prompt_tokens)
{
    uint32_t prompt = min_u32(max_u32(prompt_tokens / lengths->divide, 1), lengths->tokens_max);
    return prompt * m->prefill_token_s + OUTPUT_TOKENS * (m->decode_seq_s + m->step_s / BATCH);
}

double demo_speed(const struct demo_machine *m, const struct demo_lengths *lengths,
                  const struct trace *trace, uint32_t first, int64_t span_us, double cores)
{
    double speed = 1;
    for (uint32_t round = 0; round < SPEED_ROUNDS; round++) {
        double work_s = 0, trace_us = (double)span_us * speed;
        int64_t from_us = trace->request[first].at_us;
        int64_t last_us = trace->request[trace->count - 1].at_us - from_us;
        if (trace_us > (double)last_us) trace_us = (double)last_us;
        for (uint32_t i = first; i < trace->count; i++) {
            if ((double)(trace->request[i].at_us - from_us) >= trace_us) break;
            work_s += demo_request_s(m, lengths, trace->request[i].prompt_tokens);
        }
        speed = cores / (work_s / (trace_us * 1e-6));
        speed = fmin(fmax(speed, SPEED_MIN), SPEED_MAX);
    }
    return speed;
}

/* Integrals of the rate, which is BEFORE_RATE, then a line up to 1 over RAMP, then 1. */
#define BEFORE_PASSED ((double)DEMO_BEFORE_US * DEMO_BEFORE_RATE)
#define RAMP_PASSED ((double)DEMO_RAMP_US * (1 + DEMO_BEFORE_RATE) / 2)

int64_t demo_ramp_passed_us(int64_t us)
{
    double t = (double)us;
    if (t <= DEMO_BEFORE_US) return (int64_t)(t * DEMO_BEFORE_RATE);
    t -= DEMO_BEFORE_US;
    if (t >= DEMO_RAMP_US) return (int64_t)(BEFORE_PASSED + RAMP_PASSED + t - DEMO_RAMP_US);
    double slope = (1 - DEMO_BEFORE_RATE) / DEMO_RAMP_US;
    return (int64_t)(BEFORE_PASSED + DEMO_BEFORE_RATE * t + slope * t * t / 2);
}

int64_t demo_ramp_us(int64_t full_speed_us)
{
    double x = (double)full_speed_us;
    if (x <= BEFORE_PASSED) return (int64_t)(x / DEMO_BEFORE_RATE);
    x -= BEFORE_PASSED;
    if (x >= RAMP_PASSED) return (int64_t)(DEMO_BEFORE_US + DEMO_RAMP_US + x - RAMP_PASSED);
    double slope = (1 - DEMO_BEFORE_RATE) / DEMO_RAMP_US;
    double t =
        (sqrt(DEMO_BEFORE_RATE * DEMO_BEFORE_RATE + 2 * slope * x) - DEMO_BEFORE_RATE) / slope;
    return (int64_t)(DEMO_BEFORE_US + t);
}

/* Time steps of the model in CPU seconds, and count the cores that busy threads get.
 *
 *     prefill_token_s = CPU of a step of PROMPT tokens / PROMPT
 *     decode_seq_s    = (CPU of a step of SEQS sequences - CPU of a step of one) / (SEQS - 1)
 *     step_s          = CPU of a step of one sequence - decode_seq_s
 *     cores           = CPU of all threads / wall time
 *
 * CPU seconds say how fast the processor is, however many other processes want it; `cores` says how much
 * of it is left. Each figure is the median of its steps, so that one slowed by cold caches does not
 * count. Rejected: the throughput of one thread in wall time, which takes a machine with one free core
 * for one with many.
 */

#define PROMPT 128
#define SEQS 4
#define PAGE_TOKENS 64
#define SEQ_PAGES 3    /* PROMPT tokens and those decoded after them */
#define SPAN_US 400000 /* for each of the two kinds of steps */
#define STEPS_MAX 512

struct bench {
    struct model *model;
    struct kv_store *kv;
    struct model_runner *runner;
    uint32_t ids[PROMPT];
    uint32_t pages[SEQS][SEQ_PAGES];
    float *logits; /* SEQS vocabularies */
    atomic_bool stop;
};

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Keeps a core busy; its CPU time is its result. */
static void *spin(void *arg)
{
    struct bench *b = arg;
    double *used_s = malloc(sizeof *used_s);
    double before_s = cpu_s();
    while (!atomic_load_explicit(&b->stop, memory_order_relaxed)) {
    }
    if (used_s) *used_s = cpu_s() - before_s;
    return used_s;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs one step of `count` sequences from `first`, with `tokens` tokens each; *ret_s is its CPU seconds. */
static int step(struct bench *b, uint32_t first, uint32_t count, uint32_t tokens, double *ret_s,
                struct err *err)
{
    struct batch_item item[SEQS];
    uint32_t vocab = model_info(b->model)->vocab_size;
    for (uint32_t i = 0; i < count; i++) {
        item[i] = (struct batch_item){ .ids = b->ids,
                                       .count = tokens,
                                       .position = tokens == 1 ? PROMPT : 0,
                                       .page_table = b->pages[first + i],
                                       .pages = SEQ_PAGES,
                                       .want_logits = true,
                                       .logits = b->logits + (size_t)i * vocab };
    }
    double before_s = cpu_s();
    int rc = model_step(b->runner, item, count, err);
    *ret_s = cpu_s() - before_s;
    return rc;
}

/* Measures the median of such steps over `span_us`, at least three. */
static int median(struct bench *b, uint32_t count, uint32_t tokens, int64_t span_us, double *ret_s,
                  struct err *err)
{
    double value[STEPS_MAX];
    uint32_t n = 0;
    int64_t until_us = clock_mono_us() + span_us;
    int rc = 0;
    while (rc == 0 && n < STEPS_MAX && (n < 3 || clock_mono_us() < until_us))
        rc = step(b, 0, count, tokens, &value[n++], err);
    if (rc < 0) return rc;
    qsort(value, n, sizeof *value, by_value);
    *ret_s = value[n / 2];
    return 0;
}

static int time_steps(struct bench *b, struct demo_machine *ret, struct err *err)
{
    double unused_s, prompt_s, one_s, all_s;
    int rc = 0;
    for (uint32_t i = 1; rc == 0 && i < SEQS; i++) /* K and V for the steps that decode */
        rc = step(b, i, 1, PROMPT, &unused_s, err);
    if (rc == 0) rc = median(b, 1, PROMPT, SPAN_US, &prompt_s, err);
    if (rc == 0) rc = median(b, 1, 1, SPAN_US / 2, &one_s, err);
    if (rc == 0) rc = median(b, SEQS, 1, SPAN_US / 2, &all_s, err);
    if (rc < 0) return rc;
    ret->decode_seq_s = fmax((all_s - one_s) / (SEQS - 1), 0);
    ret->step_s = fmax(one_s - ret->decode_seq_s, 0);
    ret->prefill_token_s = prompt_s / PROMPT;
    return 0;
}

static int measure(struct bench *b, struct demo_machine *ret, struct err *err)
{
    pthread_t thread[DEMO_THREADS - 1];
    uint32_t started = 0;
    while (started < COUNT_OF(thread) && pthread_create(&thread[started], NULL, spin, b) == 0)
        started++;
    int64_t before_us = clock_mono_us();
    double used_s = cpu_s();
    int rc = time_steps(b, ret, err);
    double wall_s = (double)(clock_mono_us() - before_us) * 1e-6;
    used_s = cpu_s() - used_s;
    atomic_store(&b->stop, true);
    for (uint32_t i = 0; i < started; i++) {
        double *more_s = NULL;
        pthread_join(thread[i], (void **)&more_s);
        if (more_s) used_s += *more_s;
        free(more_s);
    }
    if (rc == 0) ret->cores = used_s / wall_s;
    return rc;
}

int demo_measure(const char *path, struct demo_machine *ret, struct err *err)
{
    const struct model_runner_options options = { .tokens_max = PROMPT, .seqs_max = SEQS };
    struct bench b = { 0 };
    int rc = model_load(path, NULL, &b.model, err);
    if (rc == 0) rc = kv_store_new(b.model, SEQS * SEQ_PAGES, PAGE_TOKENS, &b.kv, err);
    if (rc == 0) rc = model_runner_new(b.model, b.kv, &options, &b.runner, err);
    if (rc == 0) {
        uint32_t vocab = model_info(b.model)->vocab_size;
        for (uint32_t i = 0; i < PROMPT; i++)
            b.ids[i] = (i * 7 + 1) % vocab;
        for (uint32_t i = 0; i < SEQS * SEQ_PAGES; i++)
            b.pages[i / SEQ_PAGES][i % SEQ_PAGES] = i;
        b.logits = calloc((size_t)SEQS * vocab, sizeof *b.logits);
        rc = b.logits ? measure(&b, ret, err) : err_set(err, -ENOMEM, "no memory to measure");
    }
    free(b.logits);
    model_runner_freep(&b.runner);
    kv_store_freep(&b.kv);
    model_freep(&b.model);
    return rc;
}

static const struct service_section *first_service(const struct config *config)
{
    const struct config_records *services = config_section_get(config, "services");
    return services->count > 0 ? services->items : NULL;
}

const char *demo_model_of(const struct config *config)
{
    const struct service_section *s = first_service(config);
    return s ? s->model.data : NULL;
}

/* Returns the share of the pool's first offer; 0 when it is not an offer of this machine. */
static double share_of(const struct local_section *local, const struct pool_section *pool)
{
    const struct offer_section *offer = local->offers.items;
    if (!str_eq(pool->provider, STR("local")) || pool->offers.count == 0) return 0;
    for (size_t i = 0; i < local->offers.count; i++)
        if (str_eq(offer[i].name, pool->offers.items[0])) return offer[i].share;
    return 0;
}

int demo_shape_of(const struct config *config, struct demo_shape *ret, struct err *err)
{
    const struct service_section *s = first_service(config);
    const struct local_section *local = config_section_get(config, "local");
    if (!s) return err_set(err, -EINVAL, "the demo needs a service; the configuration has none");
    struct demo_shape shape = { .smallest = INFINITY, .slo_ttft_s = (double)s->slo_ttft_us * 1e-6 };
    const struct pool_section *pool = s->pools.items;
    int64_t total = 0;
    for (size_t i = 0; i < s->pools.count; i++) {
        double share = share_of(local, &pool[i]);
        if (share <= 0 || pool[i].max <= 0) {
            return err_set(err, -EINVAL,
                           "pool %s: the demo needs pools of this machine (provider: local) that "
                           "may grow",
                           pool[i].name.data);
        }
        shape.largest += share * (double)pool[i].max;
        shape.smallest = fmin(shape.smallest, share);
        total += pool[i].max;
    }
    if (total < DEMO_FIXED_INSTANCES) {
        return err_set(err, -EINVAL, "the pools allow %lld instances, the comparison needs %d",
                       (long long)total, DEMO_FIXED_INSTANCES);
    }
    /* In turn over the pools, as the comparison's fleet is set. */
    int64_t left = DEMO_FIXED_INSTANCES;
    for (int64_t turn = 0; left > 0; turn++) {
        for (size_t i = 0; i < s->pools.count && left > 0; i++) {
            if (turn >= pool[i].max) continue;
            shape.fixed += share_of(local, &pool[i]);
            left--;
        }
    }
    *ret = shape;
    return 0;
}

/* Returns the key of a line "  - KEY: VALUE" or "    KEY: VALUE"; empty for other lines. */
static struct str key_of(struct str line)
{
    while (line.len > 0 && (*line.data == ' ' || *line.data == '-')) {
        line.data++;
        line.len--;
    }
    size_t end = str_find(line, STR(":"));
    return end == SIZE_MAX ? (struct str){ 0 } : (struct str){ line.data, end };
}

static void put_local(struct buf *out, struct str line, const struct demo_machine *m, double share,
                      double *offer_share)
{
    struct str key = key_of(line);
    double value;
    if (str_eq(key, STR("share"))) {
        *offer_share = value = strtod(key.data + key.len + 1, NULL) * share;
    } else if (str_eq(key, STR("cores"))) {
        value = strtod(key.data + key.len + 1, NULL) * share;
    } else if (str_eq(key, STR("perf_step"))) {
        value = m->step_s / *offer_share;
    } else if (str_eq(key, STR("perf_prefill"))) {
        value = m->prefill_token_s / *offer_share;
    } else if (str_eq(key, STR("perf_decode"))) {
        value = m->decode_seq_s / *offer_share;
    } else {
        buf_str(out, line);
        buf_byte(out, '\n');
        return;
    }
    buf_str(out, (struct str){ line.data, (size_t)(key.data + key.len - line.data) });
    buf_printf(out, ": %.6g\n", value);
}

/* Returns true if both have the same offers, except that shares are `share` times as large in `scaled`. */
static bool is_scaled(const struct config *config, const struct config *scaled, double share)
{
    const struct local_section *a = config_section_get(config, "local");
    const struct local_section *b = config_section_get(scaled, "local");
    const struct offer_section *x = a->offers.items, *y = b->offers.items;
    if (a->offers.count != b->offers.count) return false;
    if (fabs(b->cores - a->cores * share) > 1e-4 * a->cores) return false;
    for (size_t i = 0; i < a->offers.count; i++)
        if (fabs(y[i].share - x[i].share * share) > 1e-4 * x[i].share) return false;
    return true;
}

int demo_config_scale(struct str text, const struct demo_machine *machine, double share,
                      struct buf *out, struct err *err)
{
    CLEANUP(config_freep) struct config *before = NULL;
    CLEANUP(config_freep) struct config *after = NULL;
    struct str rest = text;
    bool local = false;
    double offer_share = 1;
    while (rest.len > 0) {
        struct str line = str_cut(&rest, '\n');
        if (line.len > 0 && *line.data != ' ' && *line.data != '#')
            local = str_starts(line, STR("local:"));
        if (local) {
            put_local(out, line, machine, share, &offer_share);
        } else {
            buf_str(out, line);
            buf_byte(out, '\n');
        }
    }
    if (out->rc < 0) return err_set(err, out->rc, "no memory for the demo's configuration");
    struct config_sources from = { .path = "the configuration", .text = text };
    struct config_sources to = { .path = "the demo's configuration", .text = buf_view(out) };
    int rc = config_load(&schema, &from, &before, NULL, err);
    if (rc == 0) rc = config_load(&schema, &to, &after, NULL, err);
    if (rc < 0) return rc;
    if (is_scaled(before, after, share)) return 0;
    return err_set(err, -EINVAL,
                   "the demo cannot set the shares of `local`: write its keys one a line, or give "
                   "--speed and keep the shares as they are");
}
