/* http1.c - parses heads and bodies of requests and replies, and names the faults in them.
 *
 * Scanning and parsing are two passes on purpose: the scan is the only place that looks at line
 * ends and forbidden bytes, so the parser may split on CRLF without checking again, and a hostile
 * byte is refused when it arrives, not when the head is whole.
 *
 * The parser is stricter than RFC 9112 where that leaves a choice: no empty line before the request line, no
 * blanks around a chunk size, no chunk extensions, no trailers in requests, no repeated
 * content-length even when equal, no empty Host, no tab around the value of Host and of what frames
 * the body (nginx reads it as part of the value), no body of a GET in HTTP/1.0. Clients that are in
 * use send none of these; requests are smuggled where proxies disagree about them. */
#include "base/io/http/http1.h"

#include "base/core/bits.h"
#include "base/core/hash.h"

#include <errno.h>

#define IS_TOKEN 1  /* RFC 9110 5.6.2: names of headers, methods */
#define IS_TARGET 2 /* RFC 3986: pchar, '/', '?', and '%', which is checked further */
#define IS_HOST 4   /* names and IPv4 addresses; '_' because Docker uses it */

#define ALNUM_FLAGS (IS_TOKEN | IS_TARGET | IS_HOST)

/* clang-format off */
static const uint8_t byte_flags[256] = {
    ['0' ... '9'] = ALNUM_FLAGS, ['A' ... 'Z'] = ALNUM_FLAGS, ['a' ... 'z'] = ALNUM_FLAGS,
    ['-'] = ALNUM_FLAGS, ['.'] = ALNUM_FLAGS, ['_'] = ALNUM_FLAGS,
    ['!'] = IS_TOKEN | IS_TARGET, ['$'] = IS_TOKEN | IS_TARGET, ['&'] = IS_TOKEN | IS_TARGET,
    ['\''] = IS_TOKEN | IS_TARGET, ['*'] = IS_TOKEN | IS_TARGET, ['+'] = IS_TOKEN | IS_TARGET,
    ['~'] = IS_TOKEN | IS_TARGET, ['%'] = IS_TOKEN | IS_TARGET,
    ['#'] = IS_TOKEN, ['^'] = IS_TOKEN, ['`'] = IS_TOKEN, ['|'] = IS_TOKEN,
    ['('] = IS_TARGET, [')'] = IS_TARGET, [','] = IS_TARGET, [';'] = IS_TARGET,
    ['='] = IS_TARGET, [':'] = IS_TARGET, ['@'] = IS_TARGET, ['/'] = IS_TARGET, ['?'] = IS_TARGET,
};
/* clang-format on */

static bool all_bytes(struct str s, uint8_t flag)
{
    for (size_t i = 0; i < s.len; i++)
        if (!(byte_flags[(uint8_t)s.data[i]] & flag)) return false;
    return true;
}

static int fail(enum http_fault fault, enum http_fault *ret_fault)
{
    *ret_fault = fault;
    return -EINVAL;
}

/* ---- finding the end of a head ---- */

static bool is_control(char c)
{
    uint8_t byte = (uint8_t)c;
    return (byte < 0x20 && byte != '\t' && byte != '\r' && byte != '\n') || byte == 0x7f;
}

/* Checks a line that ends before `at`, where its CR stands. Sets *ret_whole at the empty line. */
static enum http_fault scan_line(struct http1_scan *s, size_t at, const struct http1_limits *limits,
                                 bool *ret_whole)
{
    *ret_whole = at == s->line_from;
    if (*ret_whole) return s->lines == 0 ? HTTP_FAULT_REQUEST_LINE : HTTP_FAULT_NONE;
    s->lines++;
    s->line_from = at + 2;
    return s->lines > limits->headers_max + 1 ? HTTP_FAULT_HEADERS_MANY : HTTP_FAULT_NONE;
}

static enum http_fault scan_byte(const struct http1_scan *s, struct str in, size_t i)
{
    char c = in.data[i];
    bool after_cr = i > 0 && in.data[i - 1] == '\r';
    if (c == '\n') return after_cr ? HTTP_FAULT_NONE : HTTP_FAULT_BARE_LF;
    if (after_cr) return HTTP_FAULT_BARE_CR;
    if (is_control(c)) return HTTP_FAULT_CONTROL_BYTE;
    if (i == s->line_from && s->lines > 0 && (c == ' ' || c == '\t')) return HTTP_FAULT_FOLD;
    return HTTP_FAULT_NONE;
}

int http1_scan(struct http1_scan *s, struct str in, const struct http1_limits *limits,
               size_t *ret_len, enum http_fault *ret_fault)
{
    for (; s->pos < in.len; s->pos++) {
        size_t i = s->pos;
        if (s->lines == 0 && i >= limits->line_bytes_max && in.data[i] != '\n')
            return fail(HTTP_FAULT_LINE_LONG, ret_fault);
        if (i >= limits->head_bytes_max) return fail(HTTP_FAULT_HEAD_LONG, ret_fault);
        enum http_fault fault = scan_byte(s, in, i);
        bool whole = false;
        if (fault == HTTP_FAULT_NONE && in.data[i] == '\n')
            fault = scan_line(s, i - 1, limits, &whole);
        if (fault != HTTP_FAULT_NONE) return fail(fault, ret_fault);
        if (whole) {
            *ret_len = i + 1;
            return 0;
        }
    }
    return -EAGAIN;
}

/* ---- header lines, the same for both directions ---- */

struct head { /* what the header lines say about the message itself */
    bool close, keep_alive;
    bool has_length, chunked;
    bool has_tab; /* in the line at hand */
    uint64_t length;
    uint32_t hosts;
    struct str host;
    struct str expect;
};

/* Takes the next line, without its CRLF. The scan has made sure that there is one. */
static struct str next_line(struct str *rest)
{
    struct str line = str_cut(rest, '\n');
    return str_of(line.data, line.len - 1);
}

static void read_connection(struct head *h, struct str value)
{
    while (value.len > 0) {
        struct str word = str_trim(str_cut(&value, ','));
        if (str_eq_nocase(word, STR("close"))) h->close = true;
        if (str_eq_nocase(word, STR("keep-alive"))) h->keep_alive = true;
    }
}

static enum http_fault read_length(struct head *h, struct str value)
{
    if (h->has_length) return HTTP_FAULT_LENGTH_REPEATED;
    if (h->has_tab) return HTTP_FAULT_LENGTH_BAD;
    h->has_length = true;
    for (size_t i = 0; i < value.len; i++)
        if (value.data[i] < '0' || value.data[i] > '9') return HTTP_FAULT_LENGTH_BAD;
    return str_to_u64(value, &h->length) < 0 ? HTTP_FAULT_LENGTH_BAD : HTTP_FAULT_NONE;
}

static enum http_fault read_coding(struct head *h, struct str value)
{
    if (h->chunked || h->has_tab || !str_eq_nocase(value, STR("chunked"))) return HTTP_FAULT_CODING;
    h->chunked = true;
    return HTTP_FAULT_NONE;
}

static enum http_fault read_header(struct head *h, const struct http_header *header)
{
    struct str name = header->name;
    if (str_eq_nocase(name, STR("content-length"))) return read_length(h, header->value);
    if (str_eq_nocase(name, STR("transfer-encoding"))) return read_coding(h, header->value);
    if (str_eq_nocase(name, STR("connection"))) read_connection(h, header->value);
    if (str_eq_nocase(name, STR("expect"))) h->expect = header->value;
    if (str_eq_nocase(name, STR("host"))) {
        if (h->has_tab) return HTTP_FAULT_HOST_BAD;
        h->host = header->value;
        h->hosts++;
    }
    return HTTP_FAULT_NONE;
}

/* Reads header lines from `rest` until the empty one. */
static enum http_fault read_headers(struct str rest, uint32_t headers_max, struct head *h,
                                    struct http_header *ret, uint32_t *ret_count)
{
    uint32_t count = 0;
    for (;;) {
        struct str value = next_line(&rest);
        if (value.len == 0) break;
        if (count == headers_max) return HTTP_FAULT_HEADERS_MANY;
        bool has_colon = memchr(value.data, ':', value.len) != NULL;
        struct str name = str_cut(&value, ':');
        if (!has_colon || name.len == 0 || !all_bytes(name, IS_TOKEN))
            return HTTP_FAULT_HEADER_NAME;
        ret[count] = (struct http_header){ name, str_trim(value) };
        h->has_tab = memchr(value.data, '\t', value.len) != NULL;
        enum http_fault fault = read_header(h, &ret[count++]);
        if (fault != HTTP_FAULT_NONE) return fault;
    }
    if (h->chunked && h->has_length) return HTTP_FAULT_LENGTH_AND_CODING;
    *ret_count = count;
    return HTTP_FAULT_NONE;
}

/* Reads "HTTP/1.0" or "HTTP/1.1"; a well-formed version with another number has a fault of its own. */
static enum http_fault read_version(struct str s, enum http_fault otherwise, uint8_t *ret_minor)
{
    bool formed = s.len == 8 && str_starts(s, STR("HTTP/")) && s.data[6] == '.' &&
                  s.data[5] >= '0' && s.data[5] <= '9' && s.data[7] >= '0' && s.data[7] <= '9';
    if (!formed) return otherwise;
    if (s.data[5] != '1' || s.data[7] > '1') return HTTP_FAULT_VERSION;
    *ret_minor = (uint8_t)(s.data[7] - '0');
    return HTTP_FAULT_NONE;
}

/* ---- requests ---- */

static bool percents_valid(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] != '%') continue;
        uint8_t byte;
        /* %00 is never intended, and it ends the C string of a program that decodes it. */
        if (s.len - i < 3 || hex_to(str_of(s.data + i + 1, 2), &byte, 1) < 0 || byte == 0)
            return false;
        i += 2;
    }
    return true;
}

static bool port_valid(struct str port)
{
    uint64_t number;
    return port.len <= 5 && all_bytes(port, IS_HOST) && str_to_u64(port, &number) == 0 &&
           number <= UINT16_MAX;
}

/* Returns true for host, host:port, [v6] or [v6]:port. */
static bool host_valid(struct str host)
{
    if (host.len == 0) return false;
    if (host.data[0] != '[') {
        bool has_port = memchr(host.data, ':', host.len) != NULL;
        struct str name = str_cut(&host, ':');
        return name.len > 0 && all_bytes(name, IS_HOST) && (!has_port || port_valid(host));
    }
    const char *close = memchr(host.data, ']', host.len);
    if (!close) return false;
    struct str ip = str_of(host.data + 1, (size_t)(close - host.data) - 1);
    struct str rest = str_of(close + 1, host.len - ip.len - 2);
    for (size_t i = 0; i < ip.len; i++)
        if (!memchr("0123456789abcdefABCDEF:.", ip.data[i], 24)) return false;
    if (ip.len == 0) return false;
    if (rest.len == 0) return true;
    return rest.data[0] == ':' && port_valid(str_of(rest.data + 1, rest.len - 1));
}

/* Takes the authority of "http://authority/path" and leaves the path in *rest; or { NULL, 0 }. */
static struct str cut_authority(struct str *rest)
{
    struct str s = *rest;
    size_t scheme = 0;
    if (s.len >= 7 && str_eq_nocase(str_of(s.data, 7), STR("http://"))) scheme = 7;
    if (s.len >= 8 && str_eq_nocase(str_of(s.data, 8), STR("https://"))) scheme = 8;
    if (scheme == 0) return (struct str){ 0 };
    size_t end = scheme;
    while (end < s.len && s.data[end] != '/' && s.data[end] != '?')
        end++;
    *rest = str_of(s.data + end, s.len - end);
    return str_of(s.data + scheme, end - scheme);
}

static enum http_fault read_target(struct http_request *req)
{
    struct str rest = req->target;
    if (rest.len == 1 && rest.data[0] == '*' && str_eq(req->method, STR("OPTIONS"))) {
        req->path = rest;
        return HTTP_FAULT_NONE;
    }
    struct str authority = cut_authority(&rest);
    if (authority.data) {
        /* RFC 9112 3.2.2: authority and Host are the same; a request where they differ is an attack. */
        if (!host_valid(authority)) return HTTP_FAULT_TARGET;
        if (req->host.data && !str_eq_nocase(authority, req->host)) return HTTP_FAULT_HOST_DIFFERS;
    }
    req->path = str_cut(&rest, '?');
    req->query = rest;
    if (authority.data && req->path.len == 0) req->path = STR("/");
    if (req->path.len == 0 || req->path.data[0] != '/') return HTTP_FAULT_TARGET;
    if (!all_bytes(req->path, IS_TARGET) || !all_bytes(req->query, IS_TARGET))
        return HTTP_FAULT_TARGET;
    if (!percents_valid(req->path) || !percents_valid(req->query)) return HTTP_FAULT_PERCENT;
    return HTTP_FAULT_NONE;
}

static enum http_fault read_request_line(struct str line, struct http_request *req)
{
    req->method = str_cut(&line, ' ');
    req->target = str_cut(&line, ' ');
    if (req->method.len == 0 || !all_bytes(req->method, IS_TOKEN) || req->target.len == 0)
        return HTTP_FAULT_REQUEST_LINE;
    return read_version(line, HTTP_FAULT_REQUEST_LINE, &req->minor);
}

static enum http_fault read_expect(const struct head *h, struct http_request *req)
{
    if (!h->expect.data || req->minor == 0) return HTTP_FAULT_NONE; /* 1.0 did not know it */
    if (!str_eq_nocase(h->expect, STR("100-continue"))) return HTTP_FAULT_EXPECT;
    req->expect_continue = true;
    return HTTP_FAULT_NONE;
}

/* Returns true if servers of HTTP/1.0 read a body of the method. They took the body of another method
 * for the next request. */
static bool has_body_of_old(struct str method)
{
    return !str_eq(method, STR("GET")) && !str_eq(method, STR("HEAD")) &&
           !str_eq(method, STR("DELETE"));
}

static enum http_fault read_request(struct str head, const struct http1_limits *limits,
                                    struct http_request *req)
{
    struct head h = { 0 };
    struct str line = next_line(&head);
    enum http_fault fault = read_request_line(line, req);
    if (fault != HTTP_FAULT_NONE) return fault;
    fault = read_headers(head, limits->headers_max, &h, req->headers, &req->header_count);
    if (fault != HTTP_FAULT_NONE) return fault;

    if (h.hosts > 1) return HTTP_FAULT_HOST_REPEATED;
    if (h.hosts == 0 && req->minor == 1) return HTTP_FAULT_HOST_MISSING;
    if (h.hosts == 1 && !host_valid(h.host)) return HTTP_FAULT_HOST_BAD;
    req->host = h.host;
    /* RFC 9112 6.1: framing of an HTTP/1.0 message that claims a coding cannot be trusted. */
    if (h.chunked && req->minor == 0) return HTTP_FAULT_CODING;
    if (h.length > 0 && req->minor == 0 && !has_body_of_old(req->method))
        return HTTP_FAULT_BODY_OLD;
    fault = read_target(req);
    if (fault != HTTP_FAULT_NONE) return fault;

    req->keep_alive = !h.close && (req->minor == 1 || h.keep_alive);
    req->body_length = h.length;
    if (h.chunked) req->body_kind = HTTP_BODY_CHUNKED;
    if (h.length > 0) req->body_kind = HTTP_BODY_COUNTED;
    return read_expect(&h, req);
}

int http1_request_parse(struct str head, const struct http1_limits *limits,
                        struct http_request *ret, enum http_fault *ret_fault)
{
    memset(ret, 0, sizeof *ret);
    enum http_fault fault = read_request(head, limits, ret);
    return fault == HTTP_FAULT_NONE ? 0 : fail(fault, ret_fault);
}

/* ---- replies ---- */

static enum http_fault read_status_line(struct str line, struct http_response *resp)
{
    struct str version = str_cut(&line, ' ');
    struct str digits = str_cut(&line, ' ');
    uint64_t status;
    enum http_fault fault = read_version(version, HTTP_FAULT_STATUS_LINE, &resp->minor);
    if (fault != HTTP_FAULT_NONE) return fault;
    if (digits.len != 3 || str_to_u64(digits, &status) < 0 || status < 100 || status > 599)
        return HTTP_FAULT_STATUS_LINE;
    resp->status = (int)status;
    return HTTP_FAULT_NONE;
}

static enum http_body_kind response_body(const struct head *h, int status, bool to_head)
{
    if (to_head || status < 200 || status == 204 || status == 304) return HTTP_BODY_NONE;
    if (h->chunked) return HTTP_BODY_CHUNKED;
    if (!h->has_length) return HTTP_BODY_UNTIL_END;
    return h->length > 0 ? HTTP_BODY_COUNTED : HTTP_BODY_NONE;
}

static enum http_fault read_response(struct str head, const struct http1_limits *limits,
                                     bool to_head, struct http_response *resp)
{
    struct head h = { 0 };
    struct str line = next_line(&head);
    enum http_fault fault = read_status_line(line, resp);
    if (fault != HTTP_FAULT_NONE) return fault;
    fault = read_headers(head, limits->headers_max, &h, resp->headers, &resp->header_count);
    if (fault != HTTP_FAULT_NONE) return fault;
    if (h.chunked && resp->minor == 0) return HTTP_FAULT_CODING;

    resp->body_kind = response_body(&h, resp->status, to_head);
    resp->body_length = h.length;
    resp->keep_alive =
        !h.close && (resp->minor == 1 || h.keep_alive) && resp->body_kind != HTTP_BODY_UNTIL_END;
    return HTTP_FAULT_NONE;
}

int http1_response_parse(struct str head, const struct http1_limits *limits, bool to_head,
                         struct http_response *ret, enum http_fault *ret_fault)
{
    memset(ret, 0, sizeof *ret);
    enum http_fault fault = read_response(head, limits, to_head, ret);
    return fault == HTTP_FAULT_NONE ? 0 : fail(fault, ret_fault);
}

/* ---- looking up and checking parts ---- */

static struct str find_header(const struct http_header *headers, uint32_t count, const char *name)
{
    struct str wanted = str_from(name);
    for (uint32_t i = 0; i < count; i++)
        if (str_eq_nocase(headers[i].name, wanted)) return headers[i].value;
    return (struct str){ 0 };
}

struct str http_request_header(const struct http_request *req, const char *name)
{
    return find_header(req->headers, req->header_count, name);
}

struct str http_response_header(const struct http_response *resp, const char *name)
{
    return find_header(resp->headers, resp->header_count, name);
}

bool http_header_valid(struct str name, struct str value)
{
    if (name.len == 0 || !all_bytes(name, IS_TOKEN)) return false;
    for (size_t i = 0; i < value.len; i++)
        if (is_control(value.data[i]) || value.data[i] == '\r' || value.data[i] == '\n')
            return false;
    return true;
}

bool http_target_valid(struct str target)
{
    return target.len > 0 && target.data[0] == '/' && all_bytes(target, IS_TARGET) &&
           percents_valid(target);
}

int http_percent_decode(struct str s, struct buf *out)
{
    if (!percents_valid(s)) return -EINVAL;
    for (size_t i = 0; i < s.len; i++) {
        uint8_t byte = (uint8_t)s.data[i];
        if (byte == '%') {
            (void)hex_to(str_of(s.data + i + 1, 2), &byte, 1); /* checked above */
            i += 2;
        }
        buf_byte(out, (char)byte);
    }
    return out->rc;
}

int http_query_value(struct str query, const char *name, struct buf *out)
{
    struct str wanted = str_from(name);
    while (query.len > 0) {
        struct str value = str_cut(&query, '&');
        struct str key = str_cut(&value, '=');
        if (str_eq(key, wanted)) return http_percent_decode(value, out);
    }
    return -ENOENT;
}

/* ---- bodies ---- */

/* Reads bodies a slice at a time, without a copy.
 *
 *     SIZE --CR--> SIZE_LF --LF--> DATA --left = 0--> DATA_CR --CR--> DATA_LF --LF--> SIZE
 *                     \--LF, size 0--> TRAILER --CR--> END_LF --LF--> done
 *                                       | ^
 *                                 other v | LF
 *                                 TRAILER_LINE --CR--> TRAILER_LF
 *
 * Nothing but these bytes is accepted: no blanks, no extension, no bare line feed. */

#define SIZE_DIGITS_MAX 15 /* of hexadecimal: fits 64 bits, and a run of zeros ends */

enum state { SIZE, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER, TRAILER_LINE, TRAILER_LF, END_LF };

void http1_body_init(struct http1_body *b, enum http_body_kind kind, uint64_t length,
                     bool trailers_refused)
{
    *b = (struct http1_body){ .kind = kind, .state = SIZE, .trailers_refused = trailers_refused };
    if (kind == HTTP_BODY_COUNTED) b->left = length;
    b->done = kind == HTTP_BODY_NONE || (kind == HTTP_BODY_COUNTED && length == 0);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static enum http_fault size_byte(struct http1_body *b, char c)
{
    int digit = hex_value(c);
    if (digit >= 0 && b->digits < SIZE_DIGITS_MAX) {
        b->left = b->digits == 0 ? (uint64_t)digit : b->left * 16 + (uint64_t)digit;
        b->digits++;
        return HTTP_FAULT_NONE;
    }
    if (c != '\r' || b->digits == 0) return HTTP_FAULT_CHUNK;
    b->digits = 0;
    b->state = SIZE_LF;
    return HTTP_FAULT_NONE;
}

static enum http_fault trailer_byte(struct http1_body *b, char c)
{
    if (b->state == TRAILER && c == '\r') {
        b->state = END_LF;
        return HTTP_FAULT_NONE;
    }
    if (b->trailers_refused || c == '\n' || b->skipped++ >= HTTP_TRAILER_BYTES_MAX)
        return HTTP_FAULT_TRAILER;
    b->state = c == '\r' ? TRAILER_LF : TRAILER_LINE;
    return HTTP_FAULT_NONE;
}

/* Takes the one byte that may come here, and goes on to state `next`. */
static enum http_fault expect_byte(struct http1_body *b, char c, char wanted, enum state next)
{
    if (c != wanted) return HTTP_FAULT_CHUNK;
    b->state = (uint8_t)next;
    return HTTP_FAULT_NONE;
}

static enum http_fault framing_byte(struct http1_body *b, char c)
{
    switch ((enum state)b->state) {
    case SIZE:
        return size_byte(b, c);
    case SIZE_LF:
        return expect_byte(b, c, '\n', b->left > 0 ? DATA : TRAILER);
    case DATA_CR:
        return expect_byte(b, c, '\r', DATA_LF);
    case DATA_LF:
        return expect_byte(b, c, '\n', SIZE);
    case TRAILER:
    case TRAILER_LINE:
        return trailer_byte(b, c);
    case TRAILER_LF:
        return expect_byte(b, c, '\n', TRAILER);
    case END_LF:
        b->done = c == '\n';
        return b->done ? HTTP_FAULT_NONE : HTTP_FAULT_CHUNK;
    case DATA:
        break; /* taken as a slice by the caller */
    }
    return HTTP_FAULT_CHUNK;
}

static struct str take_data(struct http1_body *b, struct str in)
{
    size_t len = b->left < in.len ? (size_t)b->left : in.len;
    b->left -= len;
    return str_of(in.data, len);
}

static int chunked_next(struct http1_body *b, struct str in, size_t *ret_used, struct str *ret_data,
                        enum http_fault *ret_fault)
{
    size_t used = 0;
    *ret_data = (struct str){ 0 };
    while (used < in.len && !b->done) {
        if (b->state == DATA) {
            *ret_data = take_data(b, str_of(in.data + used, in.len - used));
            used += ret_data->len;
            if (b->left == 0) b->state = DATA_CR;
            break;
        }
        enum http_fault fault = framing_byte(b, in.data[used++]);
        if (fault != HTTP_FAULT_NONE) {
            *ret_fault = fault;
            return -EINVAL;
        }
    }
    *ret_used = used;
    return 0;
}

int http1_body_next(struct http1_body *b, struct str in, size_t *ret_used, struct str *ret_data,
                    enum http_fault *ret_fault)
{
    if (b->kind == HTTP_BODY_CHUNKED) return chunked_next(b, in, ret_used, ret_data, ret_fault);
    *ret_data = (struct str){ 0 };
    if (b->kind == HTTP_BODY_COUNTED) {
        *ret_data = take_data(b, in);
        b->done = b->left == 0;
    } else if (b->kind == HTTP_BODY_UNTIL_END) {
        *ret_data = in;
    }
    *ret_used = ret_data->len;
    return 0;
}

/* ---- faults ---- */

/* Status, name and sentence of each fault, and the names of statuses. */

/* clang-format off */
static const struct http_fault_info faults[HTTP_FAULT_COUNT] = {
    [HTTP_FAULT_NONE]              = { 200, "none", "no fault" },
    [HTTP_FAULT_REQUEST_LINE]      = { 400, "request_line", "the request line is not METHOD SP TARGET SP HTTP/1.1" },
    [HTTP_FAULT_STATUS_LINE]       = { 502, "status_line", "the status line is not HTTP/1.1 SP STATUS" },
    [HTTP_FAULT_TARGET]            = { 400, "target", "the request target is not a path, or holds a byte that must be percent-encoded" },
    [HTTP_FAULT_PERCENT]           = { 400, "percent", "a percent sign in the target is not followed by two hex digits other than 00" },
    [HTTP_FAULT_VERSION]           = { 505, "version", "only HTTP/1.0 and HTTP/1.1 are spoken here" },
    [HTTP_FAULT_BARE_LF]           = { 400, "bare_lf", "a line ends in LF without CR" },
    [HTTP_FAULT_BARE_CR]           = { 400, "bare_cr", "a CR is not followed by LF" },
    [HTTP_FAULT_CONTROL_BYTE]      = { 400, "control_byte", "the head holds a NUL or another control byte" },
    [HTTP_FAULT_FOLD]              = { 400, "fold", "a header line starts with a blank (line folding is obsolete)" },
    [HTTP_FAULT_HEADER_NAME]       = { 400, "header_name", "a header line is not NAME: VALUE with a name of token characters and no blank before the colon" },
    [HTTP_FAULT_HOST_MISSING]      = { 400, "host_missing", "HTTP/1.1 needs a Host header" },
    [HTTP_FAULT_HOST_REPEATED]     = { 400, "host_repeated", "there is more than one Host header" },
    [HTTP_FAULT_HOST_BAD]          = { 400, "host_bad", "the Host header is not HOST or HOST:PORT" },
    [HTTP_FAULT_HOST_DIFFERS]      = { 400, "host_differs", "the Host header and the request target name different hosts" },
    [HTTP_FAULT_LENGTH_BAD]        = { 400, "length_bad", "Content-Length is not a decimal number" },
    [HTTP_FAULT_LENGTH_REPEATED]   = { 400, "length_repeated", "there is more than one Content-Length header" },
    [HTTP_FAULT_LENGTH_AND_CODING] = { 400, "length_and_coding", "Content-Length and Transfer-Encoding are both there" },
    [HTTP_FAULT_CODING]            = { 400, "coding", "Transfer-Encoding may only be chunked, once, in HTTP/1.1" },
    [HTTP_FAULT_BODY_OLD]          = { 400, "body_old", "a GET, HEAD or DELETE of HTTP/1.0 may not have a body" },
    [HTTP_FAULT_EXPECT]            = { 417, "expect", "the only expectation that is met is 100-continue" },
    [HTTP_FAULT_CHUNK]             = { 400, "chunk", "the chunked body is malformed, or has a chunk extension" },
    [HTTP_FAULT_TRAILER]           = { 400, "trailer", "trailers behind a chunked body are not taken" },
    [HTTP_FAULT_LINE_LONG]         = { 414, "line_long", "the request line is too long" },
    [HTTP_FAULT_HEAD_LONG]         = { 431, "head_long", "the headers are too long" },
    [HTTP_FAULT_HEADERS_MANY]      = { 431, "headers_many", "there are too many headers" },
    [HTTP_FAULT_BODY_LONG]         = { 413, "body_long", "the body is too long" },
    [HTTP_FAULT_HEAD_LATE]         = { 408, "head_late", "the headers did not arrive in time" },
    [HTTP_FAULT_BODY_LATE]         = { 408, "body_late", "the body did not arrive in time" },
    [HTTP_FAULT_MEMORY]            = { 503, "memory", "too much request data is held at the moment, try again later" },
    [HTTP_FAULT_CONNECTIONS]       = { 503, "connections", "too many connections are open, try again later" },
    [HTTP_FAULT_TLS]               = { 400, "tls", "the TLS handshake failed, or did not end in time" },
    [HTTP_FAULT_PLAIN]             = { 400, "plain", "this port speaks TLS: use https://" },
    [HTTP_FAULT_ADDRESS]           = { 429, "address", "too many connections are open from this address, close some first" },
};

static const struct { int status; const char *text; } statuses[] = {
    { 100, "Continue" }, { 101, "Switching Protocols" },
    { 200, "OK" }, { 201, "Created" }, { 202, "Accepted" }, { 204, "No Content" },
    { 206, "Partial Content" },
    { 301, "Moved Permanently" }, { 302, "Found" }, { 303, "See Other" }, { 304, "Not Modified" },
    { 307, "Temporary Redirect" }, { 308, "Permanent Redirect" },
    { 400, "Bad Request" }, { 401, "Unauthorized" }, { 402, "Payment Required" },
    { 403, "Forbidden" }, { 404, "Not Found" }, { 405, "Method Not Allowed" },
    { 406, "Not Acceptable" }, { 408, "Request Timeout" }, { 409, "Conflict" }, { 410, "Gone" },
    { 411, "Length Required" }, { 412, "Precondition Failed" }, { 413, "Content Too Large" },
    { 414, "URI Too Long" }, { 415, "Unsupported Media Type" }, { 417, "Expectation Failed" },
    { 422, "Unprocessable Content" }, { 425, "Too Early" }, { 429, "Too Many Requests" },
    { 431, "Request Header Fields Too Large" },
    { 500, "Internal Server Error" }, { 501, "Not Implemented" }, { 502, "Bad Gateway" },
    { 503, "Service Unavailable" }, { 504, "Gateway Timeout" },
    { 505, "HTTP Version Not Supported" }, { 507, "Insufficient Storage" },
};
/* clang-format on */

const struct http_fault_info *http_fault_info(enum http_fault fault)
{
    return &faults[fault];
}

const char *http_status_text(int status)
{
    for (size_t i = 0; i < COUNT_OF(statuses); i++)
        if (statuses[i].status == status) return statuses[i].text;
    return "";
}
