/* sse.c - frames server-sent events, and reads lines and events from byte streams. */
#include "base/wire/sse.h"

#include <errno.h>

int sse_data(struct buf *out, struct str data)
{
    buf_text(out, "data: ");
    buf_str(out, data);
    return buf_text(out, "\n\n");
}

struct json_writer sse_event_begin(struct buf *out, const char *type)
{
    struct json_writer w;
    buf_text(out, "event: ");
    buf_text(out, type);
    buf_text(out, "\ndata: ");
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "type", type);
    return w;
}

void sse_event_end(struct json_writer *w)
{
    json_object_end(w);
    buf_text(w->out, "\n\n");
}

int sse_comment(struct buf *out, struct str text)
{
    buf_text(out, ": ");
    buf_str(out, text);
    return buf_text(out, "\n\n");
}

void line_reader_init(struct line_reader *r, size_t line_bytes_max)
{
    buf_init(&r->held, line_bytes_max);
}

void line_reader_fini(struct line_reader *r)
{
    buf_fini(&r->held);
}

static struct str without_cr(struct str line)
{
    if (str_ends(line, STR("\r"))) line.len--;
    return line;
}

int line_reader_feed(struct line_reader *r, struct str bytes, line_fn fn, void *arg)
{
    size_t bound = r->held.max ? r->held.max : BUF_BYTES_MAX;
    while (bytes.len) {
        const char *end = memchr(bytes.data, '\n', bytes.len);
        size_t n = end ? (size_t)(end - bytes.data) : bytes.len;
        struct str part = str_of(bytes.data, n);
        int rc = 0;
        /* A line that lies whole in the input is passed on without a copy. */
        if (!end || r->held.len) {
            rc = buf_str(&r->held, part);
            part = buf_view(&r->held);
        }
        if (rc < 0) return rc;
        if (!end) return 0;
        if (part.len > bound) return -E2BIG;
        rc = fn(arg, without_cr(part));
        if (rc < 0) return rc;
        buf_clear(&r->held);
        bytes = str_of(end + 1, bytes.len - n - 1);
    }
    return 0;
}

void sse_reader_init(struct sse_reader *r, size_t event_bytes_max)
{
    line_reader_init(&r->lines, event_bytes_max);
    buf_init(&r->data, event_bytes_max);
    r->has_data = false;
}

void sse_reader_fini(struct sse_reader *r)
{
    line_reader_fini(&r->lines);
    buf_fini(&r->data);
}

struct sse_call {
    struct sse_reader *r;
    line_fn fn;
    void *arg;
};

/* Reads a line of the stream: data is kept, an empty line ends the event, all else is skipped. */
static int sse_line(void *arg, struct str line)
{
    struct sse_call *call = arg;
    struct sse_reader *r = call->r;
    if (line.len == 0) {
        if (!r->has_data) return 0;
        r->has_data = false;
        int rc = call->fn(call->arg, buf_view(&r->data));
        buf_clear(&r->data);
        return rc;
    }
    struct str name = str_cut(&line, ':');
    if (!str_eq(name, STR("data"))) return 0;
    if (str_starts(line, STR(" "))) line = str_of(line.data + 1, line.len - 1);
    if (r->has_data) buf_byte(&r->data, '\n');
    r->has_data = true;
    return buf_str(&r->data, line);
}

int sse_reader_feed(struct sse_reader *r, struct str bytes, line_fn fn, void *arg)
{
    struct sse_call call = { r, fn, arg };
    return line_reader_feed(&r->lines, bytes, sse_line, &call);
}
