/* t_prefix_index.c - tests the prefix index, and the KV events that fill it. */
#include "base/core/bits.h"
#include "base/io/http/http_server.h"
#include "base/io/loop/clock.h"
#include "router/blocks.h"
#include "router/core/prefix_index.h"
#include "router/request.h"
#include "tests/unit/io/auth_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- the index against a naive model, its bound, and its expected entries ---- */

#define SLOTS 256

static struct block_key key_of(uint64_t n)
{
    uint8_t seed[8];
    memcpy(seed, &n, sizeof n);
    struct hash128 h = hash128(seed, sizeof seed, 7);
    return (struct block_key){ h.lo, h.hi };
}

static void run_stops_at_the_first_gap(void **state)
{
    (void)state;
    struct prefix_index *ix = NULL;
    assert_int_equal(prefix_index_new(1 << 20, SLOTS, &ix, NULL), 0);
    struct block_key keys[4] = { key_of(1), key_of(2), key_of(3), key_of(4) };
    for (uint32_t i = 0; i < 4; i++)
        prefix_index_add(ix, 9, keys[i]);
    prefix_index_add(ix, 200, keys[0]);
    prefix_index_add(ix, 200, keys[2]); /* unreachable without block 1 */
    uint32_t blocks[SLOTS];
    prefix_index_match(ix, keys, 4, 0, blocks);
    assert_int_equal(blocks[9], 4);
    assert_int_equal(blocks[200], 1);
    assert_int_equal(blocks[0], 0);

    prefix_index_drop(ix, 9, keys[1]);
    prefix_index_match(ix, keys, 4, 0, blocks);
    assert_int_equal(blocks[9], 1);

    prefix_index_drop_slot(ix, 9);
    prefix_index_match(ix, keys, 4, 0, blocks);
    assert_int_equal(blocks[9], 0);
    assert_int_equal(blocks[200], 1);
    prefix_index_free(ix);
}

static void expectation_ends_unless_confirmed(void **state)
{
    (void)state;
    struct prefix_index *ix = NULL;
    assert_int_equal(prefix_index_new(1 << 20, SLOTS, &ix, NULL), 0);
    struct block_key keys[2] = { key_of(1), key_of(2) };
    uint32_t blocks[SLOTS];
    prefix_index_expect(ix, 3, keys, 2, 0, 1000);
    prefix_index_match(ix, keys, 2, 999, blocks);
    assert_int_equal(blocks[3], 2);
    prefix_index_add(ix, 3, keys[0]);
    prefix_index_match(ix, keys, 2, 1000, blocks);
    assert_int_equal(blocks[3], 1);
    /* Expecting the blocks at another slot does not revive it. */
    prefix_index_expect(ix, 4, keys, 2, 1000, 2000);
    prefix_index_match(ix, keys, 2, 1500, blocks);
    assert_int_equal(blocks[3], 1);
    assert_int_equal(blocks[4], 2);
    prefix_index_free(ix);
}

static void bound_forgets_the_oldest(void **state)
{
    (void)state;
    struct prefix_index *ix = NULL;
    assert_int_equal(prefix_index_new(64 << 10, SLOTS, &ix, NULL), 0);
    struct prefix_index_stats st;
    prefix_index_stats(ix, &st);
    assert_true(st.bytes <= 64 << 10);
    uint32_t blocks[SLOTS];
    struct block_key first = key_of(0);
    for (uint64_t n = 0; n < 3 * (uint64_t)st.blocks_max; n++) {
        prefix_index_add(ix, 1, key_of(n));
        prefix_index_match(ix, &first, 1, 0, blocks); /* block 0 stays recently used */
        assert_int_equal(blocks[1], 1);
    }
    struct prefix_index_stats after;
    prefix_index_stats(ix, &after);
    assert_int_equal(after.blocks, st.blocks_max);
    assert_int_equal(after.bytes, st.bytes);
    assert_int_equal(after.evicted, 2 * (uint64_t)st.blocks_max);
    struct block_key old = key_of(1);
    prefix_index_match(ix, &old, 1, 0, blocks);
    assert_int_equal(blocks[1], 0);
    prefix_index_free(ix);
}

enum { MODEL_KEYS = 300, MODEL_SLOTS = 5 };

/* Compares the index with a naive table, over MODEL_SLOTS of its `slots` slots, from first to
 * last. */
static void compare_with_table(uint32_t slots, uint32_t steps)
{
    struct prefix_index *ix = NULL;
    const uint32_t apart = (slots - 1) / (MODEL_SLOTS - 1);
    assert_int_equal(prefix_index_new(4 << 20, slots, &ix, NULL), 0);
    static uint32_t blocks[ROUTE_INSTANCES_MAX];
    static bool holds[MODEL_SLOTS][MODEL_KEYS];
    memset(holds, 0, sizeof holds);
    struct rng rng;
    rng_seed(&rng, 42);
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t slot = (uint32_t)rng_below(&rng, MODEL_SLOTS);
        uint64_t n = rng_below(&rng, MODEL_KEYS);
        uint64_t what = rng_below(&rng, 100);
        if (what < 55) {
            prefix_index_add(ix, slot * apart, key_of(n));
            holds[slot][n] = true;
        } else if (what < 99) {
            prefix_index_drop(ix, slot * apart, key_of(n));
            holds[slot][n] = false;
        } else {
            prefix_index_drop_slot(ix, slot * apart);
            memset(holds[slot], 0, sizeof holds[slot]);
        }
        struct block_key chain[8];
        uint64_t from = rng_below(&rng, MODEL_KEYS - 8);
        for (uint32_t i = 0; i < 8; i++)
            chain[i] = key_of(from + i);
        prefix_index_match(ix, chain, 8, 0, blocks);
        for (uint32_t s = 0; s < MODEL_SLOTS; s++) {
            uint32_t run = 0;
            while (run < 8 && holds[s][from + run])
                run++;
            assert_int_equal(blocks[s * apart], run);
        }
    }
    prefix_index_free(ix);
}

static void random_operations_agree_with_a_naive_table(void **state)
{
    (void)state;
    compare_with_table(5, 10000);
    compare_with_table(64, 10000);
    compare_with_table(65, 10000);
    compare_with_table(SLOTS, 50000);
    compare_with_table(ROUTE_INSTANCES_MAX, 10000);
}

/* A wider index in the same bytes keeps the most recently used blocks, with their holders and
 * expectations. */
static void a_wider_index_keeps_the_youngest(void **state)
{
    (void)state;
    enum { FEW = 64, MANY = 1024 };
    struct prefix_index *ix = NULL;
    assert_int_equal(prefix_index_new(64 << 10, FEW, &ix, NULL), 0);
    struct prefix_index_stats narrow, wide;
    prefix_index_stats(ix, &narrow);
    for (uint64_t n = 0; n < narrow.blocks_max; n++)
        prefix_index_add(ix, (uint32_t)n % FEW, key_of(n));
    struct block_key last = key_of(narrow.blocks_max - 1), first = key_of(0);
    prefix_index_expect(ix, 5, &last, 1, 0, 1000);
    assert_int_equal(prefix_index_widen(ix, FEW), 0); /* wide enough */
    prefix_index_stats(ix, &wide);
    assert_int_equal(wide.blocks, narrow.blocks_max);
    assert_int_equal(prefix_index_widen(ix, MANY - 100), 0);
    prefix_index_stats(ix, &wide);
    assert_true(wide.bytes <= 64 << 10);
    assert_true(wide.blocks == wide.blocks_max && wide.blocks < narrow.blocks_max);
    assert_int_equal(wide.evicted, narrow.blocks_max - wide.blocks);
    static uint32_t blocks[MANY];
    prefix_index_match(ix, &last, 1, 500, blocks);
    assert_int_equal(blocks[(narrow.blocks_max - 1) % FEW], 1);
    assert_int_equal(blocks[5], 1);
    prefix_index_match(ix, &last, 1, 1500, blocks);
    assert_int_equal(blocks[5], (narrow.blocks_max - 1) % FEW == 5);
    prefix_index_match(ix, &first, 1, 0, blocks);
    for (uint32_t s = 0; s < MANY; s++)
        assert_int_equal(blocks[s], 0);
    /* The order of use is kept too: the next evicted is the oldest that stayed. */
    struct block_key oldest = key_of(narrow.blocks_max - wide.blocks);
    prefix_index_match(ix, &oldest, 1, 0, blocks);
    assert_int_equal(blocks[(narrow.blocks_max - wide.blocks) % FEW], 1);
    prefix_index_add(ix, MANY - 1, first);
    prefix_index_match(ix, &first, 1, 0, blocks);
    assert_int_equal(blocks[MANY - 1], 1);
    struct block_key second = key_of(narrow.blocks_max - wide.blocks + 1);
    prefix_index_match(ix, &second, 1, 0, blocks);
    assert_int_equal(blocks[(narrow.blocks_max - wide.blocks + 1) % FEW], 0);
    prefix_index_free(ix);
}

static int prefix_index_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_stops_at_the_first_gap),
        cmocka_unit_test(expectation_ends_unless_confirmed),
        cmocka_unit_test(bound_forgets_the_oldest),
        cmocka_unit_test(a_wider_index_keeps_the_youngest),
        cmocka_unit_test(random_operations_agree_with_a_naive_table),
    };
    return cmocka_run_group_tests_name("prefix_index", tests, NULL, NULL);
}

/* ---- an engine's KV events over a real connection into the prefix index ---- */

#define WAIT_US 60000000
#define SLOT 3
#define KEYS 4

/* An engine that sends the events the test tells it to. */
struct engine {
    struct auth_rig auth; /* must be first: auth_rig.h */
    struct fleet_link link;
    struct signer *signer;
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    struct prefix_index *index;
    struct block_feed *feed;
    struct http_exchange *x; /* the open stream */
    uint32_t connects;
    struct block_key key[KEYS];
};

static void on_abort(void *arg, enum http_abort why)
{
    (void)why;
    ((struct engine *)arg)->x = NULL;
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct engine *e = ctx;
    e->connects++;
    assert_true(str_eq(http_exchange_request(x)->path, STR("/internal/events")));
    http_exchange_watch(x, on_abort, NULL, e);
    assert_int_equal(http_stream_begin(x, 200, STR("application/x-ndjson")), 0);
    e->x = x;
}

static void start(struct engine *e)
{
    *e = (struct engine){ 0 };
    struct http_server_config config = { .host = "127.0.0.1",
                                         .on_head = auth_rig_on_head,
                                         .on_request = on_request,
                                         .on_reply = auth_rig_on_reply,
                                         .ctx = e };
    for (uint64_t i = 0; i < KEYS; i++)
        e->key[i] = (struct block_key){ .lo = 11 * i + 1, .hi = 7 * i + 5 };
    assert_int_equal(loop_new(&e->loop, NULL), 0);
    assert_int_equal(http_server_new(e->loop, &config, &e->server, NULL), 0);
    assert_int_equal(http_client_new(e->loop, NULL, &e->client, NULL), 0);
    auth_rig_init(&e->auth, STR("secret"));
    assert_int_equal(fleet_link_init(&e->link, (struct str){ 0 }, false, clock_mono_us(), NULL), 0);
    credentials_of_secret(STR("secret"), &e->link.held);
    assert_int_equal(fleet_link_signer(&e->link, e->loop, e->client, &e->signer, NULL), 0);
    assert_int_equal(prefix_index_new(1 << 20, DISPATCH_ENDPOINTS, &e->index, NULL), 0);
    struct target target = { .instance = "i",
                             .host = "127.0.0.1",
                             .port = http_server_port(e->server) };
    e->feed = block_feed_new(e->loop, e->signer, e->index, SLOT, &target, &e->link);
    assert_non_null(e->feed);
}

static void stop(struct engine *e)
{
    block_feed_free(e->feed);
    http_client_free(e->client);
    http_server_free(e->server);
    signer_free(e->signer);
    fleet_link_fini(&e->link);
    auth_rig_fini(&e->auth);
    prefix_index_free(e->index);
    loop_free(e->loop);
}

static void wait_connects(struct engine *e, uint32_t count)
{
    int64_t until_us = clock_mono_us() + WAIT_US;
    while (e->connects < count || !e->x) {
        assert_true(clock_mono_us() < until_us);
        assert_int_equal(loop_turn(e->loop, 10000), 0);
    }
}

static void say(struct engine *e, const struct block_event *ev)
{
    struct buf line = { 0 };
    assert_int_equal(block_event_encode(ev, &line), 0);
    assert_int_equal(http_stream_write(e->x, line.data, line.len), 0);
    buf_fini(&line);
}

static void hello_with(struct engine *e, uint64_t boot, uint32_t block_tokens, struct str secret)
{
    char salt[BLOCK_KEY_HEX + 1];
    struct str none = { 0 };
    block_key_hex(block_salt(block_seed(secret), STR("digest"), none, none), salt);
    say(e, &(struct block_event){ .kind = EVENT_HELLO,
                                  .seq = 5,
                                  .boot = boot,
                                  .block_tokens = block_tokens,
                                  .page_tokens = 2 * BLOCK_TOKENS,
                                  .digest = STR("digest"),
                                  .salt_check = str_from(salt) });
}

static void hello(struct engine *e, uint64_t boot)
{
    hello_with(e, boot, BLOCK_TOKENS, STR("secret"));
}

static void change(struct engine *e, enum event_kind kind, uint64_t seq, uint32_t from, uint32_t n)
{
    say(e,
        &(struct block_event){ .kind = kind, .seq = seq, .keys = &e->key[from], .key_count = n });
}

static uint32_t held(struct engine *e)
{
    static uint32_t blocks[DISPATCH_ENDPOINTS];
    prefix_index_match(e->index, e->key, KEYS, 1, blocks);
    return blocks[SLOT];
}

static void wait_held(struct engine *e, uint32_t want, const char *why)
{
    int64_t until_us = clock_mono_us() + WAIT_US;
    while (held(e) != want) {
        if (clock_mono_us() > until_us) fail_msg("%s: %u blocks", why, held(e));
        assert_int_equal(loop_turn(e->loop, 10000), 0);
    }
}

static void events_reach_the_index(void **state)
{
    (void)state;
    struct engine e;
    start(&e);
    wait_connects(&e, 1);
    hello(&e, 77);
    change(&e, EVENT_SNAPSHOT, 5, 0, 2);
    wait_held(&e, 2, "a snapshot");
    change(&e, EVENT_ADD, 6, 2, 2);
    wait_held(&e, 4, "an addition");
    change(&e, EVENT_DROP, 7, 1, 1);
    wait_held(&e, 1, "a drop in the middle");
    assert_int_equal(http_stream_write(e.x, "\n", 1), 0);
    change(&e, EVENT_ADD, 8, 1, 1);
    wait_held(&e, 4, "an addition behind an empty line");
    assert_int_equal(e.connects, 1);
    stop(&e);
}

struct kept {
    struct reported_load load;
    uint32_t count;
};

static void keep_load(void *arg, uint32_t slot, const struct reported_load *load)
{
    struct kept *kept = arg;
    assert_int_equal(slot, SLOT);
    kept->load = *load;
    kept->count++;
}

static void loads_are_heard_by_those_who_ask(void **state)
{
    (void)state;
    struct engine e;
    struct kept kept = { 0 };
    int64_t told_us;
    start(&e);
    assert_null(block_feed_load(e.feed, &told_us));
    block_feed_on_load(e.feed, keep_load, &kept);
    wait_connects(&e, 1);
    assert_true(str_ends(http_exchange_request(e.x)->query, STR("&load=1")));
    hello(&e, 77);
    change(&e, EVENT_SNAPSHOT, 5, 0, 2);
    wait_held(&e, 2, "a snapshot");
    const struct reported_load *none = block_feed_load(e.feed, &told_us);
    assert_non_null(none); /* it sent no block, so it has none */
    assert_int_equal(none->running, 0);
    say(&e, &(struct block_event){ .kind = EVENT_LOAD,
                                   .seq = 5,
                                   .running = 3,
                                   .waiting = 2,
                                   .prefill_tokens = 900,
                                   .kv_tokens = 4000,
                                   .head_pages = 12,
                                   .uncached_total = 77777 });
    int64_t until_us = clock_mono_us() + WAIT_US;
    while (kept.count == 0) {
        assert_true(clock_mono_us() < until_us);
        assert_int_equal(loop_turn(e.loop, 10000), 0);
    }
    assert_int_equal(kept.load.running, 3);
    assert_int_equal(kept.load.waiting, 2);
    assert_int_equal(kept.load.prefill_tokens, 900);
    assert_int_equal(kept.load.kv_tokens, 4000);
    assert_int_equal(kept.load.head_pages, 12);
    assert_int_equal(kept.load.uncached_total, 77777);
    assert_int_equal(block_feed_load(e.feed, &told_us)->kv_tokens, 4000);
    change(&e, EVENT_ADD, 6, 2, 1); /* it has no number, so no gap */
    wait_held(&e, 3, "an addition behind a load");
    assert_int_equal(e.connects, 1);
    stop(&e);
}

static void what_cannot_be_followed_is_forgotten_and_begun_anew(void **state)
{
    (void)state;
    enum trouble { GAP, NONSENSE, BLOCK_SIZE, SEED, END };
    static const char *const why[] = { "a gap", "nonsense", "another block size", "another seed",
                                       "an end" };
    for (int t = GAP; t <= END; t++) {
        struct engine e;
        start(&e);
        wait_connects(&e, 1);
        hello(&e, 77);
        change(&e, EVENT_SNAPSHOT, 5, 0, 3);
        wait_held(&e, 3, "a snapshot");
        if (t == GAP) change(&e, EVENT_ADD, 7, 3, 1);
        if (t == NONSENSE) assert_int_equal(http_stream_write(e.x, "{]\n", 3), 0);
        if (t == BLOCK_SIZE) hello_with(&e, 77, 2 * BLOCK_TOKENS, STR("secret"));
        if (t == SEED) hello_with(&e, 77, BLOCK_TOKENS, STR("another"));
        if (t == END) {
            struct http_exchange *x = e.x;
            e.x = NULL;
            http_stream_end(x);
        }
        wait_held(&e, 0, why[t]);
        wait_connects(&e, 2);
        hello(&e, 78);
        change(&e, EVENT_SNAPSHOT, 1, 0, 2);
        wait_held(&e, 2, "the next snapshot");
        stop(&e);
    }
}

static void changes_before_the_hello_are_not_believed(void **state)
{
    (void)state;
    struct engine e;
    start(&e);
    wait_connects(&e, 1);
    change(&e, EVENT_ADD, 1, 0, 2);
    wait_connects(&e, 2);
    assert_int_equal(held(&e), 0);
    stop(&e);
}

static int blocks_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_reach_the_index),
        cmocka_unit_test(loads_are_heard_by_those_who_ask),
        cmocka_unit_test(what_cannot_be_followed_is_forgotten_and_begun_anew),
        cmocka_unit_test(changes_before_the_hello_are_not_believed),
    };
    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}

int main(void)
{
    return prefix_index_tests() + blocks_tests();
}
