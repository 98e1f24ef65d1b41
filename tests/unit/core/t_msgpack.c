/* t_msgpack.c - tests reading MessagePack: every form, every cut, counts that lie. */
#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/msgpack.h"
#include "tests/unit/unit.h"

#include <stdio.h>

#define BYTES(text)                  \
    {                                \
        "" text, sizeof("" text) - 1 \
    }

/* ---- forms ---- */

struct form {
    const char *why;
    struct str bytes;
    struct msgpack_item want;
};

static const struct form forms[] = {
    { "nil", BYTES("\xc0"), { .kind = MSGPACK_NIL } },
    { "false", BYTES("\xc2"), { .kind = MSGPACK_BOOL } },
    { "true", BYTES("\xc3"), { .kind = MSGPACK_BOOL, .truth = true } },
    { "least small number", BYTES("\x00"), { .kind = MSGPACK_UINT } },
    { "most small number", BYTES("\x7f"), { .kind = MSGPACK_UINT, .number = 127 } },
    { "least small negative", BYTES("\xe0"), { .kind = MSGPACK_INT, .negative = -32 } },
    { "most small negative", BYTES("\xff"), { .kind = MSGPACK_INT, .negative = -1 } },
    { "8 bits", BYTES("\xcc\xff"), { .kind = MSGPACK_UINT, .number = 255 } },
    { "16 bits", BYTES("\xcd\x01\x02"), { .kind = MSGPACK_UINT, .number = 0x102 } },
    { "32 bits", BYTES("\xce\x01\x02\x03\x04"), { .kind = MSGPACK_UINT, .number = 0x1020304 } },
    { "64 bits, as vLLM's hashes are",
      BYTES("\xcf\xff\xff\xff\xff\xff\xff\xff\xfe"),
      { .kind = MSGPACK_UINT, .number = UINT64_MAX - 1 } },
    { "signed 8 bits", BYTES("\xd0\x80"), { .kind = MSGPACK_INT, .negative = -128 } },
    { "signed and positive", BYTES("\xd0\x05"), { .kind = MSGPACK_UINT, .number = 5 } },
    { "signed 16 bits", BYTES("\xd1\xff\x00"), { .kind = MSGPACK_INT, .negative = -256 } },
    { "signed 32 bits",
      BYTES("\xd2\x80\x00\x00\x00"),
      { .kind = MSGPACK_INT, .negative = INT32_MIN } },
    { "signed 64 bits",
      BYTES("\xd3\x80\x00\x00\x00\x00\x00\x00\x00"),
      { .kind = MSGPACK_INT, .negative = INT64_MIN } },
    { "float", BYTES("\xca\x3f\xc0\x00\x00"), { .kind = MSGPACK_FLOAT, .real = 1.5 } },
    { "double",
      BYTES("\xcb\xbf\xf0\x00\x00\x00\x00\x00\x00"),
      { .kind = MSGPACK_FLOAT, .real = -1.0 } },
    { "short text", BYTES("\xa2hi"), { .kind = MSGPACK_STR, .bytes = { "hi", 2 } } },
    { "empty text", BYTES("\xa0"), { .kind = MSGPACK_STR } },
    { "text of 8 bits", BYTES("\xd9\x02hi"), { .kind = MSGPACK_STR, .bytes = { "hi", 2 } } },
    { "text of 16 bits", BYTES("\xda\x00\x02hi"), { .kind = MSGPACK_STR, .bytes = { "hi", 2 } } },
    { "text of 32 bits",
      BYTES("\xdb\x00\x00\x00\x02hi"),
      { .kind = MSGPACK_STR, .bytes = { "hi", 2 } } },
    { "bytes", BYTES("\xc4\x02\x00\x01"), { .kind = MSGPACK_BIN, .bytes = { "\x00\x01", 2 } } },
    { "extension", BYTES("\xd4\x05x"), { .kind = MSGPACK_EXT, .bytes = { "x", 1 } } },
    { "longer extension", BYTES("\xc7\x02\x05xy"), { .kind = MSGPACK_EXT, .bytes = { "xy", 2 } } },
    { "array", BYTES("\x92\x01\x02"), { .kind = MSGPACK_ARRAY, .count = 2 } },
    { "array of 16 bits", BYTES("\xdc\x00\x01\x01"), { .kind = MSGPACK_ARRAY, .count = 1 } },
    { "array of 32 bits",
      BYTES("\xdd\x00\x00\x00\x01\x01"),
      { .kind = MSGPACK_ARRAY, .count = 1 } },
    { "map", BYTES("\x81\x01\x02"), { .kind = MSGPACK_MAP, .count = 1 } },
    { "map of 16 bits", BYTES("\xde\x00\x01\x01\x02"), { .kind = MSGPACK_MAP, .count = 1 } },
    { "map of 32 bits",
      BYTES("\xdf\x00\x00\x00\x01\x01\x02"),
      { .kind = MSGPACK_MAP, .count = 1 } },
};

static void every_form_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        struct msgpack_reader r;
        struct msgpack_item it;
        const struct msgpack_item *want = &forms[i].want;
        msgpack_reader_init(&r, forms[i].bytes);
        if (msgpack_next(&r, &it) < 0) fail_msg("%s: refused", forms[i].why);
        bool same = it.kind == want->kind && it.truth == want->truth && it.number == want->number &&
                    it.negative == want->negative && it.real == want->real &&
                    it.count == want->count && str_eq(it.bytes, want->bytes);
        if (!same)
            fail_msg("%s: kind %d number %llu", forms[i].why, it.kind,
                     (unsigned long long)it.number);
        msgpack_reader_init(&r, forms[i].bytes);
        if (msgpack_skip(&r) < 0 || !msgpack_at_end(&r))
            fail_msg("%s: not skipped whole", forms[i].why);
    }
}

static void every_cut_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        for (size_t len = 0; len < forms[i].bytes.len; len++) {
            struct msgpack_reader r;
            msgpack_reader_init(&r, str_of(forms[i].bytes.data, len));
            if (msgpack_skip(&r) == 0) fail_msg("%s: read from %zu bytes", forms[i].why, len);
            struct msgpack_item it;
            assert_int_equal(msgpack_next(&r, &it), -EINVAL); /* sticky */
        }
    }
}

/* ---- counts ---- */

static void counts_that_lie_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        struct str bytes;
    } rows[] = {
        { "4 billion values in none", BYTES("\xdd\xff\xff\xff\xff") },
        { "4 billion pairs in none", BYTES("\xdf\xff\xff\xff\xff") },
        { "pairs take two bytes each", BYTES("\x82\x01\x02\x03") },
        { "4 GB of text in none", BYTES("\xdb\xff\xff\xff\xff") },
        { "a byte that is never used", BYTES("\xc1") },
        { "one value short, deep inside", BYTES("\x91\x91\x91\x92\x01") },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct msgpack_reader r;
        msgpack_reader_init(&r, rows[i].bytes);
        if (msgpack_skip(&r) == 0) fail_msg("%s: accepted", rows[i].why);
    }
}

static void deep_nesting_costs_no_stack(void **state)
{
    (void)state;
    static char deep[1 << 20];
    struct msgpack_reader r;
    memset(deep, 0x91, sizeof deep - 1); /* an array in an array in ... */
    deep[sizeof deep - 1] = 1;
    msgpack_reader_init(&r, str_of(deep, sizeof deep));
    assert_int_equal(msgpack_skip(&r), 0);
    assert_true(msgpack_at_end(&r));
}

static void raw_values_are_whole(void **state)
{
    (void)state;
    struct msgpack_reader r;
    struct msgpack_item head;
    struct str raw;
    msgpack_reader_init(&r, (struct str)BYTES("\x93\x92\x01\xa1x\xc0\x81\xa1k\x05"));
    assert_int_equal(msgpack_next(&r, &head), 0);
    assert_int_equal(head.count, 3);
    assert_int_equal(msgpack_raw(&r, &raw), 0);
    assert_true(str_eq(raw, (struct str)BYTES("\x92\x01\xa1x")));
    assert_int_equal(msgpack_raw(&r, &raw), 0);
    assert_int_equal(raw.len, 1);
    assert_int_equal(msgpack_raw(&r, &raw), 0);
    assert_true(str_eq(raw, (struct str)BYTES("\x81\xa1k\x05")));
    assert_true(msgpack_at_end(&r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_read),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(counts_that_lie_are_refused),
        cmocka_unit_test(deep_nesting_costs_no_stack),
        cmocka_unit_test(raw_values_are_whole),
    };
    return cmocka_run_group_tests_name("msgpack", tests, NULL, NULL);
}
