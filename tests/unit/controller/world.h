/* world.h - a fleet in memory around one controller: a scripted cloud, obedient agents, a router.
 *
 * The controller can be killed and started again on the same store; everything else keeps running.
 */
#pragma once
#include "controller/cloud/cloud_fake.h"
#include "controller/control.h"

#define SECOND ((int64_t)1000000)
#define WORLD_START (1000000 * SECOND)
#define WORLD_BOOT_US (3 * SECOND) /* an instance's boot time, unless a test sets another */

struct world_agent { /* parallel to the cloud's instances */
    uint64_t seq;
    uint32_t starts; /* of its machine, after stops */
    bool draining, stopped;
    int64_t drain_us;
    int64_t lease_until_us;
};

struct world {
    struct fake_cloud *fake;
    struct cloud cloud;
    struct store *store;
    const char *path; /* if set, the store is a file, closed while the controller is dead */
    struct plan_service service;
    struct control_launch launch[1][SCALE_POOLS_MAX];
    struct control_setup setup;
    struct control *control; /* NULL while it is dead */
    struct world_agent agent[FAKE_INSTANCES_MAX];
    int64_t now;
    uint64_t router_boot, router_seq, arrivals;
    double rate;
    uint32_t held;
    const struct engine_report *engine; /* every agent's word of its engine; NULL: little */
    bool router_silent, agents_silent;
    uint32_t crashes;
    uint32_t running_max; /* most instances that ran at once */
    int64_t dead_until;   /* a killed controller stays away until then */
};

/* Sets up one service, "chat", with pools small (s1, s2) and large (l1). */
void world_init(struct world *w, const struct fake_config *fake, uint64_t seed);
void world_fini(struct world *w);
struct world *world_new(const struct fake_config *fake); /* NULL: a cloud without faults */
void world_free(struct world *w);                        /* disarms every fault */
void world_start(struct world *w);                       /* starts a new controller on the store */
void world_kill(struct world *w);
void world_second(struct world *w); /* agents report, the router syncs, the controller ticks */
void world_run(struct world *w, int seconds);
uint32_t world_running(const struct world *w);
uint32_t world_made(const struct world *w); /* instances ever created */
/* Checks that no intent ever had two instances and that none is left. */
void world_check_end(const struct world *w, const char *what);
