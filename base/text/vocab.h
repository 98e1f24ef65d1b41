/* vocab.h - the tokens of a model: their bytes, types, merges and special ids.
 *
 * Layer:    base/text (base/core)
 * Threads:  immutable after vocab_build: any number of threads may read it
 * Lifetime: vocab_build copies everything it is given; what the accessors return lives as long
 *           as the vocab
 * Rules:    (1) built from arrays that came from a file or a peer: every count, id and reference
 *               is checked, and a refusal names what is wrong
 *           (2) kinds and pre-tokenizers are rows of tables; an unknown name is refused with
 *               the known ones
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/core/str.h"

#define VOCAB_TOKENS_MAX (1u << 20) /* largest known vocabularies hold 262,144 */
#define VOCAB_MERGES_MAX (2u << 20)
#define VOCAB_TOKEN_BYTES_MAX 4096       /* one token's text; real ones stay below 512 */
#define VOCAB_TEXT_BYTES_MAX (64u << 20) /* all tokens and merges together */
#define VOCAB_NONE UINT32_MAX            /* no such token */

/* The numbers are GGUF's (tokenizer.ggml.token_type). */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,      /* never produced from a user's text */
    TOKEN_USER_DEFINED = 4, /* plain text that is one token, wherever it stands */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
    TOKEN_TYPE_COUNT
};

/* VOCAB_NONE where the model has none. */
struct vocab_special {
    uint32_t bos, eos, eot, pad, unk;
    bool add_bos, add_eos; /* around a prompt that no template wrote */
};

#define VOCAB_SPECIAL_NONE                                                                      \
    ((struct vocab_special){ VOCAB_NONE, VOCAB_NONE, VOCAB_NONE, VOCAB_NONE, VOCAB_NONE, false, \
                             false })

/* What vocab_build reads; all borrowed. A user-defined token that looks like a marker ("<|User|>",
 * also with full-width bars) is taken as control: some files mislabel their turn markers, and a
 * user must not be able to write one. */
struct vocab_parts {
    struct str kind;          /* "gpt2": byte-level BPE */
    struct str pre;           /* "gpt-2", "llama-bpe", "qwen2", ...: vocab_pre_name */
    const struct str *tokens; /* as in the file: normal tokens in the byte alphabet of GPT-2 */
    size_t token_count;
    const uint8_t *types;      /* enum token_type; NULL with type_count 0: all normal */
    size_t type_count;         /* 0 or token_count */
    const float *scores;       /* kept for kinds that use them; may be absent */
    size_t score_count;        /* 0 or token_count */
    const struct str *merges;  /* "left right", best first */
    const uint32_t *merge_ids; /* or, instead of the texts: left id, right id, left id, ... */
    size_t merge_count;
    struct vocab_special special; /* eot VOCAB_NONE: found by its usual names */
};

struct vocab;

/* -EINVAL with a sentence for anything inconsistent, -ENOTSUP for an unknown kind or
 * pre-tokenizer (names the known ones), -E2BIG at a bound, -ENOMEM. */
int vocab_build(const struct vocab_parts *parts, struct vocab **ret, struct err *err);
void vocab_free(struct vocab *v);
CLEANUP_FREEP(vocab, struct vocab)

uint32_t vocab_count(const struct vocab *v);
uint32_t vocab_token_bytes_max(const struct vocab *v); /* of a text that one id stands for; > 0 */
const struct vocab_special *vocab_special(const struct vocab *v);
struct str vocab_kind(const struct vocab *v);
struct str vocab_pre(const struct vocab *v);

/* For id >= vocab_count: empty text, TOKEN_UNUSED. */
struct str vocab_text(const struct vocab *v, uint32_t id);  /* as in the file */
struct str vocab_bytes(const struct vocab *v, uint32_t id); /* what it stands for in a text */
enum token_type vocab_type(const struct vocab *v, uint32_t id);

/* The token whose file text is `text`, or VOCAB_NONE. */
uint32_t vocab_find(const struct vocab *v, struct str text);

/* Names of the table rows, for messages and documents; NULL behind the last. */
const char *vocab_kind_name(size_t index);
const char *vocab_pre_name(size_t index);

/* GPT-2's way to write any bytes as printable text.
 *
 * Vocabulary files hold tokens as text in which each byte is one character: the 188 printable
 * bytes of Latin-1 are themselves, the other 68 are U+0100 + n in the order of their values. A
 * space so becomes U+0120.
 */

/* True when all of `text` is written in the alphabet; its bytes are in `out` (room for
 * text.len). */
bool byte_alphabet_decode(struct str text, char *out, uint32_t *ret_len);

/* `bytes` in the alphabet, written to `out` (room for 2 * bytes.len). */
struct str byte_alphabet_encode(struct str bytes, char *out);
