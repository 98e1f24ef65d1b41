/* openai_calls.c - renders parts of messages as members of deltas, or gathers them.
 *
 * The arguments of a call are a JSON string that holds JSON. Whole, it is written while it comes: each piece is
 * escaped by itself, and the quote is closed when the call has ended. */
#include "base/wire/openai_calls.h"

#include "base/core/hash.h"
#include "base/core/json.h"

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
}

static void put_id(const struct openai_message *m, uint32_t index, struct json_writer *w)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    char id[CALL_ID_CHARS];
    uint64_t left =
        hash64(m->reply->id.data, m->reply->id.len, (uint64_t)m->reply->index << 32 | (index + 1));
    for (size_t i = 0; i < sizeof id; i++, left /= 36)
        id[i] = digits[left % 36];
    json_kv_str(w, "id", str_of(id, sizeof id));
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

void openai_message_text(struct openai_message *m, struct str text)
{
    if (m->out)
        put_text(m, "content", text);
    else
        buf_str(&m->text, text);
}

void openai_message_reasoning(struct openai_message *m, struct str text)
{
    if (m->out)
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
    struct json_writer w = write_scratch(m);
    m->call_count++;
    if (m->out) json_array(&w);
    json_object(&w);
    if (m->out) json_kv_u64(&w, "index", index);
    put_id(m, index, &w);
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

int openai_message_rc(const struct openai_message *m)
{
    int rc = m->scratch.rc < 0 ? m->scratch.rc : m->text.rc;
    rc = rc < 0 ? rc : m->reasoning.rc;
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
