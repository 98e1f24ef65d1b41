/* encode.h - encodes a request's prompt as token ids within the model's context; reads bodies of /tokenize.
 *
 * Layer:   base/text (base/core); router and engine share it
 * Threads: any: a model's vocabulary and template are immutable. Long texts belong on a text worker
 *          (base/io/loop/text_pool.h)
 * Bounds:  ids_max ids. A text that cannot fit, because even its shortest encoding has more ids, is
 *          refused before it is tokenised; any other stops at the first id too many
 * Errors:  -EFBIG: more than ids_max ids, which err names. -EPROTO: the template itself refuses, or the
 *          model has none; -EINVAL: not the JSON it should be; -E2BIG: a bound of the template;
 *          -EDOM: the template failed; -ENOMEM. `out` then holds a prefix.
 */
#pragma once
#include "base/text/chat_template.h"
#include "base/text/tokenizer.h"

/* Most steps of a template on an event loop, about 3 ms: even a small body may take many steps in a
 * template that compares each message with each. More is -E2BIG, and a text worker renders it instead. */
#define ENCODE_INLINE_STEPS 50000

struct encode_model {
    const struct vocab *vocab;
    const struct chat_template *chat_template; /* NULL: none */
};

struct encode_chat {
    struct str messages, tools, kwargs; /* JSON, as in struct chat_inputs */
    bool generation_prompt;
    int64_t now_s;
    uint64_t steps_max;    /* 0: the template's own bound */
    struct arena *scratch; /* as in struct chat_inputs */
};

int encode_chat(const struct encode_model *m, const struct encode_chat *chat, size_t ids_max,
                struct ids *out, struct err *err);

/* Encodes a raw prompt; with `special` it gets the begin and end tokens that the vocabulary asks for. */
int encode_text(const struct encode_model *m, struct str text, bool special, size_t ids_max,
                struct ids *out, struct err *err);

/* Encodes two texts as one sequence, as encoders are trained on pairs:
 *
 *     [CLS] a [SEP] b [SEP]        a vocabulary of WordPiece (BERT)
 *     <s> a </s></s> b </s>        any other (RoBERTa, XLM-RoBERTa)
 *
 * with the tokens that the vocabulary puts around one text. *ret_second is where the second begins: behind
 * the first separator. */
int encode_pair(const struct encode_model *m, struct str a, struct str b, size_t ids_max,
                struct ids *out, uint32_t *ret_second, struct err *err);

/* Copies ids that a client gives; -EPROTO for an id that the model does not have. */
int encode_ids(const struct encode_model *m, const uint32_t *ids, size_t count, size_t ids_max,
               struct ids *out, struct err *err);

/* The functions below serve /tokenize, /detokenize and /apply-template in router and engine alike.
 *
 * Threads: any; a body above TEXT_INLINE_BYTES is work for a text worker
 * Bounds:  TOKEN_ASK_IDS_MAX ids either way, TOKEN_ASK_TEXT_BYTES_MAX bytes of text that ids decode to
 * Errors:  -EINVAL: a malformed body; -EFBIG: a bound; else as above. err has the sentence.
 *
 *     /tokenize    {"prompt": text, "add_special_tokens": true} or {"messages": [..], "tools": [..],
 *                  "add_generation_prompt": true}     -> {"count", "max_model_len", "tokens": [..]}
 *     /detokenize  {"tokens": [..]}                   -> {"prompt": text}
 *     /apply-template  {"messages": [..], "tools": [..], "chat_template_kwargs": {..},
 *                  "add_generation_prompt": true}     -> {"prompt": text}
 */

#define TOKEN_ASK_IDS_MAX (1u << 17)
#define TOKEN_ASK_TEXT_BYTES_MAX ((size_t)4 << 20)

enum token_ask_kind {
    TOKEN_ASK_TOKENIZE,
    TOKEN_ASK_DETOKENIZE,
    TOKEN_ASK_TEMPLATE,
    TOKEN_ASK_COUNT, /* a body like a template's; the reply is Anthropic's, {"input_tokens"} */
};

struct token_ask {
    enum token_ask_kind kind;
    struct buf model; /* empty: not given */
    struct buf prompt;
    bool has_prompt, special;
    struct encode_chat chat; /* points into the body */
    struct ids ids;
};

/* Reads a body. The caller must free *ret with token_ask_fini, also after an error. */
int token_ask_read(enum token_ask_kind kind, struct str body, struct token_ask *ret,
                   struct err *err);
void token_ask_fini(struct token_ask *ask);

/* Appends the response. `context` 0: not known, and left out. */
int token_ask_answer(const struct token_ask *ask, const struct encode_model *m, uint32_t context,
                     struct buf *out, struct err *err);
