/* core.c - a request from arrival to end: predicted, placed or held, handed over, counted.
 *
 * Held requests wait in order of arrival and are tried again as a whole queue: when one cannot go,
 * later ones of another model still may.
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "policies/handoff.h"
#include "router/core/core_part.h"

#include <math.h>
#include <stdlib.h>

CLEANUP_FREEP(core, struct core)

int core_new(const struct core_config *config, struct core **ret, struct err *err)
{
    CLEANUP(core_freep) struct core *c = calloc(1, sizeof *c);
    if (!c) return err_set(err, -ENOMEM, "router core: no memory");
    c->config = *config;
    if (c->config.key_tokens == 0) c->config.key_tokens = BLOCK_TOKENS;
    if (c->config.endpoints_max == 0) c->config.endpoints_max = CORE_ENDPOINTS;
    const uint32_t slots = c->config.endpoints_max;
    must(slots <= ROUTE_INSTANCES_MAX);
    c->starting_eta_s = -1;
    list_init(&c->held);
    rng_seed(&c->rng, config->seed);
    retry_budget_init(&c->budget);
    c->route_state = calloc(1, ROUTE_STATE_BYTES_MAX);
    c->predict_state = malloc(config->predict->state_size);
    c->slot = calloc(slots, sizeof *c->slot);
    c->name_hash = calloc(slots, sizeof *c->name_hash);
    /* A match fills one for each slot that the index has room for, which widens by doubling. */
    c->hit_blocks = calloc(ROUTE_INSTANCES_MAX, sizeof *c->hit_blocks);
    c->instance = calloc(slots, sizeof *c->instance);
    bool all = c->route_state && c->predict_state && c->slot && c->name_hash && c->hit_blocks;
    if (!all || !c->instance) {
        return err_set(err, -ENOMEM, "router core: no memory for %u endpoints", slots);
    }
    config->predict->init(c->predict_state);
    int rc =
        prefix_index_new(config->index_bytes, min_u32(slots, CORE_INDEX_SLOTS), &c->index, err);
    if (rc == 0) rc = ledger_new(config->requests_max, slots, &c->ledger, err);
    if (rc == 0) rc = quarantine_new(config->quarantine_us, &c->quarantine, err);
    if (rc < 0) return rc;
    *ret = TAKE(c);
    return 0;
}

void core_free(struct core *c)
{
    if (!c) return;
    prefix_index_free(c->index);
    ledger_free(c->ledger);
    quarantine_free(c->quarantine);
    free(c->route_state);
    free(c->predict_state);
    free(c->slot);
    free(c->name_hash);
    free(c->hit_blocks);
    free(c->instance);
    free(c);
}

void core_route_set(struct core *c, const struct route_policy *route)
{
    must(route->state_size <= ROUTE_STATE_BYTES_MAX);
    c->config.route = route;
    memset(c->route_state, 0, ROUTE_STATE_BYTES_MAX);
}

const struct route_policy *core_route(const struct core *c)
{
    return c->config.route;
}

const struct predict_policy *core_predict(const struct core *c)
{
    return c->config.predict;
}

void *core_predict_state(struct core *c)
{
    return c->predict_state;
}

static void tell_policy(struct core *c, const struct core_request *r, enum route_event_kind kind,
                        const struct ledger_entry *e, int64_t now_us)
{
    const struct route_policy *row = c->config.route;
    if (!row->observe && !c->config.watch) return;
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
    if (row->observe) row->observe(c->route_state, &ev);
    if (c->config.watch) c->config.watch->event(c->config.watch->arg, r->decision, &ev);
}

/* What an engine computes before the next token. */
static uint32_t known_tokens(const struct core_request *r)
{
    return r->prompt_tokens + r->generated;
}

static double still_to_come(const struct core_request *r, double output)
{
    return r->generated > 0 ? fmax(output - (double)r->generated, 1) : output;
}

static void send_to(struct core *c, struct core_request *r, uint32_t slot, int64_t now_us)
{
    const struct core_endpoint *ep = &c->slot[slot].ep;
    uint32_t hit = c->hit_blocks[slot] * c->config.key_tokens + r->route.fetch_tokens;
    uint32_t known = known_tokens(r);
    struct ledger_sending s = { .prompt_tokens = known,
                                .hit_tokens = min_u32(hit, known - 1),
                                .output_expected = still_to_come(r, r->length.mean),
                                .tenant = r->features.tenant };
    if (ep->has_perf) {
        s.work_s = route_work_s(&ep->perf, max_u32(ep->token_budget, 1), s.prompt_tokens,
                                s.hit_tokens, s.output_expected);
        load_meter_add(&c->slot[slot].prompts, LOAD_PROMPTS_US,
                       (double)(s.prompt_tokens - s.hit_tokens) * ep->perf.b, now_us);
    }
    r->entry = ledger_send(c->ledger, slot, &s, now_us);
    must(r->entry); /* is_full was asked */
    r->hit_tokens = s.hit_tokens;
    load_note(&c->slot[slot].load, ledger_sums(c->ledger, slot), now_us);
    core_count_work(c, ep->model, s.work_s, now_us);
    tell_policy(c, r, ROUTE_SENT, r->entry, now_us);
    prefix_index_expect(c->index, slot, r->keys, r->key_count, now_us, now_us + CORE_EXPECT_US);
    r->slot = slot;
    r->boot = ep->boot;
    r->suspect = r->acquitted_at > 0;
    c->slot[slot].suspects += r->suspect;
    r->state = CORE_SENT;
    r->retry.attempts++;
}

/* Tries to place the request now; false when no instance accepts it: r->route says whether to hold
 * or to reject it. */
static bool place(struct core *c, struct core_request *r, int64_t now_us)
{
    struct route_view view;
    r->acquitted_at = quarantine_suspects(c->quarantine, r->fingerprint, now_us);
    core_view(c, r, false, now_us, &view);
    struct route_req req = { .prompt_tokens = known_tokens(r),
                             .prefix_hash = core_prefix_hash(c, r),
                             .tenant = r->features.tenant,
                             .output_mean = still_to_come(r, r->length.mean),
                             .output_p50 = still_to_come(r, r->length.p50),
                             .output_p90 = still_to_come(r, r->length.p90),
                             .slo_ttft_s = r->slo_ttft_s,
                             .slo_tpot_s = r->slo_tpot_s };
    c->config.route->decide(c->route_state, &view, &req, now_us, &c->rng, &r->route);
    r->decision = ++c->decisions;
    const struct core_watch *w = c->config.watch;
    if (w) w->decided(w->arg, r->decision, &view, &req, &r->route, now_us);
    if (r->route.instance_id == ROUTE_NONE) return false;
    send_to(c, r, r->route.instance_id, now_us);
    return true;
}

/* What a refused client is told to wait: the start that is under way, or a second and another for
 * every ten that are held, whichever is longer. */
static double retry_after_s(const struct core *c)
{
    double queue_s = 1 + (double)c->held_count / 10;
    return c->starting_eta_s > queue_s ? c->starting_eta_s : queue_s;
}

static struct core_verdict refuse(struct core *c, struct core_request *r, int status)
{
    r->state = CORE_ENDED;
    return (struct core_verdict){ CORE_REFUSE, status, retry_after_s(c) };
}

static bool is_full(const struct core *c)
{
    return ledger_total(c->ledger) >= c->config.requests_max;
}

/* For killing engines: of a prompt in quarantine it is said how long that lasts. */
static struct core_verdict refuse_for_good(struct core *c, struct core_request *r, int64_t now_us)
{
    r->state = CORE_ENDED;
    int64_t left_us = quarantine_left_us(c->quarantine, r->fingerprint, now_us);
    return (struct core_verdict){ CORE_REFUSE, 422, (double)left_us * 1e-6 };
}

/* It is no longer one of its slot's suspects. */
static void suspect_leaves(struct core *c, struct core_request *r)
{
    c->slot[r->slot].suspects -= r->suspect;
    r->suspect = false;
    r->acquitted_at = 0;
}

static struct core_verdict place_or_hold(struct core *c, struct core_request *r, int64_t now_us)
{
    if (is_full(c)) return refuse(c, r, 429);
    if (place(c, r, now_us)) return (struct core_verdict){ CORE_SEND, 0, 0 };
    if (r->route.reject) {
        r->state = CORE_ENDED;
        return (struct core_verdict){ CORE_REFUSE, 429, r->route.retry_after_s };
    }
    if (c->held_count >= c->config.held_max) return refuse(c, r, 503);
    r->state = CORE_HELD;
    r->hold_until_us = r->route.hold_until_us;
    if (r->held_us == 0) r->held_us = now_us;
    r->tried_count = 0; /* after a wait every endpoint is worth a try again */
    list_push_back(&c->held, &r->link);
    c->held_count++;
    c->held_tokens += r->prompt_tokens;
    return (struct core_verdict){ CORE_WAIT, 0, 0 };
}

static void unhold(struct core *c, struct core_request *r)
{
    list_remove(&r->link);
    c->held_count--;
    c->held_tokens -= r->prompt_tokens;
}

struct core_verdict core_arrive(struct core *c, struct core_request *r, int64_t now_us)
{
    must(r->state == CORE_NEW && r->prompt_tokens > 0);
    r->arrived_us = now_us;
    c->config.predict->decide(c->predict_state, &r->features, &r->length);
    retry_budget_earn(&c->budget);
    c->total.arrivals++;
    if (quarantine_refuses(c->quarantine, r->fingerprint, now_us) > 0) {
        return refuse_for_good(c, r, now_us);
    }
    return place_or_hold(c, r, now_us);
}

/* What it has shown of itself and of its engine. True when it was a suspect up to now. */
static bool acquit(struct core *c, struct core_request *r, bool first)
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

bool core_tokens(struct core *c, struct core_request *r, uint32_t count, int64_t now_us)
{
    must(r->state == CORE_SENT);
    c->slot[r->slot].suspend_us = 0;
    bool first = r->entry->first_us == 0;
    uint32_t looks = r->entry->generated / CORE_REFINE_TOKENS;
    ledger_tokens(c->ledger, r->entry, count, now_us);
    uint32_t generated = r->entry->generated;
    if (generated / CORE_REFINE_TOKENS != looks) {
        /* What an answer has come to says more of it than its prompt did. */
        double left = predict_remaining(c->config.predict, c->predict_state, &r->features,
                                        r->generated + generated);
        ledger_expect(c->ledger, r->entry, (double)generated + left);
    }
    load_note(&c->slot[r->slot].load, ledger_sums(c->ledger, r->slot), now_us);
    if (first) tell_policy(c, r, ROUTE_FIRST_TOKEN, r->entry, now_us);
    return acquit(c, r, first);
}

uint32_t core_tokens_known(const struct core_request *r)
{
    must(r->state == CORE_SENT);
    return known_tokens(r) + r->entry->generated;
}

/* With its tokens so far, and nothing of the prompt left to compute. What the row noted of the
 * instance it chose says nothing of this one. */
static void count_at(struct core *c, struct core_request *r, uint32_t slot, int64_t now_us)
{
    const struct ledger_entry was = *r->entry;
    ledger_end(c->ledger, r->entry);
    load_note(&c->slot[r->slot].load, ledger_sums(c->ledger, r->slot), now_us);
    struct ledger_sending s = was.sent;
    s.hit_tokens = s.prompt_tokens - 1;
    r->entry = ledger_send(c->ledger, slot, &s, now_us);
    must(r->entry != NULL); /* one was given back just now */
    ledger_tokens(c->ledger, r->entry, was.generated, now_us);
    ledger_expect(c->ledger, r->entry, was.output_expected);
    r->entry->sent_us = was.sent_us;
    if (was.first_us > 0) r->entry->first_us = was.first_us;
    memset(r->route.scratch, 0, sizeof r->route.scratch);
    load_note(&c->slot[slot].load, ledger_sums(c->ledger, slot), now_us);
    c->slot[r->slot].suspects -= r->suspect;
    c->slot[slot].suspects += r->suspect;
    r->slot = slot;
    r->boot = c->slot[slot].ep.boot;
}

uint32_t core_hand_over(struct core *c, struct core_request *r, int64_t now_us)
{
    must(r->state == CORE_SENT);
    struct route_view view;
    core_view(c, r, true, now_us, &view);
    const struct route_req req = { .prompt_tokens = known_tokens(r) };
    uint32_t at = handoff_pick(&view, &req, &c->rng);
    if (at == ROUTE_NONE) return ROUTE_NONE;
    /* A routing row that has chosen the decode instance as well is followed while that accepts. */
    for (uint32_t i = 0; i < view.instance_count; i++) {
        if (view.instance[i].id == r->route.decode_id && view.instance[i].accepts) at = i;
    }
    count_at(c, r, view.instance[at].id, now_us);
    return r->slot;
}

void core_move(struct core *c, struct core_request *r, uint32_t slot, int64_t now_us)
{
    must(r->state == CORE_SENT && slot < c->config.endpoints_max);
    count_at(c, r, slot, now_us);
}

static void suspend(struct slot *s, int64_t now_us)
{
    s->suspend_us = min_i64(max_i64(2 * s->suspend_us, CORE_SUSPEND_US_MIN), CORE_SUSPEND_US_MAX);
    s->suspended_until_us = now_us + s->suspend_us;
}

static void attempt_over(struct core *c, struct core_request *r, enum route_event_kind kind,
                         int64_t now_us)
{
    tell_policy(c, r, kind, r->entry, now_us);
    ledger_end(c->ledger, r->entry);
    load_note(&c->slot[r->slot].load, ledger_sums(c->ledger, r->slot), now_us);
    r->entry = NULL;
    suspect_leaves(c, r);
}

struct core_verdict core_fail(struct core *c, struct core_request *r, enum retry_failure failure,
                              int64_t now_us)
{
    must(r->state == CORE_SENT);
    attempt_over(c, r, ROUTE_FAILED, now_us);
    if (failure == RETRY_DIED) {
        uint64_t name = c->name_hash[r->slot];
        quarantine_blame(c->quarantine, r->fingerprint, name, r->boot, r->generated, now_us);
        quarantine_boot(c->quarantine, name, c->slot[r->slot].ep.boot);
    }
    must(r->tried_count < RETRY_ATTEMPTS_MAX); /* retry_decide ends them there */
    r->tried[r->tried_count++] = r->slot;
    bool gone = failure == RETRY_UNREACHABLE || failure == RETRY_DIED || failure == RETRY_SILENT;
    if (gone) suspend(&c->slot[r->slot], now_us);
    struct retry_verdict v = retry_decide(&c->budget, &r->retry, failure);
    if (!v.again && v.status == 422) return refuse_for_good(c, r, now_us);
    if (!v.again) return refuse(c, r, v.status);
    /* Waiting here holds more of what ran short; only an answer that has begun is worth it. */
    if (failure == RETRY_LOCAL && r->generated == 0 && !is_full(c)) {
        if (!place(c, r, now_us)) return refuse(c, r, 503);
        return (struct core_verdict){ CORE_SEND, 0, 0 };
    }
    return place_or_hold(c, r, now_us);
}

void core_end(struct core *c, struct core_request *r, uint32_t generated, bool censored,
              int64_t now_us)
{
    must(r->state == CORE_SENT || r->state == CORE_HELD);
    if (r->state == CORE_HELD) {
        unhold(c, r);
    } else {
        attempt_over(c, r, censored || generated == 0 ? ROUTE_FAILED : ROUTE_FINISHED, now_us);
        if (generated > 0) {
            c->config.predict->observe(c->predict_state, &r->features, generated, censored);
        }
    }
    r->state = CORE_ENDED;
}

struct core_request *core_held_next(struct core *c, int64_t now_us, struct core_verdict *ret)
{
    LIST_EACH_SAFE (&c->held, node) {
        struct core_request *r = CONTAINER_OF(node, struct core_request, link);
        const bool asked = !is_full(c); /* when it is, the end of one in flight is waited for */
        if (asked && place(c, r, now_us)) {
            unhold(c, r);
            *ret = (struct core_verdict){ CORE_SEND, 0, 0 };
            return r;
        }
        if (asked && r->route.reject) {
            unhold(c, r);
            r->state = CORE_ENDED;
            *ret = (struct core_verdict){ CORE_REFUSE, 429, r->route.retry_after_s };
            return r;
        }
        r->hold_until_us = r->route.hold_until_us;
        if (now_us - r->held_us >= c->config.hold_us_max) {
            unhold(c, r);
            *ret = refuse(c, r, 503);
            return r;
        }
    }
    return NULL;
}

int64_t core_held_deadline_us(const struct core *c, int64_t now_us)
{
    int64_t deadline = INT64_MAX;
    LIST_EACH (&c->held, node) {
        const struct core_request *r = CONTAINER_OF(node, struct core_request, link);
        deadline = min_i64(deadline, r->held_us + c->config.hold_us_max);
        if (r->hold_until_us > now_us) deadline = min_i64(deadline, r->hold_until_us);
    }
    if (deadline == INT64_MAX) return deadline;
    /* A rest that ends earlier frees them earlier. */
    for (uint32_t i = 0; i < c->slots_end; i++) {
        const struct slot *s = &c->slot[i];
        if (s->used && s->suspended_until_us > now_us) {
            deadline = min_i64(deadline, s->suspended_until_us);
        }
    }
    return deadline;
}

void core_demand(const struct core *c, int64_t now_us, struct core_demand *ret)
{
    *ret = c->total;
    ret->held = c->held_count;
    ret->held_tokens = c->held_tokens;
    ret->in_flight = ledger_total(c->ledger);
    ret->held_oldest_us = 0;
    LIST_EACH (&c->held, node) {
        const struct core_request *r = CONTAINER_OF(node, struct core_request, link);
        ret->held_oldest_us = max_i64(ret->held_oldest_us, now_us - r->held_us);
    }
}

void core_held_of(const struct core *c, uint64_t model, int64_t now_us, struct core_held *ret)
{
    *ret = (struct core_held){ 0 };
    LIST_EACH (&c->held, node) {
        const struct core_request *r = CONTAINER_OF(node, struct core_request, link);
        if (r->model != model) continue;
        ret->count++;
        ret->prompt_tokens += r->prompt_tokens;
        ret->oldest_us = max_i64(ret->oldest_us, now_us - r->held_us);
    }
}

double core_queued_s(struct core *c, uint32_t slot, int64_t now_us)
{
    const struct core_endpoint *ep = core_endpoint_at(c, slot);
    if (!ep || !ep->has_perf) return 0;
    struct route_instance in = { .has_perf = true,
                                 .perf = ep->perf,
                                 .token_budget = max_u32(ep->token_budget, 1),
                                 .seqs_max = max_u32(ep->seqs_max, 1) };
    ledger_view(c->ledger, slot, 0, now_us, &in);
    double steps = in.output_left / (double)max_u32(in.decoding, 1);
    double step_s = in.perf.a + in.perf.c * (double)in.decoding + in.perf.d * (double)in.kv_tokens;
    return in.perf.b * (double)in.prefill_tokens + steps * step_s;
}
