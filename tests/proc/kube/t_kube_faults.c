/* t_kube_faults.c - tests the client against an API server that fails as scripted: limits, errors, lost replies,
 * silence, rotated tokens, and everything that breaks a watch. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/kube/kube_lease.h"
#include "base/io/kube/kube_list.h"
#include "tests/proc/kube/kube_rig.h"

#include <stdio.h>

static struct kube_server server;

static const struct kube_request get_map = { .verb = KUBE_GET,
                                             .resource = &kube_configmaps,
                                             .name = STR("map") };

static void script(const char *body)
{
    kube_rig_post(&server, "/script", body);
}

static struct kube_world world(void)
{
    script("{\"count\":0}");
    kube_rig_post(&server, "/set",
                  "{\"token\":\"first-token\",\"bookmark_ms\":60000,\"linger_ms\":0}");
    kube_rig_post(&server, "/restart", "{\"empty\":true}");
    return kube_world_open(&server, (struct kube_client_config){ 0 });
}

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
        struct kube_world w = world();
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
    struct kube_world w = world();
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
    struct kube_world w = world();
    struct kube_seen s = { 0 };
    struct kube_request req = get_map;
    kube_make_map(&w, "map", "1");
    script("{\"verb\":\"get\",\"fault\":\"hang\"}");
    req.idle_us = 200000;
    kube_do(&w, &s, req);
    if (s.reply.rc < 0) fail_msg("%s", s.problem);
    assert_int_equal(s.reply.tries, 2);
    script("{\"verb\":\"get\",\"fault\":\"slow\",\"ms\":2}");
    kube_do(&w, &s, req);
    if (s.reply.rc < 0) fail_msg("%s", s.problem);
    assert_int_equal(s.reply.tries, 1);
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
    struct kube_world w = world();
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
    struct kube_world w = world();
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

static void write_token(const char *token)
{
    assert_int_equal(file_write_atomic(server.token_path, str_from(token), 0600, NULL), 0);
}

static void a_rotated_token_is_picked_up(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct kube_seen s = { 0 };
    kube_make_map(&w, "map", "1");
    int64_t refused = kube_rig_seen(&server, "refused");
    write_token("second-token\n");
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
    write_token("third-token");
    kube_do(&w, &s, get_map);
    assert_int_equal(s.reply.rc, 0);
    write_token("first-token\n");
    kube_seen_fini(&s);
    kube_world_close(&w);
}

/* ---- budget, queue, meters ---- */

static void calls_keep_to_the_budget_and_urgent_ones_do_not(void **state)
{
    (void)state;
    struct kube_world w = world(), slow;
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
    struct kube_world w = world(), slow;
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
    struct kube_world w = world(), metered;
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

/* ---- watches ---- */

struct watched {
    struct kube_watch *watch;
    struct buf log; /* "+a ~a -a = ": added, changed, deleted, synced */
    uint32_t events, stop_at;
};

static void on_event(void *arg, const struct kube_event *e)
{
    struct watched *s = arg;
    static const char signs[] = { [KUBE_ADDED] = '+', [KUBE_MODIFIED] = '~', [KUBE_DELETED] = '-' };
    s->events++;
    if (e->type == KUBE_SYNCED)
        buf_text(&s->log, "= ");
    else
        buf_printf(&s->log, "%c%s ", signs[e->type], e->meta->name);
    if (s->events == s->stop_at) kube_watch_stop(TAKE(s->watch));
}

static void watch_start(struct kube_world *w, struct watched *s, int64_t idle_us,
                        uint32_t objects_max)
{
    struct err err = { 0 };
    const struct kube_watch_request req = { .resource = &kube_configmaps,
                                            .ns = STR(KUBE_RIG_NS),
                                            .idle_us = idle_us,
                                            .objects_max = objects_max,
                                            .on_event = on_event,
                                            .arg = s };
    if (kube_watch_start(w->client, &req, &s->watch, &err) < 0) fail_msg("%s", err.text);
}

static void watch_end(struct watched *s)
{
    kube_watch_stop(s->watch);
    buf_fini(&s->log);
    *s = (struct watched){ 0 };
}

static struct kube_watch_state state_of(const struct watched *s)
{
    struct kube_watch_state state;
    kube_watch_state_get(s->watch, &state);
    return state;
}

#define UNTIL_LOG(w, s, text)                                                                   \
    do {                                                                                        \
        int64_t until_log_ = clock_mono_us() + RIG_WAIT_US;                                     \
        while (!(s)->log.data || strcmp((s)->log.data, text) != 0) {                            \
            if (clock_mono_us() > until_log_)                                                   \
                fail_msg("\"%s\" and not \"%s\": %s", (s)->log.data ? (s)->log.data : "", text, \
                         state_of(s).problem);                                                  \
            assert_int_equal(loop_turn((w)->loop, 2000), 0);                                    \
        }                                                                                       \
    } while (0)

static void a_stream_that_is_cut_goes_on_where_it_was(void **state)
{
    (void)state;
    struct kube_world w = world(), other;
    struct watched s = { 0 };
    char expected[1024] = "= ";
    size_t len = 2;
    script("{\"verb\":\"watch\",\"fault\":\"cut\",\"ms\":60,\"count\":30}");
    other = kube_world_open(&server, (struct kube_client_config){ 0 });
    watch_start(&w, &s, 0, 0);
    for (int i = 0; i < 40;
         i++) { /* changes at all moments of a stream's life, and between streams */
        char name[16];
        snprintf(name, sizeof name, "m-%02d", i);
        kube_make_map(&other, name, "1");
        len += (size_t)snprintf(expected + len, sizeof expected - len, "+%s ", name);
        for (int turn = 0; turn < 5; turn++)
            loop_turn(w.loop, 3000);
        if (i == 0) UNTIL_LOG(&w, &s, s.log.data && s.log.data[0] == '+' ? "+m-00 = " : "= +m-00 ");
    }
    KUBE_UNTIL(&w, s.events == 41);
    if (s.log.data[0] == '+') memcpy(expected, "+m-00 = ", 8);
    assert_string_equal(s.log.data, expected); /* each once, in order */
    KUBE_UNTIL(&w, state_of(&s).watches >= 5);
    assert_int_equal(state_of(&s).lists, 1);
    assert_int_equal(state_of(&s).expired, 0);
    watch_end(&s);
    kube_world_close(&other);
    kube_world_close(&w);
}

static void a_version_that_is_too_old_leads_to_one_list(void **state)
{
    (void)state;
    static const char *const faults[] = {
        "{\"verb\":\"watch\",\"fault\":\"expired\"}",             /* an ERROR frame */
        "{\"verb\":\"watch\",\"fault\":\"status\",\"code\":410}", /* the HTTP status */
        "{\"verb\":\"watch\",\"fault\":\"older\"}",  /* another server, or one that was restored */
        "{\"verb\":\"watch\",\"fault\":\"broken\"}", /* what this frame said is lost */
    };
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        struct kube_world w = world();
        struct watched s = { 0 };
        kube_make_map(&w, "a", "1");
        script(faults[i]);
        watch_start(&w, &s, 0, 0);
        UNTIL_LOG(&w, &s, "+a = = "); /* listed again, and nothing told twice */
        KUBE_UNTIL(&w, state_of(&s).connected);
        kube_set_map(&w, "a", "2");
        UNTIL_LOG(&w, &s, "+a = = ~a ");
        assert_int_equal(state_of(&s).lists, 2);
        script(faults[0]);
        kube_rig_post(&server, "/restart", "{}");
        UNTIL_LOG(&w, &s, "+a = = ~a = "); /* what a frame told is told by no list again */
        watch_end(&s);
        kube_world_close(&w);
    }
}

static void a_server_that_always_says_410_is_not_flooded_with_lists(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct watched s = { 0 };
    script("{\"verb\":\"watch\",\"fault\":\"expired\",\"count\":1000}");
    int64_t lists = kube_rig_seen(&server, "list");
    watch_start(&w, &s, 0, 0);
    int64_t until_us = clock_mono_us() + 1500000;
    KUBE_UNTIL(&w, clock_mono_us() > until_us);
    /* Back-offs of 20 ms, doubling to half a second: seven to a dozen lists. Without them, hundreds. */
    lists = kube_rig_seen(&server, "list") - lists;
    if (lists < 3 || lists > 20) fail_msg("%d lists", (int)lists);
    assert_true(state_of(&s).failures > 1);
    script("{\"count\":0}");
    KUBE_UNTIL(&w, state_of(&s).connected);
    watch_end(&s);
    kube_world_close(&w);
}

static void bookmarks_keep_a_quiet_watch_young(void **state)
{
    (void)state;
    for (int bookmarks = 0; bookmarks < 2; bookmarks++) {
        struct kube_world w = world();
        struct watched s = { 0 };
        kube_rig_post(&server, "/set", bookmarks ? "{\"bookmark_ms\":20}" : "{\"bookmark_ms\":0}");
        watch_start(&w, &s, 0, 0);
        UNTIL_LOG(&w, &s, "= ");
        KUBE_UNTIL(&w, state_of(&s).connected);
        /* Other kinds change, and the history is compacted. */
        for (int i = 0; i < 3; i++) {
            char body[128];
            snprintf(body, sizeof body, "{\"metadata\":{\"name\":\"pod-%d\"}}", i);
            kube_must(&w, (struct kube_request){ .verb = KUBE_CREATE,
                                                 .resource = &kube_pods,
                                                 .body = str_from(body) });
        }
        char now[24];
        snprintf(now, sizeof now, "%d", (int)kube_rig_seen(&server, "version"));
        if (bookmarks) KUBE_UNTIL(&w, strcmp(state_of(&s).version, now) == 0);
        kube_rig_post(&server, "/compact", "{}");
        kube_rig_post(&server, "/restart", "{}");
        kube_make_map(&w, "a", "1");
        UNTIL_LOG(&w, &s, bookmarks ? "= +a " : "= +a = ");
        assert_int_equal(state_of(&s).lists, bookmarks ? 1 : 2);
        watch_end(&s);
        kube_world_close(&w);
    }
}

static void silence_is_noticed_and_bookmarks_are_no_silence(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct watched s = { 0 };
    kube_rig_post(&server, "/set", "{\"bookmark_ms\":50}");
    watch_start(&w, &s, 400000, 0);
    KUBE_UNTIL(&w, s.watch && state_of(&s).bookmarks >= 20); /* a second and more of quiet */
    assert_int_equal(state_of(&s).watches, 1);
    watch_end(&s);

    /* Accepted and then never a byte: as behind a connection whose other end is gone. */
    script("{\"verb\":\"watch\",\"fault\":\"silent\",\"count\":1}");
    watch_start(&w, &s, 300000, 0);
    UNTIL_LOG(&w, &s, "= ");
    kube_make_map(&w, "a", "1"); /* told by the next stream */
    UNTIL_LOG(&w, &s, "= +a ");
    struct kube_watch_state st = state_of(&s);
    assert_int_equal(st.silent, 1);
    assert_int_equal(st.lists, 1);
    watch_end(&s);
    kube_world_close(&w);
}

static void a_server_restored_from_an_older_state_is_listed_anew(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct watched s = { 0 };
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "a-%d", i);
        kube_make_map(&w, name, "1");
    }
    kube_rig_post(&server, "/set", "{\"bookmark_ms\":50}");
    watch_start(&w, &s, 300000, 0);
    UNTIL_LOG(&w, &s, "+a-0 +a-1 +a-2 +a-3 +a-4 = ");
    KUBE_UNTIL(&w, state_of(&s).connected);
    /* Versions start over: ours lies in the server's future, where no event ever is. */
    kube_rig_post(&server, "/restart", "{\"empty\":true}");
    kube_make_map(&w, "b", "1");
    KUBE_UNTIL(&w, state_of(&s).lists == 2);
    KUBE_UNTIL(&w, state_of(&s).synced && state_of(&s).objects == 1);
    assert_int_equal(str_find(buf_view(&s.log), STR("+a-0 +a-1 +a-2 +a-3 +a-4 = +b -")), 0);
    assert_true(str_ends(buf_view(&s.log), STR(" = ")));
    kube_set_map(&w, "b", "2");
    KUBE_UNTIL(&w, str_ends(buf_view(&s.log), STR(" = ~b ")));
    watch_end(&s);
    kube_world_close(&w);
}

static void a_paused_server_costs_a_stream_and_no_list(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct watched s = { 0 };
    kube_rig_post(&server, "/set", "{\"bookmark_ms\":50}");
    watch_start(&w, &s, 300000, 0);
    KUBE_UNTIL(&w, s.watch && state_of(&s).bookmarks >= 1);
    int64_t confirmed_us = state_of(&s).confirmed_us;
    kube_rig_pause(&server);
    KUBE_UNTIL(&w, !state_of(&s).connected);
    assert_true(state_of(&s).synced); /* the last good state stays in use, with its age */
    struct kube_watch_state st = state_of(&s);
    assert_true(st.confirmed_us >= confirmed_us && loop_now_us(w.loop) - st.confirmed_us >= 300000);
    assert_true(st.problem[0] != 0);
    kube_rig_resume(&server);
    KUBE_UNTIL(&w, state_of(&s).connected);
    kube_make_map(&w, "a", "1");
    UNTIL_LOG(&w, &s, "= +a ");
    assert_int_equal(state_of(&s).lists, 1);
    watch_end(&s);
    kube_world_close(&w);
}

static void a_watch_gets_new_credentials(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct watched s = { 0 };
    watch_start(&w, &s, 0, 0);
    UNTIL_LOG(&w, &s, "= ");
    KUBE_UNTIL(&w, state_of(&s).connected);
    int64_t refused = kube_rig_seen(&server, "refused");
    write_token("second-token\n");
    kube_rig_post(&server, "/set", "{\"token\":\"second-token\"}");
    kube_rig_post(&server, "/restart", "{}");
    KUBE_UNTIL(&w, !state_of(&s).connected);
    KUBE_UNTIL(&w, state_of(&s).connected);
    assert_int_equal(kube_rig_seen(&server, "refused"),
                     refused + 1); /* it looked at the file at once */
    kube_make_map(&w, "a", "1");
    UNTIL_LOG(&w, &s, "= +a ");
    write_token("first-token\n");
    watch_end(&s);
    kube_world_close(&w);
}

static void a_start_against_a_failing_server_succeeds_in_the_end(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct watched s = { 0 };
    kube_make_map(&w, "a", "1");
    script("{\"verb\":\"list\",\"fault\":\"garbage\",\"count\":2}");
    script("{\"verb\":\"list\",\"fault\":\"status\",\"code\":403,\"count\":2}");
    script("{\"verb\":\"list\",\"fault\":\"cut\",\"count\":2}");
    script("{\"verb\":\"watch\",\"fault\":\"status\",\"code\":500,\"count\":3}");
    watch_start(&w, &s, 0, 0);
    KUBE_UNTIL(&w, state_of(&s).failures == 1);
    assert_false(state_of(&s).synced);
    assert_true(state_of(&s).problem[0] != 0);
    UNTIL_LOG(&w, &s, "+a = ");
    KUBE_UNTIL(&w, state_of(&s).connected);
    kube_delete_map(&w, "a");
    UNTIL_LOG(&w, &s, "+a = -a ");
    assert_int_equal(state_of(&s).lists, 1);
    watch_end(&s);
    kube_world_close(&w);
}

static void a_list_that_changes_between_its_chunks_begins_anew(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct watched s = { 0 };
    struct err err = { 0 };
    char expected[512] = "";
    for (int i = 0; i < 12; i++) {
        char name[16];
        snprintf(name, sizeof name, "k-%02d", i);
        kube_make_map(&w, name, "1");
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "+%s ", name);
    }
    /* The scripted server keeps no old states, so a change makes the next chunk a 410. */
    const struct kube_watch_request req = {
        .resource = &kube_configmaps, .limit = 5, .on_event = on_event, .arg = &s
    };
    assert_int_equal(kube_watch_start(w.client, &req, &s.watch, &err), 0);
    KUBE_UNTIL(&w, s.events == 5); /* the first chunk is told */
    struct kube_world other = kube_world_open(&server, (struct kube_client_config){ 0 });
    kube_delete_map(&other, "k-00");
    snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "-k-00 = ");
    UNTIL_LOG(&w, &s, expected);
    watch_end(&s);
    kube_world_close(&other);
    kube_world_close(&w);
}

static void a_watch_that_is_stopped_in_a_list_tells_no_more(void **state)
{
    (void)state;
    struct kube_world w = world(),
                      other = kube_world_open(&server, (struct kube_client_config){ 0 });
    struct watched s = { .stop_at = 4 };
    kube_make_map(&w, "a", "1");
    kube_make_map(&w, "b", "1");
    watch_start(&w, &s, 0, 0);
    UNTIL_LOG(&w, &s, "+a +b = ");
    KUBE_UNTIL(&w, state_of(&s).connected);
    kube_rig_post(&server, "/restart", "{}");
    kube_delete_map(&other, "a");
    kube_delete_map(&other, "b");
    kube_rig_post(&server, "/compact", "{}");
    KUBE_UNTIL(&w, s.events == 4);
    for (int i = 0; i < 20; i++)
        loop_turn(w.loop, 1000);
    assert_int_equal(s.events, 4); /* neither the other deletion nor the end of the list */
    assert_null(s.watch);
    buf_fini(&s.log);
    kube_world_close(&other);
    kube_world_close(&w);
}

struct listed {
    int begins, items, ends, rc;
};

static void on_list_begin(void *arg)
{
    ((struct listed *)arg)->begins++;
}

static void on_list_item(void *arg, struct str object)
{
    (void)object;
    ((struct listed *)arg)->items++;
}

static void on_list_end(void *arg, const struct kube_list_end *end)
{
    struct listed *l = arg;
    l->ends++;
    l->rc = end->rc;
    assert_true(end->rc < 0 || end->count == 11);
}

static void a_list_says_that_it_begins_anew(void **state)
{
    (void)state;
    struct kube_world w = world(),
                      other = kube_world_open(&server, (struct kube_client_config){ 0 });
    struct listed l = { 0 };
    struct kube_list *list = NULL;
    char name[16];
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "k-%02d", i);
        kube_make_map(&w, name, "1");
    }
    const struct kube_list_request req = { .resource = &kube_configmaps,
                                           .limit = 5,
                                           .on_begin = on_list_begin,
                                           .on_item = on_list_item,
                                           .on_end = on_list_end,
                                           .arg = &l };
    assert_int_equal(kube_list_start(w.client, &req, &list, NULL), 0);
    KUBE_UNTIL(&w, l.items == 5);
    kube_delete_map(&other, "k-00");
    KUBE_UNTIL(&w, l.ends == 1);
    assert_int_equal(l.rc, 0);
    assert_int_equal(l.begins, 2);
    assert_int_equal(l.items, 16);
    /* A server that never lets a list in chunks end is asked for everything at once. */
    l = (struct listed){ 0 };
    script("{\"verb\":\"list\",\"fault\":\"stale\",\"count\":1000}");
    assert_int_equal(kube_list_start(w.client, &req, &list, NULL), 0);
    KUBE_UNTIL(&w, l.ends == 1);
    assert_int_equal(l.rc, 0);
    assert_int_equal(l.begins, KUBE_LIST_ATTEMPTS + 1);
    kube_world_close(&other);
    kube_world_close(&w);
}

static void more_objects_than_the_bound_are_an_error_that_is_told(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct watched s = { 0 };
    char name[16];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "o-%d", i);
        kube_make_map(&w, name, "1");
    }
    watch_start(&w, &s, 0, 3);
    KUBE_UNTIL(&w, state_of(&s).failures >= 2);
    assert_false(state_of(&s).synced);
    assert_non_null(strstr(state_of(&s).problem, "more than 3 configmaps"));
    kube_delete_map(&w, "o-3");
    KUBE_UNTIL(&w, state_of(&s).synced);
    assert_int_equal(state_of(&s).objects, 3);
    KUBE_UNTIL(&w, state_of(&s).connected);
    kube_make_map(&w, "o-5", "1"); /* now by a frame */
    KUBE_UNTIL(&w, strstr(state_of(&s).problem, "more than 3 configmaps") != NULL);
    kube_delete_map(&w, "o-0");
    KUBE_UNTIL(&w, strstr(s.log.data, "-o-0") && strstr(s.log.data, "+o-5"));
    watch_end(&s);
    kube_world_close(&w);
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

static void a_leader_out_of_reach_of_the_server_stops_in_time(void **state)
{
    (void)state;
    struct kube_world w = world();
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
        .times = { .lease_us = 2000000, .renew_us = 1000000, .retry_us = 100000 },
        .on_change = on_change,
        .arg = &c,
    };
    if (kube_lease_start(w.client, &req, &c.lease, &err) < 0) fail_msg("%s", err.text);
    KUBE_UNTIL(&w, c.begins == 1);
    int64_t lost_us = clock_mono_us();
    script("{\"verb\":\"\",\"fault\":\"hang\",\"count\":1000}");
    KUBE_UNTIL(&w, c.ends == 1);
    int64_t took_us = clock_mono_us() - lost_us;
    assert_true(took_us >= 700000); /* a renewal may have been a retry old */
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
        cmocka_unit_test(a_stream_that_is_cut_goes_on_where_it_was),
        cmocka_unit_test(a_version_that_is_too_old_leads_to_one_list),
        cmocka_unit_test(a_server_that_always_says_410_is_not_flooded_with_lists),
        cmocka_unit_test(bookmarks_keep_a_quiet_watch_young),
        cmocka_unit_test(silence_is_noticed_and_bookmarks_are_no_silence),
        cmocka_unit_test(a_server_restored_from_an_older_state_is_listed_anew),
        cmocka_unit_test(a_paused_server_costs_a_stream_and_no_list),
        cmocka_unit_test(a_watch_gets_new_credentials),
        cmocka_unit_test(a_start_against_a_failing_server_succeeds_in_the_end),
        cmocka_unit_test(a_list_that_changes_between_its_chunks_begins_anew),
        cmocka_unit_test(a_watch_that_is_stopped_in_a_list_tells_no_more),
        cmocka_unit_test(a_list_says_that_it_begins_anew),
        cmocka_unit_test(more_objects_than_the_bound_are_an_error_that_is_told),
        cmocka_unit_test(a_leader_out_of_reach_of_the_server_stops_in_time),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kube_rig_end(&server);
    return rig_end(failed);
}
