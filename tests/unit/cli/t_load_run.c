/* t_load_run.c - tests the load generator: packed traces, and the times that a client measures. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/http/http_server.h"
#include "cli/input_file.h"
#include "cli/load/load_run.h"
#include "cli/load/replay.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- packed traces read as their text; broken or endless ones are refused ---- */

#define SHIPPED "traces/azure-2023-conv.csv.zst"
#define BYTES ((size_t)8 << 20)

static char path[64];

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/t_load_run.%d", (int)getpid());
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

/* A damaged frame is refused, or unpacks to other text where the format cannot detect it. */
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
    assert_true(refused > tries / 2); /* the frame has zstd's checksum */
}

static void a_name_that_is_nowhere_is_told(void **state)
{
    (void)state;
    struct err err = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(trace_file_read("no-such-trace.csv", &text, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no-such-trace.csv"));
}

static int input_file_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped_traces_have_all_their_requests),
        cmocka_unit_test(a_plain_file_is_read_as_it_is),
        cmocka_unit_test(a_frame_cut_anywhere_is_refused),
        cmocka_unit_test(damage_does_no_harm),
        cmocka_unit_test(a_name_that_is_nowhere_is_told),
    };
    return cmocka_run_group_tests_name("input_file", tests, setup, teardown);
}

/* ---- replies end with the end token, which has no text; and what a client asks a router first
 * ---- */

#define END_TOKEN_US 60000 /* after the last text */
#define HANG_US 60000000

/* One reply: a token of text at once, its end token END_TOKEN_US later. */
struct fake {
    struct loop *loop;
    struct http_exchange *x;
    struct loop_timer end_token;
};

static void say(struct http_exchange *x, struct str events)
{
    assert_int_equal(http_stream_write(x, events.data, events.len), 0);
}

static void on_end_token(void *arg)
{
    struct fake *f = arg;
    say(f->x,
        STR("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\n"
            "data: [DONE]\n\n"));
    assert_int_equal(http_stream_end(f->x), 0);
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct fake *f = ctx;
    f->x = x;
    assert_int_equal(http_stream_begin(x, 200, STR("text/event-stream")), 0);
    say(x, STR("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"yes\"},"
               "\"finish_reason\":null}]}\n\n"));
    f->end_token = (struct loop_timer){ .fn = on_end_token, .arg = f };
    loop_timer_set(f->loop, &f->end_token, loop_now_us(f->loop) + END_TOKEN_US);
}

static int64_t due_at_once(void *arg, uint32_t index)
{
    (void)arg, (void)index;
    return 0;
}

static int message(void *arg, uint32_t index, struct buf *out)
{
    (void)arg, (void)index;
    return buf_str(out, STR("well?"));
}

static void an_end_token_takes_its_time(void **state)
{
    (void)state;
    struct fake f = { 0 };
    assert_int_equal(loop_new(&f.loop, NULL), 0);
    struct http_server_config server = { .host = "127.0.0.1", .on_request = on_request, .ctx = &f };
    struct http_server *s;
    assert_int_equal(http_server_new(f.loop, &server, &s, NULL), 0);
    struct load_config config = { .host = STR("127.0.0.1"),
                                  .port = http_server_port(s),
                                  .model = STR("m"),
                                  .max_tokens = 8,
                                  .timeout_us = HANG_US,
                                  .count = 1,
                                  .due_us = due_at_once,
                                  .message = message };
    struct load_run *run;
    assert_int_equal(load_run_new(f.loop, &config, &run, NULL), 0);
    assert_int_equal(load_run_start(run, NULL), 0);
    while (!load_run_done(run))
        assert_true(loop_turn(f.loop, HANG_US) >= 0);

    uint32_t samples;
    size_t gaps;
    const struct load_sample *one = load_run_samples(run, &samples);
    assert_int_equal(samples, 1);
    assert_int_equal(one->outcome, LOAD_OK);
    assert_int_equal(one->output_tokens, 2);
    assert_true(one->ttft_us > 0);
    assert_true(one->e2e_us - one->ttft_us >= END_TOKEN_US / 2);
    load_run_itl_s(run, &gaps);
    assert_int_equal(gaps, 0); /* a gap lies between two texts */
    load_run_free(run);
    http_server_free(s);
    loop_free(f.loop);
}

/* A router that has just started: no tokenizer in two calls, then one token for every two words. */
struct young {
    struct loop *loop;
    uint32_t asked;
};

static void on_tokenize(void *ctx, struct http_exchange *x)
{
    struct young *y = ctx;
    bool known = ++y->asked > 2;
    struct buf body = { 0 };
    buf_text(&body, known ? "{\"tokens\":[1" : "{}");
    for (uint32_t i = 1; known && i < 1024; i++)
        buf_text(&body, ",1");
    if (known) buf_text(&body, "]}");
    assert_int_equal(http_reply(x, known ? 200 : 503, STR("application/json"), buf_view(&body)), 0);
    buf_fini(&body);
}

static void *turn(void *arg)
{
    struct young *y = arg;
    loop_run(y->loop);
    return NULL;
}

static void a_young_router_is_asked_again(void **state)
{
    (void)state;
    struct young y = { 0 };
    assert_int_equal(loop_new(&y.loop, NULL), 0);
    struct http_server_config server = { .host = "127.0.0.1",
                                         .on_request = on_tokenize,
                                         .ctx = &y };
    struct http_server *s;
    pthread_t thread;
    assert_int_equal(http_server_new(y.loop, &server, &s, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, turn, &y), 0);
    double tokens_per_word = 0;
    struct err err = { 0 };
    const struct target at = { .host = STR("127.0.0.1"), .port = http_server_port(s) };
    int rc = replay_calibrate(&at, (struct str){ 0 }, (struct str){ 0 }, &tokens_per_word, &err);
    loop_stop(y.loop);
    pthread_join(thread, NULL);
    http_server_free(s);
    loop_free(y.loop);
    if (rc < 0) fail_msg("%s", err.text);
    assert_true(tokens_per_word == 0.5);
    assert_int_equal(y.asked, 3);
}

/* ---- prompts share the prefixes that the trace's requests share; reports are exact ---- */

static void replay_text(struct replay *r, uint32_t index, struct buf *out)
{
    buf_clear(out);
    assert_int_equal(replay_message(r, index, out), 0);
}

static size_t common(const struct buf *a, const struct buf *b)
{
    size_t n = 0;
    while (n < a->len && n < b->len && a->data[n] == b->data[n])
        n++;
    return n;
}

static void prompts_share_what_the_trace_shares(void **state)
{
    (void)state;
    uint64_t blocks[] = { 1, 2, 3, 4, 1, 2, 8, 9, 7 }; /* same, half the same, different */
    struct trace_request requests[] = {
        { .prompt_tokens = 2048, .block_first = 0, .block_count = 4 },
        { .prompt_tokens = 2048, .block_first = 4, .block_count = 4 },
        { .prompt_tokens = 2048, .block_first = 8, .block_count = 1 },
        { .prompt_tokens = 2048, .block_first = 0, .block_count = 4 },
    };
    struct trace trace = { .request = requests, .count = COUNT_OF(requests), .block = blocks };
    struct replay r = { .trace = &trace,
                        .count = trace.count,
                        .speed = 2,
                        .divide = 4,
                        .tokens_max = 100000,
                        .seed = 1,
                        .tokens_per_word = 1 };
    CLEANUP(buf_fini) struct buf a = { 0 };
    CLEANUP(buf_fini) struct buf b = { 0 };
    replay_text(&r, 0, &a);
    replay_text(&r, 0, &b);
    assert_true(a.len == b.len && common(&a, &b) == a.len); /* equal arguments give equal text */
    size_t quarter = a.len / 4;
    replay_text(&r, 1, &b);
    assert_true(common(&a, &b) > quarter && common(&a, &b) < 3 * quarter);
    replay_text(&r, 2, &b);
    assert_true(common(&a, &b) < quarter);
    replay_text(&r, 3, &b);
    assert_true(common(&a, &b) > 2 * quarter); /* equal blocks; each request has its own tail */

    r.divide = 512; /* blocks shrink to one token, and the text still ends */
    replay_text(&r, 0, &b);
    assert_true(b.len > 0 && b.len < quarter);
    r.divide = 4;

    r.seed = 2; /* another seed's text has no hits in a cache */
    replay_text(&r, 0, &b);
    assert_true(common(&a, &b) < 40);
    r.tokens_max = 64;
    replay_text(&r, 0, &b);
    assert_true(b.len < a.len / 3);
    assert_int_equal(r.cut, 1);
}

static void questions_are_there(void **state)
{
    (void)state;
    const char *first = prompt_question(0).data;
    uint64_t count = 0; /* until the questions repeat */
    do {
        struct str q = prompt_question(count++);
        assert_true(q.len > 2 && str_find(q, STR("\t")) == SIZE_MAX);
    } while (prompt_question(count).data != first);
    assert_true(count > 100 && count < 1024); /* at 1024 some would be left out */
}

static struct load_sample answered(double ttft_s, double e2e_s, uint32_t tokens, double predicted)
{
    return (struct load_sample){ .outcome = LOAD_OK,
                                 .ttft_us = (int64_t)(ttft_s * 1e6),
                                 .e2e_us = (int64_t)(e2e_s * 1e6),
                                 .output_tokens = tokens,
                                 .prompt_tokens = 100,
                                 .cached_tokens = 25,
                                 .predicted_p50 = predicted,
                                 .predicted_p90 = predicted * 2 };
}

static void reports_are_exact(void **state)
{
    (void)state;
    struct load_sample s[] = {
        answered(0.1, 1.0, 10, 8),  /* TPOT 0.1 */
        answered(0.2, 0.65, 10, 9), /* TPOT 0.05 */
        answered(3.0, 3.9, 10, 7),  /* TTFT misses the SLO */
        answered(0.4, 0.4, 1, 3),   /* one token: no TPOT to miss */
        { .outcome = LOAD_TIMED_OUT, .prompt_tokens = 0, .e2e_us = 5000000 },
    };
    static const float gaps[] = { 0.1f, 0.3f };
    struct load_slo slo = { 1.0, 0.2 };
    struct load_report r;
    assert_int_equal(load_report_make(s, COUNT_OF(s), NULL, NULL, gaps, 2, slo, &r), 0);
    assert_int_equal(r.sent, 5);
    assert_int_equal(r.ok, 4);
    assert_int_equal(r.failed_by[LOAD_TIMED_OUT], 1);
    assert_true(fabs(r.attainment - 3.0 / 5) < 1e-9); /* a failure is a miss */
    assert_true(fabs(r.duration_s - 5) < 1e-9);
    assert_true(fabs(r.goodput_rps - 3.0 / 5) < 1e-9);
    assert_true(fabs(r.ttft_s.mean - (0.1 + 0.2 + 3 + 0.4) / 4) < 1e-6);
    assert_true(fabs(r.ttft_s.p50 - 0.2) < 1e-6 && fabs(r.ttft_s.p99 - 3.0) < 1e-6);
    assert_true(fabs(r.tpot_s.p50 - 0.1) < 1e-6 && fabs(r.tpot_s.mean - 0.25 / 3) < 1e-6);
    assert_int_equal(r.cached_tokens, 100);
    /* Three pairs of output lengths differ, each a 10 and a 1, and the prediction orders all of
     * them rightly. */
    assert_true(fabs(r.concordance - 1) < 1e-9);
    assert_true(fabs(r.p90_coverage - 1) < 1e-9);
}

static int load_run_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_token_takes_its_time),
        cmocka_unit_test(a_young_router_is_asked_again),
        cmocka_unit_test(prompts_share_what_the_trace_shares),
        cmocka_unit_test(questions_are_there),
        cmocka_unit_test(reports_are_exact),
    };
    return cmocka_run_group_tests_name("load_run", tests, NULL, NULL);
}

int main(void)
{
    return input_file_tests() + load_run_tests();
}
