/* openai_logprobs.h - gathers the log-probabilities of an output's tokens and writes them in OpenAI's forms.
 *
 * Layer:    base/wire (base/core)
 * Threads:  one
 * Lifetime: the vocabulary lives as long as the struct; openai_logprobs_fini frees the rest
 * Rules:    (1) a token has a row of 1 + top values: the chosen token first, then the likeliest, best
 *               first. Values at LOGPROB_NONE or below behind the first are no tokens
 *           (2) an end token is part of the rows and not of what is written, because it has no text
 *           (3) a token that is not valid UTF-8 by itself is written as OpenAI does, bytes:\xe2\x80
 *           (4) text_offset counts characters, from the bytes of the tokens before
 *           (5) of a completion that echoes its prompt, and of a request with prompt_logprobs, the prompt's
 *               tokens come first, each with a row
 */
#pragma once
#include "base/core/buf.h"
#include "base/wire/openai.h"
#include "base/wire/sampling.h"

struct vocab;

/* Reads a vocabulary, which is base/text's: the bytes of a token, and how many of the ids end an output. */
struct openai_tokens {
    const struct vocab *vocab;
    struct str (*shown)(const struct vocab *v, uint32_t id); /* for the client */
    struct str (*bytes)(const struct vocab *v, uint32_t id); /* in the text; empty: a marker */
    bool (*is_end)(const struct vocab *v, uint32_t id);
};

struct openai_logprobs {
    bool wanted; /* rows are: for the output, the prompt or both */
    enum openai_surface surface;
    uint32_t top; /* of a row, beside the chosen one: the larger of the next two */
    /* A list of the output's tokens is written, with the prompt's if it is echoed. */
    bool of_output;
    uint32_t output_top;
    bool of_prompt; /* a list of the prompt's tokens, in vLLM's form */
    uint32_t prompt_top;
    bool echoes;
    bool ignore_eos; /* end tokens are tokens like others */
    struct openai_tokens tokens;
    int64_t offset;  /* characters of the tokens written so far; below 0: none of the text yet */
    uint32_t prompt; /* tokens of the prompt that are not written yet: end tokens are among them */
    struct buf rows; /* struct token_value: not written yet */
    struct buf json;
    struct buf prompt_json;
};

/* Empties it for a request; what it holds is kept for reuse. `bytes_max` bounds the rows. */
void openai_logprobs_reset(struct openai_logprobs *l, const struct openai_request *r,
                           const struct openai_tokens *tokens, size_t bytes_max);
void openai_logprobs_fini(struct openai_logprobs *l);

/* Begins with a prompt, whose first token has no log-probability; the rows of the others are added as
 * those of generated tokens are. `echo`: its text. -ENOMEM. */
int openai_logprobs_prompt(struct openai_logprobs *l, const uint32_t *ids, uint32_t count,
                           struct str echo);

/* Adds the rows of `count` tokens; -EPROTO if `value_count` is not theirs, -ENOMEM. */
int openai_logprobs_add(struct openai_logprobs *l, const struct token_value *value,
                        uint32_t value_count, uint32_t count);

/* Writes the rows added since the last call as one JSON value, which lives until the next call. Empty if
 * there is nothing to write, or without memory (then json.rc says so). With of_prompt the call is the only one; it
 * also writes prompt_json. */
struct str openai_logprobs_take(struct openai_logprobs *l);
