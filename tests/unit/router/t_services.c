/* t_services.c - services by name and by hash, up to the bound. */
#include "router/services.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static void services_are_found_by_name_up_to_the_bound(void **state)
{
    (void)state;
    struct services s;
    char name[SERVICE_NAME_MAX + 1];
    assert_int_equal(services_new(&s), 0);
    for (int i = 0; i < SYNC_SERVICES_MAX; i++) {
        snprintf(name, sizeof name, "model-%d", i);
        struct service *one = services_get(&s, str_from(name));
        assert_non_null(one);
        assert_string_equal(one->name, name);
        assert_ptr_equal(services_by_hash(&s, one->hash), one);
        assert_ptr_equal(services_get(&s, str_from(name)), one);
    }
    assert_null(services_get(&s, STR("one-more")));
    uint64_t removed = s.item[3].hash, last = s.item[SYNC_SERVICES_MAX - 1].hash;
    services_remove(&s, 3);
    assert_null(services_by_hash(&s, removed));
    assert_non_null(services_by_hash(&s, last));
    struct service *new_one = services_get(&s, STR("one-more"));
    assert_non_null(new_one);
    assert_int_equal(new_one->telemetry.total.arrivals_total, 0);
    services_remove(&s, SYNC_SERVICES_MAX - 1);
    memset(name, 'x', SERVICE_NAME_MAX);
    name[SERVICE_NAME_MAX] = '\0';
    assert_null(services_get(&s, str_from(name)));
    assert_null(services_get(&s, (struct str){ 0 }));
    services_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(services_are_found_by_name_up_to_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
