/* t_admit.c - tests admit policies around their thresholds: what they admit, reserve and learn. */
#include "base/core/bits.h"
#include "base/core/err.h"
#include "policies/admit/admit.h"
#include "tests/unit/unit.h"

#include <string.h>

static void t_admit(void **state)
{
    (void)state;
    static const struct {
        const char *why, *policy;
        struct admit_view view;
        bool yes;
    } rows[] = {
        { "fit: exactly, with a page for each that runs",
          "fit",
          { .pages_available = 10, .pages_needed = 7, .running = 3, .pages_growth = 99 },
          true },
        { "fit: one short",
          "fit",
          { .pages_available = 9, .pages_needed = 7, .running = 3 },
          false },
        { "reserve: exactly, at the peak, whatever the sum",
          "reserve",
          { .pages_available = 13,
            .pages_needed = 4,
            .running_growth = 99,
            .peak_growth = 6,
            .running = 3 },
          true },
        { "reserve: one short",
          "reserve",
          { .pages_available = 12, .pages_needed = 4, .peak_growth = 6, .running = 3 },
          false },
        { "P90: the same, of what its answers would be",
          "reserve_p90",
          { .pages_available = 12, .pages_needed = 4, .peak_growth = 6, .running = 3 },
          false },
        { "P90: exactly",
          "reserve_p90",
          { .pages_available = 13, .pages_needed = 4, .peak_growth = 6, .running = 3 },
          true },
        { "all: without any page", "all", { .pages_needed = 9 }, true },
        { "limits: as reserve, by another measure",
          "max_reserve",
          { .pages_available = 9, .pages_needed = 4, .pages_growth = 3, .running_growth = 3 },
          false },
        { "s3: what runs has its reserve",
          "s3",
          { .pages_available = 10, .pages_needed = 4, .pages_growth = 3, .running_growth = 3 },
          true },
        { "reserve: sums that would wrap",
          "reserve",
          { .pages_available = 9, .pages_needed = 4, .peak_growth = UINT32_MAX },
          false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct admit_policy *policy = admit_find(str_from(rows[i].policy));
        assert_int_equal(policy->state_size, 0);
        bool yes = policy->decide(NULL, &rows[i].view);
        if (yes != rows[i].yes) fail_msg("%s", rows[i].why);
    }
}

static uint32_t reserved(const char *row, const void *state, struct step_session session)
{
    struct step_scratch scratch = { 0 };
    session.scratch = &scratch;
    return admit_find(str_from(row))->reserve(state, &session);
}

static void t_reserves(void **state)
{
    (void)state;
    struct step_session x = { .prompt_tokens = 100, .output_max = 1000, .predicted_mean = 101 };
    assert_int_equal(reserved("max_reserve", NULL, x), 1000);
    assert_int_equal(reserved("static_batch", NULL, x), 1000);
    assert_int_equal(reserved("s3", NULL, x), 104); /* bins of 52 */
    x.predicted_mean = 0, x.predicted_p50 = 105;
    assert_int_equal(reserved("s3", NULL, x), 156);
    x.predicted_p50 = 0; /* without a prediction its limit, as before S3 */
    assert_int_equal(reserved("s3", NULL, x), 1000);
    assert_null(admit_find(STR("reserve"))->reserve); /* reserves the scheduler's expectation */
    x.remaining = 100; /* without a prediction, P90 of an exponential of this mean */
    assert_int_equal(reserved("reserve_p90", NULL, x), 230);
    x.generated = 50, x.remaining = 1;
    assert_int_equal(reserved("reserve_p90", NULL, x), 117);
    x.predicted_p90 = 333;
    assert_int_equal(reserved("reserve_p90", NULL, x), 333);
}

static void ended(const struct admit_policy *policy, void *state, uint32_t prompt, uint32_t output)
{
    struct step_scratch scratch = { 0 };
    struct step_session x = { .prompt_tokens = prompt, .generated = output, .scratch = &scratch };
    struct step_event ev = {
        .kind = STEP_ENDED, .session = &x, .output_tokens = output, .whole = true
    };
    policy->observe(state, &ev);
    ev.whole = false; /* a cut output teaches nothing */
    ev.output_tokens = 1;
    policy->observe(state, &ev);
}

static void t_infermax_learns(void **state)
{
    (void)state;
    const struct admit_policy *policy = admit_find(STR("infermax"));
    char memory[1024] = { 0 }, copy[1024];
    must(policy->state_size <= sizeof memory);
    struct step_session x = { .prompt_tokens = 1500, .output_max = 9000 };
    assert_int_equal(reserved("infermax", memory, x), 0); /* no history: the prompt alone */
    ended(policy, memory, 1024, 1000);
    ended(policy, memory, 2000, 600);
    ended(policy, memory, 100, 5000);
    assert_int_equal(reserved("infermax", memory, x), 812); /* mean total in its bucket: 2312 */
    x.prompt_tokens = 2040;
    assert_int_equal(reserved("infermax", memory, x), 272);
    x.prompt_tokens = 100; /* short: the prompt alone, whatever its bucket's mean */
    assert_int_equal(reserved("infermax", memory, x), 0);
    memcpy(copy, memory, sizeof copy);
    ended(policy, memory, 1500, 10000);
    ended(policy, copy, 1500, 10000);
    assert_memory_equal(memory, copy, sizeof copy);
}

static void t_s3_doubles(void **state)
{
    (void)state;
    const struct admit_policy *policy = admit_find(STR("s3"));
    struct step_scratch scratch = { 0 };
    struct step_session x = { .output_max = 1000, .predicted_mean = 150, .scratch = &scratch };
    x.generated = 155;
    assert_false(policy->outgrown(NULL, &x));
    x.generated = 156;
    assert_true(policy->outgrown(NULL, &x)); /* from here it reserves twice as much */
    assert_false(policy->outgrown(NULL, &x));
    assert_int_equal(policy->reserve(NULL, &x), 312);
    x.generated = 312;
    assert_true(policy->outgrown(NULL, &x));
    x.generated = 624;
    assert_true(policy->outgrown(NULL, &x));
    assert_int_equal(policy->reserve(NULL, &x), 1000);
    x.generated = 1000;
    assert_false(policy->outgrown(NULL, &x)); /* at its limit it ends anyway */
}

static void t_static_batch_is_closed(void **state)
{
    (void)state;
    const struct admit_policy *policy = admit_find(STR("static_batch"));
    char memory[16] = { 0 };
    must(policy->state_size <= sizeof memory);
    struct admit_view view = { .pages_available = 10, .pages_needed = 2 };
    assert_true(policy->decide(memory, &view));
    view.running = 1;
    assert_true(policy->decide(memory, &view)); /* the batch is still being formed */
    policy->observe(memory, &(struct step_event){ .kind = STEP_DONE });
    assert_false(policy->decide(memory, &view));
    view.running = 0;
    assert_true(policy->decide(memory, &view));
    view.running = 1;
    assert_true(policy->decide(memory, &view));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_admit),
        cmocka_unit_test(t_reserves),
        cmocka_unit_test(t_infermax_learns),
        cmocka_unit_test(t_s3_doubles),
        cmocka_unit_test(t_static_batch_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
