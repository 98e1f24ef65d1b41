/* sched_draft.c - has the draft policy guess, and takes as much of each guess as the step-time model finds worth it.
 *
 * Every decoding session is guessed for in each step, also where nothing of it will be computed: the
 * token that comes then tells whether guesses pay, so that drafting turns itself on and off. A page
 * for a guess is taken only where one is free or cached; no session loses pages for it.
 *
 * A session guesses from its second token of output on: the first one ends the wait for the prompt, and
 * is measured. */
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

static void guess(struct scheduler *s, struct sched_item *item, struct draft_place *ret)
{
    struct session *x = item->session;
    *ret = (struct draft_place){ .own = &x->draft_rates, .context = x->total };
    uint32_t room = x->total_max - x->total; /* one of them for the token that is chosen */
    if (session_generated(x) == 0 || room < 2) return;
    const struct draft_view view = { .ids = x->ids,
                                     .count = x->total,
                                     .max = min_u32(room - 1, DRAFT_TOKENS_MAX) };
    uint32_t *to = x->ids + x->total;
    ret->guessed = s->policies.draft->propose(state_of(s, x), &view, to, &ret->match);
    must(ret->guessed <= view.max);
    item->guessed = ret->guessed;
    item->match = ret->match;
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
        /* Half of the budget stays for prompts, so that guesses keep no session waiting. */
        .most = min_u32((s->config.batch_tokens_max - b->tokens) / 2, SCHED_DRAFT_MAX),
    };
    if (d->idle_steps == DRAFT_PROBE_STEPS) step.least = DRAFT_PROBE_TOKENS;
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
