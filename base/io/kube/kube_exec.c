/* kube_exec.c - runs a credential program, reads its two pipes, and decodes the ExecCredential it prints.
 *
 * The end is the end of the process and not of its pipes: a program may leave a child behind that holds
 * them open. What is in the pipes when the process has ended is read, no more. */
#include "base/io/kube/kube_exec.h"

#include "base/core/base64.h"
#include "base/core/fault.h"
#include "base/core/json.h"
#include "base/io/date.h"
#include "base/io/kube/kube_api.h"
#include "base/io/proc.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STDERR_BYTES 300 /* of the end of stderr, for the sentence */

struct pipe_end {
    struct loop_watch watch;
    struct kube_exec_run *run;
    struct buf text;
    bool is_stderr;
    bool overflow;
};

struct kube_exec_run {
    struct loop *loop;
    const struct kube_config *config;
    struct proc proc;
    struct loop_watch ended; /* its pidfd */
    struct loop_timer limit;
    struct pipe_end out, errors;
    int64_t run_us;
    bool late;
    void (*on_done)(void *arg, int rc, struct kube_credential *credential, const char *problem);
    void *arg;
};

static void wipe(struct buf *b)
{
    if (b->data) explicit_bzero(b->data, b->cap);
    buf_fini(b);
}

void kube_credential_fini(struct kube_credential *c)
{
    wipe(&c->token);
    wipe(&c->certificate);
    wipe(&c->key);
    c->expires_us = 0;
}

/* ---- the reply ---- */

static int read_status(struct json_reader *r, struct kube_credential *ret, struct err *err)
{
    const struct {
        const char *name;
        struct buf *to;
    } rows[] = { { "token", &ret->token },
                 { "clientCertificateData", &ret->certificate },
                 { "clientKeyData", &ret->key } };
    char expires[64] = "";
    if (json_next(r) != JSON_OBJECT)
        return err_set(err, -EINVAL, "ExecCredential: status is no object");
    while (json_next(r) == JSON_KEY) {
        size_t i = 0;
        while (i < 3 && !json_key_is(r, rows[i].name))
            i++;
        if (i < 3) {
            json_next(r);
            if (r->token != JSON_NULL && (r->token != JSON_STRING || json_text(r, rows[i].to) < 0))
                return err_set(err, -EINVAL, "ExecCredential: status.%s is no text", rows[i].name);
        } else if (json_key_is(r, "expirationTimestamp")) {
            json_next(r);
            if (kube_text(r, expires, sizeof expires) < 0 ||
                (expires[0] && date_parse(str_from(expires), &ret->expires_us) < 0))
                return err_set(err, -EINVAL,
                               "ExecCredential: status.expirationTimestamp is no RFC 3339 time");
        } else {
            json_skip(r);
        }
    }
    return r->token == JSON_OBJECT_END ? 0 : json_fail(r, err, "ExecCredential");
}

static int check_credential(const struct kube_credential *c, struct err *err)
{
    bool has_certificate = c->certificate.len > 0;
    if (has_certificate != (c->key.len > 0))
        return err_set(err, -EINVAL, "ExecCredential: status.%s is missing",
                       has_certificate ? "clientKeyData" : "clientCertificateData");
    if (c->token.len == 0 && !has_certificate)
        return err_set(err, -EINVAL,
                       "ExecCredential: status has neither token nor clientCertificateData");
    return 0;
}

int kube_credential_read(struct str json, struct str api_version, struct kube_credential *ret,
                         struct err *err)
{
    CLEANUP(kube_credential_fini) struct kube_credential c = { 0 };
    struct json_reader r;
    char kind[32] = "", version[64] = "";
    bool has_status = false;
    json_reader_init(&r, json);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "ExecCredential");
    while (json_next(&r) == JSON_KEY) {
        int rc = 0;
        if (json_key_is(&r, "kind")) {
            json_next(&r);
            rc = kube_text(&r, kind, sizeof kind);
        } else if (json_key_is(&r, "apiVersion")) {
            json_next(&r);
            rc = kube_text(&r, version, sizeof version);
        } else if (json_key_is(&r, "status") && !has_status) {
            has_status = true;
            rc = read_status(&r, &c, err);
            if (rc < 0) return rc;
        } else {
            json_skip(&r);
        }
        if (rc < 0) return json_fail(&r, err, "ExecCredential");
    }
    if (r.token != JSON_OBJECT_END || json_next(&r) != JSON_END)
        return json_fail(&r, err, "ExecCredential");
    if (strcmp(kind, "ExecCredential") != 0)
        return err_set(err, -EINVAL, "the output is no ExecCredential (kind \"%s\")", kind);
    if (!str_eq(str_from(version), api_version))
        return err_set(err, -EINVAL,
                       "ExecCredential: apiVersion is \"%s\", the kubeconfig says " STR_FMT,
                       version, STR_ARG(api_version));
    if (!has_status) return err_set(err, -EINVAL, "ExecCredential: status is missing");
    int rc = check_credential(&c, err);
    if (rc < 0) return rc;
    *ret = c;
    c = (struct kube_credential){ 0 };
    return 0;
}

/* ---- the request ---- */

static void put_info(struct buf *out, const struct kube_config *c, struct str ca)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "kind", "ExecCredential");
    json_kv_str(&w, "apiVersion", c->exec->api_version);
    json_key(&w, "spec");
    json_object(&w);
    json_kv_bool(&w, "interactive", false);
    if (c->exec->cluster_info) {
        CLEANUP(buf_fini) struct buf pem = { 0 };
        base64_put(&pem, ca);
        json_key(&w, "cluster");
        json_object(&w);
        json_kv_str(&w, "server", c->server);
        if (c->tls_name.len) json_kv_str(&w, "tls-server-name", c->tls_name);
        if (c->insecure) json_kv_bool(&w, "insecure-skip-tls-verify", true);
        if (pem.len) json_kv_str(&w, "certificate-authority-data", buf_view(&pem));
        if (c->proxy.len) json_kv_str(&w, "proxy-url", c->proxy);
        json_object_end(&w);
        if (pem.rc < 0 && out->rc == 0) out->rc = pem.rc;
    }
    json_object_end(&w);
    json_object_end(&w);
}

/* ---- the process ---- */

/* Reads what is there. Of stderr only the end is kept. */
static void pipe_read(struct pipe_end *p)
{
    char bytes[4096];
    ssize_t count;
    while ((count = read(p->watch.fd, bytes, sizeof bytes)) > 0) {
        if (p->is_stderr && p->text.len > STDERR_BYTES)
            buf_consume(&p->text, p->text.len - STDERR_BYTES);
        if (buf_append(&p->text, bytes, (size_t)count) < 0) p->overflow = true;
    }
    if (count == 0) loop_watch_del(p->run->loop, &p->watch); /* closed: it would report for ever */
}

static void run_free(struct kube_exec_run *run)
{
    wipe(&run->out.text);
    buf_fini(&run->errors.text);
    free(run);
}

/* Ends everything but the memory. */
static void run_close(struct kube_exec_run *run)
{
    loop_watch_del(run->loop, &run->ended);
    loop_timer_clear(run->loop, &run->limit);
    for (struct pipe_end *ends[] = { &run->out, &run->errors }, **p = ends; p < ends + 2; p++) {
        loop_watch_del(run->loop, &(*p)->watch);
        if ((*p)->watch.fd >= 0) close((*p)->watch.fd);
        (*p)->watch.fd = -1;
    }
    if (run->proc.id.pid) proc_close(&run->proc);
    run->proc = (struct proc){ 0 };
}

/* Writes what the program said last, on one line. */
static void last_words(struct buf *errors, char ret[STDERR_BYTES + 1])
{
    struct str s = buf_view(errors);
    if (s.len > STDERR_BYTES) s = str_of(s.data + s.len - STDERR_BYTES, STDERR_BYTES);
    while (s.len > 0 && (unsigned char)s.data[s.len - 1] <= ' ')
        s.len--;
    for (size_t i = 0; i < s.len; i++)
        ret[i] = (unsigned char)s.data[i] < ' ' ? ' ' : s.data[i];
    ret[s.len] = 0;
}

static void run_done(struct kube_exec_run *run, int rc, struct kube_credential *credential,
                     const char *problem)
{
    void (*on_done)(void *, int, struct kube_credential *, const char *) = run->on_done;
    void *arg = run->arg;
    run_close(run);
    run_free(run);
    on_done(arg, rc, credential, problem);
}

static void judge(struct kube_exec_run *run, const struct proc_exit *how)
{
    CLEANUP(kube_credential_fini) struct kube_credential c = { 0 };
    const char *name = run->config->exec->argv[0];
    char words[STDERR_BYTES + 1];
    struct err err = { 0 }, why = { 0 };
    int rc = 0;
    last_words(&run->errors.text, words);
    if (run->late)
        rc = err_set(&err, -ETIMEDOUT, "%s did not end within %lld s%s%s", name,
                     (long long)(run->run_us / 1000000), words[0] ? ": " : "", words);
    else if (how->killed || how->code != 0)
        rc = err_set(&err, -ECHILD, "%s ended with %s %d%s%s", name,
                     how->killed ? "signal" : "status", how->code, words[0] ? ": " : "", words);
    else if (run->out.overflow)
        rc = err_set(&err, -E2BIG, "%s printed more than %zu bytes", name, KUBE_EXEC_BYTES_MAX);
    else if (kube_credential_read(buf_view(&run->out.text), run->config->exec->api_version, &c,
                                  &why) < 0)
        rc = err_set(&err, -EINVAL, "%s: %s", name, why.text);
    run_done(run, rc, &c, err.text);
}

static void on_ended(void *arg, uint32_t events)
{
    (void)events;
    struct kube_exec_run *run = arg;
    struct proc_exit how = { 0 };
    if (proc_reap(&run->proc, &how) == -EAGAIN) return;
    pipe_read(&run->out);
    pipe_read(&run->errors);
    judge(run, &how);
}

static void on_pipe(void *arg, uint32_t events)
{
    (void)events;
    pipe_read(arg);
}

/* The process is killed here and judged when it has ended. */
static void on_limit(void *arg)
{
    struct kube_exec_run *run = arg;
    run->late = true;
    proc_signal_group(&run->proc.id, SIGKILL, NULL);
}

static int pipe_open(struct pipe_end *p, int *ret_theirs, struct err *err)
{
    int ends[2];
    if (FAULT("kube_exec.pipe") || pipe2(ends, O_CLOEXEC) < 0)
        return err_set(err, -EMFILE, "no descriptors left for a pipe");
    p->watch.fd = ends[0];
    *ret_theirs = ends[1];
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return 0;
}

static int spawn(struct kube_exec_run *run, struct str ca, struct err *err)
{
    const struct kube_exec *x = run->config->exec;
    CLEANUP(buf_fini) struct buf info = { 0 };
    const char *env[KUBE_EXEC_ARGS_MAX + 2];
    size_t count = 0;
    int theirs[2] = { -1, -1 };
    for (; x->env[count]; count++)
        env[count] = x->env[count];
    buf_text(&info, "KUBERNETES_EXEC_INFO=");
    put_info(&info, run->config, ca);
    if (info.rc < 0) return err_set(err, info.rc, "no memory to run %s", x->argv[0]);
    env[count] = info.data;
    env[count + 1] = NULL;
    int rc = pipe_open(&run->out, &theirs[0], err);
    if (rc == 0) rc = pipe_open(&run->errors, &theirs[1], err);
    struct proc_spec spec = {
        .argv = x->argv, .env_add = env, .out_fd = theirs[0], .err_fd = theirs[1]
    };
    if (rc == 0) rc = proc_spawn(&spec, &run->proc, err);
    for (int i = 0; i < 2; i++)
        if (theirs[i] >= 0) close(theirs[i]);
    return rc;
}

static int watch_all(struct kube_exec_run *run, struct err *err)
{
    run->ended.fd = run->proc.pidfd;
    int rc = loop_watch_add(run->loop, &run->ended, EPOLLIN);
    if (rc == 0) rc = loop_watch_add(run->loop, &run->out.watch, EPOLLIN);
    if (rc == 0) rc = loop_watch_add(run->loop, &run->errors.watch, EPOLLIN);
    if (rc == 0) rc = loop_timer_set(run->loop, &run->limit, loop_now_us(run->loop) + run->run_us);
    return rc < 0 ? err_set(err, rc, "%s cannot be watched: %s", run->config->exec->argv[0],
                            strerror(-rc))
                  : 0;
}

int kube_exec_start(struct loop *l, const struct kube_config *c, struct str ca, int64_t run_us,
                    void (*on_done)(void *arg, int rc, struct kube_credential *credential,
                                    const char *problem),
                    void *arg, struct kube_exec_run **ret, struct err *err)
{
    struct kube_exec_run *run = calloc(1, sizeof *run);
    if (!run) return err_set(err, -ENOMEM, "no memory to run %s", c->exec->argv[0]);
    run->loop = l;
    run->config = c;
    run->run_us = run_us ? run_us : KUBE_EXEC_US;
    run->on_done = on_done;
    run->arg = arg;
    run->ended = (struct loop_watch){ .fd = -1, .fn = on_ended, .arg = run };
    run->limit = (struct loop_timer){ .fn = on_limit, .arg = run };
    run->out = (struct pipe_end){ .run = run };
    run->errors = (struct pipe_end){ .run = run, .is_stderr = true };
    run->out.watch = (struct loop_watch){ .fd = -1, .fn = on_pipe, .arg = &run->out };
    run->errors.watch = (struct loop_watch){ .fd = -1, .fn = on_pipe, .arg = &run->errors };
    buf_init(&run->out.text, KUBE_EXEC_BYTES_MAX);
    int rc = spawn(run, ca, err);
    if (rc == -ENOENT && c->exec->install_hint.len > 0)
        err_set(err, rc, "%s is not installed: " STR_FMT, c->exec->argv[0],
                STR_ARG(c->exec->install_hint));
    if (rc == 0) rc = watch_all(run, err);
    if (rc < 0) {
        kube_exec_stop(run);
        return rc;
    }
    *ret = run;
    return 0;
}

void kube_exec_stop(struct kube_exec_run *run)
{
    if (!run) return;
    if (run->proc.id.pid) {
        struct proc_exit how;
        proc_signal_group(&run->proc.id, SIGKILL, NULL);
        proc_wait(&run->proc, 1000000, &how); /* a killed process ends at once */
    }
    run_close(run);
    run_free(run);
}
