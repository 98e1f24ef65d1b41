/* load.c - the table of load policies, the seconds of a load, and the simple alternatives: the shortest queue, and the
 * nearest copy. */
#include "policies/load/load.h"

#include "base/core/bits.h"

const struct load_policy *const load_table[] = {
#define POLICY(name) &load_##name,
#include "policies/load/load.def"
#undef POLICY
};
const uint32_t load_count = COUNT_OF(load_table);

const struct load_policy *load_find(struct str name)
{
    for (uint32_t i = 0; i < load_count; i++)
        if (str_eq(name, str_from(load_table[i]->name))) return load_table[i];
    return NULL;
}

double load_queue_s(const struct load_problem *problem, uint32_t server)
{
    double seconds = 0;
    for (uint32_t t = 0; t < LOAD_TIER_COUNT; t++)
        seconds += problem->server[server].queued_bytes[t] / problem->bytes_s[t];
    return seconds;
}

double load_ready_s(const struct load_problem *problem, uint32_t server)
{
    double own_s = problem->model_bytes / problem->bytes_s[problem->server[server].tier];
    return problem->start_s + own_s + load_queue_s(problem, server);
}

void load_least(const struct load_problem *problem,
                double (*score)(const struct load_problem *problem, uint32_t server),
                struct load_verdict *ret)
{
    struct load_verdict v = { .server = LOAD_NONE, .ready_s = -1, .runner_up_s = -1 };
    double least = 0, next = -1;
    for (uint32_t i = 0; i < problem->server_count; i++) {
        if (!problem->server[i].usable) continue;
        double s = score(problem, i);
        if (v.server == LOAD_NONE || s < least) {
            next = least;
            v.runner_up_s = v.ready_s;
            least = s;
            v.ready_s = load_ready_s(problem, i);
            v.server = i;
        } else if (v.runner_up_s < 0 || s < next) {
            next = s;
            v.runner_up_s = load_ready_s(problem, i);
        }
    }
    *ret = v;
}

/* Loads a model at the machine with the shortest queue of loads.
 *
 *     queue(s) = sum over tiers of queued bytes / bandwidth of the tier
 *
 * It is the simple alternative that balances load, and ignores where copies of the model are. */
static void choose_loaded(const struct load_problem *problem, struct load_verdict *ret)
{
    load_least(problem, load_queue_s, ret);
}

const struct load_policy load_least_loaded = {
    .name = "least_loaded",
    .about = "planner: weights are loaded where the queue of loads is shortest",
    .source = "baseline of load-time-aware placement",
    .choose = choose_loaded,
};

/* Loads a model at a machine that has it nearest: in memory, else on disk, else anywhere; among those, at the
 * one with the shortest queue of loads.
 *
 * It is the simple alternative that uses the place of copies: it waits in any queue for a copy in
 * memory. The score is the tier plus a fraction below 1 for the queue, so that queues decide only within a tier. */
static double distance(const struct load_problem *problem, uint32_t server)
{
    double queue_s = load_queue_s(problem, server);
    return (double)problem->server[server].tier + queue_s / (1 + queue_s);
}

static void choose_tier(const struct load_problem *problem, struct load_verdict *ret)
{
    load_least(problem, distance, ret);
}

const struct load_policy load_nearest_tier = {
    .name = "nearest_tier",
    .about = "planner: weights are loaded where the model lies nearest, in memory before on disk",
    .source = "baseline of load-time-aware placement",
    .choose = choose_tier,
};
