/* t_input_file.c - a packed trace reads as its text, and a broken or endless one is refused. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/input_file.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SHIPPED "traces/azure-2023-conv.csv.zst"
#define BYTES ((size_t)8 << 20)

static char path[64];

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/t_input_file.%d", (int)getpid());
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void write_file(const char *data, size_t len)
{
    assert_int_equal(file_write_atomic(path, (struct str){ data, len }, 0600, NULL), 0);
}

static int read_it(struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    return trace_file_read(path, &text, err);
}

static void shipped_traces_have_all_their_requests(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t count;
    } rows[] = { { SHIPPED, 19366 },
                 { "azure-2023-conv.csv", 19366 },
                 { "mooncake-conversation.jsonl", 12031 },
                 { "mooncake-conversation-4min.jsonl", 731 } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(trace_freep) struct trace *t = NULL;
        struct err err = { 0 };
        if (trace_file_load(rows[i].name, TRACE_AUTO, &t, &err) < 0) fail_msg("%s", err.text);
        if (t->count != rows[i].count) fail_msg("%s: %u requests", rows[i].name, t->count);
    }
}

static void a_plain_file_is_read_as_it_is(void **state)
{
    (void)state;
    static const char text[] = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
    CLEANUP(buf_fini) struct buf got = { 0 };
    write_file(text, sizeof text - 1);
    assert_int_equal(trace_file_read(path, &got, NULL), 0);
    assert_true(str_eq(buf_view(&got), str_from(text)));
    write_file("", 0);
    buf_clear(&got);
    assert_int_equal(trace_file_read(path, &got, NULL), 0);
    assert_int_equal(got.len, 0);
}

static void a_frame_cut_anywhere_is_refused(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf whole = { 0 };
    assert_int_equal(file_read(SHIPPED, BYTES, &whole, NULL), 0);
    for (size_t len = 4; len < whole.len; len += whole.len / 50) {
        struct err err = { 0 };
        write_file(whole.data, len);
        if (read_it(&err) != -EINVAL) fail_msg("cut at %zu: read", len);
        assert_non_null(strstr(err.text, "ends early"));
    }
}

/* A damaged frame is refused, or gives another text where nothing in it can tell. */
static void damage_does_no_harm(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf whole = { 0 };
    assert_int_equal(file_read(SHIPPED, BYTES, &whole, NULL), 0);
    uint32_t refused = 0, tries = 0;
    for (size_t at = 4; at < whole.len; at += whole.len / 60, tries++) {
        whole.data[at] ^= 0x55;
        write_file(whole.data, whole.len);
        int rc = read_it(NULL);
        assert_true(rc == 0 || rc == -EINVAL || rc == -EFBIG);
        refused += rc < 0;
        whole.data[at] ^= 0x55;
    }
    assert_true(refused > tries / 2); /* zstd's checksum is in the frame */
}

static void a_name_that_is_nowhere_is_told(void **state)
{
    (void)state;
    struct err err = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(trace_file_read("no-such-trace.csv", &text, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no-such-trace.csv"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped_traces_have_all_their_requests),
        cmocka_unit_test(a_plain_file_is_read_as_it_is),
        cmocka_unit_test(a_frame_cut_anywhere_is_refused),
        cmocka_unit_test(damage_does_no_harm),
        cmocka_unit_test(a_name_that_is_nowhere_is_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
