/* vocab_tables.h - declares the tables of a vocab, for the files that encode with it.
 *
 * Layer: base/text, private: included by the files of kinds, tokenizer.c, detok.c, bundle.c and their tests only
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/hash.h"
#include "base/core/work.h"
#include "base/text/lexicon.h"
#include "base/text/pretokenizer.h"
#include "base/text/tokenizer.h"
#include "base/text/vocab.h"

#include <stdatomic.h>

struct vocab_token {
    const char *text, *bytes;
    uint32_t text_len, bytes_len; /* bytes may be text itself */
    uint8_t type, added;          /* TOKEN_LSTRIP ... */
};

#define VOCAB_BLANK_MARK "\xE2\x96\x81" /* U+2581, how SentencePiece writes a blank */

struct word_scratch;

/* A kind of tokenizer: one way of building words from tokens. `finish` makes the checks and the tables
 * that only this kind needs. */
struct vocab_kind {
    const char *name; /* tokenizer.ggml.model */
    const char *about;
    int (*finish)(struct vocab *v, struct err *err);
    int (*encode)(const struct vocab *v, struct word_scratch *scratch, struct str word,
                  struct ids *out);
    bool alphabet; /* normal tokens are written in the byte alphabet */
};

const struct vocab_kind *vocab_kind_find(struct str name); /* NULL when there is none */

/* Blanks at the start of a text that its first tokens do not write. */
enum vocab_lead { LEAD_KEPT, LEAD_STRIP_TEXT, LEAD_DROP_FIRST };

/* Two tokens that are joined, and the token that they become. The place in the list is the rank. */
struct vocab_merge {
    uint32_t left, right, joined;
};

#define VOCAB_WORD_HEAD 11

/* A word in the form in which the table compares it. For words longer than VOCAB_WORD_HEAD the length in
 * `tail` is VOCAB_WORD_HEAD + 1, and their bytes are compared too. */
struct vocab_key {
    uint64_t head; /* the first eight bytes */
    uint32_t tail; /* the next three, and the length */
    uint64_t hash;
};

/* A token with the bytes of a whole word. Head, tail and the token's state are in one cache line, and short
 * words are compared by them alone. */
struct vocab_word {
    _Atomic uint32_t token; /* id and state; VOCAB_NONE: empty */
    uint32_t tail;
    uint64_t head;
};
_Static_assert(sizeof(struct vocab_word) == 16, "four words in a line of the cache");

#define VOCAB_MEMOS 4096 /* a power of two; words beyond them are merged each time */
#define VOCAB_MEMO_BYTES 21
#define VOCAB_MEMO_IDS 10

/* The ids of a word that is no token. They are kept from its first merge on and never replaced. */
struct vocab_memo {
    _Atomic uint8_t state; /* enum vocab_memo_state */
    uint8_t len, count;
    char word[VOCAB_MEMO_BYTES];
    uint32_t ids[VOCAB_MEMO_IDS];
};
_Static_assert(sizeof(struct vocab_memo) == 64, "a memo is one line of the cache");

enum vocab_memo_state { MEMO_EMPTY, MEMO_WRITTEN, MEMO_READY };

/* States whether merging a token's bytes gives that token again. Any thread finds it out when a text first
 * has the word; all threads find the same. */
enum vocab_word_state { WORD_UNKNOWN, WORD_WHOLE, WORD_IN_PARTS };

#define VOCAB_STATE_SHIFT 30 /* of the state in vocab_word.token, above the id */
#define VOCAB_WORD_ID_MASK ((1u << VOCAB_STATE_SHIFT) - 1)

struct vocab {
    struct arena arena; /* all below that is not a map */
    const struct vocab_kind *kind;
    const struct pretokenizer *pre;
    struct vocab_token *tokens;
    uint32_t token_count;
    double *scores;       /* NULL when the file had none */
    double score_unknown; /* t5: of a character that is no token */
    uint32_t *score_rank; /* llama: by falling score, equal for equal scores */
    uint32_t flags;
    struct text_rules normal, cut, decode;
    struct str continuing_mark;
    uint32_t word_chars_max;
    uint32_t before[VOCAB_FRAME_MAX], after[VOCAB_FRAME_MAX]; /* as given */
    uint32_t before_count, after_count;
    /* With bos, eos. */
    uint32_t frame_before[VOCAB_FRAME_MAX + 1], frame_after[VOCAB_FRAME_MAX + 1];
    uint32_t frame_before_count, frame_after_count;
    uint32_t ends[VOCAB_ENDS_MAX + 2], end_count; /* eos and eot, then the further ones */
    uint32_t special_ends;                        /* how many of them are eos or eot */
    bool keep_bytes; /* invalid UTF-8 keeps its bytes; else it is U+FFFD before words are made */
    enum vocab_lead lead;
    bool first_as_written;     /* the first token of a text writes its own text */
    bool blank_breaks;         /* no token crosses from another character to U+2581 */
    struct lexicon lexicon;    /* t5: pieces; bert: pieces that begin a word */
    struct lexicon continuing; /* bert: pieces that continue one */
    struct vocab_merge *merges;
    uint32_t merge_count;
    struct vocab_special special;

    uint32_t *by_text; /* open addressing: token ids, VOCAB_NONE where empty */
    uint32_t by_text_mask;
    uint64_t *pairs; /* open addressing: pairs that may be joined, with their ranks */
    uint32_t pair_shift;
    struct vocab_word *words; /* open addressing: normal tokens by their bytes */
    uint32_t word_mask;
    struct vocab_memo *memos;
    uint32_t byte_token[256]; /* VOCAB_NONE where the vocabulary has no token for the byte */
    uint32_t token_bytes_max; /* of the longest token, at least 1 */
    uint32_t text_bytes_max;  /* of a text that one id may stand for */

    /* Tokens that are searched for literally: in the text, and in the normalised text. */
    struct lexicon markers, normal_markers;
};

#define VOCAB_ID_BITS 20
#define VOCAB_RANK_BITS 21
#define VOCAB_PAIR_NONE UINT64_MAX
_Static_assert(VOCAB_TOKENS_MAX <= 1u << VOCAB_ID_BITS, "an id fits into a pair");
_Static_assert(VOCAB_MERGES_MAX <= 1u << VOCAB_RANK_BITS, "a rank fits behind a pair");

/* Returns true for a token that merging may make. */
bool vocab_is_word_part(const struct vocab *v, uint32_t id);

/* Returns the rank of a pair of neighbours, or UINT32_MAX if they may not be joined. */
uint32_t vocab_pair_rank(const struct vocab *v, uint32_t left, uint32_t right);

/* Writes the contents in canonical form, as the bundle has them: equal for equal vocabularies. */
int vocab_write(const struct vocab *v, struct buf *out);

static inline struct str vocab_token_text(const struct vocab_token *t)
{
    return (struct str){ t->text, t->text_len };
}
