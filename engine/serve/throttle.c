/* throttle.c - the bucket. Sleeping itself is time that fills it, so the wait is debt / share. */
#include "engine/serve/throttle.h"

int64_t throttle_wait_us(struct throttle *t, int64_t cpu_us, int64_t wall_us)
{
    if (t->share <= 0) return 0;
    if (!t->begun) {
        t->begun = true;
    } else {
        t->credit_s += t->share * (double)(wall_us - t->wall_us) * 1e-6;
        t->credit_s -= (double)(cpu_us - t->cpu_us) * 1e-6;
        if (t->credit_s > THROTTLE_BURST_S) t->credit_s = THROTTLE_BURST_S;
    }
    t->cpu_us = cpu_us;
    t->wall_us = wall_us;
    return t->credit_s < 0 ? (int64_t)(-t->credit_s / t->share * 1e6) : 0;
}
