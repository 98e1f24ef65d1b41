/* openai_walk.h - the reader that the files of a request's keys share: one pass over the body.
 *
 * Layer:   base/wire, private to openai*.c
 * Threads: any; a walk belongs to one
 * Rules:   (1) openai.c has the table of all keys; a take_* function reads the value of one. The reader
 *              stands on the value, which is not null, and stays on its last token
 *          (2) every function returns 0, or a negative errno with the walk's error filled
 */
#pragma once
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/wire/openai.h"

struct openai_prompts {
    struct openai_prompt *item;
    uint32_t count; /* 0: absent */
};

struct openai_walk {
    struct json_reader r;
    struct arena *arena;
    struct openai_error *e;
    struct openai_request req;
    const char *key;                /* key of the body that is being read; NULL: not in the table */
    uint32_t max_completion_tokens; /* 0: absent */
    bool has_stream_options;
    struct str reasoning_effort;         /* empty: absent */
    struct openai_prompts first, second; /* of a score or a ranking: what is compared with what */
};

#define INVALID(p, param, ...) openai_error_set((p)->e, -EINVAL, OPENAI_INVALID, param, __VA_ARGS__)
#define UNSERVED(p, param, ...) \
    openai_error_set((p)->e, -EINVAL, OPENAI_UNSUPPORTED, param, __VA_ARGS__)

struct openai_key {
    const char *name;
    unsigned surfaces;
    int (*take)(struct openai_walk *p, const struct openai_key *k);
    size_t offset;    /* in struct openai_walk */
    double min, max;  /* numbers: value; strings: bytes; lists: items */
    const char *only; /* openai_take_nothing: raw values that change nothing, separated by | */
};

/* ---- refusals and pieces of values (openai_walk.c) ---- */

int walk_broken(struct openai_walk *p); /* the JSON itself */
int walk_wrong_type(struct openai_walk *p, const char *name, const char *wanted);
int walk_no_memory(struct openai_walk *p, const char *name);
int walk_out_of_range(struct openai_walk *p, const struct openai_key *k);

/* Copies the current string, unescaped, into the arena; `name` is for the error sentence. */
int walk_string(struct openai_walk *p, const char *name, double bytes_min, double bytes_max,
                struct str *ret);

/* Reads a whole number within the key's range. */
int walk_whole(struct openai_walk *p, const struct openai_key *k, int64_t *ret);

/* Returns the bytes of a value as they stand in the body; the current token is its first. */
int walk_raw(struct openai_walk *p, struct str *ret);

/* Counts the items of an array; the current token is its opening bracket. */
int walk_count(struct openai_walk *p, const char *name, uint32_t most, uint32_t *ret);

/* ---- values ---- */

int openai_take_f64(struct openai_walk *p, const struct openai_key *k);
int openai_take_u32(struct openai_walk *p, const struct openai_key *k);
int openai_take_output_max(struct openai_walk *p, const struct openai_key *k); /* of a completion */
int openai_take_seed(struct openai_walk *p, const struct openai_key *k);
int openai_take_bool(struct openai_walk *p, const struct openai_key *k);
int openai_take_str(struct openai_walk *p, const struct openai_key *k);
int openai_take_object(struct openai_walk *p, const struct openai_key *k); /* as it stands */
int openai_take_nothing(struct openai_walk *p, const struct openai_key *k);
int openai_take_stop(struct openai_walk *p, const struct openai_key *k);
int openai_take_stream_options(struct openai_walk *p, const struct openai_key *k);

int openai_take_prompt_logprobs(struct openai_walk *p, const struct openai_key *k);
int openai_take_logprobs(struct openai_walk *p,
                         const struct openai_key *k); /* chat: bool; else a number */

/* Sampling (openai_sampling.c). */
int openai_take_logit_bias(struct openai_walk *p, const struct openai_key *k);

/* Reads a text, ids, or a list of texts or of lists of ids, at most `most` (openai_prompt.c). */
int walk_prompts(struct openai_walk *p, const struct openai_key *k, uint32_t most,
                 struct openai_prompts *ret);

int openai_take_prompt(struct openai_walk *p, const struct openai_key *k);   /* openai_prompt.c */
int openai_take_messages(struct openai_walk *p, const struct openai_key *k); /* openai_messages.c */

/* Texts whose vectors are asked for (openai_prompt.c). */
int openai_take_input(struct openai_walk *p, const struct openai_key *k);
int openai_take_texts(struct openai_walk *p, const struct openai_key *k);
int openai_take_documents(struct openai_walk *p, const struct openai_key *k);
int openai_take_encoding(struct openai_walk *p, const struct openai_key *k);
int openai_settle_vectors(struct openai_walk *p);

/* Tools and reasoning (openai_tools.c). */
int openai_take_tools(struct openai_walk *p, const struct openai_key *k);
int openai_take_tool_choice(struct openai_walk *p, const struct openai_key *k);
int openai_take_parallel_calls(struct openai_walk *p, const struct openai_key *k);
int openai_settle_tools(struct openai_walk *p); /* checks them against each other and the grammar */

/* Grammars (openai_grammar.c), each in the way of its key. */
int openai_take_response_format(struct openai_walk *p, const struct openai_key *k);
int openai_take_structured(struct openai_walk *p, const struct openai_key *k);
int openai_take_schema(struct openai_walk *p, const struct openai_key *k);
int openai_take_regex(struct openai_walk *p, const struct openai_key *k);
int openai_take_gbnf(struct openai_walk *p, const struct openai_key *k);
int openai_take_choice(struct openai_walk *p, const struct openai_key *k);
