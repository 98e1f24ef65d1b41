/* setup.h - turns the configuration into the controller's services, pools and offers.
 *
 * Layer: controller
 */
#pragma once
#include "base/core/arena.h"
#include "controller/cloud/cloud_local.h"
#include "controller/cloud/kube/kube_change.h"
#include "controller/cloud/web/web_section.h"
#include "controller/config.h"
#include "controller/control.h"

/* Opens the store that controller.store names and several controllers may share: any but "file". `environment` lives as
 * long as the store. */
int setup_shared_store(const struct controller_config *config, const char *const *environment,
                       struct store **ret, struct err *err);

/* Fills the local cloud's offers; the array lives in `arena`. */
int setup_local(const struct local_section *local, struct arena *arena,
                const struct local_offer **ret, uint32_t *ret_count, double *ret_cores,
                struct err *err);

/* Fills the settings of the Kubernetes driver, with the offers that pools name and nodes may make. The section
 * is there. */
int setup_kube(const struct controller_config *config, struct arena *arena,
               struct kube_settings *ret, struct err *err);

/* Reads the prices of another configuration for the running driver, and the offers of nodes that its pools name
 * besides. */
int setup_kube_change(const struct controller_config *config, const struct cloud *cloud,
                      struct kube_change **ret, struct err *err);

/* Returns true if a pool's provider is `adopted` (cloud_adopted.h), which is opened only then. */
bool setup_adopts(const struct controller_config *config);

/* Fills a service's scaling: policies, their numbers, SLO and budget. -EINVAL names an unknown policy. */
int setup_scaling(const struct service_section *s, struct plan_service *ret, struct err *err);

/* Returns what the breaker before the service's instances allows, in watts; 0 for no limit. Reads the
 * former name too, row_watts. */
double setup_power_limit_watts(const struct service_section *s);

/* Fills setup->service and setup->launch. `offers` are those of all clouds in the order in which
 * control_new will load them. -EINVAL names what does not fit: an unknown policy, provider or
 * offer, a minimum above its maximum. `program` is this program's path. */
int setup_services(const struct controller_config *config, const struct offer *offers,
                   uint32_t offer_count, struct str program, struct arena *arena,
                   struct control_setup *setup, struct err *err);

/* Writes the user data of a machine of each pool and drops it: -E2BIG where a provider does not take as much. `web` has
 * the settings of config->cloud; `setup` is filled by setup_services. */
int setup_user_data(const struct controller_config *config, const struct web_settings *web,
                    const struct control_setup *setup, struct err *err);

/* A policy that a service names: its kind, its key there, and where the name is. */
struct setup_policy {
    const char *kind, *key;
    size_t offset; /* in struct service_section */
};
extern const struct setup_policy setup_engine_policies[];
extern const size_t setup_engine_policy_count;

static inline struct str setup_policy_name(const struct service_section *s,
                                           const struct setup_policy *r)
{
    return *(const struct str *)((const char *)s + r->offset);
}

/* Fills the command line that starts an instance of this pool. -E2BIG beyond LAUNCH_ARGS_MAX. */
int setup_launch(const struct controller_config *config, const struct service_section *s,
                 const struct pool_section *p, struct str program, struct arena *arena,
                 struct control_launch *ret, struct err *err);
