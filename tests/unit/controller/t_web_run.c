/* t_web_run.c - drives runs of a kind by hand: logins that several runs share, budgets, bounds, and what may be made
 * twice. What a provider's faults mean is tested with its kind (t_web_hetzner.c). */
#include "base/core/bits.h"
#include "controller/cloud/web/web_run.h"
#include "controller/cloud/web/web_step.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#define SECOND ((int64_t)1000000)
#define START (1000 * SECOND)
#define TOKEN "secret-of-the-login"

/* A kind that asks for as many pages as it is told. */
static struct {
    uint32_t pages;
    int64_t login_lives_us;
    uint32_t logins;
} script;

static void step(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                 int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    static const struct web_code codes[] = { { "sold", OFFER_CAPACITY, false }, { 0 } };
    (void)wall_us;
    if (op->kind == WEB_LOGIN && !reply) {
        web_ask(op, ret, "POST", "http://h/login");
        return;
    }
    if (reply && reply->status != 200) {
        web_refuse_reply(p, op, reply, codes, reply->body, reply->body, ret);
        return;
    }
    if (op->kind == WEB_LOGIN) {
        script.logins++;
        must(web_login_set(&p->login.token, STR(TOKEN)) == 0);
        p->login.expires_us = script.login_lives_us ? now_us + script.login_lives_us : 0;
        web_succeed(ret);
        return;
    }
    if (op->stage == script.pages) {
        web_succeed(ret);
        return;
    }
    op->stage++;
    bool creates = op->kind == WEB_CREATE;
    if (web_ask(op, ret, creates ? "POST" : "GET", "http://h/%u", op->stage) == 0)
        web_ask_header(op, ret, "authorization", "Bearer %s", p->login.token);
}

static struct web_kind kind = { .name = "test", .step = step };

struct ground {
    struct web_offer offer;
    struct web_section section;
    struct web_settings settings;
    struct web_host host;
    struct web_api api;
    struct listed item[4];
};

static struct ground *ground(double calls_per_s)
{
    static struct ground g;
    g = (struct ground){ .offer = { .offer = { .name = "o" } } };
    g.settings = (struct web_settings){ .section = &g.section,
                                        .kind = &kind,
                                        .name = STR("c"),
                                        .offer = &g.offer,
                                        .offer_count = 1,
                                        .calls_per_s = calls_per_s };
    script.pages = 1;
    script.login_lives_us = 0;
    script.logins = 0;
    kind.create_is_keyed = false;
    assert_int_equal(web_api_open(&g.api, &g.settings, &g.host, 1, NULL), 0);
    return &g;
}

static void ground_end(struct ground *g)
{
    web_api_close(&g->api);
}

static void begin(struct ground *g, struct web_run *r, enum cloud_op op, int64_t now_us)
{
    static const struct str args[] = { { "muster", 6 } };
    static const struct launch_spec spec = { .instance = { "i-1", 3 },
                                             .service = { "s", 1 },
                                             .pool = { "p", 1 },
                                             .offer = { "o", 1 },
                                             .controller_host = { "h", 1 },
                                             .controller_port = 1,
                                             .engine_host = { "h", 1 },
                                             .engine_args = args,
                                             .engine_arg_count = 1 };
    static const struct offer offer = { .name = "o" };
    const struct cloud_call call = {
        .op = op, .id = 7, .create = { .intent = "i-1", .offer = &offer, .spec = &spec }
    };
    assert_int_equal(web_run_begin(r, &g->api, &call, g->item, NULL, now_us, NULL), 0);
}

static const struct web_reply fine = { .status = 200, .sent = true };

static enum web_turn turn(struct web_run *r, const struct web_reply *reply, int64_t now_us)
{
    return web_run_turn(r, reply, now_us, 0);
}

static void end(struct web_run *r, int rc, enum offer_error class)
{
    static struct cloud_event e;
    web_run_event(r, &e);
    if (e.rc != rc || e.class != class)
        fail_msg("%d, %s: %s", e.rc, offer_error_names[e.class], e.err.text);
    assert_null(strstr(e.err.text, TOKEN));
    assert_int_equal(e.id, 7);
    web_run_fini(r);
}

/* Two runs at once: the second waits for the login that the first makes. */
static void a_login_is_shared(void **state)
{
    (void)state;
    struct ground *g = ground(0);
    struct web_run one, two;
    begin(g, &one, CLOUD_LIST, START);
    begin(g, &two, CLOUD_PRICES, START);
    assert_int_equal(turn(&one, NULL, START), WEB_TURN_ASK);
    assert_int_equal(turn(&two, NULL, START), WEB_TURN_WAIT);
    assert_true(two.wait_us > START);
    assert_int_equal(turn(&one, &fine, START + 1), WEB_TURN_ASK);
    assert_int_equal(turn(&two, NULL, two.wait_us), WEB_TURN_ASK);
    assert_int_equal(script.logins, 1);
    assert_int_equal(turn(&one, &fine, START + 2), WEB_TURN_DONE);
    assert_int_equal(turn(&two, &fine, START + 2), WEB_TURN_DONE);
    end(&one, 0, OFFER_OK);
    end(&two, 0, OFFER_OK);
    ground_end(g);
}

/* A run that is cut while it logs in does not keep the others waiting. */
static void a_login_that_is_cut_is_made_by_another(void **state)
{
    (void)state;
    struct ground *g = ground(0);
    struct web_run one, two;
    begin(g, &one, CLOUD_LIST, START);
    begin(g, &two, CLOUD_LIST, START);
    assert_int_equal(turn(&one, NULL, START), WEB_TURN_ASK);
    assert_int_equal(turn(&two, NULL, START), WEB_TURN_WAIT);
    web_run_fini(&one);
    assert_int_equal(turn(&two, NULL, two.wait_us), WEB_TURN_ASK);
    assert_true(str_eq(two.step.ask.url, STR("http://h/login")));
    web_run_fini(&two);
    ground_end(g);
}

/* One run's refused login renews it while another is between two pages: that one goes on with what there is. */
static void a_login_is_renewed_under_another_run(void **state)
{
    (void)state;
    struct ground *g = ground(0);
    struct web_run one, two;
    const struct web_reply refused = { .status = 401, .sent = true, .body = STR(TOKEN " is bad") };
    script.pages = 2;
    begin(g, &one, CLOUD_LIST, START);
    assert_int_equal(turn(&one, NULL, START), WEB_TURN_ASK);
    assert_int_equal(turn(&one, &fine, START), WEB_TURN_ASK);
    begin(g, &two, CLOUD_PRICES, START);
    assert_int_equal(turn(&two, NULL, START), WEB_TURN_ASK);
    assert_int_equal(turn(&two, &refused, START), WEB_TURN_ASK); /* logs in */
    assert_true(str_eq(two.step.ask.url, STR("http://h/login")));
    assert_int_equal(turn(&one, &fine, START),
                     WEB_TURN_ASK); /* the second page, with the old token */
    assert_true(str_eq(one.step.ask.header[0].value, STR("Bearer " TOKEN)));
    assert_int_equal(turn(&two, &fine, START), WEB_TURN_ASK);
    assert_int_equal(script.logins, 2);
    assert_int_equal(turn(&two, &refused, START), WEB_TURN_DONE); /* once is enough */
    end(&two, -EACCES, OFFER_AUTH);
    assert_int_equal(turn(&one, &fine, START), WEB_TURN_DONE);
    end(&one, 0, OFFER_OK);
    ground_end(g);
}

static void a_login_is_renewed_before_it_expires(void **state)
{
    (void)state;
    struct ground *g = ground(0);
    script.login_lives_us = 3600 * SECOND;
    const int64_t at[] = { 0, 60, 3400, 3600 - 100, 3700 };
    const uint32_t logins[] = { 1, 1, 1, 2, 2 };
    for (size_t i = 0; i < COUNT_OF(at); i++) {
        struct web_run r;
        int64_t now_us = START + at[i] * SECOND;
        begin(g, &r, CLOUD_LIST, now_us);
        const struct web_reply *reply = NULL;
        while (turn(&r, reply, now_us) == WEB_TURN_ASK)
            reply = &fine;
        assert_int_equal(script.logins, logins[i]);
        end(&r, 0, OFFER_OK);
    }
    /* One that lives shorter than the margin still serves the run that made it. */
    script.login_lives_us = 30 * SECOND;
    struct web_run r;
    begin(g, &r, CLOUD_LIST, START + 9000 * SECOND);
    const struct web_reply *reply = NULL;
    while (turn(&r, reply, START + 9000 * SECOND) == WEB_TURN_ASK)
        reply = &fine;
    end(&r, 0, OFFER_OK);
    ground_end(g);
}

/* A login that fails is not tried anew by every call. */
static void a_failed_login_is_remembered(void **state)
{
    (void)state;
    struct ground *g = ground(0);
    const struct web_reply refused = { .status = 403, .sent = true };
    struct web_run r;
    begin(g, &r, CLOUD_LIST, START);
    assert_int_equal(turn(&r, NULL, START), WEB_TURN_ASK);
    assert_int_equal(turn(&r, &refused, START), WEB_TURN_DONE);
    end(&r, -EACCES, OFFER_AUTH);
    begin(g, &r, CLOUD_LIST, START + SECOND);
    assert_int_equal(turn(&r, NULL, START + SECOND), WEB_TURN_DONE);
    end(&r, -EACCES, OFFER_AUTH);
    begin(g, &r, CLOUD_LIST, START + WEB_LOGIN_AGAIN_US);
    assert_int_equal(turn(&r, NULL, START + WEB_LOGIN_AGAIN_US), WEB_TURN_ASK);
    web_run_fini(&r);
    ground_end(g);
}

/* Requests of all runs share the budget; a burst of five seconds is saved up. */
static void requests_share_a_budget(void **state)
{
    (void)state;
    struct ground *g = ground(2);
    struct web_run r;
    int64_t now_us = START;
    uint32_t asks = 0;
    script.pages = 30;
    begin(g, &r, CLOUD_LIST, START);
    const struct web_reply *reply = NULL;
    for (;;) {
        enum web_turn t = turn(&r, reply, now_us);
        reply = t == WEB_TURN_ASK ? &fine : NULL;
        asks += t == WEB_TURN_ASK;
        if (t == WEB_TURN_DONE) break;
        if (t == WEB_TURN_WAIT) now_us = r.wait_us;
    }
    assert_int_equal(asks, 31);
    assert_true(now_us - START >= 10 * SECOND && now_us - START < 11 * SECOND);
    assert_true(g->api.waited_us == now_us - START);
    end(&r, 0, OFFER_OK);
    ground_end(g);
}

static void an_op_has_so_many_requests_at_most(void **state)
{
    (void)state;
    struct ground *g = ground(0);
    struct web_run r;
    script.pages = 1000;
    begin(g, &r, CLOUD_LIST, START);
    r.tries = WEB_TRIES_MAX; /* it would begin again */
    const struct web_reply *reply = NULL;
    uint32_t asks = 0;
    while (turn(&r, reply, START) == WEB_TURN_ASK) {
        reply = &fine;
        asks++;
    }
    assert_int_equal(asks, WEB_ASKS_MAX + 1); /* and the login */
    end(&r, -EIO, OFFER_TRANSIENT);
    ground_end(g);
}

/* Goes through a create whose first request gets no reply, and whose second is answered by `second`. */
static void lose_one(bool keyed, bool sent, const struct web_reply *second, uint32_t want_asks,
                     int rc, enum offer_error class)
{
    struct ground *g = ground(0);
    const struct web_reply lost = { .sent = sent, .problem = STR("no reply") };
    struct web_run r;
    int64_t now_us = START;
    uint32_t asks = 0;
    kind.create_is_keyed = keyed;
    begin(g, &r, CLOUD_CREATE, START);
    assert_int_equal(turn(&r, NULL, now_us), WEB_TURN_ASK);
    const struct web_reply *reply = &fine; /* the login */
    for (;;) {
        enum web_turn t = turn(&r, reply, now_us);
        if (t == WEB_TURN_DONE) break;
        if (t == WEB_TURN_WAIT) now_us = r.wait_us;
        reply = t == WEB_TURN_WAIT ? NULL : asks == 0 ? &lost : second;
        asks += t == WEB_TURN_ASK;
    }
    assert_int_equal(asks, want_asks);
    end(&r, rc, class);
    ground_end(g);
}

static void what_may_be_made_twice(void **state)
{
    (void)state;
    const struct web_reply sold = { .status = 409, .sent = true, .body = STR("sold") };
    lose_one(true, true, &fine, 2, 0, OFFER_OK);
    lose_one(false, true, &fine, 1, -EIO, OFFER_TRANSIENT); /* something may have been made */
    lose_one(false, false, &fine, 2, 0, OFFER_OK);          /* nothing was sent */
    lose_one(true, true, &sold, 2, -ENOSPC,
             OFFER_TRANSIENT); /* the first may have taken the last one */
    lose_one(true, false, &sold, 2, -ENOSPC, OFFER_CAPACITY);
}

/* Without any reply the run ends within its time. */
static void a_run_ends(void **state)
{
    (void)state;
    struct ground *g = ground(0);
    const struct web_reply lost = { .sent = true, .problem = STR("no reply") };
    struct web_run r;
    int64_t now_us = START;
    begin(g, &r, CLOUD_LIST, START);
    const struct web_reply *reply = NULL;
    for (;;) {
        enum web_turn t = turn(&r, reply, now_us);
        if (t == WEB_TURN_DONE) break;
        now_us = t == WEB_TURN_WAIT ? r.wait_us : now_us + web_run_deadline_us(&r, now_us);
        reply = t == WEB_TURN_ASK ? &lost : NULL;
    }
    assert_true(now_us - START <= WEB_RUN_US + SECOND);
    end(&r, -EIO, OFFER_TRANSIENT);
    ground_end(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_login_is_shared),
        cmocka_unit_test(a_login_that_is_cut_is_made_by_another),
        cmocka_unit_test(a_login_is_renewed_under_another_run),
        cmocka_unit_test(a_login_is_renewed_before_it_expires),
        cmocka_unit_test(a_failed_login_is_remembered),
        cmocka_unit_test(requests_share_a_budget),
        cmocka_unit_test(an_op_has_so_many_requests_at_most),
        cmocka_unit_test(what_may_be_made_twice),
        cmocka_unit_test(a_run_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
