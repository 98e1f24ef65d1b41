/* roles.h - what a role row is told of a run, and when it looks.
 *
 * Layer: simulator; internal to a run
 */
#pragma once
#include "policies/role.h"
#include "simulator/flight.h"

struct roles {
    const struct role_policy *row; /* NULL: roles stay as the pools have them */
    struct heap_node look;
    struct rng rng;
    struct role_instance *instance; /* of one look; as many as places */
    int64_t looked_us;
    double arrivals, prompt, prompt2; /* sums of the demand, aged at every look */
    double ends, output, output2;
    _Alignas(8) unsigned char state[ROLE_STATE_BYTES_MAX];
};

struct run;
int roles_start(struct run *run, struct err *err);
void roles_stop(struct run *run);
void roles_look(struct run *run);
