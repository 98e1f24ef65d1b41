/* control_service.h - a simulated fleet as the plan's services.
 *
 * Layer: simulator (controller/core, policies)
 * Rules: pools of one service whose instances are alike (same step times and limits) are one pool of
 *        the plan with an offer each, which the placement row chooses among
 */
#pragma once
#include "simulator/control.h"

struct control_services {
    const struct sim_control_setup *setup; /* borrowed */
    struct plan_service plan[SIM_SERVICES_MAX];
    uint32_t count;
    struct offer offer[SCALE_POOLS_MAX]; /* a place a pool of the setup */
    uint32_t group[SCALE_POOLS_MAX];     /* its service's pool that it is an offer of */
    uint32_t floor;                      /* the least instances that the fleet may have */
};

/* -EINVAL with a sentence. */
int control_services_check(const struct sim_control_setup *setup, struct err *err);

void control_services_init(struct control_services *s, const struct sim_control_setup *setup);
