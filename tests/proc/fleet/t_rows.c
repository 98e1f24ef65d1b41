/* t_rows.c - selects every policy that `muster policies` lists by its name in muster.yaml: it is accepted
 * and works in its process, which says so. Every other name is refused with a list of the valid ones.
 *
 * Real binary, real model: engines are started by the controller, ten services at once. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/rig.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHOICES_MAX 256
#define SERVICES 10 /* in one fleet */
#define OFFERS      \
    "local:\n"      \
    "  cores: 64\n" \
    "  offers: [ { name: bit, share: 0.2, price_per_hour: 0.1 } ]\n"
#define FLAGS                                                                                  \
    "    engine_flags: [--threads, '1', --max-num-seqs, '1', --kv-cache-memory-bytes, 16MiB, " \
    "--hardware, cpu]\n"
#define POWER_LIMIT_WATTS "    power_limit_watts: 100\n" /* polca needs it */
#define POOL "    pools: [ { name: only, offers: [bit], min: 1, max: 1 } ]\n"

/* A policy and a key of muster.yaml that may name it; empty key: no key names it. */
struct choice {
    char kind[32], name[64], key[64];
    bool is_default;
};

static struct choice choices[CHOICES_MAX];
static uint32_t choice_count;

static void copy(const struct json_reader *r, char *ret, size_t size)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(json_text(r, &text), 0);
    assert_true(text.len > 0 && text.len < size);
    memcpy(ret, text.data, text.len);
    ret[text.len] = 0;
}

static void read_row(struct json_reader *r)
{
    struct choice c = { { 0 }, { 0 }, { 0 }, false };
    while (json_next(r) == JSON_KEY) {
        bool kind = json_key_is(r, "kind"), name = json_key_is(r, "name");
        bool keys = json_key_is(r, "chosen_in");
        enum json_token t = json_next(r);
        if (kind) copy(r, c.kind, sizeof c.kind);
        if (name) copy(r, c.name, sizeof c.name);
        if (!keys && (t == JSON_OBJECT || t == JSON_ARRAY)) json_skip_rest(r);
        if (!keys) continue;
        assert_int_equal(t, JSON_ARRAY);
        while (json_next(r) == JSON_STRING) {
            assert_true(choice_count < CHOICES_MAX);
            choices[choice_count] = c;
            copy(r, choices[choice_count].key, sizeof c.key);
            if (strchr(choices[choice_count].key, ' '))
                choices[choice_count].key[0] = 0; /* not a key: a flag of a command, a planner */
            choice_count++;
        }
    }
}

static int read_choices(void **state)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    const char *const args[] = { "policies", "-o", "json", NULL };
    (void)state;
    assert_int_equal(rig_run(&text, args), 0);
    struct json_reader r;
    json_reader_init(&r, str_from(text.data));
    assert_int_equal(json_next(&r), JSON_ARRAY);
    while (json_next(&r) == JSON_OBJECT)
        read_row(&r);
    assert_true(choice_count > 100);
    return 0;
}

/* Returns the k-th name that `key` may have, counted round and round; NULL: there is none. */
static const char *name_at(const char *key, uint32_t k)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < choice_count; i++)
        count += strcmp(choices[i].key, key) == 0;
    for (uint32_t i = 0, at = 0; i < choice_count; i++)
        if (strcmp(choices[i].key, key) == 0 && at++ == k % count) return choices[i].name;
    return NULL;
}

static uint32_t most_names(const char *prefix)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < choice_count; i++) {
        uint32_t count = 0;
        if (strncmp(choices[i].key, prefix, strlen(prefix)) != 0) continue;
        for (uint32_t k = 0; k < choice_count; k++)
            count += strcmp(choices[k].key, choices[i].key) == 0;
        most = max_u32(most, count);
    }
    return most;
}

/* ---- the configuration's check --------------------------------------------------------------- */

/* Runs `muster config check` on a fleet in which `key`, as `muster policies` prints it, is `name`. */
static int check(const char *key, const char *name, struct buf *out)
{
    CLEANUP(buf_fini) struct buf yaml = { 0 };
    char path[128];
    const char *last = strrchr(key, '.') + 1;
    bool router = strncmp(key, "router.", 7) == 0, engine = strstr(key, ".engine.") != NULL;
    snprintf(path, sizeof path, "%s/check.yaml", rig_folder());
    if (router) buf_printf(&yaml, "router: { %s: %s }\n", last, name);
    buf_printf(&yaml, OFFERS "services:\n  - name: tiny\n    model: " MODEL "\n" POOL);
    if (engine) buf_printf(&yaml, "    engine: { %s: %s }\n", last, name);
    if (!router && !engine) buf_printf(&yaml, "    %s: %s\n", last, name);
    if (strcmp(name, "polca") == 0) buf_text(&yaml, POWER_LIMIT_WATTS);
    assert_int_equal(file_write_atomic(path, buf_view(&yaml), 0600, NULL), 0);
    const char *const args[] = { "config", "check", path, NULL };
    return rig_run(out, args);
}

static void every_name_is_taken_where_it_is_listed(void **state)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    (void)state;
    for (uint32_t i = 0; i < choice_count; i++)
        if (choices[i].key[0] && check(choices[i].key, choices[i].name, &out) != 0)
            fail_msg("%s: %s: %s", choices[i].key, choices[i].name, out.data);
}

/* A policy that cannot act there is refused with the reason; an unknown name with all valid names. */
static void other_names_are_refused_with_the_reason(void **state)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    (void)state;
    static const struct {
        const char *key, *name, *says;
    } rows[] = {
        { "services[].migrate", "llumnix", "put it below `router`" },
        { "services[].order", "fcfs", "below `engine` of a service" },
        { "router.predict", "oracle", "a router has no true lengths" },
        { "router.predict", "trail", "a router has no" },
        { "services[].engine.predict", "oracle", "an engine has no true lengths" },
        { "services[].place", "melange", "is no place policy; there are joint, " },
        { "services[].scale", "clairvoyant", "is no scale policy; there are work, " },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int rc = check(rows[i].key, rows[i].name, &out);
        if (rc == 0 || !strstr(out.data, rows[i].says))
            fail_msg("%s: %s: %d %s", rows[i].key, rows[i].name, rc, out.data);
    }
    for (uint32_t i = 0; i < choice_count; i++) {
        const struct choice *c = &choices[i];
        bool first = i == 0 || strcmp(choices[i - 1].kind, c->kind) != 0;
        if (!c->key[0] || !first) continue;
        int rc = check(c->key, "nonesuch", &out);
        for (uint32_t k = 0; k < choice_count; k++)
            if (strcmp(choices[k].key, c->key) == 0 &&
                (rc == 0 || !strstr(out.data, choices[k].name)))
                fail_msg("%s: nonesuch: %d, %s is not named: %s", c->key, rc, choices[k].name,
                         out.data);
    }
}

/* ---- the router ------------------------------------------------------------------------------ */

static double row_metric(uint16_t port, const char *role, const char *kind, const char *name)
{
    char line[192];
    snprintf(line, sizeof line, "muster_%s_policy_info{kind=\"%s\",row=\"%s\"}", role, kind, name);
    return rig_metric(port, line);
}

static void every_row_of_the_router_decides_there(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < most_names("router."); k++) {
        CLEANUP(buf_fini) struct buf yaml = { 0 };
        char path[128], listen[32];
        const char *route = name_at("router.route", k), *predict = name_at("router.predict", k);
        const char *migrate = name_at("router.migrate", k);
        uint16_t port = rig_port();
        snprintf(path, sizeof path, "%s/router.yaml", rig_folder());
        snprintf(listen, sizeof listen, "127.0.0.1:%u", port);
        buf_printf(&yaml, "router: { route: %s, predict: %s, migrate: %s }\n", route, predict,
                   migrate);
        assert_int_equal(file_write_atomic(path, buf_view(&yaml), 0600, NULL), 0);
        const char *argv[] = { getenv("MUSTER_BIN"), "router", "--config", path,
                               "--listen",           listen,   NULL };
        struct rig_process router = rig_start("router", argv, port, "/metrics", 200);
        if (!(row_metric(port, "router", "route", route) > 0)) fail_msg("route: %s", route);
        if (!(row_metric(port, "router", "predict", predict) > 0)) fail_msg("predict: %s", predict);
        if (!(row_metric(port, "router", "migrate", migrate) > 0)) fail_msg("migrate: %s", migrate);
        assert_int_equal(rig_stop(&router), 0);
    }
}

/* ---- the controller and its engines ---------------------------------------------------------- */

static const char *const service_keys[][2] = {
    /* the key, and what the API calls it */
    { "services[].scale", "policy" },      { "services[].shaper", "shaper" },
    { "services[].forecast", "forecast" }, { "services[].place", "place" },
    { "services[].role", "role" },         { "services[].power", "power" },
    { "services[].mix", "mix" },
};
static const char *const engine_kinds[] = { "preset", "fair",  "order", "admit", "preempt",
                                            "chunk",  "evict", "draft", "perf",  "predict" };

struct fleet {
    struct rig_process controller;
    char bearer[RIG_BEARER];
};

static const char *engine_row(const char *kind, uint32_t k)
{
    char key[64];
    snprintf(key, sizeof key, "services[].engine.%s", kind);
    return name_at(key, k);
}

/* Starts the services s<from> up to s<from + count>, each with the policies of its number. */
static struct fleet start_fleet(const char *fleet, uint32_t from, uint32_t count)
{
    CLEANUP(buf_fini) struct buf yaml = { 0 };
    char path[128], secret[192];
    struct fleet f;
    snprintf(path, sizeof path, "%s/%s.yaml", rig_folder(), fleet);
    buf_printf(&yaml, "controller: { tick: 100ms, state: '%s/%s' }\n" OFFERS "services:\n",
               rig_folder(), fleet);
    for (uint32_t k = from; k < from + count; k++) {
        buf_printf(&yaml, "  - name: s%u\n    model: " MODEL "\n" FLAGS POOL, k);
        for (size_t i = 0; i < COUNT_OF(service_keys); i++)
            buf_printf(&yaml, "    %s: %s\n", strrchr(service_keys[i][0], '.') + 1,
                       name_at(service_keys[i][0], k));
        if (strcmp(name_at("services[].power", k), "polca") == 0)
            buf_text(&yaml, POWER_LIMIT_WATTS);
        buf_printf(&yaml, "    engine:\n");
        for (size_t i = 0; i < COUNT_OF(engine_kinds); i++)
            buf_printf(&yaml, "      %s: %s\n", engine_kinds[i], engine_row(engine_kinds[i], k));
        if (strcmp(engine_row("draft", k), "model") == 0)
            buf_text(&yaml, "      draft_model: " MODEL "\n");
    }
    assert_int_equal(file_write_atomic(path, buf_view(&yaml), 0600, NULL), 0);
    f.controller = rig_server("controller", rig_port(), ARGS("--config", path));

    snprintf(secret, sizeof secret, "%s/%s/secret", rig_folder(), fleet);
    rig_bearer(secret, f.bearer);
    return f;
}

/* Polls a view of the API until it contains `what` `count` times. */
static void await(const struct fleet *f, const char *view, const char *what, uint32_t count,
                  struct buf *text)
{
    char path[64];
    uint32_t found = 0;
    int64_t until_us = clock_mono_us() + 3 * (int64_t)RIG_WAIT_US;
    snprintf(path, sizeof path, "/api/v1/%s", view);
    while (found < count) {
        if (clock_mono_us() > until_us)
            fail_msg("%u times %s, not %u, in %s", found, what, count, text->data);
        usleep(50000);
        if (rig_call(f->controller.port, path, NULL, text) != 200) continue;
        buf_byte(text, 0);
        found = 0;
        for (const char *at = text->data; (at = strstr(at, what)); at++)
            found++;
    }
}

/* Returns the port of the only engine of service s<k>, from the view of instances. */
static uint16_t port_of(const struct buf *instances, uint32_t k)
{
    char name[32];
    snprintf(name, sizeof name, "\"service\":\"s%u\"", k);
    const char *at = strstr(instances->data, name);
    at = at ? strstr(at, "\"port\":") : NULL;
    assert_non_null(at);
    return (uint16_t)strtoul(at + strlen("\"port\":"), NULL, 10);
}

static void check_service(const struct buf *services, uint32_t k)
{
    char name[32], says[96], object[1024];
    snprintf(name, sizeof name, "{\"service\":\"s%u\"", k);
    const char *at = strstr(services->data, name);
    assert_non_null(at);
    snprintf(object, sizeof object, "%s", at); /* its names stand at its beginning */
    char *end = strstr(object + 1, "{\"service\":");
    if (end) *end = 0;
    for (size_t i = 0; i < COUNT_OF(service_keys); i++) {
        snprintf(says, sizeof says, "\"%s\":\"%s\"", service_keys[i][1],
                 name_at(service_keys[i][0], k));
        if (!strstr(object, says)) fail_msg("s%u: no %s in %s", k, says, object);
    }
}

static void check_engine(const struct fleet *f, const struct buf *instances, uint32_t k)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char line[192];
    assert_int_equal(rig_call_with(port_of(instances, k), "/metrics", f->bearer, NULL, &text), 200);
    buf_byte(&text, 0);
    for (size_t i = 0; i < COUNT_OF(engine_kinds); i++) {
        const char *row = engine_row(engine_kinds[i], k);
        snprintf(line, sizeof line, "muster_engine_policy_info{kind=\"%s\",row=\"%s\"} 1\n",
                 engine_kinds[i], row);
        if (!strstr(text.data, line)) fail_msg("s%u: no %s", k, line);
    }
}

static void every_row_of_a_service_reaches_its_role(void **state)
{
    (void)state;
    uint32_t all = max_u32(most_names("services[]."), 1);
    for (uint32_t from = 0; from < all; from += SERVICES) {
        CLEANUP(buf_fini) struct buf services = { 0 };
        CLEANUP(buf_fini) struct buf instances = { 0 };
        uint32_t count = min_u32(SERVICES, all - from);
        char name[32];
        snprintf(name, sizeof name, "fleet-%u", from);
        struct fleet f = start_fleet(name, from, count);
        await(&f, "services", "\"ready\":1,", count, &services);
        await(&f, "instances", "\"health\":\"ready\"", count, &instances);
        for (uint32_t k = from; k < from + count; k++) {
            check_service(&services, k);
            check_engine(&f, &instances, k);
        }
        rig_kill(&f.controller); /* what it started is ended with the folder */
    }
}

/* ---- prompt tokens that engines owe ---------------------------------------------------------- */

static int ask(uint16_t port, const struct fleet *f, const char *body)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int fd = rig_connect(port, 0);
    buf_printf(&text,
               "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n%s\r\n"
               "content-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
               f->bearer, strlen(body), body);
    assert_int_equal(text.rc, 0);
    assert_int_equal(write(fd, text.data, text.len), (ssize_t)text.len);
    return fd;
}

/* A long output takes the engine's only sequence: the prompt behind it is owed meanwhile, and nothing is
 * owed once both clients have left. */
static void the_controller_sees_what_engines_owe(void **state)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    (void)state;
    struct fleet f = start_fleet("owing", 0, 1);
    await(&f, "instances", "\"owed_prompt_tokens\":0", 1, &text);
    uint16_t port = port_of(&text, 0);
    int first = ask(port, &f,
                    "{\"model\":\"s0\",\"prompt\":\"Once\",\"max_tokens\":2000,"
                    "\"ignore_eos\":true,\"stream\":true}");
    await(&f, "instances", "\"running\":1", 1, &text);
    int second = ask(port, &f,
                     "{\"model\":\"s0\",\"prompt\":\"Tell me of the moon and of the sun.\","
                     "\"max_tokens\":4,\"stream\":true}");
    int64_t owed = 0, until_us = clock_mono_us() + RIG_WAIT_US;
    while (owed <= 0 && clock_mono_us() < until_us)
        owed = rig_number(f.controller.port, "/api/v1/instances", "owed_prompt_tokens");
    if (owed < 5 || owed > 100) fail_msg("%lld tokens are owed", (long long)owed);
    close(first);
    close(second);
    await(&f, "instances", "\"owed_prompt_tokens\":0", 1, &text);
    rig_kill(&f.controller);
}

/* ---- held requests --------------------------------------------------------------------------- */

/* The router holds a request because its instance takes an hour to come. The controller's view shows its
 * length as queued, and no more once its client has left; it stays among the expected lengths. */
static void the_controller_sees_what_waits_in_the_router(void **state)
{
    CLEANUP(buf_fini) struct buf yaml = { 0 }, text = { 0 };
    char path[128], secret[128], listen[2][32];
    uint16_t port[2] = { rig_port(), rig_port() };
    struct fleet f = { .bearer = "x-nothing: said" };
    (void)state;
    snprintf(path, sizeof path, "%s/waiting.yaml", rig_folder());
    snprintf(secret, sizeof secret, "%s/waiting/secret", rig_folder());
    for (int i = 0; i < 2; i++)
        snprintf(listen[i], sizeof listen[i], "127.0.0.1:%u", port[i]);
    buf_printf(&yaml,
               "controller: { tick: 100ms, state: '%s/waiting' }\n"
               "router: { sync: 100ms, controller: '%s', secret_file: '%s' }\n"
               "local:\n"
               "  cores: 1\n"
               "  offers: [ { name: far, share: 0.2, price_per_hour: 1, launch_delay: 1h } ]\n"
               "services:\n"
               "  - name: late\n"
               "    model: " MODEL "\n"
               "    pools: [ { name: only, offers: [far], min: 1, max: 1 } ]\n",
               rig_folder(), listen[0], secret);
    assert_int_equal(file_write_atomic(path, buf_view(&yaml), 0600, NULL), 0);
    f.controller = rig_server("controller", port[0], ARGS("--config", path));
    const char *router[] = { getenv("MUSTER_BIN"), "router",  "--config", path,
                             "--listen",           listen[1], NULL };
    struct rig_process r = rig_start("router", router, port[1], "/metrics", 200);
    await(&f, "services", "\"demand\":{", 1, &text); /* the router knows the service */
    if (!strstr(text.data, "\"queued\":null")) fail_msg("before: %s", text.data);
    int fd = ask(port[1], &f, "{\"model\":\"late\",\"prompt\":\"Once\",\"max_tokens\":3}");
    await(&f, "services", "\"queued\":{\"count\":1,", 1, &text);
    close(fd);
    await(&f, "services", "\"queued\":null", 1, &text);
    if (!strstr(text.data, "\"expected\":{\"count\":1,")) fail_msg("after: %s", text.data);
    rig_kill(&r);
    rig_kill(&f.controller);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    rig_hurry_agents();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_is_taken_where_it_is_listed),
        cmocka_unit_test(other_names_are_refused_with_the_reason),
        cmocka_unit_test(every_row_of_the_router_decides_there),
        cmocka_unit_test(every_row_of_a_service_reaches_its_role),
        cmocka_unit_test(the_controller_sees_what_engines_owe),
        cmocka_unit_test(the_controller_sees_what_waits_in_the_router),
    };
    return rig_end(cmocka_run_group_tests(tests, read_choices, NULL));
}
