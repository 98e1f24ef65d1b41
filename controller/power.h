/* power.h - the clocks of a service's instances: what its power policy is shown, what it chose.
 *
 * Layer: controller, private to it (policies, base/wire)
 * Owner: power.c; the choice rides on the answers to agents (sync.c)
 * Rules: (1) an instance that says neither its clock nor its work is not shown and not ordered:
 *            its watts are not part of the policy's, and `unmodelled` counts it
 *        (2) what was chosen stays wished until the policy says otherwise; nothing is wished before
 *            its first word, so that a controller that starts again changes no clock by itself
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
    uint32_t shown, unmodelled; /* at the last look: of these, without a model of their watts */
    double watts;               /* of all that were shown */
    const char *reason;         /* static */
};

struct instance_power {
    double clock; /* wished; 0: nothing yet */
    double watts; /* modelled, of the last window */
    bool watts_known;
    const struct hardware *hardware; /* that the engine was told; NULL: none that we know */
    uint64_t boot;                   /* of the engine that `seen` is of */
    struct wire_work seen;           /* at the last look */
};

struct control;
struct power_room;

struct power_room *
power_room_new(void); /* what a policy is shown is put there; aborts without memory */
void power_room_free(struct power_room *r);

/* Asks the policies whose time has come. */
void control_power(struct control *c, int64_t now_us);

/* What the agent of instance `at` is told; 0: nothing. */
double control_clock(const struct control *c, uint32_t at);
