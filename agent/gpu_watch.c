/* gpu_watch.c - runs the thread that asks the drivers, and hands what it finds to the loop.
 *
 *     thread:  open NVML, list sysfs ──► wait for an Xid ──► read counters ──┐
 *                                            ▲                               │ under the lock
 *                                            └───────────────────────────────┤
 *     loop:    on_found, on_event ◄── health (core/gpu_health.h) ◄── take ◄──┘ loop_post
 *
 * The two share one object, which the last of them frees. The health is kept on the loop: only facts cross. */
#include "agent/gpu_watch.h"

#include "agent/gpu_nvml.h"
#include "agent/gpu_sysfs.h"
#include "base/core/bits.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/loop/lock.h"
#include "base/wire/report.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define UUID_LEAST 8 /* of a cut one: "GPU-" and a few digits */

/* Holds the thread's findings that the loop has not taken yet. */
struct news {
    uint32_t count;
    bool found;
    struct gpu_device device[WIRE_GPUS_MAX];
    bool read;
    struct gpu_sample sample[WIRE_GPUS_MAX];
    struct {
        uint32_t gpu, xid;
    } xid[GPU_EVENTS_MAX];
    uint32_t xid_count, dropped;
};

struct shared {
    struct lock lock; /* the members up to `news`, too */
    pthread_cond_t wake;
    int holders;       /* the watch, the thread, a post under way */
    struct loop *loop; /* NULL: the watch has left */
    struct gpu_watch *owner;
    bool stopping, posted;
    int64_t calling_us; /* the thread is in a driver since then; 0: it is not */
    struct news news;

    char sysfs[PATH_MAX], use[LOG_LINE_MAX]; /* constant */
};

struct gpu_watch {
    struct gpu_watch_config config;
    struct shared *shared;
    pthread_t thread;
    struct news now; /* as taken */
    struct gpu_health health;
    bool found;
};

/* ---- the thread ---- */

static void let_go(struct shared *s)
{
    lock_take(&s->lock);
    bool last = --s->holders == 0;
    lock_drop(&s->lock);
    if (!last) return;
    lock_fini(&s->lock);
    pthread_cond_destroy(&s->wake);
    free(s);
}

static void on_news(void *arg);

/* Tells the loop that there is something to take, unless it knows. */
static void post(struct shared *s)
{
    lock_assert_held(&s->lock);
    if (s->posted || !s->loop) return;
    s->posted = loop_post(s->loop, on_news, s) == 0;
    s->holders += s->posted;
}

/* Notes that the thread goes into a driver, or is back. Returns false when it is to end. */
static bool enter(struct shared *s, bool in)
{
    lock_take(&s->lock);
    s->calling_us = in ? clock_mono_us() : 0;
    bool go = !s->stopping;
    lock_drop(&s->lock);
    return go;
}

/* Returns false when the thread is to end, which cuts the pause short. */
static bool rest(struct shared *s, int64_t us)
{
    struct timespec now, until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += us % 1000000 * 1000;
    until.tv_sec += us / 1000000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    lock_take(&s->lock);
    do {
        if (!s->stopping) lock_wait_until(&s->lock, &s->wake, &until);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!s->stopping && (now.tv_sec < until.tv_sec ||
                              (now.tv_sec == until.tv_sec && now.tv_nsec < until.tv_nsec)));
    bool go = !s->stopping;
    lock_drop(&s->lock);
    return go;
}

/* The GPUs of a machine as the thread knows them: NVML's, or sysfs's. A machine has those of one vendor. */
struct found {
    struct nvml *nvml; /* NULL: sysfs's */
    uint32_t count;
    uint32_t at[WIRE_GPUS_MAX]; /* of NVML */
    struct gpu_device device[WIRE_GPUS_MAX];
};

static void keep_used(const struct shared *s, struct found *f, const struct gpu_device *d,
                      uint32_t at)
{
    if (!gpu_is_used(str_from(s->use), d->index, d->uuid)) return;
    f->at[f->count] = at;
    f->device[f->count++] = *d;
}

static bool find(const struct shared *s, struct found *f)
{
    struct gpu_device cards[WIRE_GPUS_MAX];
    struct err err = { 0 };
    *f = (struct found){ 0 };
    int rc = nvml_open(&f->nvml, &err);
    for (uint32_t i = 0; rc == 0 && i < nvml_count(f->nvml); i++)
        keep_used(s, f, nvml_device(f->nvml, i), i);
    if (rc == 0 && nvml_is_deaf(f->nvml))
        log_event(LOG_WARN, "gpu_faults_unheard", "why=%s", nvml_is_deaf(f->nvml));
    uint32_t count = rc < 0 ? gpu_sysfs_find(s->sysfs, cards) : 0;
    for (uint32_t i = 0; i < count; i++)
        keep_used(s, f, &cards[i], i);
    /* No library is the usual thing where there is no such GPU; a library without a driver is not. */
    if (rc < 0 && rc != -ENOENT && f->count == 0)
        log_event(LOG_WARN, "gpus_unknown", "why=%s", err_text(&err, rc));
    return f->count > 0;
}

static void tell_found(struct shared *s, const struct found *f)
{
    lock_take(&s->lock);
    s->news.found = true;
    s->news.count = f->count;
    memcpy(s->news.device, f->device, f->count * sizeof f->device[0]);
    post(s);
    lock_drop(&s->lock);
}

static void tell_xid(struct shared *s, uint32_t gpu, uint32_t xid)
{
    lock_take(&s->lock);
    struct news *n = &s->news;
    if (n->xid_count < GPU_EVENTS_MAX) {
        n->xid[n->xid_count].gpu = gpu;
        n->xid[n->xid_count++].xid = xid;
    } else {
        n->dropped++;
    }
    post(s);
    lock_drop(&s->lock);
}

static void tell_samples(struct shared *s, const struct gpu_sample *sample, uint32_t count)
{
    lock_take(&s->lock);
    s->news.read = true;
    memcpy(s->news.sample, sample, count * sizeof *sample);
    post(s);
    lock_drop(&s->lock);
}

static void watch(struct shared *s, struct found *f)
{
    struct gpu_sample sample[WIRE_GPUS_MAX];
    uint32_t gpu = 0, xid = 0;
    while (enter(s, true)) {
        for (uint32_t i = 0; i < f->count; i++)
            if (f->nvml)
                nvml_read(f->nvml, f->at[i], &sample[i]);
            else
                gpu_sysfs_read(s->sysfs, &f->device[i], &sample[i]);
        (void)enter(s, false);
        tell_samples(s, sample, f->count);
        bool some = f->nvml ? nvml_wait(f->nvml, GPU_WAIT_MS, &gpu, &xid)
                            : !rest(s, GPU_WAIT_MS * INT64_C(1000));
        for (uint32_t i = 0; some && f->nvml && i < f->count; i++)
            if (f->at[i] == gpu) tell_xid(s, i, xid);
    }
}

static void *run(void *arg)
{
    struct shared *s = arg;
    struct found f = { 0 };
    bool found = false;
    for (uint32_t i = 0; i < GPU_TRIES && !found && enter(s, true); i++) {
        found = find(s, &f);
        bool go = enter(s, false);
        if (found) break;
        nvml_free(f.nvml);
        f.nvml = NULL;
        if (!go || !rest(s, GPU_AGAIN_US)) break;
    }
    if (found) tell_found(s, &f);
    if (found) watch(s, &f);
    nvml_free(f.nvml);
    (void)enter(s, false);
    let_go(s);
    return NULL;
}

/* ---- the loop ---- */

static void log_event_of(const struct gpu_event *e)
{
    log_event(e->action == GPU_IGNORE ? LOG_INFO : LOG_WARN, "gpu_fault",
              "code=%s action=%s why=%s", e->code, gpu_action_names[e->action], e->why);
}

static void take_found(struct gpu_watch *w)
{
    if (!w->now.found || w->found) return;
    w->found = true;
    for (uint32_t i = 0; i < w->now.count; i++) {
        const struct gpu_device *d = &w->now.device[i];
        log_event(LOG_INFO, "gpu", "index=%u name=%s uuid=%s memory=%llu hardware=%s mig=%s",
                  d->index, d->name, d->uuid, (unsigned long long)d->memory_bytes,
                  d->hardware ? d->hardware : "", d->mig ? "yes" : "no");
    }
    w->config.on_found(w->config.arg);
}

static void take_faults(struct gpu_watch *w)
{
    struct gpu_event e;
    int64_t now_us = loop_now_us(w->config.loop);
    /* First: counters that grew with an Xid are of the same cause. */
    for (uint32_t i = 0; i < w->now.xid_count; i++) {
        uint32_t gpu = w->now.xid[i].gpu;
        gpu_health_xid(&w->health, gpu, w->now.xid[i].xid, w->now.device[gpu].mig, now_us, &e);
        log_event_of(&e);
        w->config.on_event(w->config.arg, &e);
    }
    for (uint32_t i = 0; w->now.read && i < w->now.count; i++) {
        if (!gpu_health_counters(&w->health, i, &w->now.sample[i].counters, w->now.device[i].mig,
                                 now_us, &e))
            continue;
        log_event_of(&e);
        w->config.on_event(w->config.arg, &e);
    }
    if (w->now.dropped > 0) log_event(LOG_WARN, "gpu_faults_dropped", "count=%u", w->now.dropped);
}

static void on_news(void *arg)
{
    struct shared *s = arg;
    struct gpu_watch *w;
    lock_take(&s->lock);
    s->posted = false;
    w = s->owner;
    if (w) {
        bool read = w->now.read;
        struct gpu_sample before[WIRE_GPUS_MAX];
        memcpy(before, w->now.sample, sizeof before);
        w->now = s->news;
        if (!s->news.read && read) {
            w->now.read = true;
            memcpy(w->now.sample, before, sizeof before);
        }
        s->news.read = false;
        s->news.xid_count = s->news.dropped = 0;
    }
    lock_drop(&s->lock);
    if (w) {
        take_found(w);
        take_faults(w);
    }
    let_go(s);
}

uint32_t gpu_watch_count(const struct gpu_watch *w)
{
    return w ? w->now.count : 0;
}

const struct gpu_health *gpu_watch_health(const struct gpu_watch *w)
{
    return w ? &w->health : NULL;
}

int64_t gpu_watch_silent_us(const struct gpu_watch *w)
{
    if (!w) return 0;
    lock_take(&w->shared->lock);
    int64_t since_us = w->shared->calling_us;
    lock_drop(&w->shared->lock);
    int64_t us = since_us ? clock_mono_us() - since_us : 0;
    return us > GPU_SILENT_US ? us : 0;
}

void gpu_watch_fill(const struct gpu_watch *w, struct wire_gpu gpu[WIRE_GPUS_MAX],
                    struct wire_fault fault[WIRE_FAULTS_MAX], struct agent_report *r)
{
    if (!w) return;
    for (uint32_t i = 0; i < w->now.count; i++) {
        const struct gpu_device *d = &w->now.device[i];
        const struct gpu_sample *s = &w->now.sample[i];
        gpu[i] = (struct wire_gpu){ .name = str_from(d->name),
                                    .uuid = str_from(d->uuid),
                                    .hardware = str_from(d->hardware ? d->hardware : ""),
                                    .memory_bytes = d->memory_bytes,
                                    .mig = d->mig,
                                    .measured = s->measured,
                                    .memory_used_bytes = s->memory_used_bytes,
                                    .busy = s->busy,
                                    .celsius = s->celsius,
                                    .watts = s->watts };
    }
    const struct gpu_health *h = &w->health;
    for (uint32_t i = 0; i < h->fault_count; i++)
        fault[i] = (struct wire_fault){ str_from(h->fault[i].code), h->fault[i].count };
    r->gpus = gpu;
    r->gpu_count = w->now.count;
    r->faults = fault;
    r->fault_count = h->fault_count;
    r->machine = h->verdict;
    r->machine_code = str_from(h->code);
    r->machine_why = str_from(h->why);
}

bool gpu_is_used(struct str use, uint32_t index, const char *uuid)
{
    if (use.len == 0) return true;
    while (use.len > 0) {
        uint64_t number;
        struct str one = str_trim(str_cut(&use, ','));
        if (str_to_u64(one, &number) == 0 && number == index) return true;
        if (one.len >= UUID_LEAST && str_starts(str_from(uuid), one)) return true;
    }
    return false;
}

/* ---- life ---- */

static int start(struct gpu_watch *w)
{
    sigset_t all, before; /* signals belong to the loop's thread */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, run, w->shared);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

int gpu_watch_open(const struct gpu_watch_config *config, struct gpu_watch **ret, struct err *err)
{
    pthread_condattr_t attr;
    if (config->sysfs.len >= PATH_MAX || config->use.len >= LOG_LINE_MAX)
        return err_set(err, -ENAMETOOLONG, "agent.gpus or agent.sysfs is too long");
    struct gpu_watch *w = calloc(1, sizeof *w);
    struct shared *s = calloc(1, sizeof *s);
    must(w && s);
    w->config = *config;
    w->shared = s;
    *s = (struct shared){ .holders = 2, .loop = config->loop, .owner = w };
    memcpy(s->sysfs, config->sysfs.data, config->sysfs.len);
    if (config->use.len > 0) memcpy(s->use, config->use.data, config->use.len);
    lock_init(&s->lock);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &attr);
    pthread_condattr_destroy(&attr);
    int rc = start(w);
    if (rc < 0) {
        let_go(s);
        let_go(s);
        free(w);
        return err_set(err, rc, "no thread to watch GPUs");
    }
    *ret = w;
    return 0;
}

void gpu_watch_close(struct gpu_watch *w)
{
    struct timespec until;
    if (!w) return;
    struct shared *s = w->shared;
    lock_take(&s->lock);
    s->stopping = true;
    s->loop = NULL;
    s->owner = NULL;
    pthread_cond_signal(&s->wake);
    lock_drop(&s->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += GPU_CLOSE_S;
    if (pthread_timedjoin_np(w->thread, NULL, &until) != 0) {
        pthread_detach(w->thread);
        log_event(LOG_WARN, "gpu_driver_hangs", "what=its thread is left behind");
    }
    let_go(s);
    free(w);
}
