/* object_events.c - writes Events: the first of a kind as an object, its repetitions as a count in it. */
#include "controller/objects/object_events.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct kube_resource events_resource = { "events.k8s.io", "v1", "events", false };

#define REPORTER_BYTES 128
#define NAME_PART_BYTES 200

struct recent {
    uint64_t key; /* 0: free */
    char ns[KUBE_NS_BYTES], name[KUBE_NAME_BYTES];
    uint64_t count; /* seen */
    int64_t first_us, patched_us;
};

struct sending {
    struct object_events *events;
    struct kube_call *call; /* NULL: free */
};

struct object_events {
    struct kube_client *client;
    char reporter[REPORTER_BYTES];
    struct recent recent[OBJECT_EVENTS_RECENT_MAX];
    struct sending sending[OBJECT_EVENTS_RUNNING_MAX];
    int64_t full_us; /* when the bucket of the rate is full again */
    struct object_events_counts counts;
};

static void on_sent(void *arg, const struct kube_reply *reply)
{
    struct sending *s = arg;
    s->call = NULL;
    if (reply->rc == 0) return;
    s->events->counts.failed++;
    log_event(LOG_WARN, "event_not_written", "error=%s", reply->problem);
}

/* Makes the call in a free place; false when there is none, or the client takes none. */
static bool post(struct object_events *e, struct kube_request req)
{
    struct err err = { 0 };
    for (uint32_t i = 0; i < OBJECT_EVENTS_RUNNING_MAX; i++) {
        struct sending *s = &e->sending[i];
        if (s->call) continue;
        s->events = e;
        req.resource = &events_resource;
        req.on_end = on_sent;
        req.arg = s;
        if (kube_start(e->client, &req, &s->call, &err) == 0) return true;
        s->call = NULL;
        return false;
    }
    return false;
}

/* Takes one event from the bucket; false when it is empty. */
static bool take_room(struct object_events *e, int64_t now_us)
{
    int64_t full_us = max_i64(e->full_us, now_us) + OBJECT_EVENTS_PER_US;
    if (full_us - now_us > OBJECT_EVENTS_BURST * (int64_t)OBJECT_EVENTS_PER_US) return false;
    e->full_us = full_us;
    return true;
}

static void put_head(struct json_writer *w, const struct recent *r)
{
    json_kv_text(w, "apiVersion", "events.k8s.io/v1");
    json_kv_text(w, "kind", "Event");
    json_key(w, "metadata");
    json_object(w);
    json_kv_text(w, "name", r->name);
    json_kv_text(w, "namespace", r->ns);
    json_object_end(w);
}

static void put_regarding(struct json_writer *w, const struct object_event *v)
{
    json_key(w, "regarding");
    json_object(w);
    json_kv_text(w, "apiVersion", v->api_version);
    json_kv_text(w, "kind", v->kind);
    json_kv_text(w, "namespace", v->about->ns);
    json_kv_text(w, "name", v->about->name);
    json_kv_text(w, "uid", v->about->uid);
    json_kv_text(w, "resourceVersion", v->about->version);
    json_object_end(w);
}

static bool create(struct object_events *e, const struct recent *r, const struct object_event *v)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    char date[DATE_BYTES];
    struct json_writer w;
    size_t note = min_size(strlen(v->note), OBJECT_EVENT_NOTE_BYTES - 1);
    date_print(clock_wall_us(), date);
    json_writer_init(&w, &body);
    json_object(&w);
    put_head(&w, r);
    json_kv_text(&w, "eventTime", date);
    json_kv_text(&w, "reportingController", "muster.dev/controller");
    json_kv_text(&w, "reportingInstance", e->reporter);
    json_kv_text(&w, "type", v->warning ? "Warning" : "Normal");
    json_kv_text(&w, "reason", v->reason);
    json_kv_text(&w, "action", v->action);
    json_kv_str(&w, "note", str_of(v->note, str_utf8_complete(str_of(v->note, note))));
    put_regarding(&w, v);
    json_object_end(&w);
    return body.rc == 0 &&
           post(e, (struct kube_request){
                       .verb = KUBE_CREATE, .ns = str_from(r->ns), .body = buf_view(&body) });
}

static bool patch(struct object_events *e, const struct recent *r)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    char date[DATE_BYTES];
    date_print(clock_wall_us(), date);
    buf_printf(&body, "{\"series\":{\"count\":%llu,\"lastObservedTime\":\"%s\"}}",
               (unsigned long long)r->count, date);
    return body.rc == 0 && post(e, (struct kube_request){ .verb = KUBE_PATCH,
                                                          .ns = str_from(r->ns),
                                                          .name = str_from(r->name),
                                                          .body = buf_view(&body) });
}

static uint64_t key_of(const struct object_event *v)
{
    uint64_t key = hash64(v->about->uid, strlen(v->about->uid), 1);
    key = hash64(v->reason, strlen(v->reason), key);
    key = hash64(v->note, strlen(v->note), key);
    return key ? key : 1;
}

/* Returns the place of the event among the recent ones: its own, a free one, or that of the oldest. */
static struct recent *find(struct object_events *e, uint64_t key, int64_t now_us)
{
    struct recent *oldest = &e->recent[0];
    for (uint32_t i = 0; i < OBJECT_EVENTS_RECENT_MAX; i++) {
        struct recent *r = &e->recent[i];
        if (r->key == key && now_us - r->first_us < OBJECT_EVENTS_SERIES_US) return r;
        if (r->key == 0 || r->first_us < oldest->first_us) oldest = r;
        if (r->key == 0) break;
    }
    *oldest = (struct recent){ 0 };
    return oldest;
}

void object_events_tell(struct object_events *e, const struct object_event *v)
{
    int64_t now_us = loop_now_us(kube_client_loop(e->client));
    uint64_t key = key_of(v);
    struct recent *r = find(e, key, now_us);
    bool first = r->key == 0;
    r->count++;
    if (!first && now_us - r->patched_us < OBJECT_EVENTS_PATCH_US) return; /* told with the next */
    if (!take_room(e, now_us)) {
        e->counts.dropped++;
        if (first) *r = (struct recent){ 0 };
        return;
    }
    r->patched_us = now_us;
    if (first) {
        r->key = key;
        r->first_us = now_us;
        snprintf(r->ns, sizeof r->ns, "%s", v->about->ns);
        snprintf(r->name, sizeof r->name, "%.*s.%016llx", NAME_PART_BYTES, v->about->name,
                 (unsigned long long)(key ^ (uint64_t)clock_wall_us()));
    }
    if (!(first ? create(e, r, v) : patch(e, r))) {
        e->counts.dropped++;
        if (first) *r = (struct recent){ 0 };
        return;
    }
    *(first ? &e->counts.written : &e->counts.series) += 1;
}

void object_events_counts_get(const struct object_events *e, struct object_events_counts *ret)
{
    *ret = e->counts;
}

int object_events_new(struct kube_client *client, struct str reporter, struct object_events **ret,
                      struct err *err)
{
    struct object_events *e = calloc(1, sizeof *e);
    if (!e) return err_set(err, -ENOMEM, "no memory for events");
    e->client = client;
    snprintf(e->reporter, sizeof e->reporter, STR_FMT, STR_ARG(reporter));
    *ret = e;
    return 0;
}

void object_events_free(struct object_events *e)
{
    for (uint32_t i = 0; e && i < OBJECT_EVENTS_RUNNING_MAX; i++)
        if (e->sending[i].call) kube_cancel(e->sending[i].call);
    free(e);
}
