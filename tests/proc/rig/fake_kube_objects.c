/* fake_kube_objects.c - carries out what requests ask of objects: list, create, write, scale, delete, evict. */
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/fake_kube.h"

#include <stdio.h>
#include <stdlib.h>

static void fake_give(struct fake_answer *a, int code, const struct fake_object *o)
{
    a->code = code;
    buf_str(&a->body, buf_view(&o->json));
}

static void on_list(struct fake *f, const struct http_request *req, const struct fake_key *in,
                    struct fake_answer *a)
{
    CLEANUP(buf_fini) struct buf labels = { 0 }, fields = { 0 }, text = { 0 }, more = { 0 };
    uint64_t limit = 0, version = f->store.version, skip = 0, at = 0;
    http_query_value(req->query, "labelSelector", &labels);
    http_query_value(req->query, "fieldSelector", &fields);
    if (http_query_value(req->query, "limit", &text) == 0) str_to_u64(buf_view(&text), &limit);
    if (http_query_value(req->query, "continue", &more) == 0) {
        struct str rest = buf_view(&more), first = str_cut(&rest, '.');
        if (str_to_u64(first, &version) < 0 || str_to_u64(rest, &skip) < 0) {
            fake_say(a, 400, "BadRequest", "continue is no token of ours", NULL, 0);
            return;
        }
        /* The chunks of a list are of one version; this store keeps only the present one. */
        if (version != f->store.version || version < f->store.oldest) {
            fake_say(a, 410, "Expired", "the continue token is too old", NULL, 0);
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

static void on_create(struct fake *f, struct str body, const struct fake_key *in,
                      struct fake_answer *a)
{
    struct fake_key key = *in;
    struct kube_meta meta;
    if (kube_meta_read(body, &meta, NULL) < 0 || !meta.name[0]) {
        fake_say(a, 422, "Invalid", "metadata.name is missing", NULL, 0);
        return;
    }
    fake_copy(key.name, sizeof key.name, str_from(meta.name));
    if (fake_find(&f->store, &key)) {
        fake_say(a, 409, "AlreadyExists", "it exists", NULL, 0);
        return;
    }
    fake_give(a, 201, fake_create(&f->store, &key, body));
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

static void give_scale(struct fake_answer *a, const struct fake_object *o)
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

/* FAKE_PATCH, FAKE_APPLY and FAKE_REPLACE of an object that is there. */
static void on_write(struct fake *f, struct str body, struct fake_object *o, enum fake_verb verb,
                     const char *sub, struct fake_answer *a)
{
    CLEANUP(buf_fini) struct buf merged = { 0 }, out = { 0 };
    struct str version = fake_text(body, "metadata.resourceVersion");
    bool scale = strcmp(sub, "scale") == 0;
    char present[24];
    snprintf(present, sizeof present, "%llu", (unsigned long long)o->version);
    if (version.len > 0 && !str_eq(version, str_from(present))) {
        fake_say(a, 409, "Conflict", "the object has been modified", NULL, 0);
        return;
    }
    if (verb == FAKE_REPLACE)
        buf_str(&merged, body);
    else
        fake_merge(buf_view(&o->json), body, &merged);
    if (scale)
        buf_str(&out, buf_view(&merged));
    else
        keep_half(buf_view(&o->json), buf_view(&merged), strcmp(sub, "status") == 0, &out);
    if (fake_change(&f->store, o, buf_view(&out)) < 0)
        fake_say(a, 400, "BadRequest", "the body is no object", NULL, 0);
    else if (scale)
        give_scale(a, o);
    else
        fake_give(a, 200, o);
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
    fake_tell_all(l->fake);
    free(l);
}

/* Removes the object, or begins its graceful end. `options` may hold preconditions. */
static void object_delete(struct fake *f, struct fake_object *o, struct str options,
                          struct fake_answer *a)
{
    struct str uid = fake_text(options, "preconditions.uid");
    struct str version = fake_text(options, "preconditions.resourceVersion");
    char present[24];
    snprintf(present, sizeof present, "%llu", (unsigned long long)o->version);
    if ((uid.len > 0 && !str_eq(uid, str_from(o->uid))) ||
        (version.len > 0 && !str_eq(version, str_from(present)))) {
        fake_say(a, 409, "Conflict", "Precondition failed", NULL, 0);
        return;
    }
    bool at_once = str_eq(fake_get(options, "gracePeriodSeconds"), STR("0"));
    bool lingers = f->options.linger_ms > 0 && strcmp(o->key.resource, "/v1/pods") == 0 && !at_once;
    if (!lingers) {
        fake_remove(&f->store, o);
        fake_say(a, 200, "", "deleted", NULL, 0);
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
    fake_give(a, 200, o);
}

static void on_evict(struct fake *f, struct str body, struct fake_object *o, struct fake_answer *a)
{
    if (f->budget == 0) {
        fake_say(a, 429, "TooManyRequests",
                 "Cannot evict pod as it would violate the disruption budget", "DisruptionBudget",
                 10);
        return;
    }
    struct str options = fake_get(body, "deleteOptions");
    object_delete(f, o, options.len ? options : STR("{}"), a);
    if (a->code == 200 && f->budget > 0) f->budget--;
    if (a->code == 200) fake_say(a, 201, "", "evicted", NULL, 0);
}

/* Carries a request out. */
void fake_perform(struct fake *f, const struct http_request *req, enum fake_verb verb,
                  const struct fake_key *key, const char *sub, struct fake_answer *a)
{
    struct fake_object *o = key->name[0] ? fake_find(&f->store, key) : NULL;
    CLEANUP(buf_fini) struct buf manager = { 0 };
    http_query_value(req->query, "fieldManager", &manager);
    if (verb == FAKE_LIST) {
        on_list(f, req, key, a);
    } else if (verb == FAKE_CREATE) {
        on_create(f, req->body, key, a);
    } else if (verb == FAKE_APPLY && manager.len == 0) {
        fake_say(a, 400, "BadRequest", "fieldManager is required for apply patch", NULL, 0);
    } else if (verb == FAKE_APPLY && !o && !sub[0]) {
        o = fake_create(&f->store, key, req->body);
        if (o)
            fake_give(a, 201, o);
        else
            fake_say(a, 400, "BadRequest", "the body is no object", NULL, 0);
    } else if (!o) {
        fake_say(a, 404, "NotFound", "it is not found", NULL, 0);
    } else if (verb == FAKE_GET && strcmp(sub, "scale") == 0) {
        give_scale(a, o);
    } else if (verb == FAKE_GET) {
        fake_give(a, 200, o);
    } else if (verb == FAKE_DELETE) {
        object_delete(f, o, req->body, a);
    } else if (verb == FAKE_EVICT) {
        on_evict(f, req->body, o, a);
    } else {
        on_write(f, req->body, o, verb, sub, a);
    }
}
