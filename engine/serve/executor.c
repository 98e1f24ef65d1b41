/* executor.c - turns the scheduler's batch into the model's, and logits into tokens.
 *
 * Planning and sampling are on the same thread as the forward pass: on a processor there is
 * nothing to overlap them with, and a step stays a function that tests can call.
 */
#include "engine/serve/executor.h"

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
    const struct perf_policy *perf;
    void *perf_state;
    struct perf_coef coef;     /* of perf_state */
    struct perf_coef coef_now; /* at `clock`, a share of full speed */
    double clock;
    double swap_page_s; /* running mean; 0: nothing was swapped yet */
    struct predict_engine *predict_engine;
    struct masks *masks;
    struct matcher **masked; /* of the batch, those whose mask is not made yet */
};

#define SWAP_RATE 0.1

/* Guesses the step times of this model on a processor of today, before the first step was timed:
 * right within a factor of three or so, and forgotten after twenty steps. Rates: bytes read and
 * operations done per second by one thread, measured on two server processors. */
static struct perf_coef guess_perf(const struct model_info *m, const struct executor_config *c)
{
    const double read_s = 12e9, compute_s = 80e9, thread_most = 4; /* then memory is the limit */
    double threads = c->threads > 1 ? fmin((double)c->threads, thread_most) : 1;
    double share = c->cpu_share > 0 ? fmin(c->cpu_share / threads, 1) : 1;
    double speed = threads * share;
    return (struct perf_coef){
        .step_s = (1e-4 + (double)m->weight_bytes / read_s) / speed,
        .prefill_token_s = 2 * (double)m->parameters / compute_s / speed,
        .decode_seq_s = (5e-5 + 10e-9 * (double)m->vocab_size) / share,
        .kv_read_s = (double)m->kv_bytes_per_token / read_s / speed,
        .attend_s = (double)m->kv_bytes_per_token / read_s / speed,
    };
}

/* The weights are as wide as the packed ones. */
struct model_spec executor_spec(const struct model_info *m)
{
    struct model_spec spec = { .name = "served",
                               .layers = m->n_layers,
                               .hidden = m->n_embd,
                               .heads = m->n_heads,
                               .kv_heads = m->n_kv_heads,
                               .head_dim = m->head_dim,
                               .ffn = m->n_ff,
                               .vocab = m->vocab_size,
                               .gated = m->task == MODEL_GENERATE };
    double kv = 2.0 * m->n_layers * m->n_kv_heads * m->head_dim;
    spec.weight_bytes = (double)m->weight_bytes / (double)m->parameters;
    /* An encoder keeps none, but moves those of a step in F32. */
    spec.kv_element_bytes = m->task == MODEL_GENERATE ? (double)m->kv_bytes_per_token / kv
                                                      : (double)kv_element_bytes(KV_F32);
    return spec;
}

/* Starts the estimates: with the closed form where the hardware is known, else with a guess. A
 * CPU's row has the peaks of all its cores, so they are scaled to the share that this process may
 * use. */
static int start_perf(struct executor *x, const struct model_info *m,
                      const struct executor_config *c, struct err *err)
{
    const struct perf_coef guess = guess_perf(m, c);
    struct perf_setup setup = { .prior = &guess };
    struct roofline roofline;
    x->perf = c->perf;
    if (!x->perf) x->perf = perf_find(c->hardware ? STR(PERF_DEFAULT) : STR(PERF_DEFAULT_UNKNOWN));
    if (c->hardware) {
        const struct model_spec spec = executor_spec(m);
        double cores = c->threads;
        if (c->cpu_share > 0) cores = fmin(cores, c->cpu_share);
        if (!roofline_init(&roofline, c->hardware, &spec, 1)) {
            return err_set(err, -EINVAL, "--hardware %s: the model does not fit it",
                           c->hardware->name);
        }
        double slower = c->hardware->cores > 0 ? c->hardware->cores / cores : 1;
        const double factor[ROOFLINE_PARTS] = { slower, slower, slower, slower, slower };
        roofline_scale(&roofline, factor);
        setup.roofline = &roofline;
    }
    must(setup.roofline || !x->perf->needs_roofline); /* the configuration was checked */
    x->perf_state = calloc(1, x->perf->state_size);
    if (!x->perf_state) return -ENOMEM;
    x->perf->init(x->perf_state, &setup);
    x->perf->coef(x->perf_state, &x->coef);
    executor_clock_set(x, 1);
    return 0;
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
    int rc = start_perf(x, info, config, err);
    if (rc < 0) return rc;
    rc = sched_new(sc, &x->sched, err);
    if (rc < 0) return rc;
    rc = kv_store_new(model, sc->pages, sc->page_tokens, &x->kv, err);
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
    free(x->perf_state);
    predict_engine_free(x->predict_engine);
    masks_free(x->masks);
    free(x->masked);
    free(x);
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
    model_sleep(x->model);
}

int executor_wake(struct executor *x, struct err *err)
{
    return model_wake(x->model, err);
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

/* Gives sessions that ended since the last call back to their owners. */
static void return_ended(struct executor *x)
{
    for (struct session *s; (s = sched_next_ended(x->sched));) {
        const struct output *output = s->owner;
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
        kv_store_copy_page(to, m->to, from, m->from);
    }
    if (batch->swapped_out + batch->swapped_in == 0) return;
    double page_s = (double)(clock() - from_us) * 1e-6 / batch->move_count;
    x->swap_page_s =
        x->swap_page_s > 0 ? x->swap_page_s + SWAP_RATE * (page_s - x->swap_page_s) : page_s;
    sched_swap_observe(x->sched, x->swap_page_s);
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
        bool wanted = batch->item[i].sample && output->spec.machine;
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
    double swap_s = x->swap_page_s * (batch->swapped_out + batch->swapped_in);
    x->events.on_step(x->events.arg, perf_step_s(&x->coef_now, &batch->shape) + swap_s);
}

int executor_step(struct executor *x, int64_t (*clock)(void), struct executor_step_info *ret,
                  struct err *err)
{
    *ret = (struct executor_step_info){ 0 };
    const struct sched_batch *batch = sched_plan(x->sched, clock(), &x->coef_now);
    tell_step(x, batch);
    move_pages(x, batch, clock);
    if (batch->count == 0) {
        return_ended(x);
        return 0;
    }
    prepare(x, batch);
    *ret = (struct executor_step_info){ batch->tokens, batch->count, batch->shape,
                                        batch->swapped_out + batch->swapped_in };
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
    return rc < 0 ? rc : 1;
}

void executor_observe(struct executor *x, const struct perf_shape *shape, double seconds)
{
    x->perf->observe(x->perf_state, shape, seconds);
    x->perf->coef(x->perf_state, &x->coef);
    executor_clock_set(x, x->clock);
}

void executor_clock_set(struct executor *x, double clock)
{
    x->clock = clock;
    x->coef_now = perf_at_clock(&x->coef, clock);
}

const struct perf_coef *executor_perf_now(const struct executor *x)
{
    return &x->coef_now;
}

const struct perf_policy *executor_perf_policy(const struct executor *x)
{
    return x->perf;
}

const struct perf_coef *executor_perf(const struct executor *x)
{
    return &x->coef;
}
