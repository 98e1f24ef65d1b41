/* openai_calls.h - writes the parts of a chat's message as they come: reasoning, content, tool calls.
 *
 * Layer:    base/wire (base/core)
 * Threads:  one message, one thread
 * Lifetime: the reply outlives the message
 * Errors:   sticky: openai_message_rc
 *
 * Streamed, each part is a chunk in `out`; whole, the parts gather here until openai_message_choice. The id of a call
 * is nine letters and digits (Mistral's templates take no other), made of the reply's id, the output's and the call's
 * index, so that it is the same on whatever engine the output goes on.
 */
#pragma once
#include "base/wire/anthropic_reply.h"
#include "base/wire/responses_reply.h"

struct openai_message {
    const struct openai_reply *reply;
    struct buf *out; /* of a stream; NULL: the response is whole */
    struct buf text, reasoning, calls;
    struct buf scratch;
    uint32_t call_count;
    bool call_open;
    struct anthropic_blocks blocks; /* of a stream in Anthropic's form */
    struct responses_events events; /* of a stream of REPLY_RESPONSES */
};

void openai_message_init(struct openai_message *m, const struct openai_reply *reply,
                         struct buf *out);
void openai_message_fini(struct openai_message *m); /* { 0 } is allowed */

/* The first event of a stream in another form than that of chunks, and its end: the caller has the chunks of
 * them. */
void openai_message_start(struct openai_message *m, const struct usage *usage);
void openai_message_end(struct openai_message *m, enum finish finish, struct str stopped,
                        const struct usage *usage);

/* Appends the event that ends a stream that failed, in any form. */
void openai_message_error(struct openai_message *m, const struct openai_error *e, struct buf *out);

void openai_message_text(struct openai_message *m, struct str text);
void openai_message_reasoning(struct openai_message *m, struct str text);
void openai_message_call(struct openai_message *m, uint32_t index, struct str name);
void openai_message_arguments(struct openai_message *m, uint32_t index, struct str json);

/* Takes what another engine's chunk says: its text of reasoning, a JSON string, and its tool_calls, an array of
 * pieces of calls; each empty where there is none. -EINVAL: neither. */
int openai_message_delta(struct openai_message *m, struct str reasoning, struct str tool_calls);

int openai_message_rc(const struct openai_message *m);

/* Returns the whole message as a choice, which points into it; its logprobs and finish are the caller's. */
struct openai_choice openai_message_choice(struct openai_message *m);
