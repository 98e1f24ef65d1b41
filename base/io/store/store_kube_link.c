/* store_kube_link.c - runs the client of base/io/kube on a private loop, for a caller that blocks.
 *
 * Rejected: the controller's own loop. Its callbacks would run in the middle of a write, and see a state that is
 * half decided. */
#include "base/io/store/store_kube_link.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define TURN_US 50000

struct kube_link {
    struct loop *loop;
    struct kube_config *cluster;
    struct kube_client *client;
    char ns[KUBE_NS_BYTES];
    uint32_t open; /* calls under way */
    bool reached;  /* in this round */
    bool up;       /* in the last one */
    uint32_t failures;
    int64_t again_us;
    struct rng rng;
};

static void on_end(void *arg, const struct kube_reply *reply)
{
    struct kube_job *j = arg;
    j->call = NULL;
    j->rc = reply->rc;
    j->unsure = reply->unsure;
    snprintf(j->problem, sizeof j->problem, "%s", reply->problem);
    buf_clear(&j->body);
    if (reply->rc == 0) j->rc = buf_str(&j->body, reply->body);
    if (reply->rc == 0 && j->rc < 0) j->unsure = j->verb != KUBE_GET;
    j->link->open--;
    j->link->reached |= reply->code != 0;
}

static void start(struct kube_link *l, struct kube_job *j, int64_t deadline_us)
{
    struct err err = { 0 };
    const struct kube_request req = {
        .verb = j->verb,
        .resource = j->resource,
        .ns = str_from(l->ns),
        .name = str_from(j->name),
        .body = j->verb == KUBE_GET ? (struct str){ 0 } : buf_view(&j->body),
        .urgent = true, /* the budget is for calls without an end; these are bounded by the store */
        .deadline_us = deadline_us,
        .on_end = on_end,
        .arg = j,
    };
    j->link = l;
    j->rc = kube_start(l->client, &req, &j->call, &err);
    j->unsure = false;
    if (j->rc < 0)
        snprintf(j->problem, sizeof j->problem, "%s", err.text);
    else
        l->open++;
}

/* Turns the loop until fewer than `most` calls are open. */
static int await(struct kube_link *l, uint32_t most)
{
    int rc = 0;
    while (rc == 0 && l->open > most)
        rc = loop_turn(l->loop, TURN_US);
    return rc;
}

static void concluded(struct kube_link *l)
{
    l->up = l->reached;
    if (l->up) {
        l->failures = 0;
        return;
    }
    int64_t most_us = KUBE_LINK_BACK_OFF_MIN_US << min_u32(l->failures++, 10);
    most_us = min_i64(most_us, KUBE_LINK_BACK_OFF_MAX_US);
    l->again_us = clock_mono_us() + most_us / 2 + (int64_t)rng_below(&l->rng, most_us / 2);
}

int kube_link_run(struct kube_link *l, struct kube_job *jobs, uint32_t count, int64_t wait_us,
                  struct err *err)
{
    if (l->failures > 0 && clock_mono_us() < l->again_us)
        return err_set(err, -ENETDOWN, "store: the API server could not be reached a moment ago");
    int rc = loop_turn(l->loop, 0); /* reads the clock; sees connections that ended meanwhile */
    int64_t deadline_us = clock_mono_us() + wait_us;
    l->reached = false;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        rc = await(l, KUBE_LINK_WINDOW - 1);
        if (rc == 0) start(l, &jobs[i], deadline_us);
    }
    if (rc == 0) rc = await(l, 0);
    if (rc < 0) { /* our own epoll failed */
        for (uint32_t i = 0; i < count; i++)
            if (jobs[i].call) kube_cancel(TAKE(jobs[i].call));
        l->open = 0;
        return err_set(err, -EREMOTEIO, "store: cannot wait for the API server: %s", strerror(-rc));
    }
    concluded(l);
    return 0;
}

bool kube_link_is_up(const struct kube_link *l)
{
    return l->up;
}

struct str kube_link_ns(const struct kube_link *l)
{
    return str_from(l->ns);
}

void kube_link_free(struct kube_link *l)
{
    if (!l) return;
    kube_client_free(l->client);
    kube_config_free(l->cluster);
    loop_free(l->loop);
    free(l);
}

CLEANUP_FREEP(kube_link, struct kube_link)

int kube_link_new(const struct store_kube_config *config, struct kube_link **ret, struct err *err)
{
    CLEANUP(kube_link_freep) struct kube_link *l = calloc(1, sizeof *l);
    char path[PATH_MAX];
    uint64_t seed;
    if (!l) return err_set(err, -ENOMEM, "store: no memory");
    if (config->kubeconfig.len >= sizeof path)
        return err_set(err, -ENAMETOOLONG, "kubernetes.kubeconfig: the path is too long");
    snprintf(path, sizeof path, STR_FMT, STR_ARG(config->kubeconfig));
    const struct kube_source source = { .path = path[0] ? path : NULL,
                                        .context = config->context,
                                        .environ = config->environ };
    int rc = kube_config_load(&source, &l->cluster, err);
    if (rc < 0) return rc;
    struct str ns = config->ns.len ? config->ns : l->cluster->ns;
    if (ns.len >= sizeof l->ns)
        return err_set(err, -EINVAL, "a namespace has at most %d letters", KUBE_NS_BYTES - 1);
    snprintf(l->ns, sizeof l->ns, STR_FMT, STR_ARG(ns));
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        return err_set(err, -EIO, "the system gives no random bytes");
    rng_seed(&l->rng, seed);
    const struct kube_client_config client = { .seed = seed, .environ = config->environ };
    rc = loop_new(&l->loop, err);
    if (rc == 0) rc = kube_client_new(l->loop, l->cluster, &client, &l->client, err);
    if (rc == 0) *ret = TAKE(l);
    return rc;
}

/* ---- one job ---- */

void kube_job_set(struct kube_job *j, enum kube_verb verb, const struct kube_resource *resource,
                  const char *name)
{
    buf_clear(&j->body);
    j->verb = verb;
    j->resource = resource;
    snprintf(j->name, sizeof j->name, "%s", name);
}

int kube_job_failed(const struct kube_job *j, struct err *err)
{
    int rc = j->unsure ? -EREMOTEIO
             : j->rc == -ETIMEDOUT || j->rc == -EHOSTUNREACH || j->rc == -EACCES ||
                     j->rc == -EPERM || j->rc == -ENOMEM || j->rc == -ECONNRESET
                 ? j->rc
                 : -EIO;
    return err_set(err, rc, "store: %s%s", j->problem, j->unsure ? "; it may be written" : "");
}

bool kube_job_is_conflict(const struct kube_job *j)
{
    if (j->unsure) return false;
    return j->rc == -ESTALE || j->rc == -EEXIST || (j->rc == -ENOENT && j->verb == KUBE_PATCH);
}
