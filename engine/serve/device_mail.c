/* device_mail.c - the loop's side of the device: jobs and calls go in, mail and events come out. */
#include "base/core/bits.h"
#include "base/io/clock.h"
#include "engine/serve/device_part.h"

void device_deliver(void *arg)
{
    struct device *d = arg;
    pthread_mutex_lock(&d->lock);
    d->posted = false;
    struct list *node;
    while ((node = list_pop_front(&d->out))) {
        struct job *job = CONTAINER_OF(node, struct job, link.to_http);
        pthread_mutex_unlock(&d->lock);
        d->events.on_mail(d->events.arg, job);
        pthread_mutex_lock(&d->lock);
    }
    while ((node = list_pop_front(&d->done))) {
        struct device_call *call = CONTAINER_OF(node, struct device_call, link);
        pthread_mutex_unlock(&d->lock);
        call->done(call);
        pthread_mutex_lock(&d->lock);
    }
    bool blocks_new = d->blocks_new;
    d->blocks_new = false;
    pthread_mutex_unlock(&d->lock);
    if (blocks_new) d->events.on_blocks(d->events.arg);
}

/* With the lock: between its look at the lists and its rest the device thread holds it too. */
static void wake(struct device *d)
{
    pulse_work(&d->pulse, clock_mono_us());
    pthread_cond_signal(&d->wake);
}

static void ask(struct device *d, struct job *job)
{
    if (!list_linked(&job->link.to_device)) list_push_back(&d->in, &job->link.to_device);
    wake(d);
}

void device_submit(struct device *d, struct job *job)
{
    pthread_mutex_lock(&d->lock);
    job->link.submit = true;
    ask(d, job);
    pthread_mutex_unlock(&d->lock);
}

void device_abort(struct device *d, struct job *job)
{
    pthread_mutex_lock(&d->lock);
    job->link.abort = true;
    ask(d, job);
    pthread_mutex_unlock(&d->lock);
}

bool device_take_mail(struct device *d, struct job *job, struct job_mail *mail)
{
    pthread_mutex_lock(&d->lock);
    struct job_mail *from = &job->mail;
    bool some = from->id_count > 0 || from->text.len > 0 || from->accepted || from->ended;
    if (some) {
        struct buf text = mail->text;
        *mail = *from;
        buf_clear(&text);
        /* What the session has said of itself stays said. */
        *from = (struct job_mail){ .text = text, .cached_tokens = mail->cached_tokens };
        pthread_cond_signal(&d->wake); /* it may have been paused for this */
    }
    if (mail->ended && some) {
        if (list_linked(&job->link.to_http)) list_remove(&job->link.to_http);
        if (list_linked(&job->link.to_device)) list_remove(&job->link.to_device);
    }
    pthread_mutex_unlock(&d->lock);
    return some;
}

void device_stats_get(struct device *d, struct device_stats *ret)
{
    pthread_mutex_lock(&d->lock);
    *ret = d->stats;
    ret->clock = d->clock > 0 ? d->clock : 1;
    ret->work = d->work;
    pthread_mutex_unlock(&d->lock);
    ret->work.span_s = (double)(clock_mono_us() - d->began_us) * 1e-6;
}

const struct pulse *device_pulse(const struct device *d)
{
    return &d->pulse;
}

void device_clock_set(struct device *d, double clock)
{
    pthread_mutex_lock(&d->lock);
    d->clock = clock;
    pthread_mutex_unlock(&d->lock);
    metric_set(meter_of(d->meters, METER_CLOCK), clock);
}

int device_blocks(struct device *d, uint64_t after, struct kv_event *ret, uint32_t max)
{
    int rc = -ESTALE;
    pthread_mutex_lock(&d->lock);
    uint64_t last = d->stats.event_seq;
    if (after >= last) {
        rc = 0;
    } else if (last - after <= DEVICE_EVENTS_MAX) {
        uint32_t count = min_u32((uint32_t)(last - after), max);
        rc = (int)count;
        for (uint32_t i = 0; i < count && rc >= 0; i++) {
            ret[i] = d->blocks[(after + 1 + i) % DEVICE_EVENTS_MAX];
            if (ret[i].seq != after + 1 + i) rc = -ESTALE; /* lost on the way here */
        }
    }
    pthread_mutex_unlock(&d->lock);
    return rc;
}

void device_call(struct device *d, struct device_call *call)
{
    pthread_mutex_lock(&d->lock);
    list_push_back(&d->calls, &call->link);
    wake(d);
    pthread_mutex_unlock(&d->lock);
}
