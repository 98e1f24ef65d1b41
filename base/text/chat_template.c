/* chat_template.c - compiles a template, sets its variables, renders it and collects the spans of content.
 *
 * Every string of messages, tools and kwargs is content, keys included. The only exception is the role
 * of a message if it is on the list below: templates put the role between the halves of a marker, and a
 * listed name gives a client no more than the choice of that role.
 */
#include "base/text/chat_template.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/text/jinja/eval.h"
#include "base/text/jinja/lex.h"

#include <stdlib.h>

/* The densest template, "{{a}}" repeated, takes about 170 bytes for each byte of source. */
#define TREE_BYTES_MAX (400 * CHAT_TEMPLATE_BYTES_MAX)

static const struct chat_limits limits_default = {
    .steps_max = 4000000,
    .depth_max = 1000,
    .output_bytes_max = (size_t)16 << 20,
    .memory_bytes_max = (size_t)128 << 20,
};

static const char *const plain_roles[] = {
    "system",   "user",    "assistant",   "tool",        "developer",
    "function", "ipython", "observation", "environment", "model",
};

int chat_template_compile(struct str source, struct chat_template **ret, struct err *err)
{
    if (source.len > CHAT_TEMPLATE_BYTES_MAX)
        return err_set(err, -E2BIG, "a chat template of %zu bytes: at most %zu", source.len,
                       CHAT_TEMPLATE_BYTES_MAX);
    if (!str_utf8_valid(source)) return err_set(err, -EILSEQ, "the chat template is not UTF-8");
    CLEANUP(chat_template_freep) struct chat_template *t = calloc(1, sizeof *t);
    if (!t) return err_set(err, -ENOMEM, "no memory for the chat template");
    arena_init(&t->arena, TREE_BYTES_MAX);
    t->source = arena_str(&t->arena, source);
    if (!t->source.data) return err_set(err, -ENOMEM, "no memory for the chat template");
    struct jinja_tokens tokens = { 0 };
    int rc = jinja_lex(&t->arena, t->source, &tokens, err);
    if (rc == 0) rc = jinja_parse(t, &tokens, err);
    if (rc < 0) return rc;
    *ret = TAKE(t);
    return 0;
}

void chat_template_free(struct chat_template *t)
{
    if (!t) return;
    arena_fini(&t->arena);
    free(t);
}

struct str chat_template_source(const struct chat_template *t)
{
    return t->source;
}

void chat_output_fini(struct chat_output *out)
{
    buf_fini(&out->text);
    text_spans_fini(&out->content);
}

static bool is_plain_role(struct str role)
{
    for (size_t i = 0; i < COUNT_OF(plain_roles); i++)
        if (str_eq(role, str_from(plain_roles[i]))) return true;
    return false;
}

/* Replaces arguments of a call that are JSON in a string, as OpenAI's API has them, by their value: templates
 * write them with tojson. Other texts stay. */
static int open_arguments(struct jinja_run *run, const struct jinja_value *call)
{
    const struct jinja_value *function = NULL, *arguments = NULL;
    struct jinja_value value;
    if (call->kind != JINJA_DICT) return 0;
    int rc = jinja_dict_find(run, call->dict, STR("function"), &function);
    if (rc < 0 || !function || function->kind != JINJA_DICT) return rc;
    rc = jinja_dict_find(run, function->dict, STR("arguments"), &arguments);
    if (rc < 0 || !arguments || arguments->kind != JINJA_STRING) return rc;
    struct str text = str_trim(jinja_bytes(arguments->text));
    struct json_reader r;
    if (text.len == 0) return 0;
    json_reader_init(&r, text);
    if (json_next(&r) != JSON_OBJECT || json_skip_rest(&r) == JSON_ERROR ||
        json_next(&r) != JSON_END)
        return 0;
    rc = jinja_from_json(run, text, "arguments of a tool call", true, &value);
    return rc < 0 ? rc : jinja_dict_set(run, function->dict, STR("arguments"), value);
}

static int open_calls(struct jinja_run *run, const struct jinja_value *message)
{
    const struct jinja_value *calls = NULL;
    int rc = jinja_dict_find(run, message->dict, STR("tool_calls"), &calls);
    if (rc < 0 || !calls || calls->kind != JINJA_LIST) return rc;
    for (size_t i = 0; i < calls->list->count && rc == 0; i++)
        rc = open_arguments(run, &calls->list->items[i]);
    return rc;
}

static int check_messages(struct jinja_run *run, struct jinja_value *messages, bool opens)
{
    if (messages->kind != JINJA_LIST) return jinja_fail(run, -EINVAL, "messages must be an array");
    for (size_t i = 0; i < messages->list->count; i++) {
        const struct jinja_value *m = &messages->list->items[i];
        if (m->kind != JINJA_DICT)
            return jinja_fail(run, -EINVAL, "messages[%zu] must be an object", i);
        const struct jinja_value *role = NULL;
        int rc = opens ? open_calls(run, m) : 0;
        if (rc == 0) rc = jinja_dict_find(run, m->dict, STR("role"), &role);
        if (rc < 0) return rc;
        if (!role || role->kind != JINJA_STRING || !is_plain_role(jinja_bytes(role->text)))
            continue;
        struct jinja_value plain = *role;
        plain.text.mark = NULL;
        rc = jinja_dict_set(run, m->dict, STR("role"), plain);
        if (rc < 0) return rc;
    }
    return 0;
}

static int set_global(struct jinja_run *run, const char *name, struct jinja_value v)
{
    return jinja_dict_set(run, run->globals, str_from(name), v);
}

static int set_kwargs(struct jinja_run *run, struct str json)
{
    struct jinja_value kwargs;
    if (json.len == 0) return 0;
    int rc = jinja_from_json(run, json, "template kwargs", true, &kwargs);
    if (rc < 0) return rc;
    if (kwargs.kind != JINJA_DICT)
        return jinja_fail(run, -EINVAL, "template kwargs must be an object");
    for (size_t i = 0; i < kwargs.dict->count && rc == 0; i++)
        rc = jinja_dict_put(run, run->globals, kwargs.dict->entries[i].key,
                            kwargs.dict->entries[i].value);
    return rc;
}

/* Sets the variables; kwargs come first, so that they cannot replace messages or our functions. */
static int set_inputs(struct jinja_run *run, const struct chat_inputs *in)
{
    struct jinja_value messages, tools = jinja_none();
    int rc = set_global(run, "documents", jinja_none());
    if (rc == 0) rc = set_kwargs(run, in->kwargs);
    if (rc == 0) rc = jinja_add_globals(run);
    if (rc == 0) rc = jinja_from_json(run, in->messages, "messages", true, &messages);
    if (rc == 0) rc = check_messages(run, &messages, in->open_arguments);
    if (rc == 0) rc = set_global(run, "messages", messages);
    if (rc == 0 && in->tools.len > 0) rc = jinja_from_json(run, in->tools, "tools", true, &tools);
    if (rc == 0) rc = set_global(run, "tools", tools);
    if (rc == 0)
        rc = set_global(run, "add_generation_prompt", jinja_bool(in->add_generation_prompt));
    if (rc == 0) rc = set_global(run, "bos_token", jinja_string(jinja_text_of(in->bos_token)));
    if (rc == 0) rc = set_global(run, "eos_token", jinja_string(jinja_text_of(in->eos_token)));
    return rc;
}

static int add_spans(struct chat_output *out, const struct jinja_builder *page)
{
    int rc = 0;
    for (size_t at = 0; page->mark && at < page->len && rc == 0;) {
        size_t start = at;
        bool marked = page->mark[at];
        const uint8_t *other = memchr(page->mark + at, !marked, page->len - at);
        at = other ? (size_t)(other - page->mark) : page->len;
        if (marked) rc = text_spans_add(&out->content, start, at - start);
    }
    return rc;
}

static int copy_page(struct chat_output *out, const struct jinja_builder *page, struct err *err)
{
    buf_clear(&out->text);
    out->content.count = 0;
    if (out->text.max < page->len + 1) out->text.max = page->len + 1;
    int rc = buf_append(&out->text, page->data, page->len);
    if (rc == 0) rc = add_spans(out, page);
    return rc < 0 ? err_set(err, rc, "no memory for the rendered template") : 0;
}

static void set_limits(struct chat_limits *to, const struct chat_limits *from)
{
    *to = limits_default;
    if (!from) return;
    if (from->steps_max) to->steps_max = from->steps_max;
    if (from->depth_max) to->depth_max = from->depth_max;
    if (from->output_bytes_max) to->output_bytes_max = from->output_bytes_max;
    if (from->memory_bytes_max) to->memory_bytes_max = from->memory_bytes_max;
}

int chat_template_render(const struct chat_template *t, const struct chat_inputs *in,
                         const struct chat_limits *limits, struct chat_output *out, struct err *err)
{
    struct jinja_run run = { .now_s = in->now_s, .err = err, .line = 1 };
    set_limits(&run.limits, limits);
    if (in->scratch) run.arena = *in->scratch;
    run.arena.bytes_max = run.limits.memory_bytes_max;
    struct jinja_builder page = { .run = &run };
    struct jinja_scope *scope = NULL;
    run.out = &page;
    int rc = jinja_dict_new(&run, &run.globals);
    if (rc == 0) rc = set_inputs(&run, in);
    if (rc == 0) rc = jinja_scope_new(&run, NULL, &scope);
    if (rc == 0) rc = jinja_expect(&page, min_size(in->messages.len, run.limits.output_bytes_max));
    if (rc == 0) rc = jinja_exec(&run, scope, t->body);
    if (rc == 0) rc = copy_page(out, &page, err);
    if (in->scratch) {
        arena_reset(&run.arena);
        *in->scratch = run.arena;
    } else {
        arena_fini(&run.arena);
    }
    return rc;
}
