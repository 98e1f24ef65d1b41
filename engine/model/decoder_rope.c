/* decoder_rope.c - computes by what angle each pair of a head is turned a position.
 *
 *     angle_i = base^(-2i / dims) / factor_i
 *
 * The factor is 1; or that of linear scaling; or the file's own, one a pair (Llama 3.1 and
 * LongRoPE, Ding 2024); or YaRN's (Peng 2023): pairs that turn often keep their angle, those that
 * turn seldom are divided by the factor of scaling, and between the two bounds it is a blend:
 *
 *     dim(turns) = dims ln(original / (2 pi turns)) / (2 ln base)
 *     share_i    = (i - dim(beta_fast)) / (dim(beta_slow) - dim(beta_fast)), held within 0 .. 1
 *     1/factor_i = (1 - share_i) + share_i / factor
 *
 * YaRN and LongRoPE also multiply cosine and sine, so that scores keep their sharpness.
 *
 * LongRoPE has two lists, for contexts up to the original length and beyond it. Keys are stored
 * turned, so one list holds for all positions: that of the model's whole context. */
#include "engine/model/decoder.h"

#include <math.h>

struct scaling {
    bool linear, yarn;
    float factor;
    float magnitude; /* 0: the formula's */
    float beta_fast, beta_slow;
    uint32_t original;
};

static int read_scaling(struct loader *l, struct scaling *s, struct err *err)
{
    struct str type = STR("none");
    *s = (struct scaling){ .factor = 1, .beta_fast = 32, .beta_slow = 1 };
    int rc = loader_str(l, "rope.scaling.type", &type, err);
    if (rc == 0) rc = loader_f32(l, "rope.scaling.factor", false, &s->factor, err);
    if (rc == 0) rc = loader_f32(l, "rope.scaling.attn_factor", false, &s->magnitude, err);
    if (rc == 0) rc = loader_f32(l, "rope.scaling.yarn_beta_fast", false, &s->beta_fast, err);
    if (rc == 0) rc = loader_f32(l, "rope.scaling.yarn_beta_slow", false, &s->beta_slow, err);
    if (rc == 0)
        rc = loader_u32(l, "rope.scaling.original_context_length", false, 0, MODEL_CONTEXT_MAX,
                        &s->original, err);
    if (rc < 0) return rc;
    s->linear = str_eq(type, STR("linear"));
    s->yarn = str_eq(type, STR("yarn"));
    if (!s->linear && !s->yarn && !str_eq(type, STR("none")) && !str_eq(type, STR("longrope")) &&
        type.len > 0)
        return err_set(err, -ENOTSUP,
                       "%s: key '%s.rope.scaling.type' is '" STR_FMT
                       "'; none, linear, yarn and longrope are computed",
                       l->source->name, l->arch, STR_ARG(type));
    if ((s->linear || s->yarn) && !(s->factor >= 1))
        return err_set(err, -EINVAL,
                       "%s: key '%s.rope.scaling.factor' is %g, it must be at least 1",
                       l->source->name, l->arch, (double)s->factor);
    if (s->magnitude < 0 || !(s->magnitude < 100))
        return err_set(err, -EINVAL,
                       "%s: key '%s.rope.scaling.attn_factor' is %g, it must lie within 0 and 100",
                       l->source->name, l->arch, (double)s->magnitude);
    if (s->yarn && (s->original == 0 || !(s->beta_slow > 0 && s->beta_fast > s->beta_slow)))
        return err_set(err, -EINVAL,
                       "%s: YaRN needs rope.scaling.original_context_length, and "
                       "yarn_beta_fast above yarn_beta_slow above 0; they are %u, %g and %g",
                       l->source->name, s->original, (double)s->beta_fast, (double)s->beta_slow);
    return 0;
}

/* Returns the dimension, of pairs, that turns so many times over the original context. */
static double dim_of(const struct scaling *s, uint32_t dims, double base, double turns)
{
    return dims * log(s->original / (turns * 2 * M_PI)) / (2 * log(base));
}

static void yarn_angles(const struct scaling *s, const struct decoder_form *form, uint32_t dims,
                        double base, double *angle_step)
{
    double low = dim_of(s, dims, base, (double)s->beta_fast);
    double high = dim_of(s, dims, base, (double)s->beta_slow);
    if (!form->yarn_exact) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, dims - 1.0);
    if (!(high > low)) high = low + 0.001;
    for (uint32_t i = 0; i < dims / 2; i++) {
        double share = fmin(fmax((i - low) / (high - low), 0), 1);
        angle_step[i] *= (1 - share) + share / (double)s->factor;
    }
}

/* Reads the file's factors, if it has any: those of Llama 3.1, or one of LongRoPE's lists. */
static int read_factors(struct loader *l, const struct decoder *d, const struct model_info *info,
                        const struct scaling *s, const float **ret, struct err *err)
{
    const char *const names[] = { "rope_freqs.weight", "rope_factors_long.weight",
                                  "rope_factors_short.weight" };
    const float *factors[COUNT_OF(names)] = { NULL };
    size_t chosen = 0;
    if (d->form->long_rope) chosen = info->context_length > s->original ? 1 : 2;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (!loader_has(l, names[i]) || (i > 0) != d->form->long_rope) continue;
        int rc = loader_vector(l, names[i], d->pairs, NULL, &factors[i], err);
        if (rc < 0) return rc;
        for (uint32_t k = 0; k < d->pairs; k++)
            if (!(factors[i][k] > 0))
                return err_set(err, -EINVAL, "%s: tensor '%s' has a factor of %g", l->source->name,
                               names[i], (double)factors[i][k]);
    }
    if (d->form->long_rope && (!factors[1] != !factors[2] || (factors[1] && s->original == 0)))
        return err_set(err, -EINVAL,
                       "%s: LongRoPE needs the tensors rope_factors_long.weight and "
                       "rope_factors_short.weight and the key "
                       "'%s.rope.scaling.original_context_length'",
                       l->source->name, l->arch);
    *ret = factors[chosen];
    return 0;
}

/* By Ding 2024: sharper the longer the context is beyond the original one. In F32, as files store it. */
static float long_magnitude(const struct model_info *info, const struct scaling *s)
{
    double factor = (double)info->context_length / s->original;
    return factor <= 1 ? 1 : (float)sqrt(1 + log(factor) / log(s->original));
}

int decoder_rope_load(struct loader *l, struct decoder *d, const struct model_info *info,
                      uint32_t index, float freq_base, bool scaled, struct err *err)
{
    struct decoder_rope *rope = &d->rope[index];
    struct scaling s = { .factor = 1 };
    const float *factors = NULL;
    uint32_t dims = info->head_dim;
    int rc = loader_u32(l, "rope.dimension_count", false, 2, info->head_dim, &dims, err);
    if (rc == 0 && scaled) rc = read_scaling(l, &s, err);
    if (rc < 0) return rc;
    if (dims % 2 != 0 || !(freq_base > 1))
        return err_set(err, -EINVAL,
                       "%s: RoPE over %u dimensions with base %g: the first must be "
                       "even, the second above 1",
                       l->source->name, dims, (double)freq_base);
    d->pairs = dims / 2;
    if (scaled) rc = read_factors(l, d, info, &s, &factors, err);
    if (rc < 0) return rc;
    rope->angle_step = arena_array(&l->model->arena, d->pairs, sizeof *rope->angle_step);
    if (!rope->angle_step) return err_set(err, -ENOMEM, "%s: no memory", l->source->name);
    for (uint32_t i = 0; i < d->pairs; i++)
        rope->angle_step[i] =
            pow((double)freq_base, -2.0 * i / dims) /
            ((factors ? (double)factors[i] : 1) * (s.linear ? (double)s.factor : 1));
    if (s.yarn) yarn_angles(&s, d->form, dims, (double)freq_base, rope->angle_step);
    rope->magnitude = s.magnitude > 0                  ? (double)s.magnitude
                      : s.yarn && !d->form->yarn_plain ? 1 + 0.1 * log((double)s.factor)
                      : d->form->long_rope && factors  ? (double)long_magnitude(info, &s)
                                                       : 1;
    d->ropes = index + 1;
    return 0;
}
