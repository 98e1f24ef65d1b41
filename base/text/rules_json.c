/* rules_json.c - has one reader for each type of component, in one table for each of the three places.
 *
 * A component is an object with a member "type"; a Sequence holds others. Expressions are not interpreted:
 * one that pretokenizer.c or the table of replacements knows is that rule, another is refused with its
 * text.
 */
#include "base/text/rules_json.h"

#include "base/core/bits.h"
#include "base/text/pretokenizer.h"

struct component {
    const char *type;
    int (*read)(const struct json_place *at, struct str raw, struct json_rules *ret,
                struct err *err);
};

static int read_by(const struct component *table, size_t count, const struct json_place *at,
                   struct str raw, struct json_rules *ret, struct err *err)
{
    struct str type = { 0 };
    int rc = json_type(at, raw, &type, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < count; i++)
        if (str_eq(type, str_from(table[i].type))) return table[i].read(at, raw, ret, err);
    return json_bad(at, -ENOTSUP, err, "type \"%.*s\" is not supported",
                    (int)min_size(type.len, 64), type.data);
}

static int add(const struct json_place *at, struct rule_list *list, struct text_rule rule,
               struct err *err)
{
    if (list->count == TEXT_RULES_MAX)
        return json_bad(at, -E2BIG, err, "more than %d rules", TEXT_RULES_MAX);
    list->list[list->count++] = rule;
    return 0;
}

/* Reads a component that has no members but its type. */
static int no_members(const struct json_place *at, struct str raw, struct err *err)
{
    struct json_field f[] = { { .name = "type" } };
    return json_fields(at, raw, f, COUNT_OF(f), err);
}

struct sequence {
    struct json_rules *rules;
    int (*read)(const struct json_place *at, struct str raw, struct json_rules *ret,
                struct err *err);
};

static int read_item(void *ctx, const struct json_place *at, struct str raw, struct err *err)
{
    const struct sequence *s = ctx;
    return s->read(at, raw, s->rules, err);
}

static int read_sequence(const struct json_place *at, struct str raw, const char *member,
                         struct sequence *s, struct err *err)
{
    struct json_field f[] = { { .name = "type" }, { .name = member } };
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    return rc < 0 ? rc : json_items(at, &f[1], read_item, s, err);
}

/* Reads {"String": text} or {"Regex": text}. */
static int read_pattern(const struct json_place *at, const struct json_field *f, struct str *text,
                        struct str *regex, struct err *err)
{
    const struct json_place here = json_member(at, f->name);
    struct json_field kinds[] = { { .name = "String" }, { .name = "Regex" } };
    int rc = json_fields(&here, f->raw, kinds, COUNT_OF(kinds), err);
    if (rc == 0) rc = json_field_text(&here, &kinds[0], text, err);
    if (rc == 0) rc = json_field_text(&here, &kinds[1], regex, err);
    if (rc == 0 && text->len == 0 && regex->len == 0)
        rc = json_bad(&here, -EINVAL, err, "want a String or a Regex");
    return rc;
}

/* ---- normalizers ---- */

#define NORMAL(name, rule)                                                                   \
    static int name(const struct json_place *at, struct str raw, struct json_rules *ret,     \
                    struct err *err)                                                         \
    {                                                                                        \
        int rc = no_members(at, raw, err);                                                   \
        return rc < 0 ? rc : add(at, &ret->normal, (struct text_rule){ .kind = rule }, err); \
    }

NORMAL(read_nfc, RULE_NFC)
NORMAL(read_nfd, RULE_NFD)
NORMAL(read_nfkc, RULE_NFKC)
NORMAL(read_nfkd, RULE_NFKD)
NORMAL(read_lowercase, RULE_LOWER)
NORMAL(read_strip_accents, RULE_STRIP_ACCENTS)

static int read_strip(const struct json_place *at, struct str raw, struct json_rules *ret,
                      struct err *err)
{
    struct json_field f[] = { { .name = "type" },
                              { .name = "strip_left" },
                              { .name = "strip_right" } };
    bool left = true, right = true;
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = json_field_bool(at, &f[1], &left, err);
    if (rc == 0) rc = json_field_bool(at, &f[2], &right, err);
    if (rc < 0) return rc;
    uint8_t flags = (uint8_t)((left ? RULE_LEFT : 0) | (right ? RULE_RIGHT : 0));
    return add(at, &ret->normal, (struct text_rule){ .kind = RULE_STRIP, .flags = flags }, err);
}

static int read_replace(const struct json_place *at, struct str raw, struct json_rules *ret,
                        struct err *err)
{
    struct json_field f[] = { { .name = "type" }, { .name = "pattern" }, { .name = "content" } };
    struct text_rule rule = { .kind = RULE_REPLACE };
    struct str regex = { 0 };
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = read_pattern(at, &f[1], &rule.a, &regex, err);
    if (rc == 0) rc = json_field_text(at, &f[2], &rule.b, err);
    if (rc < 0) return rc;
    if (str_eq(regex, STR(" {2,}"))) {
        rule.a = STR(" ");
        rule.flags = RULE_RUNS;
    } else if (regex.len > 0) {
        return json_bad(at, -ENOTSUP, err, "the expression %.*s is not known",
                        (int)min_size(regex.len, 100), regex.data);
    }
    return add(at, &ret->normal, rule, err);
}

static int read_prepend(const struct json_place *at, struct str raw, struct json_rules *ret,
                        struct err *err)
{
    struct json_field f[] = { { .name = "type" }, { .name = "prepend" } };
    struct text_rule rule = { .kind = RULE_PREPEND };
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = json_field_text(at, &f[1], &rule.a, err);
    return rc < 0 ? rc : add(at, &ret->normal, rule, err);
}

static int read_bert(const struct json_place *at, struct str raw, struct json_rules *ret,
                     struct err *err)
{
    struct json_field f[] = { { .name = "type" },
                              { .name = "clean_text" },
                              { .name = "handle_chinese_chars" },
                              { .name = "strip_accents" },
                              { .name = "lowercase" } };
    bool on[] = { true, true, true, true };
    static const uint8_t bits[] = { RULE_CLEAN, RULE_HAN, RULE_ACCENTS, RULE_LOWERCASE };
    struct text_rule rule = { .kind = RULE_BERT };
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    for (size_t i = 0; i < COUNT_OF(on) && rc == 0; i++)
        rc = json_field_bool(at, &f[i + 1], &on[i], err);
    if (f[3].raw.len == 0) on[2] = on[3]; /* accents go with the case unless the file says */
    for (size_t i = 0; i < COUNT_OF(on); i++)
        if (on[i]) rule.flags |= bits[i];
    return rc < 0 ? rc : add(at, &ret->normal, rule, err);
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool base64_decode(struct str text, char *out, size_t *ret_len)
{
    uint32_t bits = 0, count = 0;
    size_t len = 0;
    while (text.len > 0 && text.data[text.len - 1] == '=')
        text.len--;
    for (size_t i = 0; i < text.len; i++) {
        int value = base64_value(text.data[i]);
        if (value < 0) return false;
        bits = bits << 6 | (uint32_t)value;
        count += 6;
        if (count < 8) continue;
        count -= 8;
        out[len++] = (char)(bits >> count & 0xFF);
    }
    *ret_len = len;
    return true;
}

static int read_precompiled(const struct json_place *at, struct str raw, struct json_rules *ret,
                            struct err *err)
{
    struct json_field f[] = { { .name = "type" }, { .name = "precompiled_charsmap" } };
    struct text_rule rule = { .kind = RULE_CHARSMAP, .flags = RULE_GRAPHEMES };
    struct str text = { 0 };
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = json_field_text(at, &f[1], &text, err);
    if (rc < 0) return rc;
    if (text.len == 0) return 0; /* a map of nothing, as some files have */
    char *bytes = arena_alloc(at->arena, text.len + 1);
    if (!bytes) return err_set(err, -ENOMEM, "no memory for the character map");
    size_t len;
    if (!base64_decode(text, bytes, &len))
        return json_bad(at, -EINVAL, err, "precompiled_charsmap is not base64");
    rule.a = str_of(bytes, len);
    return add(at, &ret->normal, rule, err);
}

static int read_normalizers(const struct json_place *at, struct str raw, struct json_rules *ret,
                            struct err *err)
{
    struct sequence s = { ret, rules_json_normal };
    return read_sequence(at, raw, "normalizers", &s, err);
}

int rules_json_normal(const struct json_place *at, struct str raw, struct json_rules *ret,
                      struct err *err)
{
    static const struct component table[] = {
        { "Sequence", read_normalizers },
        { "NFC", read_nfc },
        { "NFD", read_nfd },
        { "NFKC", read_nfkc },
        { "NFKD", read_nfkd },
        { "Lowercase", read_lowercase },
        { "Strip", read_strip },
        { "StripAccents", read_strip_accents },
        { "Replace", read_replace },
        { "Prepend", read_prepend },
        { "BertNormalizer", read_bert },
        { "Precompiled", read_precompiled },
    };
    return raw.len == 0 ? 0 : read_by(table, COUNT_OF(table), at, raw, ret, err);
}

/* ---- pre-tokenizers ---- */

static int read_behavior(const struct json_place *at, const struct json_field *f, uint8_t *ret,
                         struct err *err)
{
    static const char *const names[RULE_BEHAVIOR_COUNT] = { "Isolated", "Removed",
                                                            "MergedWithPrevious", "MergedWithNext",
                                                            "Contiguous" };
    struct str name = { 0 };
    int rc = json_field_text(at, f, &name, err);
    if (rc < 0 || f->raw.len == 0) return rc;
    for (uint8_t i = 0; i < RULE_BEHAVIOR_COUNT; i++) {
        if (!str_eq(name, str_from(names[i]))) continue;
        *ret = i;
        return 0;
    }
    return json_bad(at, -ENOTSUP, err, "behavior \"%.*s\" is not supported",
                    (int)min_size(name.len, 64), name.data);
}

static int read_split(const struct json_place *at, struct str raw, struct json_rules *ret,
                      struct err *err)
{
    struct json_field f[] = {
        { .name = "type" }, { .name = "pattern" }, { .name = "behavior" }, { .name = "invert" }
    };
    struct text_rule rule = { .kind = RULE_LITERAL };
    struct str regex = { 0 };
    bool invert = false;
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = read_pattern(at, &f[1], &rule.a, &regex, err);
    if (rc == 0) rc = read_behavior(at, &f[2], &rule.behavior, err);
    if (rc == 0) rc = json_field_bool(at, &f[3], &invert, err);
    if (rc < 0) return rc;
    if (invert) rule.flags = RULE_INVERT;
    if (regex.len > 0) {
        const char *name = pretokenizer_of_regex(regex);
        if (!name)
            return json_bad(at, -ENOTSUP, err, "the expression %.*s is not known",
                            (int)min_size(regex.len, 100), regex.data);
        rule.kind = RULE_WORDS;
        rule.a = str_from(name);
    }
    return add(at, &ret->cut, rule, err);
}

static int read_byte_level(const struct json_place *at, struct str raw, struct json_rules *ret,
                           struct err *err)
{
    struct json_field f[] = { { .name = "type" },
                              { .name = "add_prefix_space" },
                              { .name = "trim_offsets" }, /* of offsets, which we do not give */
                              { .name = "use_regex" } };
    bool prefix = true, regex = true;
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = json_field_bool(at, &f[1], &prefix, err);
    if (rc == 0) rc = json_field_bool(at, &f[3], &regex, err);
    ret->byte_level = true;
    if (rc == 0 && prefix)
        rc = add(at, &ret->cut, (struct text_rule){ .kind = RULE_PREFIX_BLANK }, err);
    if (rc == 0 && regex)
        rc = add(at, &ret->cut, (struct text_rule){ .kind = RULE_WORDS, .a = STR("gpt-2") }, err);
    return rc;
}

/* Reads when Metaspace marks the first word; older files have add_prefix_space instead. */
static int read_scheme(const struct json_place *at, const struct json_field *scheme,
                       const struct json_field *prefix, uint8_t *ret, struct err *err)
{
    struct str name = STR("always");
    bool add_prefix = true;
    int rc = json_field_bool(at, prefix, &add_prefix, err);
    if (!add_prefix) name = STR("never");
    if (rc == 0) rc = json_field_text(at, scheme, &name, err);
    if (rc < 0) return rc;
    if (str_eq(name, STR("always")))
        *ret = RULE_ALWAYS;
    else if (str_eq(name, STR("first")))
        *ret = RULE_FIRST;
    else if (!str_eq(name, STR("never")))
        return json_bad(at, -ENOTSUP, err, "prepend_scheme \"%.*s\" is not supported",
                        (int)min_size(name.len, 64), name.data);
    return 0;
}

static int read_metaspace_fields(const struct json_place *at, struct str raw,
                                 struct text_rule *rule, struct err *err)
{
    struct json_field f[] = { { .name = "type" },           { .name = "replacement" },
                              { .name = "prepend_scheme" }, { .name = "add_prefix_space" },
                              { .name = "split" },          { .name = "str_rep" } };
    bool split = true;
    rule->a = STR("\xE2\x96\x81");
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = json_field_text(at, &f[1], &rule->a, err);
    if (rc == 0) rc = read_scheme(at, &f[2], &f[3], &rule->flags, err);
    if (rc == 0) rc = json_field_bool(at, &f[4], &split, err);
    if (split) rule->flags |= RULE_SPLIT;
    return rc;
}

static int read_metaspace(const struct json_place *at, struct str raw, struct json_rules *ret,
                          struct err *err)
{
    struct text_rule rule = { .kind = RULE_METASPACE };
    int rc = read_metaspace_fields(at, raw, &rule, err);
    return rc < 0 ? rc : add(at, &ret->cut, rule, err);
}

static int read_digits(const struct json_place *at, struct str raw, struct json_rules *ret,
                       struct err *err)
{
    struct json_field f[] = { { .name = "type" }, { .name = "individual_digits" } };
    bool single = false;
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = json_field_bool(at, &f[1], &single, err);
    const uint8_t behavior = single ? BEHAVIOR_ISOLATED : BEHAVIOR_CONTIGUOUS;
    const struct text_rule rule = { .kind = RULE_DIGIT, .behavior = behavior };
    return rc < 0 ? rc : add(at, &ret->cut, rule, err);
}

static int read_punctuation(const struct json_place *at, struct str raw, struct json_rules *ret,
                            struct err *err)
{
    struct json_field f[] = { { .name = "type" }, { .name = "behavior" } };
    struct text_rule rule = { .kind = RULE_PUNCTUATION };
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = read_behavior(at, &f[1], &rule.behavior, err);
    return rc < 0 ? rc : add(at, &ret->cut, rule, err);
}

static int read_whitespace(const struct json_place *at, struct str raw, struct json_rules *ret,
                           struct err *err)
{
    const struct text_rule rule = { .kind = RULE_WORD_RUNS,
                                    .flags = RULE_INVERT,
                                    .behavior = BEHAVIOR_REMOVED };
    int rc = no_members(at, raw, err);
    return rc < 0 ? rc : add(at, &ret->cut, rule, err);
}

static int read_whitespace_split(const struct json_place *at, struct str raw,
                                 struct json_rules *ret, struct err *err)
{
    const struct text_rule rule = { .kind = RULE_WHITE, .behavior = BEHAVIOR_REMOVED };
    int rc = no_members(at, raw, err);
    return rc < 0 ? rc : add(at, &ret->cut, rule, err);
}

static int read_bert_words(const struct json_place *at, struct str raw, struct json_rules *ret,
                           struct err *err)
{
    int rc = read_whitespace_split(at, raw, ret, err);
    return rc < 0 ? rc : add(at, &ret->cut, (struct text_rule){ .kind = RULE_PUNCTUATION }, err);
}

static int read_pretokenizers(const struct json_place *at, struct str raw, struct json_rules *ret,
                              struct err *err)
{
    struct sequence s = { ret, rules_json_cut };
    return read_sequence(at, raw, "pretokenizers", &s, err);
}

int rules_json_cut(const struct json_place *at, struct str raw, struct json_rules *ret,
                   struct err *err)
{
    static const struct component table[] = {
        { "Sequence", read_pretokenizers },
        { "ByteLevel", read_byte_level },
        { "Metaspace", read_metaspace },
        { "Split", read_split },
        { "Digits", read_digits },
        { "Punctuation", read_punctuation },
        { "Whitespace", read_whitespace },
        { "WhitespaceSplit", read_whitespace_split },
        { "BertPreTokenizer", read_bert_words },
    };
    if (raw.len == 0) return 0;
    if (ret->byte_level)
        return json_bad(at, -ENOTSUP, err, "a pre-tokenizer behind ByteLevel is not supported");
    return read_by(table, COUNT_OF(table), at, raw, ret, err);
}

/* ---- decoders ---- */

static int read_byte_decoder(const struct json_place *at, struct str raw, struct json_rules *ret,
                             struct err *err)
{
    struct json_field f[] = { { .name = "type" },
                              { .name = "add_prefix_space" }, /* without effect on decoding */
                              { .name = "trim_offsets" },
                              { .name = "use_regex" } };
    ret->byte_decoder = true;
    return json_fields(at, raw, f, COUNT_OF(f), err);
}

static int read_byte_fallback(const struct json_place *at, struct str raw, struct json_rules *ret,
                              struct err *err)
{
    ret->byte_fallback = true;
    return no_members(at, raw, err);
}

static int read_fuse(const struct json_place *at, struct str raw, struct json_rules *ret,
                     struct err *err)
{
    ret->fused = true;
    return no_members(at, raw, err);
}

static int read_metaspace_decoder(const struct json_place *at, struct str raw,
                                  struct json_rules *ret, struct err *err)
{
    struct text_rule rule = { .kind = RULE_METASPACE };
    int rc = read_metaspace_fields(at, raw, &rule, err);
    const struct text_rule blank = { .kind = RULE_REPLACE, .a = rule.a, .b = STR(" ") };
    if (rc == 0) rc = add(at, &ret->decode, blank, err);
    if (rc == 0 && rule.flags & (RULE_ALWAYS | RULE_FIRST))
        rc = add(at, &ret->decode, (struct text_rule){ .kind = RULE_DROP_FIRST }, err);
    return rc;
}

static int read_wordpiece_decoder(const struct json_place *at, struct str raw,
                                  struct json_rules *ret, struct err *err)
{
    struct json_field f[] = { { .name = "type" }, { .name = "prefix" }, { .name = "cleanup" } };
    struct text_rule rule = { .kind = RULE_WORDPIECE, .a = STR("##") };
    bool cleanup = true;
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = json_field_text(at, &f[1], &rule.a, err);
    if (rc == 0) rc = json_field_bool(at, &f[2], &cleanup, err);
    if (cleanup) rule.flags = RULE_CLEAN_UP;
    return rc < 0 ? rc : add(at, &ret->decode, rule, err);
}

static int read_replace_decoder(const struct json_place *at, struct str raw, struct json_rules *ret,
                                struct err *err)
{
    struct json_rules made = { 0 };
    int rc = read_replace(at, raw, &made, err);
    if (rc < 0) return rc;
    if (made.normal.list[0].flags || ret->fused)
        return json_bad(at, -ENOTSUP, err,
                        "an expression, or a Replace behind Fuse, is not supported");
    return add(at, &ret->decode, made.normal.list[0], err);
}

/* Strip takes one blank from the whole text, in all models that have it. */
static int read_strip_decoder(const struct json_place *at, struct str raw, struct json_rules *ret,
                              struct err *err)
{
    struct json_field f[] = {
        { .name = "type" }, { .name = "content" }, { .name = "start" }, { .name = "stop" }
    };
    struct str content = { 0 };
    uint32_t start = 0, stop = 0;
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = json_field_text(at, &f[1], &content, err);
    if (rc == 0) rc = json_field_u32(at, &f[2], &start, err);
    if (rc == 0) rc = json_field_u32(at, &f[3], &stop, err);
    if (rc < 0) return rc;
    if (!ret->fused || stop > 0 || start > 1 || !str_eq(content, STR(" ")))
        return json_bad(at, -ENOTSUP, err,
                        "only one blank at the start, behind Fuse, can be stripped");
    if (start == 0) return 0;
    return add(at, &ret->decode, (struct text_rule){ .kind = RULE_STRIP_TEXT }, err);
}

static int read_decoders(const struct json_place *at, struct str raw, struct json_rules *ret,
                         struct err *err)
{
    struct sequence s = { ret, rules_json_decode };
    return read_sequence(at, raw, "decoders", &s, err);
}

int rules_json_decode(const struct json_place *at, struct str raw, struct json_rules *ret,
                      struct err *err)
{
    static const struct component table[] = {
        { "Sequence", read_decoders },           { "ByteLevel", read_byte_decoder },
        { "ByteFallback", read_byte_fallback },  { "Fuse", read_fuse },
        { "Metaspace", read_metaspace_decoder }, { "WordPiece", read_wordpiece_decoder },
        { "Replace", read_replace_decoder },     { "Strip", read_strip_decoder },
    };
    if (raw.len == 0) return add(at, &ret->decode, (struct text_rule){ .kind = RULE_BLANK }, err);
    return read_by(table, COUNT_OF(table), at, raw, ret, err);
}
