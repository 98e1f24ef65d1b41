/* t_http_diff.c - compares our HTTP server with nginx and haproxy on requests drawn from a seed.
 *
 * A proxy before Muster and Muster behind it must not read one stream of bytes as different requests.
 * So each drawn request goes to each server with a well-formed one behind it, the marker, on one
 * connection, and the replies make a word: a letter for each final reply,
 *
 *     a   taken        m   the marker was taken        r   refused
 *
 * Both others must take each request that we take, and find the next one at the same place: each `a` and
 * `m` of our word stands in their words too. Requests that only we refuse are counted by their odd form and
 * printed. nginx and haproxy run on loopback as the test's own user, with files in the test's folder
 * only; a missing one is left out with a sentence. */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/rng.h"
#include "base/io/http/http_server.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/rig.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DRAWN_ODD_MAX 2

struct drawn {
    struct buf text;
    const char *odd[DRAWN_ODD_MAX]; /* names of the odd forms in it; NULL: none */
    bool persistence;               /* any server may end the connection behind it */
};

/* The parts of a request and their forms, in tables. */

struct form {
    const char *name; /* NULL: a usual one */
    struct str text;
};

#define F(name, text)                    \
    {                                    \
        name,                            \
        {                                \
            "" text, sizeof("" text) - 1 \
        }                                \
    }

/* clang-format off */
static const struct form leads[] = {
    F(NULL, ""), F("lead_crlf", "\r\n"), F("lead_lf", "\n"), F("lead_blank", " "),
    F("lead_two_lines", "\r\n\r\n"), F("lead_nul", "\0"), F("lead_cr", "\r"),
};

static const struct form drawn_methods[] = {
    F(NULL, "GET"), F(NULL, "POST"), F(NULL, "PUT"), F(NULL, "DELETE"),
    F("method_lower", "get"), F("method_blank", "PO ST"), F("method_none", ""),
    F("method_tab", "GET\t"), F("method_colon", "GE:T"), F("method_trace", "TRACE"),
    F("method_connect", "CONNECT"), F("method_high", "G\x80T"), F("method_nul", "G\0T"),
};

static const struct form gaps[] = {
    F(NULL, " "), F("gap_two", "  "), F("gap_tab", "\t"), F("gap_vt", "\v"), F("gap_none", ""),
    F("gap_cr", "\r "),
};

static const struct form targets[] = {
    F(NULL, "/"), F(NULL, "/a"), F(NULL, "/?b=c&d=%20"), F(NULL, "http://a/"),
    F("target_empty", ""), F("target_relative", "a"), F("target_star", "*"),
    F("target_percent", "/?x=%zz"), F("target_nul", "/?x=\0"), F("target_control", "/?x=\1"),
    F("target_high", "/?x=\x80"), F("target_fragment", "/a#f"), F("target_blank", "/?a b"),
    F("target_other_host", "http://other/"), F("target_no_host", "http:///"),
    F("target_user", "http://u@a/"), F("target_port", "http://a:99999/"),
    F("target_scheme", "ftp://a/"), F("target_authority", "a:80"), F("target_quote", "/?\"<>"),
    F("target_backslash", "/?\\"), F("target_del", "/?\x7f"),
};

static const struct form versions[] = {
    F(NULL, "HTTP/1.1"), F(NULL, "HTTP/1.1"), F(NULL, "HTTP/1.1"), F(NULL, "HTTP/1.0"),
    F("version_1.2", "HTTP/1.2"), F("version_2.0", "HTTP/2.0"), F("version_0.9", "HTTP/0.9"),
    F("version_none", ""), F("version_lower", "http/1.1"), F("version_1.10", "HTTP/1.10"),
    F("version_01.1", "HTTP/01.1"), F("version_blank", "HTTP/1.1 "), F("version_split", "HTTP/ 1.1"),
    F("version_1", "HTTP/1"), F("version_name", "HTTQ/1.1"), F("version_more", "HTTP/1.1x"),
    F("version_1.1.1", "HTTP/1.1.1"), F("version_tab", "HTTP/1.1\t"), F("version_1.", "HTTP/1."),
};

static const struct form ends[] = { /* of one line */
    F(NULL, "\r\n"), F("end_lf", "\n"), F("end_cr", "\r"), F("end_crcrlf", "\r\r\n"),
    F("end_lfcr", "\n\r"), F("end_nul", "\0\r\n"), F("end_vt", "\v\r\n"), F("end_blank", " \r\n"),
};

static const struct form hosts[] = {
    F(NULL, "Host: a\r\n"), F(NULL, "hOsT:a\r\n"), F(NULL, "Host:  a  \r\n"),
    F("host_tab", "Host:\ta\t\r\n"), F("host_none", ""), F("host_twice", "Host: a\r\nHost: a\r\n"),
    F("host_two", "Host: a\r\nHost: b\r\n"), F("host_list", "Host: a, b\r\n"),
    F("host_empty", "Host:\r\n"), F("host_blank", "Host: a b\r\n"), F("host_path", "Host: a/b\r\n"),
    F("host_bracket", "Host: [::1\r\n"), F("host_port", "Host: a:x\r\n"),
    F("host_user", "Host: u@a\r\n"), F("host_colon_blank", "Host : a\r\n"),
    F("host_indented", " Host: a\r\n"), F("host_nul", "Host: a\0\r\n"), F("host_high", "Host: \x80\r\n"),
    F("host_fold", "Host:\r\n a\r\n"), F("host_percent", "Host: a%\r\n"), F("host_ports", "Host: a:1:2\r\n"),
};

static const struct form extras[] = {
    F(NULL, ""), F(NULL, "Accept: */*\r\n"), F(NULL, "X-Empty:\r\n"), F(NULL, "X-Tab:\tv\tw\t\r\n"),
    F(NULL, "X-High: \x80\xff\r\n"), F(NULL, "Cookie: a=b; c=d\r\n"), F(NULL, "X!#$%&'*+.^_`|~: v\r\n"),
    F("fold_blank", "X-Fold: a\r\n b\r\n"), F("fold_tab", "X-Fold: a\r\n\tb\r\n"),
    F("fold_empty", "X-Fold: a\r\n \r\n"), F("fold_length", "X-Fold: a\r\n Content-Length: 3\r\n"),
    F("name_blank", "X Bad: v\r\n"), F("name_blank_end", "X-Bad : v\r\n"), F("name_tab_end", "X-Bad\t: v\r\n"),
    F("name_none", ": v\r\n"), F("colon_none", "novalue\r\n"), F("name_paren", "X(Y): v\r\n"),
    F("name_high", "X\x80: v\r\n"), F("name_nul", "X\0: v\r\n"), F("name_control", "X\1: v\r\n"),
    F("value_nul", "X-Nul: a\0b\r\n"), F("value_cr", "X-Cr: a\rb\r\n"), F("value_control", "X-C: a\1b\r\n"),
    F("value_del", "X-D: \x7f\r\n"), F("value_cr_length", "X-Cr: a\rContent-Length: 3\r\n"),
    F("value_lf_length", "X-Lf: a\nContent-Length: 3\r\n"), F("expect_other", "Expect: 200-maybe\r\n"),
    F("expect", "Expect: 100-continue\r\n"), F("upgrade", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"),
    F("upgrade_h2c", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"),
    F("connection_length", "Connection: Content-Length\r\n"), F("connection_close", "Connection: close\r\n"),
    F("connection_both", "Connection: keep-alive, close\r\n"), F("connection_te", "Connection: Transfer-Encoding\r\n"),
    F("under_length", "Content_Length: 3\r\n"), F("under_coding", "Transfer_Encoding: chunked\r\n"),
    F("length_get", "Content-Length: 0\r\n"), F("blank_line_blank", " \r\n"),
};

/* Lengths of a body of five bytes. */
static const struct form lengths[] = {
    F(NULL, "Content-Length: 5\r\n"), F(NULL, "content-length:5\r\n"), F(NULL, "CONTENT-LENGTH:  5 \r\n"), F("length_tab", "Content-Length:\t5\t\r\n"),
    F("length_plus", "Content-Length: +5\r\n"), F("length_zero", "Content-Length: 05\r\n"),
    F("length_hex", "Content-Length: 0x5\r\n"), F("length_list", "Content-Length: 5,5\r\n"),
    F("length_list_blank", "Content-Length: 5, 5\r\n"), F("length_list_two", "Content-Length: 5, 6\r\n"),
    F("length_minus", "Content-Length: -5\r\n"), F("length_point", "Content-Length: 5.0\r\n"),
    F("length_empty", "Content-Length:\r\n"), F("length_word", "Content-Length: a\r\n"),
    F("length_vt", "Content-Length: 5\v\r\n"), F("length_nul", "Content-Length: 5\0\r\n"),
    F("length_huge", "Content-Length: 18446744073709551621\r\n"), F("length_int64", "Content-Length: 9223372036854775813\r\n"),
    F("length_twice", "Content-Length: 5\r\nContent-Length: 5\r\n"),
    F("length_two", "Content-Length: 5\r\nContent-Length: 0\r\n"),
    F("length_two_first", "Content-Length: 0\r\nContent-Length: 5\r\n"),
    F("length_blank_name", "Content-Length : 5\r\n"), F("length_indented", " Content-Length: 5\r\n"),
    F("length_fold", "Content-Length:\r\n 5\r\n"), F("length_fold_more", "Content-Length: 0\r\n 5\r\n"),
    F("length_short", "Content-Length: 4\r\n"), F("length_none", ""), F("length_blank_inside", "Content-Length: 5 5\r\n"),
    F("length_quote", "Content-Length: \"5\"\r\n"), F("length_exponent", "Content-Length: 5e0\r\n"),
    F("length_and_coding", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
    F("coding_and_length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
    F("length_and_identity", "Content-Length: 5\r\nTransfer-Encoding: identity\r\n"),
};

static const struct form codings[] = {
    F(NULL, "Transfer-Encoding: chunked\r\n"), F(NULL, "transfer-encoding:Chunked\r\n"),
    F(NULL, "Transfer-Encoding:  chunked \r\n"), F("coding_tab", "Transfer-Encoding:\tchunked\t\r\n"),
    F("coding_twice", "Transfer-Encoding: chunked, chunked\r\n"), F("coding_identity", "Transfer-Encoding: identity\r\n"),
    F("coding_gzip", "Transfer-Encoding: gzip, chunked\r\n"), F("coding_last", "Transfer-Encoding: chunked, identity\r\n"),
    F("coding_word", "Transfer-Encoding: xchunked\r\n"), F("coding_vt", "Transfer-Encoding: \vchunked\r\n"),
    F("coding_parameter", "Transfer-Encoding: chunked;q=1\r\n"), F("coding_quote", "Transfer-Encoding: \"chunked\"\r\n"),
    F("coding_empty", "Transfer-Encoding:\r\n"), F("coding_comma", "Transfer-Encoding: ,chunked\r\n"),
    F("coding_comma_end", "Transfer-Encoding: chunked,\r\n"), F("coding_headers", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
    F("coding_two", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n"),
    F("coding_two_last", "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n"),
    F("coding_blank_name", "Transfer-Encoding : chunked\r\n"), F("coding_indented", " Transfer-Encoding: chunked\r\n"),
    F("coding_fold", "Transfer-Encoding:\r\n chunked\r\n"), F("coding_nul", "Transfer-Encoding: chunked\0\r\n"),
    F("coding_long_s", "Transfer-Encoding: chun\xc5\xbfked\r\n"), F("coding_none", ""),
    F("coding_with_length", "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"),
    F("length_with_coding", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"),
};

static const struct form chunks[] = {
    F(NULL, "5\r\nhello\r\n0\r\n\r\n"), F(NULL, "A\r\nhellohello\r\n0\r\n\r\n"), F(NULL, "0\r\n\r\n"),
    F(NULL, "1\r\na\r\n1\r\nb\r\n0\r\n\r\n"),
    F("chunk_zeros", "0005\r\nhello\r\n000\r\n\r\n"), F("chunk_many_zeros", "00000000000000000005\r\nhello\r\n0\r\n\r\n"),
    F("chunk_extension", "5;a=b\r\nhello\r\n0\r\n\r\n"), F("chunk_extension_quote", "5;a=\"b\r\n\"\r\nhello\r\n0\r\n\r\n"),
    F("chunk_blank", "5 \r\nhello\r\n0\r\n\r\n"), F("chunk_tab", "5\t\r\nhello\r\n0\r\n\r\n"), F("chunk_lead", " 5\r\nhello\r\n0\r\n\r\n"),
    F("chunk_hex", "0x5\r\nhello\r\n0\r\n\r\n"), F("chunk_minus", "-5\r\nhello\r\n0\r\n\r\n"), F("chunk_plus", "+5\r\nhello\r\n0\r\n\r\n"),
    F("chunk_lf", "5\nhello\r\n0\r\n\r\n"), F("chunk_lf_data", "5\r\nhello\n0\r\n\r\n"), F("chunk_lf_last", "5\r\nhello\r\n0\n\n"),
    F("chunk_lf_end", "5\r\nhello\r\n0\r\n\n"), F("chunk_cr", "5\rhello\r\n0\r\n\r\n"), F("chunk_no_end", "5\r\nhello0\r\n\r\n"),
    F("chunk_long", "5\r\nhelloo\r\n0\r\n\r\n"), F("chunk_short", "5\r\nhell\r\n0\r\n\r\n"), F("chunk_empty_size", "\r\nhello\r\n0\r\n\r\n"),
    F("chunk_huge", "ffffffffffffffff\r\nhello\r\n0\r\n\r\n"), F("chunk_overflow", "10000000000000005\r\nhello\r\n0\r\n\r\n"),
    F("chunk_trailer", "5\r\nhello\r\n0\r\nX-T: v\r\n\r\n"), F("chunk_trailer_length", "5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n"),
    F("chunk_trailer_bad", "5\r\nhello\r\n0\r\nbad\r\n\r\n"), F("chunk_last_extension", "5\r\nhello\r\n0;x\r\n\r\n"),
    F("chunk_underscore", "5_0\r\nhello\r\n0\r\n\r\n"), F("chunk_word", "g\r\nhello\r\n0\r\n\r\n"), F("chunk_nul", "5\0\r\nhello\r\n0\r\n\r\n"),
    F("chunk_unfinished", "5\r\nhello\r\n"), F("chunk_extension_lf", "5;a\nb\r\nhello\r\n0\r\n\r\n"), F("chunk_vt", "5\v\r\nhello\r\n0\r\n\r\n"),
};

/* clang-format on */

enum part {
    LEAD,
    METHOD,
    GAP,
    TARGET,
    VERSION,
    END,
    HOST,
    EXTRA,
    LENGTH,
    CODING,
    CHUNK,
    LARGE, /* drawn, not listed: long lines and many of them */
    PART_COUNT
};

static const struct {
    const struct form *form;
    size_t count;
} parts[LARGE] = {
    [LEAD] = { leads, COUNT_OF(leads) },
    [METHOD] = { drawn_methods, COUNT_OF(drawn_methods) },
    [GAP] = { gaps, COUNT_OF(gaps) },
    [TARGET] = { targets, COUNT_OF(targets) },
    [VERSION] = { versions, COUNT_OF(versions) },
    [END] = { ends, COUNT_OF(ends) },
    [HOST] = { hosts, COUNT_OF(hosts) },
    [EXTRA] = { extras, COUNT_OF(extras) },
    [LENGTH] = { lengths, COUNT_OF(lengths) },
    [CODING] = { codings, COUNT_OF(codings) },
    [CHUNK] = { chunks, COUNT_OF(chunks) },
};

static const struct form *draw_form(struct rng *rng, enum part part, bool odd)
{
    for (;;) {
        const struct form *f = &parts[part].form[rng_below(rng, parts[part].count)];
        if ((f->name != NULL) == odd) return f;
    }
}

/* Appends a line about as long as a server's bound, or about as many lines as its bound. */
static void put_large(struct rng *rng, struct drawn *d)
{
    static const uint32_t bytes[] = { 4000, 8180, 8192, 16000, 33000 },
                          lines[] = { 40, 61, 64, 100 };
    if (rng_below(rng, 2)) {
        uint32_t count = bytes[rng_below(rng, COUNT_OF(bytes))];
        buf_text(&d->text, "X-Long: ");
        for (uint32_t i = 0; i < count; i++)
            buf_byte(&d->text, 'v');
        buf_text(&d->text, "\r\n");
    } else {
        uint32_t count = lines[rng_below(rng, COUNT_OF(lines))];
        for (uint32_t i = 0; i < count; i++)
            buf_printf(&d->text, "X-%u: v\r\n", i);
    }
}

enum body { BODY_NONE, BODY_COUNTED, BODY_CHUNKED, BODY_COUNT };

/* Returns true if a request with this kind of body has the part. */
static bool has_part(enum body body, enum part part)
{
    if (part == LENGTH) return body == BODY_COUNTED;
    return (part != CODING && part != CHUNK) || body == BODY_CHUNKED;
}

static void http_draw(struct rng *rng, struct drawn *ret)
{
    const struct form *form[LARGE];
    bool odd[PART_COUNT] = { false };
    enum body body = (enum body)rng_below(rng, BODY_COUNT);
    uint64_t dice = rng_below(rng, 20);
    uint32_t odd_count = dice < 7 ? 0 : dice < 16 ? 1 : 2, named = 0;
    *ret = (struct drawn){ 0 };
    for (uint32_t i = 0; i < odd_count;) {
        enum part part = (enum part)rng_below(rng, PART_COUNT);
        if (odd[part] || !has_part(body, part)) continue;
        odd[part] = true;
        i++;
    }
    for (enum part p = 0; p < LARGE; p++) {
        form[p] = draw_form(rng, p, odd[p]);
        if (odd[p]) ret->odd[named++] = form[p]->name;
    }
    if (odd[LARGE]) ret->odd[named++] = "large";
    ret->persistence = form[VERSION]->text.len != 8 || form[VERSION]->text.data[7] == '0' ||
                       str_find(form[EXTRA]->text, STR("Connection")) != SIZE_MAX;

    struct buf *out = &ret->text;
    buf_str(out, form[LEAD]->text);
    buf_str(out, form[METHOD]->text);
    buf_str(out, form[GAP]->text);
    buf_str(out, form[TARGET]->text);
    buf_str(out, odd[GAP] && rng_below(rng, 2) ? form[GAP]->text : STR(" "));
    buf_str(out, form[VERSION]->text);
    uint64_t where = rng_below(rng, 3); /* the line that gets the odd end */
    buf_str(out, where == 0 ? form[END]->text : STR("\r\n"));
    buf_str(out, form[HOST]->text);
    if (odd[LARGE]) put_large(rng, ret);
    buf_str(out, form[EXTRA]->text);
    if (where == 1) {
        buf_text(out, "X-End: v");
        buf_str(out, form[END]->text);
    }
    if (body == BODY_COUNTED) buf_str(out, form[LENGTH]->text);
    if (body == BODY_CHUNKED) buf_str(out, form[CODING]->text);
    buf_str(out, where == 2 ? form[END]->text : STR("\r\n"));
    if (body == BODY_COUNTED) buf_text(out, "hello");
    if (body == BODY_CHUNKED) buf_str(out, form[CHUNK]->text);
}

#define CASES 10000
#define SEED 14
#define AT_ONCE 200
#define WORD_MAX 8
#define GIVE_UP_US 60000000 /* on one connection; servers end theirs after 2 s */
#define SECOND ((int64_t)1000000)
#define CLASSES_MAX 256

static const struct str marker =
    STR("GET /marker HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n");

struct word {
    char letters[WORD_MAX + 1];
};

struct peer {
    const char *name;
    uint16_t port;
    bool runs;
    struct word *word; /* one a case */
};

static struct drawn *cases;

/* ---- our server ------------------------------------------------------------------------------ */

static struct loop *loop;
static struct http_server *ours;

/* Refuses unknown paths and methods, as the product does. */
static void on_request(void *ctx, struct http_exchange *x)
{
    static const char *const methods[] = { "GET", "POST", "PUT", "DELETE" };
    (void)ctx;
    const struct http_request *req = http_exchange_request(x);
    bool known = false;
    for (size_t i = 0; i < COUNT_OF(methods); i++)
        known |= str_eq(req->method, str_from(methods[i]));
    int status = str_eq(req->path, STR("/marker"))                             ? 204
                 : str_eq(req->path, STR("/")) || str_eq(req->path, STR("/a")) ? 200
                                                                               : 404;
    http_reply(x, known ? status : 405, (struct str){ 0 }, (struct str){ 0 });
}

static uint16_t start_ours(void)
{
    struct err err = { 0 };
    const struct http_server_config config = {
        .host = "127.0.0.1",
        .limits = { .head_us = 2 * SECOND, .body_us = 2 * SECOND, .idle_us = 2 * SECOND },
        .on_request = on_request
    };
    assert_int_equal(loop_new(&loop, &err), 0);
    if (http_server_new(loop, &config, &ours, &err) < 0) fail_msg("%s", err.text);
    return http_server_port(ours);
}

/* ---- the others ------------------------------------------------------------------------------ */

static const char nginx_text[] =
    "daemon off; master_process off; worker_processes 1; pid %s/nginx.pid;\n"
    "error_log stderr crit;\n"
    "events { worker_connections 1024; }\n"
    "http { access_log off; client_body_temp_path %s/b; proxy_temp_path %s/p;\n"
    "  fastcgi_temp_path %s/f; uwsgi_temp_path %s/u; scgi_temp_path %s/s;\n"
    "  client_header_buffer_size 64k; large_client_header_buffers 4 64k;\n"
    "  client_header_timeout 2s; client_body_timeout 2s; keepalive_timeout 2s;\n"
    "  server { listen 127.0.0.1:%u; location = /marker { return 204; }\n"
    "           location = /ready { return 200 ''; }\n"
    "           location / { return 200 ''; } } }\n";

static const char haproxy_text[] =
    "global\n  maxconn 1000\n  nbthread 1\n  tune.bufsize 65536\n  tune.http.maxhdr 256\n"
    "defaults\n  mode http\n  option http-buffer-request\n  timeout client 2s\n"
    "  timeout http-request 2s\n  timeout http-keep-alive 2s\n  timeout connect 2s\n"
    "  timeout server 2s\n"
    "frontend all\n  bind 127.0.0.1:%u\n"
    "  http-request return status 204 if { path /marker }\n"
    "  http-request return status 200\n";

/* Finds a program, also in the folders of Debian's servers, which are often not in PATH. */
static const char *program(const char *name)
{
    static char path[64];
    static const char *const folders[] = { "/usr/sbin", "/usr/bin", "/usr/local/sbin",
                                           "/usr/local/bin" };
    for (size_t i = 0; i < COUNT_OF(folders); i++) {
        snprintf(path, sizeof path, "%s/%s", folders[i], name);
        if (access(path, X_OK) == 0) return path;
    }
    printf("skipped: %s is not installed: its reading of HTTP is not compared\n", name);
    return NULL;
}

static void start_nginx(struct peer *p)
{
    char file[RIG_PATH], text[2048];
    const char *at = program("nginx"), *f = rig_folder();
    if (!at) return;
    p->port = rig_port();
    snprintf(text, sizeof text, nginx_text, f, f, f, f, f, f, p->port);
    rig_file(file, "nginx.conf", text);
    rig_start("nginx", ARGS(at, "-e", "stderr", "-p", f, "-c", file), p->port, "/ready", 200);
    p->runs = true;
}

static void start_haproxy(struct peer *p)
{
    char file[RIG_PATH], text[1024];
    const char *at = program("haproxy");
    if (!at) return;
    p->port = rig_port();
    snprintf(text, sizeof text, haproxy_text, p->port);
    rig_file(file, "haproxy.cfg", text);
    rig_start("haproxy", ARGS(at, "-db", "-f", file), p->port, "/ready", 200);
    p->runs = true;
}

/* ---- one connection a case ------------------------------------------------------------------- */

struct talk {
    int fd; /* -1: this place is free */
    uint32_t at;
    size_t sent;
    struct buf text, got;
    int64_t begun_us;
};

/* Returns a letter for each final status line. No body of the three servers holds such a line. */
static struct word read_word(struct str got)
{
    struct word w = { "" };
    size_t letters = 0;
    for (size_t i = 0; i + 12 < got.len && letters < WORD_MAX; i++) {
        struct str line = str_of(got.data + i, got.len - i);
        bool starts = i == 0 || got.data[i - 1] == '\n' || got.data[i - 1] == '>' || letters > 0;
        if (!starts || !str_starts(line, STR("HTTP/1.")) || line.data[8] != ' ') continue;
        if (line.data[9] == '1') continue; /* 100 Continue */
        bool taken = line.data[9] == '2';
        w.letters[letters++] = (char)(!taken ? 'r' : line.data[11] == '4' ? 'm' : 'a');
    }
    return w;
}

static void talk_begin(struct talk *t, uint16_t port, uint32_t at)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *t = (struct talk){ .at = at, .begun_us = clock_mono_us() };
    t->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(t->fd >= 0);
    if (connect(t->fd, (struct sockaddr *)&to, sizeof to) < 0) assert_int_equal(errno, EINPROGRESS);
    buf_str(&t->text, buf_view(&cases[at].text));
    buf_str(&t->text, marker);
}

/* Sends and receives; returns true when the server has ended the connection. */
static bool talk_on(struct talk *t)
{
    char bytes[4096];
    if (t->sent < t->text.len) {
        ssize_t sent = send(t->fd, t->text.data + t->sent, t->text.len - t->sent, MSG_NOSIGNAL);
        if (sent > 0) t->sent += (size_t)sent;
    }
    for (;;) {
        ssize_t got = recv(t->fd, bytes, sizeof bytes, 0);
        if (got < 0 && errno == EAGAIN) break;
        if (got <= 0) return true;
        buf_append(&t->got, bytes, (size_t)got);
    }
    if (clock_mono_us() - t->begun_us > GIVE_UP_US)
        fail_msg("case %u: the server neither answers nor ends the connection", t->at);
    return false;
}

static void talk_end(struct talk *t, struct peer *p)
{
    p->word[t->at] = read_word(buf_view(&t->got));
    close(t->fd);
    buf_fini(&t->text);
    buf_fini(&t->got);
    t->fd = -1;
}

static void run_all(struct peer *p, bool is_ours)
{
    static struct talk talk[AT_ONCE];
    struct pollfd watch[AT_ONCE];
    uint32_t next = 0, open = 0;
    for (uint32_t i = 0; i < AT_ONCE; i++)
        talk[i].fd = -1;
    do {
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            if (talk[i].fd < 0 && next < CASES) {
                talk_begin(&talk[i], p->port, next++);
                open++;
            }
            short events = talk[i].sent < talk[i].text.len ? POLLIN | POLLOUT : POLLIN;
            watch[i] = (struct pollfd){ .fd = talk[i].fd, .events = events };
        }
        if (is_ours) assert_int_equal(loop_turn(loop, 0), 0);
        poll(watch, AT_ONCE, is_ours ? 1 : 100);
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            if (talk[i].fd < 0 || !talk_on(&talk[i])) continue;
            talk_end(&talk[i], p);
            open--;
        }
    } while (open > 0 || next < CASES);
}

/* ---- judging --------------------------------------------------------------------------------- */

struct class
{
    const char *odd;
    uint32_t count;
};

static void count_class(struct class *classes, const char *odd)
{
    uint32_t i = 0;
    while (classes[i].odd && strcmp(classes[i].odd, odd) != 0)
        i++;
    assert_true(i < CLASSES_MAX - 1);
    classes[i].odd = odd;
    classes[i].count++;
}

static void show(const struct drawn *d)
{
    for (size_t i = 0; i < min_size(d->text.len, 600); i++) {
        unsigned char c = (unsigned char)d->text.data[i];
        printf(c >= ' ' && c < 127 ? "%c" : c == '\n' ? "\\n\n" : c == '\r' ? "\\r" : "\\x%02x", c);
    }
    printf("\n");
}

/* Returns true if the other server took every request that ours took, at the same place. The other may
 * have closed after a refusal, or where a close is allowed after the request anyway. */
static bool agrees(const struct drawn *d, const char *mine, const char *other)
{
    bool may_end = false;
    for (size_t i = 0; mine[i] && (other[i] || !may_end); i++) {
        if (mine[i] != 'r' && mine[i] != other[i]) return false;
        may_end = d->persistence || mine[i] == 'r';
    }
    return true;
}

static uint32_t judge(const struct peer *mine, const struct peer *other)
{
    static struct class classes[CLASSES_MAX];
    uint32_t wrong = 0, both = 0, followed = 0, stricter = 0;
    memset(classes, 0, sizeof classes);
    for (uint32_t i = 0; i < CASES; i++) {
        const struct drawn *d = &cases[i];
        const char *a = mine->word[i].letters, *b = other->word[i].letters;
        if (!agrees(d, a, b)) {
            if (wrong++ >= 300) continue;
            printf("case %u (%s %s): ours '%s', %s '%s'\n", i, d->odd[0] ? d->odd[0] : "plain",
                   d->odd[1] ? d->odd[1] : "", a, other->name, b);
            show(d);
        }
        both += a[0] == 'a' && b[0] == 'a';
        followed += strcmp(a, "am") == 0 && strcmp(b, "am") == 0;
        if (a[0] == 'a' || b[0] != 'a') continue;
        stricter++;
        if (!d->odd[1]) count_class(classes, d->odd[0] ? d->odd[0] : "plain");
    }
    printf(
        "%s: %u of %u taken by both, %u with the marker at the same place; %u taken by %s alone\n",
        other->name, both, CASES, followed, stricter, other->name);
    for (uint32_t i = 0; classes[i].odd; i++)
        printf("    stricter than %s: %-22s %u\n", other->name, classes[i].odd, classes[i].count);
    assert_true(both > CASES / 5 && followed > CASES / 10);
    return wrong;
}

static void what_we_take_others_take_alike(void **state)
{
    (void)state;
    struct rng rng;
    struct peer mine = { .name = "ours" },
                others[] = { { .name = "nginx" }, { .name = "haproxy" } };
    start_nginx(&others[0]);
    start_haproxy(&others[1]);
    if (!others[0].runs && !others[1].runs) skip();
    cases = calloc(CASES, sizeof *cases);
    mine.word = calloc(CASES, sizeof *mine.word);
    assert_true(cases && mine.word);
    rng_seed(&rng, SEED);
    for (uint32_t i = 0; i < CASES; i++)
        http_draw(&rng, &cases[i]);
    mine.port = start_ours();
    run_all(&mine, true);
    uint32_t wrong = 0;
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        if (!others[i].runs) continue;
        others[i].word = calloc(CASES, sizeof *others[i].word);
        assert_non_null(others[i].word);
        run_all(&others[i], false);
        wrong += judge(&mine, &others[i]);
        free(others[i].word);
    }
    http_server_free(ours);
    loop_free(loop);
    for (uint32_t i = 0; i < CASES; i++)
        buf_fini(&cases[i].text);
    free(cases);
    free(mine.word);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    log_set_level(LOG_LEVEL_COUNT - 1);
    const struct CMUnitTest tests[] = { cmocka_unit_test(what_we_take_others_take_alike) };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
