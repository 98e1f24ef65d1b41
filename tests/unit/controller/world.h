/* world.h - a fleet in memory around one controller: a scripted cloud, agents that obey, a router.
 *
 * The controller can be killed and started again on the same store; the rest goes on.
 */
#pragma once
#include "controller/cloud/cloud_fake.h"
#include "controller/control.h"

#define SECOND ((int64_t)1000000)
#define WORLD_START (1000000 * SECOND)
#define WORLD_BOOT_US (3 * SECOND) /* of an instance, where a test does not say */

struct world_agent { /* parallel to the cloud's instances */
    uint64_t seq;
    bool draining, stopped;
    int64_t drain_us;
    int64_t lease_until_us;
};

struct world {
    struct fake_cloud *fake;
    struct cloud cloud;
    struct store *store;
    const char *path; /* with one: the store is a file, closed while the controller is dead */
    struct plan_service service;
    struct control_launch launch[1][SCALE_POOLS_MAX];
    struct control_setup setup;
    struct control *control; /* NULL while it is dead */
    struct world_agent agent[FAKE_INSTANCES_MAX];
    int64_t now;
    uint64_t router_boot, router_seq, arrivals;
    double rate;
    uint32_t held;
    const struct engine_report *engine; /* what every agent says of its engine; NULL: little */
    bool router_silent, agents_silent;
    uint32_t crashes;
    uint32_t running_max; /* most instances that ran at once */
    int64_t dead_until;   /* a killed controller stays away so long */
};

/* One service "chat" with pools small (s1, s2) and large (l1). */
void world_init(struct world *w, const struct fake_config *fake, uint64_t seed);
void world_fini(struct world *w);
struct world *world_new(const struct fake_config *fake); /* NULL: a cloud without mischief */
void world_free(struct world *w);                        /* no fault stays armed */
void world_start(struct world *w);                       /* a new controller on the store */
void world_kill(struct world *w);
void world_second(struct world *w); /* agents report, the router syncs, the controller ticks */
void world_run(struct world *w, int seconds);
uint32_t world_running(const struct world *w);
uint32_t world_made(const struct world *w); /* instances, ever */
/* One instance an intent, ever; and none is left. */
void world_check_end(const struct world *w, const char *what);
