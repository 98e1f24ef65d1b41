/* t_resolver.c - tests name resolution without blocking: known names stay known while the system's
 * resolver fails or hangs, and unknown ones are bounded.
 *
 * getaddrinfo is defined in this file: it returns what it is told to, or hangs until released. */
#include "base/io/net/resolver.h"
#include "tests/unit/io/client_rig.h"

#include <netdb.h>
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static struct {
    bool hangs, fails;
    uint8_t last; /* last byte of 127.0.0.x in the result */
    int asked, inside;
} dns;

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    (void)name, (void)service, (void)hints;
    pthread_mutex_lock(&lock);
    dns.asked++;
    dns.inside++;
    while (dns.hangs)
        pthread_cond_wait(&released, &lock);
    dns.inside--;
    bool fails = dns.fails;
    uint8_t last = dns.last;
    pthread_mutex_unlock(&lock);
    if (fails) return EAI_AGAIN;
    struct answer {
        struct addrinfo info;
        struct sockaddr_in in;
    } *a = calloc(1, sizeof *a);
    assert_non_null(a);
    a->in = (struct sockaddr_in){ .sin_family = AF_INET };
    a->in.sin_addr.s_addr = htonl(0x7f000000u | last);
    a->info.ai_addr = (struct sockaddr *)&a->in;
    a->info.ai_addrlen = sizeof a->in;
    *ret = &a->info;
    return 0;
}

void freeaddrinfo(struct addrinfo *info)
{
    free(info);
}

static void set_dns(bool hangs, bool fails, uint8_t last)
{
    pthread_mutex_lock(&lock);
    dns.hangs = hangs;
    dns.fails = fails;
    dns.last = last;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
}

static int asked(void)
{
    pthread_mutex_lock(&lock);
    int count = dns.asked;
    pthread_mutex_unlock(&lock);
    return count;
}

static int inside(void)
{
    pthread_mutex_lock(&lock);
    int count = dns.inside;
    pthread_mutex_unlock(&lock);
    return count;
}

struct told {
    struct resolver_use use;
    struct addr addr;
    int rc, calls;
};

static void on_found(void *arg, int rc, const struct addr *found)
{
    struct told *t = arg;
    t->calls++;
    t->rc = rc;
    if (rc == 0) t->addr = *found;
}

struct names {
    struct loop *loop;
    struct resolver *r;
};

static struct names names_begin(void)
{
    struct names n = { 0 };
    dns.asked = 0;
    set_dns(false, false, 1);
    assert_int_equal(loop_new(&n.loop, NULL), 0);
    assert_int_equal(resolver_new(n.loop, NULL, &n.r, NULL), 0);
    return n;
}

static void names_end(struct names *n)
{
    set_dns(false, false, 1);
    resolver_free(n->r);
    loop_free(n->loop);
}

static int ask(struct names *n, const char *host, struct told *t)
{
    *t = (struct told){ .use = { .fn = on_found, .arg = t } };
    return resolver_ask(n->r, str_from(host), &t->use, &t->addr);
}

/* Resolves a name: asks, waits, and drops the use. */
static uint8_t resolve(struct names *n, const char *host)
{
    struct told t;
    int rc = ask(n, host, &t);
    if (rc == -EINPROGRESS) {
        TURN_UNTIL(n->loop, t.calls == 1);
        rc = t.rc;
    }
    assert_int_equal(rc, 0);
    resolver_leave(n->r, &t.use);
    return t.addr.ip[3];
}

/* Waits out the pause between two questions for a name. */
static void rest(struct names *n)
{
    int64_t until_us = clock_mono_us() + RESOLVER_AGAIN_US;
    TURN_UNTIL(n->loop, loop_now_us(n->loop) > until_us);
}

static void one_question_serves_all_who_wait(void **state)
{
    (void)state;
    struct names n = names_begin();
    struct told t[3];
    set_dns(true, false, 7);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ask(&n, "engine.test", &t[i]), -EINPROGRESS);
    resolver_leave(n.r, &t[1].use); /* this use is dropped */
    set_dns(false, false, 7);
    TURN_UNTIL(n.loop, t[0].calls == 1 && t[2].calls == 1);
    assert_int_equal(t[1].calls, 0);
    assert_int_equal(t[0].rc, 0);
    assert_int_equal(t[0].addr.ip[3], 7);
    assert_int_equal(asked(), 1);
    assert_int_equal(resolve(&n, "engine.test"), 7); /* known: no question */
    assert_int_equal(asked(), 1);
    resolver_leave(n.r, &t[0].use);
    resolver_leave(n.r, &t[2].use);
    names_end(&n);
}

static void the_last_good_address_serves_while_the_resolver_hangs_or_fails(void **state)
{
    (void)state;
    struct names n = names_begin();
    struct resolver_counts c;
    struct told t;
    assert_int_equal(resolve(&n, "engine.test"), 1);
    set_dns(true, true, 0);
    rest(&n);
    assert_int_equal(ask(&n, "engine.test", &t), 0);
    resolver_doubt(n.r, &t.use);
    resolver_leave(n.r, &t.use);
    for (int i = 0; i < 10; i++)
        assert_int_equal(resolve(&n, "engine.test"), 1);
    TURN_UNTIL(n.loop, inside() == 1); /* one question, beside the replies */
    assert_int_equal(asked(), 2);
    set_dns(false, true, 0);
    TURN_UNTIL(n.loop, (resolver_counts_get(n.r, &c), c.failed == 1));
    assert_int_equal(resolve(&n, "engine.test"), 1);
    resolver_counts_get(n.r, &c);
    assert_int_equal(c.stale, 1);

    /* A new address replaces it once the resolver returns one. */
    set_dns(false, false, 9);
    rest(&n);
    TURN_UNTIL(n.loop, resolve(&n, "engine.test") == 9);
    names_end(&n);
}

static void an_unknown_name_is_not_asked_for_again_at_once(void **state)
{
    (void)state;
    struct names n = names_begin();
    struct told t;
    set_dns(false, true, 0);
    assert_int_equal(ask(&n, "nobody.test", &t), -EINPROGRESS);
    TURN_UNTIL(n.loop, t.calls == 1);
    assert_int_equal(t.rc, -ENOENT);
    resolver_leave(n.r, &t.use);
    assert_int_equal(ask(&n, "nobody.test", &t), -ENOENT);
    assert_int_equal(asked(), 1);
    rest(&n);
    set_dns(false, false, 4);
    assert_int_equal(resolve(&n, "nobody.test"), 4);
    assert_int_equal(ask(&n, "", &t), -EINVAL);
    names_end(&n);
}

static void names_are_bounded_and_unused_ones_make_room(void **state)
{
    (void)state;
    struct names n = names_begin();
    static struct told t[RESOLVER_NAMES_MAX + 1];
    char host[32];
    set_dns(true, false, 3);
    for (int i = 0; i < RESOLVER_NAMES_MAX; i++) {
        snprintf(host, sizeof host, "e%d.test", i);
        assert_int_equal(ask(&n, host, &t[i]), -EINPROGRESS);
    }
    assert_int_equal(ask(&n, "more.test", &t[RESOLVER_NAMES_MAX]), -ENOSPC);
    resolver_leave(n.r, &t[5].use);
    assert_int_equal(ask(&n, "more.test", &t[RESOLVER_NAMES_MAX]), -EINPROGRESS);
    struct resolver_counts c;
    resolver_counts_get(n.r, &c);
    assert_int_equal(c.refused, 1);
    set_dns(false, false, 3);
    TURN_UNTIL(n.loop, t[RESOLVER_NAMES_MAX].calls == 1 && t[RESOLVER_NAMES_MAX - 1].calls == 1);
    assert_int_equal(t[5].calls, 0);
    names_end(&n); /* some uses are still open */
}

static void it_can_be_freed_while_the_system_is_being_asked(void **state)
{
    (void)state;
    struct names n = names_begin();
    struct told t[2];
    set_dns(true, false, 1);
    assert_int_equal(ask(&n, "a.test", &t[0]), -EINPROGRESS);
    assert_int_equal(ask(&n, "b.test", &t[1]), -EINPROGRESS);
    TURN_UNTIL(n.loop, inside() == 1);
    resolver_free(n.r);
    loop_free(n.loop);
    assert_null(t[0].use.name);
    set_dns(false, false, 1);
    for (int i = 0; inside() > 0 && i < 10000; i++)
        usleep(1000);
    assert_int_equal(inside(), 0);
    assert_int_equal(asked(), 1); /* the second question was dropped */
}

/* A loop that never used a name knows it once another loop of the process does. */
static void loops_share_what_they_learned(void **state)
{
    (void)state;
    struct names n = names_begin();
    struct name_book *book;
    struct resolver *one, *other;
    char host[32];
    assert_int_equal(name_book_new(&book, NULL), 0);
    assert_int_equal(resolver_new(n.loop, book, &one, NULL), 0);
    assert_int_equal(resolver_new(n.loop, book, &other, NULL), 0);
    struct names a = { n.loop, one }, b = { n.loop, other };
    set_dns(false, false, 6);
    assert_int_equal(resolve(&a, "engine.test"), 6);
    set_dns(true, true, 0);
    assert_int_equal(resolve(&b, "engine.test"), 6);
    TURN_UNTIL(n.loop, inside() == 1); /* the other loop asks too, beside its reply */
    set_dns(false, false, 8);
    for (int i = 0; i <= RESOLVER_NAMES_MAX; i++) { /* more than it holds */
        snprintf(host, sizeof host, "e%d.test", i);
        assert_int_equal(resolve(&a, host), 8);
    }
    resolver_free(one);
    resolver_free(other);
    name_book_free(book);
    names_end(&n);
}

/* ---- through the HTTP client ---- */

static void call_name(struct fixture *f, struct seen *s)
{
    struct http_call_request req = request_for(f, s);
    req.host = STR("engine.test");
    s->call = http_call_start(f->client, &req, NULL);
    assert_non_null(s->call);
}

static void calls_by_name_go_on_while_the_resolver_hangs(void **state)
{
    (void)state;
    dns.asked = 0;
    set_dns(false, false, 1);
    struct fixture f = begin((struct http_client_config){ .connect_us = 50000 });
    struct seen first = { 0 }, second = { 0 }, other = { 0 };
    call_name(&f, &first);
    struct peer p = take_request(&f);
    assert_true(peer_has(&p, "host: engine.test:"));
    peer_send(f.loop, &p, ok_reply);
    TURN_UNTIL(f.loop, first.ends == 1);
    assert_int_equal(first.end, HTTP_END_OK);
    buf_clear(&p.got);

    set_dns(true, false, 1);
    call_name(&f, &second); /* on the pooled connection */
    PEER_UNTIL(f.loop, &p, peer_has(&p, "\r\n\r\n"));
    peer_send(f.loop, &p, ok_reply);
    TURN_UNTIL(f.loop, second.ends == 1);
    assert_int_equal(second.end, HTTP_END_OK);
    assert_int_equal(counts(&f).connects, 1);

    struct http_call_request req = request_for(&f, &other);
    req.host = STR("new.test");
    assert_non_null(http_call_start(f.client, &req, NULL));
    TURN_UNTIL(f.loop, other.ends == 1); /* after connect_us */
    assert_int_equal(other.end, HTTP_END_NAME);
    assert_int_equal(counts(&f).ended[HTTP_END_CONNECT_FAILED], 0);

    struct seen left = { 0 }; /* cancelled while it waits */
    req.arg = &left;
    req.host = STR("left.test");
    http_call_cancel(http_call_start(f.client, &req, NULL));
    loop_turn(f.loop, 0);
    assert_int_equal(left.ends, 0);
    set_dns(false, false, 1);
    peer_close(&p);
    seen_fini(&first);
    seen_fini(&second);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_question_serves_all_who_wait),
        cmocka_unit_test(the_last_good_address_serves_while_the_resolver_hangs_or_fails),
        cmocka_unit_test(an_unknown_name_is_not_asked_for_again_at_once),
        cmocka_unit_test(names_are_bounded_and_unused_ones_make_room),
        cmocka_unit_test(it_can_be_freed_while_the_system_is_being_asked),
        cmocka_unit_test(loops_share_what_they_learned),
        cmocka_unit_test(calls_by_name_go_on_while_the_resolver_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
