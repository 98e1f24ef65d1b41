/* face_pulse.c - once a second: does the device thread still make progress, and do streams say so?
 *
 * The loop answers whatever the device does, so an answer of the loop proves nothing. Streams to
 * routers therefore carry an empty line at each turn in which the device is well and the stream is
 * silent: a request that waits in a long queue is told from one whose engine hangs. An engine that
 * has stalled sends none, says so in /health and /internal/info, and lets go of its clients, whose
 * answers can go on elsewhere while it is still being killed.
 *
 * A turn that came late (the process was stopped, the loop was busy) proves nothing about the
 * device: what it owed before is excused.
 */
#include "base/io/log.h"
#include "engine/serve/face_part.h"

#define LATE_US 1000000

static void begin_stall(struct face *f, int64_t stalled_us)
{
    f->stalled = true;
    metric_inc(meter_of(f->meters, METER_STALLS));
    log_event(LOG_ERROR, "device_stalled", "seconds=%.1f in_flight=%u", (double)stalled_us * 1e-6,
              f->call_count);
}

/* Each turn again: calls may have come since, from a pull of K and V that has ended. */
static void tell_calls(struct face *f)
{
    LIST_EACH_SAFE (&f->calls, node) {
        struct call *c = CONTAINER_OF(node, struct call, link);
        if (f->stalled) {
            call_let_go(c);
        } else {
            call_beat(c);
        }
    }
}

static void on_turn(void *arg)
{
    struct face *f = arg;
    int64_t now_us = loop_now_us(f->loop);
    if (now_us - f->pulse_due_us > LATE_US) f->pulse_excused_us = now_us;
    /* Without a model there is no work to stall over. */
    int64_t stalled_us =
        f->info ? pulse_stalled_us(device_pulse(f->device), f->pulse_excused_us, now_us) : 0;
    f->stalled_us = stalled_us;
    metric_set(meter_of(f->meters, METER_STALLED), (double)stalled_us * 1e-6);
    if (stalled_us > 0 && !f->stalled) begin_stall(f, stalled_us);
    if (stalled_us == 0 && f->stalled) {
        f->stalled = false;
        log_event(LOG_WARN, "device_goes_on", "in_flight=%u", f->call_count);
    }
    tell_calls(f);
    f->pulse_due_us = now_us + GENERATE_BEAT_US;
    loop_timer_set(f->loop, &f->pulse_turn, f->pulse_due_us);
}

int face_pulse_start(struct face *f)
{
    f->pulse_turn = (struct loop_timer){ .fn = on_turn, .arg = f };
    f->pulse_due_us = loop_now_us(f->loop) + GENERATE_BEAT_US;
    return loop_timer_set(f->loop, &f->pulse_turn, f->pulse_due_us);
}
