/* blocks.c - reads one long reply of GET /internal/events line by line. */
#include "router/blocks.h"

#include "base/io/log.h"
#include "router/request.h"

#include <stdio.h>
#include <stdlib.h>

#define ARENA_BYTES_MAX ((size_t)1 << 20)
#define LOG_US 60000000

struct block_feed {
    struct loop *loop;
    struct signer *signer;
    const struct fleet_link *link;
    struct prefix_index *index;
    uint32_t slot;
    struct target target;
    uint64_t seed; /* of the fleet's block keys */
    struct signed_call *call;
    struct loop_timer retry;
    struct line_reader lines;
    struct arena arena;
    uint64_t boot, seq;
    bool in_snapshot;
    block_load_fn on_load;
    void *on_load_arg;
    struct reported_load load; /* as told at told_us */
    int64_t told_us;
    struct log_limit log; /* an engine that is not understood is tried twice a second */
};

static void connect_now(void *arg);

static void forget(struct block_feed *f)
{
    prefix_index_drop_slot(f->index, f->slot);
    f->boot = f->seq = 0;
    f->in_snapshot = false;
}

/* Returns true if the engine's block keys can match ours: they cover as many tokens and are salted alike.
 * Another seed, or another way of salting (an engine of another version), makes keys that no request of
 * ours will ever have. */
static bool keys_are_ours(const struct block_feed *f, const struct block_event *ev)
{
    char salt[BLOCK_KEY_HEX + 1];
    struct str none = { 0 };
    block_key_hex(block_salt(f->seed, ev->digest, none, none), salt);
    return ev->block_tokens == BLOCK_TOKENS && str_eq(ev->salt_check, str_from(salt));
}

static int on_hello(struct block_feed *f, const struct block_event *ev)
{
    if (!keys_are_ours(f, ev)) {
        uint64_t skipped;
        if (log_pass(&f->log, loop_now_us(f->loop), LOG_US, &skipped)) {
            log_event(LOG_WARN, "blocks_differ",
                      "instance=%s block_tokens=%u want=%d salt_check=" STR_FMT " skipped=%lu",
                      f->target.instance, ev->block_tokens, BLOCK_TOKENS, STR_ARG(ev->salt_check),
                      (unsigned long)skipped);
        }
        return -EINVAL;
    }
    if (ev->boot != f->boot) forget(f);
    f->boot = ev->boot;
    f->load = (struct reported_load){ 0 };
    f->told_us = loop_now_us(f->loop);
    return 0;
}

static int on_change(struct block_feed *f, const struct block_event *ev)
{
    if (ev->seq != f->seq + 1) return -EPROTO; /* a gap: start over */
    for (uint32_t i = 0; i < ev->key_count; i++) {
        if (ev->kind == EVENT_ADD) {
            prefix_index_add(f->index, f->slot, ev->keys[i]);
        } else {
            prefix_index_drop(f->index, f->slot, ev->keys[i]);
        }
    }
    f->seq = ev->seq;
    return 0;
}

static void on_snapshot(struct block_feed *f, const struct block_event *ev)
{
    if (!f->in_snapshot) prefix_index_drop_slot(f->index, f->slot);
    f->in_snapshot = ev->more;
    for (uint32_t i = 0; i < ev->key_count; i++) {
        prefix_index_add(f->index, f->slot, ev->keys[i]);
    }
    f->seq = ev->seq;
}

static void on_load(struct block_feed *f, const struct block_event *ev)
{
    f->load = (struct reported_load){ .running = ev->running,
                                      .waiting = ev->waiting,
                                      .prefill_tokens = ev->prefill_tokens,
                                      .kv_tokens = ev->kv_tokens,
                                      .head_pages = ev->head_pages,
                                      .uncached_total = ev->uncached_total };
    f->told_us = loop_now_us(f->loop);
    if (f->on_load) f->on_load(f->on_load_arg, f->slot, &f->load);
}

const struct reported_load *block_feed_load(const struct block_feed *f, int64_t *ret_told_us)
{
    if (f->boot == 0 || !f->on_load) return NULL;
    *ret_told_us = f->told_us;
    return &f->load;
}

static int on_line(void *arg, struct str line)
{
    struct block_feed *f = arg;
    if (line.len == 0) return 0; /* keeps the connection alive */
    struct err err = { 0 };
    struct block_event ev;
    arena_reset(&f->arena);
    int rc = block_event_decode(line, &f->arena, &ev, &err);
    if (rc < 0) {
        uint64_t skipped;
        if (log_pass(&f->log, loop_now_us(f->loop), LOG_US, &skipped)) {
            log_event(LOG_WARN, "blocks_malformed", "instance=%s error=%s skipped=%lu",
                      f->target.instance, err.text, (unsigned long)skipped);
        }
        return rc;
    }
    if (ev.kind == EVENT_HELLO) return on_hello(f, &ev);
    if (f->boot == 0) return -EPROTO;
    if (ev.kind == EVENT_LOAD) {
        on_load(f, &ev);
        return 0;
    }
    if (ev.kind == EVENT_SNAPSHOT) {
        on_snapshot(f, &ev);
        return 0;
    }
    return on_change(f, &ev);
}

static void again(struct block_feed *f)
{
    f->call = NULL;
    line_reader_fini(&f->lines);
    loop_timer_set(f->loop, &f->retry, loop_now_us(f->loop) + BLOCK_FEED_RETRY_US);
}

static void on_data(void *arg, struct str data)
{
    struct block_feed *f = arg;
    if (line_reader_feed(&f->lines, data, on_line, f) == 0) return;
    signed_call_cancel(f->call);
    forget(f);
    again(f);
}

static void on_end(void *arg, enum http_end why)
{
    (void)why;
    struct block_feed *f = arg;
    /* The engine may have died with its blocks. If only the stream broke, the snapshot restores them. */
    forget(f);
    again(f);
}

static void connect_now(void *arg)
{
    struct block_feed *f = arg;
    char path[96];
    snprintf(path, sizeof path, "/internal/events?boot=%016llx&from=%llu%s",
             (unsigned long long)f->boot, (unsigned long long)f->seq, f->on_load ? "&load=1" : "");
    struct fleet_id id;
    const struct target *t = &f->target;
    bool agent = t->agent_port > 0;
    struct http_call_request call = { .host = str_from(agent ? t->agent_host : t->host),
                                      .port = agent ? t->agent_port : t->port,
                                      .tls = agent ? t->agent_tls : t->tls,
                                      .path = str_from(path),
                                      .on_data = on_data,
                                      .on_end = on_end,
                                      .arg = f };
    line_reader_init(&f->lines, EVENT_LINE_BYTES_MAX);
    fleet_id_engine(f->link, f->target.instance, &id);
    f->call = signed_call_start(f->signer, &call, &id.as, true, NULL);
    if (!f->call) again(f);
}

struct block_feed *block_feed_new(struct loop *loop, struct signer *signer,
                                  struct prefix_index *index, uint32_t slot,
                                  const struct target *target, const struct fleet_link *link)
{
    struct block_feed *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->loop = loop;
    f->signer = signer;
    f->link = link;
    f->index = index;
    f->slot = slot;
    f->target = *target;
    f->seed = link->held.block_seed;
    f->retry = (struct loop_timer){ .fn = connect_now, .arg = f };
    arena_init(&f->arena, ARENA_BYTES_MAX);
    /* The first turn connects, so that the caller can call block_feed_on_load before. */
    loop_timer_set(loop, &f->retry, loop_now_us(loop));
    return f;
}

void block_feed_on_load(struct block_feed *f, block_load_fn fn, void *arg)
{
    f->on_load = fn;
    f->on_load_arg = arg;
}

void block_feed_free(struct block_feed *f)
{
    if (!f) return;
    if (f->call) {
        signed_call_cancel(f->call);
        line_reader_fini(&f->lines);
    }
    loop_timer_clear(f->loop, &f->retry);
    arena_fini(&f->arena);
    free(f);
}
