/* bundle.h - vocabulary and chat template as one blob with a digest, as an engine exports it
 * so that a router can tokenise for it.
 *
 * Layer:  base/text (base/core)
 * Format: "MUSTERTB", u32 version, fields each with a u32 count or length in little-endian order
 *         (bundle.c lists them), sha256 over all before it. The digest is the hex of that
 *         sha256: equal digests mean equal tokens and equal prompts.
 * Rules:  bundle_decode trusts nothing: it comes from a peer
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/hash.h"
#include "base/text/chat_template.h"
#include "base/text/vocab.h"

#define BUNDLE_VERSION 1
#define BUNDLE_BYTES_MAX ((size_t)96 << 20)

/* { 0 } is empty; bundle_fini frees both. */
struct bundle {
    struct vocab *vocab;
    struct chat_template *chat_template; /* NULL: the model has none */
    char digest[SHA256_HEX + 1];
};

void bundle_fini(struct bundle *b);

/* Appends to `out` (its max must allow for it; BUNDLE_BYTES_MAX at most) and writes the digest.
 * `t` may be NULL. -E2BIG, -ENOMEM. */
int bundle_encode(const struct vocab *v, const struct chat_template *t, struct buf *out,
                  char ret_digest[SHA256_HEX + 1], struct err *err);

/* The digest under which an engine is known: of its weights' digest (hex) and its bundle's. Equal ones
 * mean equal tokens for equal prompts. */
void bundle_identity(struct str weights, const char *bundle_digest, char ret[SHA256_HEX + 1]);

/* An engine that hands out its bundle names its weights in this header of the reply, so that who
 * asked for an identity can see that it is the one. The request may name it: `if-match`, 412. */
#define BUNDLE_WEIGHTS_HEADER "x-muster-weights"

/* -EINVAL for anything malformed, a wrong checksum, or a digest other than `expected_digest`
 * (hex; NULL: any). On failure *ret is untouched. */
int bundle_decode(struct str bytes, const char *expected_digest, struct bundle *ret,
                  struct err *err);
