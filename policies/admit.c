/* admit.c - the table of admission rows. */
#include "policies/admit.h"

#include "base/core/bits.h"

extern const struct admit_policy admit_fit, admit_reserve;

const struct admit_policy *const admit_table[] = { &admit_reserve, &admit_fit };
const uint32_t admit_count = COUNT_OF(admit_table);

const struct admit_policy *admit_find(struct str name)
{
    for (uint32_t i = 0; i < admit_count; i++) {
        if (str_eq(str_from(admit_table[i]->name), name)) return admit_table[i];
    }
    return NULL;
}
