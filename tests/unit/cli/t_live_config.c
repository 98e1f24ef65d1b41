/* t_live_config.c - tests the configuration in force: what may change in a running controller and when it takes
 * effect, what holds after a restart, and what is refused. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/schema.h"
#include "controller/config.h"
#include "controller/live_config.h"
#include "controller/objects/service_list.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "models/muster-tiny-q8_0.gguf"
#define START_US 1000000000000LL

/* A process with its file and its store, which outlives it. */
struct desk {
    char folder[64], path[96];
    struct store *store;
    struct config *start;
    struct live_config live;
};

static void write_file(const struct desk *d, const char *text)
{
    assert_int_equal(file_write_atomic(d->path, str_from(text), 0600, NULL), 0);
}

static int check(const struct config *config, struct err *err)
{
    return check_loaded(config, NULL, err);
}

/* Starts the process: loads the file, opens the live configuration. */
static void start(struct desk *d, int64_t date_us)
{
    struct err err = { 0 };
    const struct config_sources sources = { .path = d->path };
    if (config_load(&schema, &sources, &d->start, NULL, &err) < 0) fail_msg("%s", err.text);
    const struct live_config_setup setup = {
        .start = d->start, .sources = sources, .check = check, .store = d->store
    };
    if (live_config_open(&d->live, &setup, date_us, &err) < 0) fail_msg("%s", err.text);
}

static void stop(struct desk *d)
{
    live_config_fini(&d->live);
    config_free(d->start);
    d->start = NULL;
}

static struct desk *desk(const char *text)
{
    struct desk *d = calloc(1, sizeof *d);
    must(d);
    snprintf(d->folder, sizeof d->folder, "/tmp/muster-live-XXXXXX");
    must(mkdtemp(d->folder));
    snprintf(d->path, sizeof d->path, "%s/muster.yaml", d->folder);
    must(store_memory_open(100, &d->store, NULL) == 0);
    write_file(d, text);
    start(d, START_US);
    return d;
}

static void desk_free(struct desk *d)
{
    stop(d);
    store_close(d->store);
    unlink(d->path);
    rmdir(d->folder);
    free(d);
}

/* Changes to `text`, as the controller does. */
static int change(struct desk *d, enum live_source source, const char *text, struct err *err)
{
    struct live_candidate c = {
        .source = source, .text = str_from(text), .name = "next.yaml", .by = "token ann"
    };
    *err = (struct err){ 0 };
    int rc = live_config_load(&d->live, &c, err);
    if (rc == 0) rc = live_config_keep(&d->live, &c, START_US + 1, err);
    if (rc == 0) live_config_take(&d->live, &c, START_US + 1);
    live_candidate_fini(&c);
    return rc;
}

#define LOCAL "local: { cores: 8, offers: [ { name: bit, share: 0.1, price_per_hour: 1 } ] }\n"
#define SERVICE(more) "services: [ { name: chat, model: " MODEL ", " more " } ]\n"
#define POOL "pools: [ { name: p, offers: [bit] } ]"
#define PLAIN LOCAL SERVICE(POOL)

static void a_change_takes_effect_where_it_says(void **state)
{
    static const struct {
        const char *from, *to, *says, *why;
        bool refused;
    } rows[] = {
        { PLAIN, LOCAL SERVICE("slo_ttft: 9s, " POOL),
          "[{\"path\":\"services[chat].slo_ttft\",\"kind\":\"changed\",\"from\":\"2s\",\"to\":"
          "\"9s\","
          "\"effect\":\"now\"}]",
          "an SLO", false },
        { PLAIN, LOCAL SERVICE("engine_flags: ['--threads=1'], " POOL),
          "\"effect\":\"new instances\"", "flags of engines", false },
        { PLAIN, LOCAL SERVICE("engine: { order: fcfs }, " POOL), "\"effect\":\"new instances\"",
          "policies of engines", false },
        { PLAIN, LOCAL SERVICE("pools: [ { name: p, offers: [bit] }, { name: q, offers: [bit] } ]"),
          "[{\"path\":\"services[chat].pools[q]\",\"kind\":\"added\",\"effect\":\"now\"}]",
          "a pool", false },
        { PLAIN, LOCAL, "[{\"path\":\"services[chat]\",\"kind\":\"removed\",\"effect\":\"now\"}]",
          "a service goes", false },
        { PLAIN, PLAIN "engine: { max_num_seqs: 3 }\n", "\"effect\":\"new instances\"",
          "what all engines begin with", false },
        { PLAIN, PLAIN "router: { hold_max: 9s }\n", "\"effect\":\"elsewhere\"", "a router's",
          false },
        { PLAIN, PLAIN "controller: { drain: 9s }\n", "\"effect\":\"now\"",
          "a time of the controller", false },
        { PLAIN, PLAIN "controller: { grace: 9s }\n", "\"effect\":\"new instances\"",
          "a time that instances are launched with", false },
        { PLAIN, PLAIN "controller: { listen: '127.0.0.1:1' }\n",
          "controller.listen cannot be changed in a running controller", "where it listens", true },
        { PLAIN,
          LOCAL "services: [ { name: chat, model: " MODEL ", engine_program: /bin/x, " POOL
                " } ]\n",
          "services[chat].engine_program cannot be changed", "another program", true },
        { PLAIN,
          "local: { cores: 9, offers: [ { name: bit, share: 0.1, price_per_hour: 2 } ] }\n" SERVICE(
              POOL),
          "local.cores, local.offers[bit].price_per_hour cannot be changed", "two of the cloud's",
          true },
        { PLAIN, LOCAL SERVICE("slo_tfft: 9s, " POOL),
          "next.yaml:2: services[0]: unknown key 'slo_tfft'", "a typing error", true },
        { PLAIN, LOCAL SERVICE("scale: best, " POOL), "service chat: scale", "an unknown policy",
          true },
        { PLAIN, LOCAL "services: [ { name: chat, model: /nowhere, " POOL " } ]\n", "/nowhere",
          "a model that is not there", true },
        { PLAIN, "", "local.cores, local.offers[bit] cannot be changed", "an empty file", true },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct desk *d = desk(rows[i].from);
        struct err err = { 0 };
        struct live_candidate c = {
            .source = LIVE_APPLIED, .text = str_from(rows[i].to), .name = "next.yaml", .by = "ann"
        };
        int rc = live_config_load(&d->live, &c, &err);
        const char *text = rc < 0 ? err.text : c.changes.data;
        if ((rc < 0) != rows[i].refused || !strstr(text, rows[i].says))
            fail_msg("%s: %d %s", rows[i].why, rc, text);
        live_candidate_fini(&c);
        desk_free(d);
    }
}

static const char *model_slo(const struct desk *d)
{
    static struct buf text;
    buf_clear(&text);
    must(config_lookup(live_config_get(&d->live), "services[0].slo_ttft", &text, NULL, NULL) == 0);
    return text.data;
}

static void what_was_applied_holds_until_the_file_changes(void **state)
{
    (void)state;
    struct err err;
    struct desk *d = desk(PLAIN);
    assert_int_equal(d->live.generation, 1);
    assert_int_equal(d->live.source, LIVE_FILE);
    assert_int_equal(change(d, LIVE_APPLIED, LOCAL SERVICE("slo_ttft: 9s, " POOL), &err), 0);
    assert_string_equal(model_slo(d), "9s");
    assert_true(live_config_differs(&d->live));
    stop(d);

    start(d, START_US + 2); /* the file is as it was */
    assert_int_equal(d->live.source, LIVE_APPLIED);
    assert_int_equal(d->live.generation, 2);
    assert_string_equal(d->live.by, "token ann");
    assert_string_equal(model_slo(d), "9s");
    assert_true(live_config_differs(&d->live));
    stop(d);

    write_file(d, LOCAL SERVICE("slo_ttft: 5s, " POOL)); /* changed while nothing ran */
    start(d, START_US + 3);
    assert_int_equal(d->live.source, LIVE_FILE);
    assert_int_equal(d->live.generation, 3);
    assert_string_equal(model_slo(d), "5s");
    assert_false(live_config_differs(&d->live));
    stop(d);

    write_file(d, PLAIN); /* as at the beginning: what was applied then is gone */
    start(d, START_US + 4);
    assert_int_equal(d->live.source, LIVE_FILE);
    assert_int_equal(d->live.generation, 4);
    assert_string_equal(model_slo(d), "2s");
    stop(d);
    start(d, START_US + 5); /* nothing has changed */
    assert_int_equal(d->live.generation, 4);
    assert_true(d->live.at_us == START_US + 4);
    desk_free(d);
}

static void a_changed_file_replaces_what_was_applied(void **state)
{
    (void)state;
    struct err err;
    struct desk *d = desk(PLAIN);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(change(d, LIVE_APPLIED, LOCAL SERVICE("slo_ttft: 9s, " POOL), &err), 0);
    assert_false(live_config_file_changed(&d->live));
    write_file(d, LOCAL SERVICE("slo_ttft: 50s, " POOL));
    assert_false(live_config_file_changed(&d->live)); /* an editor may be at it */
    assert_true(live_config_file_changed(&d->live));
    assert_int_equal(live_config_read(&d->live, &text, &err), 0);
    assert_int_equal(change(d, LIVE_FILE, text.data, &err), 0);
    assert_false(live_config_file_changed(&d->live));
    assert_string_equal(model_slo(d), "50s");
    assert_false(live_config_differs(&d->live));
    stop(d);
    start(d, START_US + 2);
    assert_int_equal(d->live.source, LIVE_FILE);
    assert_int_equal(d->live.generation, 3);
    desk_free(d);
}

/* A release that refuses what was applied starts with the file and says why. */
static void what_cannot_be_loaded_any_more_is_told(void **state)
{
    (void)state;
    struct err err;
    struct desk *d = desk(PLAIN);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(change(d, LIVE_APPLIED, LOCAL SERVICE("slo_ttft: 9s, " POOL), &err), 0);
    assert_int_equal(store_get(d->store, STR("config"), &text, NULL, NULL), 0);
    char *at = strstr(text.data, "slo_ttft");
    assert_non_null(at);
    memcpy(at, "slo_gone", 8);
    must(store_put_if(d->store, STR("config"), buf_view(&text), STORE_ANY, &(uint64_t){ 0 },
                      NULL) == 0);
    stop(d);
    start(d, START_US + 2);
    assert_int_equal(d->live.source, LIVE_FILE);
    assert_string_equal(model_slo(d), "2s");
    buf_clear(&text);
    assert_int_equal(live_config_put(&d->live, &text), 0);
    assert_non_null(strstr(text.data, "slo_gone"));
    desk_free(d);
}

/* Puts services of objects into force, each of this model. */
static int put_services(struct desk *d, const char *const *names, uint32_t count, const char *model,
                        struct err *err)
{
    CLEANUP(buf_fini) struct buf list = { 0 };
    struct buf service[4] = { { 0 } };
    struct service_entry entry[4];
    *err = (struct err){ 0 };
    for (uint32_t i = 0; i < count; i++) {
        buf_printf(&service[i],
                   "{\"name\":\"%s\",\"model\":\"%s\",\"pools\":[{\"name\":\"p\","
                   "\"offers\":[\"bit\"]}]}",
                   names[i], model);
        entry[i] = (struct service_entry){ str_from(names[i]),    STR("uid"), str_from(names[i]),
                                           buf_view(&service[i]), 1,          -1 };
    }
    assert_int_equal(service_list_write(&(struct service_list){ entry, count }, &list), 0);
    struct live_candidate c = { .source = LIVE_OBJECTS,
                                .services = buf_view(&list),
                                .by = "musterservice/x" };
    int rc = live_config_load(&d->live, &c, err);
    if (rc == 0) rc = live_config_keep(&d->live, &c, START_US + 1, err);
    if (rc == 0) live_config_take(&d->live, &c, START_US + 1);
    live_candidate_fini(&c);
    for (uint32_t i = 0; i < count; i++)
        buf_fini(&service[i]);
    return rc;
}

static size_t service_count(const struct desk *d)
{
    const struct config_records *r = config_section_get(live_config_get(&d->live), "services");
    return r->count;
}

/* Takes what the store had, as the controller does once it knows that it fits. */
static int restore(struct desk *d, struct err *err)
{
    *err = (struct err){ 0 };
    struct live_candidate c = { .source = LIVE_OBJECTS, .services = buf_view(&d->live.stored) };
    int rc = live_config_load(&d->live, &c, err);
    if (rc == 0) live_config_restore(&d->live, &c);
    live_candidate_fini(&c);
    return rc;
}

static void services_of_objects_stand_beside_the_others(void **state)
{
    static const char *const names[] = { "code", "talk" }, *const taken[] = { "chat" };
    (void)state;
    struct err err;
    struct desk *d = desk(PLAIN);
    assert_int_equal(put_services(d, names, 2, MODEL, &err), 0);
    assert_int_equal(service_count(d), 3);
    assert_int_equal(d->live.generation, 2);
    assert_int_equal(d->live.source, LIVE_FILE);
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(live_config_put(&d->live, &text), 0);
    assert_non_null(strstr(text.data, "\"objects\":[{\"object\":\"code\",\"service\":\"code\"},"));
    assert_false(live_config_differs(&d->live));

    assert_int_equal(put_services(d, taken, 1, MODEL, &err), -EEXIST);
    assert_non_null(strstr(err.text, "service 'chat' is defined twice"));
    assert_int_equal(put_services(d, names, 2, "./" MODEL, &err), -EINVAL);
    assert_non_null(strstr(err.text, "services[code].model"));
    assert_int_equal(service_count(d), 3);

    /* A changed file and an applied configuration leave them; one with the name of theirs is refused. */
    assert_int_equal(change(d, LIVE_FILE, LOCAL SERVICE("slo_ttft: 5s, " POOL), &err), 0);
    assert_string_equal(model_slo(d), "5s");
    assert_int_equal(service_count(d), 3);
    assert_int_equal(change(d, LIVE_APPLIED,
                            LOCAL "services: [ { name: code, model: " MODEL ", " POOL " } ]", &err),
                     -EEXIST);
    assert_int_equal(change(d, LIVE_APPLIED, LOCAL "services:\n  - name: x\n    modell: y\n", &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "next.yaml:4:")); /* the line is the text's own */
    assert_int_equal(put_services(d, names, 1, MODEL, &err), 0);
    assert_int_equal(service_count(d), 2);
    desk_free(d);
}

static void services_of_objects_hold_over_a_start(void **state)
{
    static const char *const names[] = { "code", "talk" };
    (void)state;
    struct err err;
    struct desk *d = desk(PLAIN);
    assert_int_equal(put_services(d, names, 2, MODEL, &err), 0);
    stop(d);
    start(d, START_US + 2);
    assert_int_equal(service_count(d), 1); /* until the caller knows that they fit */
    assert_int_equal(d->live.generation, 2);
    assert_int_equal(restore(d, &err), 0);
    assert_int_equal(service_count(d), 3);
    assert_int_equal(d->live.generation, 2);
    stop(d);

    write_file(d, LOCAL "services: [ { name: talk, model: " MODEL ", " POOL " } ]\n");
    start(d, START_US + 3);
    assert_int_equal(restore(d, &err), -EEXIST);
    assert_int_equal(service_count(d), 1);
    desk_free(d);
}

static void texts_are_bounded(void **state)
{
    (void)state;
    struct err err;
    struct desk *d = desk(PLAIN);
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_text(&text, PLAIN "# ");
    while (text.len <= LIVE_CONFIG_BYTES_MAX)
        buf_text(&text, "a long comment that nobody reads\n# ");
    assert_int_equal(change(d, LIVE_APPLIED, text.data, &err), -E2BIG);
    assert_non_null(strstr(err.text, "at most can be applied"));
    assert_int_equal(d->live.generation, 1);
    desk_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_takes_effect_where_it_says),
        cmocka_unit_test(what_was_applied_holds_until_the_file_changes),
        cmocka_unit_test(a_changed_file_replaces_what_was_applied),
        cmocka_unit_test(what_cannot_be_loaded_any_more_is_told),
        cmocka_unit_test(services_of_objects_stand_beside_the_others),
        cmocka_unit_test(services_of_objects_hold_over_a_start),
        cmocka_unit_test(texts_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
