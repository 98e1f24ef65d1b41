/* tokenizer_config.c - finds the members that matter, reads tokens as texts or as objects with `content`, and ids as
 * numbers or lists of them. */
#include "base/text/tokenizer_config.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/text/json_fields.h"
#include "base/text/vocab.h"

/* The raw values; empty: missing, or null. */
struct members {
    struct str bos, eos, pad, add_bos, add_eos, chat_template;
};

static int find_members(struct str text, struct members *ret, struct err *err)
{
    const struct {
        const char *name;
        struct str *to;
    } members[] = {
        { "bos_token", &ret->bos },         { "eos_token", &ret->eos },
        { "pad_token", &ret->pad },         { "add_bos_token", &ret->add_bos },
        { "add_eos_token", &ret->add_eos }, { "chat_template", &ret->chat_template },
    };
    struct json_reader in;
    json_reader_init(&in, text);
    in.keys_max = VOCAB_TOKENS_MAX; /* added_tokens_decoder has a key for each token */
    if (json_next(&in) != JSON_OBJECT) return json_fail(&in, err, "the file");
    while (json_next(&in) == JSON_KEY) {
        struct str *to = NULL, raw;
        for (size_t i = 0; i < COUNT_OF(members); i++)
            if (json_key_is(&in, members[i].name)) to = members[i].to;
        if (json_raw_value(&in, &raw) < 0) return json_fail(&in, err, "the file");
        if (to && !str_eq(raw, STR("null"))) *to = raw;
    }
    return in.token == JSON_OBJECT_END ? 0 : json_fail(&in, err, "the file");
}

static int read_token(struct str raw, const char *name, struct arena *arena, struct str *ret,
                      struct err *err)
{
    if (raw.len == 0) return 0;
    const struct json_place at = { "", arena };
    struct json_field f = { name, raw };
    if (raw.data[0] == '{') {
        struct json_field parts[] = { { .name = "content" },     { .name = "__type" },
                                      { .name = "lstrip" },      { .name = "rstrip" },
                                      { .name = "single_word" }, { .name = "normalized" },
                                      { .name = "special" },     { .name = "id" } };
        int rc = json_fields(&at, raw, parts, COUNT_OF(parts), err);
        if (rc < 0) return err_prefix(err, rc, "%s", name);
        f.raw = parts[0].raw;
    }
    return json_field_text(&at, &f, ret, err);
}

static enum config_edge edge_of(struct str raw)
{
    if (raw.len == 0) return EDGE_UNSAID;
    return str_eq(raw, STR("true")) ? EDGE_ADDED : EDGE_BARE;
}

int tokenizer_config_read(struct str text, struct arena *arena, struct tokenizer_config *ret,
                          struct err *err)
{
    struct members m = { 0 };
    *ret = (struct tokenizer_config){ 0 };
    if (text.len == 0) return 0;
    if (text.len > TOKENIZER_CONFIG_BYTES_MAX)
        return err_set(err, -E2BIG, "%zu bytes: at most %zu", text.len, TOKENIZER_CONFIG_BYTES_MAX);
    int rc = find_members(text, &m, err);
    if (rc == 0) rc = read_token(m.bos, "bos_token", arena, &ret->bos, err);
    if (rc == 0) rc = read_token(m.eos, "eos_token", arena, &ret->eos, err);
    if (rc == 0) rc = read_token(m.pad, "pad_token", arena, &ret->pad, err);
    ret->add_bos = edge_of(m.add_bos);
    ret->add_eos = edge_of(m.add_eos);
    ret->chat_template = m.chat_template;
    return rc;
}

/* ---- the chat template ---- */

static int find_default(void *ctx, const struct json_place *at, struct str raw, struct err *err)
{
    struct str *found = ctx, name = { 0 };
    struct json_field f[] = { { .name = "name" }, { .name = "template" } };
    int rc = json_fields(at, raw, f, COUNT_OF(f), err);
    if (rc == 0) rc = json_field_text(at, &f[0], &name, err);
    if (rc == 0 && str_eq(name, STR("default"))) *found = f[1].raw;
    return rc;
}

int tokenizer_config_template(const struct tokenizer_config *c, struct arena *arena,
                              struct str *ret, struct err *err)
{
    const struct json_place at = { "", arena };
    struct json_field f = { "chat_template", c->chat_template };
    *ret = (struct str){ 0 };
    if (f.raw.len > 0 && f.raw.data[0] == '[') {
        struct str found = { 0 };
        int rc = json_items(&at, &f, find_default, &found, err);
        if (rc < 0) return rc;
        f.raw = found;
    }
    return json_field_text(&at, &f, ret, err);
}

/* ---- ids, of the model's configuration ---- */

static int take_id(const struct json_reader *r, const char *name, uint32_t *ret, struct err *err)
{
    uint64_t id;
    if (json_u64(r, &id) < 0 || id >= VOCAB_TOKENS_MAX)
        return err_set(err, -EINVAL, "key '%s' is no token id from 0 to %u", name,
                       VOCAB_TOKENS_MAX - 1);
    *ret = (uint32_t)id;
    return 0;
}

static int take_end(const struct json_reader *r, struct config_json *c, struct err *err)
{
    if (c->eos_count == VOCAB_ENDS_MAX)
        return err_set(err, -E2BIG, "key 'eos_token_id' has more than %d ids", VOCAB_ENDS_MAX);
    int rc = take_id(r, "eos_token_id", &c->eos[c->eos_count], err);
    if (rc == 0) c->eos_count++;
    return rc;
}

static int take_ends(struct json_reader *r, struct config_json *c, struct err *err)
{
    c->eos_count = 0;
    if (r->token != JSON_ARRAY) return take_end(r, c, err);
    int rc = 0;
    while (rc == 0 && json_next(r) != JSON_ARRAY_END)
        rc = take_end(r, c, err);
    return rc;
}

static int take_rows(const struct json_reader *r, struct config_json *c, struct err *err)
{
    uint64_t rows;
    if (json_u64(r, &rows) < 0 || rows < 1 || rows > VOCAB_TOKENS_MAX)
        return err_set(err, -EINVAL, "key 'vocab_size' is no number from 1 to %u",
                       VOCAB_TOKENS_MAX);
    c->vocab_size = (uint32_t)rows;
    return 0;
}

int config_json_read(struct str text, struct config_json *ret, struct err *err)
{
    struct config_json c = { .bos = VOCAB_NONE };
    struct json_reader r;
    if (text.len > CONFIG_JSON_BYTES_MAX)
        return err_set(err, -E2BIG, "%zu bytes: at most %zu", text.len, CONFIG_JSON_BYTES_MAX);
    if (text.len == 0) {
        *ret = c;
        return 0;
    }
    json_reader_init(&r, text);
    r.keys_max = VOCAB_TOKENS_MAX; /* some have a key for each class or language */
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the file");
    while (json_next(&r) == JSON_KEY) {
        const bool eos = json_key_is(&r, "eos_token_id"), bos = json_key_is(&r, "bos_token_id");
        int rc = 0;
        if (!eos && !bos && !json_key_is(&r, "vocab_size")) {
            json_skip(&r);
            continue;
        }
        if (json_next(&r) == JSON_NULL) continue; /* as if it were absent */
        if (eos)
            rc = take_ends(&r, &c, err);
        else
            rc = bos ? take_id(&r, "bos_token_id", &c.bos, err) : take_rows(&r, &c, err);
        if (rc < 0) return rc;
    }
    if (r.token != JSON_OBJECT_END) return json_fail(&r, err, "the file");
    *ret = c;
    return 0;
}
