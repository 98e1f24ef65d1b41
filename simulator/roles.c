/* roles.c - a role policy looks at the fleet and gives its instances new roles.
 *
 * A role changes at once and without a reload: the weights are the same. What an instance has
 * begun it goes on with: a former decode instance answers its sessions to their end, a former
 * prefill instance hands over what it has computed. Demand is what routers report of lengths
 * (demand.c), as the controller is told it; truths of requests under way stay with the world.
 * Instances of a pool that has a role keep it, and count for those that are chosen.
 */
#include "base/core/bits.h"
#include "fleet/demand.h"
#include "simulator/run.h"

#include <stdlib.h>

#define FIRST_LOOK_US 5000000 /* enough arrivals to know the mixture by */

int roles_start(struct run *run, struct err *err)
{
    struct roles *s = &run->roles;
    s->look.row = run->config.role;
    if (!s->look.row) return 0;
    s->instance = calloc(run->places_max, sizeof *s->instance);
    s->seen = calloc(run->config.routers, sizeof *s->seen);
    if (!s->instance || !s->seen) return err_set(err, -ENOMEM, "simulator: no memory for roles");
    rng_stream(&s->look.rng, run->config.seed, 0, WORLD_ROLES);
    s->looked_us = run->now_us;
    run_at(run, &s->timer, run->now_us + FIRST_LOOK_US, RANK_ROLES);
    return 0;
}

void roles_stop(struct run *run)
{
    free(run->roles.instance);
    free(run->roles.seen);
}

/* Somebody serves or does no longer: the policy is asked at once, as the controller asks it. The
 * first look waits for its demand all the same. */
void roles_moved(struct run *run)
{
    struct roles *s = &run->roles;
    int64_t soon_us = max_i64(run->now_us, s->looked_us + ROLE_LOOK_US_MIN);
    if (!s->look.row || soon_us >= s->look.again_us) return;
    s->look.again_us = soon_us;
    run_at(run, &s->timer, soon_us, RANK_ROLES);
}

/* The demand of the service as the controller would merge it now. */
static struct role_demand demand_now(struct run *run)
{
    const struct service_demand *report = demand_report(run);
    struct scale_demand sum;
    struct demand_seen *seen = run->roles.seen;
    struct demand_source source[SIM_ROUTERS_MAX];
    struct demand_counted counted = { 0 };
    for (uint32_t r = 0; r < run->router_count; r++) {
        demand_heard(&seen[r], &counted, &report[r * SIM_SERVICES_MAX], true, run->now_us);
        source[r] = (struct demand_source){ &seen[r], run->now_us };
    }
    demand_merge(source, run->router_count, &counted, 0, run->now_us, &sum);
    return role_demand_of(&sum);
}

static struct role_instance describe(struct run *run, struct instance *in)
{
    struct instance_limits limits;
    struct instance_load load;
    instance_limits_get(&run->config, in->config.pool, &limits);
    in->kind->load(in, run->now_us, &load);
    struct role_instance r = {
        .id = in->config.place,
        .ready = in->state == INSTANCE_READY,
        .pinned = in->config.pool->role != ROLE_BOTH,
        .role = in->config.pool->role != ROLE_BOTH ? in->config.pool->role : in->role,
        .has_perf = true,
        .perf = load.perf,
        .token_budget = limits.batch_tokens_max,
        .seqs_max = limits.seqs_max,
        .kv_tokens_max = limits.kv_tokens,
    };
    LIST_EACH (&in->flights, node) {
        const struct session *x = CONTAINER_OF(node, struct flight, on_instance)->session;
        if (!x || x->state == SESSION_ENDED) continue;
        if (x->total - x->computed > 1) {
            r.prompt_pending += x->total - x->computed;
        } else {
            r.decode_pending += x->computed;
            r.decoding++;
        }
    }
    return r;
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
        if (run->instance[i]) s->instance[view.instance_count++] = describe(run, run->instance[i]);
    struct role_verdict v;
    role_look(&s->look, &view, run->now_us, &v);
    for (uint32_t i = 0; i < view.instance_count; i++) {
        struct instance *in = run->instance[s->instance[i].id];
        if (in->role == v.role[i]) continue;
        in->role = v.role[i];
        run->result->role_changes++;
        routers_endpoint(run, in);
    }
    run->result->role_reason = v.reason;
    run->result->role_rps = v.goodput_rps;
    run->result->role_runner_up_rps = v.runner_up_rps;
    kv_transfers_stranded(run);
    for (uint32_t r = 0; r < run->router_count; r++)
        routers_look_at_held(run, r);
    run_at(run, &s->timer, s->look.again_us, RANK_ROLES);
}
