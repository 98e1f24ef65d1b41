/* http1.h - parses HTTP/1.0 and 1.1 messages strictly and without copying, and looks up their parts.
 *
 * Layer:   base/io (base/core); no I/O in here
 * Heads:   http1_scan finds the end of a head byte by byte as it arrives and refuses what no head
 *          may contain (bare LF, bare CR, NUL, control bytes, a fold) at the byte where it stands;
 *          then http1_request_parse or http1_response_parse reads the whole head once
 * Bodies:  http1_body takes a body apart as it arrives: counted, chunked, or until the end
 * Rules:   (1) a message that two parsers could read differently is refused, never repaired: RFC
 *              9112 section 11.2 (request smuggling) is why
 *          (2) every refusal is one enum http_fault with its status, name and sentence
 */
#pragma once
#include "base/core/buf.h"

#define HTTP_HEADERS_MAX 64         /* capacity of a parsed head; clients send about 20 */
#define HTTP_TRAILER_BYTES_MAX 4096 /* of a reply, skipped; a request with trailers is refused */

enum http_fault {
    HTTP_FAULT_NONE,
    HTTP_FAULT_REQUEST_LINE,
    HTTP_FAULT_STATUS_LINE,
    HTTP_FAULT_TARGET,
    HTTP_FAULT_PERCENT,
    HTTP_FAULT_VERSION,
    HTTP_FAULT_BARE_LF,
    HTTP_FAULT_BARE_CR,
    HTTP_FAULT_CONTROL_BYTE,
    HTTP_FAULT_FOLD,
    HTTP_FAULT_HEADER_NAME,
    HTTP_FAULT_HOST_MISSING,
    HTTP_FAULT_HOST_REPEATED,
    HTTP_FAULT_HOST_BAD,
    HTTP_FAULT_HOST_DIFFERS,
    HTTP_FAULT_LENGTH_BAD,
    HTTP_FAULT_LENGTH_REPEATED,
    HTTP_FAULT_LENGTH_AND_CODING,
    HTTP_FAULT_CODING,
    HTTP_FAULT_BODY_OLD,
    HTTP_FAULT_EXPECT,
    HTTP_FAULT_CHUNK,
    HTTP_FAULT_TRAILER,
    HTTP_FAULT_LINE_LONG,
    HTTP_FAULT_HEAD_LONG,
    HTTP_FAULT_HEADERS_MANY,
    HTTP_FAULT_BODY_LONG,
    HTTP_FAULT_HEAD_LATE,
    HTTP_FAULT_BODY_LATE,
    HTTP_FAULT_MEMORY,
    HTTP_FAULT_CONNECTIONS,
    HTTP_FAULT_TLS,
    HTTP_FAULT_PLAIN,
    HTTP_FAULT_ADDRESS,
    HTTP_FAULT_COUNT
};

struct http_fault_info {
    int status;           /* of the server's reply */
    const char *name;     /* label in metrics, code in error objects */
    const char *sentence; /* for people */
};
const struct http_fault_info *http_fault_info(enum http_fault fault);
const char *http_status_text(int status); /* "" when unknown */

struct http_header {
    struct str name, value; /* value without blanks around it */
};

enum http_body_kind {
    HTTP_BODY_NONE,
    HTTP_BODY_COUNTED,   /* content-length */
    HTTP_BODY_CHUNKED,   /* transfer-encoding: chunked */
    HTTP_BODY_UNTIL_END, /* of the connection; replies only */
};

struct http_request {
    struct str method; /* any token: the handler refuses what it does not know */
    struct str target; /* as sent */
    struct str path;   /* starts with '/', percent signs checked and not decoded; "*" for OPTIONS */
    struct str query;  /* behind '?', may be empty */
    struct str host;   /* checked form; empty in HTTP/1.0 without one */
    struct http_header headers[HTTP_HEADERS_MAX];
    uint32_t header_count;
    uint8_t minor; /* 0 or 1 */
    bool keep_alive;
    bool expect_continue;
    enum http_body_kind body_kind;
    uint64_t body_length; /* of HTTP_BODY_COUNTED */
    struct str body;      /* set by the server once it is whole */
    struct str peer;      /* "address:port", set by the server */
    int64_t received_us;  /* loop clock when the last byte was in; set by the server */
};

struct http_response {
    int status;
    struct http_header headers[HTTP_HEADERS_MAX];
    uint32_t header_count;
    uint8_t minor;
    bool keep_alive;
    enum http_body_kind body_kind;
    uint64_t body_length;
};

/* Returns the first header of that name (any case), or { NULL, 0 }. An empty value has data. */
struct str http_request_header(const struct http_request *req, const char *name);
struct str http_response_header(const struct http_response *resp, const char *name);

/* Decodes %XX into out (and nothing else: '+' stays). -EINVAL for a bad percent sign. */
int http_percent_decode(struct str s, struct buf *out);

/* Appends the decoded value of `name` in a query ("a=1&b=2"); -ENOENT when absent. */
int http_query_value(struct str query, const char *name, struct buf *out);

/* Returns true if a head may hold the header: the name is a token, and the value has no CR, LF, NUL or
 * other control byte. */
bool http_header_valid(struct str name, struct str value);

/* Returns true if the target starts with '/', holds only bytes that a target may hold, and every percent
 * sign is right. */
bool http_target_valid(struct str target);

struct http1_limits {
    size_t line_bytes_max; /* the request line */
    size_t head_bytes_max;
    uint32_t headers_max; /* <= HTTP_HEADERS_MAX */
};

/* The state of a search for the end of a head. { 0 } before its first byte. */
struct http1_scan {
    size_t pos;       /* bytes looked at */
    size_t line_from; /* where the current line starts */
    uint32_t lines;
};

/* Looks for the end of the head in `in`, which holds it from its first byte and has grown since the last
 * call. 0 and *ret_len when the head is whole (blank line included); -EAGAIN when more is needed; -EINVAL
 * and *ret_fault. */
int http1_scan(struct http1_scan *s, struct str in, const struct http1_limits *limits,
               size_t *ret_len, enum http_fault *ret_fault);

/* Parses `head` as http1_scan found it; the parts point into it. It also decides how the body is framed.
 * -EINVAL and *ret_fault. */
int http1_request_parse(struct str head, const struct http1_limits *limits,
                        struct http_request *ret, enum http_fault *ret_fault);

/* Parses the head of a reply. `to_head`: it answers HEAD, so it has no body. A 1xx has none either. */
int http1_response_parse(struct str head, const struct http1_limits *limits, bool to_head,
                         struct http_response *ret, enum http_fault *ret_fault);

/* The state of a body that is arriving. */
struct http1_body {
    enum http_body_kind kind;
    uint8_t state;
    bool done;
    bool trailers_refused;
    uint64_t left;    /* of the body or of the current chunk */
    uint32_t digits;  /* of the chunk size so far */
    uint32_t skipped; /* bytes of trailers */
};
void http1_body_init(struct http1_body *b, enum http_body_kind kind, uint64_t length,
                     bool trailers_refused);

/* Takes bytes from the start of `in`: *ret_used says how many, *ret_data (part of them, maybe
 * empty) is body. Call again while *ret_used > 0 and !b->done. -EINVAL and *ret_fault. */
int http1_body_next(struct http1_body *b, struct str in, size_t *ret_used, struct str *ret_data,
                    enum http_fault *ret_fault);
