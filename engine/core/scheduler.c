/* scheduler.c - one path for prompts, cache hits, decoding and resuming: computed -> total.
 *
 * Follows vLLM's V1 scheduler in having no phases, and differs in four points. Decoding sessions
 * are served before begun prompts, so that a long prompt never delays a token that is due
 * (Sarathi-Serve's order). Admission asks whether the answers will fit as well, because
 * preempting by recompute loses more than waiting does once memory is short. Who loses his place
 * keeps his pages until somebody needs them. A full hit shares the last page too and copies it on
 * write, instead of recomputing a whole page for the sake of one token.
 *
 * Running sessions are walked from end to end each step: they are at most seqs_max. Waiting ones
 * never are, there may be thousands: see sched_queue.c.
 */
#include "base/core/bits.h"
#include "engine/core/sched_part.h"

#include <math.h>
#include <string.h>

#define OUTPUT_MEAN_RATE 0.05 /* of the running mean of answer lengths */
#define BATCH_MEAN_RATE 0.02  /* of the running mean of sessions in a step */
#define WEIGHT_MIN 1e-6       /* of a tenant: tokens over less would swallow what others add */
#define WEIGHT_MAX 1e6
#define SWAP_FREE_PART 10 /* with less than a tenth of the swap space free nothing begins */

static double share_of(const struct sched_request *req)
{
    return req->weight > 0 ? fmin(fmax(req->weight, WEIGHT_MIN), WEIGHT_MAX) : 1;
}

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
    if (req->prompt_tokens >= s->config.context_max) {
        return err_set(err, -E2BIG, "a prompt of %u tokens leaves no room in a context of %u",
                       req->prompt_tokens, s->config.context_max);
    }
    if (s->counts.waiting >= s->config.waiting_max) {
        s->counts.refused++;
        return err_set(err, -EAGAIN, "%u requests are waiting already", s->counts.waiting);
    }
    uint32_t room = s->config.context_max - req->prompt_tokens;
    uint32_t total_max = req->prompt_tokens + min_u32(room, req->output_max);
    uint32_t slot = sched_tenant_slot(s, req->tenant, share_of(req));
    struct tenant_queue *tenant = &s->tenant[slot];
    CLEANUP(session_freep)
    struct session *session = session_new(req, total_max, s->config.page_tokens);
    int rc = session ? wait_queue_reserve(&tenant->queue, tenant->members + 1) : -ENOMEM;
    if (rc == 0 && req->deadline_us) rc = heap_push(&s->due, &session->due, req->deadline_us);
    if (rc < 0) return err_set(err, -ENOMEM, "no memory for %u tokens", total_max);

    session->state = SESSION_WAITING;
    session->tenant_slot = slot;
    tenant->members++;
    list_push_back(&s->waiting, &session->link);
    sched_enqueue_later(s, session);
    sched_arrived(s, req);
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

/* ---- the batch ---------------------------------------------------------------------------- */

static void batch_add(struct scheduler *s, struct session *session, uint32_t count)
{
    struct sched_batch *b = &s->batch;
    must(b->count < s->config.seqs_max && count > 0);
    b->item[b->count++] = (struct sched_item){
        .session = session,
        .start = session->computed,
        .count = count,
        .import_from = session->imported_tokens ? session->import_from : session->computed,
        .sample = session->computed + count == session->total,
    };
    session->item = b->count;
    b->tokens += count;
}

/* A clock may be set back; ours then stands until it has caught up, so that no wait is negative and
 * no line of a rank is read before the moment it was last read at (wait_queue.h). */
static int64_t clock_at(struct scheduler *s, int64_t now_us)
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
    if (session->keep_pages && !session->swapped) {
        s->kept += session->page_count;
    } else {
        sched_release_pages(s, session);
    }
    sched_pause(s, session, false);
    sched_hold(s, session, false);
    sched_dequeue(s, session);
    if (list_linked(&session->aborting)) list_remove(&session->aborting);
    if (heap_has(&session->due)) heap_remove(&s->due, &session->due);
    if (session->state == SESSION_RUNNING) {
        s->counts.running--;
        s->tenant[session->tenant_slot].running--;
    } else {
        s->counts.waiting--;
    }
    s->tenant[session->tenant_slot].members--;
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

static void end_due(struct scheduler *s, int64_t now_us)
{
    while (!list_empty(&s->aborting)) {
        struct session *x = CONTAINER_OF(s->aborting.next, struct session, aborting);
        end_session(s, x, SESSION_END_ABORT, now_us);
    }
    for (struct heap_node *n; (n = heap_peek(&s->due)) && n->key <= now_us;)
        end_session(s, CONTAINER_OF(n, struct session, due), SESSION_END_DEADLINE, now_us);
}

/* ---- the stages of a plan ------------------------------------------------------------------ */

static void plan_decoding(struct scheduler *s)
{
    /* A preempted session leaves the list, so the walk starts again; those that have an item
     * are passed over. */
    for (bool changed = true; changed;) {
        changed = false;
        LIST_EACH (&s->running, node) {
            struct session *session = SESSION_OF(node);
            if (session->total - session->computed != 1 || session->item) continue;
            if (session_stands(session)) continue;
            uint32_t before = s->counts.running;
            if (sched_force_room(s, session, session->total)) batch_add(s, session, 1);
            changed = s->counts.running != before;
            if (changed) break;
        }
    }
}

static void plan_begun(struct scheduler *s)
{
    if (s->batch.count == s->counts.running) return; /* all decode */
    for (bool changed = true; changed;) {
        changed = false;
        LIST_EACH (&s->running, node) {
            struct session *session = SESSION_OF(node);
            if (session_stands(session) || session->item) continue;
            uint32_t n = sched_chunk_tokens(s, session);
            if (n == 0) return;
            uint32_t before = s->counts.running;
            if (sched_force_room(s, session, session->computed + n)) batch_add(s, session, n);
            changed = s->counts.running != before;
            if (changed) break;
        }
    }
}

/* Among those that park and fit their place, the best; NULL: none. */
static struct session *best_parked(struct scheduler *s, int64_t now_us)
{
    struct session *best = NULL;
    LIST_EACH (&s->parked, node) {
        struct session *x = SESSION_OF(node);
        if (!x->wait.slot) continue;
        if (!best || wait_before(&x->wait, &best->wait, now_us)) best = x;
    }
    return best;
}

/* FastServe begins nothing while the swap space is nearly full. */
static bool swap_is_short(const struct scheduler *s, const struct session *x)
{
    return s->rows.order->swaps_early && x->page_count == 0 && s->counts.running > 0 &&
           s->config.swap_pages > 0 &&
           (uint64_t)s->swap_free_count * SWAP_FREE_PART < s->config.swap_pages;
}

/* Room for who was just admitted: by the pages of those who cannot run, then, alone, of those that
 * park, whatever their row says. False when it takes more than the admit row thought; then he waits
 * again. */
static bool first_room(struct scheduler *s, struct session *x, uint32_t upto)
{
    bool room = sched_make_room(s, x, upto);
    for (struct session *out; !room && (out = sched_victim(s, true));) {
        sched_give_up(s, out, NULL);
        room = sched_make_room(s, x, upto);
    }
    if (!room && s->counts.running == 1) room = sched_force_room(s, x, upto);
    if (!room && x->state == SESSION_RUNNING) sched_give_up(s, x, NULL);
    return room;
}

/* Imported tokens need pages as computed ones do, less what the cache held already. Until the first
 * commit they can be written again; a session that is preempted later recomputes them. */
static bool import(struct scheduler *s, struct session *x)
{
    if (x->imported_tokens <= x->computed || x->imported_from > x->computed) {
        x->imported_tokens = 0;
        return true;
    }
    if (!first_room(s, x, x->imported_tokens)) return false;
    x->import_from = x->computed;
    x->computed = x->imported_tokens;
    return true;
}

/* False: this step has nothing more for anybody. */
static bool give_first_tokens(struct scheduler *s, struct session *x)
{
    if (!import(s, x)) return false;
    uint32_t n = sched_chunk_tokens(s, x);
    if (n == 0) return false; /* no time */
    if (!first_room(s, x, x->computed + n)) return false;
    batch_add(s, x, n);
    sched_add_demand(s, x);
    return true;
}

static void plan_waiting(struct scheduler *s, int64_t now_us)
{
    bool full = s->counts.running >= s->config.seqs_max;
    if (s->counts.waiting == 0 || (full && s->counts.paused == 0)) return;
    sched_rank_unranked(s, now_us);
    sched_sum_demand(s);
    bool parked_only = false; /* the first in order does not fit; who has pages may go on */
    while (s->batch.tokens < s->config.batch_tokens_max) {
        struct session *x = parked_only ? best_parked(s, now_us) : sched_next_waiting(s, now_us);
        if (!x) break;
        struct sched_need need;
        uint32_t hits;
        bool place = s->counts.running < s->config.seqs_max;
        if (place && x->computed + x->imported_tokens == 0 && sched_chunk_tokens(s, x) == 0) break;
        if (place && !swap_is_short(s, x) && sched_find_need(s, x, &need, &hits) &&
            sched_admit(s, x, &need, hits, now_us)) {
            if (!give_first_tokens(s, x)) break;
            continue;
        }
        struct session *out = sched_victim(s, true);
        if (out) { /* who cannot run makes way for who can */
            sched_give_up(s, out, NULL);
            sched_sum_demand(s);
            continue;
        }
        if (!place) break;
        if (!parked_only && sched_reclaim(s, x)) continue;
        if (parked_only) break;
        if (s->rows.admit->first_fit && s->aside_count < SCHED_ASIDE_MAX) {
            sched_set_aside(s, x);
        } else {
            parked_only = true;
        }
    }
    sched_put_back(s);
}

const struct sched_batch *sched_plan(struct scheduler *s, int64_t now_us,
                                     const struct perf_coef *perf)
{
    must(!s->planned);
    struct sched_batch *b = &s->batch;
    s->perf = *perf;
    now_us = clock_at(s, now_us);
    s->aimed = false;
    s->aim = 0;
    s->index.depth_cost = perf->b > 0 ? perf->e / perf->b : 0;
    s->batch_mean += BATCH_MEAN_RATE * ((double)s->counts.running - s->batch_mean);
    b->count = b->tokens = b->move_count = b->swapped_out = b->swapped_in = 0;
    end_due(s, now_us);
    sched_refresh_ranks(s, now_us);
    if (s->rows.chunk->slice_tokens || s->rows.admit->outgrown) sched_return(s);
    if (s->rows.order->preempts && s->counts.waiting > 0) sched_reorder(s, now_us);

    uint64_t preempted = s->counts.preemptions;
    plan_decoding(s);
    plan_begun(s);
    /* Who lost his pages in this step must not find them given to a newcomer. */
    if (s->counts.preemptions == preempted) plan_waiting(s, now_us);
    if (s->rows.order->swaps_early) sched_swap_early(s);
    sched_batch_shape(b);
    s->planned = b->count > 0;
#ifdef MUSTER_DEBUG
    must(sched_check(s));
#endif
    return b;
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
        kv_index_seal(&s->index, session->pages[i], i,
                      session_parent_key(session, i, s->index.granules),
                      session->keys + (size_t)i * s->index.granules, session->ids + (size_t)i * pt);
    }
}

static void take_token(struct scheduler *s, struct session *session,
                       const struct sched_result *result, int64_t now_us)
{
    must(session->total < session->total_max);
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
    now_us = clock_at(s, now_us);
    double seconds = (double)(now_us - planned_us) * 1e-6;
    for (uint32_t i = 0; i < s->batch.count; i++) {
        struct sched_item *item = &s->batch.item[i];
        item->session->item = 0; /* before an end, which would move the items */
        item->session->computed += item->count;
        item->session->imported_tokens = 0;
        seal_full_pages(s, item->session);
        if (s->watched) {
            sched_tell(s, item->session,
                       (struct step_event){ .kind = STEP_RAN,
                                            .seconds = seconds,
                                            .input_tokens = item->count,
                                            .output_tokens = item->sample });
        }
        if (item->sample) take_token(s, item->session, &results[i], now_us);
    }
    s->batch.count = 0;
    if (s->watched) {
        sched_tell(s, NULL, (struct step_event){ .kind = STEP_DONE, .seconds = seconds });
    }
}

void sched_discard(struct scheduler *s, int64_t now_us)
{
    must(s->planned);
    s->planned = false;
    now_us = clock_at(s, now_us);
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
    s->kept -= session->page_count;
    sched_release_pages(s, session);
    session_free(session);
}
