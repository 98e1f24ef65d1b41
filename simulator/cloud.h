/* cloud.h - simulates the provider of a controller: its instances start, serve, fail, are lost with their
 * zone, and cost their price.
 *
 * Layer:  simulator (controller/core, base/core)
 * Chance: streams keyed by (seed, instance number, purpose)
 * Rules:  the health of offers and the lead times that its replies teach are written where the plan
 *         reads them
 */
#pragma once
#include "base/core/rng.h"
#include "simulator/control.h"

enum machine_stage { MACHINE_STARTING, MACHINE_READY, MACHINE_DRAINING, MACHINE_ENDED };

struct machine {
    uint32_t pool;
    enum machine_stage stage;
    bool doomed, fails;
    int64_t launched_us, stage_us;
    int64_t due_us;       /* starting: ready or failed; else: lost; INT64_MAX: never */
    struct sighting seen; /* its agent's last report */
};

struct zone {
    bool down;
    int64_t turn_us;
    struct rng rng;
};

struct sim_cloud {
    const struct sim_control_setup *setup; /* borrowed, as are the next two */
    struct offer *offer;                   /* by pool, as is health */
    struct offer_health *health;
    struct zone zone[SIM_ZONES_MAX];

    struct machine *machine; /* by number */
    uint32_t count, room;
    uint32_t *live; /* numbers of machines that have not ended */
    uint32_t live_count;

    struct sim_control_action *action; /* that happened and were not handed out yet, in order */
    uint32_t action_count, action_room;

    int64_t last_us;                 /* totals are up to here */
    struct sim_control_totals total; /* floor_*: as of the last return to the floor */
    uint32_t floor;                  /* the least number of instances that the fleet may have */
    bool above_floor;
};

/* Makes the cloud. The instances of `start` are ready when it returns. -ENOMEM. */
int sim_cloud_init(struct sim_cloud *c, const struct sim_control_setup *setup, uint32_t floor,
                   struct offer *offer, struct offer_health *health, struct err *err);
void sim_cloud_fini(struct sim_cloud *c);

/* Returns when something next happens by itself; INT64_MAX: never. */
int64_t sim_cloud_next_us(const struct sim_cloud *c);

/* _begin does all that is due by itself; _finish, after the controller's calls, hands out what has
 * happened. Actions that do not fit are kept for the next time. */
void sim_cloud_begin(struct sim_cloud *c, int64_t now_us);
uint32_t sim_cloud_finish(struct sim_cloud *c, int64_t now_us,
                          struct sim_control_action ret[SIM_CONTROL_ACTIONS_MAX]);

/* The controller's calls. */
void sim_cloud_launch(struct sim_cloud *c, uint32_t pool, int64_t now_us);
void sim_cloud_cancel(struct sim_cloud *c, uint32_t number);
void sim_cloud_drain(struct sim_cloud *c, uint32_t number, int64_t now_us);
void sim_cloud_keep(struct sim_cloud *c, uint32_t number, int64_t now_us); /* withdraws a drain */

void sim_cloud_emptied(struct sim_cloud *c, uint32_t number, int64_t now_us);
void sim_cloud_totals(struct sim_cloud *c, int64_t end_us, struct sim_control_totals *ret);
