/* in_order.c - gives devices the places of the new layout in the order in which they are listed.
 *
 * It is the simple alternative: it ignores the contents of devices. Bytes that a device happens to
 * hold for its new place are still reused. */
#include "policies/move/move.h"

static void map(const struct move_problem *problem, struct move_memory *work,
                struct move_verdict *ret)
{
    (void)work;
    *ret = (struct move_verdict){ 0 };
    for (uint32_t i = 0; i < MOVE_MAX; i++)
        ret->to[i] = i < problem->from_count && i < problem->to_count ? i : MOVE_NONE;
    move_weigh(problem, ret);
}

const struct move_policy move_in_order = {
    .name = "in_order",
    .about = "planner: after a loss, devices take places in the order they are listed",
    .source = "baseline of device mapping",
    .map = map,
};
