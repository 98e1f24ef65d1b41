/* kube_change.c - keeps prices and offers of a changed configuration until they come into force.
 *
 * Prices are copies in an arena of their own: the driver lives longer than each configuration. The arena of
 * the prices before is freed once nothing refers to it. */
#include "controller/cloud/kube/kube_change.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "controller/cloud/kube/kube_errand.h"

#include <stdlib.h>

struct kube_change {
    struct kube_cloud *cloud;
    struct arena *arena; /* of the prices */
    struct kube_prices prices;
    struct offer offer[KUBE_OFFERS_MAX]; /* that are added, and what they are sold as */
    struct kube_sold *sold;              /* parallel to offer */
    uint32_t count;
};

void kube_change_free(struct kube_change *c)
{
    if (!c) return;
    kube_prices_drop(c->arena);
    free(c->sold);
    free(c);
}

int kube_change_new(const struct cloud *cloud, const struct kube_section *section,
                    struct kube_change **ret, struct err *err)
{
    CLEANUP(kube_change_freep) struct kube_change *c = calloc(1, sizeof *c);
    if (c) c->sold = calloc(KUBE_OFFERS_MAX, sizeof *c->sold);
    if (c) c->arena = calloc(1, sizeof *c->arena);
    if (!c || !c->sold || !c->arena) return err_set(err, -ENOMEM, "no memory for prices of nodes");
    c->cloud = cloud->ctx;
    arena_init(c->arena, KUBE_PRICES_ARENA_BYTES);
    int rc =
        kube_prices_read(&section->prices, section->price_default_h, c->arena, &c->prices, err);
    if (rc < 0) return rc;
    *ret = TAKE(c);
    return 0;
}

int kube_change_discover(struct kube_change *c, struct str name, struct err *err)
{
    const struct kube_settings *s = c->cloud->settings;
    for (uint32_t i = 0; i < c->count; i++)
        if (str_eq(str_from(c->offer[i].name), name)) return 0;
    if (kube_settings_has(s, name)) return 0;
    if (s->sold_count + c->count == KUBE_OFFERS_MAX)
        return err_set(
            err, -E2BIG,
            "kubernetes: more than %d offers since the controller's start; start it again",
            KUBE_OFFERS_MAX);
    int rc = kube_settings_found(s, name, &c->sold[c->count], err);
    if (rc < 0) return rc;
    c->offer[c->count] = c->sold[c->count].offer;
    c->count++;
    return 0;
}

const struct offer *kube_change_offers(const struct kube_change *c, uint32_t *ret_count)
{
    *ret_count = c->count;
    return c->offer;
}

void kube_change_take(struct kube_change *c_owned)
{
    struct kube_change *c = c_owned;
    struct kube_cloud *k = c->cloud;
    struct kube_settings *s = k->settings;
    for (uint32_t i = 0; i < c->count; i++) {
        s->sold[s->sold_count++] = c->sold[i];
        log_event(LOG_INFO, "offer_added", "provider=kubernetes offer=%s", c->offer[i].name);
    }
    k->prices = c->prices;
    if (k->nodes) kube_nodes_reprice(k->nodes, &k->prices);
    struct arena *before = k->prices_arena;
    k->prices_arena = c->arena;
    c->arena = before;
    kube_change_free(c);
}
