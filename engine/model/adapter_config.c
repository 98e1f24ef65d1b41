/* adapter_config.c - compares every key with a table of what it may say.
 *
 *     W' = W + scale B A,   scale = lora_alpha / r   (Hu et al. 2021, arXiv 2106.09685)
 *                           scale = lora_alpha / sqrt(r) with use_rslora (arXiv 2312.03732)
 *
 * PEFT has many variants of LoRA that store more than A and B, or that train on changed weights of the
 * base model. With A and B alone each would be silently wrong, so each is refused. */
#include "engine/model/adapter_config.h"

#include "base/core/bits.h"
#include "base/core/json.h"

#include <math.h>

enum form {
    KIND, /* peft_type */
    RANK,
    ALPHA,
    STABLE, /* use_rslora */
    BIAS,   /* only "none" is computed */
    BEGUN,  /* init_lora_weights: ways that leave the base model as it is */
    SAYS_NOTHING_OF_THE_RESULT,
};

/* clang-format off */
static const struct { const char *name; enum form form; } rows[] = {
    { "peft_type",             KIND },
    { "r",                     RANK },
    { "lora_alpha",            ALPHA },
    { "use_rslora",            STABLE },
    { "bias",                  BIAS },
    { "init_lora_weights",     BEGUN },
    { "auto_mapping",          SAYS_NOTHING_OF_THE_RESULT },
    { "base_model_name_or_path", SAYS_NOTHING_OF_THE_RESULT },
    { "ensure_weight_tying",   SAYS_NOTHING_OF_THE_RESULT },
    { "exclude_modules",       SAYS_NOTHING_OF_THE_RESULT }, /* the tensors say which there are */
    { "inference_mode",        SAYS_NOTHING_OF_THE_RESULT },
    { "layers_pattern",        SAYS_NOTHING_OF_THE_RESULT },
    { "layers_to_transform",   SAYS_NOTHING_OF_THE_RESULT },
    { "lora_dropout",          SAYS_NOTHING_OF_THE_RESULT }, /* of training */
    { "megatron_core",         SAYS_NOTHING_OF_THE_RESULT },
    { "peft_version",          SAYS_NOTHING_OF_THE_RESULT },
    { "qalora_group_size",     SAYS_NOTHING_OF_THE_RESULT }, /* of use_qalora, which is refused */
    { "revision",              SAYS_NOTHING_OF_THE_RESULT },
    { "target_modules",        SAYS_NOTHING_OF_THE_RESULT },
    { "task_type",             SAYS_NOTHING_OF_THE_RESULT },
};

/* Values of init_lora_weights with which the base model's weights stay: PiSSA, OLoRA, CorDA and LoftQ change
 * them before training. */
static const char *const begun_names[] = { "gaussian", "orthogonal", "eva" };
/* clang-format on */

struct reading {
    bool has_kind, stable;
    uint64_t rank;
    double alpha;
};

/* Returns true if the value at hand asks for nothing; it is read whole then. */
static bool says_nothing(struct json_reader *r)
{
    switch (r->token) {
    case JSON_NULL:
    case JSON_FALSE:
        return true;
    case JSON_STRING:
        return r->raw.len == 0;
    case JSON_ARRAY:
        return json_next(r) == JSON_ARRAY_END;
    case JSON_OBJECT:
        return json_next(r) == JSON_OBJECT_END;
    case JSON_ERROR:
    case JSON_OBJECT_END:
    case JSON_ARRAY_END:
    case JSON_KEY:
    case JSON_NUMBER:
    case JSON_TRUE:
    case JSON_END:
    case JSON_TOKEN_COUNT:
        break;
    }
    return false;
}

static int take_begun(const struct json_reader *r, struct err *err)
{
    if (r->token == JSON_TRUE || r->token == JSON_FALSE || r->token == JSON_NULL) return 0;
    for (size_t i = 0; r->token == JSON_STRING && i < COUNT_OF(begun_names); i++)
        if (str_eq(r->raw, str_from(begun_names[i]))) return 0;
    return err_set(
        err, -ENOTSUP,
        "key 'init_lora_weights' names a way to begin that changes the base model's weights; "
        "convert the adapter as PEFT's path_initial_model_for_weight_conversion does");
}

static int take(struct json_reader *r, enum form form, const char *name, struct reading *to,
                struct err *err)
{
    switch (form) {
    case KIND:
        to->has_kind = r->token == JSON_STRING && str_eq(r->raw, STR("LORA"));
        if (to->has_kind) return 0;
        return err_set(err, -ENOTSUP,
                       "key 'peft_type' is not \"LORA\": other adapters are not computed");
    case RANK:
        if (json_u64(r, &to->rank) == 0 && to->rank >= 1 && to->rank <= ADAPTER_RANK_MAX) return 0;
        return err_set(err, -EINVAL, "key 'r' is no number from 1 to %u", ADAPTER_RANK_MAX);
    case ALPHA:
        if (json_f64(r, &to->alpha) == 0 && to->alpha > 0 && to->alpha <= 1e6) return 0;
        return err_set(err, -EINVAL, "key 'lora_alpha' is no number above 0, at most 1e6");
    case STABLE:
        if (r->token == JSON_NULL || json_bool(r, &to->stable) == 0) return 0;
        return err_set(err, -EINVAL, "key '%s' is neither true nor false", name);
    case BIAS:
        if (r->token == JSON_STRING && str_eq(r->raw, STR("none"))) return 0;
        return err_set(err, -ENOTSUP,
                       "key 'bias' is not \"none\": biases of an adapter are not computed");
    case BEGUN:
        return take_begun(r, err);
    case SAYS_NOTHING_OF_THE_RESULT:
        json_skip_rest(r);
        return 0;
    }
    return 0;
}

static int take_key(struct json_reader *r, struct reading *to, struct err *err)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (!json_key_is(r, rows[i].name)) continue;
        json_next(r);
        return take(r, rows[i].form, rows[i].name, to, err);
    }
    const struct str name = r->raw;
    json_next(r);
    if (says_nothing(r) || r->token == JSON_ERROR) return 0;
    return err_set(err, -ENOTSUP, "key '%.*s' asks for something that is not computed",
                   (int)min_size(name.len, 64), name.data);
}

int adapter_config_read(struct str text, struct adapter_config *ret, struct err *err)
{
    struct json_reader r;
    struct reading got = { 0 };
    json_reader_init(&r, text);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the configuration");
    while (json_next(&r) == JSON_KEY) {
        int rc = take_key(&r, &got, err);
        if (rc < 0) return rc;
    }
    if (r.token != JSON_OBJECT_END || json_next(&r) != JSON_END)
        return json_fail(&r, err, "the configuration");
    const char *missing = !got.has_kind    ? "peft_type"
                          : got.rank == 0  ? "r"
                          : got.alpha == 0 ? "lora_alpha"
                                           : NULL;
    if (missing) return err_set(err, -EINVAL, "key '%s' is missing", missing);
    const double rank = (double)got.rank;
    *ret = (struct adapter_config){ .rank = (uint32_t)got.rank,
                                    .scale = got.alpha / (got.stable ? sqrt(rank) : rank) };
    return 0;
}
