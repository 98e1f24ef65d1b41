/* t_peer_call.c - a reply that is wanted whole: good, refused, too long, followed up, cancelled. */
#include "base/core/list.h"
#include "base/io/auth/peer_call.h"
#include "base/io/http/http_server.h"
#include "base/io/loop/clock.h"
#include "tests/unit/io/auth_rig.h"

#include <stdio.h>

#define SECRET "the fleet's"
#define WAIT_US 20000000
#define REPLY "a reply of some length"

struct rig {
    struct auth_rig auth; /* first: auth_rig.h */
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    struct signer *signer;
    int status; /* of the next reply */
    uint32_t requests, with_json;
    char method[8];

    struct peer_call call;
    uint32_t replies, again; /* that came; that are to be asked for from on_reply */
    enum http_end end;
};

static void on_request(void *ctx, struct http_exchange *x)
{
    struct rig *r = ctx;
    const struct http_request *req = http_exchange_request(x);
    assert_true(auth_gate_body(http_exchange_note(x), req));
    r->requests++;
    r->with_json += str_eq(http_request_header(req, "content-type"), STR("application/json"));
    snprintf(r->method, sizeof r->method, STR_FMT, STR_ARG(req->method));
    http_reply(x, r->status, STR("text/plain"), STR(REPLY));
}

static void rig_open(struct rig *r)
{
    *r = (struct rig){ .status = 200 };
    auth_rig_init(&r->auth, STR(SECRET));
    assert_int_equal(loop_new(&r->loop, NULL), 0);
    const struct http_server_config server = { .host = "127.0.0.1",
                                               .on_head = auth_rig_on_head,
                                               .on_request = on_request,
                                               .on_reply = auth_rig_on_reply,
                                               .ctx = r };
    assert_int_equal(http_server_new(r->loop, &server, &r->server, NULL), 0);
    assert_int_equal(http_client_new(r->loop, NULL, &r->client, NULL), 0);
    const struct signer_config signer = { .loop = r->loop, .client = r->client };
    assert_int_equal(signer_new(&signer, &r->signer, NULL), 0);
}

static void rig_close(struct rig *r)
{
    peer_call_fini(&r->call);
    http_client_free(r->client);
    signer_free(r->signer);
    http_server_free(r->server);
    auth_rig_fini(&r->auth);
    loop_free(r->loop);
}

static void ask(struct rig *r, struct str body, size_t reply_max);

static void on_reply(struct peer_call *c, enum http_end end)
{
    struct rig *r = CONTAINER_OF(c, struct rig, call);
    assert_null(c->call);
    assert_non_null(c->problem);
    r->replies++;
    r->end = end;
    if (r->again > 0) {
        r->again--;
        ask(r, STR(""), 100);
    }
}

static void ask(struct rig *r, struct str body, size_t reply_max)
{
    struct peer_question q = { .host = STR("127.0.0.1"),
                               .port = http_server_port(r->server),
                               .as = { .id = STR("router") },
                               .path = STR("/x"),
                               .body = body,
                               .reply_max = reply_max,
                               .deadline_us = clock_mono_us() + WAIT_US };
    assert_int_equal(auth_key_of(STR(SECRET), q.as.id, &q.as.key), 0);
    assert_int_equal(peer_call_start(&r->call, r->signer, &q, on_reply, NULL), 0);
}

static void wait_for(struct rig *r, uint32_t replies)
{
    int64_t until_us = clock_mono_us() + WAIT_US;
    while (r->replies < replies) {
        assert_true(clock_mono_us() < until_us);
        assert_int_equal(loop_turn(r->loop, 100000), 0);
    }
}

static void t_reply_is_whole(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r);
    ask(&r, STR("{}"), 100);
    wait_for(&r, 1);
    assert_true(peer_call_is_good(&r.call, r.end));
    assert_string_equal(r.call.body.data, REPLY);
    assert_string_equal(r.method, "POST");
    assert_int_equal(r.with_json, 1);

    ask(&r, STR(""), 100);
    wait_for(&r, 2);
    assert_string_equal(r.call.body.data, REPLY); /* nothing of the reply before */
    assert_string_equal(r.method, "GET");
    assert_int_equal(r.with_json, 1);
    rig_close(&r);
}

static void t_reply_is_no_good(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r);
    r.status = 503;
    ask(&r, STR("{}"), 100);
    wait_for(&r, 1);
    assert_int_equal(r.end, HTTP_END_OK);
    assert_int_equal(r.call.status, 503);
    assert_false(peer_call_is_good(&r.call, r.end));

    r.status = 200;
    ask(&r, STR("{}"), sizeof REPLY - 5);
    wait_for(&r, 2);
    assert_int_equal(r.call.body.rc, -E2BIG);
    assert_false(peer_call_is_good(&r.call, r.end));

    ask(&r, STR("{}"), 100); /* the bound of one call is not the next one's */
    wait_for(&r, 3);
    assert_true(peer_call_is_good(&r.call, r.end));
    rig_close(&r);
}

static void t_next_call_from_on_reply(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r);
    r.again = 3;
    ask(&r, STR("{}"), 100);
    wait_for(&r, 4);
    assert_int_equal(r.requests, 4);
    assert_true(peer_call_is_good(&r.call, r.end));
    rig_close(&r);
}

static void t_cancelled(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r);
    peer_call_cancel(&r.call); /* none under way */
    ask(&r, STR("{}"), 100);
    peer_call_cancel(&r.call);
    ask(&r, STR("{}"), 100); /* may be asked again at once */
    wait_for(&r, 1);
    assert_int_equal(r.replies, 1);
    ask(&r, STR("{}"), 100);
    rig_close(&r); /* with a call under way */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_reply_is_whole),
        cmocka_unit_test(t_reply_is_no_good),
        cmocka_unit_test(t_next_call_from_on_reply),
        cmocka_unit_test(t_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
