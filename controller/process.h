/* process.h - holds what the controller's process is made of: opened by process_open.c, configured by in_force.c,
 * run by controller.c.
 *
 * Layer:   controller, private to these three
 * Threads: the loop's; threads of clouds read the fence
 */
#pragma once
#include "base/io/auth/credentials.h"
#include "base/io/net/addr.h"
#include "base/io/notify.h"
#include "controller/api.h"
#include "controller/cloud/kube/kube_section.h"
#include "controller/cloud/web/web_section.h"
#include "controller/config.h"
#include "controller/control.h"
#include "controller/fleet_clock.h"
#include "controller/leader.h"
#include "controller/live_config.h"
#include "controller/objects/service_objects.h"

#include <limits.h>

#define SETUP_ARENA_BYTES ((size_t)4 << 20)

/* The services that are in force, and the memory of their command lines. */
struct in_force {
    struct controller_config config;
    struct arena arena;
};

struct controller {
    const struct controller_config *config; /* of the start */
    struct live_config live;                /* of the term */
    struct in_force *now;            /* of the term; what may change while it runs is read here */
    struct service_objects *objects; /* NULL: services of objects are not taken */
    struct loop_timer look;
    struct arena arena;
    struct loop *loop;
    struct store *store;
    int lock; /* of the state folder, where the store is elsewhere; -1: none */
    struct fleet_clock clock;
    struct cloud cloud[CONTROL_CLOUDS_MAX];
    uint32_t cloud_count;
    const struct cloud *adopted; /* one of them; NULL: it is not open */
    const struct cloud *cluster; /* of Kubernetes, likewise */
    struct cloud_fence fence;
    struct kube_settings kube;
    struct web_settings *web; /* one a cloud of `clouds`; in the arena */
    uint64_t tokens_at;       /* store_changes when the tokens of one that stands by were read */
    struct api *api;
    struct metrics *metrics;
    struct control_setup setup;
    uint64_t seed;
    struct leader *leader;
    struct control *control; /* NULL: it stands by */
    struct loop_timer tick;
    struct notify_watch watch;
    struct credentials held;
    struct key_file scrapers;
    char secret_path[PATH_MAX], keys_path[PATH_MAX], program[PATH_MAX], listen_host[ADDR_TEXT_MAX];
    struct tls *tls; /* NULL: plain HTTP */
    struct addr listen;
    struct str *hosts;               /* host names that requests may use; in the arena */
    char reach[STORE_ADDRESS_BYTES]; /* where others find us */
    bool failed;
};

/* Of controller.c. */
bool controller_leads(void *arg);
struct str
controller_leader(void *arg); /* the address of the one that leads; empty: unknown, or it is us */
void controller_on_urgent(void *arg); /* a tick should come soon */

/* Of process_open.c: the state folder and its store, clouds, the API's port, and what a term's control is made
 * of, but for what the configuration in force says. */
int process_open(struct controller *c, struct err *err);

/* Of in_force.c. */

/* Refuses a configuration of the start that no term could begin with: one that stands by would show it only
 * when it is needed. */
int in_force_check(struct controller *c, struct err *err);

/* Finds out which configuration is in force: a term begins with it. After a failure nothing is to be closed. */
int in_force_open(struct controller *c, struct err *err);
void in_force_close(struct controller *c);

/* Adds to `setup` what the configuration in force says. */
int in_force_fill(struct controller *c, struct control_setup *setup, struct err *err);

/* Looks at the file from now on, and hears SIGHUP; watches services of objects where they are switched on. */
int in_force_watch(struct controller *c, struct err *err);
int in_force_objects(struct controller *c, struct err *err);

/* For the API: shows the configuration, applies another. */
int in_force_show(void *arg, struct buf *out);
int in_force_apply(void *arg, const struct config_order *o, const char *by, struct buf *out,
                   struct err *err);

void in_force_log(const struct controller_section *s); /* sets how much is logged */
