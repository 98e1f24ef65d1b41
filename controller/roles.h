/* roles.h - holds what is remembered between two choices of roles: which instances prefill, which decode.
 *
 * Layer: controller, private to it; part of control_state.h
 */
#pragma once
#include "policies/role/role.h"

/* The last look of a service's role policy. */
struct roles {
    struct role_look look;
    int64_t looked_us;
    uint64_t ready;     /* the ready instances and their known speeds, as a sum */
    const char *reason; /* static; NULL: no look yet */
    double goodput_rps; /* foreseen; < 0: the policy estimates none */
};

struct control;
void control_first_role(struct control *c, uint32_t at); /* a new slot gets its pool's */
void control_give_roles(struct control *c, int64_t now_us);
