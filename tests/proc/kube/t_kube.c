/* t_kube.c - tests calls, lists, watches and leases against the scripted API server and against a real one. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/kube/kube_lease.h"
#include "base/io/kube/kube_list.h"
#include "tests/proc/kube/kube_rig.h"

#include <stdio.h>
#include <sys/stat.h>

static struct kube_server *server; /* of the tests that run now */

static struct kube_world world(void)
{
    return kube_world_open(server, (struct kube_client_config){ 0 });
}

static void expect(struct kube_world *w, struct kube_request req, int rc, const char *says)
{
    struct kube_seen s = { 0 };
    kube_do(w, &s, req);
    if (s.reply.rc != rc || !strstr(s.problem, says))
        fail_msg("%d %s; expected %d", s.reply.rc, s.problem, rc);
    assert_true((rc == 0) == (s.problem[0] == 0));
    kube_seen_fini(&s);
}

/* ---- verbs ---- */

static void an_object_is_made_read_changed_and_deleted(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct kube_seen s = { 0 };
    struct kube_meta made = kube_make_map(&w, "life", "1");
    const struct kube_request get = { .verb = KUBE_GET,
                                      .resource = &kube_configmaps,
                                      .name = STR("life") };
    assert_string_equal(made.name, "life");
    assert_string_equal(made.ns, KUBE_RIG_NS);
    assert_true(made.uid[0] && made.version[0]);
    expect(&w,
           (struct kube_request){
               .verb = KUBE_CREATE,
               .resource = &kube_configmaps,
               .body = STR("{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":"
                           "{\"name\":\"life\"}}") },
           -EEXIST, "AlreadyExists");
    kube_set_map(&w, "life", "2");
    kube_do(&w, &s, get);
    assert_int_equal(s.reply.code, 200);
    assert_non_null(strstr(s.body.data, "\"a\":\"2\""));
    assert_non_null(strstr(s.body.data, "\"app\":\"kube-rig\"")); /* a merge leaves the rest */
    kube_seen_fini(&s);
    struct kube_delete other = { .uid = STR("00000000-0000-0000-0000-000000000000") };
    expect(
        &w,
        (struct kube_request){
            .verb = KUBE_DELETE, .resource = &kube_configmaps, .name = STR("life"), .del = other },
        -ESTALE, "Conflict");
    struct kube_delete ours = { .uid = str_from(made.uid), .propagation = KUBE_BACKGROUND };
    expect(
        &w,
        (struct kube_request){
            .verb = KUBE_DELETE, .resource = &kube_configmaps, .name = STR("life"), .del = ours },
        0, "");
    expect(&w, get, -ENOENT, "NotFound");
    expect(&w,
           (struct kube_request){
               .verb = KUBE_DELETE, .resource = &kube_configmaps, .name = STR("life") },
           -ENOENT, "NotFound");
    kube_world_close(&w);
}

static void a_replacement_needs_the_present_version(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct kube_meta made = kube_make_map(&w, "swap", "1");
    char body[512];
    for (int i = 0; i < 2; i++) { /* the second time the version is old */
        snprintf(body, sizeof body,
                 "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"swap\","
                 "\"resourceVersion\":\"%s\"},\"data\":{\"b\":\"%d\"}}",
                 made.version, i);
        expect(&w,
               (struct kube_request){ .verb = KUBE_REPLACE,
                                      .resource = &kube_configmaps,
                                      .name = STR("swap"),
                                      .body = str_from(body) },
               i == 0 ? 0 : -ESTALE, i == 0 ? "" : "Conflict");
    }
    /* A merge patch with a version is conditional too: leases rest on it. */
    snprintf(body, sizeof body,
             "{\"metadata\":{\"resourceVersion\":\"%s\"},\"data\":{\"c\":\"1\"}}", made.version);
    expect(&w,
           (struct kube_request){ .verb = KUBE_PATCH,
                                  .resource = &kube_configmaps,
                                  .name = STR("swap"),
                                  .body = str_from(body) },
           -ESTALE, "Conflict");
    kube_delete_map(&w, "swap");
    kube_world_close(&w);
}

static void apply_makes_and_changes(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct kube_meta last = { 0 };
    for (int i = 0; i < 2; i++) {
        char body[512];
        snprintf(
            body, sizeof body,
            "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"applied\"},"
            "\"data\":{\"a\":\"%d\"}}",
            i);
        struct kube_meta now = kube_must(&w, (struct kube_request){ .verb = KUBE_APPLY,
                                                                    .resource = &kube_configmaps,
                                                                    .name = STR("applied"),
                                                                    .body = str_from(body) });
        assert_true(i == 0 || strcmp(now.uid, last.uid) == 0);
        assert_true(strcmp(now.version, last.version) != 0);
        last = now;
    }
    kube_delete_map(&w, "applied");
    kube_world_close(&w);
}

static void apply_takes_others_fields_only_by_force(void **state)
{
    (void)state;
    if (!server->real) skip(); /* the scripted server knows no field managers */
    struct kube_world w = world();
    kube_make_map(&w, "owned", "1"); /* by another operation, which counts as another manager */
    struct kube_request req = { .verb = KUBE_APPLY,
                                .resource = &kube_configmaps,
                                .name = STR("owned"),
                                .body = STR(
                                    "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{"
                                    "\"name\":\"owned\"},\"data\":{\"a\":\"2\"}}") };
    expect(&w, req, -ESTALE, "conflict");
    req.force = true;
    req.dry_run = true;
    expect(&w, req, 0, "");
    struct kube_seen s = { 0 };
    const struct kube_request get = { .verb = KUBE_GET,
                                      .resource = &kube_configmaps,
                                      .name = STR("owned") };
    kube_do(&w, &s, get);
    assert_non_null(strstr(s.body.data, "\"a\":\"1\"")); /* a dry run changes nothing */
    req.dry_run = false;
    expect(&w, req, 0, "");
    kube_do(&w, &s, get);
    assert_non_null(strstr(s.body.data, "\"a\":\"2\""));
    assert_non_null(strstr(s.body.data, "\"manager\":\"muster\""));
    kube_seen_fini(&s);
    kube_delete_map(&w, "owned");
    kube_world_close(&w);
}

static void replicas_are_read_and_set_by_the_scale_subresource(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct kube_seen s = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    int64_t wanted = -1, there = -1;
    kube_must(
        &w, (struct kube_request){
                .verb = KUBE_CREATE,
                .resource = &kube_deployments,
                .body = STR(
                    "{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":"
                    "\"d\"},\"spec\":{\"replicas\":2,\"selector\":{\"matchLabels\":{\"a\":\"b\"}},"
                    "\"template\":{\"metadata\":{\"labels\":{\"a\":\"b\"}},\"spec\":{\"containers\""
                    ":[{\"name\":\"c\",\"image\":\"i\"}]}}}}") });
    const struct kube_request get = {
        .verb = KUBE_GET, .resource = &kube_deployments, .name = STR("d"), .subresource = "scale"
    };
    kube_do(&w, &s, get);
    assert_int_equal(kube_scale_read(s.reply.body, &wanted, &there, NULL), 0);
    assert_int_equal(wanted, 2);
    assert_int_equal(there, 0); /* nobody runs it */
    kube_put_scale(&body, 5);
    kube_do(&w, &s,
            (struct kube_request){ .verb = KUBE_PATCH,
                                   .resource = &kube_deployments,
                                   .name = STR("d"),
                                   .subresource = "scale",
                                   .body = buf_view(&body) });
    assert_int_equal(s.reply.rc, 0);
    assert_int_equal(kube_scale_read(s.reply.body, &wanted, &there, NULL), 0);
    assert_int_equal(wanted, 5);
    kube_seen_fini(&s);
    expect(&w,
           (struct kube_request){
               .verb = KUBE_DELETE, .resource = &kube_deployments, .name = STR("d") },
           0, "");
    kube_world_close(&w);
}

static void make_pod(struct kube_world *w, const char *name)
{
    char body[512];
    snprintf(
        body, sizeof body,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\",\"labels\":{\"app\":"
        "\"p\"}},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}}",
        name);
    kube_must(w, (struct kube_request){
                     .verb = KUBE_CREATE, .resource = &kube_pods, .body = str_from(body) });
}

static void an_eviction_meets_the_disruption_budget(void **state)
{
    (void)state;
    struct kube_world w = world();
    const struct kube_request evict = { .verb = KUBE_EVICT,
                                        .resource = &kube_pods,
                                        .name = STR("pod-1") };
    struct kube_seen s = { 0 };
    make_pod(&w, "pod-1");
    if (server->real) {
        /* Without controllers the test writes the statuses that a budget rests on. */
        kube_must(&w,
                  (struct kube_request){
                      .verb = KUBE_PATCH,
                      .resource = &kube_pods,
                      .name = STR("pod-1"),
                      .subresource = "status",
                      .body = STR(
                          "{\"status\":{\"phase\":\"Running\",\"conditions\":[{\"type\":\"Ready\","
                          "\"status\":\"True\"}]}}") });
        kube_must(&w,
                  (struct kube_request){
                      .verb = KUBE_CREATE,
                      .resource = &kube_budgets,
                      .body = STR(
                          "{\"apiVersion\":\"policy/v1\",\"kind\":\"PodDisruptionBudget\","
                          "\"metadata\":{\"name\":\"b\"},\"spec\":{\"minAvailable\":1,\"selector\":"
                          "{\"matchLabels\":{\"app\":\"p\"}}}}") });
        kube_must(&w, (struct kube_request){
                          .verb = KUBE_PATCH,
                          .resource = &kube_budgets,
                          .name = STR("b"),
                          .subresource = "status",
                          .body = STR("{\"status\":{\"observedGeneration\":1,"
                                      "\"disruptionsAllowed\":0,\"expectedPods\":1,"
                                      "\"desiredHealthy\":1,\"currentHealthy\":1}}") });
    } else {
        kube_rig_post(server, "/set", "{\"budget\":0}");
    }
    kube_do(&w, &s, evict);
    assert_int_equal(s.reply.rc, -EBUSY);
    assert_int_equal(s.reply.code, 429);
    assert_int_equal(s.reply.tries, 1); /* the caller decides, not the client */
    assert_string_equal(s.reply.status.cause, "DisruptionBudget");
    assert_false(s.reply.unsure);
    if (server->real)
        kube_must(&w,
                  (struct kube_request){ .verb = KUBE_PATCH,
                                         .resource = &kube_budgets,
                                         .name = STR("b"),
                                         .subresource = "status",
                                         .body = STR("{\"status\":{\"disruptionsAllowed\":1}}") });
    else
        kube_rig_post(server, "/set", "{\"budget\":1}");
    kube_do(&w, &s, evict);
    if (s.reply.rc < 0) fail_msg("%s", s.problem);
    kube_seen_fini(&s);
    if (server->real)
        expect(&w,
               (struct kube_request){
                   .verb = KUBE_DELETE, .resource = &kube_budgets, .name = STR("b") },
               0, "");
    else
        kube_rig_post(server, "/set", "{\"budget\":-1}");
    kube_world_close(&w);
}

/* The status subresource changes the status and nothing else, and the object itself everything but that. */
static void status_and_spec_are_written_apart(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct kube_seen s = { 0 };
    make_pod(&w, "pod-2");
    struct kube_request patch = {
        .verb = KUBE_PATCH,
        .resource = &kube_pods,
        .name = STR("pod-2"),
        .subresource = "status",
        .body = STR("{\"spec\":{\"priority\":7},\"status\":{\"reason\":\"first\"}}")
    };
    kube_do(&w, &s, patch);
    assert_int_equal(s.reply.rc, 0);
    assert_non_null(strstr(s.body.data, "\"first\""));
    assert_null(strstr(s.body.data, "\"priority\":7"));
    patch.subresource = NULL;
    patch.body =
        STR("{\"metadata\":{\"labels\":{\"x\":\"y\"}},\"status\":{\"reason\":\"second\"}}");
    kube_do(&w, &s, patch);
    assert_int_equal(s.reply.rc, 0);
    assert_non_null(strstr(s.body.data, "\"x\":\"y\""));
    assert_non_null(strstr(s.body.data, "\"first\""));
    kube_seen_fini(&s);
    expect(&w,
           (struct kube_request){ .verb = KUBE_DELETE,
                                  .resource = &kube_pods,
                                  .name = STR("pod-2"),
                                  .del = { .at_once = true } },
           0, "");
    kube_world_close(&w);
}

/* ---- credentials ---- */

static const struct kube_resource self_reviews = { "authentication.k8s.io", "v1",
                                                   "selfsubjectreviews", true };

/* Asserts that the server takes the caller for this user; the scripted one knows only its token. */
static void assert_user(struct kube_world *w, const char *user)
{
    struct kube_seen s = { 0 };
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"username\":\"%s\"", user);
    if (server->real)
        kube_do(w, &s,
                (struct kube_request){
                    .verb = KUBE_CREATE,
                    .resource = &self_reviews,
                    .body = STR("{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":"
                                "\"SelfSubjectReview\"}") });
    else
        kube_do(w, &s, (struct kube_request){ .verb = KUBE_LIST, .resource = &kube_configmaps });
    if (s.reply.rc < 0) fail_msg("%s: %s", user, s.problem);
    if (server->real && !strstr(s.body.data, wanted)) fail_msg("not %s: %s", user, s.body.data);
    kube_seen_fini(&s);
}

static void credentials_of_each_kind_are_accepted(void **state)
{
    (void)state;
    char text[2048], path[RIG_PATH], script[RIG_PATH], user[2 * RIG_PATH];
    struct kube_world w = world();
    assert_user(&w, "test"); /* a token file */
    kube_world_close(&w);

    rig_file(script, "plugin",
             "#!/bin/sh\necho "
             "'{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\","
             "\"status\":{\"token\":\"first-token\"}}'\n");
    assert_int_equal(chmod(script, 0700), 0);
    for (int kind = 0; kind < 2; kind++) {
        if (kind == 1 && !server->real) continue; /* the scripted server asks for no certificate */
        if (kind == 0)
            snprintf(user, sizeof user,
                     "exec: {apiVersion: client.authentication.k8s.io/v1, command: %s}", script);
        else
            snprintf(user, sizeof user, "client-certificate: client.pem, client-key: client.key");
        snprintf(text, sizeof text,
                 "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
                 "clusters: [{name: k, cluster: {server: \"https://127.0.0.1:%u\", "
                 "certificate-authority: "
                 "ca.pem, tls-server-name: good.test}}]\nusers: [{name: u, user: {%s}}]\n",
                 server->port, user);
        rig_file(path, "kubeconfig-kind", text);
        const struct kube_source source = { .path = path };
        w = kube_world_from(server, &source, (struct kube_client_config){ 0 });
        assert_user(&w, kind == 0 ? "test" : "client");
        kube_world_close(&w);
    }
}

static void a_pod_reaches_its_cluster(void **state)
{
    (void)state;
    char folder[RIG_PATH], path[RIG_PATH], port[64];
    CLEANUP(buf_fini) struct buf ca = { 0 };
    snprintf(folder, sizeof folder, "%s/pod", rig_folder());
    mkdir(folder, 0700);
    assert_int_equal(file_read(server->ca, 65536, &ca, NULL), 0);
    rig_file(path, "pod/ca.crt", ca.data);
    rig_file(path, "pod/namespace", KUBE_RIG_NS);
    rig_file(path, "pod/token", "first-token\n");
    snprintf(port, sizeof port, "KUBERNETES_SERVICE_PORT=%u", server->port);
    const char *const environ[] = { "KUBERNETES_SERVICE_HOST=127.0.0.1", port, NULL };
    const struct kube_source source = { .environ = environ, .pod_folder = folder };
    struct kube_world w = kube_world_from(server, &source, (struct kube_client_config){ 0 });
    assert_true(str_eq(w.config->ns, STR(KUBE_RIG_NS)));
    assert_user(&w, "test");
    kube_world_close(&w);
}

/* A server with a certificate of another authority is refused, whatever it would answer. */
static void a_server_of_another_authority_is_refused(void **state)
{
    (void)state;
    char text[1024], path[RIG_PATH];
    struct kube_seen s = { 0 };
    snprintf(text, sizeof text,
             "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
             "clusters: [{name: k, cluster: {server: \"https://127.0.0.1:%u\", "
             "certificate-authority: ca2.pem}}]\nusers: [{name: u, user: {token: first-token}}]\n",
             server->port);
    rig_file(path, "kubeconfig-other", text);
    const struct kube_source source = { .path = path };
    struct kube_world w = kube_world_from(server, &source, (struct kube_client_config){ 0 });
    kube_do(&w, &s,
            (struct kube_request){ .verb = KUBE_LIST,
                                   .resource = &kube_configmaps,
                                   .deadline_us = clock_mono_us() + 500000 });
    assert_int_equal(s.reply.rc, -EKEYREJECTED);
    assert_false(s.reply.unsure);
    assert_non_null(strstr(s.problem, "certificate"));
    kube_seen_fini(&s);
    kube_world_close(&w);
}

/* ---- lists ---- */

struct listed {
    uint32_t items, begins, ends, cancel_at;
    struct kube_list *list;
    int rc;
    char version[KUBE_VERSION_BYTES], problem[256];
    uint32_t count;
};

static void on_list_begin(void *arg)
{
    struct listed *l = arg;
    l->begins++;
    l->items = 0;
}

static void on_list_item(void *arg, struct str object)
{
    struct listed *l = arg;
    struct kube_meta meta;
    assert_int_equal(kube_meta_read(object, &meta, NULL), 0);
    if (++l->items == l->cancel_at) kube_list_cancel(TAKE(l->list));
}

static void on_list_end(void *arg, const struct kube_list_end *end)
{
    struct listed *l = arg;
    l->ends++;
    l->rc = end->rc;
    l->count = end->count;
    snprintf(l->version, sizeof l->version, "%s", end->version);
    snprintf(l->problem, sizeof l->problem, "%s", end->problem);
    l->list = NULL;
}

static void list_start(struct kube_world *w, struct listed *l, const char *labels, uint32_t limit)
{
    struct err err = { 0 };
    const struct kube_list_request req = { .resource = &kube_configmaps,
                                           .ns = STR(KUBE_RIG_NS),
                                           .label_selector = str_from(labels),
                                           .limit = limit,
                                           .on_begin = on_list_begin,
                                           .on_item = on_list_item,
                                           .on_end = on_list_end,
                                           .arg = l };
    if (kube_list_start(w->client, &req, &l->list, &err) < 0) fail_msg("%s", err.text);
}

static void a_list_comes_in_chunks(void **state)
{
    (void)state;
    struct kube_world w = world();
    char name[32];
    for (int i = 0; i < 25; i++) {
        snprintf(name, sizeof name, "chunk-%02d", i);
        kube_make_map(&w, name, "x");
    }
    for (uint32_t limit = 5; limit <= 100; limit += 95) {
        struct listed l = { 0 };
        struct kube_client_counts before, after;
        kube_client_counts_get(w.client, &before);
        list_start(&w, &l, "app=kube-rig", limit);
        KUBE_UNTIL(&w, l.ends == 1);
        kube_client_counts_get(w.client, &after);
        if (l.rc < 0) fail_msg("%s", l.problem);
        assert_int_equal(l.items, 25);
        assert_int_equal(l.count, 25);
        assert_int_equal(l.begins, 1);
        assert_true(l.version[0] != 0);
        uint64_t calls = after.by_verb[KUBE_LIST] - before.by_verb[KUBE_LIST];
        assert_int_equal(calls, limit == 5 ? 5 : 1);
    }
    struct listed none = { 0 }, some = { .cancel_at = 3 };
    list_start(&w, &none, "app=nothing", 5);
    KUBE_UNTIL(&w, none.ends == 1);
    assert_int_equal(none.items, 0);
    assert_true(none.version[0] != 0); /* an empty list has a version to watch from */
    list_start(&w, &some, "app=kube-rig", 100);
    KUBE_UNTIL(&w, some.items == 3);
    for (int i = 0; i < 20; i++)
        loop_turn(w.loop, 1000);
    assert_int_equal(some.items, 3);
    assert_int_equal(some.ends, 0);
    for (int i = 0; i < 25; i++) {
        snprintf(name, sizeof name, "chunk-%02d", i);
        kube_delete_map(&w, name);
    }
    kube_world_close(&w);
}

/* ---- watches ---- */

struct watched {
    struct kube_watch *watch;
    struct buf log; /* "+a +b = ~a -b ": added, synced, changed, deleted */
    uint32_t stop_at, events;
};

static void on_event(void *arg, const struct kube_event *e)
{
    struct watched *s = arg;
    static const char signs[] = { [KUBE_ADDED] = '+', [KUBE_MODIFIED] = '~', [KUBE_DELETED] = '-' };
    if (e->type == KUBE_SYNCED)
        buf_text(&s->log, "= ");
    else
        buf_printf(&s->log, "%c%s ", signs[e->type], e->meta->name);
    if (e->type == KUBE_ADDED || e->type == KUBE_MODIFIED) {
        struct kube_meta meta;
        assert_int_equal(kube_meta_read(e->object, &meta, NULL), 0);
        assert_string_equal(meta.uid, e->meta->uid);
    }
    if (++s->events == s->stop_at) kube_watch_stop(TAKE(s->watch));
}

static void watch_start(struct kube_world *w, struct watched *s, const char *labels)
{
    struct err err = { 0 };
    const struct kube_watch_request req = { .resource = &kube_configmaps,
                                            .ns = STR(KUBE_RIG_NS),
                                            .label_selector = str_from(labels),
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

#define LOG_IS(s, text) ((s)->log.data && strcmp((s)->log.data, text) == 0)
#define UNTIL_LOG(w, s, text)                                                                   \
    do {                                                                                        \
        int64_t until_log_ = clock_mono_us() + RIG_WAIT_US;                                     \
        while (!LOG_IS(s, text)) {                                                              \
            if (clock_mono_us() > until_log_)                                                   \
                fail_msg("\"%s\" and not \"%s\": %s", (s)->log.data ? (s)->log.data : "", text, \
                         state_of(s).problem);                                                  \
            assert_int_equal(loop_turn((w)->loop, 2000), 0);                                    \
        }                                                                                       \
    } while (0)

static void a_watch_tells_what_is_there_and_what_changes(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct watched s = { 0 };
    kube_make_map(&w, "w-1", "1");
    watch_start(&w, &s, "app=kube-rig");
    UNTIL_LOG(&w, &s, "+w-1 = ");
    kube_make_map(&w, "w-2", "1");
    kube_set_map(&w, "w-1", "2");
    kube_delete_map(&w, "w-2");
    UNTIL_LOG(&w, &s, "+w-1 = +w-2 ~w-1 -w-2 ");
    /* Out of the selection is gone, for this watcher. */
    kube_must(&w, (struct kube_request){
                      .verb = KUBE_PATCH,
                      .resource = &kube_configmaps,
                      .name = STR("w-1"),
                      .body = STR("{\"metadata\":{\"labels\":{\"app\":\"other\"}}}") });
    UNTIL_LOG(&w, &s, "+w-1 = +w-2 ~w-1 -w-2 -w-1 ");
    struct kube_watch_state st = state_of(&s);
    assert_true(st.synced && st.connected && st.confirmed_us > 0);
    assert_int_equal(st.lists, 1);
    assert_int_equal(st.watches, 1);
    assert_int_equal(st.objects, 0);
    assert_string_equal(st.problem, "");
    watch_end(&s);
    kube_delete_map(&w, "w-1");
    kube_world_close(&w);
}

static void after_a_restart_the_watch_catches_up(void **state)
{
    (void)state;
    struct kube_world w = world(), second;
    struct watched s = { 0 };
    kube_make_map(&w, "c-1", "1");
    kube_make_map(&w, "c-2", "1");
    kube_make_map(&w, "c-3", "1");
    watch_start(&w, &s, "app=kube-rig");
    UNTIL_LOG(&w, &s, "+c-1 +c-2 +c-3 = ");
    KUBE_UNTIL(&w, state_of(&s).connected);
    /* While this client does not run, the server forgets its history and objects change. */
    kube_rig_restart(server);
    second = kube_world_open(server, (struct kube_client_config){ 0 });
    kube_set_map(&second, "c-1", "2");
    kube_delete_map(&second, "c-2");
    kube_delete_map(&second, "c-3");
    kube_make_map(&second, "c-3", "1"); /* another object of the same name */
    kube_make_map(&second, "c-4", "1");
    kube_rig_restart(server);
    KUBE_UNTIL(&w, state_of(&s).lists == 2);
    UNTIL_LOG(&w, &s, "+c-1 +c-2 +c-3 = ~c-1 -c-3 +c-3 +c-4 -c-2 = ");
    assert_true(state_of(&s).expired > 0);
    KUBE_UNTIL(&w, state_of(&s).connected);
    kube_delete_map(&second, "c-4");
    UNTIL_LOG(&w, &s, "+c-1 +c-2 +c-3 = ~c-1 -c-3 +c-3 +c-4 -c-2 = -c-4 ");
    watch_end(&s);
    kube_delete_map(&second, "c-1");
    kube_delete_map(&second, "c-3");
    kube_world_close(&second);
    kube_world_close(&w);
}

static void a_watch_may_be_stopped_from_its_own_event(void **state)
{
    (void)state;
    struct kube_world w = world();
    kube_make_map(&w, "s-1", "1");
    kube_make_map(&w, "s-2", "1");
    for (uint32_t at = 1; at <= 5; at++) { /* in the list, at its end, in the stream */
        struct watched s = { .stop_at = at };
        watch_start(&w, &s, "app=kube-rig");
        if (at > 3) {
            KUBE_UNTIL(&w, s.events == 3);
            kube_set_map(&w, "s-1", at == 4 ? "4" : "5");
            kube_set_map(&w, "s-2", at == 4 ? "4" : "5");
        }
        KUBE_UNTIL(&w, s.events == at);
        for (int i = 0; i < 20; i++)
            loop_turn(w.loop, 1000);
        assert_int_equal(s.events, at);
        assert_null(s.watch);
        buf_fini(&s.log);
    }
    kube_delete_map(&w, "s-1");
    kube_delete_map(&w, "s-2");
    kube_world_close(&w);
}

/* A server that stands still and goes on costs neither a list nor an event twice. */
static void a_pause_of_the_server_is_bridged(void **state)
{
    (void)state;
    struct kube_world w = kube_world_open(server, (struct kube_client_config){ 0 });
    struct watched s = { 0 };
    struct kube_seen seen = { 0 };
    kube_make_map(&w, "p-1", "1");
    watch_start(&w, &s, "app=kube-rig");
    UNTIL_LOG(&w, &s, "+p-1 = ");
    KUBE_UNTIL(&w, state_of(&s).connected);
    kube_rig_pause(server);
    const struct kube_request get = { .verb = KUBE_GET,
                                      .resource = &kube_configmaps,
                                      .name = STR("p-1") };
    struct kube_request late = get;
    late.deadline_us = clock_mono_us() + 500000;
    kube_do(&w, &seen, late);
    assert_int_equal(seen.reply.rc, -ETIMEDOUT);
    kube_go(&w, &seen, get); /* this one waits longer than the pause */
    int64_t until_us = clock_mono_us() + 500000;
    KUBE_UNTIL(&w, clock_mono_us() > until_us);
    assert_int_equal(seen.ends, 0);
    kube_rig_resume(server);
    KUBE_UNTIL(&w, seen.ends == 1);
    if (seen.reply.rc < 0) fail_msg("%s", seen.problem);
    kube_set_map(&w, "p-1", "2");
    UNTIL_LOG(&w, &s, "+p-1 = ~p-1 ");
    assert_int_equal(state_of(&s).lists, 1);
    kube_seen_fini(&seen);
    watch_end(&s);
    kube_delete_map(&w, "p-1");
    kube_world_close(&w);
}

/* Everything again over HTTP/2, where the server speaks it: many calls at once and a watch on one connection. */
static void many_calls_at_once_over_http2(void **state)
{
    (void)state;
    struct kube_world w = kube_world_open(server, (struct kube_client_config){ .http2 = true });
    static struct kube_seen s[100];
    struct watched watch = { 0 };
    kube_make_map(&w, "h-1", "1");
    watch_start(&w, &watch, "app=kube-rig");
    UNTIL_LOG(&w, &watch, "+h-1 = ");
    KUBE_UNTIL(&w, state_of(&watch).connected);
    for (size_t i = 0; i < COUNT_OF(s); i++)
        kube_go(&w, &s[i],
                (struct kube_request){
                    .verb = KUBE_GET, .resource = &kube_configmaps, .name = STR("h-1") });
    for (size_t i = 0; i < COUNT_OF(s); i++) {
        KUBE_UNTIL(&w, s[i].ends == 1);
        if (s[i].reply.rc < 0) fail_msg("%s", s[i].problem);
        kube_seen_fini(&s[i]);
    }
    kube_set_map(&w, "h-1", "2");
    UNTIL_LOG(&w, &watch, "+h-1 = ~h-1 ");
    watch_end(&watch);
    kube_delete_map(&w, "h-1");
    kube_world_close(&w);
}

/* ---- leases ---- */

struct candidate {
    struct kube_world world;
    struct kube_lease *lease;
    int begins, ends, released;
    int64_t epoch;
};

static void on_change(void *arg, bool leads, int64_t epoch)
{
    struct candidate *c = arg;
    *(leads ? &c->begins : &c->ends) += 1;
    c->epoch = epoch;
}

static void on_released(void *arg)
{
    ((struct candidate *)arg)->released++;
}

/* Short times, so that a takeover is a matter of seconds. */
static void candidate_open(struct candidate *c, const char *name)
{
    char identity[KUBE_HOLDER_BYTES];
    struct err err = { 0 };
    c->world = world();
    assert_int_equal(kube_lease_identity(str_from(name), identity, &err), 0);
    const struct kube_lease_request req = {
        .ns = STR(KUBE_RIG_NS),
        .name = STR("leader"),
        .identity = str_from(identity),
        .times = { .lease_us = 3000000, .renew_us = 2000000, .retry_us = 200000 },
        .on_change = on_change,
        .arg = c,
    };
    if (kube_lease_start(c->world.client, &req, &c->lease, &err) < 0) fail_msg("%s", err.text);
}

static void candidate_close(struct candidate *c)
{
    kube_lease_free(c->lease);
    kube_world_close(&c->world);
}

static void lease_make(struct kube_world *w)
{
    kube_must(
        w, (struct kube_request){
               .verb = KUBE_CREATE,
               .resource = &kube_leases,
               .body =
                   STR("{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":"
                       "{\"name\":\"leader\",\"labels\":{\"keep\":\"me\"}},\"spec\":{}}") });
}

static void turn_both(struct candidate *a, struct candidate *b)
{
    loop_turn(a->world.loop, 1000);
    loop_turn(b->world.loop, 1000);
    int64_t epoch;
    if (kube_lease_leads(a->lease, &epoch)) assert_false(kube_lease_leads(b->lease, &epoch));
}

static void leadership_goes_to_one_and_to_the_next(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct candidate a = { 0 }, b = { 0 };
    struct kube_seen s = { 0 };
    lease_make(&w);
    candidate_open(&a, "a");
    KUBE_UNTIL(&a.world, a.begins == 1);
    assert_int_equal(a.epoch, 1);
    candidate_open(&b, "b");
    struct kube_lease_state st;
    for (int i = 0; i < 300; i++) /* renewed, and watched by the other */
        turn_both(&a, &b);
    assert_int_equal(a.begins + a.ends + b.begins, 1);
    kube_lease_state_get(b.lease, &st);
    assert_false(st.leads);
    assert_int_equal(strncmp(st.holder, "a_", 2), 0);
    kube_do(
        &w, &s,
        (struct kube_request){ .verb = KUBE_GET, .resource = &kube_leases, .name = STR("leader") });
    assert_non_null(strstr(s.body.data, "\"keep\":\"me\"")); /* what others wrote stays */

    /* A stands still, as a paused process does: B waits, then leads in a later epoch. A knows at once when
     * it goes on, before it has asked anybody. */
    int64_t paused_us = clock_mono_us();
    KUBE_UNTIL(&b.world, b.begins == 1);
    assert_true(clock_mono_us() - paused_us >= 2800000); /* A's last renewal may be a retry old */
    assert_int_equal(b.epoch, 2);
    assert_false(kube_lease_leads(a.lease, NULL));
    while (a.ends == 0)
        turn_both(&a, &b);
    kube_lease_state_get(a.lease, &st);

    /* B gives up: A need not wait for the lease's end. */
    kube_lease_release(b.lease, on_released, &b);
    assert_false(kube_lease_leads(b.lease, NULL));
    KUBE_UNTIL(&b.world, b.released == 1);
    kube_do(
        &w, &s,
        (struct kube_request){ .verb = KUBE_GET, .resource = &kube_leases, .name = STR("leader") });
    assert_non_null(strstr(s.body.data, "\"holderIdentity\":\"\""));
    while (a.begins < 2)
        turn_both(&a, &b);
    assert_int_equal(a.epoch, 3);
    assert_int_equal(b.ends, 1);
    candidate_close(&a);
    candidate_close(&b);
    kube_seen_fini(&s);
    expect(&w,
           (struct kube_request){
               .verb = KUBE_DELETE, .resource = &kube_leases, .name = STR("leader") },
           0, "");
    kube_world_close(&w);
}

static void a_lease_that_is_not_there_is_made_and_leads_later(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct candidate a = { 0 };
    candidate_open(&a, "a");
    int64_t begun_us = clock_mono_us();
    KUBE_UNTIL(&a.world, a.begins == 1);
    assert_true(clock_mono_us() - begun_us >= 3000000); /* lease_us: another may still believe */
    assert_true(a.epoch > 1000000);                     /* a date */
    expect(&w,
           (struct kube_request){
               .verb = KUBE_DELETE, .resource = &kube_leases, .name = STR("leader") },
           0, "");
    KUBE_UNTIL(&a.world, a.ends == 1); /* at the next renewal */
    candidate_close(&a);
    expect(
        &w,
        (struct kube_request){ .verb = KUBE_GET, .resource = &kube_leases, .name = STR("leader") },
        -ENOENT, "NotFound");
    kube_world_close(&w);
}

static int run(struct kube_server *s)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_is_made_read_changed_and_deleted),
        cmocka_unit_test(a_replacement_needs_the_present_version),
        cmocka_unit_test(apply_makes_and_changes),
        cmocka_unit_test(apply_takes_others_fields_only_by_force),
        cmocka_unit_test(replicas_are_read_and_set_by_the_scale_subresource),
        cmocka_unit_test(an_eviction_meets_the_disruption_budget),
        cmocka_unit_test(status_and_spec_are_written_apart),
        cmocka_unit_test(credentials_of_each_kind_are_accepted),
        cmocka_unit_test(a_pod_reaches_its_cluster),
        cmocka_unit_test(a_server_of_another_authority_is_refused),
        cmocka_unit_test(a_list_comes_in_chunks),
        cmocka_unit_test(a_watch_tells_what_is_there_and_what_changes),
        cmocka_unit_test(a_watch_may_be_stopped_from_its_own_event),
        cmocka_unit_test(a_pause_of_the_server_is_bridged),
        cmocka_unit_test(many_calls_at_once_over_http2),
        cmocka_unit_test(leadership_goes_to_one_and_to_the_next),
        cmocka_unit_test(a_lease_that_is_not_there_is_made_and_leads_later),
        cmocka_unit_test(after_a_restart_the_watch_catches_up),
    };
    server = s;
    print_message("---- %s\n", s->real ? "kube-apiserver" : "the scripted server");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    struct kube_server fake, real;
    if (!kube_rig_fake(&fake, ARGS(NULL))) return RIG_SKIP;
    int failed = run(&fake);
    kube_rig_end(&fake);
    if (kube_rig_real(&real)) {
        failed += run(&real);
        kube_rig_end(&real);
    }
    return rig_end(failed);
}
