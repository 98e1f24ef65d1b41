/* t_device.c - the two threads: mail, back-pressure, aborts, bounds, block events. */
#include "base/core/bits.h"
#include "base/io/loop/clock.h"
#include "engine/serve/device.h"
#include "tests/unit/engine/tiny_model.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WAIT_US 60000000

struct rig {
    struct loop *loop;
    struct device *device;
    struct engine_metrics metrics;
    const struct device_info *info;
    char failure[256];
    uint32_t mails, blocks;
    int fd;
};

static void on_ready(void *arg, const struct device_info *info)
{
    ((struct rig *)arg)->info = info;
}

static void on_failed(void *arg, const char *sentence)
{
    struct rig *r = arg;
    snprintf(r->failure, sizeof r->failure, "%s", sentence);
}

static void on_mail(void *arg, struct job *job)
{
    (void)job;
    ((struct rig *)arg)->mails++;
}

static void on_blocks(void *arg)
{
    ((struct rig *)arg)->blocks++;
}

static void turn(struct rig *r)
{
    assert_int_equal(loop_turn(r->loop, 2000), 0);
}

static void rig_open(struct rig *r, uint32_t waiting_max, const char *path)
{
    struct err err = { "" };
    char made[64];
    *r = (struct rig){ .fd = -1 };
    if (!path) r->fd = tiny_model_path(TINY_CONTEXT, made);
    struct device_config config = {
        .model_path = str_from(path ? path : made),
        .sched = { .page_tokens = 16,
                   .seqs_max = 2,
                   .batch_tokens_max = 64,
                   .waiting_max = waiting_max,
                   .events_max = DEVICE_EVENTS_MAX,
                   .prefix_cache = true },
        .threads = 1,
    };
    const struct device_events events = { on_ready, on_failed, on_mail, on_blocks, r };
    assert_int_equal(loop_new(&r->loop, &err), 0);
    assert_int_equal(engine_metrics_init(&r->metrics, &err), 0);
    assert_int_equal(device_new(r->loop, &config, &r->metrics, &events, &r->device, &err), 0);
    int64_t until = clock_mono_us() + WAIT_US;
    while (!r->info && !r->failure[0] && clock_mono_us() < until)
        turn(r);
}

static void rig_close(struct rig *r)
{
    device_free(r->device);
    loop_free(r->loop);
    engine_metrics_fini(&r->metrics);
    if (r->fd >= 0) close(r->fd);
}

static struct job *make(uint32_t prompt, uint32_t output)
{
    struct job *job = job_new();
    job->ask.ids = calloc(prompt, sizeof *job->ask.ids);
    for (uint32_t i = 0; i < prompt; i++)
        job->ask.ids[i] = 10 + i % 200;
    job->ask.id_count = job->ask.spec.prompt_tokens = prompt;
    job->ask.output_max = output;
    job->ask.spec.ignore_eos = true;
    job->ask.arrival_us = clock_mono_us();
    return job;
}

struct told {
    struct job_mail mail;
    uint32_t tokens;
    bool accepted, ended;
};

/* Takes all mail until the job has ended. */
static void read_all(struct rig *r, struct job *job, struct told *t)
{
    int64_t until = clock_mono_us() + WAIT_US;
    while (!t->ended && clock_mono_us() < until) {
        turn(r);
        while (!t->ended && device_take_mail(r->device, job, &t->mail)) {
            t->tokens += t->mail.id_count;
            t->accepted |= t->mail.accepted;
            t->ended |= t->mail.ended;
        }
    }
    assert_true(t->ended);
}

static void told_fini(struct told *t)
{
    job_mail_fini(&t->mail);
}

static void t_a_job_from_end_to_end(void **state)
{
    (void)state;
    struct rig r;
    struct told t = { 0 };
    rig_open(&r, 4, NULL);
    assert_non_null(r.info);
    assert_int_equal(r.info->context_max, TINY_CONTEXT);
    struct job *job = make(40, 30);
    device_submit(r.device, job);
    read_all(&r, job, &t);
    assert_true(t.accepted && t.tokens == 30);
    assert_int_equal(t.mail.end, SESSION_END_LENGTH);
    assert_int_equal(t.mail.generated, 30);
    assert_int_equal(t.mail.cached_tokens, 0);
    assert_true(r.mails > 0 && r.blocks > 0);
    job_free(job);
    assert_true(metric_value(engine_metric(&r.metrics, EM_GENERATED_TOKENS)) == 30);

    struct told again = { 0 };
    job = make(40, 5);
    device_submit(r.device, job);
    read_all(&r, job, &again);
    assert_int_equal(again.mail.cached_tokens, 32);
    job_free(job);
    told_fini(&t);
    told_fini(&again);
    rig_close(&r);
}

/* A job of 200 tokens whose mail is full. */
static struct job *submit_unread(struct rig *r)
{
    struct device_stats s;
    struct job *job = make(20, 200);
    device_submit(r->device, job);
    int64_t until = clock_mono_us() + WAIT_US;
    do {
        turn(r);
        device_stats_get(r->device, &s);
    } while (s.counts.generated_tokens < JOB_PAUSE_TOKENS && clock_mono_us() < until);
    return job;
}

static void t_unread_mail_pauses_the_session(void **state)
{
    (void)state;
    struct rig r;
    struct told t = { 0 };
    struct device_stats s;
    rig_open(&r, 4, NULL);
    struct job *job = submit_unread(&r);
    for (int i = 0; i < 50; i++)
        turn(&r); /* 100 ms in which 200 tokens would be done */
    device_stats_get(r.device, &s);
    assert_int_equal(s.counts.generated_tokens, JOB_PAUSE_TOKENS);
    assert_true(s.pages_held > 0);

    /* Another one is not held up by it. */
    struct told other = { 0 };
    struct job *second = make(30, 20);
    device_submit(r.device, second);
    read_all(&r, second, &other);
    assert_int_equal(other.tokens, 20);
    device_stats_get(r.device, &s);
    assert_int_equal(s.counts.paused, 1);

    read_all(&r, job, &t); /* read, it goes on to its end */
    assert_int_equal(t.tokens, 200);
    job_free(job);
    job_free(second);
    told_fini(&t);
    told_fini(&other);
    rig_close(&r);
}

static void t_abort_frees_its_pages(void **state)
{
    (void)state;
    struct rig r;
    struct told t = { 0 };
    struct device_stats s;
    rig_open(&r, 4, NULL);
    struct job *job = submit_unread(&r);
    device_abort(r.device, job); /* paused: nobody reads */
    read_all(&r, job, &t);
    assert_int_equal(t.mail.end, SESSION_END_ABORT);
    device_stats_get(r.device, &s);
    assert_int_equal(s.pages_held, 0);
    assert_int_equal(s.counts.ended[SESSION_END_ABORT], 1);
    job_free(job);
    told_fini(&t);
    rig_close(&r);
}

static void t_deadline_of_one_that_waits(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 4, NULL);
    struct job *job = make(20, 200); /* paused soon: nothing else happens in the engine */
    job->ask.deadline_us = clock_mono_us() + 150000;
    device_submit(r.device, job);
    struct device_stats s;
    int64_t until = clock_mono_us() + WAIT_US;
    do {
        turn(&r);
        device_stats_get(r.device, &s);
    } while (s.counts.ended[SESSION_END_DEADLINE] == 0 && clock_mono_us() < until);
    assert_true(clock_mono_us() >= job->ask.deadline_us);
    assert_int_equal(s.pages_held, 0);
    struct told t = { 0 };
    read_all(&r, job, &t);
    assert_int_equal(t.mail.end, SESSION_END_DEADLINE);
    job_free(job);
    told_fini(&t);
    rig_close(&r);
}

static void t_too_many_are_refused(void **state)
{
    (void)state;
    enum { JOBS = 12 };
    struct rig r;
    rig_open(&r, 2, NULL);
    struct job *jobs[JOBS];
    uint32_t refused = 0, served = 0;
    for (int i = 0; i < JOBS; i++)
        device_submit(r.device, jobs[i] = make(30, 100));
    for (int i = 0; i < JOBS; i++) {
        struct told t = { 0 };
        read_all(&r, jobs[i], &t);
        if (t.mail.refused) {
            assert_int_equal(t.mail.refused, -EAGAIN);
            assert_true(t.mail.error[0] != '\0' && !t.accepted);
            refused++;
        } else {
            served++;
        }
        job_free(jobs[i]);
        told_fini(&t);
    }
    assert_true(refused >= 6 && served >= 2);
    assert_true(metric_value(engine_metric(&r.metrics, EM_REFUSED)) == refused);
    rig_close(&r);
}

static void t_blocks_replay(void **state)
{
    (void)state;
    struct rig r;
    struct told t = { 0 };
    struct kv_event ev[64];
    rig_open(&r, 4, NULL);
    struct job *job = make(100, 4);
    device_submit(r.device, job);
    read_all(&r, job, &t);
    int n = device_blocks(r.device, 0, ev, 64);
    assert_int_equal(n, 6); /* 103 computed tokens */
    for (int i = 0; i < n; i++)
        assert_true(ev[i].add && ev[i].seq == (uint64_t)i + 1);
    assert_int_equal(device_blocks(r.device, 4, ev, 64), 2);
    assert_int_equal(device_blocks(r.device, 6, ev, 64), 0);
    job_free(job);
    told_fini(&t);
    rig_close(&r);
}

static void t_a_model_that_is_not_there(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 4, "/nowhere/at-all.gguf");
    assert_null(r.info);
    assert_non_null(strstr(r.failure, "at-all.gguf"));
    rig_close(&r);
}

static void t_closing_with_work_under_way(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, 4, NULL);
    struct job *jobs[3];
    for (int i = 0; i < 3; i++)
        device_submit(r.device, jobs[i] = make(30, 200));
    for (int i = 0; i < 3; i++)
        turn(&r);
    rig_close(&r);
    for (int i = 0; i < 3; i++)
        job_free(jobs[i]);
}

static void what_the_scheduler_counts_is_told(void **state)
{
    (void)state;
    struct engine_metrics m;
    struct err err;
    assert_int_equal(engine_metrics_init(&m, &err), 0);
    const struct sched_counts before = { .parked = 2, .swaps = 1, .swapped_out = 7 };
    const struct sched_counts now = { .preemptions = 4,
                                      .parked = 5,
                                      .swaps = 2,
                                      .swapped_out = 19,
                                      .swapped_in = 11,
                                      .ended = { [SESSION_END_STOP] = 3 } };
    engine_metrics_counts(&m, &before, &now);
    engine_metrics_counts(&m, &now, &now);
    const struct {
        enum engine_metric meter;
        const char *label;
        double value;
    } rows[] = {
        { EM_PREEMPTIONS, NULL, 4 }, { EM_PARKED, NULL, 3 },   { EM_SWAPS, NULL, 1 },
        { EM_SWAPPED, "out", 12 },   { EM_SWAPPED, "in", 11 }, { EM_FINISHED, "stop", 3 }
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct str label = str_from(rows[i].label ? rows[i].label : "");
        double value = metric_value(rows[i].label ? metric_series(m.metrics, rows[i].meter, &label)
                                                  : engine_metric(&m, rows[i].meter));
        if (value != rows[i].value)
            fail_msg("%s: %g", engine_metric_table[rows[i].meter].name, value);
    }
    engine_metrics_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_a_job_from_end_to_end),
        cmocka_unit_test(t_unread_mail_pauses_the_session),
        cmocka_unit_test(t_abort_frees_its_pages),
        cmocka_unit_test(t_deadline_of_one_that_waits),
        cmocka_unit_test(t_too_many_are_refused),
        cmocka_unit_test(t_blocks_replay),
        cmocka_unit_test(t_a_model_that_is_not_there),
        cmocka_unit_test(t_closing_with_work_under_way),
        cmocka_unit_test(what_the_scheduler_counts_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
