/* t_kube_config.c - tests where a cluster's address and credentials are found, and how credentials are renewed:
 * kubeconfig files, a pod's files, programs that print an ExecCredential. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/kube/kube_auth.h"
#include "base/io/kube/kube_config.h"
#include "base/io/kube/kube_exec.h"
#include "base/io/loop/clock.h"
#include "tests/unit/io/raw_peer.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* "-----BEGIN X-----" in base64 */
#define PEM_B64 "LS0tLS1CRUdJTiBYLS0tLS0="
#define PEM "-----BEGIN X-----"

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[8][256];
    static int next;
    char *ret = path[next++ % 8];
    snprintf(ret, 256, "%s/%s", folder, name);
    return ret;
}

static void put(const char *name, const char *text)
{
    assert_int_equal(file_write_atomic(path_of(name), str_from(text), 0700, NULL), 0);
}

/* A kubeconfig with these fields of its only cluster and user. */
#define CONFIG(cluster, user)                                                \
    "apiVersion: v1\nkind: Config\ncurrent-context: c\n"                     \
    "contexts:\n- name: c\n  context: {cluster: k, user: u, namespace: n}\n" \
    "clusters:\n- name: k\n  cluster: {" cluster "}\nusers:\n- name: u\n  user: {" user "}\n"
#define SERVER "server: \"https://k.test:6443/\""

static int parse(const char *text, bool insecure, struct kube_config **ret, struct err *err)
{
    return kube_config_parse(str_from(text), "/etc/kube/config", (struct str){ 0 }, insecure, ret,
                             err);
}

/* ---- kubeconfig ---- */

static void assert_str(struct str s, const char *expected)
{
    if (!str_eq(s, str_from(expected)))
        fail_msg("\"" STR_FMT "\", expected \"%s\"", STR_ARG(s), expected);
}

static void a_kubeconfig_gives_address_and_credentials(void **state)
{
    (void)state;
    CLEANUP(kube_config_freep) struct kube_config *c = NULL;
    struct err err = { 0 };
    if (parse(
            CONFIG(
                SERVER ", tls-server-name: other.test, proxy-url: \"http://p:3128\", "
                       "certificate-authority-data: " PEM_B64 ", disable-compression: true",
                "client-certificate: pki/c.pem, client-key: /abs/c.key, token: \" t-1 \", as: ''"),
            false, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_str(c->server, "https://k.test:6443");
    assert_str(c->tls_name, "other.test");
    assert_str(c->proxy, "http://p:3128");
    assert_str(c->ca.pem, PEM);
    assert_str(c->certificate.path, "/etc/kube/pki/c.pem");
    assert_str(c->key.path, "/abs/c.key");
    assert_str(c->token, "t-1");
    assert_str(c->ns, "n");
    assert_str(c->context, "c");
    assert_false(c->insecure);
}

static void json_is_yaml_and_null_is_absent(void **state)
{
    (void)state;
    CLEANUP(kube_config_freep) struct kube_config *c = NULL;
    struct err err = { 0 };
    if (parse("{\"current-context\":\"c\",\"preferences\":{},\"contexts\":[{\"name\":\"c\","
              "\"context\":"
              "{\"cluster\":\"k\",\"namespace\":null,\"extensions\":[{\"name\":\"x\"}]}}],"
              "\"clusters\":[{\"name\":\"k\",\"cluster\":{\"server\":\"https://k/a/b\","
              "\"certificate-authority\":null}}],\"users\":null}",
              false, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_str(c->server, "https://k/a/b");
    assert_str(c->ns, "default");
    assert_int_equal(c->ca.path.len + c->ca.pem.len + c->token.len, 0);
}

static void a_wrong_field_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool insecure;
        const char *says;
    } rows[] = {
        { CONFIG("server: k.test", ""), false, "cluster \"k\": server must begin with https://" },
        { CONFIG("", ""), false, "cluster \"k\": server is missing" },
        { CONFIG("server: \"https://\"", ""), false, "server has no host" },
        { CONFIG("server: \"https://u:p@k\"", ""), false, "server may hold only" },
        { CONFIG("server: \"http://k.test\"", ""), false, "server is plain http" },
        { CONFIG("server: [1]", ""), false, "server must be text" },
        { CONFIG(SERVER ", certificate-authority-data: '***'", ""), false,
          "certificate-authority-data is not base64" },
        { CONFIG(SERVER ", certificate-authority-data: aGVsbG8=", ""), false,
          "certificate-authority-data holds no PEM" },
        { CONFIG(SERVER ", certificate-authority-dta: x", ""), false,
          "certificate-authority-dta is unknown; did you mean certificate-authority-data?" },
        { CONFIG(SERVER ", insecure-skip-tls-verify: yes", ""), false,
          "insecure-skip-tls-verify must be true or false" },
        { CONFIG(SERVER ", insecure-skip-tls-verify: true", ""), false,
          "insecure-skip-tls-verify is true: anybody" },
        { CONFIG(SERVER ", insecure-skip-tls-verify: true, certificate-authority: a", ""), true,
          "contradicts certificate-authority" },
        { CONFIG(SERVER, "client-certificate: a"), false, "user \"u\": client-key is missing" },
        { CONFIG(SERVER, "client-key: a"), false, "client-certificate is missing" },
        { CONFIG(SERVER, "tokn: a"), false, "tokn is unknown; did you mean token?" },
        { CONFIG(SERVER, "username: a"), false, "username is basic authentication" },
        { CONFIG(SERVER, "as: admin"), false, "as is impersonation" },
        { CONFIG(SERVER, "as-groups: [a]"), false, "as-groups is impersonation" },
        { CONFIG(SERVER, "auth-provider: {name: gcp}"), false, "auth-provider was removed" },
        { CONFIG(SERVER, "token: \"a\\u0001b\""), false, "token has a control character" },
        { CONFIG(SERVER, "exec: {command: x}"), false, "exec of user \"u\": apiVersion must be" },
        { CONFIG(SERVER, "exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: x}"),
          false, "apiVersion must be" },
        { CONFIG(SERVER, "exec: {apiVersion: client.authentication.k8s.io/v1}"), false,
          "command is missing" },
        { CONFIG(SERVER, "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, "
                         "interactiveMode: Always}"),
          false, "there is no terminal" },
        { CONFIG(SERVER,
                 "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, args: [[]]}"),
          false, "args must be texts" },
        { CONFIG(
              SERVER,
              "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, env: [{value: b}]}"),
          false, "env must be a list of name and value" },
        { CONFIG(SERVER,
                 "token: t, exec: {apiVersion: client.authentication.k8s.io/v1, command: x}"),
          false, "exec stands beside a token" },
        { "current-context: d\ncontexts:\n- name: c\n  context: {}\n", false,
          "there is no context \"d\"" },
        { "current-context: c\ncontexts:\n- name: c\n", false,
          "context \"c\" has no mapping context" },
        { "current-context: c\ncontexts:\n- name: c\n  context: {user: u}\n", false,
          "context \"c\": cluster is missing" },
        { "current-context: c\ncontexts: {}\n", false, "contexts must be a list" },
        { "current-context: c\ncontexts:\n- context: {}\n", false,
          "an item of contexts has no name" },
        { "contexts: []\n", false, "there is no current-context" },
        { "", false, "there is no current-context" },
        { "- a\n", false, "a kubeconfig is a mapping" },
        { "kind: Pod\n", false, "kind must be Config" },
        { "a: [\n", false, "not valid YAML" },
        { "a: &x 1\n", false, "anchors" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kube_config *c = NULL;
        struct err err = { 0 };
        int rc = parse(rows[i].text, rows[i].insecure, &c, &err);
        if (rc != -EINVAL || c || !strstr(err.text, rows[i].says))
            fail_msg("row %zu: %d %s", i, rc, err.text);
        if (!strstr(err.text, "/etc/kube/config"))
            fail_msg("row %zu names no file: %s", i, err.text);
    }
}

static void what_is_allowed_expressly_is_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool insecure;
    } rows[] = {
        { CONFIG(SERVER ", insecure-skip-tls-verify: true", ""), true },
        { CONFIG("server: \"http://k.test\"", ""), true },
        { CONFIG("server: \"http://127.0.0.1:8001\"", ""), false }, /* kubectl proxy */
        { CONFIG("server: \"http://[::1]:8001/x\"", ""), false },
        { CONFIG("server: \"http://localhost\"", ""), false },
        { CONFIG(SERVER, "some-future-field: {a: 1}"), false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(kube_config_freep) struct kube_config *c = NULL;
        struct err err = { 0 };
        if (parse(rows[i].text, rows[i].insecure, &c, &err) < 0)
            fail_msg("row %zu: %s", i, err.text);
    }
}

static void an_exec_user_is_read_whole(void **state)
{
    (void)state;
    CLEANUP(kube_config_freep) struct kube_config *c = NULL;
    struct err err = { 0 };
    if (parse(CONFIG(SERVER,
                     "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: ./bin/x, "
                     "args: [a, 'b c'], env: [{name: A, value: '1'}, {name: B}], "
                     "provideClusterInfo: true, interactiveMode: Never, installHint: get it}"),
              false, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(c->exec->argv[0], "/etc/kube/./bin/x");
    assert_string_equal(c->exec->argv[2], "b c");
    assert_null(c->exec->argv[3]);
    assert_string_equal(c->exec->env[0], "A=1");
    assert_string_equal(c->exec->env[1], "B=");
    assert_null(c->exec->env[2]);
    assert_true(c->exec->cluster_info);
    assert_str(c->exec->install_hint, "get it");
}

static int load(const char *const *environ, const char *path, const char *context,
                struct kube_config **ret, struct err *err)
{
    struct kube_source s = {
        .path = path, .context = str_from(context), .environ = environ, .pod_folder = path_of("pod")
    };
    return kube_config_load(&s, ret, err);
}

static void several_files_are_merged_and_the_first_wins(void **state)
{
    (void)state;
    char list[512];
    snprintf(list, sizeof list, "KUBECONFIG=:%s:%s:%s:", path_of("absent"), path_of("one"),
             path_of("two"));
    const char *const environ[] = { list, NULL };
    put("one", "current-context: c\nclusters:\n- name: k\n  cluster: {server: \"https://one\", "
               "certificate-authority: ca.pem}\n");
    put("two", "current-context: d\nclusters:\n- name: k\n  cluster: {server: \"https://two\"}\n"
               "contexts:\n- name: c\n  context: {cluster: k, user: u}\n- name: d\n"
               "  context: {cluster: k, user: v}\nusers:\n- name: u\n  user: {token: tu}\n"
               "- name: v\n  user: {tokenFile: t}\n");
    CLEANUP(kube_config_freep) struct kube_config *c = NULL, *d = NULL;
    struct err err = { 0 };
    if (load(environ, NULL, "", &c, &err) < 0) fail_msg("%s", err.text);
    assert_str(c->server, "https://one");
    assert_str(c->ca.path, path_of("ca.pem"));
    assert_str(c->token, "tu");
    if (load(environ, NULL, "d", &d, &err) < 0) fail_msg("%s", err.text);
    assert_str(d->token_path, path_of("t"));

    struct kube_config *none = NULL;
    snprintf(list, sizeof list, "KUBECONFIG=%s:%s", path_of("absent"), path_of("gone"));
    assert_int_equal(load(environ, NULL, "", &none, &err), -ENOENT);
    assert_non_null(strstr(err.text, "none of these files exists"));
    assert_int_equal(load(environ, path_of("absent"), "", &none, &err), -ENOENT);
    assert_non_null(strstr(err.text, path_of("absent")));
    CLEANUP(buf_fini) struct buf many = { 0 };
    buf_text(&many, "KUBECONFIG=");
    for (int i = 0; i <= KUBE_CONFIG_FILES_MAX; i++)
        buf_printf(&many, "%s:", path_of("one"));
    const char *const too_many[] = { many.data, NULL };
    assert_int_equal(load(too_many, NULL, "", &none, &err), -E2BIG);
}

static void a_pod_finds_its_cluster(void **state)
{
    (void)state;
    CLEANUP(kube_config_freep) struct kube_config *c = NULL;
    const char *const four[] = { "KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443",
                                 NULL };
    const char *const six[] = { "KUBERNETES_SERVICE_HOST=fd00::1", "KUBERNETES_SERVICE_PORT=6443",
                                NULL };
    const char *const bad[] = { "KUBERNETES_SERVICE_HOST=k", "KUBERNETES_SERVICE_PORT=x", NULL };
    struct err err = { 0 };
    assert_int_equal(load(four, NULL, "", &c, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no Kubernetes cluster is configured"));
    assert_int_equal(mkdir(path_of("pod"), 0700), 0);
    put("pod/token", "tok\n");
    put("pod/ca.crt", PEM);
    put("pod/namespace", "prod\n");
    if (load(four, NULL, "", &c, &err) < 0) fail_msg("%s", err.text);
    assert_str(c->server, "https://10.96.0.1:443");
    assert_str(c->ns, "prod");
    assert_str(c->token_path, path_of("pod/token"));
    assert_str(c->ca.path, path_of("pod/ca.crt"));
    kube_config_free(TAKE(c));
    if (load(six, NULL, "", &c, &err) < 0) fail_msg("%s", err.text);
    assert_str(c->server, "https://[fd00::1]:6443");
    struct kube_config *none = NULL;
    assert_int_equal(load(bad, NULL, "", &none, &err), -EINVAL);
    assert_non_null(strstr(err.text, "KUBERNETES_SERVICE_PORT"));
}

static void base64_is_decoded_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *text, *plain;
        int rc;
    } rows[] = {
        { "", "", 0 },
        { "YQ==", "a", 0 },
        { "YWI=", "ab", 0 },
        { "YWJj", "abc", 0 },
        { "YW\nJj\r\n", "abc", 0 },
        { "YQ=", "", -EINVAL },
        { "YQ", "", -EINVAL },
        { "Y===", "", -EINVAL },
        { "YQ==YQ==", "", -EINVAL },
        { "Y Q==", "", -EINVAL },
        { "Y-Q_", "", -EINVAL },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(arena_fini) struct arena a;
        struct str plain = { 0 };
        arena_init(&a, 4096);
        int rc = kube_base64(str_from(rows[i].text), &a, &plain);
        if (rc != rows[i].rc || !str_eq(plain, str_from(rows[i].plain)))
            fail_msg("row %zu: %d", i, rc);
    }
}

/* ---- ExecCredential ---- */

#define V1 "client.authentication.k8s.io/v1"
#define CREDENTIAL(status) \
    "{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1 "\",\"status\":{" status "}}"

static void a_credential_is_read_or_its_fault_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *json, *token;
        int64_t expires_us;
        const char *says; /* NULL: accepted */
    } rows[] = {
        { CREDENTIAL("\"token\":\"t\""), "t", 0, NULL },
        { CREDENTIAL("\"token\":\"t\",\"expirationTimestamp\":\"2026-03-01T12:00:00Z\""), "t",
          1772366400000000, NULL },
        { CREDENTIAL("\"token\":\"t\",\"expirationTimestamp\":null"), "t", 0, NULL },
        { CREDENTIAL("\"clientCertificateData\":\"c\",\"clientKeyData\":\"k\""), "", 0, NULL },
        { CREDENTIAL("\"clientCertificateData\":\"c\""), "", 0, "clientKeyData is missing" },
        { CREDENTIAL("\"clientKeyData\":\"c\""), "", 0, "clientCertificateData is missing" },
        { CREDENTIAL(""), "", 0, "neither token nor" },
        { CREDENTIAL("\"token\":7"), "", 0, "status.token is no text" },
        { CREDENTIAL("\"token\":\"t\",\"expirationTimestamp\":\"tomorrow\""), "", 0, "RFC 3339" },
        { "{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1 "\"}", "", 0, "status is missing" },
        { "{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1
          "beta1\",\"status\":{\"token\":\"t\"}}",
          "", 0, "the kubeconfig says " V1 },
        { "{\"kind\":\"Pod\"}", "", 0, "no ExecCredential" },
        { "Opening your browser ...", "", 0, "ExecCredential" },
        { "", "", 0, "ExecCredential" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(kube_credential_fini) struct kube_credential c = { 0 };
        struct err err = { 0 };
        int rc = kube_credential_read(str_from(rows[i].json), STR(V1), &c, &err);
        if ((rc == 0) != !rows[i].says || (rows[i].says && !strstr(err.text, rows[i].says)) ||
            !str_eq(buf_view(&c.token), str_from(rows[i].token)) ||
            c.expires_us != rows[i].expires_us)
            fail_msg("row %zu: %d %s", i, rc, err.text);
    }
}

struct run_end {
    int ends, rc;
    char token[64], problem[512];
};

static void on_run_end(void *arg, int rc, struct kube_credential *c, const char *problem)
{
    struct run_end *e = arg;
    e->ends++;
    e->rc = rc;
    snprintf(e->token, sizeof e->token, STR_FMT, STR_ARG(buf_view(&c->token)));
    snprintf(e->problem, sizeof e->problem, "%s", problem);
}

/* A configuration with the program `script` in it. */
static struct kube_config *exec_config(const char *script)
{
    char text[1024];
    struct kube_config *c = NULL;
    struct err err = { 0 };
    put("plugin", script);
    snprintf(text, sizeof text,
             CONFIG(SERVER,
                    "exec: {apiVersion: client.authentication.k8s.io/v1, command: %s/plugin, "
                    "args: [one], env: [{name: PLUGIN_X, value: y}], provideClusterInfo: true}"),
             folder);
    if (kube_config_parse(str_from(text), "k", (struct str){ 0 }, false, &c, &err) < 0)
        fail_msg("%s", err.text);
    return c;
}

#define SCRIPT "#!/bin/sh\n"
#define PRINT_TOKEN(t) "echo '" CREDENTIAL("\"token\":\"" t "\"") "'\n"

static void a_program_is_run_within_its_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        int64_t run_us;
        int rc;
        const char *token, *says;
    } rows[] = {
        { SCRIPT PRINT_TOKEN("t"), 0, 0, "t", "" },
        { SCRIPT "echo noise >&2\n" PRINT_TOKEN("t"), 0, 0, "t", "" },
        { SCRIPT "[ $1 = one ] && [ $PLUGIN_X = y ] || exit 9\n" PRINT_TOKEN("t"), 0, 0, "t", "" },
        { SCRIPT "case $KUBERNETES_EXEC_INFO in *'\"interactive\":false'*'\"server\":"
                 "\"https://k.test:6443\"'*'\"certificate-authority-data\":\"" PEM_B64
                 "\"'*) ;; *) echo $KUBERNETES_EXEC_INFO >&2; exit 8;; esac\n" PRINT_TOKEN("t"),
          0, 0, "t", "" },
        /* A child that holds the pipes open is not waited for. */
        { SCRIPT "sleep 100 &\n" PRINT_TOKEN("t"), 0, 0, "t", "" },
        { SCRIPT "echo you are not logged in >&2; exit 3\n", 0, -ECHILD, "",
          "status 3: you are not logged in" },
        { SCRIPT "kill -9 $$\n", 0, -ECHILD, "", "signal 9" },
        { SCRIPT "echo waiting >&2; sleep 100\n", 300000, -ETIMEDOUT, "", "did not end within" },
        { SCRIPT "head -c 300000 /dev/zero\n", 0, -E2BIG, "", "more than" },
        { SCRIPT "head -c 3000000 /dev/zero >&2; echo; echo last words >&2; exit 1\n", 0, -ECHILD,
          "", "last words" },
        { SCRIPT "echo nothing\n", 0, -EINVAL, "", "ExecCredential" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct loop *loop = NULL;
        struct kube_exec_run *run = NULL;
        struct run_end e = { 0 };
        struct err err = { 0 };
        CLEANUP(kube_config_freep) struct kube_config *c = exec_config(rows[i].script);
        assert_int_equal(loop_new(&loop, NULL), 0);
        if (kube_exec_start(loop, c, STR(PEM), rows[i].run_us, on_run_end, &e, &run, &err) < 0)
            fail_msg("row %zu: %s", i, err.text);
        assert_int_equal(e.ends, 0);
        TURN_UNTIL(loop, e.ends == 1);
        if (e.rc != rows[i].rc || strcmp(e.token, rows[i].token) != 0 ||
            !strstr(e.problem, rows[i].says))
            fail_msg("row %zu: %d \"%s\" %s", i, e.rc, e.token, e.problem);
        loop_free(loop);
    }
}

static void a_program_that_is_not_there_says_how_to_get_it(void **state)
{
    (void)state;
    struct loop *loop = NULL;
    struct kube_exec_run *run = NULL;
    struct run_end e = { 0 };
    struct err err = { 0 };
    CLEANUP(kube_config_freep) struct kube_config *c = NULL;
    assert_int_equal(
        parse(CONFIG(SERVER, "exec: {apiVersion: " V1 ", command: muster-no-such-plugin, "
                             "installHint: apt install plugin}"),
              false, &c, &err),
        0);
    assert_int_equal(loop_new(&loop, NULL), 0);
    assert_int_equal(kube_exec_start(loop, c, STR(""), 0, on_run_end, &e, &run, &err), -ENOENT);
    assert_non_null(strstr(err.text, "muster-no-such-plugin is not installed: apt install plugin"));
    loop_free(loop);
}

static void a_program_that_is_stopped_ends(void **state)
{
    (void)state;
    struct loop *loop = NULL;
    struct kube_exec_run *run = NULL;
    struct run_end e = { 0 };
    char pid_path[256];
    CLEANUP(buf_fini) struct buf pid = { 0 };
    snprintf(pid_path, sizeof pid_path, "%s/pid", folder);
    char script[1024];
    snprintf(script, sizeof script, SCRIPT "echo $$ >%s.new; mv %s.new %s; sleep 100\n", pid_path,
             pid_path, pid_path);
    CLEANUP(kube_config_freep) struct kube_config *c = exec_config(script);
    assert_int_equal(loop_new(&loop, NULL), 0);
    assert_int_equal(kube_exec_start(loop, c, STR(""), 0, on_run_end, &e, &run, NULL), 0);
    TURN_UNTIL(loop, file_read(pid_path, 100, &pid, NULL) == 0);
    int64_t number;
    assert_int_equal(str_to_i64(str_of(pid.data, pid.len - 1), &number), 0);
    kube_exec_stop(run);
    TURN_UNTIL(loop, kill((pid_t)number, 0) < 0);
    assert_int_equal(e.ends, 0);
    loop_free(loop);
}

/* ---- credentials over time ---- */

struct auth {
    struct loop *loop;
    struct kube_auth *auth;
    int changes;
};

static void on_change(void *arg)
{
    ((struct auth *)arg)->changes++;
}

static void auth_open(struct auth *a, const struct kube_config *c)
{
    struct err err = { 0 };
    *a = (struct auth){ 0 };
    assert_int_equal(loop_new(&a->loop, NULL), 0);
    if (kube_auth_new(a->loop, c, on_change, a, &a->auth, &err) < 0) fail_msg("%s", err.text);
}

static void auth_close(struct auth *a)
{
    kube_auth_free(a->auth);
    loop_free(a->loop);
}

static uint64_t token_is(struct auth *a, const char *expected)
{
    struct kube_identity who;
    struct err err = { 0 };
    if (kube_auth_get(a->auth, &who, &err) < 0) fail_msg("%s", err.text);
    assert_str(who.token, expected);
    return who.generation;
}

static void a_token_file_is_read_again_after_a_refusal(void **state)
{
    (void)state;
    char text[1024];
    struct auth a;
    put("rotating", "t-1\n");
    put("ca", PEM);
    snprintf(text, sizeof text,
             CONFIG("server: \"https://k\", certificate-authority: %s", "tokenFile: %s"),
             path_of("ca"), path_of("rotating"));
    CLEANUP(kube_config_freep) struct kube_config *c = NULL;
    assert_int_equal(parse(text, false, &c, NULL), 0);
    auth_open(&a, c);
    uint64_t first = token_is(&a, "t-1");
    put("rotating", "t-2\n");
    assert_int_equal(token_is(&a, "t-1"), first); /* it is not looked at for every call */
    assert_true(kube_auth_refused(a.auth, first));
    uint64_t second = token_is(&a, "t-2");
    assert_true(second != first);
    assert_true(kube_auth_refused(a.auth, first));   /* a late answer to a call with the old one */
    assert_false(kube_auth_refused(a.auth, second)); /* there is nothing newer */
    assert_int_equal(remove(path_of("rotating")), 0);
    assert_false(kube_auth_refused(a.auth, second));
    token_is(&a, "t-2"); /* what was read stays in use */
    put("rotating", "");
    assert_false(kube_auth_refused(a.auth, second));
    token_is(&a, "t-2");
    auth_close(&a);
}

static void a_file_that_is_absent_at_the_start_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *user, *says;
    } rows[] = {
        { "tokenFile: /no/token", "token file /no/token" },
        { "client-certificate: /no/c, client-key: /no/k", "client-certificate /no/c" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char text[512];
        struct auth a = { 0 };
        struct err err = { 0 };
        CLEANUP(kube_config_freep) struct kube_config *c = NULL;
        snprintf(text, sizeof text, CONFIG(SERVER, "%s"), rows[i].user);
        assert_int_equal(parse(text, false, &c, NULL), 0);
        assert_int_equal(loop_new(&a.loop, NULL), 0);
        assert_int_equal(kube_auth_new(a.loop, c, on_change, &a, &a.auth, &err), -ENOENT);
        if (!strstr(err.text, rows[i].says)) fail_msg("row %zu: %s", i, err.text);
        loop_free(a.loop);
    }
}

static void a_program_runs_once_until_its_credential_expires(void **state)
{
    (void)state;
    char script[1024];
    struct auth a;
    struct kube_identity who;
    put("runs", "");
    /* The first credential has expired already, the second lasts. */
    snprintf(script, sizeof script,
             SCRIPT
             "echo x >>%s/runs\nif [ $(wc -l <%s/runs) = 1 ]; then\necho '%s'\nelse\n" PRINT_TOKEN(
                 "new") "fi\n",
             folder, folder,
             CREDENTIAL("\"token\":\"old\",\"expirationTimestamp\":\"2020-01-01T00:00:00Z\""));
    CLEANUP(kube_config_freep) struct kube_config *c = exec_config(script);
    auth_open(&a, c);
    assert_int_equal(kube_auth_get(a.auth, &who, NULL), -EAGAIN);
    assert_int_equal(kube_auth_get(a.auth, &who, NULL), -EAGAIN); /* still the first run */
    TURN_UNTIL(a.loop, a.changes == 1);
    assert_int_equal(kube_auth_get(a.auth, &who, NULL), -EAGAIN); /* expired: again */
    TURN_UNTIL(a.loop, a.changes == 2);
    token_is(&a, "new");
    uint64_t generation = token_is(&a, "new");
    CLEANUP(buf_fini) struct buf runs = { 0 };
    assert_int_equal(file_read(path_of("runs"), 100, &runs, NULL), 0);
    assert_int_equal(runs.len, 4); /* two lines */
    /* It was made just now, and so would be the next one. */
    assert_false(kube_auth_refused(a.auth, generation));
    token_is(&a, "new");
    auth_close(&a);
}

static void a_program_that_fails_is_not_run_for_every_call(void **state)
{
    (void)state;
    char script[256];
    struct auth a;
    struct kube_identity who;
    struct err err = { 0 };
    put("runs", "");
    snprintf(script, sizeof script, SCRIPT "echo x >>%s/runs\necho no login >&2; exit 1\n", folder);
    CLEANUP(kube_config_freep) struct kube_config *c = exec_config(script);
    auth_open(&a, c);
    assert_int_equal(kube_auth_get(a.auth, &who, &err), -EAGAIN);
    TURN_UNTIL(a.loop, a.changes == 1);
    for (int i = 0; i < 100; i++)
        assert_int_equal(kube_auth_get(a.auth, &who, &err), -EACCES);
    assert_non_null(strstr(err.text, "no login"));
    CLEANUP(buf_fini) struct buf runs = { 0 };
    assert_int_equal(file_read(path_of("runs"), 100, &runs, NULL), 0);
    assert_int_equal(runs.len, 2);
    auth_close(&a);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/muster-kube-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kubeconfig_gives_address_and_credentials),
        cmocka_unit_test(json_is_yaml_and_null_is_absent),
        cmocka_unit_test(a_wrong_field_is_named),
        cmocka_unit_test(what_is_allowed_expressly_is_accepted),
        cmocka_unit_test(an_exec_user_is_read_whole),
        cmocka_unit_test(several_files_are_merged_and_the_first_wins),
        cmocka_unit_test(a_pod_finds_its_cluster),
        cmocka_unit_test(base64_is_decoded_strictly),
        cmocka_unit_test(a_credential_is_read_or_its_fault_is_named),
        cmocka_unit_test(a_program_is_run_within_its_bounds),
        cmocka_unit_test(a_program_that_is_not_there_says_how_to_get_it),
        cmocka_unit_test(a_program_that_is_stopped_ends),
        cmocka_unit_test(a_token_file_is_read_again_after_a_refusal),
        cmocka_unit_test(a_file_that_is_absent_at_the_start_is_named),
        cmocka_unit_test(a_program_runs_once_until_its_credential_expires),
        cmocka_unit_test(a_program_that_fails_is_not_run_for_every_call),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return failed;
}
