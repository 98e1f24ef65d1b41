/* http_draw.c - the parts of a request and their forms, in tables. */
#include "tests/proc/edge/http_draw.h"

#include "base/core/bits.h"

#include <stdio.h>

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
static const struct form methods[] = {
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
/* Of a body of five bytes; the placeholders of a usual counted body. */
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
    [METHOD] = { methods, COUNT_OF(methods) },
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

/* Lines about as long as a server's bounds, and about as many. */
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

/* Parts that a request with this body has. */
static bool has_part(enum body body, enum part part)
{
    if (part == LENGTH) return body == BODY_COUNTED;
    return (part != CODING && part != CHUNK) || body == BODY_CHUNKED;
}

void http_draw(struct rng *rng, struct drawn *ret)
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
    uint64_t where = rng_below(rng, 3); /* the line whose end is the odd one */
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
