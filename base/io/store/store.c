/* store.c - checks sizes and versions for all backends, and calls the backend. */
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

void store_close(struct store *s)
{
    if (s) s->ops->close(s);
}

int store_get(struct store *s, struct str key, struct buf *value, uint64_t *ret_version,
              struct err *err)
{
    int rc = key_check(key, err);
    return rc < 0 ? rc : s->ops->get(s, key, value, ret_version, err);
}

int store_put_if(struct store *s, struct str key, struct str value, uint64_t expected,
                 uint64_t *ret_version, struct err *err)
{
    uint64_t version;
    int rc = key_check(key, err);
    if (rc == 0) rc = value_check(value, err);
    if (rc == 0) rc = s->ops->put_if(s, key, value, expected, &version, err);
    if (rc == 0 && ret_version) *ret_version = version;
    return rc;
}

int store_delete_if(struct store *s, struct str key, uint64_t expected, struct err *err)
{
    must(expected != STORE_ABSENT);
    int rc = key_check(key, err);
    return rc < 0 ? rc : s->ops->delete_if(s, key, expected, err);
}

int store_list(struct store *s, struct str prefix, store_entry_fn fn, void *ctx, struct err *err)
{
    return s->ops->list(s, prefix, fn, ctx, err);
}

int store_append(struct store *s, const struct store_log *log, struct str value, uint64_t *ret_seq,
                 struct err *err)
{
    must(log->count_max > 0);
    uint64_t seq;
    int rc = value_check(value, err);
    if (rc == 0) rc = s->ops->append(s, log, value, &seq, err);
    if (rc == 0 && ret_seq) *ret_seq = seq;
    return rc;
}

int store_log_read(struct store *s, const struct store_log *log, uint64_t from_seq, uint64_t max,
                   store_record_fn fn, void *ctx, struct err *err)
{
    return s->ops->log_read(s, log, from_seq, max, fn, ctx, err);
}

int store_log_stat(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                   struct err *err)
{
    return s->ops->log_stat(s, log, ret, err);
}
