/* kube_change.h - takes other prices and further offers of nodes into the running driver.
 *
 * Layer:   controller/cloud/kube
 * Threads: the controller's loop
 * Rules:   (1) in two steps, as a configuration is changed: what new and discover prepare changes nothing, and
 *              take cannot fail
 *          (2) prices replace those before. Offers are added, never taken away: others know an offer by its
 *              place in the list. One that no pool names any more keeps its place until the controller's start
 * Bounds:  KUBE_OFFERS_MAX offers in all
 */
#pragma once
#include "controller/cloud/kube/kube_section.h"

struct kube_change;

/* Reads the prices of a section. `cloud` is one of kube_cloud_open. -EINVAL names a row that is wrong. */
int kube_change_new(const struct cloud *cloud, const struct kube_section *section,
                    struct kube_change **ret, struct err *err);
void kube_change_free(struct kube_change *c); /* of one that is not taken */
CLEANUP_FREEP(kube_change, struct kube_change)

/* Adds the offer that nodes make under this name, unless it is there; see kube_settings_discover. */
int kube_change_discover(struct kube_change *c, struct str name, struct err *err);

/* Returns the offers that were added, until it is taken or freed. */
const struct offer *kube_change_offers(const struct kube_change *c, uint32_t *ret_count);

void kube_change_take(struct kube_change *c_owned);
