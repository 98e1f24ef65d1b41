/* t_base64.c - tests base64 by the vectors of RFC 4648 and by round trips, and that no text has two readings. */
#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>

static void vectors(void **state)
{
    (void)state;
    static const struct {
        struct str bytes;
        const char *text, *url;
    } rows[] = {
        { STR(""), "", "" },
        { STR("f"), "Zg==", "Zg" },
        { STR("fo"), "Zm8=", "Zm8" },
        { STR("foo"), "Zm9v", "Zm9v" },
        { STR("foob"), "Zm9vYg==", "Zm9vYg" },
        { STR("foobar"), "Zm9vYmFy", "Zm9vYmFy" },
        { STR("\xfb\xff\xfe"), "+//+", "-__-" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        CLEANUP(buf_fini) struct buf url = { 0 };
        CLEANUP(buf_fini) struct buf back = { 0 };
        assert_int_equal(base64_put(&text, rows[i].bytes), 0);
        assert_int_equal(base64_put_url(&url, rows[i].bytes), 0);
        assert_true(str_eq(buf_view(&text), str_from(rows[i].text)));
        assert_true(str_eq(buf_view(&url), str_from(rows[i].url)));
        assert_int_equal(base64_take(&back, buf_view(&text)), 0);
        assert_int_equal(base64_take(&back, buf_view(&url)), 0);
        assert_int_equal(back.len, 2 * rows[i].bytes.len);
    }
}

static void what_is_none(void **state)
{
    (void)state;
    static const char *const rows[] = { "Z",    "Zg=",   "Zg===", "Zg==Zg==", "Zh==",
                                        "Zm9=", "Zm 9v", "Zm9v=", "====",     "Zm9v\x01" };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        if (base64_take(&out, str_from(rows[i])) != -EINVAL) fail_msg("'%s' was taken", rows[i]);
    }
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(base64_take(&out, STR("Zm9v\nYmFy\r\n")), 0); /* lines are folded */
    assert_true(str_eq(buf_view(&out), STR("foobar")));
}

static void any_bytes_come_back(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 3);
    for (int n = 0; n < 5000; n++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        CLEANUP(buf_fini) struct buf back = { 0 };
        char bytes[64];
        size_t len = rng_below(&rng, sizeof bytes);
        for (size_t i = 0; i < len; i++)
            bytes[i] = (char)rng_below(&rng, 256);
        int rc = n % 2 ? base64_put(&text, str_of(bytes, len))
                       : base64_put_url(&text, str_of(bytes, len));
        assert_int_equal(rc, 0);
        assert_int_equal(base64_take(&back, buf_view(&text)), 0);
        assert_true(str_eq(buf_view(&back), str_of(bytes, len)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors),
        cmocka_unit_test(what_is_none),
        cmocka_unit_test(any_bytes_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
