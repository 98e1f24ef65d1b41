/* core_endpoints.c - where the core may send to: endpoints in their slots, what they report, and
 * the work that their models are sent. */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "router/core/core_part.h"

/* Instances are dealt out to the routers in the order of their names' hashes, so that every router
 * that knows the same instances deals alike and each gets its even share. */
void core_deal_homes(struct core *c)
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

/* The slot that an endpoint of this name has left, with whatever it still has in flight. */
static uint32_t find_left(const struct core *c, const char *name)
{
    uint64_t hash = name_hash(name);
    for (uint32_t i = 0; i < c->config.endpoints_max; i++) {
        if (c->name_hash[i] != hash || c->slot[i].used) continue;
        if (strcmp(c->slot[i].ep.name, name) == 0) return i;
    }
    return ROUTE_NONE;
}

/* For a name that has no slot: its old one, else the first that is nobody's. */
static int slot_take(struct core *c, const char *name, uint32_t *ret)
{
    const uint32_t slots = c->config.endpoints_max;
    uint32_t at = find_left(c, name);
    bool left = at != ROUTE_NONE;
    for (at = left ? at : 0; !left && at < slots; at++) {
        /* A slot whose last requests still end is not given to another endpoint. */
        if (!c->slot[at].used && ledger_in_flight(c->ledger, at) == 0) break;
    }
    if (at == slots) return -ENOSPC;
    int rc = prefix_index_widen(c->index, at + 1);
    if (rc < 0) return rc;
    if (!left) c->slot[at] = (struct slot){ 0 };
    c->slot[at].used = true;
    c->name_hash[at] = name_hash(name);
    c->slots_end = max_u32(c->slots_end, at + 1);
    c->homes_dealt = false;
    *ret = at;
    return left;
}

int core_endpoint_put(struct core *c, const struct core_endpoint *ep, uint32_t *ret_slot)
{
    uint32_t at = core_endpoint_find(c, ep->name);
    int old = 1; /* the slot was this endpoint's before */
    if (at == ROUTE_NONE) old = slot_take(c, ep->name, &at);
    if (old < 0) return old;
    if (old && c->slot[at].ep.boot != ep->boot) {
        prefix_index_drop_slot(c->index, at);
        load_boot(&c->slot[at].load);
        c->slot[at].suspended_until_us = c->slot[at].suspend_us = 0;
    }
    c->slot[at].ep = *ep;
    quarantine_boot(c->quarantine, c->name_hash[at], ep->boot);
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

/* The model's place; for a new one beyond CORE_MODELS_MAX that of whom work was sent longest ago. */
static struct model *model_of(struct core *c, uint64_t name)
{
    struct model *stalest = c->model;
    for (uint32_t i = 0; i < c->model_count; i++) {
        struct model *m = &c->model[i];
        if (m->name == name) return m;
        if (m->meter.at_us < stalest->meter.at_us) stalest = m;
    }
    struct model *m = c->model_count < CORE_MODELS_MAX ? &c->model[c->model_count++] : stalest;
    *m = (struct model){ .name = name };
    return m;
}

void core_count_work(struct core *c, uint64_t model, double work_s, int64_t now_us)
{
    if (work_s > 0) load_meter_add(&model_of(c, model)->meter, LOAD_US, work_s, now_us);
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
    core_count_work(c, s->ep.model, (double)tokens * token_s, now_us);
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

struct quarantine *core_quarantine(struct core *c)
{
    return c->quarantine;
}

struct prefix_index *core_index(struct core *c)
{
    return c->index;
}
