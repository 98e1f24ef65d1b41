/* vocab.h - holds the tokens of a model: their bytes, types, merges and special ids.
 *
 * Layer:    base/text (base/core)
 * Threads:  immutable after vocab_build: any number of threads may read it
 * Lifetime: vocab_build copies everything it is given; text that the accessors return lives as long
 *           as the vocab
 * Rules:    (1) the arrays come from a file or a peer: every count, id and reference is checked,
 *               and a refusal names the fault
 *           (2) kinds and pre-tokenizers are rows of tables; an unknown name is refused with
 *               the known ones
 * Kinds:    gpt2 (byte-level BPE), bpe (BPE of characters by merges), llama (SentencePiece's BPE by scores),
 *           t5 (Unigram by scores), bert (WordPiece), wordlevel
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/core/str.h"
#include "base/text/text_rules.h"

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
    TOKEN_USER_DEFINED = 4, /* plain text that is one token wherever it occurs */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
    TOKEN_TYPE_COUNT
};

/* How a token that is searched for literally is found; bits of vocab_parts.added, named as in
 * tokenizer.json. */
enum {
    TOKEN_LSTRIP = 1,      /* takes the white space before it */
    TOKEN_RSTRIP = 2,      /* and behind it */
    TOKEN_SINGLE_WORD = 4, /* only between characters that are no part of a word */
    TOKEN_NORMALIZED = 8,  /* in the normalised text, by its normalised form */
    TOKEN_OUTSIDE = 16,    /* only found literally: the model of words does not know it */
    TOKEN_ADDED_FLAGS = 31
};

/* Flags of a vocabulary. */
enum {
    VOCAB_CUT_RULES = 1,     /* words come from `cut` even for a kind that has `pre` */
    VOCAB_BYTE_FALLBACK = 2, /* a character without a token becomes its bytes' tokens <0xNN> */
    VOCAB_FUSE_UNKNOWN = 4,  /* neighbouring unknown characters are one unknown token */
    VOCAB_WHOLE_WORDS = 8,   /* a word that is a token is taken without merging */
    VOCAB_FLAGS = 15
};

#define VOCAB_FRAME_MAX 8         /* tokens before and behind a prompt */
#define VOCAB_ENDS_MAX 8          /* tokens that end an output */
#define VOCAB_WORD_CHARS_MAX 1000 /* most that a vocabulary may take as the longest word */

/* The ids of special tokens; VOCAB_NONE where the model has none. */
struct vocab_special {
    uint32_t bos, eos, eot, pad, unk;
    bool add_bos, add_eos; /* to a prompt that no template rendered */
};

#define VOCAB_SPECIAL_NONE                                                                      \
    ((struct vocab_special){ VOCAB_NONE, VOCAB_NONE, VOCAB_NONE, VOCAB_NONE, VOCAB_NONE, false, \
                             false })

/* The input of vocab_build; all borrowed. A user-defined token that looks like a marker ("<|User|>",
 * also with full-width bars) is treated as control: some files mislabel their turn markers, and a
 * user must not be able to write one. */
struct vocab_parts {
    struct str kind;          /* "gpt2": byte-level BPE; "llama", "t5", ...: vocab_kind_name */
    struct str pre;           /* "gpt-2", "llama-bpe", "qwen2", ...: vocab_pre_name; gpt2 only */
    const struct str *tokens; /* as in the file: normal tokens in the byte alphabet of GPT-2 */
    size_t token_count;
    const uint8_t *types;      /* enum token_type; NULL with type_count 0: all normal */
    size_t type_count;         /* 0 or token_count */
    const double *scores;      /* finite; kept for kinds that use them; may be absent */
    size_t score_count;        /* 0 or token_count */
    const uint8_t *added;      /* TOKEN_LSTRIP ...; may be absent */
    size_t added_count;        /* 0 or token_count */
    const struct str *merges;  /* "left right", best first */
    const uint32_t *merge_ids; /* or, instead of the texts: left id, right id, left id, ... */
    size_t merge_count;
    struct vocab_special special; /* eot VOCAB_NONE: searched by its usual names */

    uint32_t flags;                        /* VOCAB_CUT_RULES ... */
    struct text_rules normal, cut, decode; /* text_rules.h */
    /* bert: marks a piece that continues a word; empty: U+2581 marks the others */
    struct str continuing;
    uint32_t word_chars_max; /* bert: a longer word is unknown; 0: no bound */
    /* Of a prompt, beside add_bos, add_eos. */
    uint32_t before[VOCAB_FRAME_MAX], after[VOCAB_FRAME_MAX];
    uint32_t before_count, after_count;
    uint32_t ends[VOCAB_ENDS_MAX], end_count; /* tokens that end an output, beside eos and eot */
};

/* Sets flags and rules of a kind of GGUF, for which the file gives a few switches instead of rules.
 * `storage` must live until vocab_build returns. Does nothing for gpt2. */
struct vocab_gguf_rules {
    struct text_rule normal[4], cut[2], decode[2];
};

struct vocab_gguf_switches {
    bool add_space_prefix, remove_extra_whitespaces;
    struct str charsmap; /* empty: none */
};

void vocab_rules_of_gguf(struct vocab_parts *parts, const struct vocab_gguf_switches *switches,
                         struct vocab_gguf_rules *storage);

struct vocab;

/* Checks and copies the parts. -EINVAL with a sentence for anything inconsistent, -ENOTSUP for an
 * unknown kind or pre-tokenizer (names the known ones), -E2BIG at a bound, -ENOMEM. */
int vocab_build(const struct vocab_parts *parts, struct vocab **ret, struct err *err);
void vocab_free(struct vocab *v);
CLEANUP_FREEP(vocab, struct vocab)

uint32_t vocab_count(const struct vocab *v);

/* Returns the most bytes of a text that one id can stand for, at least 1; UINT32_MAX: no bound. */
uint32_t vocab_token_bytes_max(const struct vocab *v);
const struct vocab_special *vocab_special(const struct vocab *v);
struct str vocab_kind(const struct vocab *v);
struct str vocab_pre(const struct vocab *v);

/* Returns the ids that end an output, each once: eos, eot, and the further ones. */
size_t vocab_ends(const struct vocab *v, const uint32_t **ret);

/* Returns true if the token ends an output. */
bool vocab_is_end(const struct vocab *v, uint32_t id);

/* Return the ids that go before and behind a raw prompt. */
size_t vocab_before(const struct vocab *v, const uint32_t **ret);
size_t vocab_after(const struct vocab *v, const uint32_t **ret);

/* These describe a token; for id >= vocab_count they return empty text and TOKEN_UNUSED. */
struct str vocab_text(const struct vocab *v, uint32_t id);  /* as in the file */
struct str vocab_bytes(const struct vocab *v, uint32_t id); /* what it decodes to inside a text */
enum token_type vocab_type(const struct vocab *v, uint32_t id);

/* For those who write a vocabulary in another form: TOKEN_LSTRIP ... of a token; its merges, best first; whether it
 * changes texts before it cuts them, or cuts and decodes them by rules; whether a word that is a token is taken without
 * merging. */
uint32_t vocab_added(const struct vocab *v, uint32_t id);
size_t vocab_merge_count(const struct vocab *v);
void vocab_merge(const struct vocab *v, size_t i, uint32_t ret_pair[2]);
bool vocab_has_rules(const struct vocab *v);
bool vocab_whole_words(const struct vocab *v);

/* Returns the token that is written as `text` in the file, or VOCAB_NONE. */
uint32_t vocab_find(const struct vocab *v, struct str text);

/* Return the names of kinds and pre-tokenizers, for messages and documents; NULL behind the last. */
const char *vocab_kind_name(size_t index);
const char *vocab_pre_name(size_t index);

/* GPT-2's byte alphabet writes any bytes as printable text.
 *
 * Vocabulary files hold tokens as text in which each byte is one character: the 188 printable
 * bytes of Latin-1 are themselves, the other 68 are U+0100 + n in the order of their values. So a
 * space becomes U+0120.
 */

/* Decodes `text` into `out` (room for text.len); false if a character is not of the alphabet. */
bool byte_alphabet_decode(struct str text, char *out, uint32_t *ret_len);

/* Encodes `bytes` into `out` (room for 2 * bytes.len). */
struct str byte_alphabet_encode(struct str bytes, char *out);
