/* migrate.c - the table of migration policies, the one that moves nothing, the stages of a live copy, and freeness. */
#include "policies/migrate/migrate.h"

#include "base/core/bits.h"

#include <math.h>

#define BLOCK_TOKENS 16
#define LOW_BLOCKS 3.0
#define STOP_BLOCKS 16.0
#define STAGES_MAX 3
#define PERIOD_US 100000

const struct migrate_policy *const migrate_table[] = {
#define POLICY(name) &migrate_##name,
#include "policies/migrate/migrate.def"
#undef POLICY
};
const uint32_t migrate_count = COUNT_OF(migrate_table);

const struct migrate_policy *migrate_find(struct str name)
{
    for (uint32_t i = 0; i < migrate_count; i++) {
        if (str_eq(str_from(migrate_table[i]->name), name)) return migrate_table[i];
    }
    return NULL;
}

struct migrate_config migrate_config_for(uint32_t page_tokens)
{
    double blocks = page_tokens / (double)BLOCK_TOKENS; /* of one page */
    return (struct migrate_config){ .low = LOW_BLOCKS / blocks,
                                    .period_us = PERIOD_US,
                                    .stop_pages = (uint32_t)fmax(1, STOP_BLOCKS / blocks),
                                    .stages_max = STAGES_MAX };
}

bool migrate_stops(const struct migrate_config *config, uint32_t stage, uint32_t left)
{
    return left <= config->stop_pages || stage + 1 >= config->stages_max;
}

void migrate_estimate(const struct migrate_config *config, const struct migrate_view *view,
                      uint32_t tokens, double step_s, struct migrate_move *ret)
{
    uint32_t left = ceil_div_u32(tokens, view->page_tokens);
    ret->copy_s = 0;
    ret->stages = 0;
    for (bool stop = false; !stop;) {
        stop = migrate_stops(config, ret->stages++, left);
        ret->stall_s = left * view->page_bytes / view->link_bytes_s;
        ret->copy_s += ret->stall_s;
        /* One token a step, and the page in writing is copied again. */
        double grown = step_s > 0 ? ret->stall_s / step_s / view->page_tokens : 0;
        left = (uint32_t)fmin(ceil(grown) + 1, left);
    }
}

double migrate_freeness(const struct migrate_instance *in)
{
    if (in->draining) return (double)-INFINITY;
    double room = (double)in->pages_free - in->receiving_pages - (double)in->queue_pages;
    return room / (double)max_u32(in->running, 1);
}

/* Moves no session. */
static void decide_none(void *state, const struct migrate_config *config,
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
    .decide = decide_none,
};
