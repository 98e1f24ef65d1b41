/* store_kube_log.c - keeps the bounded logs of a store on Kubernetes, KUBE_LOG_SEGMENTS objects each.
 *
 * Records are appended to one object until it is full, then to the next in turn, whose old records are dropped by the
 * same patch. Records beyond the log's bound are void at once, and removed with the next write of their object. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/store/store_backend.h"
#include "base/io/store/store_kube_state.h"

#include <stdio.h>

#define SEGMENT_BYTES ((size_t)128 << 10) /* each record that is appended writes its segment anew */

struct log_view {
    uint32_t from;        /* the first of KUBE_LOG_SEGMENTS shards */
    uint32_t current;     /* the shard with the newest record */
    uint64_t first, last; /* records; 0, 0: none */
    uint64_t count;
};

/* Fills the view of a log; false: there is none of that name. */
static bool log_find(const struct kube_store *k, const char *name, struct log_view *ret)
{
    for (uint32_t l = 0; l < KUBE_LOGS_MAX; l++) {
        struct log_view v = { .from = KUBE_FIRST_LOG + l * KUBE_LOG_SEGMENTS };
        bool known = false;
        v.current = v.from;
        for (uint32_t s = v.from; s < v.from + KUBE_LOG_SEGMENTS; s++) {
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
    for (uint32_t l = 0; l < KUBE_LOGS_MAX; l++) {
        uint32_t from = KUBE_FIRST_LOG + l * KUBE_LOG_SEGMENTS;
        bool taken = false;
        for (uint32_t s = from; s < from + KUBE_LOG_SEGMENTS; s++)
            taken = taken || k->shard[s].log[0];
        if (taken) continue;
        *ret = (struct log_view){ .from = from, .current = from, .first = 1 };
        return 0;
    }
    return err_set(err, -ENOSPC, "store: %d logs are the bound, and %s is another", KUBE_LOGS_MAX,
                   name);
}

/* Marks the records before `first` as gone, and all where the whole segment is to be used anew. */
static void drop_records(struct shard *s, uint64_t first)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->item[i]->number < first) shard_drop(s, s->item[i]);
}

int kube_log_append(struct store *store, const struct store_log *log, struct str value,
                    uint64_t *ret_seq, struct err *err)
{
    struct kube_store *k = kube_store_of(store);
    struct log_view v;
    int rc = 0;
    must(!k->busy && strlen(log->name) < SHARD_LOG_BYTES);
    if (!log_find(k, log->name, &v)) rc = log_begin(k, log->name, &v, err);
    if (rc == 0 && FAULT("store.write")) rc = err_set(err, -ENOSPC, "store: no space left");
    if (rc < 0) return rc;
    struct shard *s = &k->shard[v.current];
    if (s->count > 0 && (s->bytes + value.len > SEGMENT_BYTES || s->count >= SHARD_ITEMS_MAX / 2)) {
        v.current = v.from + (v.current - v.from + 1) % KUBE_LOG_SEGMENTS;
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
    rc = kube_objects_commit(k, v.current, k->revision, err);
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
    for (uint32_t s = v->from; s < v->from + KUBE_LOG_SEGMENTS; s++) {
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

int kube_log_read(struct store *s, const struct store_log *log, uint64_t from_seq, uint64_t max,
                  store_record_fn fn, void *ctx, struct err *err)
{
    struct kube_store *k = kube_store_of(s);
    struct log_view v;
    int rc = kube_objects_look(k, KUBE_FIRST_LOG, KUBE_SHARDS, err);
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

int kube_log_stat(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                  struct err *err)
{
    struct kube_store *k = kube_store_of(s);
    struct log_view v;
    int rc = kube_objects_look(k, KUBE_FIRST_LOG, KUBE_SHARDS, err);
    if (rc < 0) return rc;
    *ret = (struct store_log_stat){ 0 };
    if (log_find(k, log->name, &v) && v.count > 0)
        *ret = (struct store_log_stat){ v.first, v.last, v.count, v.first - 1 };
    return 0;
}
