/* t_policy_memory.c - tests that the memory of policies survives restarts and releases, and decisions as records. */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "controller/core/record.h"
#include "policies/place/place.h"
#include "policies/scale/scale.h"
#include "tests/unit/controller/plan_scene.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct plan_service service(void)
{
    struct plan_service s = { .name = "chat",
                              .policy = scale_find(STR("work")),
                              .shaper = scale_shape_find(STR("window")),
                              .place = place_find(STR("spot")),
                              .pool_count = 2 };
    snprintf(s.pool[0].name, sizeof s.pool[0].name, "small");
    snprintf(s.pool[1].name, sizeof s.pool[1].name, "large");
    assert_true(s.policy && s.place);
    return s;
}

static struct plan_memory written, found;

static void fill(struct plan_memory *m)
{
    unsigned char *bytes = (unsigned char *)m;
    for (size_t i = 0; i < sizeof *m; i++)
        bytes[i] = (unsigned char)(i * 7 + 3);
}

/* Fills `written` and encodes it; `found` is clear. */
static void write_record(const struct plan_service *s, struct buf *record)
{
    fill(&written);
    memset(&found, 0, sizeof found);
    assert_int_equal(policy_memory_encode(s, &written, record), 0);
}

/* This hash changes when a policy is added, removed or changes its state's size. Where a size or
 * the meaning of a member of an existing policy's state changed, POLICY_MEMORY_VERSION rises, and a
 * migration reads the former. */
#define SIZES_OF_VERSION_1 88399502u

static void the_version_is_of_these_sizes(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf sizes = { 0 };
    buf_printf(&sizes, "%zu", sizeof(struct plan_memory));
    for (uint32_t i = 0; i < scale_count; i++)
        buf_printf(&sizes, " %s:%u", scale_table[i]->name, scale_table[i]->state_size);
    for (uint32_t i = 0; i < scale_shape_count; i++)
        buf_printf(&sizes, " %s:%u", scale_shape_table[i]->name, scale_shape_table[i]->state_size);
    for (uint32_t i = 0; i < place_count; i++)
        buf_printf(&sizes, " %s:%u", place_table[i]->name, place_table[i]->state_size);
    uint32_t sum = (uint32_t)hash64(sizes.data, sizes.len, 0);
    if (sum != SIZES_OF_VERSION_1) fail_msg("%u: %s", sum, sizes.data);
}

static void what_was_written_is_found(void **state)
{
    (void)state;
    const struct plan_service s = service();
    CLEANUP(buf_fini) struct buf record = { 0 };
    write_record(&s, &record);
    assert_int_equal(policy_memory_decode(&s, buf_view(&record), &found), POLICY_MEMORY_GOOD);
    assert_memory_equal(&written, &found, sizeof found);
}

/* Memory of another policy, other pools, another order of pools or another version is ignored. */
static void what_is_of_another_is_left(void **state)
{
    (void)state;
    const struct plan_service s = service();
    CLEANUP(buf_fini) struct buf record = { 0 };
    write_record(&s, &record);
    struct plan_service others[3] = { s, s, s };
    others[0].policy = scale_find(STR("kpa"));
    assert_non_null(others[0].policy);
    others[1].pool_count = 1;
    memcpy(others[2].pool[0].name, "large", sizeof "large");
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(policy_memory_decode(&others[i], buf_view(&record), &found),
                         POLICY_MEMORY_OTHER);
    char *number = strchr(record.data, '\n') - 1;
    (*number)++;
    assert_int_equal(policy_memory_decode(&s, buf_view(&record), &found), POLICY_MEMORY_OTHER);
    static const char *const strangers[] = { "", "{\"v\":1}", "0.1.0 nonsense\n", "\n\n\n" };
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(policy_memory_decode(&s, str_from(strangers[i]), &found),
                         POLICY_MEMORY_OTHER);
    struct plan_memory nothing = { 0 };
    assert_memory_equal(&found, &nothing, sizeof found);
}

/* A changed byte behind the first line is detected, and so is a cut there. */
static void damage_is_seen(void **state)
{
    (void)state;
    const struct plan_service s = service();
    CLEANUP(buf_fini) struct buf record = { 0 };
    write_record(&s, &record);
    size_t from = (size_t)(strchr(record.data, '\n') - record.data) + 1;
    for (size_t at = from; at < record.len; at += at < from + 200 ? 1 : 997) {
        record.data[at] ^= 0x20;
        if (policy_memory_decode(&s, buf_view(&record), &found) != POLICY_MEMORY_DAMAGED)
            fail_msg("byte %zu", at);
        record.data[at] ^= 0x20;
        if (policy_memory_decode(&s, str_of(record.data, at), &found) != POLICY_MEMORY_DAMAGED)
            fail_msg("cut at %zu", at);
    }
    struct plan_memory nothing = { 0 };
    assert_memory_equal(&found, &nothing, sizeof found);
}

/* Release 0.1.0 wrote one line, then the bytes. */
static void records_of_before_format_1_are_read(void **state)
{
    (void)state;
    const struct plan_service s = service();
    CLEANUP(buf_fini) struct buf record = { 0 };
    fill(&written);
    buf_printf(&record, "0.1.0 %s:%u %s:%u %s:%u small large\n", s.policy->name,
               s.policy->state_size, s.shaper ? s.shaper->name : "",
               s.shaper ? s.shaper->state_size : 0, s.place->name, s.place->state_size);
    buf_append(&record, &written, sizeof written);
    memset(&found, 0, sizeof found);
    assert_int_equal(policy_memory_decode(&s, buf_view(&record), &found), POLICY_MEMORY_GOOD);
    assert_memory_equal(&written, &found, sizeof found);
    assert_int_equal(policy_memory_decode(&s, str_of(record.data, record.len - 1), &found),
                     POLICY_MEMORY_OTHER);
}

/* ---- a decision as a record: its JSON, and which decisions are news ---- */

static void records_are_json_and_only_news(void **state)
{
    (void)state;
    struct scene *s = scene_new();
    scene_busy(s, 20);
    s->demand.sum.age_s = 0.5;
    const struct plan_decision *d = scene_decide(s);
    double priced = 0; /* a pool's price is for instances to add: none exists, so for all */
    for (uint32_t p = 0; p < s->service.pool_count; p++) {
        assert_non_null(d->placed[p].reason);
        priced += d->placed[p].cost_h;
    }
    assert_true(priced > 0 && fabs(priced - (d->cost_h_after - d->cost_h)) < 1e-9);
    CLEANUP(buf_fini) struct buf text = { 0 };
    char launched[PLAN_ACTIONS_MAX][INTENT_ID_BYTES] = { "i-new" };
    const char(*ids)[INTENT_ID_BYTES] = (const char(*)[INTENT_ID_BYTES])launched;
    assert_int_equal(record_encode(&s->view, &s->plan, d, ids, 5, &text), 0);
    struct json_reader r;
    json_reader_init(&r, buf_view(&text));
    assert_int_equal(json_next(&r), JSON_OBJECT);
    assert_int_equal(json_skip_rest(&r), JSON_OBJECT_END);
    assert_int_equal(json_next(&r), JSON_END);
    static const char *const members[] = { "\"reason\":",
                                           "\"runner_up\":",
                                           "\"i-new\"",
                                           "\"cost_per_h_after\":",
                                           "\"arrivals_per_s\":20",
                                           "\"place\":\"joint\",\"placed\":[{\"pool\":\"",
                                           "\"short_share\":0}",
                                           "\"demand_age_s\":0.5" };
    for (size_t i = 0; i < COUNT_OF(members); i++)
        if (!strstr(text.data, members[i])) fail_msg("no %s in %s", members[i], text.data);

    /* One that is held back says what the offers said. */
    struct plan_decision held = *d;
    held.blocked = "no offer";
    s->health[0].last = OFFER_CAPACITY;
    snprintf(s->health[0].text, sizeof s->health[0].text, "no node for 8 s");
    buf_clear(&text);
    assert_int_equal(record_encode(&s->view, &s->plan, &held, ids, 5, &text), 0);
    assert_non_null(strstr(text.data, "\"error\":\"capacity\",\"why\":\"no node for 8 s\"}]"));

    struct record_last last = { 0 };
    assert_true(record_is_news(&last, d));
    struct plan_decision quiet = { .reason = d->reason };
    assert_false(record_is_news(&last, &quiet));
    quiet.blocked = "a";
    assert_true(record_is_news(&last, &quiet));
    assert_false(record_is_news(&last, &quiet));
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_version_is_of_these_sizes),
        cmocka_unit_test(what_was_written_is_found),
        cmocka_unit_test(what_is_of_another_is_left),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(records_of_before_format_1_are_read),
        cmocka_unit_test(records_are_json_and_only_news),
    };
    return cmocka_run_group_tests_name("policy_memory", tests, NULL, NULL);
}
