/* t_edge.c - sends the router and the engine raw HTTP and odd JSON, and plays slow clients. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/proc/edge/edge_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Sends raw HTTP and expects one reply.
 *
 * Each request that a proxy and a server could read differently (RFC 9112 sections 3, 5, 6, 7 and 11.2)
 * is sent with a second request behind it. Two replies would mean that the second was smuggled. */

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

/* The rows above prove something only if two plain requests do get two responses. */
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

/* Sends JSON that the router and the engine refuse in the form that OpenAI's clients read, and JSON that is
 * odd but valid. */

#define TOO_MANY_BYTES ((size_t)9 << 20) /* the edge_servers' bound is 8 MiB */

struct json_row {
    int status;
    const char *why, *path;
    struct str body;
};

// clang-format off
static const struct json_row json_rows[] = {
    { 400, "nothing", CHAT, RAW("") },
    { 400, "null", CHAT, RAW("null") },
    { 400, "a list", CHAT, RAW("[]") },
    { 400, "no messages", CHAT, RAW("{}") },
    { 400, "cut short", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"hi") },
    { 400, "text behind the end", CHAT, RAW("{" HELLO "}{}") },
    { 400, "a comma too many", CHAT, RAW("{" HELLO ",}") },
    { 400, "a comment", CHAT, RAW("{/**/" HELLO "}") },
    { 400, "single quotes", CHAT, RAW("{'messages':[]}") },
    { 400, "a byte order mark", CHAT, RAW("\xef\xbb\xbf{" HELLO "}") },
    { 400, "a NUL between tokens", CHAT, RAW("{\0" HELLO "}") },
    { 400, "a key twice", CHAT, RAW("{" HELLO "," HELLO "}") },
    { 400, "a number twice", CHAT, RAW("{" HELLO ",\"max_tokens\":1,\"max_tokens\":2}") },
    { 400, "a lone surrogate", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}") },
    { 400, "surrogates in the wrong order", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"\\udc00\\ud800\"}]}") },
    { 400, "bytes that are not UTF-8", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}") },
    { 400, "an overlong form", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"\xc0\xaf\"}]}") },
    { 400, "a raw line break in a string", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"a\nb\"}]}") },
    { 400, "NaN", CHAT, RAW("{" HELLO ",\"temperature\":NaN}") },
    { 400, "Infinity", CHAT, RAW("{" HELLO ",\"temperature\":Infinity}") },
    { 400, "1e999", CHAT, RAW("{" HELLO ",\"temperature\":1e999}") },
    { 400, "-1e999", CHAT, RAW("{" HELLO ",\"presence_penalty\":-1e999}") },
    { 400, "a temperature below 0", CHAT, RAW("{" HELLO ",\"temperature\":-0.1}") },
    { 400, "a temperature in words", CHAT, RAW("{" HELLO ",\"temperature\":\"hot\"}") },
    { 400, "top_p above 1", CHAT, RAW("{" HELLO ",\"top_p\":1.5}") },
    { 400, "max_tokens below 0", CHAT, RAW("{" HELLO ",\"max_tokens\":-1}") },
    { 400, "half a token", CHAT, RAW("{" HELLO ",\"max_tokens\":1.5}") },
    { 400, "more tokens than 64 bits", CHAT, RAW("{" HELLO ",\"max_tokens\":99999999999999999999}") },
    { 400, "1e999 tokens", CHAT, RAW("{" HELLO ",\"max_tokens\":1e999}") },
    { 400, "more tokens than the context", CHAT, RAW("{" HELLO ",\"max_tokens\":2000000000}") },
    { 400, "tokens in words", CHAT, RAW("{" HELLO ",\"max_tokens\":\"10\"}") },
    { 400, "1000 answers", CHAT, RAW("{" HELLO ",\"n\":1000}") },
    { 400, "no answers", CHAT, RAW("{" HELLO ",\"n\":0}") },
    { 400, "a seed beyond 64 bits", CHAT, RAW("{" HELLO ",\"seed\":1e30}") },
    { 400, "a stop that is a number", CHAT, RAW("{" HELLO ",\"stop\":5}") },
    { 400, "an empty stop", CHAT, RAW("{" HELLO ",\"stop\":[\"\"]}") },
    { 400, "stream in words", CHAT, RAW("{" HELLO ",\"stream\":\"yes\"}") },
    { 400, "a form of answer we do not serve", CHAT, RAW("{" HELLO ",\"response_format\":{\"type\":\"xml\"}}") },
    { 400, "messages: object", CHAT, RAW("{\"messages\":{}}") },
    { 400, "messages: text", CHAT, RAW("{\"messages\":\"hi\"}") },
    { 400, "messages: none", CHAT, RAW("{\"messages\":[]}") },
    { 400, "messages: numbers", CHAT, RAW("{\"messages\":[1]}") },
    { 400, "a message without a role", CHAT, RAW("{\"messages\":[{}]}") },
    { 400, "a role that is a number", CHAT, RAW("{\"messages\":[{\"role\":1,\"content\":\"hi\"}]}") },
    { 400, "a content that is a number", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":5}]}") },
    { 400, "a content that is an object", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":{}}]}") },
    { 400, "a picture", CHAT, RAW("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]}") },
    { 400, "tools: text", CHAT, RAW("{" HELLO ",\"tools\":\"all\"}") },
    { 400, "model: number", CHAT, RAW("{" HELLO ",\"model\":5}") },
    { 404, "a model nobody has", CHAT, RAW("{" HELLO ",\"model\":\"nobody\"}") },
    { 400, "no prompt", TEXT, RAW("{}") },
    { 400, "a prompt that is an object", TEXT, RAW("{\"prompt\":{}}") },
    { 400, "an id out of range", TEXT, RAW("{\"prompt\":[999999]}") },
    { 400, "an id beyond 32 bits", TEXT, RAW("{\"prompt\":[4294967297]}") },
    { 400, "a negative id", TEXT, RAW("{\"prompt\":[-1]}") },
    { 400, "half an id", TEXT, RAW("{\"prompt\":[1.5]}") },
    { 400, "ids and text mixed", TEXT, RAW("{\"prompt\":[1,\"a\"]}") },
    { 400, "no ids", TEXT, RAW("{\"prompt\":[]}") },
    { 400, "texts and ids in one batch", TEXT, RAW("{\"prompt\":[\"a\",[1]]}") },
    { 400, "an empty text in a batch", TEXT, RAW("{\"prompt\":[\"a\",\"\"]}") },
    { 400, "an id out of range in a batch", TEXT, RAW("{\"prompt\":[[1],[999999]]}") },
    { 400, "more outputs than may be", TEXT, RAW("{\"prompt\":[\"a\",\"b\"],\"n\":33}") },
    { 400, "the best of fewer", TEXT, RAW("{\"prompt\":\"a\",\"n\":3,\"best_of\":2}") },
    { 400, "a bias for no token", TEXT, RAW("{\"prompt\":\"a\",\"logit_bias\":{\"999999\":1}}") },
    { 400, "a bias without end", TEXT, RAW("{\"prompt\":\"a\",\"logit_bias\":{\"1\":1e999}}") },
    { 400, "21 alternatives", CHAT, RAW("{" HELLO ",\"logprobs\":true,\"top_logprobs\":21}") },
    { 400, "a role of its own", CHAT, RAW("{\"messages\":[{\"role\":\"root\",\"content\":\"hi\"}]}") },
    { 400, "tokenize: number", "/tokenize", RAW("{\"prompt\":5}") },
    { 400, "tokenize: list", "/tokenize", RAW("[]") },
    { 400, "tokenize: cut short", "/tokenize", RAW("{\"prompt\":\"a") },
    { 400, "detokenize: text", "/detokenize", RAW("{\"tokens\":\"a\"}") },
    { 400, "detokenize: a negative id", "/detokenize", RAW("{\"tokens\":[-1]}") },
    { 400, "detokenize: a list in a list", "/detokenize", RAW("{\"tokens\":[[1]]}") },
    { 400, "detokenize: an id out of range", "/detokenize", RAW("{\"tokens\":[4294967295]}") },
    { 400, "detokenize: text behind the end", "/detokenize", RAW("{\"tokens\":[1]}x") },
    { 404, "no such path", "/v1/images/edits", RAW("{}") },
    { 405, "a path with another method", "/v1/models", RAW("{}") },
};

// clang-format on

static void hostile_json_is_refused_in_openai_s_shape(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(edge_servers); s++) {
        for (size_t i = 0; i < COUNT_OF(json_rows); i++) {
            const struct json_row *row = &json_rows[i];
            CLEANUP(buf_fini) struct buf bytes = { 0 };
            edge_post(&bytes, row->path, row->body);
            edge_expect_refusal(&edge_servers[s], row->why, buf_view(&bytes), row->status);
        }
        edge_expect_service(&edge_servers[s]);
    }
    assert_int_equal(edge_surprises, 0);
}

static void json_beyond_its_bounds_is_refused(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *why, *path, *begin, *part;
        size_t count;
        const char *end;
    } rows[] = {
        { 413, "a body of 9 MiB", TEXT, "{\"prompt\":\"", "a", TOO_MANY_BYTES, "\"}" },
        { 400, "a hundred levels", CHAT, "{" HELLO ",\"x\":", "[", 100, "" },
        { 400, "a million levels", CHAT, "", "[", 1000000, "" },
        { 400, "10,000 stops", CHAT, "{" HELLO ",\"stop\":[\"a\"", ",\"a\"", 9999, "]}" },
        { 400, "a stop of 10,000 bytes", CHAT, "{" HELLO ",\"stop\":\"", "a", 10000, "\"}" },
        { 400, "a user of 10,000 bytes", CHAT, "{" HELLO ",\"user\":\"", "a", 10000, "\"}" },
        { 400, "a number of 10,000 digits", CHAT, "{" HELLO ",\"seed\":", "9", 10000, "}" },
        { 400, "5,000 messages", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}",
          ",{\"role\":\"user\",\"content\":\"a\"}", 5000, "]}" },
        { 400, "a prompt of 400,000 ids", TEXT, "{\"prompt\":[1", ",1", 399999, "]}" },
        { 400, "a prompt of 1 MB", TEXT, "{\"prompt\":\"a", " b", 500000, "\"}" },
    };
    for (size_t s = 0; s < COUNT_OF(edge_servers); s++) {
        for (size_t i = 0; i < COUNT_OF(rows); i++) {
            CLEANUP(buf_fini) struct buf bytes = { 0 }, body = { 0 };
            edge_repeat(&body, rows[i].begin, rows[i].part, rows[i].count, rows[i].end);
            edge_post(&bytes, rows[i].path, buf_view(&body));
            edge_expect_refusal(&edge_servers[s], rows[i].why, buf_view(&bytes), rows[i].status);
        }
        edge_expect_service(&edge_servers[s]);
    }
    assert_int_equal(edge_surprises, 0);
}

/* Odd but valid JSON must pass; otherwise the rows above would also pass if every request were refused. */
static void odd_json_that_is_right_is_served(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{" HELLO ",\"max_tokens\":2,\"unknown\":[[[[{\"a\":1e308}]]]]}",
        "{" HELLO ",\"max_tokens\":2e0,\"temperature\":null,\"n\":1}",
        "  {\r\n\t" HELLO " , \"max_tokens\" : 2 }\n",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\\ud83d\\ude00 \\\"\\\\/\\b\"}],"
        "\"max_tokens\":2}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}],"
        "\"max_tokens\":2,\"stop\":[\"x\",\"y\"]}",
        "{\"\\u006dessages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":2}",
    };
    for (size_t s = 0; s < COUNT_OF(edge_servers); s++) {
        for (size_t i = 0; i < COUNT_OF(bodies); i++) {
            CLEANUP(buf_fini) struct buf reply = { 0 };
            int status = rig_call(edge_servers[s].process->port, CHAT, bodies[i], &reply);
            if (status != 200) {
                fail_msg("%s, %s: %d %.*s", edge_servers[s].name, bodies[i], status, (int)reply.len,
                         reply.data);
            }
        }
    }
}

/* Plays clients that are slow, never read or leave: the router and the engine hold resources for them for
 * a bounded time, and no other client waits. */

/* The limits of both servers, fixed in base/io/http/http_server.h; SLACK_US only ends a test that hangs. */
#define HEAD_US 10000000
#define BODY_US 30000000
#define UNSENT_US 30000000

/* Limit of the router's growth in memory while a client does not read a stream of some 60 MB. */
#ifdef __SANITIZE_ADDRESS__
#    define GROWTH_KIB (512 * 1024) /* freed memory stays in quarantine */
#else
#    define GROWTH_KIB (16 * 1024)
#endif
#define SLACK_US 120000000
#define EARLY_US 1500000 /* a server starts a deadline when it sees us, and checks it in turns */

struct slow {
    int fd;
    const char *part; /* sent repeatedly, which must not move the deadline */
    int64_t limit_us;
    bool refused;
};

static void slow_begin(struct slow *c, const struct edge_server *to, const char *begin,
                       const char *part, int64_t limit_us)
{
    *c = (struct slow){ .fd = rig_connect(to->process->port, 0),
                        .part = part,
                        .limit_us = limit_us };
    assert_int_equal(send(c->fd, begin, strlen(begin), MSG_NOSIGNAL), strlen(begin));
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
}

/* Sends a little more until the refusal comes, which must not come early. */
static void slow_turn(struct slow *c, int64_t since_us)
{
    char text[1024];
    if (c->refused) return;
    ssize_t got = recv(c->fd, text, sizeof text - 1, 0);
    int64_t age_us = clock_mono_us() - since_us;
    if (got > 0) {
        text[got] = '\0';
        assert_int_equal(edge_status(str_from(text)), 408);
        assert_true(age_us >= c->limit_us - EARLY_US);
        c->refused = true;
        return;
    }
    if (got == 0 || errno != EAGAIN) fail_msg("closed without a word: %s", c->part);
    if (age_us > c->limit_us + SLACK_US) fail_msg("not cut: %s", c->part);
    assert_true(send(c->fd, c->part, strlen(c->part), MSG_NOSIGNAL) > 0);
}

/* Starts an endless stream to a client that never reads. */
static int start_stuck_reader(void)
{
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    assert_int_equal(
        rig_call(edge_fake.port, "/script", "{\"tokens\":1000000,\"token_ms\":0}", NULL), 200);
    int fd = rig_connect(edge_router.port, 4096);
    edge_post(&bytes, CHAT, STR("{" HELLO ",\"stream\":true}"));
    assert_int_equal(send(fd, bytes.data, bytes.len, MSG_NOSIGNAL), bytes.len);
    rig_wait_number(edge_fake.port, "/seen", "open", 1);
    assert_int_equal(rig_call(edge_fake.port, "/script", "{\"tokens\":8,\"token_ms\":1}", NULL),
                     200);
    return fd;
}

enum leaving { LEAVE_AT_ONCE, LEAVE_IN_THE_HEAD, LEAVE_IN_THE_STREAM, LEAVE_BY_RESET, LEAVE_COUNT };

static void come_and_leave(const struct edge_server *to, enum leaving how)
{
    CLEANUP(buf_fini) struct buf bytes = { 0 };
    int fd = rig_connect(to->process->port, 0);
    edge_post(&bytes, CHAT, STR("{" HELLO ",\"stream\":true,\"max_tokens\":64}"));
    size_t len = how == LEAVE_AT_ONCE ? 0 : how == LEAVE_IN_THE_HEAD ? 40 : bytes.len;
    if (len > 0) assert_int_equal(send(fd, bytes.data, len, MSG_NOSIGNAL), len);
    struct linger reset = { .l_onoff = 1 };
    if (how == LEAVE_BY_RESET) {
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    }
    close(fd);
}

struct calm {
    const struct edge_server *server;
    uint32_t descriptors;
    const char *metric;
};

static bool is_calm(void *arg)
{
    const struct calm *c = arg;
    /* Up to eight more are connections to engines, kept for the next request. */
    return rig_metric(c->server->process->port, c->metric) == 0 &&
           rig_descriptors(c->server->process) <= c->descriptors + 8;
}

static void clients_that_leave_leave_nothing(void **state)
{
    (void)state;
    static const char *const metrics[] = { "muster_router_in_flight_requests",
                                           "muster_engine_requests_running" };
    for (size_t s = 0; s < COUNT_OF(edge_servers); s++) {
        edge_expect_service(&edge_servers[s]);
        struct calm calm = { &edge_servers[s], rig_descriptors(edge_servers[s].process),
                             metrics[s] };
        for (int i = 0; i < 200; i++)
            come_and_leave(&edge_servers[s], (enum leaving)(i % LEAVE_COUNT));
        rig_wait(is_calm, &calm, "what 200 clients held is given back");
        edge_expect_service(&edge_servers[s]);
    }
    rig_wait_number(edge_fake.port, "/seen", "open", 0);
}

static void the_slow_are_cut_by_absolute_deadlines_and_hold_up_nobody(void **state)
{
    (void)state;
    struct slow slow[4];
    int64_t rss_kib = rig_rss_kib(&edge_router);
    int stuck = start_stuck_reader();
    int64_t since_us = clock_mono_us(), slowest_us = 0;
    uint32_t answered = 0;
    for (size_t s = 0; s < COUNT_OF(edge_servers); s++) {
        slow_begin(&slow[2 * s], &edge_servers[s], "GET /health HTTP/1.1\r\nA: ", "a", HEAD_US);
        slow_begin(&slow[2 * s + 1], &edge_servers[s], POST "Content-Length: 100000\r\n\r\n{", " ",
                   BODY_US);
    }
    bool waiting = true;
    while (waiting) {
        int64_t before_us = clock_mono_us();
        if (before_us > since_us + UNSENT_US + SLACK_US) fail_msg("somebody was never cut");
        waiting = rig_number(edge_fake.port, "/seen", "open") > 0;
        if (waiting) assert_true(rig_rss_kib(&edge_router) < rss_kib + GROWTH_KIB);
        for (size_t i = 0; i < COUNT_OF(slow); i++) {
            slow_turn(&slow[i], since_us);
            waiting |= !slow[i].refused;
        }
        int status = rig_call(edge_router.port, CHAT, "{" HELLO ",\"stream\":true}", NULL);
        assert_int_equal(status, 200);
        answered++;
        int64_t took_us = clock_mono_us() - before_us;
        if (took_us > slowest_us) slowest_us = took_us;
        usleep(200000);
    }
    print_message("%u streams beside a stuck one, the slowest %.0f ms\n", answered,
                  (double)slowest_us * 1e-3);
    assert_true(answered >= 3); /* a stuck reader that held others up would allow fewer */
    for (size_t i = 0; i < COUNT_OF(slow); i++)
        close(slow[i].fd);
    close(stuck);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN", MODEL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_can_be_read_in_two_ways_gets_one_refusal, edge_begin),
        cmocka_unit_test(what_is_plain_gets_an_answer_each),
        cmocka_unit_test_setup(heads_beyond_their_bounds_are_refused, edge_begin),
        cmocka_unit_test_setup(hostile_json_is_refused_in_openai_s_shape, edge_begin),
        cmocka_unit_test_setup(json_beyond_its_bounds_is_refused, edge_begin),
        cmocka_unit_test(odd_json_that_is_right_is_served),
        cmocka_unit_test(clients_that_leave_leave_nothing),
        cmocka_unit_test(the_slow_are_cut_by_absolute_deadlines_and_hold_up_nobody),
    };
    return rig_end(cmocka_run_group_tests(tests, edge_setup, edge_teardown));
}
