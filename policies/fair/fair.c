/* fair.c - the table of fairness policies. */
#include "policies/fair/fair.h"

#include "base/core/bits.h"

const struct fair_policy *const fair_table[] = {
#define POLICY(name) &fair_##name,
#include "policies/fair/fair.def"
#undef POLICY
};
const uint32_t fair_count = COUNT_OF(fair_table);

const struct fair_policy *fair_find(struct str name)
{
    for (uint32_t i = 0; i < fair_count; i++) {
        if (str_eq(str_from(fair_table[i]->name), name)) return fair_table[i];
    }
    return NULL;
}
