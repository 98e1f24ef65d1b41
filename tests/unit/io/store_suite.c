/* store_suite.c - the cases that every backend of the store passes. */
#include "tests/unit/io/store_suite.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "base/io/loop/clock.h"
#include "base/io/store/store_backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

void assert_value(struct store *s, struct str key, struct str value, uint64_t version)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    uint64_t v = 0;
    assert_int_equal(store_get(s, key, &out, &v, NULL), 0);
    assert_true(str_eq(buf_view(&out), value));
    assert_int_equal(v, version);
}

static void versions(struct store *s)
{
    uint64_t v1 = 0, v2 = 0, v3 = 0;
    struct err err = { 0 };
    assert_int_equal(store_get(s, STR("a"), NULL, NULL, &err), -ENOENT);
    assert_int_equal(store_put_if(s, STR("a"), STR("one"), STORE_ABSENT, &v1, NULL), 0);
    assert_true(v1 > 0);
    assert_value(s, STR("a"), STR("one"), v1);
    assert_int_equal(store_put_if(s, STR("a"), STR("x"), STORE_ABSENT, &v2, &err), -EEXIST);
    assert_string_equal(err.text, "store: a exists already");
    assert_int_equal(v2, 0);
    assert_int_equal(store_put_if(s, STR("a"), STR("two"), v1, &v2, NULL), 0);
    assert_true(v2 > v1);
    assert_int_equal(store_put_if(s, STR("a"), STR("x"), v1, NULL, &err), -ESTALE);
    assert_non_null(strstr(err.text, "was changed meanwhile"));
    assert_value(s, STR("a"), STR("two"), v2);
    assert_int_equal(store_delete_if(s, STR("a"), v1, NULL), -ESTALE);
    assert_int_equal(store_delete_if(s, STR("a"), v2, NULL), 0);
    assert_int_equal(store_delete_if(s, STR("a"), STORE_ANY, NULL), -ENOENT);
    assert_int_equal(store_put_if(s, STR("a"), STR("x"), v2, NULL, &err), -ESTALE);
    assert_string_equal(err.text, "store: a is gone");
    /* A key made again gets a new version, so a holder of the old one cannot win. */
    assert_int_equal(store_put_if(s, STR("a"), STR("new"), STORE_ANY, &v3, NULL), 0);
    assert_true(v3 > v2);
    assert_int_equal(store_put_if(s, STR("a"), STR(""), STORE_ANY, &v3, NULL), 0);
    assert_value(s, STR("a"), STR(""), v3);
}

static void sizes(struct store *s)
{
    char *big = calloc(1, STORE_VALUE_BYTES_MAX + 1);
    char key[STORE_KEY_BYTES_MAX + 1];
    memset(key, 'k', sizeof key);
    assert_int_equal(store_put_if(s, STR(""), STR("x"), STORE_ANY, NULL, NULL), -EINVAL);
    assert_int_equal(store_get(s, str_of(key, sizeof key), NULL, NULL, NULL), -EINVAL);
    assert_int_equal(store_put_if(s, str_of(key, sizeof key - 1), STR("x"), STORE_ANY, NULL, NULL),
                     0);
    assert_int_equal(
        store_put_if(s, STR("b"), str_of(big, STORE_VALUE_BYTES_MAX + 1), STORE_ANY, NULL, NULL),
        -EFBIG);
    uint64_t v;
    assert_int_equal(
        store_put_if(s, STR("b"), str_of(big, STORE_VALUE_BYTES_MAX), STORE_ANY, &v, NULL), 0);
    assert_value(s, STR("b"), str_of(big, STORE_VALUE_BYTES_MAX), v);
    free(big);
}

int keep_key(void *ctx, const struct store_entry *e)
{
    assert_true(e->version > 0);
    buf_str(ctx, e->key);
    buf_byte(ctx, '=');
    buf_str(ctx, e->value);
    buf_byte(ctx, ' ');
    return str_eq(e->value, STR("stop")) ? -ECANCELED : 0;
}

static void lists(struct store *s)
{
    static const struct {
        struct str key, value;
    } rows[] = { { STR("i/2"), STR("b") },   { STR("i/10"), STR("a") }, { STR("j"), STR("z") },
                 { STR("i\xff"), STR("c") }, { STR("h/9"), STR("y") },  { STR("i"), STR("0") } };
    CLEANUP(buf_fini) struct buf out = { 0 };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_int_equal(store_put_if(s, rows[i].key, rows[i].value, STORE_ABSENT, NULL, NULL), 0);
    assert_int_equal(store_list(s, STR("i"), keep_key, &out, NULL), 0);
    assert_string_equal(out.data, "i=0 i/10=a i/2=b i\xff=c ");
    buf_clear(&out);
    assert_int_equal(store_list(s, STR(""), keep_key, &out, NULL), 0);
    assert_string_equal(out.data, "h/9=y i=0 i/10=a i/2=b i\xff=c j=z ");
    buf_clear(&out);
    assert_int_equal(store_list(s, STR("k"), keep_key, &out, NULL), 0);
    assert_int_equal(out.len, 0);
    assert_int_equal(store_put_if(s, STR("i/1"), STR("stop"), STORE_ANY, NULL, NULL), 0);
    assert_int_equal(store_list(s, STR("i/"), keep_key, &out, NULL), -ECANCELED);
    assert_string_equal(out.data, "i/1=stop ");
    /* A walk that was stopped leaves the store usable. */
    assert_int_equal(store_delete_if(s, STR("i/1"), STORE_ANY, NULL), 0);
}

static int count_keys(void *ctx, const struct store_entry *e)
{
    uint32_t *count = ctx;
    char key[16];
    snprintf(key, sizeof key, "n/%05u", (*count)++);
    assert_true(str_eq(e->key, str_from(key)));
    return 0;
}

/* More entries than a backend reads at once. */
static void many(struct store *s)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < 150; i++) {
        char key[16];
        snprintf(key, sizeof key, "n/%05u", i);
        assert_int_equal(store_put_if(s, str_from(key), STR("v"), STORE_ABSENT, NULL, NULL), 0);
    }
    assert_int_equal(store_put_if(s, STR("o"), STR("v"), STORE_ABSENT, NULL, NULL), 0);
    assert_int_equal(store_list(s, STR("n/"), count_keys, &count, NULL), 0);
    assert_int_equal(count, 150);
}

int keep_record(void *ctx, const struct store_record *r)
{
    return buf_printf(ctx, "%d:" STR_FMT " ", (int)r->seq, STR_ARG(r->value));
}

static void logs(struct store *s)
{
    static const struct store_log decisions = { "decisions", 3 }, other = { "other", 2 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct store_log_stat stat;
    assert_int_equal(store_log_stat(s, &decisions, &stat, NULL), 0);
    assert_int_equal(stat.first + stat.last + stat.count + stat.dropped, 0);
    for (int i = 1; i <= 5; i++) {
        char text[16];
        uint64_t seq = 0;
        snprintf(text, sizeof text, "d%d", i);
        assert_int_equal(store_append(s, &decisions, str_from(text), &seq, NULL), 0);
        assert_int_equal(seq, i);
    }
    assert_int_equal(store_append(s, &other, STR(""), NULL, NULL), 0);
    assert_int_equal(store_log_read(s, &decisions, 0, 10, keep_record, &out, NULL), 0);
    assert_string_equal(out.data, "3:d3 4:d4 5:d5 ");
    buf_clear(&out);
    assert_int_equal(store_log_read(s, &decisions, 4, 1, keep_record, &out, NULL), 0);
    assert_string_equal(out.data, "4:d4 ");
    buf_clear(&out);
    assert_int_equal(store_log_read(s, &decisions, 6, 10, keep_record, &out, NULL), 0);
    assert_int_equal(out.len, 0);
    assert_int_equal(store_log_stat(s, &decisions, &stat, NULL), 0);
    assert_int_equal(stat.first, 3);
    assert_int_equal(stat.last, 5);
    assert_int_equal(stat.count, 3);
    assert_int_equal(stat.dropped, 2);
    /* A smaller bound takes effect with the next record. */
    static const struct store_log smaller = { "decisions", 1 };
    assert_int_equal(store_append(s, &smaller, STR("d6"), NULL, NULL), 0);
    assert_int_equal(store_log_stat(s, &smaller, &stat, NULL), 0);
    assert_int_equal(stat.count, 1);
    assert_int_equal(stat.dropped, 5);
}

/* A full disk at each kind of write gives an error and changes nothing. */
static void full_disk(struct store *s)
{
    static const struct store_log log = { "log", 2 };
    uint64_t version = 0;
    struct store_log_stat before, after;
    struct err err = { 0 };
    assert_int_equal(store_put_if(s, STR("k"), STR("old"), STORE_ANY, &version, NULL), 0);
    assert_int_equal(store_append(s, &log, STR("1"), NULL, NULL), 0);
    assert_int_equal(store_log_stat(s, &log, &before, NULL), 0);
    for (int i = 0; i < 4; i++) {
        fault_arm("store.write", 1);
        int rc = i == 0   ? store_put_if(s, STR("k"), STR("new"), version, NULL, &err)
                 : i == 1 ? store_put_if(s, STR("n"), STR("new"), STORE_ABSENT, NULL, &err)
                 : i == 2 ? store_delete_if(s, STR("k"), version, &err)
                          : store_append(s, &log, STR("2"), NULL, &err);
        fault_disarm();
        assert_int_equal(rc, -ENOSPC);
    }
    assert_value(s, STR("k"), STR("old"), version);
    assert_int_equal(store_get(s, STR("n"), NULL, NULL, NULL), -ENOENT);
    assert_int_equal(store_log_stat(s, &log, &after, NULL), 0);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(store_put_if(s, STR("k"), STR("new"), version, NULL, NULL), 0);
}

/* ---- two stores in step ---- */

static const struct store_log random_log = { "log", 5 };

void suite_random(struct store *a, struct store *b, int count)
{
    struct store *s[2] = { a, b };
    struct rng rng;
    rng_seed(&rng, 7);
    for (int i = 0; i < count; i++) {
        char key[8], value[24];
        int rc[2];
        uint64_t version[2] = { 0 }, op = rng_below(&rng, 4), expect = rng_below(&rng, 20);
        uint64_t expected = expect == 0 ? STORE_ANY : expect;
        snprintf(key, sizeof key, "k%d", (int)rng_below(&rng, 6));
        snprintf(value, sizeof value, "v%d", i);
        for (int k = 0; k < 2; k++)
            rc[k] = op == 0   ? store_put_if(s[k], str_from(key), str_from(value), STORE_ABSENT,
                                             &version[k], NULL)
                    : op == 1 ? store_put_if(s[k], str_from(key), str_from(value), expected,
                                             &version[k], NULL)
                    : op == 2 ? store_delete_if(s[k], str_from(key), expected, NULL)
                              : store_append(s[k], &random_log, str_from(value), &version[k], NULL);
        assert_int_equal(rc[0], rc[1]);
        assert_int_equal(version[0], version[1]);
    }
}

void suite_same(struct store *a, struct store *b)
{
    CLEANUP(buf_fini) struct buf one = { 0 }, other = { 0 };
    assert_int_equal(store_list(a, STR(""), keep_key, &one, NULL), 0);
    assert_int_equal(store_list(b, STR(""), keep_key, &other, NULL), 0);
    assert_int_equal(store_log_read(a, &random_log, 0, 9, keep_record, &one, NULL), 0);
    assert_int_equal(store_log_read(b, &random_log, 0, 9, keep_record, &other, NULL), 0);
    assert_true(one.len > 10);
    assert_string_equal(one.data, other.data);
}

/* ---- the lease ---- */

void suite_lead(struct store *s, const char *holder)
{
    struct store_lease seen;
    struct err err = { 0 };
    const struct store_claim claim = { str_from(holder), STR("127.0.0.1:1"), 10000000, 0 };
    int rc = store_lease_see(s, &seen, &err);
    if (rc == 0) rc = store_lease_acquire(s, &claim, &seen, NULL, &err);
    if (rc < 0) fail_msg("%d %s", rc, err.text);
}

void suite_lead_again(struct store *s, int64_t most_us)
{
    const struct store_claim claim = { STR("again"), STR(""), 10000000, 0 };
    struct store_lease seen;
    struct err err = { 0 };
    int rc = -1;
    for (int64_t until = clock_mono_us() + most_us; rc < 0 && clock_mono_us() < until;) {
        rc = store_lease_see(s, &seen, &err);
        if (rc == 0) rc = store_lease_acquire(s, &claim, &seen, NULL, &err);
        if (rc < 0) usleep(20000);
    }
    if (rc < 0) fail_msg("%s", err.text);
}

static void epochs_rise(struct store *s)
{
    struct store_lease seen;
    uint64_t first = store_epoch(s), epoch = 0;
    assert_true(first > 0);
    assert_int_equal(store_lease_renew(s, NULL), 0);
    assert_int_equal(store_put_if(s, STR("a"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    store_lease_release(s);
    assert_int_equal(store_epoch(s), 0);
    assert_int_equal(store_lease_renew(s, NULL), -EKEYREVOKED);
    suite_lead(s, "a");
    assert_true(store_epoch(s) > first);
    assert_int_equal(store_get(s, STR("a"), NULL, NULL, NULL), 0);
    /* The caller may know of a higher one that the store has forgotten. */
    const struct store_claim claim = { STR("a"), STR(""), 10000000, first + 1000 };
    assert_int_equal(store_lease_see(s, &seen, NULL), 0);
    assert_int_equal(store_lease_acquire(s, &claim, &seen, &epoch, NULL), 0);
    assert_int_equal(epoch, first + 1000);
    const struct store_claim blank = { STR("a b"), STR(""), 10000000, 0 };
    assert_int_equal(store_lease_acquire(s, &blank, &seen, &epoch, NULL), -EINVAL);
}

static void (*const cases[])(struct store *) = { versions, sizes,     lists,      many,
                                                 logs,     full_disk, epochs_rise };

void suite_run(struct store *(*open)(void))
{
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct store *s = open();
        suite_lead(s, "a");
        cases[i](s);
        store_close(s);
    }
}

/* ---- handles that share a store ---- */

static void one_of_two_writes(struct store *a, struct store *b)
{
    struct store_lease seen, later;
    struct err err = { 0 };
    const struct store_claim claim = { STR("b"), STR("127.0.0.1:2"), 10000000, 0 };
    uint64_t epoch;
    assert_true(store_is_shared(a) && store_is_shared(b));
    assert_int_equal(store_put_if(a, STR("k"), STR("0"), STORE_ANY, NULL, &err), -EKEYREVOKED);
    suite_lead(a, "a");
    assert_int_equal(store_put_if(a, STR("k"), STR("a"), STORE_ABSENT, NULL, NULL), 0);
    assert_int_equal(store_put_if(b, STR("k"), STR("b"), STORE_ANY, NULL, &err), -EKEYREVOKED);
    assert_int_equal(store_get(b, STR("k"), NULL, NULL, NULL), 0);

    /* A renewal after the look keeps the lease. */
    assert_int_equal(store_lease_see(b, &seen, NULL), 0);
    assert_true(seen.held && seen.epoch == store_epoch(a));
    assert_string_equal(seen.address, "127.0.0.1:1");
    assert_int_equal(store_lease_renew(a, NULL), 0);
    assert_int_equal(store_lease_acquire(b, &claim, &seen, &epoch, &err), -EBUSY);
    assert_int_equal(store_lease_see(b, &later, NULL), 0);
    assert_false(store_lease_same(&seen, &later));

    /* Without one it goes over, and every write of the old term is refused. */
    static const struct store_log log = { "log", 3 };
    uint64_t before = store_epoch(a), version;
    assert_int_equal(store_lease_acquire(b, &claim, &later, &epoch, NULL), 0);
    assert_true(epoch > before);
    assert_int_equal(store_put_if(b, STR("k"), STR("b"), STORE_ANY, &version, NULL), 0);
    for (int i = 0; i < 4; i++) {
        a->epoch = before; /* each by itself: the first refusal ends the term */
        int rc = i == 0   ? store_put_if(a, STR("k"), STR("a"), STORE_ANY, NULL, &err)
                 : i == 1 ? store_delete_if(a, STR("k"), STORE_ANY, &err)
                 : i == 2 ? store_append(a, &log, STR("a"), NULL, &err)
                          : store_lease_renew(a, &err);
        assert_int_equal(rc, -EKEYREVOKED);
        assert_int_equal(store_epoch(a), 0);
    }
    assert_value(b, STR("k"), STR("b"), version);
    store_lease_release(a); /* changes nothing: it is another's */
    assert_int_equal(store_lease_renew(b, NULL), 0);

    /* Given back, it is free. */
    store_lease_release(b);
    assert_int_equal(store_lease_see(a, &seen, NULL), 0);
    assert_false(seen.held);
    assert_int_equal(seen.epoch, epoch);
}

/* The epoch alone says whose the lease is: the other has neither written nor renewed yet. */
static void the_epoch_decides(struct store *a, struct store *b)
{
    suite_lead(a, "same");
    uint64_t before = store_epoch(a);
    suite_lead(b, "same");
    assert_true(store_epoch(b) > before);
    assert_int_equal(store_put_if(a, STR("k"), STR("a"), STORE_ANY, NULL, NULL), -EKEYREVOKED);
    assert_int_equal(store_get(b, STR("k"), NULL, NULL, NULL), -ENOENT);
    assert_int_equal(store_put_if(b, STR("k"), STR("b"), STORE_ANY, NULL, NULL), 0);
}

void suite_share(struct store *(*open)(void), struct store *(*join)(struct store *))
{
    static void (*const pairs[])(struct store *, struct store *) = { one_of_two_writes,
                                                                     the_epoch_decides };
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        struct store *a = open(), *b = join(a);
        pairs[i](a, b);
        store_close(a);
        store_close(b);
    }
}

/* ---- content that is lost or comes back ---- */

const struct store_log suite_log = { "decisions", 10 };

void suite_fill(struct store *s, uint64_t *ret_version)
{
    for (int i = 0; i < 100; i++) {
        char key[16];
        snprintf(key, sizeof key, "k/%03d", i);
        assert_int_equal(store_put_if(s, str_from(key), STR("v"), STORE_ABSENT, ret_version, NULL),
                         0);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_append(s, &suite_log, STR("d"), NULL, NULL), 0);
}

static int count_entry(void *ctx, const struct store_entry *e)
{
    (void)e;
    ++*(uint32_t *)ctx;
    return 0;
}

uint32_t suite_count(struct store *s, struct str prefix)
{
    uint32_t count = 0;
    assert_int_equal(store_list(s, prefix, count_entry, &count, NULL), 0);
    return count;
}

void suite_assert_whole(struct store *s, uint64_t version)
{
    uint64_t seq = 0, later = 0;
    assert_int_equal(suite_count(s, STR("k/")), 100);
    /* Versions and numbers of records go on where they were. */
    assert_int_equal(store_append(s, &suite_log, STR("e"), &seq, NULL), 0);
    assert_int_equal(seq, 4);
    assert_int_equal(store_put_if(s, STR("new"), STR("v"), STORE_ABSENT, &later, NULL), 0);
    assert_true(later > version);
}
