/* store_kube_term.c - begins, renews and ends the term of the process that writes to a store on Kubernetes.
 *
 *     acquire: write the Lease ─► read all objects ─► stamp them ─► those that others wrote meanwhile: again
 *
 * From the stamps on, what an older leader still writes is refused (decisions/0025). */
#include "base/io/store/store_backend.h"
#include "base/io/store/store_kube_state.h"

#include <stdio.h>

#define STAMP_ROUNDS_MAX 4

static const struct kube_resource leases = { "coordination.k8s.io", "v1", "leases", false };

/* Reads the Lease into k->lease. Without a Lease there is one of epoch 0. */
static int lease_fetch(struct kube_store *k, struct err *err)
{
    char name[KUBE_NAME_BYTES];
    struct lease_object now = { 0 };
    snprintf(name, sizeof name, "%s-store", k->name);
    kube_job_set(&k->job[0], KUBE_GET, &leases, name);
    int rc = kube_link_run(k->link, k->job, 1, k->timeout_us, err);
    if (rc < 0) return rc;
    if (k->job[0].rc == -ENOENT) {
        k->lease = now;
        return 0;
    }
    if (k->job[0].rc < 0) return kube_job_failed(&k->job[0], err);
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
    kube_job_set(&k->job[0], l->exists ? KUBE_PATCH : KUBE_CREATE, &leases, name);
    for (uint32_t s = 0; s < KUBE_SHARDS; s++)
        l->writes[s] = k->shard[s].head.writes;
    lease_object_print(l, name, acquired, &k->job[0].body);
    if (k->job[0].body.rc < 0) return err_set(err, -ENOMEM, "store: no memory");
    int rc = kube_link_run(k->link, k->job, 1, k->timeout_us, err);
    if (rc < 0) return rc;
    if (kube_job_is_conflict(&k->job[0]))
        return err_set(err, -ESTALE, "store: the lease has changed");
    if (k->job[0].rc < 0) return kube_job_failed(&k->job[0], err);
    if (kube_meta_read(buf_view(&k->job[0].body), &meta, err) < 0) return -EREMOTEIO;
    l->exists = true;
    memcpy(l->version, meta.version, sizeof l->version);
    k->lease = *l;
    return 0;
}

int kube_term_see(struct store *s, struct store_lease *ret, struct err *err)
{
    struct kube_store *k = kube_store_of(s);
    int rc = lease_fetch(k, err);
    if (rc == 0) *ret = k->lease.is;
    return rc;
}

/* ---- a term begins ---- */

/* Finds the objects that do not have this term's stamp, or hold what was dropped since. */
static uint32_t unstamped(const struct kube_store *k, bool *ret)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < KUBE_SHARDS; s++) {
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
    int rc = kube_objects_send(k, wanted, k->revision, KUBE_WALK_CALLS_MAX * k->timeout_us, err);
    for (uint32_t s = 0; s < KUBE_SHARDS && rc < 0; s++)
        if (wanted[s]) shard_undo(&k->shard[s]);
    *ret_count = 0;
    for (uint32_t s = 0; s < KUBE_SHARDS && rc == 0; s++) {
        ret_again[s] = false;
        if (!wanted[s]) continue;
        const struct kube_job *j = &k->job[n++];
        if (j->rc == 0) continue;
        shard_undo(&k->shard[s]);
        /* A stamp whose reply was lost is looked at like one that came too late. */
        if (!j->unsure && !kube_job_is_conflict(j)) return kube_job_failed(j, err);
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
    bool wanted[KUBE_SHARDS], again[KUBE_SHARDS];
    uint32_t count;
    for (uint32_t s = 0; s < KUBE_SHARDS; s++)
        wanted[s] = true;
    enum kube_reading how = k->lease.life[0] && k->lease.complete ? KUBE_READ_WHOLE : KUBE_READ_NEW;
    int rc = kube_objects_read(k, wanted, how, err);
    if (rc == 0 && strcmp(k->lease.life, k->life) != 0) rc = say_life(k, k->lease.complete, err);
    for (uint32_t round = 0; rc == 0 && unstamped(k, wanted) > 0; round++) {
        if (round == STAMP_ROUNDS_MAX)
            return err_set(err, -EBUSY, "store: others write to it all the time");
        rc = stamp_once(k, wanted, again, &count, err);
        if (rc == 0 && count > 0) rc = kube_objects_read(k, again, how, err);
        if (rc == 0) rc = kube_entry_index(k, err); /* what is dropped is marked anew */
    }
    if (rc == 0 && !k->lease.complete) rc = say_life(k, true, err);
    return rc;
}

static void copy_name(char *to, struct str from)
{
    if (from.len) memcpy(to, from.data, from.len);
    to[from.len] = 0;
}

int kube_term_acquire(struct store *s, const struct store_claim *claim,
                      const struct store_lease *seen, uint64_t epoch, struct err *err)
{
    struct kube_store *k = kube_store_of(s);
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
    for (int tries = 0; tries < KUBE_TRIES_MAX && rc == -ESTALE; tries++) {
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

int kube_term_renew(struct store *s, struct err *err)
{
    return renew(kube_store_of(s), false, err);
}

void kube_term_release(struct store *s)
{
    (void)renew(kube_store_of(s), true, NULL);
}

/* Reads the objects that were written more often than the copy knows, as the Lease says that was seen last. */
int kube_term_refresh(struct store *s, struct err *err)
{
    struct kube_store *k = kube_store_of(s);
    bool wanted[KUBE_SHARDS], any = false;
    int rc = 0;
    if (s->epoch) return 0;
    if (!k->lease.exists) rc = lease_fetch(k, err);
    if (rc < 0 || !k->lease.complete) return rc;
    for (uint32_t i = 0; i < KUBE_SHARDS; i++) {
        const struct shard_head *h = &k->shard[i].head;
        wanted[i] = strcmp(h->life, k->lease.life) != 0 || h->writes < k->lease.writes[i];
        any = any || wanted[i];
    }
    return any ? kube_objects_read(k, wanted, KUBE_READ_LOOSE, err) : 0;
}

/* Adds up the writes of the objects that may have such keys. */
uint64_t kube_term_changes(const struct store *s, struct str prefix)
{
    const struct kube_store *k = (const struct kube_store *)(const void *)s;
    bool secret = kube_entry_is_secret(k, prefix);
    if (!k->lease.complete) return 0;
    uint64_t sum = 1;
    for (uint32_t i = secret ? KUBE_FIRST_SECRET : 0; i < KUBE_FIRST_LOG; i++)
        sum += k->lease.writes[i];
    return sum;
}
