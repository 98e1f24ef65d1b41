/* translator.c - joins the tokenizer, the view of the cache and the API of an engine of another kind.
 *
 *     tokenizer's file ──► thread ──► digest ──► view ◄── kv_feed ◄── the engine's KV events
 *                                                  └──► api ──► routers
 */
#include "agent/translator.h"

#include "agent/metrics.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/io/loop/lock.h"

#include <pthread.h>
#include <stdlib.h>

#define FILE_BYTES_MAX (BUNDLE_BYTES_MAX + 4096)

/* The reading of a tokenizer's file. The thread and the translator share it; the last frees it. */
struct reading {
    struct lock lock;
    int holders;
    struct loop *loop; /* NULL: the translator has left */
    struct translator *owner;
    tokenizer_load_fn *load;
    char path[LAUNCH_ARG_BYTES_MAX + 1];
    struct tokenizer_source found;
    struct err err;
    int rc;
};

struct translator {
    struct translator_config config;
    struct agent_api *api;
    struct reading *reading; /* NULL: none is under way */
    struct tokenizer_source tokenizer;
    bool has_tokenizer;
    struct kv_view *view;
    struct kv_feed *feed;
    uint64_t boot;
    char kv_events[LAUNCH_ARG_BYTES_MAX + 1], kv_replay[LAUNCH_ARG_BYTES_MAX + 1];
    char host[REPORT_NAME_BYTES_MAX + 1];
};

/* ---- reading the tokenizer ---- */

static void let_go(struct reading *r)
{
    lock_take(&r->lock);
    bool last = --r->holders == 0;
    lock_drop(&r->lock);
    if (!last) return;
    tokenizer_source_fini(&r->found);
    lock_fini(&r->lock);
    free(r);
}

static int read_ours(const char *path, struct tokenizer_source *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = file_read(path, FILE_BYTES_MAX, &text, err);
    if (rc == 0) rc = tokenizer_source_parse(buf_view(&text), ret, err);
    return rc < 0 ? err_prefix(err, rc, "%s", path) : 0;
}

static void on_change(void *arg)
{
    struct translator *t = arg;
    agent_api_changed(t->api);
}

/* Begins to follow the cache, once block keys can be made. */
static void follow(struct translator *t)
{
    const struct translator_config *c = &t->config;
    struct err err = { "" };
    if (c->kv_events.len == 0) return;
    int rc = kv_view_new(c->held->block_seed, str_from(t->tokenizer.digest), KV_VIEW_BLOCKS_MAX,
                         &t->view, &err);
    const struct kv_feed_config feed = { .loop = c->loop,
                                         .events = c->kv_events,
                                         .replay = c->kv_replay,
                                         .view = t->view,
                                         .on_change = on_change,
                                         .arg = t };
    if (rc == 0) rc = kv_feed_new(&feed, &t->feed, &err);
    if (rc < 0) log_event(LOG_WARN, "kv_events_off", "error=%s", err_text(&err, rc));
}

static void on_read(void *arg)
{
    struct reading *r = arg;
    struct translator *t = r->owner;
    if (!t) {
        let_go(r);
        return;
    }
    t->reading = NULL;
    if (r->rc < 0) {
        log_event(LOG_WARN, "tokenizer_unread", "error=%s", err_text(&r->err, r->rc));
    } else {
        t->tokenizer = r->found;
        r->found = (struct tokenizer_source){ 0 };
        t->has_tokenizer = true;
        log_event(LOG_INFO, "tokenizer_ready", "digest=%.12s path=%s", t->tokenizer.digest,
                  r->path);
        follow(t);
        agent_api_set(t->api, &t->tokenizer, t->view);
        t->config.on_ready(t->config.arg);
    }
    let_go(r); /* the translator's hold */
    let_go(r); /* and the post's, which the thread took */
}

static void *read_file(void *arg)
{
    struct reading *r = arg;
    r->rc = r->load ? r->load(r->path, &r->found, &r->err) : read_ours(r->path, &r->found, &r->err);
    lock_take(&r->lock);
    r->holders++; /* the post's */
    bool told = r->loop && loop_post(r->loop, on_read, r) == 0;
    lock_drop(&r->lock);
    if (!told) let_go(r);
    let_go(r);
    return NULL;
}

static int start_reading(struct translator *t, struct err *err)
{
    const struct translator_config *c = &t->config;
    pthread_t thread;
    if (c->tokenizer.len > LAUNCH_ARG_BYTES_MAX)
        return err_set(err, -ENAMETOOLONG, "the path of the tokenizer");
    struct reading *r = calloc(1, sizeof *r);
    if (!r) return err_set(err, -ENOMEM, "no memory");
    memcpy(r->path, c->tokenizer.data, c->tokenizer.len);
    lock_init(&r->lock);
    r->holders = 2; /* the translator and the thread */
    r->loop = c->loop;
    r->owner = t;
    r->load = c->load;
    if (pthread_create(&thread, NULL, read_file, r) != 0) {
        r->holders = 1;
        let_go(r);
        return err_set(err, -EAGAIN, "no thread to read the tokenizer");
    }
    pthread_detach(thread);
    t->reading = r;
    return 0;
}

/* ---- life ---- */

CLEANUP_FREEP(translator, struct translator)

static void meter_cache(const struct translator *t, struct metrics *m)
{
    struct kv_view_counts view = { 0 };
    struct kv_feed_counts feed = { 0 };
    if (t->view) kv_view_counts(t->view, &view);
    if (t->feed) kv_feed_counts(t->feed, &feed);
    const struct str orphan = STR("orphan"), other = STR("unsupported"), full = STR("full");
    metric_set(metric_of(m, AM_KV_CONNECTED), feed.open);
    metric_set(metric_of(m, AM_KV_BLOCKS), view.blocks);
    metric_set(metric_of(m, AM_KV_KEYS), view.keys);
    metric_set(metric_of(m, AM_KV_MESSAGES), (double)feed.messages);
    metric_set(metric_of(m, AM_KV_GAPS), (double)feed.gaps);
    metric_set(metric_of(m, AM_KV_MALFORMED), (double)feed.malformed);
    metric_set(metric_series(m, AM_KV_SKIPPED, &orphan), (double)view.orphans);
    metric_set(metric_series(m, AM_KV_SKIPPED, &other), (double)view.unsupported);
    metric_set(metric_series(m, AM_KV_SKIPPED, &full), (double)view.full);
}

static void meter(void *arg, struct metrics *m)
{
    struct translator *t = arg;
    t->config.meter(t->config.arg, m);
    meter_cache(t, m);
}

static bool report(void *arg, struct engine_report *ret)
{
    const struct translator *t = arg;
    return t->config.report(t->config.arg, ret);
}

static struct str keep(char *to, struct str text)
{
    if (text.len > 0) memcpy(to, text.data, text.len);
    return str_of(to, text.len);
}

int translator_new(const struct translator_config *config, struct translator **ret, struct err *err)
{
    CLEANUP(translator_freep) struct translator *t = calloc(1, sizeof *t);
    if (!t) return err_set(err, -ENOMEM, "no memory");
    t->config = *config;
    if (strlen(config->host) > REPORT_NAME_BYTES_MAX ||
        config->kv_events.len > LAUNCH_ARG_BYTES_MAX ||
        config->kv_replay.len > LAUNCH_ARG_BYTES_MAX)
        return err_set(err, -ENAMETOOLONG, "the agent's host or an address of KV events");
    memcpy(t->host, config->host, strlen(config->host));
    t->config.kv_events = keep(t->kv_events, config->kv_events);
    t->config.kv_replay = keep(t->kv_replay, config->kv_replay);
    const struct agent_api_config api = { .loop = config->loop,
                                          .host = t->host,
                                          .port = config->port,
                                          .held = config->held,
                                          .scrapers = config->scrapers,
                                          .tls = config->tls,
                                          .report = report,
                                          .meter = meter,
                                          .arg = t };
    int rc = agent_api_new(&api, &t->api, err);
    if (rc == 0 && config->tokenizer.len > 0) rc = start_reading(t, err);
    if (rc < 0) return rc;
    *ret = TAKE(t);
    return 0;
}

void translator_free(struct translator *t)
{
    if (!t) return;
    if (t->reading) {
        lock_take(&t->reading->lock);
        t->reading->loop = NULL;
        t->reading->owner = NULL;
        lock_drop(&t->reading->lock);
        let_go(t->reading);
    }
    kv_feed_free(t->feed);
    agent_api_free(t->api);
    kv_view_free(t->view);
    tokenizer_source_fini(&t->tokenizer);
    free(t);
}

void translator_fill(const struct translator *t, struct engine_report *r)
{
    r->agent_host = str_from(t->host);
    r->agent_port = agent_api_port(t->api);
    r->agent_tls = t->config.tls != NULL;
    if (t->has_tokenizer) r->digest = str_from(t->tokenizer.digest);
    struct kv_feed_counts feed = { 0 };
    if (t->feed) kv_feed_counts(t->feed, &feed);
    r->kv_events = feed.open;
}

void translator_saw(struct translator *t, uint64_t boot)
{
    if (t->boot == boot) return;
    t->boot = boot;
    if (t->view) kv_view_clear(t->view);
    agent_api_end_streams(t->api);
}
