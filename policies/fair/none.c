/* none.c - keeps one queue for all tenants; the order policy alone decides. */
#include "policies/fair/fair.h"

const struct fair_policy fair_none = {
    .name = "none",
    .about = "one queue for all tenants",
    .source = "the usual queue",
};
