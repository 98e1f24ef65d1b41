/* peer_call.h - makes one authenticated call to a peer and collects the whole reply.
 *
 * Layer:   base/io (signed_call)
 * Threads: those of the signer's loop
 * Life:    { 0 } makes no call; the owner embeds it and finds itself by CONTAINER_OF. At most one
 *          call is under way. The reply stays until the next call, or
 *          peer_call_fini
 * Bound:   `reply_max` bytes of body; more of it is dropped and c->body.rc says -E2BIG
 *
 * A caller that uses a reply while it arrives, or reads its headers, uses signed_call itself.
 */
#pragma once
#include "base/io/auth/signed_call.h"

struct peer_call {
    struct signed_call *call; /* NULL: none under way */
    void (*on_reply)(struct peer_call *c, enum http_end end);
    struct buf body;
    int status;          /* 0 until the head is there */
    const char *problem; /* in on_reply: why TLS failed, else empty */
};

struct peer_question {
    struct str host;
    uint16_t port;
    bool tls;
    struct signed_as as; /* an empty id: not signed */
    struct str path;
    struct str body; /* JSON, sent by POST; empty: GET */
    size_t reply_max;
    int64_t deadline_us; /* on the loop's clock */
};

/* Starts the call; on_reply is called later, once, unless the call is cancelled. No call may be under
 * way. -EINVAL with the sentence: bad host or path, or no memory. */
int peer_call_start(struct peer_call *c, struct signer *s, const struct peer_question *q,
                    void (*on_reply)(struct peer_call *c, enum http_end end), struct err *err);
void peer_call_cancel(struct peer_call *c); /* on_reply does not come; may be idle */
void peer_call_fini(struct peer_call *c);   /* cancels */

/* Returns true for a whole, trusted reply with status 200 that fits its bound. */
static inline bool peer_call_is_good(const struct peer_call *c, enum http_end end)
{
    return end == HTTP_END_OK && c->status == 200 && c->body.rc == 0;
}
