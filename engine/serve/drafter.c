/* drafter.c - has a small model guess, batched over sequences, and keeps its K and V in step.
 *
 *     pass 0    each sequence's tokens that the model has not computed, up to its last: gives its first guess
 *     pass i    guess i of the sequences that are guessed for further: gives guess i + 1
 *
 * A sequence usually has one or two tokens to compute in pass 0: the one that the target chose in place of a wrong
 * guess, or behind the last right one, and that guess. After its prompt, or a time without guesses, it has
 * many. They are computed in pieces, which together take no longer than the target's step, so that no
 * sequence waits for another to catch up longer than for a step; a sequence guesses once it has caught up.
 *
 *     known     of the sequence's tokens: their K and V are in its pages
 *     guess     what was guessed behind them; K and V of all but the last are in the pages too, and count as
 *               those of tokens if the same tokens came
 *
 * Rejected: the target's page tables for both models. Hits in the prefix cache would then be hits of both, but a page
 * would have to say how far each model filled it, also where drafting is off, and the memory of the draft
 * model would be that of all cached pages. */
#include "engine/serve/drafter.h"

#include <math.h>
#include <stdlib.h>

#define CATCH_UP_MIN 16 /* tokens, whatever they cost */
#define PASSES_MAX DRAFT_TOKENS_MAX
#define MEASURED_PASSES 16
#define MEASURED_SEQS 8 /* in every other of them; else one */
#define TIMED_RUNS 128  /* without a pass; then two are timed, in case the price has changed */
_Static_assert(MEASURED_PASSES <= PASSES_MAX, "they are kept as those of a run");

struct place {
    struct output *owner; /* NULL: free */
    uint32_t *pages;
    uint32_t page_count;
    uint32_t known;
    uint32_t guess[DRAFT_TOKENS_MAX], guess_count; /* behind `known` tokens */
    uint64_t run;                                  /* in which it was last asked for */
};

struct drafter {
    struct model *model;
    struct kv_store *kv;
    struct model_runner *runner;
    struct speed speed;
    uint32_t seqs_max, page_tokens, context_pages, context_max, tokens_max;
    uint32_t vocab_size; /* ids that both models have */
    bool has_all_ids;    /* the target has no others */
    struct place *place; /* seqs_max */
    uint32_t *tables;    /* their page tables, context_pages each */
    uint32_t *free;      /* pages */
    uint32_t free_count, pages;
    uint64_t run;       /* counts drafter_run */
    uint64_t timed_run; /* the last with a pass */
    double stretch; /* of the first passes, by the share of the processor that is to be kept to */
    struct sched_guess *guess;
    struct batch_item *item;
    uint32_t *item_guess; /* of each item, its index in `guess` */
    float *logits;        /* a row for each item */
    struct {
        struct perf_shape shape;
        double seconds;
    } pass[PASSES_MAX]; /* of the last run */
    uint32_t passes;
    double predicted_s;
    struct drafter_counts counts;
};

/* ---- start and end ---- */

/* Compares the tokens that both vocabularies have; those beyond may be padding only. */
static int check_tokens(const struct vocab *draft, const struct vocab *target, struct err *err)
{
    uint32_t a = vocab_count(draft), b = vocab_count(target), both = min_u32(a, b);
    for (uint32_t i = 0; i < both; i++) {
        struct str is = vocab_text(draft, i), wants = vocab_text(target, i);
        if (str_eq(is, wants)) continue;
        return err_set(err, -EINVAL,
                       "its token %u is '" STR_FMT "', the model's is '" STR_FMT
                       "': take a draft model with the same tokenizer",
                       i, STR_ARG(is), STR_ARG(wants));
    }
    for (uint32_t i = both; i < max_u32(a, b); i++) {
        if (vocab_type(a > b ? draft : target, i) == TOKEN_UNUSED) continue;
        return err_set(err, -EINVAL,
                       "its vocabulary has %u tokens, the model's has %u: take a draft model with "
                       "the same tokenizer",
                       a, b);
    }
    return 0;
}

int drafter_check(const struct model_info *draft, const struct model_info *target, struct err *err)
{
    if (target->task != MODEL_GENERATE)
        return err_set(err, -ENOTSUP, "the model is an encoder: it generates no tokens to guess");
    if (draft->task != MODEL_GENERATE)
        return err_set(err, -ENOTSUP, "it is an encoder, which generates no tokens");
    if (!draft->vocab)
        return err_set(err, -ENOTSUP, "it has no tokenizer to compare with the model's");
    struct str is = vocab_kind(draft->vocab), wants = vocab_kind(target->vocab);
    if (!str_eq(is, wants))
        return err_set(err, -EINVAL,
                       "its tokenizer is of kind " STR_FMT ", the model's of kind " STR_FMT
                       ": take a draft model with the same tokenizer",
                       STR_ARG(is), STR_ARG(wants));
    return check_tokens(draft->vocab, target->vocab, err);
}

static int take_memory(struct drafter *d)
{
    size_t seqs = d->seqs_max, vocab = model_info(d->model)->vocab_size;
    d->place = calloc(seqs, sizeof *d->place);
    d->tables = calloc(seqs * d->context_pages, sizeof *d->tables);
    d->free = calloc(d->pages, sizeof *d->free);
    d->guess = calloc(seqs, sizeof *d->guess);
    d->item = calloc(seqs, sizeof *d->item);
    d->item_guess = calloc(seqs, sizeof *d->item_guess);
    d->logits = calloc(seqs * vocab, sizeof *d->logits);
    if (!d->place || !d->tables || !d->free || !d->guess || !d->item || !d->item_guess ||
        !d->logits)
        return -ENOMEM;
    for (uint32_t i = 0; i < d->seqs_max; i++)
        d->place[i].pages = d->tables + (size_t)i * d->context_pages;
    for (uint32_t i = d->pages; i-- > 0;)
        d->free[d->free_count++] = i;
    return 0;
}

int drafter_new(const struct drafter_config *config, const struct model_info *target,
                struct drafter **ret, struct err *err)
{
    const struct model_info *info = model_info(config->model);
    const struct sched_config *sc = config->sched;
    struct drafter *d = calloc(1, sizeof *d);
    if (!d) return -ENOMEM;
    d->model = config->model;
    d->seqs_max = sc->seqs_max;
    d->page_tokens = sc->page_tokens;
    d->context_max = min_u32(sc->context_max, info->context_length);
    d->context_pages = ceil_div_u32(d->context_max, d->page_tokens);
    d->tokens_max = sc->batch_tokens_max;
    d->pages = config->pages;
    d->vocab_size = min_u32(info->vocab_size, target->vocab_size);
    d->has_all_ids = d->vocab_size == target->vocab_size;
    d->stretch =
        config->speed.cpu_share > 0 ? fmax(1, config->speed.threads / config->speed.cpu_share) : 1;
    const struct model_runner_options opt = { .tokens_max = d->tokens_max,
                                              .seqs_max = d->seqs_max,
                                              .threads = config->speed.threads };
    int rc = take_memory(d);
    if (rc < 0) err_set(err, rc, "no memory to draft for %u sessions", d->seqs_max);
    if (rc == 0) rc = kv_store_new(d->model, d->pages, d->page_tokens, &d->kv, err);
    if (rc == 0) rc = model_runner_new(d->model, d->kv, &opt, &d->runner, err);
    if (rc == 0) rc = speed_init(&d->speed, info, &config->speed, err);
    if (rc < 0) {
        drafter_free(d);
        return rc;
    }
    *ret = d;
    return 0;
}

void drafter_free(struct drafter *d)
{
    if (!d) return;
    model_runner_free(d->runner);
    kv_store_free(d->kv);
    speed_fini(&d->speed);
    free(d->place);
    free(d->tables);
    free(d->free);
    free(d->guess);
    free(d->item);
    free(d->item_guess);
    free(d->logits);
    free(d);
}

/* ---- places and pages ---- */

static bool has_place(const struct session *session)
{
    const struct output *output = session->owner;
    return output->draft_place > 0;
}

static struct place *place_of(const struct drafter *d, const struct session *session)
{
    const struct output *output = session->owner;
    must(output->draft_place > 0);
    return &d->place[output->draft_place - 1];
}

static void empty(struct drafter *d, struct place *p)
{
    while (p->page_count > 0)
        d->free[d->free_count++] = p->pages[--p->page_count];
    p->owner->draft_place = 0;
    *p = (struct place){ .pages = p->pages };
}

void drafter_leave(struct drafter *d, struct output *output)
{
    if (output->draft_place > 0) empty(d, &d->place[output->draft_place - 1]);
}

/* Returns the place that was asked for longest ago, before this run; NULL: there is none. */
static struct place *oldest(struct drafter *d)
{
    struct place *ret = NULL;
    for (uint32_t i = 0; i < d->seqs_max; i++) {
        struct place *p = &d->place[i];
        if (p->owner && p->run < d->run && (!ret || p->run < ret->run)) ret = p;
    }
    return ret;
}

/* Gives a session a place. Those that are asked for are at most seqs_max, so one is free or of this run not. */
static struct place *take_place(struct drafter *d, struct output *output)
{
    uint32_t i = 0;
    while (i < d->seqs_max && d->place[i].owner)
        i++;
    if (i == d->seqs_max) {
        struct place *out = oldest(d);
        must(out);
        i = (uint32_t)(out - d->place);
        empty(d, out);
    }
    d->place[i].owner = output;
    output->draft_place = i + 1;
    return &d->place[i];
}

/* Takes pages for so many tokens, also of sequences that are not asked for. */
static bool make_room(struct drafter *d, struct place *p, uint32_t tokens)
{
    uint32_t want = ceil_div_u32(tokens, d->page_tokens);
    must(want <= d->context_pages);
    while (p->page_count < want) {
        struct place *out = d->free_count == 0 ? oldest(d) : NULL;
        if (d->free_count == 0 && !out) return false;
        if (out) empty(d, out); /* which may have had no page */
        if (d->free_count > 0) p->pages[p->page_count++] = d->free[--d->free_count];
    }
    return true;
}

/* ---- which sessions, and how far ---- */

/* Counts the tokens of the last guess that came among the known ones. The last known token is computed again:
 * its logits are wanted. */
static void settle(struct place *p, const struct session *session)
{
    for (uint32_t i = 0; i + 1 < p->guess_count; i++, p->known++)
        if (p->known >= session->total || session->ids[p->known] != p->guess[i]) break;
    p->guess_count = 0;
    p->known = min_u32(p->known, session->total - 1);
}

/* Returns true if the model knows all tokens from `from` on: the target may have more ids. */
static bool has_ids(const struct drafter *d, const struct session *session, uint32_t from)
{
    for (uint32_t i = from; i < session->total && !d->has_all_ids; i++)
        if (session->ids[i] >= d->vocab_size) return false;
    return true;
}

static void look(struct drafter *d, struct sched_guess *g)
{
    const struct session *session = g->session;
    uint32_t known = 0;
    if (has_place(session)) {
        settle(place_of(d, session), session);
        known = place_of(d, session)->known;
    }
    g->lacks = session->total - 1 - known;
    /* A guess of `max` tokens has the last but one at most computed. */
    uint32_t room = d->context_max > session->total ? d->context_max - session->total : 0;
    g->max = min_u32(g->max, room);
    if (g->max > 0 && !has_ids(d, session, known)) g->max = 0;
}

/* Returns the tokens that sequences may catch up on in pass 0: as many as take the target's step. */
static uint32_t catch_up_max(const struct drafter *d, const struct perf_coef *perf, uint32_t seqs)
{
    double s = perf->step_s + perf->decode_seq_s * seqs, each_s = d->speed.now.prefill_token_s;
    double most = each_s > 0 ? s / each_s : d->tokens_max;
    if (most >= d->tokens_max) return d->tokens_max;
    return max_u32((uint32_t)most, min_u32(CATCH_UP_MIN, d->tokens_max));
}

/* ---- passes ---- */

static void add_item(struct drafter *d, uint32_t at, uint32_t *count, const uint32_t *ids,
                     uint32_t tokens, uint32_t position, bool guesses)
{
    const struct place *p = place_of(d, d->guess[at].session);
    d->item_guess[*count] = at;
    d->item[*count] = (struct batch_item){
        .ids = ids,
        .count = tokens,
        .position = position,
        .page_table = p->pages,
        .pages = p->page_count,
        .want_logits = guesses,
        .logits = d->logits + (size_t)*count * model_info(d->model)->vocab_size,
    };
    ++*count;
}

/* Puts what each session that is asked for lacks into pass 0: first of those that need little. */
static uint32_t first_items(struct drafter *d, uint32_t sessions, uint32_t catch_up)
{
    uint32_t count = 0, tokens_left = d->tokens_max;
    for (uint32_t i = 0; i < 2 * sessions && tokens_left > 0; i++) {
        if (i == sessions) tokens_left = min_u32(tokens_left, catch_up);
        struct sched_guess *g = &d->guess[i % sessions];
        const struct session *session = g->session;
        bool little = g->lacks <= DRAFT_TOKENS_MAX;
        if (g->count == 0 || little != (i < sessions)) continue;
        struct place *p = place_of(d, session);
        if (!make_room(d, p, session->total + g->count - 1)) continue;
        uint32_t tokens = min_u32(session->total - p->known, tokens_left);
        bool guesses = p->known + tokens == session->total;
        add_item(d, i % sessions, &count, session->ids + p->known, tokens, p->known, guesses);
        p->known += tokens;
        tokens_left -= tokens;
    }
    return count;
}

/* Puts guess `pass` of the sessions that go on into the next pass. */
static uint32_t next_items(struct drafter *d, uint32_t sessions, uint32_t pass)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sessions; i++) {
        const struct sched_guess *g = &d->guess[i];
        if (g->count <= pass) continue;
        struct place *p = place_of(d, g->session);
        if (p->guess_count != pass) continue; /* it still catches up */
        add_item(d, i, &count, &p->guess[pass - 1], 1, p->known + pass - 1, true);
    }
    return count;
}

static struct perf_shape shape_of(const struct batch_item *item, uint32_t count)
{
    struct perf_shape shape = { 0 };
    for (uint32_t i = 0; i < count; i++) {
        uint64_t start = item[i].position, n = item[i].count;
        if (n <= 2) { /* with the guess before the last token */
            shape.decoding_seqs += (uint32_t)n;
            shape.kv_tokens_decoding += start + 1;
        } else {
            shape.prefill_tokens += (uint32_t)n;
            shape.prefill_chunks++;
        }
        shape.kv_tokens_read += n * start + n * (n + 1) / 2;
    }
    return shape;
}

static uint32_t likeliest(const float *logits, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Computes the items and notes how long it took. */
static void time_pass(struct drafter *d, uint32_t items, int64_t (*clock)(void))
{
    int64_t from_us = clock();
    struct perf_shape shape = shape_of(d->item, items);
    struct err err = { "" };
    must(d->passes < PASSES_MAX);
    must(model_step(d->runner, d->item, items, &err) == 0); /* the items are ours */
    double seconds = (double)(clock() - from_us) * 1e-6;
    d->pass[d->passes].shape = shape;
    d->pass[d->passes++].seconds = seconds;
    d->counts.seconds += seconds;
    d->predicted_s += perf_step_s(&d->speed.now, &shape);
}

static void run_pass(struct drafter *d, uint32_t items, int64_t (*clock)(void))
{
    time_pass(d, items, clock);
    for (uint32_t i = 0; i < items; i++) {
        d->counts.computed += d->item[i].count;
        if (!d->item[i].want_logits) continue;
        struct place *p = place_of(d, d->guess[d->item_guess[i]].session);
        p->guess[p->guess_count++] = likeliest(d->item[i].logits, d->vocab_size);
        d->counts.guessed++;
    }
}

/* Times passes of one sequence and of several, in turn, on pages that are free. */
static void time_some(struct drafter *d, uint32_t passes, int64_t (*clock)(void))
{
    static const uint32_t id = 0;
    const uint32_t most = min_u32(MEASURED_SEQS, min_u32(d->seqs_max, d->free_count));
    const size_t vocab = model_info(d->model)->vocab_size;
    for (uint32_t i = 0; i < passes && most > 0; i++) {
        uint32_t count = i % 2 ? most : 1;
        for (uint32_t k = 0; k < count; k++)
            d->item[k] = (struct batch_item){ .ids = &id,
                                              .count = 1,
                                              .page_table = &d->free[d->free_count - 1 - k],
                                              .pages = 1,
                                              .want_logits = true,
                                              .logits = d->logits + k * vocab };
        time_pass(d, count, clock);
    }
}

/* Returns the middle one of every other pass: another process may have been in the way of some. */
static double median_s(const struct drafter *d, uint32_t from)
{
    double s[MEASURED_PASSES / 2];
    uint32_t count = 0;
    for (uint32_t i = from; i < MEASURED_PASSES; i += 2) {
        uint32_t at = count++;
        for (; at > 0 && s[at - 1] > d->pass[i].seconds; at--)
            s[at] = s[at - 1];
        s[at] = d->pass[i].seconds;
    }
    return s[count / 2];
}

void drafter_measure(struct drafter *d, int64_t (*clock)(void))
{
    d->passes = 0;
    time_some(d, MEASURED_PASSES, clock);
    if (d->passes < MEASURED_PASSES) return;
    double one_s = median_s(d, 0), some_s = median_s(d, 1);
    for (uint32_t i = 0; i < d->passes; i++)
        d->pass[i].seconds = i % 2 ? some_s : one_s;
    drafter_observe(d, d->stretch);
    d->counts.seconds = 0;
    d->predicted_s = 0;
}

/* Marks the sessions that are asked for, before any takes place or pages of another. */
static void take_places(struct drafter *d, uint32_t sessions)
{
    for (uint32_t i = 0; i < sessions; i++) {
        const struct session *session = d->guess[i].session;
        if (d->guess[i].count > 0 && has_place(session)) place_of(d, session)->run = d->run;
    }
    for (uint32_t i = 0; i < sessions; i++) {
        if (d->guess[i].count == 0 || has_place(d->guess[i].session)) continue;
        take_place(d, d->guess[i].session->owner)->run = d->run;
    }
}

double drafter_run(struct drafter *d, struct scheduler *s, const struct perf_coef *perf,
                   int64_t (*clock)(void))
{
    int64_t from_us = clock();
    d->run++;
    d->passes = 0;
    d->predicted_s = 0;
    uint32_t sessions = sched_guess_list(s, d->guess);
    for (uint32_t i = 0; i < sessions; i++)
        look(d, &d->guess[i]);
    if (sessions == 0) return 0;
    uint32_t asked = sched_guess_lengths(s, d->guess, sessions, perf, &d->speed.now);
    if (asked == 0 && d->run - d->timed_run >= TIMED_RUNS) {
        time_some(d, 2, clock);
        d->timed_run = d->run;
    }
    if (asked == 0) return (double)(clock() - from_us) * 1e-6;
    d->timed_run = d->run;
    take_places(d, sessions);
    uint32_t items = first_items(d, sessions, catch_up_max(d, perf, sessions));
    for (uint32_t pass = 1; items > 0; pass++) {
        run_pass(d, items, clock);
        items = next_items(d, sessions, pass);
    }
    for (uint32_t i = 0; i < sessions; i++) {
        if (d->guess[i].count == 0) continue;
        const struct place *p = place_of(d, d->guess[i].session);
        if (p->guess_count > 0) sched_guess_give(d->guess[i].session, p->guess, p->guess_count);
    }
    return (double)(clock() - from_us) * 1e-6;
}

/* ---- what it costs ---- */

double drafter_predicted_s(const struct drafter *d)
{
    return d->predicted_s;
}

void drafter_observe(struct drafter *d, double stretch)
{
    for (uint32_t i = 0; i < d->passes; i++)
        speed_observe(&d->speed, &d->pass[i].shape, d->pass[i].seconds * stretch);
    d->passes = 0;
}

void drafter_clock_set(struct drafter *d, double clock)
{
    speed_clock_set(&d->speed, clock);
}

void drafter_counts_get(const struct drafter *d, struct drafter_counts *ret)
{
    *ret = d->counts;
    ret->pages_free = d->free_count;
    ret->pages_held = d->pages - d->free_count;
}

/* ---- sleep ---- */

void drafter_sleep(struct drafter *d)
{
    must(d->free_count == d->pages); /* there is no session */
    kv_store_drop(d->kv);
    model_sleep(d->model);
}

int drafter_wake(struct drafter *d, struct err *err)
{
    int rc = model_wake(d->model, err);
    return rc < 0 ? err_prefix(err, rc, "draft model") : 0;
}
