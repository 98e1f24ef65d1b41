/* world.c - runs obedient agents and a router around a controller that may die. */
#include "tests/unit/controller/world.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/log.h"
#include "policies/place/place.h"
#include "policies/scale/scale.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTROLLER_AWAY_US (3 * SECOND)
#define DRAIN_TAKES_US (2 * SECOND)

static const struct str engine_args[] = { { "muster", 6 }, { "engine", 6 } };

static void fill_offers(struct offer offer[3])
{
    static const struct {
        const char *name;
        double price, speed;
    } rows[3] = { { "s1", 1.0, 1 }, { "s2", 1.2, 1 }, { "l1", 1.9, 2 } };
    memset(offer, 0, 3 * sizeof *offer);
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(offer[i].name, NAME_BYTES, "%s", rows[i].name);
        snprintf(offer[i].provider, NAME_BYTES, "fake");
        offer[i].price_h = rows[i].price;
        offer[i].price_known = true;
        offer[i].lead_s = 5;
        offer[i].stops = true;
        offer[i].seqs_max = 16;
        offer[i].has_prior = true;
        offer[i].prior = (struct perf_coef){ .step_s = 0.01 / rows[i].speed,
                                             .prefill_token_s = 0.0005 / rows[i].speed,
                                             .decode_seq_s = 0.001 / rows[i].speed };
    }
}

void world_init(struct world *w, const struct fake_config *fake, uint64_t seed)
{
    log_set_level(LOG_LEVEL_COUNT - 1);
    memset(w, 0, sizeof *w);
    w->now = WORLD_START;
    w->router_boot = 7;
    struct offer offer[3];
    fill_offers(offer);
    must(fake_cloud_new(fake, offer, 3, &w->fake) == 0);
    w->cloud = fake_cloud(w->fake);
    must(store_memory_open(4096, &w->store, NULL) == 0);
    w->service = (struct plan_service){
        .name = "chat",
        .pool_count = 2,
        .max = 12,
        .ttft_slo_s = 2,
        .tpot_slo_s = 0.1,
        .policy = &scale_work,
        .place = &place_joint,
        .scale = SCALE_CONFIG_DEFAULT,
        .shape = { .down_window_s = 5 },
        .pool = { { .name = "small",
                    .provider = "fake",
                    .offer = { 0, 1 },
                    .offer_count = 2,
                    .max = 6,
                    .manual = -1 },
                  { .name = "large",
                    .provider = "fake",
                    .offer = { 2 },
                    .offer_count = 1,
                    .max = 6,
                    .manual = -1 } },
    };
    w->service.scale.zero_after_s = 5;
    for (uint32_t p = 0; p < 2; p++)
        w->launch[0][p] =
            (struct control_launch){ .engine_args = engine_args, .engine_arg_count = 2 };
    w->setup =
        (struct control_setup){ .service = &w->service,
                                .service_count = 1,
                                .launch =
                                    (const struct control_launch(*)[SCALE_POOLS_MAX])w->launch,
                                .cloud = &w->cloud,
                                .cloud_count = 1,
                                .store = w->store,
                                .merge = MERGE_CONFIG_DEFAULT,
                                .host = STR("127.0.0.1"),
                                .port = 8090,
                                .engine_host = STR("127.0.0.1"),
                                .lease_ms = 15000,
                                .decisions_max = 200,
                                .seed = seed };
    w->setup.merge.boot_us = 40 * SECOND;
    w->setup.merge.retry_us = 2 * SECOND;
}

void world_fini(struct world *w)
{
    world_kill(w);
    store_close(w->store);
    fake_cloud_free(w->fake);
}

struct world *world_new(const struct fake_config *fake)
{
    struct world *w = malloc(sizeof *w);
    must(w);
    struct fake_config plain = { .boot_us = WORLD_BOOT_US };
    world_init(w, fake ? fake : &plain, 1);
    return w;
}

void world_free(struct world *w)
{
    fault_disarm();
    world_fini(w);
    free(w);
}

void world_start(struct world *w)
{
    struct err err = { 0 };
    if (w->path && store_file_open(w->path, 0, &w->store, &err) < 0) fail_msg("%s", err.text);
    w->setup.store = w->store;
    w->setup.seed++; /* as in production: no two starts share a seed */
    if (control_new(&w->setup, w->now, &w->control, &err) < 0) fail_msg("%s", err.text);
}

void world_kill(struct world *w)
{
    control_free(w->control);
    w->control = NULL;
    fake_cloud_cut(w->fake, w->now);
    if (!w->path) return;
    store_close(w->store);
    w->store = NULL;
}

static void agent_second(struct world *w, const struct fake_instance *in, struct world_agent *a)
{
    if (a->draining && w->now - a->drain_us >= DRAIN_TAKES_US) a->stopped = true;
    struct agent_report r = {
        .instance = str_from(in->intent),
        .intent = str_from(in->intent),
        .boot = 1 + in->starts,
        .seq = ++a->seq,
        .state = a->stopped    ? AGENT_STOPPED
                 : a->draining ? AGENT_DRAINING
                               : AGENT_UP,
        .has_engine = !a->stopped,
        .engine = { .host = STR("127.0.0.1"),
                    .port = 8200,
                    .health = ENGINE_READY,
                    .model = STR("chat"),
                    .running_max = 16 },
    };
    if (w->engine && !a->stopped) r.engine = *w->engine;
    struct agent_reply reply;
    control_report(w->control, &r, w->now, &reply);
    if (!reply.known) return;
    if (reply.drain && !a->draining) {
        a->draining = true;
        a->drain_us = w->now;
    }
    if (!reply.drain && !a->stopped) a->draining = false;
    if (reply.stop) a->stopped = true;
}

static void router_second(struct world *w)
{
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SYNC_BYTES_MAX);
    struct service_demand d = { .service = STR("chat"),
                                .arrivals_total = w->arrivals,
                                .arrival_per_s = w->rate,
                                .prompt_tokens_mean = 200,
                                .predicted_tokens_mean = 100,
                                .held = w->held,
                                .ttft_s = { .count = 20, .mean = 0.1, .p50 = 0.1, .p90 = 0.1 } };
    struct router_sync s = { .router = STR("r0"),
                             .boot = w->router_boot,
                             .seq = ++w->router_seq,
                             .window_s = 5,
                             .services = &d,
                             .service_count = 1 };
    struct router_rules rules;
    assert_int_equal(control_sync(w->control, &s, w->now, &arena, &rules, NULL), 0);
    uint32_t ready = 0;
    for (uint32_t i = 0; i < rules.endpoint_count; i++)
        ready += rules.endpoints[i].state == ENDPOINT_READY;
    if (ready) w->held = 0;
}

void world_second(struct world *w)
{
    w->now += SECOND;
    w->arrivals += (uint64_t)w->rate;
    if (w->running_max < world_running(w)) w->running_max = world_running(w);
    if (!w->control) {
        if (w->now < w->dead_until) return;
        world_start(w);
    }
    fake_cloud_turn(w->fake, w->now);
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    for (uint32_t i = 0; i < count; i++) {
        bool lives =
            in[i].removed_us == 0 && !in[i].dead && !in[i].stopped && in[i].ready_us <= w->now;
        if (w->agent[i].starts != in[i].starts)
            w->agent[i] = (struct world_agent){ .starts = in[i].starts };
        if (lives && !w->agents_silent) agent_second(w, &in[i], &w->agent[i]);
    }
    if (!w->router_silent) router_second(w);
    int rc = control_tick(w->control, w->now);
    if (rc == 0) return;
    assert_int_equal(rc, -ECANCELED);
    world_kill(w);
    w->crashes++;
    w->dead_until = w->now + CONTROLLER_AWAY_US;
}

void world_run(struct world *w, int seconds)
{
    for (int i = 0; i < seconds; i++)
        world_second(w);
}

uint32_t world_running(const struct world *w)
{
    return fake_cloud_running(w->fake, w->now);
}

uint32_t world_made(const struct world *w)
{
    uint32_t count;
    fake_cloud_instances(w->fake, &count);
    return count;
}

void world_check_end(const struct world *w, const char *what)
{
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->fake, &count);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = i + 1; j < count; j++)
            if (strcmp(in[i].intent, in[j].intent) == 0)
                fail_msg("%s: %s has two instances", what, in[i].intent);
    }
    if (world_running(w) != 0) fail_msg("%s: %u are left", what, world_running(w));
}
