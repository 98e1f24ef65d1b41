/* openai_calls.c - renders parts of messages as members of deltas, or gathers them.
 *
 * The arguments of a call are a JSON string that holds JSON. Whole, it is written while it comes: each piece is
 * escaped by itself, and the quote is closed when the call has ended. */
#include "base/wire/openai_calls.h"

#include "base/core/hash.h"
#include "base/core/json.h"
#include "base/core/own.h"

#define CALL_ID_CHARS 9

void openai_message_init(struct openai_message *m, const struct openai_reply *reply,
                         struct buf *out)
{
    *m = (struct openai_message){ .reply = reply, .out = out };
}

void openai_message_fini(struct openai_message *m)
{
    buf_fini(&m->text);
    buf_fini(&m->reasoning);
    buf_fini(&m->calls);
    buf_fini(&m->scratch);
    responses_fini(&m->events);
}

static bool is_anthropic(const struct openai_message *m)
{
    return m->out && m->reply->style == REPLY_ANTHROPIC;
}

/* Returns true for a stream of typed events. */
static bool is_typed(const struct openai_message *m)
{
    return m->out && m->reply->style == REPLY_RESPONSES;
}

static void make_id(const struct openai_message *m, uint32_t index, char id[CALL_ID_CHARS])
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    uint64_t left =
        hash64(m->reply->id.data, m->reply->id.len, (uint64_t)m->reply->index << 32 | (index + 1));
    for (size_t i = 0; i < CALL_ID_CHARS; i++, left /= 36)
        id[i] = digits[left % 36];
}

static struct json_writer write_scratch(struct openai_message *m)
{
    struct json_writer w;
    buf_clear(&m->scratch);
    json_writer_init(&w, &m->scratch);
    return w;
}

static void put_member(struct openai_message *m, const char *name)
{
    openai_chunk_member(m->reply, name, buf_view(&m->scratch), m->out);
}

static void put_text(struct openai_message *m, const char *name, struct str text)
{
    struct json_writer w = write_scratch(m);
    json_put_str(&w, text);
    put_member(m, name);
}

void openai_message_start(struct openai_message *m, const struct usage *usage)
{
    if (is_typed(m))
        responses_start(&m->events, m->reply, m->out);
    else
        anthropic_start(m->reply, usage, m->out);
}

void openai_message_end(struct openai_message *m, enum finish finish, struct str stopped,
                        const struct usage *usage)
{
    if (is_typed(m))
        responses_end(&m->events, m->reply, finish, usage, m->out);
    else
        anthropic_end(&m->blocks, m->reply, finish, stopped, usage, m->out);
}

void openai_message_error(struct openai_message *m, const struct openai_error *e, struct buf *out)
{
    if (is_typed(m))
        responses_error(&m->events, e, out);
    else
        reply_error_event(m->reply->style, e, out);
}

void openai_message_text(struct openai_message *m, struct str text)
{
    if (is_anthropic(m))
        anthropic_text(&m->blocks, ANTHROPIC_TEXT, text, m->out);
    else if (is_typed(m))
        responses_text(&m->events, m->reply, RESPONSES_MESSAGE, text, m->out);
    else if (m->out)
        put_text(m, "content", text);
    else
        buf_str(&m->text, text);
}

void openai_message_reasoning(struct openai_message *m, struct str text)
{
    if (is_anthropic(m))
        anthropic_text(&m->blocks, ANTHROPIC_THINKING, text, m->out);
    else if (is_typed(m))
        responses_text(&m->events, m->reply, RESPONSES_REASONING, text, m->out);
    else if (m->out)
        put_text(m, "reasoning_content", text);
    else
        buf_str(&m->reasoning, text);
}

static void close_call(struct openai_message *m)
{
    if (m->call_open) buf_text(&m->calls, "\"}}");
    m->call_open = false;
}

void openai_message_call(struct openai_message *m, uint32_t index, struct str name)
{
    char id[CALL_ID_CHARS];
    m->call_count++;
    make_id(m, index, id);
    if (is_anthropic(m)) {
        anthropic_call(&m->blocks, str_of(id, sizeof id), name, m->out);
        return;
    }
    if (is_typed(m)) {
        responses_call(&m->events, m->reply, str_of(id, sizeof id), name, m->out);
        return;
    }
    struct json_writer w = write_scratch(m);
    if (m->out) json_array(&w);
    json_object(&w);
    if (m->out) json_kv_u64(&w, "index", index);
    json_kv_str(&w, "id", str_of(id, sizeof id));
    json_kv_text(&w, "type", "function");
    json_key(&w, "function");
    json_object(&w);
    json_kv_str(&w, "name", name);
    json_kv_text(&w, "arguments", "");
    json_object_end(&w);
    json_object_end(&w);
    if (m->out) {
        json_array_end(&w);
        put_member(m, "tool_calls");
        return;
    }
    close_call(m);
    buf_text(&m->calls, m->calls.len == 0 ? "[" : ",");
    if (m->scratch.rc == 0) buf_append(&m->calls, m->scratch.data, m->scratch.len - 3);
    m->call_open = true;
}

void openai_message_arguments(struct openai_message *m, uint32_t index, struct str json)
{
    if (is_anthropic(m)) {
        anthropic_arguments(&m->blocks, json, m->out);
        return;
    }
    if (is_typed(m)) {
        responses_arguments(&m->events, m->reply, json, m->out);
        return;
    }
    struct json_writer w = write_scratch(m);
    if (!m->out) {
        json_put_str(&w, json);
        if (m->scratch.rc == 0) buf_append(&m->calls, m->scratch.data + 1, m->scratch.len - 2);
        return;
    }
    json_array(&w);
    json_object(&w);
    json_kv_u64(&w, "index", index);
    json_key(&w, "function");
    json_object(&w);
    json_kv_str(&w, "arguments", json);
    json_object_end(&w);
    json_object_end(&w);
    json_array_end(&w);
    put_member(m, "tool_calls");
}

/* Reads a piece of a call: the first has a name, all may have arguments. The current token is its opening
 * bracket. */
static int take_piece(struct openai_message *m, struct json_reader *r, struct buf *name,
                      struct buf *arguments)
{
    uint64_t index = 0;
    int rc = 0;
    buf_clear(name);
    buf_clear(arguments);
    while (rc == 0 && json_next(r) == JSON_KEY) {
        bool is_index = json_key_is(r, "index"), function = json_key_is(r, "function");
        enum json_token t = json_next(r);
        if (is_index && json_u64(r, &index) < 0) rc = -EINVAL;
        if (!function || t != JSON_OBJECT) {
            json_skip_rest(r);
            continue;
        }
        while (rc == 0 && json_next(r) == JSON_KEY) {
            struct buf *to = json_key_is(r, "name")        ? name
                             : json_key_is(r, "arguments") ? arguments
                                                           : NULL;
            t = json_next(r);
            if (to && t == JSON_STRING) rc = json_text(r, to);
            json_skip_rest(r);
        }
    }
    if (rc < 0 || r->token != JSON_OBJECT_END || index > UINT32_MAX) return rc < 0 ? rc : -EINVAL;
    if (name->len > 0) openai_message_call(m, (uint32_t)index, buf_view(name));
    if (arguments->len > 0) openai_message_arguments(m, (uint32_t)index, buf_view(arguments));
    return 0;
}

int openai_message_delta(struct openai_message *m, struct str reasoning, struct str tool_calls)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf more = { 0 };
    struct json_reader r;
    int rc = 0;
    json_reader_init(&r, reasoning);
    if (reasoning.len > 0) rc = json_next(&r) == JSON_STRING ? json_text(&r, &text) : -EINVAL;
    if (rc == 0 && text.len > 0) openai_message_reasoning(m, buf_view(&text));
    if (rc < 0 || tool_calls.len == 0) return rc;
    json_reader_init(&r, tool_calls);
    json_next(&r);
    while (rc == 0 && json_next(&r) == JSON_OBJECT)
        rc = take_piece(m, &r, &text, &more);
    return rc < 0 || r.token == JSON_ARRAY_END ? rc : -EINVAL;
}

int openai_message_rc(const struct openai_message *m)
{
    int rc = m->scratch.rc < 0 ? m->scratch.rc : m->text.rc;
    rc = rc < 0 ? rc : m->reasoning.rc;
    rc = rc < 0 ? rc : responses_rc(&m->events);
    return rc < 0 ? rc : m->calls.rc;
}

struct openai_choice openai_message_choice(struct openai_message *m)
{
    if (m->call_open) {
        close_call(m);
        buf_byte(&m->calls, ']');
    }
    return (struct openai_choice){ .text = buf_view(&m->text),
                                   .reasoning = buf_view(&m->reasoning),
                                   .tool_calls = buf_view(&m->calls) };
}
