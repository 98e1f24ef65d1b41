/* kube_rig.c - certificates, command lines and kubeconfigs of API servers, and calls of a test.
 *
 * The real server is what tests/kube starts, less everything that needs a controller or the right of a
 * superuser: no service accounts, no authorization. */
#include "tests/proc/kube/kube_rig.h"

#include "base/core/bits.h"
#include "base/io/file.h"
#include "tests/certs.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN "first-token"

const struct kube_resource kube_pods = { "", "v1", "pods", false };
const struct kube_resource kube_configmaps = { "", "v1", "configmaps", false };
const struct kube_resource kube_deployments = { "apps", "v1", "deployments", false };
const struct kube_resource kube_budgets = { "policy", "v1", "poddisruptionbudgets", false };
const struct kube_resource kube_namespaces = { "", "v1", "namespaces", true };
const struct kube_resource kube_leases = { "coordination.k8s.io", "v1", "leases", false };

/* ---- servers ---- */

static bool files_make(struct kube_server *s)
{
    static bool made, good;
    char text[1024];
    if (!made) {
        made = true;
        good = certs_make(rig_folder());
        if (!good) print_message("skipped: no openssl command makes certificates here\n");
    }
    if (!good) return false;
    snprintf(s->ca, sizeof s->ca, "%s/ca.pem", rig_folder());
    snprintf(text, sizeof text, "token-%s", s->real ? "real" : "fake");
    rig_file(s->token_path, text, TOKEN "\n");
    char name[64];
    snprintf(name, sizeof name, "kubeconfig-%s", s->real ? "real" : "fake");
    snprintf(text, sizeof text,
             "apiVersion: v1\nkind: Config\ncurrent-context: test\n"
             "contexts:\n- name: test\n  context: {cluster: test, user: test}\n"
             "clusters:\n- name: test\n  cluster: {server: \"https://127.0.0.1:%u\", "
             "certificate-authority: ca.pem}\n"
             "users:\n- name: test\n  user: {tokenFile: %s}\n",
             s->port, s->token_path);
    rig_file(s->kubeconfig, name, text);
    return true;
}

static void api_start_fake(struct kube_server *s, const char *const *more)
{
    char port[8], control[8], pem[RIG_PATH], key[RIG_PATH];
    snprintf(port, sizeof port, "%u", s->port);
    snprintf(control, sizeof control, "%u", s->control);
    snprintf(pem, sizeof pem, "%s/good.pem", rig_folder());
    snprintf(key, sizeof key, "%s/good.key", rig_folder());
    const char *argv[RIG_ARGS_MAX] = { getenv("FAKE_KUBE_BIN"),
                                       "--port",
                                       port,
                                       "--control-port",
                                       control,
                                       "--certificate",
                                       pem,
                                       "--key",
                                       key,
                                       "--token",
                                       TOKEN };
    rig_add_args(argv, 11, more);
    s->api = rig_start("fake_kube", argv, s->control, "/seen", 200);
}

bool kube_rig_fake(struct kube_server *s, const char *const *more)
{
    *s = (struct kube_server){ .port = rig_port(), .control = rig_port() };
    if (!rig_can_run(ARGS("FAKE_KUBE_BIN")) || !files_make(s)) return false;
    api_start_fake(s, more);
    return true;
}

/* Returns the path of a program of the cache, or NULL. */
static const char *cached(const char *name)
{
    static char path[RIG_PATH];
    const char *cache = getenv("MUSTER_KUBE_CACHE"), *home = getenv("HOME");
    if (cache)
        snprintf(path, sizeof path, "%s/bin/%s", cache, name);
    else
        snprintf(path, sizeof path, "%s/.cache/muster/kube/bin/%s", home ? home : "", name);
    return access(path, X_OK) == 0 ? path : NULL;
}

static bool api_answers(void *arg)
{
    struct kube_server *s = arg;
    struct kube_world w = kube_world_open(s, (struct kube_client_config){ 0 });
    struct kube_seen seen = { 0 };
    if (!rig_is_alive(&s->api)) fail_msg("kube-apiserver has ended; see %s", s->api.log);
    kube_do(&w, &seen,
            (struct kube_request){ .verb = KUBE_GET,
                                   .resource = &kube_namespaces,
                                   .name = STR(KUBE_RIG_NS),
                                   .deadline_us = clock_mono_us() + 2000000 });
    bool answers = seen.reply.rc == 0;
    kube_seen_fini(&seen);
    kube_world_close(&w);
    return answers;
}

static void api_start_real(struct kube_server *s)
{
    char port[32], etcd[64], pem[RIG_PATH + 32], key[RIG_PATH + 32], tokens[RIG_PATH + 32],
        sa[RIG_PATH + 64], signing[RIG_PATH + 64], certs[RIG_PATH], clients[RIG_PATH + 32];
    snprintf(port, sizeof port, "--secure-port=%u", s->port);
    snprintf(etcd, sizeof etcd, "--etcd-servers=http://127.0.0.1:%u", s->etcd_port);
    snprintf(pem, sizeof pem, "--tls-cert-file=%s/good.pem", rig_folder());
    snprintf(key, sizeof key, "--tls-private-key-file=%s/good.key", rig_folder());
    snprintf(tokens, sizeof tokens, "--token-auth-file=%s/tokens.csv", rig_folder());
    snprintf(sa, sizeof sa, "--service-account-key-file=%s/good.pem", rig_folder());
    snprintf(signing, sizeof signing, "--service-account-signing-key-file=%s/good.key",
             rig_folder());
    snprintf(clients, sizeof clients, "--client-ca-file=%s/ca.pem", rig_folder());
    snprintf(certs, sizeof certs, "--cert-dir=%s", rig_folder());
    const char *const argv[] = { cached("kube-apiserver"),
                                 "--bind-address=127.0.0.1",
                                 "--advertise-address=127.0.0.1",
                                 "--endpoint-reconciler-type=none",
                                 "--authorization-mode=AlwaysAllow",
                                 "--disable-admission-plugins=ServiceAccount",
                                 "--service-cluster-ip-range=10.96.0.0/16",
                                 "--service-account-issuer=https://kubernetes.default.svc",
                                 port,
                                 etcd,
                                 pem,
                                 key,
                                 tokens,
                                 sa,
                                 signing,
                                 certs,
                                 clients,
                                 NULL };
    s->api = rig_start("kube-apiserver", argv, s->port, "", 0);
    int64_t until_us = clock_mono_us() + 2 * (int64_t)RIG_WAIT_US;
    while (!api_answers(s) && clock_mono_us() < until_us)
        usleep(100000);
}

static void etcd_start(struct kube_server *s)
{
    char client[64], peer[64], data[RIG_PATH], cluster[96];
    snprintf(client, sizeof client, "http://127.0.0.1:%u", s->etcd_port);
    snprintf(peer, sizeof peer, "http://127.0.0.1:%u", rig_port());
    snprintf(data, sizeof data, "%s/etcd", rig_folder());
    snprintf(cluster, sizeof cluster, "test=%s", peer);
    const char *const argv[] = { "etcd",
                                 "--name=test",
                                 "--unsafe-no-fsync",
                                 "--data-dir",
                                 data,
                                 "--listen-client-urls",
                                 client,
                                 "--advertise-client-urls",
                                 client,
                                 "--listen-peer-urls",
                                 peer,
                                 "--initial-advertise-peer-urls",
                                 peer,
                                 "--initial-cluster",
                                 cluster,
                                 NULL };
    s->etcd = rig_start("etcd", argv, s->etcd_port, "/health", 200);
}

bool kube_rig_real(struct kube_server *s)
{
    char path[RIG_PATH];
    *s = (struct kube_server){ .real = true, .port = rig_port(), .etcd_port = rig_port() };
    if (!cached("kube-apiserver")) {
        print_message("skipped: no kube-apiserver in the cache; tests/kube/fetch builds it\n");
        return false;
    }
    if (access("/usr/bin/etcd", X_OK) != 0 && access("/usr/local/bin/etcd", X_OK) != 0) {
        print_message("skipped: etcd is not installed (package etcd-server)\n");
        return false;
    }
    if (!files_make(s)) return false;
    rig_file(path, "tokens.csv",
             TOKEN ",test,test,system:masters\nsecond-token,test,test,system:masters\n");
    etcd_start(s);
    api_start_real(s);
    return true;
}

void kube_rig_end(struct kube_server *s)
{
    if (s->api.proc.id.pid) kube_rig_resume(s);
    rig_kill(&s->api);
    rig_kill(&s->etcd);
}

void kube_rig_post(const struct kube_server *s, const char *path, const char *body)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    must(!s->real);
    int status = rig_call(s->control, path, body, &reply);
    if (status != 200) fail_msg("POST %s %s: %d", path, body, status);
}

int64_t kube_rig_seen(const struct kube_server *s, const char *key)
{
    return rig_number(s->control, "/seen", key);
}

void kube_rig_token(const struct kube_server *s, const char *token)
{
    assert_int_equal(file_write_atomic(s->token_path, str_from(token), 0600, NULL), 0);
}

int kube_rig_both(int (*run)(struct kube_server *s))
{
    struct kube_server fake, real;
    if (!kube_rig_fake(&fake, ARGS(NULL))) return RIG_SKIP;
    print_message("---- the scripted server\n");
    int failed = run(&fake);
    kube_rig_end(&fake);
    if (kube_rig_real(&real)) {
        print_message("---- kube-apiserver\n");
        failed += run(&real);
        kube_rig_end(&real);
    }
    return rig_end(failed);
}

void kube_rig_pause(const struct kube_server *s)
{
    assert_int_equal(proc_signal(&s->api.proc.id, SIGSTOP, NULL), 0);
}

void kube_rig_resume(const struct kube_server *s)
{
    proc_signal(&s->api.proc.id, SIGCONT, NULL);
}

void kube_rig_restart(struct kube_server *s)
{
    if (s->real) {
        rig_kill(&s->api);
        api_start_real(s);
    } else {
        kube_rig_post(s, "/restart", "{}");
        kube_rig_post(s, "/compact", "{}");
    }
}

/* ---- calls ---- */

struct kube_world kube_world_open(struct kube_server *s, struct kube_client_config config)
{
    const struct kube_source source = { .path = s->kubeconfig };
    return kube_world_from(s, &source, config);
}

struct kube_world kube_world_from(struct kube_server *s, const struct kube_source *source,
                                  struct kube_client_config config)
{
    struct kube_world w = { .server = s };
    struct err err = { 0 };
    if (config.back_off_us == 0) config.back_off_us = 20000;
    if (config.back_off_us_max == 0) config.back_off_us_max = 500000;
    if (config.calls_per_s == 0) config.calls_per_s = 2000, config.burst = 2000;
    assert_int_equal(loop_new(&w.loop, &err), 0);
    if (kube_config_load(source, &w.config, &err) < 0) fail_msg("%s", err.text);
    if (kube_client_new(w.loop, w.config, &config, &w.client, &err) < 0) fail_msg("%s", err.text);
    return w;
}

struct kube_world kube_world_fresh(struct kube_server *s)
{
    kube_rig_post(s, "/script", "{\"count\":0}");
    kube_rig_post(s, "/set", "{\"token\":\"" TOKEN "\",\"bookmark_ms\":60000,\"linger_ms\":0}");
    kube_rig_post(s, "/restart", "{\"empty\":true}");
    return kube_world_open(s, (struct kube_client_config){ 0 });
}

void kube_world_close(struct kube_world *w)
{
    kube_client_free(w->client);
    kube_config_free(w->config);
    loop_free(w->loop);
}

static void on_end(void *arg, const struct kube_reply *reply)
{
    struct kube_seen *s = arg;
    s->ends++;
    s->reply = *reply;
    s->call = NULL;
    snprintf(s->problem, sizeof s->problem, "%s", reply->problem);
    if (reply->body.len > 0) buf_str(&s->body, reply->body);
    buf_byte(&s->body, 0); /* a C string too */
    s->body.len--;
    s->reply.problem = s->problem;
    s->reply.body = buf_view(&s->body);
}

void kube_seen_fini(struct kube_seen *s)
{
    buf_fini(&s->body);
    *s = (struct kube_seen){ 0 };
}

void kube_go(struct kube_world *w, struct kube_seen *s, struct kube_request req)
{
    struct err err = { 0 };
    kube_seen_fini(s);
    req.on_end = on_end;
    req.arg = s;
    if (!req.resource->cluster && req.ns.len == 0) req.ns = STR(KUBE_RIG_NS);
    if (kube_start(w->client, &req, &s->call, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(s->ends, 0);
}

void kube_do(struct kube_world *w, struct kube_seen *s, struct kube_request req)
{
    kube_go(w, s, req);
    KUBE_UNTIL(w, s->ends == 1);
}

void kube_expect(struct kube_world *w, struct kube_request req, int rc, const char *says)
{
    struct kube_seen s = { 0 };
    kube_do(w, &s, req);
    if (s.reply.rc != rc || !strstr(s.problem, says))
        fail_msg("%d %s; expected %d", s.reply.rc, s.problem, rc);
    assert_true((rc == 0) == (s.problem[0] == 0));
    kube_seen_fini(&s);
}

struct kube_meta kube_must(struct kube_world *w, struct kube_request req)
{
    struct kube_seen s = { 0 };
    struct kube_meta meta = { 0 };
    struct err err = { 0 };
    kube_do(w, &s, req);
    if (s.reply.rc < 0) fail_msg("%s", s.problem);
    if (req.verb != KUBE_DELETE && req.verb != KUBE_EVICT &&
        kube_meta_read(s.reply.body, &meta, &err) < 0)
        fail_msg("%s", err.text);
    kube_seen_fini(&s);
    return meta;
}

struct kube_meta kube_make_map(struct kube_world *w, const char *name, const char *value)
{
    char body[512];
    snprintf(
        body, sizeof body,
        "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"%s\",\"labels\":"
        "{\"app\":\"kube-rig\"}},\"data\":{\"a\":\"%s\"}}",
        name, value);
    return kube_must(w, (struct kube_request){ .verb = KUBE_CREATE,
                                               .resource = &kube_configmaps,
                                               .body = str_from(body) });
}

void kube_set_map(struct kube_world *w, const char *name, const char *value)
{
    char body[512];
    snprintf(body, sizeof body, "{\"data\":{\"a\":\"%s\"}}", value);
    kube_must(w, (struct kube_request){ .verb = KUBE_PATCH,
                                        .resource = &kube_configmaps,
                                        .name = str_from(name),
                                        .body = str_from(body) });
}

void kube_delete_map(struct kube_world *w, const char *name)
{
    kube_must(w, (struct kube_request){
                     .verb = KUBE_DELETE, .resource = &kube_configmaps, .name = str_from(name) });
}
