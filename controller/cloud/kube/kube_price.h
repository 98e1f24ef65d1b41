/* kube_price.h - says what nodes cost: rows of the configuration, found by the labels of a node.
 *
 * Layer:    controller/cloud/kube (base/io/config)
 * Threads:  pure
 * Lifetime: rows and their texts are copies in the caller's arena, because a configuration is replaced
 *           while the driver lives on
 */
#pragma once
#include "base/core/arena.h"
#include "base/io/config/config.h"
#include "controller/cloud/kube/kube_pod.h"

#define KUBE_PRICES_MAX 256
#define KUBE_PAIRS_MAX 16 /* labels of a row; resources, or node labels, of an offer */
#define KUBE_PRICES_ARENA_BYTES ((size_t)4 << 20)

struct kube_price_section {
    struct config_texts labels; /* name=value */
    struct str device;
    double price_h, spot_price_h;
};

/* Prices nodes with these labels. */
struct kube_price {
    const struct kube_pair *label;
    uint32_t label_count;
    struct str device;            /* a resource: one of it is priced; empty: the whole node is */
    double price_h, spot_price_h; /* below 0: not said */
};

struct kube_prices {
    const struct kube_price *row;
    uint32_t count;
    double default_h; /* of an instance that no row prices; 0: none */
};

/* Splits NAME=VALUE texts; the pairs borrow from them. -EINVAL names the text, and `where` it is. */
int kube_pairs_read(const struct config_texts *from, const char *where, struct kube_pair *ret,
                    uint32_t *ret_count, struct err *err);

/* Copies the rows of kubernetes.prices (struct kube_price_section). -EINVAL names a row without a price. */
int kube_prices_read(const struct config_records *rows, double default_h, struct arena *arena,
                     struct kube_prices *ret, struct err *err);

/* Returns true if a JSON object of labels has this one. */
bool kube_labels_have(struct str labels, const struct kube_pair *pair);

/* Frees an arena from the heap that prices were read into; NULL is fine. */
void kube_prices_drop(struct arena *arena);

/* Returns the price of one device on nodes with these labels, a JSON object, from the first row of that device
 * that fits; of the whole node where `device` is empty. Below 0: no row says. */
double kube_prices_find(const struct kube_prices *p, struct str labels, struct str device,
                        bool spot);
