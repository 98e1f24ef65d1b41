/* decide.c - takes mail from the byte loops, asks the director and mails its verdicts back.
 *
 * The held requests are tried again after everything that can free an instance for one of them: a new
 * endpoint, an ended request, a rest that is over.
 */
#include "router/decide.h"

#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/net/descriptors.h"
#include "policies/catalog.h"
#include "router/byte_loop.h"
#include "router/generate.h"
#include "router/predict_file.h"
#include "router/sync.h"
#include "router/tenants.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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
    if (judged && !o->cut) {
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
    if (r->placed.counted) tenant_end(r->placed.tenant, &o->usage);
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

/* ---- endpoints ---- */

void decide_endpoints_begin(struct decide *d)
{
    director_endpoints_begin(d->director);
}

static bool copy_text(char *ret, size_t size, struct str s)
{
    if (s.len == 0 || s.len >= size) return false;
    memcpy(ret, s.data, s.len);
    ret[s.len] = '\0';
    return true;
}

static void on_load(void *arg, uint32_t slot, const struct reported_load *load)
{
    struct decide *d = arg;
    int64_t now_us = loop_now_us(d->loop);
    dispatch_endpoint_report(d->dispatch, slot, load, now_us, now_us);
}

/* Converts an endpoint from the wire to a target. -EINVAL when a name does not fit. */
static int target_from_wire(const struct endpoint *ep, struct target *ret)
{
    *ret = (struct target){ .port = (uint16_t)ep->port,
                            .tls = ep->tls,
                            .kind = ep->kind,
                            .agent_port = (uint16_t)ep->agent_port,
                            .agent_tls = ep->agent_tls,
                            .context_tokens = ep->context_tokens,
                            .page_tokens = ep->page_tokens };
    bool fits = ep->port <= UINT16_MAX && copy_text(ret->host, sizeof ret->host, ep->host) &&
                copy_text(ret->instance, sizeof ret->instance, ep->instance);
    /* Its name for the model is only needed where the client's request goes on as it is. */
    bool json = !engine_traits[ep->kind].takes_ids;
    fits = fits && (!json || copy_text(ret->model, sizeof ret->model, ep->model));
    fits =
        fits && ep->agent_port <= UINT16_MAX &&
        (ep->agent_port == 0 || copy_text(ret->agent_host, sizeof ret->agent_host, ep->agent_host));
    return fits ? 0 : -EINVAL;
}

static bool is_same_place(const struct target *a, const struct target *b)
{
    return a->port == b->port && a->tls == b->tls && strcmp(a->host, b->host) == 0 &&
           a->agent_port == b->agent_port && a->agent_tls == b->agent_tls &&
           strcmp(a->agent_host, b->agent_host) == 0;
}

/* Updates the decision thread's part of an endpoint. `known`: it had this slot already. */
static void place_put(struct decide *d, struct endpoint_place *s, bool known,
                      const struct endpoint *ep, const struct target *target)
{
    const struct target *was = &s->target;
    if (known && (s->boot != ep->boot || !is_same_place(was, target))) {
        block_feed_free(s->feed);
        s->feed = NULL;
    }
    uint64_t pins = 0;
    bundle_pin(&d->board->pins, &pins, target->bundle);
    bundle_unpin(&d->board->pins, &s->pins);
    if (!known) *s = (struct endpoint_place){ 0 };
    s->pins = pins;
    s->boot = ep->boot;
    s->target = *target;
}

static void feed_open(struct decide *d, uint32_t slot)
{
    struct endpoint_place *s = &d->endpoint[slot];
    s->feed =
        block_feed_new(d->loop, d->signer, dispatch_index(d->dispatch), slot, &s->target, d->link);
    if (s->feed) block_feed_on_load(s->feed, on_load, d);
}

void decide_endpoint_put(struct decide *d, const struct endpoint *ep, struct err *err)
{
    struct director_endpoint known;
    struct target target;
    bool usable = target_from_wire(ep, &target) == 0;
    /* Without its tokenizer nothing can be sent to an engine that takes token ids. To another, prompts go
     * as text; with its tokenizer, prefixes in its cache are found. */
    const struct engine_traits *traits = &engine_traits[ep->kind];
    bool told = traits->serves_itself || ep->agent_port > 0;
    if (usable && told) target.bundle = bundles_get(d->bundles, ep);
    bool reachable = !traits->takes_ids || target.bundle;
    if (!usable ||
        director_endpoint_read(d->director, ep, reachable, loop_now_us(d->loop), &known) < 0) {
        err_set(err, -EINVAL, "endpoint '" STR_FMT "' is not usable", STR_ARG(ep->instance));
        return;
    }
    uint32_t slot = dispatch_endpoint_find(d->dispatch, known.known.name);
    const struct director_endpoint *was =
        slot == ROUTE_NONE ? NULL : director_endpoint_at(d->director, slot);
    bool had = was != NULL;
    if (known.leaves_us > 0 && !(had && was->leaves_us))
        log_event(LOG_INFO, "endpoint_leaves", "instance=%s in_s=%.1f", target.instance,
                  ep->leaves_ms / 1e3);
    int rc = director_endpoint_put(d->director, &known, &slot);
    if (rc < 0) {
        metric_inc(metric_of(d->metrics, RM_ENDPOINTS_REFUSED));
        err_set(err, rc, rc == -ENOSPC ? "more than %d endpoints" : "no memory for %d endpoints",
                DISPATCH_ENDPOINTS);
        return;
    }
    struct endpoint_place *s = &d->endpoint[slot];
    place_put(d, s, had, ep, &target);
    /* Keys mean something only with the tokenizer; an engine of another kind tells its load even so. */
    bool follows = target.bundle || (told && !traits->takes_ids);
    if (follows && !s->feed && ep->state != ENDPOINT_STARTING) feed_open(d, slot);
}

void decide_endpoints_end(struct decide *d, bool complete)
{
    uint32_t gone;
    while ((gone = director_endpoint_gone(d->director, complete)) != ROUTE_NONE) {
        struct endpoint_place *s = &d->endpoint[gone];
        log_event(LOG_INFO, "endpoint_gone", "instance=%s", s->target.instance);
        block_feed_free(s->feed);
        s->feed = NULL;
    }
    for (uint32_t i = 0; i < DISPATCH_ENDPOINTS; i++) {
        struct endpoint_place *s = &d->endpoint[i];
        bool listed = director_endpoint_at(d->director, i) != NULL;
        if (listed || s->pins == 0 || dispatch_in_flight(d->dispatch, i) > 0) continue;
        s->target.bundle = NULL; /* none of its requests is left that needs it */
        bundle_unpin(&d->board->pins, &s->pins);
    }
    const struct director_count count = director_endpoints_end(d->director);
    metric_set(metric_of(d->metrics, RM_ENDPOINTS), count.ready);
    metric_set(metric_of(d->metrics, RM_ENDPOINTS_UNNAMED), count.unlisted);
    decide_held_again(d);
}

/* Makes the metrics of services that have come. */
static void meter_services(struct decide *d)
{
    for (uint32_t i = 0; i < d->services->count; i++) {
        const struct router_service *s = &d->services->item[i];
        if (d->metered[i] == s->hash) continue;
        router_metrics_service(d->metrics, str_from(s->name));
        d->metered[i] = s->hash;
    }
}

void decide_publish(struct decide *d)
{
    meter_services(d);
    struct snapshot *f = calloc(1, sizeof *f);
    if (!f) return; /* the old snapshot stays: nothing is lost but freshness */
    f->keys = d->keys.need;
    f->informed = d->informed;
    f->tenants = tenant_keys_ref(d->tenant_keys);
    for (uint32_t i = 0; i < d->services->count; i++) {
        const struct router_service *s = &d->services->item[i];
        if (!s->from_controller && !director_has_endpoint(d->director, s)) continue; /* deleted */
        struct snapshot_model *m = &f->model[f->model_count++];
        memcpy(m->name, s->name, sizeof m->name);
        m->service = s->hash;
        for (uint32_t e = 0; e < DISPATCH_ENDPOINTS; e++) {
            const struct endpoint_place *ep = &d->endpoint[e];
            const struct dispatch_endpoint *known = dispatch_endpoint_at(d->dispatch, e);
            if (!known || known->model != s->hash || !ep->target.bundle) continue;
            m->bundle = ep->target.bundle;
            bundle_pin(&d->board->pins, &f->pins, m->bundle);
            m->context_tokens = ep->target.context_tokens;
            break;
        }
    }
    snapshot_publish(d->board, f);
}

/* ---- tenants ---- */

/* Takes over a list of tenants. One that cannot be used leaves the old one in force. */
static void take_tenants(struct decide *d, const struct router_rules *rules)
{
    struct tenant_keys *keys = NULL;
    struct err err = { 0 };
    int rc = tenant_keys_new(rules, &keys, &err);
    if (rc == 0) rc = tenants_update(d->tenants, rules);
    if (rc < 0) {
        log_event(LOG_WARN, "tenants_refused", "error=%s", err_text(&err, rc));
        tenant_keys_unref(keys);
        return;
    }
    tenant_keys_unref(d->tenant_keys);
    d->tenant_keys = keys;
    d->tenants_version = rules->tenants_version;
}

void decide_tenants_heed(struct decide *d, const struct router_rules *rules)
{
    struct err err = { 0 };
    enum keys_need before = d->keys.need;
    keys_heed(&d->keys, rules);
    bool news = rules->has_tenants && rules->tenants_version != d->tenants_version;
    if (news) take_tenants(d, rules);
    if (d->keys.need != before)
        log_event(LOG_INFO, "api_keys", "required=%d opened=%d", d->keys.need == KEYS_REQUIRED,
                  rules->keys_opened);
    if (!news) return; /* opening or closing the service changes the list's version too */
    int rc = keys_remember(&d->keys, rules, &err);
    if (rc < 0) log_event(LOG_WARN, "keys_not_kept", "error=\"%s\"", err_text(&err, rc));
}

void decide_tenants_recall(struct decide *d)
{
    struct router_rules rules;
    struct err err = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    arena_init(&arena, SYNC_BYTES_MAX);
    int rc = keys_recall(&d->keys, &arena, &rules, &err);
    if (rc == 0) take_tenants(d, &rules);
    if (rc < 0 && rc != -ENOENT)
        log_event(LOG_WARN, "keys_not_recalled", "error=\"%s\"", err_text(&err, rc));
}

/* ---- set up ---- */

#define DECIDE_CONNECTIONS_MAX 10000 /* the controller, and block events of every engine */

static void on_bundle(void *arg)
{
    struct decide *d = arg;
    sync_hurry(d->sync);
}

static int policies_of(const struct router_config *config, struct dispatch_config *ret,
                       struct err *err)
{
    ret->route = route_find(config->route);
    ret->predict = predict_find(config->predict);
    int rc = policy_check("route", config->route, "router.route", err);
    if (rc == 0) rc = policy_check("predict", config->predict, "router.predict", err);
    if (rc == 0) rc = policy_check("migrate", config->migrate, "router.migrate", err);
    if (rc < 0) return rc;
    const char *missing = predict_missing(ret->predict, FEATURES_HAVE);
    if (missing) {
        return err_set(err, -EINVAL, "router.predict: %s is not applicable: a router has no %s",
                       ret->predict->name, missing);
    }
    return 0;
}

static void remember(struct decide *d)
{
    struct err err = { 0 };
    if (!d->may_remember) return;
    int rc = predict_file_write(dispatch_predict(d->dispatch), d->config->predict_file.data,
                                dispatch_predict_state(d->dispatch), &err);
    if (rc < 0) log_event(LOG_WARN, "predictor_not_saved", "why=\"%s\"", err_text(&err, rc));
}

/* Renames a damaged file of this predictor to make room. Only the last damaged one is kept. */
static void set_aside(struct decide *d)
{
    CLEANUP(buf_fini) struct buf aside = { 0 };
    const char *path = d->config->predict_file.data;
    buf_printf(&aside, "%s.damaged", path);
    bool moved = aside.rc == 0 && rename(path, aside.data) == 0;
    metric_inc(metric_of(d->metrics, RM_PREDICTOR_DAMAGED));
    log_event(LOG_ERROR, "predictor_damaged", "file=%s aside=%s", path, moved ? aside.data : "no");
    d->may_remember = moved;
}

/* Reads the predictor's file. A damaged one is set aside; any other that cannot be used is left as it
 * is: it may be another predictor's. */
static void recall(struct decide *d)
{
    struct err err = { 0 };
    if (d->config->predict_file.len == 0) return;
    int rc = predict_file_merge(dispatch_predict(d->dispatch), d->config->predict_file.data,
                                dispatch_predict_state(d->dispatch), &err);
    if (rc == -EBADMSG) {
        set_aside(d);
        return;
    }
    d->may_remember = rc == 0 || rc == -ENOENT;
    if (!d->may_remember) {
        log_event(LOG_WARN, "predictor_not_recalled", "why=\"%s\"", err_text(&err, rc));
    }
    if (rc == -ENOENT) remember(d); /* tells now, not at the end, if the file cannot be written */
}

static int director_open(struct decide *d, const struct dispatch_config *core, struct err *err)
{
    const struct director_config config = {
        .dispatch = *core,
        .migrate = migrate_find(d->config->migrate),
        .service = { .slo_ttft_s = (double)d->config->slo_ttft_us * 1e-6,
                     .slo_tpot_s = (double)d->config->slo_tpot_us * 1e-6,
                     .kv_link_bytes_s = (double)d->config->kv_link },
    };
    int rc = director_new(&config, &d->director, err);
    if (rc < 0) return rc;
    d->dispatch = director_dispatch(d->director);
    d->services = director_services(d->director);
    return 0;
}

/* Makes the metrics of refusals and failures, so that a rate sees the first one, and tells the bounds. */
static void meter_bounds(struct decide *d, const struct dispatch_config *core)
{
    const struct str limits = STR("limits");
    metric_series(d->metrics, RM_REFUSED, &limits);
    for (int i = REFUSAL_NONE + 1; i < REFUSAL_COUNT; i++) {
        struct str reason = str_from(refusal_names[i]);
        metric_series(d->metrics, RM_REFUSED, &reason);
    }
    for (int i = 0; i < RETRY_FAILURE_COUNT; i++) {
        struct str failure = str_from(retry_failure_names[i]);
        metric_series(d->metrics, RM_RETRIES, &failure);
    }
    metric_set(metric_of(d->metrics, RM_HELD_MAX), core->held_max);
    metric_set(metric_of(d->metrics, RM_IN_FLIGHT_MAX), core->requests_max);
}

int decide_new(const struct decide_config *config, struct decide **ret, struct err *err)
{
    const struct router_config *rc = config->router;
    struct dispatch_config core = { .index_bytes = (size_t)rc->index_bytes,
                                    .requests_max = (uint32_t)rc->requests_max,
                                    .held_max = (uint32_t)rc->held_max,
                                    .hold_us_max = rc->hold_us_max,
                                    .quarantine_us = rc->quarantine_us,
                                    .seed = (uint64_t)rc->seed };
    int rc2 = policies_of(rc, &core, err);
    if (rc2 < 0) return rc2;
    struct decide *d = calloc(1, sizeof *d);
    if (!d) return err_set(err, -ENOMEM, "router: no memory");
    d->config = rc;
    d->link = config->link;
    d->board = config->board;
    d->metrics = config->metrics;
    meter_bounds(d, &core);
    d->boot = (uint64_t)clock_wall_us();
    d->informed = !router_has_controller(rc);
    d->held_timer = (struct loop_timer){ .fn = decide_on_held, .arg = d };
    rc2 = keys_init(&d->keys, rc->keys_file, rc->secret_file, rc->require_key,
                    router_has_controller(rc), err);
    if (rc2 == 0) rc2 = quarantine_board_init(&d->quarantine);
    if (rc2 == 0) rc2 = ended_init(&d->ended);
    if (rc2 == 0) rc2 = loop_new(&d->loop, err);
    struct http_client_config calls = {
        .names = config->names,
        .tls = config->call,
        .connections_max = descriptors_share(ROUTER_DECIDE_SHARE, 1, DECIDE_CONNECTIONS_MAX),
    };
    if (rc2 == 0) rc2 = http_client_new(d->loop, &calls, &d->client, err);
    if (rc2 == 0) rc2 = fleet_link_signer(d->link, d->loop, d->client, &d->signer, err);
    if (rc2 == 0 && rc->record.len > 0) {
        rc2 = record_open(rc->record.data, (uint64_t)rc->record_max, core.route, &d->record, err);
        core.watch = d->record ? record_watch(d->record) : NULL;
    }
    if (rc2 == 0) rc2 = director_open(d, &core, err);
    if (rc2 == 0) rc2 = migrate_plan_new(d, &d->migrate, err);
    if (rc2 == 0) rc2 = bundles_new(d->loop, d->signer, d->link, &d->board->pins, &d->bundles, err);
    if (rc2 == 0) rc2 = tenants_new(&d->tenants, err);
    if (rc2 == 0) rc2 = sync_new(d, config->port, &d->sync, err);
    if (rc2 < 0) {
        decide_free(d);
        return rc2;
    }
    recall(d);
    decide_policy_tell(d, "route", core.route->name, true);
    decide_policy_tell(d, "predict", core.predict->name, true);
    decide_policy_tell(d, "migrate", director_migrate_policy(d->director)->name, true);
    mailbox_init(&d->mailbox, d->loop, decide_on_mail, d);
    mailbox_init(&d->entries, d->loop, decide_on_entry, d);
    bundles_on_ready(d->bundles, on_bundle, d);
    decide_publish(d); /* the known keys hold from the first request on */
    *ret = d;
    return 0;
}

void decide_free(struct decide *d)
{
    if (!d) return;
    remember(d);
    for (uint32_t i = 0; i < DISPATCH_ENDPOINTS; i++)
        block_feed_free(d->endpoint[i].feed);
    sync_free(d->sync);
    bundles_free(d->bundles);
    tenants_free(d->tenants);
    tenant_keys_unref(d->tenant_keys);
    keys_fini(&d->keys);
    migrate_plan_free(d->migrate);
    director_free(d->director);
    quarantine_board_fini(&d->quarantine);
    ended_fini(&d->ended);
    uint64_t left_out = record_close(d->record);
    if (left_out > 0) log_event(LOG_WARN, "record_full", "left_out=%lu", (unsigned long)left_out);
    http_client_free(d->client);
    signer_free(d->signer);
    if (d->mailbox.loop) mailbox_fini(&d->mailbox);
    if (d->entries.loop) mailbox_fini(&d->entries);
    loop_free(d->loop);
    free(d);
}
