/* dispatch_view.c - fills a policy's view for one request: the instances of its model, as the prefix index, the
 * ledger and the engines' reports show them together.
 */
#include "base/core/bits.h"
#include "router/core/dispatch_state.h"

#define PEER_PART 0.5 /* share of a router's recent sends that its own instances get */

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

/* Returns the tokens of the prompt that dispatch_view_fill found in the cache at `slot`, as far as its engine uses
 * them. */
uint32_t dispatch_hit_of(const struct dispatch *c, uint32_t slot)
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
        .hit_tokens = dispatch_hit_of(c, slot),
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

void dispatch_view_fill(struct dispatch *c, const struct dispatch_request *r, bool handed_over,
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
