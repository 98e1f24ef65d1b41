/* fleet_world.h - a controller over clouds of fakes, with obedient agents on the machines that have booted, which is
 * killed at each of its steps.
 *
 * Layer: tests/fakes/cloud (controller)
 * Use:   each fake of an API is run through fleet_world_killed_at_every_step
 */
#pragma once
#include "controller/control.h"
#include "tests/fakes/cloud/web_rig.h"

/* Opens a fresh fake and a rig over it for one run. */
struct fleet_ground {
    struct web_rig *rig;
    struct fake_fleet *fleet;
    void *arg; /* the opener's */
};
typedef void (*fleet_ground_open_fn)(struct fleet_ground *ret);
typedef void (*fleet_ground_close_fn)(struct fleet_ground *g);

/* Scales a service of one pool on the offer "small" to two and back to none, with the controller killed at the first
 * and the second time that it comes to each of its steps. Fails the test unless no intent ever had two machines at
 * once, no machine is left, none was made without need, and no request was one that the API would not have
 * understood. `made` false: calls under way at the kill are not carried out. */
void fleet_world_killed_at_every_step(fleet_ground_open_fn open, fleet_ground_close_fn close,
                                      bool made);

/* Scales up and down again and again, and kills the controller once on each way: at each of its steps `times` times,
 * at the step itself or up to three seconds later, with calls under way that come through or do not, and lets it stay
 * away for a while. Fails the test unless at each moment no intent has two machines, no machine is without an intent
 * for longer than a minute in which a controller runs, and the machines cost at most the service's budget an hour;
 * and unless after each way down none is left and the controller's bill is the fake's. */
void fleet_world_crash_points(fleet_ground_open_fn open, fleet_ground_close_fn close,
                              uint32_t times);

/* The same for a pool that keeps its machines stopped: they are stopped and started again and again, with a kill on
 * each way, and no further one is ever made. `powers_off`: a machine whose agent has ended stops itself. At the end the
 * pool keeps none, and no machine may be left. */
void fleet_world_stop_points(fleet_ground_open_fn open, fleet_ground_close_fn close,
                             bool powers_off, uint32_t times);

/* The same without kills, for a fleet with faults of its own: true once two machines ran, and none is left `seconds`
 * after the pool was scaled to none. */
bool fleet_world_up_and_down(struct fleet_ground *g, uint64_t seed, int seconds);
