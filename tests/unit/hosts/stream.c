/* stream.c - events by chance, in order of time. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "tests/unit/hosts/hosts.h"

#include <stdlib.h>

static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->at_us != y->at_us) return x->at_us < y->at_us ? -1 : 1;
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

static void push(struct stream *s, int64_t at_us, enum host_event_kind kind, uint32_t request,
                 uint32_t count)
{
    must(s->count < COUNT_OF(s->event));
    at_us = at_us / 1000 * 1000 + 1 + request % 997;
    s->event[s->count] = (struct event){ at_us, kind, request, count, s->count };
    s->count++;
}

struct stream *stream_new(uint64_t seed)
{
    struct stream *s = calloc(1, sizeof *s);
    struct rng rng;
    must(s && trace_new(&s->trace, NULL) == 0);
    s->seed = seed;
    rng_seed(&rng, seed);
    for (uint32_t i = 0; i < HOST_REQUESTS; i++) {
        int64_t at_us =
            ((int64_t)i * HOST_SECONDS * SECOND) / HOST_REQUESTS + (int64_t)rng_below(&rng, 1000);
        uint32_t first = s->count;
        push(s, at_us, ARRIVES, i, 0);
        int64_t token_us = at_us + 20000 + (int64_t)rng_below(&rng, 3000000);
        bool breaks = rng_below(&rng, 150) == 0;
        if (breaks) push(s, token_us - 10000, BREAKS, i, 0);
        push(s, token_us, TOKENS, i, 1);
        uint32_t more = (uint32_t)rng_below(&rng, 4);
        for (uint32_t k = 0; k < more; k++) {
            token_us += 100000 + (int64_t)rng_below(&rng, 2000000);
            push(s, token_us, TOKENS, i, 1 + (uint32_t)rng_below(&rng, 60));
        }
        push(s, token_us + 5000, ENDS, i, 0);
        const struct trace_request r = { .at_us = s->event[first].at_us,
                                         .prompt_tokens = 1 + (uint32_t)rng_below(&rng, 6000),
                                         .output_tokens = 200,
                                         .tenant = 1 + i % 3 };
        must(trace_append(s->trace, &r, NULL, (struct str){ 0 }, NULL) == 0);
    }
    s->trace->request[0].at_us = 0; /* the run's first moment */
    s->event[0].at_us = 1;
    qsort(s->event, s->count, sizeof *s->event, by_time);
    return s;
}

void stream_free(struct stream *s)
{
    trace_free(s->trace);
    free(s);
}

uint32_t stream_cached(const struct stream *s, uint32_t request)
{
    return s->trace->request[request].prompt_tokens / 4;
}

void stream_load(const struct stream *s, uint32_t instance, int64_t second, struct stream_load *ret)
{
    uint64_t x = rng_at(s->seed, (uint64_t)second * HOST_INSTANCES + instance);
    uint64_t k = (uint64_t)second * (instance + 1);
    uint64_t more = (uint64_t)second * (uint64_t)second; /* the means of steps rise */
    *ret = (struct stream_load){ .running = (uint32_t)(x % 20),
                                 .waiting = (uint32_t)(x >> 8) % 5,
                                 .prefill_tokens = (x >> 16) % 9000,
                                 .kv_tokens = (x >> 24) % 90000,
                                 .pages_cached = (x >> 40) % 3000,
                                 .perf = { .step_s = 0.008 + 0.001 * instance,
                                           .prefill_token_s = 4e-5,
                                           .decode_seq_s = 2e-5,
                                           .kv_read_s = 3e-8,
                                           .attend_s = 1e-9,
                                           .samples = 64 },
                                 .work = { .span_s = (double)second,
                                           .busy_s = 0.25 * (double)k + 0.001 * (double)more,
                                           .steps = 30 * k,
                                           .prefill_tokens = 30 * k * 200,
                                           .prefill_chunks = 30 * k,
                                           .decoding_seqs = 30 * k * 12 + 90 * more,
                                           .kv_tokens = 30 * k * 20000,
                                           .kv_tokens_decoding = 30 * k * 15000 },
                                 .uncached_total = k * 3000 };
}
