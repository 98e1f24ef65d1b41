/* events.h - changes of an engine's KV cache, streamed to routers.
 *
 * Layer:    base/wire (base/core)
 * Path:     GET /internal/events?boot=HEX&from=SEQ[&load=1]; lines of JSON without end
 * Lifetime: decoded keys and strings live in the arena
 *
 *     hello                       once: boot id and units of the engine
 *     snapshot ... snapshot       when the boot id differs or `from` is no longer remembered:
 *                                 all keys, in as many lines as needed (`more` on all but the last)
 *     add, drop ...               one a change, seq rising by one
 *     load                        only with load=1: what the engine has in total, at most every
 *                                 EVENT_LOAD_MS and only when it changed or is old; seq is the newest
 *
 * A reader that meets another boot id, or a seq that is not the last plus one, drops all it knows of
 * this engine and connects anew.
 */
#pragma once
#include "base/core/block_key.h"
#include "base/wire/field.h"

#define EVENT_KEYS_MAX 1024 /* keys in one line; longer changes are split */
#define EVENT_LOAD_MS 250
#define EVENT_LINE_BYTES_MAX 65536 /* bound of the line reader; a full line is about 36,000 */

enum event_kind {
    EVENT_HELLO,
    EVENT_SNAPSHOT, /* the keys are all there are, after the last line of it */
    EVENT_ADD,      /* the keys were added; ordered parent first */
    EVENT_DROP,     /* the keys are gone */
    EVENT_LOAD,     /* sent only to readers that asked for it: older ones do not know it */
    EVENT_KIND_COUNT
};

struct block_event {
    enum event_kind kind;
    uint64_t seq; /* hello: the newest there is */
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
    uint64_t prefill_tokens;   /* of prompts known, neither computed nor thought to be cached */
    uint64_t kv_tokens;        /* held by sequences */
    uint32_t head_pages; /* that the first in the queue lacks; 0: none waits, or it is not said */
    uint64_t uncached_total; /* prompt tokens admitted since boot that were not cached */
};

/* What an engine says it has in total: an EVENT_LOAD, or its part of a report. */
struct reported_load {
    uint32_t running, waiting; /* sequences admitted; requests queued */
    uint64_t prefill_tokens;   /* known and not computed, hits taken off */
    uint64_t kv_tokens;        /* held by sequences */
    uint32_t head_pages; /* that the first in the queue lacks; 0: none waits, or it is not said */
    uint64_t uncached_total; /* prompt tokens taken in since boot, hits taken off */
};

int block_event_encode(const struct block_event *ev, struct buf *out); /* ends in \n */
int block_event_decode(struct str line, struct arena *arena, struct block_event *ret,
                       struct err *err);
