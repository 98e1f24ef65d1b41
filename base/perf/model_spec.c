/* model_spec.c - reads the shape of a model. One table holds all keys, so that the parser, its errors
 * and its ranges agree. */
#include "base/perf/model_spec.h"

#include "base/core/bits.h"
#include "base/perf/model_specs.h"

#include <string.h>

enum spec_type { SPEC_COUNT, SPEC_NUMBER, SPEC_YES, SPEC_DTYPE };

struct spec_key {
    const char *name;
    enum spec_type type;
    size_t offset;
    bool required;
    double min, max;
};

#define AT(field) offsetof(struct model_spec, field)
// clang-format off
static const struct spec_key keys[] = {
    { "layers",           SPEC_COUNT,  AT(layers),           true,  1, 1024 },
    { "hidden",           SPEC_COUNT,  AT(hidden),           true,  1, 1 << 20 },
    { "heads",            SPEC_COUNT,  AT(heads),            true,  1, 4096 },
    { "kv_heads",         SPEC_COUNT,  AT(kv_heads),         false, 1, 4096 },
    { "head_dim",         SPEC_COUNT,  AT(head_dim),         false, 1, 4096 },
    { "ffn",              SPEC_COUNT,  AT(ffn),              true,  1, 1 << 22 },
    { "vocab",            SPEC_COUNT,  AT(vocab),            true,  1, 1 << 24 },
    { "experts",          SPEC_COUNT,  AT(experts),          false, 1, 4096 },
    { "experts_active",   SPEC_COUNT,  AT(experts_active),   false, 1, 4096 },
    { "gated",            SPEC_YES,    AT(gated),            false, 0, 0 },
    { "tied",             SPEC_YES,    AT(tied),             false, 0, 0 },
    { "weight_bytes",     SPEC_NUMBER, AT(weight_bytes),     false, 0.1, 8 },
    { "kv_element_bytes", SPEC_NUMBER, AT(kv_element_bytes), false, 0.1, 8 },
    { "dtype",            SPEC_DTYPE,  AT(weight_bytes),     false, 0, 0 },
    { "kv_dtype",         SPEC_DTYPE,  AT(kv_element_bytes), false, 0, 0 },
};
// clang-format on
#define KEYS COUNT_OF(keys)

/* Bytes of one element. GGUF's blocks include their scale (q8_0: 34 bytes for 32 weights, q4_0: 18);
 * the scales of int4 and fp4 are not counted, because the size of their groups differs between vendors. */
static const struct {
    const char *name;
    double bytes;
} dtypes[] = {
    { "fp32", 4 },  { "bf16", 2 },   { "fp16", 2 },      { "fp8", 1 },       { "int8", 1 },
    { "fp4", 0.5 }, { "int4", 0.5 }, { "q8_0", 1.0625 }, { "q4_0", 0.5625 },
};

static int unknown_key(struct str key, uint32_t line, struct err *err)
{
    const char *names[KEYS];
    for (uint32_t i = 0; i < KEYS; i++)
        names[i] = keys[i].name;
    const char *near = str_nearest(key, names, KEYS);
    return err_set(err, -EINVAL, "line %u: no key '" STR_FMT "'%s%s%s", line, STR_ARG(key),
                   near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static int put_dtype(double *at, const struct spec_key *key, struct str value, uint32_t line,
                     struct err *err)
{
    const char *names[COUNT_OF(dtypes)];
    char list[128];
    for (uint32_t i = 0; i < COUNT_OF(dtypes); i++) {
        names[i] = dtypes[i].name;
        if (!str_eq(value, str_from(names[i]))) continue;
        *at = dtypes[i].bytes;
        return 0;
    }
    str_list(names, COUNT_OF(dtypes), list, sizeof list);
    return err_set(err, -EINVAL, "line %u: %s is one of %s, not '" STR_FMT "'", line, key->name,
                   list, STR_ARG(value));
}

static int put_value(struct model_spec *spec, const struct spec_key *key, struct str value,
                     uint32_t line, struct err *err)
{
    char *at = (char *)spec + key->offset;
    if (key->type == SPEC_YES) {
        bool yes = str_eq(value, STR("yes"));
        if (!yes && !str_eq(value, STR("no"))) {
            return err_set(err, -EINVAL, "line %u: %s is yes or no", line, key->name);
        }
        memcpy(at, &yes, sizeof yes);
        return 0;
    }
    if (key->type == SPEC_DTYPE) return put_dtype((double *)(void *)at, key, value, line, err);
    double number = 0;
    uint64_t count = 0;
    int rc = key->type == SPEC_COUNT ? str_to_u64(value, &count) : str_to_f64(value, &number);
    if (key->type == SPEC_COUNT) number = (double)count;
    if (rc < 0 || number < key->min || number > key->max) {
        return err_set(err, -EINVAL, "line %u: %s is %s from %g to %g, not '" STR_FMT "'", line,
                       key->name, key->type == SPEC_COUNT ? "a whole number" : "a number", key->min,
                       key->max, STR_ARG(value));
    }
    uint32_t whole = (uint32_t)number;
    if (key->type == SPEC_COUNT) {
        memcpy(at, &whole, sizeof whole);
    } else {
        memcpy(at, &number, sizeof number);
    }
    return 0;
}

static int put_name(struct model_spec *spec, struct str value, uint32_t line, struct err *err)
{
    if (spec->name[0]) return err_set(err, -EINVAL, "line %u: name is given twice", line);
    if (value.len == 0 || value.len >= MODEL_SPEC_NAME_MAX) {
        return err_set(err, -EINVAL, "line %u: name has 1 to %d bytes", line,
                       MODEL_SPEC_NAME_MAX - 1);
    }
    memcpy(spec->name, value.data, value.len);
    return 0;
}

/* Refuses a repeated key, and a key for a value that another key has set. */
static int check_seen(uint32_t seen, uint32_t at, uint32_t line, struct err *err)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        if (!(seen & 1u << i) || keys[i].offset != keys[at].offset) continue;
        if (i == at) return err_set(err, -EINVAL, "line %u: %s is given twice", line, keys[i].name);
        return err_set(err, -EINVAL, "line %u: %s and %s say the same: give one of them", line,
                       keys[i].name, keys[at].name);
    }
    return 0;
}

static int put_line(struct model_spec *spec, struct str text, uint32_t *seen, uint32_t line,
                    struct err *err)
{
    if (str_find(text, STR(":")) == SIZE_MAX) {
        return err_set(err, -EINVAL, "line %u: a line is `key: value`", line);
    }
    struct str value = text;
    struct str key = str_trim(str_cut(&value, ':'));
    value = str_trim(value);
    if (str_eq(key, STR("name"))) return put_name(spec, value, line, err);
    for (uint32_t i = 0; i < KEYS; i++) {
        if (!str_eq(key, str_from(keys[i].name))) continue;
        int rc = check_seen(*seen, i, line, err);
        if (rc < 0) return rc;
        *seen |= 1u << i;
        return put_value(spec, &keys[i], value, line, err);
    }
    return unknown_key(key, line, err);
}

/* Fills in defaults for absent keys and checks that the keys fit together. */
static int complete(struct model_spec *spec, uint32_t seen, struct err *err)
{
    if (!spec->name[0]) return err_set(err, -EINVAL, "name is missing");
    for (uint32_t i = 0; i < KEYS; i++) {
        if (keys[i].required && !(seen & 1u << i)) {
            return err_set(err, -EINVAL, "%s: %s is missing", spec->name, keys[i].name);
        }
    }
    if (!spec->kv_heads) spec->kv_heads = spec->heads;
    if (!spec->head_dim) spec->head_dim = spec->hidden / spec->heads;
    if (!spec->head_dim || spec->heads % spec->kv_heads) {
        return err_set(err, -EINVAL, "%s: %u heads do not share %u kv_heads of a width of %u",
                       spec->name, spec->heads, spec->kv_heads, spec->hidden);
    }
    if (!spec->experts != !spec->experts_active || spec->experts_active > spec->experts) {
        return err_set(err, -EINVAL, "%s: experts_active is from 1 to experts, and neither alone",
                       spec->name);
    }
    return 0;
}

int model_spec_parse(struct str text, struct model_spec *ret, struct err *err)
{
    struct model_spec spec = { .gated = true, .weight_bytes = 2, .kv_element_bytes = 2 };
    uint32_t seen = 0;
    for (uint32_t line = 1; text.len > 0; line++) {
        struct str rest = str_cut(&text, '\n');
        struct str content = str_trim(str_cut(&rest, '#'));
        if (str_ends(content, STR("\r"))) content = str_trim(str_of(content.data, content.len - 1));
        if (content.len == 0) continue;
        int rc = put_line(&spec, content, &seen, line, err);
        if (rc < 0) return rc;
    }
    int rc = complete(&spec, seen, err);
    if (rc < 0) return rc;
    *ret = spec;
    return 0;
}

void model_spec_keys(char *ret, size_t bytes)
{
    const char *names[KEYS + 1] = { "name" };
    for (uint32_t i = 0; i < KEYS; i++)
        names[i + 1] = keys[i].name;
    str_list(names, KEYS + 1, ret, bytes);
}

bool model_spec_at(uint32_t i, struct model_spec *ret)
{
    struct str rest = model_specs_text();
    static const struct str end = { "---\n", 4 };
    for (uint32_t at = 0; rest.len > 0; at++) {
        size_t len = str_find(rest, end);
        must(len != SIZE_MAX);
        if (at == i) {
            must(model_spec_parse(str_of(rest.data, len), ret, NULL) == 0);
            return true;
        }
        rest = str_of(rest.data + len + end.len, rest.len - len - end.len);
    }
    return false;
}

#define NAMES_MAX 64 /* shipped specs that an unknown name is compared with */

/* Returns -ENOENT; the sentence has the nearest name, or all names. */
static int no_model(struct str name, const char *const *names, uint32_t count, struct err *err)
{
    const char *near = str_nearest(name, names, count);
    if (near) {
        return err_set(err, -ENOENT, "no shipped model '" STR_FMT "', did you mean '%s'?",
                       STR_ARG(name), near);
    }
    char list[ERR_TEXT_MAX];
    str_list(names, count, list, sizeof list);
    return err_set(err, -ENOENT, "no shipped model '" STR_FMT "'; there are %s", STR_ARG(name),
                   list);
}

int model_spec_find(struct str name, struct model_spec *ret, struct err *err)
{
    char text[NAMES_MAX][MODEL_SPEC_NAME_MAX];
    const char *names[NAMES_MAX];
    struct model_spec spec;
    uint32_t count = 0;
    for (uint32_t i = 0; model_spec_at(i, &spec); i++) {
        if (str_eq(name, str_from(spec.name))) {
            *ret = spec;
            return 0;
        }
        if (count == NAMES_MAX) continue;
        memcpy(text[count], spec.name, sizeof spec.name);
        names[count] = text[count];
        count++;
    }
    return no_model(name, names, count, err);
}

double model_spec_attention_weights(const struct model_spec *m)
{
    double heads = (double)m->heads * m->head_dim, kv = (double)m->kv_heads * m->head_dim;
    return (double)m->hidden * (2 * heads + 2 * kv);
}

double model_spec_ffn_weights(const struct model_spec *m)
{
    return (m->gated ? 3.0 : 2.0) * m->hidden * m->ffn;
}

double model_spec_weights(const struct model_spec *m)
{
    double ffn = model_spec_ffn_weights(m);
    if (m->experts) ffn = ffn * m->experts + (double)m->hidden * m->experts; /* with the router */
    return m->layers * (model_spec_attention_weights(m) + ffn) +
           (m->tied ? 1.0 : 2.0) * m->vocab * m->hidden;
}

double model_spec_kv_token_bytes(const struct model_spec *m)
{
    return 2.0 * m->layers * m->kv_heads * m->head_dim * m->kv_element_bytes;
}
