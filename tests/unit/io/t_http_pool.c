/* t_http_pool.c - tests pooled connections: kept, reused, found stale, bounded. */
#include "tests/unit/io/client_rig.h"

#include <sys/resource.h>

/* Makes one whole call on a connection that stays open. */
static struct peer warm_up(struct fixture *f)
{
    struct seen s = { 0 };
    call(f, &s);
    struct peer p = take_request(f);
    peer_send(f->loop, &p, ok_reply);
    TURN_UNTIL(f->loop, s.ends == 1);
    assert_int_equal(counts(f).idle, 1);
    seen_fini(&s);
    buf_clear(&p.got);
    return p;
}

static void a_connection_is_used_again(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ 0 });
    struct peer p = warm_up(&f);
    for (int i = 0; i < 3; i++) {
        struct seen s = { 0 };
        call(&f, &s);
        PEER_UNTIL(f.loop, &p, peer_has(&p, "\r\n\r\n"));
        buf_clear(&p.got);
        peer_send(f.loop, &p, ok_reply);
        TURN_UNTIL(f.loop, s.ends == 1);
        assert_int_equal(s.end, HTTP_END_OK);
        seen_fini(&s);
    }
    assert_int_equal(counts(&f).connects, 1);
    assert_int_equal(counts(&f).reused, 3);
    peer_close(&p);
    end(&f);
}

static void a_pooled_connection_that_the_peer_closes_leaves_the_pool(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ 0 });
    struct peer p = warm_up(&f);
    peer_close(&p);
    TURN_UNTIL(f.loop, counts(&f).idle == 0 && counts(&f).connections == 0);
    end(&f);
}

static void idle_connections_are_closed_in_time_and_bounded(void **state)
{
    (void)state;
    struct fixture f =
        begin((struct http_client_config){ .idle_us = 20000, .idle_per_host_max = 2 });
    struct seen s[4] = { 0 };
    struct peer p[4];
    for (int i = 0; i < 4; i++) {
        call(&f, &s[i]);
        p[i] = take_request(&f);
    }
    for (int i = 0; i < 4; i++)
        peer_send(f.loop, &p[i], ok_reply);
    TURN_UNTIL(f.loop, s[0].ends + s[1].ends + s[2].ends + s[3].ends == 4);
    assert_int_equal(counts(&f).idle, 2);
    TURN_UNTIL(f.loop, counts(&f).connections == 0);
    for (int i = 0; i < 4; i++) {
        PEER_UNTIL(f.loop, &p[i], p[i].closed);
        peer_close(&p[i]);
        seen_fini(&s[i]);
    }
    end(&f);
}

/* The peer closes just as the request leaves, which the client cannot know yet. */
static void a_stale_connection_is_retried_once_on_a_fresh_one(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct fixture f = begin((struct http_client_config){ 0 });
        struct peer stale = warm_up(&f);
        struct seen s = { 0 };
        call(&f, &s);
        if (how == 0)
            peer_close(&stale); /* before the loop can see it */
        else
            peer_reset(&stale);
        struct peer fresh = take_request(&f);
        assert_true(peer_has(&fresh, "GET /x HTTP/1.1\r\n"));
        assert_int_equal(peer_count(&fresh, "GET /x"), 1);
        peer_send(f.loop, &fresh, ok_reply);
        TURN_UNTIL(f.loop, s.ends == 1);
        assert_int_equal(s.end, HTTP_END_OK);
        assert_int_equal(counts(&f).stale_retried, 1);
        peer_close(&fresh);
        seen_fini(&s);
        end(&f);
    }
}

static void the_retry_is_not_retried(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ 0 });
    struct peer stale = warm_up(&f);
    struct seen s = { 0 };
    call(&f, &s);
    peer_close(&stale);
    struct peer fresh = take_request(&f);
    peer_close(&fresh);
    TURN_UNTIL(f.loop, s.ends == 1);
    assert_int_equal(s.end, HTTP_END_RESET_BEFORE_HEAD);
    assert_int_equal(counts(&f).stale_retried, 1);
    seen_fini(&s);
    end(&f);
}

/* The request may have killed the peer: a retry that cannot connect must still count as a reset. */
static void a_retry_that_finds_nobody_is_a_reset_and_not_a_failed_connect(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ 0 });
    struct peer stale = warm_up(&f);
    close(f.listener);
    struct seen s = { 0 };
    call(&f, &s);
    peer_close(&stale);
    TURN_UNTIL(f.loop, s.ends == 1);
    assert_int_equal(s.end, HTTP_END_RESET_BEFORE_HEAD);
    seen_fini(&s);
    f.listener = -1;
    end(&f);
}

static void a_connection_that_answered_a_byte_is_not_stale(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ 0 });
    struct peer p = warm_up(&f);
    struct seen s = { 0 };
    call(&f, &s);
    PEER_UNTIL(f.loop, &p, peer_has(&p, "\r\n\r\n"));
    send_reply(&f, &p, STR("H"), 1);
    peer_close(&p);
    TURN_UNTIL(f.loop, s.ends == 1);
    assert_int_equal(s.end, HTTP_END_RESET_BEFORE_HEAD);
    assert_int_equal(counts(&f).stale_retried, 0);
    seen_fini(&s);
    end(&f);
}

static void connections_are_bounded_and_idle_ones_make_room(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ .connections_max = 1 });
    struct seen s = { 0 }, late = { 0 };
    struct err err = { 0 };
    call(&f, &s);
    struct peer p = take_request(&f);
    call(&f, &late);
    TURN_UNTIL(f.loop, late.ends == 1);
    assert_int_equal(late.end, HTTP_END_LOCAL);
    assert_int_equal(counts(&f).refused, 1);
    struct http_call_request req = request_for(&f, &s);
    peer_send(f.loop, &p, ok_reply);
    TURN_UNTIL(f.loop, s.ends == 1);
    /* For another address the idle connection makes room. */
    uint16_t other_port;
    int other = peer_listen(&other_port);
    req.port = other_port;
    struct seen t = { 0 };
    req.arg = &t;
    t.call = http_call_start(f.client, &req, &err);
    assert_non_null(t.call);
    struct peer q;
    PEER_ACCEPT(f.loop, other, &q);
    PEER_UNTIL(f.loop, &q, peer_has(&q, "\r\n\r\n"));
    peer_send(f.loop, &q, ok_reply);
    TURN_UNTIL(f.loop, t.ends == 1);
    assert_int_equal(t.end, HTTP_END_OK);
    peer_close(&p);
    peer_close(&q);
    close(other);
    seen_fini(&s);
    seen_fini(&t);
    end(&f);
}

/* A call whose end starts another, to a second address, when only one connection is allowed. */
struct chain {
    struct fixture *f;
    struct seen first, second;
    uint16_t port;
};

static void go_on(void *arg, enum http_end why)
{
    struct chain *c = arg;
    on_end(&c->first, why);
    struct http_call_request req = request_for(c->f, &c->second);
    req.port = c->port;
    c->second.call = http_call_start(c->f->client, &req, NULL);
}

static void an_end_may_start_a_call_that_closes_its_own_connection(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ .connections_max = 1 });
    struct chain c = { .f = &f };
    int other = peer_listen(&c.port);
    struct http_call_request req = request_for(&f, &c.first);
    req.on_head = NULL;
    req.on_data = NULL;
    req.on_end = go_on;
    req.arg = &c;
    assert_non_null(http_call_start(f.client, &req, NULL));
    struct peer p = take_request(&f);
    peer_send(f.loop, &p, ok_reply);
    struct peer q;
    PEER_ACCEPT(f.loop, other, &q);
    PEER_UNTIL(f.loop, &q, peer_has(&q, "\r\n\r\n"));
    peer_send(f.loop, &q, ok_reply);
    TURN_UNTIL(f.loop, c.second.ends == 1);
    assert_int_equal(c.first.end, HTTP_END_OK);
    assert_int_equal(c.second.end, HTTP_END_OK);
    assert_int_equal(counts(&f).connections, 1);
    peer_close(&p);
    peer_close(&q);
    close(other);
    seen_fini(&c.second);
    end(&f);
}

/* Out of descriptors nothing is known of the peer, so neither a first attempt nor a retry blames
 * it. */
static void without_descriptors_a_call_ends_as_ours(void **state)
{
    (void)state;
    struct fixture f = begin((struct http_client_config){ 0 });
    struct peer stale = warm_up(&f);
    struct seen pooled = { 0 }, fresh = { 0 }, after = { 0 };
    call(&f, &pooled);
    peer_close(&stale);
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){ 0, before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    call(&f, &fresh);
    TURN_UNTIL(f.loop, pooled.ends == 1 && fresh.ends == 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(counts(&f).stale_retried, 1);
    assert_int_equal(pooled.end, HTTP_END_LOCAL);
    assert_int_equal(fresh.end, HTTP_END_LOCAL);
    assert_int_equal(counts(&f).ended[HTTP_END_LOCAL], 2);

    call(&f, &after);
    struct peer p = take_request(&f);
    peer_send(f.loop, &p, ok_reply);
    TURN_UNTIL(f.loop, after.ends == 1);
    assert_int_equal(after.end, HTTP_END_OK);
    peer_close(&p);
    seen_fini(&after);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_used_again),
        cmocka_unit_test(a_pooled_connection_that_the_peer_closes_leaves_the_pool),
        cmocka_unit_test(idle_connections_are_closed_in_time_and_bounded),
        cmocka_unit_test(a_stale_connection_is_retried_once_on_a_fresh_one),
        cmocka_unit_test(the_retry_is_not_retried),
        cmocka_unit_test(a_retry_that_finds_nobody_is_a_reset_and_not_a_failed_connect),
        cmocka_unit_test(a_connection_that_answered_a_byte_is_not_stale),
        cmocka_unit_test(connections_are_bounded_and_idle_ones_make_room),
        cmocka_unit_test(an_end_may_start_a_call_that_closes_its_own_connection),
        cmocka_unit_test(without_descriptors_a_call_ends_as_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
