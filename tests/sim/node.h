/* node.h - one process as its kernel sees it: the clocks it reads, and whether it runs.
 *
 * Layer: tests/sim
 * Model: the boot clock of a node begins anywhere and runs a little fast or slow; its date is off by
 *        up to an hour and is set now and then, in either direction. A stopped node (SIGSTOP, a
 *        starved machine) handles nothing; what is due or arrives meanwhile waits until it goes on.
 */
#pragma once
#include "controller/core/fleet_time.h"
#include "tests/sim/timeline.h"

#include <stdbool.h>

#define SIM_ROUTERS_MAX 2
#define NODE_NOTICED_US (7 * SECOND) /* who ticks each second may take less for a busy machine */

struct node {
    uint64_t boot;         /* of its machine */
    int64_t since_us;      /* world's time at which */
    int64_t mono_us;       /* its boot clock showed this */
    int64_t fast_ppm;      /* of its boot clock; negative: slow */
    int64_t date_off_us;   /* its date against the world's */
    int64_t stopped_until; /* world's time */
    int64_t stopped_us;    /* in all, of the stops that are long enough to be noticed */
};

/* A process on a machine of its own: other clocks, nothing stopped. */
void node_start(struct world *w, struct node *n);

int64_t node_mono_us(const struct world *w, const struct node *n);
int64_t node_date_us(const struct world *w, const struct node *n);
struct fleet_moment node_moment(const struct world *w, const struct node *n);
int64_t node_world_us(const struct node *n, int64_t mono_us); /* when its clock shows that */

void node_step_date(struct world *w, struct node *n, int64_t by_us);
void node_stop(struct world *w, struct node *n, int64_t for_us);
bool node_is_stopped(const struct world *w, const struct node *n);

/* True when the node is stopped: the event that runs comes again when it goes on. Timers and messages of
 * several connections come in any order then (`jitter`), those of one stream in theirs. */
bool node_defers(struct world *w, const struct node *n, bool jitter);
