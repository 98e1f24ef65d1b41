/* http1_body.c - bodies, a slice at a time, without a copy.
 *
 *     SIZE --CR--> SIZE_LF --LF--> DATA --left = 0--> DATA_CR --CR--> DATA_LF --LF--> SIZE
 *                     \--LF, size 0--> TRAILER --CR--> END_LF --LF--> done
 *                                       | ^
 *                                 other v | LF
 *                                 TRAILER_LINE --CR--> TRAILER_LF
 *
 * Nothing but these bytes is accepted: no blanks, no extension, no bare line feed. */
#include "base/io/http1.h"

#include <errno.h>

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

/* The one byte that may come here, and where it leads. */
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
