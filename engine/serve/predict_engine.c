/* predict_engine.c - runs a length predictor beside the scheduler.
 *
 * The state is pooled once, where the first token is drawn: it has seen the whole prompt and nothing
 * of the answer, so what is learned of it at the end was known at the beginning. While decoding the
 * row's E[L | L > generated] replaces the mean, and P50 and P90 are kept from falling behind what is
 * there already.
 */
#include "engine/serve/predict_engine.h"

#include "base/core/bits.h"
#include "base/io/file.h"
#include "base/io/log.h"

#include <math.h>
#include <stdlib.h>

#define FILE_BYTES_MAX ((size_t)PREDICT_STATE_BYTES_MAX + PREDICT_HEADER_BYTES)

_Static_assert(MODEL_HIDDEN == PREDICT_HIDDEN_DIMS, "the fold is what the row takes");

struct predict_engine {
    const struct predict_policy *row;
    void *state;
    uint64_t ends;
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
    if (rc >= 0) rc = predict_header_check(f->row, buf_view(&saved));
    f->may_save = rc >= 0 || rc == -ENOENT;
    if (rc >= 0) {
        f->row->merge(f->state, saved.data + PREDICT_HEADER_BYTES);
        f->ends = PREDICT_ENGINE_ENDS;
    } else if (rc != -ENOENT) {
        log_event(LOG_WARN, "predictor_not_recalled", "file=%s rc=%d", f->path.data, rc);
    }
}

int predict_engine_new(const struct predict_policy *row, struct str path,
                       struct predict_engine **ret, struct err *err)
{
    CLEANUP(predict_engine_freep) struct predict_engine *f = calloc(1, sizeof *f);
    if (f) f->state = malloc(row->state_size);
    if (!f || !f->state) return err_set(err, -ENOMEM, "no memory for predictor %s", row->name);
    f->row = row;
    f->path = path;
    row->init(f->state);
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
    predict_header(f->row, f->state, head);
    buf_append(&out, head, sizeof head);
    buf_append(&out, f->state, f->row->state_size);
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

bool predict_engine_wants_hidden(const struct predict_engine *f)
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

void predict_engine_prompt(struct predict_engine *f, struct session *s,
                           const float hidden[MODEL_HIDDEN])
{
    if (f->ends < PREDICT_ENGINE_ENDS) return;
    struct predict_features features = features_of(s, hidden);
    struct predict_verdict v;
    f->row->decide(f->state, &features, &v);
    s->predicted_mean = whole(v.mean);
    s->predicted_p50 = whole(v.p50);
    s->predicted_p90 = whole(v.p90);
}

void predict_engine_token(struct predict_engine *f, struct session *s,
                          const float hidden[MODEL_HIDDEN])
{
    uint32_t generated = session_generated(s);
    if (f->ends < PREDICT_ENGINE_ENDS || generated == 0 || generated % PREDICT_ENGINE_TOKENS != 0)
        return;
    struct predict_features features = features_of(s, hidden);
    double left = predict_remaining(f->row, f->state, &features, generated);
    s->predicted_mean = whole((double)generated + left);
    s->predicted_p50 = max_u32(s->predicted_p50, generated + 1);
    s->predicted_p90 = max_u32(s->predicted_p90, s->predicted_mean);
}

void predict_engine_end(struct predict_engine *f, const struct session *s,
                        const float hidden[MODEL_HIDDEN])
{
    uint32_t generated = session_generated(s);
    if (generated == 0 || s->end == SESSION_END_ERROR) return;
    struct predict_features features = features_of(s, hidden);
    f->row->observe(f->state, &features, generated, s->end != SESSION_END_STOP);
    f->ends++;
}
