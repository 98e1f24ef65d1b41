/* auth_gate.h - server side of auth.h: identifies the caller, checks the body, signs the reply.
 *
 * Layer:   base/io (http_server, auth, credentials)
 * Threads: any; several servers on loops of their own may share a gate
 * Use:     auth_gate_head in on_head; auth_gate_body in on_request, before the body is read;
 *          auth_gate_reply in the server's on_reply. The caller keeps a struct auth_note between
 *          them in the note of the exchange.
 */
#pragma once
#include "base/io/auth/credentials.h"
#include "base/io/http/http_server.h"

struct auth_gate {
    const struct credentials *held; /* borrowed */
    struct auth_receiver receiver;
    struct metrics *metrics; /* count signed requests by verdict; NULL: none */
    uint32_t verdicts;
    const char *const
        *ids; /* accepted ids; an entry that ends in '/' accepts every id with this prefix */
};

/* `ids` ends in NULL. Without a key every caller is AUTH_NOBODY. */
void auth_gate_init(struct auth_gate *g, const struct credentials *held, const char *const *ids,
                    uint64_t epoch, int64_t now_us);
void auth_gate_fini(struct auth_gate *g);

/* Sets the counter of signed requests. It has one label: fresh, stale, foreign; forgotten: the bound of
 * sessions was reached. */
void auth_gate_meters(struct auth_gate *g, struct metrics *metrics, uint32_t verdicts);

enum auth_identity {
    AUTH_NOBODY,      /* no credential of the fleet; it may be a client's API key */
    AUTH_PERSON,      /* the fleet's secret itself, or a token that replaces it */
    AUTH_PART,        /* a component with a valid signature; auth_gate_id names it */
    AUTH_ASKED_AGAIN, /* a component that must repeat the request: answer 401 */
};

struct auth_note {
    uint8_t body[SHA256_BYTES]; /* digest that was signed */
    uint8_t who;
    bool is_signed; /* the request is, and so the reply will be */
};

enum auth_identity auth_gate_head(struct auth_gate *g, struct http_exchange *x,
                                  struct auth_note *note, int64_t now_us);

/* Returns false when the body differs from the signed one. */
bool auth_gate_body(const struct auth_note *note, const struct http_request *req);

/* Adds the signature to the reply if the request was signed; `body` NULL: a stream. */
void auth_gate_reply(struct auth_gate *g, struct http_exchange *x, const struct auth_note *note,
                     int status, const struct str *body, int64_t now_us);

/* Returns the id that signed a request; empty when it is not signed. */
struct str auth_gate_id(const struct http_request *req);

/* Returns the token behind "Bearer "; empty when there is none. */
struct str auth_bearer(const struct http_request *req);

/* Returns a client's API key: that token, or, without the header, x-api-key, in which clients of Anthropic's API
 * send it. */
struct str auth_key(const struct http_request *req);
