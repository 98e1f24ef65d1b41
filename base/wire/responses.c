/* responses.c - reads the keys of a request for a response, then writes them as those of a chat. */
#include "base/wire/responses.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/wire/chat_rewrite.h"

enum key {
    KEY_MODEL,
    KEY_INPUT,
    KEY_INSTRUCTIONS,
    KEY_TOOLS,
    KEY_TOOL_CHOICE,
    KEY_PARALLEL,
    KEY_TEXT,
    KEY_REASONING,
    KEY_MAX_TOKENS,
    KEY_TEMPERATURE,
    KEY_TOP_P,
    KEY_STREAM,
    KEY_METADATA,
    KEY_USER,
    KEY_GROUP,
    KEY_TIER,
    KEY_TRUNCATION,
    KEY_INCLUDE,
    KEY_STORE,
    KEY_BACKGROUND,
    KEY_PREVIOUS,
    KEY_CONVERSATION,
    KEY_PROMPT,
    KEY_TOP_LOGPROBS,
    KEY_MAX_CALLS,
    /* not OpenAI's: those of other servers */
    KEY_TOP_K,
    KEY_MIN_P,
    KEY_SEED,
    KEY_STOP,
    KEY_REPETITION,
    KEY_IGNORE_EOS,
    KEY_MIN_TOKENS,
    KEY_KWARGS,
    KEY_BIAS,
    KEY_BUDGET,
    KEY_COUNT
};

static const char *const keys[KEY_COUNT] = {
    [KEY_MODEL] = "model",
    [KEY_INPUT] = "input",
    [KEY_INSTRUCTIONS] = "instructions",
    [KEY_TOOLS] = "tools",
    [KEY_TOOL_CHOICE] = "tool_choice",
    [KEY_PARALLEL] = "parallel_tool_calls",
    [KEY_TEXT] = "text",
    [KEY_REASONING] = "reasoning",
    [KEY_MAX_TOKENS] = "max_output_tokens",
    [KEY_TEMPERATURE] = "temperature",
    [KEY_TOP_P] = "top_p",
    [KEY_STREAM] = "stream",
    [KEY_METADATA] = "metadata",
    [KEY_USER] = "user",
    [KEY_GROUP] = "prompt_cache_key",
    [KEY_TIER] = "service_tier",
    [KEY_TRUNCATION] = "truncation",
    [KEY_INCLUDE] = "include",
    [KEY_STORE] = "store",
    [KEY_BACKGROUND] = "background",
    [KEY_PREVIOUS] = "previous_response_id",
    [KEY_CONVERSATION] = "conversation",
    [KEY_PROMPT] = "prompt",
    [KEY_TOP_LOGPROBS] = "top_logprobs",
    [KEY_MAX_CALLS] = "max_tool_calls",
    [KEY_TOP_K] = "top_k",
    [KEY_MIN_P] = "min_p",
    [KEY_SEED] = "seed",
    [KEY_STOP] = "stop",
    [KEY_REPETITION] = "repetition_penalty",
    [KEY_IGNORE_EOS] = "ignore_eos",
    [KEY_MIN_TOKENS] = "min_tokens",
    [KEY_KWARGS] = "chat_template_kwargs",
    [KEY_BIAS] = "logit_bias",
    [KEY_BUDGET] = "thinking_token_budget",
};

/* Keys whose value goes to the chat as it stands, and the chat's name for it. */
static const struct {
    enum key key;
    const char *name;
} copied[] = {
    { KEY_MODEL, "model" },
    { KEY_MAX_TOKENS, "max_tokens" },
    { KEY_TEMPERATURE, "temperature" },
    { KEY_TOP_P, "top_p" },
    { KEY_STREAM, "stream" },
    { KEY_USER, "user" },
    { KEY_GROUP, "prompt_cache_key" },
    { KEY_TOP_K, "top_k" },
    { KEY_MIN_P, "min_p" },
    { KEY_SEED, "seed" },
    { KEY_STOP, "stop" },
    { KEY_REPETITION, "repetition_penalty" },
    { KEY_IGNORE_EOS, "ignore_eos" },
    { KEY_MIN_TOKENS, "min_tokens" },
    { KEY_KWARGS, "chat_template_kwargs" },
    { KEY_BIAS, "logit_bias" },
    { KEY_BUDGET, "thinking_token_budget" },
};

/* Keys that are not served but with some values, separated by |, and why not. */
static const struct {
    enum key key;
    const char *only, *why;
} bound[] = {
    { KEY_STORE, "false", "responses are not stored" },
    { KEY_BACKGROUND, "false", "responses are not stored" },
    { KEY_PREVIOUS, "", "responses are not stored: send the whole conversation as input" },
    { KEY_CONVERSATION, "", "conversations are not stored: send the whole conversation as input" },
    { KEY_PROMPT, "", "prompts are not stored: send instructions and input" },
    { KEY_TRUNCATION, "\"disabled\"", "an input that does not fit is refused, not cut" },
    { KEY_TIER, "\"auto\"|\"default\"", "there is one tier" },
    { KEY_TOP_LOGPROBS, "0", "ask /v1/chat/completions for log-probabilities" },
    { KEY_MAX_CALLS, "", "the server runs no tools" },
};

/* ---- items of the input ---- */

static bool is_text_part(struct str type)
{
    static const char *const kinds[] = { "input_text", "output_text", "text", "summary_text",
                                         "reasoning_text" };
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (slice_says(type, kinds[i])) return true;
    return false;
}

/* Appends a text: a string, or parts that are texts, joined by line breaks. */
static int text_of(struct chat_rewrite *m, const char *where, struct str raw, struct buf *ret,
                   bool *has)
{
    static const char *const names[] = { "type", "text", "refusal" };
    struct str part, member[3];
    uint32_t count = 0;
    if (slice_is_text(raw)) {
        chat_join(ret, has, slice_inside(raw));
        return 0;
    }
    if (!slice_is_a(raw, '['))
        return CHAT_REFUSE(m, "input", "input: %s must be a string or an array of parts.", where);
    for (struct json_reader r = slice_items(raw); slice_next(&r, &part);) {
        if (++count > RESPONSES_PARTS_MAX)
            return CHAT_REFUSE(m, "input", "input: more than %d parts in one item.",
                               RESPONSES_PARTS_MAX);
        slice_members(part, names, member, COUNT_OF(names));
        const bool refusal = slice_says(member[0], "refusal");
        if (!refusal && !is_text_part(member[0]))
            return CHAT_UNSERVED(m, "input", "input: parts of type %.*s are not served in %s.",
                                 CHAT_SHOWN(member[0]), where);
        struct str text = member[refusal ? 2 : 1];
        if (!slice_is_text(text))
            return CHAT_REFUSE(m, "input", "input: a part of %s without text.", where);
        chat_join(ret, has, slice_inside(text));
    }
    return ret->rc;
}

/* Writes the assistant's message that was gathered, if there is one. */
static int flush(struct chat_rewrite *m, struct chat_parts *t)
{
    if (!t->has_text && !t->has_thinking && t->calls.len == 0) return 0;
    return chat_put_assistant(m, t);
}

static int take_message(struct chat_rewrite *m, struct str role, struct str content,
                        struct chat_parts *t)
{
    static const char *const roles[] = { "user", "system", "developer" };
    CLEANUP(buf_fini) struct buf text = { .max = RESPONSES_CHAT_BYTES_MAX };
    bool has = false, known = slice_says(role, "assistant");
    if (known && (t->has_text || t->calls.len > 0)) {
        int rc = flush(m, t);
        if (rc < 0) return rc;
    }
    if (known) return text_of(m, "a message", content, &t->text, &t->has_text);
    for (size_t i = 0; i < COUNT_OF(roles); i++)
        known |= slice_says(role, roles[i]);
    if (!known)
        return CHAT_REFUSE(m, "input",
                           "input: a message needs the role user, assistant, system or developer.");
    int rc = flush(m, t);
    if (rc == 0) rc = text_of(m, "a message", content, &text, &has);
    if (rc < 0) return rc;
    json_object(&m->w);
    chat_put_member(m, "role", role);
    chat_put_escaped(m, "content", buf_view(&text));
    json_object_end(&m->w);
    return 0;
}

static int take_call(struct chat_rewrite *m, struct str item, struct chat_parts *t)
{
    static const char *const names[] = { "call_id", "name", "arguments" };
    struct str member[3];
    struct json_writer w;
    slice_members(item, names, member, COUNT_OF(names));
    if (!slice_is_text(member[0]) || !slice_is_text(member[1]) || !slice_is_text(member[2]))
        return CHAT_REFUSE(m, "input",
                           "input: a function_call needs call_id, name and arguments, strings.");
    buf_text(&t->calls, t->calls.len > 0 ? "," : "[");
    json_writer_init(&w, &t->calls);
    json_object(&w);
    json_key(&w, "id");
    json_put_raw(&w, member[0]);
    json_kv_text(&w, "type", "function");
    json_key(&w, "function");
    json_object(&w);
    json_key(&w, "name");
    json_put_raw(&w, member[1]);
    json_key(&w, "arguments");
    json_put_raw(&w, member[2]);
    json_object_end(&w);
    json_object_end(&w);
    return 0;
}

static int take_output(struct chat_rewrite *m, struct str item, struct chat_parts *t)
{
    static const char *const names[] = { "call_id", "output" };
    CLEANUP(buf_fini) struct buf text = { .max = RESPONSES_CHAT_BYTES_MAX };
    struct str member[2];
    bool has = false;
    slice_members(item, names, member, COUNT_OF(names));
    if (!slice_is_text(member[0]))
        return CHAT_REFUSE(m, "input", "input: a function_call_output without call_id.");
    int rc = flush(m, t);
    if (rc == 0) rc = text_of(m, "output of a function_call_output", member[1], &text, &has);
    if (rc < 0) return rc;
    json_object(&m->w);
    json_kv_text(&m->w, "role", "tool");
    chat_put_member(m, "tool_call_id", member[0]);
    chat_put_escaped(m, "content", buf_view(&text));
    json_object_end(&m->w);
    return 0;
}

static int take_reasoning(struct chat_rewrite *m, struct str item, struct chat_parts *t)
{
    static const char *const names[] = { "content", "summary" };
    struct str member[2];
    slice_members(item, names, member, COUNT_OF(names));
    if (t->has_text || t->calls.len > 0) {
        int rc = flush(m, t);
        if (rc < 0) return rc;
    }
    struct str said = member[0].data ? member[0] : member[1];
    return said.data ? text_of(m, "a reasoning item", said, &t->thinking, &t->has_thinking) : 0;
}

static int take_item(struct chat_rewrite *m, struct str item, struct chat_parts *t)
{
    static const char *const names[] = { "type", "role", "content" };
    struct str member[3];
    slice_members(item, names, member, COUNT_OF(names));
    const struct str type = member[0];
    if (slice_says(type, "message") || (!type.data && member[1].data))
        return take_message(m, member[1], member[2], t);
    if (slice_says(type, "function_call")) return take_call(m, item, t);
    if (slice_says(type, "function_call_output")) return take_output(m, item, t);
    if (slice_says(type, "reasoning")) return take_reasoning(m, item, t);
    if (!slice_is_text(type))
        return CHAT_REFUSE(m, "input", "input: an item needs a role or a type.");
    return CHAT_UNSERVED(m, "input", "input: items of type %.*s are not served.", CHAT_SHOWN(type));
}

static int put_messages(struct chat_rewrite *m)
{
    CLEANUP(chat_parts_fini)
    struct chat_parts t = { .text.max = RESPONSES_CHAT_BYTES_MAX,
                            .thinking.max = RESPONSES_CHAT_BYTES_MAX,
                            .calls.max = RESPONSES_CHAT_BYTES_MAX };
    struct str item, input = m->value[KEY_INPUT], system = m->value[KEY_INSTRUCTIONS];
    uint32_t count = 0;
    int rc = 0;
    if (system.data && !slice_is_text(system))
        return CHAT_REFUSE(m, "instructions", "instructions must be a string.");
    if (!slice_is_text(input) && !slice_is_a(input, '['))
        return CHAT_REFUSE(m, "input", "input is missing, or is no string and no array of items.");
    json_key(&m->w, "messages");
    json_array(&m->w);
    if (system.data) {
        json_object(&m->w);
        json_kv_text(&m->w, "role", "system");
        chat_put_member(m, "content", system);
        json_object_end(&m->w);
    }
    if (slice_is_text(input)) rc = take_message(m, STR("\"user\""), input, &t);
    for (struct json_reader r = slice_items(input); rc == 0 && slice_next(&r, &item);) {
        if (++count > RESPONSES_ITEMS_MAX)
            return CHAT_REFUSE(m, "input", "input: more than %d items.", RESPONSES_ITEMS_MAX);
        rc = take_item(m, item, &t);
    }
    if (rc == 0) rc = flush(m, &t);
    json_array_end(&m->w);
    return rc;
}

/* ---- tools, form of the output, other keys ---- */

static int put_tools(struct chat_rewrite *m)
{
    static const char *const names[] = { "type", "name", "description", "parameters", "strict" };
    struct str member[5], tool, tools = m->value[KEY_TOOLS];
    if (!tools.data) return 0;
    if (!slice_is_a(tools, '['))
        return CHAT_REFUSE(m, "tools", "tools must be an array of objects.");
    json_key(&m->w, "tools");
    json_array(&m->w);
    for (struct json_reader r = slice_items(tools); slice_next(&r, &tool);) {
        slice_members(tool, names, member, COUNT_OF(names));
        if (!slice_says(member[0], "function"))
            return CHAT_UNSERVED(m, "tools",
                                 "tools: the type %.*s is not served; functions of the client are.",
                                 CHAT_SHOWN(member[0]));
        if (!slice_is_text(member[1]))
            return CHAT_REFUSE(m, "tools", "tools: a function needs a name, a string.");
        json_object(&m->w);
        json_kv_text(&m->w, "type", "function");
        json_key(&m->w, "function");
        json_object(&m->w);
        for (size_t i = 1; i < COUNT_OF(names); i++)
            chat_put_member(m, names[i], member[i]);
        json_object_end(&m->w);
        json_object_end(&m->w);
    }
    json_array_end(&m->w);
    return 0;
}

static int put_tool_choice(struct chat_rewrite *m)
{
    static const char *const names[] = { "type", "name" };
    struct str member[2], choice = m->value[KEY_TOOL_CHOICE];
    chat_put_member(m, "parallel_tool_calls", m->value[KEY_PARALLEL]);
    if (!choice.data) return 0;
    if (slice_is_text(choice)) {
        chat_put_member(m, "tool_choice", choice);
        return 0;
    }
    slice_members(choice, names, member, COUNT_OF(names));
    if (!slice_says(member[0], "function") || !slice_is_text(member[1]))
        return CHAT_UNSERVED(
            m, "tool_choice",
            "tool_choice: \"auto\", \"none\", \"required\" and {\"type\": \"function\", "
            "\"name\": text} are served.");
    json_key(&m->w, "tool_choice");
    json_object(&m->w);
    json_kv_text(&m->w, "type", "function");
    json_key(&m->w, "function");
    json_object(&m->w);
    chat_put_member(m, "name", member[1]);
    json_object_end(&m->w);
    json_object_end(&m->w);
    return 0;
}

/* Writes text.format as response_format. */
static int put_format(struct chat_rewrite *m)
{
    static const char *const text_names[] = { "format", "verbosity" };
    static const char *const names[] = { "type", "name", "schema", "strict", "description" };
    struct str text[2], member[5];
    slice_members(m->value[KEY_TEXT], text_names, text, COUNT_OF(text_names));
    if (text[1].data && !slice_says(text[1], "medium"))
        return CHAT_UNSERVED(m, "text", "text.verbosity is not served; only \"medium\" is.");
    slice_members(text[0], names, member, COUNT_OF(names));
    if (!text[0].data || slice_says(member[0], "text")) return 0;
    const bool schema = slice_says(member[0], "json_schema");
    if (!schema && !slice_says(member[0], "json_object"))
        return CHAT_UNSERVED(
            m, "text", "text.format: the types text, json_object and json_schema are served.");
    json_key(&m->w, "response_format");
    json_object(&m->w);
    chat_put_member(m, "type", member[0]);
    if (schema) {
        json_key(&m->w, "json_schema");
        json_object(&m->w);
        for (size_t i = 1; i < COUNT_OF(names); i++)
            chat_put_member(m, names[i], member[i]);
        json_object_end(&m->w);
    }
    json_object_end(&m->w);
    return 0;
}

static int check_bound(struct chat_rewrite *m)
{
    struct str entry;
    for (size_t i = 0; i < COUNT_OF(bound); i++) {
        struct str value = m->value[bound[i].key], only = str_from(bound[i].only);
        bool fits = !value.data;
        while (only.len > 0 && !fits)
            fits = str_eq(value, str_cut(&only, '|'));
        if (!fits)
            return CHAT_UNSERVED(m, keys[bound[i].key], "%s: %.*s is not served: %s.",
                                 keys[bound[i].key], CHAT_SHOWN(value), bound[i].why);
    }
    for (struct json_reader r = slice_items(m->value[KEY_INCLUDE]); slice_next(&r, &entry);)
        if (!slice_says(entry,
                        "reasoning.encrypted_content")) /* there is none: reasoning is open */
            return CHAT_UNSERVED(m, "include", "include: %.*s is not served.", CHAT_SHOWN(entry));
    return 0;
}

static int put_others(struct chat_rewrite *m)
{
    static const char *const names[] = { "effort" };
    struct str effort[1];
    slice_members(m->value[KEY_REASONING], names, effort, COUNT_OF(names));
    chat_put_member(m, "reasoning_effort", effort[0]);
    for (size_t i = 0; i < COUNT_OF(copied); i++)
        chat_put_member(m, copied[i].name, m->value[copied[i].key]);
    return 0;
}

/* ---- the body ---- */

/* Writes what the response repeats of the request; what is absent has OpenAI's default. */
static void put_repeated(const struct chat_rewrite *m, struct buf *out)
{
    static const struct {
        enum key key;
        const char *otherwise;
    } rows[] = {
        { KEY_INSTRUCTIONS, "null" },
        { KEY_MAX_TOKENS, "null" },
        { KEY_METADATA, "{}" },
        { KEY_PARALLEL, "true" },
        { KEY_REASONING, "null" },
        { KEY_TEMPERATURE, "null" },
        { KEY_TEXT, "{\"format\":{\"type\":\"text\"}}" },
        { KEY_TOOL_CHOICE, "\"auto\"" },
        { KEY_TOOLS, "[]" },
        { KEY_TOP_P, "null" },
        { KEY_USER, "null" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct str value = m->value[rows[i].key];
        buf_printf(out, ",\"%s\":", keys[rows[i].key]);
        buf_str(out, value.data ? value : str_from(rows[i].otherwise));
    }
    buf_text(out,
             ",\"background\":false,\"previous_response_id\":null,\"service_tier\":\"default\","
             "\"store\":false,\"top_logprobs\":0,\"truncation\":\"disabled\"");
}

static int rewrite_all(struct chat_rewrite *m)
{
    int rc = check_bound(m);
    json_object(&m->w);
    if (rc == 0) rc = put_others(m);
    if (rc == 0) rc = put_format(m);
    if (rc == 0) rc = put_tools(m);
    if (rc == 0) rc = put_tool_choice(m);
    if (rc == 0) rc = put_messages(m);
    json_object_end(&m->w);
    return rc < 0 ? rc : m->out.rc;
}

int responses_to_chat(struct str body, struct arena *arena, struct str *ret_chat,
                      struct str *ret_repeated, struct openai_error *e)
{
    struct str value[KEY_COUNT] = { { 0 } };
    struct chat_rewrite m = { .value = value, .e = e, .out.max = RESPONSES_CHAT_BYTES_MAX };
    CLEANUP(buf_fini) struct buf repeated = { .max = RESPONSES_CHAT_BYTES_MAX };
    json_writer_init(&m.w, &m.out);
    *e = (struct openai_error){ 0 };
    int rc = chat_find_keys(&m, body, keys, KEY_COUNT, true);
    if (rc == 0) rc = rewrite_all(&m);
    if (rc == 0) put_repeated(&m, &repeated);
    if (rc == 0) rc = repeated.rc;
    struct str kept = rc == 0 ? arena_str(arena, buf_view(&repeated)) : (struct str){ 0 };
    if (rc == 0 && !kept.data) rc = -ENOMEM;
    rc = chat_rewrite_end(&m, rc, arena, ret_chat);
    if (rc == 0) *ret_repeated = kept;
    return rc;
}
