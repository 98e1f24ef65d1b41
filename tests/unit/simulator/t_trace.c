/* t_trace.c - traces are read line by line, refused lines are named, copies are superposed. */
#include "base/core/bits.h"
#include "simulator/trace.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define AZURE "TIMESTAMP,ContextTokens,GeneratedTokens\n"

static struct trace *parse(const char *text, enum trace_format format)
{
    struct trace *t = NULL;
    struct err err = { 0 };
    if (trace_parse(str_from(text), format, &t, &err) < 0) fail_msg("%s", err.text);
    return t;
}

static void mooncake_is_read(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t = parse("{\"timestamp\":500,\"input_length\":700,\"output_length\":5,"
                            "\"hash_ids\":[3,9]}\n"
                            "{\"timestamp\":3500,\"input_length\":10,\"output_length\":1,"
                            "\"hash_ids\":[3],\"later\":{}}\n",
                            TRACE_AUTO);
    assert_int_equal(t->count, 2);
    assert_int_equal(t->block_tokens, TRACE_MOONCAKE_BLOCK);
    assert_int_equal(t->request[0].at_us, 0); /* counted from the first */
    assert_int_equal(t->request[1].at_us, 3000000);
    assert_int_equal(t->request[0].block_count, 2);
    assert_int_equal(t->block[t->request[0].block_first + 1], 9);
    assert_int_equal(t->block[t->request[1].block_first], 3);
    assert_false(t->has_tenants || t->has_sessions);
}

static void azure_is_read(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t = parse("TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                            "2024-02-28 23:59:59.5000000,374,44\r\n"
                            "2024-02-29 00:00:01.2500000,396,109\r\n"
                            "2024-03-01 00:00:01.2500000,12,3\n",
                            TRACE_AUTO);
    assert_int_equal(t->count, 3);
    assert_int_equal(t->request[1].at_us, 1750000);
    assert_true(t->request[2].at_us == 1750000 + 86400LL * 1000000); /* a leap day between */
    assert_int_equal(t->request[1].prompt_tokens, 396);
    assert_int_equal(t->request[1].output_tokens, 109);
    assert_int_equal(t->request[0].block_count + t->block_tokens, 0);
}

static void azure_columns_go_by_name(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t = parse("GeneratedTokens,TIMESTAMP,Model,ContextTokens\n"
                            "44,2024-05-10 00:00:00.009930+00:00,x,374\n"
                            "109,2024-05-10 00:00:01.009930+00:00,y,396\n",
                            TRACE_AUTO);
    assert_int_equal(t->count, 2);
    assert_int_equal(t->request[1].at_us, 1000000);
    assert_int_equal(t->request[1].prompt_tokens, 396);
    assert_int_equal(t->request[1].output_tokens, 109);
}

static void texts_are_read(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t =
        parse("{\"timestamp\":0,\"input_length\":3,\"output_length\":5,\"prompt\":\"a\\nb\","
              "\"tenant\":2,\"session\":7,\"turn\":1,\"output_max\":64}\n\n"
              "{\"timestamp\":1.5,\"input_length\":3,\"output_length\":5,\"prompt\":\"xyz\"}\n",
              TRACE_AUTO);
    assert_int_equal(t->count, 2);
    assert_true(t->has_tenants && t->has_sessions);
    assert_int_equal(t->request[0].tenant, 2);
    assert_int_equal(t->request[0].session, 7);
    assert_int_equal(t->request[0].turn, 1);
    assert_int_equal(t->request[0].output_max, 64);
    assert_int_equal(t->request[1].at_us, 1500);
    assert_memory_equal(&t->text[t->request[0].text_first], "a\nb", 3);
    assert_memory_equal(&t->text[t->request[1].text_first], "xyz", 3);
    assert_int_equal(t->request[1].text_bytes, 3);
}

static void wrong_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum trace_format format;
        const char *says;
    } rows[] = {
        { "", TRACE_AUTO, "no requests" },
        { AZURE, TRACE_AUTO, "no requests" },
        { "2024-01-01 00:00:00,1,1\n", TRACE_AUTO,
          "line 1: not a trace: neither JSON lines, {...} each, nor Azure's CSV with the columns "
          "TIMESTAMP,ContextTokens,GeneratedTokens (TIMESTAMP is missing)" },
        { "2024-01-01 00:00:00,1,1\n", TRACE_AZURE,
          "line 1: not TIMESTAMP,ContextTokens,GeneratedTokens: no column TIMESTAMP" },
        { "[1, 2]\n", TRACE_AUTO, "line 1: not a trace" },
        { "\x01\x02 garbage", TRACE_AUTO, "line 1: not a trace" },
        { "{\"timestamp\":1,\"output_length\":1,\"hash_ids\":[]}\n", TRACE_AUTO,
          "line 1: input_length is missing" },
        { "{\"timestamp\":1,\"input_length\":1}\n", TRACE_AUTO,
          "line 1: output_length is missing" },
        { "{\"timestamp\":1,\"input_length\":0,\"output_length\":1}\n", TRACE_AUTO,
          "line 1: a request without prompt tokens" },
        { "{\"timestamp\":1,\"input_length\":1,\"input_length\":2}\n", TRACE_AUTO,
          "line 1: input_length is given twice" },
        { "{\"timestamp\":\"now\"}\n", TRACE_AUTO, "line 1: timestamp takes milliseconds from 0" },
        { "{\"timestamp\":1,\"hash_ids\":[1.5]}\n", TRACE_AUTO,
          "line 1: hash_ids takes a list of whole numbers" },
        { "{\"timestamp\":1,\"prompt\":5}\n", TRACE_AUTO, "line 1: prompt takes a text" },
        { "{\"timestamp\":1,\"input_length\":NaN}\n", TRACE_AUTO, "not a JSON value" },
        { "{\"timestamp\":9,\"input_length\":1,\"output_length\":1}\n"
          "{\"timestamp\":8,\"input_length\":1,\"output_length\":1}\n",
          TRACE_AUTO, "line 2: the time goes back: sort" },
        { "{\"timestamp\":8,\"input_length\":1,\"output_length\":1}\n"
          "{\"timestamp\":9,\"input_length\":1,\"output_length\":1}\n"
          "{\"timestamp\":8.5,\"input_length\":1,\"output_length\":1}\n",
          TRACE_AUTO, "line 3: the time goes back" },
        { "{\"timestamp\":9,\"input_length\":1,\"output_length\":1}\n{\"timestamp\":9,\"inp\n",
          TRACE_AUTO, "line 2: not a Mooncake record" },
        { "{\"timestamp\":9,\"input_length\":1,\"output_length\":1} {}\n", TRACE_AUTO,
          "line 1: not a Mooncake record" },
        { "{\"timestamp\":-4,\"input_length\":1}\n", TRACE_AUTO, "timestamp" },
        { "{\"input_length\":1}\n", TRACE_AUTO, "timestamp" },
        { "{\"timestamp\":4,\"input_length\":1,\"hash_ids\":[-1]}\n", TRACE_AUTO, "line 1: " },
        { "{\"timestamp\":4,\"input_length\":4294967296}\n", TRACE_AUTO,
          "line 1: input_length takes a whole number from 0 to 4294967295" },
        { "{\"timestamp\":4,\"input_length\":512,\"output_length\":1,\"hash_ids\":[1,2]}\n",
          TRACE_AUTO, "line 1: 2 blocks are more than 512 tokens fill" },
        { "{\"timestamp\":4,\"input_length\":1,\"output_length\":1}\n", TRACE_TEXT, "no prompt" },
        { "{\"timestamp\":4,\"input_length\":1,\"output_length\":1,\"prompt\":\"a\"}\n"
          "{\"timestamp\":4,\"input_length\":1,\"output_length\":1}\n",
          TRACE_AUTO, "line 2: no prompt" },
        { AZURE "2024-13-01 00:00:00,1,1\n", TRACE_AUTO,
          "line 2: TIMESTAMP takes a time such as 2023-11-16 18:15:46.68, not '2024-13-01 00" },
        { AZURE "2024-01-01 24:00:00,1,1\n", TRACE_AUTO, "line 2: TIMESTAMP takes" },
        { AZURE "2023-02-29 00:00:00,1,1\n", TRACE_AUTO, "line 2: TIMESTAMP takes" },
        { AZURE "2024-04-31 00:00:00,1,1\n", TRACE_AUTO, "line 2: TIMESTAMP takes" },
        { AZURE "2024-01-01 00:00:00,-7,1\n", TRACE_AUTO,
          "line 2: ContextTokens takes a whole number from 0 to 4294967295, not '-7'" },
        { AZURE "2024-01-01 00:00:00,1,nan\n", TRACE_AUTO, "line 2: GeneratedTokens takes" },
        { AZURE "2024-01-01 00:00:00,4294967296,1\n", TRACE_AUTO, "line 2: ContextTokens takes" },
        { AZURE "2024-01-01 00:00:00,1,1,1\n", TRACE_AUTO,
          "line 2: 4 fields, the first line names 3" },
        { AZURE "2024-01-01 00:00:00,1\n", TRACE_AUTO, "line 2: GeneratedTokens is missing" },
        { AZURE "2024-01-01 00:00:00,1,0\n", TRACE_AUTO, "line 2: a request without output" },
        { AZURE "2024-01-01 00:00:00,1,1\n", TRACE_MOONCAKE, "line 1: not a Mooncake" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct err err = { 0 };
        struct trace *t = NULL;
        int rc = trace_parse(str_from(rows[i].text), rows[i].format, &t, &err);
        if (rc != -EINVAL || t || !strstr(err.text, rows[i].says)) {
            fail_msg("row %zu: %d %s", i, rc, err.text);
        }
    }
}

/* Ten requests a second apart, in two sessions of two tenants, sharing block 1. */
static struct trace *ten(void)
{
    struct trace *t = NULL;
    assert_int_equal(trace_new(&t, NULL), 0);
    t->block_tokens = 16;
    for (uint32_t i = 0; i < 10; i++) {
        uint64_t blocks[] = { 1, 100 + i };
        struct trace_request r = { .at_us = i * 1000000,
                                   .prompt_tokens = 20 + i,
                                   .output_tokens = 5,
                                   .tenant = 1 + i % 2,
                                   .session = 1 + i % 2,
                                   .turn = 1 + i / 2,
                                   .block_count = 2 };
        assert_int_equal(trace_append(t, &r, blocks, STR("hi"), NULL), 0);
    }
    return t;
}

static void copies_are_superposed(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = ten();
    assert_int_equal(trace_shape(t, 0, 4, 1, NULL), 0);
    assert_int_equal(t->count, 40);
    assert_int_equal(t->block_tokens, 16);
    uint32_t tenants[9] = { 0 };
    uint64_t first_block[9] = { 0 };
    for (uint32_t i = 0; i < t->count; i++) {
        const struct trace_request *r = &t->request[i];
        /* A period of 10 s: shifts of 2.5 s, so two come at each half second. */
        assert_true(r->at_us == (int64_t)(i / 2) * 500000);
        assert_true(r->tenant >= 1 && r->tenant <= 8);
        tenants[r->tenant]++;
        /* Both tenants of a copy share its block 1, nobody else does. */
        uint64_t *seen = &first_block[(r->tenant - 1) / 2], block = t->block[r->block_first];
        if (*seen == 0) *seen = block;
        assert_true(*seen == block);
        assert_memory_equal(&t->text[r->text_first], "hi", 2);
    }
    for (uint32_t i = 1; i <= 8; i++)
        assert_int_equal(tenants[i], 5);
    assert_true(first_block[0] == 1); /* the first copy is the trace itself */
    for (uint32_t i = 1; i < 4; i++)
        assert_true(first_block[i] != first_block[i - 1]);
}

/* In every session of a superposition turns come in order. */
static void sessions_stay_in_order(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = ten();
    assert_int_equal(trace_shape(t, 0, 3, 1, NULL), 0);
    uint32_t turn[64] = { 0 };
    for (uint32_t i = 0; i < t->count; i++) {
        const struct trace_request *r = &t->request[i];
        assert_true(r->session < COUNT_OF(turn));
        assert_true(r->turn > turn[r->session]);
        turn[r->session] = r->turn;
    }
}

static void shapes_come_in_their_order(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = ten();
    assert_int_equal(trace_shape(t, 4, 2, 2, NULL), 0);
    assert_int_equal(t->count, 8); /* cut to 4, then doubled, then twice as fast */
    struct trace_stats stats;
    trace_stats_get(t, &stats);
    assert_true(fabs(stats.span_s - 1.5) < 1e-9); /* two at each half second */
    assert_true(fabs(stats.rate_s - 7 / 1.5) < 1e-9);
    assert_true(fabs(stats.prompt_mean - 21.5) < 1e-9);
    assert_true(fabs(stats.output_mean - t->request[0].output_tokens) < 1e-9);
    for (uint32_t i = 1; i < t->count; i++)
        assert_int_equal(t->request[i].output_tokens, t->request[0].output_tokens);

    struct err err = { 0 };
    assert_int_equal(trace_shape(t, 0, 0, 1, &err), -EINVAL);
    assert_int_equal(trace_shape(t, 0, TRACE_SCALE_MAX + 1, 1, &err), -EINVAL);
    assert_int_equal(trace_shape(t, 0, 1, 0, &err), -EINVAL);
    assert_int_equal(trace_shape(t, 0, 1, NAN, &err), -EINVAL);
}

/* A single request, copied: the period is 0 and all come at once. */
static void one_request_is_copied(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = parse(AZURE "2024-01-01 00:00:00,5,3\n", TRACE_AUTO);
    assert_int_equal(trace_shape(t, 0, 3, 1, NULL), 0);
    assert_int_equal(t->count, 3);
    assert_int_equal(t->request[2].at_us, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mooncake_is_read),         cmocka_unit_test(azure_is_read),
        cmocka_unit_test(azure_columns_go_by_name), cmocka_unit_test(texts_are_read),
        cmocka_unit_test(wrong_lines_are_named),    cmocka_unit_test(copies_are_superposed),
        cmocka_unit_test(sessions_stay_in_order),   cmocka_unit_test(shapes_come_in_their_order),
        cmocka_unit_test(one_request_is_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
