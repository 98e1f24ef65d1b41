/* move.c - the table of move policies, the bytes of a mapping, and the simple alternative: places in the order of lists. */
#include "policies/move/move.h"

#include "base/core/bits.h"

#include <math.h>

const struct move_policy *const move_table[] = {
#define POLICY(name) &move_##name,
#include "policies/move/move.def"
#undef POLICY
};
const uint32_t move_count = COUNT_OF(move_table);

const struct move_policy *move_find(struct str name)
{
    for (uint32_t i = 0; i < move_count; i++)
        if (str_eq(name, str_from(move_table[i]->name))) return move_table[i];
    return NULL;
}

void move_weigh(const struct move_problem *problem, struct move_verdict *ret)
{
    double has[MOVE_MAX] = { 0 };
    ret->reused_bytes = ret->sent_bytes = ret->seconds = 0;
    for (uint32_t i = 0; i < problem->from_count; i++)
        if (ret->to[i] != MOVE_NONE) has[ret->to[i]] = problem->reused_bytes[i][ret->to[i]];
    for (uint32_t j = 0; j < problem->to_count; j++) {
        double missing = fmax(0, problem->needed_bytes[j] - has[j]);
        ret->reused_bytes += has[j];
        ret->sent_bytes += missing;
        ret->seconds = fmax(ret->seconds, missing / problem->bytes_s);
    }
}

/* Gives devices the places of the new layout in the order in which they are listed.
 *
 * It is the simple alternative: it ignores the contents of devices. Bytes that a device happens to
 * hold for its new place are still reused. */
static void map_in_order(const struct move_problem *problem, struct move_memory *work,
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
    .map = map_in_order,
};
