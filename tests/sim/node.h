/* node.h - one process as its kernel sees it: its clocks and whether it runs.
 *
 * Layer: tests/sim
 * Model: the boot clock of a node begins anywhere and runs a little fast or slow; its date is off by
 *        up to an hour and is set now and then, in either direction. A stopped node (SIGSTOP, a
 *        starved machine) handles no event; timers and messages wait until it goes on.
 */
#pragma once
#include "controller/core/fleet_time.h"
#include "tests/sim/timeline.h"

#include <stdbool.h>

#define SIM_ROUTERS_MAX 2
#define NODE_NOTICED_US (7 * SECOND) /* a controller may take less for a busy machine */

struct node {
    uint64_t boot;         /* of its machine */
    int64_t since_us;      /* the world's time when it started */
    int64_t mono_us;       /* what its boot clock showed then */
    int64_t fast_ppm;      /* of its boot clock; negative: slow */
    int64_t date_off_us;   /* its date against the world's */
    int64_t stopped_until; /* world's time */
    int64_t stopped_us;    /* sum of the stops that are long enough to be noticed */
};

/* Starts the node on a machine of its own, with clocks of its own; it is not stopped. */
void node_start(struct world *w, struct node *n);

int64_t node_mono_us(const struct world *w, const struct node *n);
int64_t node_date_us(const struct world *w, const struct node *n);
struct fleet_moment node_moment(const struct world *w, const struct node *n);
int64_t node_world_us(const struct node *n, int64_t mono_us); /* when its clock shows mono_us */

void node_step_date(struct world *w, struct node *n, int64_t by_us);
void node_stop(struct world *w, struct node *n, int64_t for_us);
bool node_is_stopped(const struct world *w, const struct node *n);

/* Returns true when the node is stopped: the event that runs comes again when the node goes on. With
 * `jitter` the deferred events come in any order, as timers and messages of several connections do; without
 * it they keep their order, as those of one stream do. */
bool node_defers(struct world *w, const struct node *n, bool jitter);
