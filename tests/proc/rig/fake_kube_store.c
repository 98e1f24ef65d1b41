/* fake_kube_store.c - objects, history and merge patches of the scripted API server. */
#include "tests/proc/rig/fake_kube_store.h"

#include "base/core/json.h"
#include "base/core/own.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- JSON ---- */

/* Finds a key of an object; empty when absent. */
static struct str member(struct str json, struct str name)
{
    struct json_reader r;
    struct str value = { 0 };
    if (json.len == 0) return value;
    json_reader_init(&r, json);
    if (json_next(&r) != JSON_OBJECT) return value;
    while (json_next(&r) == JSON_KEY) {
        if (str_eq(r.raw, name)) {
            json_raw_value(&r, &value);
            return value;
        }
        json_skip(&r);
    }
    return value;
}

struct str fake_get(struct str json, const char *path)
{
    for (struct str rest = str_from(path); rest.len > 0 && json.len > 0;)
        json = member(json, str_cut(&rest, '.'));
    return json;
}

static struct str unquoted(struct str s)
{
    return s.len >= 2 && s.data[0] == '"' ? str_of(s.data + 1, s.len - 2) : s;
}

struct str fake_text(struct str json, const char *path)
{
    return unquoted(fake_get(json, path));
}

static void put_raw_key(struct buf *out, bool *first, struct str key)
{
    buf_printf(out, "%s\"" STR_FMT "\":", *first ? "" : ",", STR_ARG(key));
    *first = false;
}

void fake_merge(struct str target, struct str patch, struct buf *out)
{
    struct json_reader r;
    bool first = true;
    if (patch.len == 0 || patch.data[0] != '{') {
        buf_str(out, patch);
        return;
    }
    buf_byte(out, '{');
    json_reader_init(&r, target.len && target.data[0] == '{' ? target : STR("{}"));
    json_next(&r);
    while (json_next(&r) == JSON_KEY) {
        struct str key = r.raw, value = { 0 };
        json_raw_value(&r, &value);
        struct str change = member(patch, key);
        if (str_eq(change, STR("null"))) continue;
        put_raw_key(out, &first, key);
        if (change.len > 0)
            fake_merge(value, change, out);
        else
            buf_str(out, value);
    }
    json_reader_init(&r, patch);
    json_next(&r);
    while (json_next(&r) == JSON_KEY) {
        struct str key = r.raw, value = { 0 };
        json_raw_value(&r, &value);
        if (str_eq(value, STR("null")) || member(target, key).len > 0) continue;
        put_raw_key(out, &first, key);
        fake_merge((struct str){ 0 }, value, out);
    }
    buf_byte(out, '}');
}

/* ---- selection ---- */

bool fake_is_in(const struct fake_key *in, const struct fake_key *key, struct str json,
                struct str labels, struct str fields)
{
    if (strcmp(in->resource, key->resource) != 0) return false;
    if (in->ns[0] && strcmp(in->ns, key->ns) != 0) return false;
    struct str have = fake_get(json, "metadata.labels");
    while (labels.len > 0) {
        struct str value = str_cut(&labels, ','), name = str_cut(&value, '=');
        if (!str_eq(unquoted(member(have, name)), value)) return false;
    }
    while (fields.len > 0) {
        struct str value = str_cut(&fields, ','), name = str_cut(&value, '=');
        char path[128];
        snprintf(path, sizeof path, STR_FMT, STR_ARG(name));
        if (!str_eq(fake_text(json, path), value)) return false;
    }
    return true;
}

static int key_cmp(const struct fake_key *a, const struct fake_key *b)
{
    int cmp = strcmp(a->resource, b->resource);
    if (cmp == 0) cmp = strcmp(a->ns, b->ns);
    return cmp ? cmp : strcmp(a->name, b->name);
}

struct fake_object *fake_find(const struct fake_store *s, const struct fake_key *key)
{
    LIST_EACH (&s->objects, node) {
        struct fake_object *o = CONTAINER_OF(node, struct fake_object, node);
        if (key_cmp(&o->key, key) == 0) return o;
    }
    return NULL;
}

/* ---- changes ---- */

static void entry_free(struct fake_store *s, struct fake_entry *e)
{
    list_remove(&e->node);
    s->history_count--;
    buf_fini(&e->json);
    buf_fini(&e->before);
    free(e);
}

static void record(struct fake_store *s, enum fake_change change, const struct fake_object *o,
                   struct str before)
{
    struct fake_entry *e = calloc(1, sizeof *e);
    must(e);
    e->version = s->version;
    e->change = change;
    e->key = o->key;
    buf_str(&e->json, buf_view(&o->json));
    buf_str(&e->before, before);
    list_push_back(&s->history, &e->node);
    if (++s->history_count <= FAKE_HISTORY_MAX) return;
    struct fake_entry *old = CONTAINER_OF(s->history.next, struct fake_entry, node);
    s->oldest = old->version;
    entry_free(s, old);
}

/* Writes what the server owns into metadata; the body's own fields stay. */
static int stamp(struct fake_object *o, struct str json, const char *created)
{
    CLEANUP(buf_fini) struct buf patch = { 0 }, out = { 0 };
    struct kube_meta meta;
    if (kube_meta_read(json, &meta, NULL) < 0) return -EINVAL;
    buf_printf(&patch, "{\"metadata\":{\"name\":\"%s\",\"uid\":\"%s\",\"resourceVersion\":\"%llu\"",
               o->key.name, o->uid, (unsigned long long)o->version);
    if (o->key.ns[0]) buf_printf(&patch, ",\"namespace\":\"%s\"", o->key.ns);
    if (created) buf_printf(&patch, ",\"creationTimestamp\":\"%s\"", created);
    buf_text(&patch, "}}");
    fake_merge(json, buf_view(&patch), &out);
    buf_clear(&o->json);
    return buf_str(&o->json, buf_view(&out));
}

struct fake_object *fake_create(struct fake_store *s, const struct fake_key *key, struct str body)
{
    struct fake_object *o = calloc(1, sizeof *o);
    must(o && s->object_count < FAKE_OBJECTS_MAX);
    o->key = *key;
    o->version = s->version + 1;
    snprintf(o->uid, sizeof o->uid, "00000000-0000-4000-8000-%012llx",
             (unsigned long long)s->uids + 1);
    if (stamp(o, body, "2026-01-01T00:00:00Z") < 0) {
        buf_fini(&o->json);
        free(o);
        return NULL;
    }
    s->version++;
    s->uids++;
    struct list *at = s->objects.next;
    while (at != &s->objects && key_cmp(&CONTAINER_OF(at, struct fake_object, node)->key, key) < 0)
        at = at->next;
    list_insert_after(at->prev, &o->node);
    s->object_count++;
    record(s, FAKE_ADDED, o, (struct str){ 0 });
    return o;
}

int fake_change(struct fake_store *s, struct fake_object *o, struct str json)
{
    CLEANUP(buf_fini) struct buf before = o->json;
    o->json = (struct buf){ 0 };
    o->version = s->version + 1;
    int rc = stamp(o, json, NULL);
    if (rc < 0) {
        buf_fini(&o->json);
        buf_str(&o->json, buf_view(&before));
        return rc;
    }
    s->version++;
    record(s, FAKE_MODIFIED, o, buf_view(&before));
    return 0;
}

static void object_free(struct fake_store *s, struct fake_object *o)
{
    list_remove(&o->node);
    s->object_count--;
    buf_fini(&o->json);
    free(o);
}

void fake_remove(struct fake_store *s, struct fake_object *o)
{
    CLEANUP(buf_fini) struct buf before = { 0 };
    buf_str(&before, buf_view(&o->json));
    o->version = ++s->version;
    stamp(o, buf_view(&before), NULL);
    record(s, FAKE_DELETED, o, buf_view(&before));
    object_free(s, o);
}

void fake_compact(struct fake_store *s)
{
    while (!list_empty(&s->history))
        entry_free(s, CONTAINER_OF(s->history.next, struct fake_entry, node));
    s->oldest = s->version;
}

/* ---- life ---- */

void fake_store_init(struct fake_store *s)
{
    *s = (struct fake_store){ .version = 100, .oldest = 100 };
    list_init(&s->objects);
    list_init(&s->history);
}

void fake_store_clear(struct fake_store *s)
{
    fake_compact(s);
    while (!list_empty(&s->objects))
        object_free(s, CONTAINER_OF(s->objects.next, struct fake_object, node));
    s->version = s->oldest = 1;
}

void fake_store_fini(struct fake_store *s)
{
    fake_store_clear(s);
}
