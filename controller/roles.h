/* roles.h - who of a service computes prompts, who decodes: what is remembered between looks.
 *
 * Layer: controller, private to it; part of control_state.h
 */
#pragma once
#include "policies/role/role.h"

/* What the role policy of a service was asked and said last. */
struct roles {
    struct role_look look;
    int64_t looked_us;
    uint64_t ready;     /* who was there and knew its speed, as a sum */
    const char *reason; /* static; NULL: nobody has looked */
    double goodput_rps; /* foreseen; < 0: the policy asked nobody */
};

struct control;
void control_first_role(struct control *c, uint32_t at); /* of a new slot: its pool's */
void control_give_roles(struct control *c, int64_t now_us);
