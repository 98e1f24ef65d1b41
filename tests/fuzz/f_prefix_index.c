/* f_prefix_index.c - checks sequences of operations on the router's prefix index against a plain list.
 *
 * There are few keys, so that they recur, all with few home slots in the table, so that runs, removals
 * inside runs and wrap-around happen; and few blocks, so that the bound is always near. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "router/core/prefix_index.h"
#include "tests/fuzz/fuzz.h"

#define KEYS 24
#define SLOTS_MAX 70 /* two words of bits */
#define RUN_MAX 8

struct known { /* a block of the model */
    uint32_t key;
    bool held[SLOTS_MAX], expected[SLOTS_MAX];
    int64_t until_us;
};

struct model { /* the newest first */
    struct known known[KEYS];
    uint32_t count, max, slots;
    uint64_t evicted;
};

/* Gives key k one of three neighbouring home slots; `hi` tells the keys apart. */
static struct block_key key_of(uint32_t k)
{
    return (struct block_key){ .lo = UINT64_MAX - k % 3, .hi = k };
}

static struct known *find(struct model *m, uint32_t key)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->known[i].key == key) return &m->known[i];
    return NULL;
}

static void forget(struct model *m, uint32_t at)
{
    memmove(&m->known[at], &m->known[at + 1], (--m->count - at) * sizeof *m->known);
}

/* Moves a block to the front, or adds it there; at the bound the oldest is evicted. */
static struct known *touch(struct model *m, uint32_t key)
{
    struct known *k = find(m, key), copy = { .key = key };
    if (k) {
        copy = *k;
        forget(m, (uint32_t)(k - m->known));
    } else if (m->count == m->max) {
        forget(m, m->count - 1);
        m->evicted++;
    }
    memmove(m->known + 1, m->known, m->count++ * sizeof *m->known);
    m->known[0] = copy;
    return m->known;
}

static void drop(struct model *m, uint32_t at, uint32_t slot)
{
    struct known *k = &m->known[at];
    k->held[slot] = k->expected[slot] = false;
    for (uint32_t s = 0; s < m->slots; s++)
        if (k->held[s] || k->expected[s]) return;
    forget(m, at);
}

static void model_expect(struct model *m, uint32_t slot, const uint32_t *key, uint32_t count,
                         int64_t now_us, int64_t until_us)
{
    for (uint32_t i = count; i-- > 0;) {
        struct known *k = touch(m, key[i]);
        if (k->until_us <= now_us) memset(k->expected, 0, sizeof k->expected);
        k->expected[slot] = true;
        k->until_us = max_i64(k->until_us, until_us);
    }
}

static bool holds(const struct known *k, uint32_t slot, int64_t now_us)
{
    return k->held[slot] || (k->expected[slot] && k->until_us > now_us);
}

static void model_match(struct model *m, const uint32_t *key, uint32_t count, int64_t now_us,
                        uint32_t *ret)
{
    uint32_t met = 0;
    for (uint32_t s = 0; s < m->slots; s++) {
        struct known *k;
        for (ret[s] = 0; ret[s] < count; ret[s]++)
            if (!(k = find(m, key[ret[s]])) || !holds(k, s, now_us)) break;
        met = max_u32(met, ret[s]);
    }
    for (uint32_t i = met; i-- > 0;)
        touch(m, key[i]);
}

static uint32_t draw_run(struct fuzz_choices *c, uint32_t key[RUN_MAX], struct block_key *keys)
{
    uint32_t count = 1 + fuzz_below(c, RUN_MAX);
    for (uint32_t i = 0; i < count; i++) {
        key[i] = fuzz_below(c, KEYS);
        keys[i] = key_of(key[i]);
    }
    return count;
}

static void step(struct fuzz_choices *c, struct prefix_index *ix, struct model *m, int64_t *now_us)
{
    uint32_t key[RUN_MAX], got[SLOTS_MAX], want[SLOTS_MAX], count;
    struct block_key keys[RUN_MAX];
    uint32_t op = fuzz_below(c, 8), slot = fuzz_below(c, m->slots);
    if (op <= 2) {
        key[0] = fuzz_below(c, KEYS);
        prefix_index_add(ix, slot, key_of(key[0]));
        struct known *k = touch(m, key[0]);
        k->held[slot] = true;
        k->expected[slot] = false;
    } else if (op == 3) {
        count = draw_run(c, key, keys);
        int64_t until_us = *now_us + fuzz_below(c, 16);
        prefix_index_expect(ix, slot, keys, count, *now_us, until_us);
        model_expect(m, slot, key, count, *now_us, until_us);
    } else if (op == 4) {
        key[0] = fuzz_below(c, KEYS);
        prefix_index_drop(ix, slot, key_of(key[0]));
        struct known *k = find(m, key[0]);
        if (k) drop(m, (uint32_t)(k - m->known), slot);
    } else if (op == 5) {
        prefix_index_drop_slot(ix, slot);
        for (uint32_t i = m->count; i-- > 0;)
            drop(m, i, slot);
    } else {
        *now_us += fuzz_below(c, 8);
        count = draw_run(c, key, keys);
        prefix_index_match(ix, keys, count, *now_us, got);
        model_match(m, key, count, *now_us, want);
        must(memcmp(got, want, m->slots * sizeof *got) == 0);
    }
}

/* A step walks over the model's blocks and slots a few times. */
const struct fuzz_cost fuzz_cost = { 200000, 3000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    struct fuzz_choices c = { data, len };
    struct prefix_index *ix = NULL;
    struct prefix_index_stats stats = { 0 };
    static struct model m;
    memset(&m, 0, sizeof m);
    m.slots = 1 + fuzz_below(&c, SLOTS_MAX);
    m.max = 1 + fuzz_below(&c, KEYS);
    /* The bytes at which the index holds m.max blocks, from those of an index of 4 KiB. */
    size_t per_block = prefix_index_block_bytes(m.slots), bytes = 4096;
    must(prefix_index_new(bytes, m.slots, &ix, NULL) == 0);
    prefix_index_stats(ix, &stats);
    prefix_index_free(ix);
    bytes = bytes - stats.blocks_max * per_block + m.max * per_block;
    must(prefix_index_new(bytes, m.slots, &ix, NULL) == 0);
    prefix_index_stats(ix, &stats);
    must(stats.blocks_max == m.max && stats.bytes <= bytes);
    int64_t now_us = 0;
    while (c.len > 0) {
        step(&c, ix, &m, &now_us);
        prefix_index_stats(ix, &stats);
        must(stats.blocks == m.count && stats.evicted == m.evicted);
    }
    prefix_index_free(ix);
}
