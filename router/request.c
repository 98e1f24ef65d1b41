/* request.c - a request on its byte loop: taken, what is said of it to the decision thread, given back. */
#include "router/request.h"

#include "base/core/bits.h"
#include "router/byte_loop.h"

#include <stdlib.h>

struct request *request_take(struct byte_loop *b, int64_t deadline_us, void (*on_deadline)(void *))
{
    struct request *r = pool_take(&b->requests);
    if (!r) return NULL;
    r->home = b;
    list_push_back(&b->live, &r->link);
    r->arrived_us = loop_now_us(b->loop);
    r->deadline_us = deadline_us;
    r->deadline = (struct loop_timer){ .fn = on_deadline, .arg = r };
    arena_init(&r->arena, REQUEST_ARENA_BYTES_MAX);
    arena_init(&r->frame_arena, REQUEST_ARENA_BYTES_MAX);
    return r;
}

static void ask(struct request *r, uint32_t what)
{
    struct lane *lane = r->home->asks;
    lane_lock(lane);
    r->ask |= what;
    lane_send(lane, &r->ask_item);
    lane_unlock(lane);
}

void request_enter(struct request *r)
{
    ask(r, ASK_ENTER);
}

void request_arrive(struct request *r)
{
    ask(r, ASK_ARRIVE);
}

void request_tokens(struct request *r, uint32_t count)
{
    must(!r->over);
    int64_t now_us = loop_now_us(r->home->loop);
    if (r->first_us == 0) r->first_us = now_us;
    r->last_us = now_us;
    struct lane *lane = r->home->asks;
    lane_lock(lane);
    r->ask |= ASK_TOKENS;
    r->ask_tokens += count;
    lane_send(lane, &r->ask_item);
    lane_unlock(lane);
}

void request_failed(struct request *r, enum retry_failure failure)
{
    must(!r->over);
    r->broken = true;
    move_forget(r);
    struct lane *lane = r->home->asks;
    lane_lock(lane);
    r->ask |= ASK_FAILED;
    r->ask_failure = failure;
    r->ask_generated = r->ids_lost ? 0 : leg_generated(r);
    r->ask_fingerprint = r->fingerprint;
    r->ask_answering = r->began && r->ask_generated == 0;
    lane_send(lane, &r->ask_item);
    lane_unlock(lane);
}

void request_prefilled(struct request *r)
{
    must(!r->over);
    ask(r, ASK_PREFILLED);
}

void request_moved(struct request *r)
{
    ask(r, ASK_MOVED);
}

void request_stays(struct request *r)
{
    ask(r, ASK_STAYS);
}

static void observe(struct request *r)
{
    struct metrics *m = r->home->metrics;
    const struct outcome *o = &r->outcome;
    struct str label = o->ok ? STR("ok") : r->began ? STR("broken") : STR("failed");
    if (!o->ok && r->problem.status >= 400 && r->problem.status < 500) label = STR("refused");
    if (!o->ok && r->problem.status == 0) label = STR("client_left");
    metric_inc(metric_series(m, RM_REQUESTS, &label));
    if (!o->ok) return;
    metric_observe(metric_of(m, RM_TTFT), (double)o->ttft_us * 1e-6);
    if (o->tpot_us > 0) metric_observe(metric_of(m, RM_TPOT), (double)o->tpot_us * 1e-6);
    metric_observe(metric_of(m, RM_E2E), (double)o->e2e_us * 1e-6);
    metric_add(metric_of(m, RM_PROMPT_TOKENS), o->usage.prompt_tokens);
    metric_add(metric_of(m, RM_CACHED_TOKENS), o->usage.cached_tokens);
    metric_add(metric_of(m, RM_EXPECTED_TOKENS), r->target.hit_tokens);
    metric_add(metric_of(m, RM_GENERATED_TOKENS), o->usage.generated_tokens);
}

/* Its end, which the decision thread may still be asked for, needs nobody any more. */
static void drop_question(struct request *r)
{
    struct request *q = r->question;
    if (!q) return;
    q->asker = r->question = NULL;
    if (q->over) return; /* its end is under way */
    if (q->call) signed_call_cancel(q->call);
    q->call = NULL;
    q->outcome.cut = true;
    request_over(q);
}

void request_over(struct request *r)
{
    if (r->over) return;
    r->over = true;
    loop_timer_clear(r->home->loop, &r->deadline);
    loop_timer_clear(r->home->loop, &r->silence_timer);
    struct outcome *o = &r->outcome;
    o->usage = r->usage;
    if (r->first_us > 0) {
        o->ttft_us = r->first_us - r->arrived_us;
        o->e2e_us = r->last_us - r->arrived_us;
        uint32_t gaps = max_u32(r->usage.generated_tokens, 1) - 1;
        o->tpot_us = gaps > 0 ? (r->last_us - r->first_us) / gaps : 0;
    }
    if (!r->is_question) observe(r);
    drop_question(r);
    move_forget(r);
    ask(r, ASK_OVER);
}

void request_release(struct request *r)
{
    struct byte_loop *b = r->home;
    must(!r->x && !r->call && !r->question && !r->asker);
    if (r->face) face_unref(b->board, r->face);
    loop_timer_clear(b->loop, &r->deadline);
    move_forget(r);
    bundle_unpin(&b->board->pins, &r->pins);
    bundle_unpin(&b->board->pins, &r->told_pins);
    list_remove(&r->link);
    ids_fini(&r->ids);
    free(r->keys);
    arena_fini(&r->arena);
    arena_fini(&r->frame_arena);
    line_reader_fini(&r->lines);
    sse_reader_fini(&r->events);
    buf_fini(&r->answer);
    buf_fini(&r->refusal);
    buf_fini(&r->out);
    pool_give(&b->requests, r);
}
