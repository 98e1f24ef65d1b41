/* chunk.c - the table of chunk rows. */
#include "policies/chunk.h"

#include "base/core/bits.h"

extern const struct chunk_policy chunk_deadline, chunk_slack, chunk_budget, chunk_sarathi,
    chunk_whole, chunk_scls;

const struct chunk_policy *const chunk_table[] = { &chunk_deadline, &chunk_slack, &chunk_budget,
                                                   &chunk_sarathi,  &chunk_whole, &chunk_scls };
const uint32_t chunk_count = COUNT_OF(chunk_table);

const struct chunk_policy *chunk_find(struct str name)
{
    for (uint32_t i = 0; i < chunk_count; i++) {
        if (str_eq(str_from(chunk_table[i]->name), name)) return chunk_table[i];
    }
    return NULL;
}
