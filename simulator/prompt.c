/* prompt.c - ids by multiplication: cheap, and equal only where block and place are. */
#include "simulator/prompt.h"

#include "base/core/bits.h"

#define ID_MASK 0x7fffffffu

static uint32_t id_at(uint64_t block, uint32_t offset)
{
    uint64_t mixed = (block + 1) * 0x9e3779b97f4a7c15u + offset * 0xc2b2ae3d27d4eb4fu;
    return (uint32_t)(mixed >> 29) & ID_MASK;
}

void prompt_ids(const struct trace *t, const struct trace_request *r, uint32_t *ret)
{
    const uint64_t *block = t->block + r->block_first;
    for (uint32_t i = 0; i < r->prompt_tokens;) {
        /* A prompt may be longer than its blocks say: the last one goes on. */
        uint32_t b = min_u32(i / t->block_tokens, r->block_count - 1);
        uint32_t end = b + 1 == r->block_count ? r->prompt_tokens : (b + 1) * t->block_tokens;
        end = min_u32(end, r->prompt_tokens);
        for (uint32_t first = b * t->block_tokens; i < end; i++)
            ret[i] = id_at(block[b], i - first);
    }
}

void prompt_block_keys(const struct trace *t, const struct trace_request *r, uint64_t seed,
                       struct block_key salt, struct block_key *ret)
{
    struct block_key parent = salt;
    for (uint32_t b = 0; b < r->block_count; b++) {
        uint32_t ids[BLOCK_TOKENS];
        for (uint32_t i = 0; i < BLOCK_TOKENS; i++)
            ids[i] = id_at(t->block[r->block_first + b], i);
        ret[b] = parent = block_key_next(seed, parent, ids);
    }
}
