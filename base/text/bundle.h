/* bundle.h - packs vocabulary and chat template into one blob with a digest, which an engine exports
 * so that a router can tokenise for it.
 *
 * Layer:  base/text (base/core)
 * Format: "MUSTERTB", u32 version, fields each with a u32 count or length in little-endian order
 *         (bundle.c lists them), sha256 over all before it. The digest is the hex of that
 *         sha256: equal digests mean equal tokens and equal prompts.
 * Rules:  bundle_decode trusts no byte of a blob, because it comes from a peer
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/hash.h"
#include "base/text/chat_template.h"
#include "base/text/dialogue/dialect.h"
#include "base/text/vocab.h"

#define BUNDLE_VERSION 5 /* the newest; written where the older one lacks something */
#define BUNDLE_VERSION_MIN 2
#define BUNDLE_BYTES_MAX ((size_t)96 << 20)

/* Holds a decoded blob. { 0 } is empty; bundle_fini frees vocabulary and template. */
struct bundle {
    struct vocab *vocab;
    struct chat_template *chat_template; /* NULL: the model has none */
    struct dialogue dialogue;            /* how the model writes reasoning and calls */
    char digest[SHA256_HEX + 1];
};

void bundle_fini(struct bundle *b);

/* Appends the blob to `out`, at most BUNDLE_BYTES_MAX (the buffer's max must allow it), and writes the
 * digest. `t` may be NULL. -E2BIG, -ENOMEM. */
int bundle_encode(const struct vocab *v, const struct chat_template *t, struct buf *out,
                  char ret_digest[SHA256_HEX + 1], struct err *err);

/* The operator's names of dialects, as dialogue_find takes them; empty or "auto": by the template. */
struct bundle_names {
    struct str call, think;
};

/* The same, with names. */
int bundle_encode_named(const struct vocab *v, const struct chat_template *t,
                        const struct bundle_names *names, struct buf *out,
                        char ret_digest[SHA256_HEX + 1], struct err *err);

/* Finds the dialects of a model. -EINVAL: an unknown name. */
int bundle_dialogue(const struct vocab *v, const struct chat_template *t,
                    const struct bundle_names *names, struct dialogue *ret, struct err *err);

/* Computes the digest that identifies a model: of its weights' digest (hex) and its bundle's digest. Equal
 * ones mean equal tokens for equal prompts. */
void bundle_identity(struct str weights, const char *bundle_digest, char ret[SHA256_HEX + 1]);

/* An engine that sends its bundle names the digest of its weights in this header of the response, so that
 * the router can check the identity. A request may demand an identity by `if-match`; another one is 412. */
#define BUNDLE_WEIGHTS_HEADER "x-muster-weights"

/* Decodes a blob. -EINVAL for anything malformed, a wrong checksum, or a digest other than
 * `expected_digest` (hex; NULL: any). On failure *ret is untouched. */
int bundle_decode(struct str bytes, const char *expected_digest, struct bundle *ret,
                  struct err *err);
