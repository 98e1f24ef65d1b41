/* power_view.h - builds the view of power policies: tails of latency, and the mean step of an instance.
 *
 * Layer:   fleet (policies/power, base/wire)
 * Threads: pure functions over the caller's structs
 *
 * Tails: a P99 needs a hundred responses. A router's window is short, so the windows of the last two
 * minutes are put together: the largest of their P99 is at least the P99 of all, which errs on the side
 * of the SLO.
 */
#pragma once
#include "base/wire/sync.h"
#include "policies/power/power.h"

#define POWER_TAIL_WINDOWS 8

struct power_tail { /* of all routers over one of their windows */
    uint64_t ttft_count, tpot_count;
    double ttft_s, tpot_s; /* P99 of the worst router: quantiles cannot be added */
};

/* The last windows of a service; zeroed bytes are none. */
struct power_tails {
    struct power_tail window[POWER_TAIL_WINDOWS];
    uint32_t next;
    int64_t taken_us;
};

void power_tail_add(struct power_tail *t, const struct service_demand *report); /* of one router */

/* Returns true when the last window has passed and the next one is to be taken. */
bool power_tails_due(const struct power_tails *t, int64_t now_us);
void power_tails_take(struct power_tails *t, const struct power_tail *now, int64_t now_us);

/* Puts the windows together, with the current one `now`. That one may hold responses of the last
 * window again, so its count is not added: the larger of the two counts. Returns false if there are too
 * few responses. */
bool power_tails_merge(const struct power_tails *t, const struct power_tail *now,
                       struct power_tail *ret);

/* Fills the mean step and the busy share between two reports, or since the engine's start where its
 * counters have begun anew. */
void power_work_since(const struct wire_work *now, const struct wire_work *seen,
                      struct power_instance *ret);

/* The facts about an instance beside its steps. */
struct power_facts {
    const struct roofline *roofline; /* NULL: not known */
    double clock;                    /* as its engine reported it */
    bool injects_idle;
    uint32_t waiting;
    enum priority priority;
};

/* Fills *ret with the facts and no step yet. `tail`: NULL when it is not known. */
void power_instance_see(const struct power_facts *f, const struct power_tail *tail,
                        struct power_instance *ret);

/* Returns when to ask a policy that wants to be asked at `again_us`: within bounds from now. */
int64_t power_again_us(int64_t again_us, int64_t now_us);
bool power_is_due(int64_t due_us, int64_t now_us);
