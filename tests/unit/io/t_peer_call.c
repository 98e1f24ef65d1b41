/* t_peer_call.c - tests signed calls between processes, and whole replies from a peer. */
#include "base/core/bits.h"
#include "base/core/list.h"
#include "base/core/own.h"
#include "base/io/auth/signed_call.h"
#include "base/io/http/http_server.h"
#include "base/io/loop/clock.h"
#include "tests/unit/io/auth_rig.h"

#include <stdio.h>

/* ---- signed calls: a receiver met first, one that restarts, and replies signed by others ---- */

#define SECRET "the fleet's"
#define WAIT_US 20000000

enum lie {
    HONEST,
    UNSIGNED,      /* any process at the port */
    OTHER_SECRET,  /* a process of another fleet */
    OTHER_STATUS,  /* signed for 200, sent as 202 */
    OTHER_BODY,    /* signed for one body, sent with another */
    OTHER_REQUEST, /* the reply to an earlier request */
    OLD_RELEASE,   /* takes the secret itself, knows no signatures */
    LIE_COUNT
};

struct rig {
    struct auth_rig auth; /* must be first: auth_rig.h */
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    struct signer *signer;
    enum lie lie;
    bool streams;
    uint32_t requests, secrets;
    char last_reply[AUTH_TEXT_BYTES_MAX];
    /* The call's outcome. */
    bool ended;
    enum http_end end;
    int status;
    struct buf body;
};

static void on_head(void *ctx, struct http_exchange *x)
{
    struct rig *r = ctx;
    struct str bearer = auth_bearer(http_exchange_request(x));
    if (r->lie != OLD_RELEASE) {
        auth_rig_on_head(ctx, x);
    } else if (!str_eq(bearer, STR(SECRET))) {
        http_reply(x, 401, STR("text/plain"), STR("a key is needed\n"));
    } else {
        r->secrets++;
    }
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct rig *r = ctx;
    r->requests++;
    if (r->lie != OLD_RELEASE)
        assert_true(auth_gate_body(http_exchange_note(x), http_exchange_request(x)));
    if (r->streams) {
        assert_int_equal(http_stream_begin(x, 200, STR("text/plain")), 0);
        http_stream_write(x, "body", 4);
        http_stream_end(x);
    } else {
        http_reply(x, r->lie == OTHER_STATUS ? 202 : 200, STR("text/plain"), STR("body"));
    }
}

static void on_reply(void *ctx, struct http_exchange *x, int status, const struct str *body)
{
    struct rig *r = ctx;
    struct auth_request a;
    struct auth_key key;
    struct str header = http_request_header(http_exchange_request(x), "authorization");
    char text[AUTH_TEXT_BYTES_MAX];
    if (auth_request_parse(header, &a) < 0 || r->lie == UNSIGNED || r->lie == OLD_RELEASE) return;
    struct str secret = r->lie == OTHER_SECRET ? STR("another fleet's") : STR(SECRET);
    assert_int_equal(auth_key_of(secret, a.id, &key), 0);
    const struct str other = STR("another body");
    bool again = status == 401;
    auth_reply_sign(&r->auth.gate.receiver, &a, &key,
                    r->lie == OTHER_STATUS && !again ? 200 : status,
                    r->lie == OTHER_BODY && !again && body ? &other : body, clock_mono_us(), text);
    http_reply_header(x, AUTH_REPLY_HEADER,
                      str_from(r->lie == OTHER_REQUEST && !again ? r->last_reply : text));
    snprintf(r->last_reply, sizeof r->last_reply, "%s", text);
}

static void call_head(void *arg, const struct http_response *head)
{
    ((struct rig *)arg)->status = head->status;
}

static void call_data(void *arg, struct str data)
{
    buf_str(&((struct rig *)arg)->body, data);
}

static void call_end(void *arg, enum http_end end)
{
    struct rig *r = arg;
    r->ended = true;
    r->end = end;
}

static void rig_open(struct rig *r, struct str send_secret)
{
    *r = (struct rig){ 0 };
    auth_rig_init(&r->auth, STR(SECRET));
    assert_int_equal(loop_new(&r->loop, NULL), 0);
    const struct http_server_config server = { .host = "127.0.0.1",
                                               .on_head = on_head,
                                               .on_request = on_request,
                                               .on_reply = on_reply,
                                               .ctx = r };
    assert_int_equal(http_server_new(r->loop, &server, &r->server, NULL), 0);
    assert_int_equal(http_client_new(r->loop, NULL, &r->client, NULL), 0);
    const struct signer_config signer = { r->loop, r->client, NULL, send_secret };
    assert_int_equal(signer_new(&signer, &r->signer, NULL), 0);
}

static void rig_close(struct rig *r)
{
    http_client_free(r->client);
    signer_free(r->signer);
    http_server_free(r->server);
    auth_rig_fini(&r->auth);
    loop_free(r->loop);
    buf_fini(&r->body);
}

static void call(struct rig *r, bool streams)
{
    struct signed_as as = { .id = STR("router") };
    assert_int_equal(auth_key_of(STR(SECRET), as.id, &as.key), 0);
    const struct http_call_request req = { .host = STR("127.0.0.1"),
                                           .port = http_server_port(r->server),
                                           .path = STR("/x?y=1"),
                                           .body = STR("{}"),
                                           .on_head = call_head,
                                           .on_data = call_data,
                                           .on_end = call_end,
                                           .arg = r };
    int64_t until_us = clock_mono_us() + WAIT_US;
    r->ended = false;
    r->status = 0;
    buf_clear(&r->body);
    assert_non_null(signed_call_start(r->signer, &req, &as, streams, NULL));
    while (!r->ended) {
        assert_true(clock_mono_us() < until_us);
        assert_int_equal(loop_turn(r->loop, 10000), 0);
    }
}

static void a_receiver_is_met_once(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, (struct str){ 0 });
    for (int i = 0; i < 3; i++) {
        call(&r, false);
        assert_true(r.end == HTTP_END_OK && r.status == 200);
        assert_true(str_eq(buf_view(&r.body), STR("body")));
    }
    assert_true(r.requests == 3 && r.auth.again == 1);
    /* After a restart the receiver has another epoch, and the caller meets it again. */
    auth_receiver_fini(&r.auth.gate.receiver);
    auth_receiver_init(&r.auth.gate.receiver, 4712, clock_mono_us());
    call(&r, false);
    assert_true(r.end == HTTP_END_OK && r.requests == 4 && r.auth.again == 2);
    /* The receiver's clock jumps, as after a machine was suspended. */
    r.auth.gate.receiver.born_us -= 3600 * (int64_t)1000000;
    call(&r, false);
    assert_true(r.end == HTTP_END_OK && r.requests == 5 && r.auth.again == 3);
    r.streams = true;
    call(&r, true);
    assert_true(r.end == HTTP_END_OK && r.status == 200 && r.requests == 6);
    call(&r, false); /* a stream is refused where a signed body is wanted */
    assert_true(r.end == HTTP_END_UNTRUSTED && r.status == 0);
    rig_close(&r);
}

static void nobody_else_is_believed(void **state)
{
    (void)state;
    for (enum lie lie = UNSIGNED; lie < LIE_COUNT; lie++) {
        struct rig r;
        rig_open(&r, (struct str){ 0 });
        call(&r, false);
        assert_int_equal(r.end, HTTP_END_OK);
        r.lie = lie;
        call(&r, false);
        if (r.end != HTTP_END_UNTRUSTED) fail_msg("lie %d: end %d status %d", lie, r.end, r.status);
        /* An untrusted head is not delivered; an untrusted body is reported at its end. */
        assert_int_equal(r.status, lie == OTHER_BODY ? 200 : 0);
        assert_int_equal(r.secrets, 0);
        r.lie = HONEST;
        call(&r, false);
        assert_int_equal(r.end, HTTP_END_OK);
        rig_close(&r);
    }
}

/* The secret itself goes to an older release only where the configuration allows it. */
static void an_older_release_gets_the_secret_when_told(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r, STR(SECRET));
    r.lie = OLD_RELEASE;
    call(&r, false);
    assert_true(r.end == HTTP_END_OK && r.status == 200 && r.secrets == 1);
    call(&r, false); /* remembered as old for a while */
    assert_true(r.end == HTTP_END_OK && r.secrets == 2);
    rig_close(&r);
    rig_open(&r, STR(SECRET));
    call(&r, false); /* a peer that knows signatures never gets it */
    assert_true(r.end == HTTP_END_OK && r.secrets == 0);
    rig_close(&r);
}

static int signed_call_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receiver_is_met_once),
        cmocka_unit_test(nobody_else_is_believed),
        cmocka_unit_test(an_older_release_gets_the_secret_when_told),
    };
    return cmocka_run_group_tests_name("signed_call", tests, NULL, NULL);
}

/* ---- a reply wanted whole: good, refused, too long, followed by another call, cancelled ---- */

#define REPLY "a reply of some length"

struct call_rig {
    struct auth_rig auth; /* must be first: auth_rig.h */
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    struct signer *signer;
    int status; /* of the next reply */
    uint32_t requests, with_json;
    char method[8];

    struct peer_call call;
    uint32_t replies, again; /* received; calls still to make from on_reply */
    enum http_end end;
};

static void call_on_request(void *ctx, struct http_exchange *x)
{
    struct call_rig *r = ctx;
    const struct http_request *req = http_exchange_request(x);
    assert_true(auth_gate_body(http_exchange_note(x), req));
    r->requests++;
    r->with_json += str_eq(http_request_header(req, "content-type"), STR("application/json"));
    snprintf(r->method, sizeof r->method, STR_FMT, STR_ARG(req->method));
    http_reply(x, r->status, STR("text/plain"), STR(REPLY));
}

static void call_rig_open(struct call_rig *r)
{
    *r = (struct call_rig){ .status = 200 };
    auth_rig_init(&r->auth, STR(SECRET));
    assert_int_equal(loop_new(&r->loop, NULL), 0);
    const struct http_server_config server = { .host = "127.0.0.1",
                                               .on_head = auth_rig_on_head,
                                               .on_request = call_on_request,
                                               .on_reply = auth_rig_on_reply,
                                               .ctx = r };
    assert_int_equal(http_server_new(r->loop, &server, &r->server, NULL), 0);
    assert_int_equal(http_client_new(r->loop, NULL, &r->client, NULL), 0);
    const struct signer_config signer = { .loop = r->loop, .client = r->client };
    assert_int_equal(signer_new(&signer, &r->signer, NULL), 0);
}

static void call_rig_close(struct call_rig *r)
{
    peer_call_fini(&r->call);
    http_client_free(r->client);
    signer_free(r->signer);
    http_server_free(r->server);
    auth_rig_fini(&r->auth);
    loop_free(r->loop);
}

static void ask(struct call_rig *r, struct str body, size_t reply_max);

static void call_on_reply(struct peer_call *c, enum http_end end)
{
    struct call_rig *r = CONTAINER_OF(c, struct call_rig, call);
    assert_null(c->call);
    assert_non_null(c->problem);
    r->replies++;
    r->end = end;
    if (r->again > 0) {
        r->again--;
        ask(r, STR(""), 100);
    }
}

static void ask(struct call_rig *r, struct str body, size_t reply_max)
{
    struct peer_question q = { .host = STR("127.0.0.1"),
                               .port = http_server_port(r->server),
                               .as = { .id = STR("router") },
                               .path = STR("/x"),
                               .body = body,
                               .reply_max = reply_max,
                               .deadline_us = clock_mono_us() + WAIT_US };
    assert_int_equal(auth_key_of(STR(SECRET), q.as.id, &q.as.key), 0);
    assert_int_equal(peer_call_start(&r->call, r->signer, &q, call_on_reply, NULL), 0);
}

static void wait_for(struct call_rig *r, uint32_t replies)
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
    struct call_rig r;
    call_rig_open(&r);
    ask(&r, STR("{}"), 100);
    wait_for(&r, 1);
    assert_true(peer_call_is_good(&r.call, r.end));
    assert_string_equal(r.call.body.data, REPLY);
    assert_string_equal(r.method, "POST");
    assert_int_equal(r.with_json, 1);

    ask(&r, STR(""), 100);
    wait_for(&r, 2);
    assert_string_equal(r.call.body.data, REPLY); /* nothing of the earlier reply */
    assert_string_equal(r.method, "GET");
    assert_int_equal(r.with_json, 1);
    call_rig_close(&r);
}

static void t_reply_is_no_good(void **state)
{
    (void)state;
    struct call_rig r;
    call_rig_open(&r);
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

    ask(&r, STR("{}"), 100); /* the next call has its own bound */
    wait_for(&r, 3);
    assert_true(peer_call_is_good(&r.call, r.end));
    call_rig_close(&r);
}

static void t_next_call_from_on_reply(void **state)
{
    (void)state;
    struct call_rig r;
    call_rig_open(&r);
    r.again = 3;
    ask(&r, STR("{}"), 100);
    wait_for(&r, 4);
    assert_int_equal(r.requests, 4);
    assert_true(peer_call_is_good(&r.call, r.end));
    call_rig_close(&r);
}

static void t_cancelled(void **state)
{
    (void)state;
    struct call_rig r;
    call_rig_open(&r);
    peer_call_cancel(&r.call); /* none under way */
    ask(&r, STR("{}"), 100);
    peer_call_cancel(&r.call);
    ask(&r, STR("{}"), 100); /* the next call may start at once */
    wait_for(&r, 1);
    assert_int_equal(r.replies, 1);
    ask(&r, STR("{}"), 100);
    call_rig_close(&r); /* with a call under way */
}

static int peer_call_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_reply_is_whole),
        cmocka_unit_test(t_reply_is_no_good),
        cmocka_unit_test(t_next_call_from_on_reply),
        cmocka_unit_test(t_cancelled),
    };
    return cmocka_run_group_tests_name("peer_call", tests, NULL, NULL);
}

int main(void)
{
    return signed_call_tests() + peer_call_tests();
}
