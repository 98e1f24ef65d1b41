/* streams.c - runs the clients and records their events. */
#include "tests/proc/faults/streams.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/http/http_client.h"
#include "base/io/loop/clock.h"
#include "base/wire/generate.h"
#include "base/wire/sse.h"
#include "tests/proc/rig/rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define PATH "/v1/completions"
#define ENGINE_PATH "/internal/generate"
#define EVENT_BYTES_MAX 65536
#define AGAIN_US 200000 /* a client's pause after a failure, before it asks again */

struct client {
    uint32_t number, request;  /* request: its current one, in the history */
    struct sse_reader events;  /* from a router */
    struct line_reader frames; /* from an engine */
    struct buf text, refusal;
    int status;
    bool done, error; /* the end has come; an error came within the stream */
    int64_t asked_us, last_us;
    struct loop_timer again;
};

static struct {
    struct streams_plan plan;
    struct streams_sum sum;
    struct history history;
    uint32_t requests;
    struct loop *loop;
    struct http_client *http;
    struct client *client;
    uint32_t asking;
    pthread_t thread;
    atomic_bool stop;
    atomic_ullong whole, begun;
} streams;

static uint32_t all_clients(void)
{
    return streams.plan.clients + streams.plan.direct_clients;
}

static bool is_direct(const struct client *c)
{
    return c->number >= streams.plan.clients;
}

static void question_body(uint32_t question, uint32_t tokens, struct buf *out)
{
    buf_printf(out,
               "{\"prompt\":\"%u of the king and the house\",\"max_tokens\":%u,\"stream\":true,"
               "\"ignore_eos\":true,\"temperature\":0}",
               question, tokens);
}

static void engine_body(uint32_t question, uint32_t tokens, struct buf *out)
{
    uint32_t ids[] = { question, 1, 2, 3 };
    struct generate_request g = { .id = STR("direct"),
                                  .ids = ids,
                                  .id_count = COUNT_OF(ids),
                                  .prompt_tokens = COUNT_OF(ids),
                                  .sampling = SAMPLING_DEFAULT,
                                  .max_tokens = tokens,
                                  .ignore_eos = true };
    must(generate_encode(&g, out) == 0);
}

/* Appends the text of an event or a frame, and sets *last if it is the last. Returns true if it is an
 * error. */
static bool event_text(struct str data, struct buf *out, bool *last)
{
    struct json_reader r;
    bool error = false;
    json_reader_init(&r, data);
    while (json_next(&r) != JSON_END && r.token != JSON_ERROR) {
        if (r.token != JSON_KEY) continue;
        error |= json_key_is(&r, "error");
        *last |= json_key_is(&r, "finish");
        if (!json_key_is(&r, "text")) continue;
        json_next(&r);
        must(json_text(&r, out) == 0);
    }
    return error || r.token == JSON_ERROR;
}

static int on_event(void *arg, struct str data)
{
    struct client *c = arg;
    int64_t now_us = loop_now_us(streams.loop);
    size_t before = c->text.len;
    if (str_eq(data, SSE_DONE)) {
        c->done = true;
        return 0;
    }
    c->error |= event_text(data, &c->text, &c->done);
    if (c->error) buf_str(&c->refusal, data);
    if (c->text.len == before) return 0;
    struct str piece = str_of(c->text.data + before, c->text.len - before);
    history_tokens(&streams.history, c->request, HISTORY_INDEX_UNKNOWN, 1, piece, now_us);
    int64_t wait_us = now_us - c->last_us;
    int64_t *longest = before ? &streams.sum.gap_us_max : &streams.sum.first_us_max;
    if (wait_us > *longest) *longest = wait_us;
    c->last_us = now_us;
    streams.begun += before == 0;
    if (streams.plan.on_text) streams.plan.on_text(piece, is_direct(c));
    return 0;
}

static void on_head(void *arg, const struct http_response *head)
{
    struct client *c = arg;
    c->status = head->status;
}

static void on_data(void *arg, struct str data)
{
    struct client *c = arg;
    if (c->status != 200)
        buf_str(&c->refusal, data);
    else if ((is_direct(c) ? line_reader_feed(&c->frames, data, on_event, c)
                           : sse_reader_feed(&c->events, data, on_event, c)) < 0)
        c->error = true;
}

static void remember(struct client *c, enum http_end end)
{
    streams.sum.broken += c->text.len > 0;
    streams.sum.failed += c->text.len == 0;
    if (streams.sum.error[0]) return;
    snprintf(streams.sum.error, sizeof streams.sum.error, "client %u: %s, %d %.*s\n%.*s", c->number,
             http_end_text(end), c->status, (int)(c->refusal.len < 200 ? c->refusal.len : 200),
             c->refusal.len ? c->refusal.data : "", (int)(c->text.len < 200 ? c->text.len : 200),
             c->text.len ? c->text.data : "");
}

static void ask(void *arg);

static void on_end(void *arg, enum http_end end)
{
    struct client *c = arg;
    bool whole = end == HTTP_END_OK && c->status == 200 && c->done && !c->error;
    history_over(&streams.history, c->request, whole ? HISTORY_FINISHED : HISTORY_ERROR,
                 loop_now_us(streams.loop));
    streams.whole += whole;
    if (!whole) remember(c, end);
    streams.asking--;
    if (streams.stop && streams.asking == 0) loop_stop(streams.loop);
    if (streams.stop) return;
    int64_t at_us = loop_now_us(streams.loop) + (whole ? 0 : AGAIN_US);
    must(loop_timer_set(streams.loop, &c->again, at_us) == 0);
}

static void ask(void *arg)
{
    struct client *c = arg;
    CLEANUP(buf_fini) struct buf body = { 0 };
    static const struct http_header headers[] = { { STR("content-type"),
                                                    STR("application/json") } };
    if (streams.stop) return;
    sse_reader_fini(&c->events);
    sse_reader_init(&c->events, EVENT_BYTES_MAX);
    line_reader_fini(&c->frames);
    line_reader_init(&c->frames, GENERATE_FRAME_BYTES_MAX);
    buf_clear(&c->text);
    buf_clear(&c->refusal);
    c->status = 0;
    c->done = c->error = false;
    c->last_us = loop_now_us(streams.loop);
    bool direct = is_direct(c);
    (direct ? engine_body : question_body)(c->number % streams.plan.questions, streams.plan.tokens,
                                           &body);
    c->request = streams.requests++;
    history_sent(&streams.history, c->request, HISTORY_KEY_NOT_ASKED, c->last_us);
    history_expects(&streams.history, c->request, 0,
                    str_from(streams.plan.expected[c->number % streams.plan.questions]));
    struct http_call_request req = { .host = STR("127.0.0.1"),
                                     .port = direct ? streams.plan.engine_port : streams.plan.port,
                                     .path = direct ? STR(ENGINE_PATH) : STR(PATH),
                                     .headers = headers,
                                     .header_count = COUNT_OF(headers),
                                     .body = buf_view(&body),
                                     .on_head = on_head,
                                     .on_data = on_data,
                                     .on_end = on_end,
                                     .arg = c };
    must(http_call_start(streams.http, &req, NULL));
    streams.asking++;
}

/* Ends the loop once the clients are to end and none of them has a request; called every AGAIN_US. */
static void on_look(void *arg)
{
    struct loop_timer *look = arg;
    if (streams.stop && streams.asking == 0) loop_stop(streams.loop);
    must(loop_timer_set(streams.loop, look, loop_now_us(streams.loop) + AGAIN_US) == 0);
}

static void *run(void *arg)
{
    struct http_client_config config = { .idle_per_host_max = STREAMS_CLIENTS_MAX };
    struct loop_timer look = { .fn = on_look, .arg = &look };
    (void)arg;
    must(loop_new(&streams.loop, NULL) == 0);
    must(http_client_new(streams.loop, &config, &streams.http, NULL) == 0);
    must(loop_timer_set(streams.loop, &look, 0) == 0);
    for (uint32_t i = 0; i < all_clients(); i++) {
        struct client *c = &streams.client[i];
        c->number = i;
        c->again = (struct loop_timer){ .fn = ask, .arg = c };
        int64_t late_us = streams.plan.spread_us * i / all_clients();
        must(loop_timer_set(streams.loop, &c->again, clock_mono_us() + late_us) == 0);
    }
    must(loop_run(streams.loop) == 0);
    for (uint32_t i = 0; i < all_clients(); i++)
        loop_timer_clear(streams.loop, &streams.client[i].again);
    loop_timer_clear(streams.loop, &look);
    http_client_free(streams.http);
    loop_free(streams.loop);
    return NULL;
}

void streams_start(const struct streams_plan *plan)
{
    assert_true(plan->clients + plan->direct_clients <= STREAMS_CLIENTS_MAX &&
                plan->questions <= STREAMS_QUESTIONS_MAX);
    streams.plan = *plan;
    streams.sum = (struct streams_sum){ 0 };
    streams.requests = 0;
    history_init(&streams.history, &streams.plan.limits);
    streams.asking = 0;
    streams.stop = false;
    streams.whole = streams.begun = 0;
    streams.client = calloc(all_clients(), sizeof *streams.client);
    assert_non_null(streams.client);
    assert_int_equal(pthread_create(&streams.thread, NULL, run, NULL), 0);
}

uint64_t streams_whole(void)
{
    return streams.whole;
}

uint64_t streams_begun(void)
{
    return streams.begun;
}

void streams_end(struct streams_sum *ret)
{
    streams.stop = true;
    pthread_join(streams.thread, NULL);
    for (uint32_t i = 0; i < all_clients(); i++) {
        sse_reader_fini(&streams.client[i].events);
        line_reader_fini(&streams.client[i].frames);
        buf_fini(&streams.client[i].text);
        buf_fini(&streams.client[i].refusal);
    }
    free(streams.client);
    streams.client = NULL;
    streams.sum.whole = streams.whole;
    const char *violation = history_judge(&streams.history, clock_mono_us());
    if (violation) snprintf(streams.sum.violation, sizeof streams.sum.violation, "%s", violation);
    history_fini(&streams.history);
    *ret = streams.sum;
}

static int gather(void *arg, struct str data)
{
    bool last = false;
    return str_eq(data, SSE_DONE) || !event_text(data, arg, &last) ? 0 : -EPROTO;
}

void streams_ask(uint16_t port, uint32_t question, uint32_t tokens, struct buf *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 }, reply = { 0 };
    CLEANUP(sse_reader_fini) struct sse_reader events = { 0 };
    question_body(question, tokens, &body);
    int status = rig_call(port, PATH, body.data, &reply);
    if (status != 200) fail_msg("%d %s", status, reply.len ? reply.data : "");
    sse_reader_init(&events, EVENT_BYTES_MAX);
    assert_int_equal(sse_reader_feed(&events, buf_view(&reply), gather, ret), 0);
    assert_true(ret->len > 0);
}
