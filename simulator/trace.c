/* trace.c - requests in arrival order, appended one by one, then cut, superposed and sped up.
 *
 * Superposing merges k sorted copies. Copy k is the trace turned by k / scale of its period, so it
 * is two runs, each in order: the part that wraps to the front, then the rest. The period is the
 * span and one mean gap, else the last request of one turn and the first of the next coincide. */
#include "simulator/trace.h"

#include "base/core/bits.h"
#include "base/core/heap.h"
#include "base/core/rng.h"

#include <stdlib.h>

/* A growing array doubles until the bound ends it. */
static int grow(void **array, size_t count, size_t *capacity, size_t item, size_t count_max)
{
    if (count <= *capacity) return 0;
    if (count > count_max) return -E2BIG;
    size_t wanted = *capacity ? 2 * *capacity : 1024;
    wanted = min_size(wanted > count ? wanted : count, count_max);
    void *more = realloc(*array, wanted * item);
    if (!more) return -ENOMEM;
    *array = more;
    *capacity = wanted;
    return 0;
}

int trace_new(struct trace **ret, struct err *err)
{
    struct trace *t = calloc(1, sizeof *t);
    if (!t) return err_set(err, -ENOMEM, "no memory for a trace");
    *ret = t;
    return 0;
}

void trace_free(struct trace *t)
{
    if (!t) return;
    free(t->request);
    free(t->block);
    free(t->text);
    free(t);
}

static int check(const struct trace *t, const struct trace_request *r, struct err *err)
{
    if (r->prompt_tokens == 0) return err_set(err, -EINVAL, "a request without prompt tokens");
    if (r->output_tokens == 0) return err_set(err, -EINVAL, "a request without output tokens");
    if (r->at_us < 0) return err_set(err, -EINVAL, "a negative time");
    if (t->count > 0 && r->at_us < t->request[t->count - 1].at_us) {
        return err_set(err, -EINVAL, "the time goes back");
    }
    if (r->block_count > 0 && (t->block_tokens == 0 ||
                               r->block_count > ceil_div_u32(r->prompt_tokens, t->block_tokens))) {
        return err_set(err, -EINVAL, "%u blocks are more than %u tokens fill", r->block_count,
                       r->prompt_tokens);
    }
    return 0;
}

int trace_append(struct trace *t, const struct trace_request *r, const uint64_t *blocks,
                 struct str text, struct err *err)
{
    int rc = check(t, r, err);
    if (rc < 0) return rc;
    rc = grow((void **)&t->request, (size_t)t->count + 1, &t->request_capacity, sizeof *t->request,
              TRACE_REQUESTS_MAX);
    if (rc == 0) {
        rc = grow((void **)&t->block, t->block_count + r->block_count, &t->block_capacity,
                  sizeof *t->block, TRACE_BLOCKS_MAX);
    }
    if (rc == 0 && text.len > UINT32_MAX) rc = -E2BIG;
    if (rc == 0) {
        rc = grow((void **)&t->text, t->text_bytes + text.len, &t->text_capacity, 1,
                  TRACE_TEXT_BYTES_MAX);
    }
    if (rc == -E2BIG)
        return err_set(err, rc, "more than %u requests, %u prefix blocks or 1 GiB of text",
                       TRACE_REQUESTS_MAX, TRACE_BLOCKS_MAX);
    if (rc < 0) return err_set(err, rc, "no memory for a trace");
    struct trace_request *mine = &t->request[t->count++];
    *mine = *r;
    mine->block_first = t->block_count;
    mine->text_first = t->text_bytes;
    mine->text_bytes = (uint32_t)text.len;
    if (r->block_count > 0) {
        memcpy(&t->block[t->block_count], blocks, r->block_count * sizeof *blocks);
        t->block_count += r->block_count;
    }
    if (text.len > 0) memcpy(&t->text[t->text_bytes], text.data, text.len);
    t->text_bytes += text.len;
    t->has_tenants |= r->tenant > 0;
    t->has_sessions |= r->session > 0;
    return 0;
}

/* One of the sorted runs that a superposition merges. */
struct run {
    struct heap_node node; /* by its next request's time; equal times: the lower run */
    uint32_t next, end;
    uint32_t copy;
    bool wrapped;
    int64_t shift_us;
};

struct superposition {
    const struct trace *from;
    uint32_t tenants, sessions; /* the highest of the original */
    uint64_t *block;            /* scratch, for the longest prompt */
    struct run *run;
    struct heap heap;
};

/* A copy's request: what it shares, it shares with its own copy only. */
static int append_copy(struct superposition *s, const struct run *run, struct trace *to,
                       struct err *err)
{
    const struct trace_request *from = &s->from->request[run->next];
    struct trace_request r = *from;
    r.at_us += run->shift_us;
    if (r.tenant > 0) r.tenant += run->copy * s->tenants;
    if (r.session > 0) r.session += (2 * run->copy + run->wrapped) * s->sessions;
    for (uint32_t i = 0; i < r.block_count; i++) {
        uint64_t id = s->from->block[from->block_first + i];
        s->block[i] = run->copy == 0 ? id : rng_at(run->copy, id);
    }
    struct str text = { 0 };
    if (r.text_bytes > 0) text = str_of(&s->from->text[r.text_first], r.text_bytes);
    return trace_append(to, &r, s->block, text, err);
}

static int run_offer(struct superposition *s, struct run *run)
{
    if (run->next == run->end) return 0;
    return heap_push(&s->heap, &run->node, s->from->request[run->next].at_us + run->shift_us);
}

static int offer_copies(struct superposition *s, uint32_t scale)
{
    const struct trace *t = s->from;
    int64_t span = t->request[t->count - 1].at_us;
    int64_t period = span + (t->count > 1 ? span / (t->count - 1) : 0);
    int rc = 0;
    for (uint32_t k = 0; rc == 0 && k < scale; k++) {
        int64_t shift = (int64_t)((double)period * k / scale);
        uint32_t cut = t->count;
        while (cut > 0 && t->request[cut - 1].at_us + shift >= period && shift > 0)
            cut--;
        s->run[2 * k] = (struct run){
            .next = cut, .end = t->count, .copy = k, .wrapped = true, .shift_us = shift - period
        };
        s->run[2 * k + 1] = (struct run){ .end = cut, .copy = k, .shift_us = shift };
        rc = run_offer(s, &s->run[2 * k]);
        if (rc == 0) rc = run_offer(s, &s->run[2 * k + 1]);
    }
    return rc;
}

static int merge(struct superposition *s, uint32_t scale, struct trace *to, struct err *err)
{
    int rc = offer_copies(s, scale);
    struct heap_node *top;
    while (rc == 0 && (top = heap_pop(&s->heap))) {
        struct run *run = (struct run *)top; /* its first member */
        rc = append_copy(s, run, to, err);
        if (rc < 0) return rc;
        run->next++;
        rc = run_offer(s, run);
    }
    return rc < 0 ? err_set(err, rc, "no memory for a trace") : 0;
}

static int superpose(struct trace *t, uint32_t scale, struct err *err)
{
    struct superposition s = { .from = t };
    uint32_t blocks = 1;
    for (uint32_t i = 0; i < t->count; i++) {
        s.tenants = max_u32(s.tenants, t->request[i].tenant);
        s.sessions = max_u32(s.sessions, t->request[i].session);
        blocks = max_u32(blocks, t->request[i].block_count);
    }
    if ((uint64_t)s.sessions * 2 * scale > UINT32_MAX || (uint64_t)s.tenants * scale > UINT32_MAX) {
        return err_set(err, -E2BIG, "tenants or sessions of %u copies are too many", scale);
    }
    CLEANUP(trace_freep) struct trace *to = NULL;
    int rc = trace_new(&to, err);
    if (rc < 0) return rc;
    to->block_tokens = t->block_tokens;
    heap_init(&s.heap, 2 * (size_t)scale);
    s.block = malloc(blocks * sizeof *s.block);
    s.run = calloc(2 * (size_t)scale, sizeof *s.run);
    rc = s.block && s.run ? merge(&s, scale, to, err)
                          : err_set(err, -ENOMEM, "no memory for a trace");
    heap_fini(&s.heap);
    free(s.block);
    free(s.run);
    if (rc < 0) return rc;
    struct trace old = *t;
    *t = *to;
    *to = old;
    return 0;
}

int trace_shape(struct trace *t, uint32_t requests_max, uint32_t scale, double speed,
                struct err *err)
{
    if (scale < 1 || scale > TRACE_SCALE_MAX) {
        return err_set(err, -EINVAL, "%u copies: out of range 1..%d", scale, TRACE_SCALE_MAX);
    }
    if (!(speed > 0)) return err_set(err, -EINVAL, "a speed of %g is not above 0", speed);
    if (requests_max > 0) t->count = min_u32(t->count, requests_max);
    if (scale > 1 && t->count > 0) {
        int rc = superpose(t, scale, err);
        if (rc < 0) return rc;
    }
    if (speed == 1) return 0;
    for (uint32_t i = 0; i < t->count; i++)
        t->request[i].at_us = (int64_t)((double)t->request[i].at_us / speed);
    return 0;
}

void trace_stats_get(const struct trace *t, struct trace_stats *ret)
{
    *ret = (struct trace_stats){ 0 };
    if (t->count == 0) return;
    double count = t->count;
    for (uint32_t i = 0; i < t->count; i++) {
        ret->prompt_mean += t->request[i].prompt_tokens / count;
        ret->output_mean += t->request[i].output_tokens / count;
    }
    ret->span_s = (double)(t->request[t->count - 1].at_us - t->request[0].at_us) * 1e-6;
    if (ret->span_s > 0) ret->rate_s = (count - 1) / ret->span_s;
}
