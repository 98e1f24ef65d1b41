/* t_trace.c - tests traces: reading, copying, generating. */
#include "base/core/bits.h"
#include "simulator/generate.h"
#include "simulator/trace.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading line by line, refused lines with their number, superposed copies ---- */

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
    assert_true(t->request[2].at_us == 1750000 + 86400LL * 1000000); /* a leap day lies between */
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

/* Makes ten requests a second apart, in two sessions of two tenants, sharing block 1. */
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
        /* The period is 10 s and shifts are 2.5 s, so two requests come at each half second. */
        assert_true(r->at_us == (int64_t)(i / 2) * 500000);
        assert_true(r->tenant >= 1 && r->tenant <= 8);
        tenants[r->tenant]++;
        /* Only the two tenants of a copy share its block 1. */
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

/* In a superposition the turns of each session stay in order. */
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

/* Copies of a single request all come at once, because its period is 0. */
static void one_request_is_copied(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = parse(AZURE "2024-01-01 00:00:00,5,3\n", TRACE_AUTO);
    assert_int_equal(trace_shape(t, 0, 3, 1, NULL), 0);
    assert_int_equal(t->count, 3);
    assert_int_equal(t->request[2].at_us, 0);
}

static int trace_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mooncake_is_read),         cmocka_unit_test(azure_is_read),
        cmocka_unit_test(azure_columns_go_by_name), cmocka_unit_test(texts_are_read),
        cmocka_unit_test(wrong_lines_are_named),    cmocka_unit_test(copies_are_superposed),
        cmocka_unit_test(sessions_stay_in_order),   cmocka_unit_test(shapes_come_in_their_order),
        cmocka_unit_test(one_request_is_copied),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}

/* ---- generated traces have the requested rate, lengths and sharing ---- */

static struct trace *make(const char *text, uint64_t seed)
{
    struct generate_spec spec;
    struct err err = { 0 };
    struct trace *t = NULL;
    if (generate_parse(str_from(text), &spec, &err) < 0) fail_msg("%s: %s", text, err.text);
    if (generate_trace(&spec, seed, &t, &err) < 0) fail_msg("%s: %s", text, err.text);
    return t;
}

static void near(double value, double want, double share, const char *what)
{
    if (fabs(value - want) > share * want) fail_msg("%s: %g, want %g", what, value, want);
}

/* Returns the squared coefficient of variation of the output lengths. */
static double output_scv(const struct trace *t)
{
    double sum = 0, square = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        double output = t->request[i].output_tokens;
        sum += output;
        square += output * output;
    }
    return square * t->count / (sum * sum) - 1;
}

static void poisson_and_lognormal_have_their_moments(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t =
        make("poisson,rate=0.5,prompt=lognormal(64,1),output=lognormal(150,2.3),n=50000", 1);
    struct trace_stats s;
    trace_stats_get(t, &s);
    assert_int_equal(t->count, 50000);
    near(s.rate_s, 0.5, 0.02, "rate");
    near(s.prompt_mean, 64, 0.03, "prompt");
    near(s.output_mean, 150, 0.03, "output");
    near(output_scv(t), 2.3, 0.2, "C2");
    assert_int_equal(t->block_tokens, 0); /* nothing is shared, so there are no blocks */
}

/* Returns the squared coefficient of variation of the gaps. */
static double gap_scv(const struct trace *t)
{
    double sum = 0, square = 0, n = t->count - 1;
    for (uint32_t i = 1; i < t->count; i++) {
        double gap = (double)(t->request[i].at_us - t->request[i - 1].at_us);
        sum += gap;
        square += gap * gap;
    }
    return square / n / (sum / n * sum / n) - 1;
}

static void spacings_have_their_variation(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double scv;
    } rows[] = {
        { "poisson,rate=100,prompt=1,output=1,n=100000", 1 },
        { "gamma,cv=3,rate=100,prompt=1,output=1,n=100000", 9 },
        { "gamma,cv=0.5,rate=100,prompt=1,output=1,n=100000", 0.25 },
        { "gamma,rate=100,prompt=1,output=1,n=100000", 1 }, /* cv 1 is Poisson */
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(trace_freep) struct trace *t = make(rows[i].text, 2);
        near(gap_scv(t), rows[i].scv, 0.08, rows[i].text);
    }
    CLEANUP(trace_freep) struct trace *t = make("constant,rate=4,prompt=1,output=1,n=9", 2);
    for (uint32_t i = 0; i < t->count; i++)
        assert_int_equal(t->request[i].at_us, i * 250000);
}

static uint32_t count_between(const struct trace *t, double from_s, double to_s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        double at_s = (double)t->request[i].at_us * 1e-6;
        n += at_s >= from_s && at_s < to_s;
    }
    return n;
}

static void schedules_are_followed(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t = make("constant,rate=steps(2:330,0:60,4:360),prompt=1,output=1", 3);
    assert_int_equal(count_between(t, 0, 330), 660);
    assert_int_equal(count_between(t, 330, 390), 0);
    assert_int_equal(count_between(t, 390, 750), 1440);
    assert_int_equal(t->count, 2100); /* the trace ends with its schedule */

    CLEANUP(trace_freep)
    struct trace *burst =
        make("poisson,rate=bursts(1,50,60,6),prompt=1,output=1,duration=60000", 3);
    struct trace_stats s;
    trace_stats_get(burst, &s);
    near(s.rate_s, (60 * 1 + 6 * 50) / 66.0, 0.1, "mean rate of bursts");
    assert_true(gap_scv(burst) > 3);
}

static void lengths_keep_their_bounds(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t =
        make("constant,rate=1,prompt=normal(4000,300,3500,4500),output=uniform(900,1100),"
             "output_max=1000,n=5000",
             4);
    uint32_t at_bound = 0;
    double sum = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct trace_request *r = &t->request[i];
        assert_true(r->prompt_tokens >= 3500 && r->prompt_tokens <= 4500);
        assert_true(r->output_tokens >= 900 && r->output_tokens <= 1000);
        assert_int_equal(r->output_max, 1000);
        at_bound += r->prompt_tokens == 4500;
        sum += r->prompt_tokens;
    }
    near(sum / t->count, 4000, 0.01, "mean");
    assert_true(at_bound > 150 && at_bound < 350); /* 4.8 % lie beyond it and are clipped */
}

static void tenants_have_their_shares(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t = make("poisson,rate=1,prompt=1,output=1,n=40000,tenants=4,heavy=7", 5);
    uint32_t sent[5] = { 0 };
    for (uint32_t i = 0; i < t->count; i++)
        sent[t->request[i].tenant]++;
    assert_int_equal(sent[0], 0);
    near(sent[1], 28000, 0.03, "the heavy one");
    near(sent[4], 4000, 0.1, "a light one");

    CLEANUP(trace_freep)
    struct trace *zipf =
        make("poisson,rate=1,prompt=1,output=1,n=40000,tenants=3,zipf=1,services=2", 5);
    memset(sent, 0, sizeof sent);
    uint32_t second = 0;
    for (uint32_t i = 0; i < zipf->count; i++) {
        assert_true(zipf->request[i].service < 2);
        second += zipf->request[i].service;
        sent[zipf->request[i].tenant]++;
    }
    near(second, 20000, 0.03, "one of two services");
    near(sent[1] / (double)sent[3], 3, 0.1, "1 to 1/3");
}

static uint32_t common_blocks(const struct trace *t, uint32_t a, uint32_t b)
{
    const struct trace_request *x = &t->request[a], *y = &t->request[b];
    uint32_t n = 0;
    while (n < x->block_count && n < y->block_count &&
           t->block[x->block_first + n] == t->block[y->block_first + n])
        n++;
    return n;
}

static void conversations_grow_and_share(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t =
        make("poisson,rate=0.2,prompt=50,output=30,turns=4,think=lognormal(60,1),n=2000,"
             "system=100,systems=2,block=16",
             6);
    uint32_t last[2001] = { 0 }, checked = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct trace_request *r = &t->request[i];
        assert_true(r->session > 0 && r->session <= 2000 && r->turn >= 1 && r->turn <= 4);
        assert_int_equal(r->prompt_tokens, 100 + 50 + 80 * (r->turn - 1));
        assert_int_equal(r->block_count, ceil_div_u32(r->prompt_tokens, 16));
        uint32_t *before = &last[r->session];
        if (r->turn == 1) {
            assert_int_equal(*before, 0);
        } else {
            /* A turn repeats all whole blocks of the one before, but not its partial block. */
            assert_int_equal(t->request[*before - 1].turn, r->turn - 1);
            uint32_t whole = t->request[*before - 1].prompt_tokens / 16;
            assert_int_equal(common_blocks(t, *before - 1, i), whole);
            checked++;
        }
        *before = i + 1;
    }
    assert_true(checked > 1000);
    /* A request begins with one of two prefixes, of 100 / 16 whole blocks. */
    uint64_t first = t->block[t->request[0].block_first];
    uint32_t alike = 0;
    for (uint32_t i = 1; i < t->count; i++) {
        const struct trace_request *r = &t->request[i];
        if (r->session == t->request[0].session) continue;
        bool same = t->block[r->block_first] == first;
        assert_int_equal(common_blocks(t, 0, i), same ? 6 : 0);
        alike += same;
    }
    near(alike, t->count / 2.0, 0.1, "the first's prefix");
}

static void purposes_have_their_streams(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *a =
        make("poisson,rate=1,prompt=lognormal(64,1),output=lognormal(9,1),n=500,tenants=9", 7);
    CLEANUP(trace_freep)
    struct trace *same =
        make("poisson,rate=1,prompt=lognormal(64,1),output=lognormal(9,1),n=500,tenants=9", 7);
    CLEANUP(trace_freep)
    struct trace *faster =
        make("poisson,rate=2,prompt=lognormal(64,1),output=lognormal(9,1),n=500,tenants=9", 7);
    CLEANUP(trace_freep)
    struct trace *other =
        make("poisson,rate=1,prompt=lognormal(64,1),output=lognormal(9,1),n=500,tenants=9", 8);
    assert_memory_equal(a->request, same->request, a->count * sizeof *a->request);
    uint32_t differs = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct trace_request *x = &a->request[i], *y = &faster->request[i];
        assert_true(x->prompt_tokens == y->prompt_tokens && x->output_tokens == y->output_tokens);
        assert_true(x->tenant == y->tenant && llabs(x->at_us - 2 * y->at_us) <= 2);
        differs += other->request[i].prompt_tokens != x->prompt_tokens;
    }
    assert_true(differs > 400);
}

/* Turns without pauses, and turns beside new conversations, are in order to the microsecond. */
static void conversations_without_pauses_keep_the_order(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *alone = make("poisson,rate=1,n=50,output=5,prompt=5,turns=10000,think=0", 1);
    assert_int_equal(alone->count, 50);
    assert_true(alone->request[49].at_us == alone->request[0].at_us); /* one conversation */
    CLEANUP(trace_freep)
    struct trace *many =
        make("poisson,rate=3,n=20000,output=5,prompt=5,turns=4,think=uniform(0,0.3)", 2);
    assert_int_equal(many->count, 20000);
    for (uint32_t i = 1; i < many->count; i++)
        assert_true(many->request[i].at_us >= many->request[i - 1].at_us);
}

/* A trace longer than a year is refused; where only generating shows its length, once a year is
 * over. */
static void longer_than_a_year_is_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "poisson,rate=steps(0.0001:1e9),prompt=1,output=1",
        "poisson,rate=bursts(1e-7,1e-7,10000,10000),n=5,prompt=1,output=1",
        "poisson,rate=1e-6,n=1000,turns=100,think=1e6,prompt=1,output=1",
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct generate_spec spec;
        struct trace *t = NULL;
        struct err err = { 0 };
        assert_int_equal(generate_parse(str_from(rows[i]), &spec, &err), 0);
        int rc = generate_trace(&spec, 1, &t, &err);
        if (rc != -EINVAL || !strstr(err.text, "366 days"))
            fail_msg("%s: %d %s", rows[i], rc, err.text);
    }
    CLEANUP(trace_freep)
    struct trace *cut = make("poisson,rate=1,duration=9,turns=9,think=1e6,prompt=1,output=1", 1);
    assert_true(cut->count > 0); /* a duration ends a trace by itself */
}

static void wrong_sentences_are_explained(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "", "arrivals are poisson, constant or gamma" },
        { "posson,rate=1", "'posson': arrivals are" },
        { "poisson", "needs rate=" },
        { "poisson,rate=1,prompt=1,output=1", "needs n= or duration=" },
        { "poisson,rate=bursts(1,2,3,4),prompt=1,output=1", "needs n= or duration=" },
        { "poisson,rate=1,n=1,output=1", "needs prompt= and output=" },
        { "poisson,rate=1,promt=1", "did you mean 'prompt'?" },
        { "poisson,rate=0,n=1", "rate=0: takes" },
        { "poisson,rate=steps(2),n=1", "steps(RATE:SECONDS,...)" },
        { "poisson,rate=bursts(1,2),n=1", "rate=bursts(1,2): takes" },
        { "poisson,rate=bursts(0,1e-9,1,1),n=1", "fewer than 0.001 arrivals a cycle" },
        { "poisson,rate=1,n=1.5", "n=1.5: takes a whole number in 1..4000000" },
        { "poisson,rate=1,n=1e9", "n=1e9" },
        { "poisson,rate=1,prompt=lognorm(1,2)", "did you mean 'lognormal'?" },
        { "poisson,rate=1,prompt=lognormal(1)", "takes lognormal(MEAN,C2), C2 from" },
        { "poisson,rate=1,prompt=lognormal(9,1e300)",
          "takes lognormal(MEAN,C2), C2 from 0 to 1000" },
        { "poisson,rate=1,prompt=lognormal(9,1",
          "takes NUMBER from 0, lognormal(MEAN,C2), normal" },
        { "poisson,rate=1,prompt=normal(1000,1,1,5)", "MIN <= MEAN <= MAX" },
        { "poisson,rate=1,n=5,n=6,prompt=1,output=1", "n= is given twice" },
        { "poisson,rate=1,n=5,rate=2,prompt=1,output=1", "rate= is given twice" },
        { "poisson,rate=steps(1e9:5),n=1", "takes steps(" },
        { "poisson,rate=bursts(1,1e9,5,5),n=1", "): takes" },
        { "poisson,rate=1,prompt=normal(1,1,5,2)", "takes normal(MEAN,SD,MIN,MAX)" },
        { "poisson,rate=1,prompt=0", "its mean is out of range" },
        { "poisson,rate=1,prompt=", "takes NUMBER" },
        { "poisson,rate=1,n", "KEY=VALUE" },
        { "poisson,rate=1,n=1,prompt=1,output=1,", "'': a generated trace is said as KEY=VALUE" },
        { "poisson,rate=1,prompt=1,output=1,n=1,zipf=1", "need tenants=" },
        { "poisson,rate=1,prompt=1,output=1,n=1,cv=2", "goes with gamma" },
        { "poisson,rate=1,prompt=1,output=1,n=1,turns=2", "go together" },
        { "poisson,rate=1,prompt=1,output=1,n=1,systems=2", "needs system=" },
        { "poisson,rate=1e-7,prompt=1,output=1,n=5", "rate=1e-07: n=5 of them take 579 days" },
        { "poisson,rate=1,prompt=1,output=1,duration=1e9", "takes a number in 0.001..31622400" },
        { "poisson,rate=1,prompt=1,output=1,n=1,system=64,context=64", "does not fit" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct err err = { 0 };
        struct generate_spec spec;
        int rc = generate_parse(str_from(rows[i].text), &spec, &err);
        if (rc != -EINVAL || !strstr(err.text, rows[i].says)) {
            fail_msg("%s: %d %s", rows[i].text, rc, err.text);
        }
    }
    struct generate_spec spec;
    struct trace *t = NULL;
    assert_int_equal(generate_parse(STR("poisson,rate=steps(0:5),prompt=1,output=1"), &spec, NULL),
                     0);
    assert_int_equal(generate_trace(&spec, 1, &t, NULL), -EINVAL); /* no arrivals */
}

static int trace_generate_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(poisson_and_lognormal_have_their_moments),
        cmocka_unit_test(spacings_have_their_variation),
        cmocka_unit_test(schedules_are_followed),
        cmocka_unit_test(lengths_keep_their_bounds),
        cmocka_unit_test(tenants_have_their_shares),
        cmocka_unit_test(conversations_grow_and_share),
        cmocka_unit_test(purposes_have_their_streams),
        cmocka_unit_test(conversations_without_pauses_keep_the_order),
        cmocka_unit_test(longer_than_a_year_is_refused),
        cmocka_unit_test(wrong_sentences_are_explained),
    };
    return cmocka_run_group_tests_name("trace_generate", tests, NULL, NULL);
}

int main(void)
{
    return trace_tests() + trace_generate_tests();
}
