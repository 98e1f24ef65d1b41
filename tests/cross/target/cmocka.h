/* cmocka.h - stands in for cmocka where its library does not exist for the target: the part that the kernels' tests
 * use.
 *
 * A failed assertion ends the program with its text, file and line, instead of the test.
 */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

#define cmocka_unit_test(function) \
    {                              \
#        function, function        \
    }

#define fail_msg(...)                                  \
    do {                                               \
        printf("%s:%d: failed: ", __FILE__, __LINE__); \
        printf(__VA_ARGS__);                           \
        printf("\n");                                  \
        exit(1);                                       \
    } while (0)
#define print_message(...) printf(__VA_ARGS__)
#define assert_true(condition)                        \
    do {                                              \
        if (!(condition)) fail_msg("%s", #condition); \
    } while (0)
#define assert_null(pointer) assert_true(!(pointer))
#define assert_non_null(pointer) assert_true(pointer)
#define assert_ptr_equal(a, b) assert_true((const void *)(a) == (const void *)(b))
#define assert_int_equal(a, b) assert_true((long long)(a) == (long long)(b))
#define assert_memory_equal(a, b, bytes) assert_true(memcmp(a, b, bytes) == 0)

#define cmocka_run_group_tests_name(group, tests, setup, teardown) \
    cmocka_run(group, tests, sizeof(tests) / sizeof(tests)[0])

static inline int cmocka_run(const char *group, const struct CMUnitTest *tests, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *state = NULL;
        printf("%s: %s\n", group, tests[i].name);
        fflush(stdout);
        tests[i].run(&state);
    }
    return 0;
}
