/* t_tenants.c - tests keys found by their hash, limits that refill, and a table at its bound. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "router/snapshot.h"
#include "router/tenants.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000

static struct str hash_of(const char *key, char ret[SHA256_HEX + 1])
{
    uint8_t hash[SHA256_BYTES];
    sha256(key, strlen(key), hash);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        snprintf(ret + 2 * i, 3, "%02x", hash[i]);
    return str_from(ret);
}

static void keys_are_known_by_their_hash(void **state)
{
    (void)state;
    char hex[3][SHA256_HEX + 1];
    struct str a[2] = { hash_of("key-a1", hex[0]), hash_of("key-a2", hex[1]) };
    struct str b[1] = { hash_of("key-b", hex[2]) };
    struct tenant_rules list[2] = {
        { .tenant = STR("a"), .key_hashes = a, .key_hash_count = 2, .salt = STR("salt-a") },
        { .tenant = STR("b"), .key_hashes = b, .key_hash_count = 1 },
    };
    struct router_rules rules = { .tenants = list, .tenant_count = 2 };
    struct tenant_keys *k = NULL;
    assert_int_equal(tenant_keys_new(&rules, &k, NULL), 0);
    assert_string_equal(tenant_keys_find(k, STR("key-a1"))->name, "a");
    assert_string_equal(tenant_keys_find(k, STR("key-a2"))->salt, "salt-a");
    assert_string_equal(tenant_keys_find(k, STR("key-b"))->name, "b");
    assert_string_equal(tenant_keys_find(k, STR("key-b"))->salt, "");
    assert_null(tenant_keys_find(k, STR("key-c")));
    assert_null(tenant_keys_find(k, (struct str){ 0 }));
    assert_null(tenant_keys_find(k, a[0])); /* the hash is not a key */
    assert_null(tenant_keys_find(NULL, STR("key-a1")));

    struct tenant_keys *shared = tenant_keys_ref(k);
    tenant_keys_unref(k);
    assert_string_equal(tenant_keys_find(shared, STR("key-b"))->name, "b");
    tenant_keys_unref(shared);
    tenant_keys_unref(NULL);
}

static void lists_that_cannot_be_right_are_refused(void **state)
{
    (void)state;
    char hex[SHA256_HEX + 1], odd[SHA256_HEX + 1];
    struct str good[1] = { hash_of("k", hex) };
    hash_of("k", odd);
    odd[5] = 'x';
    static const char long_name[] =
        "a-name-of-sixty-four-bytes-does-not-fit-into-sixty-four-with-its-end";
    const struct {
        struct str name, salt, hash;
        const char *why;
    } rows[] = {
        { STR("t"), STR("s"), str_of(hex, 10), "a hash that is cut" },
        { STR("t"), STR("s"), str_from(odd), "a hash that is not hexadecimal" },
        { str_from(long_name), STR("s"), good[0], "a name that is too long" },
        { STR("t"), str_from(long_name), good[0], "a salt that is too long" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct tenant_rules one = {
            .tenant = rows[i].name,
            .salt = rows[i].salt,
            .key_hashes = &rows[i].hash,
            .key_hash_count = 1,
        };
        struct router_rules rules = { .tenants = &one, .tenant_count = 1 };
        struct tenant_keys *k = NULL;
        struct err err = { 0 };
        if (tenant_keys_new(&rules, &k, &err) != -EINVAL || k || !err.text[0]) {
            fail_msg("taken: %s", rows[i].why);
        }
    }
}

static struct tenants *with(const struct tenant_rules *one)
{
    struct tenants *t = NULL;
    struct router_rules rules = { .tenants = one, .tenant_count = 1 };
    assert_int_equal(tenants_new(&t, NULL), 0);
    assert_int_equal(tenants_update(t, &rules), 0);
    return t;
}

static void requests_of_a_minute_refill_evenly(void **state)
{
    (void)state;
    struct tenant_rules r = { .tenant = STR("a"), .requests_per_min = 6 };
    struct tenants *t = with(&r);
    struct tenant *a = tenants_find(t, "a");
    double wait_s;
    int64_t now_us = 1000 * (int64_t)SECOND;
    for (int i = 0; i < 6; i++)
        assert_true(tenant_admit(a, 1, now_us, &wait_s));
    assert_false(tenant_admit(a, 1, now_us, &wait_s));
    assert_float_equal(wait_s, 10, 1e-6);
    assert_false(tenant_admit(a, 1, now_us + 4 * SECOND, &wait_s));
    assert_float_equal(wait_s, 6, 1e-6);
    assert_true(tenant_admit(a, 1, now_us + 10 * SECOND, &wait_s));
    assert_false(tenant_admit(a, 1, now_us + 10 * SECOND, &wait_s));
    /* An hour of rest saves no more than one minute's allowance. */
    now_us += 3600 * (int64_t)SECOND;
    for (int i = 0; i < 6; i++)
        assert_true(tenant_admit(a, 1, now_us, &wait_s));
    assert_false(tenant_admit(a, 1, now_us, &wait_s));
    assert_int_equal(a->requests_total, 13);
    assert_int_equal(a->rejected_total, 4);
    tenants_free(t);
}

static void limits_are_looked_at_before_the_prompt(void **state)
{
    (void)state;
    struct tenant_rules r = {
        .tenant = STR("a"), .requests_per_min = 60, .tokens_per_min = 600, .concurrency = 2
    };
    struct tenants *t = with(&r);
    struct tenant *a = tenants_find(t, "a");
    const struct usage none = { 0 };
    double wait_s;
    int64_t now_us = SECOND * 100;
    assert_true(tenant_enter(a, now_us, &wait_s) && tenant_enter(a, now_us, &wait_s));
    assert_false(tenant_enter(a, now_us, &wait_s)); /* two are under way */
    assert_true(tenant_charge(a, 550, now_us, &wait_s));
    /* A request refused for its tokens counts as refused and uses no other allowance. */
    assert_false(tenant_charge(a, 100, now_us, &wait_s));
    assert_float_equal(wait_s, 5, 1e-6);
    assert_int_equal(a->in_flight, 1);
    assert_int_equal(a->requests_total, 1);
    assert_int_equal(a->rejected_total, 2);
    assert_float_equal(a->requests_left, 59, 1e-6);
    tenant_end(a, 7, &(struct usage){ .prompt_tokens = 550, .generated_tokens = 110 });
    /* With 60 tokens owed a request is refused before it is tokenised. */
    assert_false(tenant_enter(a, now_us, &wait_s));
    assert_float_equal(wait_s, 6, 1e-6);
    assert_true(tenant_enter(a, now_us + 6 * SECOND, &wait_s));
    tenant_end(a, 7, &none); /* a prompt refused for its content */
    assert_int_equal(a->in_flight, 0);
    tenants_free(t);
}

static void tokens_are_paid_before_and_after(void **state)
{
    (void)state;
    struct tenant_rules r = { .tenant = STR("a"), .tokens_per_min = 600 };
    struct tenants *t = with(&r);
    struct tenant *a = tenants_find(t, "a");
    double wait_s;
    int64_t now_us = SECOND * 100;
    /* A prompt above a minute's allowance passes with a full bucket; the debt is earned
     * afterwards. */
    assert_true(tenant_admit(a, 1000, now_us, &wait_s));
    assert_false(tenant_admit(a, 100, now_us, &wait_s));
    assert_float_equal(wait_s, 50, 1e-6);
    assert_true(tenant_admit(a, 100, now_us + 50 * SECOND, &wait_s));
    struct usage used = { .prompt_tokens = 100, .cached_tokens = 40, .generated_tokens = 60 };
    tenant_end(a, 7, &used);
    assert_false(tenant_admit(a, 10, now_us + 50 * SECOND, &wait_s));
    assert_float_equal(wait_s, 7, 1e-6); /* 60 owed and 10 wanted at 10 a second */
    assert_int_equal(a->prompt_tokens_total, 100);
    assert_int_equal(a->cached_tokens_total, 40);
    assert_int_equal(a->generated_tokens_total, 60);
    tenants_free(t);
}

/* What was computed is counted by service as well; of services beyond the bound only the sums have it. */
static void tokens_are_told_apart_by_service(void **state)
{
    (void)state;
    struct tenant_rules r = { .tenant = STR("a") };
    struct tenants *t = with(&r);
    struct tenant *a = tenants_find(t, "a");
    struct usage used = { .prompt_tokens = 100, .cached_tokens = 40, .generated_tokens = 60 };
    struct usage none = { .prompt_tokens = 50, .cached_tokens = 50 };
    double wait_s;
    for (uint64_t s = 0; s < TENANT_SERVICES_MAX + 2; s++)
        for (uint64_t n = 0; n <= s % 2; n++) {
            assert_true(tenant_admit(a, 1, 0, &wait_s));
            tenant_end(a, 100 + s, &used);
        }
    assert_true(tenant_admit(a, 1, 0, &wait_s));
    tenant_end(a, 100, &none);
    assert_int_equal(a->part_count, TENANT_SERVICES_MAX);
    for (uint32_t i = 0; i < a->part_count; i++) {
        assert_int_equal(a->part[i].service, 100 + i);
        assert_int_equal(a->part[i].computed_tokens_total, i % 2 ? 240 : 120);
    }
    assert_int_equal(a->prompt_tokens_total, 100 * 3 * (TENANT_SERVICES_MAX + 2) / 2 + 50);
    tenants_free(t);
}

static void concurrency_is_given_back(void **state)
{
    (void)state;
    struct tenant_rules r = { .tenant = STR("a"), .concurrency = 2 };
    struct tenants *t = with(&r);
    struct tenant *a = tenants_find(t, "a");
    struct usage none = { 0 };
    double wait_s = 0;
    assert_true(tenant_admit(a, 1, 0, &wait_s));
    assert_true(tenant_admit(a, 1, 0, &wait_s));
    assert_false(tenant_admit(a, 1, 0, &wait_s));
    assert_true(wait_s > 0);
    tenant_end(a, 7, &none);
    assert_true(tenant_admit(a, 1, 0, &wait_s));
    tenants_free(t);
}

static void unknown_tenants_are_anonymous_and_unlimited(void **state)
{
    (void)state;
    struct tenant_rules r = { .tenant = STR("a"), .requests_per_min = 1 };
    struct tenants *t = with(&r);
    struct tenant *nobody = tenants_find(t, "");
    assert_ptr_equal(tenants_find(t, "never-heard-of"), nobody);
    assert_ptr_not_equal(tenants_find(t, "a"), nobody);
    double wait_s;
    for (int i = 0; i < 1000; i++)
        assert_true(tenant_admit(nobody, 1000000, 0, &wait_s));
    size_t cursor = 0;
    assert_string_equal(tenants_next(t, &cursor)->id.name, "a");
    assert_null(tenants_next(t, &cursor));
    tenants_free(t);
}

static void limits_change_and_what_was_used_stays(void **state)
{
    (void)state;
    struct tenant_rules r = { .tenant = STR("a"), .requests_per_min = 2 };
    struct router_rules rules = { .tenants = &r, .tenant_count = 1 };
    struct tenants *t = with(&r);
    struct tenant *a = tenants_find(t, "a");
    double wait_s;
    assert_true(tenant_admit(a, 1, SECOND, &wait_s));
    assert_true(tenant_admit(a, 1, SECOND, &wait_s));
    assert_int_equal(tenants_update(t, &rules), 0); /* equal limits refill nothing */
    assert_false(tenant_admit(a, 1, SECOND, &wait_s));
    r.requests_per_min = 3;
    assert_int_equal(tenants_update(t, &rules), 0);
    assert_ptr_equal(tenants_find(t, "a"), a);
    for (int i = 0; i < 3; i++)
        assert_true(tenant_admit(a, 1, SECOND, &wait_s));
    assert_false(tenant_admit(a, 1, SECOND, &wait_s));
    assert_int_equal(a->requests_total, 5);
    tenants_free(t);
}

/* A full table drops tenants that are no longer listed, except those with requests in flight. */
static void a_full_table_forgets_tenants_that_are_named_no_more(void **state)
{
    (void)state;
    struct tenants *t = NULL;
    struct tenant_rules *list = calloc(SYNC_TENANTS_MAX, sizeof *list);
    char(*name)[16] = calloc(SYNC_TENANTS_MAX, sizeof *name);
    struct router_rules rules = { .tenants = list, .tenant_count = SYNC_TENANTS_MAX };
    assert_int_equal(tenants_new(&t, NULL), 0);
    for (uint32_t i = 0; i < SYNC_TENANTS_MAX; i++) {
        snprintf(name[i], sizeof name[i], "old-%u", i);
        list[i].tenant = str_from(name[i]);
    }
    assert_int_equal(tenants_update(t, &rules), 0);
    struct tenant *busy = tenants_find(t, "old-7");
    double wait_s;
    assert_true(tenant_admit(busy, 1, 0, &wait_s));

    /* All but the busy tenant are replaced. */
    rules.tenant_count--;
    for (uint32_t i = 0; i < rules.tenant_count; i++) {
        snprintf(name[i], sizeof name[i], "new-%u", i);
        list[i].tenant = str_from(name[i]);
    }
    assert_int_equal(tenants_update(t, &rules), 0);
    assert_ptr_equal(tenants_find(t, "old-7"), busy);
    assert_ptr_equal(tenants_find(t, "old-8"), tenants_find(t, ""));
    for (uint32_t i = 0; i < rules.tenant_count; i++)
        assert_string_equal(tenants_find(t, name[i])->id.name, name[i]);

    /* One more tenant than fits is refused, and no listed tenant is dropped for it. */
    rules.tenant_count = SYNC_TENANTS_MAX;
    list[SYNC_TENANTS_MAX - 1].tenant = STR("newest");
    assert_int_equal(tenants_update(t, &rules), -ENOMEM);
    assert_string_equal(tenants_find(t, name[0])->id.name, name[0]);
    struct usage none = { 0 };
    tenant_end(busy, 7, &none);
    assert_int_equal(tenants_update(t, &rules), 0);
    assert_string_equal(tenants_find(t, "newest")->id.name, "newest");
    tenants_free(t);
    free(list);
    free(name);
}

/* ---- services by name and by hash, up to the bound ---- */

static void services_are_found_by_name_up_to_the_bound(void **state)
{
    (void)state;
    struct services s;
    char name[SERVICE_NAME_MAX + 1];
    assert_int_equal(services_new(&s), 0);
    for (int i = 0; i < SYNC_SERVICES_MAX; i++) {
        snprintf(name, sizeof name, "model-%d", i);
        struct router_service *one = services_get(&s, str_from(name));
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
    struct router_service *new_one = services_get(&s, STR("one-more"));
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
        cmocka_unit_test(keys_are_known_by_their_hash),
        cmocka_unit_test(lists_that_cannot_be_right_are_refused),
        cmocka_unit_test(requests_of_a_minute_refill_evenly),
        cmocka_unit_test(limits_are_looked_at_before_the_prompt),
        cmocka_unit_test(tokens_are_paid_before_and_after),
        cmocka_unit_test(tokens_are_told_apart_by_service),
        cmocka_unit_test(concurrency_is_given_back),
        cmocka_unit_test(unknown_tenants_are_anonymous_and_unlimited),
        cmocka_unit_test(limits_change_and_what_was_used_stays),
        cmocka_unit_test(a_full_table_forgets_tenants_that_are_named_no_more),
        cmocka_unit_test(services_are_found_by_name_up_to_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
