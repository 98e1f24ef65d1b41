/* device.c - loops over the mailbox, a step, the mail and the throttle.
 *
 *     HTTP thread                          device thread
 *     device_submit ── in ──────────────►  sched_submit
 *     device_abort  ── in ──────────────►  sched_abort
 *                                          step: tokens into their jobs
 *     on_mail       ◄── loop_post ── out   one post a step for all jobs that changed
 *
 * The lock is held to splice lists and to append a token to a mail, never across a step, so the
 * HTTP thread waits for microseconds at most. Tokens are published before the thread sleeps to
 * keep its CPU share: throttling costs throughput, not latency of tokens that are done.
 *
 * The engine does not learn from steps below full speed. It plans by what it has learned, stretched
 * by its clock; it reports both, so that scaling does not take a low clock for a slow machine.
 */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "engine/serve/device_load.h"
#include "engine/serve/device_state.h"
#include "engine/serve/metrics.h"
#include "engine/serve/pace.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_A_COPY 64   /* block events copied at once */
#define POST_RETRY_US 2000 /* the loop's queue was full: try again after */
#define HANG_LOOK_US 10000

/* ---- mail to the loop's thread --------------------------------------------------------------- */

static void device_deliver(void *arg)
{
    struct device *d = arg;
    loop_assert_owner(d->loop);
    lock_take(&d->lock);
    d->posted = false;
    struct list *node;
    while ((node = list_pop_front(&d->out))) {
        struct job *job = CONTAINER_OF(node, struct job, link.to_http);
        lock_drop(&d->lock);
        d->events.on_mail(d->events.arg, job);
        lock_take(&d->lock);
    }
    while ((node = list_pop_front(&d->done))) {
        struct device_call *call = CONTAINER_OF(node, struct device_call, link);
        lock_drop(&d->lock);
        call->done(call);
        lock_take(&d->lock);
    }
    bool blocks_new = d->blocks_new;
    d->blocks_new = false;
    lock_drop(&d->lock);
    if (blocks_new) d->events.on_blocks(d->events.arg);
}

/* ---- the device's side: from the mailbox to the scheduler ------------------------------------ */

static bool post(struct device *d)
{
    lock_assert_held(&d->lock);
    if (d->posted) return true;
    d->posted = loop_post(d->loop, device_deliver, d) == 0;
    return d->posted;
}

static void mail_end(struct device *d, struct job *job)
{
    lock_assert_held(&d->lock);
    job->mail.ended = true;
    if (!list_linked(&job->link.to_http)) list_push_back(&d->out, &job->link.to_http);
}

#define GRAMMAR_FULL_TEXT "the output needs more of its grammar at once than is kept for one"

/* Finds or makes the automaton of the job's grammar. */
static int open_grammar(struct device *d, struct job *job, struct err *err)
{
    struct job_ask *a = &job->ask;
    if (!a->grammar) return 0;
    int rc = masks_open(executor_masks(d->x), a->grammar_key, a->marks, &a->grammar,
                        &job->device.automaton);
    if (rc == -E2BIG) err_set(err, rc, "the model's vocabulary is too large for grammars");
    return rc;
}

static void end_output(struct device *d, struct job *job)
{
    output_fini(&job->device.output);
    if (job->device.automaton) masks_close(executor_masks(d->x), job->device.automaton);
    job->device.automaton = NULL;
}

/* Submits the job to the scheduler, or mails why not; returns false then, and the job may be
 * gone. */
static bool begin(struct device *d, struct job *job)
{
    struct err err = { "no memory for the request" };
    const struct job_ask *a = &job->ask;
    struct sched_request req = {
        .id = a->number,
        .owner = &job->device.output,
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
        .has_rank = a->has_rank,
        .rank = a->rank,
        .group = a->group,
        .weight = a->weight,
        .begun = a->id_count > a->spec.prompt_tokens,
        .score_from = a->score_from,
        .score_end = a->score_from > 0 ? a->spec.prompt_tokens : 0,
    };
    struct output_spec spec = a->spec;
    int rc = open_grammar(d, job, &err);
    spec.automaton = job->device.automaton;
    if (a->marks) spec.shown = masks_marks(executor_masks(d->x), &spec.shown_count);
    if (rc >= 0) {
        rc = output_init(&job->device.output, d->info.model->vocab, &spec, a->ids, a->id_count);
        if (rc == -EINVAL) err_set(&err, rc, "the grammar does not allow the output so far");
        if (rc == -E2BIG) err_set(&err, rc, GRAMMAR_FULL_TEXT);
        if (rc >= 0) rc = sched_submit(executor_sched(d->x), &req, &job->device.session, &err);
        if (rc < 0) end_output(d, job);
    }
    lock_take(&d->lock);
    if (rc >= 0) {
        list_push_back(&d->active, &job->device.active);
        job->mail.accepted = true;
        if (!list_linked(&job->link.to_http)) list_push_back(&d->out, &job->link.to_http);
    } else {
        job->mail.refused = rc;
        memcpy(job->mail.error, err.text, sizeof job->mail.error);
        mail_end(d, job);
    }
    lock_drop(&d->lock);
    return rc >= 0;
}

static bool is_unread(const struct job_mail *mail)
{
    return mail->id_count >= JOB_PAUSE_TOKENS || mail->scores.len >= JOB_SCORES_BYTES;
}

/* Returns true if so much of a mail was read that its session goes on. */
static bool is_read(const struct job_mail *mail)
{
    return mail->id_count <= JOB_RESUME_TOKENS && mail->scores.len < JOB_SCORES_BYTES / 2;
}

/* Pauses sessions with a slow reader: they take no step until their mail was read. */
static void update_pauses(struct device *d)
{
    lock_take(&d->lock);
    LIST_EACH (&d->active, node) {
        struct job *job = CONTAINER_OF(node, struct job, device.active);
        if (is_unread(&job->mail)) {
            sched_pause(executor_sched(d->x), job->device.session, true);
        } else if (is_read(&job->mail)) {
            sched_pause(executor_sched(d->x), job->device.session, false);
        }
    }
    lock_drop(&d->lock);
}

static void run_calls(struct device *d)
{
    lock_take(&d->lock);
    struct list *node;
    while ((node = list_pop_front(&d->calls))) {
        struct device_call *call = CONTAINER_OF(node, struct device_call, link);
        lock_drop(&d->lock);
        call->fn(call, d->x);
        lock_take(&d->lock);
        list_push_back(&d->done, &call->link);
    }
    lock_drop(&d->lock);
}

static void read_mailbox(struct device *d)
{
    owner_assert(&d->owner);
    lock_take(&d->lock);
    d->throttle.clock = d->clock;
    executor_clock_set(d->x, d->clock > 0 ? d->clock : 1);
    struct list *node;
    while ((node = list_pop_front(&d->in))) {
        struct job *job = CONTAINER_OF(node, struct job, link.to_device);
        bool submit = job->link.submit, aborted = job->link.abort, alive = true;
        job->link.submit = false;
        if (submit) {
            lock_drop(&d->lock);
            alive = begin(d, job);
            lock_take(&d->lock);
        }
        /* A job that is in the list under the lock is not freed; one that was accepted can be ended
         * by this thread only. */
        if (aborted && alive && job->device.session) {
            sched_abort(executor_sched(d->x), job->device.session);
        }
    }
    /* Jobs that were taken in are told before the step, which may be long, or the last. */
    if (!list_empty(&d->out)) post(d);
    lock_drop(&d->lock);
    run_calls(d);
    update_pauses(d);
}

/* ---- events of a step ------------------------------------------------------------------------ */

static struct job *job_of(struct output *output)
{
    return CONTAINER_OF(output, struct job, device.output);
}

static struct token_value value_of(struct sampler_choice c)
{
    return (struct token_value){ c.id, c.logprob > LOGPROB_NONE ? c.logprob : LOGPROB_NONE };
}

/* Appends the log-probabilities of a token, where they are asked for. */
static int put_values(const struct job *job, const struct sampler_result *got, struct buf *out)
{
    const struct sampler_params *p = &job->ask.spec.sampling;
    struct token_value row[1 + SAMPLER_LOGPROBS_MAX];
    if (!p->want_logprob) return 0;
    row[0] = value_of(got->chosen);
    for (uint32_t i = 0; i < p->logprobs; i++)
        row[1 + i] =
            i < got->top_count ? value_of(got->top[i]) : (struct token_value){ 0, LOGPROB_NONE };
    return buf_append(out, row, (1 + p->logprobs) * sizeof *row);
}

_Static_assert(JOB_PAUSE_TOKENS + DRAFT_TOKENS_MAX < JOB_MAIL_TOKENS,
               "a session that is not paused has room for all tokens of a step");

/* Moves a token and the new text into the job's mail. Text is moved even where no token came: an end
 * flushes what was held back. */
static void publish(struct device *d, struct job *job, const struct sampler_result *got)
{
    lock_assert_held(&d->lock);
    struct job_mail *mail = &job->mail;
    struct buf *text = &job->device.output.text;
    int rc = 0;
    if (got) {
        must(mail->id_count < JOB_MAIL_TOKENS);
        mail->ids[mail->id_count++] = got->chosen.id;
        rc = put_values(job, got, &mail->values);
    }
    if (text->len > 0 && rc == 0) rc = buf_str(&mail->text, buf_view(text));
    if (rc < 0) {
        job->device.output.failed = -ENOMEM;
        sched_abort(executor_sched(d->x), job->device.session);
    }
    buf_clear(text);
    if (!list_linked(&job->link.to_http)) list_push_back(&d->out, &job->link.to_http);
}

/* ---- failures on demand ----------------------------------------------------------------------- */

/* Hangs like a device that never comes back, until the fault is disarmed. */
static void hang(void)
{
    while (__atomic_load_n(&fault_armed, __ATOMIC_RELAXED))
        usleep(HANG_LOOK_US);
}

/* Fails at a prompt of the length that the fault's point names, like a prompt that kills every
 * engine that computes it. */
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
    d->predicted_s = predicted_s;
    if (FAULT("device.hang")) hang();
}

static void on_token(void *arg, struct output *output, const struct session *session,
                     const struct sampler_result *got)
{
    struct device *d = arg;
    struct job *job = job_of(output);
    int64_t now_us = clock_mono_us();
    owner_assert(&d->owner);
    if (__atomic_load_n(&fault_armed, __ATOMIC_RELAXED)) fail_at_prompt(session);
    if (session_generated(session) == 0) {
        metric_observe(engine_metric(d->metrics, EM_TTFT),
                       (double)(now_us - session->arrival_us) * 1e-6);
    } else {
        metric_observe(engine_metric(d->metrics, EM_ITL),
                       (double)(now_us - job->device.last_token_us) * 1e-6);
    }
    job->device.last_token_us = now_us;
    lock_take(&d->lock);
    job->mail.cached_tokens = session->cached_tokens;
    publish(d, job, got);
    lock_drop(&d->lock);
}

static void on_scored(void *arg, struct output *output, const struct session *session,
                      const struct sampler_result *got)
{
    struct device *d = arg;
    struct job *job = job_of(output);
    lock_take(&d->lock);
    job->mail.cached_tokens = session->cached_tokens;
    if (put_values(job, got, &job->mail.scores) < 0) {
        output->failed = -ENOMEM;
        sched_abort(executor_sched(d->x), job->device.session);
    }
    if (!list_linked(&job->link.to_http)) list_push_back(&d->out, &job->link.to_http);
    lock_drop(&d->lock);
}

static const char *failure_text(int failed)
{
    switch (failed) {
    case -EDOM:
        return "the model gave no usable logits for this request";
    case -ENODATA:
        return "no token of this model continues the output as its grammar asks";
    case -E2BIG:
        return GRAMMAR_FULL_TEXT;
    default:
        return "no memory for the text of the output";
    }
}

static void on_end(void *arg, struct output *output, const struct session *session)
{
    struct device *d = arg;
    struct job *job = job_of(output);
    owner_assert(&d->owner);
    engine_metrics_ended(d->metrics, session, job->device.last_token_us);
    /* An engine that continues this output is primed with the ids and so holds the same text back.
     * At the end of the context none can continue it. */
    bool goes_on = job->ask.goes_on && session->end == SESSION_END_LENGTH &&
                   session->total < d->info.context_max;
    if (session->end != SESSION_END_STOP && !goes_on) output_close(output);
    lock_take(&d->lock);
    publish(d, job, NULL);
    struct job_mail *mail = &job->mail;
    mail->end = session->end;
    /* A prompt alone ends by its limit of no tokens. */
    if (mail->end == SESSION_END_STOP && output->spec.prompt_only) mail->end = SESSION_END_LENGTH;
    mail->generated = session_generated(session);
    mail->times = (struct job_times){ session->admitted_us, session->first_token_us,
                                      job->device.last_token_us, session->preemptions };
    mail->cached_tokens = session->cached_tokens;
    mail->stopped = output->stop.met;
    if (mail->end == SESSION_END_DISPLACED) {
        mail->refused = -EAGAIN;
        snprintf(mail->error, sizeof mail->error,
                 "the queue is full, and another tenant has fewer requests in it");
    } else if (output->failed) {
        mail->end = SESSION_END_ERROR;
        snprintf(mail->error, sizeof mail->error, "%s", failure_text(output->failed));
    } else if (mail->end == SESSION_END_ERROR) {
        snprintf(mail->error, sizeof mail->error, "the model failed; the engine's log says why");
    }
    list_remove(&job->device.active);
    end_output(d, job);
    job->device.session = NULL;
    mail_end(d, job);
    lock_drop(&d->lock);
}

/* Copies new block events for the readers on the loop's side and updates the gauges. */
static void publish_state(struct device *d)
{
    owner_assert(&d->owner);
    struct device_stats now = { .perf = *executor_perf(d->x) };
    struct kv_index *index = sched_index(executor_sched(d->x));
    sched_counts_get(executor_sched(d->x), &now.counts);
    const struct kv_pool_pages pages = kv_pool_pages(index->pool);
    now.pages_free = pages.free;
    now.pages_held = pages.held;
    now.pages_cached = pages.cached;
    now.event_seq = index->event_seq;
    now.head_pages = sched_head_pages(executor_sched(d->x));
    now.prefill_owed = sched_prefill_owed(executor_sched(d->x));

    lock_take(&d->lock);
    uint64_t seen = d->stats.event_seq;
    struct kv_event ev[EVENTS_A_COPY];
    int n;
    /* -ESTALE: one step made more events than the index keeps. The ring's places keep old numbers,
     * which tells every reader that something is missing. */
    while ((n = kv_index_events(index, seen, ev, EVENTS_A_COPY)) > 0) {
        for (int i = 0; i < n; i++)
            d->blocks[ev[i].seq % DEVICE_EVENTS_MAX] = ev[i];
        seen = ev[n - 1].seq;
    }
    if (now.event_seq != d->stats.event_seq) d->blocks_new = true;
    d->stats = now;
    lock_drop(&d->lock);

    struct engine_metrics *m = d->metrics;
    engine_metrics_counts(m, &d->metered, &now.counts);
    d->metered = now.counts;
    if (index->evictions > d->evictions) {
        metric_add(engine_metric(m, EM_EVICTIONS), (double)(index->evictions - d->evictions));
    }
    d->evictions = index->evictions;
    metric_set(m->pages[0], now.pages_free);
    metric_set(m->pages[1], now.pages_held);
    metric_set(m->pages[2], now.pages_cached);
    metric_set(engine_metric(m, EM_OWED), (double)now.prefill_owed);
    metric_set(engine_metric(m, EM_KV_USAGE),
               (double)index->pool->held_units / (double)index->pool->units);
    metric_set(m->perf[0], now.perf.step_s);
    metric_set(m->perf[1], now.perf.prefill_token_s);
    metric_set(m->perf[2], now.perf.decode_seq_s);
    metric_set(m->perf[3], now.perf.kv_read_s);
    metric_set(m->perf[4], now.perf.attend_s);
    metric_set(engine_metric(m, EM_PERF_SAMPLES), now.perf.samples);
    metric_set(engine_metric(m, EM_PERF_RATIO), now.perf.ratio_p90);
    if (!executor_drafter(d->x)) return;
    struct drafter_counts drafted;
    drafter_counts_get(executor_drafter(d->x), &drafted);
    engine_metrics_drafter(m, &d->drafted, &drafted);
    d->drafted = drafted;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static int64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Waits for the wake-up or until `at_us`; the lock is held before and after. */
static void wait_until(struct device *d, int64_t at_us)
{
    if (at_us == INT64_MAX) {
        lock_wait(&d->lock, &d->wake);
        return;
    }
    /* Condition variables know CLOCK_MONOTONIC only: what is left is turned into its time. */
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    int64_t us = at.tv_nsec / 1000 + max_i64(0, at_us - clock_mono_us());
    at.tv_sec += us / 1000000;
    at.tv_nsec = us % 1000000 * 1000;
    lock_wait_until(&d->lock, &d->wake, &at);
}

/* Sleeps until what the step used is within the share; only a stop ends it early. */
static void keep_share(struct device *d)
{
    int64_t now_us = clock_mono_us();
    int64_t wait_us = throttle_wait_us(&d->throttle, cpu_us(), now_us);
    if (wait_us <= 0) return;
    int64_t until_us = now_us + wait_us;
    pulse_rest(&d->pulse, until_us);
    lock_take(&d->lock);
    while (!d->stop && clock_mono_us() < until_us)
        wait_until(d, until_us);
    lock_drop(&d->lock);
    metric_add(engine_metric(d->metrics, EM_THROTTLED), (double)wait_us * 1e-6);
}

/* Waits until there is work. Returns false to stop. */
static bool wait_for_work(struct device *d)
{
    lock_take(&d->lock);
    for (;;) {
        /* A session resumes when its reader has caught up. */
        bool resumable = false;
        LIST_EACH (&d->active, node) {
            struct job *job = CONTAINER_OF(node, struct job, device.active);
            resumable |= job->device.session->paused && is_read(&job->mail);
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
    lock_drop(&d->lock);
    return go;
}

static void add_work(struct device *d, const struct perf_shape *s, double seconds)
{
    lock_take(&d->lock);
    struct wire_work *w = &d->work;
    w->busy_s += seconds;
    w->steps++;
    w->prefill_tokens += s->prefill_tokens;
    w->prefill_chunks += s->prefill_chunks;
    w->decoding_seqs += s->decoding_seqs;
    w->kv_tokens += s->kv_tokens_read;
    w->kv_tokens_decoding += s->kv_tokens_decoding;
    lock_drop(&d->lock);
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
    lock_take(&d->lock);
    post(d); /* refused by a full loop: wait_for_work tries again */
    lock_drop(&d->lock);
    if (rc <= 0) return;
    double busy_s = (double)max_i64(clock_mono_us() - from_us, 1) * 1e-6;
    keep_share(d);
    double seconds = (double)max_i64(clock_mono_us() - from_us, 1) * 1e-6;
    add_work(d, &step.shape, seconds);
    bool full = d->throttle.clock <= 0 || d->throttle.clock >= 1;
    if (step.pages_swapped == 0 && full) {
        double stretch = seconds / busy_s, step_s = seconds - step.draft_s * stretch;
        executor_observe(d->x, &step.shape, step_s);
        executor_observe_draft(d->x, stretch);
        step_log_add(&d->step_log, &step.shape, step_s);
    }
    metric_observe(engine_metric(d->metrics, EM_STEP), seconds);
    metric_add(engine_metric(d->metrics, EM_STEP_PREDICTED), fmax(0, d->predicted_s));
    metric_observe(engine_metric(d->metrics, EM_STEP_TOKENS), step.tokens);
}

/* ---- start and end --------------------------------------------------------------------------- */

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

/* Returns false once the device is to end. */
static bool is_wanted(void *arg)
{
    struct device *d = arg;
    lock_take(&d->lock);
    bool stop = d->stop;
    lock_drop(&d->lock);
    return !stop;
}

static void *device_main(void *arg)
{
    struct device *d = arg;
    struct err err = { "" };
    const struct executor_events events = {
        .on_token = on_token,
        .on_scored = on_scored,
        .on_end = on_end,
        .on_step = on_step,
        .arg = d,
    };
    struct device_loaded loaded = { 0 };
    owner_claim(&d->owner);
    int rc = step_log_open(&d->step_log, d->config.step_log, &err);
    if (rc == 0) rc = device_load(&d->config, d->metrics, &events, &loaded, &err);
    d->model = loaded.model;
    d->draft = loaded.draft;
    d->x = loaded.x;
    d->info = loaded.info;
    if (rc < 0) snprintf(d->failure, sizeof d->failure, "%s", err_text(&err, rc));
    /* The first post of this loop's life: there is room. */
    must(loop_post(d->loop, rc < 0 ? tell_failed : tell_ready, d) == 0);
    if (rc == 0) {
        publish_state(d);
        while (wait_for_work(d)) {
            read_mailbox(d);
            one_step(d);
        }
        step_log_close(&d->step_log);
        executor_save(d->x);
    }
    owner_release(&d->owner);
    return NULL;
}

int device_new(struct loop *loop, const struct device_config *config,
               struct engine_metrics *metrics, const struct device_events *events,
               struct device **ret, struct err *err)
{
    struct device *d = calloc(1, sizeof *d);
    if (!d) return -ENOMEM;
    d->config = *config;
    d->config.load.watch = (struct gguf_watch){ is_wanted, d };
    d->events = *events;
    d->metrics = metrics;
    d->loop = loop;
    d->throttle = (struct throttle){ .share = config->cpu_share, .cores = config->threads };
    d->began_us = clock_mono_us();
    metric_set(engine_metric(metrics, EM_CLOCK), 1);
    d->blocks = calloc(DEVICE_EVENTS_MAX, sizeof *d->blocks);
    /* No event has this number; see kv_index_init for why it is written. */
    for (uint32_t i = 0; d->blocks && i < DEVICE_EVENTS_MAX; i++)
        d->blocks[i].seq = UINT64_MAX;
    list_init(&d->in);
    list_init(&d->calls);
    list_init(&d->out);
    list_init(&d->done);
    list_init(&d->active);
    lock_init(&d->lock);
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
    lock_take(&d->lock);
    d->stop = true;
    pthread_cond_signal(&d->wake);
    lock_drop(&d->lock);
    pthread_join(d->thread, NULL);
    LIST_EACH (&d->active, node)
        end_output(d, CONTAINER_OF(node, struct job, device.active));
    executor_free(d->x);
    model_free(d->model);
    model_free(d->draft);
    lock_fini(&d->lock);
    pthread_cond_destroy(&d->wake);
    free(d->blocks);
    free(d);
}
