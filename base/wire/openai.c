/* openai.c - parses the body of a completion request in one pass, checked by one table of keys.
 *
 * Every served key is a row: how it is read, where it goes, its range. Keys that would change the
 * output and are not served are rows too, with the values that change nothing; any other value is
 * refused by name, because output for a different request is worse than none. All other keys are
 * ignored. */
#include "base/wire/openai.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"

#include <stdarg.h>

struct openai_walk {
    struct json_reader r;
    struct arena *arena;
    struct openai_error *e;
    struct openai_request req;
    const char *key;                /* key of the body that is being read; NULL: not in the table */
    uint32_t max_completion_tokens; /* 0: absent */
    bool has_stream_options;
    bool tools_off; /* tool_choice "none" */
    struct str reasoning_effort;
};

#define INVALID(p, param, ...) openai_error_set((p)->e, -EINVAL, OPENAI_INVALID, param, __VA_ARGS__)
#define UNSERVED(p, param, ...) \
    openai_error_set((p)->e, -EINVAL, OPENAI_UNSUPPORTED, param, __VA_ARGS__)

#define ON_CHAT (1u << OPENAI_CHAT)
#define ON_COMPLETION (1u << OPENAI_COMPLETION)
#define ON_BOTH (ON_CHAT | ON_COMPLETION)

struct key {
    const char *name;
    unsigned surfaces;
    int (*take)(struct openai_walk *p,
                const struct key *k); /* the reader stands on the value, not null */
    size_t offset;                    /* in struct openai_walk */
    double min, max;                  /* numbers: value; strings: bytes */
    const char *only; /* take_nothing: raw values that change nothing, separated by | */
};

static int broken_json(struct openai_walk *p)
{
    const char *problem = p->r.problem ? p->r.problem : "not what belongs here";
    if (p->r.beyond)
        return INVALID(p, p->key, "%s: %s at byte %zu.", p->key ? p->key : "The body", problem,
                       p->r.start);
    return INVALID(p, NULL, "The body is not valid JSON: %s at byte %zu.", problem, p->r.start);
}

static int wrong_type(struct openai_walk *p, const char *name, const char *wanted)
{
    if (p->r.token == JSON_ERROR) return broken_json(p);
    return INVALID(p, name, "%s must be %s.", name, wanted);
}

static int no_memory(struct openai_walk *p, const char *name)
{
    return openai_error_set(p->e, -ENOMEM, OPENAI_TOO_LARGE, name,
                            "%s needs more memory than one request may use.", name);
}

static int out_of_range(struct openai_walk *p, const struct key *k)
{
    return INVALID(p, k->name, "%s: %.*s is outside %.15g..%.15g.", k->name,
                   (int)min_size(p->r.raw.len, 32), p->r.raw.data, k->min, k->max);
}

static int take_f64(struct openai_walk *p, const struct key *k)
{
    double v = 0;
    int rc = json_f64(&p->r, &v);
    if (rc == -EINVAL) return wrong_type(p, k->name, "a number");
    if (rc < 0 || v < k->min || v > k->max) return out_of_range(p, k);
    memcpy((char *)p + k->offset, &v, sizeof v);
    return 0;
}

static int whole_number(struct openai_walk *p, const struct key *k, int64_t *ret)
{
    int64_t v = 0;
    int rc = json_i64(&p->r, &v);
    if (rc == -EINVAL) return wrong_type(p, k->name, "a whole number");
    if (rc < 0 || (double)v < k->min || (double)v > k->max) return out_of_range(p, k);
    *ret = v;
    return 0;
}

/* Reads a uint32_t. A value below zero (top_k: -1) means off, as 0 does. */
static int take_u32(struct openai_walk *p, const struct key *k)
{
    int64_t v = 0;
    int rc = whole_number(p, k, &v);
    if (rc < 0) return rc;
    uint32_t narrow = v < 0 ? 0 : (uint32_t)v;
    memcpy((char *)p + k->offset, &narrow, sizeof narrow);
    return 0;
}

static int take_seed(struct openai_walk *p, const struct key *k)
{
    int64_t v = 0;
    int rc = whole_number(p, k, &v);
    if (rc < 0) return rc;
    p->req.sampling.seed = (uint64_t)v;
    p->req.sampling.has_seed = true;
    return 0;
}

static int take_bool(struct openai_walk *p, const struct key *k)
{
    bool v;
    if (json_bool(&p->r, &v) < 0) return wrong_type(p, k->name, "true or false");
    memcpy((char *)p + k->offset, &v, sizeof v);
    return 0;
}

/* Copies the current string, unescaped, into the arena; `name` is for the error sentence. */
static int string_of(struct openai_walk *p, const char *name, double bytes_min, double bytes_max,
                     struct str *ret)
{
    struct str text;
    int rc = json_text_arena(&p->r, p->arena, &text);
    if (rc == -ENOMEM) return no_memory(p, name);
    if (rc < 0) return wrong_type(p, name, "a string");
    if ((double)text.len < bytes_min || (double)text.len > bytes_max)
        return INVALID(p, name, "%s: %zu bytes are outside %.15g..%.15g.", name, text.len,
                       bytes_min, bytes_max);
    *ret = text;
    return 0;
}

static int take_str(struct openai_walk *p, const struct key *k)
{
    struct str text;
    int rc = string_of(p, k->name, k->min, k->max, &text);
    if (rc == 0) memcpy((char *)p + k->offset, &text, sizeof text);
    return rc;
}

/* Returns the bytes of a value as they stand in the body; the current token is its first. */
static int raw_of(struct openai_walk *p, struct str *ret)
{
    size_t start = p->r.start;
    if (json_skip_rest(&p->r) == JSON_ERROR) return broken_json(p);
    *ret = str_of(p->r.text.data + start, p->r.pos - start);
    return 0;
}

static int take_nothing(struct openai_walk *p, const struct key *k)
{
    struct str raw, only = str_from(k->only);
    int rc = raw_of(p, &raw);
    if (rc < 0) return rc;
    while (only.len)
        if (str_eq(raw, str_cut(&only, '|'))) return 0;
    if (k->only) return UNSERVED(p, k->name, "%s is not served; only %s is.", k->name, k->only);
    return UNSERVED(p, k->name, "%s is not served; leave it out.", k->name);
}

/* Counts the items of an array; the current token is its opening bracket. */
static int count_items(struct openai_walk *p, const char *name, uint32_t most, uint32_t *ret)
{
    struct json_reader ahead = p->r;
    uint32_t inside = ahead.depth, count = 0;
    while (json_skip(&ahead) != JSON_ERROR && ahead.depth >= inside)
        if (++count > most) return INVALID(p, name, "%s: more than %u items.", name, most);
    if (ahead.token == JSON_ERROR) {
        p->r = ahead;
        return broken_json(p);
    }
    *ret = count;
    return 0;
}

static int take_stop(struct openai_walk *p, const struct key *k)
{
    uint32_t count = 1;
    bool array = p->r.token == JSON_ARRAY;
    if (!array && p->r.token != JSON_STRING)
        return wrong_type(p, k->name, "a string or an array of strings");
    int rc = array ? count_items(p, k->name, OPENAI_STOP_MAX, &count) : 0;
    if (rc < 0) return rc;
    struct str *stop = arena_array(p->arena, count, sizeof *stop);
    if (!stop) return no_memory(p, k->name);
    for (uint32_t i = 0; i < count; i++) {
        if (array) json_next(&p->r);
        rc = string_of(p, k->name, k->min, k->max, &stop[i]);
        if (rc < 0) return rc;
    }
    if (array) json_next(&p->r); /* the closing bracket */
    p->req.stop = stop;
    p->req.stop_count = count;
    return 0;
}

/* Reads an array of ids; the current token is its opening bracket. */
static int take_prompt_ids(struct openai_walk *p, const struct key *k)
{
    uint32_t count = 0;
    int rc = count_items(p, k->name, OPENAI_PROMPT_IDS_MAX, &count);
    if (rc < 0) return rc;
    if (count == 0) return INVALID(p, k->name, "prompt may not be empty.");
    uint32_t *ids = arena_array(p->arena, count, sizeof *ids);
    if (!ids) return no_memory(p, k->name);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t id;
        json_next(&p->r);
        if (json_u64(&p->r, &id) < 0 || id > UINT32_MAX)
            return INVALID(p, k->name, "prompt: item %u is no token id.", i);
        ids[i] = (uint32_t)id;
    }
    json_next(&p->r); /* the closing bracket */
    p->req.prompt_ids = ids;
    p->req.prompt_id_count = count;
    return 0;
}

/* Reads a prompt: text, ids, or an array that holds one of them (a batch of one). */
static int take_prompt(struct openai_walk *p, const struct key *k)
{
    static const char wanted[] = "a string, an array of token ids, or an array of one of these";
    if (p->r.token == JSON_STRING) return take_str(p, k);
    if (p->r.token != JSON_ARRAY) return wrong_type(p, k->name, wanted);
    struct json_reader ahead = p->r;
    enum json_token first = json_next(&ahead);
    if (first == JSON_NUMBER) return take_prompt_ids(p, k);
    uint32_t count = 0;
    int rc = count_items(p, k->name, OPENAI_PROMPT_IDS_MAX, &count);
    if (rc < 0) return rc;
    if (count == 0) return INVALID(p, k->name, "prompt may not be empty.");
    if (count > 1)
        return UNSERVED(p, k->name, "prompt: one prompt a request is served, not %u.", count);
    json_next(&p->r);
    if (first == JSON_STRING)
        rc = take_str(p, k);
    else if (first == JSON_ARRAY)
        rc = take_prompt_ids(p, k);
    else
        rc = wrong_type(p, k->name, wanted);
    if (rc == 0) json_next(&p->r); /* the outer closing bracket */
    return rc;
}

static int take_stream_options(struct openai_walk *p, const struct key *k)
{
    if (p->r.token != JSON_OBJECT) return wrong_type(p, k->name, "an object");
    p->has_stream_options = true;
    while (json_next(&p->r) == JSON_KEY) {
        bool wanted = json_key_is(&p->r, "include_usage");
        json_skip(&p->r);
        if (!wanted || p->r.token == JSON_NULL) continue;
        if (json_bool(&p->r, &p->req.include_usage) < 0)
            return wrong_type(p, "stream_options.include_usage", "true or false");
    }
    return p->r.token == JSON_OBJECT_END ? 0 : broken_json(p);
}

static int take_tools(struct openai_walk *p, const struct key *k)
{
    if (p->r.token != JSON_ARRAY) return wrong_type(p, k->name, "an array");
    size_t start = p->r.start;
    uint32_t inside = p->r.depth, count = 0;
    while (json_next(&p->r) == JSON_OBJECT) {
        if (++count > OPENAI_TOOLS_MAX)
            return INVALID(p, k->name, "tools: more than %d items.", OPENAI_TOOLS_MAX);
        json_skip_rest(&p->r);
    }
    if (p->r.token == JSON_ERROR) return broken_json(p);
    if (p->r.depth >= inside) return INVALID(p, k->name, "tools must hold objects only.");
    if (count > 0) p->req.tools = str_of(p->r.text.data + start, p->r.pos - start);
    return 0;
}

/* Reads the object that names a tool: {"type": "function", "function": {"name": text}}. */
static int take_named_tool(struct openai_walk *p, const struct key *k)
{
    struct str type = { 0 };
    while (json_next(&p->r) == JSON_KEY) {
        bool is_type = json_key_is(&p->r, "type"), function = json_key_is(&p->r, "function");
        json_next(&p->r);
        if (is_type && p->r.token == JSON_STRING) type = p->r.raw;
        if (!function || p->r.token != JSON_OBJECT) {
            json_skip_rest(&p->r);
            continue;
        }
        while (json_next(&p->r) == JSON_KEY) {
            bool name = json_key_is(&p->r, "name");
            json_next(&p->r);
            int rc =
                name ? string_of(p, "tool_choice.function.name", 1, 256, &p->req.tool_only) : 0;
            if (rc < 0) return rc;
            if (!name) json_skip_rest(&p->r);
        }
    }
    if (p->r.token != JSON_OBJECT_END) return broken_json(p);
    if (!str_eq(type, STR("function")) || p->req.tool_only.len == 0)
        return UNSERVED(p, k->name,
                        "tool_choice: \"auto\", \"none\", \"required\" and {\"type\": "
                        "\"function\", \"function\": {\"name\": text}} are served.");
    p->req.tool_choice = OPENAI_TOOLS_REQUIRED;
    return 0;
}

static int take_tool_choice(struct openai_walk *p, const struct key *k)
{
    struct str raw;
    if (p->r.token == JSON_OBJECT) return take_named_tool(p, k);
    int rc = raw_of(p, &raw);
    if (rc < 0) return rc;
    p->tools_off = str_eq(raw, STR("\"none\""));
    if (p->tools_off) p->req.tool_choice = OPENAI_TOOLS_NONE;
    if (str_eq(raw, STR("\"required\""))) p->req.tool_choice = OPENAI_TOOLS_REQUIRED;
    if (p->req.tool_choice != OPENAI_TOOLS_AUTO || str_eq(raw, STR("\"auto\""))) return 0;
    return UNSERVED(p, k->name,
                    "tool_choice: \"auto\", \"none\", \"required\" or an object that names a "
                    "function.");
}

static int take_parallel(struct openai_walk *p, const struct key *k)
{
    bool parallel;
    if (json_bool(&p->r, &parallel) < 0) return wrong_type(p, k->name, "true or false");
    p->req.no_parallel_tool_calls = !parallel;
    return 0;
}

static int take_object(struct openai_walk *p, const struct key *k)
{
    struct str raw;
    if (p->r.token != JSON_OBJECT) return wrong_type(p, k->name, "an object");
    int rc = raw_of(p, &raw);
    if (rc == 0) memcpy((char *)p + k->offset, &raw, sizeof raw);
    return rc;
}

/* ---- grammars ---- */

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
    int rc = string_of(p, name, 0, (double)GRAMMAR_TEXT_BYTES_MAX, &text);
    return rc < 0 || text.len == 0 ? rc : set_grammar(p, name, kind, text);
}

/* Reads a schema: JSON, or JSON in a string. */
static int grammar_schema(struct openai_walk *p, const char *name)
{
    struct str raw;
    if (p->r.token == JSON_STRING) return grammar_text(p, name, GRAMMAR_JSON_SCHEMA);
    if (p->r.token != JSON_OBJECT && p->r.token != JSON_TRUE && p->r.token != JSON_FALSE)
        return wrong_type(p, name, "a JSON Schema");
    int rc = raw_of(p, &raw);
    return rc < 0 ? rc : set_grammar(p, name, GRAMMAR_JSON_SCHEMA, raw);
}

static int grammar_choice(struct openai_walk *p, const char *name)
{
    struct str raw;
    if (p->r.token != JSON_ARRAY) return wrong_type(p, name, "an array of strings");
    int rc = raw_of(p, &raw);
    return rc < 0 ? rc : set_grammar(p, name, GRAMMAR_CHOICE, raw);
}

static int take_schema(struct openai_walk *p, const struct key *k)
{
    return grammar_schema(p, k->name);
}

static int take_regex(struct openai_walk *p, const struct key *k)
{
    return grammar_text(p, k->name, GRAMMAR_REGEX);
}

static int take_gbnf(struct openai_walk *p, const struct key *k)
{
    return grammar_text(p, k->name, GRAMMAR_GBNF);
}

static int take_choice(struct openai_walk *p, const struct key *k)
{
    return grammar_choice(p, k->name);
}

/* vLLM's: an object with one of the kinds. */
static int take_structured(struct openai_walk *p, const struct key *k)
{
    if (p->r.token != JSON_OBJECT) return wrong_type(p, k->name, "an object");
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
    return p->r.token == JSON_OBJECT_END ? 0 : broken_json(p);
}

/* Reads json_schema of a response_format: the schema, and a name and a description that change nothing.
 * strict false is enforced like true, which its client cannot mind. */
static int format_schema(struct openai_walk *p, struct str *ret)
{
    static const char name[] = "response_format.json_schema";
    if (p->r.token != JSON_OBJECT) return wrong_type(p, name, "an object");
    while (json_next(&p->r) == JSON_KEY) {
        bool wanted = json_key_is(&p->r, "schema");
        json_next(&p->r);
        struct str raw;
        int rc = raw_of(p, &raw);
        if (rc < 0) return rc;
        if (wanted) *ret = raw;
    }
    return p->r.token == JSON_OBJECT_END ? 0 : broken_json(p);
}

static int take_response_format(struct openai_walk *p, const struct key *k)
{
    static const char schema_key[] = "response_format.json_schema.schema";
    struct str type = { 0 }, schema = { 0 };
    const char *name = schema_key;
    int rc = 0;
    const size_t start = p->r.start;
    if (p->r.token != JSON_OBJECT) return wrong_type(p, k->name, "an object");
    while (rc == 0 && json_next(&p->r) == JSON_KEY) {
        bool is_type = json_key_is(&p->r, "type"), nested = json_key_is(&p->r, "json_schema");
        bool beside = json_key_is(&p->r, "schema"); /* llama.cpp's, with json_object */
        if (json_next(&p->r) == JSON_NULL) continue;
        if (is_type) {
            rc = string_of(p, "response_format.type", 1, 64, &type);
        } else if (nested) {
            rc = format_schema(p, &schema);
        } else if (beside) {
            name = "response_format.schema";
            rc = raw_of(p, &schema);
        } else {
            json_skip_rest(&p->r);
        }
    }
    if (rc < 0) return rc;
    if (p->r.token != JSON_OBJECT_END) return broken_json(p);
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

/* ---- messages ---- */

/* The functions below check the messages of a chat request and give each content as one string.
 *
 * Messages stay JSON (the chat template reads them), with one change: content given as parts of
 * text becomes one string, parts joined by a line break, because templates expect strings. The
 * joined form is never longer than the parts were, so it is built in one arena block by copying
 * slices that are already escaped. */

/* Copies the messages with the content parts joined. */
struct rewrite {
    char *out; /* NULL: nothing had to be changed so far */
    size_t len;
    size_t from; /* offset in the body of the next byte to copy */
};

static void rewrite_put(struct rewrite *w, struct str s)
{
    memcpy(w->out + w->len, s.data, s.len);
    w->len += s.len;
}

static void rewrite_copy_to(struct rewrite *w, struct str body, size_t end)
{
    rewrite_put(w, str_of(body.data + w->from, end - w->from));
    w->from = end;
}

/* Reads one part, with its opening bracket as the current token; *ret is its text, still escaped. */
static int text_part(struct openai_walk *p, uint32_t index, struct str *ret)
{
    struct json_reader *r = &p->r;
    struct str type = { 0 }, text = { 0 };
    if (r->token != JSON_OBJECT)
        return INVALID(p, "messages", "messages[%u].content: a part must be an object.", index);
    while (json_next(r) == JSON_KEY) {
        struct str *to = json_key_is(r, "type") ? &type : json_key_is(r, "text") ? &text : NULL;
        enum json_token t = json_skip(r);
        /* The data of an empty string is not NULL: it points between its quotes in the body. */
        if (to && t == JSON_STRING) *to = r->raw;
    }
    if (r->token != JSON_OBJECT_END) return broken_json(p);
    if (!str_eq(type, STR("text")))
        return UNSERVED(p, "messages",
                        "messages[%u].content: parts of type \"%.*s\" are not served, text is.",
                        index, (int)min_size(type.len, 32), type.data ? type.data : "");
    if (!text.data)
        return INVALID(p, "messages", "messages[%u].content: a part without text.", index);
    *ret = text;
    return 0;
}

/* Joins an array of parts, with its opening bracket as the current token, to one string; *ret is the text
 * between its quotes. */
static int join_parts(struct openai_walk *p, uint32_t index, struct str body, struct rewrite *w,
                      struct str *ret)
{
    if (!w->out) w->out = arena_alloc(p->arena, body.len);
    if (!w->out) return no_memory(p, "messages");
    rewrite_copy_to(w, body, p->r.start);
    rewrite_put(w, STR("\""));
    const size_t from = w->len;
    for (uint32_t count = 0; json_next(&p->r) != JSON_ARRAY_END; count++) {
        struct str text = { 0 };
        if (count == OPENAI_PARTS_MAX)
            return INVALID(p, "messages", "messages[%u].content: more than %d parts.", index,
                           OPENAI_PARTS_MAX);
        int rc = p->r.token == JSON_ERROR ? broken_json(p) : text_part(p, index, &text);
        if (rc < 0) return rc;
        if (count > 0) rewrite_put(w, STR("\\n"));
        rewrite_put(w, text);
    }
    *ret = str_of(w->out + from, w->len - from);
    rewrite_put(w, STR("\""));
    w->from = p->r.pos;
    return 0;
}

/* Reads a content of any form; the data of *ret is NULL if it is null. */
static int take_content(struct openai_walk *p, uint32_t index, struct str body, struct rewrite *w,
                        struct str *ret)
{
    enum json_token t = json_next(&p->r);
    *ret = t == JSON_STRING ? p->r.raw : (struct str){ 0 };
    if (t == JSON_STRING || t == JSON_NULL) return 0;
    if (t == JSON_ARRAY) return join_parts(p, index, body, w, ret);
    if (t == JSON_ERROR) return broken_json(p);
    return INVALID(p, "messages", "messages[%u].content must be a string or an array of parts.",
                   index);
}

static void note_content(struct openai_request *req, struct str role, struct str content)
{
    if (!content.data) return;
    req->last_text = content;
    if (str_eq(role, STR("assistant"))) req->last_answer = content;
    if (str_eq(role, STR("system")) || str_eq(role, STR("developer"))) req->last_system = content;
}

/* Reads one message, with its opening bracket as the current token. */
static int take_message(struct openai_walk *p, uint32_t index, struct str body, struct rewrite *w)
{
    struct json_reader *r = &p->r;
    struct str role_text = { 0 }, content_text = { 0 };
    bool has_role = false, has_content = false;
    if (r->token == JSON_ERROR) return broken_json(p);
    if (r->token != JSON_OBJECT)
        return INVALID(p, "messages", "messages[%u] must be an object.", index);
    while (json_next(r) == JSON_KEY) {
        bool role = json_key_is(r, "role"), content = json_key_is(r, "content");
        if ((role && has_role) || (content && has_content))
            return INVALID(p, "messages", "messages[%u]: \"%s\" stands there twice.", index,
                           role ? "role" : "content");
        has_role = has_role || role;
        has_content = has_content || content;
        if (content) {
            int rc = take_content(p, index, body, w, &content_text);
            if (rc < 0) return rc;
        } else if (json_skip(r) != JSON_STRING && role) {
            return wrong_type(p, "messages", "an array of objects whose role is a string");
        } else if (role) {
            role_text = r->raw;
        }
    }
    if (r->token != JSON_OBJECT_END) return broken_json(p);
    if (!has_role) return INVALID(p, "messages", "messages[%u] has no role.", index);
    note_content(&p->req, role_text, content_text);
    return 0;
}

static int take_messages(struct openai_walk *p, const struct key *k)
{
    (void)k;
    uint32_t count = 0;
    if (p->r.token != JSON_ARRAY) return wrong_type(p, "messages", "an array");
    size_t start = p->r.start;
    struct rewrite w = { .from = start };
    for (; json_next(&p->r) != JSON_ARRAY_END; count++) {
        if (count == OPENAI_MESSAGES_MAX)
            return INVALID(p, "messages", "messages: more than %u items.", OPENAI_MESSAGES_MAX);
        int rc = take_message(p, count, p->r.text, &w);
        if (rc < 0) return rc;
    }
    if (count == 0) return INVALID(p, "messages", "messages may not be empty.");
    if (w.out) rewrite_copy_to(&w, p->r.text, p->r.pos);
    p->req.messages =
        w.out ? str_of(w.out, w.len) : str_of(p->r.text.data + start, p->r.pos - start);
    return 0;
}

/* ---- the body ---- */

#define AT(member) offsetof(struct openai_walk, req.member)

/* clang-format off */
static const struct key keys[] = {
    /* name                    where          how                  to                             min   max */
    { "model",                 ON_BOTH,       take_str,            AT(model),                     0,    OPENAI_MODEL_BYTES_MAX, NULL },
    { "user",                  ON_BOTH,       take_str,            AT(user),                      0,    OPENAI_USER_BYTES_MAX, NULL },
    { "prompt_cache_key",      ON_BOTH,       take_str,            AT(group),                     0,    OPENAI_GROUP_BYTES_MAX, NULL },
    { "messages",              ON_CHAT,       take_messages,       0,                             0,    0,    NULL },
    { "tools",                 ON_CHAT,       take_tools,          0,                             0,    0,    NULL },
    { "tool_choice",           ON_CHAT,       take_tool_choice,    0,                             0,    0,    NULL },
    { "parallel_tool_calls",   ON_CHAT,       take_parallel,       0,                             0,    0,    NULL },
    { "reasoning_effort",      ON_CHAT,       take_str,            offsetof(struct openai_walk, reasoning_effort), 1, 32, NULL },
    { "chat_template_kwargs",  ON_CHAT,       take_object,         AT(chat_template_kwargs),      0,    0,    NULL },
    { "prompt",                ON_COMPLETION, take_prompt,         AT(prompt),                    1,    BUF_BYTES_MAX, NULL },
    { "temperature",           ON_BOTH,       take_f64,            AT(sampling.temperature),      0,    2,    NULL },
    { "top_p",                 ON_BOTH,       take_f64,            AT(sampling.top_p),            0,    1,    NULL },
    { "top_k",                 ON_BOTH,       take_u32,            AT(sampling.top_k),            -1,   INT32_MAX, NULL },
    { "min_p",                 ON_BOTH,       take_f64,            AT(sampling.min_p),            0,    1,    NULL },
    { "presence_penalty",      ON_BOTH,       take_f64,            AT(sampling.presence_penalty), -2,   2,    NULL },
    { "frequency_penalty",     ON_BOTH,       take_f64,            AT(sampling.frequency_penalty),-2,   2,    NULL },
    { "repetition_penalty",    ON_BOTH,       take_f64,            AT(sampling.repetition_penalty),0.01,10,   NULL },
    { "seed",                  ON_BOTH,       take_seed,           0,                             (double)INT64_MIN, (double)INT64_MAX, NULL },
    { "max_tokens",            ON_BOTH,       take_u32,            AT(max_tokens),                1,    OPENAI_TOKENS_MAX, NULL },
    { "max_completion_tokens", ON_BOTH,       take_u32,            offsetof(struct openai_walk, max_completion_tokens), 1, OPENAI_TOKENS_MAX, NULL },
    { "min_tokens",            ON_BOTH,       take_u32,            AT(min_tokens),                0,    OPENAI_TOKENS_MAX, NULL },
    { "stop",                  ON_BOTH,       take_stop,           0,                             1,    OPENAI_STOP_BYTES_MAX, NULL },
    { "ignore_eos",            ON_BOTH,       take_bool,           AT(ignore_eos),                0,    0,    NULL },
    { "stream",                ON_BOTH,       take_bool,           AT(stream),                    0,    0,    NULL },
    { "stream_options",        ON_BOTH,       take_stream_options, 0,                             0,    0,    NULL },
    /* grammars: OpenAI's, vLLM's, SGLang's and llama.cpp's names */
    { "response_format",       ON_BOTH,       take_response_format, 0,                            0,    0,    NULL },
    { "structured_outputs",    ON_BOTH,       take_structured,     0,                             0,    0,    NULL },
    { "guided_json",           ON_BOTH,       take_schema,         0,                             0,    0,    NULL },
    { "guided_regex",          ON_BOTH,       take_regex,          0,                             0,    0,    NULL },
    { "guided_choice",         ON_BOTH,       take_choice,         0,                             0,    0,    NULL },
    { "guided_grammar",        ON_BOTH,       take_gbnf,           0,                             0,    0,    NULL },
    { "json_schema",           ON_BOTH,       take_schema,         0,                             0,    0,    NULL },
    { "regex",                 ON_BOTH,       take_regex,          0,                             0,    0,    NULL },
    { "ebnf",                  ON_BOTH,       take_gbnf,           0,                             0,    0,    NULL },
    { "grammar",               ON_BOTH,       take_gbnf,           0,                             0,    0,    NULL },
    /* not served: only the values in the last column, which change nothing, are accepted */
    { "n",                          ON_BOTH,  take_nothing, 0, 0, 0, "1" },
    { "best_of",                    ON_BOTH,  take_nothing, 0, 0, 0, "1" },
    { "logprobs",                   ON_BOTH,  take_nothing, 0, 0, 0, "false" },
    { "top_logprobs",               ON_BOTH,  take_nothing, 0, 0, 0, "0" },
    { "prompt_logprobs",            ON_BOTH,  take_nothing, 0, 0, 0, NULL },
    { "logit_bias",                 ON_BOTH,  take_nothing, 0, 0, 0, "{}" },
    { "guided_whitespace_pattern",  ON_BOTH,  take_nothing, 0, 0, 0, NULL },
    { "structural_tag",             ON_BOTH,  take_nothing, 0, 0, 0, NULL },
    { "grammar_lazy",               ON_BOTH,  take_nothing, 0, 0, 0, "false" },
    { "functions",                  ON_CHAT,  take_nothing, 0, 0, 0, "[]" },
    { "function_call",              ON_CHAT,  take_nothing, 0, 0, 0, "\"none\"|\"auto\"" },
    { "modalities",                 ON_CHAT,  take_nothing, 0, 0, 0, "[\"text\"]" },
    { "audio",                      ON_CHAT,  take_nothing, 0, 0, 0, NULL },
    { "verbosity",                  ON_CHAT,  take_nothing, 0, 0, 0, NULL },
    { "web_search_options",         ON_CHAT,  take_nothing, 0, 0, 0, NULL },
    { "documents",                  ON_CHAT,  take_nothing, 0, 0, 0, "[]" },
    { "chat_template",              ON_CHAT,  take_nothing, 0, 0, 0, NULL },
    { "add_generation_prompt",      ON_CHAT,  take_nothing, 0, 0, 0, "true" },
    { "continue_final_message",     ON_CHAT,  take_nothing, 0, 0, 0, "false" },
    { "echo",                       ON_BOTH,  take_nothing, 0, 0, 0, "false" },
    { "suffix",                     ON_COMPLETION, take_nothing, 0, 0, 0, "\"\"" },
    { "prompt_embeds",              ON_COMPLETION, take_nothing, 0, 0, 0, NULL },
    { "use_beam_search",            ON_BOTH,  take_nothing, 0, 0, 0, "false" },
    { "length_penalty",             ON_BOTH,  take_nothing, 0, 0, 0, "1|1.0" },
    { "stop_token_ids",             ON_BOTH,  take_nothing, 0, 0, 0, "[]" },
    { "bad_words",                  ON_BOTH,  take_nothing, 0, 0, 0, "[]" },
    { "allowed_token_ids",          ON_BOTH,  take_nothing, 0, 0, 0, NULL },
    { "include_stop_str_in_output", ON_BOTH,  take_nothing, 0, 0, 0, "false" },
    { "skip_special_tokens",        ON_BOTH,  take_nothing, 0, 0, 0, "true" },
    { "truncate_prompt_tokens",     ON_BOTH,  take_nothing, 0, 0, 0, NULL },
    { "add_special_tokens",         ON_CHAT,  take_nothing, 0, 0, 0, "false" },
    { "add_special_tokens",         ON_COMPLETION, take_nothing, 0, 0, 0, "true" },
};
/* clang-format on */

static const struct key *find_key(const struct openai_walk *p)
{
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if ((keys[i].surfaces >> p->req.surface & 1) && json_key_is(&p->r, keys[i].name))
            return &keys[i];
    return NULL;
}

static int walk(struct openai_walk *p)
{
    bool seen[COUNT_OF(keys)] = { false };
    json_next(&p->r);
    if (p->r.token == JSON_ERROR) return broken_json(p);
    if (p->r.token != JSON_OBJECT) return INVALID(p, NULL, "The body must be a JSON object.");
    while (json_next(&p->r) == JSON_KEY) {
        const struct key *k = find_key(p);
        p->key = k ? k->name : NULL;
        if (!k) {
            json_skip(&p->r);
            continue;
        }
        if (seen[k - keys]) return INVALID(p, k->name, "%s stands there twice.", k->name);
        seen[k - keys] = true;
        if (json_next(&p->r) == JSON_NULL) continue;
        if (p->r.token == JSON_ERROR) return broken_json(p);
        int rc = k->take(p, k);
        if (rc < 0) return rc;
        p->key = NULL;
    }
    if (p->r.token != JSON_OBJECT_END || json_next(&p->r) != JSON_END) return broken_json(p);
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
    return kept ? 0 : no_memory(p, "reasoning_effort");
}

/* Checks the tools against tool_choice and grammars. */
static int settle_tools(struct openai_walk *p)
{
    struct openai_request *q = &p->req;
    if (p->tools_off) q->tools = (struct str){ 0 };
    if (q->tool_choice == OPENAI_TOOLS_REQUIRED && q->tools.len == 0)
        return INVALID(p, "tool_choice", "tool_choice asks for a call, but there are no tools.");
    if (q->tools.len > 0 && q->grammar_key)
        return UNSERVED(p, q->grammar_key,
                        "%s binds the whole output, and tools may call in it: give one of them, or "
                        "tool_choice \"none\".",
                        q->grammar_key);
    return settle_effort(p);
}

/* Checks the keys against each other and fills in defaults. */
static int settle(struct openai_walk *p)
{
    struct openai_request *q = &p->req;
    if (q->surface == OPENAI_CHAT && !q->messages.len)
        return INVALID(p, "messages", "messages is missing.");
    if (q->surface == OPENAI_COMPLETION && !q->prompt.len && !q->prompt_ids)
        return INVALID(p, "prompt", "prompt is missing.");
    if (p->has_stream_options && !q->stream)
        return INVALID(p, "stream_options", "stream_options needs stream to be true.");
    if (p->max_completion_tokens && q->max_tokens && p->max_completion_tokens != q->max_tokens)
        return INVALID(p, "max_tokens",
                       "max_tokens is %u and max_completion_tokens is %u: give one.", q->max_tokens,
                       p->max_completion_tokens);
    if (p->max_completion_tokens) q->max_tokens = p->max_completion_tokens;
    if (!q->max_tokens && q->surface == OPENAI_COMPLETION)
        q->max_tokens = max_u32(OPENAI_COMPLETION_TOKENS, q->min_tokens);
    if (q->max_tokens && q->min_tokens > q->max_tokens)
        return INVALID(p, "min_tokens", "min_tokens %u is more than max_tokens %u.", q->min_tokens,
                       q->max_tokens);
    return settle_tools(p);
}

int openai_parse(enum openai_surface surface, struct str body, struct arena *arena,
                 struct openai_request *ret, struct openai_error *e)
{
    struct openai_walk p = { .arena = arena, .e = e };
    p.req.surface = surface;
    p.req.sampling = SAMPLING_DEFAULT;
    json_reader_init(&p.r, body);
    int rc = walk(&p);
    if (rc == 0) rc = settle(&p);
    if (rc == 0) *ret = p.req;
    return rc;
}

/* ---- errors ---- */

/* This table gives each problem its status, type and code.
 *
 * They come from here only, so that the same mistake looks the same on every path. `type` and `code`
 * follow OpenAI where it has a name. */

static const struct {
    int status;
    const char *type, *code;
} catalogue[OPENAI_PROBLEM_COUNT] = {
    /* clang-format off */
    [OPENAI_INVALID]            = { 400, "invalid_request_error", NULL },
    [OPENAI_UNSUPPORTED]        = { 400, "invalid_request_error", "unsupported_parameter" },
    [OPENAI_CONTEXT_LENGTH]     = { 400, "invalid_request_error", "context_length_exceeded" },
    [OPENAI_UNAUTHENTICATED]    = { 401, "authentication_error",  "invalid_api_key" },
    [OPENAI_FORBIDDEN]          = { 403, "permission_error",      NULL },
    [OPENAI_MODEL_NOT_FOUND]    = { 404, "not_found_error",       "model_not_found" },
    [OPENAI_URL_NOT_FOUND]      = { 404, "not_found_error",       "unknown_url" },
    [OPENAI_METHOD_NOT_ALLOWED] = { 405, "invalid_request_error", "method_not_allowed" },
    [OPENAI_DEADLINE]           = { 408, "timeout_error",         "deadline_exceeded" },
    [OPENAI_TOO_LARGE]          = { 413, "invalid_request_error", "request_too_large" },
    [OPENAI_CONTENT_TYPE]       = { 415, "invalid_request_error", "unsupported_content_type" },
    [OPENAI_POISONOUS]          = { 422, "invalid_request_error", "request_crashes_engines" },
    [OPENAI_RATE_LIMIT]         = { 429, "rate_limit_error",      "rate_limit_exceeded" },
    [OPENAI_OVERLOADED]         = { 429, "rate_limit_error",      "overloaded" },
    [OPENAI_INTERNAL]           = { 500, "server_error",          NULL },
    [OPENAI_UPSTREAM]           = { 502, "server_error",          "upstream_failed" },
    [OPENAI_UNAVAILABLE]        = { 503, "unavailable_error",     "no_instance" },
    [OPENAI_LOADING]            = { 503, "unavailable_error",     "loading" },
    /* clang-format on */
};

int openai_error_set(struct openai_error *e, int rc, enum openai_problem problem, const char *param,
                     const char *format, ...)
{
    *e = (struct openai_error){
        .status = catalogue[problem].status,
        .type = catalogue[problem].type,
        .code = catalogue[problem].code,
    };
    size_t len = param ? strnlen(param, OPENAI_PARAM_BYTES_MAX) : 0;
    if (len) memcpy(e->param, param, len);

    struct err sentence = { 0 };
    va_list ap;
    va_start(ap, format);
    err_vset(&sentence, rc, format, ap);
    va_end(ap);
    memcpy(e->message, sentence.text, sizeof e->message);
    return rc;
}

int openai_error_render(const struct openai_error *e, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_key(&w, "error");
    json_object(&w);
    json_kv_text(&w, "message", e->message);
    json_kv_text(&w, "type", e->type);
    json_kv_text(&w, "param", e->param[0] ? e->param : NULL);
    json_kv_text(&w, "code", e->code);
    json_object_end(&w);
    json_object_end(&w);
    return out->rc;
}
