/* prefix_index.c - a hash table of block keys with one bit an endpoint, in order of last touch.
 *
 * A block's key already names everything before it (base/core/block_key.h), so no tree is needed:
 * the longest shared prefix is found by looking up key after key while some endpoint still holds
 * the whole run. An entry is 96 bytes whatever the number of endpoints, which makes the bound in
 * bytes exact. A radix tree would save entries for unshared tails, but could not forget the
 * middle of a conversation and keep its head without rewriting nodes.
 */
#include "router/core/prefix_index.h"

#include "base/core/bits.h"

#include <stdlib.h>

#define WORDS (ROUTE_INSTANCES_MAX / 64)
#define NONE UINT32_MAX

struct slots {
    uint64_t word[WORDS];
};

struct block {
    struct block_key key;
    struct slots holders;  /* confirmed by events */
    struct slots expected; /* tentative, until expected_until_us */
    int64_t expected_until_us;
    uint32_t newer, older; /* order of last touch */
};

struct prefix_index {
    struct block *block;
    uint32_t *table; /* open addressing: block number or NONE */
    uint32_t table_mask;
    uint32_t blocks, blocks_max;
    uint32_t newest, oldest;
    uint32_t free_head; /* chained through `older` */
    uint64_t evicted;
    size_t bytes;
};

static bool slots_any(const struct slots *s)
{
    uint64_t any = 0;
    for (uint32_t i = 0; i < WORDS; i++)
        any |= s->word[i];
    return any != 0;
}

static void slots_set(struct slots *s, uint32_t slot)
{
    s->word[slot / 64] |= 1ULL << (slot % 64);
}

static void slots_clear(struct slots *s, uint32_t slot)
{
    s->word[slot / 64] &= ~(1ULL << (slot % 64));
}

int prefix_index_new(size_t bytes_max, struct prefix_index **ret, struct err *err)
{
    /* A block costs itself and at most four table places (load between 1/4 and 1/2). */
    size_t per_block = sizeof(struct block) + 4 * sizeof(uint32_t);
    if (bytes_max < per_block + sizeof(struct prefix_index)) {
        return err_set(err, -EINVAL, "prefix index: %zu bytes hold no block; give at least 1 MiB",
                       bytes_max);
    }
    size_t blocks = min_size((bytes_max - sizeof(struct prefix_index)) / per_block, NONE / 4);
    uint32_t table = 4;
    while (table < 2 * blocks)
        table *= 2;

    struct prefix_index *ix = calloc(1, sizeof *ix);
    struct block *block = calloc(blocks, sizeof *block);
    uint32_t *places = malloc(table * sizeof *places);
    if (!ix || !block || !places) {
        free(ix);
        free(block);
        free(places);
        return err_set(err, -ENOMEM, "prefix index: no memory for %zu bytes", bytes_max);
    }
    memset(places, 0xff, table * sizeof *places);
    for (uint32_t i = 0; i < blocks; i++)
        block[i].older = i + 1 < blocks ? i + 1 : NONE;
    *ix = (struct prefix_index){
        .block = block,
        .table = places,
        .table_mask = table - 1,
        .blocks_max = (uint32_t)blocks,
        .newest = NONE,
        .oldest = NONE,
        .bytes = sizeof *ix + blocks * sizeof *block + table * sizeof *places,
    };
    *ret = ix;
    return 0;
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
    struct block *b = &ix->block[at];
    if (b->newer == NONE) {
        ix->newest = b->older;
    } else {
        ix->block[b->newer].older = b->older;
    }
    if (b->older == NONE) {
        ix->oldest = b->newer;
    } else {
        ix->block[b->older].newer = b->newer;
    }
}

static void link_newest(struct prefix_index *ix, uint32_t at)
{
    struct block *b = &ix->block[at];
    b->newer = NONE;
    b->older = ix->newest;
    if (ix->newest != NONE) ix->block[ix->newest].newer = at;
    ix->newest = at;
    if (ix->oldest == NONE) ix->oldest = at;
}

static void touch(struct prefix_index *ix, uint32_t at)
{
    if (ix->newest == at) return;
    unlink_block(ix, at);
    link_newest(ix, at);
}

/* The table place of `key`, or the empty place where it would go. Keys are hashes already. */
static uint32_t place_of(const struct prefix_index *ix, struct block_key key)
{
    uint32_t place = (uint32_t)key.lo & ix->table_mask;
    while (ix->table[place] != NONE && !block_key_eq(ix->block[ix->table[place]].key, key)) {
        place = (place + 1) & ix->table_mask;
    }
    return place;
}

/* Empties a place and moves later members of its run back, so that no tombstone is needed. */
static void place_remove(struct prefix_index *ix, uint32_t place)
{
    uint32_t hole = place, at = place;
    for (;;) {
        at = (at + 1) & ix->table_mask;
        if (ix->table[at] == NONE) break;
        uint32_t home = (uint32_t)ix->block[ix->table[at]].key.lo & ix->table_mask;
        if (((at - home) & ix->table_mask) < ((at - hole) & ix->table_mask)) continue;
        ix->table[hole] = ix->table[at];
        hole = at;
    }
    ix->table[hole] = NONE;
}

static void forget(struct prefix_index *ix, uint32_t at)
{
    place_remove(ix, place_of(ix, ix->block[at].key));
    unlink_block(ix, at);
    ix->block[at].older = ix->free_head;
    ix->free_head = at;
    ix->blocks--;
}

static struct block *find(const struct prefix_index *ix, struct block_key key)
{
    uint32_t at = ix->table[place_of(ix, key)];
    return at == NONE ? NULL : &ix->block[at];
}

static struct block *find_or_make(struct prefix_index *ix, struct block_key key)
{
    struct block *known = find(ix, key);
    if (known) {
        touch(ix, (uint32_t)(known - ix->block));
        return known;
    }
    if (ix->free_head == NONE) {
        forget(ix, ix->oldest);
        ix->evicted++;
    }
    uint32_t at = ix->free_head;
    ix->free_head = ix->block[at].older;
    ix->block[at] = (struct block){ .key = key };
    ix->table[place_of(ix, key)] = at;
    link_newest(ix, at);
    ix->blocks++;
    return &ix->block[at];
}

void prefix_index_add(struct prefix_index *ix, uint32_t slot, struct block_key key)
{
    must(slot < ROUTE_INSTANCES_MAX);
    struct block *b = find_or_make(ix, key);
    slots_set(&b->holders, slot);
    slots_clear(&b->expected, slot);
}

void prefix_index_expect(struct prefix_index *ix, uint32_t slot, const struct block_key *keys,
                         uint32_t count, int64_t until_us)
{
    must(slot < ROUTE_INSTANCES_MAX);
    /* From the end: the head of the prompt is touched last and so is forgotten last. */
    for (uint32_t i = count; i-- > 0;) {
        struct block *b = find_or_make(ix, keys[i]);
        slots_set(&b->expected, slot);
        b->expected_until_us = max_i64(b->expected_until_us, until_us);
    }
}

void prefix_index_drop(struct prefix_index *ix, uint32_t slot, struct block_key key)
{
    must(slot < ROUTE_INSTANCES_MAX);
    struct block *b = find(ix, key);
    if (!b) return;
    slots_clear(&b->holders, slot);
    slots_clear(&b->expected, slot);
    if (!slots_any(&b->holders) && !slots_any(&b->expected)) forget(ix, (uint32_t)(b - ix->block));
}

void prefix_index_drop_slot(struct prefix_index *ix, uint32_t slot)
{
    must(slot < ROUTE_INSTANCES_MAX);
    /* One walk over what is known: an instance dies rarely and a walk of a million blocks takes
     * tens of milliseconds; a list an endpoint would cost every block a link each. */
    for (uint32_t at = ix->newest, older; at != NONE; at = older) {
        struct block *b = &ix->block[at];
        older = b->older;
        slots_clear(&b->holders, slot);
        slots_clear(&b->expected, slot);
        if (!slots_any(&b->holders) && !slots_any(&b->expected)) forget(ix, at);
    }
}

void prefix_index_match(struct prefix_index *ix, const struct block_key *keys, uint32_t count,
                        int64_t now_us, uint32_t *ret_blocks)
{
    memset(ret_blocks, 0, ROUTE_INSTANCES_MAX * sizeof *ret_blocks);
    struct slots run; /* slots that hold every block so far */
    memset(&run, 0xff, sizeof run);
    uint32_t met = 0;
    for (; met < count; met++) {
        struct block *b = find(ix, keys[met]);
        if (!b) break;
        bool expected = b->expected_until_us > now_us;
        for (uint32_t w = 0; w < WORDS; w++) {
            run.word[w] &= b->holders.word[w] | (expected ? b->expected.word[w] : 0);
            for (uint64_t bits = run.word[w]; bits; bits &= bits - 1) {
                ret_blocks[w * 64 + (uint32_t)__builtin_ctzll(bits)] = met + 1;
            }
        }
        if (!slots_any(&run)) break;
    }
    for (uint32_t i = met; i-- > 0;) {
        struct block *b = find(ix, keys[i]);
        touch(ix, (uint32_t)(b - ix->block));
    }
}

void prefix_index_stats(const struct prefix_index *ix, struct prefix_index_stats *ret)
{
    *ret = (struct prefix_index_stats){ ix->bytes, ix->blocks, ix->blocks_max, ix->evicted };
}
