/* events.h - streams changes of an engine's KV cache to routers.
 *
 * Layer:    base/wire (base/core)
 * Path:     GET /internal/events?boot=HEX&from=SEQ[&load=1]; an endless stream of JSON lines
 * Lifetime: decoded keys and strings live in the arena
 *
 *     hello                       once: boot id and units of the engine
 *     snapshot ... snapshot       when the boot id differs or `from` is no longer remembered:
 *                                 all keys, in as many lines as needed (`more` on all but the last)
 *     add, drop ...               one for each change, seq rising by one
 *     load                        only with load=1: the engine's total load, at most every EVENT_LOAD_MS
 *                                 and only when it changed or is old; seq is the newest
 *
 * A reader that sees another boot id, or a seq that is not the last plus one, drops all it knows of
 * this engine and connects again.
 */
#pragma once
#include "base/core/block_key.h"
#include "base/wire/field.h"

#define EVENT_KEYS_MAX 1024 /* keys in one line; longer changes are split */
#define EVENT_LOAD_MS 250
#define EVENT_LINE_BYTES_MAX 65536 /* bound of the line reader; a full line is about 36,000 */

enum event_kind {
    EVENT_HELLO,
    EVENT_SNAPSHOT, /* all keys in the cache, once its last line is read */
    EVENT_ADD,      /* the keys were added; ordered parent first */
    EVENT_DROP,     /* the keys are gone */
    EVENT_LOAD,     /* sent only on request: older readers do not know it */
    EVENT_KIND_COUNT
};

struct block_event {
    enum event_kind kind;
    uint64_t seq; /* hello: the newest so far */
    const struct block_key *keys;
    uint32_t key_count;
    bool more; /* snapshot: another line of it follows */

    /* hello */
    uint64_t boot;         /* drawn at each start */
    uint32_t block_tokens; /* BLOCK_TOKENS of the engine */
    uint32_t page_tokens;  /* a whole number of blocks */
    struct str digest;     /* of the weights: part of the salt */
    struct str salt_check; /* hex of block_salt(seed, digest, "", ""): equal seeds, equal salts */

    /* load */
    uint32_t running, waiting; /* sequences admitted; requests queued */
    uint64_t prefill_tokens;   /* of known prompts, neither computed nor expected in the cache */
    uint64_t kv_tokens;        /* held by sequences */
    uint32_t head_pages; /* pages that the queue's first request lacks; 0: none waits, or unknown */
    uint64_t uncached_total; /* prompt tokens admitted since boot that were not cached */
};

/* Holds the total load that an engine reports, in an EVENT_LOAD or in its part of a report. */
struct reported_load {
    uint32_t running, waiting; /* sequences admitted; requests queued */
    uint64_t prefill_tokens;   /* of known prompts, not yet computed, less cache hits */
    uint64_t kv_tokens;        /* held by sequences */
    uint32_t head_pages; /* pages that the queue's first request lacks; 0: none waits, or unknown */
    uint64_t uncached_total; /* prompt tokens admitted since boot, less cache hits */
};

int block_event_encode(const struct block_event *ev, struct buf *out); /* ends in \n */
int block_event_decode(struct str line, struct arena *arena, struct block_event *ret,
                       struct err *err);
