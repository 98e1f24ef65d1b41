/* fake_kube_watch.c - tells watchers of changes, with bookmarks, and with the faults that a script asks for. */
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/fake_kube.h"

#include <stdio.h>
#include <stdlib.h>

struct watch {
    struct list node;
    struct fake *fake;
    struct http_exchange *x;
    struct fake_key in;
    struct buf labels, fields;
    uint64_t version; /* told so far */
    struct loop_timer end, bookmark;
    bool silent;
    bool cut; /* at its end the connection is cut, not ended */
};

static void watch_free(struct watch *w)
{
    loop_timer_clear(w->fake->loop, &w->end);
    loop_timer_clear(w->fake->loop, &w->bookmark);
    list_remove(&w->node);
    buf_fini(&w->labels);
    buf_fini(&w->fields);
    free(w);
}

static void on_watch_left(void *arg, enum http_abort why)
{
    (void)why;
    watch_free(arg);
}

static void watch_write(struct watch *w, const char *type, struct str object)
{
    CLEANUP(buf_fini) struct buf frame = { 0 };
    if (w->silent) return;
    buf_printf(&frame, "{\"type\":\"%s\",\"object\":" STR_FMT "}\n", type, STR_ARG(object));
    http_stream_write(w->x, frame.data, frame.len);
}

/* Tells the changes since w->version. An object that leaves the selection is deleted for the watcher. */
static void watch_tell(struct watch *w)
{
    LIST_EACH (&w->fake->store.history, node) {
        const struct fake_entry *e = CONTAINER_OF(node, struct fake_entry, node);
        if (e->version <= w->version) continue;
        w->version = e->version;
        struct str labels = buf_view(&w->labels), fields = buf_view(&w->fields);
        bool now = e->change != FAKE_DELETED &&
                   fake_is_in(&w->in, &e->key, buf_view(&e->json), labels, fields);
        bool before = e->change != FAKE_ADDED &&
                      fake_is_in(&w->in, &e->key, buf_view(&e->before), labels, fields);
        if (now || before)
            watch_write(w,
                        now && before ? "MODIFIED"
                        : now         ? "ADDED"
                                      : "DELETED",
                        buf_view(&e->json));
    }
}

void fake_tell_all(struct fake *f)
{
    LIST_EACH_SAFE (&f->watches, node)
        watch_tell(CONTAINER_OF(node, struct watch, node));
}

static void on_watch_end(void *arg)
{
    struct watch *w = arg;
    struct http_exchange *x = w->x;
    bool cut = w->cut;
    watch_free(w);
    if (cut)
        http_exchange_abort(x);
    else
        http_stream_end(x);
}

static void on_bookmark(void *arg)
{
    struct watch *w = arg;
    char object[160];
    snprintf(object, sizeof object, "{\"kind\":\"X\",\"metadata\":{\"resourceVersion\":\"%llu\"}}",
             (unsigned long long)w->fake->store.version);
    /* Like a real server, which never tells a version below the one that was asked for. */
    if (w->fake->store.version >= w->version) watch_write(w, "BOOKMARK", str_from(object));
    loop_timer_set(w->fake->loop, &w->bookmark,
                   loop_now_us(w->fake->loop) + w->fake->options.bookmark_ms * 1000);
}

void fake_watch_begin(struct fake *f, struct http_exchange *x, const struct fake_key *in,
                      const struct fake_rule *rule)
{
    const struct http_request *req = http_exchange_request(x);
    CLEANUP(buf_fini) struct buf version = { 0 }, timeout = { 0 };
    uint64_t from = 0, seconds = 3600;
    http_query_value(req->query, "resourceVersion", &version);
    http_query_value(req->query, "timeoutSeconds", &timeout);
    str_to_u64(buf_view(&version), &from);
    str_to_u64(buf_view(&timeout), &seconds);
    if (from < f->store.oldest) {
        CLEANUP(fake_answer_fini) struct fake_answer a = { 0 };
        fake_say(&a, 410, "Expired", "too old resource version", NULL, 0);
        fake_answer_send(x, &a);
        return;
    }
    struct watch *w = calloc(1, sizeof *w);
    must(w);
    *w = (struct watch){ .fake = f, .x = x, .in = *in, .version = from };
    w->end = (struct loop_timer){ .fn = on_watch_end, .arg = w };
    w->bookmark = (struct loop_timer){ .fn = on_bookmark, .arg = w };
    http_query_value(req->query, "labelSelector", &w->labels);
    http_query_value(req->query, "fieldSelector", &w->fields);
    list_push_back(&f->watches, &w->node);
    http_exchange_watch(x, on_watch_left, NULL, w);
    http_stream_begin(x, 200, FAKE_JSON_TYPE);
    const char *fault = rule ? rule->fault : "";
    w->silent = strcmp(fault, "silent") == 0 && rule->ms == 0;
    w->cut = strcmp(fault, "cut") == 0;
    int64_t end_us = w->cut ? rule->ms * 1000 : (int64_t)seconds * 1000000;
    loop_timer_set(f->loop, &w->end, loop_now_us(f->loop) + end_us);
    if (f->options.bookmark_ms > 0)
        loop_timer_set(f->loop, &w->bookmark, loop_now_us(f->loop) + f->options.bookmark_ms * 1000);
    if (strcmp(fault, "expired") == 0)
        watch_write(
            w, "ERROR",
            STR("{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"message\":"
                "\"too old resource version\",\"reason\":\"Expired\",\"code\":410}"));
    if (strcmp(fault, "older") == 0)
        watch_write(w, "BOOKMARK", STR("{\"metadata\":{\"resourceVersion\":\"1\"}}"));
    if (strcmp(fault, "broken") == 0) http_stream_write(x, "{\"type\":\"ADD\n{\"type\"", 20);
    watch_tell(w);
}

void fake_watches_cut(struct fake *f)
{
    while (!list_empty(&f->watches)) {
        struct watch *w = CONTAINER_OF(f->watches.next, struct watch, node);
        w->cut = true;
        on_watch_end(w);
    }
}
