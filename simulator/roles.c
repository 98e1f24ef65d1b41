/* roles.c - shows the fleet to the role policy, and gives instances the roles that it chooses.
 *
 * A role changes at once and without a reload: the weights are the same. An instance goes on with the
 * sessions it has begun: a former decode instance decodes them to their end, a former prefill
 * instance hands off those it has computed. Demand and loads are as routers and agents have
 * reported them (heard.h); truths of requests under way stay with the world. Instances of a pool
 * that has a role keep it, and the policy counts them.
 */
#include "base/core/bits.h"
#include "controller/core/plan_view.h"
#include "fleet/defaults.h"
#include "fleet/demand.h"
#include "simulator/run.h"

#include <stdlib.h>

int roles_start(struct run *run, struct err *err)
{
    struct roles *s = &run->roles;
    s->look.policy = run->config.role;
    if (!s->look.policy) return 0;
    s->instance = calloc(run->places_max, sizeof *s->instance);
    s->offer = calloc(run->places_max, sizeof *s->offer);
    if (!s->instance || !s->offer) return err_set(err, -ENOMEM, "simulator: no memory for roles");
    rng_stream(&s->look.rng, run->config.seed, 0, WORLD_ROLES);
    s->looked_us = run->now_us;
    run_at(run, &s->timer, run->now_us + TICK_PERIOD_US, RANK_ROLES);
    return 0;
}

void roles_stop(struct run *run)
{
    free(run->roles.instance);
    free(run->roles.offer);
}

/* Asks the policy at once when an instance has begun or ceased to serve, as the controller does. The first
 * look still waits for demand. */
void roles_moved(struct run *run)
{
    struct roles *s = &run->roles;
    int64_t soon_us = max_i64(run->now_us, s->looked_us + ROLE_LOOK_US_MIN);
    if (!s->look.policy || soon_us >= s->look.again_us) return;
    s->look.again_us = soon_us;
    run_at(run, &s->timer, soon_us, RANK_ROLES);
}

/* Returns the service's demand as the controller would merge it now. */
static struct role_demand demand_now(const struct run *run)
{
    struct scale_demand sum;
    struct demand_source source[SIM_ROUTERS_MAX];
    uint32_t count = heard_demand(run, 0, source);
    demand_merge(source, count, run->heard.counted, 0, run->now_us, &sum);
    return role_demand_of(&sum);
}

static void describe(const struct run *run, const struct instance *in, struct role_instance *ret)
{
    static const struct merge_config merge = MERGE_CONFIG_DEFAULT;
    static const struct sighting nothing;
    const struct heard_agent *a = heard_agent(run, in);
    const struct sighting *seen = a ? &a->seen : &nothing;
    struct instance_limits limits;
    instance_limits_get(&run->config, in->config.pool, &limits);
    const struct role_facts facts = {
        .id = in->config.place,
        .ready = in->state == INSTANCE_READY && seen->engine_ready &&
                 sighting_is_fresh(seen, &merge, run->now_us),
        .moves_kv = true,
        .pool_role = in->config.pool->role,
        .role = in->role,
        .step_tokens = limits.batch_tokens_max,
        .context_tokens = limits.context_max,
    };
    role_instance_see(&facts, seen, ret);
}

/* Gives instances that have computed nothing yet the speed of another one of their pool, else its prior. */
static void lend_speeds(struct run *run, uint32_t count)
{
    const struct perf_coef *prior[SIM_POOLS_MAX];
    struct instance_limits limits[SIM_POOLS_MAX];
    for (uint32_t p = 0; p < run->config.pool_count; p++) {
        instance_limits_get(&run->config, &run->config.pool[p], &limits[p]);
        prior[p] = perf_coef_valid(&limits[p].prior) ? &limits[p].prior : NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct sim_pool *pool = run->instance[run->roles.instance[i].id]->config.pool;
        run->roles.offer[i] = (uint32_t)(pool - run->config.pool);
    }
    role_lend_speeds(run->roles.instance, run->roles.offer, count, prior, run->config.pool_count);
}

void roles_look(struct run *run)
{
    struct roles *s = &run->roles;
    struct sim_slo slo = sim_slo_of(&run->config, 0);
    struct role_view view = { .instance = s->instance,
                              .demand = demand_now(run),
                              .ttft_slo_s = slo.ttft_s,
                              .tpot_slo_s = slo.tpot_s,
                              .link_bytes_s = run->config.link_bytes_s,
                              .attainment = ROLE_ATTAINMENT,
                              .token_bytes = model_spec_kv_token_bytes(&run->config.model),
                              .evaluator = &role_closed_form };
    s->looked_us = run->now_us;
    for (uint32_t i = 0; i < run->places; i++)
        if (run->instance[i]) describe(run, run->instance[i], &s->instance[view.instance_count++]);
    lend_speeds(run, view.instance_count);
    struct role_verdict v;
    role_look(&s->look, &view, run->now_us, &v);
    bool changed = false;
    for (uint32_t i = 0; i < view.instance_count; i++) {
        struct instance *in = run->instance[s->instance[i].id];
        if (in->role == v.role[i]) continue;
        in->role = v.role[i];
        changed = true;
        run->result->role_changes++;
        routers_endpoint(run, in);
    }
    run->result->role_reason = v.reason;
    run->result->role_rps = v.goodput_rps;
    run->result->role_runner_up_rps = v.runner_up_rps;
    for (uint32_t r = 0; changed && r < run->router_count; r++)
        routers_look_at_held(run, r);
    run_at(run, &s->timer, s->look.again_us, RANK_ROLES);
}
