/* turn_output.h - takes a chat's output through the parser to the parts of the client's message.
 *
 * Layer:    engine/serve (base/text, base/wire)
 * Threads:  one at a time: a text worker makes the first output of a request, the loop has all later
 * Lifetime: several outputs of a request share its plan; each has a parser and a message of its own. The
 *           vocabulary and the message's reply outlive the output
 */
#pragma once
#include "base/text/dialogue/reasoning.h"
#include "base/text/tokenizer.h"
#include "base/wire/openai_calls.h"

struct turn_shared;

struct turn_output {
    struct turn_shared *shared;
    struct dialogue_parser parser;
    struct reasoning reasoning;
    struct openai_message message; /* its owner calls openai_message_init */
};

/* Plans how the output is parsed and bound; *ret is NULL where it is content as it is. Errors are turn_plan's. */
int turn_output_new(const struct dialogue *d, const struct vocab *v, const struct turn_ask *ask,
                    const struct ids *prompt, struct turn_output **ret, struct err *err);

/* Makes one for another output of the same request; NULL: no memory. */
struct turn_output *turn_output_another(const struct turn_output *t);
void turn_output_free(struct turn_output *t); /* NULL is allowed */

const struct turn *turn_output_plan(const struct turn_output *t);

/* Gives the parser more of the output, which is that of these ids and of some before them, or its end: what it held
 * becomes part of the message. */
void turn_output_push(struct turn_output *t, const uint32_t *ids, uint32_t count, struct str text);
void turn_output_end(struct turn_output *t);

/* A parser or message without memory cannot go on: its client must not take a part for the whole. */
bool turn_output_failed(const struct turn_output *t);

/* Returns an output as a choice that points into it: the parts of its message, or `text` where it is not parsed
 * (`t` NULL). Its logprobs and finish are the caller's. */
struct openai_choice turn_output_choice(struct turn_output *t, const struct buf *text);
