/* kube_nodes.h - keeps the cluster's nodes and turns groups of like ones into offers.
 *
 * Layer:   controller/cloud/kube (base/io/kube)
 * Threads: the controller's loop; makes no call. kube_view's watch of nodes feeds it
 * Names:   an offer of nodes is called PRODUCT[-xN][-spot]: the product's label as a slug (nvidia-l4), N devices
 *          for an instance (1 unless said), on nodes that are labelled as spot. Nodes without devices make
 *          cpu-MACHINE where kubernetes.cpu_per_instance says how many cores an instance gets
 *          Slices of MIG are called PRODUCT-mig-PROFILE (nvidia-h100-80gb-hbm3-mig-1g-10gb)
 * Prices:  are those of nodes, from the first row of kubernetes.prices whose labels a node has; an instance costs
 *          its share of the devices, or of the cores. A node with several kinds of devices is shared by their
 *          memory. A row for the device goes before one for the node. Where nodes of one offer cost unlike, the
 *          dearest counts, so that no budget is overrun
 * Rules:   (1) an offer that nodes once made stays one when they are gone: a pending Pod may bring them back
 *          (2) room is what usable nodes hold. Pods of others are not known and not subtracted
 *          (3) where nodes make one offer by unlike resources or labels (slices by both of NVIDIA's strategies),
 *              those of the first one's kind count
 * Bounds:  KUBE_NODES_MAX nodes; further ones make no offer, and are logged once
 */
#pragma once
#include "base/io/kube/kube_watch.h"
#include "controller/cloud/kube/kube_node.h"
#include "controller/cloud/kube/kube_price.h"

#define KUBE_NODES_MAX 4096
#define KUBE_LABELS_BYTES_MAX 65536 /* of a node, as JSON; one with more has no price */
#define KUBE_DEVICES_MAX 64         /* of an instance */
#define KUBE_DRA "dra-" /* offers of devices that are claimed are called so; see kube_slices.h */
#define KUBE_SELECTOR_BYTES 640

struct kube_nodes_config {
    const struct kube_prices *prices; /* until the next kube_nodes_reprice */
    double cores;        /* of an instance on nodes without devices; 0: such nodes make no offers */
    bool tell_new;       /* log each offer that nodes have not made before */
    struct str template; /* a Pod whose tolerations count; empty: none */
};

/* An offer that nodes make; texts lie in the struct. */
struct kube_found {
    char base[NAME_BYTES]; /* of the offer's name: the product's slug */
    uint32_t units;        /* devices, or shares of cores, of an instance */
    bool spot;

    bool known;                       /* a node made it once: what follows is set */
    uint32_t nodes, room;             /* usable nodes now, and instances that they hold */
    char device[KUBE_RESOURCE_BYTES]; /* empty: cores and memory */
    char label[KUBE_RESOURCE_BYTES];  /* that its nodes have; empty: none */
    char value[KUBE_LABEL_BYTES];
    char hardware[NAME_BYTES];        /* for people: product and memory of a device */
    char count[16];                   /* of devices, or of cores */
    char driver[KUBE_RESOURCE_BYTES]; /* of devices that are claimed; empty: none are */
    char class[KUBE_NAME_BYTES];      /* their DeviceClass, and the expression that chooses */
    char selector[KUBE_SELECTOR_BYTES];
    char memory[24]; /* Mi; empty: not asked for */
    const struct kube_pair *spot_label;
    bool price_known;
    double price_h; /* of an instance */

    bool grows;     /* an autoscaler may add nodes for it, as far as its NodePools say */
    char full[160]; /* why one of them does not; empty: it does, or there is none */
};

struct kube_nodes;

struct kube_nodes *kube_nodes_new(const struct kube_nodes_config *config);
void kube_nodes_free(struct kube_nodes *n);

/* Takes an event of the watch. Returns true if offers may have changed. */
bool kube_nodes_take(struct kube_nodes *n, const struct kube_event *e);
bool kube_nodes_synced(const struct kube_nodes *n); /* a whole list was taken */

/* Takes other prices. */
void kube_nodes_reprice(struct kube_nodes *n, const struct kube_prices *prices);

/* Returns when the node was made, by the API server's clock; 0: it is not known. */
int64_t kube_nodes_created(const struct kube_nodes *n, const char *node);

/* Describes a node to devices that something else than the node reports. */
struct kube_site {
    bool usable; /* Pods that tolerate taints of devices may run there */
    const struct kube_pair *spot;
    double price_h, device_price_h; /* of the node, and of one such device; below 0: no row says */
};

/* Looks up a node; false: it is not known. *at is where it was found last, for the next time. */
bool kube_nodes_site(const struct kube_nodes *n, const char *node, struct str device, uint32_t *at,
                     struct kube_site *ret);

/* Returns the price of a device, or with an empty `device` of the node, with these labels (JSON); below 0: no row
 * says. */
double kube_nodes_price(const struct kube_nodes *n, struct str labels, struct str device,
                        bool spot);

/* Counts nodes with the offer's label and devices, whichever offers they make; also for its price. */
void kube_nodes_count(const struct kube_nodes *n, struct kube_found *f);

static inline bool kube_found_is_claimed(const struct kube_found *f)
{
    return strncmp(f->base, KUBE_DRA, sizeof KUBE_DRA - 1) == 0;
}

/* Splits an offer's name. -EINVAL: it is none, or wants more than KUBE_DEVICES_MAX devices, or several slices,
 * of which a process of CUDA sees one. */
int kube_found_name(struct str name, struct kube_found *ret);

/* Brings what nodes make of this offer up to date. */
void kube_nodes_fill(const struct kube_nodes *n, struct kube_found *f);

/* Appends the names of the offers that nodes make now, with ", " between. */
void kube_nodes_names(const struct kube_nodes *n, char *ret, size_t bytes);

/* Appends one name, unless it is there. False: it does not fit, and the list ends. */
bool kube_names_put(char *ret, size_t bytes, const char *base, bool spot);
