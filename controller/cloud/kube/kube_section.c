/* kube_section.c - declares the settings of the Kubernetes driver and checks what needs two of them or a file. */
#include "controller/cloud/kube/kube_section.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/config/config_tree.h"
#include "base/io/file.h"
#include "controller/cloud/offer_rows.h"

#include <string.h>

#define IN(type, member) .offset = offsetof(struct type, member)
#define LIVE(type, member) .reloadable = true, IN(type, member) /* see kube_change.h */
#define NAME .min = 1, .max = NAME_BYTES - 1
#define TEMPLATE_ARENA_BYTES (8 * KUBE_POD_BYTES_MAX)
#define FOUND_LEAD_S 120 /* of an offer that nodes make, until it is learned */

static const char *const kube_pull_names[] = { "default", "always", "if_not_present", "never",
                                               NULL };
static const char *const pull_policies[] = { "", "Always", "IfNotPresent", "Never" };

// clang-format off
static const struct config_field offer_rows[] = {
    { .name = "name", .type = CONFIG_TEXT, .required = true, NAME, IN(kube_offer_section, name),
      .about = "Name of the offer." },
    { .name = "from_nodes", .type = CONFIG_TEXT, .default_text = "", .max = NAME_BYTES - 1,
      IN(kube_offer_section, from_nodes),
      .about = "Take devices, labels, spot and price from the nodes that make this offer, "
               "PRODUCT[-xN][-spot]; `resources` and `node_labels` come on top. Needs the right to list nodes." },
    { .name = "workload", .type = CONFIG_TEXT, .default_text = "", .max = 300,
      IN(kube_offer_section, workload),
      .about = "Take Pods of a workload of yours, deployment/NAME, statefulset/NAME or leaderworkerset/NAME, "
               "and set its replicas, in place of Pods of our own (docs/kubernetes.md). Its template says the rest." },
    { .name = "resources", .type = CONFIG_TEXTS, .min = 0, .max = KUBE_PAIRS_MAX,
      IN(kube_offer_section, resources),
      .about = "Resources of an instance, as limits and as requests: cpu=4, memory=16Gi, nvidia.com/gpu=1. "
               "A taint with a device's name is tolerated." },
    { .name = "node_labels", .type = CONFIG_TEXTS, .min = 0, .max = KUBE_PAIRS_MAX,
      IN(kube_offer_section, node_labels),
      .about = "Labels that its nodes have: nvidia.com/gpu.product=NVIDIA-L4." },
    { .name = "pod", .type = CONFIG_TEXT, .default_text = "", IN(kube_offer_section, pod),
      .about = "File with a Pod, in YAML or JSON, whose fields its instances get; empty: "
               "`kubernetes.pod`." },
    { .name = "price_per_hour", .type = CONFIG_FLOAT, .default_text = "-1", .min = -1, .max = 1e4,
      .unit = "dollars", IN(kube_offer_section, price_h),
      .about = "What an instance costs: the node's price, or its share of it. Below 0: what "
               "`from_nodes` says; without that it is required." },
    { .name = "zone", .type = CONFIG_TEXT, .default_text = "", .max = NAME_BYTES - 1,
      IN(kube_offer_section, zone), .about = "Zone of the offer; losses of one zone come together." },
    { .name = "spot", .type = CONFIG_BOOL, .default_text = "false", IN(kube_offer_section, spot),
      .about = "Its nodes may be taken away." },
    { .name = "lead", .type = CONFIG_DURATION, .default_text = "2m", .min = 0, .max = 36e8,
      IN(kube_offer_section, lead_us),
      .about = "First guess of the time from the order to readiness, new node, image and model included; "
               "learned from launches." },
    { .name = "standby", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 64, .unit = "Pods",
      IN(kube_offer_section, standby),
      .about = "Pods that hold places for its instances and give way to them; see `standby_class`." },
    OFFER_PRIOR_ROWS(struct kube_offer_section),
};
static const struct config_record offer_record =
    CONFIG_LIST_OF(struct kube_offer_section, offer_rows, "name");

static const struct config_field price_rows[] = {
    { .name = "labels", .type = CONFIG_TEXTS, .required = true, .min = 1, .max = KUBE_PAIRS_MAX,
      LIVE(kube_price_section, labels),
      .about = "Labels that the nodes have: node.kubernetes.io/instance-type=g6.48xlarge." },
    { .name = "device", .type = CONFIG_TEXT, .default_text = "", .max = KUBE_RESOURCE_BYTES - 1,
      LIVE(kube_price_section, device),
      .about = "Resource of which the prices are for one: nvidia.com/mig-1g.10gb; empty: they are for the whole "
               "node." },
    { .name = "price_per_hour", .type = CONFIG_FLOAT, .default_text = "-1", .min = -1, .max = 1e5,
      .unit = "dollars", LIVE(kube_price_section, price_h),
      .about = "Price of a whole node, or of one `device`, on demand; below 0: not known." },
    { .name = "spot_price_per_hour", .type = CONFIG_FLOAT, .default_text = "-1", .min = -1, .max = 1e5,
      .unit = "dollars", LIVE(kube_price_section, spot_price_h),
      .about = "The same where the node's labels say that it is spot; below 0: not known." },
};
static const struct config_record price_record =
    CONFIG_LIST_OF(struct kube_price_section, price_rows, NULL);

static const struct config_field rows[] = {
    { .name = "kubeconfig", .type = CONFIG_TEXT, .default_text = "", IN(kube_section, kubeconfig),
      .about = "Path of a kubeconfig; empty: KUBECONFIG, the Pod's service account, or ~/.kube/config." },
    { .name = "context", .type = CONFIG_TEXT, .default_text = "", IN(kube_section, context),
      .about = "Context of the kubeconfig; empty: its current one." },
    { .name = "namespace", .type = CONFIG_TEXT, .default_text = "", .max = 63,
      IN(kube_section, namespace),
      .about = "Namespace of the instances' Pods; empty: the context's or the controller's own." },
    { .name = "fleet", .type = CONFIG_TEXT, .default_text = "muster", .min = 1, .max = 63,
      IN(kube_section, fleet),
      .about = "Label that tells this fleet's Pods from those of others in the namespace." },
    { .name = "image", .type = CONFIG_TEXT, .default_text = "", IN(kube_section, image),
      .about = "Image of the instances' container, where the template names none." },
    { .name = "image_pull", .type = CONFIG_ENUM, .default_text = "default", .names = kube_pull_names,
      IN(kube_section, pull), .about = "Its imagePullPolicy." },
    { .name = "pod", .type = CONFIG_TEXT, .default_text = "", IN(kube_section, pod),
      .about = "File with a Pod, in YAML or JSON, whose fields instances get: volumes, tolerations, "
               "security context, sidecars. The container `muster`, else the first, gets the agent." },
    { .name = "owner", .type = CONFIG_TEXT, .default_text = "", IN(kube_section, owner),
      .about = "The object that the Pods belong to and go with: deployments/NAME or statefulsets/NAME." },
    { .name = "priority_class", .type = CONFIG_TEXT, .default_text = "", .max = 253,
      IN(kube_section, priority_class), .about = "PriorityClass of the Pods; empty: the template's." },
    { .name = "standby_class", .type = CONFIG_TEXT, .default_text = "", .max = 253,
      IN(kube_section, standby_class),
      .about = "PriorityClass of standby Pods, below that of instances, so that the scheduler takes their "
               "places for one; needed where an offer has `standby`." },
    { .name = "standby_image", .type = CONFIG_TEXT, .default_text = "registry.k8s.io/pause:3.10",
      IN(kube_section, standby_image), .about = "Image of standby Pods: a program that does nothing." },
    { .name = "wait", .type = CONFIG_DURATION, .default_text = "2m", .min = 1e6, .max = 864e8,
      IN(kube_section, wait_us),
      .about = "A Pod that no node takes for so long means that its offer is sold out. Longer than an "
               "autoscaler needs for a node, where there is one." },
    { .name = "image_wait", .type = CONFIG_DURATION, .default_text = "1m", .min = 1e6, .max = 864e8,
      IN(kube_section, image_wait_us),
      .about = "A Pod whose image or container cannot be had for so long is given up." },
    { .name = "watch_nodes", .type = CONFIG_BOOL, .default_text = "true",
      IN(kube_section, watch_nodes),
      .about = "Watch nodes for notices of their end (taints of clouds and of autoscalers); needs the "
               "right to list nodes." },
    { .name = "services", .type = CONFIG_BOOL, .default_text = "false", IN(kube_section, services),
      .about = "Take services also from the MusterService objects of `namespace`, and write their status "
               "there; needs their definition and rights (docs/kubernetes.md)." },
    { .name = "poll", .type = CONFIG_DURATION, .default_text = "1s", .min = 1e5, .max = 36e8,
      IN(kube_section, poll_us),
      .about = "How often the controller looks at the watched Pods; it costs no call." },
    { .name = "calls_per_s", .type = CONFIG_FLOAT, .default_text = "20", .min = 0.1, .max = 1e4,
      .unit = "calls/s", IN(kube_section, calls_per_s), .about = "Budget of calls to the API server." },
    { .name = "discover", .type = CONFIG_BOOL, .default_text = "false", IN(kube_section, discover),
      .about = "Make offers of the nodes' allocatable devices and labels, besides those below: a pool "
               "names them PRODUCT[-xN][-spot]. Needs the right to list nodes." },
    { .name = "device_classes", .type = CONFIG_TEXTS, .min = 0, .max = KUBE_PAIRS_MAX,
      IN(kube_section, classes),
      .about = "DeviceClasses that claims name, DRIVER=CLASS; of other drivers the class is called as the driver, "
               "and that of slices of gpu.nvidia.com mig.nvidia.com." },
    { .name = "cpu_per_instance", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1024,
      .unit = "cores", IN(kube_section, cores),
      .about = "Cores of an instance on nodes without devices, with their share of the memory; 0: such "
               "nodes make no offers. A pool names them cpu-MACHINE[-xN][-spot]." },
    { .name = "prices", .type = CONFIG_RECORDS, .min = 0, .max = KUBE_PRICES_MAX,
      .record = &price_record, LIVE(kube_section, prices),
      .about = "What nodes cost, by their labels; the first row that fits counts, one for its device before one "
               "for the node. An instance of an offer that nodes make costs its share of the node." },
    { .name = "price_default", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e4,
      .unit = "dollars", LIVE(kube_section, price_default_h),
      .about = "Price an hour of an instance whose nodes have no row in `prices`; 0: none, and the offer "
               "is refused until it has a row." },
    { .name = "offers", .type = CONFIG_RECORDS, .min = 0, .max = KUBE_OFFERS_MAX,
      .record = &offer_record, IN(kube_section, offers),
      .about = "What the cluster's nodes sell." },
};
// clang-format on

static const struct config_record record = CONFIG_RECORD_OF(struct kube_section, rows);

const struct config_section kube_section = {
    .name = "kubernetes",
    .about = "A Kubernetes cluster as a cloud: an instance is a Pod.",
    .record = &record,
};

/* ---- settings ---- */

/* Reads a template and writes one Pod with it, so that a bad one is known at the start. */
static int read_template(struct str path, struct arena *arena, struct str *ret, struct err *err)
{
    CLEANUP(arena_fini) struct arena tree_arena;
    CLEANUP(buf_fini) struct buf text = { 0 }, json = { .max = KUBE_POD_BYTES_MAX }, pod = { 0 };
    struct config_node *tree = NULL;
    arena_init(&tree_arena, TEMPLATE_ARENA_BYTES);
    int rc = file_read(path.data, KUBE_POD_BYTES_MAX, &text, err);
    if (rc == 0) rc = config_tree_parse(buf_view(&text), path.data, &tree_arena, &tree, err);
    if (rc < 0) return rc;
    if (!tree) return err_set(err, -EINVAL, "%s: there is no Pod in it", path.data);
    config_tree_json(tree, &json);
    static const struct str args[] = { { "muster", 6 } };
    const struct launch_spec spec = { .engine_args = args, .engine_arg_count = 1 };
    const struct cloud_request request = { .intent = "i-0", .spec = &spec };
    const struct kube_pod_ask ask = { .template = buf_view(&json), .request = &request };
    rc = json.rc < 0 ? err_set(err, json.rc, "it is too large") : kube_pod_write(&ask, &pod, err);
    if (rc < 0) return err_prefix(err, rc, "%s", path.data);
    *ret = arena_str(arena, buf_view(&json));
    return ret->data ? 0 : err_set(err, -ENOMEM, "no memory for the template of a Pod");
}

/* Sets what an offer takes from its nodes, and refuses one that has no price at all. */
static int make_found(const struct kube_offer_section *from, struct arena *arena,
                      struct kube_sold *ret, struct err *err)
{
    struct kube_found found;
    const char *name = ret->offer.name;
    if (from->from_nodes.len == 0)
        return from->price_h >= 0
                   ? 0
                   : err_set(err, -EINVAL,
                             "kubernetes offer %s: no price; give price_per_hour, or "
                             "from_nodes and kubernetes.prices",
                             name);
    if (kube_found_name(from->from_nodes, &found) < 0)
        return err_set(err, -EINVAL,
                       "kubernetes offer %s: from_nodes: '" STR_FMT
                       "': want PRODUCT[-xN][-spot] in lower case, N at most %d",
                       name, STR_ARG(from->from_nodes), KUBE_DEVICES_MAX);
    if (from->spot && !found.spot)
        return err_set(err, -EINVAL,
                       "kubernetes offer %s: spot: from_nodes says it: name " STR_FMT "-spot", name,
                       STR_ARG(from->from_nodes));
    ret->found = arena_array(arena, 1, sizeof *ret->found);
    if (!ret->found) return err_set(err, -ENOMEM, "no memory for offers of Kubernetes");
    *ret->found = found;
    ret->price_given = from->price_h >= 0;
    ret->offer.spot = found.spot;
    ret->offer.price_known = ret->price_given;
    return 0;
}

/* Sets the workload of an offer. What its template says cannot be said once more. */
static int make_workload(const struct kube_offer_section *from, struct kube_sold *ret,
                         struct err *err)
{
    struct str name = from->workload, kind = str_cut(&name, '/');
    if (from->workload.len == 0) return 0;
    ret->workload = kube_workload_kind_of(kind);
    ret->workload_name = name;
    if (!ret->workload || name.len == 0)
        return err_set(err, -EINVAL,
                       "kubernetes offer %s: workload: '" STR_FMT
                       "': want KIND/NAME, of the kind " KUBE_WORKLOAD_KINDS,
                       ret->offer.name, STR_ARG(from->workload));
    if (from->from_nodes.len > 0 || from->pod.len > 0 || from->resources.count > 0 ||
        from->node_labels.count > 0)
        return err_set(err, -EINVAL,
                       "kubernetes offer %s: from_nodes, pod, resources and node_labels are the "
                       "workload's own: leave them out",
                       ret->offer.name);
    return 0;
}

static int check_standby(const struct kube_section *s, const struct kube_offer_section *from,
                         struct kube_sold *ret, struct err *err)
{
    ret->standby = (uint32_t)from->standby;
    if (from->standby == 0) return 0;
    if (ret->workload)
        return err_set(
            err, -EINVAL,
            "kubernetes offer %s: standby: the places of a workload are its replicas; leave "
            "it out",
            ret->offer.name);
    if (s->standby_class.len > 0) return 0;
    return err_set(
        err, -EINVAL,
        "kubernetes offer %s: standby needs kubernetes.standby_class, a PriorityClass below "
        "that of instances",
        ret->offer.name);
}

static int make_sold(const struct kube_section *s, const struct kube_offer_section *from,
                     struct arena *arena, struct kube_sold *ret, struct err *err)
{
    const double perf[] = { from->perf_step_s, from->perf_prefill_s, from->perf_decode_s,
                            from->perf_read_s };
    struct offer *o = &ret->offer;
    *o = (struct offer){ .price_h = from->price_h,
                         .price_known = true,
                         .spot = from->spot,
                         .lead_s = (double)from->lead_us / 1e6,
                         .seqs_max = (uint32_t)from->max_num_seqs,
                         .has_prior = perf[0] > 0 || perf[1] > 0 || perf[2] > 0 || perf[3] > 0,
                         .prior = { .step_s = perf[0],
                                    .prefill_token_s = perf[1],
                                    .decode_seq_s = perf[2],
                                    .kv_read_s = perf[3] } };
    must(name_copy(o->name, sizeof o->name, from->name) == 0); /* the schema bounds it */
    must(name_copy(o->zone, sizeof o->zone, from->zone) == 0);
    must(name_copy(o->provider, sizeof o->provider, STR("kubernetes")) == 0);
    int rc =
        kube_pairs_read(&from->resources, "resources", ret->resource, &ret->resource_count, err);
    if (rc == 0)
        rc = kube_pairs_read(&from->node_labels, "node_labels", ret->node_label,
                             &ret->node_label_count, err);
    if (rc < 0) return err_prefix(err, rc, "kubernetes offer %s", o->name);
    rc = make_found(from, arena, ret, err);
    if (rc == 0) rc = make_workload(from, ret, err);
    if (rc == 0) rc = check_standby(s, from, ret, err);
    if (rc < 0 || ret->workload) return rc;
    struct str path = from->pod.len > 0 ? from->pod : s->pod;
    if (rc == 0 && path.len > 0) rc = read_template(path, arena, &ret->template, err);
    if (rc < 0 || ret->template.len > 0 || s->image.len > 0) return rc;
    return err_set(err, -EINVAL,
                   "kubernetes offer %s: no image; name kubernetes.image, or a pod with one",
                   o->name);
}

bool kube_settings_has(const struct kube_settings *settings, struct str name)
{
    for (uint32_t i = 0; i < settings->sold_count; i++)
        if (str_eq(str_from(settings->sold[i].offer.name), name)) return true;
    return false;
}

int kube_settings_found(const struct kube_settings *settings, struct str name,
                        struct kube_sold *ret, struct err *err)
{
    struct kube_found found;
    if (!settings->section->discover || kube_found_name(name, &found) < 0) return -EINVAL;
    struct kube_sold sold = { .template = settings->template,
                              .found = arena_array(settings->arena, 1, sizeof *sold.found) };
    if (!sold.found) return err_set(err, -ENOMEM, "no memory for offers of Kubernetes");
    *sold.found = found;
    sold.offer.spot = found.spot;
    sold.offer.lead_s = FOUND_LEAD_S;
    must(name_copy(sold.offer.name, sizeof sold.offer.name, name) == 0); /* as its base */
    must(name_copy(sold.offer.provider, sizeof sold.offer.provider, STR("kubernetes")) == 0);
    *ret = sold;
    return 0;
}

int kube_settings_discover(struct kube_settings *settings, struct str name, struct err *err)
{
    if (kube_settings_has(settings, name)) return 0;
    if (settings->sold_count == KUBE_OFFERS_MAX)
        return err_set(err, -E2BIG, "kubernetes: more than %d offers", KUBE_OFFERS_MAX);
    int rc = kube_settings_found(settings, name, &settings->sold[settings->sold_count], err);
    if (rc == 0) settings->sold_count++;
    return rc;
}

static int split_owner(struct str owner, struct kube_settings *ret, struct err *err)
{
    struct str name = owner, kind = str_cut(&name, '/');
    if (owner.len == 0) return 0;
    bool known = str_eq(kind, STR("deployments")) || str_eq(kind, STR("statefulsets"));
    if (!known || name.len == 0)
        return err_set(err, -EINVAL,
                       "kubernetes.owner: '" STR_FMT
                       "': want deployments/NAME or statefulsets/NAME",
                       STR_ARG(owner));
    ret->owner_resource = kind;
    ret->owner_name = name;
    return 0;
}

/* Refuses a second offer of one workload: its replicas would be set by two. */
static int check_workload(const struct kube_settings *s, uint32_t at, struct err *err)
{
    const struct kube_sold *one = &s->sold[at];
    for (uint32_t i = 0; i < at && one->workload; i++)
        if (s->sold[i].workload == one->workload &&
            str_eq(s->sold[i].workload_name, one->workload_name))
            return err_set(err, -EINVAL, "kubernetes offers %s and %s have the same workload",
                           s->sold[i].offer.name, one->offer.name);
    return 0;
}

int kube_settings_make(const struct kube_section *section, struct arena *arena,
                       struct kube_settings *ret, struct err *err)
{
    const struct kube_offer_section *from = section->offers.items;
    struct kube_settings s = { .section = section,
                               .arena = arena,
                               .sold_count = (uint32_t)section->offers.count,
                               .pull_policy = str_from(pull_policies[section->pull]) };
    s.sold = arena_array(arena, KUBE_OFFERS_MAX, sizeof *s.sold);
    if (!s.sold) return err_set(err, -ENOMEM, "no memory for offers of Kubernetes");
    int rc = split_owner(section->owner, &s, err);
    if (rc == 0)
        rc = kube_pairs_read(&section->classes, "kubernetes.device_classes", s.class,
                             &s.class_count, err);
    if (rc == 0)
        rc = kube_prices_read(&section->prices, section->price_default_h, arena, &s.prices, err);
    if (rc == 0 && section->discover && section->pod.len > 0)
        rc = read_template(section->pod, arena, &s.template, err);
    if (rc == 0 && section->discover && section->pod.len == 0 && section->image.len == 0)
        rc = err_set(err, -EINVAL,
                     "kubernetes.discover: no image; name kubernetes.image, or a pod with one");
    for (uint32_t i = 0; i < s.sold_count && rc == 0; i++)
        rc = make_sold(section, &from[i], arena, &s.sold[i], err);
    for (uint32_t i = 0; i < s.sold_count && rc == 0; i++)
        rc = check_workload(&s, i, err);
    uint32_t standby = 0;
    for (uint32_t i = 0; i < s.sold_count; i++)
        standby += s.sold[i].standby;
    if (rc == 0 && standby > 256)
        rc = err_set(err, -E2BIG, "kubernetes: %u standby Pods in all; 256 at most", standby);
    if (rc == 0) *ret = s;
    return rc;
}
