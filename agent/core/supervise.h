/* supervise.h - decides when to start, kill, drain and stop one engine: a table of state x event, and
 * the events that time brings.
 *
 * Layer:   agent/core (base/wire, base/core)
 * Threads: pure; the agent's loop or the fault simulation (tests/sim) calls
 * Rules:   (1) the shell feeds events (sup_feed) and observations (sup_tick); each call returns a set
 *              of actions, which the shell carries out and never second-guesses
 *          (2) a failed engine is started again after min * 2^n, at most max; back to min once an
 *              engine was up for stable_us; failures_max failures in a row end the instance
 *          (3) a draining engine is stopped once nothing was in flight for settle_us, or at the
 *              drain deadline
 *          (4) an instance without a lease (no controller replies) ends itself once both the missing
 *              lease and its idleness have lasted grace_us; one past its age limit ends itself once
 *              idle for settle_us; neither ends while it serves, and an unknown load counts as serving
 *              (absent is not zero)
 *          (5) a tick that comes more than late_us after the one before was itself late (the agent was
 *              stopped, starved or blocked): the time between is no evidence. Silence is counted
 *              from that tick on, and deadlines of a state are later by that gap
 *
 *      DOWN --want_up--> STARTING --ready--> UP --drain--> DRAINING --empty--> STOPPING --> ENDED
 *                           ^  |exited        |exited
 *                      retry|  v              v                  sick: CURING (killed), then
 *                          BACK_OFF <---------+                  BACK_OFF like any other exit
 */
#pragma once
#include "base/wire/report.h"

#include <stdbool.h>
#include <stdint.h>

enum sup_state {
    SUP_DOWN,     /* no engine yet: the launch delay runs */
    SUP_STARTING, /* a process, not ready */
    SUP_UP,
    SUP_DRAINING, /* serves the requests it has, gets no new ones */
    SUP_CURING,   /* killed because it was sick; its exit is awaited */
    SUP_BACK_OFF, /* no process; the next start waits */
    SUP_STOPPING, /* told to end; its exit is awaited */
    SUP_ENDED,
    SUP_STATE_COUNT
};

enum sup_event {
    /* fed by the shell */
    SUP_WANT_UP,
    SUP_WANT_DOWN, /* end now */
    SUP_DRAIN,
    SUP_KEEP,   /* the wish to drain was withdrawn */
    SUP_EXITED, /* the process is gone, or could not be started */
    SUP_FAULT,  /* its GPU has thrown it out: its process is of no use any more */
    /* found by sup_tick */
    SUP_READY,
    SUP_SICK,       /* not ready within start_us, or silent for sick_us */
    SUP_EMPTY,      /* nothing in flight for settle_us */
    SUP_DRAIN_LATE, /* drain_us over */
    SUP_STOP_LATE,  /* stop_us over */
    SUP_RETRY,      /* the back-off is over */
    SUP_HOPELESS,   /* failures_max failures in a row */
    SUP_STABLE,     /* up for stable_us */
    SUP_FORSAKEN,   /* no lease and idle, both for grace_us */
    SUP_AGED,       /* over the age limit, and idle for settle_us */
    SUP_EVENT_COUNT
};

enum sup_action { /* bits */
                  SUP_ACT_SPAWN = 1 << 0,
                  SUP_ACT_TERM = 1 << 1, /* ask the engine to end: it finishes what it serves */
                  SUP_ACT_KILL = 1 << 2,
                  SUP_ACT_REPORT = 1 << 3, /* now, not at the next second */
                  SUP_ACT_END = 1 << 4,    /* nothing is left to supervise */
                  /* carried out by sup_feed itself */
                  SUP_ACT_WAIT = 1 << 5,    /* count a failure, begin the back-off */
                  SUP_ACT_FORGIVE = 1 << 6, /* forget the failures */
};

struct sup_config {
    int64_t start_us;  /* from spawn to ready; loading weights is part of it */
    int64_t sick_us;   /* silence after which a ready engine is sick */
    int64_t drain_us;  /* longest drain */
    int64_t settle_us; /* nothing in flight for so long counts as empty: routers lag */
    int64_t stop_us;   /* from TERM (or KILL) to KILL (again) */
    int64_t back_off_min_us, back_off_max_us;
    int64_t stable_us;
    uint32_t failures_max;
    int64_t grace_us; /* time without a lease, and idle, before the instance ends itself */
    int64_t age_us;   /* hard limit on the instance's life; 0: none */
    int64_t leave_us; /* a drain ends so long before the machine is taken away */
    int64_t late_us;  /* a tick that comes more than this after the last one is late; 0: never */
};

/* Values for an engine that loads a small model within seconds. */
#define SUP_CONFIG_DEFAULT                             \
    ((struct sup_config){ .start_us = 120000000,       \
                          .sick_us = 10000000,         \
                          .drain_us = 300000000,       \
                          .settle_us = 1500000,        \
                          .stop_us = 30000000,         \
                          .back_off_min_us = 500000,   \
                          .back_off_max_us = 30000000, \
                          .stable_us = 60000000,       \
                          .failures_max = 8,           \
                          .leave_us = 1000000,         \
                          .grace_us = 900000000 })

struct sup {
    enum sup_state state;
    int64_t since_us;  /* in this state */
    int64_t retry_us;  /* BACK_OFF: when to start again */
    int64_t idle_us;   /* since when nothing was in flight; 0: busy or unknown */
    int64_t looked_us; /* last sup_tick; 0: none yet */
    int64_t awake_us;  /* last late tick; silence before it is not the engine's */
    uint32_t lates;    /* late ticks */
    uint32_t failures; /* in a row */
    uint32_t engines;  /* engines so far, an adopted one included */
    const char *why;   /* static: the event that led here */
    bool stable;       /* SUP_STABLE was found since the last start */
};

/* Returns how often the engine was started again: every engine after the first. */
static inline uint32_t sup_restarts(const struct sup *s)
{
    return s->engines > 0 ? s->engines - 1 : 0;
}

/* The shell's observations at a tick. All times are of one clock. */
struct sup_view {
    int64_t now_us;
    int64_t born_us;        /* of the instance, for the age limit */
    int64_t lease_until_us; /* end of the last lease of the controller; 0: never granted */
    int64_t leaves_us;      /* the provider takes the machine away then; 0: no notice */
    int64_t healthy_us;     /* last reply that said ready; 0: none since the spawn */
    bool load_known;        /* in_flight is recent */
    uint32_t in_flight;
};

const char *sup_state_text(enum sup_state s);
const char *sup_event_text(enum sup_event e);

/* Returns one cell of the table: the next state and the actions, or impossible. For tests. */
struct sup_cell {
    bool possible;
    enum sup_state next;
    uint32_t actions;
};
struct sup_cell sup_cell(enum sup_state s, enum sup_event e);

/* Returns the state that an agent in `s` reports to the controller. */
enum agent_state sup_reported(enum sup_state s);

/* Takes in an event. Returns action bits. An impossible event is our bug (must). */
uint32_t sup_feed(struct sup *s, const struct sup_config *config, enum sup_event e, int64_t now_us);

/* Takes over an engine that runs already (after the agent's own crash). */
void sup_adopt(struct sup *s, int64_t now_us);

/* Finds the event that time has brought, and feeds it. Returns action bits. */
uint32_t sup_tick(struct sup *s, const struct sup_config *config, const struct sup_view *view);
