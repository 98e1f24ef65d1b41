/* http_fault.c - what is said about a message that is refused, and the names of statuses. */
#include "base/core/bits.h"
#include "base/io/http1.h"

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
