/* t_load_run.c - what a client measures of an answer: its end is the end token's, which has no text;
 * and what it asks of a router before. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/http/http_server.h"
#include "cli/load/load_report.h"
#include "cli/load/load_run.h"
#include "cli/load/replay.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define END_TOKEN_US 60000 /* after the last text */
#define HANG_US 60000000

/* One answer: a token of text at once, its end token END_TOKEN_US later. */
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
    assert_int_equal(gaps, 0); /* a gap is between two texts */
    load_run_free(run);
    http_server_free(s);
    loop_free(f.loop);
}

/* A router that has just come up: twice no tokenizer, then a token for each of two words. */
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
    int rc = replay_calibrate(&at, (struct str){ 0 }, &tokens_per_word, &err);
    loop_stop(y.loop);
    pthread_join(thread, NULL);
    http_server_free(s);
    loop_free(y.loop);
    if (rc < 0) fail_msg("%s", err.text);
    assert_true(tokens_per_word == 0.5);
    assert_int_equal(y.asked, 3);
}

/* Prompts share what the trace shares, reports are exact. */

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
    uint64_t blocks[] = { 1, 2, 3, 4, 1, 2, 8, 9, 7 }; /* same, half the same, apart */
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
    assert_true(a.len == b.len && common(&a, &b) == a.len); /* a function of its arguments */
    size_t quarter = a.len / 4;
    replay_text(&r, 1, &b);
    assert_true(common(&a, &b) > quarter && common(&a, &b) < 3 * quarter);
    replay_text(&r, 2, &b);
    assert_true(common(&a, &b) < quarter);
    replay_text(&r, 3, &b);
    assert_true(common(&a, &b) > 2 * quarter); /* equal blocks; the tail is each request's own */

    r.divide = 512; /* blocks of one token still come to an end */
    replay_text(&r, 0, &b);
    assert_true(b.len > 0 && b.len < quarter);
    r.divide = 4;

    r.seed = 2; /* nothing of another seed's text is found in a cache */
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
    uint64_t count = 0; /* until they come round */
    do {
        struct str q = prompt_question(count++);
        assert_true(q.len > 2 && str_find(q, STR("\t")) == SIZE_MAX);
    } while (prompt_question(count).data != first);
    assert_true(count > 100 && count < 1024); /* at the bound some would be left out */
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
    /* Pairs of different length: (10, 1) three times, all ordered rightly. */
    assert_true(fabs(r.concordance - 1) < 1e-9);
    assert_true(fabs(r.p90_coverage - 1) < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_token_takes_its_time),
        cmocka_unit_test(a_young_router_is_asked_again),
        cmocka_unit_test(prompts_share_what_the_trace_shares),
        cmocka_unit_test(questions_are_there),
        cmocka_unit_test(reports_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
