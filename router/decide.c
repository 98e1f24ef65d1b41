/* decide.c - takes mail from the byte loops, asks the director and mails its verdicts back.
 *
 * The held requests are tried again after everything that can free an instance for one of them: a new
 * endpoint, an ended request, a rest that is over.
 */
#include "router/decide.h"

#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "policies/catalog.h"
#include "router/byte_loop.h"
#include "router/sync.h"
#include "router/tenants.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct mailbox *decide_mailbox(struct decide *d)
{
    return &d->mailbox;
}

struct mailbox *decide_entries(struct decide *d)
{
    return &d->entries;
}

void decide_on_entry(void *arg, struct mailbox_item *item)
{
    struct decide *d = arg;
    if (!entry_decide(&d->entries, item, d->tenants, loop_now_us(d->loop)))
        metric_inc(metric_of(d->metrics, RM_RATE_LIMITED));
}

static void held_timer_set(struct decide *d, int64_t now_us);

static void expectations_fill(const struct request *r, struct target *to)
{
    const struct dispatch_request *c = &r->placed.routed.dispatch;
    to->length_p50 = c->length.p50;
    to->length_p90 = c->length.p90;
    to->length_mean = c->length.mean;
    to->has_rank = c->length.has_rank;
    to->rank = c->length.rank;
    to->weight = r->placed.tenant ? r->placed.tenant->weight : 0;
    to->hit_tokens = c->hit_tokens;
}

/* Returns what a trace tells of the decision. */
static struct route_told told_of(const struct decide *d, const struct request *r, bool decided)
{
    const struct dispatch_request *c = &r->placed.routed.dispatch;
    if (!decided) return (struct route_told){ .estimate_s = -1, .runner_up_s = -1 };
    bool second = c->route.runner_up_id != ROUTE_NONE;
    return (struct route_told){ .policy = dispatch_route(d->dispatch)->name,
                                .candidates = c->candidates,
                                .decision = c->decision,
                                .estimate_s = c->route.estimate_s,
                                .runner_up_s = second ? c->route.runner_up_s : -1,
                                .held_us = c->held_us };
}

/* Mails the byte loop the target of the next leg. `decided`: by the routing policy, just now. */
static void tell_send(struct decide *d, struct request *r, const struct target *to, bool decided)
{
    struct mailbox *mailbox = &r->home->mailbox;
    mailbox_lock(mailbox);
    r->mail.tell |= TELL_SEND;
    r->mail.tell &= ~(uint32_t)TELL_MIGRATE; /* of a leg that is over */
    r->mail.tell_target = *to;
    if (r->traced) r->mail.tell_route = told_of(d, r, decided);
    bundle_pin(&d->board->pins, &r->placed.told_pins, to->bundle);
    expectations_fill(r, &r->mail.tell_target);
    mailbox_send_turn(&r->home->telling, &r->mail.tell_item);
    mailbox_unlock(mailbox);
}

void decide_tell_migrate(struct decide *d, struct request *r, uint32_t slot)
{
    struct mailbox *mailbox = &r->home->mailbox;
    mailbox_lock(mailbox);
    r->mail.tell |= TELL_MIGRATE;
    r->mail.tell_migrate = d->endpoint[slot].target;
    bundle_pin(&d->board->pins, &r->placed.told_pins, r->mail.tell_migrate.bundle);
    expectations_fill(r, &r->mail.tell_migrate);
    mailbox_send_turn(&r->home->telling, &r->mail.tell_item);
    mailbox_unlock(mailbox);
}

static void refuse(struct decide *d, struct request *r, int status, double retry_after_s,
                   const char *reason)
{
    struct mailbox *mailbox = &r->home->mailbox;
    struct str label = str_from(reason);
    metric_inc(metric_series(d->metrics, RM_REFUSED, &label));
    mailbox_lock(mailbox);
    r->mail.tell |= TELL_REFUSE;
    r->mail.tell_status = status;
    r->mail.tell_rate_limited = !r->placed.counted;
    r->mail.tell_late = r->placed.routed.dispatch.route.late;
    r->mail.tell_retry_after_s = retry_after_s;
    r->mail.tell_eta_s = r->placed.routed.dispatch.eta_s;
    mailbox_send_turn(&r->home->telling, &r->mail.tell_item);
    mailbox_unlock(mailbox);
}

/* Names the engine at `from` as the one that has the KV. */
static void kv_name(const struct target *from, struct target *to)
{
    memcpy(to->kv_host, from->host, sizeof to->kv_host);
    to->kv_port = from->port;
    memcpy(to->kv_instance, from->instance, sizeof to->kv_instance);
    to->kv_tls = from->tls;
}

/* A request that is held from now on is told of first after the pause; earlier ones have set the timer already. */
static void waiting_timer_set(struct decide *d)
{
    if (d->config->held_comment_us == 0 || loop_timer_is_set(&d->waiting_timer)) return;
    (void)loop_timer_set(d->loop, &d->waiting_timer,
                         loop_now_us(d->loop) + d->config->held_comment_us);
}

struct waiting {
    struct decide *d;
    int64_t now_us, next_us; /* next_us: when the first of them is to be told again */
};

static void tell_waiting(void *arg, struct director_request *c)
{
    struct waiting *w = arg;
    struct request *r = CONTAINER_OF(c, struct request, placed.routed);
    int64_t from_us = max_i64(r->placed.told_us, c->dispatch.held_us);
    int64_t due_us = from_us + w->d->config->held_comment_us;
    if (due_us <= w->now_us) {
        struct mailbox *mailbox = &r->home->mailbox;
        mailbox_lock(mailbox);
        r->mail.tell |= TELL_HELD;
        r->mail.tell_eta_s = c->dispatch.eta_s;
        mailbox_send_turn(&r->home->telling, &r->mail.tell_item);
        mailbox_unlock(mailbox);
        r->placed.told_us = w->now_us;
        due_us = w->now_us + w->d->config->held_comment_us;
    }
    w->next_us = min_i64(w->next_us, due_us);
}

void decide_on_waiting(void *arg)
{
    struct decide *d = arg;
    struct waiting w = { .d = d, .now_us = loop_now_us(d->loop), .next_us = INT64_MAX };
    director_held_each(d->director, tell_waiting, &w);
    /* Without memory for it they are held without being told. */
    if (w.next_us < INT64_MAX) (void)loop_timer_set(d->loop, &d->waiting_timer, w.next_us);
}

/* Mails the verdict to the byte loop: the target, and the engine that has KV of the prompt. */
static void answer(struct decide *d, struct request *r, const struct director_verdict *v)
{
    if (v->displaced) { /* refused before the request that has its place is told */
        metric_inc(metric_of(d->metrics, RM_DISPLACED));
        refuse(d, CONTAINER_OF(v->displaced, struct request, placed.routed), v->status,
               v->retry_after_s, refusal_names[REFUSAL_DISPLACED]);
    }
    if (v->answer == DISPATCH_REFUSE) {
        if (r->placed.routed.dispatch.route.late)
            metric_inc(metric_of(d->metrics, RM_LATE_REFUSED));
        refuse(d, r, v->status, v->retry_after_s, refusal_names[v->why]);
    }
    if (v->answer == DISPATCH_WAIT) waiting_timer_set(d);
    if (v->answer != DISPATCH_SEND) return;
    struct target to = d->endpoint[v->slot].target;
    to.pd_handoff = v->prefills;
    to.slice_tokens = r->placed.routed.dispatch.slice_tokens;
    if (v->kv_from != ROUTE_NONE) {
        kv_name(&d->endpoint[v->kv_from].target, &to);
        metric_inc(metric_of(d->metrics, RM_KV_FETCHES));
    }
    tell_send(d, r, &to, true);
}

static void rate_limit(struct decide *d, struct request *r, double wait_s)
{
    r->placed.counted = false;
    metric_inc(metric_of(d->metrics, RM_RATE_LIMITED));
    refuse(d, r, 429, wait_s, "limits");
}

/* Checks the tenant's limits before a text worker reads a large body. */
static void on_enter(struct decide *d, struct request *r, int64_t now_us)
{
    double wait_s;
    r->placed.tenant = tenants_find(d->tenants, r->mail.arrival.tenant_name);
    if (!tenant_enter(r->placed.tenant, now_us, &wait_s)) {
        rate_limit(d, r, wait_s);
        return;
    }
    r->placed.counted = true;
    struct mailbox *mailbox = &r->home->mailbox;
    mailbox_lock(mailbox);
    r->mail.tell |= TELL_TEXT;
    mailbox_send_turn(&r->home->telling, &r->mail.tell_item);
    mailbox_unlock(mailbox);
}

/* Returns true if the tenant's limits admit the request. One that entered is counted already and is
 * charged only for its tokens. */
static bool admit(struct decide *d, struct request *r, int64_t now_us)
{
    double wait_s;
    uint32_t tokens = r->placed.routed.dispatch.prompt_tokens;
    if (!r->placed.counted)
        r->placed.tenant = tenants_find(d->tenants, r->mail.arrival.tenant_name);
    bool may = r->placed.counted ? tenant_charge(r->placed.tenant, tokens, now_us, &wait_s)
                                 : tenant_admit(r->placed.tenant, tokens, now_us, &wait_s);
    if (!may) rate_limit(d, r, wait_s);
    return may;
}

/* Copies the arrival. It is not written after ASK_ARRIVE, so that reading it needs no lock. */
static void take_arrival(struct request *r)
{
    const struct request_arrival *a = &r->mail.arrival;
    r->placed.routed = (struct director_request){ .is_question = r->is_question,
                                                  .dispatch = { .model = a->model,
                                                                .adapter = a->adapter,
                                                                .prompt_tokens = a->prompt_tokens,
                                                                .keys = a->keys,
                                                                .key_count = a->key_count,
                                                                .features = a->features,
                                                                .fingerprint = a->fingerprint } };
}

static void on_arrive(struct decide *d, struct request *r, int64_t now_us)
{
    struct director_verdict v;
    take_arrival(r);
    if (!admit(d, r, now_us)) return;
    r->placed.counted = true;
    r->placed.routed.dispatch.weight = r->placed.tenant ? r->placed.tenant->weight : 0;
    int64_t before_us = clock_mono_us();
    director_arrive(d->director, &r->placed.routed, now_us, &v);
    if (r->placed.routed.dispatch.state != DISPATCH_NEW)
        metric_observe(metric_of(d->metrics, RM_DECISION_SECONDS),
                       (double)(clock_mono_us() - before_us) * 1e-6);
    if (v.hurry) sync_hurry(d->sync);
    answer(d, r, &v);
}

static void on_failed(struct decide *d, struct request *r, enum retry_failure failure,
                      int64_t now_us)
{
    struct director_verdict v;
    const struct endpoint_place *at = &d->endpoint[r->placed.routed.dispatch.slot];
    migrate_plan_drops(d->migrate, r);
    director_fail(d->director, &r->placed.routed, failure, now_us, &v);
    struct str label = str_from(retry_failure_names[v.failure]);
    metric_inc(metric_series(d->metrics, RM_RETRIES, &label));
    log_event(LOG_INFO, "attempt_failed", "id=%s instance=%s failure=%s again=%d trace_id=%s",
              r->id, at->target.instance, retry_failure_names[v.failure],
              v.answer != DISPATCH_REFUSE, request_trace_text(r));
    answer(d, r, &v);
}

/* Routes a request again at the end of its slice. */
static void on_sliced(struct decide *d, struct request *r, int64_t now_us)
{
    struct director_verdict v;
    uint32_t from = r->placed.routed.dispatch.slot;
    migrate_plan_drops(d->migrate, r);
    director_slice_end(d->director, &r->placed.routed, now_us, &v);
    struct str label = v.answer == DISPATCH_REFUSE ? STR("refused")
                       : v.answer == DISPATCH_WAIT ? STR("held")
                       : v.slot == from            ? STR("stayed")
                                                   : STR("moved");
    metric_inc(metric_series(d->metrics, RM_SLICES, &label));
    answer(d, r, &v);
}

/* Sends a request on after its prefill leg; the same instance goes on if no other takes it. */
static void on_prefilled(struct decide *d, struct request *r, int64_t now_us)
{
    struct director_verdict v;
    uint32_t from = r->placed.routed.dispatch.slot;
    director_prefilled(d->director, &r->placed.routed, now_us, &v);
    struct target target = d->endpoint[v.slot].target;
    if (v.kv_from != ROUTE_NONE) kv_name(&d->endpoint[v.kv_from].target, &target);
    if (v.slot != from) metric_inc(metric_of(d->metrics, RM_PD_HANDOFFS));
    tell_send(d, r, &target, false);
}

/* Adds up how far the first attempt's estimate was from the TTFT that the client saw. Requests that
 * were held, sent again or routed again after a slice measured something else. */
static void judge_estimate(struct decide *d, const struct request *r)
{
    const struct dispatch_request *c = &r->placed.routed.dispatch;
    if (c->route.estimate_s < 0 || c->held_us > 0 || c->retry.attempts > 1 || c->generated > 0)
        return;
    double error_s = fabs(c->route.estimate_s - (double)r->mail.outcome.ttft_us * 1e-6);
    metric_add(metric_of(d->metrics, RM_TTFT_ERROR), error_s);
}

/* Keeps what became of a request for people who ask (ended.h). */
static void keep_ended(struct decide *d, const struct request *r)
{
    const struct dispatch_request *c = &r->placed.routed.dispatch;
    const struct outcome *o = &r->mail.outcome;
    const struct router_service *s = services_by_hash(d->services, c->model);
    bool sent = c->state == DISPATCH_SENT;
    struct ended_request f = { .ended = !sent    ? "refused"
                                        : !o->ok ? "failed"
                                        : o->cut ? "cut: its limit, or its client left"
                                                 : "answered",
                               .ended_us = clock_wall_us(),
                               .held = c->held_us > 0,
                               .ttft_us = o->ttft_us,
                               .tpot_us = o->tpot_us,
                               .e2e_us = o->e2e_us,
                               .attempts = c->retry.attempts,
                               .prompt_tokens = o->usage.prompt_tokens
                                                    ? (uint32_t)o->usage.prompt_tokens
                                                    : c->prompt_tokens,
                               .cached_tokens = (uint32_t)o->usage.cached_tokens,
                               .generated_tokens = (uint32_t)o->usage.generated_tokens,
                               .hit_tokens = c->hit_tokens,
                               .predicted_p50 = c->length.p50,
                               .predicted_p90 = c->length.p90,
                               .estimate_s = c->route.estimate_s,
                               .decision = c->decision };
    snprintf(f.id, sizeof f.id, "%s", r->id);
    if (o->traced) memcpy(f.trace_id, r->trace_id, sizeof f.trace_id);
    snprintf(f.tenant, sizeof f.tenant, "%s", r->mail.arrival.tenant_name);
    if (s) snprintf(f.service, sizeof f.service, "%.*s", DISPATCH_NAME_MAX - 1, s->name);
    if (sent) memcpy(f.instance, d->endpoint[c->slot].target.instance, sizeof f.instance);
    ended_put(&d->ended, &f);
}

static void on_over(struct decide *d, struct request *r, int64_t now_us)
{
    const struct dispatch_request *c = &r->placed.routed.dispatch;
    const struct outcome *o = &r->mail.outcome;
    migrate_plan_drops(d->migrate, r);
    bool judged = c->state == DISPATCH_SENT && o->ok && !r->is_question;
    if (judged) judge_estimate(d, r);
    if (judged && !o->cut && o->usage.generated_tokens > 0) {
        bool within = o->usage.generated_tokens <= c->length.p90;
        struct str label = within ? STR("true") : STR("false");
        metric_inc(metric_series(d->metrics, RM_LENGTH_COVERED, &label));
    }
    if (!r->is_question) keep_ended(d, r);
    const struct director_end end = {
        .ok = o->ok,
        .censored = o->cut || !o->ok,
        .cached_known = o->cached_known,
        .generated = o->usage.generated_tokens,
        .outcome = { .ttft_s = (double)o->ttft_us * 1e-6,
                     .tpot_s = (double)o->tpot_us * 1e-6,
                     .e2e_s = (double)o->e2e_us * 1e-6,
                     .prompt_tokens = o->usage.prompt_tokens,
                     .cached_tokens = o->usage.cached_tokens,
                     .generated_tokens = o->usage.generated_tokens },
    };
    const struct router_service *service = services_by_hash(d->services, c->model);
    enum slo_result result = director_end(d->director, &r->placed.routed, &end, now_us);
    if (result != SLO_UNCOUNTED)
        router_metric_count(d->metrics, RM_SLO_REQUESTS, result == SLO_MET ? "met" : "missed",
                            str_from(service->name));
    if (r->placed.counted) tenant_end(r->placed.tenant, c->model, &o->usage);
    struct mailbox *mailbox = &r->home->mailbox;
    bundle_unpin(&d->board->pins, &r->placed.told_pins);
    mailbox_lock(mailbox);
    r->mail.tell |= TELL_DONE;
    if (r->is_question)
        mailbox_send_turn(&r->home->telling, &r->mail.tell_item);
    else
        mailbox_send_later(&r->home->telling, &r->mail.tell_item); /* only memory waits for it */
    mailbox_unlock(mailbox);
}

void decide_on_mail(void *arg, struct mailbox_item *item)
{
    struct decide *d = arg;
    struct request *r = CONTAINER_OF(item, struct request, mail.ask_item);
    mailbox_open(&d->mailbox, item);
    uint32_t ask = r->mail.ask, tokens = r->mail.ask_tokens;
    enum retry_failure failure = r->mail.ask_failure;
    bool answering = r->mail.ask_answering;
    uint32_t generated = r->mail.ask_generated;
    uint64_t fingerprint = r->mail.ask_fingerprint;
    r->mail.ask = r->mail.ask_tokens = 0;
    mailbox_unlock(&d->mailbox);

    int64_t now_us = loop_now_us(d->loop);
    if (ask & ASK_ENTER) on_enter(d, r, now_us);
    if (ask & ASK_ARRIVE) on_arrive(d, r, now_us);
    bool acquitted = false;
    struct dispatch_request *c = &r->placed.routed.dispatch;
    if (ask & ASK_TOKENS && c->state == DISPATCH_SENT)
        acquitted = director_tokens(d->director, &r->placed.routed, tokens, now_us);
    if (ask & ASK_MIGRATED) migrate_plan_arrives(d->migrate, r, now_us);
    if (ask & ASK_STAYS) migrate_plan_stays(d->migrate, r, now_us);
    if (ask & ASK_PREFILLED && c->state == DISPATCH_SENT) on_prefilled(d, r, now_us);
    if (ask & ASK_FAILED && c->state == DISPATCH_SENT) {
        c->generated = generated;
        c->fingerprint = fingerprint;
        c->retry.answering = answering;
        on_failed(d, r, failure, now_us);
    }
    if (ask & ASK_SLICED && c->state == DISPATCH_SENT) {
        c->generated = generated;
        c->fingerprint = fingerprint;
        on_sliced(d, r, now_us);
    }
    if (ask & ASK_OVER) on_over(d, r, now_us);
    bool news = quarantine_changes(dispatch_quarantine(d->dispatch)) != d->quarantine.changes;
    if (news) decide_quarantine_tell(d);
    if (acquitted || ask & (ASK_OVER | ASK_FAILED | ASK_SLICED)) {
        decide_held_again(d);
    } else if (ask & ASK_ARRIVE) {
        held_timer_set(d, now_us);
    }
}

static void held_timer_set(struct decide *d, int64_t now_us)
{
    int64_t at_us = dispatch_held_deadline_us(d->dispatch, now_us);
    if (at_us == INT64_MAX) {
        loop_timer_clear(d->loop, &d->held_timer);
    } else {
        loop_timer_set(d->loop, &d->held_timer, at_us);
    }
}

void decide_held_again(struct decide *d)
{
    loop_assert_owner(d->loop);
    int64_t now_us = loop_now_us(d->loop);
    struct director_verdict v;
    struct director_request *c;
    while ((c = director_held_next(d->director, now_us, &v))) {
        struct request *r = CONTAINER_OF(c, struct request, placed.routed);
        metric_observe(metric_of(d->metrics, RM_HOLD_SECONDS),
                       (double)(now_us - c->dispatch.held_us) * 1e-6);
        answer(d, r, &v);
    }
    held_timer_set(d, now_us);
}

void decide_on_held(void *arg)
{
    decide_held_again(arg);
}

void decide_policy_tell(struct decide *d, const char *kind, const char *row, bool decides)
{
    const struct str labels[] = { str_from(kind), str_from(row) };
    metric_set(metric_series(d->metrics, RM_POLICY, labels), decides);
}

void decide_route_set(struct decide *d, struct str name)
{
    const struct route_policy *policy = route_find(name);
    if (!policy) {
        log_event(LOG_WARN, "route_unknown", "name=%.*s", STR_ARG(name));
    } else if (policy != dispatch_route(d->dispatch)) {
        decide_policy_tell(d, "route", dispatch_route(d->dispatch)->name, false);
        decide_policy_tell(d, "route", policy->name, true);
        dispatch_route_set(d->dispatch, policy);
        record_row(d->record, policy);
        log_event(LOG_INFO, "route_set", "name=%s", policy->name);
    }
}

static void route_from_ask(void *arg)
{
    struct decide *d = arg;
    const struct route_policy *policy = atomic_load(&d->route_asked);
    decide_route_set(d, str_from(policy->name));
}

void decide_route_ask(struct decide *d, const struct route_policy *policy)
{
    atomic_store(&d->route_asked, policy);
    /* A full ring means a flood of posts: the caller may ask again. */
    loop_post(d->loop, route_from_ask, d);
}

int decide_run(struct decide *d)
{
    return loop_run(d->loop);
}

void decide_stop(struct decide *d)
{
    loop_stop(d->loop);
}

static void hurry(void *arg)
{
    struct decide *d = arg;
    sync_hurry(d->sync);
}

void decide_tunnels_changed(void *decide)
{
    struct decide *d = decide;
    (void)loop_post(d->loop, hurry, d); /* where it is full, the next sync sees it */
}
