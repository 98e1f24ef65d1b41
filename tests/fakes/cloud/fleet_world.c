/* fleet_world.c - runs a controller over a fake of a provider, and kills it. */
#include "tests/fakes/cloud/fleet_world.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/log.h"
#include "controller/charges.h"
#include "controller/cloud/cloud_fake.h"
#include "controller/cloud/web/web_tags.h"
#include "controller/control_state.h"
#include "policies/place/place.h"
#include "policies/scale/scale.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOWN_S 60         /* when the pool is scaled to none */
#define FAULTY_DOWN_S 900 /* likewise, where offers are left alone for minutes after a refusal */
#define LATEST_S 900
#define QUIET_S 20 /* without a machine, at the end */
#define WANTED 2

struct agent {          /* parallel to the fleet's machines */
    int64_t started_us; /* of its machine's last start */
    uint64_t seq;
    bool draining, stopped;
};

struct run {
    struct fleet_ground *g;
    struct cloud_backend backend; /* under the cloud's name */
    struct cloud_delay *delay;
    struct cloud cloud;
    struct store *store;
    struct plan_service service;
    struct control_launch launch[1][SCALE_POOLS_MAX];
    struct control_setup setup;
    struct control *control;
    struct agent agent[FLEET_MACHINES_MAX];
    int64_t now_us;
    bool powers_off; /* a machine whose agent has ended stops itself */
    uint32_t running_max, crashes;
    char doubled[FLEET_TEXT]; /* an intent that had two machines at once */
};

static struct rng *chance; /* of the run: latencies are drawn; NULL: they are fixed */

static int64_t latency(void *ctx, const struct cloud_call *call)
{
    (void)ctx;
    if (chance && call->op != CLOUD_LIST)
        return 1 + (int64_t)rng_below(chance, 3 * (uint64_t)RIG_SECOND / 2);
    return call->op == CLOUD_LIST ? 0 : RIG_SECOND / 2;
}

static void begin(struct run *r, struct fleet_ground *g, uint64_t seed, int64_t poll_us)
{
    static const struct str args[] = { { "muster", 6 }, { "engine", 6 } };
    const struct web_settings *s = &g->rig->settings[0];
    *r = (struct run){ .g = g, .backend = web_drive_backend, .now_us = RIG_START };
    log_set_level(LOG_LEVEL_COUNT - 1);
    r->backend.name = s->name.data;
    must(store_memory_open(4096, &r->store, NULL) == 0);
    must(cloud_delay_new(&r->backend, &g->rig->drive, latency, &r->delay) == 0);
    r->cloud =
        cloud_delay_cloud(r->delay, &(struct cloud){ .lag_us = s->lag_us, .poll_us = poll_us });
    r->service = (struct plan_service){
        .name = "chat",
        .pool_count = 1,
        .max = 4,
        .ttft_slo_s = 2,
        .tpot_slo_s = 0.1,
        .policy = &scale_work,
        .place = &place_joint,
        .scale = SCALE_CONFIG_DEFAULT,
        .pool = { { .name = "small", .offer = { 0 }, .offer_count = 1, .max = 4, .manual = -1 } },
    };
    snprintf(r->service.pool[0].provider, NAME_BYTES, STR_FMT, STR_ARG(s->name));
    r->launch[0][0] = (struct control_launch){ .engine_args = args, .engine_arg_count = 2 };
    r->setup =
        (struct control_setup){ .service = &r->service,
                                .service_count = 1,
                                .launch =
                                    (const struct control_launch(*)[SCALE_POOLS_MAX])r->launch,
                                .cloud = &r->cloud,
                                .cloud_count = 1,
                                .store = r->store,
                                .merge = MERGE_CONFIG_DEFAULT,
                                .host = STR("10.0.0.1"),
                                .port = 8090,
                                .engine_host = STR("127.0.0.1"),
                                .secret = STR("0123456789abcdef0123456789abcdef"),
                                .lease_ms = 15000,
                                .decisions_max = 200,
                                .seed = seed };
    r->setup.merge.boot_us = 120 * RIG_SECOND;
}

static void start(struct run *r)
{
    struct err err = { 0 };
    r->setup.seed += 100; /* as in production: no two starts share a seed */
    if (control_new(&r->setup, r->now_us, &r->control, &err) < 0) fail_msg("%s", err.text);
}

static void end(struct run *r)
{
    control_free(r->control);
    cloud_delay_free(r->delay);
    store_close(r->store);
}

static void report(struct run *r, const struct fleet_machine *m, struct agent *a)
{
    const struct agent_report report = {
        .instance = str_from(m->name),
        .intent = str_from(m->name),
        .boot = m->id + (uint64_t)m->started_us,
        .seq = ++a->seq,
        .state = a->stopped    ? AGENT_STOPPED
                 : a->draining ? AGENT_DRAINING
                               : AGENT_UP,
        .has_engine = !a->stopped,
        .engine = { .host = STR("10.0.0.2"),
                    .port = 8200,
                    .health = ENGINE_READY,
                    .model = STR("chat"),
                    .running_max = 16 },
    };
    struct agent_reply reply;
    control_report(r->control, &report, r->now_us, &reply);
    a->stopped = a->stopped || reply.stop || a->draining;
    a->draining = a->draining || reply.drain;
}

/* One second: agents report, the controller ticks; looks at the fleet afterwards. */
static int second(struct run *r)
{
    struct fake_fleet *f = r->g->fleet;
    r->now_us += RIG_SECOND;
    for (uint32_t i = 0; i < f->count; i++) {
        const struct fleet_machine *m = &f->machine[i];
        bool up = m->ready_us <= r->now_us && (m->removed_us == 0 || m->removed_us > r->now_us) &&
                  !fleet_is_stopped(m, r->now_us);
        if (r->agent[i].started_us != m->started_us)
            r->agent[i] = (struct agent){ .started_us = m->started_us };
        bool is_silent = (r->now_us / RIG_SECOND + i) % 2 > 0; /* its last words are lost */
        if (up && r->agent[i].stopped && r->powers_off && is_silent) {
            fake_fleet_stop(f, m->id, r->now_us);
            continue;
        }
        if (up && m->made_us <= r->now_us) report(r, m, &r->agent[i]);
    }
    int rc = control_tick(r->control, r->now_us);
    r->running_max = (uint32_t)max_i64(r->running_max, fake_fleet_running(f, r->now_us));
    for (uint32_t i = 0; i < f->count; i++)
        if (fake_fleet_of_tag(f, WEB_TAG_INTENT, fleet_tag_of(&f->machine[i], WEB_TAG_INTENT),
                              r->now_us) > 1)
            snprintf(r->doubled, sizeof r->doubled, "%s", f->machine[i].name);
    return rc;
}

/* A controller that begins anew, and one that sees an end, wait for listings that prove what is there. */
static int proofs_s(const struct run *r)
{
    return 4 * (int)(r->cloud.lag_us / RIG_SECOND);
}

/* Scales to none after down_s and runs until no machine is left for a while. Returns how many ran at down_s. */
static uint32_t live(struct run *r, bool made, int down_s, int latest_s)
{
    uint32_t at_peak = 0;
    int quiet_s = 0, wanted_s = QUIET_S + proofs_s(r);
    for (int t = 0; t < down_s + wanted_s || (t < latest_s && quiet_s < wanted_s); t++) {
        if (t == down_s) {
            at_peak = fake_fleet_running(r->g->fleet, r->now_us);
            must(control_scale(r->control, STR("chat"), STR("small"), 0, NULL) == 0);
        }
        if (second(r) == -ECANCELED) {
            r->crashes++;
            control_free(r->control);
            cloud_delay_cut(r->delay, made, r->now_us);
            start(r);
        }
        quiet_s = fake_fleet_running(r->g->fleet, r->now_us) > 0 ? 0 : quiet_s + 1;
    }
    return at_peak;
}

static uint32_t made_in_all(const struct fake_fleet *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->count; i++)
        n += f->machine[i].removed_us == 0 || f->machine[i].removed_us > f->machine[i].made_us;
    return n;
}

bool fleet_world_up_and_down(struct fleet_ground *g, uint64_t seed, int seconds)
{
    struct run *r = malloc(sizeof *r);
    must(r);
    begin(r, g, seed, 0);
    start(r);
    must(control_scale(r->control, STR("chat"), STR("small"), WANTED, NULL) == 0);
    live(r, true, FAULTY_DOWN_S, FAULTY_DOWN_S + seconds);
    uint32_t left = fake_fleet_running(g->fleet, r->now_us);
    bool fine = r->running_max >= WANTED && left == 0;
    if (!fine) fprintf(stderr, "%u at most, %u left\n", r->running_max, left);
    end(r);
    free(r);
    return fine;
}

static void one_kill(fleet_ground_open_fn open, fleet_ground_close_fn close, bool made,
                     const char *step, uint64_t nth)
{
    struct fleet_ground g = { 0 };
    struct run *r = malloc(sizeof *r);
    must(r);
    open(&g);
    begin(r, &g, nth, 0);
    start(r);
    must(control_scale(r->control, STR("chat"), STR("small"), WANTED, NULL) == 0);
    fault_arm(step, nth);
    uint32_t at_peak = live(r, made, DOWN_S + proofs_s(r), LATEST_S);
    fault_disarm();
    uint32_t left = fake_fleet_running(g.fleet, r->now_us);
    uint32_t all = made_in_all(g.fleet);
    if (r->crashes != 1 || at_peak != WANTED || left != 0 || all != WANTED || r->doubled[0] ||
        g.fleet->refused_form > 0)
        fail_msg("%s, time %llu: %u crashes, %u at the peak, %u left, %u in all, doubled '%s', %u "
                 "requests of a wrong form (%s)",
                 step, (unsigned long long)nth, r->crashes, at_peak, left, all, r->doubled,
                 g.fleet->refused_form, g.fleet->last_refused);
    end(r);
    close(&g);
    free(r);
}

void fleet_world_killed_at_every_step(fleet_ground_open_fn open, fleet_ground_close_fn close,
                                      bool made)
{
    for (uint32_t s = 0; s < control_step_count; s++)
        for (uint64_t nth = 1; nth <= WANTED; nth++)
            one_kill(open, close, made, control_steps[s], nth);
}

/* ---- crash points ---- */

#define BUDGET_MACHINES 2.5 /* that the budget of an hour pays for; one more is asked for by hand */
#define POLL_US (2 * RIG_SECOND)
#define LIFE_S_MAX 120 /* that instances stay up, without a look at them */
#define AWAY_S_MAX 10  /* a killed controller stays away */
#define UNOWNED_S_MAX 60
#define WAY_S_MAX 400 /* a way up or down that takes longer hangs */
#define CENT 0.01
#define NOISE 0.001 /* dollars: dates of providers are whole seconds */

struct crash {
    struct run *r;
    struct rng rng;
    const char *step;
    bool at_once, killed;
    int64_t kill_us, back_us; /* 0: not yet */
    uint32_t unowned_s[FLEET_MACHINES_MAX];
    double ledger, bill, worst, budget_h, over; /* dollars; over: ledger less bill, of all ways */
    uint32_t exact, ways;
    double unsure; /* as of the last look at the bill */
    bool keeps;    /* machines are kept stopped */
};

static void kill_controller(struct crash *k)
{
    struct run *r = k->r;
    control_free(r->control);
    r->control = NULL;
    cloud_delay_cut(r->delay, rng_below(&k->rng, 2) == 0, r->now_us);
    k->killed = true;
    k->back_us = r->now_us + (int64_t)rng_below(&k->rng, AWAY_S_MAX + 1) * RIG_SECOND;
    fault_disarm();
}

static bool has_intent(const struct control *c, const char *id)
{
    uint32_t at = control_find(c, id);
    return at != UINT32_MAX && intent_is_live(&c->money.intent[at]);
}

static void judge_moment(struct crash *k)
{
    struct run *r = k->r;
    struct fake_fleet *f = r->g->fleet;
    double cost_h = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const struct fleet_machine *m = &f->machine[i];
        bool up = m->made_us <= r->now_us && (m->removed_us == 0 || m->removed_us > r->now_us);
        const char *intent = fleet_tag_of(m, WEB_TAG_INTENT);
        if (!up) continue;
        cost_h += (double)(fleet_is_stopped(m, r->now_us) ? f->config.disk_udollars_h
                                                          : m->price_udollars_h) /
                  1e6;
        if (!r->control) continue;
        k->unowned_s[i] = has_intent(r->control, intent) ? 0 : k->unowned_s[i] + 1;
        if (k->unowned_s[i] > UNOWNED_S_MAX)
            fail_msg("%s: %s is without an intent", k->step, m->name);
    }
    if (cost_h > k->budget_h)
        fail_msg("%s: %.4f dollars an hour of %.4f", k->step, cost_h, k->budget_h);
    if (r->doubled[0]) fail_msg("%s: %s is there twice", k->step, r->doubled);
}

/* One second of a way on which the controller is killed once. */
static void crash_second(struct crash *k)
{
    struct run *r = k->r;
    if (!r->control && r->now_us >= k->back_us) start(r);
    if (!r->control) {
        r->now_us += RIG_SECOND;
        judge_moment(k);
        return;
    }
    if (second(r) == -ECANCELED) {
        if (k->at_once) {
            kill_controller(k);
        } else { /* what the step would have done next is done at the next tick, or not any more */
            k->kill_us = r->now_us + (int64_t)rng_below(&k->rng, 4) * RIG_SECOND;
        }
    }
    if (k->kill_us && !k->killed && r->now_us >= k->kill_us) kill_controller(k);
    judge_moment(k);
}

static uint32_t live_intents(const struct control *c)
{
    uint32_t n = 0;
    for (uint32_t at = 0; c && at < c->money.count; at++)
        n += intent_is_live(&c->money.intent[at]);
    return n;
}

static uint32_t ready_instances(const struct control *c)
{
    uint32_t n = 0;
    for (uint32_t at = 0; c && at < c->money.count; at++)
        n += c->money.intent[at].state == INTENT_REGISTERED;
    return n;
}

static uint32_t stopped_instances(const struct control *c)
{
    uint32_t n = 0;
    for (uint32_t at = 0; c && at < c->money.count; at++)
        n += c->money.intent[at].state == INTENT_STOPPED;
    return n;
}

/* Scales to `count` and runs until that is so; the kill has to have come if it can on this way. */
static void crash_way(struct crash *k, int32_t count, uint32_t want, bool wants_kill)
{
    struct run *r = k->r;
    must(control_scale(r->control, STR("chat"), STR("small"), count, NULL) == 0);
    for (int t = 0; t < WAY_S_MAX; t++) {
        crash_second(k);
        /* Those that are kept are there all the time, running or stopped. */
        uint32_t kept = k->keeps ? WANTED : want;
        bool there = r->control && live_intents(r->control) == kept &&
                     fake_fleet_running(r->g->fleet, r->now_us) == kept &&
                     fake_fleet_up(r->g->fleet, r->now_us) == want &&
                     ready_instances(r->control) == want &&
                     (!k->keeps || stopped_instances(r->control) == WANTED - want);
        if (there && (k->killed || !wants_kill)) return;
    }
    fail_msg("%s: %u live intents and %u machines after %d s, %u wanted%s", k->step,
             live_intents(r->control), fake_fleet_running(r->g->fleet, r->now_us), WAY_S_MAX, want,
             wants_kill && !k->killed ? ", never killed" : "");
}

/* The bill of what this way up and down has cost. What a provider tells of its end to nobody is not known better than
 * the bill says. */
static void judge_bill(struct crash *k)
{
    struct run *r = k->r;
    double ledger = control_cost_total(r->control, r->now_us);
    double bill = (double)fake_fleet_bill_udollars(r->g->fleet, r->now_us) / 1e6;
    double unsure = 0, over = (ledger - k->ledger) - (bill - k->bill);
    for (uint32_t at = 0; at < r->control->money.count && !k->keeps; at++) {
        const struct intent *i = &r->control->money.intent[at];
        if (i->wanted_us > r->now_us - 2 * (int64_t)WAY_S_MAX * RIG_SECOND)
            unsure += charge_unsure(i, r->now_us);
    }
    if (k->keeps) {
        double all = control_cost_unsure(r->control, r->now_us);
        unsure = fmax(0, all - k->unsure);
        k->unsure = all;
    }
    if (over < -NOISE || over > fmax(CENT, unsure + NOISE))
        fail_msg("%s: %.5f dollars by the controller, %.5f by the provider, %.5f unsure", k->step,
                 ledger - k->ledger, bill - k->bill, unsure);
    k->exact += over <= CENT;
    k->worst = fmax(k->worst, over);
    k->over += over;
    k->ways++;
    k->ledger = ledger;
    k->bill = bill;
}

static bool is_on_the_way_down(const char *step)
{
    return strncmp(step, "drain.", 6) == 0 || strncmp(step, "end.", 4) == 0;
}

static void crash_cycle(struct crash *k, const char *step)
{
    bool down = is_on_the_way_down(step);
    k->step = step;
    k->at_once = rng_below(&k->rng, 2) == 0;
    k->killed = false;
    k->kill_us = k->back_us = 0;
    if (!down) fault_arm(step, 1 + rng_below(&k->rng, WANTED));
    crash_way(k, WANTED + 1, WANTED, !down);
    k->r->now_us += (int64_t)rng_below(&k->rng, LIFE_S_MAX) * RIG_SECOND;
    if (down) fault_arm(step, 1 + rng_below(&k->rng, WANTED));
    crash_way(k, 0, 0, down);
    judge_bill(k);
}

void fleet_world_crash_points(fleet_ground_open_fn open, fleet_ground_close_fn close,
                              uint32_t times)
{
    struct fleet_ground g = { 0 };
    struct run *r = malloc(sizeof *r);
    struct crash *k = calloc(1, sizeof *k);
    must(r && k);
    open(&g);
    begin(r, &g, 1, POLL_US);
    k->r = r;
    rng_seed(&k->rng, 1);
    chance = &k->rng;
    const struct fleet_config *f = &g.fleet->config;
    k->budget_h =
        BUDGET_MACHINES * (double)(f->type[0].price_udollars_h + f->address_udollars_h) / 1e6;
    r->service.budget.hour = r->service.budget_h = k->budget_h;
    start(r);
    for (uint32_t n = 0; n < times; n++)
        for (uint32_t s = 0; s < control_step_count; s++)
            crash_cycle(k, control_steps[s]);
    print_message(
        "%u crashes: %.4f dollars billed, the controller's sum is %.4f more; %u of %u to the "
        "cent, the worst %.4f\n",
        k->ways, k->bill, k->over, k->exact, k->ways, k->worst);
    if (g.fleet->refused_form > 0) fail_msg("%s", g.fleet->last_refused);
    chance = NULL;
    end(r);
    close(&g);
    free(k);
    free(r);
}

/* ---- stopped machines ---- */

#define DISK_UDOLLARS_H 20000
#define RESTED_S_MAX 120 /* that instances stay stopped */

/* A kill on the way to the stop, or on the way back. */
static void stop_cycle(struct crash *k, const char *step)
{
    bool up = strncmp(step, "start.", 6) == 0;
    k->step = step;
    k->at_once = rng_below(&k->rng, 2) == 0;
    k->killed = false;
    k->kill_us = k->back_us = 0;
    if (!up) fault_arm(step, 1 + rng_below(&k->rng, WANTED));
    crash_way(k, 0, 0, !up);
    k->r->now_us += (int64_t)rng_below(&k->rng, RESTED_S_MAX) * RIG_SECOND;
    if (up) fault_arm(step, 1 + rng_below(&k->rng, WANTED));
    crash_way(k, WANTED + 1, WANTED, up);
    judge_bill(k);
    k->r->now_us += (int64_t)rng_below(&k->rng, LIFE_S_MAX) * RIG_SECOND;
}

void fleet_world_stop_points(fleet_ground_open_fn open, fleet_ground_close_fn close,
                             bool powers_off, uint32_t times)
{
    struct fleet_ground g = { 0 };
    struct run *r = malloc(sizeof *r);
    struct crash *k = calloc(1, sizeof *k);
    must(r && k);
    open(&g);
    g.fleet->config.disk_udollars_h = DISK_UDOLLARS_H;
    for (uint32_t i = 0; i < g.rig->settings[0].offer_count; i++) {
        struct offer *o = &g.rig->settings[0].offer[i].offer;
        o->disk_h = DISK_UDOLLARS_H / 1e6;
        if (o->price_known) o->price_h += o->disk_h;
    }
    begin(r, &g, 1, POLL_US);
    r->powers_off = powers_off;
    r->service.pool[0].keep_stopped = WANTED;
    k->r = r;
    k->keeps = true;
    rng_seed(&k->rng, 1);
    chance = &k->rng;
    const struct fleet_config *f = &g.fleet->config;
    k->budget_h = BUDGET_MACHINES *
                  (double)(f->type[0].price_udollars_h + f->address_udollars_h + DISK_UDOLLARS_H) /
                  1e6;
    r->service.budget.hour = r->service.budget_h = k->budget_h;
    start(r);
    k->step = "the first launch";
    crash_way(k, WANTED + 1, WANTED, false);
    for (uint32_t n = 0; n < times; n++)
        for (uint32_t s = 0; s < control_stop_step_count; s++)
            stop_cycle(k, control_stop_steps[s]);
    if (g.fleet->count != WANTED) fail_msg("%u machines were made, not %d", g.fleet->count, WANTED);
    print_message("%u stops and starts with a crash: %.4f dollars billed, the controller's sum is "
                  "%.4f more; %u of %u to the cent, the worst %.4f\n",
                  k->ways, k->bill, k->over, k->exact, k->ways, k->worst);
    /* A pool that keeps none: no disk is forgotten. */
    crash_way(k, 0, 0, false);
    r->service.pool[0].keep_stopped = r->control->desired.service[0].pool[0].keep_stopped = 0;
    k->keeps = false;
    crash_way(k, 0, 0, false);
    k->keeps = true; /* its unsure sum goes on */
    judge_bill(k);
    if (g.fleet->refused_form > 0) fail_msg("%s", g.fleet->last_refused);
    chance = NULL;
    end(r);
    close(&g);
    free(k);
    free(r);
}
