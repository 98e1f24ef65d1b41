/* t_bundles.c - tests tokenizers fetched over a real connection: one fetch a digest, again after a
 * failure, none of another digest, and models whose versions change without end. */
#include "base/io/http/http_server.h"
#include "base/io/loop/clock.h"
#include "router/bundles.h"
#include "tests/unit/io/auth_rig.h"
#include "tests/unit/text/small_vocab.h"

#include <stdio.h>

#define WAIT_US 60000000

/* An engine that serves its tokenizer, or fails to. */
struct engine {
    struct auth_rig auth; /* must be first: auth_rig.h */
    struct fleet_link link;
    struct signer *signer;
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    struct bundles *bundles;
    struct bundle_pins pins;
    struct buf bundle;
    char digest[SHA256_HEX + 1]; /* the bundle's own */
    int status;
    bool nonsense, old, another; /* old: replies with an etag instead; another: has other weights */
    uint32_t asked, ready;
};

/* Returns the identity of an engine whose weights have this name. */
static const char *identity(const struct engine *e, const char *weights)
{
    static char ret[SHA256_HEX + 1];
    bundle_identity(str_from(weights), e->digest, ret);
    return ret;
}

/* Returns the name of the weights that a request's digest stands for. */
static const char *weights_of(const struct engine *e, struct str digest)
{
    static char name[16];
    for (uint32_t i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "w%u", i);
        if (str_eq(digest, str_from(identity(e, name)))) return name;
    }
    fail_msg("asked for " STR_FMT, STR_ARG(digest));
    return NULL;
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct engine *e = ctx;
    const struct http_request *req = http_exchange_request(x);
    e->asked++;
    assert_true(str_eq(req->path, STR("/internal/tokenizer")));
    struct str wanted = http_request_header(req, "if-match");
    const char *weights = weights_of(e, wanted);
    if (e->old) {
        http_reply_header(x, "etag", e->another ? STR("another") : wanted);
    } else {
        http_reply_header(x, BUNDLE_WEIGHTS_HEADER,
                          e->another ? STR("another") : str_from(weights));
    }
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
    struct http_server_config config = { .host = "127.0.0.1",
                                         .on_head = auth_rig_on_head,
                                         .on_request = on_request,
                                         .on_reply = auth_rig_on_reply,
                                         .ctx = e };
    struct vocab *v = small_vocab("gpt-2");
    assert_int_equal(bundle_encode(v, NULL, &e->bundle, e->digest, NULL), 0);
    vocab_free(v);
    assert_int_equal(loop_new(&e->loop, NULL), 0);
    assert_int_equal(http_server_new(e->loop, &config, &e->server, NULL), 0);
    assert_int_equal(http_client_new(e->loop, NULL, &e->client, NULL), 0);
    auth_rig_init(&e->auth, STR("secret"));
    assert_int_equal(fleet_link_init(&e->link, (struct str){ 0 }, false, clock_mono_us(), NULL), 0);
    credentials_of_secret(STR("secret"), &e->link.held);
    assert_int_equal(fleet_link_signer(&e->link, e->loop, e->client, &e->signer, NULL), 0);
    assert_int_equal(bundles_new(e->loop, e->signer, &e->link, &e->pins, &e->bundles, NULL), 0);
    bundles_on_ready(e->bundles, on_ready, e);
}

static void stop(struct engine *e)
{
    bundles_free(e->bundles);
    http_client_free(e->client);
    http_server_free(e->server);
    signer_free(e->signer);
    fleet_link_fini(&e->link);
    auth_rig_fini(&e->auth);
    loop_free(e->loop);
    buf_fini(&e->bundle);
}

static const struct bundle_entry *get_digest(struct engine *e, struct str digest)
{
    struct endpoint ep = { .instance = STR("i"),
                           .host = STR("127.0.0.1"),
                           .port = http_server_port(e->server),
                           .digest = digest };
    return bundles_get(e->bundles, &ep, true);
}

static const struct bundle_entry *get(struct engine *e, uint32_t number)
{
    char weights[16];
    snprintf(weights, sizeof weights, "w%u", number);
    return get_digest(e, str_from(identity(e, weights)));
}

/* Turns the loop until so many requests have ended. */
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

/* Turns the loop until the tokenizer is there; the product tries again a second after a failure. */
static const struct bundle_entry *wait_for(struct engine *e, uint32_t number)
{
    int64_t until_us = clock_mono_us() + WAIT_US;
    const struct bundle_entry *entry;
    while (!(entry = get(e, number))) {
        assert_true(clock_mono_us() < until_us);
        loop_turn(e->loop, 50000);
    }
    return entry;
}

static void one_fetch_serves_a_digest_for_good(void **state)
{
    (void)state;
    struct engine e;
    start(&e);
    assert_null(get(&e, 1));
    assert_null(get(&e, 1)); /* still being fetched: no second request */
    wait_asked(&e, 1);
    const struct bundle_entry *one = get(&e, 1);
    assert_non_null(one);
    assert_int_equal(e.ready, 1);
    assert_string_equal(one->digest, identity(&e, "w1"));
    assert_int_equal(one->seed, block_seed(STR("secret")));
    assert_true(vocab_count(one->bundle.vocab) > 0);
    assert_ptr_equal(get(&e, 1), one);
    assert_null(get(&e, 2));
    wait_asked(&e, 2);
    assert_ptr_not_equal(get(&e, 2), one);
    struct block_key a = bundle_salt(one, STR(""), STR("a")),
                     b = bundle_salt(one, STR(""), STR("b"));
    struct block_key c = bundle_salt(one, STR("adapter"), STR("a"));
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &c, sizeof a);
    assert_null(get_digest(&e, (struct str){ 0 }));
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
        assert_null(get(&e, 1));
        wait_asked(&e, 1);
        assert_null(get(&e, 1));
        assert_int_equal(e.ready, 0);
        e.status = 200;
        e.nonsense = false;
        wait_for(&e, 1);
        assert_int_equal(e.asked, 2);
        assert_int_equal(e.ready, 1);
        stop(&e);
    }
}

/* A bundle of another digest than requested is refused, whichever header names it. */
static void another_digest_is_refused(void **state)
{
    (void)state;
    static const bool old[] = { false, true };
    for (size_t i = 0; i < 2; i++) {
        struct engine e;
        struct bundles_counts n;
        start(&e);
        e.old = old[i];
        e.another = true;
        assert_null(get(&e, 1));
        wait_asked(&e, 1);
        assert_null(get(&e, 1));
        bundles_counts_get(e.bundles, &n);
        assert_true(n.refused == 1 && n.held == 0 && e.ready == 0);
        e.another = false;
        wait_for(&e, 1);
        bundles_counts_get(e.bundles, &n);
        assert_true(n.refused == 1 && n.held == 1);
        e.status = 412; /* the engine itself refuses the digest */
        assert_null(get(&e, 2));
        wait_asked(&e, 3);
        bundles_counts_get(e.bundles, &n);
        assert_int_equal(n.refused, 2);
        stop(&e);
    }
}

/* Each version of a model gets its tokenizer, and the oldest that are not pinned are evicted. */
static void versions_without_end_get_their_tokenizers(void **state)
{
    (void)state;
    struct engine e;
    struct bundles_counts n;
    uint64_t kept = 0, held = 0;
    start(&e);
    const struct bundle_entry *first = wait_for(&e, 0);
    bundle_pin(&e.pins, &kept, first);
    for (uint32_t i = 1; i < 2 * BUNDLES_MAX; i++) {
        uint64_t before = held;
        held = 0;
        bundle_pin(&e.pins, &held, wait_for(&e, i)); /* in use until the next version is */
        bundle_unpin(&e.pins, &before);
        bundles_counts_get(e.bundles, &n);
        assert_true(n.held <= BUNDLES_IDLE_MAX + 2);
    }
    assert_int_equal(e.asked, 2 * BUNDLES_MAX);
    assert_int_equal(n.evicted, 2 * BUNDLES_MAX - n.held);
    assert_ptr_equal(get(&e, 0), first); /* pinned all the while */
    assert_true(vocab_count(first->bundle.vocab) > 0);
    assert_non_null(get(&e, 2 * BUNDLES_MAX - 3)); /* a late one, idle but kept */
    assert_int_equal(e.asked, 2 * BUNDLES_MAX);
    assert_null(get(&e, 1)); /* an early one: evicted, fetched again */
    wait_asked(&e, 2 * BUNDLES_MAX + 1);
    bundle_unpin(&e.pins, &held);
    bundle_unpin(&e.pins, &kept);
    for (uint32_t i = 0; i < BUNDLES_MAX; i++)
        assert_int_equal(e.pins.count[i], 0);
    stop(&e);
}

static void a_table_full_of_pinned_ones_takes_no_more(void **state)
{
    (void)state;
    struct engine e;
    uint64_t pins = 0, again = 0;
    start(&e);
    for (uint32_t i = 0; i < BUNDLES_MAX; i++)
        bundle_pin(&e.pins, &pins, wait_for(&e, i));
    bundle_pin(&e.pins, &pins, get(&e, 0)); /* a second pin has no effect */
    bundle_pin(&e.pins, &again, get(&e, 0));
    assert_null(get(&e, BUNDLES_MAX));
    assert_int_equal(e.asked, BUNDLES_MAX);
    bundle_unpin(&e.pins, &pins);
    assert_non_null(wait_for(&e, BUNDLES_MAX));
    assert_non_null(get(&e, 0));
    bundle_unpin(&e.pins, &again);
    stop(&e);
}

static void it_may_be_freed_while_a_fetch_is_under_way(void **state)
{
    (void)state;
    struct engine e;
    start(&e);
    assert_null(get(&e, 1));
    stop(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_fetch_serves_a_digest_for_good),
        cmocka_unit_test(what_fails_is_fetched_again_a_second_later),
        cmocka_unit_test(another_digest_is_refused),
        cmocka_unit_test(versions_without_end_get_their_tokenizers),
        cmocka_unit_test(a_table_full_of_pinned_ones_takes_no_more),
        cmocka_unit_test(it_may_be_freed_while_a_fetch_is_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
