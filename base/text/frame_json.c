/* frame_json.c - reads the tokens around a text out of a post-processor: a template, or the pair of BERT's. */
#include "base/text/frame_json.h"

#include "base/core/bits.h"

/* Adds ids before the text, or behind it once `behind` is set. */
static int add_frame(struct vocab_parts *parts, const struct json_place *at, bool behind,
                     uint32_t id, struct err *err)
{
    uint32_t *ids = behind ? parts->after : parts->before;
    uint32_t *count = behind ? &parts->after_count : &parts->before_count;
    if (*count == VOCAB_FRAME_MAX)
        return json_bad(at, -E2BIG, err, "more than %d tokens before or behind", VOCAB_FRAME_MAX);
    ids[(*count)++] = id;
    return 0;
}

struct template
{
    struct vocab_parts *parts;
    struct str special; /* the raw special_tokens */
    bool behind;        /* the text came */
};

static int read_frame_id(void *ctx, const struct json_place *at, struct str raw, struct err *err)
{
    struct template *t = ctx;
    struct json_reader in;
    uint64_t id;
    json_reader_init(&in, raw);
    json_next(&in);
    if (json_u64(&in, &id) < 0 || id > UINT32_MAX) return json_bad(at, -EINVAL, err, "want an id");
    return add_frame(t->parts, at, t->behind, (uint32_t)id, err);
}

/* Finds special_tokens[name] and adds its ids. */
static int add_special(struct template *t, const struct json_place *at, struct str name,
                       struct err *err)
{
    struct json_reader in;
    struct str raw;
    if (t->special.len == 0) return json_bad(at, -EINVAL, err, "has no special_tokens");
    json_reader_init(&in, t->special);
    if (json_next(&in) != JSON_OBJECT) return json_bad(at, -EINVAL, err, "has no special_tokens");
    while (json_next(&in) == JSON_KEY) {
        struct str key;
        if (json_text_arena(&in, at->arena, &key) < 0)
            return err_set(err, -ENOMEM, "no memory for the tokenizer");
        if (json_raw_value(&in, &raw) < 0) return json_fail(&in, err, at->path);
        if (!str_eq(key, name)) continue;
        struct json_field f[] = { { .name = "id" }, { .name = "ids" }, { .name = "tokens" } };
        int rc = json_fields(at, raw, f, COUNT_OF(f), err);
        return rc < 0 ? rc : json_items(at, &f[1], read_frame_id, t, err);
    }
    return json_bad(at, -EINVAL, err, "\"%.*s\" is not in special_tokens",
                    (int)min_size(name.len, 64), name.data);
}

static int read_template_item(void *ctx, const struct json_place *at, struct str raw,
                              struct err *err)
{
    struct template *t = ctx;
    struct json_field f[] = { { .name = "SpecialToken" }, { .name = "Sequence" } };
    struct json_field inner[] = { { .name = "id" }, { .name = "type_id" } };
    struct str name = { 0 };
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc < 0) return rc;
    const bool special = f[0].raw.len > 0;
    rc = json_fields(at, f[special ? 0 : 1].raw, inner, COUNT_OF(inner), err);
    if (rc == 0) rc = json_field_text(at, &inner[0], &name, err);
    if (rc < 0) return rc;
    if (special) return add_special(t, at, name, err);
    if (t->behind) return json_bad(at, -ENOTSUP, err, "the text may stand only once");
    t->behind = true;
    return 0;
}

static int read_template(struct vocab_parts *parts, const struct json_place *at, struct str raw,
                         struct err *err)
{
    struct json_field f[] = { { .name = "type" },
                              { .name = "single" },
                              { .name = "pair" }, /* of two texts, which no request has */
                              { .name = "special_tokens" } };
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    struct template t = { parts, f[3].raw, false };
    return rc < 0 ? rc : json_items(at, &f[1], read_template_item, &t, err);
}

/* Reads ["[SEP]", 102] and adds the id. */
static int read_pair(struct vocab_parts *parts, const struct json_place *at,
                     const struct json_field *f, bool behind, struct err *err)
{
    struct json_reader in;
    uint64_t id;
    if (f->raw.len == 0) return json_bad(at, -EINVAL, err, "%s is missing", f->name);
    json_reader_init(&in, f->raw);
    bool good = json_next(&in) == JSON_ARRAY && json_next(&in) == JSON_STRING;
    if (good) json_next(&in);
    if (!good || json_u64(&in, &id) < 0 || id > UINT32_MAX)
        return json_bad(at, -EINVAL, err, "%s: want [text, id]", f->name);
    return add_frame(parts, at, behind, (uint32_t)id, err);
}

static int read_bert_frame(struct vocab_parts *parts, const struct json_place *at, struct str raw,
                           struct err *err)
{
    struct json_field f[] = { { .name = "type" },
                              { .name = "sep" },
                              { .name = "cls" },
                              { .name = "trim_offsets" }, /* of offsets, which we do not give */
                              { .name = "add_prefix_space" } };
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = read_pair(parts, at, &f[2], false, err);
    return rc < 0 ? rc : read_pair(parts, at, &f[1], true, err);
}

static int read_frame_item(void *ctx, const struct json_place *at, struct str raw, struct err *err)
{
    return frame_json_read(at, raw, ctx, err);
}

int frame_json_read(const struct json_place *at, struct str raw, struct vocab_parts *parts,
                    struct err *err)
{
    struct str type = { 0 };
    if (raw.len == 0) return 0;
    int rc = json_type(at, raw, &type, err);
    if (rc < 0) return rc;
    if (str_eq(type, STR("ByteLevel"))) return 0; /* trims offsets, which we do not give */
    if (str_eq(type, STR("TemplateProcessing"))) return read_template(parts, at, raw, err);
    if (str_eq(type, STR("BertProcessing")) || str_eq(type, STR("RobertaProcessing")))
        return read_bert_frame(parts, at, raw, err);
    if (!str_eq(type, STR("Sequence")))
        return json_bad(at, -ENOTSUP, err, "type \"%.*s\" is not supported",
                        (int)min_size(type.len, 64), type.data);
    struct json_field f[] = { { .name = "type" }, { .name = "processors" } };
    rc = json_fields(at, raw, f, COUNT_OF(f), err);
    return rc < 0 ? rc : json_items(at, &f[1], read_frame_item, parts, err);
}
