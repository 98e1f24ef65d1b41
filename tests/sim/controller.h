/* controller.h - the product's controller on a memory store; it can die at any moment.
 *
 * Layer: tests/sim
 * Role:  the controller's process around control.h: it ticks each second, and at once when something is
 *        urgent, and takes the messages of agents and routers
 */
#pragma once
#include "base/core/buf.h"
#include "controller/control_state.h"
#include "tests/sim/node.h"

struct controller_node {
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
};

void controller_begin(struct world *w);
void controller_end(struct world *w);
void controller_dies(struct world *w, int64_t away_us);
void controller_loses_store(struct world *w);

/* Returns fleet time as the controller reads it; every time that it writes or compares is of this clock. */
int64_t controller_now_us(const struct world *w);

/* Take a message; return false while the controller is dead. */
bool controller_report(struct world *w, struct str text, struct agent_reply *ret);
bool controller_sync(struct world *w, struct str text, struct buf *ret_rules);
