/* controller.h - the product's controller on a memory store; it can die at any moment. In some worlds two share
 * the store, and one leads (leaders.h).
 *
 * Layer: tests/sim
 * Role:  the controller's process around control.h: it ticks each second, and at once when something is
 *        urgent, and takes the messages of agents and routers
 */
#pragma once
#include "base/core/buf.h"
#include "base/io/store/store_election.h"
#include "controller/control_state.h"
#include "tests/sim/node.h"

#define SIM_CONTROLLERS 2

struct controller_node {
    struct world *world;
    uint32_t index;
    struct plan_service service;
    struct control_launch launch[1][SCALE_POOLS_MAX];
    struct cloud cloud;
    struct control_setup setup;
    struct store *store;
    struct control *control; /* NULL while it is dead */
    struct node node;
    int64_t ahead_us; /* fleet time minus its boot clock */
    int64_t kept_us;  /* when the record of that was written, in fleet time */
    uint64_t life;
    int64_t born_us;     /* world's time */
    int64_t short_until; /* it has no free descriptor until then: no connection, no call */
    bool hurried;
    bool store_was_lost, was_damaged;
    bool older; /* it plays a release that does not say whether its lists are complete */
    uint32_t deaths;

    /* Where two share the store. */
    bool alive; /* the process runs, whether it leads or not */
    struct election election;
    struct cloud_fence fence;
    int64_t away_until; /* it cannot reach the store until then */
    uint32_t terms;
};

void controller_begin(struct world *w);
void controller_end(struct world *w);

/* These strike the one that leads. */
void controller_dies(struct world *w, int64_t away_us);
void controller_loses_store(struct world *w);

/* Makes the control of a process that leads from now on, and begins its ticks. Returns false without a record's
 * room: it is tried again. */
bool controller_begin_control(struct world *w, struct controller_node *n);
int64_t controller_clock_us(const struct world *w, const struct controller_node *n);

/* Returns fleet time as the controller reads it; every time that it writes or compares is of this clock. */
int64_t controller_now_us(const struct world *w);

/* Take a message; return false while the controller is dead. */
bool controller_report(struct world *w, struct str text, struct agent_reply *ret);
bool controller_sync(struct world *w, struct str text, struct buf *ret_rules);
