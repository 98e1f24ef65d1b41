/* services.c - finds the router's services by name or by its hash, and applies the controller's rules. */
#include "router/core/services.h"

#include "base/core/hash.h"

#include <stdlib.h>
#include <string.h>

int services_new(struct services *s)
{
    s->item = calloc(SYNC_SERVICES_MAX, sizeof *s->item);
    s->count = 0;
    return s->item ? 0 : -ENOMEM;
}

void services_fini(struct services *s)
{
    free(s->item);
    *s = (struct services){ 0 };
}

struct router_service *services_by_hash(struct services *s, uint64_t hash)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->item[i].hash == hash) return &s->item[i];
    }
    return NULL;
}

struct router_service *services_get(struct services *s, struct str name)
{
    uint64_t hash = hash64(name.data, name.len, 0);
    struct router_service *known = services_by_hash(s, hash);
    if (known) return known;
    if (s->count == SYNC_SERVICES_MAX || name.len == 0 || name.len >= SERVICE_NAME_MAX) return NULL;
    struct router_service *made = &s->item[s->count++];
    *made = (struct router_service){ .hash = hash };
    memcpy(made->name, name.data, name.len);
    return made;
}

void services_remove(struct services *s, uint32_t at)
{
    must(at < s->count);
    s->item[at] = s->item[--s->count];
}

/* Returns when the first of the service's instances that start is expected, or else one that were asked for now. */
static double eta_of(const struct router_rules *rules, const struct service_rules *r)
{
    uint32_t ms = 0;
    for (uint32_t i = 0; i < rules->starting_count; i++) {
        const struct starting *st = &rules->starting[i];
        if (str_eq(st->service, r->service) && (ms == 0 || st->eta_ms < ms)) ms = st->eta_ms;
    }
    return (double)(ms > 0 ? ms : r->wake_ms) * 1e-3;
}

void services_rules(struct services *s, const struct router_rules *rules,
                    const struct service_defaults *open)
{
    for (uint32_t i = 0; i < s->count; i++) {
        s->item[i].from_controller = false;
        s->item[i].may_start = s->item[i].paused = false;
        s->item[i].has_kv_link = s->item[i].refuse_late = false;
        s->item[i].eta_s = 0;
    }
    for (uint32_t i = 0; i < rules->service_count; i++) {
        const struct service_rules *r = &rules->services[i];
        struct router_service *one = services_get(s, r->service);
        if (!one) continue;
        one->from_controller = true;
        one->paused = r->paused;
        one->may_start = r->may_start;
        one->has_kv_link = r->has_kv_link;
        one->kv_link_bytes_s = r->kv_link_bytes_s;
        one->refuse_late = r->refuse_late;
        one->slo_ttft_s = r->slo_ttft_s > 0 ? r->slo_ttft_s : open->slo_ttft_s;
        one->slo_tpot_s = r->slo_tpot_s > 0 ? r->slo_tpot_s : open->slo_tpot_s;
        one->eta_s = eta_of(rules, r);
    }
}

double service_link(const struct router_service *s, const struct service_defaults *open)
{
    return s->has_kv_link ? s->kv_link_bytes_s : open->kv_link_bytes_s;
}
