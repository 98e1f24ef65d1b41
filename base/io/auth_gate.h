/* auth_gate.h - the server's side of auth.h: who asks, is the body theirs, and a reply that is ours.
 *
 * Layer:   base/io (http_server, auth, credentials)
 * Threads: any; several servers on loops of their own may share a gate
 * Use:     auth_gate_head in on_head; auth_gate_body in on_request, before the body is looked at;
 *          auth_gate_reply in the server's on_reply. What must be kept between them is in a note
 *          that the caller puts into the exchange's.
 */
#pragma once
#include "base/io/credentials.h"
#include "base/io/http_server.h"

struct auth_gate {
    const struct credentials *held; /* borrowed */
    struct auth_receiver receiver;
    struct metrics *metrics; /* that count signed requests by verdict; NULL: nobody counts */
    uint32_t verdicts;
    const char *const *ids; /* the ids, or beginnings of ids that end in '/', that may come here */
};

/* `ids` ends in NULL. Nothing held: nobody is known. */
void auth_gate_init(struct auth_gate *g, const struct credentials *held, const char *const *ids,
                    uint64_t epoch, int64_t now_us);
void auth_gate_fini(struct auth_gate *g);

/* A counter with one label: fresh, stale, foreign; forgotten: the bound of sessions was reached. */
void auth_gate_meters(struct auth_gate *g, struct metrics *metrics, uint32_t verdicts);

enum auth_who {
    AUTH_NOBODY,      /* nothing that we know: perhaps a client's key */
    AUTH_PERSON,      /* the fleet's secret itself, or what stands for it */
    AUTH_PART,        /* a part of the fleet, by its signature; auth_gate_id says which */
    AUTH_ASKED_AGAIN, /* a part that must ask once more: refuse with 401 */
};

struct auth_note {
    uint8_t body[SHA256_BYTES]; /* that was signed */
    uint8_t who;
    bool is_signed; /* the reply is */
};

enum auth_who auth_gate_head(struct auth_gate *g, struct http_exchange *x, struct auth_note *note,
                             int64_t now_us);

/* False: the body is not what was signed. */
bool auth_gate_body(const struct auth_note *note, const struct http_request *req);

/* Adds the reply's header where the request was signed; `body` NULL: a stream. */
void auth_gate_reply(struct auth_gate *g, struct http_exchange *x, const struct auth_note *note,
                     int status, const struct str *body, int64_t now_us);

/* The id that a signed request names; empty: it is not signed. */
struct str auth_gate_id(const struct http_request *req);

/* What stands behind "Bearer "; empty: nothing. */
struct str auth_bearer(const struct http_request *req);
