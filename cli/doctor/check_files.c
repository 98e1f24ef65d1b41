/* check_files.c - checks of what lies on this machine's disk: configuration, state, secret, store, models. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/models.h"
#include "base/io/store/store.h"
#include "base/text/bundle.h"
#include "cli/doctor/doctor.h"
#include "cli/schema.h"
#include "controller/cloud/kube/kube_section.h"
#include "controller/setup.h"
#include "engine/files/gguf_shards.h"
#include "engine/files/vocab_gguf.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DISK_LEAST ((uint64_t)100 << 20) /* the store and the logs stop soon */
#define DISK_ENOUGH ((uint64_t)1 << 30)  /* the store and the logs may take that much */
/* A larger file is read with --digest only: it takes a while. */
#define DIGEST_BYTES ((uint64_t)1 << 30)
#define MADE_AT_START "is made at the first start"

void check_configuration(struct doctor *d)
{
    CLEANUP(buf_fini) struct buf problems = { 0 };
    CLEANUP(config_freep) struct config *config = NULL;
    struct err err = { 0 };
    if (!d->file) {
        doctor_say(d, CHECK_SKIPPED, "name one with -f",
                   "no file was named, and there is none here");
        return;
    }
    int rc = check_file(d->file, &config, &problems, &err);
    if (rc < 0)
        doctor_say(d, CHECK_FAILED, "`muster config check FILE` lists all problems", "%s",
                   err_text(&err, rc));
    else
        doctor_say(d, CHECK_OK, NULL, "%s is valid", d->file);
}

/* ---- state ---- */

/* Returns true if we may make the state folder. */
static bool may_be_made(const struct doctor *d)
{
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, STR_FMT, STR_ARG(d->state));
    char *slash = strrchr(parent, '/');
    if (!slash) return access(".", W_OK) == 0;
    slash[slash == parent] = 0;
    return access(parent, F_OK) < 0 || access(parent, W_OK) == 0; /* folders above are made too */
}

void check_state(struct doctor *d)
{
    struct stat st;
    const char *path = d->state.data;
    if (stat(path, &st) < 0) {
        if (may_be_made(d))
            doctor_say(d, CHECK_OK, NULL, "%s " MADE_AT_START, path);
        else
            doctor_say(d, CHECK_FAILED, "name another with controller.state or --state",
                       "%s is not there and cannot be made", path);
        return;
    }
    if (!S_ISDIR(st.st_mode))
        doctor_say(d, CHECK_FAILED, "name another with controller.state or --state",
                   "%s is no folder", path);
    else if (st.st_uid != geteuid())
        doctor_say(d, CHECK_FAILED, "run as its owner", "%s belongs to user %u, and we are user %u",
                   path, (unsigned)st.st_uid, (unsigned)geteuid());
    else if (access(path, W_OK | X_OK) < 0)
        doctor_say(d, CHECK_FAILED, "make room, or mount it writable", "%s cannot be written: %s",
                   path, strerror(errno));
    else if (st.st_mode & 077)
        doctor_say(d, CHECK_WARNING, "chmod 700 it", "%s is open to other users (mode %o)", path,
                   (unsigned)st.st_mode & 0777);
    else
        doctor_say(d, CHECK_OK, NULL, "%s is ours and writable", path);
}

/* Finds the secret's file: the fleet's record, the configuration, or the usual name. */
static int secret_path(const struct doctor *d, char ret[PATH_MAX])
{
    if (d->fleet.secret[0]) {
        snprintf(ret, PATH_MAX, "%s", d->fleet.secret);
        return 0;
    }
    if (d->config) {
        const struct controller_section *c = config_section_get(d->config, controller_section.name);
        if (c->secret_file.len) {
            snprintf(ret, PATH_MAX, STR_FMT, STR_ARG(c->secret_file));
            return 0;
        }
    }
    return doctor_path(d, "secret", ret);
}

void check_secret(struct doctor *d)
{
    char path[PATH_MAX];
    struct stat st;
    if (secret_path(d, path) < 0) return;
    if (stat(path, &st) < 0)
        doctor_say(d, CHECK_SKIPPED, NULL, "%s " MADE_AT_START, path);
    else if (st.st_mode & 077)
        doctor_say(d, CHECK_FAILED,
                   "chmod 600 it; if others may have read it, remove it and restart",
                   "%s is open to other users (mode %o)", path, (unsigned)st.st_mode & 0777);
    else if (st.st_uid != geteuid())
        doctor_say(d, CHECK_FAILED, "run as its owner", "%s belongs to user %u, and we are user %u",
                   path, (unsigned)st.st_uid, (unsigned)geteuid());
    else if (st.st_size == 0)
        doctor_say(d, CHECK_FAILED, "remove it: the next start makes one", "%s is empty", path);
    else
        doctor_say(d, CHECK_OK, NULL, "%s has mode %o", path, (unsigned)st.st_mode & 0777);
}

/* ---- the store ---- */

/* One kind of store. `check` says findings. */
struct store_kind {
    const char *name;
    bool (*is_used)(const struct doctor *d);
    void (*check)(struct doctor *d);
};

/* Returns the section that names a shared store; NULL: the store is a file. */
static const struct controller_section *shared_section(const struct doctor *d)
{
    const struct controller_section *c =
        d->config ? config_section_get(d->config, controller_section.name) : NULL;
    return c && !str_eq(c->store, STR(STORE_FILE)) ? c : NULL;
}

static bool kube_is_used(const struct doctor *d)
{
    const struct controller_section *c = shared_section(d);
    return c && store_kube_is_named(c->store);
}

static bool redis_is_used(const struct doctor *d)
{
    return shared_section(d) && !kube_is_used(d);
}

static bool file_is_used(const struct doctor *d)
{
    return !shared_section(d); /* it is the default */
}

/* Reads the lease of a shared store. `next` is what to do when that fails. */
static void check_shared(struct doctor *d, const char *name, const char *next)
{
    const struct controller_config config = {
        .controller = shared_section(d),
        .kube = config_section_get(d->config, kube_section.name),
    };
    struct store *store = NULL;
    struct store_lease lease = { 0 };
    struct err err = { 0 };
    int rc = setup_shared_store(&config, (const char *const *)environ, &store, &err);
    if (rc == 0) rc = store_lease_see(store, &lease, &err);
    if (store) store_close(store);
    if (rc < 0)
        doctor_say(d, CHECK_FAILED, next, "%s: %s", name, err_text(&err, rc));
    else if (lease.epoch == 0)
        doctor_say(d, CHECK_OK, NULL, "%s: it answers, and no controller has led yet", name);
    else
        doctor_say(d, CHECK_OK, NULL, "%s: it answers; %s %s the lease, epoch %llu", name,
                   lease.address, lease.held ? "has, or had last," : "gave back",
                   (unsigned long long)lease.epoch);
}

static void check_redis(struct doctor *d)
{
    check_shared(d, "redis",
                 "start it, or correct controller.store and what goes with it; until then no "
                 "controller leads");
}

static void check_kube_store(struct doctor *d)
{
    check_shared(d, "kubernetes",
                 "correct kubernetes.kubeconfig, or what the Role allows (docs/controllers.md); "
                 "until then no controller leads");
}

static void check_file_store(struct doctor *d)
{
    char path[PATH_MAX];
    struct store *store = NULL;
    struct store_log_stat stat = { 0 };
    struct err err = { 0 };
    const struct store_log decisions = { "decisions", UINT64_MAX };
    if (doctor_path(d, "muster.db", path) < 0) return;
    if (access(path, F_OK) < 0) {
        doctor_say(d, CHECK_SKIPPED, NULL, "%s " MADE_AT_START, path);
        return;
    }
    if (access(path, R_OK | W_OK) < 0) {
        doctor_say(d, CHECK_FAILED, "run as its owner", "%s cannot be opened: %s", path,
                   strerror(errno));
        return;
    }
    int rc = store_file_open(path, 0, &store, &err);
    if (rc == 0) rc = store_log_stat(store, &decisions, &stat, &err);
    store_close(store);
    if (rc == -EBUSY)
        doctor_say(d, CHECK_OK, NULL, "file: a running controller has it open");
    else if (rc < 0)
        doctor_say(d, CHECK_FAILED,
                   "put a copy back, or move it away: the controller then adopts what runs",
                   "file: %s", err_text(&err, rc));
    else
        doctor_say(d, CHECK_OK, NULL, "file: %s is readable, with %llu decisions", path,
                   (unsigned long long)stat.count);
}

static const struct store_kind stores[] = {
    { "file", file_is_used, check_file_store },
    { "redis", redis_is_used, check_redis },
    { "kubernetes", kube_is_used, check_kube_store },
};

void check_store(struct doctor *d)
{
    for (size_t i = 0; i < COUNT_OF(stores); i++)
        if (stores[i].is_used(d)) stores[i].check(d);
}

void check_disk(struct doctor *d)
{
    struct statvfs fs;
    const char *path = doctor_has_state(d) ? d->state.data : ".";
    if (statvfs(path, &fs) < 0) {
        doctor_say(d, CHECK_SKIPPED, NULL, "%s: %s", path, strerror(errno));
        return;
    }
    uint64_t bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    double gib = (double)bytes / (double)(1 << 30);
    bool no_files = fs.f_files > 0 && fs.f_favail < 1000;
    if (bytes < DISK_LEAST || no_files)
        doctor_say(d, CHECK_FAILED, "make room: nothing is launched that cannot be written down",
                   no_files ? "%.2f GiB are free at %s, and no files can be made"
                            : "%.2f GiB are free at %s",
                   gib, path);
    else
        doctor_say(d, bytes < DISK_ENOUGH ? CHECK_WARNING : CHECK_OK,
                   bytes < DISK_ENOUGH ? "make room for the store and the logs" : NULL,
                   "%.1f GiB are free at %s", gib, path);
}

/* ---- models ---- */

/* Computes the digest by which engines name a model: of its weights, vocabulary and template. */
static int identity_of(const struct gguf_source *source, const struct gguf *g,
                       char ret[SHA256_HEX + 1], struct err *err)
{
    CLEANUP(buf_fini) struct buf bundle = { 0 };
    char weights[SHA256_HEX + 1], text[SHA256_HEX + 1];
    struct vocab *vocab = NULL;
    struct chat_template *t = NULL;
    struct str template = { 0 };
    int rc = vocab_from_gguf(g, &vocab, err);
    if (rc == 0 && gguf_get_str(g, "tokenizer.chat_template", &template, NULL) == 0 && template.len)
        rc = chat_template_compile(template, &t, err);
    buf_init(&bundle, BUNDLE_BYTES_MAX);
    if (rc == 0) rc = bundle_encode(vocab, t, &bundle, text, err);
    if (rc == 0) rc = gguf_digest(source, weights, err);
    if (rc == 0) bundle_identity(str_from(weights), text, ret);
    chat_template_free(t);
    vocab_free(vocab);
    return rc;
}

struct served {
    struct str service;
    char digest[SHA256_HEX + 1]; /* of the first instance that differs from `ours`, or of any */
    const char *ours;
    uint32_t count, others;
};

static int compare_digest(void *ctx, struct str instance)
{
    struct served *s = ctx;
    CLEANUP(buf_fini) struct buf service = { 0 }, digest = { 0 };
    if (json_path_text(instance, "service", &service) < 0 ||
        !str_eq(buf_view(&service), s->service) ||
        json_path_text(instance, "engine.digest", &digest) < 0 || digest.len != SHA256_HEX)
        return 0;
    s->count++;
    if (strcmp(digest.data, s->ours) == 0) return 0;
    s->others++;
    memcpy(s->digest, digest.data, sizeof s->digest);
    return 0;
}

static void say_digest(struct doctor *d, const struct service_section *s, const char *path,
                       const char *ours)
{
    struct served served = { .service = s->name, .ours = ours };
    if (d->answers)
        (void)json_path_each(buf_view(&d->status), "instances", compare_digest, &served);
    if (served.others > 0)
        doctor_say(d, CHECK_WARNING, "drain the pool so that its instances load the file again",
                   "%s: the file's digest is %.12s, and %u of %u instances serve another, %.12s",
                   s->name.data, ours, served.others, served.count, served.digest);
    else
        doctor_say(d, CHECK_OK, NULL, "%s: %s, digest %.12s%s", s->name.data, path, ours,
                   served.count > 0 ? ", as its instances serve" : "");
}

static void check_model(struct doctor *d, const struct service_section *s)
{
    CLEANUP(gguf_shards_freep) struct gguf_shards *file = NULL;
    struct err err = { 0 };
    char digest[SHA256_HEX + 1];
    struct models_place model;
    int rc =
        models_resolve(config_section_get(d->config, models_section.name), s->model, &model, &err);
    if (rc == 0) rc = gguf_shards_open(model.path, &file, &err);
    uint64_t bytes = rc == 0 ? file->source->bytes : 0;
    bool whole = rc == 0 && (bytes <= DIGEST_BYTES || d->o->digest);
    if (whole) rc = identity_of(file->source, file->gguf, digest, &err);
    double gib = (double)bytes / (double)(1 << 30);
    if (rc < 0)
        doctor_say(d, CHECK_FAILED, "name a GGUF file in services[].model", "%s: %s", s->name.data,
                   err_text(&err, rc));
    else if (whole)
        say_digest(d, s, model.path, digest);
    else
        doctor_say(d, CHECK_OK, "--digest reads all of it", "%s: %s is well-formed, %.1f GiB",
                   s->name.data, model.path, gib);
}

void check_models(struct doctor *d)
{
    if (!d->config) {
        doctor_say(d, CHECK_SKIPPED, NULL, "there is no valid configuration");
        return;
    }
    const struct config_records *list = config_section_get(d->config, services_section.name);
    const struct service_section *s = list->items;
    if (list->count == 0) doctor_say(d, CHECK_SKIPPED, NULL, "the configuration names no service");
    for (size_t i = 0; i < list->count; i++) {
        if (s[i].engine_program.len > 0)
            doctor_say(d, CHECK_SKIPPED, NULL, "%s: another program loads its model",
                       s[i].name.data);
        else
            check_model(d, &s[i]);
    }
}
