/* sched_draft.c - has the draft policy guess, and takes as much of each guess as the step-time model finds worth it.
 *
 * Every decoding session is guessed for in each step, also where nothing of it will be computed: the
 * token that comes then tells whether guesses pay, so that drafting turns itself on and off. A page
 * for a guess is taken only where one is free or cached; no session loses pages for it.
 *
 * A session guesses from its second token of output on: the first one ends the wait for the prompt, and
 * is measured.
 *
 * A draft model computes its guesses before the plan, for the sessions that decode by then. One that loses its
 * place in the plan keeps its guess; until it has another token nothing is wrong with it. */
#include "engine/core/sched_draft.h"

#include "base/core/bits.h"
#include "engine/core/sched_state.h"

#include <stdlib.h>
#include <string.h>

int sched_draft_init(struct scheduler *s)
{
    const struct draft_policy *policy = s->policies.draft;
    struct sched_draft *d = &s->draft;
    uint32_t seqs = s->config.seqs_max;
    if (!policy->propose) return 0;
    d->work = calloc(seqs, sizeof *d->work);
    if (!d->work) return -ENOMEM;
    d->probe_gap = DRAFT_PROBE_STEPS;
    if (policy->state_size == 0) return 0;
    d->state = calloc(seqs, policy->state_size);
    d->free = calloc(seqs, sizeof *d->free);
    if (!d->state || !d->free) return -ENOMEM;
    for (uint32_t i = seqs; i-- > 0;)
        d->free[d->free_count++] = i;
    return 0;
}

void sched_draft_fini(struct scheduler *s)
{
    free(s->draft.state);
    free(s->draft.free);
    free(s->draft.work);
}

/* Returns the session's state of the policy; NULL: the policy has none. */
static void *state_of(struct scheduler *s, struct session *x)
{
    struct sched_draft *d = &s->draft;
    size_t size = s->policies.draft->state_size;
    if (!d->state) return NULL;
    if (x->draft_place == 0) {
        must(d->free_count > 0); /* as many as may run */
        x->draft_place = d->free[--d->free_count] + 1;
        memset(d->state + (x->draft_place - 1) * size, 0, size);
    }
    return d->state + (x->draft_place - 1) * size;
}

void sched_draft_leave(struct scheduler *s, struct session *x)
{
    if (x->draft_place == 0) return;
    s->draft.free[s->draft.free_count++] = x->draft_place - 1;
    x->draft_place = 0;
}

/* Returns the most tokens to guess; 0: none. */
static uint32_t guess_max(const struct session *x)
{
    uint32_t room = x->total_max - x->total; /* one of them for the token that is chosen */
    return session_generated(x) == 0 || room < 2 ? 0 : min_u32(room - 1, DRAFT_TOKENS_MAX);
}

static void guess(struct scheduler *s, struct sched_item *item, struct draft_place *ret)
{
    struct session *x = item->session;
    *ret = (struct draft_place){ .own = &x->draft_rates, .context = x->total };
    if (guess_max(x) == 0) return;
    const struct draft_view view = { .ids = x->ids,
                                     .count = x->total,
                                     .max = guess_max(x),
                                     .given = x->given,
                                     .given_count = x->given_at == x->total ? x->given_count : 0 };
    uint32_t *to = x->ids + x->total;
    ret->guessed = s->policies.draft->propose(state_of(s, x), &view, to, &ret->match);
    must(ret->guessed <= view.max);
    item->guessed = ret->guessed;
    item->match = ret->match;
}

/* Returns the most tokens that a step verifies. Half of the budget stays for prompts, so that guesses keep no
 * session waiting. */
static uint32_t verified_max(const struct scheduler *s, uint32_t decoding)
{
    return min_u32((s->config.batch_tokens_max - decoding) / 2, SCHED_DRAFT_MAX);
}

/* Asks how much of each guess is worth it. */
static void allot(struct scheduler *s)
{
    struct sched_batch *b = &s->batch;
    struct sched_draft *d = &s->draft;
    sched_batch_shape(b);
    struct draft_step step = {
        .perf = s->perf,
        .shape = b->shape,
        .most = verified_max(s, b->tokens),
    };
    if (d->idle_steps == DRAFT_PROBE_STEPS || d->probes) step.least = DRAFT_PROBE_TOKENS;
    d->probes = false;
    d->idle_steps = draft_allot(d->work, b->count, &d->all, &step) > 0 ? 0 : d->idle_steps + 1;
    d->idle_steps = min_u32(d->idle_steps, DRAFT_PROBE_STEPS);
}

void sched_draft_extend(struct scheduler *s)
{
    struct sched_batch *b = &s->batch;
    if (!s->policies.draft->propose || b->count == 0) return;
    bool any = false;
    for (uint32_t i = 0; i < b->count; i++) {
        guess(s, &b->item[i], &s->draft.work[i]);
        any |= b->item[i].guessed > 0;
    }
    if (!any) return;
    allot(s);
    for (uint32_t i = 0; i < b->count; i++) {
        struct sched_item *item = &b->item[i];
        uint32_t take = s->draft.work[i].take;
        if (take == 0 || !sched_make_room(s, item->session, item->session->total + take)) continue;
        item->drafted = take;
        item->count += take;
        b->tokens += take;
    }
}

void sched_draft_observe(struct scheduler *s, const struct sched_item *item, uint32_t accepted,
                         uint32_t id)
{
    if (item->guessed == 0) return;
    struct session *x = item->session;
    bool more = accepted < item->guessed; /* the last token can be compared too */
    bool equal = more && x->ids[x->total + accepted] == id;
    draft_rates_observe(&x->draft_rates, item->match, accepted + equal, more && !equal);
    draft_rates_observe(&s->draft.all, item->match, accepted + equal, more && !equal);
    s->counts.drafted_tokens += item->drafted;
    s->counts.accepted_tokens += min_u32(accepted + equal, item->drafted);
}

/* ---- a draft model ---- */

/* Lists what plan_decoding takes, but for sessions that lose their place in between. */
uint32_t sched_guess_list(struct scheduler *s, struct sched_guess *ret)
{
    uint32_t count = 0;
    LIST_EACH (&s->running, node) {
        struct session *x = SESSION_OF(node);
        if (x->total - x->computed != 1 || session_stands(x)) continue;
        ret[count++] = (struct sched_guess){ .session = x, .max = guess_max(x) };
    }
    return count;
}

/* Asks for what is worth it; for a little more or in vain now and then, to learn. A probe has the model compute a
 * token for each step since it was last asked, at most. A model that is always wrong is probed ever more seldom. */
static uint32_t ask_model(struct sched_draft *d, uint32_t count, struct draft_ask *ask)
{
    ask->longer = d->asked_steps >= DRAFT_PROBE_STEPS;
    uint32_t sum = draft_ask(d->work, count, &d->all, ask);
    d->probes = false;
    if (sum > 0) {
        d->asked_steps = ask->longer ? 0 : d->asked_steps + 1;
        d->unasked_steps = 0;
        d->probe_gap = DRAFT_PROBE_STEPS;
        return sum;
    }
    if (++d->unasked_steps < d->probe_gap || ask->step.most < DRAFT_PROBE_TOKENS) return 0;
    sum = draft_probe(d->work, count, d->unasked_steps);
    if (sum == 0) return 0;
    const struct draft_rates none = { 0 };
    bool wrong = draft_rate(&none, &d->all, 1) < DRAFT_RATE_MIN;
    d->probe_gap = wrong ? min_u32(2 * d->probe_gap, DRAFT_PROBE_GAP_MAX) : DRAFT_PROBE_STEPS;
    d->unasked_steps = 0;
    d->probes = true;
    return sum;
}

uint32_t sched_guess_lengths(struct scheduler *s, struct sched_guess *guess, uint32_t count,
                             const struct perf_coef *perf, const struct perf_coef *model)
{
    struct sched_draft *d = &s->draft;
    struct draft_ask ask = { .step = { .perf = *perf, .most = verified_max(s, count) },
                             .model = *model };
    must(s->policies.draft->asks && count <= s->config.seqs_max);
    for (uint32_t i = 0; i < count; i++) {
        struct session *x = guess[i].session;
        d->work[i] = (struct draft_place){ .own = &x->draft_rates,
                                           .guessed = guess[i].max,
                                           .match = 1,
                                           .context = x->total,
                                           .lacks = guess[i].lacks,
                                           .left = sched_expected_total(s, x) - x->total };
        if (d->work[i].left < 1) d->work[i].left = 1;
        ask.step.shape.kv_tokens_decoding += x->total;
    }
    ask.step.shape.decoding_seqs = count;
    ask.step.shape.kv_tokens_read = ask.step.shape.kv_tokens_decoding;
    uint32_t sum = ask_model(d, count, &ask);
    for (uint32_t i = 0; i < count; i++)
        guess[i].count = d->work[i].take;
    return sum;
}

void sched_guess_give(struct session *session, const uint32_t *ids, uint32_t count)
{
    must(count <= DRAFT_TOKENS_MAX);
    memcpy(session->given, ids, count * sizeof *ids);
    session->given_count = count;
    session->given_at = session->total;
}
