/* store_kube_shard.c - reads and writes the objects of store_kube.c.
 *
 *     annotations  muster.dev/store: "1 LIFE EPOCH WRITES REVISION"
 *                  muster.dev/log:   "NAME FIRST", of a log
 *     data         "17": "10:intent/abc{...}"             version 17 of a key of 10 bytes
 *                  "18.1.2", "18.2.2"                     its value in two parts
 *                  "5": "{...}"                           record 5 of a log
 *
 * Values that are no plain text are in binaryData; a Secret has all of them in base64. */
#include "base/io/store/store_kube_shard.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/kube/kube_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define STORE_NOTE "muster.dev/store"
#define LOG_NOTE "muster.dev/log"
#define FORMAT "1"
#define NUMBER_BYTES 48 /* NUMBER.PART.PARTS */
#define READ_ARENA_BYTES ((size_t)4 << 20)

static void item_free(struct shard_item *i)
{
    free(i->data);
    free(i);
}

void shard_fini(struct shard *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->item[i]) item_free(s->item[i]);
    free(s->item);
    s->item = NULL;
    s->count = s->room = 0;
    s->bytes = 0;
}

size_t shard_item_bytes(struct str key, size_t value_bytes)
{
    char head[24];
    int digits = key.len ? snprintf(head, sizeof head, "%zu:", key.len) : 0;
    return (size_t)digits + key.len + value_bytes;
}

static size_t bytes_of(const struct shard_item *i)
{
    return shard_item_bytes(i->key, i->value.len);
}

/* Returns true if a string of JSON carries it and a person can read it. */
static bool is_plain(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.data[i] < ' ' && s.data[i] != '\n' && s.data[i] != '\t') return false;
    return str_utf8_valid(s);
}

static int push(struct shard *s, struct shard_item *item)
{
    if (s->count == s->room) {
        uint32_t room = s->room ? 2 * s->room : 16;
        struct shard_item **more = realloc(s->item, room * sizeof(struct shard_item *));
        if (!more) return -ENOMEM;
        s->item = more;
        s->room = room;
    }
    s->item[s->count++] = item;
    return 0;
}

static struct shard_item *item_copy(const struct shard_item *from)
{
    struct shard_item *i = calloc(1, sizeof *i);
    if (!i) return NULL;
    *i = *from;
    i->data = malloc(from->key.len + from->value.len + 1);
    if (!i->data) {
        free(i);
        return NULL;
    }
    if (from->key.len) memcpy(i->data, from->key.data, from->key.len);
    if (from->value.len) memcpy(i->data + from->key.len, from->value.data, from->value.len);
    i->key = str_of(i->data, from->key.len);
    i->value = str_of(i->data + from->key.len, from->value.len);
    return i;
}

int shard_add(struct shard *s, const struct shard_item *from, struct shard_item **ret,
              struct err *err)
{
    if (s->bytes + bytes_of(from) > SHARD_BYTES_MAX || s->count >= SHARD_ITEMS_MAX)
        return err_set(err, -ENOSPC, "store: %s is full", s->name);
    struct shard_item *i = item_copy(from);
    if (!i || push(s, i) < 0) {
        if (i) item_free(i);
        return err_set(err, -ENOMEM, "store: no memory");
    }
    i->is_new = true;
    i->gone = false;
    i->binary = !s->secret && !(is_plain(i->key) && is_plain(i->value));
    s->bytes += bytes_of(i);
    if (ret) *ret = i;
    return 0;
}

void shard_drop(struct shard *s, struct shard_item *item)
{
    if (item->gone) return;
    item->gone = true;
    s->bytes -= bytes_of(item);
}

/* Ends a change: removes the values that are gone, or the new ones. */
static void settle(struct shard *s, bool made)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        struct shard_item *item = s->item[i];
        if (!made && item->pinned) {
            s->item[kept++] = item;
            continue;
        }
        if (made ? item->gone : item->is_new) {
            if (!item->gone) s->bytes -= bytes_of(item);
            item_free(item);
            continue;
        }
        if (item->gone) s->bytes += bytes_of(item);
        item->gone = item->is_new = item->pinned = false;
        s->item[kept++] = item;
    }
    s->count = kept;
}

void shard_keep(struct shard *s)
{
    settle(s, true);
}

void shard_undo(struct shard *s)
{
    settle(s, false);
}

/* ---- writing ---- */

static void put_base64(struct buf *out, struct str s)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *at = (const unsigned char *)s.data;
    if (buf_reserve(out, (s.len + 2) / 3 * 4) < 0) return;
    for (size_t i = 0; i < s.len; i += 3) {
        uint32_t left = (uint32_t)min_size(s.len - i, 3);
        uint32_t bits = (uint32_t)at[i] << 16 | (left > 1 ? (uint32_t)at[i + 1] << 8 : 0) |
                        (left > 2 ? at[i + 2] : 0);
        const char four[] = { digit[bits >> 18], digit[bits >> 12 & 63],
                              left > 1 ? digit[bits >> 6 & 63] : '=',
                              left > 2 ? digit[bits & 63] : '=' };
        buf_append(out, four, sizeof four);
    }
}

static void put_item(struct json_writer *w, const struct shard *s, const struct shard_item *i)
{
    CLEANUP(buf_fini) struct buf text = { 0 }, coded = { 0 };
    char name[NUMBER_BYTES];
    if (i->parts > 1)
        snprintf(name, sizeof name, "%" PRIu64 ".%u.%u", i->number, i->part, i->parts);
    else
        snprintf(name, sizeof name, "%" PRIu64, i->number);
    json_key(w, name);
    if (i->gone) {
        json_put_null(w);
        return;
    }
    if (i->key.len) buf_printf(&text, "%zu:", i->key.len);
    buf_str(&text, i->key);
    buf_str(&text, i->value);
    bool encoded = s->secret || i->binary;
    if (encoded) put_base64(&coded, buf_view(&text));
    json_put_str(w, buf_view(encoded ? &coded : &text));
    if (text.rc < 0 || coded.rc < 0) w->out->rc = -ENOMEM;
}

/* Writes the values that the change touches, of text or of bytes. */
static void put_items(struct json_writer *w, const struct shard *s, const char *field, bool binary)
{
    bool any = false;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct shard_item *item = s->item[i];
        bool changed = item->is_new != item->gone; /* both: it was never there */
        if (!changed || item->binary != binary) continue;
        if (!any) {
            json_key(w, field);
            json_object(w);
        }
        any = true;
        put_item(w, s, item);
    }
    if (any) json_object_end(w);
}

static void put_notes(struct json_writer *w, const struct shard *s, const struct shard_head *h)
{
    char text[192];
    json_key(w, "annotations");
    json_object(w);
    snprintf(text, sizeof text, FORMAT " %s %" PRIu64 " %" PRIu64 " %" PRIu64, h->life, h->epoch,
             h->writes, h->revision);
    json_kv_text(w, STORE_NOTE, text);
    if (s->log[0]) {
        snprintf(text, sizeof text, "%s %" PRIu64, s->log, s->log_first);
        json_kv_text(w, LOG_NOTE, text);
    }
    json_object_end(w);
}

int shard_print(const struct shard *s, const struct shard_head *head, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "apiVersion", "v1");
    json_kv_text(&w, "kind", s->secret ? "Secret" : "ConfigMap");
    json_key(&w, "metadata");
    json_object(&w);
    json_kv_text(&w, "name", s->name);
    if (s->exists) {
        json_kv_text(&w, "resourceVersion", s->version);
    } else {
        json_key(&w, "labels");
        json_object(&w);
        json_kv_text(&w, "app.kubernetes.io/name", "muster");
        json_kv_text(&w, "app.kubernetes.io/component", "store");
        json_object_end(&w);
    }
    put_notes(&w, s, head);
    json_object_end(&w);
    put_items(&w, s, "data", false);
    if (!s->secret) put_items(&w, s, "binaryData", true);
    json_object_end(&w);
    return out->rc;
}

/* ---- reading ---- */

static int damaged(const struct shard *s, const char *what, struct err *err)
{
    return err_set(err, -EILSEQ, "store: %s of %s cannot be read: did another program write there?",
                   what, s->name);
}

static bool cut_number(struct str *rest, char sep, uint64_t *ret)
{
    return str_to_u64(str_cut(rest, sep), ret) == 0;
}

static int read_head(struct shard *s, struct str text, struct err *err)
{
    struct str rest = text;
    if (!str_eq(str_cut(&rest, ' '), STR(FORMAT)))
        return err_set(err, -EILSEQ, "store: %s is of another release", s->name);
    struct str life = str_cut(&rest, ' ');
    if (life.len != sizeof s->head.life - 1) return damaged(s, "the annotation", err);
    memcpy(s->head.life, life.data, life.len);
    if (!cut_number(&rest, ' ', &s->head.epoch) || !cut_number(&rest, ' ', &s->head.writes) ||
        !cut_number(&rest, ' ', &s->head.revision))
        return damaged(s, "the annotation", err);
    return 0;
}

static int read_log_note(struct shard *s, struct str text, struct err *err)
{
    struct str rest = text, name = str_cut(&rest, ' ');
    if (name.len == 0 || name.len >= sizeof s->log || !cut_number(&rest, ' ', &s->log_first))
        return damaged(s, "the annotation", err);
    memcpy(s->log, name.data, name.len);
    return 0;
}

static int read_notes(struct json_reader *r, struct shard *s, struct err *err)
{
    int rc = 0;
    if (json_next(r) != JSON_OBJECT) return r->token == JSON_NULL ? 0 : damaged(s, "metadata", err);
    while (rc == 0 && json_next(r) == JSON_KEY) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        bool store = json_key_is(r, STORE_NOTE), log = json_key_is(r, LOG_NOTE);
        if (!store && !log) {
            json_skip(r);
            continue;
        }
        json_next(r);
        if (json_text(r, &text) < 0) return damaged(s, "the annotation", err);
        rc = store ? read_head(s, buf_view(&text), err) : read_log_note(s, buf_view(&text), err);
    }
    if (rc == 0 && r->token != JSON_OBJECT_END) rc = damaged(s, "metadata", err);
    return rc;
}

static int read_metadata(struct json_reader *r, struct shard *s, struct err *err)
{
    int rc = 0;
    if (json_next(r) != JSON_OBJECT) return damaged(s, "metadata", err);
    while (rc == 0 && json_next(r) == JSON_KEY) {
        if (json_key_is(r, "annotations"))
            rc = read_notes(r, s, err);
        else
            json_skip(r);
    }
    return rc < 0 || r->token == JSON_OBJECT_END ? rc : damaged(s, "metadata", err);
}

/* Reads "NUMBER" or "NUMBER.PART.PARTS". */
static bool read_name(struct str name, struct shard_item *ret)
{
    struct str rest = name;
    uint64_t part = 1, parts = 1;
    if (!cut_number(&rest, '.', &ret->number)) return false;
    if (rest.len > 0 && (!cut_number(&rest, '.', &part) || !cut_number(&rest, '.', &parts)))
        return false;
    ret->part = (uint32_t)part;
    ret->parts = (uint32_t)parts;
    return part >= 1 && part <= parts && parts <= SHARD_PARTS_MAX && rest.len == 0;
}

/* Splits "LEN:KEYVALUE". */
static bool split_key(struct str text, struct shard_item *ret)
{
    struct str rest = text;
    uint64_t len;
    if (!cut_number(&rest, ':', &len) || len == 0 || len > rest.len) return false;
    ret->key = str_of(rest.data, len);
    ret->value = str_of(rest.data + len, rest.len - len);
    return true;
}

static int read_item(struct json_reader *r, struct shard *s, bool encoded, struct err *err)
{
    CLEANUP(buf_fini) struct buf name = { 0 }, text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    struct shard_item item = { 0 }, *made;
    arena_init(&arena, READ_ARENA_BYTES);
    int rc = json_unescape(r->raw, &name);
    json_next(r);
    if (rc == 0) rc = json_text(r, &text);
    struct str value = buf_view(&text);
    if (rc == 0 && encoded) rc = kube_base64(value, &arena, &value);
    if (rc == -ENOMEM) return err_set(err, rc, "store: no memory");
    if (rc < 0 || !read_name(buf_view(&name), &item)) return damaged(s, "a value", err);
    item.value = value;
    if (!s->log[0] && !split_key(value, &item)) return damaged(s, "a value", err);
    rc = shard_add(s, &item, &made, err);
    if (rc == 0) made->is_new = false;
    return rc;
}

static int read_items(struct json_reader *r, struct shard *s, bool encoded, struct err *err)
{
    int rc = 0;
    if (json_next(r) == JSON_NULL) return 0;
    if (r->token != JSON_OBJECT) return damaged(s, "data", err);
    while (rc == 0 && json_next(r) == JSON_KEY)
        rc = read_item(r, s, encoded, err);
    return rc < 0 || r->token == JSON_OBJECT_END ? rc : damaged(s, "data", err);
}

static int order(const void *a, const void *b)
{
    const struct shard_item *const *x = a, *const *y = b;
    return ((*x)->number > (*y)->number) - ((*x)->number < (*y)->number);
}

/* Reads the fields: metadata first, because it says whether these are a log's records. */
static int read_fields(struct shard *s, struct str object, bool metadata, struct err *err)
{
    struct json_reader r;
    int rc = 0;
    json_reader_init(&r, object);
    if (json_next(&r) != JSON_OBJECT) return damaged(s, "the object", err);
    while (rc == 0 && json_next(&r) == JSON_KEY) {
        if (metadata && json_key_is(&r, "metadata"))
            rc = read_metadata(&r, s, err);
        else if (!metadata && json_key_is(&r, "data"))
            rc = read_items(&r, s, s->secret, err);
        else if (!metadata && json_key_is(&r, "binaryData"))
            rc = read_items(&r, s, true, err);
        else
            json_skip(&r);
    }
    return rc < 0 || r.token == JSON_OBJECT_END ? rc : damaged(s, "the object", err);
}

int shard_read(struct shard *s, struct str object, struct err *err)
{
    struct kube_meta meta;
    int rc = kube_meta_read(object, &meta, err);
    if (rc == 0) rc = read_fields(s, object, true, err);
    if (rc == 0) rc = read_fields(s, object, false, err);
    if (rc == 0 && s->count > 0 && !s->head.life[0]) rc = damaged(s, "the annotation", err);
    if (rc < 0) {
        shard_fini(s);
        return rc;
    }
    if (s->count > 1) qsort(s->item, s->count, sizeof(struct shard_item *), order);
    s->exists = true;
    memcpy(s->version, meta.version, sizeof s->version);
    return 0;
}

/* ---- what is stored, and what is known ---- */

static struct shard_item *find(const struct shard *s, const struct shard_item *as)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->item[i]->number == as->number && s->item[i]->part == as->part) return s->item[i];
    return NULL;
}

/* Replaces what is known by what is stored. */
static void take_all(struct shard *s, struct shard *now)
{
    shard_fini(s);
    s->head = now->head;
    memcpy(s->log, now->log, sizeof s->log);
    s->log_first = now->log_first;
    s->item = now->item;
    s->count = now->count;
    s->room = now->room;
    s->bytes = now->bytes;
    now->item = NULL;
    now->count = now->room = 0;
}

/* Marks what is known and not stored as new, and what is stored and not known as gone. */
static int take_difference(struct shard *s, struct shard *now)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        struct shard_item *item = s->item[i];
        if (item->pinned && item->gone) { /* of another such difference */
            item_free(item);
            continue;
        }
        item->is_new = item->pinned = find(now, item) == NULL;
        s->item[kept++] = item;
    }
    s->count = kept;
    for (uint32_t i = 0; i < now->count; i++) {
        struct shard_item *stored = now->item[i];
        if (find(s, stored)) continue;
        if (push(s, stored) < 0) return -ENOMEM;
        stored->gone = stored->pinned = true; /* its bytes were never counted here */
        now->item[i] = NULL;
    }
    return 0;
}

int shard_take(struct shard *s, struct shard *now, bool ours)
{
    int rc = 0;
    s->exists = now->exists;
    memcpy(s->version, now->version, sizeof s->version);
    if (ours)
        rc = take_difference(s, now);
    else
        take_all(s, now);
    shard_fini(now);
    return rc;
}
