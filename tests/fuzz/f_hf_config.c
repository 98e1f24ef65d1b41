/* f_hf_config.c - reads any bytes as config.json of a model: the reader refuses them with a sentence or gives
 * keys of the family's architecture, sorted and each once. */
#include "base/core/own.h"
#include "engine/files/hf_config.h"
#include "tests/fuzz/fuzz.h"

const struct fuzz_cost fuzz_cost = { 200000, 200 };

void fuzz_one(const uint8_t *data, size_t len)
{
    struct hf_config c = { 0 };
    struct arena arena;
    struct err err = { { 0 } };
    arena_init(&arena, (size_t)1 << 24);
    int rc = hf_config_read(&c, str_of(data, len), &arena, &err);
    must(rc <= 0 && (rc == 0 || err.text[0] != 0));
    for (uint32_t i = 0; i < c.value_count && rc == 0; i++) {
        struct str key = c.values[i].key;
        must(i == 0 || str_cmp(c.values[i - 1].key, key) < 0);
        must(str_starts(key, str_from(c.family->arch)) || str_starts(key, STR("general.")) ||
             str_starts(key, STR("tokenizer.")));
        if (c.values[i].type == GGUF_ARRAY) must(c.values[i].array.count == c.layers);
    }
    arena_fini(&arena);
}
