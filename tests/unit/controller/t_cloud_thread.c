/* t_cloud_thread.c - a backend that waits for as long as the test wants, behind its own thread. */
#include "base/core/bits.h"
#include "controller/cloud/cloud_thread.h"
#include "tests/unit/unit.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HANG_S 120 /* ends what hangs; nothing is decided by it */

struct slow {
    sem_t begun, go; /* one post for each call that has begun, and that may end */
    sem_t woken;
    char log[512]; /* the thread writes, the test reads when no call is under way */
    bool closed;
};

static void begin(struct slow *s, const char *call, const char *what)
{
    size_t len = strlen(s->log);
    snprintf(s->log + len, sizeof s->log - len, "%s %s;", call, what);
    sem_post(&s->begun);
    sem_wait(&s->go);
}

static int create(void *ctx, const struct cloud_request *req, int64_t now_us, struct listed *ret,
                  enum offer_error *ret_class, struct err *err)
{
    (void)now_us;
    begin(ctx, "create", req->intent);
    if (strcmp(req->offer->name, "none") == 0) {
        *ret_class = OFFER_CAPACITY;
        return err_set(err, -EBUSY, "sold out");
    }
    assert_true(str_eq(req->spec->engine_args[0], STR("muster")));
    assert_true(str_eq(req->key, STR("secret")));
    snprintf(ret->handle, sizeof ret->handle, "h-%s", req->intent);
    return 0;
}

static int list(void *ctx, int64_t now_us, struct listed *ret, uint32_t max, uint32_t *ret_count,
                struct err *err)
{
    (void)now_us, (void)max, (void)err;
    begin(ctx, "list", "");
    snprintf(ret[0].intent, sizeof ret[0].intent, "i-1");
    *ret_count = 1;
    return 0;
}

static int remove_instance(void *ctx, const char *handle, const char *intent, int64_t now_us,
                           struct err *err)
{
    (void)now_us, (void)handle;
    begin(ctx, "remove", intent);
    return err_set(err, -EIO, "not now");
}

static int prices(void *ctx, int64_t now_us, struct cloud_price *ret, uint32_t max,
                  uint32_t *ret_count, struct err *err)
{
    (void)now_us, (void)max, (void)err;
    begin(ctx, "prices", "");
    ret[0] = (struct cloud_price){ .offer = "s1", .known = true, .price_h = 0.5 };
    *ret_count = 1;
    return 0;
}

static int offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err)
{
    (void)ctx, (void)ret, (void)max, (void)err;
    *ret_count = 0;
    return 0;
}

static void close_slow(void *ctx)
{
    ((struct slow *)ctx)->closed = true;
}

static const struct cloud_backend backend = {
    .name = "slow",
    .about = "waits for the test",
    .close = close_slow,
    .offers = offers,
    .create = create,
    .list = list,
    .remove = remove_instance,
    .prices = prices,
};

static void await(sem_t *s)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HANG_S;
    if (sem_timedwait(s, &until) < 0) fail_msg("nothing happened");
}

static void woken(void *arg)
{
    sem_post(&((struct slow *)arg)->woken);
}

static void open_slow(struct slow *s, struct cloud *ret)
{
    *s = (struct slow){ 0 };
    sem_init(&s->begun, 0, 0);
    sem_init(&s->go, 0, 0);
    sem_init(&s->woken, 0, 0);
    const struct cloud pace = { .poll_us = 7, .calls_per_s = 3, .lag_us = 5 };
    assert_int_equal(cloud_thread_new(&backend, s, &pace, ret, NULL), 0);
    assert_int_equal(ret->poll_us, 7);
    assert_int_equal(ret->lag_us, 5);
    ret->driver->watch(ret->ctx, woken, s);
}

static const struct str args[] = { { "muster", 6 } };
static const struct launch_spec spec = { .instance = { "i-1", 3 },
                                         .service = { "chat", 4 },
                                         .pool = { "small", 5 },
                                         .offer = { "s1", 2 },
                                         .controller_host = { "127.0.0.1", 9 },
                                         .controller_port = 1,
                                         .engine_host = { "127.0.0.1", 9 },
                                         .engine_args = args,
                                         .engine_arg_count = 1 };

static int ask_create(const struct cloud *c, uint64_t id, const char *intent, const char *offer)
{
    struct offer o = { 0 };
    snprintf(o.name, sizeof o.name, "%s", offer);
    char name[NAME_BYTES]; /* everything is copied: the call's texts end with this function */
    snprintf(name, sizeof name, "%s", intent);
    struct cloud_call call = {
        .op = CLOUD_CREATE,
        .id = id,
        .create = { .intent = name, .offer = &o, .spec = &spec, .key = STR("secret") },
    };
    return c->driver->submit(c->ctx, &call, 1000, NULL);
}

static struct cloud_event *taken(struct slow *s, const struct cloud *c)
{
    static struct cloud_event e;
    sem_post(&s->go);
    await(&s->woken);
    assert_true(c->driver->next(c->ctx, 1000, &e));
    return &e;
}

/* The backend sits in its first call until the test lets it go: submit and next return meanwhile. */
static void nothing_waits_for_the_backend(void **state)
{
    (void)state;
    struct slow s;
    struct cloud c;
    static struct cloud_event none;
    open_slow(&s, &c);
    assert_int_equal(ask_create(&c, 1, "i-1", "s1"), 0);
    await(&s.begun);
    assert_int_equal(ask_create(&c, 2, "i-2", "none"), 0);
    struct cloud_call remove = { .op = CLOUD_REMOVE, .id = 3, .handle = "h", .intent = "i-3" };
    struct cloud_call look = { .op = CLOUD_LIST, .id = 4 }, price = { .op = CLOUD_PRICES, .id = 5 };
    assert_int_equal(c.driver->submit(c.ctx, &remove, 1000, NULL), 0);
    assert_int_equal(c.driver->submit(c.ctx, &look, 1000, NULL), 0);
    assert_int_equal(c.driver->submit(c.ctx, &price, 1000, NULL), 0);
    assert_false(c.driver->next(c.ctx, 1000, &none));

    struct cloud_event *e = taken(&s, &c);
    assert_int_equal(e->id, 1);
    assert_int_equal(e->rc, 0);
    assert_string_equal(e->made.handle, "h-i-1");
    e = taken(&s, &c);
    assert_int_equal(e->id, 2);
    assert_int_equal(e->class, OFFER_CAPACITY);
    assert_string_equal(e->err.text, "sold out");
    e = taken(&s, &c);
    assert_int_equal(e->id, 3);
    assert_int_equal(e->rc, -EIO);
    e = taken(&s, &c);
    assert_int_equal(e->count, 1);
    assert_string_equal(e->item[0].intent, "i-1");
    e = taken(&s, &c);
    assert_true(e->price[0].known && e->price[0].price_h == 0.5);
    assert_string_equal(s.log, "create i-1;create i-2;remove i-3;list ;prices ;");
    cloud_close(&c);
    assert_true(s.closed);
}

static void a_full_queue_is_an_answer(void **state)
{
    (void)state;
    struct slow s;
    struct cloud c;
    open_slow(&s, &c);
    char name[16];
    for (uint32_t i = 0; i < CLOUD_CALLS_MAX; i++) {
        snprintf(name, sizeof name, "i-%u", i);
        assert_int_equal(ask_create(&c, i + 1, name, "s1"), 0);
    }
    assert_int_equal(ask_create(&c, 999, "i-999", "s1"), -EBUSY);
    assert_int_equal(taken(&s, &c)->id, 1);
    assert_int_equal(ask_create(&c, 1000, "i-1000", "s1"), 0);
    assert_int_equal(ask_create(&c, 1001, "i-1001", "s1"), -EBUSY);
    assert_int_equal(taken(&s, &c)->id, 2);
    for (uint32_t i = 0; i < CLOUD_CALLS_MAX; i++) /* none waits any more */
        sem_post(&s.go);
    cloud_close(&c); /* ends with the call under way; what waits may be dropped */
    assert_true(s.closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_waits_for_the_backend),
        cmocka_unit_test(a_full_queue_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
