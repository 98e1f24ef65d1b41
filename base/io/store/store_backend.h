/* store_backend.h - the operations of a backend; store.c checks arguments and dispatches to them.
 *
 * Layer: base/io, store*.c only. A backend may trust sizes and names: store.c checked them.
 */
#pragma once
#include "base/io/store/store.h"

struct store_ops {
    void (*close)(struct store *s);
    int (*get)(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
               struct err *err);
    int (*put_if)(struct store *s, struct str key, struct str value, uint64_t expected,
                  uint64_t *ret_version, struct err *err);
    int (*delete_if)(struct store *s, struct str key, uint64_t expected, struct err *err);
    int (*list)(struct store *s, struct str prefix, store_entry_fn fn, void *ctx, struct err *err);
    int (*append)(struct store *s, const struct store_log *log, struct str value, uint64_t *ret_seq,
                  struct err *err);
    int (*log_read)(struct store *s, const struct store_log *log, uint64_t from_seq, uint64_t max,
                    store_record_fn fn, void *ctx, struct err *err);
    int (*log_stat)(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                    struct err *err);
    int (*lease_see)(struct store *s, struct store_lease *ret, struct err *err);
    int (*lease_acquire)(struct store *s, const struct store_claim *claim,
                         const struct store_lease *seen, uint64_t epoch, struct err *err);
    int (*lease_renew)(struct store *s, struct err *err);
    void (*lease_release)(struct store *s);           /* only while there is a term */
    int (*refresh)(struct store *s, struct err *err); /* optional: the handle needs no copy */
    bool (*is_reached)(const struct store *s);        /* optional: always */
    uint64_t (*changes)(const struct store *s, struct str prefix); /* optional: unknown */
};

struct store {
    const struct store_ops *ops;
    bool shared;
    uint64_t epoch; /* of the handle's term, 0: none; store.c writes it */
};

/* Refuses a call of a term that is over, with its sentence. */
int store_deposed(struct err *err, const char *why);

/* Checks the expected version for put_if and delete_if of every backend. `version` is the key's version,
 * 0 if it does not exist. Returns 0, or the refusal with its sentence. */
int store_version_check(struct str key, uint64_t version, uint64_t expected, struct err *err);
