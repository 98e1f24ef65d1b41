/* sched_queue.c - keeps waiting sessions by tenant and rank, and tells policies of events.
 *
 * A rank is computed when its session begins to wait and again at the time that the policy set. All
 * ranks are computed anew when a policy says that they changed, and when the machine has changed by
 * a quarter: ranks are made of seconds, which move with the fitted model and with how many sessions
 * share a step. In between, the queue keeps the order (wait_queue.h), so that an admission costs
 * O(log waiting).
 */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "engine/core/sched_state.h"

#include <math.h>
#include <stdlib.h>

#define DRIFT 0.25              /* of a coefficient or of the batch, after which all are ranked */
#define PROBES_A_PLAN 8         /* for policies that order by what is cached */
#define GROUP_PREFIX_TOKENS 128 /* requests without a group that share these are one group */

int sched_queue_init(struct scheduler *s)
{
    struct sched_queue *q = &s->queue;
    list_init(&q->unranked);
    list_init(&q->probing);
    heap_init(&q->again, (size_t)s->config.waiting_max + s->config.seqs_max);
    q->ranked_batch = -1;
    /* A policy without state gets a byte, so that NULL always means no memory. */
    q->fair_state = calloc(1, max_u32(s->policies.fair->state_size, 1));
    q->order_state = calloc(1, max_u32(s->policies.order->state_size, 1));
    q->tenant_count = s->policies.fair->pick ? FAIR_TENANTS_MAX : 1;
    q->tenant = calloc(q->tenant_count, sizeof *q->tenant);
    return q->fair_state && q->order_state && q->tenant ? 0 : -ENOMEM;
}

void sched_queue_fini(struct scheduler *s)
{
    struct sched_queue *q = &s->queue;
    heap_fini(&q->again); /* before the sessions, in which its nodes lie */
    for (uint32_t i = 0; q->tenant && i < q->tenant_count; i++)
        wait_queue_fini(&q->tenant[i].queue);
    free(q->tenant);
    free(q->fair_state);
    free(q->order_state);
}

/* ---- tenants -------------------------------------------------------------------------------- */

uint32_t sched_tenant_slot(struct scheduler *s, uint64_t tenant, double weight)
{
    if (s->queue.tenant_count == 1) return 0;
    uint32_t from = (uint32_t)(hash64(&tenant, sizeof tenant, 0) % s->queue.tenant_count);
    struct tenant_queue *own = NULL, *unused = NULL, *idle = NULL;
    for (uint32_t i = 0; i < s->queue.tenant_count && !own; i++) {
        struct tenant_queue *t = &s->queue.tenant[(from + i) % s->queue.tenant_count];
        bool used = t->weight > 0;
        if (used && t->tenant == tenant) own = t;
        if (!used && !unused) unused = t;
        if (used && t->members == 0 && !idle) idle = t;
    }
    struct tenant_queue *t = own ? own : unused ? unused : idle;
    if (!t) return from;
    t->is_new |= !own;
    t->tenant = tenant;
    t->weight = weight;
    return (uint32_t)(t - s->queue.tenant);
}

static struct tenant_queue *queue_of(struct scheduler *s, const struct session *x)
{
    return &s->queue.tenant[x->tenant_slot];
}

int sched_tenant_reserve(struct scheduler *s, uint32_t slot)
{
    struct tenant_queue *t = &s->queue.tenant[slot];
    return wait_queue_reserve(&t->queue, t->members + 1);
}

void sched_tenant_join(struct scheduler *s, struct session *x, uint32_t slot)
{
    x->tenant_slot = slot;
    s->queue.tenant[slot].members++;
}

void sched_tenant_leave(struct scheduler *s, const struct session *x)
{
    s->queue.tenant[x->tenant_slot].members--;
}

void sched_tenant_run(struct scheduler *s, const struct session *x, bool runs)
{
    uint32_t *running = &s->queue.tenant[x->tenant_slot].running;
    *running = runs ? *running + 1 : *running - 1;
}

/* Returns true if a waiting session may be displaced. A session that was admitted once has tokens
 * or pages that would be lost; a held one is being moved. */
static bool gives_way(const struct session *x)
{
    return !x->begun && !x->admitted_once && !x->abort_asked && !session_stands(x);
}

struct session *sched_tenant_displace(const struct scheduler *s, uint32_t newcomer)
{
    const struct sched_queue *q = &s->queue;
    if (!s->policies.fair->displace) return NULL;
    struct session *last[FAIR_TENANTS_MAX] = { NULL };
    struct fair_holding holding[FAIR_TENANTS_MAX];
    LIST_EACH (&s->waiting, node) { /* those that give way are in order of arrival */
        struct session *x = SESSION_OF(node);
        if (gives_way(x)) last[x->tenant_slot] = x;
    }
    for (uint32_t i = 0; i < q->tenant_count; i++) {
        const struct tenant_queue *t = &q->tenant[i];
        holding[i] = (struct fair_holding){ t->members - t->running, t->weight, last[i] != NULL };
    }
    uint32_t at = s->policies.fair->displace(holding, q->tenant_count, newcomer);
    return at < q->tenant_count ? last[at] : NULL;
}

/* ---- what policies see ---------------------------------------------------------------------- */

static double remaining_tokens(const struct scheduler *s, const struct session *x)
{
    double tokens = x->predicted_mean  ? (double)x->predicted_mean
                    : x->predicted_p50 ? (double)x->predicted_p50
                                       : s->output_mean;
    double left = tokens - (double)session_generated(x);
    double most = (double)x->total_max - (double)x->total;
    return fmax(1, fmin(left, most));
}

/* Returns the tokens left in the session's slice or, where the chunk policy has no slices, to the
 * session's limit. While nothing waits a slice that is over begins anew. */
static uint32_t slice_left(const struct scheduler *s, const struct session *x)
{
    uint32_t left = max_u32(x->total_max - x->total, 1), slice = s->policies.chunk->slice_tokens;
    if (slice == 0) return left;
    uint32_t used =
        x->state == SESSION_RUNNING ? (session_generated(x) - x->slice_from) % slice : 0;
    return min_u32(left, slice - used);
}

struct step_session sched_view(const struct scheduler *s, struct session *x)
{
    struct step_session v = {
        .id = x->id,
        .arrival_us = x->arrival_us,
        .waiting_us = x->waiting_us,
        .group = x->group,
        .prompt_tokens = x->prompt_tokens,
        .generated = session_generated(x),
        .computed = x->computed,
        .uncached = x->total - min_u32(session_known(x), x->total - 1),
        .output_max = x->total_max - x->prompt_tokens,
        .slice_left = slice_left(s, x),
        .predicted_p50 = x->predicted_p50,
        .predicted_p90 = x->predicted_p90,
        .predicted_mean = x->predicted_mean,
        .pages = x->swapped ? 0 : x->page_count,
        .remaining = remaining_tokens(s, x),
        .rank = x->rank,
        .has_rank = x->has_rank,
        .running = x->state == SESSION_RUNNING,
        .scratch = &x->scratch,
    };
    double uncached = (double)v.uncached, total = (double)x->total;
    v.prefill_s = uncached * (s->perf.prefill_token_s + s->perf.attend_s * (total - uncached / 2));
    /* The fixed cost of a step is shared by the sessions that run in it. */
    double step_s =
        s->perf.decode_seq_s + s->perf.step_s / fmax(1, s->batch_mean) + s->perf.kv_read_s * total;
    v.decode_s = v.remaining * step_s;
    v.work_s = fmax(1e-9, v.prefill_s + v.decode_s);
    return v;
}

uint32_t sched_expected_total(const struct scheduler *s, struct session *x)
{
    uint32_t output;
    if (s->policies.admit->reserve) {
        struct step_session v = sched_view(s, x);
        output = s->policies.admit->reserve(s->memory.admit_state, &v);
    } else {
        output = session_generated(x) + (uint32_t)remaining_tokens(s, x);
    }
    output = max_u32(output, session_generated(x) + 1);
    return min_u32(x->prompt_tokens + min_u32(output, UINT32_MAX / 2), x->total_max);
}

static void tell_fair(struct scheduler *s, struct session *x, const struct step_event *ev)
{
    struct tenant_queue *t = queue_of(s, x);
    struct fair_event fe = {
        .kind = ev->kind,
        .slot = x->tenant_slot,
        .weight = t->weight,
        .input_tokens = ev->input_tokens,
        .cached_tokens = ev->cached_tokens,
        .output_tokens = ev->output_tokens,
    };
    bool active[FAIR_TENANTS_MAX];
    if (ev->kind == STEP_ARRIVED) {
        for (uint32_t i = 0; i < s->queue.tenant_count; i++)
            active[i] = s->queue.tenant[i].running > 0 || s->queue.tenant[i].queue.count > 0;
        fe.was_idle = !active[x->tenant_slot];
        fe.is_new = t->is_new;
        t->is_new = false;
        fe.active = active;
    }
    s->policies.fair->observe(s->queue.fair_state, &fe);
}

void sched_tell(struct scheduler *s, struct session *x, struct step_event ev)
{
    if (x && s->policies.fair->observe &&
        (ev.kind == STEP_ARRIVED || ev.kind == STEP_ADMITTED ||
         (ev.kind == STEP_RAN && ev.output_tokens > 0))) {
        tell_fair(s, x, &ev);
    }
    if (!s->policies.order->observe && !s->policies.admit->observe) return;
    struct step_session view;
    if (x) {
        view = sched_view(s, x);
        ev.session = &view;
    }
    if (s->policies.admit->observe) s->policies.admit->observe(s->memory.admit_state, &ev);
    /* The next plan computes every rank anew. */
    if (s->policies.order->observe && s->policies.order->observe(s->queue.order_state, &ev))
        s->queue.ranked_batch = -1;
}

/* ---- the queue ------------------------------------------------------------------------------ */

static void ask_rank(struct scheduler *s, struct session *x, int64_t now_us)
{
    struct step_session view = sched_view(s, x);
    x->wait.id = x->id;
    order_rank_of(s->policies.order, s->queue.order_state, &view, now_us, &x->wait.rank);
}

static void put(struct scheduler *s, struct session *x, int64_t now_us)
{
    ask_rank(s, x, now_us);
    wait_queue_put(&queue_of(s, x)->queue, &x->wait);
    if (s->policies.order->uses_hits && x->page_count == 0 && !list_linked(&x->probing))
        list_push_back(&s->queue.probing, &x->probing);
    /* Without memory for the heap the session keeps this rank until something else renews it. */
    if (x->wait.rank.again_us < INT64_MAX)
        heap_push(&s->queue.again, &x->again, x->wait.rank.again_us);
}

static void take(struct scheduler *s, struct session *x)
{
    if (x->wait.slot) wait_queue_remove(&queue_of(s, x)->queue, &x->wait);
    if (heap_has(&x->again)) heap_remove(&s->queue.again, &x->again);
}

void sched_enqueue_later(struct scheduler *s, struct session *x)
{
    if (!session_stands(x) && !list_linked(&x->unranked))
        list_push_back(&s->queue.unranked, &x->unranked);
}

void sched_dequeue(struct scheduler *s, struct session *x)
{
    if (list_linked(&x->unranked)) list_remove(&x->unranked);
    if (list_linked(&x->probing)) list_remove(&x->probing);
    take(s, x);
}

/* Estimates the cached tokens of a session by its keys alone: for ordering, never for sharing. */
static void probe(struct scheduler *s, struct session *x)
{
    if (!s->config.prefix_cache) return;
    session_extend_keys(x, s->config.key_seed);
    uint32_t pages = kv_index_probe(&s->memory.index, x->keys,
                                    min_u32(x->key_count / s->memory.index.granules,
                                            session_hit_max(x) / s->config.page_tokens));
    x->hit_tokens = min_u32(pages * s->config.page_tokens, x->total - 1);
}

static void arrive(struct scheduler *s, struct session *x)
{
    x->arrived = true;
    if (x->group == 0 && x->prompt_tokens > GROUP_PREFIX_TOKENS) {
        x->group = hash64(x->ids, GROUP_PREFIX_TOKENS * sizeof *x->ids, x->salt.lo) | 1;
    }
    sched_tell(s, x, (struct step_event){ .kind = STEP_ARRIVED });
}

void sched_rank_unranked(struct scheduler *s, int64_t now_us)
{
    for (struct list *node; (node = list_pop_front(&s->queue.unranked));) {
        struct session *x = CONTAINER_OF(node, struct session, unranked);
        if (x->computed == 0) probe(s, x);
        if (!x->arrived) arrive(s, x);
        put(s, x, now_us);
    }
}

static void rank_list(struct scheduler *s, struct list *head, int64_t now_us)
{
    LIST_EACH (head, node) {
        struct session *x = SESSION_OF(node);
        if (!x->wait.slot) continue;
        take(s, x);
        put(s, x, now_us);
    }
}

static bool drifted(double was, double is)
{
    return fabs(is - was) > DRIFT * was;
}

static bool machine_changed(const struct scheduler *s)
{
    const struct perf_coef *was = &s->queue.ranked_perf, *is = &s->perf;
    return s->queue.ranked_batch < 0 || drifted(was->step_s, is->step_s) ||
           drifted(was->prefill_token_s, is->prefill_token_s) ||
           drifted(was->decode_seq_s, is->decode_seq_s) || drifted(was->kv_read_s, is->kv_read_s) ||
           drifted(was->attend_s, is->attend_s) || drifted(s->queue.ranked_batch, s->batch_mean);
}

/* Looks up some queued sessions in the cache again, in turns, for policies that order by it: what
 * is cached changes with every step. */
static void probe_some(struct scheduler *s, int64_t now_us)
{
    for (uint32_t left = PROBES_A_PLAN; left > 0 && !list_empty(&s->queue.probing); left--) {
        struct session *x =
            CONTAINER_OF(list_pop_front(&s->queue.probing), struct session, probing);
        list_push_back(&s->queue.probing, &x->probing);
        uint32_t before = x->hit_tokens;
        probe(s, x);
        if (x->hit_tokens == before) continue;
        take(s, x);
        put(s, x, now_us);
    }
}

void sched_refresh_ranks(struct scheduler *s, int64_t now_us)
{
    if (s->counts.waiting == 0) return;
    if (machine_changed(s)) {
        s->queue.ranked_perf = s->perf;
        s->queue.ranked_batch = s->batch_mean;
        rank_list(s, &s->waiting, now_us);
        rank_list(s, &s->parked, now_us);
    }
    for (struct heap_node *n; (n = heap_peek(&s->queue.again)) && n->key <= now_us;) {
        struct session *x = CONTAINER_OF(n, struct session, again);
        take(s, x);
        put(s, x, now_us);
    }
    if (s->policies.order->uses_hits) probe_some(s, now_us);
    sched_rank_unranked(s, now_us);
}

struct session *sched_next_waiting(struct scheduler *s, int64_t now_us)
{
    struct wait_node *first = NULL;
    if (!s->policies.fair->pick) {
        first = wait_queue_first(&s->queue.tenant[0].queue, now_us);
    } else {
        struct fair_tenant tenants[FAIR_TENANTS_MAX];
        uint32_t count = 0;
        for (uint32_t i = 0; i < s->queue.tenant_count; i++) {
            struct tenant_queue *t = &s->queue.tenant[i];
            if (t->queue.count == 0) continue;
            struct fair_tenant *ft = &tenants[count++];
            *ft = (struct fair_tenant){ .slot = i, .weight = t->weight };
            if (!s->policies.fair->uses_heads) continue;
            ft->head_rank = order_rank_at(&wait_queue_first(&t->queue, now_us)->rank, now_us);
        }
        if (count == 0) return NULL;
        uint32_t at = s->policies.fair->pick(s->queue.fair_state, tenants, count);
        must(at < count);
        first = wait_queue_first(&s->queue.tenant[tenants[at].slot].queue, now_us);
    }
    return first ? CONTAINER_OF(first, struct session, wait) : NULL;
}

uint32_t sched_first_waiting(struct scheduler *s, int64_t now_us, uint32_t count,
                             struct session **ret)
{
    uint32_t found = 0;
    for (struct session *x; found < count && (x = sched_next_waiting(s, now_us));) {
        wait_queue_remove(&queue_of(s, x)->queue, &x->wait);
        ret[found++] = x;
    }
    for (uint32_t i = 0; i < found; i++)
        wait_queue_put(&queue_of(s, ret[i])->queue, &ret[i]->wait);
    return found;
}

void sched_set_aside(struct scheduler *s, struct session *x)
{
    must(s->queue.aside_count < SCHED_ASIDE_MAX);
    wait_queue_remove(&queue_of(s, x)->queue, &x->wait);
    s->queue.aside[s->queue.aside_count++] = x;
}

void sched_put_back(struct scheduler *s)
{
    while (s->queue.aside_count > 0) {
        struct session *x = s->queue.aside[--s->queue.aside_count];
        /* A session that lost its pages meanwhile is ranked anew instead. */
        if (!list_linked(&x->unranked)) wait_queue_put(&queue_of(s, x)->queue, &x->wait);
    }
}
