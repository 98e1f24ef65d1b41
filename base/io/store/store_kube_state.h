/* store_kube_state.h - defines the members of a store on Kubernetes.
 *
 * Layer:   base/io, private to store_kube.c, store_kube_objects.c, store_kube_entry.c, store_kube_log.c and
 *          store_kube_term.c
 * Threads: the store's
 * Rules:   `entry` is written by store_kube_entry.c alone, `lease` by store_kube_term.c alone (but for `complete`,
 *          which reading finds out); `shard` is marked by entries and logs, and sent and read by objects
 */
#pragma once
#include "base/io/store/store.h"
#include "base/io/store/store_backend.h"
#include "base/io/store/store_kube_lease.h"
#include "base/io/store/store_kube_link.h"
#include "base/io/store/store_kube_shard.h"

#define KUBE_RECORD_SHARDS 32
#define KUBE_SECRET_SHARDS 4
#define KUBE_LOGS_MAX 4
#define KUBE_LOG_SEGMENTS 3
#define KUBE_FIRST_SECRET KUBE_RECORD_SHARDS
#define KUBE_FIRST_LOG (KUBE_RECORD_SHARDS + KUBE_SECRET_SHARDS)
#define KUBE_SHARDS LEASE_OBJECTS
#define KUBE_WALK_CALLS_MAX 8 /* timeouts that reading or stamping all objects may take */
#define KUBE_TRIES_MAX 3      /* of a write to an object that others label */
#define KUBE_FLEET_BYTES 65
#define KUBE_SECRETS_MAX 8
#define KUBE_SECRET_BYTES 32

_Static_assert(KUBE_SHARDS == KUBE_FIRST_LOG + KUBE_LOGS_MAX * KUBE_LOG_SEGMENTS,
               "the Lease counts all objects");

struct kube_entry {
    struct shard_item *part[SHARD_PARTS_MAX]; /* [0] has the key and the number of parts */
    uint32_t shard[SHARD_PARTS_MAX];
};

struct kube_store {
    struct store store;
    struct kube_link *link;
    int64_t timeout_us;
    char name[KUBE_FLEET_BYTES];
    char secret[KUBE_SECRETS_MAX][KUBE_SECRET_BYTES];
    uint32_t secret_count;

    struct lease_object lease;
    uint64_t beat_tried; /* of a renewal whose reply was lost */
    char life[SHARD_LIFE_BYTES];
    uint64_t revision;
    struct shard shard[KUBE_SHARDS];
    struct kube_job job[KUBE_SHARDS];

    struct kube_entry *entry; /* sorted by key */
    uint32_t count, room;
    bool busy; /* in a walk, whose function must not call the store */
};

static inline struct kube_store *kube_store_of(struct store *s)
{
    return (struct kube_store *)(void *)s;
}

/* ---- store_kube_objects.c ---- */

enum kube_reading {
    KUBE_READ_LOOSE, /* what is neither stored nor copied is empty */
    KUBE_READ_WHOLE, /* it is an error */
    KUBE_READ_NEW    /* as loose; there may be no life yet, and one is made */
};

/* Reads the wanted objects, chooses between them and the copies, and makes the entries. */
int kube_objects_read(struct kube_store *k, const bool *wanted, enum kube_reading how,
                      struct err *err);
/* Reads the objects from `from` up to `until`, unless this handle has a term: then it knows them. */
int kube_objects_look(struct kube_store *k, uint32_t from, uint32_t until, struct err *err);
/* Sends the changes of the wanted shards, with the stamp of this term. The jobs say, in their order, what came of
 * it. What succeeded is kept; the marks of the rest stay for the caller. */
int kube_objects_send(struct kube_store *k, const bool *wanted, uint64_t revision, int64_t wait_us,
                      struct err *err);
/* Sends the change of one shard, and takes its marks back if that fails. -EKEYREVOKED: another has changed it. */
int kube_objects_commit(struct kube_store *k, uint32_t at, uint64_t revision, struct err *err);

/* ---- store_kube_entry.c ---- */

bool kube_entry_is_secret(const struct kube_store *k, struct str key);
/* Makes the entries from the shards, and drops versions that are older, or not whole. -ENOMEM. */
int kube_entry_index(struct kube_store *k, struct err *err);

/* ---- functions of struct store_ops (store_backend.h) ---- */

int kube_entry_get(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
                   struct err *err);
int kube_entry_list(struct store *s, struct str prefix, store_entry_fn fn, void *ctx,
                    struct err *err);
int kube_entry_put_if(struct store *s, struct str key, struct str value, uint64_t expected,
                      uint64_t *ret_version, struct err *err);
int kube_entry_delete_if(struct store *s, struct str key, uint64_t expected, struct err *err);

int kube_log_append(struct store *store, const struct store_log *log, struct str value,
                    uint64_t *ret_seq, struct err *err);
int kube_log_read(struct store *s, const struct store_log *log, uint64_t from_seq, uint64_t max,
                  store_record_fn fn, void *ctx, struct err *err);
int kube_log_stat(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                  struct err *err);

int kube_term_see(struct store *s, struct store_lease *ret, struct err *err);
int kube_term_acquire(struct store *s, const struct store_claim *claim,
                      const struct store_lease *seen, uint64_t epoch, struct err *err);
int kube_term_renew(struct store *s, struct err *err);
void kube_term_release(struct store *s);
int kube_term_refresh(struct store *s, struct err *err);
uint64_t kube_term_changes(const struct store *s, struct str prefix);
