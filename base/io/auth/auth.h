/* auth.h - signatures that authenticate requests and replies without sending a secret.
 *
 * Layer:   base/io (base/core); pure: no socket, no clock. Times are arguments.
 * Keys:    all come from the fleet's secret by HMAC-SHA256. An instance has its own key,
 *          from which the keys of its agent and engine are derived, so that a key that leaks from
 *          one instance is valid for that instance only.
 *
 *              secret ─┬─ instance NAME ─┬─ agent    agent/NAME  ──► controller
 *                      │                 ├─ weights/NAME/READER  agent of READER ──► agent of NAME
 *                      │                 └─ engine   router, agent ──► engine/NAME
 *                      │                      └─ ticket/...   one engine ──► another
 *                      ├─ router                     router ──► controller
 *                      ├─ cli                        commands ──► controller, cli/HOST:PORT: router
 *                      └─ join, join NAME            see join.h
 *
 * Request: authorization: Muster-HMAC id=.., epoch=.., nonce=SESSION-COUNTER, time=.., body=.., mac=..
 *          The mac covers this text, the method and the target; the text holds the body's SHA-256.
 * Reply:   muster-reply: epoch=.., time=.., body=.., mac=..
 *          The mac covers this text, the status and the request's mac, so that a reply answers one
 *          request. body=stream: the head alone is signed.
 * Replay:  `epoch` is a number that the receiver draws at each start, so that a request captured
 *          before a restart is refused after it. Within an epoch a window on each session's
 *          counter lets every request through once. `time` is the receiver's clock since its start,
 *          as the sender reckons it from the last reply: it bounds what must be remembered, and no
 *          wall clock is read. A sender that does not know epoch or time is told in a signed 401
 *          and asks once more.
 */
#pragma once
#include "base/core/hash.h"
#include "base/core/map.h"
#include "base/io/loop/lock.h"

#define AUTH_KEY_BYTES 32
#define AUTH_ID_BYTES_MAX 640
#define AUTH_TEXT_BYTES_MAX (AUTH_ID_BYTES_MAX + 256) /* of a header's value, NUL included */
#define AUTH_TENANT_BYTES_MAX 128
#define AUTH_WINDOW_US 120000000 /* largest difference between the times of request and receiver */
#define AUTH_SEEN_BITS 1024      /* requests of one session that may arrive out of order */
/* Per receiver; the oldest are dropped, and older requests refused. */
#define AUTH_SESSIONS_MAX 4096
#define AUTH_REPLY_HEADER "muster-reply"
#define AUTH_SCHEME "Muster-HMAC"

struct auth_key {
    uint8_t byte[AUTH_KEY_BYTES];
};

/* ---- keys ---- */

/* Derives the key of instance NAME, the only part of the secret that the instance gets. */
void auth_instance_key(struct str secret, struct str name, struct auth_key *ret);

/* Derives what a join of instance NAME is made with (join.h): its token, and the seed of the controllers' key pair. */
void auth_join_keys(struct str secret, struct str name, struct auth_key *ret_token,
                    struct auth_key *ret_seed);

/* Derives the key of `id` from the secret. -ENOENT: there is no such kind of id. */
int auth_key_of(struct str secret, struct str id, struct auth_key *ret);

/* Derives the key of `id` from an instance's key: for its agent, its engine, tickets for its engine, and readers of its
 * model file. */
int auth_instance_key_of(const struct auth_key *instance, struct str name, struct str id,
                         struct auth_key *ret);

/* ---- tickets: an engine reads pages of one tenant from another ---- */

struct auth_ticket {
    struct str owner;  /* the engine that is read; empty: an engine that no controller named */
    struct str reader; /* the instance that may read */
    uint64_t epoch;    /* of the owner */
    int64_t until_us;  /* on its clock */
    struct str tenant; /* up to AUTH_TENANT_BYTES_MAX */
};

/* Writes a ticket as an id; its key derives from the owner's key. -E2BIG. Names hold no '/'. */
int auth_ticket_print(const struct auth_ticket *t, char ret[AUTH_ID_BYTES_MAX]);
/* Reads a ticket from an id; `tenant` gets the tenant's bytes. -EINVAL for an id that is no ticket. */
int auth_ticket_parse(struct str id, char tenant[AUTH_TENANT_BYTES_MAX], struct auth_ticket *ret);

/* ---- the sending side ---- */

/* State that a sender keeps of one receiver. { 0 }: no reply of it has come yet. */
struct auth_peer {
    uint64_t epoch;
    int64_t ahead_us; /* receiver clock minus ours */
};

/* A sender's session and its count of requests; no two senders have the same session. */
struct auth_sender {
    uint64_t session, counter;
};

/* A request under way, kept to check its reply. */
struct auth_sent {
    struct auth_key key;
    uint8_t mac[SHA256_BYTES];
};

struct auth_message {
    struct str method, target, body;
};

/* Signs a request and writes the header's value to `ret_text`. -E2BIG: an id that does not fit;
 * -EINVAL: an id with bytes that could end a field. */
int auth_sign(struct auth_sender *s, const struct auth_peer *peer, struct str id,
              const struct auth_key *key, const struct auth_message *m, int64_t now_us,
              char ret_text[AUTH_TEXT_BYTES_MAX], struct auth_sent *ret);

struct auth_reply {
    uint64_t epoch;
    int64_t time_us;
    bool is_stream; /* no digest: the body is not covered */
    uint8_t body[SHA256_BYTES];
};

/* Reads the reply's header and checks that it answers `sent` with that status. The caller compares
 * the body's digest. -EINVAL: malformed; -EACCES: made with another key, or for another request. */
int auth_reply_check(const struct auth_sent *sent, int status, struct str header,
                     struct auth_reply *ret);

/* ---- the receiving side ---- */

struct auth_request {
    struct str id;
    uint64_t epoch, session, counter;
    int64_t time_us;
    uint8_t body[SHA256_BYTES], mac[SHA256_BYTES];
    struct str covered; /* part of the header's value that the mac covers */
};

bool auth_is_request(struct str header);                             /* begins with the scheme */
int auth_request_parse(struct str header, struct auth_request *ret); /* -EINVAL */

enum auth_verdict {
    AUTH_FRESH,   /* signed with the key, for this epoch and time, and not seen before */
    AUTH_STALE,   /* signed with the key, but of another epoch or time, or seen before */
    AUTH_FOREIGN, /* not signed with the key */
};

/* The requests that one server has accepted. Threads: any; it has a lock of its own. */
struct auth_receiver {
    struct lock lock;
    uint64_t epoch;
    int64_t born_us;
    int64_t forgotten_us; /* requests of unknown sessions from before this are refused */
    uint64_t forgets;
    struct map sessions;
};

void auth_receiver_init(struct auth_receiver *r, uint64_t epoch, int64_t now_us);
void auth_receiver_fini(struct auth_receiver *r);
enum auth_verdict auth_receive(struct auth_receiver *r, const struct auth_request *a,
                               const struct auth_key *key, struct str method, struct str target,
                               int64_t now_us);
uint64_t
auth_receiver_forgets(struct auth_receiver *r); /* times that AUTH_SESSIONS_MAX was reached */
int64_t auth_receiver_time(const struct auth_receiver *r, int64_t now_us);

/* Signs a reply and writes the header's value to `ret_text`; `body` NULL: a stream. */
void auth_reply_sign(const struct auth_receiver *r, const struct auth_request *a,
                     const struct auth_key *key, int status, const struct str *body, int64_t now_us,
                     char ret_text[AUTH_TEXT_BYTES_MAX]);
