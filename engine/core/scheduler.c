/* scheduler.c - keeps sessions from submission to end, on one path from computed to total: prompts, cache hits,
 * decoding and resuming.
 *
 * Follows vLLM's V1 scheduler in having no phases, and differs in four points. Decoding sessions
 * are served before begun prompts, so that a long prompt never delays a token that is due
 * (Sarathi-Serve's order). Admission asks whether the outputs will fit as well, because
 * preempting by recompute loses more than waiting does once memory is short. A session that loses
 * its place keeps its pages until they are needed. A full hit shares the last page too: its last token
 * is computed again for the logits, and its K and V, which are there, are not written.
 *
 * Running sessions are walked from end to end each step: they are at most seqs_max. Waiting ones
 * never are, because there may be thousands: see sched_queue.c.
 */
#include "base/core/bits.h"
#include "engine/core/sched_state.h"

#include <math.h>
#include <stdlib.h>

#define OUTPUT_PRIOR_TOKENS 64.0 /* mean output before any was seen */
#define OUTPUT_MEAN_RATE 0.05    /* of the running mean of output lengths */
#define WEIGHT_MIN 1e-6          /* of a tenant: sums over less would drown those of others */
#define WEIGHT_MAX 1e6

static int config_check(const struct sched_config *c, struct err *err)
{
    if (c->page_tokens == 0 || c->page_tokens % BLOCK_TOKENS ||
        c->page_tokens > KV_INDEX_TOKENS_MAX) {
        return err_set(err, -EINVAL, "page size %u tokens: must be a multiple of %d up to %d",
                       c->page_tokens, BLOCK_TOKENS, KV_INDEX_TOKENS_MAX);
    }
    if (c->seqs_max == 0 || c->waiting_max == 0 || c->context_max < 2 || c->events_max == 0) {
        return err_set(err, -EINVAL, "a scheduler needs room for at least one session of 2 tokens");
    }
    if (c->batch_tokens_max < c->seqs_max) {
        return err_set(err, -EINVAL,
                       "%u batched tokens a step are fewer than %u sessions: each needs one",
                       c->batch_tokens_max, c->seqs_max);
    }
    if (c->whole_prompts && c->batch_tokens_max < c->context_max - 1)
        return err_set(err, -EINVAL, "steps of %u tokens do not hold a whole prompt of %u",
                       c->batch_tokens_max, c->context_max - 1);
    const uint64_t units = (uint64_t)c->pages * max_u32(c->parts.full + c->parts.window, 1);
    if (sched_units_of(c, c->context_max, c->batch_tokens_max) > units ||
        (c->parts.window_tokens > 0 &&
         (uint64_t)c->parts.numbers * c->page_tokens < c->context_max)) {
        return err_set(err, -EINVAL,
                       "%u pages of %u tokens cannot hold one context of %u tokens: give the KV "
                       "cache more memory or shorten the context",
                       c->pages, c->page_tokens, c->context_max);
    }
    if (c->swap_pages > KV_PAGES_MAX) {
        return err_set(err, -EINVAL, "a swap space of %u pages; at most %u", c->swap_pages,
                       KV_PAGES_MAX);
    }
    return 0;
}

static int new_batch(struct scheduler *s)
{
    s->batch.item = calloc(s->config.seqs_max, sizeof *s->batch.item);
    return s->batch.item ? 0 : -ENOMEM;
}

int sched_new(const struct sched_config *config, struct scheduler **ret, struct err *err)
{
    int rc = config_check(config, err);
    if (rc < 0) return rc;
    CLEANUP(sched_freep) struct scheduler *s = calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    struct list *lists[] = { &s->waiting, &s->parked, &s->running, &s->ended, &s->aborting };
    for (size_t i = 0; i < COUNT_OF(lists); i++)
        list_init(lists[i]);
    s->config = *config;
    s->policies = config->policies;
    preset_fill(config->preset, &s->policies);
    if (s->config.swap_pages == 0 && config->preset) {
        double pages = config->preset->swap_ratio * (double)config->pages;
        s->config.swap_pages = pages < KV_PAGES_MAX ? (uint32_t)pages : KV_PAGES_MAX;
    }
    s->watched =
        s->policies.fair->observe || s->policies.order->observe || s->policies.admit->observe;
    s->output_mean = OUTPUT_PRIOR_TOKENS;
    heap_init(&s->due, (size_t)config->waiting_max + config->seqs_max);
    if (sched_queue_init(s) < 0 || sched_chunk_init(s) < 0 || new_batch(s) < 0) return -ENOMEM;
    if (sched_round_init(s) < 0 || sched_draft_init(s) < 0) return -ENOMEM;
    rc = sched_memory_init(s, err);
    if (rc < 0) return rc;
    *ret = TAKE(s);
    return 0;
}

static void free_all(struct list *head)
{
    for (struct list *node; (node = list_pop_front(head));)
        session_free(SESSION_OF(node));
}

void sched_free(struct scheduler *s)
{
    if (!s) return;
    heap_fini(&s->due); /* before the sessions, in which their nodes lie */
    sched_queue_fini(s);
    free_all(&s->waiting);
    free_all(&s->parked);
    free_all(&s->running);
    free_all(&s->ended);
    sched_memory_fini(s);
    sched_round_fini(s);
    sched_chunk_fini(s);
    sched_draft_fini(s);
    free(s->batch.item);
    free(s);
}

/* ---- requests ------------------------------------------------------------------------------- */

static double share_of(const struct sched_request *req)
{
    return req->weight > 0 ? fmin(fmax(req->weight, WEIGHT_MIN), WEIGHT_MAX) : 1;
}

static void end_session(struct scheduler *s, struct session *session, enum session_end why,
                        int64_t now_us);

int sched_submit(struct scheduler *s, const struct sched_request *req, struct session **ret,
                 struct err *err)
{
    if (req->prompt_tokens == 0 || req->output_max == 0) {
        return err_set(err, -EINVAL, "a request needs a prompt and at least one token to answer");
    }
    if (req->imported_tokens >= req->prompt_tokens) {
        return err_set(err, -EINVAL, "%u of %u tokens imported: the last is always computed",
                       req->imported_tokens, req->prompt_tokens);
    }
    if (req->score_end > req->prompt_tokens || (req->score_from == 0 && req->score_end > 0) ||
        (req->score_end > 0 && req->imported_tokens > 0)) {
        return err_set(err, -EINVAL, "tokens from %u to %u of %u cannot be scored", req->score_from,
                       req->score_end, req->prompt_tokens);
    }
    if (req->prompt_tokens >= s->config.context_max) {
        return err_set(err, -E2BIG, "a prompt of %u tokens leaves no room in a context of %u",
                       req->prompt_tokens, s->config.context_max);
    }
    uint32_t room = s->config.context_max - req->prompt_tokens;
    uint32_t total_max = req->prompt_tokens + min_u32(room, req->output_max);
    uint32_t slot = sched_tenant_slot(s, req->tenant, share_of(req));
    bool full = s->counts.waiting >= s->config.waiting_max;
    struct session *displaced = full ? sched_tenant_displace(s, slot) : NULL;
    if (full && !displaced) {
        s->counts.refused++;
        return err_set(err, -EAGAIN, "%u requests are waiting already", s->counts.waiting);
    }
    CLEANUP(session_freep)
    struct session *session = session_new(req, total_max, s->config.page_tokens);
    int rc = session ? sched_tenant_reserve(s, slot) : -ENOMEM;
    if (rc == 0 && displaced) end_session(s, displaced, SESSION_END_DISPLACED, s->now_us);
    if (rc == 0 && req->deadline_us) rc = heap_push(&s->due, &session->due, req->deadline_us);
    if (rc < 0) return err_set(err, -ENOMEM, "no memory for %u tokens", total_max);

    session->state = SESSION_WAITING;
    sched_tenant_join(s, session, slot);
    list_push_back(&s->waiting, &session->link);
    sched_enqueue_later(s, session);
    sched_chunk_arrived(s, req);
    s->counts.waiting++;
    s->counts.submitted++;
    *ret = TAKE(session);
    return 0;
}

void sched_abort(struct scheduler *s, struct session *session)
{
    if (session->abort_asked || session->state == SESSION_ENDED) return;
    session->abort_asked = true;
    list_push_back(&s->aborting, &session->aborting);
}

static void stand_aside(struct scheduler *s, struct session *session, bool paused, bool held)
{
    bool stood = session_stands(session), stands = paused || held;
    session->paused = paused;
    session->held = held;
    if (stood == stands) return;
    if (stands) {
        s->standing++;
        sched_dequeue(s, session);
    } else {
        s->standing--;
        if (session->state == SESSION_WAITING) sched_enqueue_later(s, session);
    }
}

void sched_pause(struct scheduler *s, struct session *session, bool paused)
{
    if (session->paused == paused || session->state == SESSION_ENDED) return;
    if (paused) {
        s->counts.paused++;
    } else {
        s->counts.paused--;
    }
    stand_aside(s, session, paused, session->held);
}

void sched_hold(struct scheduler *s, struct session *session, bool held)
{
    if (session->state != SESSION_ENDED) stand_aside(s, session, session->paused, held);
}

void sched_swap_observe(struct scheduler *s, double page_s)
{
    s->config.swap_page_s = page_s;
}

/* Moves a session from running to waiting; it keeps the pages that hold computed tokens. */
void sched_stop_running(struct scheduler *s, struct session *x)
{
    if (x->imported_tokens > 0) sched_release_pages(s, x); /* nothing was written there yet */
    sched_batch_remove(s, x);
    sched_draft_leave(s, x);
    x->state = SESSION_WAITING;
    x->waiting_us = s->now_us;
    s->counts.running--;
    s->counts.waiting++;
    sched_tenant_run(s, x, false);
}

/* Returns the scheduler's time. It never goes back: if the caller's clock is set back, it stands
 * until that has caught up, so that no wait is negative and no rank is evaluated before the time of
 * its last evaluation (wait_queue.h). */
int64_t sched_clock(struct scheduler *s, int64_t now_us)
{
    s->now_us = max_i64(s->now_us, now_us);
    return s->now_us;
}

/* ---- ends ---------------------------------------------------------------------------------- */

static void end_session(struct scheduler *s, struct session *session, enum session_end why,
                        int64_t now_us)
{
    bool whole = why == SESSION_END_STOP || why == SESSION_END_LENGTH;
    if (whole) {
        double output = (double)session_generated(session);
        s->output_mean += OUTPUT_MEAN_RATE * (output - s->output_mean);
    }
    sched_batch_remove(s, session);
    sched_draft_leave(s, session);
    if (session->keep_pages && !session->swapped) {
        sched_keep_pages(s, session);
    } else {
        sched_release_pages(s, session);
    }
    sched_pause(s, session, false);
    sched_hold(s, session, false);
    sched_dequeue(s, session);
    sched_round_leave(s, session);
    if (list_linked(&session->aborting)) list_remove(&session->aborting);
    if (heap_has(&session->due)) heap_remove(&s->due, &session->due);
    if (session->state == SESSION_RUNNING) {
        s->counts.running--;
        sched_tenant_run(s, session, false);
    } else {
        s->counts.waiting--;
    }
    sched_tenant_leave(s, session);
    session->state = SESSION_ENDED;
    session->end = why;
    session->ended_us = now_us;
    list_remove(&session->link);
    list_push_back(&s->ended, &session->link);
    s->counts.ended[why]++;
    if (!s->watched || !session->arrived) return;
    sched_tell(s, session,
               (struct step_event){ .kind = STEP_ENDED,
                                    .output_tokens = session_generated(session),
                                    .whole = whole });
}

void sched_end_due(struct scheduler *s, int64_t now_us)
{
    while (!list_empty(&s->aborting)) {
        struct session *x = CONTAINER_OF(s->aborting.next, struct session, aborting);
        end_session(s, x, SESSION_END_ABORT, now_us);
    }
    for (struct heap_node *n; (n = heap_peek(&s->due)) && n->key <= now_us;)
        end_session(s, CONTAINER_OF(n, struct session, due), SESSION_END_DEADLINE, now_us);
}

/* ---- results ------------------------------------------------------------------------------- */

static void seal_full_pages(struct scheduler *s, struct session *session)
{
    uint32_t pt = s->config.page_tokens;
    if ((session->sealed_pages + 1) * pt > session->computed || !s->config.prefix_cache) return;
    uint32_t full = session->computed / pt;
    session_extend_keys(session, s->config.key_seed);
    for (; session->sealed_pages < full; session->sealed_pages++) {
        uint32_t i = session->sealed_pages;
        kv_index_seal(&s->memory.index, session->pages[i], i,
                      session_parent_key(session, i, s->memory.index.granules),
                      session->keys + (size_t)i * s->memory.index.granules,
                      session->ids + (size_t)i * pt);
    }
}

/* Gives up the window part of pages that no token to come sees. */
static void leave_windows(struct scheduler *s, struct session *session)
{
    const uint32_t from = kv_index_window_from(&s->memory.index, session->computed);
    for (; session->window_from < from; session->window_from++)
        kv_pool_leave(&s->memory.pool, session->pages[session->window_from]);
}

static void take_token(struct scheduler *s, struct session *session,
                       const struct sched_result *result, int64_t now_us)
{
    must(session->total < session->total_max);
    if (result->done) {
        end_session(s, session, SESSION_END_STOP, now_us);
        return;
    }
    session->ids[session->total++] = result->id;
    s->counts.generated_tokens++;
    if (session_generated(session) == 1) session->first_token_us = now_us;
    if (result->stop) {
        end_session(s, session, SESSION_END_STOP, now_us);
    } else if (session->total == session->total_max) {
        end_session(s, session, SESSION_END_LENGTH, now_us);
    }
}

void sched_commit(struct scheduler *s, const struct sched_result *results, int64_t now_us)
{
    must(s->planned);
    s->planned = false;
    s->counts.steps++;
    int64_t planned_us = s->now_us;
    now_us = sched_clock(s, now_us);
    double seconds = (double)(now_us - planned_us) * 1e-6;
    for (uint32_t i = 0; i < s->batch.count; i++) {
        struct sched_item *item = &s->batch.item[i];
        uint32_t accepted = item->sample ? results[i].accepted : 0;
        must(accepted <= item->drafted);
        item->session->item = 0; /* before an end, which would move the items */
        if (item->sample) sched_draft_observe(s, item, accepted, results[i].id);
        item->session->total += accepted;
        item->session->computed += item->count - item->drafted + accepted;
        s->counts.generated_tokens += accepted;
        item->session->imported_tokens = 0;
        item->session->score_next += item->scored;
        seal_full_pages(s, item->session);
        leave_windows(s, item->session);
        if (s->watched) {
            sched_tell(s, item->session,
                       (struct step_event){ .kind = STEP_RAN,
                                            .seconds = seconds,
                                            .input_tokens = item->count - item->drafted,
                                            .output_tokens = accepted + item->sample });
        }
        if (item->sample) take_token(s, item->session, &results[i], now_us);
    }
    s->batch.count = 0;
    if (s->watched) {
        sched_tell(s, NULL,
                   (struct step_event){
                       .kind = STEP_DONE, .seconds = seconds, .preempt_s = s->preempt_s });
        s->preempt_s = 0;
    }
}

void sched_discard(struct scheduler *s, int64_t now_us)
{
    must(s->planned);
    s->planned = false;
    now_us = sched_clock(s, now_us);
    while (s->batch.count > 0) {
        end_session(s, s->batch.item[s->batch.count - 1].session, SESSION_END_ERROR, now_us);
    }
}

struct session *sched_next_ended(struct scheduler *s)
{
    struct list *node = list_pop_front(&s->ended);
    return node ? SESSION_OF(node) : NULL;
}

void sched_release(struct scheduler *s, struct session *session)
{
    must(session->state == SESSION_ENDED && !list_linked(&session->link));
    sched_unkeep_pages(s, session);
    sched_release_pages(s, session);
    session_free(session);
}

/* ---- questions ------------------------------------------------------------------------------ */

uint32_t sched_queued_count(const struct scheduler *s)
{
    uint32_t standing = s->standing; /* of those that wait */
    LIST_EACH (&s->running, node)
        standing -= session_stands(SESSION_OF(node));
    return s->counts.waiting - standing;
}

bool sched_has_work(const struct scheduler *s)
{
    if (!list_empty(&s->aborting)) return true;
    LIST_EACH (&s->running, node) {
        if (!session_stands(SESSION_OF(node))) return true;
    }
    return sched_queued_count(s) > 0;
}

int64_t sched_next_deadline_us(const struct scheduler *s)
{
    const struct heap_node *n = heap_peek(&s->due);
    return n ? n->key : INT64_MAX;
}

void sched_counts_get(const struct scheduler *s, struct sched_counts *ret)
{
    *ret = s->counts;
}

static uint64_t owed(const struct list *sessions)
{
    uint64_t tokens = 0;
    LIST_EACH (sessions, node) {
        const struct session *x = SESSION_OF(node);
        tokens += x->prompt_tokens - min_u32(session_known(x), x->prompt_tokens);
    }
    return tokens;
}

uint64_t sched_prefill_owed(const struct scheduler *s)
{
    return owed(&s->running) + owed(&s->waiting) + owed(&s->parked);
}

/* Returns true if `x` goes before `head`. A session that came since the last plan has no rank yet
 * and goes behind those that have one. */
static bool is_ahead(const struct session *x, const struct session *head, int64_t now_us)
{
    if (!head) return true;
    if (!x->wait.slot || !head->wait.slot) return x->wait.slot && !head->wait.slot;
    return wait_before(&x->wait, &head->wait, now_us);
}

uint32_t sched_head_pages(const struct scheduler *s)
{
    const struct session *head = NULL;
    const struct list *const heads[] = { &s->waiting, &s->parked };
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        LIST_EACH (heads[i], node) {
            const struct session *x = SESSION_OF(node);
            if (!session_stands(x) && is_ahead(x, head, s->now_us)) head = x;
        }
    }
    if (!head) return 0;
    const uint32_t hit_pages = head->hit_tokens / s->config.page_tokens;
    uint64_t all = sched_units_to_run(s, head);
    uint64_t has = session_is_parked(head)
                       ? sched_units_kept(s, head)
                       : sched_units_of(&s->config, hit_pages * s->config.page_tokens, 1);
    return max_u32(sched_whole_pages(s, all - min_u64(all, has)), 1);
}

const struct step_policies *sched_policies(const struct scheduler *s)
{
    return &s->policies;
}

struct kv_index *sched_index(struct scheduler *s)
{
    return &s->memory.index;
}

static bool session_check(const struct scheduler *s, const struct session *x, uint64_t *held,
                          uint64_t *swapped, uint64_t *windows)
{
    *(x->swapped ? swapped : held) += x->page_count;
    if (!x->swapped) *windows += x->page_count - x->window_from;
    if (x->window_from > x->page_count) return false;
    if ((uint64_t)x->page_count * s->config.page_tokens < x->computed) return false;
    if (x->computed >= x->total || x->total > x->total_max) return false;
    if (x->swapped && x->state != SESSION_WAITING) return false;
    for (uint32_t i = x->sealed_pages; i < x->page_count && !x->swapped; i++)
        if (kv_pool_shared(&s->memory.pool, x->pages[i])) return false; /* it is written to */
    return x->page_count > 0 || x->computed == 0;
}

bool sched_check(const struct scheduler *s)
{
    if (!kv_pool_check(&s->memory.pool) || !sched_round_check(s)) return false;
    uint64_t held = s->memory.kept, swapped = 0, refs = 0, windows = 0, window_refs = 0;
    uint32_t running = 0, waiting = 0, queued = 0, standing = 0, standing_waiting = 0;
    LIST_EACH (&s->running, node) {
        running++;
        standing += session_stands(SESSION_OF(node));
        if (!session_check(s, SESSION_OF(node), &held, &swapped, &windows)) return false;
    }
    const struct list *const heads[] = { &s->waiting, &s->parked };
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        LIST_EACH (heads[i], node) {
            const struct session *x = SESSION_OF(node);
            waiting++;
            standing_waiting += session_stands(x);
            queued += x->wait.slot > 0 || list_linked(&x->unranked);
            if (!session_check(s, x, &held, &swapped, &windows)) return false;
            if (session_is_parked(x) != (i == 1)) return false;
        }
    }
    const struct kv_pool *pool = &s->memory.pool;
    for (uint32_t i = 0; i < pool->total; i++) {
        refs += pool->refs[i];
        if (pool->window) window_refs += pool->window[i].refs;
    }
    if (pool->window && s->memory.kept == 0 && windows != window_refs) return false;
    return held == refs && running == s->counts.running && waiting == s->counts.waiting &&
           queued == waiting - standing_waiting && standing + standing_waiting == s->standing &&
           running <= s->config.seqs_max &&
           swapped + s->memory.swap_free_count == s->config.swap_pages;
}
