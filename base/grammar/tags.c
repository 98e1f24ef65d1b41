/* tags.c - builds rules of structural tags: free text in which tags bind what stands between them.
 *
 * The description is JSON, in the two forms that vLLM and SGLang take. The older one:
 *
 *     {"structures": [{"begin": text, "schema": {..}, "end": text}, ..], "triggers": [text, ..]}
 *
 * and the newer one of xgrammar, {"format": F}, whose F is an object by its type:
 *
 *     const_string        value
 *     json_schema         json_schema
 *     regex               pattern
 *     any_text
 *     sequence, or        elements: [F, ..]
 *     tag                 begin, content: F, end. A content of any_text runs up to the first `end`
 *     triggered_tags      triggers, tags, at_least_one, stop_after_first: free text until a trigger comes,
 *                         which must become a tag that begins with it. at_least_one: the text begins with one
 *     tags_with_separator tags, separator, at_least_one, stop_after_first: tags and nothing else
 *
 * Ours are `at_start` of triggered_tags: a trigger counts as the first text only, as in dialects whose calls have
 * no mark of their own; and `loose` of json_schema: a schema that is not supported is any object. What is not listed
 * is refused by name. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/work.h"
#include "base/grammar/expr.h"

#define TAGS_MAX 1024 /* of one list */
#define TAGS_DEPTH_MAX 16

struct tag {
    struct str begin, end; /* unescaped */
    struct str content;    /* a format, or of the older form a schema */
    bool is_schema;
};

static const struct expr *format_expr(struct builder *b, struct str format, uint32_t depth);

/* ---- reading ---- */

/* Finds a member of an object; false: it has none, or null. The text was read once: it is JSON. */
static bool member(struct str object, const char *name, struct str *ret)
{
    struct json_reader r;
    json_reader_init(&r, object);
    if (json_next(&r) != JSON_OBJECT) return false;
    work_add(object.len / 8);
    while (json_next(&r) == JSON_KEY) {
        bool wanted = json_key_is(&r, name);
        struct str value;
        if (json_raw_value(&r, &value) < 0) return false;
        if (!wanted) continue;
        *ret = value;
        return !str_eq(value, STR("null"));
    }
    return false;
}

static int text_of(struct builder *b, struct str raw, const char *name, struct str *ret)
{
    struct json_reader r;
    json_reader_init(&r, raw);
    if (json_next(&r) != JSON_STRING) {
        builder_fail(b, -EINVAL, "structural tag: %s must be a string", name);
        return b->rc;
    }
    if (json_text_arena(&r, &b->arena, ret) < 0)
        builder_fail(b, -ENOMEM, "no memory for the grammar");
    return b->rc;
}

static int text_member(struct builder *b, struct str object, const char *name, struct str *ret)
{
    struct str raw;
    if (member(object, name, &raw)) return text_of(b, raw, name, ret);
    builder_fail(b, -EINVAL, "structural tag: %s is missing", name);
    return b->rc;
}

static bool flag(struct builder *b, struct str object, const char *name)
{
    struct str raw;
    if (!member(object, name, &raw) || str_eq(raw, STR("false"))) return false;
    if (!str_eq(raw, STR("true")))
        builder_fail(b, -EINVAL, "structural tag: %s must be true or false", name);
    return true;
}

/* Reads the items of a list, at least one, at most TAGS_MAX. */
static struct str *items_of(struct builder *b, struct str object, const char *name,
                            uint32_t *ret_count)
{
    struct str raw, *item = arena_array(&b->arena, TAGS_MAX, sizeof *item);
    struct json_reader r;
    uint32_t count = 0;
    if (!item) {
        builder_fail(b, -ENOMEM, "no memory for the grammar");
        return NULL;
    }
    bool has = member(object, name, &raw);
    if (has) {
        json_reader_init(&r, raw);
        has = json_next(&r) == JSON_ARRAY;
    }
    while (has) {
        struct json_reader ahead = r;
        if (json_next(&ahead) == JSON_ARRAY_END) break;
        if (count == TAGS_MAX) {
            builder_fail(b, -E2BIG, "structural tag: %s has more than %d items", name, TAGS_MAX);
            return NULL;
        }
        if (json_raw_value(&r, &item[count++]) < 0) has = false;
    }
    if (!has || count == 0) {
        builder_fail(b, -EINVAL, "structural tag: %s must be a list of at least one item", name);
        return NULL;
    }
    *ret_count = count;
    return item;
}

static struct str *texts_of(struct builder *b, struct str object, const char *name,
                            uint32_t *ret_count)
{
    struct str *item = items_of(b, object, name, ret_count);
    for (uint32_t i = 0; item && i < *ret_count; i++) {
        struct str raw = item[i];
        if (text_of(b, raw, name, &item[i]) < 0) return NULL;
        if (item[i].len == 0) {
            builder_fail(b, -EINVAL, "structural tag: an empty text in %s", name);
            return NULL;
        }
    }
    return item;
}

static struct tag *tags_of(struct builder *b, struct str object, const char *name, bool old,
                           uint32_t *ret_count)
{
    struct str *item = items_of(b, object, name, ret_count);
    struct tag *tag = item ? arena_array(&b->arena, *ret_count, sizeof *tag) : NULL;
    if (item && !tag) builder_fail(b, -ENOMEM, "no memory for the grammar");
    for (uint32_t i = 0; tag && i < *ret_count; i++) {
        const char *content = old ? "schema" : "content";
        tag[i] = (struct tag){ .is_schema = old };
        if (text_member(b, item[i], "begin", &tag[i].begin) < 0 ||
            text_member(b, item[i], "end", &tag[i].end) < 0)
            return NULL;
        if (member(item[i], content, &tag[i].content)) continue;
        builder_fail(b, -EINVAL, "structural tag: %s is missing", content);
        return NULL;
    }
    return tag;
}

/* ---- expressions ---- */

static bool is_any_text(struct builder *b, struct str format)
{
    struct str raw, type = { 0 };
    return member(format, "type", &raw) && text_of(b, raw, "type", &type) == 0 &&
           str_eq(type, STR("any_text"));
}

/* Returns a tag without the first `skipped` bytes of its begin. */
static const struct expr *tag_expr(struct builder *b, const struct tag *t, size_t skipped,
                                   uint32_t depth)
{
    const struct expr *begin =
        expr_bytes(b, str_of(t->begin.data + skipped, t->begin.len - skipped));
    if (!t->is_schema && t->end.len > 0 && is_any_text(b, t->content)) {
        const struct expr *nothing_more = expr_empty(b);
        const struct scan_way until = { .once = true, .must = true };
        return expr_seq2(b, begin, expr_scan(b, &t->end, &nothing_more, 1, until));
    }
    const struct expr *content =
        t->is_schema ? json_schema_expr(b, t->content) : format_expr(b, t->content, depth);
    return EXPR_SEQ_OF(b, begin, content, expr_bytes(b, t->end));
}

static const struct expr *one_of_tags(struct builder *b, const struct tag *tag, uint32_t count,
                                      uint32_t depth)
{
    struct expr_items items = { 0 };
    for (uint32_t i = 0; i < count; i++)
        expr_push(b, &items, tag_expr(b, &tag[i], 0, depth));
    return b->rc == 0 ? expr_of(b, EXPR_ALT, &items) : expr_nothing(b);
}

/* Each trigger leads to the tags that begin with it; each tag belongs to the first trigger that fits. */
static const struct expr *triggered(struct builder *b, struct str object, bool old, uint32_t depth)
{
    uint32_t tags = 0, triggers = 0;
    const struct str *trigger = texts_of(b, object, "triggers", &triggers);
    const struct tag *tag =
        trigger ? tags_of(b, object, old ? "structures" : "tags", old, &tags) : NULL;
    bool once = flag(b, object, "stop_after_first"), least = flag(b, object, "at_least_one");
    const struct scan_way way = { .once = once, .at_start = flag(b, object, "at_start") };
    const struct expr **after = arena_array(&b->arena, TAGS_MAX, sizeof *after);
    uint32_t *first = arena_array(&b->arena, TAGS_MAX, sizeof *first);
    if (b->rc == 0 && (!after || !first)) builder_fail(b, -ENOMEM, "no memory for the grammar");
    if (b->rc < 0) return expr_nothing(b);
    for (uint32_t i = 0; i < tags; i++) {
        for (first[i] = 0; first[i] < triggers; first[i]++)
            if (str_starts(tag[i].begin, trigger[first[i]])) break;
        if (first[i] == triggers)
            return builder_fail(b, -EINVAL,
                                "structural tag: the begin of tag %u starts with no trigger", i);
    }
    for (uint32_t k = 0; k < triggers; k++) {
        struct expr_items items = { 0 };
        for (uint32_t i = 0; i < tags; i++)
            if (first[i] == k) expr_push(b, &items, tag_expr(b, &tag[i], trigger[k].len, depth));
        after[k] = items.count > 0 ? expr_of(b, EXPR_ALT, &items) : expr_nothing(b);
    }
    const struct expr *scan = expr_scan(b, trigger, after, triggers, way);
    if (!least) return scan;
    const struct expr *begun = one_of_tags(b, tag, tags, depth);
    return once ? begun : expr_seq2(b, begun, scan);
}

static const struct expr *separated(struct builder *b, struct str object, uint32_t depth)
{
    uint32_t count = 0;
    struct str separator = { 0 };
    const struct tag *tag = tags_of(b, object, "tags", false, &count);
    bool once = flag(b, object, "stop_after_first"), least = flag(b, object, "at_least_one");
    if (!tag || text_member(b, object, "separator", &separator) < 0) return expr_nothing(b);
    uint32_t rule = rule_add(b, (struct str){ 0 });
    rule_set(b, rule, one_of_tags(b, tag, count, depth));
    const struct expr *one = expr_call(b, rule), *all = one;
    if (!once)
        all = expr_seq2(
            b, one, expr_repeat(b, expr_seq2(b, expr_bytes(b, separator), one), 0, EXPR_FOREVER));
    return least ? all : expr_optional(b, all);
}

static const struct expr *elements(struct builder *b, struct str object, enum expr_kind kind,
                                   uint32_t depth)
{
    uint32_t count = 0;
    struct expr_items items = { 0 };
    const struct str *item = items_of(b, object, "elements", &count);
    for (uint32_t i = 0; item && i < count; i++)
        expr_push(b, &items, format_expr(b, item[i], depth));
    return b->rc == 0 ? expr_of(b, kind, &items) : expr_nothing(b);
}

/* A loose schema that is not supported is any object; its rules are taken back. */
static const struct expr *schema_expr(struct builder *b, struct str object, struct str schema)
{
    struct json_rules json = { 0 };
    uint32_t rules = b->rule_count;
    bool loose = flag(b, object, "loose"), well = b->rc == 0;
    const struct expr *value = json_schema_expr(b, schema);
    if (!loose || !well || b->rc != -ENOTSUP) return value;
    b->rc = 0;
    b->rule_count = rules;
    return json_part(b, &json, JSON_PART_OBJECT);
}

/* A tag by itself is a list of one. */
static const struct expr *lone_tag(struct builder *b, struct str object, uint32_t depth)
{
    struct tag tag = { 0 };
    if (text_member(b, object, "begin", &tag.begin) < 0 ||
        text_member(b, object, "end", &tag.end) < 0)
        return expr_nothing(b);
    if (!member(object, "content", &tag.content))
        return builder_fail(b, -EINVAL, "structural tag: content is missing");
    return tag_expr(b, &tag, 0, depth);
}

static const struct expr *format_expr(struct builder *b, struct str format, uint32_t depth)
{
    struct str type = { 0 }, value = { 0 };
    if (depth > TAGS_DEPTH_MAX)
        return builder_fail(b, -E2BIG, "structural tag: more than %d formats nest", TAGS_DEPTH_MAX);
    if (text_member(b, format, "type", &type) < 0) return expr_nothing(b);
    if (str_eq(type, STR("const_string")))
        return text_member(b, format, "value", &value) < 0 ? expr_nothing(b) : expr_bytes(b, value);
    if (str_eq(type, STR("json_schema"))) {
        if (member(format, "json_schema", &value)) return schema_expr(b, format, value);
        return builder_fail(b, -EINVAL, "structural tag: json_schema is missing");
    }
    if (str_eq(type, STR("regex")))
        return text_member(b, format, "pattern", &value) < 0 ? expr_nothing(b)
                                                             : regex_expr(b, value, false, false);
    if (str_eq(type, STR("any_text"))) return expr_scan(b, NULL, NULL, 0, (struct scan_way){ 0 });
    if (str_eq(type, STR("sequence"))) return elements(b, format, EXPR_SEQ, depth + 1);
    if (str_eq(type, STR("or"))) return elements(b, format, EXPR_ALT, depth + 1);
    if (str_eq(type, STR("tag"))) return lone_tag(b, format, depth + 1);
    if (str_eq(type, STR("triggered_tags"))) return triggered(b, format, false, depth + 1);
    if (str_eq(type, STR("tags_with_separator"))) return separated(b, format, depth + 1);
    return builder_fail(b, -ENOTSUP,
                        "structural tag: the format " STR_FMT " is not supported; const_string, "
                        "json_schema, regex, any_text, sequence, or, tag, triggered_tags and "
                        "tags_with_separator are",
                        (int)min_size(type.len, 40), type.data);
}

void tags_build(struct builder *b, struct str text)
{
    struct json_reader r;
    struct str whole, format;
    json_reader_init(&r, text.len > 0 ? text : STR("?"));
    if (json_next(&r) != JSON_OBJECT || json_skip_rest(&r) == JSON_ERROR ||
        json_next(&r) != JSON_END) {
        builder_fail(b, -EINVAL, "a structural tag must be a JSON object: %s at byte %zu",
                     r.problem ? r.problem : "it is not one", r.pos);
        return;
    }
    whole = text;
    const struct expr *all =
        member(whole, "format", &format) ? format_expr(b, format, 0) : triggered(b, whole, true, 0);
    rule_set(b, 0, all);
}
