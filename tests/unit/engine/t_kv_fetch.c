/* t_kv_fetch.c - tests the life of a fetch beside its device: cancelled at each stage, refused, out
 * of memory or of time, and an engine that ends meanwhile. The peer is a server on the same
 * loop. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/own.h"
#include "base/io/http/http_server.h"
#include "base/io/loop/clock.h"
#include "engine/serve/kv_fetch.h"
#include "tests/unit/engine/tiny_model.h"
#include "tests/unit/io/auth_rig.h"

#include <stdio.h>
#include <unistd.h>

#define WAIT_US 60000000
#define DIGEST "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define TOKENS 64
#define SECRET "the fleet's"
#define TICKET "ticket/0000000000001267/999999999999999/74/i-owner/i-reader"

struct rig {
    struct auth_rig auth; /* must be first: auth_rig.h */
    struct loop *loop;
    struct device *device;
    struct engine_metrics metrics;
    const struct device_info *info;
    struct kv_fetches *fetches;
    struct http_server *peer;
    struct http_exchange *open; /* a request that the peer holds */
    bool silent;                /* the peer holds requests */
    uint32_t misfit;            /* which part of the peer's head is another's; 0: none */
    uint32_t asked, pages;      /* requests to the peer; pages in its replies */
    uint32_t ended, tokens, pulled;
    int fd;
};

static void on_ready(void *arg, const struct device_info *info)
{
    ((struct rig *)arg)->info = info;
}

static void on_failed(void *arg, const char *sentence)
{
    (void)arg;
    fail_msg("%s", sentence);
}

static void on_mail(void *arg, struct job *job)
{
    (void)arg, (void)job;
}

static void on_blocks(void *arg)
{
    (void)arg;
}

static void peer_left(void *arg, enum http_abort why)
{
    (void)why;
    ((struct rig *)arg)->open = NULL;
}

enum { OTHER_TYPE = 1, OTHER_LAYERS, OTHER_HEADS, OTHER_SIZE, LATENT, MISFITS };

/* Says that the pages are laid out as those of another engine of the model. */
static void change_head(uint32_t misfit, struct kv_head *head)
{
    const struct kv_head ours = *head;
    head->kv_type = misfit == OTHER_TYPE ? ours.kv_type + 1 : ours.kv_type;
    head->layers += misfit == OTHER_LAYERS;
    head->kv_heads += misfit == OTHER_HEADS;
    head->head_dim += misfit == OTHER_SIZE ? 16 : 0;
    if (misfit == LATENT) /* as model.c names the layout */
        snprintf(head->numerics, sizeof head->numerics, "%.40s-latent", ours.numerics);
}

/* Replies with pages of zeros, because no engine computes with them. */
static void peer_answers(void *ctx, struct http_exchange *x)
{
    struct rig *r = ctx;
    CLEANUP(arena_fini) struct arena arena = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct kv_read_request req;
    struct kv_head head;
    uint8_t bytes[KV_HEAD_BYTES];
    arena_init(&arena, 1 << 20);
    const struct http_request *http = http_exchange_request(x);
    assert_true(str_eq(auth_gate_id(http), STR(TICKET)));
    assert_int_equal(kv_read_request_decode(http->body, &arena, &req, NULL), 0);
    r->asked++;
    if (r->silent) {
        r->open = x;
        http_exchange_watch(x, peer_left, NULL, r);
        return;
    }
    kv_head_of(r->info, STR(DIGEST), req.from, r->pages * r->info->page_tokens, &head);
    change_head(r->misfit, &head);
    kv_head_encode(&head, bytes);
    buf_append(&out, bytes, sizeof bytes);
    for (size_t i = r->pages * kv_page_bytes(&r->info->kv); i > 0; i--)
        buf_byte(&out, 0);
    http_reply(x, 200, STR("application/octet-stream"), buf_view(&out));
}

static void turn(struct rig *r)
{
    assert_int_equal(loop_turn(r->loop, 2000), 0);
}

static void rig_open(struct rig *r)
{
    struct err err = { "" };
    char path[64];
    *r = (struct rig){ .pages = TOKENS / 16 };
    r->fd = tiny_model_path(TINY_CONTEXT, path);
    struct device_config config = {
        .model_path = str_from(path),
        .sched = { .page_tokens = 16,
                   .seqs_max = 2,
                   .batch_tokens_max = 64,
                   .waiting_max = 4,
                   .events_max = DEVICE_EVENTS_MAX,
                   .prefix_cache = true },
        .threads = 1,
    };
    const struct device_events events = { on_ready, on_failed, on_mail, on_blocks, r };
    auth_rig_init(&r->auth, STR(SECRET));
    assert_int_equal(loop_new(&r->loop, &err), 0);
    assert_int_equal(engine_metrics_init(&r->metrics, &err), 0);
    const struct http_server_config server = { .host = "127.0.0.1",
                                               .on_head = auth_rig_on_head,
                                               .on_request = peer_answers,
                                               .on_reply = auth_rig_on_reply,
                                               .ctx = r };
    assert_int_equal(http_server_new(r->loop, &server, &r->peer, &err), 0);
    const struct kv_fetches_config fetches = { r->loop, &r->metrics, &r->auth.held, NULL };
    assert_int_equal(kv_fetches_new(&fetches, &r->fetches, &err), 0);
    assert_int_equal(device_new(r->loop, &config, &r->metrics, &events, &r->device, &err), 0);
    for (int64_t until = clock_mono_us() + WAIT_US; !r->info && clock_mono_us() < until;)
        turn(r);
    assert_non_null(r->info);
    kv_fetches_set_device(r->fetches, r->device, r->info, STR(DIGEST));
}

/* Closes in the order in which an engine ends. */
static void rig_close(struct rig *r)
{
    kv_fetches_close(r->fetches);
    device_free(r->device);
    kv_fetches_free(r->fetches);
    http_server_free(r->peer);
    auth_rig_fini(&r->auth);
    loop_free(r->loop);
    engine_metrics_fini(&r->metrics);
    close(r->fd);
}

static void on_end(void *arg, uint32_t tokens, uint32_t pulled)
{
    struct rig *r = arg;
    r->ended++;
    r->tokens = tokens;
    r->pulled = pulled;
}

static int start(struct rig *r, uint32_t first, int64_t deadline_us, struct kv_fetch **ret)
{
    uint32_t ids[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = 6 + (first + i) % 200;
    struct auth_key key;
    char key_hex[2 * AUTH_KEY_BYTES + 1];
    assert_int_equal(credentials_key(&r->auth.held, STR(TICKET), &key), 0);
    hex_from(key.byte, sizeof key.byte, key_hex);
    const struct kv_fetch_ask ask = {
        .ticket = STR(TICKET),
        .key = str_from(key_hex),
        .ids = ids,
        .id_count = TOKENS,
        .key_seed = 3,
        .tenant = STR("t"),
        .salt = block_salt(3, STR(DIGEST), (struct str){ 0 }, STR("t")),
        .host = STR("127.0.0.1"),
        .port = http_server_port(r->peer),
        .deadline_us = deadline_us,
        .on_end = on_end,
        .arg = r,
    };
    return kv_fetch_start(r->fetches, &ask, ret);
}

static double ended_as(struct rig *r, enum kv_fetch_end end)
{
    struct str label = str_from(kv_fetch_end_names[end]);
    return metric_value(metric_series(r->metrics.metrics, EM_KV_FETCHES, &label));
}

static void until_ended(struct rig *r, uint32_t times)
{
    for (int64_t until = clock_mono_us() + WAIT_US; r->ended < times && clock_mono_us() < until;)
        turn(r);
    assert_int_equal(r->ended, times);
}

static void until_asked(struct rig *r, uint32_t times)
{
    for (int64_t until = clock_mono_us() + WAIT_US; r->asked < times && clock_mono_us() < until;)
        turn(r);
    assert_int_equal(r->asked, times);
}

/* Waits for the count of cached pages, which the device reports after its step, perhaps after the
 * fetch's end is known. */
static void until_cached(struct rig *r, uint32_t pages)
{
    struct device_stats s = { 0 };
    for (int64_t until = clock_mono_us() + WAIT_US; clock_mono_us() < until;) {
        device_stats_get(r->device, &s);
        assert_int_equal(s.pages_held, 0);
        if (s.pages_cached == pages) return;
        turn(r);
    }
    fail_msg("%u pages are cached, not %u", s.pages_cached, pages);
}

static void t_a_fetch_from_end_to_end(void **state)
{
    (void)state;
    struct rig r;
    struct kv_fetch *p;
    rig_open(&r);
    assert_int_equal(start(&r, 1, 0, &p), 0);
    assert_int_equal(r.ended, 0); /* never within the call */
    until_ended(&r, 1);
    assert_true(r.tokens == TOKENS && r.pulled == TOKENS && r.asked == 1);
    until_cached(&r, TOKENS / 16);
    /* All pages are cached now: the peer is not asked. */
    assert_int_equal(start(&r, 1, 0, &p), 0);
    until_ended(&r, 2);
    assert_true(r.tokens == TOKENS && r.pulled == 0 && r.asked == 1);
    assert_true(ended_as(&r, KV_FETCH_WHOLE) == 2);
    /* The peer sends one page, then none. */
    r.pages = 1;
    assert_int_equal(start(&r, 100, 0, &p), 0);
    until_ended(&r, 3);
    assert_true(r.tokens == 16 && r.pulled == 16 && r.asked == 2);
    assert_true(ended_as(&r, KV_FETCH_DRY) == 1);
    r.pages = 0;
    assert_int_equal(start(&r, 100, 0, &p), 0);
    until_ended(&r, 4);
    assert_true(r.tokens == 16 && r.pulled == 0);
    assert_true(metric_value(engine_metric(&r.metrics, EM_KV_FETCHED)) == TOKENS + 16);
    rig_close(&r);
}

/* A peer with the same weights may keep K and V in another way: a latent vector, or what an older version kept. */
static void t_pages_of_another_layout_are_refused(void **state)
{
    (void)state;
    struct rig r;
    struct kv_fetch *p;
    rig_open(&r);
    for (r.misfit = 1; r.misfit < MISFITS; r.misfit++) {
        assert_int_equal(start(&r, 1, 0, &p), 0);
        until_ended(&r, r.misfit);
        assert_true(r.tokens == 0 && r.pulled == 0);
        assert_true(ended_as(&r, KV_FETCH_MISFIT) == r.misfit);
    }
    r.misfit = 0;
    assert_int_equal(start(&r, 1, 0, &p), 0);
    until_ended(&r, MISFITS);
    assert_int_equal(r.pulled, TOKENS);
    rig_close(&r);
}

static void t_cancelled_at_each_stage(void **state)
{
    (void)state;
    struct rig r;
    struct kv_fetch *p;
    rig_open(&r);
    kv_fetch_cancel(NULL);
    /* Cancelled while the device looks. */
    assert_int_equal(start(&r, 1, 0, &p), 0);
    kv_fetch_cancel(p);
    /* The next fetch passes the device after the cancelled one, which is freed by then. */
    assert_int_equal(start(&r, 2, 0, &p), 0);
    until_ended(&r, 1);
    assert_int_equal(r.asked, 1);
    assert_true(ended_as(&r, KV_FETCH_LEFT) == 1);
    /* Cancelled while the peer holds the request: the peer sees the connection close. */
    r.silent = true;
    assert_int_equal(start(&r, 3, 0, &p), 0);
    until_asked(&r, 2);
    assert_non_null(r.open);
    kv_fetch_cancel(p);
    for (int64_t until = clock_mono_us() + WAIT_US; r.open && clock_mono_us() < until;)
        turn(&r);
    assert_null(r.open);
    assert_true(ended_as(&r, KV_FETCH_LEFT) == 2);
    assert_int_equal(r.ended, 1);
    /* Cancelled in any turn, a fetch never reports an end and never keeps a page. */
    r.silent = false;
    for (uint32_t turns = 0; turns < 12; turns++) {
        uint32_t before = r.ended;
        assert_int_equal(start(&r, 10 + turns, 0, &p), 0);
        for (uint32_t i = 0; i < turns && r.ended == before; i++)
            turn(&r);
        if (r.ended > before) continue; /* too late: it has ended */
        kv_fetch_cancel(p);
        assert_int_equal(start(&r, 60 + turns, 0, &p), 0);
        until_ended(&r, before + 1);
    }
    struct device_stats s;
    device_stats_get(r.device, &s);
    assert_int_equal(s.pages_held, 0);
    rig_close(&r);
}

/* The engine ends while the device and the peer have fetches. */
static void t_the_end_of_an_engine(void **state)
{
    (void)state;
    struct rig r;
    struct kv_fetch *p;
    rig_open(&r);
    r.silent = true;
    assert_int_equal(start(&r, 1, 0, &p), 0);
    until_asked(&r, 1);
    assert_int_equal(start(&r, 2, 0, &p), 0);
    assert_int_equal(start(&r, 3, 0, &p), 0);
    kv_fetch_cancel(p); /* cancelled, but the device still has it */
    rig_close(&r);
    assert_int_equal(r.ended, 0);
}

static void t_bounds_and_memory(void **state)
{
    (void)state;
    struct rig r;
    struct kv_fetch *p, *many[KV_FETCHES_MAX];
    rig_open(&r);
    const char *const points[] = { "kv_fetch.start", "kv_prefix.init" };
    for (size_t i = 0; i < COUNT_OF(points); i++) {
        fault_arm(points[i], 1);
        assert_int_equal(start(&r, 1, 0, &p), -ENOMEM);
        fault_disarm();
    }
    assert_true(ended_as(&r, KV_FETCH_BUSY) == 2);
    fault_arm("kv_fetch.answer", 1);
    assert_int_equal(start(&r, 1, 0, &p), 0);
    until_ended(&r, 1);
    fault_disarm();
    assert_true(r.tokens == 0 && r.pulled == 0 && ended_as(&r, KV_FETCH_FAILED) == 1);
    /* The deadline passes before the peer is asked. */
    uint32_t asked = r.asked;
    assert_int_equal(start(&r, 1, 1, &p), 0);
    until_ended(&r, 2);
    assert_true(r.asked == asked && ended_as(&r, KV_FETCH_LATE) == 1);
    r.silent = true;
    for (uint32_t i = 0; i < KV_FETCHES_MAX; i++)
        assert_int_equal(start(&r, 1 + i, 0, &many[i]), 0);
    assert_int_equal(start(&r, 90, 0, &p), -EAGAIN);
    assert_true(ended_as(&r, KV_FETCH_BUSY) == 3);
    until_asked(&r, asked + KV_FETCHES_MAX);
    kv_fetch_cancel(many[3]);
    assert_int_equal(start(&r, 91, 0, &p), 0); /* the cancelled one's place is free */
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_a_fetch_from_end_to_end),
        cmocka_unit_test(t_pages_of_another_layout_are_refused),
        cmocka_unit_test(t_cancelled_at_each_stage),
        cmocka_unit_test(t_the_end_of_an_engine),
        cmocka_unit_test(t_bounds_and_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
