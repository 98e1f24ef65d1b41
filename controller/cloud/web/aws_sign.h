/* aws_sign.h - signs requests to Amazon's services, Signature Version 4 with HMAC-SHA256.
 *
 *     key       = HMAC(HMAC(HMAC(HMAC("AWS4" secret, day), region), service), "aws4_request")
 *     signature = HMAC(key, "AWS4-HMAC-SHA256" date day/region/service/aws4_request SHA256(canonical request))
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure; the date is an argument
 * Source:  "AWS Signature Version 4 for API requests" of the IAM user guide
 * Rules:   (1) the path and the query are signed as they are sent: percent-encoded, the path not normalised
 *          (2) host, x-amz-date and, with a session token, x-amz-security-token are signed in any case; the caller
 *              sends them with these values
 */
#pragma once
#include "base/core/buf.h"

#define AWS_DATE_BYTES 17 /* 20150830T123600Z */
#define AWS_SIGNED_HEADERS_MAX 12
#define AWS_QUERY_MAX 32

struct aws_key {
    struct str id, secret;
    struct str token; /* of a session; empty: none */
};

struct aws_header {
    struct str name, value; /* name in lower case */
};

struct aws_request {
    struct str method, host, path; /* path "" stands for "/" */
    struct str query;              /* without '?' */
    const struct aws_header *header;
    uint32_t header_count; /* beside those of rule 2 */
    struct str body;
    struct str region, service;
};

void aws_date(int64_t wall_us, char ret[AWS_DATE_BYTES]);

/* Appends the value of the header `authorization` for a request with x-amz-date: `date`. -E2BIG: more headers or
 * parameters than fit; -ENOMEM. */
int aws_sign(const struct aws_request *req, const struct aws_key *key,
             const char date[AWS_DATE_BYTES], struct buf *out);
