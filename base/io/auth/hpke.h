/* hpke.h - encrypts to a public key, with a key that both sides know besides: HPKE in mode psk (RFC 9180).
 *
 * Layer:   base/io (base/core, libcrypto); pure: no socket, no clock, no chance
 * Suite:   DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305
 * Use:     the sender draws a seed and gets a context with `enc`, the receiver makes the same context from `enc`. A
 *          context seals one message. The reply has a context of its own, from a secret that both export, as in
 *          RFC 9458, 4.4
 * Proof:   who opens what was sealed holds the receiver's secret key, or the seed; either way the shared key
 * Secrecy: a context is as secret as what it seals; wipe it
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

#define HPKE_KEY_BYTES 32 /* of each key, seed, `enc` and a reply's nonce */
#define HPKE_TAG_BYTES 16 /* a sealed text is longer by so much */

struct hpke_key {
    uint8_t byte[HPKE_KEY_BYTES];
};

/* Holds what both sides know before the exchange. */
struct hpke_known {
    struct hpke_key psk;
    struct str psk_id, info;
};

struct hpke {
    struct hpke_key key, exporter;
    uint8_t nonce[12];
};

/* Makes a key pair of a seed (DeriveKeyPair). */
int hpke_key_pair(const struct hpke_key *seed, struct hpke_key *ret_secret,
                  struct hpke_key *ret_public);

/* The sender's context. -EINVAL: `receiver` is no key. */
int hpke_send(const struct hpke_key *receiver, const struct hpke_known *known,
              const struct hpke_key *seed, struct hpke_key *ret_enc, struct hpke *ret);

/* The receiver's. -EINVAL: `enc` is no key. */
int hpke_receive(const struct hpke_key *secret, const struct hpke_known *known,
                 const struct hpke_key *enc, struct hpke *ret);

/* The context of the reply to what came with `enc`. The replying side draws a nonce for each reply. */
void hpke_reply(const struct hpke *h, const struct hpke_key *enc, const struct hpke_key *nonce,
                struct hpke *ret);

/* Derives a secret of both sides for a purpose. */
void hpke_export(const struct hpke *h, struct str context, struct hpke_key *ret);

/* Appends to `out`. -EBADMSG: not sealed by the other side, or changed; -ENOMEM. */
int hpke_seal(const struct hpke *h, struct str aad, struct str plain, struct buf *out);
int hpke_open(const struct hpke *h, struct str aad, struct str sealed, struct buf *out);
