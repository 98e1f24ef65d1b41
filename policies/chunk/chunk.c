/* chunk.c - the table of chunk policies. */
#include "policies/chunk/chunk.h"

#include "base/core/bits.h"

const struct chunk_policy *const chunk_table[] = {
#define POLICY(name) &chunk_##name,
#include "policies/chunk/chunk.def"
#undef POLICY
};
const uint32_t chunk_count = COUNT_OF(chunk_table);

const struct chunk_policy *chunk_find(struct str name)
{
    for (uint32_t i = 0; i < chunk_count; i++) {
        if (str_eq(str_from(chunk_table[i]->name), name)) return chunk_table[i];
    }
    return NULL;
}
