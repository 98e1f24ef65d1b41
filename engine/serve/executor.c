/* executor.c - turns the scheduler's batch into the model's, and logits into tokens.
 *
 *     draft model (drafter.c) ─► plan ─► moves of pages ─► forward pass ─► samples ─► commit
 *
 * Planning and sampling are on the same thread as the forward pass: on a processor there is
 * nothing to overlap them with, and a step stays a function that tests can call.
 */
#include "engine/serve/executor.h"

#include "base/core/bits.h"

#include <math.h>
#include <stdlib.h>

struct executor {
    struct model *model;
    uint32_t vocab_size;
    bool encoder;
    struct executor_events events;
    struct scheduler *sched;
    struct kv_store *kv, *swap; /* swap NULL: no swap space */
    struct model_runner *runner;
    struct sampler *sampler;
    struct batch_item *item;
    struct sched_result *result;
    float *logits; /* a row for each item, for each guess, and SCHED_SCORED_MAX */
    struct speed speed;
    struct drafter *drafter; /* NULL: no draft model */
    double swap_page_s;      /* running mean; 0: nothing was swapped yet */
    struct predict_engine *predict_engine;
    struct masks *masks;
    struct matcher **masked; /* of the batch, those whose mask is not made yet */
};

#define SWAP_RATE 0.1
/* Numbers for each page that fits whole; each takes some 200 bytes of the index. */
#define NUMBERS_MAX 16

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

struct kv_parts executor_parts(const struct model *model, const struct sched_config *sched)
{
    const struct model_info *info = model_info(model);
    const struct kv_layout l = kv_layout_of(model, sched->page_tokens);
    if (l.window_layers == 0 || info->kv_window >= sched->context_max)
        return (struct kv_parts){ 0 };
    uint32_t full = (uint32_t)(kv_full_bytes(&l) / KV_PART_ALIGN);
    uint32_t window = (uint32_t)(kv_page_bytes(&l) / KV_PART_ALIGN) - full;
    const uint32_t divisor = common_divisor(full, window);
    full /= divisor;
    window /= divisor;
    const uint64_t contexts =
        (uint64_t)sched->seqs_max * ceil_div_u32(sched->context_max, sched->page_tokens);
    uint64_t numbers = full > 0 ? (uint64_t)sched->pages * (full + window) / full : contexts;
    numbers = min_u64(numbers, (uint64_t)NUMBERS_MAX * sched->pages);
    numbers = max_u64(numbers, ceil_div_u32(sched->context_max, sched->page_tokens));
    numbers = max_u64(numbers, sched->pages);
    return (struct kv_parts){ .window_tokens = info->kv_window,
                              .full = full,
                              .window = window,
                              .numbers = (uint32_t)min_u64(numbers, KV_PAGES_MAX) };
}

int executor_new(struct model *model, const struct executor_config *config,
                 const struct executor_events *events, struct executor **ret, struct err *err)
{
    const struct model_info *info = model_info(model);
    const struct sched_config *sc = &config->sched;
    if (!info->vocab) {
        return err_set(err, -ENOTSUP,
                       "no tokenizer: the model file has no vocabulary, or its folder no "
                       "tokenizer.json, so there is nothing to serve");
    }
    CLEANUP(executor_freep) struct executor *x = calloc(1, sizeof *x);
    if (!x) return -ENOMEM;
    x->model = model;
    x->vocab_size = info->vocab_size;
    x->encoder = info->task != MODEL_GENERATE;
    x->events = *events;
    const struct speed_config speed = { config->perf, config->hardware, config->threads,
                                        config->cpu_share };
    int rc = speed_init(&x->speed, info, &speed, err);
    if (rc < 0) return rc;
    rc = sched_new(sc, &x->sched, err);
    if (rc < 0) return rc;
    rc = sc->parts.window_tokens > 0
             ? kv_store_new_elastic(model, sc->parts.numbers, sc->page_tokens, &x->kv, err)
             : kv_store_new(model, sc->pages, sc->page_tokens, &x->kv, err);
    if (rc < 0) return rc;
    if (sc->swap_pages > 0) {
        rc = kv_store_new(model, sc->swap_pages, sc->page_tokens, &x->swap, err);
        if (rc < 0) return err_prefix(err, rc, "swap space");
    }
    const struct model_runner_options opt = {
        .tokens_max = sc->batch_tokens_max,
        .seqs_max = sc->seqs_max,
        .threads = config->threads,
        .hidden_layer = config->predict_layer > 0 ? config->predict_layer
                                                  : predict_engine_layer(info->n_layers),
        .lora_rank_max = config->lora_rank_max,
    };
    rc = model_runner_new(model, x->kv, &opt, &x->runner, err);
    if (rc < 0) return rc;
    rc = sampler_new(x->vocab_size, &x->sampler);
    if (rc < 0) return rc;
    x->item = calloc(sc->seqs_max, sizeof *x->item);
    x->result = calloc(sc->seqs_max, sizeof *x->result);
    bool drafts = sched_policies(x->sched)->draft->propose != NULL;
    uint32_t rows = sc->seqs_max + SCHED_SCORED_MAX + (drafts ? SCHED_DRAFT_MAX : 0);
    x->logits = calloc((size_t)rows * x->vocab_size, sizeof *x->logits);
    x->masked = calloc(sc->seqs_max, sizeof *x->masked);
    const struct drafter_config drafter = { config->draft_model, sc, config->draft_pages, speed };
    rc = config->draft_model ? drafter_new(&drafter, info, &x->drafter, err) : 0;
    if (rc < 0) return rc;
    rc = masks_new(info->vocab, x->vocab_size, &x->masks, err);
    if (rc < 0) return rc;
    if (!x->item || !x->result || !x->logits || !x->masked) {
        return err_set(err, -ENOMEM, "no memory for the logits of %u sessions", sc->seqs_max);
    }
    rc = config->predict ? predict_engine_new(config->predict, config->predict_file,
                                              config->predict_every, &x->predict_engine, err)
                         : 0;
    if (rc < 0) return rc;
    *ret = TAKE(x);
    return 0;
}

void executor_free(struct executor *x)
{
    if (!x) return;
    model_runner_free(x->runner);
    kv_store_free(x->kv);
    kv_store_free(x->swap);
    sched_free(x->sched);
    sampler_free(x->sampler);
    free(x->item);
    free(x->result);
    free(x->logits);
    speed_fini(&x->speed);
    drafter_free(x->drafter);
    predict_engine_free(x->predict_engine);
    masks_free(x->masks);
    free(x->masked);
    free(x);
}

void executor_measure(struct executor *x, int64_t (*clock)(void))
{
    if (x->drafter) drafter_measure(x->drafter, clock);
}

void executor_save(struct executor *x)
{
    if (x->predict_engine) predict_engine_save(x->predict_engine);
}

void executor_sleep(struct executor *x)
{
    must(!sched_has_work(x->sched));
    kv_index_clear(sched_index(x->sched));
    kv_store_drop(x->kv);
    if (x->swap) kv_store_drop(x->swap);
    if (x->drafter) drafter_sleep(x->drafter);
    model_sleep(x->model);
}

int executor_wake(struct executor *x, struct err *err)
{
    int rc = model_wake(x->model, err);
    if (rc < 0 || !x->drafter) return rc;
    rc = drafter_wake(x->drafter, err);
    if (rc < 0) model_sleep(x->model);
    return rc;
}

struct scheduler *executor_sched(struct executor *x)
{
    return x->sched;
}

struct kv_store *executor_kv(struct executor *x)
{
    return x->kv;
}

struct masks *executor_masks(struct executor *x)
{
    return x->masks;
}

const struct drafter *executor_drafter(const struct executor *x)
{
    return x->drafter;
}

/* Gives sessions that ended since the last call back to their owners. */
static void return_ended(struct executor *x)
{
    for (struct session *s; (s = sched_next_ended(x->sched));) {
        struct output *output = s->owner;
        if (x->drafter) drafter_leave(x->drafter, output);
        if (x->predict_engine && !output->spec.embedding)
            predict_engine_end(x->predict_engine, s, &output->looks);
        x->events.on_end(x->events.arg, s->owner, s);
        sched_release(x->sched, s);
    }
}

/* Does the moves in their order: a later one may use a page that an earlier one filled or
 * emptied. */
static void move_pages(struct executor *x, const struct sched_batch *batch, int64_t (*clock)(void))
{
    if (batch->move_count == 0) return;
    int64_t from_us = clock();
    for (uint32_t i = 0; i < batch->move_count; i++) {
        const struct sched_move *m = &batch->move[i];
        struct kv_store *to = m->kind == SCHED_SWAP_OUT ? x->swap : x->kv;
        const struct kv_store *from = m->kind == SCHED_SWAP_IN ? x->swap : x->kv;
        (m->whole ? kv_store_copy_page : kv_store_copy_full)(to, m->to, from, m->from);
    }
    if (batch->swapped_out + batch->swapped_in == 0) return;
    double page_s = (double)(clock() - from_us) * 1e-6 / batch->move_count;
    x->swap_page_s =
        x->swap_page_s > 0 ? x->swap_page_s + SWAP_RATE * (page_s - x->swap_page_s) : page_s;
    sched_swap_observe(x->sched, x->swap_page_s);
}

/* Gives back the memory that pages lost: after the moves, which may read it, before what the step writes elsewhere, and
 * behind the step, for an engine that then idles. */
static void discard_stale(struct executor *x)
{
    uint32_t page;
    bool whole;
    while (kv_pool_next_stale(sched_index(x->sched)->pool, &page, &whole))
        kv_store_discard(x->kv, page, whole);
}

/* Has the states of an item's tokens added up instead of its logits computed. A session that lost its pages
 * computes tokens again, which are in the sum already. */
static void want_states(struct embedding *e, const struct sched_item *from, struct batch_item *ret)
{
    const uint32_t end = from->start + from->count;
    ret->want_logits = false;
    ret->state_sum = e->sum;
    ret->state_from = e->pooling == POOLING_MEAN ? e->next : end - from->sample;
    e->next = max_u32(e->next, end);
}

/* An encoder gives the states of a whole text at once. */
static void want_text(struct embedding *e, const struct sched_item *from, struct batch_item *ret)
{
    ret->want_logits = false;
    ret->second_from = e->second_from;
    ret->state_sum = e->sum;
    if (!e->sum) ret->score = &e->score;
    if (e->pooling == POOLING_LAST) ret->state_from = from->count - 1;
    if (e->pooling == POOLING_CLS) ret->state_to = 1;
}

static void prepare(struct executor *x, const struct sched_batch *batch)
{
    float *logits = x->logits;
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct sched_item *from = &batch->item[i];
        struct output *output = from->session->owner;
        bool reads = x->predict_engine && from->sample && !output->spec.embedding &&
                     predict_engine_reads(x->predict_engine, from->session);
        x->item[i] = (struct batch_item){
            .ids = from->session->ids + from->start,
            .count = from->count,
            .position = from->start,
            .stored = from->stored,
            .page_table = from->session->pages,
            .pages = from->session->page_count,
            .want_logits = from->sample || from->scored > 0,
            .rows_before = sched_item_rows_before(from),
            .drafted = from->drafted,
            .logits = logits,
            .adapter = output->spec.adapter,
            .hidden = reads ? output->looks.now : NULL,
        };
        if (output->spec.embedding)
            (x->encoder ? want_text : want_states)(output->spec.embedding, from, &x->item[i]);
        logits += (size_t)(x->item[i].rows_before + 1 + from->drafted) * x->vocab_size;
    }
}

/* Has the masks of the batch made beside the forward pass: they depend on what was generated so far. */
static void begin_masks(struct executor *x, const struct sched_batch *batch)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct output *output = batch->item[i].session->owner;
        bool wanted = batch->item[i].sample && output->spec.automaton;
        if (wanted && !matcher_has_mask(&output->matcher)) x->masked[count++] = &output->matcher;
    }
    masks_begin(x->masks, x->masked, count);
}

/* Chooses the token behind `known` tokens and gives it to the output. Returns true if it goes on. */
static bool sample(struct executor *x, struct session *session, uint32_t known, const float *logits,
                   struct sched_result *ret)
{
    struct output *output = session->owner;
    struct sampler_result got = { 0 };
    int rc = output_pick(output, x->sampler, logits, session->ids, known, &got);
    if (rc >= 0) rc = output_take(output, got.chosen.id);
    if (rc < 0) output->failed = rc;
    ret->id = got.chosen.id;
    ret->stop = rc != 0;
    if (rc >= 0) x->events.on_token(x->events.arg, output, session, &got);
    return rc == 0;
}

/* Verifies the item's guesses: samples token after token, and goes on behind a guess only where it is
 * the token that was sampled. A token is a function of the tokens before it, the logits behind them and
 * the random number of its position, so these are the tokens of an engine without guesses. Seen as
 * rejection sampling, a guess is accepted with the probability that the model gives it, and else
 * replaced by a token from the distribution without it (Leviathan et al., arXiv 2211.17192, with a
 * draft that is certain). */
static void sample_item(struct executor *x, const struct sched_item *item, uint32_t at)
{
    struct session *session = item->session;
    struct output *output = session->owner;
    struct sched_result *ret = &x->result[at];
    const float *logits = x->item[at].logits + (size_t)x->item[at].rows_before * x->vocab_size;
    *ret = (struct sched_result){ .done = output->spec.embedding || output->spec.prompt_only };
    if (ret->done) return;
    if (x->predict_engine) predict_engine_look(x->predict_engine, session, &output->looks);
    for (uint32_t known = session->total;; known++) {
        if (!sample(x, session, known, logits, ret)) return;
        if (ret->accepted == item->drafted || session->ids[known] != ret->id) return;
        ret->accepted++;
        logits += x->vocab_size;
    }
}

/* Scores the tokens of an item, each by the logits before it. */
static void score_item(struct executor *x, const struct sched_item *item, const float *logits)
{
    struct output *output = item->session->owner;
    if (!x->events.on_scored) return;
    for (uint32_t i = 0; i < item->scored; i++, logits += x->vocab_size) {
        struct sampler_result got;
        const uint32_t id = item->session->ids[item->score_from + i];
        int rc = sampler_score(x->sampler, &output->spec.sampling, logits, id, &got);
        if (rc < 0) got.chosen.logprob = -INFINITY;
        x->events.on_scored(x->events.arg, output, item->session, &got);
    }
}

static void tell_step(const struct executor *x, const struct sched_batch *batch)
{
    if (!x->events.on_step) return;
    double more_s = x->swap_page_s * (batch->swapped_out + batch->swapped_in);
    if (x->drafter) more_s += drafter_predicted_s(x->drafter);
    x->events.on_step(x->events.arg, perf_step_s(&x->speed.now, &batch->shape) + more_s);
}

int executor_step(struct executor *x, int64_t (*clock)(void), struct executor_step_info *ret,
                  struct err *err)
{
    *ret = (struct executor_step_info){ 0 };
    double draft_s = x->drafter ? drafter_run(x->drafter, x->sched, &x->speed.now, clock) : 0;
    const struct sched_batch *batch = sched_plan(x->sched, clock(), &x->speed.now);
    tell_step(x, batch);
    move_pages(x, batch, clock);
    discard_stale(x);
    if (batch->count == 0) {
        return_ended(x);
        return 0;
    }
    prepare(x, batch);
    *ret = (struct executor_step_info){ batch->tokens, batch->count, batch->shape,
                                        batch->swapped_out + batch->swapped_in, draft_s };
    begin_masks(x, batch);
    int rc = model_step(x->runner, x->item, batch->count, err);
    masks_wait(x->masks);
    for (uint32_t i = 0; i < batch->count && rc >= 0; i++) {
        score_item(x, &batch->item[i], x->item[i].logits);
        if (batch->item[i].sample) sample_item(x, &batch->item[i], i);
    }
    if (rc < 0) {
        sched_discard(x->sched, clock());
    } else {
        sched_commit(x->sched, x->result, clock());
    }
    return_ended(x);
    discard_stale(x);
    return rc < 0 ? rc : 1;
}

void executor_observe(struct executor *x, const struct perf_shape *shape, double seconds)
{
    speed_observe(&x->speed, shape, seconds);
}

void executor_observe_draft(struct executor *x, double stretch)
{
    if (x->drafter) drafter_observe(x->drafter, stretch);
}

void executor_clock_set(struct executor *x, double clock)
{
    speed_clock_set(&x->speed, clock);
    if (x->drafter) drafter_clock_set(x->drafter, clock);
}

const struct perf_coef *executor_perf_now(const struct executor *x)
{
    return &x->speed.now;
}

const struct perf_policy *executor_perf_policy(const struct executor *x)
{
    return x->speed.policy;
}

const struct perf_coef *executor_perf(const struct executor *x)
{
    return &x->speed.coef;
}
