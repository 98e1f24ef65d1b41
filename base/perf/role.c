/* role.c - the names of the roles, as configuration and API write them. */
#include "base/perf/role.h"

const char *const role_names[ROLE_COUNT + 1] = {
    [ROLE_BOTH] = "both",
    [ROLE_PREFILL] = "prefill",
    [ROLE_DECODE] = "decode",
};
