/* sse.h - server-sent events and lines of JSON, framed and unframed.
 *
 * Layer:    base/wire (base/core)
 * Bounds:   a reader holds at most one line (lines_max) and one event (the same bound)
 * Lifetime: what a callback gets is borrowed for that call
 */
#pragma once
#include "base/core/buf.h"

#define SSE_DONE STR("[DONE]") /* data of the last event of an OpenAI stream */

/* "data: JSON\n\n". The data holds no line break (JSON text has none outside of strings). */
int sse_data(struct buf *out, struct str data);

/* ": text\n\n", which clients skip: keeps proxies from closing a quiet stream. */
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

/* Cuts a byte stream into events; gives the joined data lines of each (event names and ids are
 * not used by OpenAI streams and are skipped). */
struct sse_reader {
    struct line_reader lines;
    struct buf data;
    bool has_data;
};

void sse_reader_init(struct sse_reader *r, size_t event_bytes_max);
void sse_reader_fini(struct sse_reader *r);
int sse_reader_feed(struct sse_reader *r, struct str bytes, line_fn fn, void *arg);
