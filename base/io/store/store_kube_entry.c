/* store_kube_entry.c - keeps the entries of a store on Kubernetes: a key, and a value in one or several objects.
 *
 * The entries of all objects are in one array, sorted by key. A new value goes into the object that has the most room;
 * one that replaces another stays where that was while it fits. Where a value moves from one object to another it is
 * added first, and of two versions of a key the older one counts for nothing. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/store/store_backend.h"
#include "base/io/store/store_kube_state.h"

#include <stdlib.h>

#define ENTRIES_MAX 8192

/* Returns the place where the key is or would be. */
static uint32_t entry_at(const struct kube_store *k, struct str key, bool *ret_found)
{
    uint32_t low = 0, high = k->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (str_cmp(k->entry[middle].part[0]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_found = low < k->count && str_eq(k->entry[low].part[0]->key, key);
    return low;
}

static int entries_reserve(struct kube_store *k, uint32_t count, struct err *err)
{
    if (count <= k->room) return 0;
    uint32_t room = max_u32(count, 2 * k->room);
    struct kube_entry *more = realloc(k->entry, room * sizeof *more);
    if (!more) return err_set(err, -ENOMEM, "store: no memory");
    k->entry = more;
    k->room = room;
    return 0;
}

struct place {
    struct shard_item *item;
    uint32_t shard;
};

/* By key, the latest version first, then by part. */
static int place_order(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int by_key = str_cmp(x->item->key, y->item->key);
    if (by_key != 0) return by_key;
    if (x->item->number != y->item->number) return x->item->number < y->item->number ? 1 : -1;
    return (x->item->part > y->item->part) - (x->item->part < y->item->part);
}

/* Takes the version that begins at p[0] of n, if all its parts are there. Returns how many places it has. */
static uint32_t version_take(const struct place *p, uint32_t n, struct kube_entry *ret,
                             bool *ret_whole)
{
    uint32_t same = 0;
    bool whole = true;
    while (same < n && p[same].item->number == p[0].item->number &&
           str_eq(p[same].item->key, p[0].item->key)) {
        whole = whole && same < SHARD_PARTS_MAX && p[same].item->part == same + 1;
        if (whole) {
            ret->part[same] = p[same].item;
            ret->shard[same] = p[same].shard;
        }
        same++;
    }
    *ret_whole = whole && same == p[0].item->parts;
    return same;
}

/* Makes the entries of what the shards hold, and drops versions that are older, or not whole. */
int kube_entry_index(struct kube_store *k, struct err *err)
{
    uint32_t n = 0, all = 0;
    for (uint32_t s = 0; s < KUBE_FIRST_LOG; s++)
        all += k->shard[s].count;
    struct place *place = calloc(all + 1, sizeof *place);
    k->count = 0;
    if (!place || entries_reserve(k, all + 1, err) < 0) {
        free(place);
        return err_set(err, -ENOMEM, "store: no memory");
    }
    for (uint32_t s = 0; s < KUBE_FIRST_LOG; s++)
        for (uint32_t i = 0; i < k->shard[s].count; i++)
            if (!k->shard[s].item[i]->gone) place[n++] = (struct place){ k->shard[s].item[i], s };
    if (n > 1) qsort(place, n, sizeof *place, place_order);
    for (uint32_t i = 0; i < n;) {
        bool whole,
            known = k->count > 0 && str_eq(k->entry[k->count - 1].part[0]->key, place[i].item->key);
        uint32_t same = version_take(place + i, n - i, &k->entry[k->count], &whole);
        if (whole && !known)
            k->count++;
        else
            for (uint32_t d = 0; d < same; d++)
                shard_drop(&k->shard[place[i + d].shard], place[i + d].item);
        i += same;
    }
    free(place);
    return 0;
}

bool kube_entry_is_secret(const struct kube_store *k, struct str key)
{
    for (uint32_t i = 0; i < k->secret_count; i++)
        if (str_starts(key, str_from(k->secret[i]))) return true;
    return false;
}

/* Returns the shard for a value: the emptiest. */
static uint32_t shard_for(const struct kube_store *k, struct str key)
{
    bool secret = kube_entry_is_secret(k, key);
    uint32_t from = secret ? KUBE_FIRST_SECRET : 0,
             until = secret ? KUBE_FIRST_LOG : KUBE_FIRST_SECRET;
    uint32_t best = from;
    for (uint32_t s = from + 1; s < until; s++)
        if (k->shard[s].bytes < k->shard[best].bytes) best = s;
    return best;
}

static int look_for(struct kube_store *k, struct str prefix, struct err *err)
{
    return kube_entry_is_secret(k, prefix)
               ? kube_objects_look(k, KUBE_FIRST_SECRET, KUBE_FIRST_LOG, err)
               : kube_objects_look(k, 0, KUBE_FIRST_LOG, err);
}

static int absent(struct str key, struct err *err)
{
    return err_set(err, -ENOENT, "store: no '%.*s'", (int)min_size(key.len, 80), key.data);
}

static int value_append(const struct kube_entry *e, struct buf *out)
{
    for (uint32_t p = 0; p < e->part[0]->parts; p++)
        buf_str(out, e->part[p]->value);
    return out->rc;
}

int kube_entry_get(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
                   struct err *err)
{
    struct kube_store *k = kube_store_of(s);
    bool found;
    int rc = look_for(k, key, err);
    if (rc < 0) return rc;
    uint32_t at = entry_at(k, key, &found);
    if (!found) return absent(key, err);
    if (value && value_append(&k->entry[at], value) < 0)
        return err_set(err, value->rc, "store: no room for the value");
    if (ret_version) *ret_version = k->entry[at].part[0]->number;
    return 0;
}

int kube_entry_list(struct store *s, struct str prefix, store_entry_fn fn, void *ctx,
                    struct err *err)
{
    struct kube_store *k = kube_store_of(s);
    bool found;
    int rc = look_for(k, prefix, err);
    if (rc < 0) return rc;
    for (uint32_t at = entry_at(k, prefix, &found); at < k->count && rc == 0; at++) {
        CLEANUP(buf_fini) struct buf whole = { 0 };
        const struct kube_entry *e = &k->entry[at];
        struct store_entry view = { e->part[0]->key, e->part[0]->value, e->part[0]->number };
        if (!str_starts(view.key, prefix)) break;
        if (e->part[0]->parts > 1) {
            if (value_append(e, &whole) < 0) return err_set(err, -ENOMEM, "store: no memory");
            view.value = buf_view(&whole);
        }
        k->busy = true;
        rc = fn(ctx, &view);
        k->busy = false;
    }
    return rc;
}

/* The second and later of several writes: what they leave behind, the next term puts in order. */
static int halfway(int rc, struct err *err)
{
    return rc == 0 || rc == -EKEYREVOKED ? rc
                                         : err_prefix(err, -EREMOTEIO, "half of it is written");
}

/* Removes the parts of an entry. `began`: something was written before. */
static int drop_parts(struct kube_store *k, const struct kube_entry *e, uint64_t revision,
                      bool began, struct err *err)
{
    const struct kube_entry had = *e;
    uint32_t parts = had.part[0]->parts;
    for (uint32_t p = 0; p < parts; p++) {
        shard_drop(&k->shard[had.shard[p]], had.part[p]);
        int rc = kube_objects_commit(k, had.shard[p], revision, err);
        if (rc < 0) return began || p > 0 ? halfway(rc, err) : rc;
    }
    return 0;
}

struct put {
    struct str key, value;
    uint64_t number;
    uint32_t parts;
};

static struct shard_item part_of(const struct put *w, uint32_t p)
{
    size_t from = p * SHARD_PART_BYTES;
    size_t len = min_size(w->value.len - from, SHARD_PART_BYTES);
    return (struct shard_item){ .key = w->key,
                                .value = str_of(w->value.data + from, len),
                                .number = w->number,
                                .part = p + 1,
                                .parts = w->parts };
}

/* Writes a value in place of the old one, in the same object. -ENOSPC: it has no room there. */
static int put_here(struct kube_store *k, const struct put *w, struct kube_entry *e,
                    struct err *err)
{
    struct shard *s = &k->shard[e->shard[0]];
    struct shard_item item = part_of(w, 0), *made;
    shard_drop(s, e->part[0]);
    int rc = shard_add(s, &item, &made, err);
    if (rc < 0) {
        shard_undo(s);
        return rc;
    }
    rc = kube_objects_commit(k, e->shard[0], w->number, err);
    if (rc == 0) e->part[0] = made;
    return rc;
}

/* Writes all parts of a value, each into the object that has the most room. */
static int put_anew(struct kube_store *k, const struct put *w, struct kube_entry *ret,
                    struct err *err)
{
    for (uint32_t p = 0; p < w->parts; p++) {
        struct shard_item item = part_of(w, p);
        ret->shard[p] = shard_for(k, w->key);
        int rc = shard_add(&k->shard[ret->shard[p]], &item, &ret->part[p], err);
        if (rc == 0) rc = kube_objects_commit(k, ret->shard[p], w->number, err);
        if (rc < 0) return p == 0 ? rc : halfway(rc, err);
    }
    return 0;
}

static int put_new_key(struct kube_store *k, const struct put *w, uint32_t at, struct err *err)
{
    struct kube_entry e;
    if (k->count >= ENTRIES_MAX)
        return err_set(err, -ENOSPC, "store: full, %d entries are the bound", ENTRIES_MAX);
    int rc = entries_reserve(k, k->count + 1, err);
    if (rc == 0) rc = put_anew(k, w, &e, err);
    if (rc < 0) return rc;
    memmove(k->entry + at + 1, k->entry + at, (k->count - at) * sizeof *k->entry);
    k->entry[at] = e;
    k->count++;
    return 0;
}

static int put_over(struct kube_store *k, const struct put *w, struct kube_entry *e,
                    struct err *err)
{
    bool one = w->parts == 1 && e->part[0]->parts == 1;
    struct kube_entry had = *e, now;
    int rc = one ? put_here(k, w, e, err) : -ENOSPC;
    if (rc != -ENOSPC) return rc;
    rc = put_anew(k, w, &now, err);
    if (rc == 0) rc = drop_parts(k, &had, w->number, true, err);
    if (rc == 0) *e = now;
    return rc;
}

int kube_entry_put_if(struct store *s, struct str key, struct str value, uint64_t expected,
                      uint64_t *ret_version, struct err *err)
{
    struct kube_store *k = kube_store_of(s);
    bool found;
    must(!k->busy);
    uint32_t at = entry_at(k, key, &found);
    uint64_t version = found ? k->entry[at].part[0]->number : 0;
    struct put w = { key, value, k->revision + 1, 1 };
    if (value.len > SHARD_PART_BYTES)
        w.parts = (uint32_t)((value.len + SHARD_PART_BYTES - 1) / SHARD_PART_BYTES);
    int rc = store_version_check(key, version, expected, err);
    if (rc == 0 && FAULT("store.write")) rc = err_set(err, -ENOSPC, "store: no space left");
    if (rc < 0) return rc;
    rc = found ? put_over(k, &w, &k->entry[at], err) : put_new_key(k, &w, at, err);
    if (rc < 0) return rc;
    *ret_version = k->revision = w.number;
    return 0;
}

int kube_entry_delete_if(struct store *s, struct str key, uint64_t expected, struct err *err)
{
    struct kube_store *k = kube_store_of(s);
    bool found;
    must(!k->busy);
    uint32_t at = entry_at(k, key, &found);
    if (!found) return absent(key, err);
    int rc = store_version_check(key, k->entry[at].part[0]->number, expected, err);
    if (rc == 0 && FAULT("store.write")) rc = err_set(err, -ENOSPC, "store: no space left");
    if (rc == 0) rc = drop_parts(k, &k->entry[at], k->revision, false, err);
    if (rc < 0) return rc;
    k->count--;
    memmove(k->entry + at, k->entry + at + 1, (k->count - at) * sizeof *k->entry);
    return 0;
}
