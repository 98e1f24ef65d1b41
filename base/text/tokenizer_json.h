/* tokenizer_json.h - reads the tokenizer of a Hugging Face repository: tokenizer.json and its companions.
 *
 * Layer:   base/text (base/core)
 * Threads: pure; takes a second for 250,000 tokens
 * Format:  tokenizer.json of the package `tokenizers` (version "1.0"); tokenizer_config.json and
 *          chat_template.jinja of `transformers`
 * Rules:   (1) a part that would change the ids and is not supported is refused with its JSON path and
 *              its name (-ENOTSUP); nothing is ignored that has an effect
 *          (2) the texts come from strangers: every count, id and reference is checked
 *          (3) truncation and padding are the caller's, as in transformers, and are not applied
 *          (4) a special token is matched as the file says, but never in a user's text; one that is not
 *              special and looks like a marker ("<|User|>") counts as special, as in vocab.h
 *          (5) the first that names it gives bos, and eos: `config`, `generation`, `model`. What else
 *              eos_token_id of `generation` lists, or of `model` where that has none, ends outputs too
 *          (6) an embedding with more rows than tokens, in `model`, has unused tokens behind them
 */
#pragma once
#include "base/text/chat_template.h"
#include "base/text/vocab.h"

#define TOKENIZER_JSON_BYTES_MAX ((size_t)64 << 20)

/* The contents of the files; all borrowed for the call. Only the first must be there. */
struct tokenizer_texts {
    struct str tokenizer;     /* tokenizer.json */
    struct str config;        /* tokenizer_config.json: special tokens, chat_template */
    struct str chat_template; /* chat_template.jinja; goes before the one in `config` */
    struct str model;         /* config.json: ids of special tokens, rows of the embedding */
    struct str generation;    /* generation_config.json: ids of special tokens */
};

/* Builds the vocabulary and compiles the chat template (*ret_template is NULL when there is none); both
 * are the caller's. -EINVAL: malformed or inconsistent, -ENOTSUP: a part that is not supported, -E2BIG: a
 * bound, -ENOMEM; err names the file and the JSON path. On failure nothing is written. */
int tokenizer_json_load(const struct tokenizer_texts *texts, struct vocab **ret,
                        struct chat_template **ret_template, struct err *err);
