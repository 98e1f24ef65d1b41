/* hf_quant.c - takes the keys of all methods first, then looks at those of the one that was named.
 *
 * Sources: GPTQModel and AutoAWQ (config.json of their checkpoints), compressed-tensors (quant_scheme, quant_args),
 * and transformers' FineGrainedFP8Config and Mxfp4Config. */
#include "engine/files/hf_quant.h"

#include "base/core/bits.h"

#include <stdio.h>

#define TEXT_MAX 32

/* Holds the settings that were found; `said` has a bit for each number and truth that is there. */
struct found {
    char method[TEXT_MAX], format[TEXT_MAX], checkpoint_format[TEXT_MAX], version[TEXT_MAX],
        fmt[TEXT_MAX];
    char pack_type[TEXT_MAX], type[TEXT_MAX], strategy[TEXT_MAX];
    int64_t bits, group, weight_bits, weight_group;
    bool sym, zero_point, symmetric;
    uint32_t groups, block[2];
};

enum form { TEXT, NUMBER, TRUTH, LIST, EMPTY, BLOCK, GROUPS, WEIGHTS };

/* clang-format off */
#define AT(member) (offsetof(struct found, member))
struct quant_row { const char *name; enum form form; size_t at; };
static const struct quant_row top_rows[] = {
    { "quant_method",           TEXT,   AT(method) },
    { "format",                 TEXT,   AT(format) },
    { "checkpoint_format",      TEXT,   AT(checkpoint_format) },
    { "version",                TEXT,   AT(version) },
    { "fmt",                    TEXT,   AT(fmt) },
    { "pack_dtype",             TEXT,   AT(pack_type) },
    { "bits",                   NUMBER, AT(bits) },
    { "group_size",             NUMBER, AT(group) },
    { "sym",                    TRUTH,  AT(sym) },
    { "zero_point",             TRUTH,  AT(zero_point) },
    { "modules_to_not_convert", LIST,   0 },
    { "ignore",                 LIST,   0 },
    { "config_groups",          GROUPS, 0 },
    { "weight_block_size",      BLOCK,  0 },
    { "dynamic",                EMPTY,  0 }, /* other bits for some modules */
    { "adapter",                EMPTY,  0 },
    { "sparsity_config",        EMPTY,  0 },
    { "transform_config",       EMPTY,  0 }, /* rotations that inputs would need, too */
    { "kv_cache_scheme",        EMPTY,  0 },
}, group_rows[] = {
    { "weights",            WEIGHTS, 0 },
    { "output_activations", EMPTY,   0 },
    { "format",             TEXT,    AT(format) },
}, weight_rows[] = {
    { "num_bits",   NUMBER, AT(weight_bits) },
    { "group_size", NUMBER, AT(weight_group) },
    { "type",       TEXT,   AT(type) },
    { "strategy",   TEXT,   AT(strategy) },
    { "symmetric",  TRUTH,  AT(symmetric) },
    { "block_structure", BLOCK, 0 },
};
/* clang-format on */

static int read_rows(struct json_reader *r, const struct quant_row *rows, size_t count,
                     struct found *f, struct err *err);

/* Several groups may name different modules; what they say of weights must be the same. */
static int read_groups(struct json_reader *r, struct found *f, struct err *err)
{
    if (r->token != JSON_OBJECT) return err_set(err, -EINVAL, "config_groups is no object");
    while (json_next(r) == JSON_KEY) {
        struct found before = *f;
        if (json_next(r) != JSON_OBJECT)
            return err_set(err, -EINVAL, "a group of config_groups is no object");
        int rc = read_rows(r, group_rows, COUNT_OF(group_rows), f, err);
        if (rc < 0) return rc;
        if (f->groups++ == 0) continue;
        if (f->weight_bits != before.weight_bits || strcmp(f->type, before.type) != 0 ||
            strcmp(f->format, before.format) != 0)
            return err_set(err, -ENOTSUP,
                           "config_groups have weights of different kinds; all must be of one");
    }
    return 0;
}

static bool is_empty(struct json_reader *r)
{
    if (r->token == JSON_FALSE) return true;
    if (r->token == JSON_OBJECT) return json_next(r) == JSON_OBJECT_END;
    return r->token == JSON_ARRAY && json_next(r) == JSON_ARRAY_END;
}

/* Reads [rows, columns]. */
static int read_block(struct json_reader *r, const char *name, uint32_t ret[2], struct err *err)
{
    uint64_t number = 0;
    bool good = r->token == JSON_ARRAY;
    for (size_t i = 0; i < 2 && good; i++) {
        json_next(r);
        good = json_u64(r, &number) == 0 && number >= 1 && number <= INT32_MAX;
        ret[i] = (uint32_t)number;
    }
    if (good && json_next(r) == JSON_ARRAY_END) return 0;
    return err_set(err, -EINVAL, "%s is no list of two numbers from 1 on", name);
}

static int read_value(struct json_reader *r, const struct quant_row *row, struct found *f,
                      struct err *err)
{
    char *at = (char *)f + row->at;
    if (r->token == JSON_NULL) return 0; /* as if it were absent */
    switch (row->form) {
    case TEXT:
        if (r->token != JSON_STRING || r->raw.len >= TEXT_MAX)
            return err_set(err, -EINVAL, "%s is no text of up to %d bytes", row->name,
                           TEXT_MAX - 1);
        snprintf(at, TEXT_MAX, STR_FMT, STR_ARG(r->raw));
        return 0;
    case NUMBER:
        if (json_i64(r, (int64_t *)(void *)at) == 0) return 0;
        return err_set(err, -EINVAL, "%s is no whole number", row->name);
    case TRUTH:
        if (json_bool(r, (bool *)at) == 0) return 0;
        return err_set(err, -EINVAL, "%s is neither true nor false", row->name);
    case LIST:
        return r->token == JSON_ARRAY ? 0 : err_set(err, -EINVAL, "%s is no list", row->name);
    case EMPTY:
        if (is_empty(r)) return 0;
        return err_set(err, -ENOTSUP, "%s asks for something that is not computed", row->name);
    case BLOCK:
        return read_block(r, row->name, f->block, err);
    case GROUPS:
        return read_groups(r, f, err);
    case WEIGHTS:
        break;
    }
    if (r->token != JSON_OBJECT) return err_set(err, -EINVAL, "%s is no object", row->name);
    return read_rows(r, weight_rows, COUNT_OF(weight_rows), f, err);
}

/* Reads the members of an object; the reader is behind '{'. Keys that are in no row are passed over. */
static int read_rows(struct json_reader *r, const struct quant_row *rows, size_t count,
                     struct found *f, struct err *err)
{
    uint32_t seen = 0;
    while (json_next(r) == JSON_KEY) {
        size_t i = 0;
        while (i < count && !json_key_is(r, rows[i].name))
            i++;
        if (i == count) {
            json_skip(r);
            continue;
        }
        if (seen >> i & 1) return err_set(err, -EINVAL, "%s is there twice", rows[i].name);
        seen |= 1u << i;
        json_next(r);
        int rc = read_value(r, &rows[i], f, err);
        if (rc < 0) return rc;
        if (r->token == JSON_OBJECT || r->token == JSON_ARRAY) json_skip_rest(r);
    }
    return r->token == JSON_OBJECT_END ? 0 : json_fail(r, err, "it");
}

/* ---- one method */

static int want_bits(int64_t bits, int64_t want, const char *name, struct err *err)
{
    if (bits == want) return 0;
    return err_set(err, -ENOTSUP, "%s is %lld; read are %lld", name, (long long)bits,
                   (long long)want);
}

static int want_text(const char *text, const char *const *known, size_t count, const char *name,
                     struct err *err)
{
    char names[128];
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, known[i]) == 0) return 0;
    str_list(known, count, names, sizeof names);
    return err_set(err, -ENOTSUP, "%s is '%s'; read are %s", name, text, names);
}

static int check_gptq(const struct found *f, struct hf_quant *ret, struct err *err)
{
    static const char *const formats[] = { "gptq", "gptq_v2" }, *const types[] = { "int32" };
    const char *format = f->checkpoint_format[0] ? f->checkpoint_format
                         : f->format[0]          ? f->format
                                                 : "gptq";
    int rc = want_bits(f->bits, 4, "bits", err);
    if (rc == 0) rc = want_text(format, formats, COUNT_OF(formats), "checkpoint_format", err);
    if (rc == 0 && f->pack_type[0])
        rc = want_text(f->pack_type, types, COUNT_OF(types), "pack_dtype", err);
    ret->method = HF_QUANT_GPTQ;
    ret->symmetric = f->sym;
    ret->zeros_whole = strcmp(format, "gptq_v2") == 0;
    return rc;
}

static int check_awq(const struct found *f, struct hf_quant *ret, struct err *err)
{
    static const char *const versions[] = { "gemm", "GEMM" };
    int rc = want_bits(f->bits, 4, "bits", err);
    if (rc == 0)
        rc = want_text(f->version[0] ? f->version : "gemm", versions, COUNT_OF(versions), "version",
                       err);
    if (rc == 0 && !f->zero_point)
        rc = err_set(err, -ENOTSUP, "zero_point is not true; read are weights with zero points");
    ret->method = HF_QUANT_AWQ;
    return rc;
}

static int check_compressed(const struct found *f, struct hf_quant *ret, struct err *err)
{
    static const struct {
        const char *format, *type;
        enum hf_quant_method method;
        int64_t bits;
        bool asymmetric; /* read, too */
    } known[] = {
        { "pack-quantized", "int", HF_QUANT_PACKED, 4, true },
        { "int-quantized", "int", HF_QUANT_INT8, 8, false },
        { "float-quantized", "float", HF_QUANT_FLOAT8, 8, false },
    };
    size_t i = 0;
    while (i < COUNT_OF(known) && strcmp(known[i].format, f->format) != 0)
        i++;
    if (i == COUNT_OF(known))
        return err_set(err, -ENOTSUP,
                       "format is '%s'; read are pack-quantized, int-quantized and float-quantized",
                       f->format);
    if (f->groups == 0) return err_set(err, -EINVAL, "config_groups is missing");
    if (strcmp(f->type, known[i].type) != 0)
        return err_set(err, -ENOTSUP, "format is %s, but the weights' type is '%s'", f->format,
                       f->type);
    int rc = want_bits(f->weight_bits, known[i].bits, "num_bits", err);
    if (rc == 0 && !known[i].asymmetric && !f->symmetric)
        rc = err_set(err, -ENOTSUP, "symmetric is false; read for %s is true", f->format);
    ret->method = known[i].method;
    return rc;
}

static int check_fp8(const struct found *f, struct hf_quant *ret, struct err *err)
{
    static const char *const forms[] = { "e4m3" };
    ret->method = HF_QUANT_FLOAT8;
    return f->fmt[0] ? want_text(f->fmt, forms, COUNT_OF(forms), "fmt", err) : 0;
}

static int check_mxfp4(const struct found *f, struct hf_quant *ret, struct err *err)
{
    (void)f, (void)err;
    ret->method = HF_QUANT_MXFP4;
    return 0;
}

static const struct {
    const char *name;
    int (*check)(const struct found *f, struct hf_quant *ret, struct err *err);
} methods[] = {
    { "gptq", check_gptq }, { "awq", check_awq },     { "compressed-tensors", check_compressed },
    { "fp8", check_fp8 },   { "mxfp4", check_mxfp4 },
};

const char *hf_quant_text(enum hf_quant_method method)
{
    static const char *const texts[HF_QUANT_METHODS] = {
        [HF_QUANT_GPTQ] = "GPTQ, 4 bits",
        [HF_QUANT_AWQ] = "AWQ, 4 bits",
        [HF_QUANT_PACKED] = "compressed-tensors, 4 bits",
        [HF_QUANT_INT8] = "compressed-tensors, 8 bits",
        [HF_QUANT_FLOAT8] = "F8_E4M3 with scales",
        [HF_QUANT_MXFP4] = "MXFP4",
    };
    return texts[method];
}

int hf_quant_read(struct json_reader *r, struct hf_quant *ret, struct err *err)
{
    struct found f = { .sym = true, .symmetric = true };
    struct hf_quant q = { 0 };
    if (r->token != JSON_OBJECT)
        return err_set(err, -EINVAL, "key 'quantization_config' is no object");
    int rc = read_rows(r, top_rows, COUNT_OF(top_rows), &f, err);
    size_t i = 0;
    while (i < COUNT_OF(methods) && strcmp(methods[i].name, f.method) != 0)
        i++;
    if (rc == 0 && i == COUNT_OF(methods))
        rc = err_set(err, -ENOTSUP,
                     "quant_method is '%s'; read are gptq, awq, compressed-tensors, fp8 and mxfp4",
                     f.method);
    if (rc == 0) rc = methods[i].check(&f, &q, err);
    int64_t group = f.groups ? f.weight_group : f.group;
    if (rc == 0 && (group < -1 || group > INT32_MAX))
        rc = err_set(err, -EINVAL, "group_size is %lld", (long long)group);
    if (rc < 0) return err_prefix(err, rc, "key 'quantization_config'");
    q.group = (int32_t)group;
    memcpy(q.block, f.block, sizeof q.block);
    *ret = q;
    return 0;
}
