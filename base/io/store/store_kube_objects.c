/* store_kube_objects.c - reads the objects of a store on Kubernetes, chooses between them and the copies, and writes
 * changes to them.
 *
 * Of an object and the copy of it the one with more writes is taken. A write is a patch of the version that is known:
 * if another changed the object, the API server refuses it. */
#include "base/core/bits.h"
#include "base/io/store/store_backend.h"
#include "base/io/store/store_kube_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

static const struct kube_resource configmaps = { "", "v1", "configmaps", false };
static const struct kube_resource secrets = { "", "v1", "secrets", false };

/* Forgets what was sent and replied, which may be of a Secret. */
static void jobs_clear(struct kube_store *k)
{
    for (uint32_t i = 0; i < KUBE_SHARDS; i++) {
        struct kube_job *j = &k->job[i];
        if (j->body.data) explicit_bzero(j->body.data, j->body.cap);
        buf_fini(&j->body);
    }
}

static const struct kube_resource *resource_of(const struct shard *s)
{
    return s->secret ? &secrets : &configmaps;
}

/* ---- reading ---- */

/* Reads the object of shard `s` from the reply to job `j` into *ret, which is empty. */
static int shard_from(const struct kube_store *k, uint32_t s, const struct kube_job *j,
                      struct shard *ret, struct err *err)
{
    *ret = (struct shard){ .secret = k->shard[s].secret };
    memcpy(ret->name, k->shard[s].name, sizeof ret->name);
    if (j->rc == -ENOENT) return 0;
    return j->rc < 0 ? kube_job_failed(j, err) : shard_read(ret, buf_view(&j->body), err);
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
    for (uint32_t s = 0; s < KUBE_SHARDS; s++)
        if (wanted[s] && now[s].head.life[0]) return now[s].head.life;
    for (uint32_t s = 0; s < KUBE_SHARDS; s++)
        if (k->shard[s].head.life[0]) return k->shard[s].head.life;
    return "";
}

/* Reads the wanted objects into `now`. */
static int fetch(struct kube_store *k, const bool *wanted, struct shard *now, struct err *err)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < KUBE_SHARDS; s++)
        if (wanted[s])
            kube_job_set(&k->job[n++], KUBE_GET, resource_of(&k->shard[s]), k->shard[s].name);
    int rc = kube_link_run(k->link, k->job, n, KUBE_WALK_CALLS_MAX * k->timeout_us, err);
    n = 0;
    for (uint32_t s = 0; s < KUBE_SHARDS && rc == 0; s++)
        if (wanted[s]) rc = shard_from(k, s, &k->job[n++], &now[s], err);
    jobs_clear(k);
    return rc;
}

static int random_life(char ret[SHARD_LIFE_BYTES], struct err *err)
{
    uint64_t id;
    if (getrandom(&id, sizeof id, 0) != sizeof id)
        return err_set(err, -EIO, "the system gives no random bytes");
    snprintf(ret, SHARD_LIFE_BYTES, "%016" PRIx64, id);
    return 0;
}

/* Reads the wanted objects, chooses, and makes the entries. */
int kube_objects_read(struct kube_store *k, const bool *wanted, enum kube_reading how,
                      struct err *err)
{
    struct shard *now = calloc(KUBE_SHARDS, sizeof *now);
    if (!now) return err_set(err, -ENOMEM, "store: no memory");
    int rc = fetch(k, wanted, now, err);
    if (rc == 0) {
        bool said = k->lease.life[0] != 0;
        const char *life = said ? k->lease.life : life_of(k, now, wanted);
        char copy[SHARD_LIFE_BYTES];
        snprintf(copy, sizeof copy, "%s", life);
        memcpy(k->life, copy, sizeof copy);
        if (how == KUBE_READ_NEW && !k->life[0]) {
            rc = random_life(k->life, err);
        } else if (how == KUBE_READ_NEW &&
                   !said) { /* the Lease was deleted, which said that all were there */
            how = KUBE_READ_WHOLE;
            k->lease.complete = true;
        }
    }
    for (uint32_t s = 0; s < KUBE_SHARDS; s++) {
        if (wanted[s] && rc == 0) rc = choose(k, s, &now[s], how == KUBE_READ_WHOLE, err);
        shard_fini(&now[s]);
    }
    free(now);
    if (rc == 0) rc = kube_entry_index(k, err);
    for (uint32_t s = 0; s < KUBE_SHARDS; s++)
        k->revision = max_u64(k->revision, k->shard[s].head.revision);
    if (rc < 0) k->count = 0;
    return rc;
}

static void want(bool *wanted, uint32_t from, uint32_t until)
{
    for (uint32_t s = 0; s < KUBE_SHARDS; s++)
        wanted[s] = s >= from && s < until;
}

/* A handle without a term reads the objects from `from` on; one that has a term knows them. */
int kube_objects_look(struct kube_store *k, uint32_t from, uint32_t until, struct err *err)
{
    bool wanted[KUBE_SHARDS];
    must(!k->busy);
    if (k->store.epoch) return 0;
    want(wanted, from, until);
    return kube_objects_read(k, wanted, KUBE_READ_LOOSE, err);
}

/* ---- writing ---- */

/* Sends the changes of the wanted shards, with the stamp of this term. Each job says what came of it, in their
 * order. What succeeded is kept; the marks of the rest stay for the caller. */
int kube_objects_send(struct kube_store *k, const bool *wanted, uint64_t revision, int64_t wait_us,
                      struct err *err)
{
    uint32_t n = 0, at[KUBE_SHARDS];
    struct shard_head head[KUBE_SHARDS];
    int rc = 0;
    for (uint32_t s = 0; s < KUBE_SHARDS && rc == 0; s++) {
        struct shard *shard = &k->shard[s];
        if (!wanted[s]) continue;
        head[n] = (struct shard_head){ .epoch = k->store.epoch,
                                       .writes = shard->head.writes + 1,
                                       .revision = revision };
        memcpy(head[n].life, k->life, sizeof head[n].life);
        kube_job_set(&k->job[n], shard->exists ? KUBE_PATCH : KUBE_CREATE, resource_of(shard),
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
    kube_job_set(&k->job[0], KUBE_GET, resource_of(s), s->name);
    int rc = kube_link_run(k->link, k->job, 1, k->timeout_us, NULL);
    if (rc == 0) rc = shard_from(k, at, &k->job[0], &now, NULL);
    bool same = rc == 0 && now.exists && memcmp(&now.head, &s->head, sizeof now.head) == 0;
    if (same) memcpy(s->version, now.version, sizeof s->version);
    shard_fini(&now);
    jobs_clear(k);
    return same;
}

/* Sends the change of one shard. */
int kube_objects_commit(struct kube_store *k, uint32_t at, uint64_t revision, struct err *err)
{
    bool wanted[KUBE_SHARDS] = { 0 }, conflict = true;
    int rc = 0;
    wanted[at] = true;
    for (int tries = 0; tries < KUBE_TRIES_MAX && conflict; tries++) {
        if (tries > 0 && !is_untouched(k, at)) break;
        rc = kube_objects_send(k, wanted, revision, k->timeout_us, err);
        if (rc == 0 && k->job[0].rc == 0) return 0;
        conflict = rc == 0 && kube_job_is_conflict(&k->job[0]);
    }
    shard_undo(&k->shard[at]);
    if (conflict)
        return store_deposed(err, "an object of the store was changed or deleted by another");
    return rc < 0 ? rc : kube_job_failed(&k->job[0], err);
}
