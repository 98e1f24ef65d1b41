/* http_fetch.h - makes one HTTP call and blocks until it ends, for command line tools and tests.
 *
 * Layer:   base/io (a private loop and http_client a call)
 * Threads: any; never on a loop's thread of a role
 */
#pragma once
#include "base/io/auth/signed_call.h"
#include "base/io/net/tls.h"

struct http_fetch_request {
    struct str host;
    uint16_t port;
    bool tls;
    struct tls_files files; /* TLS: CAs to trust, certificate to show */
    struct str method;      /* empty: GET, or POST when there is a body */
    struct str path;
    const struct http_header *headers;
    size_t header_count;
    struct str bearer; /* an API key or token; empty: none */
    struct str body;
    bool json;                  /* the body is JSON */
    const struct signed_as *as; /* NULL: not signed, and any reply is accepted */
    /* as in signer_config: sent to a receiver of an older release; empty: never */
    struct str secret;
    int64_t timeout_us; /* 0: none */
};

/* Appends the body of the reply to ret_body, up to its bound (-E2BIG beyond). -ECONNREFUSED (no
 * connection), -ENOENT (no such name), -ENOBUFS (no descriptor or memory here), -ECONNRESET (cut
 * short), -ETIMEDOUT, -EPROTO (not HTTP), -EKEYREJECTED (no TLS, or not the peer's certificate),
 * -EBADMSG (the reply to a signed request is not the receiver's), -EINVAL; err names host and port. A
 * reply of any status is success. */
int http_fetch(const struct http_fetch_request *req, int *ret_status, struct buf *ret_body,
               struct err *err);

/* Makes a call like http_fetch and hands the body over as it arrives. on_data may return non-zero to
 * stop, which http_fetch_stream then returns. */
int http_fetch_stream(const struct http_fetch_request *req, int *ret_status,
                      void (*on_head)(void *arg, const struct http_response *head),
                      int (*on_data)(void *arg, struct str data), void *arg, struct err *err);
