/* kv_events.h - reads the events of a KV cache that vLLM and SGLang publish over ZeroMQ, in MessagePack.
 *
 * Layer:    agent/core (base/core)
 * Threads:  pure; the caller's
 * Lifetime: everything points into the bytes that were given
 * Forms:    a batch is [time, [event ...], rank] or a map of ts, events, data_parallel_rank; an event is
 *           a map with a member `type`, or an array that begins with its type and has the members in the
 *           order of the struct. Both occur among releases, and both are read
 *
 *     BlockStored       hashes of blocks that hang on a parent, in order, with the tokens of all of them
 *     BlockRemoved      hashes
 *     AllBlocksCleared
 */
#pragma once
#include "base/core/err.h"
#include "base/core/msgpack.h"

#define KV_EVENTS_BLOCK_TOKENS_MAX 4096 /* of one block of an engine */

enum kv_event_kind {
    KV_STORED,
    KV_REMOVED,
    KV_CLEARED,
    KV_OTHER, /* of a type that a newer engine may have: skipped */
};

/* A list within the bytes: `count` values, one behind the other. */
struct kv_list {
    struct str bytes;
    uint32_t count;
};

struct engine_kv_event {
    enum kv_event_kind kind;
    struct kv_list hashes;
    bool has_parent;
    uint64_t parent;
    struct kv_list tokens;
    uint32_t block_tokens;
    bool adapted;          /* of an adapter (LoRA): its K and V are not the model's own */
    bool elsewhere;        /* of another medium than the device, such as host memory */
    uint32_t group;        /* of layers; 0: the first, or the only one */
    struct kv_list extras; /* one a block, nil or a list: what else its hash covers; or none */
};

struct engine_kv_batch {
    struct msgpack_reader rest; /* events that were not read */
    uint32_t left;
};

/* Begins a batch. -EINVAL and a sentence if it is malformed. */
int engine_kv_batch_begin(struct engine_kv_batch *b, struct str payload, struct err *err);

/* Reads the next event. 1: it is in *ret; 0: there is none; -EINVAL. */
int engine_kv_batch_next(struct engine_kv_batch *b, struct engine_kv_event *ret, struct err *err);

/* Reads the values of a list one after the other: begin with msgpack_reader_init(&r, list.bytes).
 * A hash is a number or, in some releases, bytes, of which a number is made. -EINVAL. */
int kv_list_hash(struct msgpack_reader *r, uint64_t *ret);
int kv_list_token(struct msgpack_reader *r, uint32_t *ret);

/* Reads what else a block's hash covers. *ret_salt: the one text in it, empty for none. -ENOTSUP: something
 * else, such as an image; -EINVAL. */
int kv_list_extra(struct msgpack_reader *r, struct str *ret_salt);
