/* output.c - detokeniser, stop strings and end tokens around the sampler.
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

/* `early`: before min_tokens, where stop strings do not count and so nothing is held back. */
static int take(struct output *a, uint32_t id, bool early)
{
    if (!a->spec.ignore_eos && is_end(a, id)) {
        int rc = output_close(a);
        return rc < 0 ? rc : 1;
    }
    buf_clear(&a->scratch);
    int rc = detok_push(&a->detok, id, &a->scratch);
    if (rc < 0) return rc;
    if (early) return buf_str(&a->text, buf_view(&a->scratch));
    return stop_push(&a->stop, buf_view(&a->scratch), &a->text);
}

int output_init(struct output *a, const struct vocab *vocab, const struct output_spec *spec,
                const uint32_t *ids, uint32_t count)
{
    *a = (struct output){ .spec = *spec };
    const struct vocab_special *special = vocab_special(vocab);
    const uint32_t ends[OUTPUT_ENDS_MAX] = { special->eos, special->eot };
    for (uint32_t i = 0; i < OUTPUT_ENDS_MAX; i++) {
        if (ends[i] != VOCAB_NONE && !is_end(a, ends[i])) a->ends[a->end_count++] = ends[i];
    }
    detok_init(&a->detok, vocab, true);
    stop_init(&a->stop, spec->stop, spec->stop_count);
    for (uint32_t i = spec->prompt_tokens; i < count; i++) {
        int rc = output_take(a, ids[i]);
        if (rc < 0) return rc;
    }
    buf_clear(&a->text); /* was sent by whoever generated it */
    return 0;
}

void output_fini(struct output *a)
{
    stop_fini(&a->stop);
    buf_fini(&a->text);
    buf_fini(&a->scratch);
}

int output_pick(struct output *a, struct sampler *sampler, const float *logits, const uint32_t *ids,
                uint32_t count, struct sampler_result *ret)
{
    struct sampler_input in = {
        .logits = logits,
        .ids = ids,
        .prompt_count = a->spec.prompt_tokens,
        .count = count,
        .forbidden = a->ends,
        .forbidden_count = a->generated < a->spec.min_tokens ? a->end_count : 0,
    };
    return sampler_pick(sampler, &a->spec.sampling, &in, ret);
}

int output_take(struct output *a, uint32_t id)
{
    a->generated++;
    return take(a, id, a->generated < a->spec.min_tokens);
}

int output_close(struct output *a)
{
    buf_clear(&a->scratch);
    detok_flush(&a->detok, &a->scratch);
    stop_flush(&a->stop, &a->text);
    return buf_str(&a->text, buf_view(&a->scratch));
}
