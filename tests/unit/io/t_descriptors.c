/* t_descriptors.c - the limit is raised to what the system allows, and divided with a reserve. */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "base/io/net/descriptors.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct rlimit before;

static int remember(void **state)
{
    (void)state;
    return getrlimit(RLIMIT_NOFILE, &before);
}

static int restore(void **state)
{
    (void)state;
    return setrlimit(RLIMIT_NOFILE, &before);
}

static void set_soft(rlim_t soft)
{
    struct rlimit limit = { soft, before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void the_soft_limit_becomes_the_hard_one_and_is_logged(void **state)
{
    (void)state;
    int log[2];
    char line[1024] = "";
    assert_int_equal(pipe2(log, O_CLOEXEC), 0);
    set_soft(64);
    log_set_fd(log[1]);
    descriptors_raise();
    log_set_fd(2);
    struct rlimit now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_true(now.rlim_cur == before.rlim_max);
    assert_true(read(log[0], line, sizeof line - 1) > 0);
    char wanted[128];
    snprintf(wanted, sizeof wanted, " descriptors limit=%lu before=64 usable=%u ",
             (unsigned long)before.rlim_max, descriptors_usable());
    if (!strstr(line, wanted)) fail_msg("%s lacks %s", line, wanted);
    close(log[0]);
    close(log[1]);
}

static void a_reserve_is_never_given_out(void **state)
{
    (void)state;
    static const struct {
        rlim_t limit;
        uint32_t usable;
    } rows[] = { { 1024, 1024 - 128 }, { 512, 512 - 128 }, { 256, 128 }, { 100, 50 }, { 20, 10 } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        set_soft(rows[i].limit);
        assert_int_equal(descriptors_usable(), rows[i].usable);
        /* The router's shares, for three loops. */
        uint32_t given = 3 * descriptors_share(50, 3, 0) + 3 * descriptors_share(37, 3, 0) +
                         descriptors_share(12, 1, 0);
        if (given > rows[i].usable) fail_msg("%u of %u", given, rows[i].usable);
    }
    set_soft(1024);
    assert_int_equal(descriptors_share(50, 1, 0), 448);
    assert_int_equal(descriptors_share(50, 2, 0), 224);
    assert_int_equal(descriptors_share(50, 1, 100), 100);
    assert_int_equal(descriptors_share(1, 1000, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_soft_limit_becomes_the_hard_one_and_is_logged, remember,
                                        restore),
        cmocka_unit_test_setup_teardown(a_reserve_is_never_given_out, remember, restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
