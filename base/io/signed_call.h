/* signed_call.h - calls of the HTTP client that say who makes them and believe no other's reply.
 *
 * Layer:   base/io (http_client, auth)
 * Threads: a signer and its calls are one loop's; struct auth_peers is shared and has a lock
 * Life:    as http_call's: a call lives until on_end returns or signed_call_cancel; callbacks may
 *          cancel, pause or resume it
 * Replies: on_head comes when the head is known to be the receiver's. A whole body is handed on as
 *          it comes, and HTTP_END_OK says that it is what was signed; until then nothing may rest
 *          on it. HTTP_END_UNTRUSTED: somebody else answered, or the reply was changed. Of a stream
 *          the head is signed and not the body: it is the connection's that was proved by it.
 * Again:   a receiver that does not know our epoch or time says so in a signed 401; the call is
 *          made once more, and on_head hears of the second answer only
 */
#pragma once
#include "base/io/auth.h"
#include "base/io/http_client.h"

#define AUTH_PEERS_MAX 4096 /* receivers that are remembered; beyond it all are met anew */

/* What the senders of one process know of receivers. */
struct auth_peers {
    pthread_mutex_t lock;
    struct map map;
};
void auth_peers_init(struct auth_peers *p);
void auth_peers_fini(struct auth_peers *p);

/* False: nothing is known of it. `id` is who we are to it, as in signed_as. */
bool auth_peers_get(struct auth_peers *p, struct str id, struct str host, uint16_t port,
                    struct auth_peer *ret);

struct signer_config {
    struct loop *loop;
    struct http_client *client;
    struct auth_peers *peers; /* NULL: of its own */
    struct str secret; /* sent itself to a receiver of an older release; empty, as usual: never */
};

struct signer;
int signer_new(const struct signer_config *config, struct signer **ret, struct err *err);
void signer_free(struct signer *s); /* its calls must have ended */
CLEANUP_FREEP(signer, struct signer)

/* Who calls, and the key for it. An empty id: an ordinary call, and any reply is believed. */
struct signed_as {
    struct str id;
    struct auth_key key;
};

struct signed_call;

/* As http_call_start; `streams`: the reply may be a stream. */
struct signed_call *signed_call_start(struct signer *s, const struct http_call_request *req,
                                      const struct signed_as *as, bool streams, struct err *err);
void signed_call_cancel(struct signed_call *c);
const char *signed_call_problem(const struct signed_call *c); /* as http_call_problem */
void signed_call_pause(struct signed_call *c);
void signed_call_resume(struct signed_call *c);
