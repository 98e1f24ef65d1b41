/* none.c - tenants are not told apart: one queue, and the order policy alone. */
#include "policies/fair/fair.h"

const struct fair_policy fair_none = {
    .name = "none",
    .about = "one queue for all tenants",
    .source = "the usual queue",
};
