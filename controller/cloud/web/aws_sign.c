/* aws_sign.c - signs requests to Amazon's services.
 *
 * Rejected: libcurl's own signer, which as packaged in Debian 12 leaves parameters of the query in the order in
 * which they were given, and which would put the secret into a handle of the transport. */
#include "controller/cloud/web/aws_sign.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/hash.h"
#include "base/core/own.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ALGORITHM "AWS4-HMAC-SHA256"
#define DAY_LEN 8

void aws_date(int64_t wall_us, char ret[AWS_DATE_BYTES])
{
    struct tm t = { 0 };
    time_t seconds = (time_t)(wall_us / 1000000);
    must(gmtime_r(&seconds, &t));
    must(strftime(ret, AWS_DATE_BYTES, "%Y%m%dT%H%M%SZ", &t) == AWS_DATE_BYTES - 1);
}

/* ---- the canonical request ---- */

static int by_text(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

/* Parameters in the order of their bytes; one without a value gets '='. */
static int put_query(struct buf *out, struct str query)
{
    struct str part[AWS_QUERY_MAX];
    size_t count = 0;
    while (query.len > 0) {
        if (count == AWS_QUERY_MAX) return -E2BIG;
        part[count++] = str_cut(&query, '&');
    }
    qsort(part, count, sizeof *part, by_text);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) buf_byte(out, '&');
        buf_str(out, part[i]);
        if (str_find(part[i], STR("=")) == SIZE_MAX) buf_byte(out, '=');
    }
    return out->rc;
}

static int by_name(const void *a, const void *b)
{
    return str_cmp(((const struct aws_header *)a)->name, ((const struct aws_header *)b)->name);
}

/* Blanks at the ends of a value do not count, and several inside count as one. */
static void put_value(struct buf *out, struct str value)
{
    value = str_trim(value);
    for (size_t i = 0; i < value.len; i++)
        if (value.data[i] != ' ' || value.data[i - 1] != ' ') buf_byte(out, value.data[i]);
}

struct signed_headers {
    struct aws_header header[AWS_SIGNED_HEADERS_MAX + 3];
    uint32_t count;
};

static int gather(const struct aws_request *req, const struct aws_key *key, const char *date,
                  struct signed_headers *ret)
{
    if (req->header_count > AWS_SIGNED_HEADERS_MAX) return -E2BIG;
    for (uint32_t i = 0; i < req->header_count; i++)
        ret->header[ret->count++] = req->header[i];
    ret->header[ret->count++] = (struct aws_header){ STR("host"), req->host };
    ret->header[ret->count++] = (struct aws_header){ STR("x-amz-date"), str_from(date) };
    if (key->token.len > 0)
        ret->header[ret->count++] = (struct aws_header){ STR("x-amz-security-token"), key->token };
    qsort(ret->header, ret->count, sizeof *ret->header, by_name);
    return 0;
}

static void put_names(struct buf *out, const struct signed_headers *h)
{
    for (uint32_t i = 0; i < h->count; i++) {
        if (i > 0) buf_byte(out, ';');
        buf_str(out, h->header[i].name);
    }
}

static int put_canonical(struct buf *out, const struct aws_request *req,
                         const struct signed_headers *h)
{
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX + 1];
    buf_str(out, req->method);
    buf_byte(out, '\n');
    buf_str(out, req->path.len > 0 ? req->path : STR("/"));
    buf_byte(out, '\n');
    int rc = put_query(out, req->query);
    if (rc < 0) return rc;
    buf_byte(out, '\n');
    for (uint32_t i = 0; i < h->count; i++) {
        buf_str(out, h->header[i].name);
        buf_byte(out, ':');
        put_value(out, h->header[i].value);
        buf_byte(out, '\n');
    }
    buf_byte(out, '\n');
    put_names(out, h);
    sha256(req->body.data, req->body.len, digest);
    hex_from(digest, sizeof digest, hex);
    return buf_printf(out, "\n%s", hex);
}

/* ---- the signature ---- */

static void mac(const void *key, size_t len, struct str text, uint8_t ret[SHA256_BYTES])
{
    uint8_t result[SHA256_BYTES]; /* the key may be ret */
    hmac_sha256(str_of(key, len), &text, 1, result);
    memcpy(ret, result, sizeof result);
    explicit_bzero(result, sizeof result);
}

static int derive(const struct aws_request *req, const struct aws_key *key, const char *date,
                  uint8_t ret[SHA256_BYTES])
{
    CLEANUP(buf_fini) struct buf secret = { 0 };
    buf_text(&secret, "AWS4");
    buf_str(&secret, key->secret);
    if (secret.rc == 0) mac(secret.data, secret.len, str_of(date, DAY_LEN), ret);
    if (secret.data) explicit_bzero(secret.data, secret.len);
    if (secret.rc < 0) return secret.rc;
    mac(ret, SHA256_BYTES, req->region, ret);
    mac(ret, SHA256_BYTES, req->service, ret);
    mac(ret, SHA256_BYTES, STR("aws4_request"), ret);
    return 0;
}

int aws_sign(const struct aws_request *req, const struct aws_key *key,
             const char date[AWS_DATE_BYTES], struct buf *out)
{
    CLEANUP(buf_fini) struct buf canonical = { 0 };
    CLEANUP(buf_fini) struct buf scope = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct signed_headers headers = { 0 };
    uint8_t digest[SHA256_BYTES], derived[SHA256_BYTES];
    char hex[SHA256_HEX + 1];

    int rc = gather(req, key, date, &headers);
    if (rc == 0) rc = put_canonical(&canonical, req, &headers);
    if (rc < 0) return rc;
    sha256(canonical.data, canonical.len, digest);
    hex_from(digest, sizeof digest, hex);
    buf_printf(&scope, "%.*s/" STR_FMT "/" STR_FMT "/aws4_request", DAY_LEN, date,
               STR_ARG(req->region), STR_ARG(req->service));
    buf_printf(&text, ALGORITHM "\n%s\n" STR_FMT "\n%s", date, STR_ARG(buf_view(&scope)), hex);
    if (scope.rc < 0 || text.rc < 0) return -ENOMEM;

    rc = derive(req, key, date, derived);
    if (rc < 0) return rc;
    mac(derived, sizeof derived, buf_view(&text), digest);
    explicit_bzero(derived, sizeof derived);
    hex_from(digest, sizeof digest, hex);
    buf_printf(out,
               ALGORITHM " Credential=" STR_FMT "/" STR_FMT ", SignedHeaders=", STR_ARG(key->id),
               STR_ARG(buf_view(&scope)));
    put_names(out, &headers);
    return buf_printf(out, ", Signature=%s", hex);
}
