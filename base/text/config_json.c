/* config_json.c - finds three keys among those of a model's configuration. */
#include "base/text/config_json.h"

#include "base/core/json.h"

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
