/* signed_call.h - makes HTTP calls with signed requests and verified replies, as streams or, by peer_call, as one whole
 * reply.
 *
 * Layer:   base/io (http_client, auth)
 * Threads: a signer and its calls are one loop's; struct auth_peers is shared and has a lock
 * Life:    as http_call's: a call lives until on_end returns or signed_call_cancel; callbacks may
 *          cancel, pause or resume it
 * Replies: on_head is called when the signature of the head holds. The body is passed on as it
 *          arrives, and must not be used before HTTP_END_OK confirms its digest.
 *          HTTP_END_UNTRUSTED: the reply is not the receiver's, or was changed. Of a stream only
 *          the head is signed: it authenticates the connection that carries the body.
 * Again:   a receiver answers an unknown epoch or time with a signed 401; the call is repeated
 *          once, and on_head is called for the second reply only
 */
#pragma once

#include "base/io/auth/auth.h"
#include "base/io/http/http_client.h"
#include "base/io/loop/lock.h"

#define AUTH_PEERS_MAX 4096 /* receivers that are remembered; beyond it the table starts empty */

/* The receivers that the senders of one process know. */
struct auth_peers {
    struct lock lock;
    struct map map;
};
void auth_peers_init(struct auth_peers *p);
void auth_peers_fini(struct auth_peers *p);

/* Looks up a receiver; returns false if it is unknown. `id` is ours, as in signed_as. */
bool auth_peers_get(struct auth_peers *p, struct str id, struct str host, uint16_t port,
                    struct auth_peer *ret);

struct signer_config {
    struct loop *loop;
    struct http_client *client;
    struct auth_peers *peers; /* NULL: of its own */
    /* sent in clear to receivers of an older release; empty, the default: never */
    struct str secret;
};

struct signer;
int signer_new(const struct signer_config *config, struct signer **ret, struct err *err);
void signer_free(struct signer *s); /* its calls must have ended */
CLEANUP_FREEP(signer, struct signer)

/* Identity and key of the caller. An empty id: the call is not signed and any reply accepted. */
struct signed_as {
    struct str id;
    struct auth_key key;
};

struct signed_call;

/* Starts a call like http_call_start. `streams`: the reply may be a stream. */
struct signed_call *signed_call_start(struct signer *s, const struct http_call_request *req,
                                      const struct signed_as *as, bool streams, struct err *err);
void signed_call_cancel(struct signed_call *c);
const char *signed_call_problem(const struct signed_call *c); /* as http_call_problem */
void signed_call_pause(struct signed_call *c);
void signed_call_resume(struct signed_call *c);

/* Makes one authenticated call to a peer and collects the whole reply.
 *
 * Life:    { 0 } makes no call; the owner embeds it and finds itself by CONTAINER_OF. At most one
 *          call is under way. The reply stays until the next call, or
 *          peer_call_fini
 * Bound:   `reply_max` bytes of body; more of it is dropped and c->body.rc says -E2BIG
 *
 * A caller that uses a reply while it arrives, or reads its headers, uses signed_call itself. */

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
