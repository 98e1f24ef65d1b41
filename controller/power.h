/* power.h - sets the clocks of a service's instances, as its power policy chooses.
 *
 * Layer: controller, private to it (policies, base/wire)
 * Owner: power.c; the choice goes out in the replies to agents (sync.c)
 * Rules: (1) an instance that reports no clock or no work is not shown to the policy and gets no
 *            clock: its watts are not in the policy's sum, and `unmodelled` counts it
 *        (2) a chosen clock stays wanted until the policy chooses another; no clock is wanted before
 *            its first choice, so that a restarted controller changes none by itself
 *        (3) state lives as long as the process: a policy begins anew with the next one
 */
#pragma once
#include "base/wire/report.h"
#include "fleet/power_view.h"
#include "policies/power/power.h"

struct service_power {
    _Alignas(8) char state[POWER_STATE_BYTES_MAX];
    int64_t due_us; /* asked again then */
    struct power_tails tails;
    bool asked;
    uint32_t shown, unmodelled; /* at the last look; of these, without a model of their watts */
    double watts;               /* of all shown */
    const char *reason;         /* static */
};

struct instance_power {
    double clock; /* wanted; 0: none yet */
    double watts; /* modelled, of the last window */
    bool watts_known;
    const struct hardware *hardware; /* as the engine reports it; NULL: none that is known */
    uint64_t boot;                   /* of the engine that `seen` is of */
    struct wire_work seen;           /* at the last look */
};

struct control;
struct power_room;

/* Allocates the memory for a policy's view; aborts without memory. */
struct power_room *power_room_new(void);
void power_room_free(struct power_room *r);

/* Asks the policies that are due. */
void control_power(struct control *c, int64_t now_us);

/* Returns the clock to tell the agent of instance `at`; 0: none. */
double control_clock(const struct control *c, uint32_t at);
