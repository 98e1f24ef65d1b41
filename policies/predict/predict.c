/* predict.c - the table of output-length predictors, remaining lengths, and headers of saved
 * states. */
#include "policies/predict/predict.h"

#include "base/core/bits.h"
#include "base/core/hash.h"

#include <errno.h>
#include <math.h>

/* "MPREDCT2" as bytes, lowest first. The digit goes up when the bytes of any policy change their
 * meaning, because the size alone may stay the same. */
#define STATE_MAGIC 0x325443444552504dULL
#define NORMAL_P90 1.2815515655446004

// clang-format off
const struct predict_policy *const predict_table[] = {
#define POLICY(name) &predict_##name,
#include "policies/predict/predict.def"
#undef POLICY
};
// clang-format on
const uint32_t predict_count = COUNT_OF(predict_table);

const struct predict_policy *predict_find(struct str name)
{
    for (uint32_t i = 0; i < predict_count; i++) {
        if (str_eq(str_from(predict_table[i]->name), name)) return predict_table[i];
    }
    return NULL;
}

const char *predict_missing(const struct predict_policy *policy, uint32_t have)
{
    static const char *const words[PREDICT_NEEDS] = {
        "text",        "tenants",       "earlier outputs",
        "tasks",       "hidden states", "reports of the model",
        "true lengths"
    };
    for (uint32_t i = 0; i < PREDICT_NEEDS; i++) {
        if ((policy->needs & ~have) >> i & 1) return words[i];
    }
    return NULL;
}

/* Returns the mean of a lognormal beyond g, less g: with median m and deviation s of the logarithm,
 * m exp(s^2/2) Q((ln g - ln m)/s - s) / Q((ln g - ln m)/s) - g. */
static double lognormal_left(const struct predict_verdict *v, double g)
{
    double s = log(v->p90 / v->p50) / NORMAL_P90;
    if (s < 0.05) s = 0.05; /* a point estimate is not exact to the token */
    double z = (log(g) - log(v->p50)) / s;
    double beyond = erfc(z / sqrt(2));
    if (beyond < 1e-9) return g * s * s; /* too far in the tail for the ratio: a part of g */
    return v->p50 * exp(s * s / 2) * erfc((z - s) / sqrt(2)) / beyond - g;
}

double predict_remaining(const struct predict_policy *policy, const void *state,
                         const struct predict_features *f, uint32_t generated)
{
    if (policy->remaining) return policy->remaining(state, f, generated);
    struct predict_verdict v;
    policy->decide(state, f, &v);
    double left = generated == 0 ? v.mean : lognormal_left(&v, (double)generated);
    double room = (double)f->output_max - (double)generated;
    return fmax(1, fmin(left, room));
}

void predict_init_nothing(void *state)
{
    *(struct predict_nothing *)state = (struct predict_nothing){ 0 };
}

void predict_observe_nothing(void *state, const struct predict_features *f, uint32_t tokens,
                             bool censored)
{
    (void)state, (void)f, (void)tokens, (void)censored;
}

void predict_merge_nothing(void *state, const void *other)
{
    (void)state, (void)other;
}

struct header {
    uint64_t magic, size, digest;
    char name[PREDICT_HEADER_BYTES - 24];
};
_Static_assert(sizeof(struct header) == PREDICT_HEADER_BYTES, "nothing lies between");

/* Returns the header of a state; `state` NULL: without the digest. */
static struct header header_of(const struct predict_policy *policy, const void *state)
{
    struct header h = { .magic = STATE_MAGIC, .size = policy->state_size };
    if (state) h.digest = hash64(state, policy->state_size, STATE_MAGIC);
    size_t len = strlen(policy->name);
    memcpy(h.name, policy->name, len < sizeof h.name ? len : sizeof h.name);
    return h;
}

void predict_header(const struct predict_policy *policy, const void *state,
                    uint8_t ret[PREDICT_HEADER_BYTES])
{
    struct header h = header_of(policy, state);
    memcpy(ret, &h, sizeof h);
}

int predict_header_check(const struct predict_policy *policy, struct str saved)
{
    struct header found, want;
    if (saved.len < sizeof found) return -EINVAL;
    memcpy(&found, saved.data, sizeof found);
    want = header_of(policy, NULL);
    bool ours = found.magic == want.magic && found.size == want.size &&
                memcmp(found.name, want.name, sizeof want.name) == 0;
    if (!ours) return -EINVAL;
    if (saved.len != sizeof found + (size_t)policy->state_size) return -EBADMSG;
    want = header_of(policy, saved.data + sizeof found);
    return found.digest == want.digest ? 0 : -EBADMSG;
}
