/* store.c - checks sizes, versions and terms for all backends, and calls the backend. */
#include "base/io/store/store.h"

#include "base/core/bits.h"
#include "base/io/store/store_backend.h"

#include <inttypes.h>
#include <stdio.h>

static int key_check(struct str key, struct err *err)
{
    if (key.len > 0 && key.len <= STORE_KEY_BYTES_MAX) return 0;
    return err_set(err, -EINVAL, "store: a key of %zu bytes, 1 to %d are allowed", key.len,
                   STORE_KEY_BYTES_MAX);
}

static int value_check(struct str value, struct err *err)
{
    if (value.len <= STORE_VALUE_BYTES_MAX) return 0;
    return err_set(err, -EFBIG, "store: a value of %zu bytes, at most %zu are allowed", value.len,
                   STORE_VALUE_BYTES_MAX);
}

static int key_shown(struct str key)
{
    return (int)min_size(key.len, 80);
}

int store_version_check(struct str key, uint64_t version, uint64_t expected, struct err *err)
{
    if (expected == STORE_ANY || expected == version) return 0;
    if (expected == STORE_ABSENT)
        return err_set(err, -EEXIST, "store: %.*s exists already", key_shown(key), key.data);
    if (version == 0) return err_set(err, -ESTALE, "store: %.*s is gone", key_shown(key), key.data);
    return err_set(err, -ESTALE,
                   "store: %.*s was changed meanwhile (version %" PRIu64 ", not %" PRIu64 ")",
                   key_shown(key), key.data, version, expected);
}

/* ---- terms ---- */

int store_deposed(struct err *err, const char *why)
{
    return err_set(err, -EKEYREVOKED, "store: this process may not write any more: %s", why);
}

/* Refuses a write to a shared store by a handle that has no term. */
static int term_check(const struct store *s, struct err *err)
{
    if (!s->shared || s->epoch) return 0;
    return err_set(err, -EKEYREVOKED, "store: only the process that holds the lease may write");
}

/* Ends the term after a call that says that it is over, or that leaves open what the store holds. */
static int concluded(struct store *s, int rc)
{
    if (rc == -EKEYREVOKED || rc == -EREMOTEIO) s->epoch = 0;
    return rc;
}

bool store_is_shared(const struct store *s)
{
    return s->shared;
}

uint64_t store_epoch(const struct store *s)
{
    return s->epoch;
}

bool store_is_reached(const struct store *s)
{
    return !s->ops->is_reached || s->ops->is_reached(s);
}

uint64_t store_changes(const struct store *s, struct str prefix)
{
    return s->ops->changes ? s->ops->changes(s, prefix) : 0;
}

bool store_lease_same(const struct store_lease *a, const struct store_lease *b)
{
    return a->epoch == b->epoch && a->beat == b->beat && a->held == b->held && a->line == b->line &&
           strcmp(a->holder, b->holder) == 0;
}

int store_lease_see(struct store *s, struct store_lease *ret, struct err *err)
{
    return s->ops->lease_see(s, ret, err);
}

/* Names go into records whose parts are separated by blanks. */
static int name_check(struct str name, size_t bytes_max, const char *what, struct err *err)
{
    if (name.len >= bytes_max)
        return err_set(err, -EINVAL, "store: the %s of a lease has at most %zu bytes", what,
                       bytes_max - 1);
    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)name.data[i] <= ' ')
            return err_set(err, -EINVAL, "store: the %s of a lease has a blank", what);
    return 0;
}

int store_lease_acquire(struct store *s, const struct store_claim *claim,
                        const struct store_lease *seen, uint64_t *ret_epoch, struct err *err)
{
    uint64_t epoch = seen->epoch + 1 > claim->epoch_min ? seen->epoch + 1 : claim->epoch_min;
    int rc = name_check(claim->holder, STORE_HOLDER_BYTES, "holder", err);
    if (rc == 0 && claim->holder.len == 0)
        rc = err_set(err, -EINVAL, "store: a lease has a holder");
    if (rc == 0) rc = name_check(claim->address, STORE_ADDRESS_BYTES, "address", err);
    s->epoch = 0;
    if (rc == 0) rc = s->ops->lease_acquire(s, claim, seen, epoch, err);
    if (rc < 0) return rc;
    s->epoch = epoch;
    if (ret_epoch) *ret_epoch = epoch;
    return 0;
}

int store_lease_renew(struct store *s, struct err *err)
{
    if (!s->epoch) return store_deposed(err, "its term is over");
    int rc = s->ops->lease_renew(s, err);
    if (rc == -EKEYREVOKED) s->epoch = 0;
    return rc;
}

void store_lease_release(struct store *s)
{
    if (s->epoch) s->ops->lease_release(s);
    s->epoch = 0;
}

int store_refresh(struct store *s, struct err *err)
{
    return s->ops->refresh ? s->ops->refresh(s, err) : 0;
}

/* ---- entries and logs ---- */

void store_close(struct store *s)
{
    if (s) s->ops->close(s);
}

int store_get(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
              struct err *err)
{
    int rc = key_check(key, err);
    return rc < 0 ? rc : concluded(s, s->ops->get(s, key, value, ret_version, err));
}

int store_put_if(struct store *s, struct str key, struct str value, uint64_t expected,
                 uint64_t *ret_version, struct err *err)
{
    uint64_t version;
    int rc = key_check(key, err);
    if (rc == 0) rc = value_check(value, err);
    if (rc == 0) rc = term_check(s, err);
    if (rc == 0) rc = concluded(s, s->ops->put_if(s, key, value, expected, &version, err));
    if (rc == 0 && ret_version) *ret_version = version;
    return rc;
}

int store_delete_if(struct store *s, struct str key, uint64_t expected, struct err *err)
{
    must(expected != STORE_ABSENT);
    int rc = key_check(key, err);
    if (rc == 0) rc = term_check(s, err);
    return rc < 0 ? rc : concluded(s, s->ops->delete_if(s, key, expected, err));
}

int store_list(struct store *s, struct str prefix, store_entry_fn fn, void *ctx, struct err *err)
{
    return concluded(s, s->ops->list(s, prefix, fn, ctx, err));
}

int store_append(struct store *s, const struct store_log *log, struct str value, uint64_t *ret_seq,
                 struct err *err)
{
    must(log->count_max > 0);
    uint64_t seq;
    int rc = value_check(value, err);
    if (rc == 0) rc = term_check(s, err);
    if (rc == 0) rc = concluded(s, s->ops->append(s, log, value, &seq, err));
    if (rc == 0 && ret_seq) *ret_seq = seq;
    return rc;
}

int store_log_read(struct store *s, const struct store_log *log, uint64_t from_seq, uint64_t max,
                   store_record_fn fn, void *ctx, struct err *err)
{
    return concluded(s, s->ops->log_read(s, log, from_seq, max, fn, ctx, err));
}

int store_log_stat(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                   struct err *err)
{
    return concluded(s, s->ops->log_stat(s, log, ret, err));
}
