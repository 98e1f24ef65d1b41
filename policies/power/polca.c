/* polca.c - the policy `polca`: cap clocks when a row of racks nears its breaker's limit.
 *
 *     row power >= 80 % of the breaker:   low priority capped to 0.90 of the clock
 *     row power >= 89 %:                  low priority to 0.80, then high priority to 0.95
 *     row power >= 100 %:                 the brake: all instances to the least clock
 *     a cap is lifted when the row is 5 points below the threshold that set it
 *
 *            80 %          89 %             89 % again      100 %
 *     FREE  ----->  LOW  ------->  LOW_MORE  ------->  ALL  ----->  BRAKE       (one a decision;
 *           <-----       <-------            <-------       <-----               100 % at once)
 *            75 %          84 %                84 %           84 %
 *
 * A row may then hold more servers than its breaker carries at their common peak. Prefill peaks last
 * seconds and mean power is far below them, so caps are rare, and low-priority work bears them.
 *
 * Source: POLCA, ASPLOS 2024 (arXiv 2308.12908): thresholds 80 and 89 % of row power, low priority
 * first, lifted 5 points below; its A100 caps of 1275, 1110 and 1305 of 1410 MHz are the shares
 * above, rounded to our ladder. Without a limit of the row nothing is capped. */
#include "policies/power/power.h"

#define CAP_AT 0.80
#define CAP_MORE_AT 0.89
#define BRAKE_AT 1.0
#define LIFTED_BELOW 0.05
#define AGAIN_US (2 * 1000000ll) /* how often rows report their power */

enum cap_level { FREE, LOW, LOW_MORE, ALL, BRAKE, CAP_LEVEL_COUNT };

struct state {
    uint32_t level; /* enum cap_level */
};

// clang-format off
static const struct {
    double low, high;  /* clocks */
    double up, down;   /* row power that leaves the level, as shares of the limit */
    const char *reason;
} levels[CAP_LEVEL_COUNT] = {
    [FREE]     = { 1,    1,    CAP_AT,      0,                          "row power is below its caps" },
    [LOW]      = { 0.90, 1,    CAP_MORE_AT, CAP_AT - LIFTED_BELOW,      "low priority is capped" },
    [LOW_MORE] = { 0.80, 1,    CAP_MORE_AT, CAP_MORE_AT - LIFTED_BELOW, "low priority is capped further" },
    [ALL]      = { 0.80, 0.95, BRAKE_AT,    CAP_MORE_AT - LIFTED_BELOW, "everybody is capped" },
    [BRAKE]    = { POWER_CLOCK_MIN, POWER_CLOCK_MIN, 2, CAP_MORE_AT - LIFTED_BELOW,
                   "the row is at its limit: power brake" },
};
// clang-format on

static uint32_t next_level(uint32_t level, double share)
{
    if (share >= BRAKE_AT) return BRAKE;
    if (share >= levels[level].up) return level + 1;
    return level > FREE && share < levels[level].down ? level - 1 : level;
}

static void decide(void *state, const struct power_view *view, int64_t now_us,
                   struct power_verdict *ret)
{
    struct state *s = state;
    s->level = view->power_limit_watts > 0
                   ? next_level(s->level, view->drawn_watts / view->power_limit_watts)
                   : FREE;
    for (uint32_t i = 0; i < view->count; i++) {
        bool low = view->instance[i].priority == PRIORITY_LOW;
        ret->clock[i] = low ? levels[s->level].low : levels[s->level].high;
    }
    ret->reason = levels[s->level].reason;
    ret->again_us = now_us + AGAIN_US;
}

const struct power_policy power_polca = {
    .name = "polca",
    .about = "caps clocks near the row's power limit, low priority first",
    .source = "POLCA, ASPLOS 2024",
    .state_size = sizeof(struct state),
    .decide = decide,
};
