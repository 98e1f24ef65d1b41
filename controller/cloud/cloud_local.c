/* cloud_local.c - sells processes on this machine: an agent is a process, an intent a folder.
 *
 * A create makes the folder, writes spec.json and spawns the agent. A crash before spec.json leaves
 * an empty folder, which counts as nothing; a crash after it leaves an instance whose agent never came
 * up, which the next listing starts. The age of `spawned`, a mark that is written before each spawn,
 * tells a spawned agent without its lock yet from one that never was: within LOCAL_SPAWN_US no second
 * one is spawned, and should two run, the lock lets one of them through. */
#include "controller/cloud/cloud_local.h"

#include "base/core/own.h"
#include "base/io/file.h"
#include "controller/cloud/cloud_local_folder.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define AGENT_WORDS_MAX 16
#define ZONES ".zones" /* no instance's id begins with a dot */
#define EPOCH ".epoch" /* the highest that a call had */

struct local {
    char *folder;
    char *word[AGENT_WORDS_MAX + 1];
    double machine_share;
    struct offer offer[LOCAL_OFFERS_MAX];
    struct local_offer sold[LOCAL_OFFERS_MAX]; /* parallel; its texts are not kept */
    uint32_t offer_count;
};

/* ---- the spot market ---- */

static const struct offer *find_offer(const struct local *l, const char *name, uint32_t *ret_index)
{
    for (uint32_t i = 0; i < l->offer_count; i++)
        if (strcmp(l->offer[i].name, name) == 0) {
            *ret_index = i;
            return &l->offer[i];
        }
    return NULL;
}

static double price_at(const struct local *l, uint32_t index, int64_t now_us)
{
    const struct local_offer *o = &l->sold[index];
    if (o->spot_price_count == 0 || o->spot_step_us <= 0) return o->price_h;
    return o->spot_price[(uint64_t)(now_us / o->spot_step_us) % o->spot_price_count];
}

/* Returns when the market takes the instance away; 0: never. */
static int64_t leaves_us(const struct local *l, const struct local_sight *s)
{
    uint32_t index;
    if (s->listed.unreadable || !find_offer(l, s->listed.offer, &index)) return 0;
    int64_t life_us = l->sold[index].spot_life_us;
    return life_us > 0 ? s->listed.created_us + life_us : 0;
}

static int64_t notice_us(const struct local *l, const struct local_sight *s)
{
    uint32_t index;
    return find_offer(l, s->listed.offer, &index) ? l->sold[index].spot_notice_us : 0;
}

/* Notes when a zone began to lose instances: for a while it has none to sell. */
static void note_loss(const struct local *l, const struct local_sight *s, int64_t since_us)
{
    uint32_t index;
    char folder[PATH_MAX];
    const struct offer *o = find_offer(l, s->listed.offer, &index);
    if (!o || !o->zone[0] || local_time_read(l->folder, ZONES, o->zone) >= since_us) return;
    /* A mark that cannot be written lets the zone sell again too early: nothing else follows. */
    if (local_path(l->folder, ZONES, NULL, folder, NULL) == 0 &&
        file_make_folders(folder, 0700, NULL) == 0)
        (void)local_mark_write(l->folder, ZONES, o->zone, since_us, NULL);
}

static bool zone_is_out(const struct local *l, uint32_t index, int64_t now_us)
{
    const struct offer *o = &l->offer[index];
    int64_t lost_us = o->zone[0] ? local_time_read(l->folder, ZONES, o->zone) : 0;
    return lost_us && now_us - lost_us < l->sold[index].spot_outage_us;
}

/* Ends the machine at once, as a provider does, with a signal that cannot be caught. */
static void take_away(const struct local_sight *s)
{
    /* -ESRCH: it has just ended by itself. */
    if (s->agent.pid) (void)proc_signal(&s->agent, SIGKILL, NULL);
    if (s->engine.pid) (void)proc_signal_group(&s->engine, SIGKILL, NULL);
}

/* ---- agents ---- */

static int spawn_agent(const struct local *l, const char *intent, int64_t now_us, struct err *err)
{
    char spec[PATH_MAX], log[PATH_MAX];
    int rc = local_path(l->folder, intent, "spec.json", spec, err);
    if (rc == 0) rc = local_path(l->folder, intent, "agent.log", log, err);
    if (rc == 0) rc = local_mark_write(l->folder, intent, "spawned", now_us, err);
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
    proc_close(&proc); /* known again by its lock, reaped by the listing */
    return 0;
}

/* Rule (2): starts an agent again that should be running. */
static void revive(const struct local *l, const struct local_sight *s, int64_t now_us)
{
    bool orphaned_engine = !s->agent.pid && s->engine.pid;
    bool never_came = !s->agent.pid && !s->agent_was;
    if (s->removed_us || s->listed.unreadable || (!orphaned_engine && !never_came)) return;
    if (now_us - s->spawned_us < LOCAL_SPAWN_US) return;
    /* A spawn that fails is tried again by the next listing; the boot deadline ends it. */
    (void)spawn_agent(l, s->listed.intent, now_us, NULL);
}

/* ---- the backend's calls ---- */

struct share_sum {
    double share, largest; /* largest: of any offer, for instances that cannot be read */
    int64_t now_us;
};

static int add_share(void *arg, const struct local_sight *s, struct err *err)
{
    (void)err;
    struct share_sum *sum = arg;
    bool runs = s->agent.pid || s->engine.pid;
    if (s->listed.unreadable && runs) sum->share += sum->largest;
    if (!s->listed.unreadable && !local_is_dead(s, sum->now_us)) sum->share += s->share;
    return 0;
}

static int create(void *ctx, const struct cloud_request *req, int64_t now_us, struct listed *ret,
                  enum offer_error *ret_class, struct err *err)
{
    struct local *l = ctx;
    struct local_sight s;
    *ret_class = OFFER_INVALID;
    if (!local_id_is_plain(req->intent))
        return err_set(err, -EINVAL, "'%s' cannot name an instance", req->intent);
    int rc = local_look(l->folder, req->intent, &s, err);
    if (rc == 0) { /* asked before: the same instance */
        revive(l, &s, now_us);
        *ret = s.listed;
        return 0;
    }
    if (rc != -ENOENT) return rc;

    uint32_t index;
    const struct offer *o = find_offer(l, req->offer->name, &index);
    if (!o) return err_set(err, -EINVAL, "no local offer is named %s", req->offer->name);
    if (zone_is_out(l, index, now_us)) {
        *ret_class = OFFER_CAPACITY;
        return err_set(err, -EBUSY, "zone %s has nothing to sell since it lost instances", o->zone);
    }
    *ret_class = OFFER_TRANSIENT;
    struct share_sum sum = { .now_us = now_us };
    for (uint32_t i = 0; i < l->offer_count; i++)
        sum.largest = fmax(sum.largest, l->offer[i].share);
    rc = local_each(l->folder, add_share, &sum, err);
    if (rc < 0) return rc;
    if (sum.share + o->share > l->machine_share + 1e-9) {
        *ret_class = OFFER_CAPACITY;
        return err_set(err, -EBUSY, "%g of %g cores are given out, %s needs %g", sum.share,
                       l->machine_share, o->name, o->share);
    }
    rc = local_spec_write(l->folder, req, o->share, now_us, l->sold[index].launch_us, err);
    if (rc < 0) return rc;
    rc = spawn_agent(l, req->intent, now_us, err);
    if (rc < 0) return rc; /* the folder stands: the next listing tries again */
    rc = local_look(l->folder, req->intent, &s, err);
    if (rc < 0) return rc;
    *ret = s.listed;
    return 0;
}

struct list_job {
    const struct local *l;
    struct listed *ret;
    uint32_t count, max;
    int64_t now_us;
};

static int list_one(void *arg, const struct local_sight *s, struct err *err)
{
    struct list_job *j = arg;
    int64_t leave_us = leaves_us(j->l, s);
    bool taken = leave_us && j->now_us >= leave_us;
    bool dead = local_is_dead(s, j->now_us) || (taken && !s->agent.pid && !s->engine.pid);
    if (dead && s->removed_us) return local_bury(j->l->folder, s->listed.intent, err);
    if (taken)
        take_away(s);
    else
        revive(j->l, s, j->now_us);
    if (j->count == j->max) return err_set(err, -E2BIG, "more than %u instances", j->max);
    struct listed *out = &j->ret[j->count++];
    *out = s->listed;
    out->gone = dead;
    int64_t told_us = leave_us - notice_us(j->l, s);
    if (leave_us && j->now_us >= told_us) {
        out->leaves_us = leave_us;
        note_loss(j->l, s, told_us);
    }
    return 0;
}

static int list(void *ctx, int64_t now_us, struct listed *ret, uint32_t max, uint32_t *ret_count,
                struct err *err)
{
    const struct local *l = ctx;
    (void)proc_reap_all(); /* agents that ended: this process has no other children */
    struct list_job j = { l, ret, 0, max, now_us };
    int rc = local_each(l->folder, list_one, &j, err);
    if (rc < 0) return rc;
    *ret_count = j.count;
    return 0;
}

/* Asks the agent, which ends its engine gently. Without an agent the engine is ended here. */
static int remove_instance(void *ctx, const char *handle, const char *intent, int64_t now_us,
                           struct err *err)
{
    struct local *l = ctx;
    const char *id = handle[0] ? handle : intent;
    struct local_sight s;
    int rc = local_look(l->folder, id, &s, err);
    if (rc == -ENOENT) return 0;
    if (rc < 0) return rc;
    if (s.removed_us == 0) {
        rc = local_mark_write(l->folder, id, "removed", now_us, err);
        if (rc < 0) return rc;
        s.removed_us = now_us;
    }
    if (local_is_dead(&s, now_us)) return local_bury(l->folder, id, err);
    bool late = now_us - s.removed_us >= LOCAL_KILL_US;
    /* -ESRCH: it ended between the look and the signal, as it should. */
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

static int prices(void *ctx, int64_t now_us, struct cloud_price *ret, uint32_t max,
                  uint32_t *ret_count, struct err *err)
{
    const struct local *l = ctx;
    if (l->offer_count > max) return err_set(err, -E2BIG, "more than %u offers", max);
    for (uint32_t i = 0; i < l->offer_count; i++) {
        ret[i] = (struct cloud_price){ .known = true, .price_h = price_at(l, i, now_us) };
        memcpy(ret[i].offer, l->offer[i].name, sizeof ret[i].offer);
    }
    *ret_count = l->offer_count;
    return 0;
}

/* A file keeps the highest epoch of all processes that share the folder. One that cannot be written keeps
 * nothing back: the intents' folders alone make every call safe to repeat, and a full disk must not keep a
 * controller from seeing its fleet. */
static int fence(void *ctx, uint64_t epoch, uint64_t *ret_seen, struct err *err)
{
    const struct local *l = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    char path[PATH_MAX], now[24];
    uint64_t seen = 0;
    int rc = local_path(l->folder, EPOCH, NULL, path, err);
    if (rc < 0) return rc;
    bool known = file_read(path, LOCAL_MARK_BYTES_MAX, &text, NULL) == 0 &&
                 str_to_u64(buf_view(&text), &seen) == 0;
    if (known && seen > epoch) {
        *ret_seen = seen;
        return err_set(err, -EKEYREVOKED, "a controller of a later term has the instances in %s",
                       l->folder);
    }
    if (known && seen == epoch) return 0;
    snprintf(now, sizeof now, "%llu", (unsigned long long)epoch);
    (void)file_write_atomic(path, str_from(now), 0600, NULL);
    return 0;
}

/* ---- what is left without an instance ---- */

struct sweep {
    const char *root;
    bool alone, remove;
    cloud_leftover_fn fn;
    void *arg;
};

static bool is_old(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
           time(NULL) - st.st_mtime >= LOCAL_LEFTOVER_S;
}

/* Judges one folder, and removes it if it is to be and may be. */
static void sweep_one(const struct sweep *s, const char *name)
{
    struct local_sight sight;
    char path[PATH_MAX];
    struct cloud_leftover one = { .name = name, .removable = true };
    int rc = local_look(s->root, name, &sight, NULL);
    if (local_path(s->root, name, NULL, path, NULL) < 0) return;
    if (rc == -ENOENT && is_old(path))
        one.why = "a launch that was never written down";
    else if (rc < 0 || !s->alone)
        return;
    else if (sight.agent.pid || sight.engine.pid)
        one = (struct cloud_leftover){ .name = name, .why = "it runs" };
    else if (!sight.agent_was && !is_old(path))
        return; /* its agent may be on its way */
    else
        one.why = "its agent and engine have ended";
    if (s->remove && one.removable) {
        if (rc == 0)
            (void)local_bury(s->root, name, NULL); /* its logs stay in ended/ */
        else
            local_erase(path);
        one.removed = access(path, F_OK) < 0;
        if (!one.removed) one.why = "it holds files that are not ours, or the disk refuses";
    }
    s->fn(s->arg, &one);
}

int cloud_local_leftovers(const char *folder, bool alone, bool remove, cloud_leftover_fn fn,
                          void *arg, struct err *err)
{
    const struct sweep s = { folder, alone, remove, fn, arg };
    DIR *dir = opendir(folder);
    if (!dir) return err_set(err, -errno, "%s: %s", folder, strerror(errno));
    for (struct dirent *e; (e = readdir(dir));)
        if (local_id_is_plain(e->d_name) && strcmp(e->d_name, "ended") != 0)
            sweep_one(&s, e->d_name);
    closedir(dir);
    return 0;
}

static int list_leftovers(void *ctx, bool remove, cloud_leftover_fn fn, void *arg, struct err *err)
{
    const struct local *l = ctx;
    return cloud_local_leftovers(l->folder, false, remove, fn, arg, err);
}

/* ---- can instances be made? ---- */

#define MEMORY_LEAST ((uint64_t)512 << 20) /* with less an engine of a small model may not start */

static void find(cloud_finding_fn fn, void *arg, const char *what, enum cloud_health health,
                 const char *next, const char *format, ...) __attribute__((format(printf, 6, 7)));

static void find(cloud_finding_fn fn, void *arg, const char *what, enum cloud_health health,
                 const char *next, const char *format, ...)
{
    struct cloud_finding f = { .what = what, .health = health, .next = next };
    va_list ap;
    va_start(ap, format);
    vsnprintf(f.why, sizeof f.why, format, ap);
    va_end(ap);
    fn(arg, &f);
}

static void check_cores(const struct local *l, cloud_finding_fn fn, void *arg)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    const struct offer *largest = NULL;
    for (uint32_t i = 0; i < l->offer_count; i++)
        if (!largest || l->offer[i].share > largest->share) largest = &l->offer[i];
    if (!largest)
        find(fn, arg, "cores", CLOUD_BROKEN, "name one in local.offers", "it sells no offer");
    else if (largest->share > l->machine_share + 1e-9)
        find(fn, arg, "cores", CLOUD_BROKEN, "raise local.cores, or lower the offer's share",
             "offer %s wants %g cores, all instances together get %g", largest->name,
             largest->share, l->machine_share);
    else if (online > 0 && l->machine_share > (double)online + 1e-9)
        find(fn, arg, "cores", CLOUD_DOUBTFUL, "lower local.cores",
             "instances may use %g cores, and the machine has %ld", l->machine_share, online);
    else
        find(fn, arg, "cores", CLOUD_FINE, NULL, "instances may use %g of %ld cores",
             l->machine_share, online);
}

/* Reads MemAvailable of /proc/meminfo in bytes; 0: unknown. */
static uint64_t memory_available(void)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    unsigned long long kib = 0;
    if (file_read("/proc/meminfo", 65536, &text, NULL) < 0) return 0;
    const char *at = strstr(text.data, "MemAvailable:");
    if (!at || sscanf(at, "MemAvailable: %llu", &kib) != 1) return 0;
    return kib * 1024;
}

static void check_local(void *ctx, cloud_finding_fn fn, void *arg)
{
    const struct local *l = ctx;
    uint64_t memory = memory_available();
    check_cores(l, fn, arg);
    if (memory > 0)
        find(fn, arg, "memory", memory < MEMORY_LEAST ? CLOUD_DOUBTFUL : CLOUD_FINE,
             memory < MEMORY_LEAST ? "end what uses it, or take a smaller model" : NULL,
             "%.1f GiB are available", (double)memory / (double)(1 << 30));
    if (access(l->word[0], X_OK) < 0)
        find(fn, arg, "agent", CLOUD_BROKEN, "install the program again", "%s cannot be run: %s",
             l->word[0], strerror(errno));
    if (access(l->folder, F_OK) == 0 && access(l->folder, W_OK) < 0)
        find(fn, arg, "folder", CLOUD_BROKEN, "run as its owner", "%s is not ours to write",
             l->folder);
}

static void close_local(void *ctx)
{
    struct local *l = ctx;
    for (uint32_t i = 0; l->word[i]; i++)
        free(l->word[i]);
    free(l->folder);
    free(l);
}

const struct cloud_backend cloud_local_backend = {
    .name = "local",
    .about = "processes on this machine, each with a share of a core",
    .close = close_local,
    .offers = offers,
    .create = create,
    .list = list,
    .remove = remove_instance,
    .prices = prices,
    .fence = fence,
    .leftovers = list_leftovers,
    .check = check_local,
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
    o->prior = (struct perf_coef){ .step_s = from->perf_step_s,
                                   .prefill_token_s = from->perf_prefill_s,
                                   .decode_seq_s = from->perf_decode_s,
                                   .kv_read_s = from->perf_read_s };
    o->has_prior = perf_coef_valid(&o->prior);
    o->spot = from->spot;
    if (name_copy(o->zone, sizeof o->zone, from->zone) < 0 ||
        (o->zone[0] && !local_id_is_plain(o->zone)))
        return err_set(err, -EINVAL,
                       "zone '" STR_FMT "' of offer %s: want small letters, digits, '-'",
                       STR_ARG(from->zone), o->name);
    l->sold[l->offer_count] = *from;
    l->sold[l->offer_count].name = l->sold[l->offer_count].zone = (struct str){ 0 };
    l->offer_count++;
    return 0;
}

int cloud_local_open(const struct local_config *config, void **ret_ctx, struct err *err)
{
    int rc = 0;
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
    *ret_ctx = l;
    return 0;
}
