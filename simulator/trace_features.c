/* trace_features.c - turns are linked once, a request's features are read off when it comes. */
#include "simulator/trace_features.h"

#include "base/core/hash.h"
#include "base/core/map.h"
#include "policies/predict/text.h"

#include <stdlib.h>

static int link_sessions(struct trace_features *f)
{
    struct map last;
    int rc = 0;
    map_init(&last, sizeof(uint64_t), sizeof(uint64_t), f->trace->count, MAP_OWN);
    for (uint32_t i = 0; rc == 0 && i < f->trace->count; i++) {
        uint64_t session = f->trace->request[i].session;
        if (session == 0) continue;
        uint64_t *at = map_put(&last, &session, NULL);
        if (!at) rc = -ENOMEM;
        if (at && f->trace->request[i].turn > 0) f->previous[i] = (uint32_t)*at;
        if (at) *at = i + 1;
    }
    map_fini(&last);
    return rc;
}

/* The deepest block of `r` that ended an earlier prompt; its owner, or 0. */
static uint32_t owner_of(const struct map *ended, const struct trace *t,
                         const struct trace_request *r)
{
    for (uint32_t b = r->block_count; b-- > 1;) {
        const uint64_t *at = map_get(ended, &t->block[r->block_first + b]);
        if (at) return (uint32_t)*at;
    }
    return 0;
}

static int link_blocks(struct trace_features *f)
{
    const struct trace *t = f->trace;
    struct map ended;
    int rc = 0;
    map_init(&ended, sizeof(uint64_t), sizeof(uint64_t), t->count, MAP_OWN);
    for (uint32_t i = 0; rc == 0 && i < t->count; i++) {
        const struct trace_request *r = &t->request[i];
        uint32_t whole = r->prompt_tokens / t->block_tokens, owner = owner_of(&ended, t, r);
        if (owner && t->request[owner - 1].prompt_tokens < r->prompt_tokens) f->previous[i] = owner;
        if (whole == 0 || whole > r->block_count) continue;
        uint64_t *at = map_put(&ended, &t->block[r->block_first + whole - 1], NULL);
        if (at) *at = i + 1;
        rc = at ? 0 : -ENOMEM;
    }
    map_fini(&ended);
    return rc;
}

static uint32_t have_of(const struct trace_features *f)
{
    uint32_t have = PREDICT_TRUTH;
    for (uint32_t i = 0; i < f->trace->count; i++) {
        const struct trace_request *r = &f->trace->request[i];
        if (r->text_bytes > 0) have |= PREDICT_TEXT;
        if (r->tenant > 0) have |= PREDICT_TENANT;
        if (r->group > 0) have |= PREDICT_GROUP;
        if (f->previous[i] > 0) have |= PREDICT_PREVIOUS;
    }
    return have;
}

int trace_features_new(const struct trace *t, struct trace_features **ret, struct err *err)
{
    CLEANUP(trace_features_freep) struct trace_features *f = calloc(1, sizeof *f);
    if (f) f->previous = calloc(t->count ? t->count : 1, sizeof *f->previous);
    if (!f || !f->previous) return err_set(err, -ENOMEM, "features of %u requests", t->count);
    f->trace = t;
    int rc = 0;
    if (t->has_sessions) {
        rc = link_sessions(f);
    } else if (t->block_tokens > 0 && t->block_count > 0) {
        rc = link_blocks(f);
    }
    if (rc < 0) return err_set(err, rc, "features of %u requests", t->count);
    f->have = have_of(f);
    *ret = TAKE(f);
    return 0;
}

void trace_features_free(struct trace_features *f)
{
    if (!f) return;
    free(f->previous);
    free(f);
}

static uint64_t name(uint32_t number, uint64_t seed)
{
    return number ? hash64(&number, sizeof number, seed) : 0;
}

void trace_features_of(const struct trace_features *f, uint32_t request, uint64_t prefix,
                       struct predict_features *ret)
{
    const struct trace_request *r = &f->trace->request[request];
    uint32_t before = f->previous[request];
    struct str text =
        r->text_bytes ? str_of(f->trace->text + r->text_first, r->text_bytes) : (struct str){ 0 };
    *ret = (struct predict_features){
        .tenant = name(r->tenant, 1),
        .prefix = prefix ? prefix : name(r->group, 2),
        .group = name(r->group, 3),
        .ask = text_ask(text),
        .text = text,
        .prompt_tokens = r->prompt_tokens,
        .output_max = r->output_max ? r->output_max : UINT32_MAX,
        .previous_tokens = before ? f->trace->request[before - 1].output_tokens : 0,
        .truth_tokens = r->output_tokens,
    };
}
