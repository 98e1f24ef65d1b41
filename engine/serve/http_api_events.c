/* http_api_events.c - streams of block events to routers.
 *
 *     hello -> (boot or place unknown: snapshot) -> add, drop, ...
 *
 * A watcher that is behind the ring, or new, asks the device for a snapshot: the names at one
 * moment between two steps. Events go on from that moment's number, so nothing is lost or told
 * twice. A watcher that does not read is left behind, not buffered for: it gets a snapshot when it
 * reads again.
 */
#include "base/core/bits.h"
#include "base/wire/events.h"
#include "engine/serve/http_api_call.h"

#include <stdlib.h>

#define WATCHERS_MAX 64       /* routers of one engine */
#define COPY_EVENTS 64        /* fetched at once */
#define LOAD_AGAIN_US 2000000 /* an unchanged load is told again, unless it is none */

struct watcher {
    struct list link;
    struct http_api *api;
    struct http_exchange *x; /* NULL: has left while a snapshot was on its way */
    uint64_t seq;            /* told so far */
    bool needs_snapshot, snapshot_asked;
    struct device_call call;
    struct block_key *keys; /* of the snapshot */
    uint32_t key_count;
    uint64_t snapshot_seq;

    bool wants_load;
    struct loop_timer load_timer;
    struct block_event load; /* told last */
    int64_t load_us;
};

static void watcher_free(struct watcher *w)
{
    if (list_linked(&w->link)) list_remove(&w->link);
    loop_timer_clear(w->api->loop, &w->load_timer);
    free(w->keys);
    free(w);
}

/* Ends the stream from our side. Not while a snapshot is on its way: then its return frees. */
static void drop(struct watcher *w)
{
    if (w->x) http_exchange_abort(w->x);
    w->x = NULL;
    if (!w->snapshot_asked) watcher_free(w);
}

static bool say(struct watcher *w)
{
    struct buf *out = &w->api->out;
    bool sent = out->rc == 0 && http_stream_write(w->x, out->data, out->len) == 0;
    buf_clear(out);
    if (!sent) drop(w);
    return sent;
}

static void snapshot_run(struct device_call *call, struct executor *x)
{
    struct watcher *w = call->arg;
    struct kv_index *index = sched_index(executor_sched(x));
    uint32_t cursor = 0, max = index->pool->total * index->granules;
    w->key_count = 0;
    w->keys = calloc(max, sizeof *w->keys);
    w->snapshot_seq = index->event_seq;
    if (!w->keys) return; /* noticed in snapshot_done */
    for (struct kv_event ev; kv_index_next(index, &cursor, &ev);) {
        memcpy(w->keys + w->key_count, ev.key, ev.key_count * sizeof *w->keys);
        w->key_count += ev.key_count;
    }
}

static void pump(struct watcher *w);

static void snapshot_done(struct device_call *call)
{
    struct watcher *w = call->arg;
    struct http_api *api = w->api;
    w->snapshot_asked = false;
    if (!w->x || !w->keys) {
        drop(w);
        return;
    }
    buf_clear(&api->out);
    uint32_t at = 0;
    do {
        uint32_t count = min_u32(w->key_count - at, EVENT_KEYS_MAX);
        struct block_event ev = {
            .kind = EVENT_SNAPSHOT,
            .seq = w->snapshot_seq,
            .keys = w->keys + at,
            .key_count = count,
            .more = at + count < w->key_count,
        };
        block_event_encode(&ev, &api->out);
        at += count;
    } while (at < w->key_count);
    free(w->keys);
    w->keys = NULL;
    w->seq = w->snapshot_seq;
    w->needs_snapshot = false;
    if (say(w)) pump(w);
}

static void ask_snapshot(struct watcher *w)
{
    if (w->snapshot_asked) return;
    w->snapshot_asked = true;
    w->call = (struct device_call){ .fn = snapshot_run, .done = snapshot_done, .arg = w };
    device_call(w->api->device, &w->call);
}

static void pump(struct watcher *w)
{
    struct kv_event ev[COPY_EVENTS];
    struct http_api *api = w->api;
    while (w->x && !w->needs_snapshot && !http_stream_full(w->x)) {
        int n = device_blocks(api->device, w->seq, ev, COPY_EVENTS);
        if (n == 0) return;
        if (n < 0) w->needs_snapshot = true;
        buf_clear(&api->out);
        for (int i = 0; i < n; i++) {
            struct block_event out = {
                .kind = ev[i].add ? EVENT_ADD : EVENT_DROP,
                .seq = ev[i].seq,
                .keys = ev[i].key,
                .key_count = ev[i].key_count,
            };
            block_event_encode(&out, &api->out);
            w->seq = ev[i].seq;
        }
        if (n > 0 && !say(w)) return;
    }
    if (w->x && w->needs_snapshot && !http_stream_full(w->x)) ask_snapshot(w);
}

static bool load_is_same(const struct block_event *a, const struct block_event *b)
{
    return a->running == b->running && a->waiting == b->waiting &&
           a->prefill_tokens == b->prefill_tokens && a->kv_tokens == b->kv_tokens &&
           a->uncached_total == b->uncached_total;
}

/* What this engine has from everybody, for a router that is not the only one. */
static void on_load_timer(void *arg)
{
    struct watcher *w = arg;
    struct http_api *api = w->api;
    int64_t now_us = loop_now_us(api->loop);
    if (!w->x) return; /* only its snapshot keeps it */
    loop_timer_set(api->loop, &w->load_timer, now_us + (int64_t)EVENT_LOAD_MS * 1000);
    struct device_stats s;
    device_stats_get(api->device, &s);
    const struct block_event ev = {
        .kind = EVENT_LOAD,
        .seq = w->seq,
        .running = s.counts.running,
        .waiting = s.counts.waiting,
        .prefill_tokens = s.prefill_owed,
        .kv_tokens = (uint64_t)s.pages_held * api->info->page_tokens,
        .uncached_total = s.counts.query_tokens - s.counts.hit_tokens,
    };
    bool idle = ev.running + ev.waiting == 0;
    bool old = now_us - w->load_us >= LOAD_AGAIN_US;
    if (w->needs_snapshot || http_stream_full(w->x) ||
        (load_is_same(&ev, &w->load) && (idle || !old)))
        return;
    w->load = ev;
    w->load_us = now_us;
    buf_clear(&api->out);
    block_event_encode(&ev, &api->out);
    say(w);
}

static void on_left(void *arg, enum http_abort why)
{
    struct watcher *w = arg;
    (void)why;
    w->x = NULL;
    drop(w);
}

static void on_drain(void *arg)
{
    pump(arg);
}

void blocks_changed(void *http_api)
{
    struct http_api *api = http_api;
    LIST_EACH_SAFE (&api->watchers, node)
        pump(CONTAINER_OF(node, struct watcher, link));
}

void blocks_end_all(struct http_api *api)
{
    LIST_EACH_SAFE (&api->watchers, node) {
        struct watcher *w = CONTAINER_OF(node, struct watcher, link);
        if (w->x) http_stream_end(w->x);
        w->x = NULL;
        drop(w);
    }
}

void blocks_free(struct http_api *api)
{
    LIST_EACH_SAFE (&api->watchers, node)
        watcher_free(CONTAINER_OF(node, struct watcher, link));
}

static bool hello(struct watcher *w)
{
    struct http_api *api = w->api;
    struct device_stats s;
    device_stats_get(api->device, &s);
    char check[BLOCK_KEY_HEX + 1];
    struct str none = { 0 };
    block_key_hex(block_salt(api->key_seed, str_from(api->digest), none, none), check);
    struct block_event ev = {
        .kind = EVENT_HELLO,
        .seq = s.event_seq,
        .boot = api->boot,
        .block_tokens = BLOCK_TOKENS,
        .page_tokens = api->info->page_tokens,
        .digest = str_from(api->digest),
        .salt_check = str_from(check),
    };
    buf_clear(&api->out);
    block_event_encode(&ev, &api->out);
    return say(w);
}

/* Where the reader was: from=SEQ counts only with the boot id that it was of. */
static bool read_place(const struct http_api *api, struct str query, uint64_t *ret)
{
    CLEANUP(buf_fini) struct buf boot = { 0 }, from = { 0 };
    uint8_t bytes[8];
    if (http_query_value(query, "boot", &boot) < 0 || http_query_value(query, "from", &from) < 0) {
        return false;
    }
    if (hex_to(buf_view(&boot), bytes, sizeof bytes) < 0) return false;
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        value = value << 8 | bytes[i];
    return value == api->boot && str_to_u64(buf_view(&from), ret) == 0;
}

static bool asks_load(struct str query)
{
    CLEANUP(buf_fini) struct buf value = { 0 };
    return http_query_value(query, "load", &value) == 0 && str_eq(buf_view(&value), STR("1"));
}

void handle_events(struct http_api *api, struct http_exchange *x)
{
    uint32_t count = 0;
    LIST_EACH (&api->watchers, node)
        count++;
    struct watcher *w = count < WATCHERS_MAX ? calloc(1, sizeof *w) : NULL;
    if (!w) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "%u readers of block events already",
                        count);
        return;
    }
    w->api = api;
    w->x = x;
    w->needs_snapshot = !read_place(api, http_exchange_request(x)->query, &w->seq);
    w->wants_load = asks_load(http_exchange_request(x)->query);
    w->load_timer = (struct loop_timer){ .fn = on_load_timer, .arg = w };
    list_push_back(&api->watchers, &w->link);
    http_exchange_watch(x, on_left, on_drain, w);
    http_api_count(api, x, 200);
    if (http_stream_begin(x, 200, STR("application/x-ndjson")) < 0) {
        drop(w);
        return;
    }
    if (!hello(w)) return;
    if (w->wants_load)
        loop_timer_set(api->loop, &w->load_timer,
                       loop_now_us(api->loop) + (int64_t)EVENT_LOAD_MS * 1000);
    pump(w);
}
