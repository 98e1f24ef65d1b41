/* turn_answer.h - takes a chat's output through the parser to the parts of the client's message.
 *
 * Layer:    engine/serve (base/text, base/wire)
 * Threads:  made on a text worker or the loop, then the loop's
 * Lifetime: the vocabulary outlives the making; the message's reply outlives the answer
 */
#pragma once
#include "base/text/dialogue/turn.h"
#include "base/text/tokenizer.h"
#include "base/wire/openai_calls.h"

struct turn_answer {
    struct turn turn;
    struct arena arena; /* names of tools */
    struct dialogue_parser parser;
    struct openai_message message; /* its owner calls openai_message_init */
};

/* Plans the turn. *ret is NULL where the output is content, byte for byte. Errors: turn_plan's. */
int turn_answer_new(const struct dialogue *d, const struct vocab *v, const struct turn_ask *ask,
                    const struct ids *prompt, struct turn_answer **ret, struct err *err);
void turn_answer_free(struct turn_answer *t);

/* Parses more of the output; its end. Errors stick: turn_answer_failed. */
void turn_answer_push(struct turn_answer *t, struct str text);
void turn_answer_end(struct turn_answer *t);

/* Without memory it cannot go on: its client must not take a part for the whole. */
bool turn_answer_failed(const struct turn_answer *t);
