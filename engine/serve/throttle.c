/* throttle.c - token bucket that limits CPU use; tokens accrue while the thread sleeps, so the wait
 * is debt / rate. */
#include "engine/serve/throttle.h"

double throttle_rate(const struct throttle *t)
{
    if (t->clock <= 0 || t->clock >= 1) return t->share;
    return t->clock * (t->share > 0 ? t->share : t->cores);
}

int64_t throttle_wait_us(struct throttle *t, int64_t cpu_us, int64_t wall_us)
{
    double rate = throttle_rate(t);
    if (rate <= 0) {
        t->begun = false; /* what was used without a limit is no debt of a later one */
        return 0;
    }
    if (!t->begun) {
        t->begun = true;
        t->credit_s = 0;
    } else {
        t->credit_s += rate * (double)(wall_us - t->wall_us) * 1e-6;
        t->credit_s -= (double)(cpu_us - t->cpu_us) * 1e-6;
        if (t->credit_s > THROTTLE_BURST_S) t->credit_s = THROTTLE_BURST_S;
    }
    t->cpu_us = cpu_us;
    t->wall_us = wall_us;
    return t->credit_s < 0 ? (int64_t)(-t->credit_s / rate * 1e6) : 0;
}
