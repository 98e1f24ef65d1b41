/* fake_kube.c - plays a Kubernetes API server that fails on command.
 *
 *     fake_kube --port P --control-port C --certificate FILE --key FILE [--token TEXT]
 *               [--bookmark-ms N] [--linger-ms N]
 *
 * Port P speaks HTTPS as an API server does: get, list with limit and continue, watch with bookmarks, create,
 * replace, merge patch, apply, delete with preconditions, eviction, the subresources status and scale. It keeps
 * any object of any resource (fake_kube_store.h); apply is a merge patch that may create. With --token a
 * request without that bearer token is a 401. With --linger-ms a deleted pod stays, with a deletionTimestamp,
 * for so long.
 *
 * Port C is plain HTTP, for the test:
 *
 *     POST /script   {"verb": V, "fault": F, "count": N, "code": N, "retry_after": N, "ms": N, "resource": R}
 *                    the next N requests of that verb ("" is any) and resource fail so:
 *                        status   this code, with Retry-After       hang      no byte of a reply
 *                        cut      the connection ends mid-reply     lost      carried out, then cut
 *                        slow     a byte every ms                   garbage   a body that is no JSON
 *                        html     this code, a proxy's page         stale     of a list: its next chunk is 410
 *                    for watches also: cut after ms; silent from the head on; expired sends an ERROR frame with
 *                        410, older a bookmark of an older version; broken sends half a frame and then another
 *     POST /set      {"token": T, "bookmark_ms": N, "linger_ms": N, "budget": N}  evictions that are allowed
 *     POST /compact  forgets the history: older versions are 410
 *     POST /restart  cuts all watches; {"empty": true}: loses all objects too, and versions start over
 *     GET /seen      counts of requests by verb, of open watches, of accepted connections, of refused
 *                    tokens; the last user agent
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/config/opt.h"
#include "base/io/http/http_server.h"
#include "base/io/loop/clock.h"
#include "base/io/net/tls.h"
#include "tests/proc/rig/fake_kube_store.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define RULES_MAX 16
#define JSON_TYPE STR("application/json")

enum verb { GET, LIST, WATCH, CREATE, REPLACE, PATCH, APPLY, DELETE, EVICT, VERB_COUNT };
static const char *const verb_names[] = { "get",   "list",  "watch",  "create", "replace",
                                          "patch", "apply", "delete", "evict" };

struct options {
    int64_t port, control_port, bookmark_ms, linger_ms;
    struct str certificate, key, token;
};

struct rule {
    char verb[16], fault[16], resource[64];
    int64_t count, code, retry_after, ms;
};

struct fake {
    struct loop *loop;
    struct http_server *api;
    struct options options;
    struct fake_store store;
    struct rule rules[RULES_MAX];
    uint32_t rule_count;
    char token[256]; /* empty: any */
    int64_t budget;  /* evictions left; negative: any number */
    uint64_t seen[VERB_COUNT], refused;
    char agent[64];
    struct list watches; /* struct watch */
    struct list held;    /* struct slow: replies that come in pieces, or never */
};

/* What a request leads to, before a fault changes what is sent. */
struct answer {
    int code;
    int64_t retry_after;
    struct buf body;
};

static void answer_fini(struct answer *a)
{
    buf_fini(&a->body);
}

static void put_details(struct json_writer *w, const char *cause, int64_t retry_after)
{
    json_key(w, "details");
    json_object(w);
    if (retry_after > 0) json_kv_i64(w, "retryAfterSeconds", retry_after);
    if (cause) {
        json_key(w, "causes");
        json_array(w);
        json_object(w);
        json_kv_text(w, "reason", cause);
        json_object_end(w);
        json_array_end(w);
    }
    json_object_end(w);
}

static void say(struct answer *a, int code, const char *reason, const char *message,
                const char *cause, int64_t retry_after)
{
    struct json_writer w;
    a->code = code;
    a->retry_after = retry_after;
    buf_clear(&a->body);
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_kv_text(&w, "kind", "Status");
    json_kv_text(&w, "apiVersion", "v1");
    json_kv_text(&w, "status", code < 300 ? "Success" : "Failure");
    json_kv_text(&w, "message", message);
    json_kv_text(&w, "reason", reason);
    json_kv_i64(&w, "code", code);
    put_details(&w, cause, retry_after);
    json_object_end(&w);
}

static void give(struct answer *a, int code, const struct fake_object *o)
{
    a->code = code;
    buf_str(&a->body, buf_view(&o->json));
}

static void answer_send(struct http_exchange *x, const struct answer *a)
{
    char seconds[24];
    snprintf(seconds, sizeof seconds, "%lld", (long long)a->retry_after);
    if (a->retry_after > 0) http_reply_header(x, "retry-after", str_from(seconds));
    http_reply(x, a->code, JSON_TYPE, buf_view(&a->body));
}

/* ---- a reply in pieces ---- */

struct slow {
    struct list node;
    struct fake *fake;
    struct http_exchange *x;
    struct loop_timer timer;
    struct buf body;
    int64_t ms;
};

static void slow_free(struct slow *s)
{
    loop_timer_clear(s->fake->loop, &s->timer);
    list_remove(&s->node);
    buf_fini(&s->body);
    free(s);
}

static void on_slow_left(void *arg, enum http_abort why)
{
    (void)why;
    slow_free(arg);
}

static void on_slow(void *arg)
{
    struct slow *s = arg;
    if (s->body.len == 0) {
        http_stream_end(s->x);
        slow_free(s);
        return;
    }
    http_stream_write(s->x, s->body.data, 1);
    buf_consume(&s->body, 1);
    loop_timer_set(s->fake->loop, &s->timer, loop_now_us(s->fake->loop) + s->ms * 1000);
}

static void on_slow_cut(void *arg)
{
    struct slow *s = arg;
    http_exchange_abort(s->x);
    slow_free(s);
}

/* Holds the exchange: for ever when ms is 0, as a stream of single bytes when it is positive. Negative: a
 * stream that has begun is cut once its bytes have left. */
static void hold(struct fake *f, struct http_exchange *x, struct str body, int64_t ms)
{
    struct slow *s = calloc(1, sizeof *s);
    must(s);
    *s = (struct slow){ .fake = f, .x = x, .ms = ms, .timer = { .fn = on_slow, .arg = s } };
    buf_str(&s->body, body);
    list_push_back(&f->held, &s->node);
    http_exchange_watch(x, on_slow_left, NULL, s);
    if (ms == 0) return;
    if (ms < 0) {
        s->timer.fn = on_slow_cut;
        loop_timer_set(f->loop, &s->timer, loop_now_us(f->loop) + 20000);
        return;
    }
    http_stream_begin(x, 200, JSON_TYPE);
    on_slow(s);
}

/* ---- watches ---- */

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

static void tell_all(struct fake *f)
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

static void watch_begin(struct fake *f, struct http_exchange *x, const struct fake_key *in,
                        const struct rule *rule)
{
    const struct http_request *req = http_exchange_request(x);
    CLEANUP(buf_fini) struct buf version = { 0 }, timeout = { 0 };
    uint64_t from = 0, seconds = 3600;
    http_query_value(req->query, "resourceVersion", &version);
    http_query_value(req->query, "timeoutSeconds", &timeout);
    str_to_u64(buf_view(&version), &from);
    str_to_u64(buf_view(&timeout), &seconds);
    if (from < f->store.oldest) {
        CLEANUP(answer_fini) struct answer a = { 0 };
        say(&a, 410, "Expired", "too old resource version", NULL, 0);
        answer_send(x, &a);
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
    http_stream_begin(x, 200, JSON_TYPE);
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

/* ---- requests ---- */

static struct str segment(struct str *path)
{
    if (path->len > 0 && path->data[0] == '/') *path = str_of(path->data + 1, path->len - 1);
    return str_cut(path, '/');
}

static void copy(char *to, size_t bytes, struct str s)
{
    snprintf(to, bytes, STR_FMT, STR_ARG(s));
}

/* Reads /api/v1/... or /apis/GROUP/VERSION/... into key and subresource. */
static bool address(struct str path, struct fake_key *key, char sub[32])
{
    *key = (struct fake_key){ 0 };
    struct str root = segment(&path);
    struct str group = str_eq(root, STR("apis")) ? segment(&path) : STR("");
    struct str version = segment(&path), plural = segment(&path);
    if (!str_eq(root, STR("api")) && !str_eq(root, STR("apis"))) return false;
    if (str_eq(plural, STR("namespaces")) && path.len > 0) {
        struct str rest = path, ns = segment(&rest);
        if (rest.len > 0) { /* else the object is a namespace itself */
            copy(key->ns, sizeof key->ns, ns);
            path = rest;
            plural = segment(&path);
        }
    }
    snprintf(key->resource, sizeof key->resource, STR_FMT "/" STR_FMT "/" STR_FMT, STR_ARG(group),
             STR_ARG(version), STR_ARG(plural));
    copy(key->name, sizeof key->name, segment(&path));
    copy(sub, 32, segment(&path));
    return plural.len > 0;
}

static void on_list(struct fake *f, const struct http_request *req, const struct fake_key *in,
                    struct answer *a)
{
    CLEANUP(buf_fini) struct buf labels = { 0 }, fields = { 0 }, text = { 0 }, more = { 0 };
    uint64_t limit = 0, version = f->store.version, skip = 0, at = 0;
    http_query_value(req->query, "labelSelector", &labels);
    http_query_value(req->query, "fieldSelector", &fields);
    if (http_query_value(req->query, "limit", &text) == 0) str_to_u64(buf_view(&text), &limit);
    if (http_query_value(req->query, "continue", &more) == 0) {
        struct str rest = buf_view(&more), first = str_cut(&rest, '.');
        if (str_to_u64(first, &version) < 0 || str_to_u64(rest, &skip) < 0) {
            say(a, 400, "BadRequest", "continue is no token of ours", NULL, 0);
            return;
        }
        /* The chunks of a list are of one version; this store keeps only the present one. */
        if (version != f->store.version || version < f->store.oldest) {
            say(a, 410, "Expired", "the continue token is too old", NULL, 0);
            return;
        }
    }
    bool first = true, cut = false;
    a->code = 200;
    buf_text(&a->body, "{\"kind\":\"List\",\"apiVersion\":\"v1\",\"items\":[");
    LIST_EACH (&f->store.objects, node) {
        const struct fake_object *o = CONTAINER_OF(node, struct fake_object, node);
        struct str json = buf_view(&o->json);
        if (!fake_is_in(in, &o->key, json, buf_view(&labels), buf_view(&fields))) continue;
        if (at++ < skip) continue;
        cut = limit > 0 && at > skip + limit;
        if (cut) break;
        buf_printf(&a->body, "%s" STR_FMT, first ? "" : ",", STR_ARG(json));
        first = false;
    }
    buf_printf(&a->body, "],\"metadata\":{\"resourceVersion\":\"%llu\"",
               (unsigned long long)version);
    if (cut)
        buf_printf(&a->body, ",\"continue\":\"%llu.%llu\"", (unsigned long long)version,
                   (unsigned long long)(skip + limit));
    buf_text(&a->body, "}}");
}

static void on_create(struct fake *f, struct str body, const struct fake_key *in, struct answer *a)
{
    struct fake_key key = *in;
    struct kube_meta meta;
    if (kube_meta_read(body, &meta, NULL) < 0 || !meta.name[0]) {
        say(a, 422, "Invalid", "metadata.name is missing", NULL, 0);
        return;
    }
    copy(key.name, sizeof key.name, str_from(meta.name));
    if (fake_find(&f->store, &key)) {
        say(a, 409, "AlreadyExists", "it exists", NULL, 0);
        return;
    }
    give(a, 201, fake_create(&f->store, &key, body));
}

/* Keeps spec or status as they are, whichever the request may not change. */
static void keep_half(struct str before, struct str after, bool status, struct buf *out)
{
    CLEANUP(buf_fini) struct buf patch = { 0 }, without = { 0 };
    const char *half = status ? "spec" : "status";
    struct str kept = fake_get(before, half);
    buf_printf(&patch, "{\"%s\":null}", half);
    fake_merge(after, buf_view(&patch), &without);
    buf_clear(&patch);
    buf_printf(&patch, kept.len ? "{\"%s\":" STR_FMT "}" : "{}", half, STR_ARG(kept));
    fake_merge(buf_view(&without), kept.len ? buf_view(&patch) : STR("{}"), out);
}

static void give_scale(struct answer *a, const struct fake_object *o)
{
    struct str wanted = fake_get(buf_view(&o->json), "spec.replicas");
    struct str there = fake_get(buf_view(&o->json), "status.replicas");
    struct str app = fake_text(buf_view(&o->json), "spec.selector.matchLabels.app");
    a->code = 200;
    buf_printf(
        &a->body,
        "{\"kind\":\"Scale\",\"apiVersion\":\"autoscaling/v1\",\"metadata\":{\"name\":\"%s\","
        "\"resourceVersion\":\"%llu\"},\"spec\":{\"replicas\":" STR_FMT
        "},\"status\":{\"replicas\":" STR_FMT "%s" STR_FMT "%s}}",
        o->key.name, (unsigned long long)o->version, STR_ARG(wanted.len ? wanted : STR("0")),
        STR_ARG(there.len ? there : STR("0")), app.len ? ",\"selector\":\"app=" : "", STR_ARG(app),
        app.len ? "\"" : "");
}

/* PATCH, APPLY and REPLACE of an object that is there. */
static void on_write(struct fake *f, struct str body, struct fake_object *o, enum verb verb,
                     const char *sub, struct answer *a)
{
    CLEANUP(buf_fini) struct buf merged = { 0 }, out = { 0 };
    struct str version = fake_text(body, "metadata.resourceVersion");
    bool scale = strcmp(sub, "scale") == 0;
    char present[24];
    snprintf(present, sizeof present, "%llu", (unsigned long long)o->version);
    if (version.len > 0 && !str_eq(version, str_from(present))) {
        say(a, 409, "Conflict", "the object has been modified", NULL, 0);
        return;
    }
    if (verb == REPLACE)
        buf_str(&merged, body);
    else
        fake_merge(buf_view(&o->json), body, &merged);
    if (scale)
        buf_str(&out, buf_view(&merged));
    else
        keep_half(buf_view(&o->json), buf_view(&merged), strcmp(sub, "status") == 0, &out);
    if (fake_change(&f->store, o, buf_view(&out)) < 0)
        say(a, 400, "BadRequest", "the body is no object", NULL, 0);
    else if (scale)
        give_scale(a, o);
    else
        give(a, 200, o);
}

struct departure { /* a pod that is being deleted */
    struct loop_timer timer;
    struct fake *fake;
    struct fake_key key;
    char uid[KUBE_UID_BYTES];
};

static void on_departure(void *arg)
{
    struct departure *l = arg;
    struct fake_object *o = fake_find(&l->fake->store, &l->key);
    if (o && strcmp(o->uid, l->uid) == 0) fake_remove(&l->fake->store, o);
    tell_all(l->fake);
    free(l);
}

/* Removes the object, or begins its graceful end. `options` may hold preconditions. */
static void object_delete(struct fake *f, struct fake_object *o, struct str options,
                          struct answer *a)
{
    struct str uid = fake_text(options, "preconditions.uid");
    struct str version = fake_text(options, "preconditions.resourceVersion");
    char present[24];
    snprintf(present, sizeof present, "%llu", (unsigned long long)o->version);
    if ((uid.len > 0 && !str_eq(uid, str_from(o->uid))) ||
        (version.len > 0 && !str_eq(version, str_from(present)))) {
        say(a, 409, "Conflict", "Precondition failed", NULL, 0);
        return;
    }
    bool at_once = str_eq(fake_get(options, "gracePeriodSeconds"), STR("0"));
    bool lingers = f->options.linger_ms > 0 && strcmp(o->key.resource, "/v1/pods") == 0 && !at_once;
    if (!lingers) {
        fake_remove(&f->store, o);
        say(a, 200, "", "deleted", NULL, 0);
        return;
    }
    if (o->ticket == 0) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        struct departure *l = calloc(1, sizeof *l);
        must(l);
        *l = (struct departure){ .timer = { .fn = on_departure, .arg = l },
                                 .fake = f,
                                 .key = o->key };
        memcpy(l->uid, o->uid, sizeof l->uid);
        loop_timer_set(f->loop, &l->timer, loop_now_us(f->loop) + f->options.linger_ms * 1000);
        fake_merge(buf_view(&o->json),
                   STR("{\"metadata\":{\"deletionTimestamp\":\"2026-01-01T00:00:30Z\"}}"), &out);
        fake_change(&f->store, o, buf_view(&out));
        o->ticket = o->version;
    }
    give(a, 200, o);
}

static void on_evict(struct fake *f, struct str body, struct fake_object *o, struct answer *a)
{
    if (f->budget == 0) {
        say(a, 429, "TooManyRequests", "Cannot evict pod as it would violate the disruption budget",
            "DisruptionBudget", 10);
        return;
    }
    struct str options = fake_get(body, "deleteOptions");
    object_delete(f, o, options.len ? options : STR("{}"), a);
    if (a->code == 200 && f->budget > 0) f->budget--;
    if (a->code == 200) say(a, 201, "", "evicted", NULL, 0);
}

/* Carries a request out. */
static void perform(struct fake *f, const struct http_request *req, enum verb verb,
                    const struct fake_key *key, const char *sub, struct answer *a)
{
    struct fake_object *o = key->name[0] ? fake_find(&f->store, key) : NULL;
    CLEANUP(buf_fini) struct buf manager = { 0 };
    http_query_value(req->query, "fieldManager", &manager);
    if (verb == LIST) {
        on_list(f, req, key, a);
    } else if (verb == CREATE) {
        on_create(f, req->body, key, a);
    } else if (verb == APPLY && manager.len == 0) {
        say(a, 400, "BadRequest", "fieldManager is required for apply patch", NULL, 0);
    } else if (verb == APPLY && !o && !sub[0]) {
        o = fake_create(&f->store, key, req->body);
        if (o)
            give(a, 201, o);
        else
            say(a, 400, "BadRequest", "the body is no object", NULL, 0);
    } else if (!o) {
        say(a, 404, "NotFound", "it is not found", NULL, 0);
    } else if (verb == GET && strcmp(sub, "scale") == 0) {
        give_scale(a, o);
    } else if (verb == GET) {
        give(a, 200, o);
    } else if (verb == DELETE) {
        object_delete(f, o, req->body, a);
    } else if (verb == EVICT) {
        on_evict(f, req->body, o, a);
    } else {
        on_write(f, req->body, o, verb, sub, a);
    }
}

static int verb_of(const struct http_request *req, const struct fake_key *key, const char *sub)
{
    CLEANUP(buf_fini) struct buf watch = { 0 };
    struct str m = req->method;
    if (str_eq(m, STR("GET"))) {
        http_query_value(req->query, "watch", &watch);
        if (str_eq(buf_view(&watch), STR("true"))) return WATCH;
        return key->name[0] ? GET : LIST;
    }
    if (str_eq(m, STR("POST"))) return strcmp(sub, "eviction") == 0 ? EVICT : CREATE;
    if (str_eq(m, STR("PUT"))) return REPLACE;
    if (str_eq(m, STR("DELETE"))) return DELETE;
    if (!str_eq(m, STR("PATCH"))) return -1;
    return str_eq(http_request_header(req, "content-type"), STR("application/apply-patch+yaml"))
               ? APPLY
               : PATCH;
}

/* Takes the rule that applies to a request, one use of it. */
static const struct rule *rule_take(struct fake *f, enum verb verb, const struct fake_key *key)
{
    for (uint32_t i = 0; i < f->rule_count; i++) {
        struct rule *r = &f->rules[i];
        bool fits = r->count > 0 && (!r->verb[0] || strcmp(r->verb, verb_names[verb]) == 0) &&
                    (!r->resource[0] || str_ends(str_from(key->resource), str_from(r->resource)));
        if (!fits) continue;
        r->count--;
        return r;
    }
    return NULL;
}

/* Sends the answer as the rule says. */
static void send_faulty(struct fake *f, struct http_exchange *x, const struct rule *rule,
                        struct answer *a)
{
    const char *fault = rule->fault;
    if (strcmp(fault, "lost") == 0) {
        http_exchange_abort(x);
    } else if (strcmp(fault, "cut") == 0) {
        http_stream_begin(x, a->code, JSON_TYPE);
        http_stream_write(x, a->body.data, a->body.len / 2);
        hold(f, x, STR(""), -1);
    } else if (strcmp(fault, "slow") == 0) {
        hold(f, x, buf_view(&a->body), rule->ms);
    } else if (strcmp(fault, "stale") == 0) {
        fake_compact(&f->store); /* its own continue token is too old at once */
        f->store.oldest = ++f->store.version;
        answer_send(x, a);
    } else if (strcmp(fault, "garbage") == 0) {
        http_reply(x, a->code, JSON_TYPE, STR("{\"kind\":"));
    } else {
        answer_send(x, a);
    }
}

static bool is_authorised(struct fake *f, const struct http_request *req)
{
    char wanted[300];
    snprintf(wanted, sizeof wanted, "Bearer %s", f->token);
    return !f->token[0] || str_eq(http_request_header(req, "authorization"), str_from(wanted));
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct fake *f = ctx;
    const struct http_request *req = http_exchange_request(x);
    CLEANUP(answer_fini) struct answer a = { 0 };
    struct fake_key key;
    char sub[32] = "";
    int verb = address(req->path, &key, sub) ? verb_of(req, &key, sub) : -1;
    copy(f->agent, sizeof f->agent, http_request_header(req, "user-agent"));
    if (verb < 0) {
        say(&a, 404, "NotFound", "no such path", NULL, 0);
        answer_send(x, &a);
        return;
    }
    f->seen[verb]++;
    if (!is_authorised(f, req)) {
        f->refused++;
        say(&a, 401, "Unauthorized", "Unauthorized", NULL, 0);
        answer_send(x, &a);
        return;
    }
    const struct rule *rule = rule_take(f, (enum verb)verb, &key);
    const char *fault = rule ? rule->fault : "";
    if (strcmp(fault, "hang") == 0) {
        hold(f, x, STR(""), 0);
    } else if (strcmp(fault, "status") == 0) {
        say(&a, (int)rule->code, "", "as the script says", NULL, rule->retry_after);
        answer_send(x, &a);
    } else if (strcmp(fault, "html") == 0) {
        http_reply(x, (int)rule->code, STR("text/html"), STR("<html>Bad gateway</html>"));
    } else if (verb == WATCH) {
        watch_begin(f, x, &key, rule);
    } else {
        perform(f, req, (enum verb)verb, &key, sub, &a);
        if (rule)
            send_faulty(f, x, rule, &a);
        else
            answer_send(x, &a);
        tell_all(f);
    }
}

/* ---- control ---- */

struct setting {
    const char *name;
    int64_t *number;
    char *text;
    size_t bytes;
};

/* Reads the keys of a flat object into the settings. */
static bool read_settings(struct str body, const struct setting *rows, size_t count)
{
    struct json_reader r;
    json_reader_init(&r, body);
    if (json_next(&r) != JSON_OBJECT) return false;
    while (json_next(&r) == JSON_KEY) {
        size_t i = 0;
        while (i < count && !json_key_is(&r, rows[i].name))
            i++;
        json_next(&r);
        if (i == count) return false;
        if (rows[i].number ? json_i64(&r, rows[i].number) < 0
                           : kube_text(&r, rows[i].text, rows[i].bytes) < 0)
            return false;
    }
    return r.token == JSON_OBJECT_END;
}

static bool on_script(struct fake *f, struct str body)
{
    struct rule r = { .count = 1 };
    const struct setting rows[] = {
        { "verb", NULL, r.verb, sizeof r.verb },
        { "fault", NULL, r.fault, sizeof r.fault },
        { "resource", NULL, r.resource, sizeof r.resource },
        { "count", &r.count, NULL, 0 },
        { "code", &r.code, NULL, 0 },
        { "retry_after", &r.retry_after, NULL, 0 },
        { "ms", &r.ms, NULL, 0 },
    };
    if (!read_settings(body, rows, COUNT_OF(rows))) return false;
    for (uint32_t i = 0; i < f->rule_count; i++) /* rules that are used up make room */
        while (i < f->rule_count && f->rules[i].count == 0)
            f->rules[i] = f->rules[--f->rule_count];
    if (r.count == 0) f->rule_count = 0; /* clears the script */
    if (r.count > 0 && f->rule_count < RULES_MAX) f->rules[f->rule_count++] = r;
    return true;
}

static bool on_set(struct fake *f, struct str body)
{
    const struct setting rows[] = {
        { "token", NULL, f->token, sizeof f->token },
        { "bookmark_ms", &f->options.bookmark_ms, NULL, 0 },
        { "linger_ms", &f->options.linger_ms, NULL, 0 },
        { "budget", &f->budget, NULL, 0 },
    };
    return read_settings(body, rows, COUNT_OF(rows));
}

static void on_restart(struct fake *f, struct str body)
{
    while (!list_empty(&f->watches)) {
        struct watch *w = CONTAINER_OF(f->watches.next, struct watch, node);
        w->cut = true;
        on_watch_end(w);
    }
    if (str_eq(fake_get(body, "empty"), STR("true"))) fake_store_clear(&f->store);
}

static void reply_seen(struct fake *f, struct http_exchange *x)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    struct http_server_counts counts;
    uint64_t open = 0;
    http_server_counts_get(f->api, &counts);
    LIST_EACH (&f->watches, node)
        open++;
    json_writer_init(&w, &out);
    json_object(&w);
    for (int v = 0; v < VERB_COUNT; v++)
        json_kv_u64(&w, verb_names[v], f->seen[v]);
    json_kv_u64(&w, "refused", f->refused);
    json_kv_u64(&w, "watches", open);
    json_kv_u64(&w, "accepted", counts.accepted);
    json_kv_u64(&w, "version", f->store.version);
    json_kv_u64(&w, "objects", f->store.object_count);
    json_kv_text(&w, "agent", f->agent);
    json_object_end(&w);
    http_reply(x, 200, JSON_TYPE, buf_view(&out));
}

static void on_control(void *ctx, struct http_exchange *x)
{
    struct fake *f = ctx;
    const struct http_request *req = http_exchange_request(x);
    bool ok = true;
    if (str_eq(req->path, STR("/seen"))) {
        reply_seen(f, x);
        return;
    }
    if (str_eq(req->path, STR("/script")))
        ok = on_script(f, req->body);
    else if (str_eq(req->path, STR("/set")))
        ok = on_set(f, req->body);
    else if (str_eq(req->path, STR("/compact")))
        fake_compact(&f->store);
    else if (str_eq(req->path, STR("/restart")))
        on_restart(f, req->body);
    else
        ok = false;
    http_reply(x, ok ? 200 : 400, STR("text/plain"), ok ? STR("ok") : STR("not understood"));
}

/* ---- start ---- */

#define AT(member) .offset = offsetof(struct options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "port", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 65535, AT(port),
      .about = "Port on 127.0.0.1 that speaks HTTPS." },
    { .name = "control_port", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 65535,
      AT(control_port), .about = "Port on 127.0.0.1 for the test." },
    { .name = "certificate", .type = CONFIG_TEXT, .required = true, AT(certificate),
      .about = "PEM file of the server's certificate." },
    { .name = "key", .type = CONFIG_TEXT, .required = true, AT(key), .about = "PEM file of its key." },
    { .name = "token", .type = CONFIG_TEXT, AT(token), .about = "The only token that is accepted." },
    { .name = "bookmark_ms", .type = CONFIG_INT, .default_text = "60000", .min = 0, .max = 1e9,
      AT(bookmark_ms), .about = "Milliseconds between bookmarks; 0: none." },
    { .name = "linger_ms", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e9,
      AT(linger_ms), .about = "Milliseconds that a deleted pod stays." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct options, rows);
static const struct opt_command usage = { .name = "fake_kube",
                                          .about = "An API server that fails on command.",
                                          .options = &record };

int main(int argc, char **argv)
{
    struct fake f = { .budget = -1 };
    struct opt_parsed parsed;
    struct err err = { 0 };
    struct tls *tls = NULL;
    struct http_server *control = NULL;
    signal(SIGPIPE, SIG_IGN);
    int rc = opt_parse(&usage, argc - 1, argv + 1, &f.options, &parsed, &err);
    if (rc < 0) return opt_fail(&usage, &err);
    list_init(&f.watches);
    list_init(&f.held);
    fake_store_init(&f.store);
    copy(f.token, sizeof f.token, f.options.token);
    const struct tls_files files = { .certificate = f.options.certificate, .key = f.options.key };
    rc = tls_server_new(&files, &tls, &err);
    if (rc == 0) rc = loop_new(&f.loop, &err);
    const struct http_server_config api_config = { .host = "127.0.0.1",
                                                   .port = (uint16_t)f.options.port,
                                                   .limits = { .unsent_bytes_max = 64 << 20 },
                                                   .tls = tls,
                                                   .on_request = on_request,
                                                   .ctx = &f };
    const struct http_server_config control_config = { .host = "127.0.0.1",
                                                       .port = (uint16_t)f.options.control_port,
                                                       .on_request = on_control,
                                                       .ctx = &f };
    if (rc == 0) rc = http_server_new(f.loop, &api_config, &f.api, &err);
    if (rc == 0) rc = http_server_new(f.loop, &control_config, &control, &err);
    if (rc == 0) rc = loop_run(f.loop);
    if (rc < 0) fprintf(stderr, "fake_kube: %s\n", err_text(&err, rc));
    http_server_free(f.api);
    http_server_free(control);
    fake_store_fini(&f.store);
    opt_parsed_fini(&parsed);
    return rc < 0;
}
