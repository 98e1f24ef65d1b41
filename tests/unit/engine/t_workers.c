/* t_workers.c - tests that the workers run every unit of every loop once, and that the caller waits for all. */
#include "base/core/own.h"
#include "engine/model/workers.h"
#include "tests/unit/unit.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define UNITS_MAX 64

struct count {
    uint32_t plain[UNITS_MAX]; /* plain: one thread runs a unit, the caller reads after it */
    _Atomic uint32_t threads_seen;
    uint32_t threads;
    bool slow;
};

static void count_unit(void *arg, uint32_t unit, uint32_t thread)
{
    struct count *c = arg;
    c->plain[unit]++;
    if (thread < c->threads) atomic_fetch_or(&c->threads_seen, 1u << thread);
    if (c->slow && unit == 0) nanosleep(&(struct timespec){ .tv_nsec = 300 * 1000 }, NULL);
}

static void each_unit_runs_once(void **state)
{
    (void)state;
    for (uint32_t threads = 0; threads <= 4; threads++) {
        CLEANUP(workers_freep) struct workers *w = NULL;
        assert_int_equal(workers_new(threads, &w, NULL), 0);
        assert_int_equal(workers_threads(w), threads ? threads : 1);
        struct count c = { .threads = workers_threads(w) };
        for (uint32_t loop = 0; loop < 3000; loop++) {
            uint32_t units = loop % UNITS_MAX;
            memset(c.plain, 0, sizeof c.plain);
            c.slow = loop % 100 == 0; /* the other threads, and the caller, fall asleep meanwhile */
            workers_run(w, units, count_unit, &c);
            for (uint32_t i = 0; i < UNITS_MAX; i++)
                assert_int_equal(c.plain[i], i < units);
        }
        assert_true(c.threads_seen & 1); /* the caller works too */
    }
}

/* While the first unit waits, another thread does the rest. */
static void other_threads_do_work(void **state)
{
    (void)state;
    CLEANUP(workers_freep) struct workers *w = NULL;
    assert_int_equal(workers_new(2, &w, NULL), 0);
    struct count c = { .threads = 2, .slow = true };
    for (uint32_t loop = 0; loop < 10000 && c.threads_seen != 3; loop++)
        workers_run(w, 8, count_unit, &c);
    assert_int_equal(c.threads_seen, 3);
}

static void nothing_to_do_returns(void **state)
{
    (void)state;
    CLEANUP(workers_freep) struct workers *w = NULL;
    assert_int_equal(workers_new(3, &w, NULL), 0);
    workers_run(w, 0, count_unit, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_unit_runs_once),
        cmocka_unit_test(other_threads_do_work),
        cmocka_unit_test(nothing_to_do_returns),
    };
    return cmocka_run_group_tests_name("workers", tests, NULL, NULL);
}
