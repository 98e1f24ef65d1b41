/* prefix_index.c - keeps block keys in a hash table, with two bits a slot, in order of last touch.
 *
 * A block's key already names everything before it (base/core/block_key.h), so no tree is needed:
 * the longest shared prefix is found by looking up key after key while some endpoint still holds
 * the whole run. All entries have one size, by the number of slots (48 bytes for 64, 96 for 256, 288
 * for 1,024), which makes the bound in bytes exact; the index begins narrow, so that a small fleet
 * does not pay for a large one. A radix tree would save entries for unshared tails, but
 * could not forget the middle of a conversation and keep its head without rewriting nodes.
 */
#include "router/core/prefix_index.h"

#include "base/core/bits.h"
#include "base/core/work.h"

#include <stdlib.h>

#define WORDS_MAX (ROUTE_INSTANCES_MAX / 64)
#define NONE UINT32_MAX
#define FETCH_MAX 64 /* keys that are looked up together */
#define MET_MAX 256  /* blocks of one prompt whose places are kept between two walks */

/* A block is followed by `words` words with a bit for each slot that holds it, confirmed by events, and
 * as many for the slots that are expected to hold it until expected_until_us. */
struct block {
    struct block_key key;
    int64_t expected_until_us;
    uint32_t newer, older; /* order of last touch */
    uint64_t word[];
};

struct prefix_index {
    unsigned char *block; /* block_bytes each */
    size_t block_bytes;
    uint32_t slots, words;
    uint32_t *table; /* open addressing: block number or NONE */
    uint32_t table_mask;
    uint32_t blocks, blocks_max;
    uint32_t begun; /* blocks from here on were never used, nor their memory touched */
    uint32_t newest, oldest;
    uint32_t free_head; /* chained through `older` */
    uint64_t evicted;
    size_t bytes, bytes_max;
};

static struct block *block_at(const struct prefix_index *ix, uint32_t at)
{
    return (struct block *)(void *)(ix->block + at * ix->block_bytes);
}

static void set(uint64_t *word, uint32_t slot)
{
    word[slot / 64] |= 1ULL << (slot % 64);
}

static void clear(uint64_t *word, uint32_t slot)
{
    word[slot / 64] &= ~(1ULL << (slot % 64));
}

static uint64_t *expected(const struct prefix_index *ix, struct block *b)
{
    return b->word + ix->words;
}

/* Returns true if no slot holds the block or is expected to. */
static bool is_nobodys(const struct prefix_index *ix, const struct block *b)
{
    uint64_t any = 0;
    for (uint32_t i = 0; i < 2 * ix->words; i++)
        any |= b->word[i];
    return any == 0;
}

static uint32_t words_for(uint32_t slots)
{
    return ceil_div_u32(slots, 64);
}

/* A block costs itself and at most four table places (load between 1/4 and 1/2). */
size_t prefix_index_block_bytes(uint32_t slots)
{
    return sizeof(struct block) + 2 * words_for(slots) * sizeof(uint64_t) + 4 * sizeof(uint32_t);
}

/* Allocates an empty index for a number of slots; -EINVAL or -ENOMEM. */
static int room_take(size_t bytes_max, uint32_t slots, struct prefix_index *ret)
{
    size_t per_block = prefix_index_block_bytes(slots);
    if (bytes_max < per_block + sizeof *ret) return -EINVAL;
    size_t blocks = min_size((bytes_max - sizeof *ret) / per_block, NONE / 4);
    uint32_t table = 4;
    while (table < 2 * blocks)
        table *= 2;
    size_t block_bytes = per_block - 4 * sizeof(uint32_t);
    unsigned char *block = calloc(blocks, block_bytes);
    uint32_t *places = malloc(table * sizeof *places);
    if (!block || !places) {
        free(block);
        free(places);
        return -ENOMEM;
    }
    memset(places, 0xff, table * sizeof *places);
    *ret = (struct prefix_index){
        .block = block,
        .block_bytes = block_bytes,
        .slots = slots,
        .words = words_for(slots),
        .table = places,
        .table_mask = table - 1,
        .blocks_max = (uint32_t)blocks,
        .newest = NONE,
        .oldest = NONE,
        .free_head = NONE,
        .bytes = sizeof *ret + blocks * block_bytes + table * sizeof *places,
        .bytes_max = bytes_max,
    };
    return 0;
}

int prefix_index_new(size_t bytes_max, uint32_t slots, struct prefix_index **ret, struct err *err)
{
    must(slots > 0 && slots <= ROUTE_INSTANCES_MAX);
    struct prefix_index *ix = calloc(1, sizeof *ix);
    int rc = ix ? room_take(bytes_max, slots, ix) : -ENOMEM;
    if (rc == 0) {
        *ret = ix;
        return 0;
    }
    free(ix);
    if (rc == -EINVAL)
        return err_set(err, rc, "prefix index: %zu bytes hold no block; give at least 1 MiB",
                       bytes_max);
    return err_set(err, rc, "prefix index: no memory for %zu bytes", bytes_max);
}

void prefix_index_free(struct prefix_index *ix)
{
    if (!ix) return;
    free(ix->block);
    free(ix->table);
    free(ix);
}

static void unlink_block(struct prefix_index *ix, uint32_t at)
{
    struct block *b = block_at(ix, at);
    if (b->newer == NONE) {
        ix->newest = b->older;
    } else {
        block_at(ix, b->newer)->older = b->older;
    }
    if (b->older == NONE) {
        ix->oldest = b->newer;
    } else {
        block_at(ix, b->older)->newer = b->newer;
    }
}

static void link_newest(struct prefix_index *ix, uint32_t at)
{
    struct block *b = block_at(ix, at);
    b->newer = NONE;
    b->older = ix->newest;
    if (ix->newest != NONE) block_at(ix, ix->newest)->newer = at;
    ix->newest = at;
    if (ix->oldest == NONE) ix->oldest = at;
}

static void touch(struct prefix_index *ix, uint32_t at)
{
    if (ix->newest == at) return;
    unlink_block(ix, at);
    link_newest(ix, at);
}

/* Hashes a key again, under the process's key: it is a hash of tokens that clients choose and, in a
 * fleet without a secret, under a seed that they know. */
static uint32_t home_of(const struct prefix_index *ix, struct block_key key)
{
    return (uint32_t)hash_keyed(&key, sizeof key) & ix->table_mask;
}

/* The table place of `key`, whose home is known, or the empty place where it would go. */
static uint32_t place_from(const struct prefix_index *ix, struct block_key key, uint32_t place)
{
    uint64_t probes = 1;
    for (; ix->table[place] != NONE && !block_key_eq(block_at(ix, ix->table[place])->key, key);
         probes++) {
        place = (place + 1) & ix->table_mask;
    }
    work_add(probes);
    return place;
}

static uint32_t place_of(const struct prefix_index *ix, struct block_key key)
{
    return place_from(ix, key, home_of(ix, key));
}

/* Empties a place and moves later members of its run back, so that no tombstone is needed. */
static void place_remove(struct prefix_index *ix, uint32_t place)
{
    uint32_t hole = place, at = place;
    for (;;) {
        at = (at + 1) & ix->table_mask;
        if (ix->table[at] == NONE) break;
        uint32_t home = home_of(ix, block_at(ix, ix->table[at])->key);
        if (((at - home) & ix->table_mask) < ((at - hole) & ix->table_mask)) continue;
        ix->table[hole] = ix->table[at];
        hole = at;
    }
    ix->table[hole] = NONE;
}

static void forget(struct prefix_index *ix, uint32_t at)
{
    place_remove(ix, place_of(ix, block_at(ix, at)->key));
    unlink_block(ix, at);
    block_at(ix, at)->older = ix->free_head;
    ix->free_head = at;
    ix->blocks--;
}

/* Returns the block's number, or NONE. */
static uint32_t find(const struct prefix_index *ix, struct block_key key)
{
    return ix->table[place_of(ix, key)];
}

static uint32_t take_free(struct prefix_index *ix)
{
    if (ix->free_head == NONE && ix->begun < ix->blocks_max) return ix->begun++;
    if (ix->free_head == NONE) {
        forget(ix, ix->oldest);
        ix->evicted++;
    }
    uint32_t at = ix->free_head;
    ix->free_head = block_at(ix, at)->older;
    memset(block_at(ix, at), 0, ix->block_bytes);
    return at;
}

static struct block *find_or_make(struct prefix_index *ix, struct block_key key)
{
    uint32_t at = find(ix, key);
    if (at != NONE) {
        touch(ix, at);
        return block_at(ix, at);
    }
    at = take_free(ix);
    struct block *b = block_at(ix, at);
    b->key = key;
    ix->table[place_of(ix, key)] = at;
    link_newest(ix, at);
    ix->blocks++;
    return b;
}

int prefix_index_widen(struct prefix_index *ix, uint32_t slots)
{
    must(slots <= ROUTE_INSTANCES_MAX);
    if (slots <= ix->slots) return 0;
    uint32_t wider = ix->slots;
    while (wider < slots)
        wider = min_u32(2 * wider, ROUTE_INSTANCES_MAX);
    struct prefix_index to;
    int rc = room_take(ix->bytes_max, wider, &to);
    if (rc < 0) return rc;
    uint32_t from = ix->newest, kept = 0; /* the oldest that stays is made first */
    while (from != NONE && ++kept < to.blocks_max && block_at(ix, from)->older != NONE)
        from = block_at(ix, from)->older;
    for (uint32_t at = from; at != NONE; at = block_at(ix, at)->newer) {
        struct block *b = block_at(ix, at), *copy = find_or_make(&to, b->key);
        copy->expected_until_us = b->expected_until_us;
        memcpy(copy->word, b->word, ix->words * sizeof *b->word);
        memcpy(expected(&to, copy), expected(ix, b), ix->words * sizeof *b->word);
    }
    to.evicted = ix->evicted + ix->blocks - to.blocks;
    free(ix->block);
    free(ix->table);
    *ix = to;
    return 0;
}

void prefix_index_add(struct prefix_index *ix, uint32_t slot, struct block_key key)
{
    must(slot < ix->slots);
    struct block *b = find_or_make(ix, key);
    set(b->word, slot);
    clear(expected(ix, b), slot);
}

void prefix_index_expect(struct prefix_index *ix, uint32_t slot, const struct block_key *keys,
                         uint32_t count, int64_t now_us, int64_t until_us)
{
    must(slot < ix->slots);
    /* From the end: the head of the prompt is touched last and so is forgotten last. */
    for (uint32_t i = count; i-- > 0;) {
        struct block *b = find_or_make(ix, keys[i]);
        /* Expectations that have expired must not come back with the new one. */
        if (b->expected_until_us <= now_us) memset(expected(ix, b), 0, ix->words * sizeof *b->word);
        set(expected(ix, b), slot);
        b->expected_until_us = max_i64(b->expected_until_us, until_us);
    }
}

void prefix_index_drop(struct prefix_index *ix, uint32_t slot, struct block_key key)
{
    must(slot < ix->slots);
    uint32_t at = find(ix, key);
    if (at == NONE) return;
    struct block *b = block_at(ix, at);
    clear(b->word, slot);
    clear(expected(ix, b), slot);
    if (is_nobodys(ix, b)) forget(ix, at);
}

void prefix_index_drop_slot(struct prefix_index *ix, uint32_t slot)
{
    must(slot < ix->slots);
    /* One walk over what is known: an instance dies rarely and a walk of a million blocks takes
     * tens of milliseconds; a list for each endpoint would cost every block a link in each. */
    for (uint32_t at = ix->newest, older; at != NONE; at = older) {
        struct block *b = block_at(ix, at);
        older = b->older;
        clear(b->word, slot);
        clear(expected(ix, b), slot);
        if (is_nobodys(ix, b)) forget(ix, at);
    }
}

/* Prefetches the places and blocks of several keys. Each is a cache miss of its own; fetched together
 * they cost little more than one. */
static void fetch_ahead(const struct prefix_index *ix, const struct block_key *keys, uint32_t count,
                        uint32_t home[FETCH_MAX])
{
    for (uint32_t i = 0; i < count; i++) {
        home[i] = home_of(ix, keys[i]);
        __builtin_prefetch(&ix->table[home[i]]);
    }
    for (uint32_t i = 0; i < count; i++)
        if (ix->table[home[i]] != NONE) __builtin_prefetch(block_at(ix, ix->table[home[i]]));
}

void prefix_index_match(struct prefix_index *ix, const struct block_key *keys, uint32_t count,
                        int64_t now_us, uint32_t *ret_blocks)
{
    memset(ret_blocks, 0, ix->slots * sizeof *ret_blocks);
    uint64_t run[WORDS_MAX]; /* slots that hold every block so far */
    memset(run, 0xff, ix->words * sizeof *run);
    uint32_t met = 0, met_at[MET_MAX], home[FETCH_MAX];
    for (uint64_t any = 1; met < count && any; met += any != 0) {
        if (met % FETCH_MAX == 0)
            fetch_ahead(ix, keys + met, min_u32(count - met, FETCH_MAX), home);
        uint32_t at = ix->table[place_from(ix, keys[met], home[met % FETCH_MAX])];
        if (at == NONE) break;
        if (met < MET_MAX) met_at[met] = at;
        struct block *b = block_at(ix, at);
        uint64_t believed = b->expected_until_us > now_us ? UINT64_MAX : 0;
        const uint64_t *holds = b->word, *may = expected(ix, b);
        any = 0;
        for (uint32_t w = 0; w < ix->words; w++) {
            run[w] &= holds[w] | (may[w] & believed);
            any |= run[w];
            for (uint64_t bits = run[w]; bits; bits &= bits - 1)
                ret_blocks[w * 64 + (uint32_t)__builtin_ctzll(bits)] = met + 1;
        }
    }
    for (uint32_t i = met; i-- > 0;)
        touch(ix, i < MET_MAX ? met_at[i] : find(ix, keys[i]));
}

void prefix_index_stats(const struct prefix_index *ix, struct prefix_index_stats *ret)
{
    *ret = (struct prefix_index_stats){ ix->bytes, ix->blocks, ix->blocks_max, ix->evicted };
}
