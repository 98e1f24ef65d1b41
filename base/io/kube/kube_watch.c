/* kube_watch.c - keeps the set of known objects and turns lists and frames into events about it.
 *
 * The set is needed for what no frame tells: which objects vanished while there was no stream. For each object
 * it keeps the identity (namespace, name, uid) and the version, not the object: the caller knows what it
 * wants of that. Objects are found by a digest of their name that nobody can make collide, because whoever
 * may create objects chooses names.
 *
 * A watch that was stopped from one of its own callbacks is freed when the callback's caller, here, is done
 * with it: `enter` and `leave` stand around everything that calls back. */
#include "base/io/kube/kube_watch.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/hash.h"
#include "base/core/map.h"
#include "base/io/kube/kube_frame.h"
#include "base/io/kube/kube_list.h"
#include "base/io/log.h"

#include <stdio.h>
#include <stdlib.h>

#define KEY_BYTES 16
#define PROBLEM_BYTES 512

struct known {
    struct list gone; /* while objects that vanished are told */
    uint32_t mark;    /* the list that last had it */
    char uid[KUBE_UID_BYTES];
    char version[KUBE_VERSION_BYTES];
    char ns[KUBE_NS_BYTES];
    char name[]; /* as long as it is */
};

struct kube_watch {
    struct kube_client *client;
    struct kube_watch_request req; /* its texts are in `texts` */
    struct arena texts;
    struct map objects; /* digest -> struct known * */
    struct kube_list *list;
    struct kube_call *call;
    struct kube_frames frames;
    struct loop_timer timer; /* the end of a back-off */
    struct loop_task again;  /* in its place, where no timer can be set */
    struct kube_watch_state state;
    char problem[PROBLEM_BYTES];
    uint32_t mark;       /* of the list under way */
    uint32_t marked;     /* objects that it had so far */
    int64_t begun_us;    /* the stream */
    uint64_t frames_got; /* of the stream */
    uint32_t silences;   /* streams in a row that were accepted and then silent */
    bool relist;         /* the next step is a list */
    bool lost;           /* the stream told an error: its end is no news */
    uint32_t depth;
    bool stopped;
};

static void step_next(struct kube_watch *w);

/* ---- the set ---- */

static void key_of(const struct kube_meta *meta, uint8_t ret[KEY_BYTES])
{
    char text[KUBE_NS_BYTES + KUBE_NAME_BYTES + 1];
    uint8_t digest[SHA256_BYTES];
    int len = snprintf(text, sizeof text, "%s/%s", meta->ns, meta->name);
    sha256(text, (size_t)len, digest);
    memcpy(ret, digest, KEY_BYTES);
}

static struct known *known_find(const struct kube_watch *w, const struct kube_meta *meta)
{
    uint8_t key[KEY_BYTES];
    key_of(meta, key);
    struct known **slot = map_get(&w->objects, key);
    return slot ? *slot : NULL;
}

static void known_update(struct known *k, const struct kube_meta *meta)
{
    memcpy(k->uid, meta->uid, sizeof k->uid);
    memcpy(k->version, meta->version, sizeof k->version);
}

/* While a list is under way, objects that vanished are still in the set and count no more: the set has room
 * for as many again. */
static int known_add(struct kube_watch *w, const struct kube_meta *meta)
{
    uint8_t key[KEY_BYTES];
    if ((w->list ? w->marked : w->objects.count) >= w->req.objects_max) return -ENOSPC;
    size_t len = strlen(meta->name) + 1;
    struct known *k = FAULT("kube_watch.known") ? NULL : calloc(1, sizeof *k + len);
    if (!k) return -ENOMEM;
    key_of(meta, key);
    bool is_new = false;
    struct known **slot = map_put(&w->objects, key, &is_new);
    if (!slot) {
        free(k);
        return -ENOMEM;
    }
    must(is_new);
    known_update(k, meta);
    memcpy(k->ns, meta->ns, sizeof k->ns);
    memcpy(k->name, meta->name, len);
    k->mark = w->mark;
    *slot = k;
    return 0;
}

static void known_remove(struct kube_watch *w, struct known *k)
{
    struct kube_meta meta = { 0 };
    uint8_t key[KEY_BYTES];
    memcpy(meta.ns, k->ns, sizeof meta.ns);
    snprintf(meta.name, sizeof meta.name, "%s", k->name);
    key_of(&meta, key);
    map_remove(&w->objects, key);
    free(k);
}

/* ---- events ---- */

static void tell(struct kube_watch *w, enum kube_event_type type, const struct kube_meta *meta,
                 struct str object)
{
    if (w->stopped) return;
    if (type != KUBE_SYNCED) w->state.events++;
    const struct kube_event event = { type, meta, object };
    w->req.on_event(w->req.arg, &event);
}

/* Tells the end of an object and forgets it. `last` is its last state, where a frame had it. */
static void tell_gone(struct kube_watch *w, struct known *k, const struct kube_meta *last,
                      struct str object)
{
    struct kube_meta meta = { 0 };
    if (!last) {
        memcpy(meta.ns, k->ns, sizeof meta.ns);
        memcpy(meta.uid, k->uid, sizeof meta.uid);
        memcpy(meta.version, k->version, sizeof meta.version);
        snprintf(meta.name, sizeof meta.name, "%s", k->name);
        last = &meta;
    }
    known_remove(w, k);
    tell(w, KUBE_DELETED, last, object);
}

/* Takes the present state of an object, from a list or a frame. */
static int object_seen(struct kube_watch *w, const struct kube_meta *meta, struct str object)
{
    struct known *k = known_find(w, meta);
    if (k && strcmp(k->uid, meta->uid) != 0) {
        tell_gone(w, k, NULL, (struct str){ 0 });
        k = NULL;
    }
    if (w->stopped) return 0;
    if (!k) {
        int rc = known_add(w, meta);
        w->marked += rc == 0;
        if (rc == 0) tell(w, KUBE_ADDED, meta, object);
        return rc;
    }
    w->marked += k->mark != w->mark;
    k->mark = w->mark;
    if (strcmp(k->version, meta->version) == 0) return 0;
    known_update(k, meta);
    tell(w, KUBE_MODIFIED, meta, object);
    return 0;
}

/* Tells the objects that the list did not have. They are gathered first, because a removal moves entries. */
static void tell_vanished(struct kube_watch *w)
{
    struct list all;
    size_t cursor = 0;
    const void *key;
    void *value;
    list_init(&all);
    while (map_next(&w->objects, &cursor, &key, &value)) {
        struct known *k = *(struct known **)value;
        if (k->mark != w->mark) list_push_back(&all, &k->gone);
    }
    for (struct list *node; !w->stopped && (node = list_pop_front(&all));)
        tell_gone(w, CONTAINER_OF(node, struct known, gone), NULL, (struct str){ 0 });
}

/* ---- callbacks of ours ---- */

static void watch_free(struct kube_watch *w)
{
    size_t cursor = 0;
    const void *key;
    void *value;
    while (map_next(&w->objects, &cursor, &key, &value))
        free(*(struct known **)value);
    map_fini(&w->objects);
    kube_frames_fini(&w->frames);
    arena_fini(&w->texts);
    free(w);
}

static void enter(struct kube_watch *w)
{
    w->depth++;
}

/* Returns false when the watch is gone. */
static bool leave(struct kube_watch *w)
{
    must(w->depth > 0);
    if (--w->depth > 0 || !w->stopped) return true;
    watch_free(w);
    return false;
}

static void confirmed(struct kube_watch *w)
{
    w->state.confirmed_us = loop_now_us(kube_client_loop(w->client));
}

/* ---- steps ---- */

static void on_timer(void *arg)
{
    struct kube_watch *w = arg;
    enter(w);
    step_next(w);
    leave(w);
}

/* Goes on after a back-off. */
static void step_wait(struct kube_watch *w, const char *problem)
{
    struct loop *loop = kube_client_loop(w->client);
    w->state.step = KUBE_WAITING;
    w->state.connected = false;
    w->state.failures++;
    snprintf(w->problem, sizeof w->problem, "%s", problem);
    int64_t at_us = loop_now_us(loop) + kube_back_off_us(w->client, w->state.failures);
    if (loop_timer_set(loop, &w->timer, at_us) < 0) loop_defer(loop, &w->again);
}

static bool is_missing(const struct kube_watch *w, int code)
{
    return w->req.optional && (code == 404 || code == 403);
}

/* Takes an API that is not there, or may not be read, for one without objects. */
static void step_missing(struct kube_watch *w, int code, const char *problem)
{
    const struct kube_resource *r = w->req.resource;
    struct loop *loop = kube_client_loop(w->client);
    bool news = w->state.missing != code;
    w->state.missing = code;
    w->state.step = KUBE_WAITING;
    w->state.connected = false;
    w->relist = true;
    snprintf(w->problem, sizeof w->problem, "%s", problem);
    if (news && code == 404)
        log_event(LOG_DEBUG, "kube_api_absent", "resource=%s.%s version=%s", r->plural, r->group,
                  r->version);
    char rule[PROBLEM_BYTES];
    snprintf(rule, sizeof rule, "apiGroups: [%s], resources: [%s], verbs: [list, watch]", r->group,
             r->plural);
    if (news && code == 403)
        log_event(LOG_WARN, "kube_right_missing", "rule=%s error=%s", rule, problem);
    w->mark++; /* nothing has it */
    if (news) tell_vanished(w);
    w->state.synced = true;
    if (news) tell(w, KUBE_SYNCED, NULL, (struct str){ 0 });
    if (w->stopped) return;
    int64_t at_us = loop_now_us(loop) + KUBE_WATCH_AGAIN_US;
    if (loop_timer_set(loop, &w->timer, at_us) < 0) step_wait(w, problem);
}

/* A stream has shown that it works. A list alone has not: a server that answers every watch with 410 would be
 * listed without a pause. */
static void succeeded(struct kube_watch *w)
{
    w->state.failures = 0;
    w->problem[0] = 0;
}

static void on_list_begin(void *arg)
{
    struct kube_watch *w = arg;
    w->mark++; /* objects of an attempt before this one count no more */
    w->marked = 0;
}

static void on_list_item(void *arg, struct str object)
{
    struct kube_watch *w = arg;
    struct kube_meta meta;
    struct err err = { 0 };
    if (w->stopped || w->lost) return;
    enter(w);
    int rc = kube_meta_read(object, &meta, &err);
    if (rc == 0) rc = object_seen(w, &meta, object);
    if (rc == -ENOSPC)
        err_set(&err, rc, "there are more than %u %s", w->req.objects_max, w->req.resource->plural);
    if (rc < 0) {
        w->lost = true;
        snprintf(w->problem, sizeof w->problem, "%s", err_text(&err, rc));
    }
    leave(w);
}

static void on_list_end(void *arg, const struct kube_list_end *end)
{
    struct kube_watch *w = arg;
    w->list = NULL;
    enter(w);
    if (end->rc < 0 && is_missing(w, end->code)) {
        step_missing(w, end->code, end->problem);
    } else if (end->rc < 0) {
        step_wait(w, end->problem);
    } else if (w->lost) {
        char problem[PROBLEM_BYTES];
        memcpy(problem, w->problem, sizeof problem);
        step_wait(w, problem);
    } else {
        snprintf(w->state.version, sizeof w->state.version, "%s", end->version);
        w->relist = false;
        w->state.missing = 0;
        w->state.lists++;
        w->problem[0] = 0;
        confirmed(w);
        tell_vanished(w);
        w->state.synced = true;
        tell(w, KUBE_SYNCED, NULL, (struct str){ 0 });
        if (!w->stopped) step_next(w);
    }
    leave(w);
}

static void step_list(struct kube_watch *w)
{
    struct err err = { 0 };
    const struct kube_list_request req = {
        .resource = w->req.resource,
        .ns = w->req.ns,
        .label_selector = w->req.label_selector,
        .field_selector = w->req.field_selector,
        .limit = w->req.limit,
        .urgent = true,
        .on_begin = on_list_begin,
        .on_item = on_list_item,
        .on_end = on_list_end,
        .arg = w,
    };
    w->state.step = KUBE_LISTING;
    w->lost = false;
    if (kube_list_start(w->client, &req, &w->list, &err) < 0) step_wait(w, err.text);
}

/* ---- the stream ---- */

/* Compares versions as the API now defines them: as decimal numbers. False when one is no number. */
static bool is_older(const char *version, const char *than)
{
    uint64_t a, b;
    return str_to_u64(str_from(version), &a) == 0 && str_to_u64(str_from(than), &b) == 0 && a < b;
}

static void stream_lost(struct kube_watch *w, bool relist, const char *problem)
{
    w->lost = true;
    if (relist) {
        w->relist = true;
        w->state.expired++;
    }
    snprintf(w->problem, sizeof w->problem, "%s", problem);
}

static void on_error_frame(struct kube_watch *w, struct str object)
{
    struct kube_status s;
    struct err err = { 0 };
    char problem[PROBLEM_BYTES];
    if (kube_status_read(object, &s, &err) < 0) {
        stream_lost(w, false, err.text);
        return;
    }
    snprintf(problem, sizeof problem, "the watch ended with %d %s: %.300s", s.code, s.reason_text,
             s.message);
    stream_lost(w, kube_status_errno(&s) == -ETIME || s.code == 410, problem);
}

static bool on_frame(void *arg, const struct kube_frame *frame)
{
    struct kube_watch *w = arg;
    struct kube_meta meta;
    struct err err = { 0 };
    w->frames_got++;
    w->silences = 0;
    if (frame->type == KUBE_FRAME_ERROR) {
        on_error_frame(w, frame->object);
        return false;
    }
    int rc = kube_meta_read(frame->object, &meta, &err);
    if (rc == 0 && is_older(meta.version, w->state.version)) {
        /* Another server behind the same address, or one that was restored from a backup. */
        stream_lost(w, true, "the server's resourceVersion went backwards");
        return false;
    }
    struct known *k = rc == 0 && frame->type == KUBE_FRAME_DELETED ? known_find(w, &meta) : NULL;
    if (frame->type == KUBE_FRAME_BOOKMARK)
        w->state.bookmarks++;
    else if (frame->type != KUBE_FRAME_DELETED && rc == 0)
        rc = object_seen(w, &meta, frame->object);
    else if (k)
        tell_gone(w, k, &meta, frame->object);
    if (w->stopped) return false;
    if (rc == -ENOSPC)
        err_set(&err, rc, "there are more than %u %s", w->req.objects_max, w->req.resource->plural);
    if (rc < 0) {
        /* The content of this frame is lost, so only a list can tell. */
        w->relist = true;
        stream_lost(w, false, err_text(&err, rc));
        return false;
    }
    memcpy(w->state.version, meta.version, sizeof w->state.version);
    confirmed(w);
    succeeded(w);
    return true;
}

static void on_stream_head(void *arg, int code)
{
    (void)code;
    struct kube_watch *w = arg;
    w->state.connected = true;
    confirmed(w);
}

static void on_stream_data(void *arg, struct str data)
{
    struct kube_watch *w = arg;
    struct err err = { 0 };
    if (w->lost) return;
    enter(w);
    int rc = kube_frames_feed(&w->frames, data, on_frame, w, &err);
    if (rc < 0 && !w->stopped) {
        /* A frame that is no frame, or beyond the bound: from the same version it would come again. */
        w->relist = true;
        stream_lost(w, false, err_text(&err, rc));
    }
    if (w->lost && !w->stopped && w->call) {
        kube_cancel(TAKE(w->call));
        kube_frames_clear(&w->frames);
        if (w->relist && w->state.failures == 0) {
            w->state.failures = 1; /* once at once; a second time in a row waits */
            w->state.connected = false;
            step_list(w);
        } else {
            char problem[PROBLEM_BYTES];
            memcpy(problem, w->problem, sizeof problem);
            step_wait(w, problem);
        }
    }
    leave(w);
}

static void on_stream_end(void *arg, const struct kube_reply *reply)
{
    struct kube_watch *w = arg;
    int64_t age_us = loop_now_us(kube_client_loop(w->client)) - w->begun_us;
    bool was_connected = w->state.connected;
    w->call = NULL;
    w->state.connected = false;
    kube_frames_clear(&w->frames);
    enter(w);
    if (w->frames_got > 0 || (was_connected && age_us >= KUBE_WATCH_GOOD_US)) succeeded(w);
    if (reply->rc == -ETIME) {
        w->relist = true;
        w->state.expired++;
    }
    if (reply->rc == -ETIMEDOUT && was_connected) {
        w->state.silent++;
        w->silences += w->frames_got == 0;
        w->relist |= w->silences >= 2; /* our version may lie in the server's future */
    }
    bool good = reply->rc == 0 && (w->frames_got > 0 || age_us >= KUBE_WATCH_GOOD_US);
    if (reply->rc == 0) confirmed(w);
    w->relist |= is_missing(w, reply->code); /* which the list will tell */
    if (good || (reply->rc == -ETIME && w->state.failures == 0)) {
        w->state.failures += !good;
        step_next(w);
    } else {
        step_wait(w, reply->rc == 0 ? "the server ends the watch at once" : reply->problem);
    }
    leave(w);
}

static void step_watch(struct kube_watch *w)
{
    struct err err = { 0 };
    struct rng *rng = kube_client_rng(w->client);
    const struct kube_request req = {
        .verb = KUBE_WATCH,
        .resource = w->req.resource,
        .ns = w->req.ns,
        .label_selector = w->req.label_selector,
        .field_selector = w->req.field_selector,
        .version = str_from(w->state.version),
        /* Not all watches of a fleet at the same moment. */
        .timeout_s = KUBE_WATCH_S + (uint32_t)rng_below(rng, KUBE_WATCH_S),
        .urgent = true,
        .idle_us = w->req.idle_us,
        .body_bytes_max = SIZE_MAX,
        .on_head = on_stream_head,
        .on_data = on_stream_data,
        .on_end = on_stream_end,
        .arg = w,
    };
    w->state.step = KUBE_WATCHING;
    w->lost = false;
    w->frames_got = 0;
    w->begun_us = loop_now_us(kube_client_loop(w->client));
    w->state.watches++;
    if (kube_start(w->client, &req, &w->call, &err) < 0) step_wait(w, err.text);
}

static void step_next(struct kube_watch *w)
{
    if (w->relist)
        step_list(w);
    else
        step_watch(w);
}

/* ---- life ---- */

static int keep(struct kube_watch *w, struct str *s)
{
    if (s->len == 0) return 0;
    *s = arena_str(&w->texts, *s);
    return s->data ? 0 : -ENOMEM;
}

int kube_watch_start(struct kube_client *c, const struct kube_watch_request *req,
                     struct kube_watch **ret, struct err *err)
{
    must(req->on_event && req->resource);
    struct kube_watch *w = calloc(1, sizeof *w);
    if (!w) return err_set(err, -ENOMEM, "no memory for a watch");
    w->client = c;
    w->req = *req;
    if (w->req.objects_max == 0) w->req.objects_max = KUBE_WATCH_OBJECTS_MAX;
    if (w->req.idle_us == 0) w->req.idle_us = KUBE_WATCH_IDLE_US;
    w->timer = (struct loop_timer){ .fn = on_timer, .arg = w };
    w->again = (struct loop_task){ .fn = on_timer, .arg = w };
    w->relist = true;
    map_init(&w->objects, KEY_BYTES, sizeof(struct known *), 2 * (size_t)w->req.objects_max,
             MAP_FOREIGN);
    arena_init(&w->texts, 64 << 10);
    int rc = keep(w, &w->req.ns);
    if (rc == 0) rc = keep(w, &w->req.label_selector);
    if (rc == 0) rc = keep(w, &w->req.field_selector);
    if (rc == 0)
        rc = loop_timer_set(kube_client_loop(c), &w->timer, loop_now_us(kube_client_loop(c)));
    if (rc < 0) {
        watch_free(w);
        return err_set(err, rc, "no memory for a watch");
    }
    *ret = w;
    return 0;
}

void kube_watch_stop(struct kube_watch *w)
{
    if (!w || w->stopped) return;
    w->stopped = true;
    if (w->list) kube_list_cancel(TAKE(w->list));
    if (w->call) kube_cancel(TAKE(w->call));
    loop_timer_clear(kube_client_loop(w->client), &w->timer);
    loop_defer_clear(kube_client_loop(w->client), &w->again);
    if (w->depth == 0) watch_free(w);
}

void kube_watch_state_get(const struct kube_watch *w, struct kube_watch_state *ret)
{
    *ret = w->state;
    int64_t age_us = loop_now_us(kube_client_loop(w->client)) - w->begun_us;
    if (w->state.connected && age_us >= KUBE_WATCH_GOOD_US) ret->failures = 0;
    ret->objects = (uint32_t)w->objects.count;
    ret->problem = w->problem;
}
