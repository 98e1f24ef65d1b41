/* router.c - runs the router's director in virtual time. */
#include "tests/sim/router.h"

#include "base/core/bits.h"
#include "fleet/defaults.h"
#include "tests/sim/world.h"

#include <stdio.h>

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
    if (r->left) return; /* the client is gone */
    history_over(&w->history, r->index, outcome, w->time.now_us);
    if (w->mutant == MUTANT_TWO_ENDS && outcome == HISTORY_FINISHED)
        history_over(&w->history, r->index, HISTORY_ERROR, w->time.now_us);
    check_history(w);
}

static void note_end(struct world *w, struct request *r, enum history_outcome outcome, int status)
{
    bool ok = outcome == HISTORY_FINISHED;
    tell_client(w, r, outcome, status);
    r->attempt++;
    timeline_note(&w->time, ok ? "finished" : "failed", w->name, r->index * 1000 + status);
}

static void over(struct world *w, struct request *r, enum history_outcome outcome, int status)
{
    struct router_node *n = router_of(w, r);
    bool ok = outcome == HISTORY_FINISHED;
    int64_t gaps = (int64_t)r->generated - 1;
    struct director_end end = { .ok = ok, .censored = !ok, .generated = r->generated };
    if (ok)
        end.outcome = (struct telemetry_outcome){
            .ttft_s = (double)(r->first_us - r->arrived_us) * 1e-6,
            .tpot_s = gaps > 0 ? (double)((r->last_us - r->first_us) / gaps) * 1e-6 : 0,
            .e2e_s = (double)(r->last_us - r->arrived_us) * 1e-6,
            .prompt_tokens = r->routed.dispatch.prompt_tokens,
            .generated_tokens = r->generated,
        };
    if (outcome != HISTORY_LEFT || w->mutant != MUTANT_LEAVE_FORGOTTEN)
        director_end(n->director, &r->routed, &end, now_us(w, n));
    note_end(w, r, outcome, status);
}

/* ---- silence, watched for as in router/upstream.c ---- */

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
    if (e->what != r->look || r->over || r->routed.dispatch.state != DISPATCH_SENT) return;
    if (node_defers(w, &n->node, true)) return;
    if (r->unread) hear(w, r); /* unread bytes are read before a timer fires */
    r->unread = false;
    if (!silence_look(&r->silence, &silence_limits, now_us(w, n))) {
        look_later(w, r);
        return;
    }
    struct agent *a = agent_find(w, r->instance);
    if (a && !w->continues) agent_blame(a, n->index, w->time.now_us); /* no heartbeat in a queue */
    network_cancel(w, r);
    router_failed(w, r, r->attempt, RETRY_SILENT);
}

static void hear(struct world *w, struct request *r)
{
    bool first = !r->silence.has_bytes;
    silence_heard(&r->silence, &silence_limits, now_us(w, router_of(w, r)));
    if (first) look_later(w, r); /* on_silence moves the look for later bytes */
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

static void carry_out(struct world *w, struct request *r, const struct director_verdict *v)
{
    struct router_node *n = router_of(w, r);
    if (v->displaced)
        over(w, CONTAINER_OF(v->displaced, struct request, routed), HISTORY_ERROR, v->status);
    if (v->answer == DISPATCH_SEND) {
        const struct director_endpoint *ep = director_endpoint_at(n->director, v->slot);
        must(ep);
        r->attempt++;
        r->stream_us = 0;
        r->unread = false;
        r->routed_us = w->time.now_us;
        silence_begin(&r->silence, &silence_limits, w->continues, true, now_us(w, n));
        look_later(w, r);
        memcpy(r->instance, ep->known.name, sizeof r->instance);
        network_send(w, r, ep->known.name);
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
    struct director_verdict v;
    struct director_request *c;
    if (w->mutant == MUTANT_HOLD_FOR_EVER) return;
    while ((c = director_held_next(n->director, now_us(w, n), &v)))
        carry_out(w, CONTAINER_OF(c, struct request, routed), &v);
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

static void sync_turn(struct world *w, const struct event *e);

static void arrived(struct world *w, const struct event *e)
{
    struct request *r = e->who;
    struct router_node *n = router_of(w, r);
    if (node_defers(w, &n->node, false)) return;
    struct director_verdict v;
    r->arrived_us = now_us(w, n);
    director_arrive(n->director, &r->routed, r->arrived_us, &v);
    r->accepted = r->routed.dispatch.state != DISPATCH_NEW; /* else refused at the door */
    if (v.hurry && !n->hurried) {
        n->hurried = true;
        timeline_at(&w->time, w->time.now_us + URGENT_SYNC_US, sync_turn, n, 1);
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
    if (r->routed.dispatch.state == DISPATCH_SENT) network_cancel(w, r);
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
    r->last_us = now_us(w, n);
    if (r->generated == 0) r->first_us = r->last_us;
    r->generated += count;
    bool acquitted = director_tokens(n->director, &r->routed, count, r->last_us);
    if (acquitted && !finished) held_again(w, n);
    if (!finished) return;
    over(w, r, HISTORY_FINISHED, 200);
    held_again(w, n);
}

void router_failed(struct world *w, struct request *r, uint32_t attempt, enum retry_failure f)
{
    if (r->attempt != attempt || r->over) return;
    struct router_node *n = router_of(w, r);
    timeline_note(&w->time, "attempt_failed", w->name, r->index * 10 + f);
    bool lost = f == RETRY_DIED || f == RETRY_SILENT;
    bool free = f == RETRY_UNREACHABLE || f == RETRY_LOCAL ||
                (lost && r->routed.dispatch.retry.losses == 0);
    bool charged = !free;
    struct director_verdict v;
    if (w->mutant == MUTANT_FREE_RETRIES) f = RETRY_UNREACHABLE;
    if (w->continues) r->routed.dispatch.generated = r->generated;
    r->routed.dispatch.retry.answering = r->generated > 0 && !w->continues;
    director_fail(n->director, &r->routed, f, now_us(w, n), &v);
    if (v.answer != DISPATCH_REFUSE && charged) n->attempts_charged++;
    if (v.answer == DISPATCH_WAIT) r->attempt++;
    carry_out(w, r, &v);
    held_again(w, n);
    check_retries(w, n);
}

/* ---- syncs ---- */

uint64_t router_arrivals(const struct router_node *r)
{
    struct dispatch_demand d;
    dispatch_demand(r->dispatch, 0, &d);
    return d.arrivals;
}

static void forge_zero(struct service_demand *d)
{
    *d = (struct service_demand){ .service = d->service, .arrivals_total = d->arrivals_total };
}

static void write_sync(struct world *w, struct router_node *n, bool zero, struct buf *out)
{
    struct director_report *said = malloc(sizeof *said);
    must(said);
    director_report(n->director, now_us(w, n), said);
    for (uint32_t i = 0; i < said->service_count; i++) {
        if (w->mutant == MUTANT_PHANTOM_HELD) said->service[i].held++;
        if (zero) forge_zero(&said->service[i]);
    }
    char id[8];
    snprintf(id, sizeof id, "r%u", n->index);
    struct router_sync s = { .router = str_from(id),
                             .boot = n->boot,
                             .seq = n->seq,
                             .host = STR("127.0.0.1"),
                             .port = 8080,
                             .window_s = (double)TELEMETRY_WINDOW_US * 1e-6,
                             .services = said->service,
                             .service_count = said->service_count,
                             .endpoints = said->endpoint,
                             .endpoint_count = zero ? 0 : said->endpoint_count };
    must(router_sync_encode(&s, out) == 0);
    free(said);
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
    if (e->what == 0) timeline_at(&w->time, w->time.now_us + SYNC_PERIOD_US, sync_turn, n, 0);
}

static void take_endpoint(struct world *w, struct router_node *n, const struct endpoint *e)
{
    struct director_endpoint ep;
    uint32_t slot;
    must(director_endpoint_read(n->director, e, true, now_us(w, n), &ep) == 0);
    must(director_endpoint_put(n->director, &ep, &slot) == 0);
}

void router_hears(struct world *w, struct router_node *n, uint64_t boot, struct str text)
{
    if (boot != n->boot) return; /* a reply to the router before its restart */
    CLEANUP(arena_fini) struct arena arena;
    struct router_rules rules;
    struct err err = { 0 };
    arena_init(&arena, SYNC_BYTES_MAX);
    if (router_rules_decode(text, &arena, &rules, &err) < 0) must_failed(err.text, __FILE__, 0);
    if (w->controller_count > 1 &&
        !controllers_heard(&n->controllers, rules.epoch, node_mono_us(w, &n->node)))
        return;
    director_rules(n->director, &rules);
    director_endpoints_begin(n->director);
    for (uint32_t i = 0; i < rules.endpoint_count; i++)
        take_endpoint(w, n, &rules.endpoints[i]);
    while (director_endpoint_gone(n->director, router_rules_complete(&rules)) != ROUTE_NONE)
        continue;
    director_endpoints_end(n->director);
    held_again(w, n);
}

/* ---- life ---- */

static void make_core(struct world *w, struct router_node *n)
{
    const struct director_config config = {
        .dispatch = { .route = w->route,
                      .predict = predict_find(STR(PREDICT_DEFAULT)),
                      .index_bytes = 1 << 16,
                      .requests_max = SIM_REQUESTS_MAX,
                      .held_max = SIM_HELD_MAX,
                      .hold_us_max = SIM_HOLD_US,
                      .seed = rng_u64(&w->rng_engine) },
    };
    must(director_new(&config, &n->director, NULL) == 0);
    n->dispatch = director_dispatch(n->director);
    n->boot = rng_u64(&w->rng_engine);
    n->seq = 0;
    n->timer_us = INT64_MAX;
    n->knows_name = false;
    n->attempts_charged = 0;
}

void router_start(struct world *w, struct router_node *n)
{
    node_start(w, &n->node);
    leaders_known(w, &n->controllers);
    make_core(w, n);
    timeline_at(&w->time, w->time.now_us + (int64_t)rng_below(&w->rng_net, SYNC_PERIOD_US),
                sync_turn, n, 0);
}

/* Restarts the router with nothing in memory. Its connections break, to clients and to engines. */
void router_restart(struct world *w, struct router_node *n)
{
    timeline_note(&w->time, "router_restarts", w->name, n->index);
    for (uint32_t i = 0; i < w->request_count; i++) {
        struct request *r = &w->request[i];
        if (r->router != n->index || !r->accepted || r->over) continue;
        if (r->routed.dispatch.state == DISPATCH_SENT) network_cancel(w, r);
        r->routed.dispatch.state = DISPATCH_ENDED;
        note_end(w, r, HISTORY_ERROR, 0);
    }
    director_free(n->director);
    make_core(w, n);
}
