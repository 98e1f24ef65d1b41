/* t_load_run.c - what a client measures of an answer: its end is the end token's, which has no text;
 * and what it asks of a router before. */
#include "base/core/own.h"
#include "base/io/http/http_server.h"
#include "cli/load/load_run.h"
#include "cli/load/replay.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_token_takes_its_time),
        cmocka_unit_test(a_young_router_is_asked_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
