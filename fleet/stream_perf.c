/* stream_perf.c - turns moments of streams into shapes of steps, and fits them by least squares. */
#include "fleet/stream_perf.h"

#include "base/core/bits.h"

static void learn(struct stream_perf *p, const struct perf_shape *shape, double seconds)
{
    if (!p->begun) perf_linear_init(&p->fit, NULL);
    p->begun = true;
    perf_linear_observe(&p->fit, shape, seconds);
}

/* The request itself waits at from_us, and decodes at the end. */
static void learn_first(struct stream_perf *p, const struct stream_watch *w, uint32_t uncached,
                        uint32_t cached, int64_t now_us)
{
    uint64_t attended = (uint64_t)uncached * cached + (uint64_t)uncached * (uncached + 1ull) / 2;
    const struct perf_shape shape = { .prefill_tokens = uncached,
                                      .prefill_chunks = 1,
                                      .decoding_seqs = w->load.decoding,
                                      .kv_tokens_decoding = w->load.kv_tokens,
                                      .kv_tokens_read = w->load.kv_tokens + attended };
    learn(p, &shape, (double)(now_us - w->from_us) * 1e-6);
    p->firsts++;
}

static void learn_gap(struct stream_perf *p, const struct stream_watch *w, uint32_t tokens,
                      const struct stream_moment *load, int64_t now_us)
{
    uint64_t read = (w->load.kv_tokens + load->kv_tokens) / 2;
    const struct perf_shape shape = {
        .decoding_seqs = max_u32((w->load.decoding + load->decoding + 1) / 2, 1),
        .kv_tokens_decoding = read,
        .kv_tokens_read = read,
    };
    learn(p, &shape, (double)(now_us - w->from_us) * 1e-6 / (double)(tokens - w->tokens));
    p->gaps++;
}

void stream_watch_sent(struct stream_watch *w, const struct stream_moment *load, int64_t now_us)
{
    *w = (struct stream_watch){ .from_us = now_us, .clean = load->waiting <= 1, .load = *load };
}

void stream_watch_tokens(struct stream_watch *w, struct stream_perf *p, uint32_t tokens,
                         uint32_t uncached, uint32_t cached, const struct stream_moment *load,
                         int64_t now_us)
{
    bool first = w->tokens == 0;
    if (w->from_us == 0 || tokens == 0 || now_us <= w->from_us) return;
    if (!first && tokens - w->tokens < STREAM_GAP_TOKENS) return;
    /* A prompt that came meanwhile has raised the total, or other routers' requests wait. */
    bool quiet = w->clean && load->waiting == 0 && load->uncached_total == w->load.uncached_total;
    if (quiet && first) learn_first(p, w, max_u32(uncached, 1), cached, now_us);
    if (quiet && !first) learn_gap(p, w, tokens, load, now_us);
    *w = (struct stream_watch){
        .from_us = now_us, .tokens = tokens, .clean = load->waiting == 0, .load = *load
    };
}

bool stream_perf_get(const struct stream_perf *p, struct perf_coef *ret)
{
    if (p->firsts < STREAM_SAMPLES_MIN || p->gaps < STREAM_SAMPLES_MIN) return false;
    *ret = p->fit.coef;
    return perf_coef_valid(ret);
}
