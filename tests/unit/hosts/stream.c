/* stream.c - draws events in order of time. Prompts get keys as the simulator's routers derive them
 * from a trace's blocks. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "simulator/flight.h"
#include "tests/unit/hosts/hosts.h"

#include <stdio.h>
#include <stdlib.h>

#define GROUPS 12
#define CALM_US (4 * SECOND)  /* longer than an engine rests after one failure */
#define REST_US (31 * SECOND) /* longer than any engine rests */
#define BREAKS_EVERY 25

static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->at_us != y->at_us) return x->at_us < y->at_us ? -1 : 1;
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

static struct event *push(struct stream *s, int64_t at_us, enum host_event_kind kind,
                          uint32_t request, uint32_t count)
{
    must(s->count < COUNT_OF(s->event));
    struct event *e = &s->event[s->count];
    at_us = at_us / 1000 * 1000 + 1 + request % 997;
    *e = (struct event){ .at_us = at_us, .kind = kind, .request = request, .count = count };
    e->nth = s->count++;
    return e;
}

/* Adds a request to the trace; prompts of a group have a common prefix. */
static void append(struct stream *s, uint32_t request, int64_t at_us, struct rng *rng)
{
    const struct trace_request r = {
        .at_us = at_us,
        .prompt_tokens = 1 + (uint32_t)rng_below(rng, HOST_PROMPT_MAX),
        .output_tokens = 200,
        .tenant = 1 + request % 3,
    };
    struct trace_request with = r;
    uint64_t block[HOST_BLOCKS];
    uint32_t group = (uint32_t)rng_below(rng, GROUPS), shared = 20 * (1 + group);
    with.block_count = ceil_div_u32(r.prompt_tokens, BLOCK_TOKENS);
    for (uint32_t b = 0; b < with.block_count; b++)
        block[b] = b < shared ? 1 + group * HOST_BLOCKS + b : (1000000 + request) * HOST_BLOCKS + b;
    must(trace_append(s->trace, &with, block, (struct str){ 0 }, NULL) == 0);
}

static void push_blocks(struct stream *s, uint32_t request, int64_t at_us, struct rng *rng)
{
    uint32_t blocks = s->trace->request[request].prompt_tokens / BLOCK_TOKENS;
    uint32_t instance = (uint32_t)rng_below(rng, HOST_INSTANCES);
    push(s, at_us, STORES, request, blocks)->instance = instance;
    if (rng_below(rng, 3) == 0)
        push(s, at_us + 7000000, DROPS, request, (uint32_t)rng_below(rng, 1 + blocks))->instance =
            instance;
}

/* Gives the time of an engine's loss: one engine after the other for longer than a report is fresh,
 * or all at once for a moment. */
static void loss_of(uint32_t instance, bool holds, int64_t *ret_at_us, int64_t *ret_for_us)
{
    *ret_at_us = holds ? 40 * SECOND + 3000 * instance : (15 + 20 * (int64_t)instance) * SECOND;
    *ret_for_us = holds ? 1700000 + 400000 * (int64_t)instance : 5400000;
}

static void push_losses(struct stream *s, bool holds)
{
    for (uint32_t i = 0; i < HOST_INSTANCES; i++) {
        int64_t at_us, for_us;
        loss_of(i, holds, &at_us, &for_us);
        push(s, at_us, LOSES, 0, 0)->instance = i;
        push(s, at_us + for_us, RETURNS, 0, 0)->instance = i;
    }
}

/* Returns true for one request in BREAKS_EVERY, but never while an engine rests after its loss:
 * requests are held only where all engines are lost. */
static bool breaks_at(uint32_t request, int64_t at_us, bool holds)
{
    if (request % BREAKS_EVERY != BREAKS_EVERY - 1) return false;
    for (uint32_t i = 0; i < HOST_INSTANCES; i++) {
        int64_t lost_us, for_us;
        loss_of(i, holds, &lost_us, &for_us);
        if (at_us > lost_us - CALM_US && at_us < lost_us + for_us + REST_US) return false;
    }
    return true;
}

static void push_request(struct stream *s, uint32_t i, bool holds, struct rng *rng)
{
    int64_t at_us =
        ((int64_t)i * HOST_SECONDS * SECOND) / HOST_REQUESTS + (int64_t)rng_below(rng, 1000);
    if (i == 0) at_us = 0;
    append(s, i, push(s, at_us, ARRIVES, i, 0)->at_us, rng);
    int64_t token_us = at_us + 20000 + (int64_t)rng_below(rng, 3000000);
    if (breaks_at(i, token_us, holds)) push(s, token_us - 10000, BREAKS, i, 0);
    push(s, token_us, TOKENS, i, 1);
    push_blocks(s, i, token_us + 1000, rng);
    uint32_t more = (uint32_t)rng_below(rng, 4);
    for (uint32_t k = 0; k < more; k++) {
        token_us += 100000 + (int64_t)rng_below(rng, 2000000);
        push(s, token_us, TOKENS, i, 1 + (uint32_t)rng_below(rng, 60));
    }
    push(s, token_us + 5000, ENDS, i, 0);
}

struct stream *stream_new(uint64_t seed, bool holds)
{
    struct stream *s = calloc(1, sizeof *s);
    struct rng rng;
    must(s && trace_new(&s->trace, NULL) == 0);
    s->seed = seed;
    s->trace->block_tokens = BLOCK_TOKENS;
    rng_seed(&rng, seed);
    for (uint32_t i = 0; i < HOST_REQUESTS; i++)
        push_request(s, i, holds, &rng);
    push_losses(s, holds);
    s->trace->request[0].at_us = 0; /* the run's first moment */
    s->event[0].at_us = 1;
    qsort(s->event, s->count, sizeof *s->event, by_time);
    return s;
}

uint32_t stream_keys(const struct stream *s, uint32_t request, struct block_key ret[HOST_BLOCKS])
{
    const struct trace_request *r = &s->trace->request[request];
    const uint64_t seed = rng_at(HOST_SEED, 0x5eed);
    char name[16];
    struct str tenant = { name, (size_t)snprintf(name, sizeof name, "%u", r->tenant) };
    prompt_block_keys(s->trace, r, seed, block_salt(seed, STR("weights"), STR(""), tenant), ret);
    return r->block_count;
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
    uint64_t more = (uint64_t)second * (uint64_t)second; /* so that a step's mean work rises */
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
