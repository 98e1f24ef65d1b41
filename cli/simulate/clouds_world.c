/* clouds_world.c - a controller, its machines' agents and one router over a market in virtual time.
 *
 * A turn: the market takes what it takes; agents of machines that have booted report; the router says what came; the
 * controller ticks; rules are looked at; then time goes on to the next moment at which anything can differ, and what
 * was ready until then is held against the need. */
#include "cli/simulate/clouds_world.h"

#include "base/core/arena.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/store/store.h"
#include "base/perf/hardware.h"
#include "base/perf/roofline.h"
#include "policies/scale/capacity.h"
#include "policies/scale/shape/shape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "llama-3-8b"
#define SERVICE "chat"
#define TTFT_SLO_S 2.0
#define TPOT_SLO_S 0.1
#define ATTAINMENT 0.995
#define SEQS_MAX 256
#define STEP_TOKENS 2048
#define PAGE_TOKENS 16
#define PROMPT_TOKENS 1155.0 /* means of Azure's conversation trace of 2023 */
#define OUTPUT_TOKENS 211.0
#define BOOT_US ((int64_t)900 * CLOUDS_SECOND)
#define SETTLE_US (20 * CLOUDS_SECOND) /* busy for so long after the last change */
#define POOL_INSTANCES_MAX 200
#define STORE_ENTRIES 4096
/* Longer than the time between two ticks, or the shaper sees no whole window. */
#define DOWN_WINDOW_S 300
#define ORPHAN_US (60 * CLOUDS_SECOND)
#define DRAIN_SLACK 0.03 /* the controller knows the load as the mean of a while */
#define PRICE_AGE_S 900  /* of a price that the controller may act on */
#define ROUND 1e-9       /* relative: sums of prices */

/* ---- what an instance can do ---- */

struct ability {
    struct perf_coef perf;
    uint64_t kv_tokens;
    double rate_s; /* at CLOUDS_UTILISATION */
    struct scale_load load;
};

/* All requests are of one length: what an instance serves of unlike lengths is the matter of simulated requests. */
static void request_lengths(struct lengths *ret)
{
    *ret = (struct lengths){ 0 };
    lengths_add(ret, PROMPT_TOKENS, OUTPUT_TOKENS, 1);
    lengths_mean(ret);
}

static struct ability ability_of(uint32_t pool)
{
    struct ability a = { 0 };
    struct model_spec model;
    struct roofline roofline;
    struct lengths lengths;
    const struct hardware *h = hardware_find(str_from(market_pool[pool].hardware));
    must(h && model_spec_find(STR(MODEL), &model, NULL) == 0);
    must(roofline_init(&roofline, h, &model, 1));
    roofline_linear(&roofline, ROOFLINE_POINT_DEFAULT, &a.perf);
    a.kv_tokens = roofline_kv_tokens(&roofline) / PAGE_TOKENS * PAGE_TOKENS;
    const struct scale_pool as = { .perf = a.perf,
                                   .perf_known = true,
                                   .seqs_max = SEQS_MAX,
                                   .kv_tokens_max = a.kv_tokens,
                                   .step_tokens = STEP_TOKENS };
    request_lengths(&lengths);
    scale_load_of(&as, &lengths, &a.load);
    a.rate_s = scale_load_rate(&a.load, TTFT_SLO_S, TPOT_SLO_S, CLOUDS_UTILISATION);
    return a;
}

double clouds_rate_s(uint32_t pool)
{
    return ability_of(pool).rate_s;
}

static void offer_name(uint32_t pool, uint32_t zone, char ret[NAME_BYTES])
{
    const struct market_pool *p = &market_pool[pool];
    if (zone == MARKET_ZONES)
        snprintf(ret, NAME_BYTES, "%s-on-demand", p->hardware);
    else
        snprintf(ret, NAME_BYTES, "%s-spot-%s", p->hardware,
                 market_provider[p->provider].zone[zone]);
}

uint32_t clouds_offers(uint32_t provider, struct offer *ret)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < MARKET_POOLS; k++) {
        const struct market_pool *p = &market_pool[k];
        if (p->provider != provider) continue;
        const struct ability a = ability_of(k);
        for (uint32_t z = 0; z < CLOUDS_OFFERS; z++) {
            bool spot = z < MARKET_ZONES;
            struct offer *o = &ret[count++];
            *o = (struct offer){ .price_h = spot ? p->spot_h : p->price_h,
                                 .price_known = true,
                                 .spot = spot,
                                 .lead_s = market_lead_s(k),
                                 .seqs_max = SEQS_MAX,
                                 .kv_tokens_max = a.kv_tokens,
                                 .step_tokens = STEP_TOKENS,
                                 .has_prior = true,
                                 .prior = a.perf };
            offer_name(k, z, o->name);
            snprintf(o->provider, sizeof o->provider, "%s", market_provider[provider].name);
            snprintf(o->zone, sizeof o->zone, "%s", spot ? market_provider[provider].zone[z] : "");
        }
    }
    return count;
}

void clouds_offer_at(uint32_t provider, uint32_t index, uint32_t *ret_pool, uint32_t *ret_zone)
{
    uint32_t pool = 0;
    while (market_pool[pool].provider != provider)
        pool++;
    *ret_pool = pool + index / CLOUDS_OFFERS;
    *ret_zone = index % CLOUDS_OFFERS;
}

/* ---- the world ---- */

struct agent {
    uint64_t number; /* of its machine */
    uint32_t provider, pool;
    uint64_t seq;
    bool seen, serves, draining, stopped, known;
    int64_t drain_us;
    /* Time in which its provider could have been asked to end it, and no intent wants it. */
    int64_t unwanted_us;
};

struct world {
    const struct clouds_setup *setup;
    struct clouds_result *result;
    struct ability ability[MARKET_POOLS];
    struct plan_service service;
    struct control_launch launch[1][SCALE_POOLS_MAX];
    struct control_setup control_setup;
    struct cloud cloud[MARKET_PROVIDERS];
    struct control *control;
    struct store *store;
    struct arena arena; /* of the router's syncs */
    struct lengths lengths;
    struct clouds_machine machine[MARKET_PROVIDERS][CLOUDS_MACHINES_MAX];
    uint32_t count[MARKET_PROVIDERS];
    struct agent agent[MARKET_PROVIDERS * CLOUDS_MACHINES_MAX];
    uint32_t agent_count;
    int64_t now_us, busy_until_us;
    uint64_t shape; /* of what is there: a change makes the world busy */
    uint64_t seq;
    double arrived, met, missed; /* requests */
    double ready_s;              /* requests a second that ready instances serve */
    /* Of these since the last tick: taken by providers; drained by the plan. */
    double gone_s, drained_s;
    double ticked_need_s; /* the need at the last tick */
};

static double second_of(const struct world *w)
{
    return (double)(w->now_us - CLOUDS_START) / CLOUDS_SECOND;
}

static void broken(struct world *w, uint32_t *count, const char *rule, const char *what)
{
    if (w->result->broken[0] == 0)
        snprintf(w->result->broken, sizeof w->result->broken, "%s: %s, at %.0f s", rule, what,
                 second_of(w));
    ++*count;
}

static struct agent *agent_of(struct world *w, uint32_t provider, const struct clouds_machine *m)
{
    for (uint32_t i = 0; i < w->agent_count; i++)
        if (w->agent[i].number == m->number && w->agent[i].provider == provider)
            return &w->agent[i];
    must(w->agent_count < COUNT_OF(w->agent));
    struct agent *a = &w->agent[w->agent_count++];
    *a =
        (struct agent){ .number = m->number, .provider = provider, .pool = m->pool, .known = true };
    w->result->launches++;
    return a;
}

/* ---- a turn ---- */

static void look(struct world *w)
{
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++) {
        const struct clouds_seller *s = &w->setup->seller[p];
        s->turn(s->ctx, w->now_us);
        w->count[p] = s->machines(s->ctx, w->now_us, w->machine[p]);
    }
}

/* Takes spot machines out of zones that have none any more. */
static void take(struct world *w)
{
    int64_t at_s = (int64_t)second_of(w);
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        for (uint32_t i = 0; i < w->count[p]; i++) {
            const struct clouds_machine *m = &w->machine[p][i];
            const struct clouds_seller *s = &w->setup->seller[p];
            if (!m->spot || m->lost || market_has(w->setup->market, m->pool, m->zone, true, at_s))
                continue;
            double notice_s = market_notice_s(w->setup->market, m->pool, m->zone, at_s);
            s->take(s->ctx, m, (int64_t)(notice_s * CLOUDS_SECOND), w->now_us);
            w->result->lost++;
        }
    look(w);
}

/* Forgets agents whose machines are gone, and adds up what no longer serves because its provider takes it. */
static void bury(struct world *w)
{
    for (uint32_t k = w->agent_count; k-- > 0;) {
        const struct clouds_machine *m = NULL;
        struct agent *a = &w->agent[k];
        for (uint32_t i = 0; i < w->count[a->provider] && !m; i++)
            if (w->machine[a->provider][i].number == a->number) m = &w->machine[a->provider][i];
        if (a->serves && (!m || m->lost)) {
            w->gone_s += w->ability[a->pool].rate_s;
            a->serves = false;
        }
        if (!m) w->agent[k] = w->agent[--w->agent_count];
    }
}

/* Returns the share of the ready instances' time that the need takes. */
static double busy_share(const struct world *w)
{
    double need = market_need_at(w->setup->need, second_of(w));
    return w->ready_s > 0 ? fmin(need / w->ready_s, 1 / CLOUDS_UTILISATION) : 0;
}

/* Fills what an instance's engine says of itself under the present load. */
static void fill_engine(const struct world *w, uint32_t pool, struct engine_report *ret)
{
    const struct ability *a = &w->ability[pool];
    double rate = a->rate_s * busy_share(w);
    double step_s = a->load.step_s / fmax(1 - rate * a->load.work_s, 0.05);
    double running = fmin(rate * a->load.output * step_s, a->load.seqs_max);
    *ret = (struct engine_report){ .host = STR("10.0.0.2"),
                                   .port = 8200,
                                   .health = ENGINE_READY,
                                   .model = STR(SERVICE),
                                   .page_tokens = PAGE_TOKENS,
                                   .pages_total = (uint32_t)(a->kv_tokens / PAGE_TOKENS),
                                   .step_tokens = STEP_TOKENS,
                                   .running_max = SEQS_MAX,
                                   .running = (uint32_t)lround(running),
                                   .has_perf = true,
                                   .perf = a->perf };
    ret->pages_free =
        ret->pages_total -
        min_u32(ret->pages_total, (uint32_t)(running * a->load.context / PAGE_TOKENS));
}

static void report(struct world *w, const struct clouds_machine *m, struct agent *a)
{
    if (a->draining && w->now_us - a->drain_us >= CLOUDS_DRAIN_US) a->stopped = true;
    struct agent_report r = { .instance = str_from(m->intent),
                              .intent = str_from(m->intent),
                              .boot = m->number + 1,
                              .seq = ++a->seq,
                              .state = a->stopped    ? AGENT_STOPPED
                                       : a->draining ? AGENT_DRAINING
                                                     : AGENT_UP,
                              .has_engine = !a->stopped };
    if (m->goes_us)
        r.leaves_ms = (uint32_t)max_i64(1, (m->goes_us - w->now_us) / (CLOUDS_SECOND / 1000));
    if (!a->stopped) fill_engine(w, m->pool, &r.engine);
    struct agent_reply reply;
    control_report(w->control, &r, w->now_us, &reply);
    a->seen = true;
    a->known = reply.known && !reply.stop;
    if (!reply.known) return;
    if (reply.drain && !a->draining) {
        a->draining = true;
        a->drain_us = w->now_us;
        if (a->serves && !m->lost) w->drained_s += w->ability[m->pool].rate_s;
    }
    if (!reply.drain && !a->stopped) a->draining = false;
    if (reply.stop) a->stopped = true;
}

static void sync(struct world *w)
{
    double need = market_need_at(w->setup->need, second_of(w));
    const struct ability *a = &w->ability[0];
    double ttft_s = need <= w->ready_s ? TTFT_SLO_S / 4 : TTFT_SLO_S * 2;
    struct service_demand d = {
        .service = STR(SERVICE),
        .arrivals_total = (uint64_t)w->arrived,
        .arrival_per_s = need,
        .prompt_tokens_mean = PROMPT_TOKENS,
        .predicted_tokens_mean = OUTPUT_TOKENS,
        .slo_met_total = (uint64_t)w->met,
        .slo_missed_total = (uint64_t)w->missed,
        .in_flight = (uint32_t)(need * a->load.output * a->load.step_s * 2),
        .held = w->ready_s > 0 ? 0 : 1,
        .ttft_s = { .count = 100, .mean = ttft_s, .p50 = ttft_s, .p90 = ttft_s, .p99 = ttft_s },
        .has_expected = true,
        .expected = w->lengths,
    };
    const struct router_sync s = { .router = STR("r0"),
                                   .boot = 7,
                                   .seq = ++w->seq,
                                   .window_s = 15,
                                   .services = &d,
                                   .service_count = 1 };
    struct router_rules rules;
    arena_reset(&w->arena);
    must(control_sync(w->control, &s, w->now_us, &w->arena, &rules, NULL) == 0);
}

/* Adds up what is ready, and notes whether anything differs from the turn before or has yet to end. */
static void count_ready(struct world *w)
{
    uint64_t shape = 0;
    bool leaves = false;
    w->ready_s = 0;
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        for (uint32_t i = 0; i < w->count[p]; i++) {
            const struct clouds_machine *m = &w->machine[p][i];
            struct agent *a = agent_of(w, p, m);
            a->serves = a->seen && a->known && !a->draining && !a->stopped;
            if (a->serves) w->ready_s += w->ability[m->pool].rate_s;
            uint64_t state =
                a->seen + 2 * a->draining + 4 * a->stopped + 8 * m->lost + 16 * a->known;
            shape += rng_at(m->number * 32 + state, p);
            leaves = leaves || ((a->draining || a->stopped || !a->known) && !m->lost);
        }
    shape += control_epoch_seen(w->control);
    if (leaves || shape != w->shape) w->busy_until_us = w->now_us + SETTLE_US;
    w->shape = shape;
}

/* ---- rules ---- */

/* One machine an intent, whichever provider has it. */
static void check_single(struct world *w)
{
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        for (uint32_t i = 0; i < w->count[p]; i++)
            for (uint32_t j = i + 1; j < w->count[p]; j++)
                if (strcmp(w->machine[p][i].intent, w->machine[p][j].intent) == 0)
                    broken(w, &w->result->doubled, "two machines of one intent",
                           w->machine[p][i].intent);
}

/* A machine that no intent wants is gone once its provider's API has answered for ORPHAN_US. */
static void check_orphans(struct world *w, int64_t passed_us)
{
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++) {
        bool answers = market_answers(w->setup->market, p, (int64_t)second_of(w));
        for (uint32_t i = 0; i < w->count[p]; i++) {
            struct agent *a = agent_of(w, p, &w->machine[p][i]);
            bool unwanted = a->seen && !a->known && !w->machine[p][i].lost;
            bool late = a->unwanted_us > ORPHAN_US;
            a->unwanted_us = !unwanted || !answers ? 0 : a->unwanted_us + passed_us;
            if (!late && a->unwanted_us > ORPHAN_US)
                broken(w, &w->result->orphans, "a machine that no intent wants",
                       w->machine[p][i].intent);
        }
    }
}

/* Nothing that works is drained before what replaces it is there: with what the last tick drained there was enough for
 * the need of that moment, and without it there is not. */
static void check_drains(struct world *w)
{
    double rest_s = w->ready_s + w->gone_s, least_s = w->ticked_need_s * (1 - DRAIN_SLACK);
    if (w->drained_s > 0 && rest_s < least_s && rest_s + w->drained_s >= w->ticked_need_s)
        broken(w, &w->result->too_soon, "drained before its replacement was ready", SERVICE);
    w->gone_s = w->drained_s = 0;
}

/* The price at which a machine was bought, as the controller may have known it. */
static double bought_h(const struct world *w, uint32_t provider, const struct clouds_machine *m)
{
    const struct market_pool *p = &market_pool[m->pool];
    if (w->setup->seller[provider].tells_no_prices) return m->spot ? p->spot_h : p->price_h;
    int64_t at_s = (m->made_us - CLOUDS_START) / CLOUDS_SECOND;
    return fmin(market_price_h(w->setup->market, m->pool, m->spot, at_s),
                market_price_h(w->setup->market, m->pool, m->spot, at_s - PRICE_AGE_S));
}

/* Checks that the fleet keeps the ceiling, at the prices of the launches or of shortly before. */
static void check_budget(struct world *w)
{
    double sum = 0;
    if (w->setup->budget_h <= 0) return;
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        for (uint32_t i = 0; i < w->count[p]; i++)
            sum += bought_h(w, p, &w->machine[p][i]);
    if (sum > w->setup->budget_h * (1 + ROUND))
        broken(w, &w->result->over_budget, "more than the ceiling is spent", SERVICE);
}

/* Adds up what machines cost now. */
static double cost_h(const struct world *w)
{
    double sum = 0;
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        for (uint32_t i = 0; i < w->count[p]; i++)
            sum += market_price_h(w->setup->market, w->machine[p][i].pool, w->machine[p][i].spot,
                                  (int64_t)second_of(w));
    return sum;
}

/* ---- the run ---- */

static void account(struct world *w, int64_t until_us)
{
    struct clouds_result *r = w->result;
    double hours = (double)(until_us - w->now_us) / (3600.0 * CLOUDS_SECOND), now_h = cost_h(w);
    double need = market_need_at(w->setup->need, second_of(w));
    r->hours += hours;
    if (need > w->ready_s && second_of(w) >= CLOUDS_WARM_S) {
        r->short_h += hours;
        r->unserved += (need - w->ready_s) * hours * 3600;
        w->missed += (need - w->ready_s) * hours * 3600;
    }
    w->arrived += need * hours * 3600;
    w->met += fmin(need, w->ready_s) * hours * 3600;
    r->requests += need * hours * 3600;
    r->could_serve += w->ready_s * hours * 3600;
    r->cost += now_h * hours;
    r->cost_h_most = fmax(r->cost_h_most, now_h);
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        for (uint32_t i = 0; i < w->count[p]; i++)
            *(w->machine[p][i].spot ? &r->spot_h : &r->on_demand_h) += hours;
}

/* Returns the next moment at which anything can differ for the controller. */
static int64_t next_us(const struct world *w, int64_t end_us)
{
    bool busy = w->now_us < w->busy_until_us, asked[MARKET_POOLS][MARKET_ZONES] = { { false } };
    int64_t next = w->now_us + (busy ? CLOUDS_BUSY_US : CLOUDS_IDLE_US);
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        for (uint32_t i = 0; i < w->count[p]; i++) {
            const struct clouds_machine *m = &w->machine[p][i];
            if (m->ready_us > w->now_us) next = min_i64(next, m->ready_us);
            if (m->goes_us > w->now_us) next = min_i64(next, m->goes_us);
            if (!m->spot || asked[m->pool][m->zone]) continue;
            asked[m->pool][m->zone] = true;
            int64_t at_s = (int64_t)second_of(w);
            int64_t change_s = market_next_s(w->setup->market, m->pool, m->zone, at_s);
            if (change_s < INT64_MAX) next = min_i64(next, CLOUDS_START + change_s * CLOUDS_SECOND);
        }
    return min_i64(max_i64(next, w->now_us + CLOUDS_SECOND), end_us);
}

static int turn(struct world *w)
{
    look(w);
    take(w);
    bury(w);
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        for (uint32_t i = 0; i < w->count[p]; i++)
            if (w->machine[p][i].ready_us <= w->now_us)
                report(w, &w->machine[p][i], agent_of(w, p, &w->machine[p][i]));
    count_ready(w);
    check_drains(w);
    sync(w);
    int rc = control_tick(w->control, w->now_us);
    w->ticked_need_s = market_need_at(w->setup->need, second_of(w));
    w->result->ticks++;
    look(w);
    bury(w);
    count_ready(w);
    check_single(w);
    check_budget(w);
    return rc;
}

static void set_service(struct world *w)
{
    const struct clouds_setup *s = w->setup;
    struct plan_service *v = &w->service;
    *v = (struct plan_service){ .name = SERVICE,
                                .min = 1,
                                .max = POOL_INSTANCES_MAX,
                                .ttft_slo_s = TTFT_SLO_S,
                                .tpot_slo_s = TPOT_SLO_S,
                                .budget_h = s->budget_h,
                                .budget = { .hour = s->budget_h },
                                .policy = s->scale ? s->scale : scale_find(STR(SCALE_DEFAULT)),
                                .scale = SCALE_CONFIG_DEFAULT,
                                .shaper = scale_shape_find(STR(SCALE_SHAPER_DEFAULT)),
                                .place = s->place ? s->place : place_find(STR(PLACE_DEFAULT)),
                                .mix = s->mix };
    v->scale.utilisation_max = CLOUDS_UTILISATION;
    v->scale.attainment = ATTAINMENT;
    if (s->margin > 0) v->scale.margin = s->margin;
    v->shape = v->shaper->published;
    v->shape.down_window_s = DOWN_WINDOW_S;
    for (uint32_t k = 0; k < MARKET_POOLS; k++) { /* offers of all providers stand in this order */
        if (!s->pool[k]) continue;
        struct plan_pool *p = &v->pool[v->pool_count];
        *p = (struct plan_pool){ .max = POOL_INSTANCES_MAX, .manual = -1 };
        snprintf(p->name, sizeof p->name, "pool%u", v->pool_count++);
        snprintf(p->provider, sizeof p->provider, "%s",
                 market_provider[market_pool[k].provider].name);
        for (uint32_t z = s->no_spot ? MARKET_ZONES : 0; z < CLOUDS_OFFERS; z++)
            p->offer[p->offer_count++] = k * CLOUDS_OFFERS + z;
    }
}

static int begin(struct world *w, struct err *err)
{
    static const struct str args[] = { { "muster", 6 }, { "engine", 6 } };
    int rc = store_memory_open(STORE_ENTRIES, &w->store, err);
    if (rc < 0) return rc;
    set_service(w);
    for (uint32_t p = 0; p < SCALE_POOLS_MAX; p++)
        w->launch[0][p] = (struct control_launch){ .engine_args = args, .engine_arg_count = 2 };
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        w->cloud[p] = w->setup->seller[p].cloud;
    w->control_setup = (struct control_setup){
        .service = &w->service,
        .service_count = 1,
        .launch = (const struct control_launch(*)[SCALE_POOLS_MAX])w->launch,
        .cloud = w->cloud,
        .cloud_count = MARKET_PROVIDERS,
        .store = w->store,
        .merge = MERGE_CONFIG_DEFAULT,
        .host = STR("10.0.0.1"),
        .port = 8090,
        .engine_host = STR("127.0.0.1"),
        .secret = STR("0123456789abcdef0123456789abcdef"),
        .lease_ms = 15000,
        .decisions_max = 200,
        .seed = w->setup->seed,
    };
    w->control_setup.merge.boot_us = BOOT_US;
    return control_new(&w->control_setup, w->now_us, &w->control, err);
}

int clouds_run(const struct clouds_setup *setup, struct clouds_result *ret, struct err *err)
{
    struct world *w = calloc(1, sizeof *w);
    if (!w) return err_set(err, -ENOMEM, "no memory for a world");
    *ret = (struct clouds_result){ 0 };
    w->setup = setup;
    w->result = ret;
    w->now_us = CLOUDS_START;
    arena_init(&w->arena, SYNC_BYTES_MAX);
    request_lengths(&w->lengths);
    for (uint32_t k = 0; k < MARKET_POOLS; k++)
        w->ability[k] = ability_of(k);
    int rc = begin(w, err);
    int64_t end_us = CLOUDS_START + (int64_t)setup->days * 86400 * CLOUDS_SECOND;
    while (rc == 0 && w->now_us < end_us) {
        rc = turn(w);
        int64_t next = next_us(w, end_us);
        account(w, next);
        check_orphans(w, next - w->now_us);
        w->now_us = next;
    }
    control_free(w->control);
    store_close(w->store);
    arena_fini(&w->arena);
    free(w);
    return rc;
}
