/* store_kube.c - keeps the store of several controllers in objects of Kubernetes: a Lease, ConfigMaps, and Secrets.
 *
 *     Lease      NAME-store               who leads, and how often each other object was written
 *     ConfigMap  NAME-store-r0 .. r31     entries
 *     Secret     NAME-store-s0 .. s3      entries whose keys the opener calls secret
 *     ConfigMap  NAME-store-l0 .. l11     logs, LOG_SEGMENTS objects each
 *
 * The number of objects is fixed. An API server compares the version of one object only, so a term begins with a
 * write to each of them: the new leader stamps its epoch on all, and from then on the versions that an old leader
 * knows are old. A late write of the old one fails (409). One that comes before the stamp is read and kept: the
 * old leader did it in its time. No object is made later, so nothing can be made late.
 *
 * A handle that has a term reads from its memory, which is what is stored: it alone writes. A write is one merge
 * patch of one object, with the change only. Where a value moves from one object to another, it is added first,
 * and the older version counts for nothing.
 *
 * Content that is lost (an object was deleted, emptied or restored from a backup) is told by the life and the
 * counts of writes, which Lease, objects and copies have, and is written anew from the copy of the next leader.
 *
 * Rejected: one object for each entry: a new leader could not stamp what does not exist yet. Rejected: one object
 * with a journal and the others behind it: a term begins with one write, and each needs two. Rejected: listing,
 * because a right to list cannot be limited to names, and would show all Secrets of the namespace. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "base/io/store/store_backend.h"
#include "base/io/store/store_kube_lease.h"
#include "base/io/store/store_kube_link.h"
#include "base/io/store/store_kube_shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define RECORD_SHARDS 32
#define SECRET_SHARDS 4
#define LOGS_MAX 4
#define LOG_SEGMENTS 3
#define FIRST_SECRET RECORD_SHARDS
#define FIRST_LOG (RECORD_SHARDS + SECRET_SHARDS)
#define SHARDS LEASE_OBJECTS
#define SEGMENT_BYTES ((size_t)128 << 10) /* each record that is appended writes its segment anew */
#define ENTRIES_MAX 8192
#define WALK_CALLS_MAX 8 /* timeouts that reading or stamping all objects may take */
#define STAMP_ROUNDS_MAX 4
#define TRIES_MAX 3 /* of a write to an object that others label */
#define NAME_BYTES 65
#define SECRETS_MAX 8
#define SECRET_BYTES 32

_Static_assert(SHARDS == FIRST_LOG + LOGS_MAX * LOG_SEGMENTS, "the Lease counts all objects");

static const struct kube_resource leases = { "coordination.k8s.io", "v1", "leases", false };
static const struct kube_resource configmaps = { "", "v1", "configmaps", false };
static const struct kube_resource secrets = { "", "v1", "secrets", false };

struct entry {
    struct shard_item *part[SHARD_PARTS_MAX]; /* [0] has the key and the number of parts */
    uint32_t shard[SHARD_PARTS_MAX];
};

struct kube_store {
    struct store store;
    struct kube_link *link;
    int64_t timeout_us;
    char name[NAME_BYTES];
    char secret[SECRETS_MAX][SECRET_BYTES];
    uint32_t secret_count;

    struct lease_object lease;
    uint64_t beat_tried; /* of a renewal whose reply was lost */
    char life[SHARD_LIFE_BYTES];
    uint64_t revision;
    struct shard shard[SHARDS];
    struct kube_job job[SHARDS];

    struct entry *entry; /* sorted by key */
    uint32_t count, room;
    bool busy; /* in a walk, whose function must not call the store */
};

static struct kube_store *kube_of(struct store *s)
{
    return (struct kube_store *)(void *)s;
}

/* ---- calls ---- */

/* Returns the failure of a call, as one that says nothing about a key. */
static int call_failed(const struct kube_job *j, struct err *err)
{
    int rc = j->unsure ? -EREMOTEIO
             : j->rc == -ETIMEDOUT || j->rc == -EHOSTUNREACH || j->rc == -EACCES ||
                     j->rc == -EPERM || j->rc == -ENOMEM || j->rc == -ECONNRESET
                 ? j->rc
                 : -EIO;
    return err_set(err, rc, "store: %s%s", j->problem, j->unsure ? "; it may be written" : "");
}

/* Returns true if the object is another than the one that the write was meant for. */
static bool is_conflict(const struct kube_job *j)
{
    if (j->unsure) return false;
    return j->rc == -ESTALE || j->rc == -EEXIST || (j->rc == -ENOENT && j->verb == KUBE_PATCH);
}

static void job_set(struct kube_job *j, enum kube_verb verb, const struct kube_resource *resource,
                    const char *name)
{
    buf_clear(&j->body);
    j->verb = verb;
    j->resource = resource;
    snprintf(j->name, sizeof j->name, "%s", name);
}

/* Forgets what was sent and replied, which may be of a Secret. */
static void jobs_clear(struct kube_store *k)
{
    for (uint32_t i = 0; i < SHARDS; i++) {
        struct kube_job *j = &k->job[i];
        if (j->body.data) explicit_bzero(j->body.data, j->body.cap);
        buf_fini(&j->body);
    }
}

static const struct kube_resource *resource_of(const struct shard *s)
{
    return s->secret ? &secrets : &configmaps;
}

/* ---- entries ---- */

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
    struct entry *more = realloc(k->entry, room * sizeof *more);
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
static uint32_t version_take(const struct place *p, uint32_t n, struct entry *ret, bool *ret_whole)
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
static int index_make(struct kube_store *k, struct err *err)
{
    uint32_t n = 0, all = 0;
    for (uint32_t s = 0; s < FIRST_LOG; s++)
        all += k->shard[s].count;
    struct place *place = calloc(all + 1, sizeof *place);
    k->count = 0;
    if (!place || entries_reserve(k, all + 1, err) < 0) {
        free(place);
        return err_set(err, -ENOMEM, "store: no memory");
    }
    for (uint32_t s = 0; s < FIRST_LOG; s++)
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

static bool is_secret(const struct kube_store *k, struct str key)
{
    for (uint32_t i = 0; i < k->secret_count; i++)
        if (str_starts(key, str_from(k->secret[i]))) return true;
    return false;
}

/* Returns the shard for a value: the emptiest. */
static uint32_t shard_for(const struct kube_store *k, struct str key)
{
    bool secret = is_secret(k, key);
    uint32_t from = secret ? FIRST_SECRET : 0, until = secret ? FIRST_LOG : FIRST_SECRET;
    uint32_t best = from;
    for (uint32_t s = from + 1; s < until; s++)
        if (k->shard[s].bytes < k->shard[best].bytes) best = s;
    return best;
}

/* ---- reading ---- */

/* Reads the object of shard `s` from the reply to job `j` into *ret, which is empty. */
static int shard_from(const struct kube_store *k, uint32_t s, const struct kube_job *j,
                      struct shard *ret, struct err *err)
{
    *ret = (struct shard){ .secret = k->shard[s].secret };
    memcpy(ret->name, k->shard[s].name, sizeof ret->name);
    if (j->rc == -ENOENT) return 0;
    return j->rc < 0 ? call_failed(j, err) : shard_read(ret, buf_view(&j->body), err);
}

static int lost(const struct kube_store *k, const struct shard *s, struct err *err)
{
    return err_set(err, -EILSEQ,
                   "store: %s %s/%s is gone, empty or of another store, and this controller has no "
                   "copy of it; restore it, or delete Lease, ConfigMaps and Secrets %s-store* to "
                   "start with what the providers list",
                   s->secret ? "Secret" : "ConfigMap", kube_link_ns(k->link).data, s->name,
                   k->name);
}

/* Chooses between what is stored and what this handle has. `must_be`: what is neither is an error. */
static int choose(struct kube_store *k, uint32_t at, struct shard *now, bool must_be,
                  struct err *err)
{
    struct shard *s = &k->shard[at];
    bool stored = now->exists && k->life[0] && strcmp(now->head.life, k->life) == 0;
    bool copied = k->life[0] && strcmp(s->head.life, k->life) == 0;
    bool blank = !now->exists || !now->head.life[0];
    bool ours = copied && (!stored || s->head.writes > now->head.writes);
    if (stored && k->store.epoch && now->head.epoch > k->store.epoch)
        return store_deposed(err, "another leads by now");
    if (!stored && !copied && (must_be || !blank)) return lost(k, s, err);
    if (shard_take(s, now, ours) < 0) return err_set(err, -ENOMEM, "store: no memory");
    return 0;
}

/* Returns the life that the objects in `now` have; else that of the copy; else an empty one. */
static const char *life_of(const struct kube_store *k, const struct shard *now, const bool *wanted)
{
    for (uint32_t s = 0; s < SHARDS; s++)
        if (wanted[s] && now[s].head.life[0]) return now[s].head.life;
    for (uint32_t s = 0; s < SHARDS; s++)
        if (k->shard[s].head.life[0]) return k->shard[s].head.life;
    return "";
}

/* Reads the wanted objects into `now`. */
static int fetch(struct kube_store *k, const bool *wanted, struct shard *now, struct err *err)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < SHARDS; s++)
        if (wanted[s]) job_set(&k->job[n++], KUBE_GET, resource_of(&k->shard[s]), k->shard[s].name);
    int rc = kube_link_run(k->link, k->job, n, WALK_CALLS_MAX * k->timeout_us, err);
    n = 0;
    for (uint32_t s = 0; s < SHARDS && rc == 0; s++)
        if (wanted[s]) rc = shard_from(k, s, &k->job[n++], &now[s], err);
    jobs_clear(k);
    return rc;
}

enum reading {
    READ_LOOSE, /* what is neither stored nor copied is empty */
    READ_WHOLE, /* it is an error */
    READ_NEW    /* as loose; there may be no life yet, and one is made */
};

static int random_life(char ret[SHARD_LIFE_BYTES], struct err *err)
{
    uint64_t id;
    if (getrandom(&id, sizeof id, 0) != sizeof id)
        return err_set(err, -EIO, "the system gives no random bytes");
    snprintf(ret, SHARD_LIFE_BYTES, "%016" PRIx64, id);
    return 0;
}

/* Reads the wanted objects, chooses, and makes the entries. */
static int take_in(struct kube_store *k, const bool *wanted, enum reading how, struct err *err)
{
    struct shard *now = calloc(SHARDS, sizeof *now);
    if (!now) return err_set(err, -ENOMEM, "store: no memory");
    int rc = fetch(k, wanted, now, err);
    if (rc == 0) {
        bool said = k->lease.life[0] != 0;
        const char *life = said ? k->lease.life : life_of(k, now, wanted);
        char copy[SHARD_LIFE_BYTES];
        snprintf(copy, sizeof copy, "%s", life);
        memcpy(k->life, copy, sizeof copy);
        if (how == READ_NEW && !k->life[0]) {
            rc = random_life(k->life, err);
        } else if (how == READ_NEW &&
                   !said) { /* the Lease was deleted, which said that all were there */
            how = READ_WHOLE;
            k->lease.complete = true;
        }
    }
    for (uint32_t s = 0; s < SHARDS; s++) {
        if (wanted[s] && rc == 0) rc = choose(k, s, &now[s], how == READ_WHOLE, err);
        shard_fini(&now[s]);
    }
    free(now);
    if (rc == 0) rc = index_make(k, err);
    for (uint32_t s = 0; s < SHARDS; s++)
        k->revision = max_u64(k->revision, k->shard[s].head.revision);
    if (rc < 0) k->count = 0;
    return rc;
}

static void want(bool *wanted, uint32_t from, uint32_t until)
{
    for (uint32_t s = 0; s < SHARDS; s++)
        wanted[s] = s >= from && s < until;
}

/* A handle without a term reads the objects from `from` on; one that has a term knows them. */
static int look(struct kube_store *k, uint32_t from, uint32_t until, struct err *err)
{
    bool wanted[SHARDS];
    must(!k->busy);
    if (k->store.epoch) return 0;
    want(wanted, from, until);
    return take_in(k, wanted, READ_LOOSE, err);
}

static int look_for(struct kube_store *k, struct str prefix, struct err *err)
{
    return is_secret(k, prefix) ? look(k, FIRST_SECRET, FIRST_LOG, err)
                                : look(k, 0, FIRST_LOG, err);
}

static int absent(struct str key, struct err *err)
{
    return err_set(err, -ENOENT, "store: no '%.*s'", (int)min_size(key.len, 80), key.data);
}

static int value_append(const struct entry *e, struct buf *out)
{
    for (uint32_t p = 0; p < e->part[0]->parts; p++)
        buf_str(out, e->part[p]->value);
    return out->rc;
}

static int kube_get(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
                    struct err *err)
{
    struct kube_store *k = kube_of(s);
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

static int kube_list(struct store *s, struct str prefix, store_entry_fn fn, void *ctx,
                     struct err *err)
{
    struct kube_store *k = kube_of(s);
    bool found;
    int rc = look_for(k, prefix, err);
    if (rc < 0) return rc;
    for (uint32_t at = entry_at(k, prefix, &found); at < k->count && rc == 0; at++) {
        CLEANUP(buf_fini) struct buf whole = { 0 };
        const struct entry *e = &k->entry[at];
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

/* ---- writing ---- */

/* Sends the changes of the wanted shards, with the stamp of this term. Each job says what came of it, in their
 * order. What succeeded is kept; the marks of the rest stay for the caller. */
static int send_changes(struct kube_store *k, const bool *wanted, uint64_t revision,
                        int64_t wait_us, struct err *err)
{
    uint32_t n = 0, at[SHARDS];
    struct shard_head head[SHARDS];
    int rc = 0;
    for (uint32_t s = 0; s < SHARDS && rc == 0; s++) {
        struct shard *shard = &k->shard[s];
        if (!wanted[s]) continue;
        head[n] = (struct shard_head){ .epoch = k->store.epoch,
                                       .writes = shard->head.writes + 1,
                                       .revision = revision };
        memcpy(head[n].life, k->life, sizeof head[n].life);
        job_set(&k->job[n], shard->exists ? KUBE_PATCH : KUBE_CREATE, resource_of(shard),
                shard->name);
        rc = shard_print(shard, &head[n], &k->job[n].body);
        at[n++] = s;
    }
    if (rc < 0) rc = err_set(err, rc, "store: no memory");
    if (rc == 0) rc = kube_link_run(k->link, k->job, n, wait_us, err);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct shard *shard = &k->shard[at[i]];
        struct kube_meta meta;
        if (k->job[i].rc < 0) continue;
        if (kube_meta_read(buf_view(&k->job[i].body), &meta, NULL) < 0) {
            k->job[i].rc = -EIO;
            k->job[i].unsure = true;
            continue;
        }
        shard_keep(shard);
        shard->head = head[i];
        shard->exists = true;
        memcpy(shard->version, meta.version, sizeof shard->version);
    }
    jobs_clear(k);
    return rc;
}

/* Reads the object again after a write that it refused. Returns true if what we know is there: something else of it
 * was changed, a label perhaps, and the write may be tried again. */
static bool is_untouched(struct kube_store *k, uint32_t at)
{
    struct shard *s = &k->shard[at], now = { 0 };
    job_set(&k->job[0], KUBE_GET, resource_of(s), s->name);
    int rc = kube_link_run(k->link, k->job, 1, k->timeout_us, NULL);
    if (rc == 0) rc = shard_from(k, at, &k->job[0], &now, NULL);
    bool same = rc == 0 && now.exists && memcmp(&now.head, &s->head, sizeof now.head) == 0;
    if (same) memcpy(s->version, now.version, sizeof s->version);
    shard_fini(&now);
    jobs_clear(k);
    return same;
}

/* Sends the change of one shard. */
static int commit(struct kube_store *k, uint32_t at, uint64_t revision, struct err *err)
{
    bool wanted[SHARDS] = { 0 }, conflict = true;
    int rc = 0;
    wanted[at] = true;
    for (int tries = 0; tries < TRIES_MAX && conflict; tries++) {
        if (tries > 0 && !is_untouched(k, at)) break;
        rc = send_changes(k, wanted, revision, k->timeout_us, err);
        if (rc == 0 && k->job[0].rc == 0) return 0;
        conflict = rc == 0 && is_conflict(&k->job[0]);
    }
    shard_undo(&k->shard[at]);
    if (conflict)
        return store_deposed(err, "an object of the store was changed or deleted by another");
    return rc < 0 ? rc : call_failed(&k->job[0], err);
}

/* The second and later of several writes: what they leave behind, the next term puts in order. */
static int halfway(int rc, struct err *err)
{
    return rc == 0 || rc == -EKEYREVOKED ? rc
                                         : err_prefix(err, -EREMOTEIO, "half of it is written");
}

/* Removes the parts of an entry. `began`: something was written before. */
static int drop_parts(struct kube_store *k, const struct entry *e, uint64_t revision, bool began,
                      struct err *err)
{
    const struct entry had = *e;
    uint32_t parts = had.part[0]->parts;
    for (uint32_t p = 0; p < parts; p++) {
        shard_drop(&k->shard[had.shard[p]], had.part[p]);
        int rc = commit(k, had.shard[p], revision, err);
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
static int put_here(struct kube_store *k, const struct put *w, struct entry *e, struct err *err)
{
    struct shard *s = &k->shard[e->shard[0]];
    struct shard_item item = part_of(w, 0), *made;
    shard_drop(s, e->part[0]);
    int rc = shard_add(s, &item, &made, err);
    if (rc < 0) {
        shard_undo(s);
        return rc;
    }
    rc = commit(k, e->shard[0], w->number, err);
    if (rc == 0) e->part[0] = made;
    return rc;
}

/* Writes all parts of a value, each into the object that has the most room. */
static int put_anew(struct kube_store *k, const struct put *w, struct entry *ret, struct err *err)
{
    for (uint32_t p = 0; p < w->parts; p++) {
        struct shard_item item = part_of(w, p);
        ret->shard[p] = shard_for(k, w->key);
        int rc = shard_add(&k->shard[ret->shard[p]], &item, &ret->part[p], err);
        if (rc == 0) rc = commit(k, ret->shard[p], w->number, err);
        if (rc < 0) return p == 0 ? rc : halfway(rc, err);
    }
    return 0;
}

static int put_new_key(struct kube_store *k, const struct put *w, uint32_t at, struct err *err)
{
    struct entry e;
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

static int put_over(struct kube_store *k, const struct put *w, struct entry *e, struct err *err)
{
    bool one = w->parts == 1 && e->part[0]->parts == 1;
    struct entry had = *e, now;
    int rc = one ? put_here(k, w, e, err) : -ENOSPC;
    if (rc != -ENOSPC) return rc;
    rc = put_anew(k, w, &now, err);
    if (rc == 0) rc = drop_parts(k, &had, w->number, true, err);
    if (rc == 0) *e = now;
    return rc;
}

static int kube_put_if(struct store *s, struct str key, struct str value, uint64_t expected,
                       uint64_t *ret_version, struct err *err)
{
    struct kube_store *k = kube_of(s);
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

static int kube_delete_if(struct store *s, struct str key, uint64_t expected, struct err *err)
{
    struct kube_store *k = kube_of(s);
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

/* ---- logs ---- */

struct log_view {
    uint32_t from;        /* the first of LOG_SEGMENTS shards */
    uint32_t current;     /* the shard with the newest record */
    uint64_t first, last; /* records; 0, 0: none */
    uint64_t count;
};

/* Fills the view of a log; false: there is none of that name. */
static bool log_find(const struct kube_store *k, const char *name, struct log_view *ret)
{
    for (uint32_t l = 0; l < LOGS_MAX; l++) {
        struct log_view v = { .from = FIRST_LOG + l * LOG_SEGMENTS };
        bool known = false;
        v.current = v.from;
        for (uint32_t s = v.from; s < v.from + LOG_SEGMENTS; s++) {
            const struct shard *shard = &k->shard[s];
            if (strcmp(shard->log, name) != 0) continue;
            known = true;
            v.first = max_u64(v.first, shard->log_first);
            if (shard->count == 0 || shard->item[shard->count - 1]->number < v.last) continue;
            v.last = shard->item[shard->count - 1]->number;
            v.current = s;
        }
        if (!known) continue;
        v.count = v.last >= v.first ? v.last - v.first + 1 : 0;
        *ret = v;
        return true;
    }
    return false;
}

/* Finds the objects of a log that has none yet. */
static int log_begin(const struct kube_store *k, const char *name, struct log_view *ret,
                     struct err *err)
{
    for (uint32_t l = 0; l < LOGS_MAX; l++) {
        uint32_t from = FIRST_LOG + l * LOG_SEGMENTS;
        bool taken = false;
        for (uint32_t s = from; s < from + LOG_SEGMENTS; s++)
            taken = taken || k->shard[s].log[0];
        if (taken) continue;
        *ret = (struct log_view){ .from = from, .current = from, .first = 1 };
        return 0;
    }
    return err_set(err, -ENOSPC, "store: %d logs are the bound, and %s is another", LOGS_MAX, name);
}

/* Marks the records before `first` as gone, and all where the whole segment is to be used anew. */
static void drop_records(struct shard *s, uint64_t first)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->item[i]->number < first) shard_drop(s, s->item[i]);
}

static int kube_append(struct store *store, const struct store_log *log, struct str value,
                       uint64_t *ret_seq, struct err *err)
{
    struct kube_store *k = kube_of(store);
    struct log_view v;
    int rc = 0;
    must(!k->busy && strlen(log->name) < SHARD_LOG_BYTES);
    if (!log_find(k, log->name, &v)) rc = log_begin(k, log->name, &v, err);
    if (rc == 0 && FAULT("store.write")) rc = err_set(err, -ENOSPC, "store: no space left");
    if (rc < 0) return rc;
    struct shard *s = &k->shard[v.current];
    if (s->count > 0 && (s->bytes + value.len > SEGMENT_BYTES || s->count >= SHARD_ITEMS_MAX / 2)) {
        v.current = v.from + (v.current - v.from + 1) % LOG_SEGMENTS;
        s = &k->shard[v.current];
        if (s->count > 0) v.first = max_u64(v.first, s->item[s->count - 1]->number + 1);
    }
    uint64_t seq = v.last + 1, had_first = s->log_first;
    if (seq > log->count_max) v.first = max_u64(v.first, seq - log->count_max + 1);
    const struct shard_item record = { .value = value, .number = seq, .part = 1, .parts = 1 };
    char had_log[SHARD_LOG_BYTES];
    memcpy(had_log, s->log, sizeof had_log);
    drop_records(s, v.first);
    rc = shard_add(s, &record, NULL, err);
    if (rc < 0) {
        shard_undo(s);
        return rc;
    }
    snprintf(s->log, sizeof s->log, "%s", log->name);
    s->log_first = v.first;
    rc = commit(k, v.current, k->revision, err);
    if (rc < 0) {
        memcpy(s->log, had_log, sizeof s->log);
        s->log_first = had_first;
        return rc;
    }
    *ret_seq = seq;
    return 0;
}

/* Returns the record; the segments of a log are searched from the oldest on. */
static const struct shard_item *record_find(const struct kube_store *k, const struct log_view *v,
                                            uint64_t seq)
{
    for (uint32_t s = v->from; s < v->from + LOG_SEGMENTS; s++) {
        const struct shard *shard = &k->shard[s];
        uint32_t low = 0, high = shard->count;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (shard->item[middle]->number < seq)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < shard->count && shard->item[low]->number == seq) return shard->item[low];
    }
    return NULL;
}

static int kube_log_read(struct store *s, const struct store_log *log, uint64_t from_seq,
                         uint64_t max, store_record_fn fn, void *ctx, struct err *err)
{
    struct kube_store *k = kube_of(s);
    struct log_view v;
    int rc = look(k, FIRST_LOG, SHARDS, err);
    if (rc < 0 || !log_find(k, log->name, &v)) return rc;
    for (uint64_t seq = max_u64(from_seq, v.first); seq <= v.last && max > 0 && rc == 0; seq++) {
        const struct shard_item *item = record_find(k, &v, seq);
        if (!item) continue;
        struct store_record r = { seq, item->value };
        k->busy = true;
        rc = fn(ctx, &r);
        k->busy = false;
        max--;
    }
    return rc;
}

static int kube_log_stat(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                         struct err *err)
{
    struct kube_store *k = kube_of(s);
    struct log_view v;
    int rc = look(k, FIRST_LOG, SHARDS, err);
    if (rc < 0) return rc;
    *ret = (struct store_log_stat){ 0 };
    if (log_find(k, log->name, &v) && v.count > 0)
        *ret = (struct store_log_stat){ v.first, v.last, v.count, v.first - 1 };
    return 0;
}

/* ---- the Lease ---- */

/* Reads the Lease into k->lease. Without a Lease there is one of epoch 0. */
static int lease_fetch(struct kube_store *k, struct err *err)
{
    char name[KUBE_NAME_BYTES];
    struct lease_object now = { 0 };
    snprintf(name, sizeof name, "%s-store", k->name);
    job_set(&k->job[0], KUBE_GET, &leases, name);
    int rc = kube_link_run(k->link, k->job, 1, k->timeout_us, err);
    if (rc < 0) return rc;
    if (k->job[0].rc == -ENOENT) {
        k->lease = now;
        return 0;
    }
    if (k->job[0].rc < 0) return call_failed(&k->job[0], err);
    rc = lease_object_read(k->name, buf_view(&k->job[0].body), &now, err);
    if (rc == 0) k->lease = now;
    return rc;
}

/* Writes the Lease over the version that `l` names. -ESTALE: it has changed, or is gone. */
static int lease_write(struct kube_store *k, struct lease_object *l, bool acquired, struct err *err)
{
    char name[KUBE_NAME_BYTES];
    struct kube_meta meta;
    snprintf(name, sizeof name, "%s-store", k->name);
    job_set(&k->job[0], l->exists ? KUBE_PATCH : KUBE_CREATE, &leases, name);
    for (uint32_t s = 0; s < SHARDS; s++)
        l->writes[s] = k->shard[s].head.writes;
    lease_object_print(l, name, acquired, &k->job[0].body);
    if (k->job[0].body.rc < 0) return err_set(err, -ENOMEM, "store: no memory");
    int rc = kube_link_run(k->link, k->job, 1, k->timeout_us, err);
    if (rc < 0) return rc;
    if (is_conflict(&k->job[0])) return err_set(err, -ESTALE, "store: the lease has changed");
    if (k->job[0].rc < 0) return call_failed(&k->job[0], err);
    if (kube_meta_read(buf_view(&k->job[0].body), &meta, err) < 0) return -EREMOTEIO;
    l->exists = true;
    memcpy(l->version, meta.version, sizeof l->version);
    k->lease = *l;
    return 0;
}

static int kube_lease_see(struct store *s, struct store_lease *ret, struct err *err)
{
    struct kube_store *k = kube_of(s);
    int rc = lease_fetch(k, err);
    if (rc == 0) *ret = k->lease.is;
    return rc;
}

/* ---- a term begins ---- */

/* Finds the objects that do not have this term's stamp, or hold what was dropped since. */
static uint32_t unstamped(const struct kube_store *k, bool *ret)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < SHARDS; s++) {
        const struct shard *shard = &k->shard[s];
        ret[s] = shard->head.epoch != k->store.epoch || !shard->exists ||
                 strcmp(shard->head.life, k->life) != 0;
        for (uint32_t i = 0; i < shard->count && !ret[s]; i++)
            ret[s] = shard->item[i]->gone || shard->item[i]->is_new;
        n += ret[s];
    }
    return n;
}

/* Sends the stamps; *ret_again are the objects that somebody else wrote meanwhile. */
static int stamp_once(struct kube_store *k, const bool *wanted, bool *ret_again,
                      uint32_t *ret_count, struct err *err)
{
    uint32_t n = 0;
    int rc = send_changes(k, wanted, k->revision, WALK_CALLS_MAX * k->timeout_us, err);
    for (uint32_t s = 0; s < SHARDS && rc < 0; s++)
        if (wanted[s]) shard_undo(&k->shard[s]);
    *ret_count = 0;
    for (uint32_t s = 0; s < SHARDS && rc == 0; s++) {
        ret_again[s] = false;
        if (!wanted[s]) continue;
        const struct kube_job *j = &k->job[n++];
        if (j->rc == 0) continue;
        shard_undo(&k->shard[s]);
        /* A stamp whose reply was lost is looked at like one that came too late. */
        if (!j->unsure && !is_conflict(j)) return call_failed(j, err);
        ret_again[s] = true;
        ++*ret_count;
    }
    return rc;
}

/* Says in the Lease which life the objects have, and whether all of them are there. Without it a first term that
 * broke off would look like a store of which a part was lost. */
static int say_life(struct kube_store *k, bool complete, struct err *err)
{
    struct lease_object l = k->lease;
    memcpy(l.life, k->life, sizeof l.life);
    l.complete = complete;
    l.is.beat++;
    int rc = lease_write(k, &l, false, err);
    return rc == -ESTALE ? store_deposed(err, "the lease is another's") : rc;
}

/* Reads all objects and stamps them. */
static int settle(struct kube_store *k, struct err *err)
{
    bool wanted[SHARDS], again[SHARDS];
    uint32_t count;
    want(wanted, 0, SHARDS);
    enum reading how = k->lease.life[0] && k->lease.complete ? READ_WHOLE : READ_NEW;
    int rc = take_in(k, wanted, how, err);
    if (rc == 0 && strcmp(k->lease.life, k->life) != 0) rc = say_life(k, k->lease.complete, err);
    for (uint32_t round = 0; rc == 0 && unstamped(k, wanted) > 0; round++) {
        if (round == STAMP_ROUNDS_MAX)
            return err_set(err, -EBUSY, "store: others write to it all the time");
        rc = stamp_once(k, wanted, again, &count, err);
        if (rc == 0 && count > 0) rc = take_in(k, again, how, err);
        if (rc == 0) rc = index_make(k, err); /* what is dropped is marked anew */
    }
    if (rc == 0 && !k->lease.complete) rc = say_life(k, true, err);
    return rc;
}

static void copy_name(char *to, struct str from)
{
    if (from.len) memcpy(to, from.data, from.len);
    to[from.len] = 0;
}

static int kube_lease_acquire(struct store *s, const struct store_claim *claim,
                              const struct store_lease *seen, uint64_t epoch, struct err *err)
{
    struct kube_store *k = kube_of(s);
    int rc = lease_fetch(k, err);
    if (rc < 0) return rc;
    if (!store_lease_same(&k->lease.is, seen))
        return err_set(err, -EBUSY, "store: the lease has changed");
    struct lease_object l = k->lease;
    if (strncmp(l.is.holder, claim->holder.data, claim->holder.len) != 0 ||
        l.is.holder[claim->holder.len] || !l.is.held)
        l.transitions++;
    l.is = (struct store_lease){ .epoch = epoch, .held = true, .term_us = claim->term_us };
    copy_name(l.is.holder, claim->holder);
    copy_name(l.is.address, claim->address);
    rc = lease_write(k, &l, true, err);
    if (rc == -ESTALE) return err_set(err, -EBUSY, "store: the lease has changed");
    if (rc < 0) return rc;
    k->beat_tried = 0;
    s->epoch = epoch;
    rc = settle(k, err);
    if (rc < 0) store_lease_release(s);
    return rc;
}

static bool is_ours(const struct kube_store *k, const struct store_lease *had)
{
    const struct store_lease *l = &k->lease.is;
    return l->held && l->epoch == had->epoch && strcmp(l->holder, had->holder) == 0 &&
           (l->beat == had->beat || l->beat == k->beat_tried);
}

/* Renews or gives back. A Lease that somebody else touched and that is still ours (an annotation was added, a reply
 * was lost) is written to again. */
static int renew(struct kube_store *k, bool gives_back, struct err *err)
{
    const struct store_lease had = k->lease.is;
    int rc = -ESTALE;
    for (int tries = 0; tries < TRIES_MAX && rc == -ESTALE; tries++) {
        if (tries > 0 || !k->lease.version[0]) {
            rc = lease_fetch(k, err);
            bool ours = rc == 0 && is_ours(k, &had);
            if (rc < 0) return rc;
            if (!ours) return store_deposed(err, "the lease is another's, or went back");
        }
        struct lease_object l = k->lease;
        l.is.beat++;
        l.is.held = !gives_back;
        rc = lease_write(k, &l, false, err);
        if (rc == -EREMOTEIO) {
            k->beat_tried = l.is.beat;
            k->lease.version[0] = 0;
        }
    }
    return rc == -ESTALE ? err_set(err, -EBUSY, "store: others write to the lease all the time")
                         : rc;
}

static int kube_lease_renew(struct store *s, struct err *err)
{
    return renew(kube_of(s), false, err);
}

static void kube_lease_release(struct store *s)
{
    (void)renew(kube_of(s), true, NULL);
}

/* Reads the objects that were written more often than the copy knows, as the Lease says that was seen last. */
static int kube_refresh(struct store *s, struct err *err)
{
    struct kube_store *k = kube_of(s);
    bool wanted[SHARDS], any = false;
    int rc = 0;
    if (s->epoch) return 0;
    if (!k->lease.exists) rc = lease_fetch(k, err);
    if (rc < 0 || !k->lease.complete) return rc;
    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct shard_head *h = &k->shard[i].head;
        wanted[i] = strcmp(h->life, k->lease.life) != 0 || h->writes < k->lease.writes[i];
        any = any || wanted[i];
    }
    return any ? take_in(k, wanted, READ_LOOSE, err) : 0;
}

/* Adds up the writes of the objects that may have such keys. */
static uint64_t kube_changes(const struct store *s, struct str prefix)
{
    const struct kube_store *k = (const struct kube_store *)(const void *)s;
    bool secret = is_secret(k, prefix);
    if (!k->lease.complete) return 0;
    uint64_t sum = 1;
    for (uint32_t i = secret ? FIRST_SECRET : 0; i < FIRST_LOG; i++)
        sum += k->lease.writes[i];
    return sum;
}

/* ---- open and close ---- */

static bool kube_is_reached(const struct store *s)
{
    return kube_link_is_up(((const struct kube_store *)(const void *)s)->link);
}

static void kube_close(struct store *s)
{
    struct kube_store *k = kube_of(s);
    for (uint32_t i = 0; i < SHARDS; i++) {
        shard_fini(&k->shard[i]);
        buf_fini(&k->job[i].body);
    }
    kube_link_free(k->link);
    free(k->entry);
    free(k);
}

static const struct store_ops kube_ops = {
    .close = kube_close,
    .get = kube_get,
    .put_if = kube_put_if,
    .delete_if = kube_delete_if,
    .list = kube_list,
    .append = kube_append,
    .log_read = kube_log_read,
    .log_stat = kube_log_stat,
    .lease_see = kube_lease_see,
    .lease_acquire = kube_lease_acquire,
    .lease_renew = kube_lease_renew,
    .lease_release = kube_lease_release,
    .refresh = kube_refresh,
    .is_reached = kube_is_reached,
    .changes = kube_changes,
};

bool store_kube_is_named(struct str url)
{
    return str_eq(url, STR("kubernetes")) || str_starts(url, STR("kubernetes://"));
}

/* Splits kubernetes://NAMESPACE[/NAME]. */
static int take_url(struct str url, struct store_kube_config *c, struct err *err)
{
    struct str rest = url, scheme = str_cut(&rest, ':');
    if (!str_eq(scheme, STR("kubernetes"))) return err_set(err, -EINVAL, "want " STORE_KUBE_FORMS);
    if (url.len == scheme.len) return 0;
    if (!str_starts(rest, STR("//"))) return err_set(err, -EINVAL, "want " STORE_KUBE_FORMS);
    rest = str_of(rest.data + 2, rest.len - 2);
    bool named = memchr(rest.data, '/', rest.len) != NULL;
    c->ns = str_cut(&rest, '/');
    if (named) c->fleet = rest;
    if (c->ns.len == 0) return err_set(err, -EINVAL, "no namespace: want " STORE_KUBE_FORMS);
    return 0;
}

/* A name is the beginning of objects' names. */
static int check_name(struct str name, struct err *err)
{
    bool good = name.len > 0 && name.len < NAME_BYTES && name.data[0] != '-';
    for (size_t i = 0; good && i < name.len; i++) {
        char ch = name.data[i];
        good = (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || ch == '-';
    }
    if (good) return 0;
    return err_set(err, -EINVAL,
                   "\"" STR_FMT "\" cannot begin names of Kubernetes objects: want 1 to %d small "
                   "letters, digits and '-', in controller.store or controller.store_fleet",
                   STR_ARG(name), NAME_BYTES - 1);
}

static void name_shards(struct kube_store *k)
{
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct shard *shard = &k->shard[s];
        shard->secret = s >= FIRST_SECRET && s < FIRST_LOG;
        char kind = s < FIRST_SECRET ? 'r' : s < FIRST_LOG ? 's' : 'l';
        uint32_t first = s < FIRST_SECRET ? 0 : s < FIRST_LOG ? FIRST_SECRET : FIRST_LOG;
        snprintf(shard->name, sizeof shard->name, "%s-store-%c%u", k->name, kind, s - first);
    }
}

int store_kube_open(const struct store_kube_config *config, struct store **ret, struct err *err)
{
    struct store_kube_config c = *config;
    must(c.secret_count <= SECRETS_MAX);
    int rc = take_url(c.url, &c, err);
    if (rc == 0) rc = check_name(c.fleet, err);
    if (rc < 0) return rc;
    struct kube_store *k = calloc(1, sizeof *k);
    if (!k) return err_set(err, -ENOMEM, "store: no memory");
    k->store = (struct store){ .ops = &kube_ops, .shared = true };
    k->timeout_us = c.timeout_us;
    copy_name(k->name, c.fleet);
    for (uint32_t i = 0; i < c.secret_count; i++) {
        must(strlen(c.secret[i]) < SECRET_BYTES);
        snprintf(k->secret[k->secret_count++], SECRET_BYTES, "%s", c.secret[i]);
    }
    name_shards(k);
    rc = kube_link_new(&c, &k->link, err);
    if (rc < 0) {
        free(k);
        return rc;
    }
    *ret = &k->store;
    return 0;
}
