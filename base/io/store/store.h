/* store.h - stores durable state: keys with versions, bounded logs, and the lease of the one that writes.
 *
 * Layer:    base/io (base/core; SQLite in store_sql.c only, hiredis in store_redis_link.c only)
 * Threads:  the owner's only; calls block until the change is durable (fsync), or for as long as the
 *           store's timeout (Redis, Kubernetes)
 * Rules:    (1) a call that returned 0 is stored; one that failed changed nothing, but for -EREMOTEIO: the
 *               reply of a shared store was lost, and the change may have been made
 *           (2) a version is never given twice in a store's life, so a key that was deleted and
 *               made again cannot be mistaken for the old one
 *           (3) one writer. A second opener of the same file is refused with a sentence. A shared store
 *               has many handles, of which the one that holds the lease writes: each write carries the
 *               epoch of its term, which is compared in the same transaction, and fails with
 *               -EKEYREVOKED when the store says another
 *           (4) a handle without a term does not write to a shared store. -EKEYREVOKED and -EREMOTEIO
 *               end its term
 *           (5) a shared store that has lost its content, or went back to an older one, is no empty
 *               store: calls of a term that began before fail with -EKEYREVOKED (on Kubernetes those that write
 *               what was lost: a leader reads from its memory)
 * Values are bytes, JSON by convention.
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

#define STORE_KEY_BYTES_MAX 512
#define STORE_VALUE_BYTES_MAX ((size_t)1 << 20)
#define STORE_FILE_BYTES_MAX ((uint64_t)1 << 30) /* when the opener names none: -ENOSPC beyond */

#define STORE_AGAIN_US_MAX 5000000 /* between tries of a server that is away */

#define STORE_ABSENT ((uint64_t)0) /* expected version: the key must not exist */
#define STORE_ANY UINT64_MAX       /* expected version: whatever is there */

struct store; /* from store_file_open, store_memory_open, store_redis_open or store_kube_open */

struct store_entry {
    struct str key, value; /* borrowed for the callback */
    uint64_t version;
};

struct store_record {
    uint64_t seq; /* 1, 2, ... within the log, never reused */
    struct str value;
};

/* A log, declared static by its writer. Appending beyond count_max drops the oldest record. */
struct store_log {
    const char *name;
    uint64_t count_max;
};

struct store_log_stat {
    uint64_t first, last; /* seq of the oldest and newest kept; 0, 0 when empty */
    uint64_t count;
    uint64_t dropped; /* ever, by the bound */
};

/* Non-zero stops the walk and becomes its result. */
typedef int (*store_entry_fn)(void *ctx, const struct store_entry *e);
typedef int (*store_record_fn)(void *ctx, const struct store_record *r);

/* Opens or creates a store. -EBUSY: another process owns it. -EILSEQ: not a Muster store, damaged, or
 * written by a newer version. bytes_max 0: STORE_FILE_BYTES_MAX. */
int store_file_open(const char *path, uint64_t bytes_max, struct store **ret, struct err *err);

/* Makes a store that behaves the same and has no file, for the simulator and tests. entries_max bounds
 * keys and records. */
int store_memory_open(uint32_t entries_max, struct store **ret, struct err *err);

/* Makes another handle on the content of `first`, a memory store, which is shared from then on. The
 * content lives as long as one of its handles. */
int store_memory_join(struct store *first, struct store **ret, struct err *err);

/* These play a shared store's faults: the content is lost, as when a Redis restarts without its data; one handle
 * cannot reach it (-ENETDOWN). */
void store_memory_lose(struct store *s);
void store_memory_cut(struct store *s, bool away);

void store_close(struct store *s);

/* Appends the key's value to *value (may be NULL). -ENOENT. */
int store_get(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
              struct err *err);

/* Writes a value if the key has the expected version. -EEXIST: STORE_ABSENT was expected and the key
 * exists. -ESTALE: the key has another version, or does not exist. -ENOSPC when the disk or the bound is
 * full: the old value stays. */
int store_put_if(struct store *s, struct str key, struct str value, uint64_t expected,
                 uint64_t *ret_version, struct err *err);

/* Deletes a key if it has the expected version. -ENOENT, -ESTALE. */
int store_delete_if(struct store *s, struct str key, uint64_t expected, struct err *err);

/* Calls fn for each key with the prefix, in bytewise order. fn must not change the store. */
int store_list(struct store *s, struct str prefix, store_entry_fn fn, void *ctx, struct err *err);

int store_append(struct store *s, const struct store_log *log, struct str value, uint64_t *ret_seq,
                 struct err *err);

/* Calls fn for up to `max` records with seq >= from_seq, oldest first. */
int store_log_read(struct store *s, const struct store_log *log, uint64_t from_seq, uint64_t max,
                   store_record_fn fn, void *ctx, struct err *err);
int store_log_stat(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                   struct err *err);

/* ---- the lease ---- */

#define STORE_HOLDER_BYTES 40
#define STORE_ADDRESS_BYTES 192

/* The lease as a store has it. Who may take it over, and when, is decided in store_election.h. */
struct store_lease {
    uint64_t epoch;                    /* of the last term; 0: the store knows of none */
    uint64_t beat;                     /* rises by one with each renewal */
    bool held;                         /* false: the holder gave it back */
    int64_t term_us;                   /* of the holder: a renewal holds for so long */
    char holder[STORE_HOLDER_BYTES];   /* names one life of one process */
    char address[STORE_ADDRESS_BYTES]; /* at which the holder serves; may be empty */
    uint64_t line; /* of the connection that brought this; another one may reach another server */
    bool lost; /* the store has no content, half of one, or an older one than this handle's copy */
};

/* The claim of a process on the lease. Names have no blanks; they are borrowed for the call. */
struct store_claim {
    struct str holder, address;
    int64_t term_us;
    uint64_t epoch_min; /* the epoch will be no lower, whatever the store has forgotten */
};

/* Returns true if other handles may hold the lease. A store that is not shared is its opener's: it is
 * acquired at once and written to without a term as well. */
bool store_is_shared(const struct store *s);

/* Reads the lease. */
int store_lease_see(struct store *s, struct store_lease *ret, struct err *err);

/* Takes the lease if it is still as `seen`: this handle has a term of a higher epoch from then on. -EBUSY:
 * it changed since. */
int store_lease_acquire(struct store *s, const struct store_claim *claim,
                        const struct store_lease *seen, uint64_t *ret_epoch, struct err *err);

/* Renews the lease. -EKEYREVOKED: it is another's by now. -EREMOTEIO: it may be renewed; may be tried
 * again. */
int store_lease_renew(struct store *s, struct err *err);

/* Gives the lease back, so that others need not wait for its end. The term is over whatever is returned. */
void store_lease_release(struct store *s);
uint64_t store_epoch(const struct store *s); /* of this handle's term; 0: none */

/* Returns true if both are the same moment of the same lease, heard over the same connection. */
bool store_lease_same(const struct store_lease *a, const struct store_lease *b);

/* Copies the content of a shared store into this handle's memory if it changed. When the store loses its
 * content, the next handle that acquires the lease writes it back from this copy. A handle that has a term
 * keeps its copy up to date by itself. */
int store_refresh(struct store *s, struct err *err);

/* Returns a number that is another once entries with the prefix may have changed, as the lease tells that was seen
 * last; 0: unknown. On a store that has it each call is one to a server that is not ours alone. */
uint64_t store_changes(const struct store *s, struct str prefix);

/* Opens a store on Redis. Nothing is asked of the server before the first call: it may be away. -EINVAL for
 * a URL that is not understood, or a file of TLS that cannot be used (-ENOENT, ...), with a sentence. */
#define STORE_REDIS_FORMS                                                              \
    "redis://[USER@]HOST:PORT[/DB], redis+unix:///PATH[?db=N], rediss:// for TLS, or " \
    "redis+sentinel://HOST:PORT[,HOST:PORT]/MASTER[/DB]"
struct store_redis_config {   /* borrowed for the call */
    struct str url;           /* STORE_REDIS_FORMS */
    struct str password_file; /* empty: no password */
    struct str fleet; /* all keys begin with {fleet}, so that a cluster has them in one slot */
    struct str ca, certificate, key; /* rediss: PEM files; empty: the system's CAs, none */
    int64_t timeout_us;              /* the longest that a call may block */
    /* the longest time between tries while it is away; 0: STORE_AGAIN_US_MAX */
    int64_t again_us_max;
};
int store_redis_open(const struct store_redis_config *config, struct store **ret, struct err *err);

/* Opens a store on objects of Kubernetes. Nothing is asked of the API server before the first call. Failures are
 * those of kube_config_load, and -EINVAL for a URL or name that is not understood. */
#define STORE_KUBE_FORMS "kubernetes, or kubernetes://NAMESPACE[/NAME]"
struct store_kube_config {          /* borrowed for the call */
    struct str url;                 /* STORE_KUBE_FORMS */
    struct str fleet;               /* the objects' names begin with it, if the URL has no name */
    struct str ns;                  /* if the URL has none; empty: of the kubeconfig or the pod */
    struct str kubeconfig, context; /* empty: as kube_config.h says under Order */
    const char *const *environ;     /* of the process; lives as long as the store */
    const char *const *secret;      /* prefixes of keys that are kept in Secrets, at most 8 */
    uint32_t secret_count;
    int64_t timeout_us; /* the longest that a call may block */
};
int store_kube_open(const struct store_kube_config *config, struct store **ret, struct err *err);
bool store_kube_is_named(struct str url); /* is of STORE_KUBE_FORMS, by its beginning */

/* Returns true if the store could be reached when it was last tried. True for files and memory. */
bool store_is_reached(const struct store *s);
