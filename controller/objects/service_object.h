/* service_object.h - reads a MusterService, an object of Kubernetes that is a service of muster.yaml.
 *
 * Layer:   controller/objects (base/io/config, base/io/kube)
 * Threads: pure
 * Form:    `spec` has the settings of a service by their names, but for two: `name` may be left out, where it is
 *          the object's own; `replicas`, which the subresource `scale` writes, is no setting but an
 *          order (service_scale)
 */
#pragma once
#include "controller/config.h"
#include "controller/objects/service_list.h"

#define SERVICE_GROUP "muster.dev"
#define SERVICE_VERSION "v1alpha1"
#define SERVICE_KIND "MusterService"

extern const struct kube_resource service_resource;

struct service_object {
    struct kube_meta meta;
    char name[NAME_BYTES]; /* of the service */
    int64_t replicas;      /* -1: none */
    struct buf service;    /* as in a service_entry */
    uint64_t digest;       /* of name, replicas and service */
};

/* Reads an object of the API server. With -EINVAL *ret has its metadata, if that could be read, and no service.
 * Fini in every case. */
int service_object_read(struct str json, struct service_object *ret, struct err *err);
void service_object_fini(struct service_object *o);

/* Checks the object alone, as the configuration's schema says, and that its pools hold spec.replicas. -EINVAL and a
 * sentence with the field's name. */
int service_object_check(const struct config_schema *schema, const struct service_object *o,
                         struct err *err);

/* Returns a digest of the settings of a service, as JSON, that only another instance can have: where two services
 * of one name differ in it, instances of one do not serve the other. */
uint64_t service_object_fixed(struct str service);

/* Rewrites a sentence about the configuration into one about the object: "services[0].max" is spec.max there. */
void service_object_sentence(struct err *err);

/* Shares `replicas` among pools: first each pool's minimum in their order, then up to each pool's maximum.
 * -ERANGE: they hold less. */
int service_scale(int64_t replicas, const uint32_t *min, const uint32_t *max, uint32_t pools,
                  uint32_t *ret, struct err *err);
