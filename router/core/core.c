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

struct slot {
    bool used;
    struct core_endpoint ep;
    int64_t suspended_until_us;
    int64_t suspend_us; /* the next rest, doubling; 0 after a success */
};

struct core {
    struct core_config config;
    struct prefix_index *index;
    struct ledger *ledger;
    void *route_state;
    void *predict_state;
    struct rng rng;
    struct retry_budget budget;
    struct slot slot[ROUTE_INSTANCES_MAX];
    struct list held;
    uint32_t held_count;
    uint64_t held_tokens;
    double starting_eta_s;
    struct core_demand total; /* the running counters only */
    uint32_t hit_blocks[ROUTE_INSTANCES_MAX];
    struct route_instance instance[ROUTE_INSTANCES_MAX];
};

CLEANUP_FREEP(core, struct core)

int core_new(const struct core_config *config, struct core **ret, struct err *err)
{
    CLEANUP(core_freep) struct core *c = calloc(1, sizeof *c);
    if (!c) return err_set(err, -ENOMEM, "router core: no memory");
    c->config = *config;
    if (c->config.key_tokens == 0) c->config.key_tokens = BLOCK_TOKENS;
    c->starting_eta_s = -1;
    list_init(&c->held);
    rng_seed(&c->rng, config->seed);
    retry_budget_init(&c->budget);
    c->route_state = calloc(1, ROUTE_STATE_BYTES_MAX);
    c->predict_state = malloc(config->predict->state_size);
    if (!c->route_state || !c->predict_state) {
        return err_set(err, -ENOMEM, "router core: no memory for policy state");
    }
    config->predict->init(c->predict_state);
    int rc = prefix_index_new(config->index_bytes, &c->index, err);
    if (rc == 0) rc = ledger_new(config->requests_max, &c->ledger, err);
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

uint32_t core_endpoint_find(const struct core *c, const char *name)
{
    for (uint32_t i = 0; i < ROUTE_INSTANCES_MAX; i++) {
        if (c->slot[i].used && strcmp(c->slot[i].ep.name, name) == 0) return i;
    }
    return ROUTE_NONE;
}

int core_endpoint_put(struct core *c, const struct core_endpoint *ep, uint32_t *ret_slot)
{
    uint32_t at = core_endpoint_find(c, ep->name);
    if (at == ROUTE_NONE) {
        for (at = 0; at < ROUTE_INSTANCES_MAX; at++) {
            /* A slot whose last requests still end is not given to another endpoint. */
            if (!c->slot[at].used && ledger_in_flight(c->ledger, at) == 0) break;
        }
        if (at == ROUTE_INSTANCES_MAX) return -ENOSPC;
        c->slot[at] = (struct slot){ .used = true };
    } else if (c->slot[at].ep.boot != ep->boot) {
        prefix_index_drop_slot(c->index, at);
        c->slot[at].suspended_until_us = c->slot[at].suspend_us = 0;
    }
    c->slot[at].ep = *ep;
    *ret_slot = at;
    return 0;
}

void core_endpoint_remove(struct core *c, uint32_t slot)
{
    must(slot < ROUTE_INSTANCES_MAX);
    if (!c->slot[slot].used) return;
    c->slot[slot].used = false;
    prefix_index_drop_slot(c->index, slot);
}

const struct core_endpoint *core_endpoint_at(const struct core *c, uint32_t slot)
{
    must(slot < ROUTE_INSTANCES_MAX);
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
    return r->tried[slot / 64] >> (slot % 64) & 1;
}

/* Who may get it: newcomers go to instances that compute prompts, handed-over ones to those that
 * decode. */
static void view_fill(struct core *c, const struct core_request *r, bool handed_over,
                      int64_t now_us, struct route_view *ret)
{
    prefix_index_match(c->index, r->keys, r->key_count, now_us, c->hit_blocks);
    uint32_t count = 0;
    for (uint32_t i = 0; i < ROUTE_INSTANCES_MAX; i++) {
        const struct slot *s = &c->slot[i];
        if (!s->used || s->ep.model != r->model) continue;
        struct route_instance *in = &c->instance[count++];
        *in = (struct route_instance){
            .id = i,
            .name_hash = hash64(s->ep.name, strlen(s->ep.name), 0),
            .accepts = s->ep.ready && s->ep.role != (handed_over ? ROLE_PREFILL : ROLE_DECODE) &&
                       s->suspended_until_us <= now_us && !was_tried(r, i),
            .has_perf = s->ep.has_perf,
            .perf = s->ep.perf,
            .token_budget = max_u32(s->ep.token_budget, 1),
            .seqs_max = max_u32(s->ep.seqs_max, 1),
            .hit_tokens = c->hit_blocks[i] * c->config.key_tokens,
            .price_per_hour = s->ep.price_per_hour,
        };
        ledger_view(c->ledger, i, now_us, in);
    }
    *ret = (struct route_view){ c->instance, count };
}

/* Tries to place the request now; false when no instance accepts it or the ledger is full. */
static bool place(struct core *c, struct core_request *r, int64_t now_us)
{
    struct route_view view;
    view_fill(c, r, false, now_us, &view);
    struct route_req req = { .prompt_tokens = r->prompt_tokens,
                             .prefix_hash = r->features.prefix,
                             .output_p50 = r->length.p50,
                             .output_p90 = r->length.p90 };
    c->config.route->decide(c->route_state, &view, &req, now_us, &c->rng, &r->route);
    if (r->route.instance_id == ROUTE_NONE) return false;

    uint32_t slot = r->route.instance_id;
    r->hit_tokens = min_u32(c->hit_blocks[slot] * c->config.key_tokens, r->prompt_tokens - 1);
    r->entry =
        ledger_send(c->ledger, slot, r->prompt_tokens, r->hit_tokens, r->length.mean, now_us);
    if (!r->entry) return false;
    c->total.uncached_tokens += r->prompt_tokens - r->hit_tokens;
    prefix_index_expect(c->index, slot, r->keys, r->key_count, now_us + CORE_EXPECT_US);
    r->slot = slot;
    r->state = CORE_SENT;
    r->retry.attempts++;
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
    if (c->held_count >= c->config.held_max) return refuse(c, r, 503);
    r->state = CORE_HELD;
    if (r->held_us == 0) r->held_us = now_us;
    memset(r->tried, 0, sizeof r->tried); /* after a wait every endpoint is worth a try again */
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
    c->total.prompt_tokens += r->prompt_tokens;
    c->total.output_tokens_expected += (uint64_t)r->length.mean;
    return place_or_hold(c, r, now_us);
}

void core_tokens(struct core *c, struct core_request *r, uint32_t count, int64_t now_us)
{
    must(r->state == CORE_SENT);
    c->slot[r->slot].suspend_us = 0;
    ledger_tokens(c->ledger, r->entry, count, now_us);
}

/* With its tokens so far, and nothing of the prompt left to compute. */
static void count_at(struct core *c, struct core_request *r, uint32_t slot, int64_t now_us)
{
    uint32_t generated = r->entry->generated;
    ledger_end(c->ledger, r->entry);
    r->entry = ledger_send(c->ledger, slot, r->prompt_tokens, r->prompt_tokens - 1, r->length.mean,
                           now_us);
    must(r->entry != NULL); /* one was given back just now */
    ledger_tokens(c->ledger, r->entry, generated, now_us);
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
    count_at(c, r, view.instance[at].id, now_us);
    return r->slot;
}

void core_move(struct core *c, struct core_request *r, uint32_t slot, int64_t now_us)
{
    must(r->state == CORE_SENT && slot < ROUTE_INSTANCES_MAX);
    count_at(c, r, slot, now_us);
}

static void suspend(struct slot *s, int64_t now_us)
{
    s->suspend_us = min_i64(max_i64(2 * s->suspend_us, CORE_SUSPEND_US_MIN), CORE_SUSPEND_US_MAX);
    s->suspended_until_us = now_us + s->suspend_us;
}

struct core_verdict core_fail(struct core *c, struct core_request *r, enum retry_failure failure,
                              int64_t now_us)
{
    must(r->state == CORE_SENT);
    ledger_end(c->ledger, r->entry);
    r->entry = NULL;
    r->tried[r->slot / 64] |= 1ULL << (r->slot % 64);
    if (failure == RETRY_UNREACHABLE || failure == RETRY_DIED) suspend(&c->slot[r->slot], now_us);
    struct retry_verdict v = retry_decide(&c->budget, &r->retry, failure);
    if (!v.again) return refuse(c, r, v.status);
    return place_or_hold(c, r, now_us);
}

void core_end(struct core *c, struct core_request *r, uint32_t generated, bool censored,
              int64_t now_us)
{
    (void)now_us;
    must(r->state == CORE_SENT || r->state == CORE_HELD);
    if (r->state == CORE_HELD) {
        unhold(c, r);
    } else {
        ledger_end(c->ledger, r->entry);
        r->entry = NULL;
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
    }
    if (deadline == INT64_MAX) return deadline;
    /* A rest that ends earlier frees them earlier. */
    for (uint32_t i = 0; i < ROUTE_INSTANCES_MAX; i++) {
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
        ret->output_tokens += r->length.mean;
        ret->oldest_us = max_i64(ret->oldest_us, now_us - r->held_us);
    }
}

double core_queued_s(const struct core *c, uint32_t slot, int64_t now_us)
{
    const struct core_endpoint *ep = core_endpoint_at(c, slot);
    if (!ep || !ep->has_perf) return 0;
    struct route_instance in = { .has_perf = true,
                                 .perf = ep->perf,
                                 .token_budget = max_u32(ep->token_budget, 1),
                                 .seqs_max = max_u32(ep->seqs_max, 1) };
    ledger_view(c->ledger, slot, now_us, &in);
    double steps = ledger_output_left(c->ledger, slot) / (double)max_u32(in.decoding, 1);
    double step_s = in.perf.a + in.perf.c * (double)in.decoding + in.perf.d * (double)in.kv_tokens;
    return in.perf.b * (double)in.prefill_tokens + steps * step_s;
}

const struct retry_budget *core_budget(const struct core *c)
{
    return &c->budget;
}
