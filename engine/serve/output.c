/* output.c - runs detokeniser, stop strings and end tokens around the sampler.
 *
 * All of it runs on the device thread: about a microsecond a token, and the session ends in the
 * very step that completed a stop string, so no step is wasted and usage is exact.
 */
#include "engine/serve/output.h"

static bool is_end(const struct output *a, uint32_t id)
{
    for (uint32_t i = 0; i < a->end_count; i++) {
        if (a->ends[i] == id) return true;
    }
    return false;
}

/* Adds the text of a token, or ends at an end token. `early`: before min_tokens, where stop strings
 * do not count and so nothing is held back. */
static int take(struct output *a, uint32_t id, bool early)
{
    if (!a->spec.ignore_eos && is_end(a, id)) {
        int rc = output_close(a);
        return rc < 0 ? rc : 1;
    }
    buf_clear(&a->scratch);
    int rc = detok_push(&a->detok, id, &a->scratch);
    if (rc == 0 && a->spec.automaton)
        rc = matcher_advance(&a->matcher, vocab_bytes(a->detok.vocab, id));
    if (rc < 0) return rc;
    rc = early ? buf_str(&a->text, buf_view(&a->scratch))
               : stop_push(&a->stop, buf_view(&a->scratch), &a->text);
    if (rc != 0 || !a->spec.automaton || !matcher_is_over(&a->matcher)) return rc;
    rc = output_close(a);
    return rc < 0 ? rc : 1;
}

int output_init(struct output *a, const struct vocab *vocab, const struct output_spec *spec,
                const uint32_t *ids, uint32_t count)
{
    *a = (struct output){ .spec = *spec };
    const uint32_t *ends;
    a->end_count = (uint32_t)vocab_ends(vocab, &ends);
    must(a->end_count <= OUTPUT_ENDS_MAX);
    memcpy(a->ends, ends, a->end_count * sizeof *ends);
    detok_init(&a->detok, vocab, true);
    a->detok.shown = spec->shown;
    a->detok.shown_count = spec->shown_count;
    stop_init(&a->stop, spec->stop, spec->stop_count);
    if (spec->limit.tokens > 0) reasoning_init(&a->reasoning, &spec->limit.turn);
    if (spec->automaton) {
        int rc = matcher_init(&a->matcher, spec->automaton);
        if (rc < 0) return rc;
    }
    for (uint32_t i = spec->prompt_tokens; i < count; i++) {
        int rc = output_take(a, ids[i]);
        if (rc < 0) return rc;
    }
    buf_clear(&a->text); /* was sent by the engine that generated it */
    return 0;
}

void output_fini(struct output *a)
{
    stop_fini(&a->stop);
    matcher_fini(&a->matcher);
    reasoning_fini(&a->reasoning);
    buf_fini(&a->text);
    buf_fini(&a->scratch);
}

/* Returns the token that the limit on reasoning wants next; NULL: none. A function of the tokens so far. */
static const uint32_t *wanted(const struct output *a)
{
    const struct reasoning_limit *l = &a->spec.limit;
    uint32_t tokens;
    if (a->closing > 0) return &l->end[a->closing];
    if (l->tokens == 0 || !reasoning_is_open(&a->reasoning, &tokens)) return NULL;
    return tokens >= l->tokens ? &l->end[0] : NULL;
}

static int count_reasoning(struct output *a, uint32_t id)
{
    const uint32_t *next = wanted(a);
    bool goes_on = next && *next == id && a->closing + 1 < a->spec.limit.end_count;
    a->closing = goes_on ? a->closing + 1 : 0;
    return reasoning_take(&a->reasoning, &id, 1);
}

static bool allows(const uint64_t *mask, uint32_t id)
{
    return !mask || mask[id / 64] >> id % 64 & 1;
}

int output_pick(struct output *a, struct sampler *sampler, const float *logits, const uint32_t *ids,
                uint32_t count, struct sampler_result *ret)
{
    struct sampler_input in = {
        .logits = logits,
        .ids = ids,
        .prompt_count = a->spec.prompt_tokens,
        .count = count,
        .bias = a->spec.bias,
        .bias_count = a->spec.bias_count,
        .forbidden = a->ends,
        .forbidden_count = a->generated < a->spec.min_tokens ? a->end_count : 0,
    };
    const uint32_t *next = wanted(a);
    int rc = a->spec.automaton ? matcher_mask(&a->matcher, &in.allowed) : 0;
    if (rc < 0) return rc;
    if (next && allows(in.allowed, *next))
        return sampler_score(sampler, &a->spec.sampling, logits, *next, ret);
    if (!a->spec.automaton) return sampler_pick(sampler, &a->spec.sampling, &in, ret);
    bool may_end = matcher_may_end(&a->matcher) && !a->spec.ignore_eos && in.forbidden_count == 0;
    if (may_end) {
        in.also = a->ends;
        in.also_count = a->end_count;
    } else { /* an end token whose text the grammar allows is still an end */
        in.forbidden_count = a->end_count;
    }
    rc = sampler_pick(sampler, &a->spec.sampling, &in, ret);
    return rc == -EDOM ? -ENODATA : rc;
}

int output_take(struct output *a, uint32_t id)
{
    a->generated++;
    int rc = count_reasoning(a, id);
    return rc < 0 ? rc : take(a, id, a->generated < a->spec.min_tokens);
}

int output_close(struct output *a)
{
    buf_clear(&a->scratch);
    detok_flush(&a->detok, &a->scratch);
    stop_flush(&a->stop, &a->text);
    return buf_str(&a->text, buf_view(&a->scratch));
}

/* The stop matcher searches the held text and one token's without an index, because both are short.
 *
 * At most 16 strings of 256 bytes meet some 300 bytes a token; an automaton would be slower to
 * build than all the searches of a usual output.
 */

void stop_init(struct stop_matcher *m, const struct str *stop, uint32_t count)
{
    *m = (struct stop_matcher){ .stop = stop, .count = count };
}

void stop_fini(struct stop_matcher *m)
{
    buf_fini(&m->held);
}

/* Returns the bytes at the end of `text` that begin some stop string and may still become one. */
static size_t open_suffix(const struct stop_matcher *m, struct str text)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        struct str stop = m->stop[i];
        size_t len = stop.len - 1 < text.len ? stop.len - 1 : text.len;
        for (; len > longest; len--) {
            if (memcmp(text.data + text.len - len, stop.data, len) == 0) longest = len;
        }
    }
    return longest;
}

int stop_push(struct stop_matcher *m, struct str text, struct buf *out)
{
    if (m->count == 0) return buf_str(out, text);
    int rc = buf_str(&m->held, text);
    if (rc < 0) return rc;
    struct str all = buf_view(&m->held);
    size_t first = SIZE_MAX, first_end = SIZE_MAX;
    for (uint32_t i = 0; i < m->count; i++) {
        size_t at = str_find(all, m->stop[i]);
        if (at == SIZE_MAX || at + m->stop[i].len > first_end) continue;
        if (at + m->stop[i].len == first_end && at > first) continue;
        first = at;
        first_end = at + m->stop[i].len;
        m->met = m->stop[i];
    }
    bool met = first != SIZE_MAX;
    size_t certain = met ? first : all.len - open_suffix(m, all);
    rc = buf_append(out, all.data, certain);
    if (rc < 0) return rc;
    buf_consume(&m->held, met ? all.len : certain);
    return met;
}

int stop_flush(struct stop_matcher *m, struct buf *out)
{
    int rc = buf_str(out, buf_view(&m->held));
    buf_clear(&m->held);
    return rc;
}
