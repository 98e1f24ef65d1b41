/* foretell.c - a row of predict beside the scheduler.
 *
 * The state is pooled once, where the first token is drawn: it has seen the whole prompt and nothing
 * of the answer, so what is learned of it at the end was known at the beginning. While decoding the
 * row's E[L | L > generated] replaces the mean, and P50 and P90 are kept from falling behind what is
 * there already.
 */
#include "engine/serve/foretell.h"

#include "base/core/bits.h"

#include <math.h>
#include <stdlib.h>

_Static_assert(MODEL_HIDDEN == PREDICT_HIDDEN_DIMS, "the fold is what the row takes");

struct foretell {
    const struct predict_policy *row;
    void *state;
    uint64_t ends;
};

int foretell_new(const struct predict_policy *row, struct foretell **ret, struct err *err)
{
    CLEANUP(foretell_freep) struct foretell *f = calloc(1, sizeof *f);
    if (f) f->state = malloc(row->state_size);
    if (!f || !f->state) return err_set(err, -ENOMEM, "no memory for predictor %s", row->name);
    f->row = row;
    row->init(f->state);
    *ret = TAKE(f);
    return 0;
}

void foretell_free(struct foretell *f)
{
    if (!f) return;
    free(f->state);
    free(f);
}

bool foretell_wants_hidden(const struct foretell *f)
{
    return f->row->needs & PREDICT_HIDDEN;
}

static struct predict_features features_of(const struct session *s, const float *hidden)
{
    return (struct predict_features){
        .tenant = s->tenant,
        .group = s->group,
        .prompt_tokens = s->prompt_tokens,
        .output_max = s->total_max - s->prompt_tokens,
        .hidden = hidden,
    };
}

static uint32_t whole(double tokens)
{
    return (uint32_t)fmax(1, fmin(tokens + 0.5, UINT32_MAX));
}

void foretell_prompt(struct foretell *f, struct session *s, const float hidden[MODEL_HIDDEN])
{
    if (f->ends < FORETELL_ENDS) return;
    struct predict_features features = features_of(s, hidden);
    struct predict_verdict v;
    f->row->decide(f->state, &features, &v);
    s->predicted_mean = whole(v.mean);
    s->predicted_p50 = whole(v.p50);
    s->predicted_p90 = whole(v.p90);
}

void foretell_token(struct foretell *f, struct session *s, const float hidden[MODEL_HIDDEN])
{
    uint32_t generated = session_generated(s);
    if (f->ends < FORETELL_ENDS || generated == 0 || generated % FORETELL_TOKENS != 0) return;
    struct predict_features features = features_of(s, hidden);
    double left = predict_remaining(f->row, f->state, &features, generated);
    s->predicted_mean = whole((double)generated + left);
    s->predicted_p50 = max_u32(s->predicted_p50, generated + 1);
    s->predicted_p90 = max_u32(s->predicted_p90, s->predicted_mean);
}

void foretell_end(struct foretell *f, const struct session *s, const float hidden[MODEL_HIDDEN])
{
    uint32_t generated = session_generated(s);
    if (generated == 0 || s->end == SESSION_END_ERROR) return;
    struct predict_features features = features_of(s, hidden);
    f->row->observe(f->state, &features, generated, s->end != SESSION_END_STOP);
    f->ends++;
}
