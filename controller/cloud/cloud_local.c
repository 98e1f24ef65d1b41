/* cloud_local.c - agents as processes, folders as intents.
 *
 * A create is: make the folder, write spec.json, spawn the agent. A crash before spec.json leaves
 * an empty folder, which is nothing; a crash behind it leaves an instance whose agent never came
 * up, which the next listing starts. A spawned agent that has not locked yet is told from one that
 * never was by the age of `spawned`, a mark that is touched before each spawn: within
 * LOCAL_SPAWN_US no second one is tried, and if it is, the lock lets one of them through. */
#include "controller/cloud/cloud_local.h"

#include "base/io/file.h"
#include "base/io/proc.h"
#include "controller/cloud/cloud_local_folder.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define AGENT_WORDS_MAX 16

struct local {
    char *folder;
    char *word[AGENT_WORDS_MAX + 1];
    double machine_share;
    struct offer offer[LOCAL_OFFERS_MAX];
    int64_t launch_us[LOCAL_OFFERS_MAX];
    uint32_t offer_count;
};

/* ---- agents ---- */

static int spawn_agent(const struct local *l, const char *intent, int64_t now_us, struct err *err)
{
    char spec[PATH_MAX], log[PATH_MAX];
    int rc = local_path(l->folder, intent, "spec.json", spec, err);
    if (rc == 0) rc = local_path(l->folder, intent, "agent.log", log, err);
    if (rc == 0) rc = local_write_mark(l->folder, intent, "spawned", now_us, err);
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

/* Rule (2): brings back what should not be dead. */
static void revive(const struct local *l, const struct local_sight *s, int64_t now_us)
{
    bool orphaned_engine = !s->agent.pid && s->engine.pid;
    bool never_came = !s->agent.pid && !s->agent_was;
    if (s->removed_us || s->listed.unreadable || (!orphaned_engine && !never_came)) return;
    if (now_us - s->spawned_us < LOCAL_SPAWN_US) return;
    /* A spawn that fails is tried again by the next listing; the boot deadline ends it. */
    (void)spawn_agent(l, s->listed.intent, now_us, NULL);
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

struct share_sum {
    double share, largest; /* of the offers: what is unreadable may have any */
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
    rc = local_write_spec(l->folder, req, o->share, now_us, l->launch_us[index], err);
    if (rc < 0) return rc;
    rc = spawn_agent(l, req->intent, now_us, err);
    if (rc < 0) return rc; /* the folder stands: the next listing tries again */
    rc = local_look(l->folder, req->intent, &s, err);
    if (rc < 0) return rc;
    *ret = s.listed;
    return 0;
}

static int get(void *ctx, const char *intent, int64_t now_us, struct listed *ret, struct err *err)
{
    struct local *l = ctx;
    struct local_sight s;
    int rc = local_look(l->folder, intent, &s, err);
    if (rc < 0) return rc;
    revive(l, &s, now_us);
    *ret = s.listed;
    ret->gone = local_is_dead(&s, now_us);
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
    bool dead = local_is_dead(s, j->now_us);
    if (dead && s->removed_us) return local_bury(j->l->folder, s->listed.intent, err);
    revive(j->l, s, j->now_us);
    if (j->count == j->max) return err_set(err, -E2BIG, "more than %u instances", j->max);
    j->ret[j->count] = s->listed;
    j->ret[j->count++].gone = dead;
    return 0;
}

static int list(void *ctx, int64_t now_us, struct listed *ret, uint32_t max, uint32_t *ret_count,
                struct err *err)
{
    const struct local *l = ctx;
    (void)proc_reap_all(); /* agents that ended: nobody else of this process has children */
    struct list_job j = { l, ret, 0, max, now_us };
    int rc = local_each(l->folder, list_one, &j, err);
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
    struct local_sight s;
    int rc = local_look(l->folder, id, &s, err);
    if (rc == -ENOENT) return 0;
    if (rc < 0) return rc;
    if (s.removed_us == 0) {
        rc = local_write_mark(l->folder, id, "removed", now_us, err);
        if (rc < 0) return rc;
        s.removed_us = now_us;
    }
    if (local_is_dead(&s, now_us)) return local_bury(l->folder, id, err);
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
