/* roles.h - what a role policy is told of a run, and when it looks.
 *
 * Layer: simulator; internal to a run
 */
#pragma once
#include "policies/role/role.h"
#include "simulator/flight.h"

struct roles {
    struct role_look look;          /* without a policy roles stay as the pools have them */
    struct heap_node timer;         /* of the next look */
    struct role_instance *instance; /* of one look; as many as places */
    int64_t looked_us;
    uint32_t *offer; /* parallel to instance: its pool */
};

struct run;
int roles_start(struct run *run, struct err *err);
void roles_stop(struct run *run);
void roles_look(struct run *run);
void roles_moved(struct run *run); /* who serves has changed */
