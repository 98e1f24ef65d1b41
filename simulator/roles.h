/* roles.h - lets a role policy look at a run and set the roles of its instances.
 *
 * Layer: simulator; internal to a run
 */
#pragma once
#include "policies/role/role.h"
#include "simulator/flight.h"

struct roles {
    struct role_look look;          /* without a policy, instances keep their pools' roles */
    struct heap_node timer;         /* of the next look */
    struct role_instance *instance; /* for one look; as many as places */
    int64_t looked_us;
    uint32_t *offer; /* the pool of each, parallel to instance */
};

struct run;
int roles_start(struct run *run, struct err *err);
void roles_stop(struct run *run);
void roles_look(struct run *run);
void roles_moved(struct run *run); /* the set of serving instances has changed */
