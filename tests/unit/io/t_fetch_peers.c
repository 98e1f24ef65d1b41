/* t_fetch_peers.c - tests whom a call through libcurl reaches, and what it tells them: redirects, proxies, and TLS
 * against our own server. */
#include "base/io/http/http_server.h"
#include "base/io/net/tls.h"
#include "tests/certs.h"
#include "tests/unit/io/fetch_rig.h"

#include <ftw.h>
#include <signal.h>

/* ---- redirects ---- */

static void redirects_are_followed_only_when_asked(void **state)
{
    (void)state;
    static const struct {
        const char *method, *where;
        uint32_t max;
        int status;  /* that the caller gets */
        bool secret; /* the second request has the header */
    } rows[] = {
        { "GET", "/y", 0, 302, false },
        { "GET", "/y", 1, 200, true },
        { "POST", "/y", 1, 302, false },
        { "GET", NULL, 1, 200, false }, /* the same port of another host: no credentials */
        { "GET", "gopher://127.0.0.1/", 1, 302, false },
        { "GET", "http://a:b@127.0.0.1/", 1, 302, false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct world w = begin((struct fetch_config){ 0 });
        struct seen s = { 0 };
        char where[128], head[256];
        snprintf(where, sizeof where, "http://localhost:%u/y", w.port);
        if (rows[i].where) snprintf(where, sizeof where, "%s", rows[i].where);
        snprintf(head, sizeof head,
                 "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 3\r\n\r\nold", where);
        start(&w, &s,
              (struct fetch_request){ .method = str_from(rows[i].method),
                                      .bearer = STR("secret"),
                                      .redirects_max = rows[i].max });
        struct peer p = take(&w), second = { .fd = -1 };
        peer_send(w.loop, &p, str_from(head));
        if (rows[i].status == 200) {
            bool same = rows[i].where != NULL;
            buf_clear(&p.got);
            if (!same) second = take(&w);
            struct peer *q = same ? &p : &second;
            PEER_UNTIL(w.loop, q, peer_has(q, "GET /y HTTP/1.1\r\n") && peer_has(q, "\r\n\r\n"));
            if (peer_has(q, "secret") != rows[i].secret) fail_msg("row %zu: %s", i, q->got.data);
            peer_send(w.loop, q, STR(REPLY));
        }
        TURN_UNTIL(w.loop, s.ends == 1);
        if (s.reply.end != FETCH_OK || s.reply.status != rows[i].status)
            fail_msg("row %zu: %d %s", i, s.reply.status, s.problem);
        assert_int_equal(s.heads, 1);
        assert_true(str_eq(buf_view(&s.body), s.reply.status == 200 ? STR("ok") : STR("old")));
        peer_close(&p);
        peer_close(&second);
        seen_fini(&s);
        end(&w);
    }
}

/* A part is asked for at both hosts, and the credentials are for the first alone. */
static void a_redirect_keeps_the_range(void **state)
{
    (void)state;
    struct world w = begin((struct fetch_config){ 0 });
    struct seen s = { 0 };
    char head[256];
    snprintf(head, sizeof head,
             "HTTP/1.1 302 Found\r\nLocation: http://localhost:%u/y\r\nContent-Length: 0\r\n\r\n",
             w.port);
    start(&w, &s,
          (struct fetch_request){ .bearer = STR("secret"),
                                  .redirects_max = 1,
                                  .range_from = 5000000000,
                                  .if_range = STR("\"v1\"") });
    struct peer first = take(&w);
    assert_true(peer_has(&first, "Range: bytes=5000000000-\r\n"));
    assert_true(peer_has(&first, "If-Range: \"v1\"\r\n"));
    assert_true(peer_has(&first, "secret"));
    peer_send(w.loop, &first, str_from(head));
    struct peer second = take(&w);
    assert_true(peer_has(&second, "GET /y HTTP/1.1\r\n"));
    assert_true(peer_has(&second, "Range: bytes=5000000000-\r\n"));
    assert_true(peer_has(&second, "If-Range: \"v1\"\r\n"));
    assert_false(peer_has(&second, "secret"));
    peer_send(w.loop, &second, STR("HTTP/1.1 206 Partial Content\r\nContent-Length: 2\r\n\r\nok"));
    TURN_UNTIL(w.loop, s.ends == 1);
    assert_int_equal(s.reply.status, 206);
    peer_close(&first);
    peer_close(&second);
    seen_fini(&s);

    struct err err = { 0 };
    const struct str long_one = { head, FETCH_VALIDATOR_BYTES };
    assert_int_equal(try_start(&w, &s, (struct fetch_request){ .if_range = long_one }, &err),
                     -EINVAL);
    assert_int_equal(
        try_start(&w, &s, (struct fetch_request){ .if_range = STR("a\r\nb: c") }, &err), -EINVAL);
    end(&w);
}

/* ---- proxies ---- */

static void a_proxy_is_used_only_when_the_caller_gives_one(void **state)
{
    (void)state;
    char proxy[128], upper[64], none[64];
    static const struct {
        const char *host, *no_proxy;
        bool environ, asked, through;
    } rows[] = {
        { "far.invalid", "", true, false, true },
        { "far.invalid", "other.invalid, invalid", true, false, false },
        { "far.invalid", ".invalid", true, false, false },
        { "far.invalid", "ar.invalid", true, false, true },
        { "far.invalid", "*", true, false, false },
        { "far.invalid", "", false, false, false },
        { "far.invalid", "*", false, true, true },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct world w = begin((struct fetch_config){ 0 });
        const char *const variables[] = { proxy, upper, none, NULL };
        char at[64], url[64];
        snprintf(at, sizeof at, "http://user:pw@127.0.0.1:%u", w.port);
        snprintf(proxy, sizeof proxy, "HTTPS_PROXY=%s", at);
        snprintf(upper, sizeof upper, "http_proxy=http://127.0.0.1:1");
        snprintf(none, sizeof none, "NO_PROXY=%s", rows[i].no_proxy);
        fetch_free(w.fetch);
        struct fetch_config config = { .environ = rows[i].environ ? variables : NULL };
        assert_int_equal(fetch_new(w.loop, &config, &w.fetch, NULL), 0);
        snprintf(url, sizeof url, "https://%s/", rows[i].host);
        struct seen s = { 0 };
        start(&w, &s,
              (struct fetch_request){ .url = str_from(url),
                                      .proxy = rows[i].asked ? str_from(at) : STR("") });
        if (rows[i].through) {
            struct peer p = take(&w);
            assert_true(peer_has(&p, "CONNECT far.invalid:443 HTTP/1.1\r\n"));
            assert_true(peer_has(&p, "Proxy-Authorization: Basic dXNlcjpwdw==\r\n"));
            peer_send(w.loop, &p, STR("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"));
            peer_close(&p);
        }
        TURN_UNTIL(w.loop, s.ends == 1);
        if (s.reply.end == FETCH_OK || (s.reply.end == FETCH_NAME) == rows[i].through)
            fail_msg("row %zu: %s", i, s.problem);
        seen_fini(&s);
        end(&w);
    }
}

static void the_environment_of_the_process_is_not_read(void **state)
{
    (void)state;
    struct world w = begin((struct fetch_config){ 0 });
    struct seen s = { 0 };
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    start(&w, &s, (struct fetch_request){ 0 });
    struct peer p = take(&w);
    peer_send(w.loop, &p, STR(REPLY));
    TURN_UNTIL(w.loop, s.ends == 1);
    assert_end(&s, FETCH_OK);
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
    peer_close(&p);
    seen_fini(&s);
    end(&w);
}

/* ---- TLS ---- */

static char folder[64];
static bool has_certs;

static struct str pem(const char *name, char ret[4096])
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t len = fread(ret, 1, 4096, f);
    fclose(f);
    assert_in_range(len, 1, 4095);
    return str_of(ret, len);
}

static void reply_ok(void *ctx, struct http_exchange *x)
{
    (void)ctx;
    http_reply(x, 200, STR("text/plain"), STR("ok"));
}

static struct str path_of(const char *name, char ret[128])
{
    snprintf(ret, 128, "%s/%s", folder, name);
    return str_from(ret);
}

/* Serves with these files; `ca` empty: from every client. */
static void serve(struct world *w, const char *name, const char *ca, struct tls **tls,
                  struct http_server **server)
{
    char text[3][128], one[64];
    struct err err = { 0 };
    struct tls_files files = { 0 };
    snprintf(one, sizeof one, "%s.pem", name);
    files.certificate = path_of(one, text[0]);
    snprintf(one, sizeof one, "%s.key", name);
    files.key = path_of(one, text[1]);
    if (ca[0]) files.ca = path_of(ca, text[2]);
    if (tls_server_new(&files, tls, &err) < 0) fail_msg("%s", err.text);
    struct http_server_config config = { .host = "127.0.0.1", .tls = *tls, .on_request = reply_ok };
    assert_int_equal(http_server_new(w->loop, &config, server, NULL), 0);
}

static void the_peer_is_who_the_caller_says(void **state)
{
    (void)state;
    if (!has_certs) skip();
    static const struct {
        const char *server, *server_ca, *host, *name, *ca, *client;
        bool files, insecure;
        enum fetch_end end;
    } rows[] = {
        { "good", "", "localhost", "", "ca.pem", "", false, false, FETCH_OK },
        { "good", "", "127.0.0.1", "", "ca.pem", "", false, false, FETCH_OK },
        { "good", "", "localhost", "", "ca.pem", "", true, false, FETCH_OK },
        { "good", "", "127.0.0.1", "good.test", "ca.pem", "", false, false, FETCH_OK },
        { "good", "", "localhost", "other.test", "ca.pem", "", false, false, FETCH_TLS },
        { "other", "", "localhost", "", "ca.pem", "", false, false, FETCH_TLS },
        { "other", "", "localhost", "other.test", "ca.pem", "", false, false, FETCH_OK },
        { "old", "", "localhost", "", "ca.pem", "", false, false, FETCH_TLS },
        { "stranger", "", "localhost", "", "ca.pem", "", false, false, FETCH_TLS },
        { "stranger", "", "localhost", "", "ca.pem", "", false, true, FETCH_OK },
        { "good", "", "localhost", "", "", "", false, false, FETCH_TLS },
        { "good", "ca.pem", "localhost", "", "ca.pem", "client", false, false, FETCH_OK },
        { "good", "ca.pem", "localhost", "", "ca.pem", "client", true, false, FETCH_OK },
        { "good", "ca.pem", "localhost", "", "ca.pem", "stranger", false, false, FETCH_TLS },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct world w = begin((struct fetch_config){ 0 });
        struct tls *tls = NULL;
        struct http_server *server = NULL;
        struct seen s = { 0 };
        char text[3][4096], path[3][128], one[64], url[64];
        serve(&w, rows[i].server, rows[i].server_ca, &tls, &server);
        struct fetch_tls t = { .name = str_from(rows[i].name), .insecure = rows[i].insecure };
        if (rows[i].ca[0]) {
            t.ca = pem(rows[i].ca, text[0]);
            t.ca_file = path_of(rows[i].ca, path[0]);
        }
        if (rows[i].client[0]) {
            snprintf(one, sizeof one, "%s.pem", rows[i].client);
            t.certificate = pem(one, text[1]);
            t.certificate_file = path_of(one, path[1]);
            snprintf(one, sizeof one, "%s.key", rows[i].client);
            t.key = pem(one, text[2]);
            t.key_file = path_of(one, path[2]);
        }
        if (rows[i].files) t.ca = t.certificate = t.key = STR("");
        snprintf(url, sizeof url, "https://%s:%u/", rows[i].host, http_server_port(server));
        start(&w, &s, (struct fetch_request){ .url = str_from(url), .tls = &t, .http2 = true });
        TURN_UNTIL(w.loop, s.ends == 1);
        /* In TLS 1.3 a client learns only from its first read that its certificate was refused. */
        bool refused = s.reply.end == rows[i].end ||
                       (rows[i].client[0] && rows[i].end == FETCH_TLS && s.reply.end == FETCH_CUT);
        if (!refused) fail_msg("row %zu: %s: %s", i, fetch_end_name(s.reply.end), s.problem);
        seen_fini(&s);
        http_server_free(server);
        tls_free(tls);
        end(&w);
    }
}

static void a_connection_is_not_shared_between_identities(void **state)
{
    (void)state;
    if (!has_certs) skip();
    struct world w = begin((struct fetch_config){ 0 });
    struct tls *tls = NULL;
    struct http_server *server = NULL;
    char text[3][4096], url[64];
    serve(&w, "good", "", &tls, &server);
    struct fetch_tls plain = { .ca = pem("ca.pem", text[0]) };
    struct fetch_tls client = plain, named = plain;
    client.certificate = pem("client.pem", text[1]);
    client.key = pem("client.key", text[2]);
    named.name = STR("good.test");
    const struct fetch_tls *const turns[] = { &plain, &plain, &client, &client, &named, &plain };
    snprintf(url, sizeof url, "https://localhost:%u/", http_server_port(server));
    for (size_t i = 0; i < COUNT_OF(turns); i++) {
        struct seen s = { 0 };
        start(&w, &s, (struct fetch_request){ .url = str_from(url), .tls = turns[i] });
        TURN_UNTIL(w.loop, s.ends == 1);
        assert_end(&s, FETCH_OK);
        seen_fini(&s);
    }
    assert_int_equal(counts(&w).connects, 3);
    http_server_free(server);
    tls_free(tls);
    end(&w);
}

static void a_file_that_is_absent_is_named(void **state)
{
    (void)state;
    static const struct fetch_tls rows[] = {
        { .ca_file = STR("/no/ca.pem") },
        { .certificate_file = STR("/no/cert.pem"), .key_file = STR("/no/key.pem") },
        { .ca = STR("nonsense") },
    };
    static const char *const says[] = { "/no/ca.pem", "/no/cert.pem", "CA" };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct world w = begin((struct fetch_config){ 0 });
        struct seen s = { 0 };
        char url[64];
        snprintf(url, sizeof url, "https://127.0.0.1:%u/", w.port);
        start(&w, &s, (struct fetch_request){ .url = str_from(url), .tls = &rows[i] });
        TURN_UNTIL(w.loop, s.ends == 1);
        assert_end(&s, FETCH_LOCAL);
        assert_false(s.reply.sent);
        assert_says(&s, says[i]);
        seen_fini(&s);
        end(&w);
    }
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    snprintf(folder, sizeof folder, "/tmp/muster-fetch-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    has_certs = certs_make(folder);
    if (!has_certs) printf("skipped: no openssl command makes certificates here: TLS of fetch\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(redirects_are_followed_only_when_asked),
        cmocka_unit_test(a_redirect_keeps_the_range),
        cmocka_unit_test(a_proxy_is_used_only_when_the_caller_gives_one),
        cmocka_unit_test(the_environment_of_the_process_is_not_read),
        cmocka_unit_test(the_peer_is_who_the_caller_says),
        cmocka_unit_test(a_connection_is_not_shared_between_identities),
        cmocka_unit_test(a_file_that_is_absent_is_named),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return failed;
}
