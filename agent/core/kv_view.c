/* kv_view.c - keeps the blocks of an engine by their hashes, and how many of them hold each key.
 *
 * A block remembers the keys that it completed, the key of the last whole granule up to its end, and the
 * tokens behind that: a child goes on from there without its parent's tokens. Two blocks may complete the
 * same key (an engine hashes more than the tokens); the key is gone with the last of them.
 */
#include "agent/core/kv_view.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/map.h"
#include "base/core/own.h"

#include <stdlib.h>

/* Where a chain has got to: the last key, and tokens that do not fill a granule yet. */
struct chain {
    struct block_key last;
    uint32_t tail_count;
    uint32_t tail[BLOCK_TOKENS];
};

struct block {
    struct block_key last;
    /* stored and not removed: vLLM computes the end of a prompt anew and keeps both */
    uint32_t copies;
    uint32_t key_count, tail_count;
    struct block_key key[]; /* key_count keys, then tail_count tokens */
};

struct kv_view {
    uint64_t seed;
    struct str digest;
    char digest_bytes[SHA256_HEX + 1];
    struct map blocks; /* hash to struct block * */
    struct map keys;   /* key to uint32_t, the blocks that completed it */
    struct kv_change *ring;
    uint64_t seq, oldest;        /* of the newest change; changes up to `oldest` are forgotten */
    struct kv_view_counts total; /* the running counters only */
};

CLEANUP_FREEP(kv_view, struct kv_view)

int kv_view_new(uint64_t seed, struct str digest, uint32_t blocks_max, struct kv_view **ret,
                struct err *err)
{
    CLEANUP(kv_view_freep) struct kv_view *v = calloc(1, sizeof *v);
    if (v) v->ring = calloc(KV_VIEW_RING, sizeof *v->ring);
    if (!v || !v->ring) return err_set(err, -ENOMEM, "no memory for the view of a KV cache");
    v->seed = seed;
    memcpy(v->digest_bytes, digest.data, min_size(digest.len, SHA256_HEX));
    v->digest = str_from(v->digest_bytes);
    map_init(&v->blocks, sizeof(uint64_t), sizeof(struct block *), blocks_max, MAP_FOREIGN);
    /* Twice the blocks: of the usual sizes, 16 and 32 tokens, a block completes one key or two. */
    map_init(&v->keys, sizeof(struct block_key), sizeof(uint32_t), 2 * (size_t)blocks_max,
             MAP_FOREIGN);
    *ret = TAKE(v);
    return 0;
}

static void free_blocks(struct kv_view *v)
{
    size_t cursor = 0;
    const void *hash;
    void *value;
    while (map_next(&v->blocks, &cursor, &hash, &value))
        free(*(struct block **)value);
}

void kv_view_free(struct kv_view *v)
{
    if (!v) return;
    free_blocks(v);
    map_fini(&v->blocks);
    map_fini(&v->keys);
    free(v->ring);
    free(v);
}

static void reset(struct map *m)
{
    const struct map was = *m;
    map_fini(m);
    map_init(m, was.key_bytes, was.value_bytes, was.count_max, was.keys);
}

void kv_view_clear(struct kv_view *v)
{
    free_blocks(v);
    reset(&v->blocks);
    reset(&v->keys);
    v->oldest = ++v->seq; /* nobody is at this number: all need a snapshot */
}

/* ---- changes ---- */

static void remember(struct kv_view *v, bool add, struct block_key key)
{
    v->ring[++v->seq % KV_VIEW_RING] = (struct kv_change){ add, key };
    if (v->seq - v->oldest > KV_VIEW_RING) v->oldest = v->seq - KV_VIEW_RING;
}

uint64_t kv_view_seq(const struct kv_view *v)
{
    return v->seq;
}

int kv_view_since(const struct kv_view *v, uint64_t seq, struct kv_change *ret, uint32_t max)
{
    if (seq < v->oldest || seq > v->seq) return -ENOENT;
    uint32_t count = (uint32_t)min_u64(v->seq - seq, max);
    for (uint32_t i = 0; i < count; i++)
        ret[i] = v->ring[(seq + 1 + i) % KV_VIEW_RING];
    return (int)count;
}

bool kv_view_next(const struct kv_view *v, size_t *cursor, struct block_key *ret)
{
    const void *key;
    void *value;
    if (!map_next(&v->keys, cursor, &key, &value)) return false;
    memcpy(ret, key, sizeof *ret);
    return true;
}

void kv_view_counts(const struct kv_view *v, struct kv_view_counts *ret)
{
    *ret = v->total;
    ret->blocks = (uint32_t)v->blocks.count;
    ret->keys = (uint32_t)v->keys.count;
}

/* ---- blocks ---- */

static struct block *find(const struct kv_view *v, uint64_t hash)
{
    struct block **at = map_get(&v->blocks, &hash);
    return at ? *at : NULL;
}

static void *tail_of(const struct block *b)
{
    return (char *)(uintptr_t)b->key + b->key_count * sizeof b->key[0];
}

static struct chain chain_behind(const struct block *b)
{
    struct chain c = { .last = b->last, .tail_count = b->tail_count };
    memcpy(c.tail, tail_of(b), b->tail_count * sizeof c.tail[0]);
    return c;
}

static int hold(struct kv_view *v, struct block_key key)
{
    bool is_new;
    uint32_t *holders = map_put(&v->keys, &key, &is_new);
    if (!holders) return -ENOMEM;
    if (is_new) remember(v, true, key);
    ++*holders;
    return 0;
}

static void let_go(struct kv_view *v, struct block_key key)
{
    uint32_t *holders = map_get(&v->keys, &key);
    if (!holders || --*holders > 0) return;
    map_remove(&v->keys, &key);
    remember(v, false, key);
}

/* Goes on by the next `count` tokens. Writes the keys that they complete; -EINVAL. */
static int chain_on(const struct kv_view *v, struct chain *c, struct msgpack_reader *tokens,
                    uint32_t count, struct block_key *ret, uint32_t *ret_count)
{
    *ret_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (kv_list_token(tokens, &c->tail[c->tail_count]) < 0) return -EINVAL;
        if (++c->tail_count < BLOCK_TOKENS) continue;
        c->last = block_key_next(v->seed, c->last, c->tail);
        c->tail_count = 0;
        ret[(*ret_count)++] = c->last;
    }
    return 0;
}

static struct block *block_new(const struct chain *c, const struct block_key *keys, uint32_t count)
{
    size_t key_bytes = count * sizeof *keys, tail_bytes = c->tail_count * sizeof c->tail[0];
    struct block *b = FAULT("kv_view.block") ? NULL : malloc(sizeof *b + key_bytes + tail_bytes);
    if (!b) return NULL;
    *b = (struct block){
        .last = c->last, .copies = 1, .key_count = count, .tail_count = c->tail_count
    };
    if (count > 0) memcpy(b->key, keys, key_bytes);
    if (tail_bytes > 0) memcpy(tail_of(b), c->tail, tail_bytes);
    return b;
}

/* Adds one block behind `c`, which moves on to its end. -EINVAL, -ENOMEM; -ENOSPC at the bound. */
static int add_block(struct kv_view *v, uint64_t hash, struct chain *c,
                     struct msgpack_reader *tokens, uint32_t count)
{
    struct block_key keys[KV_EVENTS_BLOCK_TOKENS_MAX / BLOCK_TOKENS + 1];
    uint32_t key_count;
    if (v->blocks.count == v->blocks.count_max) return -ENOSPC;
    int rc = chain_on(v, c, tokens, count, keys, &key_count);
    if (rc < 0) return rc;
    if (v->keys.count + key_count > v->keys.count_max) return -ENOSPC;
    struct block *b = block_new(c, keys, key_count);
    struct block **at = b ? map_put(&v->blocks, &hash, NULL) : NULL;
    if (!at) {
        free(b);
        return -ENOMEM;
    }
    *at = b;
    for (uint32_t i = 0; i < key_count; i++)
        if (hold(v, keys[i]) < 0) return -ENOMEM; /* the caller clears the view */
    return 0;
}

/* Finds where an event's first block hangs. False: its parent is unknown. */
static bool chain_begin(const struct kv_view *v, const struct engine_kv_event *ev, struct str salt,
                        struct chain *ret)
{
    if (!ev->has_parent) {
        struct str none = { 0 };
        *ret = (struct chain){ .last = block_salt(v->seed, v->digest, none, salt) };
        return true;
    }
    const struct block *parent = find(v, ev->parent);
    if (parent) *ret = chain_behind(parent);
    return parent != NULL;
}

struct lists {
    struct msgpack_reader hashes, tokens, extras;
    bool has_extras;
};

static struct lists lists_of(const struct engine_kv_event *ev)
{
    struct lists l = { .has_extras = ev->extras.count > 0 };
    msgpack_reader_init(&l.hashes, ev->hashes.bytes);
    msgpack_reader_init(&l.tokens, ev->tokens.bytes);
    msgpack_reader_init(&l.extras, ev->extras.bytes);
    return l;
}

/* Reads what else the next block's hash covers: a tenant's salt in the first block of a chain, nothing in
 * others. */
static int next_salt(struct lists *l, bool first, struct str *ret)
{
    *ret = (struct str){ 0 };
    int rc = l->has_extras ? kv_list_extra(&l->extras, ret) : 0;
    return rc == 0 && ret->len > 0 && !first ? -ENOTSUP : rc;
}

/* Skips the tokens of a block that is known. */
static int skip_tokens(struct lists *l, uint32_t count)
{
    uint32_t token;
    for (uint32_t i = 0; i < count; i++)
        if (kv_list_token(&l->tokens, &token) < 0) return -EINVAL;
    return 0;
}

static int next_block(struct kv_view *v, const struct engine_kv_event *ev, struct lists *l,
                      struct chain *c)
{
    uint64_t hash;
    if (kv_list_hash(&l->hashes, &hash) < 0) return -EINVAL;
    struct block *known = find(v, hash);
    if (known) {
        known->copies++;
        v->total.repeated++;
        *c = chain_behind(known);
        return skip_tokens(l, ev->block_tokens);
    }
    int rc = add_block(v, hash, c, &l->tokens, ev->block_tokens);
    v->total.stored += rc == 0;
    return rc;
}

static int stored(struct kv_view *v, const struct engine_kv_event *ev)
{
    struct lists l = lists_of(ev);
    struct chain c;
    for (uint32_t i = 0; i < ev->hashes.count; i++) {
        struct str salt;
        int rc = next_salt(&l, i == 0 && !ev->has_parent, &salt);
        if (rc == 0 && i == 0 && !chain_begin(v, ev, salt, &c)) {
            v->total.orphans += ev->hashes.count;
            return 0;
        }
        if (rc == 0) rc = next_block(v, ev, &l, &c);
        if (rc == -ENOTSUP) v->total.unsupported += ev->hashes.count - i;
        if (rc == -ENOSPC) v->total.full += ev->hashes.count - i;
        if (rc == -ENOTSUP || rc == -ENOSPC) return 0; /* what hangs on it cannot be named either */
        if (rc < 0) return rc;
    }
    return 0;
}

static int removed(struct kv_view *v, const struct engine_kv_event *ev)
{
    struct msgpack_reader hashes;
    msgpack_reader_init(&hashes, ev->hashes.bytes);
    for (uint32_t i = 0; i < ev->hashes.count; i++) {
        uint64_t hash;
        if (kv_list_hash(&hashes, &hash) < 0) return -EINVAL;
        struct block *b = find(v, hash);
        if (!b || --b->copies > 0) continue;
        for (uint32_t k = b->key_count; k-- > 0;)
            let_go(v, b->key[k]);
        map_remove(&v->blocks, &hash);
        free(b);
    }
    return 0;
}

int kv_view_apply(struct kv_view *v, const struct engine_kv_event *ev)
{
    if (ev->kind == KV_CLEARED) kv_view_clear(v);
    if (ev->kind != KV_STORED && ev->kind != KV_REMOVED) return 0;
    if (ev->adapted || ev->elsewhere || ev->group > 0) {
        v->total.unsupported += ev->kind == KV_STORED ? ev->hashes.count : 0;
        return 0;
    }
    return ev->kind == KV_STORED ? stored(v, ev) : removed(v, ev);
}
