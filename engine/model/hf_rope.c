/* hf_rope.c - every member must be known: one that is passed over would give wrong angles, and text that is
 * wrong far from its start only. */
#include "engine/model/hf_rope.h"

#include <math.h>

#define TYPE_BYTES_MAX 32

enum { FACTOR, LOW, HIGH, ORIGINAL, NUMBERS };

/* Reads the name of the way of scaling. */
static int take_type(const struct json_reader *r, const char *name, bool *ret_llama3,
                     struct err *err)
{
    if (r->token == JSON_STRING && str_eq(r->raw, STR("default"))) return 0;
    *ret_llama3 = r->token == JSON_STRING && str_eq(r->raw, STR("llama3"));
    if (*ret_llama3) return 0;
    return err_set(err, -ENOTSUP, "key '%s' is '%.*s'; computed are default and llama3", name,
                   (int)(r->raw.len < TYPE_BYTES_MAX ? r->raw.len : TYPE_BYTES_MAX), r->raw.data);
}

static int check(const struct hf_rope *rope, const char *name, unsigned seen, struct err *err)
{
    if (!rope->llama3 && seen != 0)
        return err_set(err, -ENOTSUP,
                       "key '%s' scales positions in a way that is not computed; computed are "
                       "default and llama3",
                       name);
    if (!rope->llama3) return 0;
    if (seen != (1u << NUMBERS) - 1)
        return err_set(err, -EINVAL,
                       "key '%s' lacks one of factor, low_freq_factor, high_freq_factor and "
                       "original_max_position_embeddings",
                       name);
    if (rope->factor >= 1 && rope->low > 0 && rope->high > rope->low && rope->original >= 1)
        return 0;
    return err_set(err, -EINVAL,
                   "key '%s' has factor %g, low_freq_factor %g, high_freq_factor %g and "
                   "original_max_position_embeddings %g; factor and positions are at least 1, and "
                   "high is above low, which is above 0",
                   name, rope->factor, rope->low, rope->high, rope->original);
}

int hf_rope_read(struct json_reader *r, const char *name, struct hf_rope *rope, struct err *err)
{
    const struct {
        const char *name;
        double *to;
    } numbers[NUMBERS] = {
        [FACTOR] = { "factor", &rope->factor },
        [LOW] = { "low_freq_factor", &rope->low },
        [HIGH] = { "high_freq_factor", &rope->high },
        [ORIGINAL] = { "original_max_position_embeddings", &rope->original },
    };
    unsigned seen = 0;
    if (r->token == JSON_NULL) return 0;
    if (r->token != JSON_OBJECT) return err_set(err, -EINVAL, "key '%s' is no object", name);
    if (rope->given)
        return err_set(err, -EINVAL, "rope_scaling and rope_parameters are both there; want one");
    rope->given = true;
    while (json_next(r) == JSON_KEY) {
        const bool is_type = json_key_is(r, "rope_type") || json_key_is(r, "type");
        const bool is_theta = json_key_is(r, "rope_theta");
        size_t i = 0;
        while (i < NUMBERS && !json_key_is(r, numbers[i].name))
            i++;
        int rc = 0;
        json_next(r);
        if (is_type)
            rc = take_type(r, name, &rope->llama3, err);
        else if (is_theta && (rope->has_theta || json_f64(r, &rope->theta) < 0))
            rc = err_set(err, -EINVAL, "rope_theta is no number, or there twice");
        else if (is_theta)
            rope->has_theta = true;
        else if (i == NUMBERS)
            rc = err_set(err, -ENOTSUP, "key '%s' has a member that is not known", name);
        else if (json_f64(r, numbers[i].to) < 0)
            rc = err_set(err, -EINVAL, "key '%s': %s is no number", name, numbers[i].name);
        else
            seen |= 1u << i;
        if (rc < 0) return rc;
    }
    return check(rope, name, seen, err);
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
