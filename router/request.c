/* request.c - takes a request from the pool, sends its mail to the decision thread, and gives it back. */
#include "router/request.h"

#include "base/core/bits.h"
#include "base/io/loop/clock.h"
#include "router/byte_loop.h"
#include "router/generate.h"

struct request *request_take(struct byte_loop *b, int64_t deadline_us, void (*on_deadline)(void *))
{
    struct request *r = pool_take(&b->requests);
    if (!r) return NULL;
    r->home = b;
    list_push_back(&b->live, &r->client.link);
    r->client.arrived_us = loop_now_us(b->loop);
    r->client.deadline_us = deadline_us;
    r->client.deadline = (struct loop_timer){ .fn = on_deadline, .arg = r };
    arena_init(&r->client.arena, REQUEST_ARENA_BYTES_MAX);
    return r;
}

static void ask(struct request *r, uint32_t what)
{
    struct mailbox *mailbox = r->home->asks;
    mailbox_lock(mailbox);
    r->mail.ask |= what;
    mailbox_send_turn(&r->home->asking, &r->mail.ask_item);
    mailbox_unlock(mailbox);
}

void request_enter(struct request *r)
{
    ask(r, ASK_ENTER);
}

void request_arrive(struct request *r)
{
    request_trace_asked(r);
    ask(r, ASK_ARRIVE);
}

void request_tokens(struct request *r, uint32_t count)
{
    loop_assert_owner(r->home->loop);
    must(!r->client.over);
    int64_t now_us = loop_now_us(r->home->loop);
    bool first = r->client.first_us == 0;
    if (first) r->client.first_us = now_us;
    r->client.last_us = now_us;
    if (r->client.trace) request_trace_tokens(r, count);
    struct mailbox *mailbox = r->home->asks;
    mailbox_lock(mailbox);
    r->mail.ask |= ASK_TOKENS;
    r->mail.ask_tokens += count;
    /* The first token is timed, so its mail goes at once; the others are only counted. */
    if (first)
        mailbox_send_turn(&r->home->asking, &r->mail.ask_item);
    else
        mailbox_send_later(&r->home->asking, &r->mail.ask_item);
    mailbox_unlock(mailbox);
}

void request_failed(struct request *r, enum retry_failure failure)
{
    loop_assert_owner(r->home->loop);
    must(!r->client.over);
    r->client.broken = true;
    request_trace_leg_over(r, retry_failure_names[failure], true);
    request_trace_asked(r);
    migrate_request_forget(r);
    struct mailbox *mailbox = r->home->asks;
    mailbox_lock(mailbox);
    r->mail.ask |= ASK_FAILED;
    r->mail.ask_failure = failure;
    r->mail.ask_generated = r->client.ids_lost ? 0 : leg_generated(r);
    r->mail.ask_fingerprint = r->client.fingerprint;
    r->mail.ask_answering = r->client.began && r->mail.ask_generated == 0;
    mailbox_send_turn(&r->home->asking, &r->mail.ask_item);
    mailbox_unlock(mailbox);
}

/* A copy of its KV that is under way comes too late: the leg that it was to follow is over. */
void request_sliced(struct request *r)
{
    must(!r->client.over);
    request_trace_leg_over(r, "sliced", false);
    request_trace_asked(r);
    migrate_request_forget(r);
    struct mailbox *mailbox = r->home->asks;
    mailbox_lock(mailbox);
    r->mail.ask |= ASK_SLICED;
    r->mail.ask_generated = leg_generated(r);
    r->mail.ask_fingerprint = r->client.fingerprint;
    mailbox_send_turn(&r->home->asking, &r->mail.ask_item);
    mailbox_unlock(mailbox);
}

void request_prefilled(struct request *r)
{
    must(!r->client.over);
    request_trace_leg_over(r, "prefilled", false);
    request_trace_asked(r);
    ask(r, ASK_PREFILLED);
}

void request_migrated(struct request *r)
{
    ask(r, ASK_MIGRATED);
}

void request_stays(struct request *r)
{
    ask(r, ASK_STAYS);
}

static void observe(struct request *r)
{
    struct metrics *m = r->home->metrics;
    const struct outcome *o = &r->client.outcome;
    struct str service = r->client.reply.model; /* empty when it was refused before it was known */
    const char *outcome = o->ok ? "ok" : r->client.began ? "broken" : "failed";
    if (!o->ok && r->client.problem.status >= 400 && r->client.problem.status < 500)
        outcome = "refused";
    if (!o->ok && r->client.problem.status == 0) outcome = "client_left";
    router_metric_count(m, RM_REQUESTS, outcome, service);
    if (!o->ok) return;
    const struct {
        enum router_metric metric;
        int64_t us;
    } times[] = { { RM_TTFT, o->ttft_us }, { RM_TPOT, o->tpot_us }, { RM_E2E, o->e2e_us } };
    for (size_t i = 0; i < COUNT_OF(times); i++) {
        if (times[i].metric == RM_TPOT && times[i].us == 0) continue; /* of a single token */
        metric_observe_request(router_metric_of(m, times[i].metric, service),
                               (double)times[i].us * 1e-6, str_from(r->id),
                               str_from(o->traced ? r->trace_id : ""), clock_wall_us());
    }
    metric_add(router_metric_of(m, RM_PROMPT_TOKENS, service), o->usage.prompt_tokens);
    metric_add(router_metric_of(m, RM_CACHED_TOKENS, service), o->usage.cached_tokens);
    metric_add(router_metric_of(m, RM_EXPECTED_TOKENS, service), r->client.target.hit_tokens);
    metric_add(router_metric_of(m, RM_GENERATED_TOKENS, service), o->usage.generated_tokens);
    if (!o->cached_known) return; /* nothing to compare an expectation with */
    struct str kind = str_from(engine_kind_names[r->client.target.kind]);
    metric_add(metric_series(m, RM_KIND_PROMPT, &kind), o->usage.prompt_tokens);
    metric_add(metric_series(m, RM_KIND_CACHED, &kind), o->usage.cached_tokens);
    metric_add(metric_series(m, RM_KIND_EXPECTED, &kind), r->client.target.hit_tokens);
}

/* Ends a question that is still open; no request waits for its reply any more. */
static void drop_question(struct request *r)
{
    struct request *q = r->client.question;
    if (!q) return;
    q->client.asker = r->client.question = NULL;
    if (q->client.over) return; /* its end is under way */
    if (q->client.call) signed_call_cancel(q->client.call);
    q->client.call = NULL;
    q->client.outcome.cut = true;
    request_over(q);
}

void request_over(struct request *r)
{
    loop_assert_owner(r->home->loop);
    if (r->client.over) return;
    r->client.over = true;
    loop_timer_clear(r->home->loop, &r->client.deadline);
    loop_timer_clear(r->home->loop, &r->client.silence_timer);
    loop_timer_clear(r->home->loop, &r->client.ping);
    struct outcome *o = &r->client.outcome;
    o->usage = r->client.usage;
    o->cached_known = r->client.cached_known;
    if (r->client.first_us > 0) {
        o->ttft_us = r->client.first_us - r->client.arrived_us;
        o->e2e_us = r->client.last_us - r->client.arrived_us;
        uint32_t gaps = max_u32(r->client.usage.generated_tokens, 1) - 1;
        o->tpot_us = gaps > 0 ? (r->client.last_us - r->client.first_us) / gaps : 0;
    }
    request_trace_over(r);
    if (!r->is_question) observe(r);
    drop_question(r);
    migrate_request_forget(r);
    struct mailbox *mailbox = r->home->asks;
    mailbox_lock(mailbox);
    r->mail.outcome = *o;
    r->mail.ask |= ASK_OVER;
    mailbox_send_turn(&r->home->asking, &r->mail.ask_item);
    mailbox_unlock(mailbox);
}

void request_release(struct request *r)
{
    struct byte_loop *b = r->home;
    must(!r->client.x && !r->client.call && !r->client.question && !r->client.asker);
    if (r->client.snapshot) snapshot_unref(b->board, r->client.snapshot);
    loop_timer_clear(b->loop, &r->client.deadline);
    migrate_request_forget(r);
    bundle_unpin(&b->board->pins, &r->client.pins);
    request_trace_release(r);
    list_remove(&r->client.link);
    prompt_drop_more(r);
    ids_fini(&r->client.ids);
    arena_fini(&r->client.arena);
    line_reader_fini(&r->client.lines);
    sse_reader_fini(&r->client.events);
    buf_fini(&r->client.output);
    openai_logprobs_fini(&r->client.logprobs);
    dialogue_fini(&r->client.parser);
    reasoning_fini(&r->client.reasoning);
    openai_message_fini(&r->client.message);
    buf_fini(&r->client.refusal);
    buf_fini(&r->client.out);
    buf_fini(&r->client.form.bytes);
    pool_give(&b->requests, r);
}
