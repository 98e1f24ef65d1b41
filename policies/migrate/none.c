/* none.c - moves no session. */
#include "policies/migrate/migrate.h"

static void decide(void *state, const struct migrate_config *config,
                   const struct migrate_view *view, int64_t now_us, struct rng *rng,
                   struct migrate_verdict *ret)
{
    (void)state, (void)config, (void)view, (void)now_us, (void)rng;
    ret->count = 0;
    ret->again_us = INT64_MAX;
}

const struct migrate_policy migrate_none = {
    .name = "none",
    .about = "sessions stay where they were sent",
    .source = "the simple alternative",
    .decide = decide,
};
