/* t_gate_place.c - judges spot placement over generated zones: availability, cost, and regret against
 * a clairvoyant.
 *
 * World. Five zones; each is up and down for exponential times (MTBF, MTTR); `correlation` is the
 * share of a zone's losses that strike several zones at once. A zone that goes takes all
 * instances in it, without notice. A launch where there is no capacity is refused and backed off
 * from as the controller does. Spot costs 0.35 of on demand; from launch to ready LEAD_S; what is
 * launched is paid until it ends, start-up included.
 *
 * Zones are drawn by seed and zone alone, so that all policies meet the same ones.
 *
 * Clairvoyant. A lower bound: one place of the N, filled at least cost by dynamic programming over
 * the known future, with start-ups paid (but begun in time) and missing time at a price p. For any p,
 * cost(p) - p * allowed is below the cost of every schedule that misses no more than `allowed`; the
 * best p of a grid counts. N such places bound N instances, whether availability counts only times
 * with all N or not.
 */
#include "base/core/bits.h"
#include "policies/place/place.h"
#include "tests/sim_gates/gate.h"
#include "tests/sim_gates/judged.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ZONES 5
#define OFFERS (ZONES + 1) /* the last is on demand */
#define TARGET 8
#define TICK_S 30
#define DAYS 14
#define TICKS (DAYS * 86400 / TICK_S)
#define WARM_TICKS 20 /* the first start, not judged */
#define LEAD_S 120
#define LEAD_TICKS (LEAD_S / TICK_S)
#define RATIO 0.35
#define SHOCK_HITS 0.5 /* chance that a shock strikes the shakiest zone */
#define AVAILABILITY 0.99
#define SEEDS 20
#define INSTANCES_MAX 64
#define ROUNDING 1e-9 /* of a sum of 40,000 terms, with room to spare */

struct zones {
    const char *name;
    double mtbf_h[ZONES], mttr_h[ZONES], correlation;
    double regret_max; /* of joint, in % of what a clairvoyant pays; the whole interval */
};

static const struct zones worlds[] = {
    { "even, MTBF 12 h, MTTR 1 h", { 12, 12, 12, 12, 12 }, { 1, 1, 1, 1, 1 }, 0.2, 15 },
    /* Up-times and drops of the best, the worst and three middle zones of the public V100 traces
     * (availability 91 % to 17 %, 94 to 343 drops in 45.5 days). */
    { "uneven, as the public traces",
      { 10.6, 5.5, 3.0, 1.5, 0.54 },
      { 1.05, 1.8, 2.5, 2.7, 2.6 },
      0.2,
      15 },
    /* 15 of the mean of ten seeds before whole intervals were judged: 13.0; of twenty 14.2 +-1.6. */
    { "hard, MTBF 3 h, MTTR 1 h", { 3, 3, 3, 3, 3 }, { 1, 1, 1, 1, 1 }, 0.2, 17 },
};

static bool up[TICKS][ZONES];

/* The loss of giving up a ready instance, in seconds of its time; told: the policy knows of it. */
static double leave_s;
static bool leave_told;

/* Draws when each zone is up. Shocks strike each zone with a chance in proportion to its own rate of
 * losses, the shakiest with SHOCK_HITS, so often that they make up `correlation` of every zone's
 * losses; a zone's own losses are the rest, so that its MTBF stays as given. */
static void draw(const struct zones *w, uint64_t seed)
{
    struct rng own[ZONES], shock;
    double left_h[ZONES], fastest = 0;
    bool is_up[ZONES];
    rng_stream(&shock, seed, ZONES, 2);
    for (uint32_t z = 0; z < ZONES; z++) {
        rng_stream(&own[z], seed, z, 1);
        fastest = fmax(fastest, 1 / w->mtbf_h[z]);
        is_up[z] = rng_f64(&own[z]) < w->mtbf_h[z] / (w->mtbf_h[z] + w->mttr_h[z]);
        left_h[z] = rng_exp(&own[z], is_up[z] ? w->mtbf_h[z] / (1 - w->correlation) : w->mttr_h[z]);
    }
    double shock_mean_h = SHOCK_HITS / (w->correlation * fastest);
    double shock_h = rng_exp(&shock, shock_mean_h);
    for (uint32_t t = 0; t < TICKS; t++) {
        shock_h -= TICK_S / 3600.0;
        bool strikes = shock_h <= 0;
        if (strikes) shock_h = rng_exp(&shock, shock_mean_h);
        for (uint32_t z = 0; z < ZONES; z++) {
            up[t][z] = is_up[z];
            bool hit = strikes && rng_f64(&shock) < SHOCK_HITS / (w->mtbf_h[z] * fastest);
            left_h[z] -= TICK_S / 3600.0;
            if (left_h[z] > 0 && !(hit && is_up[z])) continue;
            is_up[z] = !is_up[z];
            left_h[z] =
                rng_exp(&own[z], is_up[z] ? w->mtbf_h[z] / (1 - w->correlation) : w->mttr_h[z]);
        }
    }
}

static double price(uint32_t offer)
{
    return offer == ZONES ? 1 : RATIO;
}

/* ---- a policy at work ---- */

struct instance {
    uint32_t offer, ready_at;
};

struct fleet {
    struct instance instance[INSTANCES_MAX];
    uint32_t count;
    struct place_view view;
    uint32_t again_at[OFFERS], failures[OFFERS];
};

struct outcome {
    double cost, available, capacity, dark; /* dark: no instance at all */
    uint32_t launches, refusals;
};

static void lose(struct fleet *f, uint32_t t)
{
    for (uint32_t i = 0; i < f->count;) {
        uint32_t o = f->instance[i].offer;
        if (o == ZONES || up[t][o]) {
            i++;
            continue;
        }
        f->view.offer[o].lost++;
        f->instance[i] = f->instance[--f->count];
    }
}

static uint32_t count_up(struct fleet *f, uint32_t t)
{
    uint32_t ready = 0;
    for (uint32_t o = 0; o < OFFERS; o++) {
        f->view.offer[o].ready = f->view.offer[o].starting = 0;
        f->view.offer[o].usable = t >= f->again_at[o];
    }
    for (uint32_t i = 0; i < f->count; i++) {
        struct place_offer *o = &f->view.offer[f->instance[i].offer];
        bool is_ready = t >= f->instance[i].ready_at;
        o->ready += is_ready;
        o->starting += !is_ready;
        ready += is_ready;
    }
    return ready;
}

static void launch(struct fleet *f, uint32_t o, uint32_t n, uint32_t t, struct outcome *out)
{
    if (n == 0 || !f->view.offer[o].usable) return;
    if (o < ZONES && !up[t][o]) { /* sold out: 20 s, doubled up to 180 s */
        f->view.offer[o].refused++;
        out->refusals++;
        uint32_t wait_s = min_u32(20u << min_u32(f->failures[o]++, 4), 180);
        f->again_at[o] = t + max_u32(wait_s / TICK_S, 1);
        return;
    }
    f->failures[o] = 0;
    for (; n > 0 && f->count < INSTANCES_MAX; n--, out->launches++)
        f->instance[f->count++] = (struct instance){ o, t + LEAD_TICKS };
}

static void end(struct fleet *f, uint32_t o, uint32_t n, uint32_t t, struct outcome *out)
{
    for (int pass = 0; pass < 2; pass++) /* starting instances before ready ones */
        for (uint32_t i = 0; i < f->count && n > 0;) {
            bool starting = t < f->instance[i].ready_at;
            if (f->instance[i].offer != o || starting != (pass == 0)) {
                i++;
                continue;
            }
            if (!starting) out->cost += price(o) * leave_s / 3600;
            f->instance[i] = f->instance[--f->count];
            n--;
        }
}

static struct outcome run(const struct place_policy *policy)
{
    static struct fleet f;
    _Alignas(8) char state[PLACE_STATE_BYTES_MAX] = { 0 };
    struct outcome out = { 0 };
    struct rng rng;
    rng_seed(&rng, 1);
    memset(&f, 0, sizeof f);
    f.view = (struct place_view){ .offer_count = OFFERS,
                                  .target = TARGET,
                                  .availability = AVAILABILITY };
    for (uint32_t o = 0; o < OFFERS; o++)
        f.view.offer[o] = (struct place_offer){ .spot = o < ZONES,
                                                .price_h = price(o),
                                                .lead_s = LEAD_S,
                                                .leave_s = leave_told ? leave_s : 0 };
    for (uint32_t t = 0; t < TICKS; t++) {
        lose(&f, t);
        uint32_t ready = count_up(&f, t);
        if (t >= WARM_TICKS) {
            out.available += ready >= TARGET;
            out.capacity += (double)min_u32(ready, TARGET) / TARGET;
            out.dark += ready == 0;
        }
        struct place_verdict v;
        policy->choose(state, &f.view, (int64_t)(t + 1) * TICK_S * 1000000, &rng, &v);
        for (uint32_t o = 0; o < OFFERS; o++) {
            uint32_t have = place_have(&f.view.offer[o]);
            if (v.want[o] > have) launch(&f, o, v.want[o] - have, t, &out);
            if (v.want[o] < have) end(&f, o, have - v.want[o], t, &out);
        }
        for (uint32_t i = 0; i < f.count; i++)
            out.cost += price(f.instance[i].offer) * TICK_S / 3600.0;
    }
    out.available /= TICKS - WARM_TICKS;
    out.capacity /= TICKS - WARM_TICKS;
    out.dark /= TICKS - WARM_TICKS;
    return out;
}

/* ---- the clairvoyant ---- */

/* fmin is a call, and most of a bound's time. */
static double lesser(double a, double b)
{
    return a < b ? a : b;
}

/* Returns the least cost of one place when missing time costs `fine` an hour, less the fine on the
 * time that may be missed. */
static double bound(double fine)
{
    double cost[OFFERS + 1], next[OFFERS + 1]; /* the last state: no instance */
    uint32_t since[ZONES] = { 0 };             /* ticks that a zone has been up */
    double tick_h = TICK_S / 3600.0;
    for (uint32_t s = 0; s <= OFFERS; s++)
        cost[s] = s == OFFERS ? 0 : 1e30;
    for (uint32_t t = 0; t < TICKS; t++) {
        double least = 1e30;
        for (uint32_t s = 0; s <= OFFERS; s++)
            least = lesser(least, cost[s]);
        for (uint32_t z = 0; z < ZONES; z++)
            since[z] = up[t][z] ? since[z] + 1 : 0;
        for (uint32_t s = 0; s < OFFERS; s++) {
            bool there = s == ZONES || up[t][s];
            /* Begun LEAD_TICKS ago in the same up-time; the start-up is paid on arrival. */
            bool came = t >= LEAD_TICKS && (s == ZONES || since[s] > LEAD_TICKS);
            double from = lesser(cost[s], came ? least + price(s) * LEAD_S / 3600.0 : 1e30);
            next[s] = there ? from + price(s) * tick_h : 1e30;
        }
        next[OFFERS] = least + (t >= WARM_TICKS ? fine * tick_h : 0);
        memcpy(cost, next, sizeof cost);
    }
    double best = 1e30;
    for (uint32_t s = 0; s <= OFFERS; s++)
        best = lesser(best, cost[s]);
    return best - fine * (1 - AVAILABILITY) * (TICKS - WARM_TICKS) * tick_h;
}

/* A bound is the least of many schedules' costs, each linear in the fine, so it is concave: once it falls, no higher fine
 * gives a better one. */
static double clairvoyant(void)
{
    double best = 0, last = -INFINITY;
    for (double fine = 0.25; fine <= 64; fine *= 1.4142) {
        double b = bound(fine);
        if (b < last - ROUNDING * fabs(last)) break;
        best = fmax(best, b);
        last = b;
    }
    return TARGET * best;
}

/* ---- the gate ---- */

struct sample {
    double v[SEEDS];
};

static struct stats_mean of(const struct sample *s)
{
    return stats_mean(s->v, SEEDS);
}

/* Returns the upper end of the interval of a - b, seed by seed. */
static double most_more(const struct sample *a, const struct sample *b)
{
    struct stats_mean d = stats_paired(a->v, b->v, SEEDS);
    return d.mean + d.half;
}

struct row {
    const struct place_policy *policy;
    struct sample available, capacity, dark, regret, share; /* share: of the cost on demand */
};

static void measure(const struct zones *w, struct row *rows, uint32_t count)
{
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        draw(w, seed + 1);
        double least = clairvoyant();
        double on_demand = TARGET * TICKS * TICK_S / 3600.0;
        for (uint32_t r = 0; r < count; r++) {
            struct outcome o = run(rows[r].policy);
            rows[r].available.v[seed] = 100 * o.available;
            rows[r].capacity.v[seed] = 100 * o.capacity;
            rows[r].dark.v[seed] = 100 * o.dark;
            rows[r].regret.v[seed] = 100 * (o.cost / least - 1);
            rows[r].share.v[seed] = 100 * o.cost / on_demand;
        }
    }
    print_message("%s, correlation %.1f; %d instances, %d days, lead %d s\n", w->name,
                  w->correlation, TARGET, DAYS, LEAD_S);
    for (uint32_t r = 0; r < count; r++)
        print_message(
            "  %-10s available %6.2f +- %.2f %%, capacity %6.2f %%, dark %5.2f %%, regret "
            "%6.1f +- %.1f %%, %5.1f %% of on demand\n",
            rows[r].policy->name, of(&rows[r].available).mean, of(&rows[r].available).half,
            of(&rows[r].capacity).mean, of(&rows[r].dark).mean, of(&rows[r].regret).mean,
            of(&rows[r].regret).half, of(&rows[r].share).mean);
}

static void spot_is_there_and_cheap(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT_OF(worlds); k++) {
        struct row rows[] = { { .policy = &place_joint },
                              { .policy = &place_spot },
                              { .policy = &place_on_demand },
                              { .policy = &place_order } };
        measure(&worlds[k], rows, COUNT_OF(rows));
        judged_add("place=joint");
        judged_add("place=spot");
        judged_add("place=on_demand");
        gate_interval_above("joint available, %", of(&rows[0].available), 99);
        gate_interval_below("joint's regret, %", of(&rows[0].regret), worlds[k].regret_max);
        assert_true(most_more(&rows[0].regret, &rows[1].regret) < 0);
        assert_true(most_more(&rows[0].regret, &rows[2].regret) < -100); /* measured -186 */
    }
}

/* Where zones go every hour and an instance that is given up loses an hour of work, joint moves less often once it
 * knows that, and pays less than one that always returns to what is cheapest. */
static void a_move_that_does_not_pay_is_not_made(void **state)
{
    (void)state;
    const struct zones flaky = { "MTBF 1 h", { 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1 }, 0.2, 0 };
    double more[10], available[10];
    leave_s = 3600;
    for (uint32_t seed = 0; seed < COUNT_OF(more); seed++) {
        draw(&flaky, seed + 1);
        leave_told = true;
        struct outcome told = run(&place_joint);
        leave_told = false;
        struct outcome always = run(&place_joint);
        more[seed] = 100 * (told.cost / always.cost - 1);
        available[seed] = 100 * (told.available - always.available);
    }
    leave_s = 0;
    /* measured -31.5 +-4.7 %, available 0.6 points more */
    gate_interval_below("cost against always returning, %", stats_mean(more, COUNT_OF(more)), -20);
    gate_interval_above("available more, points", stats_mean(available, COUNT_OF(more)), 0);
}

/* Runs the real plan in the simulator: a pool with one spot offer that goes every twenty minutes. A
 * policy that did not ask it again would serve no request afterwards. */
static void the_only_offer_is_asked_again(void **state)
{
    (void)state;
    struct gate g = gate_run("--trace gen:poisson,rate=1.5,prompt=300,output=100,n=6000 "
                             "--fleet 1-8xl4:spot:zone1@0.35 --zone-up 20m --zone-down 5m "
                             "--lead-time 60s --slo-ttft 2s --slo-tpot 200ms --scale-policy work "
                             "--compare place=order,joint --seeds 10");
    struct stats_mean order = gate_mean(&g, NULL, "slo.attainment");
    struct stats_mean joint = gate_difference(&g, "place=joint", "slo.attainment");
    gate_interval_above("attainment with one spot offer, first that may be asked", order, 0.3);
    gate_interval_above("joint's more", joint, -0.01);
    gate_free(&g);
}

/* Where zones go three times an hour, joint keeps the SLO better than SkyServe's policy, which always
 * holds a spare, and costs less. The plan is the real one. */
static void joint_costs_less_where_zones_go_often(void **state)
{
    (void)state;
    struct gate g = gate_run("--trace gen:poisson,rate=8,prompt=300,output=100,n=30000 --fleet "
                             "1-12xl4@3.43,0-12xl4:spot:zone0@1.19,0-12xl4:spot:zone1@1.20,"
                             "0-12xl4:spot:zone2@1.21 --zone-up 20m --zone-down 10m "
                             "--lead-time 60s --slo-ttft 2s --slo-tpot 200ms --scale-policy work "
                             "--compare place=spot,joint --seeds 20");
    struct stats_mean cost = gate_share(&g, "place=joint", "place=spot", "cost_usd");
    struct stats_mean kept = gate_difference(&g, "place=joint", "slo.attainment");
    gate_interval_below("cost against SkyServe's policy", cost, 0); /* measured -10.9 +-9.9 % */
    gate_interval_above("attainment more than its", kept, 0);       /* +.75 +-.55 points */
    gate_free(&g);
}

/* Of two offers the cheaper is ready in two minutes and the dearer in a quarter of one, as the file
 * states at first and launches teach. Under bursts an instance that is ready in time is worth its
 * price. */
static void what_is_ready_first_keeps_the_slo(void **state)
{
    (void)state;
    char path[] = "/tmp/t_gate_place_XXXXXX";
    static const char file[] =
        "local:\n"
        "  offers:\n"
        "    - { name: far, share: 1, price_per_hour: 1, launch_delay: 100s, lead: 20s }\n"
        "    - { name: near, share: 1, price_per_hour: 1, launch_delay: 5s, lead: 10s }\n"
        "services:\n"
        "  - name: s\n"
        "    model: none\n"
        "    slo_ttft: 4s\n"
        "    pools: [ { name: a, offers: [far] }, { name: b, offers: [near] } ]\n";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, file, sizeof file - 1), (ssize_t)sizeof file - 1);
    close(fd);
    char words[512];
    snprintf(
        words, sizeof words,
        "--trace gen:gamma,rate=6,cv=4,prompt=lognormal(800,1),output=lognormal(200,0.6),n=4000 "
        "--fleet 1-12xl4@1,0-12xl4:zone1@1.3 --config %s --compare "
        "place=joint,on_demand,serverlessllm --seeds 10",
        path);
    struct gate g = gate_run(words);
    unlink(path);
    struct stats_mean more = gate_difference(&g, "place=serverlessllm", "slo.attainment");
    gate_above("attainment more than joint's, ready first", more.mean - more.half, 0.05);
    struct stats_mean ttft = gate_share(&g, "place=serverlessllm", "place=joint", "ttft_s.mean");
    gate_interval_below("mean TTFT against joint's", ttft, -0.5);
    gate_free(&g);
}

static void every_policy_is_held_against_something(void **state)
{
    (void)state;
    assert_int_equal(judged_missed("place", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(spot_is_there_and_cheap),
                                        cmocka_unit_test(a_move_that_does_not_pay_is_not_made),
                                        cmocka_unit_test(the_only_offer_is_asked_again),
                                        cmocka_unit_test(joint_costs_less_where_zones_go_often),
                                        cmocka_unit_test(what_is_ready_first_keeps_the_slo),
                                        cmocka_unit_test(every_policy_is_held_against_something) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
