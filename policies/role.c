/* role.c - the names of roles. */
#include "policies/role.h"

const char *const role_names[ROLE_COUNT] = {
    [ROLE_BOTH] = "both",
    [ROLE_PREFILL] = "prefill",
    [ROLE_DECODE] = "decode",
};
