/* pulse.c - two numbers that the device thread writes and the loop reads.
 *
 * They are written without a lock: the reader may see a new beginning with the grant of the step
 * before, which is wrong for the moment between two stores, and a stall lasts seconds. */
#include "engine/serve/pulse.h"

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
