/* t_device.c - tests the device thread: mail, back-pressure, aborts, bounds, block events, limits
 * of CPU time, and stalls. */
#include "base/core/bits.h"
#include "base/io/loop/clock.h"
#include "engine/serve/device.h"
#include "engine/serve/pace.h"
#include "tests/unit/engine/tiny_model.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the loop and the device thread: mail, back-pressure, aborts, bounds, block events ---- */

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

/* Takes mail until the job has ended. */
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

/* Submits a job of 200 tokens and waits until its mail is full. */
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
        turn(&r); /* 100 ms, enough for 200 tokens */
    device_stats_get(r.device, &s);
    assert_int_equal(s.counts.generated_tokens, JOB_PAUSE_TOKENS);
    assert_true(s.pages_held > 0);

    /* The full mail does not hold up another job. */
    struct told other = { 0 };
    struct job *second = make(30, 20);
    device_submit(r.device, second);
    read_all(&r, second, &other);
    assert_int_equal(other.tokens, 20);
    device_stats_get(r.device, &s);
    assert_int_equal(s.counts.paused, 1);

    read_all(&r, job, &t); /* once its mail is read, the job goes on to its end */
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
    device_abort(r.device, job); /* it is paused: its mail is not read */
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
    struct job *job = make(20, 200); /* paused soon: the engine is idle then */
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
    /* Nobody took the mail, so that each was paused with less than it may hold: none has ended. */
    for (int i = 0; i < 3; i++) {
        const struct job_mail *m = &jobs[i]->mail;
        assert_true(m->id_count < JOB_MAIL_TOKENS && !m->ended && !m->refused);
        job_free(jobs[i]);
    }
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

static int device_tests(void)
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
    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}

/* ---- CPU share and clock hold in simulated time, and idle time gives no credit ---- */

static void t_share_holds(void **state)
{
    (void)state;
    const double shares[] = { 0.05, 0.2, 0.4, 1.0, 1.5 };
    for (size_t k = 0; k < COUNT_OF(shares); k++) {
        struct throttle t = { .share = shares[k] };
        int64_t cpu = 1000000, wall = 5000000, from = wall;
        for (int i = 0; i < 400; i++) {
            int64_t step = 3000 + (i * 7919) % 20000; /* two threads: half as much wall */
            cpu += step;
            wall += step / 2;
            wall += throttle_wait_us(&t, cpu, wall);
        }
        double used = (double)(cpu - 1000000) / (double)(wall - from);
        if (fabs(used / shares[k] - 1) > 0.03) fail_msg("share %.2f: used %.3f", shares[k], used);
    }
}

static void t_no_limit(void **state)
{
    (void)state;
    struct throttle t = { 0 };
    for (int64_t i = 0; i < 100; i++)
        assert_int_equal(throttle_wait_us(&t, i * 1000, i * 1000), 0);
}

static void t_idle_time_is_not_saved_up(void **state)
{
    (void)state;
    struct throttle t = { .share = 0.1 };
    throttle_wait_us(&t, 0, 0);
    assert_int_equal(throttle_wait_us(&t, 0, 3600000000), 0); /* an idle hour */
    /* 20 ms of burst are free; the other 80 ms of CPU take 800 ms, of which 100 have passed. */
    int64_t wait = throttle_wait_us(&t, 100000, 3600000000 + 100000);
    assert_true(wait > 690000 && wait < 710000);
}

/* Returns the cores used by a process of `cores` threads that always has work, under a limit of
 * `share` cores at `clock`. */
static double used_at(double share, double clock, double cores)
{
    struct throttle t = { .share = share, .clock = clock, .cores = cores };
    int64_t cpu = 0, wall = 0;
    for (int i = 0; i < 1000; i++) {
        cpu += 10000;
        wall += (int64_t)(10000 / cores);
        wall += throttle_wait_us(&t, cpu, wall);
    }
    return (double)cpu / (double)wall;
}

static void t_clock_is_a_share_of_what_there_is(void **state)
{
    (void)state;
    static const struct {
        double share, clock, cores, used;
        const char *why;
    } rows[] = {
        { 0, 0.5, 1, 0.5, "half of the only core" },
        { 0, 0.25, 2, 0.5, "a quarter of both" },
        { 0.4, 0.5, 1, 0.2, "half of the share" },
        { 1.5, 0.2, 2, 0.3, "a fifth of a share above one core" },
        { 0.4, 1, 1, 0.4, "the full clock is the share" },
        { 0.4, 0, 1, 0.4, "and so is none" },
        { 0, 1, 2, 2, "nothing is kept" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        double used = used_at(rows[i].share, rows[i].clock, rows[i].cores);
        if (fabs(used / rows[i].used - 1) > 0.03) fail_msg("%s: %.3f", rows[i].why, used);
    }
}

static void t_what_was_used_freely_is_no_debt(void **state)
{
    (void)state;
    struct throttle t = { .clock = 0.5, .cores = 1 };
    assert_int_equal(throttle_wait_us(&t, 0, 0), 0);
    assert_true(throttle_wait_us(&t, 100000, 100000) > 90000);
    t.clock = 1; /* an hour without a pause */
    assert_int_equal(throttle_wait_us(&t, 3600000000, 3600000000), 0);
    t.clock = 0.5;
    assert_int_equal(throttle_wait_us(&t, 3600100000, 3600100000), 0);
    int64_t wait = throttle_wait_us(&t, 3600200000, 3600200000);
    assert_true(wait > 90000 && wait < 110000);
}

/* ---- stalls: a device that holds work and makes no step, in simulated time ---- */

#define SECOND ((int64_t)1000000)
#define T0 (100 * SECOND)

static void t_idle_is_well_however_long(void **state)
{
    (void)state;
    struct pulse p = { 0 };
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 86400 * SECOND), 0);
    pulse_work(&p, T0);
    pulse_turn(&p, T0 + SECOND);
    pulse_idle(&p);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 86400 * SECOND), 0);
    /* The stall counts from the arrival of work, not from the last step. */
    pulse_work(&p, T0 + 86400 * SECOND);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 86401 * SECOND), 0);
}

static void t_work_without_a_step_is_a_stall(void **state)
{
    (void)state;
    struct pulse p = { 0 };
    pulse_work(&p, T0);
    pulse_work(&p, T0 + 3 * SECOND); /* more work does not restart the limit */
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + PULSE_MIN_US - 1), 0);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + PULSE_MIN_US), PULSE_MIN_US);
    pulse_turn(&p, T0 + 9 * SECOND);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 9 * SECOND + PULSE_MIN_US - 1), 0);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 9 * SECOND + PULSE_MIN_US), PULSE_MIN_US);
}

static void t_a_long_step_has_its_time(void **state)
{
    (void)state;
    struct pulse p = { 0 };
    pulse_step(&p, T0, 2.0);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 2 * PULSE_STEPS * SECOND - 1), 0);
    assert_true(pulse_stalled_us(&p, 0, T0 + 2 * PULSE_STEPS * SECOND) > 0);
    pulse_step(&p, T0, 1e-3); /* a short step still has the minimum */
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + PULSE_MIN_US - 1), 0);
    /* A long step's limit does not carry over to the next turn. */
    pulse_step(&p, T0, 100.0);
    pulse_turn(&p, T0);
    assert_true(pulse_stalled_us(&p, 0, T0 + PULSE_MIN_US) > 0);
}

static void t_sleep_on_purpose_is_none(void **state)
{
    (void)state;
    struct pulse p = { 0 };
    pulse_rest(&p, T0 + 60 * SECOND);
    assert_int_equal(pulse_stalled_us(&p, 0, T0 + 60 * SECOND), 0);
    assert_true(pulse_stalled_us(&p, 0, T0 + 60 * SECOND + PULSE_MIN_US) > 0);
}

static void t_a_reader_that_was_away_excuses(void **state)
{
    (void)state;
    struct pulse p = { 0 };
    pulse_turn(&p, T0);
    int64_t woke = T0 + 100 * SECOND;
    assert_int_equal(pulse_stalled_us(&p, woke, woke), 0);
    assert_int_equal(pulse_stalled_us(&p, woke, woke + PULSE_MIN_US - 1), 0);
    assert_int_equal(pulse_stalled_us(&p, woke, woke + PULSE_MIN_US), PULSE_MIN_US);
}

static int pace_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_share_holds),
        cmocka_unit_test(t_no_limit),
        cmocka_unit_test(t_idle_time_is_not_saved_up),
        cmocka_unit_test(t_clock_is_a_share_of_what_there_is),
        cmocka_unit_test(t_what_was_used_freely_is_no_debt),
        cmocka_unit_test(t_idle_is_well_however_long),
        cmocka_unit_test(t_work_without_a_step_is_a_stall),
        cmocka_unit_test(t_a_long_step_has_its_time),
        cmocka_unit_test(t_sleep_on_purpose_is_none),
        cmocka_unit_test(t_a_reader_that_was_away_excuses),
    };
    return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}

int main(void)
{
    return device_tests() + pace_tests();
}
