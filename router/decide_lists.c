/* decide_lists.c - takes over the lists that the controller sends: endpoints and tenants. Publishes the snapshot that
 * byte loops read.
 *
 * A list that cannot be used leaves the old one in force.
 */
#include "base/core/own.h"
#include "base/io/log.h"
#include "router/decide.h"
#include "router/sync.h"
#include "router/tenants.h"

#include <stdlib.h>
#include <string.h>

/* ---- endpoints ---- */

void decide_endpoints_begin(struct decide *d)
{
    director_endpoints_begin(d->director);
    d->adapters_next.count = 0;
}

/* Adds an adapter, unless one of this name is there for the service: where two engines give a name to different
 * adapters, the first one's is meant. */
static void adapter_add(struct adapter_list *l, const struct snapshot_adapter *a)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->item[i].service == a->service && strcmp(l->item[i].name, a->name) == 0) return;
    if (l->count < SNAPSHOT_ADAPTERS_MAX) l->item[l->count++] = *a;
}

static void adapters_put(struct decide *d, const struct endpoint *ep, uint64_t service)
{
    for (uint32_t i = 0; ep->state == ENDPOINT_READY && i < ep->adapter_count; i++) {
        const struct wire_adapter *from = &ep->adapters[i];
        struct snapshot_adapter a = { .id = adapter_id(from->digest), .service = service };
        if (from->name.len >= sizeof a.name || from->digest.len >= sizeof a.digest) continue;
        memcpy(a.name, from->name.data, from->name.len);
        memcpy(a.digest, from->digest.data, from->digest.len);
        adapter_add(&d->adapters_next, &a);
    }
}

/* Takes over the new list. One that is not complete adds to the old one. */
static void adapters_end(struct decide *d, bool complete)
{
    for (uint32_t i = 0; !complete && i < d->adapters.count; i++)
        adapter_add(&d->adapters_next, &d->adapters.item[i]);
    const struct adapter_list old = d->adapters;
    d->adapters = d->adapters_next;
    d->adapters_next = old;
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
                            .page_tokens = ep->page_tokens,
                            .task = ep->task };
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
    loop_assert_owner(d->loop);
    struct director_endpoint known;
    struct target target;
    bool usable = target_from_wire(ep, &target) == 0;
    /* Without its tokenizer nothing can be sent to an engine that takes token ids. To another, prompts go
     * as text; with its tokenizer, prefixes in its cache are found. */
    const struct engine_traits *traits = &engine_traits[ep->kind];
    bool told = traits->serves_itself || ep->agent_port > 0;
    bool by_tunnel =
        usable && tunnel_is_host(ep->host); /* of an agent that may not have dialled yet */
    bool joined = !by_tunnel || tunnels_has(d->tunnels, tunnel_name(ep->host));
    if (usable && told) target.bundle = bundles_get(d->bundles, ep, joined);
    bool reachable = joined && (!traits->takes_ids || target.bundle);
    if (!usable ||
        director_endpoint_read(d->director, ep, reachable, loop_now_us(d->loop), &known) < 0) {
        err_set(err, -EINVAL, "endpoint '" STR_FMT "' is not usable", STR_ARG(ep->instance));
        return;
    }
    if (by_tunnel) { /* no other engine reaches it, and it reaches none: it copies no KV */
        known.group = 0;
        known.known.link_bytes_s = 0;
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
    adapters_put(d, ep, known.known.model);
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
    adapters_end(d, complete);
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

/* Without an endpoint a model keeps its last tokenizer, so that a prompt that killed all engines is known again while
 * they start. */
static void keep_bundle(struct decide *d, const struct snapshot *before, struct snapshot *f,
                        struct snapshot_model *m)
{
    for (uint32_t i = 0; i < before->model_count; i++)
        if (before->model[i].service == m->service) m->bundle = before->model[i].bundle;
    bundle_pin(&d->board->pins, &f->pins, m->bundle);
}

void decide_publish(struct decide *d)
{
    loop_assert_owner(d->loop);
    meter_services(d);
    struct snapshot *f = calloc(1, sizeof *f);
    if (!f) return; /* the old snapshot stays: nothing is lost but freshness */
    struct snapshot *before = snapshot_get(d->board);
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
            m->task = ep->target.task;
            break;
        }
        if (!m->bundle) keep_bundle(d, before, f, m);
    }
    if (d->adapters.count > 0) f->adapter = calloc(d->adapters.count, sizeof *f->adapter);
    if (f->adapter) f->adapter_count = d->adapters.count;
    for (uint32_t i = 0; i < f->adapter_count; i++)
        f->adapter[i] = d->adapters.item[i];
    snapshot_unref(d->board, before);
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
