/* predict_engine.c - runs a length predictor beside the scheduler.
 *
 * The first state is read where the first token is drawn: it has seen the whole prompt and nothing
 * of the output. TRAIL averages a layer over the prompt's tokens; a prefix that was found in the
 * cache has no states to average, so this is the last token's alone. While decoding the state of
 * every `every`-th token refines the mean, and P50 and P90 are kept from falling behind what is
 * there already. The predictor learns from the state at token g when the session ends, when the
 * tokens that were left are known.
 */
#include "engine/serve/predict_engine.h"

#include "base/core/bits.h"
#include "base/core/rng.h"
#include "base/io/file.h"
#include "base/io/log.h"

#include <math.h>
#include <stdlib.h>

#define FILE_BYTES_MAX ((size_t)PREDICT_STATE_BYTES_MAX + PREDICT_HEADER_BYTES)

#define PAPER_LAYER 11u
#define PAPER_LAYERS 32u

_Static_assert(MODEL_HIDDEN == PREDICT_HIDDEN_DIMS, "the fold is what the row takes");

struct predict_engine {
    const struct predict_policy *policy;
    void *state;
    uint64_t ends;
    uint32_t every;
    struct str path;
    bool may_save;
};

/* Merges in what an earlier process learned. The state lies behind the header, which is as long as
 * several of the widest members, so it is aligned as the buffer is. */
static void recall(struct predict_engine *f)
{
    struct err err = { "" };
    CLEANUP(buf_fini) struct buf saved = { .max = FILE_BYTES_MAX };
    int rc = file_read(f->path.data, FILE_BYTES_MAX, &saved, &err);
    if (rc >= 0) rc = predict_header_check(f->policy, buf_view(&saved));
    f->may_save = rc >= 0 || rc == -ENOENT;
    if (rc >= 0) {
        f->policy->merge(f->state, saved.data + PREDICT_HEADER_BYTES);
        f->ends = PREDICT_ENGINE_ENDS;
    } else if (rc != -ENOENT) {
        log_event(LOG_WARN, "predictor_not_recalled", "file=%s rc=%d", f->path.data, rc);
    }
}

uint32_t predict_engine_layer(uint32_t layers)
{
    return max_u32((layers * PAPER_LAYER + PAPER_LAYERS / 2) / PAPER_LAYERS, 1);
}

int predict_engine_new(const struct predict_policy *policy, struct str path, uint32_t every,
                       struct predict_engine **ret, struct err *err)
{
    CLEANUP(predict_engine_freep) struct predict_engine *f = calloc(1, sizeof *f);
    if (f) f->state = malloc(policy->state_size);
    if (!f || !f->state) return err_set(err, -ENOMEM, "no memory for predictor %s", policy->name);
    f->policy = policy;
    f->path = path;
    f->every = every;
    policy->init(f->state);
    if (path.len > 0) recall(f);
    *ret = TAKE(f);
    return 0;
}

void predict_engine_save(const struct predict_engine *f)
{
    CLEANUP(buf_fini) struct buf out = { .max = FILE_BYTES_MAX };
    struct err err = { "" };
    uint8_t head[PREDICT_HEADER_BYTES];
    if (!f->may_save || f->ends < PREDICT_ENGINE_ENDS) return;
    predict_header(f->policy, f->state, head);
    buf_append(&out, head, sizeof head);
    buf_append(&out, f->state, f->policy->state_size);
    int rc = out.rc;
    if (rc >= 0) rc = file_write_atomic(f->path.data, buf_view(&out), 0600, &err);
    if (rc < 0) log_event(LOG_WARN, "predictor_not_saved", "why=\"%s\"", err_text(&err, rc));
}

void predict_engine_free(struct predict_engine *f)
{
    if (!f) return;
    free(f->state);
    free(f);
}

bool predict_engine_reads(const struct predict_engine *f, const struct session *s)
{
    uint32_t generated = session_generated(s);
    if (!(f->policy->needs & PREDICT_HIDDEN)) return false;
    return generated == 0 || (f->every > 0 && generated % f->every == 0);
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

/* Keeps looks by reservoir sampling (Vitter's algorithm R); the first always stays. */
static void keep_look(struct predict_looks *looks, const struct session *s, uint32_t generated)
{
    uint64_t at = looks->count;
    if (looks->count == PREDICT_LOOKS_MAX)
        at = 1 + rng_at(s->id, looks->seen) % looks->seen;
    else
        looks->count++;
    looks->seen++;
    if (at >= PREDICT_LOOKS_MAX) return;
    memcpy(looks->look[at].hidden, looks->now, sizeof looks->now);
    looks->look[at].generated = generated;
}

static void predict_first(struct predict_engine *f, struct session *s, struct predict_looks *looks)
{
    struct predict_features features = features_of(s, looks->now);
    struct predict_verdict v;
    features.posterior = &looks->posterior;
    f->policy->decide(f->state, &features, &v);
    s->predicted_mean = whole(v.mean);
    s->predicted_p50 = whole(v.p50);
    s->predicted_p90 = whole(v.p90);
}

/* Predicts the tokens that are left. `read`: looks->now is this token's state; else only that of
 * the prompt's end is there. */
static void refine(struct predict_engine *f, struct session *s, struct predict_looks *looks,
                   bool read)
{
    uint32_t generated = session_generated(s);
    struct predict_features features = features_of(s, read ? looks->now : looks->look[0].hidden);
    features.posterior = &looks->posterior;
    features.hidden_at = read ? generated : 0;
    double left = predict_remaining(f->policy, f->state, &features, generated);
    s->predicted_mean = whole((double)generated + left);
    s->predicted_p50 = max_u32(s->predicted_p50, generated + 1);
    s->predicted_p90 = max_u32(s->predicted_p90, s->predicted_mean);
}

void predict_engine_look(struct predict_engine *f, struct session *s, struct predict_looks *looks)
{
    uint32_t generated = session_generated(s);
    bool read = predict_engine_reads(f, s);
    if (read) keep_look(looks, s, generated);
    if (f->ends < PREDICT_ENGINE_ENDS) return;
    if (generated == 0)
        predict_first(f, s, looks);
    else if (read || (f->every == 0 && generated % PREDICT_ENGINE_TOKENS == 0))
        refine(f, s, looks, read);
}

void predict_engine_end(struct predict_engine *f, const struct session *s,
                        const struct predict_looks *looks)
{
    uint32_t generated = session_generated(s);
    bool censored = s->end != SESSION_END_STOP;
    if (generated == 0 || s->end == SESSION_END_ERROR) return;
    struct predict_features features = features_of(s, looks->look[0].hidden);
    f->policy->observe(f->state, &features, generated, censored);
    for (uint32_t i = 1; f->policy->observe_look && i < looks->count; i++) {
        features.hidden = looks->look[i].hidden;
        features.hidden_at = looks->look[i].generated;
        f->policy->observe_look(f->state, &features, generated, censored);
    }
    f->ends++;
}
