/* control_service.h - a simulated fleet as the plan's service.
 *
 * Layer: simulator (controller/core, policies)
 * Rules: pools whose instances are alike (same step times and limits) are one pool of the plan with
 *        an offer each, which the placement row chooses among
 */
#pragma once
#include "simulator/control.h"

struct control_service {
    const struct sim_control_setup *setup; /* borrowed */
    struct plan_service plan;
    struct offer offer[SCALE_POOLS_MAX]; /* a place a pool of the setup */
    uint32_t group[SCALE_POOLS_MAX];     /* the plan's pool that it is an offer of */
    uint32_t floor;                      /* the least instances that it may have */
};

/* -EINVAL with a sentence. */
int control_service_check(const struct sim_control_setup *setup, struct err *err);

void control_service_init(struct control_service *s, const struct sim_control_setup *setup);
