/* token_ask.h - the bodies of /tokenize and /detokenize, the same in router and engine.
 *
 * Layer:   base/text (base/core)
 * Threads: any; a body above TEXT_INLINE_BYTES is work for a text worker
 * Bounds:  TOKEN_ASK_IDS_MAX ids either way, TOKEN_ASK_TEXT_BYTES_MAX of text that ids stand for
 * Errors:  -EINVAL: not what belongs there; -EFBIG: a bound; else as encode.h. err has the sentence.
 *
 *     /tokenize    {"prompt": text, "add_special_tokens": true} or {"messages": [..], "tools": [..],
 *                  "add_generation_prompt": true}     -> {"count", "max_model_len", "tokens": [..]}
 *     /detokenize  {"tokens": [..]}                   -> {"prompt": text}
 */
#pragma once
#include "base/text/encode.h"

#define TOKEN_ASK_IDS_MAX (1u << 17)
#define TOKEN_ASK_TEXT_BYTES_MAX ((size_t)4 << 20)

enum token_ask_kind { TOKEN_ASK_TOKENIZE, TOKEN_ASK_DETOKENIZE };

struct token_ask {
    enum token_ask_kind kind;
    struct buf model; /* empty: none is named */
    struct buf prompt;
    bool has_prompt, special;
    struct encode_chat chat; /* points into the body */
    struct ids ids;
};

/* Whatever it returns, *ret is the caller's to free with token_ask_fini. */
int token_ask_read(enum token_ask_kind kind, struct str body, struct token_ask *ret,
                   struct err *err);
void token_ask_fini(struct token_ask *ask);

/* Appends the reply. `context` 0: not known, and left out. */
int token_ask_answer(const struct token_ask *ask, const struct encode_model *m, uint32_t context,
                     struct buf *out, struct err *err);
