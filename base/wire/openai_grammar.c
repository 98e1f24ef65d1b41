/* openai_grammar.c - reads the grammar that a request asks for, in any of the ways that clients know. */
#include "base/wire/openai_walk.h"

static int set_grammar(struct openai_walk *p, const char *name, enum grammar_kind kind,
                       struct str text)
{
    struct openai_request *q = &p->req;
    if (q->grammar_key)
        return INVALID(p, name, "%s and %s both ask for a grammar: give one.", q->grammar_key,
                       name);
    if (text.len > GRAMMAR_TEXT_BYTES_MAX)
        return INVALID(p, name, "%s: %zu bytes are more than %zu.", name, text.len,
                       GRAMMAR_TEXT_BYTES_MAX);
    q->grammar_key = name;
    q->grammar = (struct grammar_spec){ kind, text };
    return 0;
}

/* Reads a grammar that is a text; an empty one is none, as llama.cpp's clients send it. */
static int grammar_text(struct openai_walk *p, const char *name, enum grammar_kind kind)
{
    struct str text;
    int rc = walk_string(p, name, 0, (double)GRAMMAR_TEXT_BYTES_MAX, &text);
    return rc < 0 || text.len == 0 ? rc : set_grammar(p, name, kind, text);
}

/* Reads a schema: JSON, or JSON in a string. */
static int grammar_schema(struct openai_walk *p, const char *name)
{
    struct str raw;
    if (p->r.token == JSON_STRING) return grammar_text(p, name, GRAMMAR_JSON_SCHEMA);
    if (p->r.token != JSON_OBJECT && p->r.token != JSON_TRUE && p->r.token != JSON_FALSE)
        return walk_wrong_type(p, name, "a JSON Schema");
    int rc = walk_raw(p, &raw);
    return rc < 0 ? rc : set_grammar(p, name, GRAMMAR_JSON_SCHEMA, raw);
}

static int grammar_choice(struct openai_walk *p, const char *name)
{
    struct str raw;
    if (p->r.token != JSON_ARRAY) return walk_wrong_type(p, name, "an array of strings");
    int rc = walk_raw(p, &raw);
    return rc < 0 ? rc : set_grammar(p, name, GRAMMAR_CHOICE, raw);
}

int openai_take_schema(struct openai_walk *p, const struct openai_key *k)
{
    return grammar_schema(p, k->name);
}

int openai_take_regex(struct openai_walk *p, const struct openai_key *k)
{
    return grammar_text(p, k->name, GRAMMAR_REGEX);
}

int openai_take_gbnf(struct openai_walk *p, const struct openai_key *k)
{
    return grammar_text(p, k->name, GRAMMAR_GBNF);
}

int openai_take_choice(struct openai_walk *p, const struct openai_key *k)
{
    return grammar_choice(p, k->name);
}

/* vLLM's: an object with one of the kinds. */
int openai_take_structured(struct openai_walk *p, const struct openai_key *k)
{
    if (p->r.token != JSON_OBJECT) return walk_wrong_type(p, k->name, "an object");
    int rc = 0;
    while (rc == 0 && json_next(&p->r) == JSON_KEY) {
        bool json = json_key_is(&p->r, "json"), regex = json_key_is(&p->r, "regex");
        bool choice = json_key_is(&p->r, "choice"), grammar = json_key_is(&p->r, "grammar");
        bool object = json_key_is(&p->r, "json_object"), tag = json_key_is(&p->r, "structural_tag");
        if (json_next(&p->r) == JSON_NULL) continue;
        if (p->r.token == JSON_FALSE)
            continue; /* disable_any_whitespace and the like: not asked for */
        if (json)
            rc = grammar_schema(p, "structured_outputs.json");
        else if (regex)
            rc = grammar_text(p, "structured_outputs.regex", GRAMMAR_REGEX);
        else if (choice)
            rc = grammar_choice(p, "structured_outputs.choice");
        else if (grammar)
            rc = grammar_text(p, "structured_outputs.grammar", GRAMMAR_GBNF);
        else if (tag)
            rc = grammar_text(p, "structured_outputs.structural_tag", GRAMMAR_TAGS);
        else if (object && p->r.token == JSON_TRUE)
            rc = set_grammar(p, "structured_outputs.json_object", GRAMMAR_JSON_OBJECT,
                             (struct str){ 0 });
        else
            rc = UNSERVED(p, k->name,
                          "structured_outputs: json, json_object, regex, choice, grammar and "
                          "structural_tag are served, this is not.");
    }
    if (rc < 0) return rc;
    return p->r.token == JSON_OBJECT_END ? 0 : walk_broken(p);
}

/* Reads json_schema of a response_format: the schema, and a name and a description that change nothing.
 * strict false is enforced like true, which its client cannot mind. */
static int format_schema(struct openai_walk *p, struct str *ret)
{
    static const char name[] = "response_format.json_schema";
    if (p->r.token != JSON_OBJECT) return walk_wrong_type(p, name, "an object");
    while (json_next(&p->r) == JSON_KEY) {
        bool wanted = json_key_is(&p->r, "schema");
        json_next(&p->r);
        struct str raw;
        int rc = walk_raw(p, &raw);
        if (rc < 0) return rc;
        if (wanted) *ret = raw;
    }
    return p->r.token == JSON_OBJECT_END ? 0 : walk_broken(p);
}

int openai_take_response_format(struct openai_walk *p, const struct openai_key *k)
{
    static const char schema_key[] = "response_format.json_schema.schema";
    struct str type = { 0 }, schema = { 0 };
    const char *name = schema_key;
    int rc = 0;
    const size_t start = p->r.start;
    if (p->r.token != JSON_OBJECT) return walk_wrong_type(p, k->name, "an object");
    while (rc == 0 && json_next(&p->r) == JSON_KEY) {
        bool is_type = json_key_is(&p->r, "type"), nested = json_key_is(&p->r, "json_schema");
        bool beside = json_key_is(&p->r, "schema"); /* llama.cpp's, with json_object */
        if (json_next(&p->r) == JSON_NULL) continue;
        if (is_type) {
            rc = walk_string(p, "response_format.type", 1, 64, &type);
        } else if (nested) {
            rc = format_schema(p, &schema);
        } else if (beside) {
            name = "response_format.schema";
            rc = walk_raw(p, &schema);
        } else {
            json_skip_rest(&p->r);
        }
    }
    if (rc < 0) return rc;
    if (p->r.token != JSON_OBJECT_END) return walk_broken(p);
    if (str_eq(type, STR("text"))) return 0;
    if (str_eq(type, STR("structural_tag")))
        return set_grammar(p, k->name, GRAMMAR_TAGS,
                           str_of(p->r.text.data + start, p->r.pos - start));
    if (str_eq(type, STR("json_object")) && !schema.data)
        return set_grammar(p, k->name, GRAMMAR_JSON_OBJECT, (struct str){ 0 });
    if (!str_eq(type, STR("json_object")) && !str_eq(type, STR("json_schema")))
        return UNSERVED(
            p, k->name,
            "response_format.type: text, json_object, json_schema and structural_tag are "
            "served.");
    if (!schema.data) return INVALID(p, k->name, "%s is missing.", schema_key);
    return set_grammar(p, name, GRAMMAR_JSON_SCHEMA, schema);
}
