/* store_redis_log.c - appends to the logs of a store on Redis, and reads them. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/store/store_redis_entry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PAGE_RECORDS 4 /* read at a time; they come in one reply */

struct log_job {
    const struct store_log *log;
    struct str value;
    uint64_t seq; /* read: the next one; append: the one given */
    uint64_t max;
    store_record_fn fn;
    void *ctx;
    uint32_t count;
    int result;
    struct store_log_stat stat;
};

static int append_once(struct redis_store *r, void *arg, struct err *err)
{
    struct log_job *j = arg;
    CLEANUP(buf_fini) struct buf text = { 0 };
    char name[REDIS_KEY_BYTES], seq[REDIS_VERSION_BYTES], bound[REDIS_VERSION_BYTES],
        stat[2 * REDIS_VERSION_BYTES];
    struct str key = redis_log_key(&r->keys, j->log->name, name), log = str_from(j->log->name);
    struct redis_seen seen;
    uint64_t last, dropped;
    REDIS_SEND(r->link, STR("WATCH"), str_from(r->keys.state), str_from(r->keys.lease),
               str_from(r->keys.logs));
    redis_ask_seen(r);
    REDIS_SEND(r->link, STR("HGET"), str_from(r->keys.logs), log);
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = redis_take_seen(r, &seen, err);
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc == 0) rc = redis_read_log(&r->keys, redis_whole(r->link), &last, &dropped, err);
    if (rc < 0) return rc;
    last++;
    snprintf(seq, sizeof seq, "%" PRIu64, last);
    snprintf(bound, sizeof bound, "%" PRIu64,
             last > j->log->count_max ? last - j->log->count_max : 0);
    REDIS_SEND(r->link, STR("ZCOUNT"), key, STR("-inf"), str_from(bound));
    rc = redis_take(r->link, err);
    if (rc < 0) return rc;
    dropped += (uint64_t)max_i64(redis_number(r->link), 0);
    struct redis_state now = seen.state;
    now.writes++;
    snprintf(stat, sizeof stat, "%" PRIu64 " %" PRIu64, last, dropped);
    buf_printf(&text, "%s\n", seq);
    buf_str(&text, j->value);
    rc = redis_check_term(r, &seen, err);
    if (rc == 0 && FAULT("store.write")) rc = err_set(err, -ENOSPC, "store: no space left");
    if (rc == 0 && text.rc < 0) rc = err_set(err, text.rc, "store: no memory");
    if (rc < 0) return redis_unwatch(r, rc);
    redis_multi(r);
    REDIS_SEND(r->link, STR("ZADD"), key, str_from(seq), buf_view(&text));
    REDIS_SEND(r->link, STR("ZREMRANGEBYSCORE"), key, STR("-inf"), str_from(bound));
    REDIS_SEND(r->link, STR("HSET"), str_from(r->keys.logs), log, str_from(stat));
    redis_put_state(r, &now);
    rc = redis_commit(r, 4, err);
    if (rc < 0) return rc;
    j->seq = last;
    struct redis_copied_log *copied = redis_copy_log(&r->copy, log);
    if (copied) copied->last = last, copied->dropped = dropped;
    redis_copy_follow(r, &now, 0);
    return 0;
}

int redis_append(struct store *s, const struct store_log *log, struct str value, uint64_t *ret_seq,
                 struct err *err)
{
    struct log_job j = { .log = log, .value = value };
    int rc = redis_run(redis_of(s), append_once, &j, err);
    if (rc == 0) *ret_seq = j.seq;
    return rc;
}

static int records_once(struct redis_store *r, void *arg, struct err *err)
{
    struct log_job *j = arg;
    char name[REDIS_KEY_BYTES], from[REDIS_VERSION_BYTES], most[REDIS_VERSION_BYTES];
    struct redis_state state;
    snprintf(from, sizeof from, "%" PRIu64, j->seq);
    snprintf(most, sizeof most, "%d", (int)min_size(j->max, PAGE_RECORDS));
    REDIS_SEND(r->link, STR("GET"), str_from(r->keys.state));
    REDIS_SEND(r->link, STR("ZRANGEBYSCORE"), redis_log_key(&r->keys, j->log->name, name),
               str_from(from), STR("+inf"), STR("LIMIT"), STR("0"), str_from(most));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = redis_read_state(&r->keys, redis_whole(r->link), &state, err);
    if (rc == 0) rc = redis_check_life(r, &state, err);
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc < 0) return rc;
    j->count = (uint32_t)redis_count(r->link);
    for (uint32_t i = 0; i < j->count && j->result == 0; i++) {
        struct store_record record;
        rc = redis_split_number(&r->keys, redis_text(r->link, i), &record.seq, &record.value, err);
        if (rc < 0) return rc;
        j->seq = record.seq + 1;
        r->busy = true;
        j->result = j->fn(j->ctx, &record);
        r->busy = false;
    }
    return 0;
}

int redis_log_read(struct store *s, const struct store_log *log, uint64_t from_seq, uint64_t max,
                   store_record_fn fn, void *ctx, struct err *err)
{
    struct log_job j = { .log = log, .seq = from_seq, .max = max, .fn = fn, .ctx = ctx };
    while (j.max > 0) {
        uint64_t page = min_size(j.max, PAGE_RECORDS);
        int rc = redis_run(redis_of(s), records_once, &j, err);
        if (rc < 0) return rc;
        if (j.result != 0) return j.result;
        if (j.count < page) return 0;
        j.max -= j.count;
    }
    return 0;
}

static int log_stat_once(struct redis_store *r, void *arg, struct err *err)
{
    struct log_job *j = arg;
    char name[REDIS_KEY_BYTES];
    struct redis_state state;
    struct store_log_stat stat = { 0 };
    struct str key = redis_log_key(&r->keys, j->log->name, name);
    REDIS_SEND(r->link, STR("GET"), str_from(r->keys.state));
    REDIS_SEND(r->link, STR("HGET"), str_from(r->keys.logs), str_from(j->log->name));
    REDIS_SEND(r->link, STR("ZCARD"), key);
    REDIS_SEND(r->link, STR("ZRANGE"), key, STR("0"), STR("0"), STR("WITHSCORES"));
    int rc = redis_take(r->link, err);
    if (rc == 0) rc = redis_read_state(&r->keys, redis_whole(r->link), &state, err);
    if (rc == 0) rc = redis_check_life(r, &state, err);
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc == 0)
        rc = redis_read_log(&r->keys, redis_whole(r->link), &stat.last, &stat.dropped, err);
    if (rc == 0) rc = redis_take(r->link, err);
    stat.count = rc == 0 ? (uint64_t)redis_number(r->link) : 0;
    if (rc == 0) rc = redis_take(r->link, err);
    if (rc < 0) return rc;
    if (stat.count > 0 && str_to_u64(redis_text(r->link, 1), &stat.first) < 0)
        return redis_damaged(&r->keys, "a log", err);
    j->stat = stat;
    return 0;
}

int redis_log_stat(struct store *s, const struct store_log *log, struct store_log_stat *ret,
                   struct err *err)
{
    struct log_job j = { .log = log };
    int rc = redis_run(redis_of(s), log_stat_once, &j, err);
    if (rc == 0) *ret = j.stat;
    return rc;
}
