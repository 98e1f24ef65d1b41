/* dispatch.c - takes a request from arrival to end: predicts, places or holds it, counts it.
 *
 * Held requests wait in order of arrival and are tried again as a whole queue: when one cannot go,
 * later ones of another model still may.
 */
#include "router/core/dispatch.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "policies/route/pd_handoff.h"
#include "router/core/dispatch_state.h"

#include <math.h>
#include <stdlib.h>

#define PEER_PART 0.5     /* share of a router's recent sends that its own instances get */
#define INDEX_SLOTS 256   /* the index has room for at first; it widens when more come */
#define PREFIX_TOKENS 256 /* at least, and at least two keys: a prompt's beginning */
/* The first rest of an endpoint that failed; each next one doubles. */
#define SUSPEND_US_MIN 1000000

CLEANUP_FREEP(dispatch, struct dispatch)

int dispatch_new(const struct dispatch_config *config, struct dispatch **ret, struct err *err)
{
    CLEANUP(dispatch_freep) struct dispatch *c = calloc(1, sizeof *c);
    if (!c) return err_set(err, -ENOMEM, "router: no memory");
    c->config = *config;
    if (c->config.key_tokens == 0) c->config.key_tokens = BLOCK_TOKENS;
    if (c->config.endpoints_max == 0) c->config.endpoints_max = DISPATCH_ENDPOINTS;
    const uint32_t slots = c->config.endpoints_max;
    must(slots <= ROUTE_INSTANCES_MAX);
    list_init(&c->held);
    rng_seed(&c->rng, config->seed);
    retry_budget_init(&c->budget);
    c->route_state = calloc(1, ROUTE_STATE_BYTES_MAX);
    c->predict_state = malloc(config->predict->state_size);
    c->slot = calloc(slots, sizeof *c->slot);
    c->name_hash = calloc(slots, sizeof *c->name_hash);
    /* A match fills one entry for each slot that the index has room for; it widens by doubling. */
    c->hit_blocks = calloc(ROUTE_INSTANCES_MAX, sizeof *c->hit_blocks);
    c->instance = calloc(slots, sizeof *c->instance);
    bool all = c->route_state && c->predict_state && c->slot && c->name_hash && c->hit_blocks;
    if (!all || !c->instance) {
        return err_set(err, -ENOMEM, "router: no memory for %u endpoints", slots);
    }
    config->predict->init(c->predict_state);
    int rc = prefix_index_new(config->index_bytes, min_u32(slots, INDEX_SLOTS), &c->index, err);
    if (rc == 0) rc = ledger_new(config->requests_max, slots, &c->ledger, err);
    if (rc == 0) rc = quarantine_new(config->quarantine_us, &c->quarantine, err);
    if (rc == 0) rc = held_share_new(config->held_max, &c->held_share, err);
    if (rc < 0) return rc;
    *ret = TAKE(c);
    return 0;
}

void dispatch_free(struct dispatch *c)
{
    if (!c) return;
    prefix_index_free(c->index);
    ledger_free(c->ledger);
    quarantine_free(c->quarantine);
    held_share_free(c->held_share);
    free(c->route_state);
    free(c->predict_state);
    free(c->slot);
    free(c->name_hash);
    free(c->hit_blocks);
    free(c->instance);
    free(c);
}

void dispatch_route_set(struct dispatch *c, const struct route_policy *route)
{
    must(route->state_size <= ROUTE_STATE_BYTES_MAX);
    c->config.route = route;
    memset(c->route_state, 0, ROUTE_STATE_BYTES_MAX);
}

const struct route_policy *dispatch_route(const struct dispatch *c)
{
    return c->config.route;
}

const struct predict_policy *dispatch_predict(const struct dispatch *c)
{
    return c->config.predict;
}

void *dispatch_predict_state(struct dispatch *c)
{
    return c->predict_state;
}

struct quarantine *dispatch_quarantine(struct dispatch *c)
{
    return c->quarantine;
}

struct prefix_index *dispatch_index(struct dispatch *c)
{
    return c->index;
}

/* ---- a request from arrival to end ---- */

static uint64_t prefix_hash(const struct dispatch *c, const struct dispatch_request *r)
{
    if (r->key_count == 0) return r->features.prefix;
    uint32_t keys = max_u32(PREFIX_TOKENS / c->config.key_tokens, 2);
    return r->keys[min_u32(keys, r->key_count) - 1].lo;
}

static void tell_policy(struct dispatch *c, const struct dispatch_request *r,
                        enum route_event_kind kind, const struct ledger_entry *e, int64_t now_us)
{
    const struct route_policy *policy = c->config.route;
    if (!policy->observe && !c->config.watch) return;
    struct route_event ev = { .kind = kind,
                              .instance_id = e->slot,
                              .tenant = e->sent.tenant,
                              .prompt_tokens = e->sent.prompt_tokens,
                              .hit_tokens = r->hit_tokens,
                              .generated = e->generated,
                              .ttft_s = -1,
                              .tpot_s = -1,
                              .work_s = e->sent.work_s,
                              .at_us = now_us };
    memcpy(ev.scratch, r->route.scratch, sizeof ev.scratch);
    if (e->first_us > 0) ev.ttft_s = (double)(e->first_us - e->sent_us) * 1e-6;
    if (kind == ROUTE_FINISHED && e->first_us > 0 && e->generated > e->measured_tokens) {
        double tokens = (double)(e->generated - e->measured_tokens);
        ev.tpot_s = (double)(now_us - e->measured_us) * 1e-6 / tokens;
    }
    if (policy->observe) policy->observe(c->route_state, &ev);
    if (c->config.watch) c->config.watch->event(c->config.watch->arg, r->decision, &ev);
}

/* ---- the view of a request ---- */

static bool was_tried(const struct dispatch_request *r, uint32_t slot)
{
    for (uint32_t i = 0; i < r->tried_count; i++)
        if (r->tried[i] == slot) return true;
    return false;
}

static bool has_adapter(const struct dispatch_endpoint *ep, uint64_t adapter)
{
    bool has = adapter == 0;
    for (uint32_t i = 0; i < ep->adapter_count && !has; i++)
        has = ep->adapter[i] == adapter;
    return has;
}

/* Returns the tokens of the prompt that view_fill found in the cache at `slot`, as far as its engine uses them. */
static uint32_t hit_of(const struct dispatch *c, uint32_t slot)
{
    uint32_t tokens = c->hit_blocks[slot] * c->config.key_tokens;
    uint32_t unit = c->slot[slot].ep.hit_tokens;
    return unit > 1 ? tokens - tokens % unit : tokens;
}

static void instance_fill(struct dispatch *c, uint32_t slot, const struct dispatch_request *r,
                          int64_t now_us, struct route_instance *in)
{
    const struct dispatch_slot *s = &c->slot[slot];
    *in = (struct route_instance){
        .id = slot,
        .name_hash = c->name_hash[slot],
        .accepts = s->ep.ready && s->suspended_until_us <= now_us && !was_tried(r, slot) &&
                   (r->acquitted_at == 0 || s->suspects == 0) && has_adapter(&s->ep, r->adapter),
        .role = s->ep.role,
        .token_budget = max_u32(s->ep.token_budget, 1),
        .seqs_max = max_u32(s->ep.seqs_max, 1),
        .kv_tokens_max = s->ep.kv_tokens_max,
        .hit_tokens = hit_of(c, slot),
        .prompt_load = load_meter_rate(&s->prompts, LOAD_PROMPTS_US, now_us),
        .price_per_hour = s->ep.price_per_hour,
    };
    in->has_perf = dispatch_perf_of(s, &in->perf);
    ledger_view(c->ledger, slot, r->features.tenant, now_us, in);
    load_view(&s->load, ledger_sums(c->ledger, slot), now_us, in);
}

/* Adds a guess of what the other routers have sent since the last reports: that each did as this one.
 * It met the same burst, is about to send a request like this one, and fills its own instances
 * first, where about half of what it sends ends up. */
static void expect_peers(struct dispatch *c, uint32_t count, const struct dispatch_request *r)
{
    if (c->peer_count < 2) return;
    if (!c->homes_dealt) dispatch_deal_homes(c);
    double mine = 0, away = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct route_instance *in = &c->instance[i];
        mine += (double)load_unreported(&c->slot[in->id].load, ledger_sums(c->ledger, in->id));
        away += !c->slot[in->id].home;
    }

    mine = PEER_PART * mine + (double)r->prompt_tokens;
    if (away == 0) return;
    double each = mine * (double)(c->peer_count - 1) / away;
    for (uint32_t i = 0; i < count; i++) {
        struct route_instance *in = &c->instance[i];
        if (!c->slot[in->id].home) in->prefill_tokens += (uint64_t)each;
    }
}

/* Fills the slowest link among the instances, and the KV bytes of a token of their model. */
static void link_fill(const struct dispatch *c, struct route_view *view)
{
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct dispatch_endpoint *ep = &c->slot[view->instance[i].id].ep;
        bool slower = view->link_bytes_s <= 0 || ep->link_bytes_s < view->link_bytes_s;
        if (ep->link_bytes_s > 0 && slower) view->link_bytes_s = ep->link_bytes_s;
        view->kv_bytes_per_token = max_u32(view->kv_bytes_per_token, ep->kv_bytes_per_token);
    }
}

/* Lets no instance at risk take the request where another does. Returns how many take it. */
static uint32_t spare_risk(struct dispatch *c, uint32_t count)
{
    uint32_t safe = 0, all = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct route_instance *in = &c->instance[i];
        all += route_takes(in);
        safe += route_takes(in) && !c->slot[in->id].ep.at_risk;
    }
    for (uint32_t i = 0; i < count && safe > 0 && safe < all; i++)
        if (c->slot[c->instance[i].id].ep.at_risk) c->instance[i].accepts = false;
    return safe > 0 ? safe : all;
}

/* Fills a policy's view for one request: the instances of its model, as prefix index, ledger and reports of
 * engines show them together. `handed_over`: of those that may decode what another has prefilled. */
static void view_fill(struct dispatch *c, const struct dispatch_request *r, bool handed_over,
                      int64_t now_us, struct route_view *ret)
{
    prefix_index_match(c->index, r->keys, r->key_count, now_us, c->hit_blocks);
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->slots_end; i++) {
        if (!c->slot[i].used || c->slot[i].ep.model != r->model) continue;
        struct route_instance *in = &c->instance[count++];
        instance_fill(c, i, r, now_us, in);
        if (handed_over) in->accepts = in->accepts && in->role != ROLE_PREFILL;
        if (handed_over || r->generated > 0) in->accepts &= c->slot[i].ep.takes_ids;
    }
    uint32_t accept = spare_risk(c, count);
    expect_peers(c, count, r);
    double rate = dispatch_work_rate(c, r->model, now_us);
    *ret = (struct route_view){ .instance = c->instance,
                                .instance_count = count,
                                .has_load = rate >= 0 && accept > 0,
                                .load = accept > 0 ? rate / (double)accept : 0 };
    if (r->adapter == 0) link_fill(c, ret); /* K and V of adapters are not copied */
}

/* ---- placing a request ---- */

/* Returns the tokens whose KV an engine needs before it computes the next one. */
static uint32_t known_tokens(const struct dispatch_request *r)
{
    return r->prompt_tokens + r->generated;
}

static double still_to_come(const struct dispatch_request *r, double output)
{
    return r->generated > 0 ? fmax(output - (double)r->generated, 1) : output;
}

/* Returns the slice at an endpoint; 0 where no other engine can continue its output, and at a prefill
 * instance, which hands off anyway. */
static uint32_t slice_of(const struct dispatch *c, const struct dispatch_endpoint *ep)
{
    return ep->takes_ids && ep->role == ROLE_BOTH ? c->config.route->slice_tokens : 0;
}

/* Returns the output tokens that one attempt is expected to yield. */
static double of_attempt(const struct dispatch_request *r, double output)
{
    return r->slice_tokens > 0 ? fmin(output, (double)r->slice_tokens) : output;
}

static void send_to(struct dispatch *c, struct dispatch_request *r, uint32_t slot, int64_t now_us)
{
    const struct dispatch_endpoint *ep = &c->slot[slot].ep;
    r->slice_tokens = slice_of(c, ep);
    uint32_t hit = hit_of(c, slot) + r->route.fetch_tokens;
    uint32_t known = known_tokens(r);
    struct ledger_sending s = { .prompt_tokens = known,
                                .hit_tokens = min_u32(hit, known - 1),
                                .output_expected = of_attempt(r, still_to_come(r, r->length.mean)),
                                .tenant = r->features.tenant };
    struct perf_coef perf;
    if (dispatch_perf_of(&c->slot[slot], &perf)) {
        s.work_s = route_work_s(&perf, max_u32(ep->token_budget, 1), s.prompt_tokens, s.hit_tokens,
                                s.output_expected);
        load_meter_add(&c->slot[slot].prompts, LOAD_PROMPTS_US,
                       (double)(s.prompt_tokens - s.hit_tokens) * perf.prefill_token_s, now_us);
    }
    r->entry = ledger_send(c->ledger, slot, &s, now_us);
    must(r->entry); /* is_full was asked */
    r->hit_tokens = s.hit_tokens;
    load_note(&c->slot[slot].load, ledger_sums_at(c->ledger, slot), now_us);
    load_models_add(&c->models, ep->model, s.work_s, now_us);
    tell_policy(c, r, ROUTE_SENT, r->entry, now_us);
    dispatch_expect_blocks(c, r, slot, now_us);
    dispatch_watch_stream(c, r, slot, now_us);
    r->slot = slot;
    r->boot = ep->boot;
    r->suspect = r->acquitted_at > 0;
    c->slot[slot].suspects += r->suspect;
    r->state = DISPATCH_SENT;
    r->retry.attempts++;
}

/* Takes the verdict back where the service refuses late requests and the fleet is overloaded. An
 * output that has begun goes on. */
static void refuse_late(struct dispatch *c, struct dispatch_request *r,
                        const struct route_view *view, const struct route_req *req, int64_t now_us)
{
    if (!r->refuse_late) return;
    struct route_overload *o = &load_models_get(&c->models, r->model)->overload;
    route_overload_observe(o, view, now_us);
    if (r->generated == 0 && route_is_overloaded(o, view, now_us))
        route_refuse_late(view, req, &r->route);
}

/* Tries to place the request now; false when no instance accepts it: r->route says whether to hold
 * or to reject it. */
static bool place(struct dispatch *c, struct dispatch_request *r, int64_t now_us)
{
    struct route_view view;
    r->acquitted_at = quarantine_suspects(c->quarantine, r->fingerprint, now_us);
    view_fill(c, r, false, now_us, &view);
    struct route_req req = { .prompt_tokens = known_tokens(r),
                             .prefix_hash = prefix_hash(c, r),
                             .tenant = r->features.tenant,
                             .output_mean = still_to_come(r, r->length.mean),
                             .output_p50 = still_to_come(r, r->length.p50),
                             .output_p90 = still_to_come(r, r->length.p90),
                             .slo_ttft_s = r->slo_ttft_s,
                             .slo_tpot_s = r->slo_tpot_s };
    c->config.route->decide(c->route_state, &view, &req, now_us, &c->rng, &r->route);
    refuse_late(c, r, &view, &req, now_us);
    r->decision = ++c->decisions;
    r->candidates = view.instance_count;
    const struct dispatch_watch *w = c->config.watch;
    if (w) w->decided(w->arg, r->decision, &view, &req, &r->route, now_us);
    if (r->route.instance_id == ROUTE_NONE) return false;
    send_to(c, r, r->route.instance_id, now_us);
    return true;
}

/* Returns how long a refused client should wait: until another instance is expected, or a second and another for
 * every ten held requests, whichever is longer. */
static double retry_after_s(const struct dispatch *c, const struct dispatch_request *r)
{
    double queue_s = 1 + (double)c->held_count / 10;
    return r->eta_s > queue_s ? r->eta_s : queue_s;
}

static struct dispatch_verdict refuse(struct dispatch *c, struct dispatch_request *r, int status,
                                      enum refusal why)
{
    r->state = DISPATCH_ENDED;
    return (struct dispatch_verdict){ DISPATCH_REFUSE, status, retry_after_s(c, r), why };
}

/* Refuses a request that the policy rejects, or that is late in an overloaded fleet. */
static struct dispatch_verdict reject(struct dispatch_request *r)
{
    r->state = DISPATCH_ENDED;
    return (struct dispatch_verdict){ DISPATCH_REFUSE, 429, r->route.retry_after_s,
                                      r->route.late ? REFUSAL_LATE : REFUSAL_POLICY };
}

static bool is_full(const struct dispatch *c)
{
    return ledger_total(c->ledger) >= c->config.requests_max;
}

/* Refuses a request for killing engines. The verdict says how long its prompt stays in quarantine. */
static struct dispatch_verdict refuse_for_good(struct dispatch *c, struct dispatch_request *r,
                                               int64_t now_us)
{
    r->state = DISPATCH_ENDED;
    int64_t left_us = quarantine_left_us(c->quarantine, r->fingerprint, now_us);
    return (struct dispatch_verdict){ DISPATCH_REFUSE, 422, (double)left_us * 1e-6,
                                      REFUSAL_QUARANTINED };
}

/* Takes the request off its slot's suspects. */
static void suspect_leaves(struct dispatch *c, struct dispatch_request *r)
{
    c->slot[r->slot].suspects -= r->suspect;
    r->suspect = false;
    r->acquitted_at = 0;
}

static void unhold(struct dispatch *c, struct dispatch_request *r)
{
    list_remove(&r->link);
    c->held_count--;
    c->held_tokens -= r->prompt_tokens;
}

/* Makes place among the held requests; false when all places are taken and no tenant has so many that
 * it gives one up. */
static bool make_place(struct dispatch *c, const struct dispatch_request *r)
{
    if (c->held_count < c->config.held_max) return true;
    struct dispatch_request *out = held_share_displace(c->held_share, &c->held, r);
    if (!out) return false;
    must(!c->displaced); /* the one before was told at once */
    unhold(c, out);
    c->displaced = out;
    return true;
}

struct dispatch_request *dispatch_displaced(struct dispatch *c, struct dispatch_verdict *ret)
{
    struct dispatch_request *r = c->displaced;
    c->displaced = NULL;
    if (r) *ret = refuse(c, r, 503, REFUSAL_DISPLACED);
    return r;
}

static struct dispatch_verdict place_or_hold(struct dispatch *c, struct dispatch_request *r,
                                             int64_t now_us)
{
    if (is_full(c)) return refuse(c, r, 429, REFUSAL_FULL);
    if (place(c, r, now_us)) return (struct dispatch_verdict){ .answer = DISPATCH_SEND };
    if (r->route.reject) return reject(r);
    if (!make_place(c, r)) return refuse(c, r, 503, REFUSAL_HELD_FULL);
    r->state = DISPATCH_HELD;
    r->hold_until_us = r->route.hold_until_us;
    if (r->held_us == 0) r->held_us = now_us;
    r->tried_count = 0; /* after a wait every endpoint is worth a try again */
    list_push_back(&c->held, &r->link);
    c->held_count++;
    c->held_tokens += r->prompt_tokens;
    return (struct dispatch_verdict){ .answer = DISPATCH_WAIT };
}

struct dispatch_verdict dispatch_arrive(struct dispatch *c, struct dispatch_request *r,
                                        int64_t now_us)
{
    must(r->state == DISPATCH_NEW && r->prompt_tokens > 0);
    r->arrived_us = now_us;
    c->config.predict->decide(c->predict_state, &r->features, &r->length);
    retry_budget_earn(&c->budget);
    c->total.arrivals++;
    if (quarantine_refuses(c->quarantine, r->fingerprint, now_us) > 0) {
        return refuse_for_good(c, r, now_us);
    }
    return place_or_hold(c, r, now_us);
}

/* Takes new tokens as a sign that the engine lives, and acquits a suspect that came far enough.
 * Returns true if it was a suspect up to now. */
static bool acquit(struct dispatch *c, struct dispatch_request *r, bool first)
{
    if (first) {
        quarantine_alive(c->quarantine, c->name_hash[r->slot], r->boot, r->entry->sent_us);
    }
    if (!r->suspect || r->generated + r->entry->generated < r->acquitted_at) return false;
    quarantine_passed(c->quarantine, r->fingerprint);
    suspect_leaves(c, r);
    r->retry.crashes = 0;
    return true;
}

bool dispatch_tokens(struct dispatch *c, struct dispatch_request *r, uint32_t count, int64_t now_us)
{
    must(r->state == DISPATCH_SENT);
    c->slot[r->slot].suspend_us = 0;
    bool first = r->entry->first_us == 0;
    uint32_t looks = r->entry->generated / DISPATCH_REFINE_TOKENS;
    ledger_tokens(c->ledger, r->entry, count, now_us);
    uint32_t generated = r->entry->generated;
    if (generated / DISPATCH_REFINE_TOKENS != looks) {
        /* The length so far says more about the output than the prompt did. */
        double left = predict_remaining(c->config.predict, c->predict_state, &r->features,
                                        r->generated + generated);
        ledger_expect(c->ledger, r->entry, of_attempt(r, (double)generated + left));
    }
    load_note(&c->slot[r->slot].load, ledger_sums_at(c->ledger, r->slot), now_us);
    if (r->stream.from_us != 0) dispatch_learn_stream(c, r, now_us);
    if (first) tell_policy(c, r, ROUTE_FIRST_TOKEN, r->entry, now_us);
    return acquit(c, r, first);
}

uint32_t dispatch_tokens_known(const struct dispatch_request *r)
{
    must(r->state == DISPATCH_SENT);
    return known_tokens(r) + r->entry->generated;
}

/* Counts the request at another slot, with its tokens so far and nothing of the prompt left to
 * compute. The policy's scratch describes the instance it chose, not this one, and is cleared. */
static void count_at(struct dispatch *c, struct dispatch_request *r, uint32_t slot, int64_t now_us)
{
    const struct ledger_entry was = *r->entry;
    ledger_end(c->ledger, r->entry);
    load_note(&c->slot[r->slot].load, ledger_sums_at(c->ledger, r->slot), now_us);
    struct ledger_sending s = was.sent;
    s.hit_tokens = s.prompt_tokens - 1;
    r->entry = ledger_send(c->ledger, slot, &s, now_us);
    must(r->entry != NULL); /* one was given back just now */
    ledger_tokens(c->ledger, r->entry, was.generated, now_us);
    ledger_expect(c->ledger, r->entry, was.output_expected);
    r->entry->sent_us = was.sent_us;
    if (was.first_us > 0) r->entry->first_us = was.first_us;
    memset(r->route.scratch, 0, sizeof r->route.scratch);
    load_note(&c->slot[slot].load, ledger_sums_at(c->ledger, slot), now_us);
    c->slot[r->slot].suspects -= r->suspect;
    c->slot[slot].suspects += r->suspect;
    r->slot = slot;
    r->slice_tokens = 0; /* the call that goes on there is to its end */
    r->boot = c->slot[slot].ep.boot;
}

uint32_t dispatch_pd_handoff(struct dispatch *c, struct dispatch_request *r, int64_t now_us)
{
    must(r->state == DISPATCH_SENT);
    struct route_view view;
    view_fill(c, r, true, now_us, &view);
    const struct route_req req = { .prompt_tokens = known_tokens(r) };
    uint32_t at = handoff_pick(&view, &req, &c->rng);
    if (at == ROUTE_NONE) return ROUTE_NONE;
    /* The decode instance that a routing policy has chosen as well is taken if it accepts. */
    for (uint32_t i = 0; i < view.instance_count; i++) {
        if (view.instance[i].id == r->route.decode_id && view.instance[i].accepts) at = i;
    }
    count_at(c, r, view.instance[at].id, now_us);
    return r->slot;
}

void dispatch_migrate(struct dispatch *c, struct dispatch_request *r, uint32_t to, int64_t now_us)
{
    must(r->state == DISPATCH_SENT && to < c->config.endpoints_max);
    count_at(c, r, to, now_us);
}

static void suspend(struct dispatch_slot *s, int64_t now_us)
{
    s->suspend_us = min_i64(max_i64(2 * s->suspend_us, SUSPEND_US_MIN), DISPATCH_SUSPEND_US_MAX);
    s->suspended_until_us = now_us + s->suspend_us;
}

static void attempt_over(struct dispatch *c, struct dispatch_request *r, enum route_event_kind kind,
                         int64_t now_us)
{
    tell_policy(c, r, kind, r->entry, now_us);
    ledger_end(c->ledger, r->entry);
    load_note(&c->slot[r->slot].load, ledger_sums_at(c->ledger, r->slot), now_us);
    r->entry = NULL;
    suspect_leaves(c, r);
}

struct dispatch_verdict dispatch_fail(struct dispatch *c, struct dispatch_request *r,
                                      enum retry_failure failure, int64_t now_us)
{
    must(r->state == DISPATCH_SENT);
    attempt_over(c, r, ROUTE_FAILED, now_us);
    if (failure == RETRY_DIED) {
        uint64_t name = c->name_hash[r->slot];
        quarantine_blame(c->quarantine, r->fingerprint, name, r->boot, r->generated, now_us);
        quarantine_boot(c->quarantine, name, c->slot[r->slot].ep.boot);
    }
    must(r->tried_count < RETRY_ATTEMPTS_MAX); /* retry_decide ends them there */
    r->tried[r->tried_count++] = r->slot;
    bool gone = failure == RETRY_UNREACHABLE || failure == RETRY_DIED || failure == RETRY_TAKEN ||
                failure == RETRY_SILENT;
    if (gone) suspend(&c->slot[r->slot], now_us);
    struct retry_verdict v = retry_decide(&c->budget, &r->retry, failure);
    if (!v.again && v.status == 422) return refuse_for_good(c, r, now_us);
    if (!v.again) return refuse(c, r, v.status, REFUSAL_FAILED);
    /* A held request keeps memory and descriptors; only an output that has begun is worth that. */
    if (failure == RETRY_LOCAL && r->generated == 0 && !is_full(c)) {
        if (!place(c, r, now_us)) return refuse(c, r, 503, REFUSAL_FAILED);
        return (struct dispatch_verdict){ .answer = DISPATCH_SEND };
    }
    return place_or_hold(c, r, now_us);
}

struct dispatch_verdict dispatch_slice_end(struct dispatch *c, struct dispatch_request *r,
                                           int64_t now_us)
{
    must(r->state == DISPATCH_SENT && r->slice_tokens > 0 && r->generated > 0);
    attempt_over(c, r, ROUTE_FAILED, now_us);
    r->retry.attempts--; /* it did not fail */
    r->held_us = 0;
    /* The length so far says more about the output than the prompt did. */
    r->length.mean = r->generated + predict_remaining(c->config.predict, c->predict_state,
                                                      &r->features, r->generated);
    return place_or_hold(c, r, now_us);
}

void dispatch_end(struct dispatch *c, struct dispatch_request *r, uint32_t generated, bool censored,
                  int64_t now_us)
{
    must(r->state == DISPATCH_SENT || r->state == DISPATCH_HELD);
    if (r->state == DISPATCH_HELD) {
        unhold(c, r);
    } else {
        if (generated > 0) dispatch_learn_belief(c, r, now_us);
        attempt_over(c, r, censored || generated == 0 ? ROUTE_FAILED : ROUTE_FINISHED, now_us);
        if (generated > 0) {
            c->config.predict->observe(c->predict_state, &r->features, generated, censored);
        }
    }
    r->state = DISPATCH_ENDED;
}

struct dispatch_request *dispatch_held_next(struct dispatch *c, int64_t now_us,
                                            struct dispatch_verdict *ret)
{
    LIST_EACH_SAFE (&c->held, node) {
        struct dispatch_request *r = CONTAINER_OF(node, struct dispatch_request, link);
        const bool asked = !is_full(c); /* full: waits for the end of one in flight */
        if (asked && place(c, r, now_us)) {
            unhold(c, r);
            *ret = (struct dispatch_verdict){ .answer = DISPATCH_SEND };
            return r;
        }
        if (asked && r->route.reject) {
            unhold(c, r);
            *ret = reject(r);
            return r;
        }
        r->hold_until_us = r->route.hold_until_us;
        if (now_us - r->held_us >= c->config.hold_us_max) {
            unhold(c, r);
            *ret = refuse(c, r, 503, REFUSAL_HELD_LONG);
            return r;
        }
    }
    return NULL;
}

int64_t dispatch_held_deadline_us(const struct dispatch *c, int64_t now_us)
{
    int64_t deadline = held_deadline_us(&c->held, c->config.hold_us_max, now_us);
    if (deadline == INT64_MAX) return deadline;
    /* An endpoint whose rest ends earlier can take them earlier. */
    for (uint32_t i = 0; i < c->slots_end; i++) {
        const struct dispatch_slot *s = &c->slot[i];
        if (s->used && s->suspended_until_us > now_us) {
            deadline = min_i64(deadline, s->suspended_until_us);
        }
    }
    return deadline;
}

void dispatch_held_each(struct dispatch *c, void (*fn)(void *arg, struct dispatch_request *r),
                        void *arg)
{
    LIST_EACH_SAFE (&c->held, node)
        fn(arg, CONTAINER_OF(node, struct dispatch_request, link));
}

void dispatch_demand(const struct dispatch *c, int64_t now_us, struct dispatch_demand *ret)
{
    *ret = c->total;
    ret->held = c->held_count;
    ret->held_tokens = c->held_tokens;
    ret->held_oldest_us = held_oldest_us(&c->held, now_us);
    ret->in_flight = ledger_total(c->ledger);
}

void dispatch_report(struct dispatch *c, uint64_t model, int64_t now_us, struct service_demand *ret)
{
    held_report(&c->held, model, now_us, ret);
    for (uint32_t i = 0; i < c->slots_end; i++) {
        if (!c->slot[i].used || c->slot[i].ep.model != model) continue;
        ret->in_flight += ledger_in_flight(c->ledger, i);
        ret->queued_s += dispatch_queued_s(c, i, now_us);
    }
}
