/* openai_forward.c - copies a request's members but for those that the router decides. */
#include "base/wire/openai_forward.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"

static const char *const left_out[] = {
    /* set below */
    "model",
    "stream_options",
    "cache_salt",
    /* not the client's to say */
    "extra_key",
    "kv_transfer_params",
    "ec_transfer_params",
    "data_parallel_rank",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "id_slot",
    "rid",
    "request_id",
};

struct grammar_way grammar_way_of(enum engine_kind kind, const struct grammar_spec *grammar)
{
    return engine_traits[kind].grammar[grammar->kind];
}

/* Returns the member of the body that asks for the grammar: its key up to a dot. */
static struct str asking_member(const struct openai_forward *f)
{
    struct str key = str_from(f->grammar_key);
    return str_cut(&key, '.');
}

/* Returns true if the engine knows the client's own form. */
static bool stays(const struct openai_forward *f)
{
    struct grammar_way way = grammar_way_of(f->kind, &f->grammar);
    struct str member = asking_member(f);
    switch (way.form) {
    case GRAMMAR_FORM_RESPONSE:
        return str_eq(member, STR("response_format")) &&
               !str_eq(str_from(f->grammar_key), STR("response_format.schema")); /* llama.cpp's */
    case GRAMMAR_FORM_STRUCTURED:
        return str_eq(member, STR("structured_outputs")) ||
               (f->grammar.kind == GRAMMAR_TAGS && str_eq(member, STR("response_format")));
    case GRAMMAR_FORM_MEMBER:
        return str_eq(member, str_from(way.key));
    case GRAMMAR_FORM_NONE:
    case GRAMMAR_FORM_AS_REGEX:
    case GRAMMAR_FORM_AS_GBNF:
        break;
    }
    return false;
}

static void put_response_format(struct json_writer *w, const struct grammar_spec *g)
{
    bool schema = g->kind == GRAMMAR_JSON_SCHEMA;
    json_key(w, "response_format");
    if (g->kind == GRAMMAR_TAGS) {
        json_put_raw(w, g->text);
        return;
    }
    json_object(w);
    json_kv_text(w, "type", schema ? "json_schema" : "json_object");
    if (schema) {
        json_key(w, "json_schema");
        json_object(w);
        json_kv_text(w, "name", "output");
        json_kv_bool(w, "strict", true);
        json_key(w, "schema");
        json_put_raw(w, g->text);
        json_object_end(w);
    }
    json_object_end(w);
}

/* Appends one text of a choice as a regex, or as a text of GBNF. */
static void put_choice_text(struct str text, bool regex, struct buf *out)
{
    if (!regex) buf_byte(out, '"');
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '\n') {
            buf_text(out, "\\n");
            continue;
        }
        bool escaped = c && strchr(regex ? "\\^$.|?*+()[]{}" : "\\\"", c);
        if (escaped) buf_byte(out, '\\');
        buf_byte(out, c);
    }
    if (!regex) buf_byte(out, '"');
}

/* Writes a choice, a JSON array of strings, as a member of alternatives. */
static int put_choice(struct json_writer *w, struct grammar_way way, struct str choice)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf all = { 0 };
    struct json_reader r;
    bool regex = way.form == GRAMMAR_FORM_AS_REGEX, first = true;
    json_reader_init(&r, choice);
    json_next(&r);
    buf_text(&all, regex ? "(" : "root ::= ");
    for (; json_next(&r) == JSON_STRING; first = false) {
        buf_clear(&text);
        json_text(&r, &text);
        if (!first) buf_text(&all, regex ? "|" : " | ");
        put_choice_text(buf_view(&text), regex, &all);
    }
    if (regex) buf_byte(&all, ')');
    json_kv_str(w, way.key, buf_view(&all));
    return text.rc < 0 ? text.rc : all.rc;
}

static int put_grammar(struct json_writer *w, const struct openai_forward *f)
{
    const struct grammar_spec *g = &f->grammar;
    struct grammar_way way = grammar_way_of(f->kind, g);
    switch (way.form) {
    case GRAMMAR_FORM_NONE:
        return -ENOTSUP;
    case GRAMMAR_FORM_RESPONSE:
        put_response_format(w, g);
        return 0;
    case GRAMMAR_FORM_STRUCTURED:
        json_key(w, "structured_outputs");
        json_object(w);
        json_key(w, way.key);
        if (g->kind == GRAMMAR_CHOICE)
            json_put_raw(w, g->text);
        else
            json_put_str(w, g->text);
        json_object_end(w);
        return 0;
    case GRAMMAR_FORM_MEMBER:
        json_kv_str(w, way.key, g->text);
        return 0;
    case GRAMMAR_FORM_AS_REGEX:
    case GRAMMAR_FORM_AS_GBNF:
        break;
    }
    return put_choice(w, way, g->text);
}

static bool is_left_out(const struct json_reader *r, const struct openai_forward *f)
{
    for (size_t i = 0; i < COUNT_OF(left_out); i++)
        if (json_key_is(r, left_out[i])) return true;
    if (!f->one_output) return false;
    return json_key_is(r, "n") || json_key_is(r, "best_of") ||
           (f->prompt && json_key_is(r, "prompt")) || (f->has_seed && json_key_is(r, "seed"));
}

/* Writes what tells one output from the others. */
static void put_output(struct json_writer *w, const struct openai_forward *f)
{
    const struct openai_prompt *p = f->prompt;
    if (f->has_seed) json_kv_u64(w, "seed", f->seed);
    if (!p) return;
    json_key(w, "prompt");
    if (!p->ids) {
        json_put_str(w, p->text);
        return;
    }
    json_array(w);
    for (uint32_t i = 0; i < p->id_count; i++)
        json_put_u64(w, p->ids[i]);
    json_array_end(w);
}

static void put_ours(struct json_writer *w, const struct openai_forward *f)
{
    json_kv_str(w, "model", f->model);
    if (f->cache_salt.len > 0) json_kv_str(w, "cache_salt", f->cache_salt);
    if (!f->stream) return;
    json_key(w, "stream_options");
    json_object(w);
    json_kv_bool(w, "include_usage", true);
    json_object_end(w);
}

int openai_forward(struct str body, const struct openai_forward *f, struct buf *out)
{
    struct json_reader r;
    struct json_writer w;
    bool rewrites = f->grammar_key && !stays(f);
    char asking[64] = "";
    json_reader_init(&r, body);
    json_writer_init(&w, out);
    if (json_next(&r) != JSON_OBJECT) return -EINVAL;
    json_object(&w);
    put_ours(&w, f);
    if (f->one_output) put_output(&w, f);
    int rc = rewrites ? put_grammar(&w, f) : 0;
    if (rc < 0) return rc;
    if (rewrites) {
        struct str member = asking_member(f);
        memcpy(asking, member.data, min_size(member.len, sizeof asking - 1));
    }
    while (json_next(&r) == JSON_KEY) {
        struct str value, raw = r.raw;
        bool out_of_it = is_left_out(&r, f) || (rewrites && json_key_is(&r, asking));
        if (json_raw_value(&r, &value) < 0) return -EINVAL;
        if (out_of_it) continue;
        buf_text(out, ",\"");
        buf_str(out, raw); /* still escaped */
        buf_text(out, "\":");
        buf_str(out, value);
    }
    json_object_end(&w);
    return r.token == JSON_OBJECT_END ? out->rc : -EINVAL;
}
