/* router.c - the router's shell in virtual time. */
#include "tests/sim/router.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "tests/sim/world.h"

#include <stdio.h>

#define SYNC_US (500 * MS)
#define HURRY_US (20 * MS)
#define TOKEN_BUDGET 2048

static struct router_node *router_of(struct world *w, const struct request *r)
{
    return &w->router[r->router];
}

static int64_t now_us(const struct world *w, const struct router_node *n)
{
    return node_mono_us(w, &n->node);
}

/* ---- the end of a request ---- */

static void tell_client(struct world *w, struct request *r, enum history_outcome outcome,
                        int status)
{
    r->over = true;
    r->ok = outcome == HISTORY_FINISHED;
    r->status = status;
    if (r->left) return; /* nobody hears it */
    history_over(&w->history, r->index, outcome, w->time.now_us);
    if (w->mutant == MUTANT_TWO_ENDS && outcome == HISTORY_FINISHED)
        history_over(&w->history, r->index, HISTORY_ERROR, w->time.now_us);
    check_history(w);
}

static void over(struct world *w, struct request *r, enum history_outcome outcome, int status)
{
    struct router_node *n = router_of(w, r);
    bool ok = outcome == HISTORY_FINISHED;
    tell_client(w, r, outcome, status);
    r->attempt++;
    *(ok ? &n->finished_total : &n->failed_total) += 1;
    timeline_note(&w->time, ok ? "finished" : "failed", w->name, r->index * 1000 + status);
}

/* ---- silence, as upstream.c watches for it ---- */

static const struct silence_config silence_limits = { .head_us = 30 * SECOND,
                                                      .gap_us = 10 * SECOND,
                                                      .other_first_us = 60 * SECOND,
                                                      .other_gap_us = 30 * SECOND };

static void on_silence(struct world *w, const struct event *e);
static void hear(struct world *w, struct request *r);

static void look_later(struct world *w, struct request *r)
{
    r->look++;
    if (r->silence.look_us == INT64_MAX || w->mutant == MUTANT_DEAF || w->mutant == MUTANT_LOST_END)
        return;
    timeline_at(&w->time, node_world_us(&router_of(w, r)->node, r->silence.look_us) + 1, on_silence,
                r, r->look);
}

static void on_silence(struct world *w, const struct event *e)
{
    struct request *r = e->who;
    const struct router_node *n = router_of(w, r);
    if (e->what != r->look || r->over || r->dispatch.state != DISPATCH_SENT) return;
    if (node_defers(w, &n->node, true)) return;
    if (r->unread) hear(w, r); /* what was unread is read before a timer fires */
    r->unread = false;
    if (!silence_look(&r->silence, &silence_limits, now_us(w, n))) {
        look_later(w, r);
        return;
    }
    struct agent *a = agent_find(w, r->instance);
    if (a && !w->continues) agent_blame(a, n->index, w->time.now_us); /* its queue is silent */
    network_cancel(w, r);
    router_failed(w, r, r->attempt, RETRY_SILENT);
}

static void hear(struct world *w, struct request *r)
{
    bool first = !r->silence.has_bytes;
    silence_heard(&r->silence, &silence_limits, now_us(w, router_of(w, r)));
    if (first) look_later(w, r); /* later ones move the look when it comes */
}

void router_head(struct world *w, struct request *r, uint32_t attempt)
{
    if (r->attempt != attempt || r->over) return;
    int64_t beat_us = w->continues ? SECOND : 0;
    silence_head(&r->silence, &silence_limits, beat_us, now_us(w, router_of(w, r)));
    look_later(w, r);
}

void router_beat(struct world *w, struct request *r, uint32_t attempt)
{
    if (r->attempt != attempt || r->over) return;
    r->unread = node_is_stopped(w, &router_of(w, r)->node);
    if (!r->unread) hear(w, r);
}

/* ---- verdicts ---- */

static void carry_out(struct world *w, struct request *r, const struct dispatch_verdict *v)
{
    struct router_node *n = router_of(w, r);
    struct dispatch_verdict lost;
    struct dispatch_request *out =
        v->answer == DISPATCH_WAIT ? dispatch_displaced(n->dispatch, &lost) : NULL;
    if (out) over(w, CONTAINER_OF(out, struct request, dispatch), HISTORY_ERROR, lost.status);
    if (v->answer == DISPATCH_SEND) {
        const struct dispatch_endpoint *ep = dispatch_endpoint_at(n->dispatch, r->dispatch.slot);
        must(ep);
        r->attempt++;
        r->stream_us = 0;
        r->unread = false;
        r->routed_us = w->time.now_us;
        silence_begin(&r->silence, &silence_limits, w->continues, true, now_us(w, n));
        look_later(w, r);
        memcpy(r->instance, ep->name, sizeof r->instance);
        network_send(w, r, ep->name);
    } else if (v->answer == DISPATCH_REFUSE) {
        over(w, r, HISTORY_ERROR, v->status);
    }
}

static void held_timer(struct world *w, const struct event *e);

static void set_timer(struct world *w, struct router_node *n)
{
    int64_t at = dispatch_held_deadline_us(n->dispatch, now_us(w, n));
    if (w->mutant == MUTANT_HOLD_FOR_EVER) return;
    if (at != INT64_MAX && at != n->timer_us)
        timeline_at(&w->time, node_world_us(&n->node, at), held_timer, n, (uint64_t)at);
    n->timer_us = at;
}

static void held_again(struct world *w, struct router_node *n)
{
    struct dispatch_verdict v;
    struct dispatch_request *c;
    if (w->mutant == MUTANT_HOLD_FOR_EVER) return;
    while ((c = dispatch_held_next(n->dispatch, now_us(w, n), &v)))
        carry_out(w, CONTAINER_OF(c, struct request, dispatch), &v);
    set_timer(w, n);
}

static void held_timer(struct world *w, const struct event *e)
{
    struct router_node *n = e->who;
    if (n->timer_us != (int64_t)e->what || node_defers(w, &n->node, true)) return;
    n->timer_us = INT64_MAX;
    held_again(w, n);
}

/* ---- requests ---- */

static void count_arrival(struct world *w, struct router_node *n, const struct request *r)
{
    int64_t second = w->time.now_us / SECOND;
    uint32_t at = (uint32_t)(second % RATE_WINDOW_S);
    if (n->bucket[at].second != second) memset(&n->bucket[at], 0, sizeof n->bucket[at]);
    n->bucket[at].second = second;
    n->bucket[at].arrivals++;
    n->bucket[at].prompt += r->dispatch.prompt_tokens;
    n->bucket[at].predicted += r->dispatch.length.mean;
    n->arrivals_total++;
}

static void sync_turn(struct world *w, const struct event *e);

static void arrived(struct world *w, const struct event *e)
{
    struct request *r = e->who;
    struct router_node *n = router_of(w, r);
    if (node_defers(w, &n->node, false)) return;
    bool known = n->has_rules && !n->paused;
    bool any = false;
    for (uint32_t i = 0; i < DISPATCH_ENDPOINTS && !any; i++)
        any = dispatch_endpoint_at(n->dispatch, i) != NULL;
    if (!known || !(n->may_start || any)) {
        n->rejected_total++;
        tell_client(w, r, HISTORY_ERROR, 503);
        return; /* refused at the door: never accepted */
    }
    r->accepted = true;
    struct dispatch_verdict v = dispatch_arrive(n->dispatch, &r->dispatch, now_us(w, n));
    count_arrival(w, n, r);
    if (v.answer == DISPATCH_WAIT && !n->hurried) {
        n->hurried = true;
        timeline_at(&w->time, w->time.now_us + HURRY_US, sync_turn, n, 1);
    }
    carry_out(w, r, &v);
    set_timer(w, n);
}

void router_arrive(struct world *w, struct request *r)
{
    timeline_at(&w->time, w->time.now_us, arrived, r, 0);
}

static void leaving_seen(struct world *w, const struct event *e)
{
    struct request *r = e->who;
    struct router_node *n = router_of(w, r);
    if (!r->accepted || r->over || node_defers(w, &n->node, false)) return;
    if (r->dispatch.state == DISPATCH_SENT) network_cancel(w, r);
    if (w->mutant != MUTANT_LEAVE_FORGOTTEN)
        dispatch_end(n->dispatch, &r->dispatch, r->generated, true, now_us(w, n));
    over(w, r, HISTORY_LEFT, 499);
    held_again(w, n);
}

void router_client_left(struct world *w, struct request *r)
{
    if (r->over || r->left) return;
    r->left = true;
    history_over(&w->history, r->index, HISTORY_LEFT, w->time.now_us);
    check_history(w);
    if (w->mutant != MUTANT_LOST_END) timeline_at(&w->time, w->time.now_us, leaving_seen, r, 0);
}

void router_tokens(struct world *w, struct request *r, uint32_t attempt, uint32_t index,
                   uint32_t count, bool finished)
{
    if (r->attempt != attempt || r->over) return;
    struct router_node *n = router_of(w, r);
    if (!r->left)
        history_tokens(&w->history, r->index, index, count, (struct str){ 0 }, w->time.now_us);
    check_history(w);
    hear(w, r);
    r->generated += count;
    r->dispatch.retry.answering = !w->continues;
    dispatch_tokens(n->dispatch, &r->dispatch, count, now_us(w, n));
    if (!finished) return;
    dispatch_end(n->dispatch, &r->dispatch, r->generated, false, now_us(w, n));
    over(w, r, HISTORY_FINISHED, 200);
    held_again(w, n);
}

void router_failed(struct world *w, struct request *r, uint32_t attempt, enum retry_failure f)
{
    if (r->attempt != attempt || r->over) return;
    struct router_node *n = router_of(w, r);
    timeline_note(&w->time, "attempt_failed", w->name, r->index * 10 + f);
    bool lost = f == RETRY_DIED || f == RETRY_SILENT;
    bool free =
        f == RETRY_UNREACHABLE || f == RETRY_LOCAL || (lost && r->dispatch.retry.losses == 0);
    bool charged = !free;
    if (w->mutant == MUTANT_FREE_RETRIES) f = RETRY_UNREACHABLE;
    if (w->continues) r->dispatch.generated = r->generated;
    struct dispatch_verdict v = dispatch_fail(n->dispatch, &r->dispatch, f, now_us(w, n));
    if (v.answer != DISPATCH_REFUSE && charged) n->attempts_charged++;
    if (v.answer == DISPATCH_WAIT) r->attempt++;
    carry_out(w, r, &v);
    held_again(w, n);
    check_retries(w, n);
}

/* ---- syncs ---- */

static void fill_demand(struct world *w, struct router_node *n, struct service_demand *d)
{
    struct dispatch_demand dispatch;
    dispatch_demand(n->dispatch, now_us(w, n), &dispatch);
    double arrivals = 0, prompt = 0, predicted = 0;
    for (uint32_t i = 0; i < RATE_WINDOW_S; i++) {
        if (w->time.now_us / SECOND - n->bucket[i].second >= RATE_WINDOW_S) continue;
        arrivals += n->bucket[i].arrivals;
        prompt += n->bucket[i].prompt;
        predicted += n->bucket[i].predicted;
    }
    *d = (struct service_demand){ .service = STR("chat"),
                                  .arrivals_total = n->arrivals_total,
                                  .finished_total = n->finished_total,
                                  .failed_total = n->failed_total,
                                  .rejected_total = n->rejected_total,
                                  .arrival_per_s = arrivals / RATE_WINDOW_S,
                                  .prompt_tokens_mean = arrivals > 0 ? prompt / arrivals : 0,
                                  .predicted_tokens_mean = arrivals > 0 ? predicted / arrivals : 0,
                                  .in_flight = dispatch.in_flight,
                                  .held = dispatch.held,
                                  .held_prompt_tokens = dispatch.held_tokens,
                                  .held_oldest_s = (double)dispatch.held_oldest_us * 1e-6 };
}

static void write_sync(struct world *w, struct router_node *n, bool zero, struct buf *out)
{
    struct service_demand d;
    struct endpoint_demand endpoint[DISPATCH_ENDPOINTS];
    uint32_t count = 0;
    fill_demand(w, n, &d);
    if (w->mutant == MUTANT_PHANTOM_HELD) d.held++;
    if (zero)
        d = (struct service_demand){ .service = STR("chat"), .arrivals_total = n->arrivals_total };
    for (uint32_t i = 0; i < DISPATCH_ENDPOINTS && !zero; i++) {
        const struct dispatch_endpoint *ep = dispatch_endpoint_at(n->dispatch, i);
        if (!ep) continue;
        endpoint[count++] =
            (struct endpoint_demand){ .instance = str_from(ep->name),
                                      .in_flight = dispatch_in_flight(n->dispatch, i) };
    }
    char id[8];
    snprintf(id, sizeof id, "r%u", n->index);
    struct router_sync s = { .router = str_from(id),
                             .boot = n->boot,
                             .seq = n->seq,
                             .host = STR("127.0.0.1"),
                             .port = 8080,
                             .window_s = RATE_WINDOW_S,
                             .services = &d,
                             .service_count = 1,
                             .endpoints = endpoint,
                             .endpoint_count = count };
    must(router_sync_encode(&s, out) == 0);
}

static void sync_turn(struct world *w, const struct event *e)
{
    struct router_node *n = e->who;
    if (node_defers(w, &n->node, true)) return;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf forged = { 0 };
    n->seq++;
    n->hurried = false;
    write_sync(w, n, false, &text);
    if (w->mutant == MUTANT_ABSENT_IS_ZERO) write_sync(w, n, true, &forged);
    network_sync(w, n, &text, &forged);
    check_router(w, n);
    if (e->what == 0) timeline_at(&w->time, w->time.now_us + SYNC_US, sync_turn, n, 0);
}

static void take_endpoint(struct world *w, struct router_node *n, const struct endpoint *e)
{
    struct dispatch_endpoint ep = { .model = w->model,
                                    .boot = e->boot,
                                    .ready = e->state == ENDPOINT_READY,
                                    .takes_ids = w->continues,
                                    .has_perf = e->has_perf,
                                    .perf = e->perf,
                                    .token_budget = TOKEN_BUDGET,
                                    .seqs_max = e->running_max,
                                    .price_per_hour = e->price_per_h };
    uint32_t slot;
    must(name_copy(ep.name, sizeof ep.name, e->instance) == 0);
    must(dispatch_endpoint_put(n->dispatch, &ep, &slot) == 0);
}

static bool is_named(const struct router_rules *rules, const char *name)
{
    for (uint32_t i = 0; i < rules->endpoint_count; i++)
        if (str_eq(rules->endpoints[i].instance, str_from(name))) return true;
    return false;
}

void router_hears(struct world *w, struct router_node *n, uint64_t boot, struct str text)
{
    if (boot != n->boot) return; /* an answer to the one before the restart */
    CLEANUP(arena_fini) struct arena arena;
    struct router_rules rules;
    struct err err = { 0 };
    arena_init(&arena, SYNC_BYTES_MAX);
    if (router_rules_decode(text, &arena, &rules, &err) < 0) must_failed(err.text, __FILE__, 0);
    n->has_rules = true;
    for (uint32_t i = 0; i < rules.service_count; i++) {
        n->may_start = rules.services[i].may_start;
        n->paused = rules.services[i].paused;
    }
    double eta_s = -1;
    for (uint32_t i = 0; i < rules.starting_count; i++) {
        double one_s = (double)rules.starting[i].eta_ms * 1e-3;
        if (eta_s < 0 || one_s < eta_s) eta_s = one_s;
    }
    dispatch_starting_set(n->dispatch, eta_s);
    for (uint32_t i = 0; i < rules.endpoint_count; i++)
        take_endpoint(w, n, &rules.endpoints[i]);
    for (uint32_t i = 0; i < DISPATCH_ENDPOINTS; i++) {
        const struct dispatch_endpoint *ep = dispatch_endpoint_at(n->dispatch, i);
        if (ep && router_rules_complete(&rules) && !is_named(&rules, ep->name))
            dispatch_endpoint_remove(n->dispatch, i);
    }
    held_again(w, n);
}

/* ---- life ---- */

static void make_core(struct world *w, struct router_node *n)
{
    struct dispatch_config config = { .route = w->route,
                                      .predict = predict_find(STR(PREDICT_DEFAULT)),
                                      .index_bytes = 1 << 16,
                                      .requests_max = SIM_REQUESTS_MAX,
                                      .held_max = SIM_HELD_MAX,
                                      .hold_us_max = SIM_HOLD_US,
                                      .seed = rng_u64(&w->rng_engine) };
    must(dispatch_new(&config, &n->dispatch, NULL) == 0);
    n->boot = rng_u64(&w->rng_engine);
    n->seq = 0;
    n->timer_us = INT64_MAX;
    n->has_rules = n->knows_name = false;
    n->arrivals_total = n->finished_total = n->failed_total = n->rejected_total = 0;
    n->attempts_charged = 0;
    memset(n->bucket, 0, sizeof n->bucket);
}

void router_start(struct world *w, struct router_node *n)
{
    node_start(w, &n->node);
    make_core(w, n);
    timeline_at(&w->time, w->time.now_us + (int64_t)rng_below(&w->rng_net, SYNC_US), sync_turn, n,
                0);
}

/* Its connections break: clients see it, engines see it. */
void router_restart(struct world *w, struct router_node *n)
{
    timeline_note(&w->time, "router_restarts", w->name, n->index);
    for (uint32_t i = 0; i < w->request_count; i++) {
        struct request *r = &w->request[i];
        if (r->router != n->index || !r->accepted || r->over) continue;
        if (r->dispatch.state == DISPATCH_SENT) network_cancel(w, r);
        r->dispatch.state = DISPATCH_ENDED;
        over(w, r, HISTORY_ERROR, 0);
    }
    dispatch_free(n->dispatch);
    make_core(w, n);
}
