/* openai_tools.c - reads the tools of a chat request, which of them the model must call, and how long it thinks. */
#include "base/core/own.h"
#include "base/wire/openai_walk.h"

#define NAME_BYTES_MAX 256

int openai_take_tools(struct openai_walk *p, const struct openai_key *k)
{
    if (p->r.token != JSON_ARRAY) return walk_wrong_type(p, k->name, "an array");
    size_t start = p->r.start;
    uint32_t inside = p->r.depth, count = 0;
    while (json_next(&p->r) == JSON_OBJECT) {
        if (++count > OPENAI_TOOLS_MAX)
            return INVALID(p, k->name, "tools: more than %d items.", OPENAI_TOOLS_MAX);
        json_skip_rest(&p->r);
    }
    if (p->r.token == JSON_ERROR) return walk_broken(p);
    if (p->r.depth >= inside) return INVALID(p, k->name, "tools must hold objects only.");
    if (count > 0) p->req.tools = str_of(p->r.text.data + start, p->r.pos - start);
    return 0;
}

/* Reads a function's description in a choice, {"name": text}; the current token is its opening bracket. */
static int take_function(struct openai_walk *p)
{
    while (json_next(&p->r) == JSON_KEY) {
        bool name = json_key_is(&p->r, "name");
        json_next(&p->r);
        int rc =
            name ? walk_string(p, "tool_choice.function.name", 1, NAME_BYTES_MAX, &p->req.tool_only)
                 : 0;
        if (rc < 0) return rc;
        if (!name) json_skip_rest(&p->r);
    }
    return p->r.token == JSON_OBJECT_END ? 0 : walk_broken(p);
}

/* Reads the object that names a tool: {"type": "function", "function": {"name": text}}. */
static int take_named_tool(struct openai_walk *p, const struct openai_key *k)
{
    struct str type = { 0 };
    int rc = 0;
    while (rc == 0 && json_next(&p->r) == JSON_KEY) {
        bool is_type = json_key_is(&p->r, "type"), function = json_key_is(&p->r, "function");
        json_next(&p->r);
        if (is_type && p->r.token == JSON_STRING) type = p->r.raw;
        if (function && p->r.token == JSON_OBJECT)
            rc = take_function(p);
        else
            json_skip_rest(&p->r);
    }
    if (rc < 0) return rc;
    if (p->r.token != JSON_OBJECT_END) return walk_broken(p);
    if (!str_eq(type, STR("function")) || p->req.tool_only.len == 0)
        return UNSERVED(p, k->name,
                        "tool_choice: \"auto\", \"none\", \"required\" and {\"type\": "
                        "\"function\", \"function\": {\"name\": text}} are served.");
    p->req.tool_choice = OPENAI_TOOLS_REQUIRED;
    return 0;
}

int openai_take_tool_choice(struct openai_walk *p, const struct openai_key *k)
{
    struct str raw;
    if (p->r.token == JSON_OBJECT) return take_named_tool(p, k);
    int rc = walk_raw(p, &raw);
    if (rc < 0) return rc;
    if (str_eq(raw, STR("\"none\""))) p->req.tool_choice = OPENAI_TOOLS_NONE;
    if (str_eq(raw, STR("\"required\""))) p->req.tool_choice = OPENAI_TOOLS_REQUIRED;
    if (p->req.tool_choice != OPENAI_TOOLS_AUTO || str_eq(raw, STR("\"auto\""))) return 0;
    return UNSERVED(p, k->name,
                    "tool_choice: \"auto\", \"none\", \"required\" or an object that names a "
                    "function.");
}

int openai_take_parallel_calls(struct openai_walk *p, const struct openai_key *k)
{
    bool parallel;
    if (json_bool(&p->r, &parallel) < 0) return walk_wrong_type(p, k->name, "true or false");
    p->req.no_parallel_tool_calls = !parallel;
    return 0;
}

/* Gives the template reasoning_effort as a variable; one in chat_template_kwargs goes before it. */
static int settle_effort(struct openai_walk *p)
{
    struct str kwargs = p->req.chat_template_kwargs;
    struct json_writer w;
    struct json_reader r;
    bool given = false, any = false;
    if (p->reasoning_effort.len == 0) return 0;
    json_reader_init(&r, kwargs);
    if (kwargs.len > 0) json_next(&r);
    while (kwargs.len > 0 && json_next(&r) == JSON_KEY) {
        any = true;
        given |= json_key_is(&r, "reasoning_effort");
        json_skip(&r);
    }
    if (given) return 0;
    CLEANUP(buf_fini) struct buf all = { 0 };
    json_writer_init(&w, &all);
    json_object(&w);
    json_kv_str(&w, "reasoning_effort", p->reasoning_effort);
    if (any) {
        buf_byte(&all, ',');
        buf_append(&all, kwargs.data + 1, kwargs.len - 2);
    }
    json_object_end(&w);
    p->req.chat_template_kwargs = arena_str(p->arena, buf_view(&all));
    bool kept = all.rc == 0 && p->req.chat_template_kwargs.data;
    return kept ? 0 : walk_no_memory(p, "reasoning_effort");
}

int openai_settle_tools(struct openai_walk *p)
{
    struct openai_request *q = &p->req;
    if (q->tool_choice == OPENAI_TOOLS_NONE) q->tools = (struct str){ 0 };
    if (q->tool_choice == OPENAI_TOOLS_REQUIRED && q->tools.len == 0)
        return INVALID(p, "tool_choice", "tool_choice asks for a call, but there are no tools.");
    if (q->tools.len > 0 && q->grammar_key)
        return UNSERVED(p, q->grammar_key,
                        "%s binds the whole output, and tools may call in it: give one of them, or "
                        "tool_choice \"none\".",
                        q->grammar_key);
    return settle_effort(p);
}
