/* hosts.h - draws a stream of events from a seed and feeds it to two hosts, simulator and product.
 *
 * The stream has arrivals of prompts with common prefixes at two routers, first and further tokens, ends,
 * broken connections, blocks that engines store and drop, engines that are lost with all that they
 * compute and come back, and loads and work of three engines at every whole second.
 */
#pragma once
#include "base/core/block_key.h"
#include "base/wire/report.h"
#include "simulator/trace.h"
#include "tests/unit/hosts/probes.h"

#define SECOND ((int64_t)1000000)
enum { HOST_ROUTERS = 2, HOST_INSTANCES = 3, HOST_REQUESTS = 900, HOST_SECONDS = 90 };
#define HOST_FROM_US (2 * SECOND) /* earlier views are left out */
#define HOST_KV_TOKENS 200000
#define HOST_PAGE 16
#define HOST_PROMPT_MAX 6000
#define HOST_BLOCKS (HOST_PROMPT_MAX / BLOCK_TOKENS + 1)
#define HOST_SEED 1 /* of the run and its keys */
#define HOST_LEAD_S 5
#define HOST_SLO_TTFT_S 2.0
#define HOST_SLO_TPOT_S 0.1

enum host_event_kind {
    ARRIVES,
    TOKENS,
    ENDS, /* only after at least one token */
    BREAKS,
    STORES, /* `count` blocks of the request's prompt, at `instance` */
    DROPS,
    LOSES, /* breaks what is in flight at `instance`, which is silent until it returns */
    RETURNS,
};

struct event {
    int64_t at_us; /* never a whole millisecond: no timer is due then */
    enum host_event_kind kind;
    uint32_t request, count, instance, nth;
};

struct stream {
    struct event event[12 * HOST_REQUESTS];
    uint32_t count;
    struct trace *trace;
    uint64_t seed;
};

/* Makes a stream. With `holds` all engines are lost at once, so that requests are held; else one at
 * a time. */
struct stream *stream_new(uint64_t seed, bool holds);
void stream_free(struct stream *s);

/* Writes the block keys of the request's prompt; returns their number. */
uint32_t stream_keys(const struct stream *s, uint32_t request, struct block_key ret[HOST_BLOCKS]);

/* Returns the prompt tokens that a request finds in a cache. */
uint32_t stream_cached(const struct stream *s, uint32_t request);

/* An engine's load at a whole second. */
struct stream_load {
    uint32_t running, waiting;
    uint64_t prefill_tokens, kv_tokens, pages_cached;
    struct perf_coef perf;
    struct wire_work work;
    uint64_t uncached_total; /* prompt tokens accepted and not cached, since its start */
};
void stream_load(const struct stream *s, uint32_t instance, int64_t second,
                 struct stream_load *ret);

/* Returns the router to which the simulator's chance sends a request. */
uint32_t simulator_router(uint32_t request);

void feed_simulator(const struct stream *s, struct probe_log *log);
void feed_product(const struct stream *s, struct probe_log *log);
