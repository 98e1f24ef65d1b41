/* t_same_views.c - tests that one stream of events gives byte-equal views in simulator and product.
 *
 * A seed draws the stream (hosts.h), which is fed twice. The simulator's hosts get it through instances
 * that do what it says (simulator_host.c). The product gets it through its own code: the routers'
 * directors, the wire, the controller (product_host.c), in the periods that the configuration has by
 * default. Probes replace policies of every kind and write down each view; the texts must be equal. A
 * window, period, bound, quantile or merge that differs between the hosts shows as the first line that
 * differs.
 *
 * Not compared: members that name a host's own things (probes.h), and the first two seconds, in which the
 * product's controller knows its fleet and the simulator's first meets it. Where requests are held,
 * role and power views are left out: the product decides those in its ticks, which a held request
 * moves, the simulator each second.
 */
#include "tests/unit/hosts/hosts.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

/* Fails with the first line that differs, and the moment it belongs to. */
static void differ(enum probe_kind kind, const char *a, const char *b)
{
    const char *line = a, *moment = a;
    size_t at = 0;
    for (; a[at] && a[at] == b[at]; at++) {
        if (a[at] != '\n') continue;
        line = a + at + 1;
        if (*line != ' ') moment = line;
    }
    const char *other = b + (line - a);
    fail_msg("%s views differ, %.*s:\n  product   %.*s\n  simulator %.*s", probe_names[kind],
             (int)strcspn(moment, "\n"), moment, (int)strcspn(line, "\n"), line,
             (int)strcspn(other, "\n"), other);
}

/* Returns true if a view has a number after `name` that does not begin with 0. */
static bool says(const struct buf *text, const char *name)
{
    for (const char *at = text->data; (at = strstr(at, name)); at++)
        if (at[strlen(name)] != '0') return true;
    return false;
}

/* Checks that the views cover hits, unreachable engines, stale reports, and held requests. */
static void covers(const struct probe_log *log, bool holds)
{
    assert_true(says(&log->text[PROBE_ROUTE], " hit_tokens="));
    assert_true(strstr(log->text[PROBE_ROUTE].data, " accepts=0") != NULL);
    assert_true(strstr(log->text[PROBE_MIGRATE].data, " running=") != NULL);
    if (holds)
        assert_true(says(&log->text[PROBE_SCALE], " held="));
    else
        assert_true(strstr(log->text[PROBE_SCALE].data, " fresh=0") != NULL);
}

static void compare(uint64_t seed, bool holds)
{
    struct stream *s = stream_new(seed, holds);
    struct probe_log product = { 0 }, simulator = { 0 };
    feed_product(s, &product);
    feed_simulator(s, &simulator);
    for (uint32_t k = 0; k < PROBE_KIND_COUNT; k++) {
        if (holds && (k == PROBE_ROLE || k == PROBE_POWER)) continue;
        buf_byte(&product.text[k], 0);
        buf_byte(&simulator.text[k], 0);
        assert_true(product.text[k].rc == 0 && simulator.text[k].rc == 0);
        printf("seed %u: %u views of %s, %zu bytes\n", (unsigned)seed, product.count[k],
               probe_names[k], product.text[k].len);
        assert_true(product.count[k] >= 15);
        if (product.text[k].len != simulator.text[k].len ||
            memcmp(product.text[k].data, simulator.text[k].data, product.text[k].len) != 0)
            differ((enum probe_kind)k, product.text[k].data, simulator.text[k].data);
    }
    covers(&product, holds);
    probe_log_fini(&product);
    probe_log_fini(&simulator);
    stream_free(s);
}

static void views_of_every_kind_are_equal(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        compare(seed, false);
}

static void views_are_equal_where_requests_are_held(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++)
        compare(seed, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_of_every_kind_are_equal),
        cmocka_unit_test(views_are_equal_where_requests_are_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
