/* t_edge.c - the router and the engine as strangers meet them: raw HTTP in, one answer out.
 *
 * What a proxy and a server could read differently (RFC 9112 sections 3, 5, 6, 7 and 11.2) is sent
 * with a second request behind it. Two answers would mean that the second was smuggled.
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "tests/proc/edge/edge_rig.h"

#define SMUGGLED "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
#define GET "GET /health HTTP/1.1\r\nHost: x\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

struct raw_row {
    int status; /* 0: any refusal */
    const char *why;
    struct str bytes; /* SMUGGLED follows */
};

// clang-format off
static const struct raw_row raw_rows[] = {
    { 400, "two lengths that differ", RAW(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde") },
    { 400, "two equal lengths", RAW(POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde") },
    { 400, "a list of lengths", RAW(POST "Content-Length: 5, 5\r\n\r\nabcde") },
    { 400, "a signed length", RAW(POST "Content-Length: +5\r\n\r\nabcde") },
    { 400, "a negative length", RAW(POST "Content-Length: -5\r\n\r\nabcde") },
    { 400, "a hexadecimal length", RAW(POST "Content-Length: 0x5\r\n\r\nabcde") },
    { 400, "an empty length", RAW(POST "Content-Length:\r\n\r\n") },
    { 0,   "a length beyond 64 bits", RAW(POST "Content-Length: 18446744073709551621\r\n\r\nabcde") },
    { 413, "a length beyond the bound", RAW(POST "Content-Length: 9437184\r\n\r\n") },
    { 400, "a length and chunks", RAW(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") },
    { 400, "chunks and a length", RAW(POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n") },
    { 0,   "chunked twice", RAW(POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n") },
    { 0,   "two codings in two lines", RAW(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n") },
    { 0,   "chunked is not the last", RAW(POST "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n") },
    { 0,   "another coding first", RAW(POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n") },
    { 0,   "nearly chunked", RAW(POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n") },
    { 0,   "chunked with a parameter", RAW(POST "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n") },
    { 0,   "chunked in quotes", RAW(POST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n") },
    { 400, "a vertical tab before chunked", RAW(POST "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n") },
    { 0,   "an empty coding", RAW(POST "Transfer-Encoding:\r\n\r\n0\r\n\r\n") },
    { 0,   "chunks in HTTP/1.0", RAW("POST " TEXT " HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") },
    { 400, "a bare LF between headers", RAW("GET /health HTTP/1.1\r\nHost: x\nA: b\r\n\r\n") },
    { 400, "bare LF only", RAW("GET /health HTTP/1.1\nHost: x\n\n") },
    { 400, "a bare CR in a value", RAW(GET "A: b\rc\r\n\r\n") },
    { 400, "a bare CR for a line end", RAW("GET /health HTTP/1.1\rHost: x\r\r") },
    { 400, "CR CR LF", RAW(GET "A: b\r\r\n\r\n") },
    { 400, "a NUL in a value", RAW(GET "A: b\0c\r\n\r\n") },
    { 400, "a NUL in a name", RAW(GET "A\0: b\r\n\r\n") },
    { 400, "a DEL in a value", RAW(GET "A: b\x7f\r\n\r\n") },
    { 400, "two hosts", RAW(GET "Host: y\r\n\r\n") },
    { 400, "the same host twice", RAW(GET "Host: x\r\n\r\n") },
    { 400, "no host", RAW("GET /health HTTP/1.1\r\n\r\n") },
    { 400, "an empty host", RAW("GET /health HTTP/1.1\r\nHost:\r\n\r\n") },
    { 400, "a host that is a list", RAW("GET /health HTTP/1.1\r\nHost: x, y\r\n\r\n") },
    { 400, "a target that names another host", RAW("GET http://y/health HTTP/1.1\r\nHost: x\r\n\r\n") },
    { 400, "a folded header", RAW(GET "A: b\r\n c\r\n\r\n") },
    { 400, "a folded first header", RAW("GET /health HTTP/1.1\r\n Host: x\r\n\r\n") },
    { 400, "a blank before the colon", RAW(POST "Content-Length : 0\r\n\r\n") },
    { 400, "a tab before the colon", RAW(POST "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n") },
    { 400, "no colon", RAW(GET "Content-Length 5\r\n\r\n") },
    { 400, "no name", RAW(GET ": b\r\n\r\n") },
    { 400, "a name in quotes", RAW(GET "\"A\": b\r\n\r\n") },
    { 0,   "HTTP/1.9", RAW("GET /health HTTP/1.9\r\nHost: x\r\n\r\n") },
    { 0,   "HTTP/2.0", RAW("GET /health HTTP/2.0\r\nHost: x\r\n\r\n") },
    { 0,   "HTTP/01.1", RAW("GET /health HTTP/01.1\r\nHost: x\r\n\r\n") },
    { 0,   "http/1.1", RAW("GET /health http/1.1\r\nHost: x\r\n\r\n") },
    { 0,   "no version", RAW("GET /health\r\n\r\n") },
    { 400, "something behind the version", RAW("GET /health HTTP/1.1 x\r\nHost: x\r\n\r\n") },
    { 400, "two blanks", RAW("GET  /health HTTP/1.1\r\nHost: x\r\n\r\n") },
    { 400, "a tab for a blank", RAW("GET\t/health HTTP/1.1\r\nHost: x\r\n\r\n") },
    { 400, "a line break in front", RAW("\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n") },
    { 400, "a method that is none", RAW("G@T /health HTTP/1.1\r\nHost: x\r\n\r\n") },
    { 400, "a target without a slash", RAW("GET health HTTP/1.1\r\nHost: x\r\n\r\n") },
    { 400, "a broken percent", RAW("GET /health%2 HTTP/1.1\r\nHost: x\r\n\r\n") },
    { 400, "a fragment", RAW("GET /health#a HTTP/1.1\r\nHost: x\r\n\r\n") },
    { 400, "bytes above 127 in the target", RAW("GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n") },
    { 0,   "a tunnel", RAW("CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n") },
    { 417, "an expectation we cannot meet", RAW(POST "Expect: 200-ok\r\nContent-Length: 0\r\n\r\n") },
    { 400, "a chunk size that is none", RAW(CHUNKED "xyz\r\nabc\r\n0\r\n\r\n") },
    { 400, "a negative chunk", RAW(CHUNKED "-1\r\nabc\r\n0\r\n\r\n") },
    { 400, "a chunk of 0x5", RAW(CHUNKED "0x5\r\nabcde\r\n0\r\n\r\n") },
    { 400, "an empty chunk size", RAW(CHUNKED "\r\nabcde\r\n0\r\n\r\n") },
    { 0,   "a chunk beyond 64 bits", RAW(CHUNKED "10000000000000005\r\nabcde\r\n0\r\n\r\n") },
    { 413, "a chunk beyond the bound", RAW(CHUNKED "900000\r\nabcde\r\n0\r\n\r\n") },
    { 400, "a blank before the chunk size", RAW(CHUNKED " 5\r\nabcde\r\n0\r\n\r\n") },
    { 400, "a blank behind the chunk size", RAW(CHUNKED "5 \r\nabcde\r\n0\r\n\r\n") },
    { 400, "a chunk extension", RAW(CHUNKED "5;a=b\r\nabcde\r\n0\r\n\r\n") },
    { 400, "LF behind the chunk size", RAW(CHUNKED "5\nabcde\r\n0\r\n\r\n") },
    { 400, "a chunk longer than it says", RAW(CHUNKED "4\r\nabcde\r\n0\r\n\r\n") },
    { 400, "LF behind a chunk", RAW(CHUNKED "5\r\nabcde\n0\r\n\r\n") },
    { 400, "a trailer", RAW(CHUNKED "0\r\nContent-Length: 5\r\n\r\n") },
    { 0,   "TLS", RAW("\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03") },
    { 0,   "HTTP/2 without asking", RAW("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") },
};
// clang-format on

static void what_can_be_read_in_two_ways_gets_one_refusal(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(edge_servers); s++) {
        for (size_t i = 0; i < COUNT_OF(raw_rows); i++) {
            CLEANUP(buf_fini) struct buf bytes = { 0 };
            buf_str(&bytes, raw_rows[i].bytes);
            buf_text(&bytes, SMUGGLED);
            edge_expect_refusal(&edge_servers[s], raw_rows[i].why, buf_view(&bytes),
                                raw_rows[i].status);
        }
        edge_expect_service(&edge_servers[s]);
    }
    assert_int_equal(edge_surprises, 0);
}

/* The rows above mean something only if two requests that are meant do get two answers. */
static void what_is_plain_gets_an_answer_each(void **state)
{
    (void)state;
    static const struct raw_row rows[] = {
        { 2, "two requests", RAW(GET "\r\n" GET "Connection: close\r\n\r\n") },
        { 2, "behind a body",
          RAW(POST "Content-Length: 2\r\n\r\n{}" GET "Connection: close\r\n\r\n") },
        { 2, "behind chunks",
          RAW(CHUNKED "1\r\n{\r\n1\r\n}\r\n0\r\n\r\n" GET "Connection: close\r\n\r\n") },
        { 1, "HTTP/1.0", RAW("GET /health HTTP/1.0\r\n\r\n" SMUGGLED) },
    };
    for (size_t s = 0; s < COUNT_OF(edge_servers); s++) {
        for (size_t i = 0; i < COUNT_OF(rows); i++) {
            CLEANUP(buf_fini) struct buf reply = { 0 };
            assert_int_equal(rig_raw(edge_servers[s].process->port, rows[i].bytes, &reply), 0);
            if (edge_answers(buf_view(&reply)) != (uint32_t)rows[i].status) {
                fail_msg("%s, %s: %s", edge_servers[s].name, rows[i].why, reply.data);
            }
        }
    }
}

static void heads_beyond_their_bounds_are_refused(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *why, *begin, *part;
        size_t count;
        const char *end;
    } rows[] = {
        { 414, "a long target", "GET /", "a", 9000, " HTTP/1.1\r\nHost: x\r\n\r\n" },
        { 431, "many headers", GET, "A: b\r\n", 1000, "\r\n" },
        { 431, "a long header", GET "A: ", "b", 40000, "\r\n\r\n" },
        { 0, "a request line that never ends", "", "A", 100000, "" },
        { 0, "a head that never ends", GET, "A: b\r\n", 20000, "" },
    };
    for (size_t s = 0; s < COUNT_OF(edge_servers); s++) {
        for (size_t i = 0; i < COUNT_OF(rows); i++) {
            CLEANUP(buf_fini) struct buf bytes = { 0 };
            edge_repeat(&bytes, rows[i].begin, rows[i].part, rows[i].count, rows[i].end);
            edge_expect_refusal(&edge_servers[s], rows[i].why, buf_view(&bytes), rows[i].status);
        }
    }
    assert_int_equal(edge_surprises, 0);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_can_be_read_in_two_ways_gets_one_refusal, edge_begin),
        cmocka_unit_test(what_is_plain_gets_an_answer_each),
        cmocka_unit_test_setup(heads_beyond_their_bounds_are_refused, edge_begin),
    };
    return rig_end(cmocka_run_group_tests(tests, edge_setup, edge_teardown));
}
