/* sse.h - frames server-sent events, and cuts byte streams into events and into lines of JSON.
 *
 * Layer:    base/wire (base/core)
 * Bounds:   a reader holds at most one line and one event, each up to the bound given at init
 * Lifetime: the text that a callback gets is borrowed for that call
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/json.h"

#define SSE_DONE STR("[DONE]") /* data of the last event of an OpenAI stream */

/* Appends "data: JSON\n\n". The data must hold no line break (the JSON that Muster writes has none). */
int sse_data(struct buf *out, struct str data);

/* Opens an event of a stream of named events: its name, and its object, which begins with the name as
 * its type. sse_event_end closes the object and the event. */
struct json_writer sse_event_begin(struct buf *out, const char *type);
void sse_event_end(struct json_writer *w);

/* Appends ": text\n\n", which clients skip: it keeps proxies from closing a quiet stream. */
int sse_comment(struct buf *out, struct str text);

/* Cuts a byte stream into lines at LF (a CR before it is dropped). A line longer than the bound is
 * -E2BIG. A negative result of the callback ends the feed and is returned. */
struct line_reader {
    struct buf held; /* the line that has not ended yet */
};
typedef int (*line_fn)(void *arg, struct str line);

void line_reader_init(struct line_reader *r, size_t line_bytes_max);
void line_reader_fini(struct line_reader *r);
int line_reader_feed(struct line_reader *r, struct str bytes, line_fn fn, void *arg);

/* Cuts a byte stream into events and passes on the joined data lines of each. Event names and ids are
 * skipped, as OpenAI streams do not use them. */
struct sse_reader {
    struct line_reader lines;
    struct buf data;
    bool has_data;
};

void sse_reader_init(struct sse_reader *r, size_t event_bytes_max);
void sse_reader_fini(struct sse_reader *r);
int sse_reader_feed(struct sse_reader *r, struct str bytes, line_fn fn, void *arg);
