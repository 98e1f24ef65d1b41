/* t_kube_services.c - tests services as objects with a real controller and an API server that fails on command: what is
 * in force while watches break, histories are lost and replies are, and when the server or the controller is away.
 *
 * tests/kube/t_services does the same as people do, with kubectl and a real server. */
#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "controller/objects/service_object.h"
#include "tests/proc/kube/kube_rig.h"
#include "tests/redis_server.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct kube_server server;
static struct rig_process controller;
static struct kube_world world; /* another client, as kubectl is */
static char config[RIG_PATH];
static int runs;

static const struct kube_resource events_resource = { "events.k8s.io", "v1", "events", false };

#define POOLS "\"pools\":[{\"name\":\"p\",\"provider\":\"local\",\"offers\":[\"bit\"],\"max\":3}]"
#define SPEC(more) "{\"model\":\"" MODEL "\"," more POOLS "}"

static void start_controller(void)
{
    controller = rig_server("controller", controller.port, ARGS("--config", config));
}

/* Writes a controller's file; `more` are settings of section controller. */
static void write_config(char ret[RIG_PATH], const char *more)
{
    char text[1280], name[32];
    snprintf(text, sizeof text,
             "controller: { state: %s/state%d, tick: 100ms%s }\n"
             "kubernetes: { kubeconfig: %s, namespace: " KUBE_RIG_NS
             ", services: true, calls_per_s: 1000 }\n"
             "local: { cores: 8, offers: [ { name: bit, share: 0.1, price_per_hour: 1 } ] }\n"
             "services:\n  - { name: own, model: " MODEL
             ", pools: [ { name: p, offers: [bit] } ] }\n",
             rig_folder(), runs, more, server.kubeconfig);
    snprintf(name, sizeof name, "muster%d.yaml", runs++);
    rig_file(ret, name, text);
}

static void empty_server(void)
{
    kube_rig_post(&server, "/script", "{\"count\":0}");
    kube_rig_post(&server, "/restart", "{\"empty\":true}");
}

static int set_up(void **state)
{
    (void)state;
    empty_server();
    write_config(config, "");
    controller.port = rig_port();
    start_controller();
    world = kube_world_open(&server, (struct kube_client_config){ 0 });
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kube_world_close(&world);
    rig_stop(&controller);
    return 0;
}

/* ---- objects ---- */

/* Makes a call about an object and returns its error. The body, where there is one, is kept in *ret. */
static int call(enum kube_verb verb, const char *name, const char *body, struct buf *ret)
{
    struct kube_seen s = { 0 };
    kube_do(&world, &s,
            (struct kube_request){ .verb = verb,
                                   .resource = &service_resource,
                                   .ns = STR(KUBE_RIG_NS),
                                   .name = str_from(verb == KUBE_CREATE ? "" : name),
                                   .body = str_from(body) });
    int rc = s.reply.rc;
    if (ret) buf_clear(ret), buf_str(ret, buf_view(&s.body)), buf_byte(ret, 0);
    kube_seen_fini(&s);
    return rc;
}

static void make(const char *name, const char *spec)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_printf(
        &body,
        "{\"apiVersion\":\"muster.dev/v1alpha1\",\"kind\":\"MusterService\",\"metadata\":{\"name\":"
        "\"%s\",\"generation\":1},\"spec\":%s}",
        name, spec);
    buf_byte(&body, 0);
    assert_int_equal(call(KUBE_CREATE, name, body.data, NULL), 0);
}

/* The scripted server counts no generations: a real one raises it with each change of the spec. */
static void change(const char *name, int generation, const char *spec)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_printf(&body, "{\"metadata\":{\"generation\":%d},\"spec\":%s}", generation, spec);
    buf_byte(&body, 0);
    assert_int_equal(call(KUBE_PATCH, name, body.data, NULL), 0);
}

static void delete_object(const char *name)
{
    assert_int_equal(call(KUBE_DELETE, name, "", NULL), 0);
}

struct ask {
    const char *name, *condition, *truth, *says;
    struct buf seen;
};

static int look_at_condition(void *ctx, struct str item)
{
    struct ask *a = ctx;
    CLEANUP(buf_fini) struct buf type = { 0 }, truth = { 0 }, message = { 0 }, reason = { 0 };
    (void)json_path_text(item, "type", &type);
    (void)json_path_text(item, "status", &truth);
    (void)json_path_text(item, "message", &message);
    (void)json_path_text(item, "reason", &reason);
    if (!str_eq(buf_view(&type), str_from(a->condition))) return 0;
    bool so = str_eq(buf_view(&truth), str_from(a->truth)) &&
              (str_find(buf_view(&message), str_from(a->says)) != SIZE_MAX ||
               str_eq(buf_view(&reason), str_from(a->says)));
    return so ? 1 : 0;
}

static bool is_so(void *arg)
{
    struct ask *a = arg;
    if (call(KUBE_GET, a->name, "", &a->seen) < 0) return false;
    return json_path_each(str_from(a->seen.data), "status.conditions", look_at_condition, a) == 1;
}

/* Waits until the object's condition has this truth, and a reason or message with these words. */
static void expect(const char *name, const char *condition, const char *truth, const char *says)
{
    struct ask a = { name, condition, truth, says, { 0 } };
    char what[200];
    snprintf(what, sizeof what, "%s: %s is %s: %s", name, condition, truth, says);
    rig_wait(is_so, &a, what);
    buf_fini(&a.seen);
}

/* ---- what the controller serves ---- */

static bool serves(const char *service, const char *setting)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char name[96];
    snprintf(name, sizeof name, "{\"service\":\"%s\"", service);
    if (rig_call(controller.port, "/api/v1/services", NULL, &reply) != 200) return false;
    size_t at = str_find(buf_view(&reply), str_from(name));
    if (at == SIZE_MAX) return false;
    struct str rest = str_of(reply.data + at, reply.len - at);
    size_t end = str_find(str_of(rest.data + 1, rest.len - 1), STR("{\"service\":"));
    if (end != SIZE_MAX) rest.len = end + 1;
    return str_find(rest, str_from(setting)) != SIZE_MAX;
}

struct wanted {
    const char *service, *setting;
    bool there;
};

static bool is_served(void *arg)
{
    const struct wanted *w = arg;
    return serves(w->service, w->setting) == w->there;
}

static void expect_service(const char *service, const char *setting, bool there)
{
    struct wanted w = { service, setting, there };
    rig_wait(is_served, &w, there ? "the service is in force" : "the service is gone");
}

static void let_it_look(void)
{
    rig_wait_more(controller.port, "muster_controller_tick_seconds_count", 30);
}

/* ---- the tests ---- */

static void an_object_is_a_service(void **state)
{
    (void)state;
    make("code", SPEC("\"slo_ttft\":\"3s\","));
    expect_service("code", "\"slo_ttft_s\":3", true);
    expect("code", "Accepted", "True", "InForce");
    expect("code", "Ready", "True", "Idle");
    change("code", 2, SPEC("\"slo_ttft\":\"4s\","));
    expect_service("code", "\"slo_ttft_s\":4", true);
    change("code", 3, SPEC("\"slo_ttft\":\"never\","));
    expect("code", "Accepted", "False", "spec.slo_ttft: 'never' is not a duration");
    assert_true(serves("code", "\"slo_ttft_s\":4"));
    delete_object("code");
    expect_service("code", "", false);
    assert_true(serves("own", ""));
}

/* A server without the definition's schema hands on anything. */
static void rubbish_is_refused_by_condition(void **state)
{
    static const struct {
        const char *name, *spec, *says;
    } rows[] = {
        { "text", "\"serve something\"", "spec: want a mapping" },
        { "empty", "{}", "spec: 'model' is missing" },
        { "number", SPEC("\"name\":5,"), "spec.name: want a text" },
        { "own", SPEC(""), "service 'own' is defined twice" },
        { "replicas", SPEC("\"replicas\":9,"), "spec.replicas: 9 is above the 3" },
        { "policy", SPEC("\"scale\":\"wurk\","), "scale: 'wurk'" },
        { "unknown", SPEC("\"slo\":1,"), "unknown key 'slo'" },
        { "pools", "{\"model\":\"m\",\"pools\":{}}", "spec.pools" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        make(rows[i].name, rows[i].spec);
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        expect(rows[i].name, "Accepted", "False", rows[i].says);
    assert_true(serves("own", ""));
    assert_true(
        rig_metric(controller.port, "muster_controller_service_objects{state=\"refused\"}") == 8);
}

static void two_objects_of_one_name(void **state)
{
    (void)state;
    make("first", SPEC("\"name\":\"code\","));
    expect("first", "Accepted", "True", "InForce");
    make("another", SPEC("\"name\":\"code\",\"slo_ttft\":\"9s\","));
    expect("another", "Accepted", "False", "that of musterservice/first");
    assert_false(serves("code", "\"slo_ttft_s\":9"));
    delete_object("first"); /* then the other may have it */
    expect("another", "Accepted", "True", "InForce");
    expect_service("code", "\"slo_ttft_s\":9", true);
}

static void replicas_are_carried_out(void **state)
{
    (void)state;
    make("code", SPEC("\"replicas\":0,"));
    expect("code", "Ready", "False", "Stopped");
    change("code", 2, SPEC("\"replicas\":null,"));
    expect("code", "Ready", "True", "Idle");
}

/* Watches that break, a history that is lost, and a server that forgets versions: no change is missed, and nothing
 * goes that is there. */
static void broken_watches_lose_nothing(void **state)
{
    (void)state;
    make("code", SPEC(""));
    make("talk", SPEC(""));
    expect_service("talk", "", true);
    kube_rig_post(&server, "/script",
                  "{\"verb\":\"watch\",\"fault\":\"cut\",\"count\":6,\"ms\":100,\"resource\":"
                  "\"musterservices\"}");
    kube_rig_post(&server, "/restart", "{}");
    kube_rig_post(&server, "/compact", "{}");
    change("code", 2, SPEC("\"slo_ttft\":\"4s\","));
    expect_service("code", "\"slo_ttft_s\":4", true);
    kube_rig_post(
        &server, "/script",
        "{\"verb\":\"watch\",\"fault\":\"expired\",\"count\":1,\"resource\":\"musterservices\"}");
    kube_rig_post(&server, "/restart", "{}");
    delete_object("talk");
    expect_service("talk", "", false);
    assert_true(serves("code", "\"slo_ttft_s\":4"));
}

static void a_status_is_written_after_all(void **state)
{
    (void)state;
    kube_rig_post(&server, "/script",
                  "{\"verb\":\"apply\",\"fault\":\"status\",\"code\":422,\"count\":2,\"resource\":"
                  "\"musterservices\"}");
    make("code", SPEC(""));
    expect("code", "Accepted", "True", "InForce");
    assert_true(rig_metric(controller.port,
                           "muster_controller_service_object_writes_total{what=\"status\","
                           "result=\"failed\"}") == 2);
}

/* At rest nothing is written. What another has written into the status is written over. */
static void a_quiet_status_is_not_written(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    make("code", SPEC(""));
    expect("code", "Progressing", "False", "Settled");
    let_it_look();
    let_it_look();
    int64_t before = kube_rig_seen(&server, "apply");
    let_it_look();
    let_it_look();
    assert_int_equal(kube_rig_seen(&server, "apply"), before);
    struct kube_seen s = { 0 };
    kube_do(&world, &s,
            (struct kube_request){ .verb = KUBE_PATCH,
                                   .resource = &service_resource,
                                   .ns = STR(KUBE_RIG_NS),
                                   .name = STR("code"),
                                   .subresource = "status",
                                   .body = STR("{\"status\":{\"conditions\":[]}}") });
    assert_int_equal(s.reply.rc, 0);
    kube_seen_fini(&s);
    expect("code", "Progressing", "False", "Settled");
}

static void events_are_recorded(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    make("code", SPEC("\"scale\":\"wurk\","));
    expect("code", "Accepted", "False", "scale");
    struct kube_seen s = { 0 };
    bool found = false;
    for (int i = 0; i < 50 && !found; i++) {
        kube_seen_fini(&s);
        s = (struct kube_seen){ 0 };
        kube_do(&world, &s,
                (struct kube_request){
                    .verb = KUBE_LIST, .resource = &events_resource, .ns = STR(KUBE_RIG_NS) });
        found = str_find(buf_view(&s.body), STR("\"reason\":\"Refused\"")) != SIZE_MAX;
        if (!found) let_it_look();
    }
    assert_true(found);
    assert_true(str_find(buf_view(&s.body), STR("\"kind\":\"MusterService\"")) != SIZE_MAX);
    kube_seen_fini(&s);
}

/* A controller that comes back while nobody can be asked serves what it served. */
static void the_store_remembers(void **state)
{
    (void)state;
    make("code", SPEC("\"slo_ttft\":\"4s\","));
    expect_service("code", "\"slo_ttft_s\":4", true);
    rig_kill(&controller);
    kube_rig_pause(&server);
    start_controller();
    expect_service("code", "\"slo_ttft_s\":4", true);
    let_it_look();
    assert_true(serves("code", "\"slo_ttft_s\":4"));
    kube_rig_resume(&server);
    delete_object("code");
    expect_service("code", "", false);
}

/* What is gone when the controller comes back goes then. */
static void a_deletion_that_nobody_saw(void **state)
{
    (void)state;
    make("code", SPEC(""));
    make("talk", SPEC(""));
    expect_service("code", "", true);
    expect_service("talk", "", true);
    rig_kill(&controller);
    delete_object("code");
    start_controller();
    expect_service("code", "", false);
    assert_true(serves("talk", ""));
}

/* ---- two controllers on one Redis ---- */

static bool leads(void *arg)
{
    const struct rig_process *p = arg;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    return rig_call(p->port, "/health", NULL, &reply) == 200 && !strstr(reply.data, "standby");
}

static bool stands_by(void *arg)
{
    const struct rig_process *p = arg;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    return rig_call(p->port, "/health", NULL, &reply) == 200 && strstr(reply.data, "standby");
}

/* The one that stands by watches and writes nothing. When the leader stops it goes on with the same services, and one
 * that returns does nothing. */
static void the_leader_alone_acts(void **state)
{
    (void)state;
    struct redis_server redis;
    struct rig_process two[2];
    char more[200], path[RIG_PATH];
    if (!redis_server_exists()) skip();
    empty_server();
    redis_start(&redis, rig_folder(), "redis", NULL);
    assert_true(redis_await(&redis, "PING", "PONG"));
    snprintf(more, sizeof more, ", store: 'redis+unix://%s', leader_lease: 2s", redis.socket);
    for (int i = 0; i < 2; i++) {
        write_config(path, more);
        two[i] = rig_server("controller", rig_port(), ARGS("--config", path));
        rig_wait(i == 0 ? leads : stands_by, &two[i], "one leads, the other stands by");
    }
    world = kube_world_open(&server, (struct kube_client_config){ 0 });
    controller = two[0];
    make("code", SPEC("\"slo_ttft\":\"3s\","));
    expect_service("code", "\"slo_ttft_s\":3", true);
    expect("code", "Accepted", "True", "generation 1");
    assert_true(rig_metric(two[1].port, "muster_controller_service_objects{state=\"accepted\"}") <=
                0);

    assert_int_equal(proc_signal(&two[0].proc.id, SIGSTOP, NULL), 0);
    rig_wait(leads, &two[1], "the other leads");
    controller = two[1];
    expect_service("code", "\"slo_ttft_s\":3", true);
    change("code", 2, SPEC("\"slo_ttft\":\"4s\","));
    expect_service("code", "\"slo_ttft_s\":4", true);
    expect("code", "Accepted", "True", "generation 2");

    assert_int_equal(proc_signal(&two[0].proc.id, SIGCONT, NULL), 0);
    rig_wait(stands_by, &two[0], "the one that returns stands by");
    change("code", 3, SPEC("\"slo_ttft\":\"5s\","));
    expect("code", "Accepted", "True", "generation 3");
    let_it_look();
    expect("code", "Accepted", "True", "generation 3");
    assert_true(rig_metric(two[0].port, "muster_controller_service_objects{state=\"accepted\"}") ==
                0);
    rig_stop(&two[0]);
    rig_stop(&two[1]);
    kube_world_close(&world);
    redis_remove(&redis);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_object_is_a_service),
        TEST(rubbish_is_refused_by_condition),
        TEST(two_objects_of_one_name),
        TEST(replicas_are_carried_out),
        TEST(broken_watches_lose_nothing),
        TEST(a_status_is_written_after_all),
        TEST(a_quiet_status_is_not_written),
        TEST(events_are_recorded),
        TEST(the_store_remembers),
        TEST(a_deletion_that_nobody_saw),
        cmocka_unit_test(the_leader_alone_acts),
    };
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL)) || !kube_rig_fake(&server, ARGS(NULL)))
        return RIG_SKIP;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kube_rig_end(&server);
    return rig_end(failed);
}
