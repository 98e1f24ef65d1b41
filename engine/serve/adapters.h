/* adapters.h - keeps the LoRA adapters that are resident, by name.
 *
 *     reserve ──► (the file is read) ──► fill ──► READY ──► remove ──► LEAVING ──► freed
 *        └──────────► abandon                                 the last request that holds it drops it
 *
 * Layer:    engine/serve (engine/model)
 * Threads:  any; one lock, held for a look at ADAPTERS_MAX entries. The device thread takes none: it reads the
 *           struct adapter of a job, which the job's request holds
 * Lifetime: an entry's name and adapter live while the entry is held, or READY. adapters_free: when nothing
 *           is held any more
 * Bound:    count_max entries, those that are being read and that leave included, of at most
 *           adapter_bytes_max(model, rank_max) each
 */
#pragma once
#include "base/core/str.h"
#include "engine/model/adapter.h"

#define ADAPTERS_MAX 64u
#define ADAPTER_NAME_BYTES_MAX 128

struct adapters;
struct adapter_entry;

struct adapters_config {
    uint32_t count_max; /* 0: none are taken */
    uint32_t rank_max;
    struct str model_name; /* which no adapter may have */
};

int adapters_new(const struct adapters_config *config, struct adapters **ret, struct err *err);
void adapters_free(struct adapters *a);
CLEANUP_FREEP(adapters, struct adapters)
const struct adapters_config *adapters_config(const struct adapters *a);

/* Takes a place under the name. -EPERM: none are taken; -EINVAL: no valid name; -EEXIST: it is taken;
 * -EAGAIN: all places are. */
int adapters_reserve(struct adapters *a, struct str name, struct adapter_entry **ret,
                     struct err *err);
void adapters_fill(struct adapters *a, struct adapter_entry *e, struct adapter *owned); /* READY */
void adapters_abandon(struct adapters *a, struct adapter_entry *e);

/* Loads NAME=PATH, each of which must load. */
int adapters_load_all(struct adapters *a, const struct model *m, const struct str *modules,
                      size_t count, struct err *err);

/* Takes the name away: requests that hold the adapter go on with it. Writes how many do. -ENOENT. */
int adapters_remove(struct adapters *a, struct str name, uint32_t *ret_held);

/* Hold an adapter for a request: by its name, or by its digest. NULL: it is not here. */
struct adapter_entry *adapters_hold(struct adapters *a, struct str name);
struct adapter_entry *adapters_hold_digest(struct adapters *a, struct str digest);
struct adapter_entry *adapters_share(struct adapters *a,
                                     struct adapter_entry *e);   /* once more; NULL is fine */
void adapters_drop(struct adapters *a, struct adapter_entry *e); /* NULL is fine */
bool adapters_has(struct adapters *a, struct str name);

struct str adapter_entry_name(const struct adapter_entry *e);
const struct adapter *adapter_entry_adapter(const struct adapter_entry *e);

/* One that is READY. */
struct adapter_seen {
    char name[ADAPTER_NAME_BYTES_MAX + 1];
    char digest[SHA256_HEX + 1];
    uint32_t rank, held;
    uint64_t bytes;
};

/* Copies those that are READY, ordered by name; returns how many. *ret_bytes: of all entries. */
uint32_t adapters_list(struct adapters *a, struct adapter_seen ret[ADAPTERS_MAX],
                       uint64_t *ret_bytes);
