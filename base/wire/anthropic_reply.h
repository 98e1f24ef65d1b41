/* anthropic_reply.h - writes responses of /v1/messages in Anthropic's format, whole and streamed, and its errors.
 *
 * Layer:   base/wire (base/core)
 * Threads: one response, one thread
 * Order:   a stream is  message_start, blocks ..., message_delta, message_stop;  a block is
 *          content_block_start, content_block_delta ..., content_block_stop. Blocks are numbered as they come, and
 *          one is open at a time: text, thinking or tool_use
 * Errors:  sticky in out->rc
 *
 * Prompt tokens that were in the cache are cache_read_input_tokens, and input_tokens are the others, as
 * Anthropic counts them; cache_creation_input_tokens is 0. A thinking block's signature is empty.
 */
#pragma once
#include "base/wire/openai_reply.h"

enum anthropic_block {
    ANTHROPIC_NO_BLOCK,
    ANTHROPIC_TEXT,
    ANTHROPIC_THINKING,
    ANTHROPIC_TOOL_USE,
};

/* The blocks of a stream so far; { 0 } is none. */
struct anthropic_blocks {
    enum anthropic_block open;
    uint32_t count;
};

/* `usage`: of the prompt, as far as it is known. */
void anthropic_start(const struct openai_reply *r, const struct usage *usage, struct buf *out);

/* Appends to a text or thinking block, which opens if it is not open yet. */
void anthropic_text(struct anthropic_blocks *b, enum anthropic_block kind, struct str text,
                    struct buf *out);
void anthropic_call(struct anthropic_blocks *b, struct str id, struct str name, struct buf *out);
void anthropic_arguments(struct anthropic_blocks *b, struct str json, struct buf *out);

/* Writes the end of a stream. `stopped` is the stop string that ended it, or empty. */
void anthropic_end(struct anthropic_blocks *b, const struct openai_reply *r, enum finish finish,
                   struct str stopped, const struct usage *usage, struct buf *out);

void anthropic_ping(struct buf *out);

/* Writes a whole response. A call whose arguments were cut off is left out: its input would be no object. */
int anthropic_whole(const struct openai_reply *r, const struct openai_choice *choice,
                    const struct usage *usage, struct buf *out);

/* Returns the form of a path's responses. */
enum reply_style reply_style_of(struct str path);

/* Appends an error object in the form of `style`: OpenAI's, or
 * {"type":"error","error":{"type","message"}} with Anthropic's types; then the same as an event of a stream. */
int reply_error(enum reply_style style, const struct openai_error *e, struct buf *out);
int reply_error_event(enum reply_style style, const struct openai_error *e, struct buf *out);
