/* t_kube.c - tests calls and credentials against the scripted API server and against a real one. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "tests/proc/kube/kube_rig.h"

#include <stdio.h>
#include <sys/stat.h>

static struct kube_server *server; /* of the tests that run now */

static struct kube_world world(void)
{
    return kube_world_open(server, (struct kube_client_config){ 0 });
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
    kube_expect(&w,
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
    kube_expect(
        &w,
        (struct kube_request){
            .verb = KUBE_DELETE, .resource = &kube_configmaps, .name = STR("life"), .del = other },
        -ESTALE, "Conflict");
    struct kube_delete ours = { .uid = str_from(made.uid), .propagation = KUBE_BACKGROUND };
    kube_expect(
        &w,
        (struct kube_request){
            .verb = KUBE_DELETE, .resource = &kube_configmaps, .name = STR("life"), .del = ours },
        0, "");
    kube_expect(&w, get, -ENOENT, "NotFound");
    kube_expect(&w,
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
        kube_expect(&w,
                    (struct kube_request){ .verb = KUBE_REPLACE,
                                           .resource = &kube_configmaps,
                                           .name = STR("swap"),
                                           .body = str_from(body) },
                    i == 0 ? 0 : -ESTALE, i == 0 ? "" : "Conflict");
    }
    /* A merge patch with a version is conditional too: leases rest on it. */
    snprintf(body, sizeof body,
             "{\"metadata\":{\"resourceVersion\":\"%s\"},\"data\":{\"c\":\"1\"}}", made.version);
    kube_expect(&w,
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
    kube_expect(&w, req, -ESTALE, "conflict");
    req.force = true;
    req.dry_run = true;
    kube_expect(&w, req, 0, "");
    struct kube_seen s = { 0 };
    const struct kube_request get = { .verb = KUBE_GET,
                                      .resource = &kube_configmaps,
                                      .name = STR("owned") };
    kube_do(&w, &s, get);
    assert_non_null(strstr(s.body.data, "\"a\":\"1\"")); /* a dry run changes nothing */
    req.dry_run = false;
    kube_expect(&w, req, 0, "");
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
    kube_expect(&w,
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
        kube_expect(&w,
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
    kube_expect(&w,
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
                                   .deadline_us = clock_mono_us() + 3000000 });
    /* It is tried until the deadline, which may cut off the last handshake. */
    assert_true(s.reply.rc == -EKEYREJECTED || s.reply.rc == -ETIMEDOUT);
    assert_false(s.reply.unsure);
    assert_int_equal(s.reply.code, 0);
    assert_non_null(strstr(s.problem, "certificate"));
    kube_seen_fini(&s);
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
    };
    server = s;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return kube_rig_both(run);
}
