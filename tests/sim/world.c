/* world.c - draws a world from a seed and runs it through its phases. */
#include "tests/sim/world.h"

#include "base/core/bits.h"
#include "base/io/log.h"

#include <stdio.h>

#define BEGIN_US (1000000 * SECOND)
#define FAULTS_US (130 * SECOND)
#define BACK_OFF_US (200 * SECOND) /* more than the longest back-off that the faults cause */
#define LIVENESS_US (120 * SECOND)
#define LAST_WORDS_US (10 * SECOND)

static void draw(struct world *w, uint64_t seed, uint32_t kinds)
{
    struct rng *const streams[] = { &w->rng_net,     &w->rng_cloud,  &w->rng_chaos,
                                    &w->rng_clients, &w->rng_engine, &w->rng_controller,
                                    &w->rng_nodes };
    struct rng rng;
    for (uint32_t i = 0; i < COUNT_OF(streams); i++)
        rng_stream(streams[i], seed, i, 0);
    rng_stream(&rng, seed, COUNT_OF(streams), 0);
    faults_draw(&w->faults, seed, kinds);
    w->router_count = 1 + (uint32_t)rng_below(&rng, SIM_ROUTERS_MAX);
    w->route = route_table[rng_below(&rng, route_count)];
    w->continues = rng_below(&rng, 2) == 1;
    w->controller_count = w->faults.on[FAULT_TWO] ? SIM_CONTROLLERS : 1;
}

static void say_setting(const struct world *w)
{
    const struct plan_service *s = &w->controller->service;
    printf("scale=%s route=%s min=%u max=%u budget=%g pools=%u routers=%u lag_s=%g "
           "continues=%d\nfaults:",
           s->policy->name, w->route->name, s->min, s->max, s->budget_h, s->pool_count,
           w->router_count, (double)w->cloud.lag_us / 1e6, w->continues);
    for (uint32_t k = 0; k < FAULT_KIND_COUNT; k++)
        if (w->faults.on[k]) printf(" %s", fault_names[k]);
    printf("\n");
}

/* A client leaves when its patience is over, so that no first token may come later. */
static void begin_history(struct world *w)
{
    const struct history_limits limits = { .first_us_max = SIM_PATIENCE_US,
                                           .gap_us_max = SIM_GAP_US,
                                           .spend_h_max = w->budget_h };
    history_init(&w->history, &limits);
}

static void run_for(struct world *w, int64_t us)
{
    timeline_run(&w->time, w, w->time.now_us + us, &w->failed);
}

/* Runs until no offer is in back-off; by design a sold-out provider is asked again only then. */
static void wait_for_offers(struct world *w)
{
    int64_t until_us = w->time.now_us + BACK_OFF_US;
    for (bool waits = true; waits && !w->failed;) {
        if (w->time.now_us > until_us)
            check_fail(w, CHECK_CONVERGES, "an offer is not asked for %.0f s",
                       (double)BACK_OFF_US / 1e6);
        waits = w->controller->control == NULL;
        const struct control *c = w->controller->control;
        for (uint32_t o = 0; c && o < c->money.offer_count; o++)
            waits |= !offer_may_be_asked(&c->money.health[o], controller_now_us(w));
        if (waits && w->mutant != MUTANT_SOLD_OUT) run_for(w, SECOND);
        if (w->mutant == MUTANT_SOLD_OUT) return;
    }
}

static void live(struct world *w)
{
    run_for(w, FAULTS_US);
    timeline_note(&w->time, "healed", w->name, 0);
    wait_for_offers(w);
    run_for(w, LIVENESS_US);
    if (w->failed) return;
    check_converged(w);
    w->silence_us = w->time.now_us;
    timeline_note(&w->time, "silence", w->name, 0);
    run_for(w, LIVENESS_US);
    if (w->failed) return;
    check_shrunk(w);
    run_for(w, LAST_WORDS_US);
    check_end(w);
}

static void end(struct world *w)
{
    damage_end(w);
    controller_end(w);
    for (uint32_t r = 0; r < w->router_count; r++)
        director_free(w->router[r].director);
    timeline_fini(&w->time);
    history_fini(&w->history);
    for (uint32_t i = 0; i < w->agent_count; i++)
        free(w->agent[i]);
    cloud_end(w);
}

static void sum_up(const struct world *w, struct world_result *ret)
{
    *ret = (struct world_result){ .failed = w->failed,
                                  .failure = w->failure,
                                  .digest = w->time.digest,
                                  .events = w->time.events,
                                  .requests = w->request_count,
                                  .machines = w->agent_count,
                                  .controller_deaths =
                                      w->controllers[0].deaths + w->controllers[1].deaths,
                                  .terms = w->controllers[0].terms + w->controllers[1].terms };
    for (uint32_t i = 0; i < w->request_count; i++)
        ret->answered += w->request[i].ok;
}

void world_run(const struct world_options *o, struct world_result *ret)
{
    struct world *w = calloc(1, sizeof *w);
    must(w);
    log_set_level(o->verbose ? LOG_WARN : LOG_LEVEL_COUNT);
    snprintf(w->name, sizeof w->name, "-");
    w->mutant = o->mutant;
    w->model = hash64("chat", 4, 0);
    timeline_init(&w->time, BEGIN_US, o->verbose);
    w->controller = &w->controllers[0];
    w->heal_us = BEGIN_US + FAULTS_US;
    w->silence_us = INT64_MAX;
    draw(w, o->seed, o->kinds ? o->kinds : FAULT_KIND_COUNT);
    cloud_begin(w);
    controller_begin(w);
    begin_history(w);
    for (uint32_t r = 0; r < w->router_count; r++) {
        w->router[r].index = r;
        router_start(w, &w->router[r]);
    }
    clients_begin(w);
    faults_begin(w);
    if (o->verbose) say_setting(w);
    live(w);
    sum_up(w, ret);
    end(w);
    free(w);
}
