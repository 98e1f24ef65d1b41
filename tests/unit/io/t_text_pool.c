/* t_text_pool.c - tests that work leaves its loop and comes back, within a bound, and may be
 * cancelled before it starts. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/loop/text_pool.h"
#include "tests/unit/unit.h"

#include <semaphore.h>
#include <stdatomic.h>

#define JOBS 64
#define JOB_BYTES 1000

static const struct metric_desc table[] = {
    { .name = "waiting_bytes", .type = METRIC_GAUGE, .help = "." },
    { .name = "refused_total", .type = METRIC_COUNTER, .help = "." },
    { .name = "seconds",
      .type = METRIC_HISTOGRAM,
      .help = ".",
      .buckets = (double[]){ 1 },
      .bucket_count = 1 },
};

struct rig {
    struct loop *loop;
    struct metrics *metrics;
    struct text_pool *pool;
    struct text_desk desk;
    sem_t begun, go;
    pthread_t loop_thread;
    atomic_uint ran;
    uint32_t done, last; /* number of the job that came back last */
};

struct work {
    struct rig *rig;
    uint32_t number;
    struct text_job job;
};

static void run(void *arg)
{
    struct work *w = arg;
    assert_false(pthread_equal(pthread_self(), w->rig->loop_thread));
    sem_post(&w->rig->begun);
    sem_wait(&w->rig->go);
    atomic_fetch_add(&w->rig->ran, 1);
}

static void done(void *arg)
{
    struct work *w = arg;
    assert_true(pthread_equal(pthread_self(), w->rig->loop_thread));
    w->rig->done++;
    w->rig->last = w->number;
}

static void begin(struct rig *r, uint32_t threads, size_t queue_bytes)
{
    *r = (struct rig){ .loop_thread = pthread_self() };
    sem_init(&r->begun, 0, 0);
    sem_init(&r->go, 0, 0);
    assert_int_equal(loop_new(&r->loop, NULL), 0);
    assert_int_equal(metrics_new(table, COUNT_OF(table), NULL, 0, &r->metrics, NULL), 0);
    const struct text_pool_config config = { threads, queue_bytes, { r->metrics, 0, 1, 2 } };
    assert_int_equal(text_pool_new(&config, &r->pool, NULL), 0);
    text_desk_init(&r->desk, r->pool, r->loop);
}

static void end(struct rig *r)
{
    text_pool_free(r->pool);
    text_desk_fini(&r->desk);
    metrics_free(r->metrics);
    loop_free(r->loop);
    sem_destroy(&r->begun);
    sem_destroy(&r->go);
}

static int submit(struct rig *r, struct work *w, uint32_t number)
{
    *w = (struct work){ r, number, { .run = run, .done = done, .arg = w, .bytes = JOB_BYTES } };
    return text_submit(&r->desk, &w->job);
}

static void turn_until_done(struct rig *r, uint32_t count)
{
    while (r->done < count)
        assert_int_equal(loop_turn(r->loop, 1000000), 0);
}

static double metric(const struct rig *r, uint32_t which)
{
    return metric_value(metric_of(r->metrics, which));
}

static void all_come_back_once(void **state)
{
    (void)state;
    struct rig r;
    struct work work[JOBS];
    begin(&r, 3, JOBS * JOB_BYTES);
    for (uint32_t i = 0; i < JOBS; i++) {
        assert_int_equal(submit(&r, &work[i], i), 0);
        sem_post(&r.go);
    }
    turn_until_done(&r, JOBS);
    assert_int_equal(r.ran, JOBS);
    text_pool_stop(r.pool);
    assert_true(metric(&r, 0) == 0 && metric(&r, 1) == 0);
    struct metric_snapshot seconds;
    metric_snapshot(metric_of(r.metrics, 2), &seconds);
    assert_int_equal(seconds.count, JOBS);
    end(&r);
}

static void one_too_many_is_refused(void **state)
{
    (void)state;
    struct rig r;
    struct work work[4];
    begin(&r, 1, 3 * JOB_BYTES);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(submit(&r, &work[i], i), 0);
    sem_wait(&r.begun); /* a job at a worker counts as well */
    assert_int_equal(submit(&r, &work[3], 3), -EAGAIN);
    assert_true(metric(&r, 0) == 3 * JOB_BYTES && metric(&r, 1) == 1);
    sem_post(&r.go);
    turn_until_done(&r, 1);
    while (submit(&r, &work[0], 4) == -EAGAIN) /* the worker counts down a little later */
        sched_yield();
    for (int i = 0; i < 3; i++)
        sem_post(&r.go);
    turn_until_done(&r, 4);
    assert_int_equal(r.last, 4); /* first come, first served */
    end(&r);
}

/* The largest bodies may fill half of the bound and get one turn in four. */
static void the_largest_keep_nobody_out(void **state)
{
    (void)state;
    enum { LARGE = 3, MIDDLE = 8 };
    struct rig r;
    struct work large[LARGE + 1], middle[MIDDLE];
    begin(&r, 1, 2 * LARGE * (TEXT_LARGE_BYTES + 1));
    for (uint32_t i = 0; i <= LARGE; i++) {
        large[i] = (struct work){ .rig = &r, .number = 100 + i };
        large[i].job = (struct text_job){
            .run = run, .done = done, .arg = &large[i], .bytes = TEXT_LARGE_BYTES + 1
        };
        assert_int_equal(text_submit(&r.desk, &large[i].job), i < LARGE ? 0 : -EAGAIN);
    }
    sem_wait(&r.begun); /* the first is at the worker, two wait */
    for (uint32_t i = 0; i < MIDDLE; i++)
        assert_int_equal(submit(&r, &middle[i], i), 0);
    static const uint32_t order[] = { 100, 0, 1, 101, 2, 3, 4, 102, 5, 6, 7 };
    for (uint32_t i = 0; i < COUNT_OF(order); i++) {
        sem_post(&r.go);
        turn_until_done(&r, i + 1);
        assert_int_equal(r.last, order[i]);
    }
    text_pool_stop(r.pool);
    assert_true(metric(&r, 0) == 0);
    end(&r);
}

static void what_waits_can_be_taken_back(void **state)
{
    (void)state;
    struct rig r;
    struct work work[2], never = { 0 };
    begin(&r, 1, 2 * JOB_BYTES);
    assert_false(text_cancel(&never.job));
    submit(&r, &work[0], 0);
    sem_wait(&r.begun);
    submit(&r, &work[1], 1);
    assert_false(text_cancel(&work[0].job)); /* it runs */
    assert_true(text_cancel(&work[1].job));
    assert_false(text_cancel(&work[1].job));
    assert_true(metric(&r, 0) == JOB_BYTES);
    assert_int_equal(text_submit(&r.desk, &work[1].job), 0); /* may be submitted again */
    sem_post(&r.go);
    sem_post(&r.go);
    turn_until_done(&r, 2);
    end(&r);
}

static void *let_go(void *arg)
{
    struct rig *r = arg;
    sem_post(&r->go);
    sem_post(&r->go); /* in case the second begins before the pool stops */
    return NULL;
}

static void stop_ends_what_runs_and_drops_the_rest(void **state)
{
    (void)state;
    struct rig r;
    struct work work[3];
    pthread_t other;
    begin(&r, 1, 8 * JOB_BYTES);
    submit(&r, &work[0], 0);
    sem_wait(&r.begun);
    submit(&r, &work[1], 1);
    assert_int_equal(pthread_create(&other, NULL, let_go, &r), 0);
    text_pool_stop(r.pool);
    pthread_join(other, NULL);
    assert_true(r.ran >= 1 && r.done == 0);
    assert_int_equal(submit(&r, &work[2], 2), -EAGAIN);
    end(&r);
}

static void threads_that_cannot_start_are_told(void **state)
{
    (void)state;
    const struct text_pool_config config = { .threads = 4, .queue_bytes = 1 };
    struct err err = { "" };
    struct text_pool *pool = NULL;
    for (uint64_t n = 1; n <= 4; n++) {
        fault_arm("text.thread", n);
        assert_int_equal(text_pool_new(&config, &pool, &err), -EAGAIN);
        fault_disarm();
        assert_true(!pool && err.text[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_come_back_once),
        cmocka_unit_test(one_too_many_is_refused),
        cmocka_unit_test(the_largest_keep_nobody_out),
        cmocka_unit_test(what_waits_can_be_taken_back),
        cmocka_unit_test(stop_ends_what_runs_and_drops_the_rest),
        cmocka_unit_test(threads_that_cannot_start_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
