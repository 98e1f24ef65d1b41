/* device.c - mailbox, step, mail, throttle, again.
 *
 *     HTTP thread                          device thread
 *     device_submit ── in ──────────────►  sched_submit
 *     device_abort  ── in ──────────────►  sched_abort
 *                                          step: tokens into their jobs
 *     on_mail       ◄── loop_post ── out   one post a step for all jobs that changed
 *
 * The lock is held to splice lists and to append a token to a mail, never across a step, so the
 * HTTP thread waits for microseconds at most. Tokens are published before the share of the CPU is
 * slept off: throttling costs throughput, not latency of what is done already.
 *
 * Steps below full speed are not learned from. The engine plans by what it has learned, stretched by
 * its clock; it reports both, so that scaling does not take a low clock for a slow machine.
 */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/clock.h"
#include "base/io/log.h"
#include "engine/serve/device_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_A_COPY 64   /* block events copied at once */
#define POST_RETRY_US 2000 /* the loop's queue was full: try again after */
#define HANG_LOOK_US 10000

/* ---- the device's side: from the mailbox to the scheduler ------------------------------------ */

static bool post(struct device *d) /* with the lock */
{
    if (d->posted) return true;
    d->posted = loop_post(d->loop, device_deliver, d) == 0;
    return d->posted;
}

static void mail_end(struct device *d, struct job *job) /* with the lock */
{
    job->mail.ended = true;
    if (!list_linked(&job->link.to_http)) list_push_back(&d->out, &job->link.to_http);
}

/* Takes the job into the scheduler, or mails why not: then the job may be gone already. */
static bool begin(struct device *d, struct job *job)
{
    struct err err = { "no memory for the request" };
    const struct job_ask *a = &job->ask;
    struct sched_request req = {
        .id = a->number,
        .owner = &job->device.answer,
        .ids = a->ids,
        .prompt_tokens = a->id_count,
        .output_max = a->output_max,
        .salt = a->salt,
        .tenant = a->tenant,
        .arrival_us = a->arrival_us,
        .deadline_us = a->deadline_us,
        .predicted_p50 = a->predicted_p50,
        .predicted_p90 = a->predicted_p90,
        .predicted_mean = a->predicted_mean,
    };
    int rc = answer_init(&job->device.answer, d->info.model->vocab, &a->spec, a->ids, a->id_count);
    if (rc >= 0) rc = sched_submit(executor_sched(d->x), &req, &job->device.session, &err);
    if (rc < 0) answer_fini(&job->device.answer);
    pthread_mutex_lock(&d->lock);
    if (rc >= 0) {
        list_push_back(&d->active, &job->device.active);
        job->mail.accepted = true;
        if (!list_linked(&job->link.to_http)) list_push_back(&d->out, &job->link.to_http);
    } else {
        job->mail.refused = rc;
        memcpy(job->mail.error, err.text, sizeof job->mail.error);
        mail_end(d, job);
    }
    pthread_mutex_unlock(&d->lock);
    return rc >= 0;
}

/* A session whose reader is slow takes no step until its mail was read. */
static void update_pauses(struct device *d)
{
    pthread_mutex_lock(&d->lock);
    LIST_EACH (&d->active, node) {
        struct job *job = CONTAINER_OF(node, struct job, device.active);
        uint32_t unread = job->mail.id_count;
        if (unread >= JOB_PAUSE_TOKENS) {
            sched_pause(executor_sched(d->x), job->device.session, true);
        } else if (unread <= JOB_RESUME_TOKENS) {
            sched_pause(executor_sched(d->x), job->device.session, false);
        }
    }
    pthread_mutex_unlock(&d->lock);
}

static void run_calls(struct device *d)
{
    pthread_mutex_lock(&d->lock);
    struct list *node;
    while ((node = list_pop_front(&d->calls))) {
        struct device_call *call = CONTAINER_OF(node, struct device_call, link);
        pthread_mutex_unlock(&d->lock);
        call->fn(call, d->x);
        pthread_mutex_lock(&d->lock);
        list_push_back(&d->done, &call->link);
    }
    pthread_mutex_unlock(&d->lock);
}

static void read_mailbox(struct device *d)
{
    pthread_mutex_lock(&d->lock);
    d->throttle.clock = d->clock;
    executor_clock_set(d->x, d->clock > 0 ? d->clock : 1);
    struct list *node;
    while ((node = list_pop_front(&d->in))) {
        struct job *job = CONTAINER_OF(node, struct job, link.to_device);
        bool submit = job->link.submit, aborted = job->link.abort, alive = true;
        job->link.submit = false;
        if (submit) {
            pthread_mutex_unlock(&d->lock);
            alive = begin(d, job);
            pthread_mutex_lock(&d->lock);
        }
        /* In the list under the lock means not freed; accepted means that only this thread can
         * end it. */
        if (aborted && alive && job->device.session) {
            sched_abort(executor_sched(d->x), job->device.session);
        }
    }
    /* Whoever was taken in hears so before the step, which may be long, or the last. */
    if (!list_empty(&d->out)) post(d);
    pthread_mutex_unlock(&d->lock);
    run_calls(d);
    update_pauses(d);
}

/* ---- what a step says ------------------------------------------------------------------------ */

static struct job *job_of(struct answer *answer)
{
    return CONTAINER_OF(answer, struct job, device.answer);
}

/* With the lock. Text is moved even where no token came: an end flushes what was held back. */
static void publish(struct device *d, struct job *job, const uint32_t *id)
{
    struct job_mail *mail = &job->mail;
    struct buf *text = &job->device.answer.text;
    if (id) {
        must(mail->id_count < JOB_MAIL_TOKENS);
        mail->ids[mail->id_count++] = *id;
    }
    if (text->len > 0 && buf_str(&mail->text, buf_view(text)) < 0) {
        job->device.answer.failed = -ENOMEM;
        sched_abort(executor_sched(d->x), job->device.session);
    }
    buf_clear(text);
    if (!list_linked(&job->link.to_http)) list_push_back(&d->out, &job->link.to_http);
}

/* ---- failures on demand ----------------------------------------------------------------------- */

/* As a device that never comes back, until the fault is disarmed. */
static void hang(void)
{
    while (__atomic_load_n(&fault_armed, __ATOMIC_RELAXED))
        usleep(HANG_LOOK_US);
}

/* Points that name a prompt's length stand for a prompt that kills whoever computes it. */
static void fail_at_prompt(const struct session *session)
{
    char dies[32], hangs[32];
    snprintf(dies, sizeof dies, "device.die_at_%u", session->prompt_tokens);
    snprintf(hangs, sizeof hangs, "device.hang_at_%u", session->prompt_tokens);
    if (FAULT(dies)) abort();
    if (FAULT(hangs)) hang();
}

static void on_step(void *arg, double predicted_s)
{
    struct device *d = arg;
    pulse_step(&d->pulse, clock_mono_us(), predicted_s);
    if (FAULT("device.hang")) hang();
}

static void on_token(void *arg, struct answer *answer, const struct session *session, uint32_t id)
{
    struct device *d = arg;
    struct job *job = job_of(answer);
    int64_t now_us = clock_mono_us();
    if (__atomic_load_n(&fault_armed, __ATOMIC_RELAXED)) fail_at_prompt(session);
    if (session_generated(session) == 0) {
        metric_observe(meter_of(d->meters, METER_TTFT),
                       (double)(now_us - session->arrival_us) * 1e-6);
    } else {
        metric_observe(meter_of(d->meters, METER_ITL),
                       (double)(now_us - job->device.last_token_us) * 1e-6);
    }
    job->device.last_token_us = now_us;
    pthread_mutex_lock(&d->lock);
    job->mail.cached_tokens = session->cached_tokens;
    publish(d, job, &id);
    pthread_mutex_unlock(&d->lock);
}

static void on_end(void *arg, struct answer *answer, const struct session *session)
{
    struct device *d = arg;
    struct job *job = job_of(answer);
    meters_ended(d->meters, session, job->device.last_token_us);
    /* Who goes on is primed with the ids and has the same text held back. Where the context ends
     * nobody can. */
    bool goes_on = job->ask.goes_on && session->end == SESSION_END_LENGTH &&
                   session->total < d->info.context_max;
    if (session->end != SESSION_END_STOP && !goes_on) answer_close(answer);
    pthread_mutex_lock(&d->lock);
    publish(d, job, NULL);
    struct job_mail *mail = &job->mail;
    mail->end = session->end;
    mail->generated = session_generated(session);
    mail->cached_tokens = session->cached_tokens;
    if (answer->failed) {
        mail->end = SESSION_END_ERROR;
        snprintf(mail->error, sizeof mail->error, "%s",
                 answer->failed == -EDOM ? "the model gave no usable logits for this request"
                                         : "no memory for the text of the answer");
    } else if (mail->end == SESSION_END_ERROR) {
        snprintf(mail->error, sizeof mail->error, "the model failed; the engine's log says why");
    }
    list_remove(&job->device.active);
    answer_fini(answer);
    job->device.session = NULL;
    mail_end(d, job);
    pthread_mutex_unlock(&d->lock);
}

/* Copies new block events for the readers on the loop's side and updates the gauges. */
static void publish_state(struct device *d)
{
    struct device_stats now = { .perf = *executor_perf(d->x) };
    struct kv_index *index = sched_index(executor_sched(d->x));
    sched_counts_get(executor_sched(d->x), &now.counts);
    now.pages_free = index->pool->free_count;
    now.pages_held = index->pool->held_count;
    now.pages_cached = index->pool->cached_count;
    now.event_seq = index->event_seq;
    now.prefill_owed = sched_prefill_owed(executor_sched(d->x));

    pthread_mutex_lock(&d->lock);
    uint64_t seen = d->stats.event_seq;
    struct kv_event ev[EVENTS_A_COPY];
    int n;
    /* -ESTALE: more in one step than the index keeps. The places keep old numbers, which tells
     * every reader that something is missing. */
    while ((n = kv_index_events(index, seen, ev, EVENTS_A_COPY)) > 0) {
        for (int i = 0; i < n; i++)
            d->blocks[ev[i].seq % DEVICE_EVENTS_MAX] = ev[i];
        seen = ev[n - 1].seq;
    }
    if (now.event_seq != d->stats.event_seq) d->blocks_new = true;
    d->stats = now;
    pthread_mutex_unlock(&d->lock);

    struct meters *m = d->meters;
    meters_counts(m, &d->metered, &now.counts);
    d->metered = now.counts;
    if (index->evictions > d->evictions) {
        metric_add(meter_of(m, METER_EVICTIONS), (double)(index->evictions - d->evictions));
    }
    d->evictions = index->evictions;
    metric_set(m->pages[0], now.pages_free);
    metric_set(m->pages[1], now.pages_held);
    metric_set(m->pages[2], now.pages_cached);
    metric_set(meter_of(m, METER_OWED), (double)now.prefill_owed);
    metric_set(meter_of(m, METER_KV_USAGE), (double)now.pages_held / index->pool->total);
    metric_set(m->perf[0], now.perf.a);
    metric_set(m->perf[1], now.perf.b);
    metric_set(m->perf[2], now.perf.c);
    metric_set(m->perf[3], now.perf.d);
    metric_set(m->perf[4], now.perf.e);
    metric_set(meter_of(m, METER_PERF_SAMPLES), now.perf.samples);
    metric_set(meter_of(m, METER_PERF_RATIO), now.perf.ratio_p90);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static int64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Waits for the wake-up or until `at_us`; with the lock. */
static void wait_until(struct device *d, int64_t at_us)
{
    if (at_us == INT64_MAX) {
        pthread_cond_wait(&d->wake, &d->lock);
        return;
    }
    /* Condition variables know CLOCK_MONOTONIC only: what is left is turned into its time. */
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    int64_t us = at.tv_nsec / 1000 + max_i64(0, at_us - clock_mono_us());
    at.tv_sec += us / 1000000;
    at.tv_nsec = us % 1000000 * 1000;
    pthread_cond_timedwait(&d->wake, &d->lock, &at);
}

/* Sleeps off what the step used beyond the share; only a stop ends it early. */
static void keep_share(struct device *d)
{
    int64_t now_us = clock_mono_us();
    int64_t wait_us = throttle_wait_us(&d->throttle, cpu_us(), now_us);
    if (wait_us <= 0) return;
    int64_t until_us = now_us + wait_us;
    pulse_rest(&d->pulse, until_us);
    pthread_mutex_lock(&d->lock);
    while (!d->stop && clock_mono_us() < until_us)
        wait_until(d, until_us);
    pthread_mutex_unlock(&d->lock);
    metric_add(meter_of(d->meters, METER_THROTTLED), (double)wait_us * 1e-6);
}

/* True when there is something to do; false to stop. */
static bool wait_for_work(struct device *d)
{
    pthread_mutex_lock(&d->lock);
    for (;;) {
        /* Readers that caught up make their sessions work again. */
        bool resumable = false;
        LIST_EACH (&d->active, node) {
            struct job *job = CONTAINER_OF(node, struct job, device.active);
            resumable |= job->device.session->paused && job->mail.id_count <= JOB_RESUME_TOKENS;
        }
        bool mail = !list_empty(&d->out) || !list_empty(&d->done) || d->blocks_new;
        bool told = !mail || post(d);
        bool work = !list_empty(&d->in) || !list_empty(&d->calls) || resumable ||
                    sched_has_work(executor_sched(d->x));
        int64_t deadline_us = sched_next_deadline_us(executor_sched(d->x));
        if (d->stop || work || deadline_us <= clock_mono_us()) break;
        pulse_idle(&d->pulse);
        wait_until(d, told ? deadline_us : min_i64(deadline_us, clock_mono_us() + POST_RETRY_US));
    }
    bool go = !d->stop;
    if (go) pulse_turn(&d->pulse, clock_mono_us());
    pthread_mutex_unlock(&d->lock);
    return go;
}

static void add_work(struct device *d, const struct perf_shape *s, double seconds)
{
    pthread_mutex_lock(&d->lock);
    struct wire_work *w = &d->work;
    w->busy_s += seconds;
    w->steps++;
    w->prefill_tokens += s->prefill_tokens;
    w->prefill_chunks += s->prefill_chunks;
    w->decoding_seqs += s->decoding_seqs;
    w->kv_tokens += s->kv_tokens_read;
    w->kv_tokens_decoding += s->kv_tokens_decoding;
    pthread_mutex_unlock(&d->lock);
}

static void one_step(struct device *d)
{
    struct executor_step_info step;
    struct err err = { "" };
    int64_t from_us = clock_mono_us();
    int rc = executor_step(d->x, clock_mono_us, &step, &err);
    if (rc < 0) {
        log_event(LOG_ERROR, "step_failed", "error=%s", err_text(&err, rc));
    }
    publish_state(d);
    pthread_mutex_lock(&d->lock);
    post(d); /* refused by a full loop: wait_for_work tries again */
    pthread_mutex_unlock(&d->lock);
    if (rc <= 0) return;
    keep_share(d);
    double seconds = (double)(clock_mono_us() - from_us) * 1e-6;
    add_work(d, &step.shape, seconds);
    bool full = d->throttle.clock <= 0 || d->throttle.clock >= 1;
    if (step.pages_swapped == 0 && full) {
        executor_observe(d->x, &step.shape, seconds);
        step_log_add(&d->step_log, &step.shape, seconds);
    }
    metric_observe(meter_of(d->meters, METER_STEP), seconds);
    metric_observe(meter_of(d->meters, METER_STEP_TOKENS), step.tokens);
}

static void tell_ready(void *arg)
{
    struct device *d = arg;
    d->events.on_ready(d->events.arg, &d->info);
}

static void tell_failed(void *arg)
{
    struct device *d = arg;
    d->events.on_failed(d->events.arg, d->failure);
}

static void *device_main(void *arg)
{
    struct device *d = arg;
    struct err err = { "" };
    const struct executor_events events = {
        .on_token = on_token, .on_end = on_end, .on_step = on_step, .arg = d
    };
    int rc = device_load(d, &events, &err);
    if (rc < 0) snprintf(d->failure, sizeof d->failure, "%s", err_text(&err, rc));
    /* The first post of this loop's life: there is room. */
    must(loop_post(d->loop, rc < 0 ? tell_failed : tell_ready, d) == 0);
    if (rc < 0) return NULL;
    publish_state(d);
    while (wait_for_work(d)) {
        read_mailbox(d);
        one_step(d);
    }
    step_log_close(&d->step_log);
    return NULL;
}

int device_new(struct loop *loop, const struct device_config *config, struct meters *meters,
               const struct device_events *events, struct device **ret, struct err *err)
{
    struct device *d = calloc(1, sizeof *d);
    if (!d) return -ENOMEM;
    d->config = *config;
    d->events = *events;
    d->meters = meters;
    d->loop = loop;
    d->throttle = (struct throttle){ .share = config->cpu_share, .cores = config->threads };
    d->began_us = clock_mono_us();
    metric_set(meter_of(meters, METER_CLOCK), 1);
    d->blocks = calloc(DEVICE_EVENTS_MAX, sizeof *d->blocks);
    /* No event has this number; see kv_index_init for why it is written. */
    for (uint32_t i = 0; d->blocks && i < DEVICE_EVENTS_MAX; i++)
        d->blocks[i].seq = UINT64_MAX;
    list_init(&d->in);
    list_init(&d->calls);
    list_init(&d->out);
    list_init(&d->done);
    list_init(&d->active);
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->wake, &attr);
    pthread_condattr_destroy(&attr);
    int rc = d->blocks ? -pthread_create(&d->thread, NULL, device_main, d) : -ENOMEM;
    if (rc < 0) {
        free(d->blocks);
        free(d);
        return err_set(err, rc, "cannot start the device thread: %s", err_text(NULL, rc));
    }
    *ret = d;
    return 0;
}

void device_free(struct device *d)
{
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    executor_free(d->x);
    LIST_EACH (&d->active, node) {
        answer_fini(&CONTAINER_OF(node, struct job, device.active)->device.answer);
    }
    model_free(d->model);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->wake);
    free(d->blocks);
    free(d);
}
