/* t_keys.c - shows that keys fail closed: after the last key's end, restarts, a lost store, and without a
 * controller.
 *
 * No instance runs: credentials are checked before anything else is looked at, and GET /v1/models
 * needs none.
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/fleet_rig.h"

#include <stdio.h>
#include <unistd.h>

static char last_key[64];

static int setup(void **state)
{
    (void)state;
    fleet_open("200ms", "router: { sync: 100ms }\n"
                        "local:\n"
                        "  cores: 1\n"
                        "  offers: [ { name: bit, share: 0.1, price_per_hour: 1 } ]\n"
                        "services:\n"
                        "  - name: tiny\n"
                        "    model: " MODEL "\n"
                        "    scale: static\n"
                        "    count: 0\n"
                        "    pools: [ { name: only, offers: [bit], max: 1 } ]\n");
    return 0;
}

static int admin(const char *method, const char *path, const char *body, struct buf *reply)
{
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    char bearer[RIG_BEARER];
    int status = 0;
    rig_bearer(fleet_secret, bearer);
    buf_printf(&bytes,
               "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n%s\r\nConnection: close\r\n"
               "Content-Length: %zu\r\n\r\n%s",
               method, path, controller.port, bearer, strlen(body), body);
    assert_int_equal(rig_raw(controller.port, buf_view(&bytes), reply), 0);
    assert_int_equal(sscanf(reply->data, "HTTP/1.1 %d", &status), 1);
    return status;
}

/* Asks for the models with that header line, NULL: with none, and returns the status. */
static int models(const char *header)
{
    return rig_call_with(router.port, "/v1/models", header, NULL, NULL);
}

struct asker {
    const char *header;
    int status;
};

static bool receives(void *arg)
{
    const struct asker *a = arg;
    return models(a->header) == a->status;
}

static void await(const char *header, int status, const char *what)
{
    struct asker a = { header, status };
    rig_wait(receives, &a, what);
}

static const char *key_header(void)
{
    static char header[128];
    snprintf(header, sizeof header, "authorization: Bearer %s", last_key);
    return header;
}

static void expect_closed(const char *when)
{
    static const char *const headers[] = {
        NULL,
        "authorization: Bearer no-such-key",
        "authorization: Bearer muster-0000000000000000000000000000000000000000",
        "authorization: Basic YTpi",
        "authorization: nonsense",
        "authorization: Bearer",
    };
    for (size_t i = 0; i < COUNT_OF(headers); i++)
        if (models(headers[i]) != 401) fail_msg("%s: served with %s", when, headers[i]);
    if (models(key_header()) != 401) fail_msg("%s: served with the revoked key", when);
}

static void make_key(void)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    assert_int_equal(admin("POST", "/api/v1/tenants", "{\"name\":\"acme\"}", &reply), 201);
    const char *at = strstr(reply.data, "\"key\":\"");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"key\":\"%63[^\"]", last_key), 1);
    await(NULL, 401, "a key is needed");
    await(key_header(), 200, "the key is known");
}

static void end_key(void)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    assert_int_equal(admin("DELETE", "/api/v1/tenants/acme", "", &reply), 200);
}

static void restart_router(void)
{
    rig_kill(&router);
    fleet_start_router();
}

static void wait_syncs(void)
{
    rig_wait_more(controller.port, "muster_controller_router_syncs_total", 4);
}

static void restart_controller(void)
{
    rig_kill(&controller);
    fleet_start_controller();
}

static void before_the_first_key_nobody_needs_one(void **state)
{
    (void)state;
    await(NULL, 200, "the service is open");
    assert_int_equal(models("authorization: Bearer"), 200);             /* an empty key is none */
    assert_int_equal(models("authorization: Bearer placeholder"), 200); /* clients insist on one */
    restart_router();
    await(NULL, 200, "and open again");
    restart_controller();
    assert_int_equal(models(NULL), 200);
}

static void the_end_of_the_last_key_opens_nothing(void **state)
{
    (void)state;
    make_key();
    end_key();
    await(key_header(), 401, "the key is revoked");
    expect_closed("revoked");
    restart_router();
    expect_closed("router restarted");
    restart_controller();
    wait_syncs();
    expect_closed("controller restarted");
    restart_router();
    wait_syncs();
    expect_closed("both restarted");
}

static void a_lost_store_opens_nothing(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf listed = { 0 };
    char from[192], to[192];
    make_key();
    rig_kill(&controller);
    static const char *const files[] = { "muster.db", "muster.db-wal", "muster.db-shm" };
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        snprintf(from, sizeof from, "%s/%s", fleet_state, files[i]);
        snprintf(to, sizeof to, "%s/lost-%s", fleet_state, files[i]);
        (void)rename(from, to);
    }
    fleet_start_controller();
    await(key_header(), 401, "nobody knows the key any more");
    expect_closed("store lost");
    restart_router();
    await(NULL, 401, "the router has started");
    expect_closed("store lost, router restarted");

    /* With the file beside it gone as well, the router still does not open by itself. */
    rig_kill(&controller);
    snprintf(from, sizeof from, "%s/muster.db", fleet_state);
    assert_int_equal(unlink(from), 0);
    snprintf(from, sizeof from, "%s/keys", fleet_state);
    assert_int_equal(unlink(from), 0);
    fleet_start_controller();
    assert_int_equal(rig_call(controller.port, "/api/v1/tenants", NULL, &listed), 200);
    assert_non_null(strstr(listed.data, "\"keys_required\":false"));
    wait_syncs();
    expect_closed("everything lost");
    restart_router();
    wait_syncs();
    expect_closed("everything lost, router restarted");
}

static void a_router_alone_knows_what_it_knew(void **state)
{
    (void)state;
    make_key();
    rig_kill(&controller);
    restart_router();
    await(key_header(), 200, "the key is known without a controller");
    assert_int_equal(models(NULL), 401);
    assert_int_equal(models("authorization: Bearer no-such-key"), 401);
    /* A router that has no file and hears no controller serves no request. */
    char path[192];
    rig_kill(&router);
    snprintf(path, sizeof path, "%s/router.keys", fleet_state);
    assert_int_equal(unlink(path), 0);
    fleet_start_router();
    assert_int_equal(models(NULL), 503);
    assert_int_equal(models(key_header()), 401);
    /* A damaged file keeps the service closed. */
    rig_kill(&router);
    assert_int_equal(file_write_atomic(path, STR("garbage"), 0600, NULL), 0);
    fleet_start_router();
    expect_closed("damaged file");
    fleet_start_controller();
    await(key_header(), 200, "the controller is heard again");
    end_key();
    await(key_header(), 401, "revoked");
}

static void a_person_opens_it(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    assert_int_equal(rig_call(controller.port, "/api/v1/keys/open", "{}", NULL), 401);
    make_key();
    assert_int_equal(admin("POST", "/api/v1/keys/open", "", &reply), 409);
    end_key();
    assert_int_equal(admin("POST", "/api/v1/keys/open", "", &reply), 200);
    await(NULL, 200, "the service is open");
    assert_int_equal(models(key_header()), 200); /* an open service ignores keys */
    restart_controller();
    restart_router();
    await(NULL, 200, "and stays open");
    make_key(); /* the next key closes it */
    end_key();
}

static void tokens_are_no_keys_and_open_what_is_not_for_clients(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char reader[128], admin[128];
    struct {
        const char *role;
        char *header;
    } made[] = { { "read", reader }, { "admin", admin } };
    for (size_t i = 0; i < COUNT_OF(made); i++) {
        assert_int_equal(
            rig_run(&out, ARGS("tokens", "create", made[i].role, "--role", made[i].role,
                               "--controller", controller.at, "--state", fleet_state)),
            0);
        const char *at = strstr(out.data, "muster-");
        assert_non_null(at);
        snprintf(made[i].header, 128, "authorization: Bearer %.*s", (int)strcspn(at, "\n"), at);
    }
    static const char row[] = "{\"policy\":\"completion\"}";
    int64_t until_us = clock_mono_us() + RIG_WAIT_US; /* the router hears of them with a sync */
    while (rig_call_with(router.port, "/admin/route", admin, row, NULL) != 200)
        assert_true(clock_mono_us() < until_us);
    assert_int_equal(rig_call_with(router.port, "/admin/route", reader, row, NULL), 401);
    assert_int_equal(rig_call_with(router.port, "/metrics", reader, NULL, NULL), 200);
    make_key();
    assert_int_equal(rig_call_with(router.port, "/metrics", reader, NULL, NULL), 200);
    assert_int_equal(rig_call_with(router.port, "/metrics", key_header(), NULL, NULL), 403);
    assert_int_equal(models(admin), 401); /* it is no API key */
    end_key();
    /* Commands accept an access token instead of the secret, from a file too. */
    char path[RIG_PATH], from[RIG_PATH + 1];
    rig_file(path, "token", strstr(reader, "muster-"));
    snprintf(from, sizeof from, "@%s", path);
    assert_int_equal(rig_run(&out, ARGS("status", "--controller", controller.at, "--state",
                                        "/nonexistent", "--token", from)),
                     0);
    assert_int_not_equal(rig_run(&out, ARGS("pause", "tiny", "--controller", controller.at,
                                            "--state", "/nonexistent", "--token", from)),
                         0);
    assert_int_equal(rig_run(&out, ARGS("tokens", "revoke", "admin", "--controller", controller.at,
                                        "--state", fleet_state)),
                     0);
    until_us = clock_mono_us() + RIG_WAIT_US;
    while (rig_call_with(router.port, "/admin/route", admin, row, NULL) != 401)
        assert_true(clock_mono_us() < until_us);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_the_first_key_nobody_needs_one),
        cmocka_unit_test(the_end_of_the_last_key_opens_nothing),
        cmocka_unit_test(a_lost_store_opens_nothing),
        cmocka_unit_test(a_router_alone_knows_what_it_knew),
        cmocka_unit_test(a_person_opens_it),
        cmocka_unit_test(tokens_are_no_keys_and_open_what_is_not_for_clients),
    };
    return rig_end(cmocka_run_group_tests(tests, setup, NULL));
}
