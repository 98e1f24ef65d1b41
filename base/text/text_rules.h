/* text_rules.h - lists the steps that change a text, cut it into words, and turn tokens into text again, with the character
 * map that one of them holds.
 *
 * Layer:   base/text (base/core)
 * Threads: immutable once checked
 * What:    a tokenizer is a list of normal rules (text to text), a list of cut rules (text to words), a
 *          model (words to ids: vocab.h) and a list of decode rules (a token to bytes). GGUF's kinds and
 *          tokenizer.json are both expressed so; a bundle carries the lists.
 */
#pragma once

#include "base/core/err.h"
#include "base/core/str.h"

#define TEXT_RULES_MAX 16             /* of one list */
#define TEXT_RULE_TEXT_MAX 256        /* bytes of `a` and of `b`; but */
#define CHARSMAP_BYTES_MAX (4u << 20) /* of a character map; SentencePiece's own has 240 KB */

enum text_rule_kind {
    /* normal: the text becomes another text */
    RULE_NFC = 1,
    RULE_NFD,
    RULE_NFKC,
    RULE_NFKD,
    RULE_LOWER,
    RULE_STRIP,         /* white space at the ends: RULE_LEFT, RULE_RIGHT */
    RULE_STRIP_ACCENTS, /* all combining marks */
    RULE_REPLACE,       /* each `a` by `b`; RULE_RUNS: runs of two or more of the character `a` */
    RULE_PREPEND,       /* `a`, unless the text is empty */
    RULE_BERT,          /* RULE_CLEAN, RULE_HAN, RULE_ACCENTS, RULE_LOWERCASE */
    RULE_CHARSMAP, /* `a`: a map of SentencePiece; RULE_GRAPHEMES: as `tokenizers` applies it */
    RULE_COLLAPSE, /* blanks: none at the ends, one where there are several */
    /* cut: pieces become smaller pieces */
    RULE_WORDS,       /* the pretokenizer named `a` */
    RULE_LITERAL,     /* the text `a` */
    RULE_WHITE,       /* a character of white space */
    RULE_PUNCTUATION, /* a mark of punctuation, or an ASCII symbol */
    RULE_DIGIT,       /* a numeric character */
    RULE_WORD_RUNS,   /* \w+|[^\w\s]+ */
    RULE_METASPACE, /* blanks become `a`, which begins each word: RULE_ALWAYS, RULE_FIRST, RULE_SPLIT */
    RULE_PREFIX_BLANK, /* a blank in front of a piece that has none */
    /* decode: a token becomes bytes (RULE_REPLACE, too) */
    RULE_WORDPIECE, /* a blank in front, or `a` in front goes away; RULE_CLEAN_UP: none before marks */
    RULE_BLANK,     /* a blank in front */
    RULE_STRIP_TEXT, /* the first blank of the whole text goes away */
    RULE_DROP_FIRST, /* the blanks of the first token go away */
    TEXT_RULE_COUNT
};

/* Flags of a rule; each kind knows those named beside it. */
enum {
    RULE_LEFT = 1,
    RULE_RIGHT = 2,
    RULE_RUNS = 1,
    RULE_CLEAN = 1,
    RULE_HAN = 2,
    RULE_ACCENTS = 4,
    RULE_LOWERCASE = 8,
    RULE_GRAPHEMES = 1,
    RULE_ALWAYS = 1,
    RULE_FIRST = 2,
    RULE_SPLIT = 4,
    RULE_CLEAN_UP = 1,
    RULE_INVERT = 16, /* cut rules: what matches and what does not change places */
};

/* Names the ways in which a cut rule treats its matches. */
enum rule_behavior {
    BEHAVIOR_ISOLATED, /* each is a piece */
    BEHAVIOR_REMOVED,
    BEHAVIOR_WITH_PREVIOUS,
    BEHAVIOR_WITH_NEXT,
    BEHAVIOR_CONTIGUOUS, /* neighbouring ones are one piece */
    RULE_BEHAVIOR_COUNT
};

struct text_rule {
    uint8_t kind;     /* enum text_rule_kind */
    uint8_t flags;    /* of the kind */
    uint8_t behavior; /* enum rule_behavior; of cut rules */
    struct str a, b;
};

struct text_rules {
    const struct text_rule *list;
    size_t count;
};

enum text_rules_use { TEXT_RULES_NORMAL, TEXT_RULES_CUT, TEXT_RULES_DECODE };

/* Checks a list from a file or a peer: kinds of that use, flags they know, texts in UTF-8 within their
 * bounds, known names, a sound character map. -EINVAL, -ENOTSUP, -E2BIG. */
int text_rules_check(enum text_rules_use use, struct text_rules rules, struct err *err);

/* The precompiled map of characters of a SentencePiece model.
 *
 * Format:  u32 bytes of the trie; the trie, a double array of u32 units (darts-clone); then the texts that
 *          the trie's values point to, each ended by a zero byte
 * Rules:   a map comes from a file: each unit is checked before it is followed */

struct charsmap {
    struct str units, texts;
};

/* Checks the outer form. -EINVAL, -E2BIG. */
int charsmap_check(struct str blob, struct err *err);

/* Opens a blob that charsmap_check accepted. */
struct charsmap charsmap_open(struct str blob);

/* Finds an entry that is a prefix of `text`, the longest or the shortest; returns its bytes, 0 for none,
 * and what it becomes (perhaps nothing) in *ret. */
size_t charsmap_find(const struct charsmap *m, struct str text, bool longest, struct str *ret);
