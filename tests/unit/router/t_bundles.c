/* t_bundles.c - tokenizers over a real connection: one fetch a digest, again after a failure, and a
 * table that is full. */
#include "base/io/clock.h"
#include "base/io/http_server.h"
#include "router/bundles.h"
#include "tests/unit/text/small_vocab.h"
#include "tests/unit/unit.h"

#include <stdio.h>

#define WAIT_US 60000000

/* An engine that serves its tokenizer, or fails. */
struct engine {
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    struct bundles *bundles;
    struct buf bundle;
    char digest[SHA256_HEX + 1];
    int status;
    bool nonsense;
    uint32_t asked, ready;
};

static void on_request(void *ctx, struct http_exchange *x)
{
    struct engine *e = ctx;
    const struct http_request *req = http_exchange_request(x);
    e->asked++;
    assert_true(str_eq(req->path, STR("/internal/tokenizer")));
    assert_true(str_eq(http_request_header(req, "authorization"), STR("Bearer secret")));
    http_reply(x, e->status, STR("application/octet-stream"),
               e->nonsense ? STR("no tokenizer") : buf_view(&e->bundle));
}

static void on_ready(void *arg)
{
    ((struct engine *)arg)->ready++;
}

static void start(struct engine *e)
{
    *e = (struct engine){ .status = 200 };
    struct http_server_config config = { .host = "127.0.0.1", .on_request = on_request, .ctx = e };
    struct vocab *v = small_vocab("gpt-2");
    assert_int_equal(bundle_encode(v, NULL, &e->bundle, e->digest, NULL), 0);
    vocab_free(v);
    assert_int_equal(loop_new(&e->loop, NULL), 0);
    assert_int_equal(http_server_new(e->loop, &config, &e->server, NULL), 0);
    assert_int_equal(http_client_new(e->loop, NULL, &e->client, NULL), 0);
    assert_int_equal(bundles_new(e->loop, e->client, STR("secret"), &e->bundles, NULL), 0);
    bundles_on_ready(e->bundles, on_ready, e);
}

static void stop(struct engine *e)
{
    bundles_free(e->bundles);
    http_client_free(e->client);
    http_server_free(e->server);
    loop_free(e->loop);
    buf_fini(&e->bundle);
}

static const struct bundle_entry *get(struct engine *e, struct str digest)
{
    struct endpoint ep = { .instance = STR("i"),
                           .host = STR("127.0.0.1"),
                           .port = http_server_port(e->server),
                           .digest = digest };
    return bundles_get(e->bundles, &ep);
}

/* Turns until that many requests were answered and their ends were seen. */
static void wait_asked(struct engine *e, uint32_t asked)
{
    int64_t until_us = clock_mono_us() + WAIT_US;
    struct http_client_counts counts;
    do {
        assert_true(clock_mono_us() < until_us);
        assert_int_equal(loop_turn(e->loop, 10000), 0);
        http_client_counts_get(e->client, &counts);
    } while (counts.ended[HTTP_END_OK] < asked);
    assert_int_equal(loop_turn(e->loop, 0), 0);
    assert_int_equal(e->asked, asked);
}

static void one_fetch_serves_a_digest_for_good(void **state)
{
    (void)state;
    struct engine e;
    start(&e);
    assert_null(get(&e, STR("d1")));
    assert_null(get(&e, STR("d1"))); /* under way: not asked twice */
    wait_asked(&e, 1);
    const struct bundle_entry *one = get(&e, STR("d1"));
    assert_non_null(one);
    assert_int_equal(e.ready, 1);
    assert_string_equal(one->digest, "d1");
    assert_int_equal(one->seed, block_seed(STR("secret")));
    assert_true(vocab_count(one->bundle.vocab) > 0);
    assert_ptr_equal(get(&e, STR("d1")), one);
    assert_null(get(&e, STR("d2")));
    wait_asked(&e, 2);
    assert_ptr_not_equal(get(&e, STR("d2")), one);
    struct block_key a = bundle_salt(one, STR("a")), b = bundle_salt(one, STR("b"));
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_null(get(&e, (struct str){ 0 }));
    assert_int_equal(e.asked, 2);
    stop(&e);
}

static void what_fails_is_fetched_again_a_second_later(void **state)
{
    (void)state;
    static const struct {
        int status;
        bool nonsense;
    } rows[] = { { 503, false }, { 200, true } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct engine e;
        start(&e);
        e.status = rows[i].status;
        e.nonsense = rows[i].nonsense;
        assert_null(get(&e, STR("d1")));
        wait_asked(&e, 1);
        assert_null(get(&e, STR("d1")));
        assert_int_equal(e.ready, 0);
        e.status = 200;
        e.nonsense = false;
        int64_t until_us = clock_mono_us() + WAIT_US;
        while (!get(&e, STR("d1"))) {
            assert_true(clock_mono_us() < until_us);
            loop_turn(e.loop, 50000);
        }
        assert_int_equal(e.asked, 2);
        assert_int_equal(e.ready, 1);
        stop(&e);
    }
}

static void a_full_table_keeps_what_it_has_and_reuses_what_failed(void **state)
{
    (void)state;
    struct engine e;
    char digest[16];
    start(&e);
    for (uint32_t i = 0; i < BUNDLES_MAX - 1; i++) {
        snprintf(digest, sizeof digest, "good-%u", i);
        assert_null(get(&e, str_from(digest)));
    }
    wait_asked(&e, BUNDLES_MAX - 1);
    e.status = 500;
    assert_null(get(&e, STR("a-digest-that-fails")));
    wait_asked(&e, BUNDLES_MAX);
    assert_null(get(&e, STR("next"))); /* too early: the failed one may still be tried again */
    assert_int_equal(e.asked, BUNDLES_MAX);
    e.status = 200;
    int64_t until_us = clock_mono_us() + WAIT_US;
    const struct bundle_entry *next = NULL;
    while (!(next = get(&e, STR("next")))) {
        assert_true(clock_mono_us() < until_us);
        loop_turn(e.loop, 50000);
    }
    assert_string_equal(next->digest, "next");
    assert_null(get(&e, STR("one-too-many")));
    assert_int_equal(e.asked, BUNDLES_MAX + 1);
    assert_non_null(get(&e, STR("good-0")));
    stop(&e);
}

static void it_may_be_freed_while_a_fetch_is_under_way(void **state)
{
    (void)state;
    struct engine e;
    start(&e);
    assert_null(get(&e, STR("d1")));
    stop(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_fetch_serves_a_digest_for_good),
        cmocka_unit_test(what_fails_is_fetched_again_a_second_later),
        cmocka_unit_test(a_full_table_keeps_what_it_has_and_reuses_what_failed),
        cmocka_unit_test(it_may_be_freed_while_a_fetch_is_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
