/* world.h - one simulated fleet: the decisions are the product's code, the rest is a model.
 *
 * Layer:  tests/sim (controller, router/core, agent/core: the same object files that ship)
 * Seed:   all chance comes from one 64-bit seed, with a stream of its own for each part
 * Phases: (1) faults until heal_us; (2) demand without faults for 120 s, by the end of which the fleet
 *         must have its planned size; (3) silence for 120 s, by the end of which it must have its minimum
 */
#pragma once
#include "tests/history/history.h"
#include "tests/sim/agent.h"
#include "tests/sim/checks.h"
#include "tests/sim/cloud.h"
#include "tests/sim/controller.h"
#include "tests/sim/damage.h"
#include "tests/sim/faults.h"
#include "tests/sim/leaders.h"
#include "tests/sim/network.h"
#include "tests/sim/reasons.h"
#include "tests/sim/router.h"
#include "tests/sim/timeline.h"

#include <stdlib.h>
#include <string.h>

#define SIM_REQUESTS_MAX 4096
#define SIM_LEASE_MS 15000
#define SIM_DRAIN_US (30 * SECOND)
#define SIM_BOOT_US (40 * SECOND)
#define SIM_SILENT_US (60 * SECOND)
#define SIM_GRACE_US (60 * SECOND) /* idle without a lease */
#define SIM_ORPHAN_US (20 * SECOND)
#define SIM_GAP_US (100 * SECOND) /* between tokens: a silence, a hold and two waits for a head */
#define SIM_PATIENCE_US (120 * SECOND)

struct failure {
    enum check check;
    int64_t at_us; /* since the world began */
    char text[256];
};

struct world {
    char name[8];
    struct timeline time;
    struct rng rng_net, rng_cloud, rng_chaos, rng_clients, rng_engine, rng_controller, rng_nodes;
    struct faults faults;
    enum mutant mutant;
    int64_t heal_us, silence_us;
    int64_t cut_all_us;
    int64_t converged_us;
    bool failed;
    struct failure failure;
    struct history history; /* requests by their index */

    struct controller_node controllers[SIM_CONTROLLERS];
    uint32_t controller_count;          /* 1, or those that share a store */
    struct controller_node *controller; /* the one that leads, or led last */
    uint64_t epoch_last;                /* of all terms so far */
    struct damage damage;
    int64_t no_names_us; /* until then no process resolves a name that it does not know yet */
    struct cloud_node cloud;
    struct agent *agent[FAKE_INSTANCES_MAX]; /* parallel to the provider's instances */
    uint32_t agent_count;
    struct router_node router[SIM_ROUTERS_MAX];
    uint32_t router_count;
    double budget_h; /* 0: none */
    const struct route_policy *route;
    bool continues; /* engines are Muster's: they take token ids and continue another's output */
    uint64_t model;
    struct request request[SIM_REQUESTS_MAX];
    uint32_t request_count;
};

struct world_result {
    bool failed;
    struct failure failure;
    uint64_t digest, events;
    uint32_t requests, answered, machines, controller_deaths, terms;
};

struct world_options {
    uint64_t seed;
    enum mutant mutant;
    uint32_t kinds; /* only the first so many kinds of faults may occur; 0: all */
    bool verbose;
};

/* Runs one seed from its first event to its last check. */
void world_run(const struct world_options *o, struct world_result *ret);
