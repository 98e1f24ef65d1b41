/* model_sampling.c - takes a model's sampling defaults from either kind of file, by one table of members. */
#include "engine/model/model_sampling.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/text/tokenizer_config.h"
#include "engine/files/hf_folder.h"

#include <stdio.h>

#define FILE_NAME "generation_config.json"

/* The members: their names in JSON and GGUF, and the range that requests have (base/wire/openai.c). */
static const struct member {
    const char *name, *key;
    uint32_t bit;
    size_t offset; /* of a double; of top_k: of a uint32_t */
    double min, max;
} members[] = {
    { "temperature", "general.sampling.temp", SAMPLING_TEMPERATURE,
      offsetof(struct sampling, temperature), 0, 2 },
    { "top_p", "general.sampling.top_p", SAMPLING_TOP_P, offsetof(struct sampling, top_p), 0, 1 },
    { "top_k", "general.sampling.top_k", SAMPLING_TOP_K, offsetof(struct sampling, top_k), 0,
      INT32_MAX },
    { "min_p", "general.sampling.min_p", SAMPLING_MIN_P, offsetof(struct sampling, min_p), 0, 1 },
    { "repetition_penalty", "general.sampling.penalty_repeat", SAMPLING_REPETITION_PENALTY,
      offsetof(struct sampling, repetition_penalty), 0.01, 10 },
};

static int put(struct sampling *s, const struct member *m, const char *name, double v,
               struct err *err)
{
    const uint32_t whole = v >= 0 && v <= m->max ? (uint32_t)v : 0;
    const bool is_whole = m->bit == SAMPLING_TOP_K;
    if (!(v >= m->min && v <= m->max) || (is_whole && (double)whole != v))
        return err_set(err, -EINVAL,
                       "'%s' is %.15g, requests may have %.15g to %.15g%s; --generation-config "
                       "none leaves it out",
                       name, v, m->min, m->max, is_whole ? ", whole" : "");
    if (is_whole)
        memcpy((char *)s + m->offset, &whole, sizeof whole);
    else
        memcpy((char *)s + m->offset, &v, sizeof v);
    s->unnamed &= ~m->bit;
    return 0;
}

static struct sampling nothing_named(void)
{
    struct sampling s = SAMPLING_DEFAULT;
    s.unnamed = SAMPLING_ALL;
    return s;
}

int model_sampling_gguf(const struct gguf *g, struct sampling *ret, struct err *err)
{
    struct sampling s = nothing_named();
    for (size_t i = 0; i < COUNT_OF(members); i++) {
        const struct member *m = &members[i];
        float number = 0;
        uint32_t whole = 0;
        int rc = m->bit == SAMPLING_TOP_K ? gguf_get_u32(g, m->key, &whole, err)
                                          : gguf_get_f32(g, m->key, &number, err);
        if (rc == -ENOENT) continue;
        if (rc == 0)
            rc = put(&s, m, m->key, m->bit == SAMPLING_TOP_K ? (double)whole : (double)number, err);
        if (rc < 0) return rc;
    }
    *ret = s;
    return 0;
}

static const struct member *find(const struct json_reader *r)
{
    for (size_t i = 0; i < COUNT_OF(members); i++)
        if (json_key_is(r, members[i].name)) return &members[i];
    return NULL;
}

static int read_json(struct str text, struct sampling *ret, struct err *err)
{
    struct sampling s = nothing_named();
    struct json_reader r;
    double v = 0;
    json_reader_init(&r, text);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the file");
    while (json_next(&r) == JSON_KEY) {
        const struct member *m = find(&r);
        if (!m) {
            json_skip(&r);
            continue;
        }
        if (json_next(&r) == JSON_NULL) continue;
        if (json_f64(&r, &v) < 0) return err_set(err, -EINVAL, "key '%s' is no number", m->name);
        int rc = put(&s, m, m->name, v, err);
        if (rc < 0) return rc;
    }
    if (r.token != JSON_OBJECT_END) return json_fail(&r, err, "the file");
    *ret = s;
    return 0;
}

int model_sampling_folder(const char *folder, struct sampling *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = hf_folder_read(folder, FILE_NAME, CONFIG_JSON_BYTES_MAX, &text, err);
    if (rc == -ENOENT) {
        *ret = nothing_named();
        return 0;
    }
    if (rc == 0) rc = read_json(buf_view(&text), ret, err);
    return rc < 0 ? err_prefix(err, rc, "%s/" FILE_NAME, folder) : 0;
}

void model_sampling_text(const struct sampling *s, char ret[MODEL_SAMPLING_TEXT])
{
    size_t used = 0;
    snprintf(ret, MODEL_SAMPLING_TEXT, "none");
    for (size_t i = 0; i < COUNT_OF(members); i++) {
        const struct member *m = &members[i];
        double v = 0;
        uint32_t whole = 0;
        if (s->unnamed & m->bit) continue;
        if (m->bit == SAMPLING_TOP_K)
            memcpy(&whole, (const char *)s + m->offset, sizeof whole);
        else
            memcpy(&v, (const char *)s + m->offset, sizeof v);
        int n = snprintf(ret + used, MODEL_SAMPLING_TEXT - used, "%s%s:%.6g", used > 0 ? "," : "",
                         m->name, m->bit == SAMPLING_TOP_K ? (double)whole : v);
        if (n < 0 || (size_t)n >= MODEL_SAMPLING_TEXT - used) return;
        used += (size_t)n;
    }
}
