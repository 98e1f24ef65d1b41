/* anthropic.c - reads the keys of a Messages request, then writes them as those of a chat.
 */
#include "base/wire/anthropic.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/wire/chat_rewrite.h"

enum key {
    KEY_MODEL,
    KEY_MESSAGES,
    KEY_MAX_TOKENS,
    KEY_SYSTEM,
    KEY_STOP,
    KEY_STREAM,
    KEY_TEMPERATURE,
    KEY_TOP_P,
    KEY_TOP_K,
    KEY_TOOLS,
    KEY_TOOL_CHOICE,
    KEY_THINKING,
    KEY_OUTPUT,
    KEY_METADATA,
    KEY_TIER,
    KEY_CACHE,
    KEY_COUNT
};

static const char *const keys[KEY_COUNT] = {
    [KEY_MODEL] = "model",
    [KEY_MESSAGES] = "messages",
    [KEY_MAX_TOKENS] = "max_tokens",
    [KEY_SYSTEM] = "system",
    [KEY_STOP] = "stop_sequences",
    [KEY_STREAM] = "stream",
    [KEY_TEMPERATURE] = "temperature",
    [KEY_TOP_P] = "top_p",
    [KEY_TOP_K] = "top_k",
    [KEY_TOOLS] = "tools",
    [KEY_TOOL_CHOICE] = "tool_choice",
    [KEY_THINKING] = "thinking",
    [KEY_OUTPUT] = "output_config",
    [KEY_METADATA] = "metadata",
    [KEY_TIER] = "service_tier",
    [KEY_CACHE] = "cache_control", /* changes nothing: every prefix is cached */
};

/* Keys whose value goes to the chat as it stands, and the chat's name for it. */
static const struct {
    enum key key;
    const char *name;
} copied[] = {
    { KEY_MODEL, "model" },  { KEY_MAX_TOKENS, "max_tokens" }, { KEY_TEMPERATURE, "temperature" },
    { KEY_TOP_P, "top_p" },  { KEY_TOP_K, "top_k" },           { KEY_STOP, "stop" },
    { KEY_STREAM, "stream" }
};

/* ---- blocks ---- */

/* Refuses a kind of block that is not served in `where`. */
static int refuse_block(struct chat_rewrite *m, const char *where, struct str type)
{
    if (!slice_is_text(type))
        return CHAT_REFUSE(m, where, "%s: a block must be an object with a type.", where);
    type = slice_inside(type);
    return CHAT_UNSERVED(m, where, "%s: blocks of type \"%.*s\" are not served here.", where,
                         CHAT_SHOWN(type));
}

/* Reads a text: a string, or text blocks, joined by line breaks. */
static int text_of(struct chat_rewrite *m, const char *where, struct str raw, struct buf *ret)
{
    static const char *const names[] = { "type", "text" };
    struct str block, member[2];
    bool has = false;
    uint32_t count = 0;
    if (slice_is_text(raw)) return buf_str(ret, slice_inside(raw));
    if (!slice_is_a(raw, '['))
        return CHAT_REFUSE(m, where, "%s must be a string or an array of blocks.", where);
    for (struct json_reader r = slice_items(raw); slice_next(&r, &block);) {
        if (++count > ANTHROPIC_BLOCKS_MAX)
            return CHAT_REFUSE(m, where, "%s: more than %d blocks.", where, ANTHROPIC_BLOCKS_MAX);
        slice_members(block, names, member, COUNT_OF(names));
        if (!slice_says(member[0], "text")) return refuse_block(m, where, member[0]);
        if (!slice_is_text(member[1]))
            return CHAT_REFUSE(m, where, "%s: a text block without text.", where);
        chat_join(ret, &has, slice_inside(member[1]));
    }
    return ret->rc;
}

static int take_thinking(struct chat_rewrite *m, struct str block, struct chat_parts *p)
{
    static const char *const names[] = { "thinking" };
    struct str member[1];
    slice_members(block, names, member, COUNT_OF(names));
    if (!slice_is_text(member[0]))
        return CHAT_REFUSE(m, "messages", "messages: a thinking block without thinking.");
    chat_join(&p->thinking, &p->has_thinking, slice_inside(member[0]));
    return 0;
}

static int take_tool_use(struct chat_rewrite *m, struct str block, struct chat_parts *p)
{
    static const char *const names[] = { "id", "name", "input" };
    struct str member[3];
    struct json_writer w;
    slice_members(block, names, member, COUNT_OF(names));
    if (!slice_is_text(member[0]) || !slice_is_text(member[1]) || !slice_is_a(member[2], '{'))
        return CHAT_REFUSE(
            m, "messages",
            "messages: a tool_use block needs id and name, strings, and input, an object.");
    buf_text(&p->calls, p->calls.len > 0 ? "," : "[");
    json_writer_init(&w, &p->calls);
    json_object(&w);
    json_key(&w, "id");
    json_put_raw(&w, member[0]);
    json_kv_text(&w, "type", "function");
    json_key(&w, "function");
    json_object(&w);
    json_key(&w, "name");
    json_put_raw(&w, member[1]);
    json_kv_str(&w, "arguments", member[2]);
    json_object_end(&w);
    json_object_end(&w);
    return 0;
}

/* Writes what was gathered of a message of the user; nothing where there is no text. */
static int flush_user(struct chat_rewrite *m, struct chat_parts *p)
{
    int rc = p->text.rc;
    if (!p->has_text) return rc;
    json_object(&m->w);
    json_kv_text(&m->w, "role", "user");
    chat_put_escaped(m, "content", buf_view(&p->text));
    json_object_end(&m->w);
    buf_clear(&p->text);
    p->has_text = false;
    return rc;
}

/* Writes a tool's result as a message of its own, behind the user's text that stood before it. */
static int put_tool_result(struct chat_rewrite *m, struct str block, struct chat_parts *p)
{
    static const char *const names[] = { "tool_use_id", "content", "is_error" };
    CLEANUP(buf_fini) struct buf text = { .max = ANTHROPIC_CHAT_BYTES_MAX };
    struct str member[3];
    slice_members(block, names, member, COUNT_OF(names));
    if (!slice_is_text(member[0]))
        return CHAT_REFUSE(m, "messages", "messages: a tool_result block without tool_use_id.");
    if (member[2].len > 0 && !slice_is_a(member[2], 't') && !slice_is_a(member[2], 'f'))
        return CHAT_REFUSE(m, "messages",
                           "messages: is_error of a tool_result must be true or false.");
    if (slice_is_a(member[2], 't')) buf_text(&text, "Error: ");
    int rc = member[1].data ? text_of(m, "messages: tool_result.content", member[1], &text) : 0;
    if (rc < 0) return rc;
    rc = flush_user(m, p);
    if (rc < 0) return rc;
    json_object(&m->w);
    json_kv_text(&m->w, "role", "tool");
    json_key(&m->w, "tool_call_id");
    json_put_raw(&m->w, member[0]);
    chat_put_escaped(m, "content", buf_view(&text));
    json_object_end(&m->w);
    return 0;
}

static int take_block(struct chat_rewrite *m, struct str block, bool user, struct chat_parts *p)
{
    static const char *const names[] = { "type", "text" };
    struct str member[2];
    slice_members(block, names, member, COUNT_OF(names));
    if (slice_says(member[0], "text")) {
        if (!slice_is_text(member[1]))
            return CHAT_REFUSE(m, "messages", "messages: a text block without text.");
        chat_join(&p->text, &p->has_text, slice_inside(member[1]));
        return 0;
    }
    if (user && slice_says(member[0], "tool_result")) return put_tool_result(m, block, p);
    if (!user && slice_says(member[0], "tool_use")) return take_tool_use(m, block, p);
    if (!user && slice_says(member[0], "thinking")) return take_thinking(m, block, p);
    return refuse_block(m, "messages", member[0]);
}

/* ---- messages ---- */

static int put_message(struct chat_rewrite *m, struct str message, bool *ret_user)
{
    static const char *const names[] = { "role", "content" };
    CLEANUP(chat_parts_fini)
    struct chat_parts p = { .text.max = ANTHROPIC_CHAT_BYTES_MAX,
                            .thinking.max = ANTHROPIC_CHAT_BYTES_MAX,
                            .calls.max = ANTHROPIC_CHAT_BYTES_MAX };
    struct str member[2], block;
    uint32_t count = 0;
    int rc = 0;
    slice_members(message, names, member, COUNT_OF(names));
    const bool user = *ret_user = slice_says(member[0], "user");
    if (!user && !slice_says(member[0], "assistant"))
        return CHAT_REFUSE(
            m, "messages",
            "messages: a message needs the role \"user\" or \"assistant\"; instructions of "
            "the system go into system.");
    if (slice_is_text(member[1])) {
        chat_join(&p.text, &p.has_text, slice_inside(member[1]));
    } else if (!slice_is_a(member[1], '[')) {
        return CHAT_REFUSE(m, "messages",
                           "messages: content must be a string or an array of blocks.");
    }
    for (struct json_reader r = slice_items(member[1]); rc == 0 && slice_next(&r, &block);) {
        if (++count > ANTHROPIC_BLOCKS_MAX)
            return CHAT_REFUSE(m, "messages", "messages: more than %d blocks in one message.",
                               ANTHROPIC_BLOCKS_MAX);
        rc = take_block(m, block, user, &p);
    }
    if (rc < 0) return rc;
    return user ? flush_user(m, &p) : chat_put_assistant(m, &p);
}

static int put_messages(struct chat_rewrite *m)
{
    struct str message, system = m->value[KEY_SYSTEM];
    bool user = true;
    int rc = 0;
    if (!slice_is_a(m->value[KEY_MESSAGES], '['))
        return CHAT_REFUSE(m, "messages", "messages is missing, or is not an array.");
    json_key(&m->w, "messages");
    json_array(&m->w);
    if (system.data) {
        CLEANUP(buf_fini) struct buf text = { .max = ANTHROPIC_CHAT_BYTES_MAX };
        rc = text_of(m, "system", system, &text);
        if (rc < 0) return rc;
        json_object(&m->w);
        json_kv_text(&m->w, "role", "system");
        chat_put_escaped(m, "content", buf_view(&text));
        json_object_end(&m->w);
    }
    struct json_reader r = slice_items(m->value[KEY_MESSAGES]);
    while (rc == 0 && slice_next(&r, &message))
        rc = put_message(m, message, &user);
    if (rc < 0) return rc;
    if (!user)
        return CHAT_UNSERVED(
            m, "messages",
            "messages: the last one is the assistant's. An answer that goes on from a "
            "beginning is not served: end with a message of the user.");
    json_array_end(&m->w);
    return 0;
}

/* ---- tools ---- */

static int put_tool(struct chat_rewrite *m, struct str tool)
{
    static const char *const names[] = { "type", "name", "description", "input_schema", "strict" };
    static const char *const ours[] = { NULL, "name", "description", "parameters", "strict" };
    struct str member[5];
    slice_members(tool, names, member, COUNT_OF(names));
    if (member[0].data && !slice_says(member[0], "custom"))
        return CHAT_UNSERVED(m, "tools",
                             "tools: the type %.*s is not served; tools of the client are.",
                             CHAT_SHOWN(member[0]));
    if (!slice_is_text(member[1]) || !slice_is_a(member[3], '{'))
        return CHAT_REFUSE(m, "tools",
                           "tools: a tool needs name, a string, and input_schema, an object.");
    json_object(&m->w);
    json_kv_text(&m->w, "type", "function");
    json_key(&m->w, "function");
    json_object(&m->w);
    for (size_t i = 1; i < COUNT_OF(names); i++) {
        if (!member[i].data) continue;
        json_key(&m->w, ours[i]);
        json_put_raw(&m->w, member[i]);
    }
    json_object_end(&m->w);
    json_object_end(&m->w);
    return 0;
}

static int put_choice(struct chat_rewrite *m, struct str type, struct str name)
{
    if (slice_says(type, "auto") || slice_says(type, "any")) {
        json_kv_text(&m->w, "tool_choice", slice_says(type, "any") ? "required" : "auto");
        return 0;
    }
    if (!slice_says(type, "tool") || !slice_is_text(name))
        return CHAT_REFUSE(
            m, "tool_choice",
            "tool_choice: want {\"type\": \"auto\", \"any\" or \"none\"}, or {\"type\": "
            "\"tool\", \"name\": text}.");
    json_key(&m->w, "tool_choice");
    json_object(&m->w);
    json_kv_text(&m->w, "type", "function");
    json_key(&m->w, "function");
    json_object(&m->w);
    json_key(&m->w, "name");
    json_put_raw(&m->w, name);
    json_object_end(&m->w);
    json_object_end(&m->w);
    return 0;
}

static int put_tools(struct chat_rewrite *m)
{
    static const char *const names[] = { "type", "name", "disable_parallel_tool_use" };
    struct str member[3], tool, tools = m->value[KEY_TOOLS], choice = m->value[KEY_TOOL_CHOICE];
    slice_members(choice, names, member, COUNT_OF(names));
    if (tools.data && !slice_is_a(tools, '['))
        return CHAT_REFUSE(m, "tools", "tools must be an array of objects.");
    if (slice_says(member[0], "none")) return 0; /* the tools are not shown, either */
    if (tools.len > 0) {
        json_key(&m->w, "tools");
        json_array(&m->w);
        for (struct json_reader r = slice_items(tools); slice_next(&r, &tool);) {
            int rc = put_tool(m, tool);
            if (rc < 0) return rc;
        }
        json_array_end(&m->w);
    }
    if (!choice.data) return 0;
    if (member[2].data && !slice_is_a(member[2], 't') && !slice_is_a(member[2], 'f'))
        return CHAT_REFUSE(m, "tool_choice",
                           "tool_choice: disable_parallel_tool_use must be true or false.");
    if (slice_is_a(member[2], 't')) json_kv_bool(&m->w, "parallel_tool_calls", false);
    return put_choice(m, member[0], member[1]);
}

/* ---- thinking, form of the output, other keys ---- */

static bool is_budget(struct str value)
{
    struct json_reader r;
    uint64_t tokens = 0;
    json_reader_init(&r, value);
    return json_next(&r) == JSON_NUMBER && json_u64(&r, &tokens) == 0 && tokens >= 1 &&
           tokens <= OPENAI_TOKENS_MAX;
}

/* Gives the template what thinking and output_config.effort say, and the output its schema. */
static int put_manner(struct chat_rewrite *m)
{
    static const char *const thinking_names[] = { "type", "display", "budget_tokens" };
    static const char *const output_names[] = { "effort", "format" };
    static const char *const format_names[] = { "type", "schema" };
    struct str thinking[3], output[2], format[2], mode = m->value[KEY_THINKING];
    slice_members(mode, thinking_names, thinking, COUNT_OF(thinking_names));
    slice_members(m->value[KEY_OUTPUT], output_names, output, COUNT_OF(output_names));
    slice_members(output[1], format_names, format, COUNT_OF(format_names));
    const bool off = slice_says(thinking[0], "disabled");
    const bool on = slice_says(thinking[0], "enabled");
    if (on && !is_budget(thinking[2]))
        return CHAT_REFUSE(m, "thinking",
                           "thinking.budget_tokens must be a whole number of at least 1.");
    if (mode.data && !off && !on && !slice_says(thinking[0], "adaptive"))
        return CHAT_REFUSE(m, "thinking",
                           "thinking: want {\"type\": \"enabled\", \"adaptive\" or \"disabled\"}.");
    if (thinking[1].data)
        return CHAT_UNSERVED(m, "thinking",
                             "thinking.display is not served: thinking is sent whole.");
    if (output[0].data && !slice_is_text(output[0]))
        return CHAT_REFUSE(m, "output_config", "output_config.effort must be a string.");
    if (output[1].data && (!slice_says(format[0], "json_schema") || !slice_is_a(format[1], '{')))
        return CHAT_UNSERVED(
            m, "output_config",
            "output_config.format: {\"type\": \"json_schema\", \"schema\": object} is "
            "served.");
    if (mode.data || output[0].data) {
        json_key(&m->w, "chat_template_kwargs");
        json_object(&m->w);
        if (mode.data) json_kv_bool(&m->w, "enable_thinking", !off);
        if (output[0].data) json_key(&m->w, "reasoning_effort");
        if (output[0].data) json_put_raw(&m->w, output[0]);
        json_object_end(&m->w);
    }
    if (on) chat_put_member(m, "thinking_token_budget", thinking[2]);
    if (!output[1].data) return 0;
    json_key(&m->w, "response_format");
    json_object(&m->w);
    json_kv_text(&m->w, "type", "json_schema");
    json_key(&m->w, "json_schema");
    json_object(&m->w);
    json_kv_text(&m->w, "name", "output");
    json_key(&m->w, "schema");
    json_put_raw(&m->w, format[1]);
    json_object_end(&m->w);
    json_object_end(&m->w);
    return 0;
}

static int put_others(struct chat_rewrite *m)
{
    static const char *const names[] = { "user_id" };
    struct str user[1], tier = m->value[KEY_TIER];
    slice_members(m->value[KEY_METADATA], names, user, COUNT_OF(names));
    if (m->value[KEY_METADATA].data && !slice_is_a(m->value[KEY_METADATA], '{'))
        return CHAT_REFUSE(m, "metadata", "metadata must be an object.");
    if (tier.data && !slice_says(tier, "auto") && !slice_says(tier, "standard_only"))
        return CHAT_UNSERVED(m, "service_tier",
                             "service_tier: \"auto\" and \"standard_only\" are served.");
    if (m->value[KEY_STOP].data && !slice_is_a(m->value[KEY_STOP], '['))
        return CHAT_REFUSE(m, "stop_sequences", "stop_sequences must be an array of strings.");
    for (size_t i = 0; i < COUNT_OF(copied); i++) {
        chat_put_member(m, copied[i].name, m->value[copied[i].key]);
    }
    chat_put_member(m, "user", user[0]);
    return 0;
}

/* ---- the body ---- */

static int rewrite_all(struct chat_rewrite *m, enum anthropic_ask ask)
{
    if (ask == ANTHROPIC_MESSAGES && !m->value[KEY_MAX_TOKENS].data)
        return CHAT_REFUSE(m, "max_tokens", "max_tokens is missing.");
    json_object(&m->w);
    int rc = put_others(m);
    if (rc == 0) rc = put_manner(m);
    if (rc == 0) rc = put_tools(m);
    if (rc == 0) rc = put_messages(m);
    json_object_end(&m->w);
    return rc;
}

int anthropic_to_chat(enum anthropic_ask ask, struct str body, struct arena *arena, struct str *ret,
                      struct openai_error *e)
{
    struct str value[KEY_COUNT] = { { 0 } };
    struct chat_rewrite m = { .value = value, .e = e, .out.max = ANTHROPIC_CHAT_BYTES_MAX };
    json_writer_init(&m.w, &m.out);
    *e = (struct openai_error){ 0 };
    int rc = chat_find_keys(&m, body, keys, KEY_COUNT, false);
    if (rc == 0) rc = rewrite_all(&m, ask);
    return chat_rewrite_end(&m, rc, arena, ret);
}
