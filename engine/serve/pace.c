/* pace.c - limits CPU use by a token bucket, and keeps the pulse; tokens accrue while the thread
 * sleeps, so the wait is debt / rate. */
#include "engine/serve/pace.h"

double throttle_rate(const struct throttle *t)
{
    if (t->clock <= 0 || t->clock >= 1) return t->share;
    return t->clock * (t->share > 0 ? t->share : t->cores);
}

int64_t throttle_wait_us(struct throttle *t, int64_t cpu_us, int64_t wall_us)
{
    double rate = throttle_rate(t);
    if (rate <= 0) {
        t->begun = false; /* CPU used without a limit is no debt under a later one */
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

/* A pulse is two numbers that the device thread writes and the loop reads.
 *
 * They are written without a lock: the reader may see the old beginning with the grant of the new
 * step, which is wrong for the moment between two stores, and a stall lasts seconds. */

static void owe(struct pulse *p, int64_t from_us, int64_t grant_us)
{
    atomic_store_explicit(&p->grant_us, grant_us, memory_order_relaxed);
    atomic_store_explicit(&p->owed_us, from_us, memory_order_release);
}

void pulse_work(struct pulse *p, int64_t now_us)
{
    int64_t nothing = 0;
    atomic_compare_exchange_strong(&p->owed_us, &nothing, now_us);
}

void pulse_turn(struct pulse *p, int64_t now_us)
{
    owe(p, now_us, PULSE_MIN_US);
}

void pulse_step(struct pulse *p, int64_t now_us, double predicted_s)
{
    double grant_us = predicted_s * PULSE_STEPS * 1e6;
    owe(p, now_us, grant_us > PULSE_MIN_US ? (int64_t)grant_us : PULSE_MIN_US);
}

void pulse_rest(struct pulse *p, int64_t until_us)
{
    owe(p, until_us, PULSE_MIN_US);
}

void pulse_idle(struct pulse *p)
{
    owe(p, 0, PULSE_MIN_US);
}

int64_t pulse_stalled_us(const struct pulse *p, int64_t excused_us, int64_t now_us)
{
    int64_t owed_us = atomic_load_explicit(&p->owed_us, memory_order_acquire);
    int64_t grant_us = atomic_load_explicit(&p->grant_us, memory_order_relaxed);
    if (owed_us == 0) return 0;
    if (grant_us == 0) grant_us = PULSE_MIN_US;
    int64_t from_us = owed_us > excused_us ? owed_us : excused_us;
    return now_us - from_us >= grant_us ? now_us - from_us : 0;
}
