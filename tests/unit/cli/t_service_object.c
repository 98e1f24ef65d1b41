/* t_service_object.c - tests MusterService objects as text: what becomes of a specification, what is wrong with one,
 * how lists of them merge into a configuration, and what their status says. */
#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "cli/schema.h"
#include "controller/objects/service_status.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define META "\"metadata\":{\"name\":\"chat\",\"namespace\":\"ns\",\"uid\":\"u1\",\"generation\":3}"
#define OBJECT(spec) "{" META ",\"spec\":" spec "}"
#define POOLS "\"pools\":[{\"name\":\"p\",\"offers\":[\"gpu\"],\"max\":3}]"
#define SPEC(more) "{\"model\":\"/m.gguf\"," more POOLS "}"

/* ---- specifications ---- */

static void a_specification_becomes_a_service(void **state)
{
    static const struct {
        const char *object, *name, *service, *why;
        int64_t replicas;
    } rows[] = {
        { OBJECT(SPEC("")), "chat", "{\"name\":\"chat\",\"model\":\"/m.gguf\"," POOLS "}",
          "the object's name is the service's", -1 },
        { OBJECT(SPEC("\"name\":\"org/Model 7B\",")), "org/Model 7B",
          "{\"name\":\"org/Model 7B\",\"model\":\"/m.gguf\"," POOLS "}", "a name of its own", -1 },
        { OBJECT(SPEC("\"replicas\":2,\"slo_ttft\":\"3s\",")), "chat",
          "{\"name\":\"chat\",\"model\":\"/m.gguf\",\"slo_ttft\":\"3s\"," POOLS "}",
          "replicas are an order and no setting", 2 },
        { OBJECT(SPEC("\"replicas\":null,")), "chat",
          "{\"name\":\"chat\",\"model\":\"/m.gguf\"," POOLS "}", "null is absent", -1 },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct service_object o;
        struct err err = { 0 };
        if (service_object_read(str_from(rows[i].object), &o, &err) < 0)
            fail_msg("%s: %s", rows[i].why, err.text);
        buf_byte(&o.service, 0);
        assert_string_equal(o.name, rows[i].name);
        assert_string_equal(o.service.data, rows[i].service);
        assert_int_equal(o.replicas, rows[i].replicas);
        assert_int_equal(o.meta.generation, 3);
        service_object_fini(&o);
    }
}

/* Every mistake is refused with the name of the field as the object has it. */
static void mistakes_are_refused_by_name(void **state)
{
    static const struct {
        const char *object, *says;
    } rows[] = {
        { "{" META "}", "spec: it is missing" },
        { OBJECT("[1]"), "spec: want a mapping" },
        { OBJECT(SPEC("\"name\":7,")), "spec.name: want a text" },
        { OBJECT(SPEC("\"name\":\"\",")), "spec.name: want 1 to 63 bytes" },
        { OBJECT(SPEC("\"replicas\":\"2\",")), "spec.replicas: want a number" },
        { OBJECT(SPEC("\"replicas\":-1,")), "spec.replicas: want a number" },
        { OBJECT(SPEC("\"replicas\":4,")), "spec.replicas: 4 is above the 3" },
        { OBJECT(SPEC("\"slo_ttftt\":\"2s\",")), "spec: unknown key 'slo_ttftt'" },
        { OBJECT(SPEC("\"slo_ttft\":\"two\",")), "spec.slo_ttft: 'two' is not a duration" },
        { OBJECT(SPEC("\"max\":0,")), "spec.max: 0 is below 1" },
        { OBJECT(SPEC("\"overload\":\"drop\",")), "spec.overload: " },
        { OBJECT("{\"model\":\"/m.gguf\"}"), "spec: 'pools' is missing" },
        { OBJECT("{" POOLS "}"), "spec: 'model' is missing" },
        { OBJECT("{\"model\":\"/m\",\"pools\":[{\"name\":\"p\",\"offers\":[]}]}"),
          "spec.pools[0].offers: has 0 items" },
        { OBJECT("{\"model\":\"/m\",\"pools\":[{\"name\":\"p\",\"offers\":[\"o\"]},"
                 "{\"name\":\"p\",\"offers\":[\"o\"]}]}"),
          "spec.pools: item 1 has the same name 'p'" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct service_object o;
        struct err err = { 0 };
        int rc = service_object_read(str_from(rows[i].object), &o, &err);
        if (rc == 0) rc = service_object_check(&schema, &o, &err);
        assert_true(rc < 0);
        if (!strstr(err.text, rows[i].says))
            fail_msg("'%s' is not in '%s'", rows[i].says, err.text);
        assert_null(strstr(err.text, "services["));
        service_object_fini(&o);
    }
}

static void a_long_object_name_wants_another(void **state)
{
    (void)state;
    char json[512];
    struct service_object o;
    struct err err = { 0 };
    snprintf(json, sizeof json, "{\"metadata\":{\"name\":\"%070d\"},\"spec\":" SPEC("") "}", 1);
    assert_int_equal(service_object_read(str_from(json), &o, &err), -EINVAL);
    assert_non_null(strstr(err.text, "give the service a spec.name"));
    service_object_fini(&o);
}

static void only_other_instances_can_have_another_model(void **state)
{
    (void)state;
    uint64_t a = service_object_fixed(STR("{\"model\":\"/a\",\"max\":3}"));
    assert_int_equal(a, service_object_fixed(STR("{\"max\":9,\"model\":\"/a\"}")));
    assert_int_not_equal(a, service_object_fixed(STR("{\"model\":\"/b\"}")));
    assert_int_not_equal(a,
                         service_object_fixed(STR("{\"model\":\"/a\",\"engine_program\":\"/x\"}")));
}

static void replicas_are_shared_by_minimum_and_order(void **state)
{
    static const struct {
        int64_t replicas;
        uint32_t min[3], max[3], want[3];
        bool refused;
    } rows[] = {
        { 0, { 1, 1, 0 }, { 4, 4, 4 }, { 0, 0, 0 }, false },
        { 1, { 1, 1, 0 }, { 4, 4, 4 }, { 1, 0, 0 }, false },
        { 3, { 1, 1, 0 }, { 4, 4, 4 }, { 2, 1, 0 }, false },
        { 7, { 0, 0, 2 }, { 4, 4, 4 }, { 4, 1, 2 }, false },
        { 12, { 0, 0, 0 }, { 4, 4, 4 }, { 4, 4, 4 }, false },
        { 13, { 0, 0, 0 }, { 4, 4, 4 }, { 0, 0, 0 }, true },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint32_t share[3];
        struct err err = { 0 };
        int rc = service_scale(rows[i].replicas, rows[i].min, rows[i].max, 3, share, &err);
        assert_int_equal(rc, rows[i].refused ? -ERANGE : 0);
        if (rows[i].refused)
            assert_non_null(strstr(err.text, "spec.replicas: 13 is above the 12"));
        else
            assert_memory_equal(share, rows[i].want, sizeof share);
    }
}

/* ---- lists ---- */

#define ENTRY(name)                                                           \
    {                                                                         \
        STR_(name), STR_("uid"), STR_(name),                                  \
            STR_("{\"name\":\"" name "\",\"model\":\"/m\"," POOLS "}"), 1, -1 \
    }
#define STR_(text)             \
    {                          \
        text, sizeof(text) - 1 \
    }

static int merge(const char *base, struct service_entry *entry, uint32_t count, struct buf *out,
                 struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    const struct service_list list = { entry, count };
    assert_int_equal(service_list_write(&list, &text), 0);
    return service_list_merge(str_from(base), "muster.yaml", buf_view(&text), out, err);
}

static size_t services_in(struct str text)
{
    struct config *config = NULL;
    struct err err = { 0 };
    const struct config_sources s = { .path = "merged", .text = text };
    if (config_load(&schema, &s, &config, NULL, &err) < 0) fail_msg("%s", err.text);
    const struct config_records *r = config_section_get(config, "services");
    size_t count = r->count;
    config_free(config);
    return count;
}

static void a_list_stands_behind_the_configurations_own(void **state)
{
    static const char *const bases[] = {
        "",
        "services:\n",
        "services: []\n",
        "controller: { lease: 9s }\n",
        "services:\n  - { name: a, model: /m, pools: [ { name: p, offers: [ o ] } ] }\n",
    };
    static const size_t own[] = { 0, 0, 0, 0, 1 };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bases); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        struct service_entry entry[] = { ENTRY("b"), ENTRY("c") };
        struct err err = { 0 };
        if (merge(bases[i], entry, 2, &out, &err) < 0) fail_msg("%zu: %s", i, err.text);
        assert_int_equal(services_in(buf_view(&out)), own[i] + 2);
    }
}

static void a_name_that_is_there_twice_is_refused(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct service_entry entry[] = { ENTRY("b") };
    struct err err = { 0 };
    int rc = merge("services:\n  - { name: b, model: /m, pools: [ { name: p, offers: [ o ] } ] }\n",
                   entry, 1, &out, &err);
    assert_int_equal(rc, -EEXIST);
    assert_string_equal(err.text, "service 'b' is defined twice: in muster.yaml, and by "
                                  "musterservice/b; rename or remove one");
}

static void a_list_reads_back(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    struct service_entry entry[] = { ENTRY("a"), ENTRY("b") };
    struct service_list list = { entry, 2 }, back;
    arena_init(&arena, 1 << 20);
    entry[1].replicas = 5;
    assert_int_equal(service_list_write(&list, &text), 0);
    assert_int_equal(service_list_read(buf_view(&text), &arena, &back, NULL), 0);
    assert_int_equal(back.count, 2);
    assert_int_equal(service_list_find(&back, STR("b"))->replicas, 5);
    assert_int_equal(service_list_find(&back, STR("a"))->replicas, -1);
    assert_null(service_list_find(&back, STR("c")));
    assert_int_equal(service_list_read((struct str){ 0 }, &arena, &back, NULL), 0);
    assert_int_equal(back.count, 0);
}

/* ---- conditions ---- */

#define RUNNING .known = true, .observed = true, .decided = true

static void conditions_say_what_is_so(void **state)
{
    static const struct service_verdict good = { .tried = true, .generation = 3 };
    static const struct {
        struct service_facts f;
        const char *reason[SERVICE_CONDITION_COUNT];
        enum service_truth truth[SERVICE_CONDITION_COUNT];
    } rows[] = {
        { { .known = true },
          { "InForce", "NotObserved", "NotDecided", "NotDecided", "NotDecided" },
          { SERVICE_TRUE, 0, 0, 0, 0 } },
        { { RUNNING, .ready = 2, .desired = 2, .instances = 2 },
          { "InForce", "Serving", "Settled", "NoBudget", "CapacityFound" },
          { SERVICE_TRUE, SERVICE_TRUE, SERVICE_FALSE, SERVICE_FALSE, SERVICE_FALSE } },
        { { RUNNING, .ready = 1, .desired = 3, .starting = 2, .budget_h = 9, .at_budget = true },
          { "InForce", "Serving", "Scaling", "InstancesHeldBack", "CapacityFound" },
          { SERVICE_TRUE, SERVICE_TRUE, SERVICE_TRUE, SERVICE_TRUE, SERVICE_FALSE } },
        { { RUNNING, .desired = 1, .stocked_out = true, .stock = "pool p: sold out",
            .budget_h = 9 },
          { "InForce", "Starting", "Scaling", "WithinBudget", "NoCapacity" },
          { SERVICE_TRUE, SERVICE_FALSE, SERVICE_TRUE, SERVICE_FALSE, SERVICE_TRUE } },
        { { RUNNING },
          { "InForce", "Idle", "Settled", "NoBudget", "CapacityFound" },
          { SERVICE_TRUE, SERVICE_TRUE, SERVICE_FALSE, SERVICE_FALSE, SERVICE_FALSE } },
        { { RUNNING, .by_hand = true, .leaving = 1, .reason = "counts set by hand" },
          { "InForce", "Stopped", "Draining", "NoBudget", "CapacityFound" },
          { SERVICE_TRUE, SERVICE_FALSE, SERVICE_TRUE, SERVICE_FALSE, SERVICE_FALSE } },
        { { RUNNING, .paused = true },
          { "InForce", "Paused", "Settled", "NoBudget", "CapacityFound" },
          { SERVICE_TRUE, SERVICE_FALSE, SERVICE_FALSE, SERVICE_FALSE, SERVICE_FALSE } },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct service_state s[SERVICE_CONDITION_COUNT] = { 0 };
        service_conditions(&good, &rows[i].f, 1, s);
        for (int k = 0; k < SERVICE_CONDITION_COUNT; k++) {
            if (strcmp(s[k].reason, rows[i].reason[k]) != 0 || s[k].truth != rows[i].truth[k])
                fail_msg("row %zu, %s: %s %d", i, service_condition_names[k], s[k].reason,
                         s[k].truth);
            assert_true(s[k].message[0]);
        }
    }
}

static void a_refused_object_says_what_stays(void **state)
{
    (void)state;
    struct service_verdict v = { .tried = true, .refused = "Invalid", .before = true };
    struct service_facts f = { RUNNING, .ready = 1, .desired = 1 };
    struct service_state s[SERVICE_CONDITION_COUNT] = { 0 };
    err_set(&v.why, -1, "spec.max: 0 is below 1");
    service_conditions(&v, &f, 1, s);
    assert_string_equal(s[SERVICE_ACCEPTED].message,
                        "spec.max: 0 is below 1; the specification before it stays in force");
    assert_int_equal(s[SERVICE_READY].truth, SERVICE_TRUE);
    v.before = false;
    f.known = false;
    service_conditions(&v, &f, 1, s);
    assert_string_equal(s[SERVICE_ACCEPTED].message, "spec.max: 0 is below 1");
    assert_string_equal(s[SERVICE_READY].reason, "NotInForce");
    assert_int_equal(s[SERVICE_READY].truth, SERVICE_FALSE);
}

static void dates_change_with_the_truth_alone(void **state)
{
    (void)state;
    const struct service_verdict v = { .tried = true, .generation = 1 };
    struct service_facts f = { RUNNING, .ready = 1, .desired = 1 };
    struct service_state s[SERVICE_CONDITION_COUNT] = { 0 };
    service_conditions(&v, &f, 1000, s);
    f.ready = f.desired = 2;
    service_conditions(&v, &f, 2000, s);
    assert_int_equal(s[SERVICE_READY].since_us, 1000);
    assert_string_equal(s[SERVICE_READY].message, "2 of 2 instances are ready");
    f.ready = 0;
    service_conditions(&v, &f, 3000, s);
    assert_int_equal(s[SERVICE_READY].since_us, 3000);
}

/* A provider that is asked again has not given anything yet. */
static void a_stock_out_lasts_until_an_instance_is_ready(void **state)
{
    (void)state;
    const struct service_verdict v = { .tried = true, .generation = 1 };
    struct service_facts f = { RUNNING, .ready = 1, .desired = 3, .missing = true,
                               .stock = "none" };
    struct service_state s[SERVICE_CONDITION_COUNT] = { 0 };
    f.stocked_out = true;
    service_conditions(&v, &f, 1, s);
    f.stocked_out = false;
    service_conditions(&v, &f, 2, s);
    assert_int_equal(s[SERVICE_STOCKED_OUT].truth, SERVICE_TRUE);
    assert_string_equal(s[SERVICE_STOCKED_OUT].message, "none");
    f.ready = 2;
    service_conditions(&v, &f, 3, s);
    assert_int_equal(s[SERVICE_STOCKED_OUT].truth, SERVICE_FALSE);
    f.stocked_out = true;
    service_conditions(&v, &f, 4, s);
    f.stocked_out = f.missing = false; /* fewer are wanted */
    service_conditions(&v, &f, 5, s);
    assert_int_equal(s[SERVICE_STOCKED_OUT].truth, SERVICE_FALSE);
}

/* What is written is JSON whose conditions read back with their dates. */
static void a_status_reads_back(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 }, text = { 0 };
    const struct kube_meta meta = { .name = "chat", .ns = "ns", .uid = "u1", .generation = 3 };
    const struct service_verdict v = { .tried = true, .generation = 3 };
    const struct service_facts f = { RUNNING,
                                     .pool = { { "p", 1, 2, 3 } },
                                     .pool_count = 1,
                                     .ready = 1,
                                     .instances = 2,
                                     .desired = 3,
                                     .cost_h = 0.123456,
                                     .reason = "more load" };
    struct service_state s[SERVICE_CONDITION_COUNT] = { 0 }, back[SERVICE_CONDITION_COUNT] = { 0 };
    double number;
    service_conditions(&v, &f, 1700000000123456, s);
    assert_int_equal(service_status_write(&meta, "a=b,c=d", &v, &f, 0.98765, s, &out), 0);
    struct str json = buf_view(&out);
    assert_int_equal(json_path_text(json, "metadata.uid", &text), 0);
    assert_true(str_eq(buf_view(&text), STR("u1")));
    buf_clear(&text);
    assert_int_equal(json_path_text(json, "status.selector", &text), 0);
    assert_true(str_eq(buf_view(&text), STR("a=b,c=d")));
    assert_int_equal(json_path_f64(json, "status.attainment", &number), 0);
    assert_true(number == 0.988);
    assert_int_equal(json_path_f64(json, "status.dollarsPerHour", &number), 0);
    assert_true(number == 0.1235);
    assert_int_equal(json_path_f64(json, "status.observedGeneration", &number), 0);
    assert_true(number == 3);
    assert_true(str_find(json, STR("{\"name\":\"p\",\"ready\":1,\"instances\":2,\"desired\":3}")) !=
                SIZE_MAX);
    assert_true(str_find(json, STR("\"lastTransitionTime\":\"2023-11-14T22:13:20Z\"")) != SIZE_MAX);
    service_conditions_read(json, back);
    for (int k = 0; k < SERVICE_CONDITION_COUNT; k++) {
        assert_int_equal(back[k].truth, s[k].truth);
        assert_int_equal(back[k].since_us, 1700000000000000);
    }
    buf_clear(&out);
    assert_int_equal(service_status_write(&meta, "a=b", &v, &f, -1, s, &out), 0);
    assert_true(str_find(buf_view(&out), STR("attainment")) == SIZE_MAX);
}

static void attainment_is_of_the_last_minutes(void **state)
{
    (void)state;
    struct attainment a = { 0 };
    assert_true(attainment_of(&a, 5, 5) < 0);
    attainment_take(&a, 100, 100, 1);
    assert_true(attainment_of(&a, 100, 100) < 0); /* nothing ended since */
    assert_true(attainment_of(&a, 109, 101) == 0.9);
    for (int i = 1; i <= ATTAINMENT_STEPS; i++)
        attainment_take(&a, 200, 100, 1 + i * (int64_t)ATTAINMENT_STEP_US);
    assert_true(attainment_of(&a, 201, 101) == 0.5); /* the first minutes are forgotten */
    assert_true(attainment_of(&a, 0, 0) < 0);        /* counters that began anew */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_specification_becomes_a_service),
        cmocka_unit_test(mistakes_are_refused_by_name),
        cmocka_unit_test(a_long_object_name_wants_another),
        cmocka_unit_test(only_other_instances_can_have_another_model),
        cmocka_unit_test(replicas_are_shared_by_minimum_and_order),
        cmocka_unit_test(a_list_stands_behind_the_configurations_own),
        cmocka_unit_test(a_name_that_is_there_twice_is_refused),
        cmocka_unit_test(a_list_reads_back),
        cmocka_unit_test(conditions_say_what_is_so),
        cmocka_unit_test(a_refused_object_says_what_stays),
        cmocka_unit_test(dates_change_with_the_truth_alone),
        cmocka_unit_test(a_stock_out_lasts_until_an_instance_is_ready),
        cmocka_unit_test(a_status_reads_back),
        cmocka_unit_test(attainment_is_of_the_last_minutes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
