/* core.c - endpoints, index, ledger, predictor and policy brought together for one decision.
 *
 * Held requests wait in order of arrival and are tried again as a whole queue: when one cannot go,
 * later ones of another model still may.
 */
#include "router/core/core.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "policies/handoff.h"

#include <stdlib.h>

#define PEER_PART 0.5 /* of what another router sent lately, on its own instances */

struct slot {
    bool used;
    struct core_endpoint ep;
    bool home; /* among several routers, one that this router fills first */
    struct load load;
    struct load_meter prompts; /* seconds of prompts' arithmetic sent to it */
    int64_t suspended_until_us;
    int64_t suspend_us; /* the next rest, doubling; 0 after a success */
};

/* The work that one model is sent. */
struct model {
    uint64_t name;
    struct load_meter meter;
};

struct core {
    struct core_config config;
    struct prefix_index *index;
    struct ledger *ledger;
    void *route_state;
    void *predict_state;
    struct rng rng;
    struct retry_budget budget;
    struct slot *slot;   /* endpoints_max of each */
    uint64_t *name_hash; /* apart, because every look for a name goes through them */
    uint32_t *hit_blocks;
    struct route_instance *instance;
    uint32_t slots_end; /* no slot from here on is used */
    bool homes_dealt;
    struct model model[CORE_MODELS_MAX];
    uint32_t model_count;
    uint64_t decisions;
    uint32_t peer_index, peer_count;
    struct list held;
    uint32_t held_count;
    uint64_t held_tokens;
    double starting_eta_s;
    struct core_demand total; /* the running counters only */
};

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
    c->hit_blocks = calloc(slots, sizeof *c->hit_blocks);
    c->instance = calloc(slots, sizeof *c->instance);
    bool all = c->route_state && c->predict_state && c->slot && c->name_hash && c->hit_blocks;
    if (!all || !c->instance) {
        return err_set(err, -ENOMEM, "router core: no memory for %u endpoints", slots);
    }
    config->predict->init(c->predict_state);
    int rc = prefix_index_new(config->index_bytes, slots, &c->index, err);
    if (rc == 0) rc = ledger_new(config->requests_max, slots, &c->ledger, err);
    if (rc < 0) return rc;
    *ret = TAKE(c);
    return 0;
}

void core_free(struct core *c)
{
    if (!c) return;
    prefix_index_free(c->index);
    ledger_free(c->ledger);
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

/* Instances are dealt out to the routers in the order of their names' hashes, so that every router
 * that knows the same instances deals alike and each gets its even share. */
static void deal_homes(struct core *c)
{
    c->homes_dealt = true;
    for (uint32_t i = 0; i < c->slots_end; i++) {
        struct slot *s = &c->slot[i];
        uint32_t before = 0;
        for (uint32_t k = 0; k < c->slots_end; k++) {
            const struct slot *o = &c->slot[k];
            before += o->used && o->ep.model == s->ep.model && c->name_hash[k] < c->name_hash[i];
        }
        s->home = before % c->peer_count == c->peer_index;
    }
}

void core_peers_set(struct core *c, uint32_t index, uint32_t count)
{
    if (c->peer_index == index && c->peer_count == count) return;
    c->peer_index = index;
    c->peer_count = count;
    c->homes_dealt = false;
}

static uint64_t name_hash(const char *name)
{
    return hash64(name, strlen(name), 0);
}

uint32_t core_endpoint_find(const struct core *c, const char *name)
{
    uint64_t hash = name_hash(name);
    for (uint32_t i = 0; i < c->slots_end; i++) {
        if (c->name_hash[i] != hash || !c->slot[i].used) continue;
        if (strcmp(c->slot[i].ep.name, name) == 0) return i;
    }
    return ROUTE_NONE;
}

int core_endpoint_put(struct core *c, const struct core_endpoint *ep, uint32_t *ret_slot)
{
    uint32_t at = core_endpoint_find(c, ep->name);
    if (at == ROUTE_NONE) {
        const uint32_t slots = c->config.endpoints_max;
        for (at = 0; at < slots; at++) {
            /* A slot whose last requests still end is not given to another endpoint. */
            if (!c->slot[at].used && ledger_in_flight(c->ledger, at) == 0) break;
        }
        if (at == slots) return -ENOSPC;
        c->slot[at] = (struct slot){ .used = true };
        c->name_hash[at] = name_hash(ep->name);
        c->slots_end = max_u32(c->slots_end, at + 1);
        c->homes_dealt = false;
    } else if (c->slot[at].ep.boot != ep->boot) {
        prefix_index_drop_slot(c->index, at);
        load_boot(&c->slot[at].load);
        c->slot[at].suspended_until_us = c->slot[at].suspend_us = 0;
    }
    c->slot[at].ep = *ep;
    *ret_slot = at;
    return 0;
}

void core_endpoint_remove(struct core *c, uint32_t slot)
{
    must(slot < c->config.endpoints_max);
    if (!c->slot[slot].used) return;
    c->slot[slot].used = false;
    while (c->slots_end > 0 && !c->slot[c->slots_end - 1].used)
        c->slots_end--;
    c->homes_dealt = false;
    prefix_index_drop_slot(c->index, slot);
}

/* NULL beyond CORE_MODELS_MAX. */
static struct model *model_of(struct core *c, uint64_t name)
{
    for (uint32_t i = 0; i < c->model_count; i++) {
        if (c->model[i].name == name) return &c->model[i];
    }
    if (c->model_count == CORE_MODELS_MAX) return NULL;
    struct model *m = &c->model[c->model_count++];
    m->name = name;
    return m;
}

static void count_work(struct core *c, uint64_t model, double work_s, int64_t now_us)
{
    struct model *m = work_s > 0 ? model_of(c, model) : NULL;
    if (m) load_meter_add(&m->meter, LOAD_US, work_s, now_us);
}

double core_work_rate(const struct core *c, uint64_t model, int64_t now_us)
{
    for (uint32_t i = 0; i < c->model_count; i++) {
        if (c->model[i].name == model) return load_meter_rate(&c->model[i].meter, LOAD_US, now_us);
    }
    return -1;
}

void core_endpoint_report(struct core *c, uint32_t slot, const struct core_load *load,
                          int64_t as_of_us, int64_t now_us)
{
    must(slot < c->config.endpoints_max);
    struct slot *s = &c->slot[slot];
    if (!s->used) return;
    uint64_t tokens =
        load_report(&s->load, load, ledger_sums(c->ledger, slot), min_i64(as_of_us, now_us));
    if (tokens == 0 || !s->ep.has_perf) return;
    load_meter_add(&s->prompts, LOAD_PROMPTS_US, (double)tokens * s->ep.perf.b, now_us);
    double token_s = s->ep.perf.b + s->ep.perf.a / (double)max_u32(s->ep.token_budget, 1);
    count_work(c, s->ep.model, (double)tokens * token_s, now_us);
}

const struct core_endpoint *core_endpoint_at(const struct core *c, uint32_t slot)
{
    must(slot < c->config.endpoints_max);
    return c->slot[slot].used ? &c->slot[slot].ep : NULL;
}

uint32_t core_in_flight(const struct core *c, uint32_t slot)
{
    return ledger_in_flight(c->ledger, slot);
}

void core_starting_set(struct core *c, double eta_s)
{
    c->starting_eta_s = eta_s;
}

struct prefix_index *core_index(struct core *c)
{
    return c->index;
}

static bool was_tried(const struct core_request *r, uint32_t slot)
{
    for (uint32_t i = 0; i < r->tried_count; i++)
        if (r->tried[i] == slot) return true;
    return false;
}

static void instance_fill(struct core *c, uint32_t slot, const struct core_request *r,
                          int64_t now_us, struct route_instance *in)
{
    const struct slot *s = &c->slot[slot];
    *in = (struct route_instance){
        .id = slot,
        .name_hash = c->name_hash[slot],
        .accepts = s->ep.ready && s->suspended_until_us <= now_us && !was_tried(r, slot),
        .role = s->ep.role,
        .has_perf = s->ep.has_perf,
        .perf = s->ep.perf,
        .token_budget = max_u32(s->ep.token_budget, 1),
        .seqs_max = max_u32(s->ep.seqs_max, 1),
        .kv_tokens_max = s->ep.kv_tokens_max,
        .hit_tokens = c->hit_blocks[slot] * c->config.key_tokens,
        .prompt_load = load_meter_rate(&s->prompts, LOAD_PROMPTS_US, now_us),
        .price_per_hour = s->ep.price_per_hour,
    };
    ledger_view(c->ledger, slot, r->features.tenant, now_us, in);
    load_view(&s->load, ledger_sums(c->ledger, slot), now_us, in);
}

/* What the other routers have sent since the last reports is not known. That each does as this one
 * does is the best guess: it met the same burst, is about to send one like this, and fills its own
 * instances first, where about half of what it sends ends up. */
static void expect_peers(struct core *c, uint32_t count, const struct core_request *r)
{
    if (c->peer_count < 2) return;
    if (!c->homes_dealt) deal_homes(c);
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

/* Newcomers go to instances that compute prompts, handed-over ones to those that decode. */
static void view_fill(struct core *c, const struct core_request *r, bool handed_over,
                      int64_t now_us, struct route_view *ret)
{
    prefix_index_match(c->index, r->keys, r->key_count, now_us, c->hit_blocks);
    uint32_t count = 0, accept = 0;
    for (uint32_t i = 0; i < c->slots_end; i++) {
        if (!c->slot[i].used || c->slot[i].ep.model != r->model) continue;
        struct route_instance *in = &c->instance[count++];
        instance_fill(c, i, r, now_us, in);
        if (handed_over) in->accepts = in->accepts && in->role != ROLE_PREFILL;
        accept += route_takes(in);
    }
    expect_peers(c, count, r);
    double rate = core_work_rate(c, r->model, now_us);
    *ret = (struct route_view){ .instance = c->instance,
                                .instance_count = count,
                                .has_load = rate >= 0 && accept > 0,
                                .load = accept > 0 ? rate / (double)accept : 0,
                                .link_bytes_s = c->config.link_bytes_s,
                                .kv_bytes_per_token = c->config.kv_bytes_per_token };
}

/* What names the beginning of a prompt: a key some way in, because all may share the first. */
static uint64_t prefix_hash(const struct core *c, const struct core_request *r)
{
    if (r->key_count == 0) return r->features.prefix;
    uint32_t keys = max_u32(CORE_PREFIX_TOKENS / c->config.key_tokens, 2);
    return r->keys[min_u32(keys, r->key_count) - 1].lo;
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
                              .hit_tokens = e->sent.hit_tokens,
                              .generated = e->generated,
                              .ttft_s = -1,
                              .tpot_s = -1,
                              .work_s = e->sent.work_s,
                              .at_us = now_us };
    memcpy(ev.scratch, r->route.scratch, sizeof ev.scratch);
    if (e->first_us > 0) ev.ttft_s = (double)(e->first_us - e->sent_us) * 1e-6;
    if (kind == ROUTE_FINISHED && e->first_us > 0 && e->generated > 1) {
        ev.tpot_s = (double)(now_us - e->first_us) * 1e-6 / (double)(e->generated - 1);
    }
    if (row->observe) row->observe(c->route_state, &ev);
    if (c->config.watch) c->config.watch->event(c->config.watch->arg, r->decision, &ev);
}

static void send_to(struct core *c, struct core_request *r, uint32_t slot, int64_t now_us)
{
    const struct core_endpoint *ep = &c->slot[slot].ep;
    uint32_t hit = c->hit_blocks[slot] * c->config.key_tokens + r->route.fetch_tokens;
    struct ledger_sending s = { .prompt_tokens = r->prompt_tokens,
                                .hit_tokens = min_u32(hit, r->prompt_tokens - 1),
                                .output_expected = r->length.mean,
                                .tenant = r->features.tenant };
    if (ep->has_perf) {
        s.work_s = route_work_s(&ep->perf, max_u32(ep->token_budget, 1), s.prompt_tokens,
                                s.hit_tokens, s.output_expected);
        load_meter_add(&c->slot[slot].prompts, LOAD_PROMPTS_US,
                       (double)(s.prompt_tokens - s.hit_tokens) * ep->perf.b, now_us);
    }
    r->entry = ledger_send(c->ledger, slot, &s, now_us);
    must(r->entry); /* place_or_hold left room */
    load_note(&c->slot[slot].load, ledger_sums(c->ledger, slot), now_us);
    count_work(c, ep->model, s.work_s, now_us);
    tell_policy(c, r, ROUTE_SENT, r->entry, now_us);
    prefix_index_expect(c->index, slot, r->keys, r->key_count, now_us + CORE_EXPECT_US);
    r->hit_tokens = s.hit_tokens;
    r->slot = slot;
    r->state = CORE_SENT;
    r->retry.attempts++;
}

/* Tries to place the request now; false when no instance accepts it: r->route says whether to hold
 * or to reject it. */
static bool place(struct core *c, struct core_request *r, int64_t now_us)
{
    struct route_view view;
    view_fill(c, r, false, now_us, &view);
    struct route_req req = { .prompt_tokens = r->prompt_tokens,
                             .prefix_hash = prefix_hash(c, r),
                             .tenant = r->features.tenant,
                             .output_mean = r->length.mean,
                             .output_p50 = r->length.p50,
                             .output_p90 = r->length.p90,
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

/* What a refused client is told to wait: the start that is under way, else a second of back-off
 * for every ten that are held. */
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

static struct core_verdict place_or_hold(struct core *c, struct core_request *r, int64_t now_us)
{
    if (ledger_total(c->ledger) >= c->config.requests_max) return refuse(c, r, 429);
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
    return place_or_hold(c, r, now_us);
}

void core_tokens(struct core *c, struct core_request *r, uint32_t count, int64_t now_us)
{
    must(r->state == CORE_SENT);
    c->slot[r->slot].suspend_us = 0;
    bool first = r->entry->first_us == 0;
    uint32_t looks = r->entry->generated / CORE_REFINE_TOKENS;
    ledger_tokens(c->ledger, r->entry, count, now_us);
    uint32_t generated = r->entry->generated;
    if (generated / CORE_REFINE_TOKENS != looks) {
        /* What an answer has come to says more of it than its prompt did. */
        double left =
            predict_remaining(c->config.predict, c->predict_state, &r->features, generated);
        ledger_expect(c->ledger, r->entry, (double)generated + left);
    }
    load_note(&c->slot[r->slot].load, ledger_sums(c->ledger, r->slot), now_us);
    if (first) tell_policy(c, r, ROUTE_FIRST_TOKEN, r->entry, now_us);
}

/* With its tokens so far, and nothing of the prompt left to compute. */
static void count_at(struct core *c, struct core_request *r, uint32_t slot, int64_t now_us)
{
    uint32_t generated = r->entry->generated;
    ledger_end(c->ledger, r->entry);
    load_note(&c->slot[r->slot].load, ledger_sums(c->ledger, r->slot), now_us);
    struct ledger_sending s = { .prompt_tokens = r->prompt_tokens,
                                .hit_tokens = r->prompt_tokens - 1,
                                .output_expected = r->length.mean,
                                .tenant = r->features.tenant };
    r->entry = ledger_send(c->ledger, slot, &s, now_us);
    must(r->entry != NULL); /* one was given back just now */
    ledger_tokens(c->ledger, r->entry, generated, now_us);
    load_note(&c->slot[slot].load, ledger_sums(c->ledger, slot), now_us);
    r->slot = slot;
}

uint32_t core_hand_over(struct core *c, struct core_request *r, int64_t now_us)
{
    must(r->state == CORE_SENT);
    struct route_view view;
    view_fill(c, r, true, now_us, &view);
    const struct route_req req = { .prompt_tokens = r->prompt_tokens };
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
}

struct core_verdict core_fail(struct core *c, struct core_request *r, enum retry_failure failure,
                              int64_t now_us)
{
    must(r->state == CORE_SENT);
    attempt_over(c, r, ROUTE_FAILED, now_us);
    must(r->tried_count < RETRY_ATTEMPTS_MAX); /* retry_decide ends them there */
    r->tried[r->tried_count++] = r->slot;
    if (failure == RETRY_UNREACHABLE || failure == RETRY_DIED) suspend(&c->slot[r->slot], now_us);
    struct retry_verdict v = retry_decide(&c->budget, &r->retry, failure);
    if (!v.again) return refuse(c, r, v.status);
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
        if (place(c, r, now_us)) {
            unhold(c, r);
            *ret = (struct core_verdict){ CORE_SEND, 0, 0 };
            return r;
        }
        if (r->route.reject) {
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
