/* hf_rope.c - every member must be known: one that is passed over would give wrong angles, and text that is
 * wrong far from its start only. */
#include "engine/files/hf_rope.h"

#include "base/core/bits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TYPE_BYTES_MAX 32

/* Members that say how to scale, as bits of what a type needs and may have. */
enum {
    FACTOR,
    LOW,
    HIGH,
    ORIGINAL,
    BETA_FAST,
    BETA_SLOW,
    ATTENTION,
    MSCALE,
    MSCALE_ALL,
    NUMBERS,
    TRUNCATE = NUMBERS,
    SHORT,
    LONG,
    MEMBERS
};

static const char *const member_names[MEMBERS] = {
    [FACTOR] = "factor",
    [LOW] = "low_freq_factor",
    [HIGH] = "high_freq_factor",
    [ORIGINAL] = "original_max_position_embeddings",
    [BETA_FAST] = "beta_fast",
    [BETA_SLOW] = "beta_slow",
    [ATTENTION] = "attention_factor",
    [MSCALE] = "mscale",
    [MSCALE_ALL] = "mscale_all_dim",
    [TRUNCATE] = "truncate",
    [SHORT] = "short_factor",
    [LONG] = "long_factor",
};

/* clang-format off */
static const struct {
    const char *name;
    unsigned needs, may;
} types[] = {
    [HF_ROPE_DEFAULT] = { "default", 0, 0 },
    [HF_ROPE_LINEAR] = { "linear", 1u << FACTOR, 0 },
    [HF_ROPE_LLAMA3] = { "llama3", 1u << FACTOR | 1u << LOW | 1u << HIGH | 1u << ORIGINAL, 0 },
    [HF_ROPE_YARN] = { "yarn", 1u << FACTOR | 1u << ORIGINAL,
                       1u << BETA_FAST | 1u << BETA_SLOW | 1u << ATTENTION | 1u << TRUNCATE |
                           1u << MSCALE | 1u << MSCALE_ALL },
    [HF_ROPE_LONG] = { "longrope", 1u << SHORT | 1u << LONG,
                       1u << FACTOR | 1u << ORIGINAL | 1u << ATTENTION },
};
/* clang-format on */

static int take_type(const struct json_reader *r, const char *name, enum hf_rope_type *ret,
                     struct err *err)
{
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        if (r->token != JSON_STRING || !str_eq(r->raw, str_from(types[i].name))) continue;
        *ret = (enum hf_rope_type)i;
        return 0;
    }
    return err_set(err, -ENOTSUP,
                   "key '%s' is '%.*s'; computed are default, linear, llama3, yarn and longrope",
                   name, (int)(r->raw.len < TYPE_BYTES_MAX ? r->raw.len : TYPE_BYTES_MAX),
                   r->raw.data);
}

static int take_factors(struct json_reader *r, struct arena *arena, const char *name,
                        const char *member, float **ret, uint32_t *ret_count, struct err *err)
{
    float *list = arena_array(arena, HF_ROPE_FACTORS_MAX, sizeof *list);
    double value;
    uint32_t count = 0;
    if (!list) return err_set(err, -ENOMEM, "no memory for the factors of key '%s'", name);
    if (r->token != JSON_ARRAY) return err_set(err, -EINVAL, "%s is no list", member);
    for (; json_next(r) != JSON_ARRAY_END; list[count++] = (float)value)
        if (count == HF_ROPE_FACTORS_MAX || json_f64(r, &value) < 0)
            return err_set(err, -EINVAL, "key '%s': %s is no list of at most %u numbers", name,
                           member, HF_ROPE_FACTORS_MAX);
    *ret = list;
    *ret_count = count;
    return 0;
}

static int check(const struct hf_rope *rope, const char *name, unsigned seen, struct err *err)
{
    unsigned needs = types[rope->type].needs, may = types[rope->type].may;
    if (seen & ~(needs | may))
        return err_set(err, -ENOTSUP,
                       "key '%s' scales positions in a way that is not computed for '%s'", name,
                       types[rope->type].name);
    if ((seen & needs) != needs) {
        char list[128] = "";
        for (size_t i = 0, len = 0; i < MEMBERS; i++, len = strlen(list))
            if (needs >> i & 1)
                snprintf(list + len, sizeof list - len, "%s%s", len ? ", " : "", member_names[i]);
        return err_set(err, -EINVAL, "key '%s' lacks one of %s", name, list);
    }
    if (rope->type == HF_ROPE_DEFAULT || rope->type == HF_ROPE_LONG) return 0;
    if (rope->type != HF_ROPE_LLAMA3)
        return rope->factor >= 1 ? 0
                                 : err_set(err, -EINVAL, "key '%s' has factor %g; it is at least 1",
                                           name, rope->factor);
    if (rope->factor >= 1 && rope->low > 0 && rope->high > rope->low && rope->original >= 1)
        return 0;
    return err_set(err, -EINVAL,
                   "key '%s' has factor %g, low_freq_factor %g, high_freq_factor %g and "
                   "original_max_position_embeddings %g; factor and positions are at least 1, and "
                   "high is above low, which is above 0",
                   name, rope->factor, rope->low, rope->high, rope->original);
}

/* Reads the value of one member that says how to scale. */
static int take_member(struct json_reader *r, const char *name, struct arena *arena, size_t i,
                       struct hf_rope *rope, struct err *err)
{
    double *const numbers[NUMBERS] = {
        [FACTOR] = &rope->factor,
        [LOW] = &rope->low,
        [HIGH] = &rope->high,
        [ORIGINAL] = &rope->original,
        [BETA_FAST] = &rope->beta_fast,
        [BETA_SLOW] = &rope->beta_slow,
        [ATTENTION] = &rope->attention_factor,
        [MSCALE] = &rope->mscale,
        [MSCALE_ALL] = &rope->mscale_all_dim,
    };
    bool truncate;
    if (i == SHORT)
        return take_factors(r, arena, name, member_names[i], &rope->short_factors,
                            &rope->short_count, err);
    if (i == LONG)
        return take_factors(r, arena, name, member_names[i], &rope->long_factors, &rope->long_count,
                            err);
    if (i == TRUNCATE && json_bool(r, &truncate) < 0)
        return err_set(err, -EINVAL, "key '%s': truncate is neither true nor false", name);
    if (i == TRUNCATE)
        rope->exact = !truncate;
    else if (json_f64(r, numbers[i]) < 0)
        return err_set(err, -EINVAL, "key '%s': %s is no number", name, member_names[i]);
    return 0;
}

/* Reads the members; the reader is behind '{'. */
static int read_members(struct json_reader *r, const char *name, struct arena *arena,
                        struct hf_rope *rope, struct hf_rope *local, struct err *err)
{
    unsigned seen = 0, kinds = 0;
    while (json_next(r) == JSON_KEY) {
        const bool is_type = json_key_is(r, "rope_type") || json_key_is(r, "type");
        const bool is_theta = json_key_is(r, "rope_theta");
        const bool is_partial = json_key_is(r, "partial_rotary_factor");
        struct hf_rope *own = json_key_is(r, "full_attention")      ? rope
                              : json_key_is(r, "sliding_attention") ? local
                                                                    : NULL;
        size_t i = 0;
        while (i < MEMBERS && !json_key_is(r, member_names[i]))
            i++;
        int rc = 0;
        json_next(r);
        const unsigned kind = !own || !local ? 0 : own == local ? 2 : 1;
        if (kinds & kind || (i < MEMBERS && seen >> i & 1))
            return err_set(err, -EINVAL, "key '%s' has a member twice", name);
        kinds |= kind;
        if (own && local && r->token == JSON_OBJECT) {
            own->given = true;
            rc = read_members(r, name, arena, own, NULL, err);
        } else if (is_type) {
            rc = take_type(r, name, &rope->type, err);
        } else if (is_theta && (rope->has_theta || json_f64(r, &rope->theta) < 0)) {
            rc = err_set(err, -EINVAL, "rope_theta is no number, or there twice");
        } else if (is_theta) {
            rope->has_theta = true;
        } else if (is_partial && json_f64(r, &rope->partial) < 0) {
            rc = err_set(err, -EINVAL, "partial_rotary_factor is no number");
        } else if (!is_partial && i == MEMBERS) {
            rc = err_set(err, -ENOTSUP, "key '%s' has a member that is not known", name);
        } else if (i < MEMBERS && r->token != JSON_NULL) {
            rc = take_member(r, name, arena, i, rope, err);
            seen |= 1u << i;
        }
        if (rc < 0) return rc;
    }
    /* With an object for each kind of layer, that object was checked. */
    return local && local->given && seen == 0 ? 0 : check(rope, name, seen, err);
}

int hf_rope_read(struct json_reader *r, const char *name, struct arena *arena, struct hf_rope *rope,
                 struct hf_rope *local, struct err *err)
{
    if (r->token == JSON_NULL) return 0;
    if (r->token != JSON_OBJECT) return err_set(err, -EINVAL, "key '%s' is no object", name);
    if (rope->given)
        return err_set(err, -EINVAL, "rope_scaling and rope_parameters are both there; want one");
    rope->given = true;
    return read_members(r, name, arena, rope, local, err);
}

void hf_rope_factors(const struct hf_rope *rope, uint32_t pairs, float *ret)
{
    const double turn = 6.283185307179586;
    for (uint32_t i = 0; i < pairs; i++) {
        double angle = pow(rope->theta, -(double)i / pairs);
        double waves = rope->original * angle / turn;
        double share = (waves - rope->low) / (rope->high - rope->low);
        share = share < 0 ? 0 : share > 1 ? 1 : share;
        ret[i] = (float)(1 / ((1 - share) / rope->factor + share));
    }
}
