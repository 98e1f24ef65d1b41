/* anthropic_reply.c - renders the events and messages of Anthropic's API, member by member in its order. */
#include "base/wire/anthropic_reply.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/wire/sse.h"

static const char *const block_names[] = {
    [ANTHROPIC_TEXT] = "text", [ANTHROPIC_THINKING] = "thinking", [ANTHROPIC_TOOL_USE] = "tool_use"
};

/* ---- events ---- */

static void put_usage(struct json_writer *w, const struct usage *usage)
{
    const uint32_t cached = min_u32(usage->cached_tokens, usage->prompt_tokens);
    json_key(w, "usage");
    json_object(w);
    json_kv_u64(w, "input_tokens", usage->prompt_tokens - cached);
    json_kv_u64(w, "cache_creation_input_tokens", 0);
    json_kv_u64(w, "cache_read_input_tokens", cached);
    json_kv_u64(w, "output_tokens", usage->generated_tokens);
    json_key(w, "output_tokens_details");
    json_object(w);
    json_kv_u64(w, "thinking_tokens", usage->reasoning_tokens);
    json_object_end(w);
    json_object_end(w);
}

/* Writes why the message ended; FINISH_NONE: it has not yet. */
static void put_stop(struct json_writer *w, enum finish finish, bool called, struct str stopped)
{
    const bool at_string = finish == FINISH_STOP && stopped.len > 0;
    json_kv_text(w, "stop_reason",
                 finish == FINISH_NONE     ? NULL
                 : finish == FINISH_LENGTH ? "max_tokens"
                 : at_string               ? "stop_sequence"
                 : called                  ? "tool_use"
                                           : "end_turn");
    json_key(w, "stop_sequence");
    if (at_string)
        json_put_str(w, stopped);
    else
        json_put_null(w);
}

static void put_head(struct json_writer *w, const struct openai_reply *r)
{
    char id[160] = "msg_"; /* a request id is at most 128 bytes */
    const size_t prefix = 4, rest = min_size(r->id.len, sizeof id - prefix);
    if (rest) memcpy(id + prefix, r->id.data, rest);
    json_kv_str(w, "id", str_of(id, prefix + rest));
    json_kv_text(w, "type", "message");
    json_kv_text(w, "role", "assistant");
    json_kv_str(w, "model", r->model);
    json_key(w, "content");
    json_array(w);
}

void anthropic_start(const struct openai_reply *r, const struct usage *usage, struct buf *out)
{
    struct json_writer w = sse_event_begin(out, "message_start");
    json_key(&w, "message");
    json_object(&w);
    put_head(&w, r);
    json_array_end(&w);
    put_stop(&w, FINISH_NONE, false, (struct str){ 0 });
    put_usage(&w, usage);
    json_object_end(&w);
    sse_event_end(&w);
}

static void close_block(struct anthropic_blocks *b, struct buf *out)
{
    if (b->open == ANTHROPIC_NO_BLOCK) return;
    struct json_writer w = sse_event_begin(out, "content_block_stop");
    json_kv_u64(&w, "index", b->count - 1);
    sse_event_end(&w);
    b->open = ANTHROPIC_NO_BLOCK;
}

/* Opens a block behind the one that is open; `id` and `name` are a call's. */
static void open_block(struct anthropic_blocks *b, enum anthropic_block kind, struct str id,
                       struct str name, struct buf *out)
{
    close_block(b, out);
    struct json_writer w = sse_event_begin(out, "content_block_start");
    json_kv_u64(&w, "index", b->count++);
    json_key(&w, "content_block");
    json_object(&w);
    json_kv_text(&w, "type", block_names[kind]);
    if (kind == ANTHROPIC_TOOL_USE) {
        json_kv_str(&w, "id", id);
        json_kv_str(&w, "name", name);
        json_key(&w, "input");
        json_object(&w);
        json_object_end(&w);
    } else {
        json_kv_text(&w, block_names[kind], "");
        if (kind == ANTHROPIC_THINKING) json_kv_text(&w, "signature", "");
    }
    json_object_end(&w);
    sse_event_end(&w);
    b->open = kind;
}

static void put_delta(const struct anthropic_blocks *b, const char *type, const char *member,
                      struct str text, struct buf *out)
{
    struct json_writer w = sse_event_begin(out, "content_block_delta");
    json_kv_u64(&w, "index", b->count - 1);
    json_key(&w, "delta");
    json_object(&w);
    json_kv_text(&w, "type", type);
    json_kv_str(&w, member, text);
    json_object_end(&w);
    sse_event_end(&w);
}

void anthropic_text(struct anthropic_blocks *b, enum anthropic_block kind, struct str text,
                    struct buf *out)
{
    if (text.len == 0) return;
    if (b->open != kind) open_block(b, kind, (struct str){ 0 }, (struct str){ 0 }, out);
    if (kind == ANTHROPIC_THINKING)
        put_delta(b, "thinking_delta", "thinking", text, out);
    else
        put_delta(b, "text_delta", "text", text, out);
}

void anthropic_call(struct anthropic_blocks *b, struct str id, struct str name, struct buf *out)
{
    open_block(b, ANTHROPIC_TOOL_USE, id, name, out);
}

void anthropic_arguments(struct anthropic_blocks *b, struct str json, struct buf *out)
{
    if (b->open != ANTHROPIC_TOOL_USE || json.len == 0) return;
    put_delta(b, "input_json_delta", "partial_json", json, out);
}

void anthropic_end(struct anthropic_blocks *b, const struct openai_reply *r, enum finish finish,
                   struct str stopped, const struct usage *usage, struct buf *out)
{
    close_block(b, out);
    struct json_writer w = sse_event_begin(out, "message_delta");
    json_key(&w, "delta");
    json_object(&w);
    put_stop(&w, finish, r->called, stopped);
    json_object_end(&w);
    put_usage(&w, usage);
    sse_event_end(&w);
    w = sse_event_begin(out, "message_stop");
    sse_event_end(&w);
}

void anthropic_ping(struct buf *out)
{
    struct json_writer w = sse_event_begin(out, "ping");
    sse_event_end(&w);
}

/* ---- whole ---- */

/* Reads a string, the value of the current key, into `ret`; false where it is none. */
static bool take_string(struct json_reader *r, struct buf *ret)
{
    buf_clear(ret);
    if (json_next(r) == JSON_STRING) return json_text(r, ret) == 0;
    json_skip_rest(r);
    return false;
}

static bool is_object(struct str json)
{
    struct json_reader r;
    json_reader_init(&r, json);
    return json_next(&r) == JSON_OBJECT && json_skip_rest(&r) == JSON_OBJECT_END &&
           json_next(&r) == JSON_END;
}

struct call_texts {
    struct buf id, name, arguments;
};

static void call_texts_fini(struct call_texts *t)
{
    buf_fini(&t->id);
    buf_fini(&t->name);
    buf_fini(&t->arguments);
}

/* Reads a call in OpenAI's form; the current token is its opening bracket. */
static void read_call(struct json_reader *r, struct call_texts *t)
{
    buf_clear(&t->id);
    buf_clear(&t->name);
    buf_clear(&t->arguments);
    while (json_next(r) == JSON_KEY) {
        if (json_key_is(r, "id")) {
            take_string(r, &t->id);
        } else if (!json_key_is(r, "function")) {
            json_skip(r);
        } else if (json_next(r) != JSON_OBJECT) {
            json_skip_rest(r);
        } else {
            while (json_next(r) == JSON_KEY) {
                if (json_key_is(r, "name"))
                    take_string(r, &t->name);
                else if (json_key_is(r, "arguments"))
                    take_string(r, &t->arguments);
                else
                    json_skip(r);
            }
        }
    }
}

static int put_calls(struct json_writer *w, struct str calls)
{
    CLEANUP(call_texts_fini) struct call_texts t = { 0 };
    struct json_reader r;
    if (calls.len == 0) return 0;
    json_reader_init(&r, calls);
    json_next(&r);
    while (json_next(&r) == JSON_OBJECT) {
        read_call(&r, &t);
        int rc = t.id.rc < 0 ? t.id.rc : t.name.rc < 0 ? t.name.rc : t.arguments.rc;
        if (rc < 0) return rc;
        /* A tool without parameters may be called with no arguments at all. */
        struct str input = t.arguments.len > 0 ? buf_view(&t.arguments) : STR("{}");
        if (!is_object(input)) continue;
        json_object(w);
        json_kv_text(w, "type", "tool_use");
        json_kv_str(w, "id", buf_view(&t.id));
        json_kv_str(w, "name", buf_view(&t.name));
        json_key(w, "input");
        json_put_raw(w, input);
        json_object_end(w);
    }
    return 0;
}

int anthropic_whole(const struct openai_reply *r, const struct openai_choice *choice,
                    const struct usage *usage, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    put_head(&w, r);
    if (choice->reasoning.len > 0) {
        json_object(&w);
        json_kv_text(&w, "type", "thinking");
        json_kv_str(&w, "thinking", choice->reasoning);
        json_kv_text(&w, "signature", "");
        json_object_end(&w);
    }
    if (choice->text.len > 0) {
        json_object(&w);
        json_kv_text(&w, "type", "text");
        json_kv_str(&w, "text", choice->text);
        json_object_end(&w);
    }
    int rc = put_calls(&w, choice->tool_calls);
    json_array_end(&w);
    put_stop(&w, choice->finish, choice->tool_calls.len > 0, choice->stopped);
    put_usage(&w, usage);
    json_object_end(&w);
    return rc < 0 ? rc : out->rc;
}

/* ---- errors ---- */

enum reply_style reply_style_of(struct str path)
{
    if (str_eq(path, STR("/v1/responses"))) return REPLY_RESPONSES;
    return str_starts(path, STR("/v1/messages")) ? REPLY_ANTHROPIC : REPLY_OPENAI;
}

/* Returns Anthropic's name of an error by its status; each status has one kind of error. */
static const char *error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 408:
        return "timeout_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    default:
        return status < 500 ? "invalid_request_error" : "api_error";
    }
}

int reply_error(enum reply_style style, const struct openai_error *e, struct buf *out)
{
    struct json_writer w;
    if (style != REPLY_ANTHROPIC) return openai_error_render(e, out);
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "type", "error");
    json_key(&w, "error");
    json_object(&w);
    json_kv_text(&w, "type", error_type(e->status));
    json_kv_text(&w, "message", e->message);
    json_object_end(&w);
    json_object_end(&w);
    return out->rc;
}

int reply_error_event(enum reply_style style, const struct openai_error *e, struct buf *out)
{
    buf_text(out, style == REPLY_ANTHROPIC ? "event: error\ndata: " : "data: ");
    reply_error(style, e, out);
    return buf_text(out, "\n\n");
}
