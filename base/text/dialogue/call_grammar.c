/* call_grammar.c - writes formats from the rows of dialects: a tag for each tool, in the frame of its dialect. */
#include "base/text/dialogue/call_grammar.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"

#define PYTHON_ARGUMENTS_MAX 64 /* of one tool */

/* ---- tools ---- */

static bool name_is_valid(struct str name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && c != '_' && c != '-' && c != '.') return false;
    }
    return name.len > 0 && name.len <= CALL_TOOL_NAME_BYTES_MAX;
}

/* Reads a function; the reader stands on its opening bracket. */
static int read_function(struct json_reader *r, struct arena *arena, struct call_tool *ret)
{
    while (json_next(r) == JSON_KEY) {
        bool name = json_key_is(r, "name"), schema = json_key_is(r, "parameters");
        bool strict = json_key_is(r, "strict");
        enum json_token t = json_next(r);
        size_t start = r->start;
        if (name && t == JSON_STRING && json_text_arena(r, arena, &ret->name) < 0) return -ENOMEM;
        if (strict) ret->strict = t == JSON_TRUE;
        if (json_skip_rest(r) == JSON_ERROR) return -EINVAL;
        if (schema && t != JSON_NULL) ret->schema = str_of(r->text.data + start, r->pos - start);
        if (schema && t != JSON_NULL && t != JSON_OBJECT) return -EINVAL;
    }
    return r->token == JSON_OBJECT_END ? 0 : -EINVAL;
}

static int read_tool(struct json_reader *r, struct arena *arena, struct call_tool *ret)
{
    bool function = false;
    if (r->token != JSON_OBJECT) return -EINVAL;
    while (json_next(r) == JSON_KEY) {
        bool wanted = json_key_is(r, "function"), type = json_key_is(r, "type");
        enum json_token t = json_next(r);
        if (type && (t != JSON_STRING || !str_eq(r->raw, STR("function")))) return -EINVAL;
        if (wanted && t == JSON_OBJECT) {
            int rc = read_function(r, arena, ret);
            if (rc < 0) return rc;
            function = true;
        } else if (json_skip_rest(r) == JSON_ERROR) {
            return -EINVAL;
        }
    }
    return r->token == JSON_OBJECT_END && function ? 0 : -EINVAL;
}

int call_tools_read(struct str json, struct arena *arena, struct call_tools *ret, struct err *err)
{
    struct call_tools tools = {
        .tool = arena_array(arena, CALL_TOOLS_MAX, sizeof *tools.tool),
        .name = arena_array(arena, CALL_TOOLS_MAX, sizeof *tools.name),
    };
    struct json_reader r;
    json_reader_init(&r, json);
    if (!tools.tool || !tools.name) return err_set(err, -ENOMEM, "no memory for the tools");
    if (json_next(&r) != JSON_ARRAY) return err_set(err, -EINVAL, "tools must be an array");
    while (json_next(&r) != JSON_ARRAY_END) {
        if (tools.count == CALL_TOOLS_MAX)
            return err_set(err, -EINVAL, "tools: more than %d items", CALL_TOOLS_MAX);
        struct call_tool *tool = &tools.tool[tools.count];
        *tool = (struct call_tool){ 0 };
        int rc = read_tool(&r, arena, tool);
        if (rc == -ENOMEM) return err_set(err, rc, "no memory for the tools");
        if (rc < 0)
            return err_set(err, rc,
                           "tools[%u] must be {\"type\": \"function\", \"function\": {\"name\": "
                           "text, \"parameters\": schema}}",
                           tools.count);
        if (!name_is_valid(tool->name))
            return err_set(err, -EINVAL, "tools[%u]: a name has 1 to %d letters, digits, _, - or .",
                           tools.count, CALL_TOOL_NAME_BYTES_MAX);
        for (uint32_t i = 0; i < tools.count; i++)
            if (str_eq(tools.name[i], tool->name))
                return err_set(err, -EINVAL, "tools[%u]: the name " STR_FMT " stands there twice",
                               tools.count, STR_ARG(tool->name));
        tools.name[tools.count++] = tool->name;
    }
    *ret = tools;
    return 0;
}

/* ---- formats ---- */

struct writing {
    struct json_writer w;
    const struct call_grammar *g;
    const struct call_dialect *d;
    struct buf text; /* a begin or end while it is put together */
    int rc;
};

static void kv_const(struct writing *x, const char *text)
{
    json_object(&x->w);
    json_kv_text(&x->w, "type", "const_string");
    json_kv_text(&x->w, "value", text ? text : "");
    json_object_end(&x->w);
}

static void open_list(struct writing *x, const char *type, const char *items)
{
    json_object(&x->w);
    json_kv_text(&x->w, "type", type);
    json_key(&x->w, items);
    json_array(&x->w);
}

static void close_list(struct writing *x)
{
    json_array_end(&x->w);
    json_object_end(&x->w);
}

static void put_schema(struct writing *x, struct str schema, bool loose)
{
    json_object(&x->w);
    json_kv_text(&x->w, "type", "json_schema");
    json_key(&x->w, "json_schema");
    json_put_raw(&x->w, schema);
    json_kv_bool(&x->w, "loose", loose);
    json_object_end(&x->w);
}

static struct str schema_of(const struct call_tool *tool)
{
    return tool->schema.len > 0 ? tool->schema
                                : STR("{\"type\":\"object\",\"additionalProperties\":false}");
}

/* ---- arguments in Python ---- */

struct python_argument {
    struct str name, schema; /* raw */
    bool required;
};

static uint32_t python_arguments(struct str schema, struct python_argument *ret)
{
    struct json_reader r, inside;
    uint32_t count = 0;
    json_reader_init(&r, schema);
    json_next(&r);
    struct str properties = { 0 }, required = { 0 }, value;
    while (json_next(&r) == JSON_KEY) {
        bool wanted = json_key_is(&r, "properties"), list = json_key_is(&r, "required");
        if (json_raw_value(&r, &value) < 0) return 0;
        if (wanted) properties = value;
        if (list) required = value;
    }
    if (properties.len == 0) return 0;
    json_reader_init(&inside, properties);
    json_next(&inside);
    while (count < PYTHON_ARGUMENTS_MAX && json_next(&inside) == JSON_KEY) {
        ret[count] = (struct python_argument){ .name = inside.raw };
        if (json_raw_value(&inside, &ret[count].schema) < 0) return 0;
        count++;
    }
    if (required.len == 0) return count;
    json_reader_init(&inside, required);
    json_next(&inside);
    while (json_next(&inside) == JSON_STRING)
        for (uint32_t i = 0; i < count; i++)
            ret[i].required |= str_eq(ret[i].name, inside.raw);
    return count;
}

static void put_python_argument(struct writing *x, const struct python_argument *a, bool first,
                                bool loose)
{
    if (!a->required) {
        open_list(x, "or", "elements");
        kv_const(x, "");
    }
    open_list(x, "sequence", "elements");
    buf_clear(&x->text);
    if (!first) buf_text(&x->text, ", ");
    buf_str(&x->text, a->name);
    buf_byte(&x->text, '=');
    kv_const(x, x->text.data);
    put_schema(x, a->schema, loose);
    close_list(x);
    if (!a->required) close_list(x);
}

/* Required arguments come first; where there is none, the first optional one is there, or all are left out. */
static void put_python_arguments(struct writing *x, struct str schema, bool loose)
{
    struct python_argument all[PYTHON_ARGUMENTS_MAX];
    uint32_t count = python_arguments(schema, all), first = 0;
    if (count == PYTHON_ARGUMENTS_MAX) x->rc = -E2BIG;
    while (first < count && !all[first].required)
        first++;
    bool none = first == count;
    if (none) {
        open_list(x, "or", "elements");
        kv_const(x, "");
        first = 0;
    }
    if (count > 0) {
        all[first].required = true;
        open_list(x, "sequence", "elements");
        put_python_argument(x, &all[first], true, loose);
        for (uint32_t pass = 0; pass < 2; pass++)
            for (uint32_t i = 0; i < count; i++)
                if (i != first && all[i].required == (pass == 0))
                    put_python_argument(x, &all[i], false, loose);
        close_list(x);
    }
    if (none) close_list(x);
}

/* ---- calls ---- */

static void put_begin(struct writing *x, const struct call_tool *tool, bool too)
{
    const struct call_dialect *d = x->d;
    const char *begin = too ? d->call_begin_too : d->call_begin;
    const char *pad = too ? d->name_pad_too : d->name_pad;
    buf_clear(&x->text);
    buf_text(&x->text, begin ? begin : "");
    if (d->shape == CALL_JSON) buf_text(&x->text, "{\"name\": \"");
    buf_str(&x->text, tool->name);
    if (d->shape == CALL_JSON)
        buf_printf(&x->text, "\", \"%s\": ", d->arguments);
    else if (d->shape == CALL_PYTHON)
        buf_byte(&x->text, '(');
    else
        buf_printf(&x->text, "%s%s", pad ? pad : "", d->name_end);
    json_kv_str(&x->w, "begin", buf_view(&x->text));
}

static void put_call(struct writing *x, const struct call_tool *tool, bool too)
{
    const struct call_dialect *d = x->d;
    bool loose = !x->g->required && !tool->strict;
    json_object(&x->w);
    json_kv_text(&x->w, "type", "tag");
    put_begin(x, tool, too);
    json_key(&x->w, "content");
    if (d->shape == CALL_PYTHON)
        put_python_arguments(x, schema_of(tool), loose);
    else
        put_schema(x, schema_of(tool), loose);
    buf_clear(&x->text);
    if (d->shape == CALL_JSON) buf_byte(&x->text, '}');
    if (d->shape == CALL_PYTHON) buf_byte(&x->text, ')');
    buf_text(&x->text, d->call_end ? d->call_end : "");
    json_kv_str(&x->w, "end", buf_view(&x->text));
    json_object_end(&x->w);
}

static void put_calls(struct writing *x, bool too)
{
    const struct call_grammar *g = x->g;
    for (uint32_t i = 0; i < g->tools->count; i++) {
        const struct call_tool *tool = &g->tools->tool[i];
        if (g->only.len > 0 && !str_eq(tool->name, g->only)) continue;
        put_call(x, tool, false);
        if (too) put_call(x, tool, true);
    }
}

static void put_separated(struct writing *x, bool once)
{
    open_list(x, "tags_with_separator", "tags");
    put_calls(x, false);
    json_array_end(&x->w);
    json_kv_text(&x->w, "separator", x->d->separator);
    json_kv_bool(&x->w, "at_least_one", true);
    json_kv_bool(&x->w, "stop_after_first", once);
    json_object_end(&x->w);
}

static bool has_frame(const struct call_dialect *d)
{
    return d->list || (d->calls_begin && !d->bare);
}

/* Writes the tag around all calls of an output. A bare dialect leaves its marks out. */
static void put_frame(struct writing *x, bool once)
{
    const struct call_dialect *d = x->d;
    const char *begin = d->calls_begin && !d->bare ? d->calls_begin : "";
    const char *end = d->calls_end && !d->bare ? d->calls_end : "";
    json_object(&x->w);
    json_kv_text(&x->w, "type", "tag");
    buf_clear(&x->text);
    buf_printf(&x->text, "%s%s", begin, d->list ? "[" : "");
    json_kv_str(&x->w, "begin", buf_view(&x->text));
    json_key(&x->w, "content");
    put_separated(x, once);
    buf_clear(&x->text);
    buf_printf(&x->text, "%s%s", d->list ? "]" : "", end);
    json_kv_str(&x->w, "end", buf_view(&x->text));
    json_object_end(&x->w);
}

/* ---- reasoning ---- */

static void put_thinking(struct writing *x, const char *begin)
{
    const struct think_dialect *t = x->g->dialects.think;
    open_list(x, "sequence", "elements");
    json_object(&x->w);
    json_kv_text(&x->w, "type", "tag");
    json_kv_text(&x->w, "begin", begin);
    json_key(&x->w, "content");
    json_object(&x->w);
    json_kv_text(&x->w, "type", "any_text");
    json_object_end(&x->w);
    json_kv_text(&x->w, "end", t->end);
    json_object_end(&x->w);
    if (t->answer) kv_const(x, t->answer);
    if (x->g->required && !t->answer) {
        json_object(&x->w);
        json_kv_text(&x->w, "type", "regex");
        json_kv_text(&x->w, "pattern", "\\n{0,2}");
        json_object_end(&x->w);
    }
    close_list(x);
}

/* Reasoning that the prompt has begun goes to its end; else there is some or none. */
static void put_before(struct writing *x)
{
    const struct think_dialect *t = x->g->dialects.think;
    if (!t) {
        kv_const(x, "");
    } else if (x->g->thinking) {
        put_thinking(x, "");
    } else {
        open_list(x, "or", "elements");
        kv_const(x, "");
        put_thinking(x, t->begin);
        close_list(x);
    }
}

/* ---- the whole ---- */

/* Calls that may stand anywhere in the text, from their mark on. */
static void put_marked(struct writing *x)
{
    const struct call_dialect *d = x->d;
    const char *mark = has_frame(d) ? d->calls_begin : d->call_begin;
    open_list(x, "triggered_tags", "triggers");
    json_put_str(&x->w, dialect_mark(mark));
    if (d->call_begin_too && !has_frame(d)) json_put_str(&x->w, dialect_mark(d->call_begin_too));
    json_array_end(&x->w);
    json_key(&x->w, "tags");
    json_array(&x->w);
    if (has_frame(d))
        put_frame(x, !x->g->parallel);
    else
        put_calls(x, d->call_begin_too);
    json_array_end(&x->w);
    json_kv_bool(&x->w, "stop_after_first", !x->g->parallel);
    json_object_end(&x->w);
}

/* One call that needs no mark, as the whole answer; or any other text. */
static void put_unmarked(struct writing *x)
{
    const struct call_dialect *d = x->d;
    const char *end = d->list ? "]" : "";
    open_list(x, "triggered_tags", "triggers");
    for (uint32_t i = 0; i < x->g->tools->count; i++) {
        buf_clear(&x->text);
        if (d->shape == CALL_PYTHON)
            buf_printf(&x->text, "[" STR_FMT "(", STR_ARG(x->g->tools->name[i]));
        else
            buf_text(&x->text, "{\"name\": \"");
        json_put_str(&x->w, buf_view(&x->text));
        if (d->shape != CALL_PYTHON) break;
    }
    json_array_end(&x->w);
    json_key(&x->w, "tags");
    json_array(&x->w);
    for (uint32_t i = 0; i < x->g->tools->count; i++) {
        const struct call_tool *tool = &x->g->tools->tool[i];
        bool loose = !tool->strict;
        json_object(&x->w);
        buf_clear(&x->text);
        if (d->shape == CALL_PYTHON)
            buf_printf(&x->text, "[" STR_FMT "(", STR_ARG(tool->name));
        else
            buf_printf(&x->text, "{\"name\": \"" STR_FMT "\", \"%s\": ", STR_ARG(tool->name),
                       d->arguments);
        json_kv_str(&x->w, "begin", buf_view(&x->text));
        json_key(&x->w, "content");
        if (d->shape == CALL_PYTHON)
            put_python_arguments(x, schema_of(tool), loose);
        else
            put_schema(x, schema_of(tool), loose);
        buf_clear(&x->text);
        buf_printf(&x->text, "%s%s", d->shape == CALL_PYTHON ? ")" : "}", end);
        json_kv_str(&x->w, "end", buf_view(&x->text));
        json_object_end(&x->w);
    }
    json_array_end(&x->w);
    json_kv_bool(&x->w, "at_start", true);
    json_kv_bool(&x->w, "stop_after_first", true);
    json_object_end(&x->w);
}

int call_grammar_write(const struct call_grammar *g, struct buf *out, struct err *err)
{
    struct writing x = { .g = g, .d = g->dialects.call };
    bool known = g->only.len == 0;
    if (!x.d)
        return err_set(err, -ENOTSUP,
                       "how this model writes calls is not known; name it with the engine's option "
                       "tool_call_parser");
    for (uint32_t i = 0; i < g->tools->count; i++)
        known |= str_eq(g->tools->name[i], g->only);
    if (!known)
        return err_set(err, -EINVAL, "tool_choice: there is no tool " STR_FMT,
                       (int)min_size(g->only.len, CALL_TOOL_NAME_BYTES_MAX), g->only.data);
    json_writer_init(&x.w, out);
    json_object(&x.w);
    json_key(&x.w, "format");
    open_list(&x, "sequence", "elements");
    put_before(&x);
    if (g->required && has_frame(x.d))
        put_frame(&x, !g->parallel);
    else if (g->required)
        put_separated(&x, !g->parallel);
    else if (x.d->bare)
        put_unmarked(&x);
    else
        put_marked(&x);
    close_list(&x);
    json_object_end(&x.w);
    int rc = x.text.rc < 0 ? x.text.rc : out->rc;
    if (x.rc < 0)
        rc = err_set(err, x.rc, "a tool has %d arguments or more, too many for calls in Python",
                     PYTHON_ARGUMENTS_MAX);
    buf_fini(&x.text);
    return rc;
}
