/* join.h - an agent that holds a one-time token gets the key of its instance; neither goes over the wire in clear.
 *
 * Layer:   base/io (hpke, credentials); pure
 * Keys:    the token and the controllers' key pair derive from the fleet's secret, so that every controller of the
 *          fleet can check a token, user data is the same at each try of a create, and no store keeps a token
 *
 *              agent                                              controller
 *              token, S, seed of its own                          secret
 *              enc, seal = HPKE to S, psk = token, by seed  ────► opens it; `enc` is the first, or the same again?
 *              reads the reply                              ◄──── nonce, seal of the key file, or of a refusal
 *
 * Single:  the controller keeps a mark of the first `enc`. The same `enc` again is the same agent, which did not hear
 *          the reply: it gets the same. Only who holds its seed can read what comes back
 * Attacks: who has read the token, and all that went over the wire, still lacks the seed and the controllers' secret
 *          key: it learns no key and cannot answer for the controller. It can join before the agent does; then the
 *          agent is refused (controller/core/join.h)
 * Form:    the token's file, in user data:
 *
 *              muster-join-token 1
 *              instance   NAME
 *              token      64 digits
 *              controller 64 digits, S
 */
#pragma once
#include "base/io/auth/credentials.h"
#include "base/io/auth/hpke.h"

#define JOIN_TOKEN_BYTES_MAX 1024
#define JOIN_SEAL_BYTES_MAX 2048 /* of a sealed text */
#define JOIN_MARK_BYTES 33       /* of a mark, NUL included */

struct join_token {
    char instance[CREDENTIALS_NAME_BYTES + 1];
    struct hpke_key token, controller;
};

/* One join, at either side. */
struct join {
    struct hpke context;
    struct hpke_key enc;
};

/* Appends the text of a token's file. */
int join_token_print(struct str secret, struct str instance, struct buf *out);
int join_token_parse(struct str text, struct join_token *ret); /* -EINVAL */

/* The agent's side. `seed` is drawn once and kept: with it the request is the same each time. */
int join_ask(const struct join_token *t, const struct hpke_key *seed, struct join *ret,
             struct buf *seal);

/* The controller's. -EACCES: not sealed with this instance's token. */
int join_hear(struct str secret, struct str instance, const struct hpke_key *enc, struct str seal,
              struct join *ret);
void join_mark(const struct join *j, char ret[JOIN_MARK_BYTES]);

/* Seals a reply under a nonce that was drawn for it: the instance's key file, or why there is none. */
int join_welcome(const struct join *j, const struct hpke_key *nonce, struct str secret,
                 struct str instance, struct buf *out);
int join_refuse(const struct join *j, const struct hpke_key *nonce, const char *why,
                struct buf *out);

/* Reads a reply. 0: *out is the key file. -EACCES: refused, *out says why. -EBADMSG: not the controller's. */
int join_read(const struct join *j, const struct hpke_key *nonce, struct str seal, struct buf *out);

void join_wipe(struct join *j);
