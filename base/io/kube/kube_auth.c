/* kube_auth.c - reads credentials from files and programs, and notices when they change.
 *
 * Files are read on the loop: they are small and on a local or in-memory file system, where Kubernetes
 * projects tokens. A change is seen by inode, size and time, because a projected token is replaced by
 * renaming a link; the content is read only then.
 *
 * A date is needed once: when a program says until when its credential is valid. It is turned into a time on
 * the loop's clock at once, so that a later step of the date moves nothing. */
#include "base/io/kube/kube_auth.h"

#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/io/file.h"
#include "base/io/kube/kube_exec.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A credential is renewed a tenth of its life before its end, at most this. */
#define AHEAD_US_MAX 60000000
#define FILES 4

struct watched_file {
    const char *field; /* for sentences */
    struct str path;   /* empty: none */
    size_t bytes_max;
    struct buf text;
    struct timespec changed;
    uint64_t inode;
    int64_t size;
    bool loaded;
};

struct kube_auth {
    struct loop *loop;
    const struct kube_config *config;
    struct watched_file ca, certificate, key, token;
    int64_t looked_us;                 /* 0: look at the next use */
    struct kube_credential credential; /* of the program */
    int64_t renew_us, expires_us;      /* on the loop's clock; INT64_MAX: never */
    int64_t failed_us;                 /* when the last run failed; 0: it did not */
    int64_t got_us;                    /* when the credential came */
    struct kube_exec_run *run;
    struct err problem; /* of the last run */
    bool has_credential, refused;
    uint64_t generation;
    struct kube_auth_counts counts;
    void (*on_change)(void *arg);
    void *arg;
};

/* ---- files ---- */

static bool is_same(const struct watched_file *f, const struct stat *st)
{
    return f->loaded && f->inode == st->st_ino && f->size == st->st_size &&
           f->changed.tv_sec == st->st_mtim.tv_sec && f->changed.tv_nsec == st->st_mtim.tv_nsec;
}

/* Reads a file that has changed. *changed is set when its content has. */
static int file_look(struct watched_file *f, bool *changed, struct err *err)
{
    if (f->path.len == 0) return 0;
    struct stat st;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (stat(f->path.data, &st) < 0)
        return err_set(err, -errno, "%s " STR_FMT ": %s", f->field, STR_ARG(f->path),
                       strerror(errno));
    if (is_same(f, &st)) return 0;
    int rc = file_read(f->path.data, f->bytes_max, &text, err);
    if (rc < 0) return err_prefix(err, rc, "%s", f->field);
    struct str s = buf_view(&text);
    while (s.len > 0 && (unsigned char)s.data[s.len - 1] <= ' ')
        s.len--;
    if (s.len == 0)
        return err_set(err, -EINVAL, "%s " STR_FMT " is empty", f->field, STR_ARG(f->path));
    if (!f->loaded || !str_eq(s, buf_view(&f->text))) {
        buf_clear(&f->text);
        if (buf_str(&f->text, s) < 0) return err_set(err, f->text.rc, "no memory for %s", f->field);
        *changed = true;
    }
    f->changed = st.st_mtim;
    f->inode = st.st_ino;
    f->size = st.st_size;
    f->loaded = true;
    return 0;
}

/* Looks at all files. A new certificate without its key yet is used once both have changed: TLS tells. */
static int files_look(struct kube_auth *a, struct err *err)
{
    struct watched_file *const files[FILES] = { &a->ca, &a->certificate, &a->key, &a->token };
    bool changed = false;
    int first = 0;
    for (size_t i = 0; i < FILES; i++) {
        int rc = file_look(files[i], &changed, first == 0 ? err : NULL);
        if (first == 0) first = rc;
    }
    a->looked_us = loop_now_us(a->loop);
    if (changed) {
        a->generation++;
        a->counts.renewed++;
    }
    return first;
}

/* ---- programs ---- */

static void on_credential(void *arg, int rc, struct kube_credential *credential,
                          const char *problem)
{
    struct kube_auth *a = arg;
    int64_t now_us = loop_now_us(a->loop);
    a->run = NULL;
    if (rc < 0) {
        a->counts.failed++;
        a->failed_us = now_us;
        err_set(&a->problem, rc, "%s", problem);
        log_event(LOG_WARN, "kube_credential_failed", "problem=%s", problem);
    } else {
        int64_t life_us =
            credential->expires_us ? credential->expires_us - clock_wall_us() : INT64_MAX;
        kube_credential_fini(&a->credential);
        a->credential = *credential;
        *credential = (struct kube_credential){ 0 };
        a->has_credential = true;
        a->refused = false;
        a->failed_us = 0;
        a->got_us = now_us;
        a->generation++;
        a->counts.renewed++;
        a->expires_us = a->renew_us = INT64_MAX;
        if (life_us != INT64_MAX) {
            a->expires_us = now_us + life_us;
            a->renew_us = a->expires_us - max_i64(0, min_i64(life_us / 10, AHEAD_US_MAX));
        }
    }
    a->on_change(a->arg);
}

/* Starts the program unless it runs or has just failed. */
static void renew(struct kube_auth *a)
{
    int64_t now_us = loop_now_us(a->loop);
    if (a->run || (a->failed_us && now_us < a->failed_us + KUBE_AUTH_AGAIN_US)) return;
    struct str ca = a->ca.loaded ? buf_view(&a->ca.text) : a->config->ca.pem;
    int rc = kube_exec_start(a->loop, a->config, ca, 0, on_credential, a, &a->run, &a->problem);
    if (rc == 0) return;
    a->counts.failed++;
    a->failed_us = now_us;
    log_event(LOG_WARN, "kube_credential_failed", "problem=%s", a->problem.text);
}

static int credential_get(struct kube_auth *a, struct kube_identity *ret, struct err *err)
{
    int64_t now_us = loop_now_us(a->loop);
    bool usable = a->has_credential && now_us < a->expires_us && !a->refused;
    if (!usable || now_us >= a->renew_us) renew(a);
    if (!usable && a->run) return -EAGAIN;
    if (!usable) return err_set(err, -EACCES, "%s", err_text(&a->problem, -EACCES));
    ret->token = buf_view(&a->credential.token);
    ret->tls.certificate = buf_view(&a->credential.certificate);
    ret->tls.key = buf_view(&a->credential.key);
    return 0;
}

/* ---- use ---- */

int kube_auth_get(struct kube_auth *a, struct kube_identity *ret, struct err *err)
{
    const struct kube_config *c = a->config;
    struct err problem = { 0 };
    if (a->looked_us == 0 || loop_now_us(a->loop) >= a->looked_us + KUBE_AUTH_LOOK_US) {
        int rc = files_look(a, &problem);
        if (rc < 0) {
            a->counts.failed++;
            log_event(LOG_WARN, "kube_credential_failed", "problem=%s", problem.text);
        }
    }
    *ret = (struct kube_identity){
        .token = a->token.loaded ? buf_view(&a->token.text) : c->token,
        .tls = { .ca = a->ca.loaded ? buf_view(&a->ca.text) : c->ca.pem,
                 .certificate =
                     a->certificate.loaded ? buf_view(&a->certificate.text) : c->certificate.pem,
                 .key = a->key.loaded ? buf_view(&a->key.text) : c->key.pem,
                 .name = c->tls_name,
                 .insecure = c->insecure },
    };
    int rc = c->exec ? credential_get(a, ret, err) : 0;
    ret->generation = a->generation;
    return rc;
}

bool kube_auth_refused(struct kube_auth *a, uint64_t generation)
{
    if (generation != a->generation) return true; /* others are there already */
    if (a->config->exec) { /* one that is new and refused would only be made again */
        a->refused |= loop_now_us(a->loop) >= a->got_us + KUBE_AUTH_AGAIN_US;
        return a->refused;
    }
    if (files_look(a, NULL) < 0) a->counts.failed++;
    return generation != a->generation;
}

void kube_auth_counts_get(const struct kube_auth *a, struct kube_auth_counts *ret)
{
    *ret = a->counts;
}

/* ---- life ---- */

int kube_auth_new(struct loop *l, const struct kube_config *config, void (*on_change)(void *arg),
                  void *arg, struct kube_auth **ret, struct err *err)
{
    CLEANUP(kube_auth_freep) struct kube_auth *a = calloc(1, sizeof *a);
    if (!a) return err_set(err, -ENOMEM, "no memory for credentials");
    a->loop = l;
    a->config = config;
    a->on_change = on_change;
    a->arg = arg;
    a->ca = (struct watched_file){ .field = "certificate-authority",
                                   .path = config->ca.path,
                                   .bytes_max = KUBE_PEM_BYTES_MAX };
    a->certificate = (struct watched_file){ .field = "client-certificate",
                                            .path = config->certificate.path,
                                            .bytes_max = KUBE_PEM_BYTES_MAX };
    a->key = (struct watched_file){ .field = "client-key",
                                    .path = config->key.path,
                                    .bytes_max = KUBE_PEM_BYTES_MAX };
    a->token = (struct watched_file){ .field = "token file",
                                      .path = config->token_path,
                                      .bytes_max = KUBE_TOKEN_BYTES_MAX };
    int rc = files_look(a, err);
    if (rc < 0) return rc;
    *ret = TAKE(a);
    return 0;
}

void kube_auth_free(struct kube_auth *a)
{
    if (!a) return;
    kube_exec_stop(a->run);
    kube_credential_fini(&a->credential);
    struct watched_file *const files[FILES] = { &a->ca, &a->certificate, &a->key, &a->token };
    for (size_t i = 0; i < FILES; i++) {
        if (files[i]->text.data) explicit_bzero(files[i]->text.data, files[i]->text.cap);
        buf_fini(&files[i]->text);
    }
    free(a);
}
