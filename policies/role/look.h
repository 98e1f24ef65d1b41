/* look.h - somebody who asks a role row again and again: the controller for each of its
 * services, the simulator for its fleet.
 *
 * Layer:   policies (base/core)
 * Threads: pure, as role.h
 */
#pragma once
#include "policies/role/role.h"

#define ROLE_LOOK_US_MIN 1000000 /* between two looks */
#define ROLE_ATTAINMENT 0.9      /* share of requests that a choice of roles shall serve in time */

struct role_look {
    const struct role_policy *row;
    struct rng rng;
    int64_t again_us; /* when to ask again */
    _Alignas(8) unsigned char state[ROLE_STATE_BYTES_MAX];
};

/* Asks the row. */
void role_look(struct role_look *l, const struct role_view *view, int64_t now_us,
               struct role_verdict *ret);
