/* held_share.c - counts held requests by tenant whenever one is to give way.
 *
 * A walk of a queue of 512 takes some microseconds and is needed only for a newcomer that finds it full;
 * the newcomer's placement takes longer. So no counters have to follow each request in and out. Tenants are
 * found by an open-addressing table with twice as many places as requests are held.
 */
#include "router/core/held_share.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "policies/fair/fair.h"
#include "router/core/dispatch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct held_share {
    struct fair_holding *holding; /* of the tenants that hold, and the newcomer's */
    struct dispatch_request **last;
    uint64_t *tenant;
    uint32_t count;
    uint32_t *place; /* hash of a tenant -> its index plus 1; 0: free */
    uint32_t places; /* a power of two */
};

int held_share_new(uint32_t held_max, struct held_share **ret, struct err *err)
{
    CLEANUP(held_share_freep) struct held_share *h = calloc(1, sizeof *h);
    if (!h) return err_set(err, -ENOMEM, "router: no memory");
    const size_t tenants = (size_t)held_max + 1;
    h->places = 1;
    while (h->places < 2 * tenants)
        h->places *= 2;
    h->holding = calloc(tenants, sizeof *h->holding);
    h->last = calloc(tenants, sizeof *h->last);
    h->tenant = calloc(tenants, sizeof *h->tenant);
    h->place = calloc(h->places, sizeof *h->place);
    if (!h->holding || !h->last || !h->tenant || !h->place) {
        return err_set(err, -ENOMEM, "router: no memory for %u held requests", held_max);
    }
    *ret = TAKE(h);
    return 0;
}

void held_share_free(struct held_share *h)
{
    if (!h) return;
    free(h->holding);
    free(h->last);
    free(h->tenant);
    free(h->place);
    free(h);
}

/* Returns the index of the request's tenant, and adds a new tenant with its weight. */
static uint32_t tenant_of(struct held_share *h, const struct dispatch_request *r)
{
    const uint64_t tenant = r->features.tenant;
    uint32_t at = (uint32_t)hash64(&tenant, sizeof tenant, 0) & (h->places - 1);
    while (h->place[at] && h->tenant[h->place[at] - 1] != tenant)
        at = (at + 1) & (h->places - 1);
    if (h->place[at] == 0) {
        h->tenant[h->count] = tenant;
        h->last[h->count] = NULL;
        h->holding[h->count] = (struct fair_holding){ .weight = r->weight > 0 ? r->weight : 1 };
        h->place[at] = ++h->count;
    }
    return h->place[at] - 1;
}

struct dispatch_request *held_share_displace(struct held_share *h, const struct list *held,
                                             const struct dispatch_request *newcomer)
{
    memset(h->place, 0, h->places * sizeof *h->place);
    h->count = 0;
    const uint32_t own = tenant_of(h, newcomer);
    LIST_EACH (held, node) {
        struct dispatch_request *r = CONTAINER_OF(node, struct dispatch_request, link);
        const uint32_t i = tenant_of(h, r);
        h->holding[i].requests++;
        if (r->generated > 0) continue;
        h->holding[i].gives_way = true;
        h->last[i] = r;
    }
    const uint32_t at = fair_longest_queue(h->holding, h->count, own);
    return at < h->count ? h->last[at] : NULL;
}

int64_t held_oldest_us(const struct list *held, int64_t now_us)
{
    int64_t oldest_us = 0;
    LIST_EACH (held, node) {
        const struct dispatch_request *r = CONTAINER_OF(node, struct dispatch_request, link);
        oldest_us = max_i64(oldest_us, now_us - r->held_us);
    }
    return oldest_us;
}

int64_t held_deadline_us(const struct list *held, int64_t hold_us_max, int64_t now_us)
{
    int64_t deadline_us = INT64_MAX;
    LIST_EACH (held, node) {
        const struct dispatch_request *r = CONTAINER_OF(node, struct dispatch_request, link);
        deadline_us = min_i64(deadline_us, r->held_us + hold_us_max);
        if (r->hold_until_us > now_us) deadline_us = min_i64(deadline_us, r->hold_until_us);
    }
    return deadline_us;
}

void held_report(const struct list *held, uint64_t model, int64_t now_us,
                 struct service_demand *ret)
{
    LIST_EACH (held, node) {
        const struct dispatch_request *r = CONTAINER_OF(node, struct dispatch_request, link);
        if (r->model != model) continue;
        ret->held++;
        ret->held_prompt_tokens += r->prompt_tokens;
        ret->held_oldest_s = fmax(ret->held_oldest_s, (double)(now_us - r->held_us) * 1e-6);
    }
}
