/* small_vocab.c - has the vocabulary's arrays written out by hand, except for the byte alphabet. */
#include "tests/unit/text/small_vocab.h"

#include "base/core/bits.h"
#include "base/text/vocab.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const markers[] = {
    "<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<think>",
};

/* Best first; both parts are in the byte alphabet (C4 A0 is the blank). */
static const char *const merges[] = {
    "h e",   "l l",      "\xC4\xA0 t",   "he ll",
    "o w",   "hell o",   "\xC4\xA0t he", "a a",
    "aa aa", "a b",      "aaaa aaaa",    "1 2",
    "i n",   "in g",     "\xC4\xA0 w",   "\xC3\x83 \xC2\xBC", /* the bytes of u umlaut */
    "< |",   "e n",      "en d",         "<| end",
    "| >",   "<|end |>",
};

#define TOKENS_MAX (COUNT_OF(markers) + 256 + COUNT_OF(merges))

struct vocab_parts small_vocab_parts(const char *pre)
{
    static char text[TOKENS_MAX][32];
    static struct str tokens[TOKENS_MAX], merge[COUNT_OF(merges)];
    static uint8_t types[TOKENS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(markers); i++) {
        tokens[count] = str_from(markers[i]);
        types[count++] = i == SMALL_THINK ? TOKEN_USER_DEFINED : TOKEN_CONTROL;
    }
    for (unsigned b = 0; b < 256; b++) {
        char byte = (char)b;
        tokens[count] = byte_alphabet_encode(str_of(&byte, 1), text[count]);
        types[count++] = TOKEN_NORMAL;
    }
    for (size_t i = 0; i < COUNT_OF(merges); i++) {
        merge[i] = str_from(merges[i]);
        const char *space = strchr(merges[i], ' ');
        snprintf(text[count], sizeof text[count], "%.*s%s", (int)(space - merges[i]), merges[i],
                 space + 1);
        struct str joined = str_from(text[count]);
        if (str_eq(joined, STR("<|end|>"))) continue; /* merges lead to a control token */
        tokens[count] = joined;
        types[count++] = TOKEN_NORMAL;
    }
    return (struct vocab_parts){
        .kind = STR("gpt2"),
        .pre = str_from(pre),
        .tokens = tokens,
        .token_count = count,
        .types = types,
        .type_count = count,
        .merges = merge,
        .merge_count = COUNT_OF(merges),
        .special = { .bos = SMALL_BEGIN,
                     .eos = SMALL_END,
                     .eot = VOCAB_NONE,
                     .pad = VOCAB_NONE,
                     .unk = VOCAB_NONE,
                     .add_bos = true },
    };
}

struct vocab *small_vocab(const char *pre)
{
    struct vocab_parts parts = small_vocab_parts(pre);
    struct vocab *v = NULL;
    struct err err = { 0 };
    if (vocab_build(&parts, &v, &err) < 0) {
        fprintf(stderr, "small_vocab: %s\n", err.text);
        abort();
    }
    return v;
}
