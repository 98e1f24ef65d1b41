/* decide.c - take mail from the byte loops, ask the core, tell them what to do.
 *
 * After everything that can free an instance for a held request (a new endpoint, an ended
 * request, a rest that is over) the held ones are tried again.
 */
#include "router/decide.h"

#include "base/io/clock.h"
#include "base/io/log.h"
#include "router/byte_loop.h"
#include "router/entry.h"
#include "router/sync.h"

#include <math.h>

struct lane *decide_lane(struct decide *d)
{
    return &d->lane;
}

struct lane *decide_entries(struct decide *d)
{
    return &d->entries;
}

void decide_on_entry(void *arg, struct lane_item *item)
{
    struct decide *d = arg;
    if (!entry_decide(&d->entries, item, d->tenants, loop_now_us(d->loop)))
        metric_inc(metric_of(d->metrics, RM_RATE_LIMITED));
}

static void held_timer_set(struct decide *d, int64_t now_us);

static struct core_request *core_of(struct request *r)
{
    return &r->core;
}

static void expectations_fill(const struct request *r, struct target *to)
{
    to->length_p50 = r->core.length.p50;
    to->length_p90 = r->core.length.p90;
    to->length_mean = r->core.length.mean;
    to->hit_tokens = r->core.hit_tokens;
}

/* The mail for the byte loop: the next leg is at the request's slot. */
static void tell_send(struct decide *d, struct request *r, const struct target *to)
{
    r->at_serial = d->endpoint[r->core.slot].serial;
    struct lane *lane = &r->home->lane;
    lane_lock(lane);
    r->tell |= TELL_SEND;
    r->tell &= ~(uint32_t)TELL_MOVE; /* of a leg that is over */
    r->tell_target = *to;
    bundle_pin(&d->board->pins, &r->told_pins, to->bundle);
    expectations_fill(r, &r->tell_target);
    lane_send(lane, &r->tell_item);
    lane_unlock(lane);
}

void decide_tell_move(struct decide *d, struct request *r, uint32_t slot)
{
    struct lane *lane = &r->home->lane;
    lane_lock(lane);
    r->tell |= TELL_MOVE;
    r->tell_move = d->endpoint[slot].target;
    bundle_pin(&d->board->pins, &r->told_pins, r->tell_move.bundle);
    expectations_fill(r, &r->tell_move);
    lane_send(lane, &r->tell_item);
    lane_unlock(lane);
}

static void refuse(struct request *r, int status, double retry_after_s)
{
    struct lane *lane = &r->home->lane;
    lane_lock(lane);
    r->tell |= TELL_REFUSE;
    r->tell_status = status;
    r->tell_rate_limited = !r->counted;
    r->tell_retry_after_s = retry_after_s;
    lane_send(lane, &r->tell_item);
    lane_unlock(lane);
}

/* Where it was routed, with whom that may ask for K and V. */
static void answer(struct decide *d, struct request *r, const struct core_verdict *v)
{
    if (v->answer == CORE_REFUSE) refuse(r, v->status, v->retry_after_s);
    if (v->answer != CORE_SEND) return;
    struct target to = d->endpoint[r->core.slot].target;
    const struct core_endpoint *ep = core_endpoint_at(d->core, r->core.slot);
    r->handing = to.hands_over = ep->takes_ids && ep->role == ROLE_PREFILL;
    uint32_t peer = r->core.route.fetch_from_id;
    if (peer != ROUTE_NONE && decide_kv_from(d, peer, r->core.slot, &to)) {
        metric_inc(metric_of(d->metrics, RM_FETCHES));
    }
    tell_send(d, r, &to);
}

/* True when some instance serves or starts for the service, or would be started. */
static bool can_come(const struct decide *d, const struct service *s)
{
    return s->may_start || decide_has_endpoint(d, s);
}

/* The lengths as they are believed now stay with the request: what goes out of the queue is what
 * went in. */
static void queue_in(struct service *s, struct request *r, int64_t now_us)
{
    r->told_prompt = (double)(r->core.prompt_tokens - r->core.hit_tokens);
    r->told_output = r->core.length.mean;
    r->queued = true;
    scale_recent_arrived(&s->recent, r->told_prompt, r->told_output, now_us);
}

static void queue_out(struct decide *d, struct request *r)
{
    struct service *s = r->queued ? services_by_hash(&d->services, r->core.model) : NULL;
    if (s) scale_recent_left(&s->recent, r->told_prompt, r->told_output);
    r->queued = false;
}

static void rate_limit(struct decide *d, struct request *r, double wait_s)
{
    r->counted = false;
    metric_inc(metric_of(d->metrics, RM_RATE_LIMITED));
    refuse(r, 429, wait_s);
}

/* A large body, before anything is made of it. */
static void on_enter(struct decide *d, struct request *r, int64_t now_us)
{
    double wait_s;
    r->tenant = tenants_find(d->tenants, r->tenant_name);
    if (!tenant_enter(r->tenant, now_us, &wait_s)) {
        rate_limit(d, r, wait_s);
        return;
    }
    r->counted = true;
    struct lane *lane = &r->home->lane;
    lane_lock(lane);
    r->tell |= TELL_TEXT;
    lane_send(lane, &r->tell_item);
    lane_unlock(lane);
}

/* True when the tenant may; one that entered has paid for the request and now pays for its tokens. */
static bool admit(struct decide *d, struct request *r, int64_t now_us)
{
    double wait_s;
    if (!r->counted) r->tenant = tenants_find(d->tenants, r->tenant_name);
    bool may = r->counted ? tenant_charge(r->tenant, r->core.prompt_tokens, now_us, &wait_s)
                          : tenant_admit(r->tenant, r->core.prompt_tokens, now_us, &wait_s);
    if (!may) rate_limit(d, r, wait_s);
    return may;
}

static void on_arrive(struct decide *d, struct request *r, int64_t now_us)
{
    struct service *s = services_by_hash(&d->services, r->core.model);
    r->arrived = true;
    if (!admit(d, r, now_us)) return;
    r->counted = true;
    if (!s || s->paused || !can_come(d, s)) {
        if (s) s->total.rejected_total++;
        refuse(r, 503, 1);
        return;
    }
    r->core.slo_ttft_s = s->slo_ttft_s;
    r->core.slo_tpot_s = s->slo_tpot_s;
    int64_t before_us = clock_mono_us();
    struct core_verdict v = core_arrive(d->core, core_of(r), now_us);
    metric_observe(metric_of(d->metrics, RM_DECISION_SECONDS),
                   (double)(clock_mono_us() - before_us) * 1e-6);
    s->total.arrivals_total++;
    window_add(&s->arrivals, r->core.prompt_tokens, now_us);
    window_add(&s->predicted, r->core.length.mean, now_us);
    queue_in(s, r, now_us);
    if (v.answer == CORE_REFUSE) {
        s->total.rejected_total++;
        queue_out(d, r);
    }
    if (v.answer == CORE_WAIT) sync_hurry(d->sync);
    answer(d, r, &v);
}

static void on_failed(struct decide *d, struct request *r, enum retry_failure failure,
                      bool answering, int64_t now_us)
{
    static const char *const name[RETRY_FAILURE_COUNT] = {
        [RETRY_UNREACHABLE] = "unreachable", [RETRY_DIED] = "died",   [RETRY_SILENT] = "silent",
        [RETRY_OVERLOADED] = "overloaded",   [RETRY_ERROR] = "error", [RETRY_LOCAL] = "local",
    };
    struct str label = str_from(name[failure]);
    metric_inc(metric_series(d->metrics, RM_RETRIES, &label));
    r->core.retry.answering = answering;
    struct core_verdict v = core_fail(d->core, core_of(r), failure, now_us);
    log_event(LOG_INFO, "attempt_failed", "id=%s instance=%s failure=%s again=%d", r->id,
              d->endpoint[r->core.slot].target.instance, name[failure], v.answer != CORE_REFUSE);
    answer(d, r, &v);
}

/* Its prompt's leg is over. The same instance goes on where no other takes it. */
static void on_prefilled(struct decide *d, struct request *r, int64_t now_us)
{
    uint32_t from = r->core.slot, to = core_hand_over(d->core, core_of(r), now_us);
    struct target target = d->endpoint[r->core.slot].target;
    r->handing = false;
    if (to != ROUTE_NONE && to != from) {
        decide_kv_from(d, from, to, &target);
        metric_inc(metric_of(d->metrics, RM_HANDOVERS));
    }
    tell_send(d, r, &target);
}

static void count_outcome(struct decide *d, struct request *r, int64_t now_us)
{
    struct service *s = services_by_hash(&d->services, r->core.model);
    const struct outcome *o = &r->outcome;
    /* What a tenant may not do, or asks for wrongly, says nothing of the service. */
    if (!s || !r->counted || !r->arrived) return;
    if (r->is_question) return; /* nobody waits for it by itself */
    if (!o->ok) {
        s->total.failed_total++;
        s->total.slo_missed_total++;
        return;
    }
    s->total.finished_total++;
    s->total.prompt_tokens_total += o->usage.prompt_tokens;
    s->total.cached_tokens_total += o->usage.cached_tokens;
    s->total.generated_tokens_total += o->usage.generated_tokens;
    double ttft_s = (double)o->ttft_us * 1e-6, tpot_s = (double)o->tpot_us * 1e-6;
    bool met = ttft_s <= s->slo_ttft_s && tpot_s <= s->slo_tpot_s;
    *(met ? &s->total.slo_met_total : &s->total.slo_missed_total) += 1;
    window_add(&s->ttft_s, ttft_s, now_us);
    if (o->tpot_us > 0) window_add(&s->tpot_s, tpot_s, now_us);
    window_add(&s->e2e_s, (double)o->e2e_us * 1e-6, now_us);
}

/* How far the estimate of the first attempt was from what the client saw. Requests that were held
 * or sent again measured something else. */
static void judge_estimate(struct decide *d, const struct request *r)
{
    const struct core_request *c = &r->core;
    if (c->route.estimate_s < 0 || c->held_us > 0 || c->retry.attempts > 1) return;
    double error_s = fabs(c->route.estimate_s - (double)r->outcome.ttft_us * 1e-6);
    metric_add(metric_of(d->metrics, RM_TTFT_ERROR), error_s);
}

static void on_over(struct decide *d, struct request *r, int64_t now_us)
{
    struct core_request *c = core_of(r);
    queue_out(d, r);
    migration_gone(d->migration, r);
    bool judged = c->state == CORE_SENT && r->outcome.ok && !r->is_question;
    if (judged) judge_estimate(d, r);
    if (judged && !r->outcome.cut) {
        bool within = r->outcome.usage.generated_tokens <= c->length.p90;
        struct str label = within ? STR("true") : STR("false");
        metric_inc(metric_series(d->metrics, RM_LENGTH_COVERED, &label));
    }
    if (c->state == CORE_SENT || c->state == CORE_HELD) {
        /* How long the answer to a question was says nothing of answers. */
        uint32_t generated = r->is_question ? 0 : r->outcome.usage.generated_tokens;
        core_end(d->core, c, generated, r->outcome.cut || !r->outcome.ok, now_us);
    }
    if (r->counted) tenant_end(r->tenant, &r->outcome.usage);
    count_outcome(d, r, now_us);
    struct lane *lane = &r->home->lane;
    lane_lock(lane);
    r->tell |= TELL_DONE;
    lane_send(lane, &r->tell_item);
    lane_unlock(lane);
}

void decide_on_mail(void *arg, struct lane_item *item)
{
    struct decide *d = arg;
    struct request *r = CONTAINER_OF(item, struct request, ask_item);
    lane_open(&d->lane, item);
    uint32_t ask = r->ask, tokens = r->ask_tokens;
    enum retry_failure failure = r->ask_failure;
    bool answering = r->ask_answering;
    uint32_t generated = r->ask_generated;
    uint64_t fingerprint = r->ask_fingerprint;
    r->ask = r->ask_tokens = 0;
    lane_unlock(&d->lane);

    int64_t now_us = loop_now_us(d->loop);
    if (ask & ASK_ENTER) on_enter(d, r, now_us);
    if (ask & ASK_ARRIVE) on_arrive(d, r, now_us);
    bool acquitted = false;
    if (ask & ASK_TOKENS && r->core.state == CORE_SENT) {
        if (tokens > 0) queue_out(d, r);
        acquitted = core_tokens(d->core, core_of(r), tokens, now_us);
        migration_tokens(d->migration, r);
    }
    if (ask & ASK_MOVED) migration_moved(d->migration, r);
    if (ask & ASK_STAYS) migration_stays(d->migration, r);
    if (ask & ASK_PREFILLED && r->core.state == CORE_SENT) on_prefilled(d, r, now_us);
    if (ask & ASK_FAILED && r->core.state == CORE_SENT) {
        r->core.generated = generated;
        r->core.fingerprint = fingerprint;
        migration_gone(d->migration, r);
        on_failed(d, r, failure, answering, now_us);
    }
    if (ask & ASK_OVER) on_over(d, r, now_us);
    bool news = quarantine_changes(core_quarantine(d->core)) != d->quarantine.changes;
    if (news) decide_quarantine_tell(d);
    if (acquitted || ask & (ASK_OVER | ASK_FAILED)) {
        decide_held_again(d);
    } else if (ask & ASK_ARRIVE) {
        held_timer_set(d, now_us);
    }
}

static void held_timer_set(struct decide *d, int64_t now_us)
{
    int64_t at_us = core_held_deadline_us(d->core, now_us);
    if (at_us == INT64_MAX) {
        loop_timer_clear(d->loop, &d->held_timer);
    } else {
        loop_timer_set(d->loop, &d->held_timer, at_us);
    }
}

void decide_held_again(struct decide *d)
{
    int64_t now_us = loop_now_us(d->loop);
    struct core_verdict v;
    struct core_request *c;
    while ((c = core_held_next(d->core, now_us, &v))) {
        struct request *r = CONTAINER_OF(c, struct request, core);
        metric_observe(metric_of(d->metrics, RM_HOLD_SECONDS),
                       (double)(now_us - c->held_us) * 1e-6);
        answer(d, r, &v);
    }
    held_timer_set(d, now_us);
}

void decide_on_held(void *arg)
{
    decide_held_again(arg);
}

void decide_row_tell(struct decide *d, const char *kind, const char *row, bool decides)
{
    const struct str labels[] = { str_from(kind), str_from(row) };
    metric_set(metric_series(d->metrics, RM_POLICY, labels), decides);
}

void decide_route_set(struct decide *d, struct str name)
{
    const struct route_policy *row = route_find(name);
    if (!row) {
        log_event(LOG_WARN, "route_unknown", "name=%.*s", STR_ARG(name));
    } else if (row != core_route(d->core)) {
        decide_row_tell(d, "route", core_route(d->core)->name, false);
        decide_row_tell(d, "route", row->name, true);
        core_route_set(d->core, row);
        record_row(d->record, row);
        log_event(LOG_INFO, "route_set", "name=%s", row->name);
    }
}

static void route_from_ask(void *arg)
{
    struct decide *d = arg;
    const struct route_policy *row = atomic_load(&d->route_asked);
    decide_route_set(d, str_from(row->name));
}

void decide_route_ask(struct decide *d, const struct route_policy *row)
{
    atomic_store(&d->route_asked, row);
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
