/* t_last_hour.c - the ring of the last hour: what it holds, and for how long. */
#include "base/core/own.h"
#include "controller/control_state.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <string.h>

static uint32_t shown(struct world *w, struct buf *text)
{
    uint32_t n = 0;
    buf_clear(text);
    assert_int_equal(control_view(w->control, CONTROL_HISTORY, w->now, text), 0);
    buf_byte(text, 0);
    for (const char *at = text->data; (at = strstr(at, "\"at_us\"")); at++)
        n++;
    return n;
}

static void samples_show_load_and_latency(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct world *w = world_new(NULL);
    world_run(w, 10);
    w->rate = 8;
    w->held = 1;
    world_run(w, 50);
    assert_int_equal(shown(w, &text), 12);
    const struct last_hour *h = &w->control->last_hour;
    assert_int_equal(h->sample[0].ready, 0);
    const struct hour_sample *last = &h->sample[h->count - 1];
    assert_true(last->arrivals_s == 8);
    assert_true(last->ready > 0);
    assert_true(last->ttft_known && last->ttft_p50_s == 0.1);
    assert_false(last->tpot_known);
    assert_non_null(strstr(text.data, "\"tpot_p50_s\":null"));
    world_free(w);
}

/* Past the hour the oldest goes; a router that is silent measures nothing. */
static void an_hour_is_kept(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct world *w = world_new(NULL);
    world_run(w, 3700);
    assert_int_equal(shown(w, &text), LAST_HOUR_SAMPLES_MAX);
    const struct last_hour *h = &w->control->last_hour;
    int64_t oldest_us = h->sample[h->first].at_us;
    assert_true(w->now - oldest_us < 3600 * SECOND && w->now - oldest_us >= 3595 * SECOND);
    w->router_silent = true;
    world_run(w, 20);
    const struct hour_sample *last = &h->sample[(h->first + h->count - 1) % LAST_HOUR_SAMPLES_MAX];
    assert_false(last->ttft_known);
    assert_true(last->arrivals_s == 0);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_show_load_and_latency),
        cmocka_unit_test(an_hour_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
