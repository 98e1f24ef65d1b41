/* t_kube_faults.c - tests calls and leases against an API server that fails as scripted: limits, errors, lost replies,
 * silence, rotated tokens. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/kube/kube_lease.h"
#include "tests/proc/kube/kube_rig.h"

#include <stdio.h>

static struct kube_server server;

static void script(const char *body)
{
    kube_rig_post(&server, "/script", body);
}

static const struct kube_request get_map = { .verb = KUBE_GET,
                                             .resource = &kube_configmaps,
                                             .name = STR("map") };

/* ---- calls ---- */

static void what_may_be_repeated_is_and_nothing_else(void **state)
{
    (void)state;
    static const struct {
        const char *fault; /* of the first calls of the verb */
        enum kube_verb verb;
        int rc;
        uint32_t tries;
        bool unsure;
        const char *why;
    } rows[] = {
        { "\"fault\":\"status\",\"code\":500,\"count\":3", KUBE_GET, 0, 4, false, "a read" },
        { "\"fault\":\"status\",\"code\":503,\"count\":2", KUBE_LIST, 0, 3, false, "a read" },
        { "\"fault\":\"html\",\"code\":502,\"count\":2", KUBE_GET, 0, 3, false, "a proxy's page" },
        { "\"fault\":\"cut\",\"count\":2", KUBE_GET, 0, 3, false, "half a reply" },
        { "\"fault\":\"lost\",\"count\":1", KUBE_PATCH, 0, 2, false, "the same patch again" },
        { "\"fault\":\"lost\",\"count\":1", KUBE_APPLY, 0, 2, false, "apply is idempotent" },
        { "\"fault\":\"lost\",\"count\":1", KUBE_DELETE, -ENOENT, 2, true, "it was deleted" },
        { "\"fault\":\"lost\",\"count\":1", KUBE_CREATE, -ECONNRESET, 1, true,
          "carried out, in fact" },
        { "\"fault\":\"lost\",\"count\":1", KUBE_REPLACE, -ECONNRESET, 1, true,
          "carried out, in fact" },
        { "\"fault\":\"lost\",\"count\":1", KUBE_EVICT, -ECONNRESET, 1, true,
          "carried out, in fact" },
        { "\"fault\":\"status\",\"code\":500,\"count\":1", KUBE_CREATE, -EREMOTEIO, 1, true,
          "a 500 says nothing" },
        { "\"fault\":\"status\",\"code\":429,\"count\":2", KUBE_CREATE, 0, 3, false,
          "a 429 was not carried out" },
        { "\"fault\":\"status\",\"code\":429,\"count\":1", KUBE_EVICT, -EBUSY, 1, false,
          "a budget's answer" },
        { "\"fault\":\"status\",\"code\":403,\"count\":1", KUBE_GET, -EPERM, 1, false,
          "a refusal stays one" },
        { "\"fault\":\"status\",\"code\":422,\"count\":1", KUBE_APPLY, -EINVAL, 1, false,
          "a refusal stays one" },
        { "\"fault\":\"status\",\"code\":409,\"count\":1", KUBE_PATCH, -ESTALE, 1, false,
          "the caller looks" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kube_world w = kube_world_fresh(&server);
        struct kube_seen s = { 0 };
        char text[256];
        struct kube_meta made = kube_make_map(&w, "map", "1");
        const char *verb = kube_verb_names[rows[i].verb];
        snprintf(text, sizeof text, "{\"verb\":\"%s\",%s}", verb, rows[i].fault);
        script(text);
        snprintf(text, sizeof text, "{\"metadata\":{\"name\":\"%s\"%s%s%s},\"data\":{\"a\":\"2\"}}",
                 rows[i].verb == KUBE_CREATE ? "new" : "map",
                 rows[i].verb == KUBE_REPLACE ? ",\"resourceVersion\":\"" : "",
                 rows[i].verb == KUBE_REPLACE ? made.version : "",
                 rows[i].verb == KUBE_REPLACE ? "\"" : "");
        kube_do(&w, &s,
                (struct kube_request){ .verb = rows[i].verb,
                                       .resource = &kube_configmaps,
                                       .name = rows[i].verb == KUBE_LIST ? STR("") : STR("map"),
                                       .body = str_from(text) });
        if (s.reply.rc != rows[i].rc || s.reply.tries != rows[i].tries ||
            s.reply.unsure != rows[i].unsure)
            fail_msg("%s with %s: rc %d, %u tries, unsure %d: %s (%s)", verb, rows[i].fault,
                     s.reply.rc, s.reply.tries, s.reply.unsure, s.problem, rows[i].why);
        assert_int_equal(kube_rig_seen(&server, verb) > 0, 1);
        kube_seen_fini(&s);
        kube_world_close(&w);
    }
}

static void retry_after_is_kept_to(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct kube_seen s = { 0 };
    kube_make_map(&w, "map", "1");
    script("{\"verb\":\"get\",\"fault\":\"status\",\"code\":429,\"retry_after\":1}");
    int64_t begun_us = clock_mono_us();
    kube_do(&w, &s, get_map);
    assert_int_equal(s.reply.rc, 0);
    assert_int_equal(s.reply.tries, 2);
    assert_true(clock_mono_us() - begun_us >= 1000000);
    /* A wait that ends behind the deadline is not begun: the caller learns how long it would be. */
    script("{\"verb\":\"get\",\"fault\":\"status\",\"code\":429,\"retry_after\":60}");
    struct kube_request soon = get_map;
    soon.deadline_us = clock_mono_us() + 5000000;
    kube_do(&w, &s, soon);
    assert_int_equal(s.reply.rc, -EBUSY);
    assert_int_equal(s.reply.status.retry_after_s, 60);
    assert_int_equal(s.reply.tries, 1);
    kube_seen_fini(&s);
    kube_world_close(&w);
}

static void a_hanging_try_is_given_up_and_slow_bytes_are_waited_for(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct kube_seen s = { 0 };
    struct kube_request req = get_map;
    kube_make_map(&w, "map", "1");
    script("{\"verb\":\"get\",\"fault\":\"hang\"}");
    req.idle_us = 200000;
    kube_do(&w, &s, req);
    if (s.reply.rc < 0) fail_msg("%s", s.problem);
    assert_int_equal(s.reply.tries, 2);
    /* Some 200 bytes, one every 20 ms, take longer than the silence that is allowed. */
    script("{\"verb\":\"get\",\"fault\":\"slow\",\"ms\":20}");
    req.idle_us = 2000000;
    int64_t begun_us = clock_mono_us();
    kube_do(&w, &s, req);
    if (s.reply.rc < 0) fail_msg("%s", s.problem);
    assert_int_equal(s.reply.tries, 1);
    assert_true(clock_mono_us() - begun_us > req.idle_us);
    req.idle_us = 200000;
    assert_non_null(strstr(s.body.data, "\"a\":\"1\""));
    /* With a hang to the end the deadline ends the call, and says what it waited for. */
    script("{\"verb\":\"get\",\"fault\":\"hang\",\"count\":100}");
    req.deadline_us = clock_mono_us() + 500000;
    kube_do(&w, &s, req);
    assert_int_equal(s.reply.rc, -ETIMEDOUT);
    assert_true(s.reply.tries >= 2);
    assert_non_null(strstr(s.problem, "get configmaps default/map"));
    kube_seen_fini(&s);
    kube_world_close(&w);
}

/* A server that fell silent may be gone from the other pooled connections too: each would cost a call its
 * patience. */
static void after_a_silence_calls_connect_anew(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct kube_seen s = { 0 }, other = { 0 };
    struct kube_request req = get_map;
    int64_t gets = kube_rig_seen(&server, "get");
    kube_make_map(&w, "map", "1");
    script("{\"verb\":\"get\",\"fault\":\"slow\",\"ms\":1}");
    kube_go(&w, &other, get_map);
    KUBE_UNTIL(&w, kube_rig_seen(&server, "get") > gets);
    kube_do(&w, &s, get_map);
    KUBE_UNTIL(&w, other.ends == 1); /* two connections are in the pool */
    int64_t accepted = kube_rig_seen(&server, "accepted");
    kube_do(&w, &s, get_map);
    assert_int_equal(kube_rig_seen(&server, "accepted"), accepted);
    script("{\"verb\":\"get\",\"fault\":\"hang\"}");
    req.idle_us = 100000;
    kube_do(&w, &s, req);
    assert_int_equal(s.reply.rc, 0);
    assert_int_equal(kube_rig_seen(&server, "accepted"), accepted + 1);
    kube_seen_fini(&s);
    kube_seen_fini(&other);
    kube_world_close(&w);
}

static void a_reply_above_its_bound_is_refused(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct kube_seen s = { 0 };
    struct kube_request req = get_map;
    kube_make_map(&w, "map", "1");
    req.body_bytes_max = 50;
    kube_do(&w, &s, req);
    assert_int_equal(s.reply.rc, -EMSGSIZE);
    assert_int_equal(s.reply.tries, 1);
    kube_seen_fini(&s);
    kube_world_close(&w);
}

static void a_server_that_is_away_is_tried_until_the_deadline(void **state)
{
    (void)state;
    struct kube_server away = server;
    char path[RIG_PATH], text[512];
    struct kube_seen s = { 0 };
    snprintf(
        text, sizeof text,
        "current-context: c\ncontexts:\n- name: c\n  context: {cluster: k}\nclusters:\n- name: k\n"
        "  cluster: {server: \"https://127.0.0.1:%u\"}\n",
        rig_port());
    rig_file(path, "kubeconfig-away", text);
    snprintf(away.kubeconfig, sizeof away.kubeconfig, "%s", path);
    struct kube_world w = kube_world_open(&away, (struct kube_client_config){ 0 });
    struct kube_request create = { .verb = KUBE_CREATE,
                                   .resource = &kube_configmaps,
                                   .body = STR("{}"),
                                   .deadline_us = clock_mono_us() + 2000000 };
    kube_do(&w, &s, create);
    /* On a busy machine the deadline may cut off the last try. */
    assert_true(s.reply.rc == -EHOSTUNREACH || s.reply.rc == -ETIMEDOUT);
    assert_true(s.reply.tries > 2); /* nothing was sent, so even a create is tried again */
    assert_false(s.reply.unsure);
    assert_int_equal(s.reply.code, 0);
    kube_seen_fini(&s);
    kube_world_close(&w);
}

/* ---- credentials ---- */

static void a_rotated_token_is_picked_up(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct kube_seen s = { 0 };
    kube_make_map(&w, "map", "1");
    int64_t refused = kube_rig_seen(&server, "refused");
    kube_rig_token(&server, "second-token\n");
    kube_rig_post(&server, "/set", "{\"token\":\"second-token\"}");
    kube_do(&w, &s, get_map); /* with the old token at first */
    if (s.reply.rc < 0) fail_msg("%s", s.problem);
    assert_int_equal(s.reply.tries, 2);
    kube_do(&w, &s, get_map);
    assert_int_equal(s.reply.tries, 1);
    assert_int_equal(kube_rig_seen(&server, "refused"), refused + 1);
    /* The file is late: one try, one answer; the next call succeeds. */
    kube_rig_post(&server, "/set", "{\"token\":\"third-token\"}");
    kube_do(&w, &s, get_map);
    assert_int_equal(s.reply.rc, -EACCES);
    assert_int_equal(s.reply.tries, 1);
    assert_non_null(strstr(s.problem, "401"));
    kube_rig_token(&server, "third-token");
    kube_do(&w, &s, get_map);
    assert_int_equal(s.reply.rc, 0);
    kube_rig_token(&server, "first-token\n");
    kube_seen_fini(&s);
    kube_world_close(&w);
}

/* ---- budget, queue, meters ---- */

static void calls_keep_to_the_budget_and_urgent_ones_do_not(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server), slow;
    kube_make_map(&w, "map", "1");
    struct kube_seen s[12] = { 0 }, urgent = { 0 }, late = { 0 };
    slow = kube_world_open(&server, (struct kube_client_config){ .calls_per_s = 10, .burst = 2 });
    int64_t begun_us = clock_mono_us();
    for (int i = 0; i < 12; i++)
        kube_go(&slow, &s[i], get_map);
    struct kube_request req = get_map;
    req.deadline_us = clock_mono_us() + 300000;
    kube_go(&slow, &late, req);
    req = get_map;
    req.urgent = true;
    kube_go(&slow, &urgent, req);
    KUBE_UNTIL(&slow, urgent.ends == 1);
    assert_int_equal(s[11].ends, 0);
    KUBE_UNTIL(&slow, late.ends == 1);
    assert_int_equal(late.reply.rc, -ETIMEDOUT);
    assert_int_equal(late.reply.tries, 0);
    assert_false(late.reply.unsure);
    KUBE_UNTIL(&slow, s[11].ends == 1);
    assert_true(clock_mono_us() - begun_us >=
                900000); /* ten calls behind the burst, at ten a second */
    for (int i = 0; i < 12; i++) {
        assert_int_equal(s[i].reply.rc, 0);
        kube_seen_fini(&s[i]);
    }
    kube_seen_fini(&urgent);
    kube_seen_fini(&late);
    kube_world_close(&slow);
    kube_world_close(&w);
}

static void a_full_queue_refuses_and_closing_ends_what_waits(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server), slow;
    static struct kube_seen s[KUBE_WAITING_MAX];
    struct kube_seen one = { 0 };
    struct err err = { 0 };
    memset(s, 0, sizeof s);
    slow =
        kube_world_open(&server, (struct kube_client_config){ .calls_per_s = 0.001, .burst = 1 });
    kube_go(&slow, &one, get_map);
    KUBE_UNTIL(&slow, one.ends == 1);
    for (int i = 0; i < KUBE_WAITING_MAX; i++)
        kube_go(&slow, &s[i], get_map);
    struct kube_request more = get_map;
    more.ns = STR(KUBE_RIG_NS);
    more.on_end = (void (*)(void *, const struct kube_reply *))(void (*)(void))abort;
    struct kube_call *call = NULL;
    assert_int_equal(kube_start(slow.client, &more, &call, &err), -EAGAIN);
    assert_non_null(strstr(err.text, "wait already"));
    kube_cancel(TAKE(s[7].call));
    kube_client_free(TAKE(slow.client));
    for (int i = 0; i < KUBE_WAITING_MAX; i++) {
        assert_int_equal(s[i].ends, i != 7);
        if (i != 7) assert_int_equal(s[i].reply.rc, -ECANCELED);
        kube_seen_fini(&s[i]);
    }
    kube_seen_fini(&one);
    kube_world_close(&slow);
    kube_world_close(&w);
}

static void calls_are_counted_by_verb_resource_and_code(void **state)
{
    (void)state;
    static const double buckets[] = { 0.1, 1 };
    static const struct metric_desc table[] = {
        { .name = "calls_total",
          .type = METRIC_COUNTER,
          .help = "h",
          .labels = { "verb", "resource", "code" } },
        { .name = "seconds",
          .type = METRIC_HISTOGRAM,
          .help = "h",
          .labels = { "verb" },
          .buckets = buckets,
          .bucket_count = 2 },
        { .name = "waited_seconds_total", .type = METRIC_COUNTER, .help = "h" },
    };
    struct kube_world w = kube_world_fresh(&server), metered;
    struct metrics *m = NULL;
    struct kube_seen s = { 0 };
    kube_make_map(&w, "map", "1");
    assert_int_equal(metrics_new(table, 3, NULL, 0, &m, NULL), 0);
    metered = kube_world_open(
        &server,
        (struct kube_client_config){ .calls_per_s = 20, .burst = 3, .meters = { m, 0, 1, 2 } });
    script("{\"verb\":\"get\",\"fault\":\"status\",\"code\":503,\"count\":2}");
    kube_do(&metered, &s, get_map);
    assert_int_equal(s.reply.rc, 0);
    script("{\"verb\":\"create\",\"fault\":\"lost\"}");
    kube_do(&metered, &s,
            (struct kube_request){ .verb = KUBE_CREATE,
                                   .resource = &kube_configmaps,
                                   .body = STR("{\"metadata\":{\"name\":\"x\"}}") });
    kube_do(&metered, &s,
            (struct kube_request){ .verb = KUBE_GET,
                                   .resource = &kube_deployments,
                                   .name = STR("x"),
                                   .subresource = "scale" });
    static const struct {
        struct str labels[3];
        double count;
    } rows[] = {
        { { STR("get"), STR("configmaps"), STR("503") }, 2 },
        { { STR("get"), STR("configmaps"), STR("200") }, 1 },
        { { STR("create"), STR("configmaps"), STR("cut") }, 1 },
        { { STR("get"), STR("deployments/scale"), STR("404") }, 1 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        double count = metric_value(metric_series(m, 0, rows[i].labels));
        if (count < rows[i].count || count > rows[i].count) fail_msg("row %zu: %g", i, count);
    }
    struct metric_snapshot seconds;
    metric_snapshot(metric_series(m, 1, &rows[0].labels[0]), &seconds);
    assert_int_equal(seconds.count, 4);
    assert_true(metric_value(metric_of(m, 2)) > 0); /* the fourth and fifth try waited */
    kube_seen_fini(&s);
    kube_world_close(&metered);
    kube_world_close(&w);
    metrics_free(m);
}

/* ---- leases ---- */

struct candidate {
    struct kube_lease *lease;
    int begins, ends;
    int64_t epoch;
};

static void on_change(void *arg, bool leads, int64_t epoch)
{
    struct candidate *c = arg;
    *(leads ? &c->begins : &c->ends) += 1;
    c->epoch = epoch;
}

/* Three writes in a row whose replies are lost must fit, and each connects by TLS anew, which takes a second under the
 * sanitizers on a busy machine. */
#ifdef MUSTER_DEBUG
#    define RENEW_US 6000000
#else
#    define RENEW_US 1000000
#endif

static void a_leader_out_of_reach_of_the_server_stops_in_time(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct candidate c = { 0 };
    struct err err = { 0 };
    kube_must(&w,
              (struct kube_request){ .verb = KUBE_CREATE,
                                     .resource = &kube_leases,
                                     .body = STR("{\"metadata\":{\"name\":\"l\"},\"spec\":{}}") });
    const struct kube_lease_request req = {
        .ns = STR(KUBE_RIG_NS),
        .name = STR("l"),
        .identity = STR("only"),
        .times = { .lease_us = 2 * RENEW_US, .renew_us = RENEW_US, .retry_us = 100000 },
        .on_change = on_change,
        .arg = &c,
    };
    if (kube_lease_start(w.client, &req, &c.lease, &err) < 0) fail_msg("%s", err.text);
    KUBE_UNTIL(&w, c.begins == 1);
    int64_t lost_us = clock_mono_us();
    script("{\"verb\":\"\",\"fault\":\"hang\",\"count\":1000}");
    KUBE_UNTIL(&w, c.ends == 1);
    int64_t took_us = clock_mono_us() - lost_us;
    assert_true(took_us >= RENEW_US - 300000); /* a renewal may have been a retry old */
    struct kube_lease_state st;
    kube_lease_state_get(c.lease, &st);
    assert_true(st.failures > 0 && st.problem[0] != 0);
    assert_false(st.leads);
    /* Nobody took it: the same leadership goes on. */
    script("{\"count\":0}");
    KUBE_UNTIL(&w, c.begins == 2);
    assert_int_equal(c.epoch, 1);
    /* Writes whose replies are lost were carried out, and are found. */
    script("{\"verb\":\"patch\",\"fault\":\"lost\",\"count\":3}");
    int64_t writes = kube_rig_seen(&server, "patch");
    KUBE_UNTIL(&w, kube_rig_seen(&server, "patch") > writes + 8);
    assert_int_equal(c.ends, 1);
    assert_true(kube_lease_leads(c.lease, NULL));
    kube_lease_free(c.lease);
    kube_world_close(&w);
}

int main(void)
{
    if (!kube_rig_fake(&server, ARGS(NULL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_may_be_repeated_is_and_nothing_else),
        cmocka_unit_test(retry_after_is_kept_to),
        cmocka_unit_test(a_hanging_try_is_given_up_and_slow_bytes_are_waited_for),
        cmocka_unit_test(after_a_silence_calls_connect_anew),
        cmocka_unit_test(a_reply_above_its_bound_is_refused),
        cmocka_unit_test(a_server_that_is_away_is_tried_until_the_deadline),
        cmocka_unit_test(a_rotated_token_is_picked_up),
        cmocka_unit_test(calls_keep_to_the_budget_and_urgent_ones_do_not),
        cmocka_unit_test(a_full_queue_refuses_and_closing_ends_what_waits),
        cmocka_unit_test(calls_are_counted_by_verb_resource_and_code),
        cmocka_unit_test(a_leader_out_of_reach_of_the_server_stops_in_time),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kube_rig_end(&server);
    return rig_end(failed);
}
