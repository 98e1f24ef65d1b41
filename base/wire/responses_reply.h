/* responses_reply.h - writes responses of /v1/responses in OpenAI's format, whole and as typed events.
 *
 * Layer:   base/wire (base/core)
 * Threads: one response, one thread
 * Order:   a stream is  response.created, response.in_progress, items ..., response.completed (or .incomplete). An
 *          item is  output_item.added, content_part.added, deltas ..., done events, output_item.done;  one is open at
 *          a time: a message, reasoning or a function_call. Events are numbered from 0
 * Memory:  a stream keeps its items, which its last event repeats; at most RESPONSES_ITEMS_BYTES_MAX
 * Errors:  sticky in out->rc and in responses_rc
 */
#pragma once
#include "base/wire/openai_reply.h"

#define RESPONSES_ITEMS_BYTES_MAX ((size_t)64 << 20)

enum responses_item {
    RESPONSES_NO_ITEM,
    RESPONSES_MESSAGE,
    RESPONSES_REASONING,
    RESPONSES_CALL,
};

/* The events of a stream so far; { 0 } is none. */
struct responses_events {
    enum responses_item open;
    uint32_t number, count; /* of events, of items */
    struct buf items;       /* those that are done, JSON with commas between them */
    struct buf text;        /* of the open item: its text, or the arguments of its call */
    struct buf name, call;  /* of an open call: the function, and the call's id */
};

void responses_fini(struct responses_events *v);
int responses_rc(const struct responses_events *v);

void responses_start(struct responses_events *v, const struct openai_reply *r, struct buf *out);

/* Appends to a message or to reasoning, which opens if it is not open yet. */
void responses_text(struct responses_events *v, const struct openai_reply *r,
                    enum responses_item kind, struct str text, struct buf *out);
void responses_call(struct responses_events *v, const struct openai_reply *r, struct str id,
                    struct str name, struct buf *out);
void responses_arguments(struct responses_events *v, const struct openai_reply *r, struct str json,
                         struct buf *out);

void responses_end(struct responses_events *v, const struct openai_reply *r, enum finish finish,
                   const struct usage *usage, struct buf *out);

/* Ends a stream that failed. */
void responses_error(struct responses_events *v, const struct openai_error *e, struct buf *out);

int responses_whole(const struct openai_reply *r, const struct openai_choice *choice,
                    const struct usage *usage, struct buf *out);
