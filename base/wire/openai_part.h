/* openai_part.h - the walk over a request's body, which openai.c and openai_messages.c share.
 *
 * Layer: base/wire, private to openai*.c
 */
#pragma once
#include "base/core/json.h"
#include "base/wire/openai.h"

struct openai_walk {
    struct json_reader r;
    struct arena *arena;
    struct openai_error *e;
    struct openai_request req;
    const char *key;                /* of the body, whose value is being read; NULL: none of ours */
    uint32_t max_completion_tokens; /* 0: absent */
    bool has_stream_options;
    bool tools_off; /* tool_choice "none" */
};

#define INVALID(p, param, ...) openai_error_set((p)->e, -EINVAL, OPENAI_INVALID, param, __VA_ARGS__)
#define UNSERVED(p, param, ...) \
    openai_error_set((p)->e, -EINVAL, OPENAI_UNSUPPORTED, param, __VA_ARGS__)

/* These fill the error and return its code. `name` is the key, for the sentence. */
int openai_broken_json(struct openai_walk *p);
int openai_wrong_type(struct openai_walk *p, const char *name, const char *wanted);
int openai_no_memory(struct openai_walk *p, const char *name);

/* Items of the array whose opening bracket is the current token; more than `most` are refused. */
int openai_count_items(struct openai_walk *p, const char *name, uint32_t most, uint32_t *ret);

/* The reader stands on the value of "messages". */
int openai_take_messages(struct openai_walk *p);
