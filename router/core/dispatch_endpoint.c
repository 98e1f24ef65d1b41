/* dispatch_endpoint.c - knows the endpoints: their slots and homes, their reports, and what their replies teach.
 *
 * An endpoint keeps its slot while requests are in flight there, and gets it back when it returns under its name: what
 * was learned of it is still true. Another engine under that name (another boot id) begins with an empty cache.
 */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "router/core/dispatch_state.h"

#include <string.h>

#define EXPECT_US 30000000 /* an unconfirmed block is believed this long */
/* Where nothing confirms blocks, they are believed for as long as that has proven right: at first so long,
 * longer by BELIEVE_MORE after a reply that named as many cached tokens as were expected, half as long
 * after one that named less than half. */
#define BELIEVE_US 120000000
#define BELIEVE_US_MIN 5000000
#define BELIEVE_US_MAX INT64_C(3600000000)
#define BELIEVE_MORE 1.25

/* Deals the instances out to the routers in the order of their names' hashes, so that every router
 * that knows the same instances deals alike and each gets its even share. */
void dispatch_deal_homes(struct dispatch *c)
{
    c->homes_dealt = true;
    for (uint32_t i = 0; i < c->slots_end; i++) {
        struct dispatch_slot *s = &c->slot[i];
        uint32_t before = 0;
        for (uint32_t k = 0; k < c->slots_end; k++) {
            const struct dispatch_slot *o = &c->slot[k];
            before += o->used && o->ep.model == s->ep.model && c->name_hash[k] < c->name_hash[i];
        }
        s->home = before % c->peer_count == c->peer_index;
    }
}

void dispatch_peers_set(struct dispatch *c, uint32_t index, uint32_t count)
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

/* Finds the slot of a name among the first `slots`. Not `used`: the slot that an endpoint of this name has
 * left, where requests may still be in flight. */
static uint32_t find(const struct dispatch *c, const char *name, uint32_t slots, bool used)
{
    uint64_t hash = name_hash(name);
    for (uint32_t i = 0; i < slots; i++) {
        if (c->name_hash[i] != hash || c->slot[i].used != used) continue;
        if (strcmp(c->slot[i].ep.name, name) == 0) return i;
    }
    return ROUTE_NONE;
}

uint32_t dispatch_endpoint_find(const struct dispatch *c, const char *name)
{
    return find(c, name, c->slots_end, true);
}

/* Takes a slot for a name that has none. Returns 1 when it is the name's old one, 0 when it is the first
 * free one; -ENOSPC, -ENOMEM. */
static int slot_take(struct dispatch *c, const char *name, uint32_t *ret)
{
    const uint32_t slots = c->config.endpoints_max;
    uint32_t at = find(c, name, slots, false);
    bool left = at != ROUTE_NONE;
    for (at = left ? at : 0; !left && at < slots; at++) {
        /* A slot whose last requests still end is not given to another endpoint. */
        if (!c->slot[at].used && ledger_in_flight(c->ledger, at) == 0) break;
    }
    if (at == slots) return -ENOSPC;
    int rc = prefix_index_widen(c->index, at + 1);
    if (rc < 0) return rc;
    if (!left) c->slot[at] = (struct dispatch_slot){ 0 };
    c->slot[at].used = true;
    c->name_hash[at] = name_hash(name);
    c->slots_end = max_u32(c->slots_end, at + 1);
    c->homes_dealt = false;
    *ret = at;
    return left;
}

int dispatch_endpoint_put(struct dispatch *c, const struct dispatch_endpoint *ep,
                          uint32_t *ret_slot)
{
    uint32_t at = dispatch_endpoint_find(c, ep->name);
    int old = 1; /* the slot was this endpoint's before */
    if (at == ROUTE_NONE) old = slot_take(c, ep->name, &at);
    if (old < 0) return old;
    if (old && c->slot[at].ep.boot != ep->boot) {
        prefix_index_drop_slot(c->index, at);
        load_boot(&c->slot[at].load);
        c->slot[at].believe_us = 0;
        c->slot[at].suspended_until_us = c->slot[at].suspend_us = 0;
    }
    c->slot[at].ep = *ep;
    quarantine_boot(c->quarantine, c->name_hash[at], ep->boot);
    *ret_slot = at;
    return 0;
}

void dispatch_endpoint_remove(struct dispatch *c, uint32_t slot)
{
    must(slot < c->config.endpoints_max);
    if (!c->slot[slot].used) return;
    c->slot[slot].used = false;
    while (c->slots_end > 0 && !c->slot[c->slots_end - 1].used)
        c->slots_end--;
    c->homes_dealt = false;
    prefix_index_drop_slot(c->index, slot);
}

double dispatch_work_rate(const struct dispatch *c, uint64_t model, int64_t now_us)
{
    return load_models_rate(&c->models, model, now_us);
}

/* Returns the step times of an endpoint: its own, or what its streams or another router's have taught. */
bool dispatch_perf_of(const struct dispatch_slot *s, struct perf_coef *ret)
{
    if (s->ep.perf_learned && stream_perf_get(&s->learned, ret)) return true;
    if (s->ep.has_perf) *ret = s->ep.perf;
    return s->ep.has_perf;
}

bool dispatch_learned_perf(const struct dispatch *c, uint32_t slot, struct perf_coef *ret)
{
    must(slot < c->config.endpoints_max);
    const struct dispatch_slot *s = &c->slot[slot];
    return s->used && s->ep.perf_learned && stream_perf_get(&s->learned, ret);
}

void dispatch_endpoint_report(struct dispatch *c, uint32_t slot, const struct reported_load *load,
                              int64_t as_of_us, int64_t now_us)
{
    must(slot < c->config.endpoints_max);
    struct dispatch_slot *s = &c->slot[slot];
    if (!s->used) return;
    struct perf_coef perf;
    uint64_t tokens =
        load_report(&s->load, load, ledger_sums(c->ledger, slot), min_i64(as_of_us, now_us));
    if (tokens == 0 || !dispatch_perf_of(s, &perf)) return;
    load_meter_add(&s->prompts, LOAD_PROMPTS_US, (double)tokens * perf.prefill_token_s, now_us);
    double token_s = perf.prefill_token_s + perf.step_s / (double)max_u32(s->ep.token_budget, 1);
    load_models_add(&c->models, s->ep.model, (double)tokens * token_s, now_us);
}

const struct dispatch_endpoint *dispatch_endpoint_at(const struct dispatch *c, uint32_t slot)
{
    must(slot < c->config.endpoints_max);
    return c->slot[slot].used ? &c->slot[slot].ep : NULL;
}

uint32_t dispatch_in_flight(const struct dispatch *c, uint32_t slot)
{
    return ledger_in_flight(c->ledger, slot);
}

int64_t dispatch_rests_until_us(const struct dispatch *c, uint32_t slot)
{
    must(slot < c->config.endpoints_max);
    return c->slot[slot].suspended_until_us;
}

double dispatch_queued_s(struct dispatch *c, uint32_t slot, int64_t now_us)
{
    const struct dispatch_endpoint *ep = dispatch_endpoint_at(c, slot);
    struct route_instance in = { .has_perf = true };
    if (!ep || !dispatch_perf_of(&c->slot[slot], &in.perf)) return 0;
    in.token_budget = max_u32(ep->token_budget, 1);
    in.seqs_max = max_u32(ep->seqs_max, 1);
    return ledger_queued_s(c->ledger, slot, now_us, &in);
}

/* ---- what replies teach ---- */

void dispatch_expect_blocks(struct dispatch *c, const struct dispatch_request *r, uint32_t slot,
                            int64_t now_us)
{
    const struct dispatch_slot *s = &c->slot[slot];
    int64_t for_us = s->believe_us > 0 ? s->believe_us : BELIEVE_US;
    if (!s->ep.cache_guessed) for_us = EXPECT_US;
    prefix_index_expect(c->index, slot, r->keys, r->key_count, now_us, now_us + for_us);
}

/* Learns from a reply how long blocks may be believed at an endpoint that confirms none. Its prompt is
 * cached there from now on. */
void dispatch_learn_belief(struct dispatch *c, const struct dispatch_request *r, int64_t now_us)
{
    struct dispatch_slot *s = &c->slot[r->slot];
    if (!s->ep.cache_guessed || !s->used || !r->cached_known) return;
    double believed = (double)(s->believe_us > 0 ? s->believe_us : BELIEVE_US);
    if (r->hit_tokens >= c->config.key_tokens) {
        double right = (double)r->cached_tokens / (double)r->hit_tokens;
        believed *= right >= 0.75 ? BELIEVE_MORE : right < 0.5 ? 0.5 : 1;
    }
    s->believe_us = max_i64(min_i64((int64_t)believed, BELIEVE_US_MAX), BELIEVE_US_MIN);
    dispatch_expect_blocks(c, r, r->slot, now_us);
}

static struct stream_moment stream_load_of(struct dispatch *c, uint32_t slot, int64_t now_us)
{
    struct route_instance in = { 0 };
    struct ledger_sums own = ledger_sums(c->ledger, slot);
    ledger_view(c->ledger, slot, 0, now_us, &in);
    load_view(&c->slot[slot].load, own, now_us, &in);
    return (struct stream_moment){ .decoding = in.decoding,
                                   .waiting = in.waiting,
                                   .kv_tokens = in.kv_tokens,
                                   .uncached_total = own.uncached_total };
}

void dispatch_watch_stream(struct dispatch *c, struct dispatch_request *r, uint32_t slot,
                           int64_t now_us)
{
    r->stream = (struct stream_watch){ 0 };
    if (!c->slot[slot].ep.perf_learned) return;
    const struct stream_moment load = stream_load_of(c, slot, now_us);
    stream_watch_sent(&r->stream, &load, now_us);
}

/* Learns step times from new tokens; looks at the load only when it is time for that. */
void dispatch_learn_stream(struct dispatch *c, struct dispatch_request *r, int64_t now_us)
{
    const struct ledger_entry *e = r->entry;
    const struct stream_watch *w = &r->stream;
    if (w->from_us == 0 || (w->tokens > 0 && e->generated - w->tokens < STREAM_GAP_TOKENS)) return;
    const struct stream_moment load = stream_load_of(c, r->slot, now_us);
    stream_watch_tokens(&r->stream, &c->slot[r->slot].learned, e->generated,
                        e->sent.prompt_tokens - e->sent.hit_tokens, e->sent.hit_tokens, &load,
                        now_us);
}
