/* t_tls.c - tests our client and server over TLS, and each against a peer that behaves differently.
 *
 * Certificates are made at the start by the openssl command, which is also the foreign client;
 * without it the test is skipped. */
#include "base/core/own.h"
#include "base/io/http/http_server.h"
#include "base/io/net/tls.h"
#include "tests/certs.h"
#include "tests/unit/io/client_rig.h"

#include <ftw.h>
#include <sys/wait.h>

#define BIG (3u << 20)
#define SKIPPED 77

static char folder[64];

static struct str file_of(const char *name, char ret[128])
{
    snprintf(ret, 128, "%s/%s", folder, name);
    return str_from(ret);
}

/* The files of a certificate; none for "". */
struct paths {
    char text[3][128];
    struct tls_files files;
};

static void paths_of(struct paths *p, const char *name, const char *ca)
{
    char pem[64], key[64];
    snprintf(pem, sizeof pem, "%s.pem", name);
    snprintf(key, sizeof key, "%s.key", name);
    *p = (struct paths){ 0 };
    if (name[0]) p->files.certificate = file_of(pem, p->text[0]);
    if (name[0]) p->files.key = file_of(key, p->text[1]);
    if (ca[0]) p->files.ca = file_of(ca, p->text[2]);
}

/* ---- a server and clients on one loop ---- */

struct world {
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    struct tls *server_tls, *client_tls;
    struct http_exchange *held; /* a stream that the test continues */
    size_t sent;                /* of a large reply */
    struct http_exchange *big;
    int requests;
};

static void send_big(void *arg)
{
    static char part[7777];
    struct world *w = arg;
    memset(part, 'b', sizeof part);
    while (w->sent < BIG && !http_stream_full(w->big)) {
        size_t len = min_size(sizeof part, BIG - w->sent);
        assert_int_equal(http_stream_write(w->big, part, len), 0);
        w->sent += len;
    }
    if (w->sent == BIG) http_stream_end(TAKE(w->big));
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct world *w = ctx;
    const struct http_request *req = http_exchange_request(x);
    w->requests++;
    if (str_eq(req->path, STR("/big"))) {
        w->big = x;
        w->sent = 0;
        http_stream_begin(x, 200, STR("text/plain"));
        http_exchange_watch(x, NULL, send_big, w);
        send_big(w);
    } else if (str_eq(req->path, STR("/hold"))) {
        w->held = x;
        http_stream_begin(x, 200, STR("text/plain"));
        http_stream_write(x, "a", 1);
    } else {
        http_reply(x, 200, STR("text/plain"), req->body.len ? req->body : STR("ok"));
    }
}

/* Makes a world without a listener, because the returned struct moves: world_open comes after.
 * `server` NULL: plain HTTP. */
static struct world world_begin(struct paths *server, struct paths *client)
{
    struct world w = { 0 };
    struct err err = { 0 };
    assert_int_equal(loop_new(&w.loop, NULL), 0);
    if (server && tls_server_new(&server->files, &w.server_tls, &err) < 0) fail_msg("%s", err.text);
    if (tls_client_new(&client->files, &w.client_tls, &err) < 0) fail_msg("%s", err.text);
    return w;
}

static void world_open(struct world *w, int64_t head_us)
{
    struct http_server_config server = { .host = "127.0.0.1",
                                         .limits = { .head_us = head_us },
                                         .tls = w->server_tls,
                                         .on_request = on_request,
                                         .ctx = w };
    struct http_client_config client = { .tls = w->client_tls };
    assert_int_equal(http_server_new(w->loop, &server, &w->server, NULL), 0);
    assert_int_equal(http_client_new(w->loop, &client, &w->client, NULL), 0);
}

static void world_end(struct world *w)
{
    http_client_free(w->client);
    http_server_free(w->server);
    tls_free(w->server_tls);
    tls_free(w->client_tls);
    loop_free(w->loop);
}

struct result {
    struct seen seen;
    char problem[TLS_PROBLEM_BYTES];
};

static void on_tls_end(void *arg, enum http_end why)
{
    struct result *r = arg;
    snprintf(r->problem, sizeof r->problem, "%s", http_call_problem(r->seen.call));
    on_end(&r->seen, why);
}

static void start(struct world *w, struct result *r, const char *host, const char *path,
                  struct str body)
{
    *r = (struct result){ 0 };
    struct http_call_request req = { .host = str_from(host),
                                     .port = http_server_port(w->server),
                                     .tls = true,
                                     .path = str_from(path),
                                     .body = body,
                                     .on_head = on_head,
                                     .on_data = on_data,
                                     .on_end = on_tls_end,
                                     .arg = r };
    r->seen.call = http_call_start(w->client, &req, NULL);
    assert_non_null(r->seen.call);
}

static void get(struct world *w, struct result *r, const char *host)
{
    start(w, r, host, "/", (struct str){ 0 });
    TURN_UNTIL(w->loop, r->seen.ends == 1);
    seen_fini(&r->seen);
}

static struct http_server_counts served(struct world *w)
{
    struct http_server_counts c;
    http_server_counts_get(w->server, &c);
    return c;
}

/* ---- what is accepted ---- */

static void only_the_certificate_of_the_host_is_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *server, *ca, *host;
        enum http_end end;
        const char *problem;
    } rows[] = {
        { "good", "ca.pem", "localhost", HTTP_END_OK, "" },
        { "good", "ca.pem", "127.0.0.1", HTTP_END_OK, "" },
        { "other", "ca.pem", "localhost", HTTP_END_TLS, "hostname mismatch" },
        { "other", "ca.pem", "127.0.0.1", HTTP_END_TLS, "IP address mismatch" },
        { "old", "ca.pem", "localhost", HTTP_END_TLS, "expired" },
        { "stranger", "ca.pem", "localhost", HTTP_END_TLS, "certificate" },
        { "good", "", "localhost", HTTP_END_TLS, "certificate" }, /* no CA of the system */
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct paths server, client;
        struct result r;
        paths_of(&server, rows[i].server, "");
        paths_of(&client, "", rows[i].ca);
        struct world w = world_begin(&server, &client);
        world_open(&w, 0);
        get(&w, &r, rows[i].host);
        if (r.seen.end != rows[i].end || !strstr(r.problem, rows[i].problem))
            fail_msg("row %zu: %s: %s", i, http_end_text(r.seen.end), r.problem);
        assert_int_equal(w.requests, rows[i].end == HTTP_END_OK);
        world_end(&w);
    }
}

static void a_server_with_cas_serves_their_clients_only(void **state)
{
    (void)state;
    static const struct {
        const char *client;
        enum http_end end;
    } rows[] = { { "client", HTTP_END_OK }, { "", HTTP_END_TLS }, { "stranger", HTTP_END_TLS } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct paths server, client;
        struct result r;
        paths_of(&server, "good", "ca.pem");
        paths_of(&client, rows[i].client, "ca.pem");
        struct world w = world_begin(&server, &client);
        world_open(&w, 0);
        get(&w, &r, "localhost");
        if (r.seen.end != rows[i].end) fail_msg("row %zu: %s", i, http_end_text(r.seen.end));
        if (r.seen.end != HTTP_END_OK) assert_true(r.problem[0] != 0);
        assert_int_equal(w.requests, rows[i].end == HTTP_END_OK);
        world_end(&w);
    }
}

static void connections_are_pooled_for_one_host(void **state)
{
    (void)state;
    struct paths server, client;
    struct result r;
    paths_of(&server, "good", "");
    paths_of(&client, "", "ca.pem");
    struct world w = world_begin(&server, &client);
    world_open(&w, 0);
    for (int i = 0; i < 3; i++) {
        get(&w, &r, "localhost");
        assert_int_equal(r.seen.end, HTTP_END_OK);
    }
    struct http_client_counts c;
    http_client_counts_get(w.client, &c);
    assert_int_equal(c.connects, 1);
    get(&w, &r, "127.0.0.1"); /* the same port, but the certificate was checked for another name */
    http_client_counts_get(w.client, &c);
    assert_int_equal(c.connects, 2);
    world_end(&w);
}

/* ---- much data ---- */

static void bodies_of_megabytes_go_both_ways(void **state)
{
    (void)state;
    struct paths server, client;
    struct result r;
    CLEANUP(buf_fini) struct buf body = { 0 };
    paths_of(&server, "good", "");
    paths_of(&client, "", "ca.pem");
    struct world w = world_begin(&server, &client);
    world_open(&w, 0);
    for (uint32_t i = 0; i < BIG; i++)
        buf_byte(&body, (char)('a' + i % 26));
    start(&w, &r, "localhost", "/", buf_view(&body));
    TURN_UNTIL(w.loop, r.seen.ends == 1);
    assert_int_equal(r.seen.end, HTTP_END_OK);
    assert_true(str_eq(buf_view(&r.seen.body), buf_view(&body)));
    seen_fini(&r.seen);

    /* A client that pauses after each piece: bytes that OpenSSL holds meanwhile are still
     * delivered. */
    start(&w, &r, "localhost", "/big", (struct str){ 0 });
    r.seen.pause_on_data = true;
    while (r.seen.ends == 0) {
        size_t before = r.seen.data_calls;
        TURN_UNTIL(w.loop, r.seen.ends == 1 || r.seen.data_calls > before);
        if (r.seen.ends == 0) http_call_resume(r.seen.call);
    }
    assert_int_equal(r.seen.end, HTTP_END_OK);
    assert_int_equal(r.seen.body.len, BIG);
    seen_fini(&r.seen);
    world_end(&w);
}

/* ---- files that change ---- */

static void copy(const char *from, const char *to)
{
    char command[256];
    snprintf(command, sizeof command, "cp %s %s.new && mv %s.new %s", from, to, to, to);
    assert_true(certs_run(folder, command));
}

static void rest(struct world *w)
{
    int64_t until_us = clock_mono_us() + TLS_LOOK_US + 100000;
    TURN_UNTIL(w->loop, clock_mono_us() > until_us);
}

static void a_new_pair_is_used_and_no_stream_is_dropped(void **state)
{
    (void)state;
    struct paths server, client;
    struct result stream, r;
    copy("good.pem", "live.pem");
    copy("good.key", "live.key");
    paths_of(&server, "live", "");
    paths_of(&client, "", "ca.pem");
    struct world w = world_begin(&server, &client);
    world_open(&w, 0);
    start(&w, &stream, "localhost", "/hold", (struct str){ 0 });
    TURN_UNTIL(w.loop, stream.seen.data_calls == 1);

    copy("stranger.pem", "live.pem"); /* half a change: it does not match the old key */
    rest(&w);
    get(&w, &r, "localhost");
    assert_int_equal(r.seen.end, HTTP_END_OK);
    copy("stranger.key", "live.key");
    rest(&w);
    get(&w, &r, "127.0.0.1");                   /* a fresh connection */
    assert_int_equal(r.seen.end, HTTP_END_TLS); /* which has the other CA's certificate */

    http_stream_write(w.held, "b", 1);
    http_stream_end(TAKE(w.held));
    TURN_UNTIL(w.loop, stream.seen.ends == 1);
    assert_int_equal(stream.seen.end, HTTP_END_OK);
    assert_body(&stream.seen, "ab");
    seen_fini(&stream.seen);
    world_end(&w);
}

static void unusable_files_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *certificate, *key, *ca, *says;
    } rows[] = {
        { "good", "good", "absent.pem", "absent.pem" }, { "good", "other", "", "other.key" },
        { "certs", "good", "", "certs.pem" },           { "good", "", "", "without a key" },
        { "", "", "", "needs a certificate" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct paths c, k;
        struct tls *t;
        struct err err = { 0 };
        paths_of(&c, rows[i].certificate, rows[i].ca);
        paths_of(&k, rows[i].key, "");
        c.files.key = k.files.key;
        assert_true(tls_server_new(&c.files, &t, &err) < 0);
        if (!strstr(err.text, rows[i].says)) fail_msg("row %zu: %s", i, err.text);
    }
}

/* ---- other peers ---- */

static void plain_http_is_told_so_and_silence_is_closed(void **state)
{
    (void)state;
    struct paths server, client;
    paths_of(&server, "good", "");
    paths_of(&client, "", "ca.pem");
    struct world w = world_begin(&server, &client);
    world_open(&w, 50000);
    struct peer p = peer_connect(http_server_port(w.server));
    peer_send(w.loop, &p, STR("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    PEER_UNTIL(w.loop, &p, p.closed);
    assert_true(peer_has(&p, "HTTP/1.1 400") && peer_has(&p, "https://"));
    assert_int_equal(served(&w).refused[HTTP_FAULT_PLAIN], 1);
    peer_close(&p);

    p = peer_connect(http_server_port(w.server));
    PEER_UNTIL(w.loop, &p, p.closed); /* at the end of head_us */
    assert_int_equal(served(&w).refused[HTTP_FAULT_TLS], 1);
    peer_close(&p);
    p = peer_connect(http_server_port(w.server));
    peer_send(w.loop, &p, STR("\x16\x03\x01\x02\x00nonsense that is no hello............."));
    PEER_UNTIL(w.loop, &p, p.closed);
    assert_int_equal(served(&w).refused[HTTP_FAULT_TLS], 2);
    peer_close(&p);
    assert_int_equal(w.requests, 0);
    TURN_UNTIL(w.loop, served(&w).connections == 0);
    world_end(&w);
}

static void a_peer_without_tls_is_said_to_have_none(void **state)
{
    (void)state;
    struct paths client;
    struct result r;
    paths_of(&client, "", "ca.pem");
    struct world w = world_begin(NULL, &client);
    world_open(&w, 0);
    get(&w, &r, "localhost");
    assert_int_equal(r.seen.end, HTTP_END_TLS);
    assert_string_equal(r.problem, "the peer does not speak TLS");
    world_end(&w);
}

/* Runs `openssl s_client` with these options and this input; returns its output. */
static void s_client(struct world *w, const char *options, const char *input, struct buf *ret)
{
    char command[512], part[4096];
    snprintf(command, sizeof command,
             "(printf '%s'; sleep 1) | openssl s_client -connect 127.0.0.1:%u -CAfile %s/ca.pem %s "
             "2>&1",
             input, http_server_port(w->server), folder, options);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    int fd = fileno(f);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    ssize_t count;
    buf_clear(ret);
    while ((count = read(fd, part, sizeof part)) != 0) {
        if (count > 0) buf_append(ret, part, (size_t)count);
        assert_int_equal(loop_turn(w->loop, 2000), 0);
    }
    buf_byte(ret, 0);
    pclose(f);
}

static void versions_and_protocols_are_those_of_today(void **state)
{
    (void)state;
#define ASK "GET / HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
    static const struct {
        const char *options, *input, *says;
        int requests;
    } rows[] = {
        { "-tls1_3", ASK, "HTTP/1.1 200", 1 },
        { "-tls1_2", ASK, "HTTP/1.1 200", 1 },
        { "-tls1_1 -cipher DEFAULT@SECLEVEL=0", ASK, "alert protocol version", 0 },
        { "-alpn http/1.1", ASK, "ALPN protocol: http/1.1", 1 },
        { "-alpn h2", ASK, "alert no application protocol", 0 },
        { "-tls1_2 -cipher AES128-SHA", ASK, "handshake failure", 0 }, /* no forward secrecy */
        { "-tls1_3", ASK ASK ASK, "HTTP/1.1 200", 3 }, /* in one record, so in one event */
    };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct paths server, client;
    paths_of(&server, "good", "");
    paths_of(&client, "", "ca.pem");
    struct world w = world_begin(&server, &client);
    world_open(&w, 0);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        w.requests = 0;
        s_client(&w, rows[i].options, rows[i].input, &out);
        if (!strstr(out.data, rows[i].says) || w.requests != rows[i].requests)
            fail_msg("row %zu: %d requests, %s", i, w.requests, out.data);
    }
    world_end(&w);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/muster-tls-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    if (!certs_make(folder)) {
        printf("skipped: no openssl command makes certificates here; see %s/certs.log\n", folder);
        return SKIPPED;
    }
    certs_run(folder, "echo nonsense >certs.pem");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_certificate_of_the_host_is_accepted),
        cmocka_unit_test(a_server_with_cas_serves_their_clients_only),
        cmocka_unit_test(connections_are_pooled_for_one_host),
        cmocka_unit_test(bodies_of_megabytes_go_both_ways),
        cmocka_unit_test(a_new_pair_is_used_and_no_stream_is_dropped),
        cmocka_unit_test(unusable_files_are_named),
        cmocka_unit_test(plain_http_is_told_so_and_silence_is_closed),
        cmocka_unit_test(a_peer_without_tls_is_said_to_have_none),
        cmocka_unit_test(versions_and_protocols_are_those_of_today),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return failed;
}
