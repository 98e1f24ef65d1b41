/* cloud_local.c - agents as processes, folders as intents.
 *
 * A create is: make the folder, write spec.json, spawn the agent. A crash before spec.json leaves
 * an empty folder, which is nothing; a crash behind it leaves an instance whose agent never came
 * up, which the next listing starts. A spawned agent that has not locked yet is told from one that
 * never was by the age of `spawned`, a mark that is touched before each spawn: within
 * LOCAL_SPAWN_US no second one is tried, and if it is, the lock lets one of them through. */
#include "controller/cloud/cloud_local.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/proc.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AGENT_WORDS_MAX 16
#define MARK_BYTES_MAX 256

struct local {
    char *folder;
    char *word[AGENT_WORDS_MAX + 1];
    double machine_share;
    struct offer offer[LOCAL_OFFERS_MAX];
    int64_t launch_us[LOCAL_OFFERS_MAX];
    uint32_t offer_count;
};

/* One instance as its folder shows it. */
struct sight {
    struct listed listed;
    double share;
    struct proc_id agent, engine; /* pid 0: none alive */
    bool agent_was;               /* an agent held the lock once */
    int64_t spawned_us;           /* the last try; 0: none */
    int64_t removed_us;           /* the wish; 0: none */
};

static int path_of(const struct local *l, const char *intent, const char *file, char ret[PATH_MAX],
                   struct err *err)
{
    int n =
        snprintf(ret, PATH_MAX, "%s/%s%s%s", l->folder, intent, file ? "/" : "", file ? file : "");
    if (n < 0 || n >= PATH_MAX) return err_set(err, -ENAMETOOLONG, "%s: path too long", l->folder);
    return 0;
}

/* Ids become folder names: nothing but letters, digits and '-'. */
static bool id_is_plain(const char *id)
{
    size_t len = strlen(id);
    return len > 0 && len < INTENT_ID_BYTES &&
           strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-") == len && id[0] != '-';
}

/* ---- what a folder says ---- */

/* Reads a small file; -ENOENT when it is not there. */
static int read_mark(const struct local *l, const char *intent, const char *file, struct buf *text)
{
    char path[PATH_MAX];
    int rc = path_of(l, intent, file, path, NULL);
    if (rc < 0) return rc;
    return file_read(path, MARK_BYTES_MAX, text, NULL);
}

static int64_t read_time(const struct local *l, const char *intent, const char *file)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int64_t us;
    if (read_mark(l, intent, file, &text) < 0 || str_to_i64(buf_view(&text), &us) < 0) return 0;
    return us;
}

/* The living process that a file names in its first line, else pid 0. *ret_was: the file names
 * one at all. */
static struct proc_id read_process(const struct local *l, const char *intent, const char *file,
                                   bool *ret_was)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct proc_id id = { 0 };
    *ret_was = false;
    if (read_mark(l, intent, file, &text) < 0) return id;
    struct str rest = buf_view(&text);
    if (proc_id_parse(str_trim(str_cut(&rest, '\n')), &id) < 0) return (struct proc_id){ 0 };
    *ret_was = true;
    return proc_is_alive(&id) ? id : (struct proc_id){ 0 };
}

static int read_spec(const struct local *l, const char *intent, struct sight *s, struct err *err)
{
    char path[PATH_MAX];
    int rc = path_of(l, intent, "spec.json", path, err);
    if (rc < 0) return rc;
    CLEANUP(buf_fini) struct buf text = { 0 };
    rc = file_read(path, LAUNCH_BYTES_MAX, &text, err);
    if (rc < 0) return rc;

    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, 2 * LAUNCH_BYTES_MAX);
    struct launch_spec spec;
    rc = launch_spec_decode(buf_view(&text), &arena, &spec, err);
    if (rc < 0) return rc;
    struct stat st;
    if (stat(path, &st) < 0) return err_set(err, -errno, "%s: %s", path, strerror(errno));

    struct listed *out = &s->listed;
    rc = name_copy(out->service, sizeof out->service, spec.service);
    if (rc == 0) rc = name_copy(out->pool, sizeof out->pool, spec.pool);
    if (rc == 0) rc = name_copy(out->offer, sizeof out->offer, spec.offer);
    if (rc < 0) return err_set(err, -EINVAL, "%s: a name is too long", path);
    out->created_us = (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
    s->share = spec.share;
    return 0;
}

/* -ENOENT: no instance. */
static int look(const struct local *l, const char *intent, struct sight *ret, struct err *err)
{
    struct sight s = { 0 };
    if (!id_is_plain(intent)) return err_set(err, -ENOENT, "'%s' is no instance's name", intent);
    int rc = read_spec(l, intent, &s, err);
    if (rc < 0) return rc;
    must(name_copy(s.listed.handle, sizeof s.listed.handle, str_from(intent)) == 0);
    must(name_copy(s.listed.intent, sizeof s.listed.intent, str_from(intent)) == 0);
    bool engine_was;
    s.agent = read_process(l, intent, "agent.lock", &s.agent_was);
    s.engine = read_process(l, intent, "engine.id", &engine_was);
    s.spawned_us = read_time(l, intent, "spawned");
    s.removed_us = read_time(l, intent, "removed");
    *ret = s;
    return 0;
}

static bool is_dead(const struct sight *s, int64_t now_us)
{
    if (s->agent.pid || s->engine.pid) return false;
    if (s->agent_was) return true;
    return s->removed_us && now_us - s->spawned_us >= LOCAL_SPAWN_US;
}

/* ---- changes ---- */

static int write_mark(const struct local *l, const char *intent, const char *file, int64_t now_us,
                      struct err *err)
{
    char path[PATH_MAX], text[32];
    int rc = path_of(l, intent, file, path, err);
    if (rc < 0) return rc;
    snprintf(text, sizeof text, "%lld", (long long)now_us);
    return file_write_atomic(path, str_from(text), 0600, err);
}

static int spawn_agent(const struct local *l, const char *intent, int64_t now_us, struct err *err)
{
    char spec[PATH_MAX], log[PATH_MAX];
    int rc = path_of(l, intent, "spec.json", spec, err);
    if (rc == 0) rc = path_of(l, intent, "agent.log", log, err);
    if (rc == 0) rc = write_mark(l, intent, "spawned", now_us, err);
    if (rc < 0) return rc;

    const char *argv[AGENT_WORDS_MAX + 3];
    uint32_t n = 0;
    while (l->word[n]) {
        argv[n] = l->word[n];
        n++;
    }
    argv[n++] = "--spec";
    argv[n++] = spec;
    argv[n] = NULL;
    struct proc_spec what = { .argv = argv, .log_path = log, .detached = true };
    struct proc proc;
    rc = proc_spawn(&what, &proc, err);
    if (rc < 0) return rc;
    proc_close(&proc); /* known again by its lock */
    return 0;
}

/* Rule (2): brings back what should not be dead. */
static void revive(const struct local *l, const struct sight *s, int64_t now_us)
{
    bool orphaned_engine = !s->agent.pid && s->engine.pid;
    bool never_came = !s->agent.pid && !s->agent_was;
    if (s->removed_us || (!orphaned_engine && !never_came)) return;
    if (now_us - s->spawned_us < LOCAL_SPAWN_US) return;
    /* A spawn that fails is tried again by the next listing; the boot deadline ends it. */
    (void)spawn_agent(l, s->listed.intent, now_us, NULL);
}

static const char *const leftovers[] = { "spec.json", "agent.lock", "engine.id", "removed",
                                         "spawned",   "agent.log",  "engine.log" };

static void erase(const char *folder)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < COUNT_OF(leftovers); i++) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, leftovers[i]);
        if (n > 0 && n < PATH_MAX) unlink(path);
    }
    rmdir(folder);
}

/* Keeps the newest LOCAL_ENDED_MAX - 1 folders of ended/. */
static void prune_ended(const char *ended)
{
    for (;;) {
        DIR *dir = opendir(ended);
        if (!dir) return;
        char oldest[PATH_MAX] = "";
        int64_t oldest_s = INT64_MAX;
        uint32_t count = 0;
        for (struct dirent *e; (e = readdir(dir));) {
            char path[PATH_MAX];
            struct stat st;
            int n = snprintf(path, sizeof path, "%s/%s", ended, e->d_name);
            if (e->d_name[0] == '.' || n >= PATH_MAX || stat(path, &st) < 0) continue;
            count++;
            if (st.st_mtim.tv_sec >= oldest_s) continue;
            oldest_s = st.st_mtim.tv_sec;
            memcpy(oldest, path, (size_t)n + 1);
        }
        closedir(dir);
        if (count < LOCAL_ENDED_MAX || !oldest[0]) return;
        erase(oldest);
        struct stat st;
        if (stat(oldest, &st) == 0) return; /* something of another's hand is in it */
    }
}

/* The instance is over: its folder moves to ended/, where nothing looks for instances. */
static int bury(const struct local *l, const char *intent, struct err *err)
{
    char from[PATH_MAX], ended[PATH_MAX], to[PATH_MAX];
    int rc = path_of(l, intent, NULL, from, err);
    if (rc == 0) rc = path_of(l, "ended", NULL, ended, err);
    if (rc == 0) rc = path_of(l, "ended", intent, to, err);
    if (rc == 0) rc = file_make_folders(ended, 0700, err);
    if (rc < 0) return rc;
    prune_ended(ended);
    if (rename(from, to) == 0 || errno == ENOENT) return 0;
    erase(from); /* ended/ has one of that name, or the disk refuses */
    return 0;
}

/* ---- the driver's calls ---- */

static const struct offer *find_offer(const struct local *l, const char *name, uint32_t *ret_index)
{
    for (uint32_t i = 0; i < l->offer_count; i++)
        if (strcmp(l->offer[i].name, name) == 0) {
            *ret_index = i;
            return &l->offer[i];
        }
    return NULL;
}

/* Calls fn for every folder that holds an instance. A folder that cannot be read is an error: a
 * listing with holes would end what is only hidden. */
static int each_instance(const struct local *l,
                         int (*fn)(void *arg, const struct sight *s, struct err *err), void *arg,
                         struct err *err)
{
    DIR *dir = opendir(l->folder);
    if (!dir) return err_set(err, -errno, "%s: %s", l->folder, strerror(errno));
    int rc = 0;
    for (struct dirent *e; rc == 0 && (e = readdir(dir));) {
        if (e->d_name[0] == '.' || strcmp(e->d_name, "ended") == 0) continue;
        struct sight s;
        rc = look(l, e->d_name, &s, err);
        if (rc == -ENOENT || rc == -ENOTDIR)
            rc = 0; /* being made, being buried, or no folder */
        else if (rc == 0)
            rc = fn(arg, &s, err);
    }
    closedir(dir);
    return rc;
}

struct share_sum {
    double share;
    int64_t now_us;
};

static int add_share(void *arg, const struct sight *s, struct err *err)
{
    (void)err;
    struct share_sum *sum = arg;
    if (!is_dead(s, sum->now_us)) sum->share += s->share;
    return 0;
}

static int write_spec(const struct local *l, const struct cloud_request *req, double share,
                      int64_t start_us, struct err *err)
{
    char folder[PATH_MAX], path[PATH_MAX];
    int rc = path_of(l, req->intent, NULL, folder, err);
    if (rc == 0) rc = path_of(l, req->intent, "spec.json", path, err);
    if (rc == 0) rc = file_make_folders(folder, 0700, err);
    if (rc < 0) return rc;
    struct launch_spec spec = *req->spec;
    spec.folder = str_from(folder);
    spec.share = share;
    spec.start_wall_us = start_us;
    CLEANUP(buf_fini) struct buf text = { 0 };
    rc = launch_spec_encode(&spec, &text);
    if (rc < 0) return err_set(err, rc, "the launch document of %s", req->intent);
    return file_write_atomic(path, buf_view(&text), 0600, err);
}

static int create(void *ctx, const struct cloud_request *req, int64_t now_us, struct listed *ret,
                  enum offer_error *ret_class, struct err *err)
{
    struct local *l = ctx;
    struct sight s;
    *ret_class = OFFER_INVALID;
    if (!id_is_plain(req->intent))
        return err_set(err, -EINVAL, "'%s' cannot name an instance", req->intent);
    int rc = look(l, req->intent, &s, err);
    if (rc == 0) { /* asked before: the same instance */
        revive(l, &s, now_us);
        *ret = s.listed;
        return 0;
    }
    if (rc != -ENOENT) return rc;

    uint32_t index;
    const struct offer *o = find_offer(l, req->offer->name, &index);
    if (!o) return err_set(err, -EINVAL, "no local offer is named %s", req->offer->name);
    *ret_class = OFFER_TRANSIENT;
    struct share_sum sum = { .now_us = now_us };
    rc = each_instance(l, add_share, &sum, err);
    if (rc < 0) return rc;
    if (sum.share + o->share > l->machine_share + 1e-9) {
        *ret_class = OFFER_CAPACITY;
        return err_set(err, -EBUSY, "%g of %g cores are given out, %s needs %g", sum.share,
                       l->machine_share, o->name, o->share);
    }
    rc = write_spec(l, req, o->share, now_us + l->launch_us[index], err);
    if (rc < 0) return rc;
    rc = spawn_agent(l, req->intent, now_us, err);
    if (rc < 0) return rc; /* the folder stands: the next listing tries again */
    rc = look(l, req->intent, &s, err);
    if (rc < 0) return rc;
    *ret = s.listed;
    return 0;
}

static int get(void *ctx, const char *intent, int64_t now_us, struct listed *ret, struct err *err)
{
    struct local *l = ctx;
    struct sight s;
    int rc = look(l, intent, &s, err);
    if (rc < 0) return rc;
    revive(l, &s, now_us);
    *ret = s.listed;
    ret->gone = is_dead(&s, now_us);
    return 0;
}

struct list_job {
    const struct local *l;
    struct listed *ret;
    uint32_t count, max;
    int64_t now_us;
};

static int list_one(void *arg, const struct sight *s, struct err *err)
{
    struct list_job *j = arg;
    bool dead = is_dead(s, j->now_us);
    if (dead && s->removed_us) return bury(j->l, s->listed.intent, err);
    revive(j->l, s, j->now_us);
    if (j->count == j->max) return err_set(err, -E2BIG, "more than %u instances", j->max);
    j->ret[j->count] = s->listed;
    j->ret[j->count++].gone = dead;
    return 0;
}

static int list(void *ctx, int64_t now_us, struct listed *ret, uint32_t max, uint32_t *ret_count,
                struct err *err)
{
    struct list_job j = { ctx, ret, 0, max, now_us };
    int rc = each_instance(ctx, list_one, &j, err);
    if (rc < 0) return rc;
    *ret_count = j.count;
    return 0;
}

/* The agent ends its engine gently. Without an agent we are the ones who do it. */
static int remove_instance(void *ctx, const char *handle, const char *intent, int64_t now_us,
                           struct err *err)
{
    struct local *l = ctx;
    const char *id = handle[0] ? handle : intent;
    struct sight s;
    int rc = look(l, id, &s, err);
    if (rc == -ENOENT) return 0;
    if (rc < 0) return rc;
    if (s.removed_us == 0) {
        rc = write_mark(l, id, "removed", now_us, err);
        if (rc < 0) return rc;
        s.removed_us = now_us;
    }
    if (is_dead(&s, now_us)) return bury(l, id, err);
    bool late = now_us - s.removed_us >= LOCAL_KILL_US;
    /* -ESRCH: it ended between the look and the signal, which is what was wanted. */
    if (s.agent.pid) (void)proc_signal(&s.agent, late ? SIGKILL : SIGTERM, NULL);
    if (s.engine.pid && (late || !s.agent.pid))
        (void)proc_signal_group(&s.engine, late ? SIGKILL : SIGTERM, NULL);
    return 0;
}

static int offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err)
{
    struct local *l = ctx;
    if (l->offer_count > max) return err_set(err, -E2BIG, "more than %u offers", max);
    memcpy(ret, l->offer, l->offer_count * sizeof *ret);
    *ret_count = l->offer_count;
    return 0;
}

/* Local prices are the configuration's: as old as the process at most, which is as good as new. */
static int price(void *ctx, const char *offer, int64_t now_us, double *ret_price_h,
                 int64_t *ret_age_us, struct err *err)
{
    (void)now_us;
    uint32_t index;
    const struct offer *o = find_offer(ctx, offer, &index);
    if (!o) return err_set(err, -ENOENT, "no local offer is named %s", offer);
    *ret_price_h = o->price_h;
    *ret_age_us = 0;
    return 0;
}

static void close_local(void *ctx)
{
    struct local *l = ctx;
    for (uint32_t i = 0; l->word[i]; i++)
        free(l->word[i]);
    free(l->folder);
    free(l);
}

static const struct cloud_driver driver = {
    .name = "local",
    .about = "processes on this machine, each with a share of a core",
    .close = close_local,
    .offers = offers,
    .create = create,
    .get = get,
    .list = list,
    .remove = remove_instance,
    .price = price,
};

static int take_offer(struct local *l, const struct local_offer *from, struct err *err)
{
    struct offer *o = &l->offer[l->offer_count];
    if (name_copy(o->name, sizeof o->name, from->name) < 0)
        return err_set(err, -EINVAL, "the offer's name '" STR_FMT "' is too long",
                       STR_ARG(from->name));
    must(name_copy(o->provider, sizeof o->provider, STR("local")) == 0);
    o->price_h = from->price_h;
    o->price_known = true;
    o->share = from->share;
    o->lead_s = (double)(from->launch_us + from->lead_us) / 1e6;
    o->seqs_max = from->seqs_max > 0 ? (uint32_t)from->seqs_max : LOCAL_SEQS_MAX;
    o->prior = (struct perf_coef){
        .a = from->perf_a, .b = from->perf_b, .c = from->perf_c, .d = from->perf_d
    };
    o->has_prior = perf_coef_valid(&o->prior);
    l->launch_us[l->offer_count++] = from->launch_us;
    return 0;
}

int cloud_local_open(const struct local_config *config, struct cloud *ret, struct err *err)
{
    int rc = file_make_folders(config->folder, 0700, err);
    if (rc < 0) return rc;
    if (config->offer_count > LOCAL_OFFERS_MAX)
        return err_set(err, -E2BIG, "more than %d local offers", LOCAL_OFFERS_MAX);
    struct local *l = calloc(1, sizeof *l);
    must(l);
    l->machine_share = config->machine_share;
    l->folder = strdup(config->folder);
    must(l->folder);
    for (uint32_t n = 0; config->agent[n]; n++) {
        must(n < AGENT_WORDS_MAX);
        l->word[n] = strdup(config->agent[n]);
        must(l->word[n]);
    }
    for (uint32_t i = 0; i < config->offer_count && rc == 0; i++)
        rc = take_offer(l, &config->offer[i], err);
    if (rc < 0) {
        close_local(l);
        return rc;
    }
    *ret = (struct cloud){ &driver, l, 0 };
    return 0;
}
