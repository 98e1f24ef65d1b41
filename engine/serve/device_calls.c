/* device_calls.c - serves the HTTP thread: leaves jobs and calls for the device, and takes what it has made of them. */
#include "base/core/bits.h"
#include "base/io/loop/clock.h"
#include "engine/serve/device_state.h"

#include <stdlib.h>

/* Wakes the device thread, which holds the lock from its look at the lists until it waits. */
static void wake(struct device *d)
{
    lock_assert_held(&d->lock);
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
    lock_take(&d->lock);
    job->link.submit = true;
    ask(d, job);
    lock_drop(&d->lock);
}

void device_abort(struct device *d, struct job *job)
{
    lock_take(&d->lock);
    job->link.abort = true;
    ask(d, job);
    lock_drop(&d->lock);
}

bool device_take_mail(struct device *d, struct job *job, struct job_mail *mail)
{
    lock_take(&d->lock);
    struct job_mail *from = &job->mail;
    bool some = from->id_count > 0 || from->text.len > 0 || from->scores.len > 0 ||
                from->accepted || from->ended;
    if (some) {
        struct buf text = mail->text, values = mail->values, scores = mail->scores;
        *mail = *from;
        buf_clear(&text);
        buf_clear(&values);
        buf_clear(&scores);
        /* The number of cached tokens stays known. */
        *from = (struct job_mail){
            .text = text, .values = values, .scores = scores, .cached_tokens = mail->cached_tokens
        };
        pthread_cond_signal(&d->wake); /* it may have been paused for this */
    }
    if (mail->ended && some) {
        if (list_linked(&job->link.to_http)) list_remove(&job->link.to_http);
        if (list_linked(&job->link.to_device)) list_remove(&job->link.to_device);
    }
    lock_drop(&d->lock);
    return some;
}

void device_stats_get(struct device *d, struct device_stats *ret)
{
    lock_take(&d->lock);
    *ret = d->stats;
    ret->clock = d->clock > 0 ? d->clock : 1;
    ret->work = d->work;
    lock_drop(&d->lock);
    ret->work.span_s = (double)(clock_mono_us() - d->began_us) * 1e-6;
}

const struct pulse *device_pulse(const struct device *d)
{
    return &d->pulse;
}

void device_clock_set(struct device *d, double clock)
{
    lock_take(&d->lock);
    d->clock = clock;
    lock_drop(&d->lock);
    metric_set(engine_metric(d->metrics, EM_CLOCK), clock);
}

int device_blocks(struct device *d, uint64_t after, struct kv_event *ret, uint32_t max)
{
    int rc = -ESTALE;
    lock_take(&d->lock);
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
    lock_drop(&d->lock);
    return rc;
}

void device_call(struct device *d, struct device_call *call)
{
    lock_take(&d->lock);
    list_push_back(&d->calls, &call->link);
    wake(d);
    lock_drop(&d->lock);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

struct job *job_new(void)
{
    return calloc(1, sizeof(struct job));
}

void job_free(struct job *job)
{
    if (!job) return;
    free(job->ask.ids);
    free(job->ask.bias);
    grammar_free(job->ask.grammar);
    job_mail_fini(&job->mail);
    free(job);
}

int job_set_stop(struct job *job, const struct str *stop, uint32_t count)
{
    size_t used = 0;
    if (count > OUTPUT_STOP_MAX) return -E2BIG;
    for (uint32_t i = 0; i < count; i++) {
        if (stop[i].len > sizeof job->ask.stop_bytes - used) return -E2BIG;
        memcpy(job->ask.stop_bytes + used, stop[i].data, stop[i].len);
        job->ask.stop_store[i] = str_of(job->ask.stop_bytes + used, stop[i].len);
        used += stop[i].len;
    }
    job->ask.spec.stop = job->ask.stop_store;
    job->ask.spec.stop_count = count;
    return 0;
}

int job_set_bias(struct job *job, const struct token_value *bias, uint32_t count)
{
    if (count == 0) return 0;
    job->ask.bias = calloc(count, sizeof *bias);
    if (!job->ask.bias) return -ENOMEM;
    memcpy(job->ask.bias, bias, count * sizeof *bias);
    job->ask.spec.bias = job->ask.bias;
    job->ask.spec.bias_count = count;
    return 0;
}

void job_mail_fini(struct job_mail *mail)
{
    buf_fini(&mail->text);
    buf_fini(&mail->values);
    buf_fini(&mail->scores);
}
