/* t_scale_properties.c - tests what every scaling policy keeps to, on random views of two kinds.
 *
 * In a *life* demand wanders and jumps, the fleet follows the policy after a lead, and the clock stands,
 * leaps and goes back. A *wild* view has every number at the ends of what the wire accepts (0 to 1e18):
 * nonsense, but a peer may send it, and a policy must decide within bounds.
 */
#include "base/core/bits.h"
#include "policies/scale/scale.h"
#include "policies/scale/shape/shape.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#define SECOND ((int64_t)1000000)
#define INSTANCES 96
#define LIVES 6
#define LIFE_STEPS 300
#define WILD_VIEWS 400
#define STARTS_MAX 64 /* instances under way */

struct state {
    uint64_t bytes[SCALE_STATE_BYTES_MAX / 8];
};

/* A random service. */
struct service {
    struct rng rng;
    struct scale_config config;
    struct scale_view v;
    struct scale_instance in[INSTANCES];
    int64_t now_us;
    double rate; /* the true arrivals a second */
    struct start {
        uint32_t pool;
        int64_t ready_us; /* 0: an unused entry */
    } start[STARTS_MAX];
};

static double within(struct rng *rng, double low, double high)
{
    return low + rng_f64(rng) * (high - low);
}

static uint32_t below(struct rng *rng, uint32_t bound)
{
    return (uint32_t)rng_below(rng, bound);
}

static bool once_in(struct rng *rng, uint32_t times)
{
    return rng_below(rng, times) == 0;
}

/* Returns any numbers that muster.yaml accepts. */
static struct scale_config any_config(struct rng *rng)
{
    struct scale_config c = SCALE_CONFIG_DEFAULT;
    c.count = 1 + below(rng, 5);
    if (once_in(rng, 2)) return c;
    c.margin = within(rng, 0.1, 3);
    c.utilisation_max = within(rng, 0.05, 0.99);
    c.attainment = within(rng, 0.5, 0.9999);
    c.clear_s = within(rng, 0.1, 3600);
    c.life_s = within(rng, 1, 7200);
    c.zero_after_s = within(rng, 0, 100);
    c.queue_target = within(rng, 0.1, 20);
    c.concurrency = within(rng, 0.1, 200);
    c.ongoing_target = within(rng, 0.1, 10);
    c.qps_target = within(rng, 1e-3, 5);
    c.kv_target = within(rng, 0.01, 1);
    return c;
}

/* ---- lives ---- */

static struct scale_pool any_pool(struct rng *rng)
{
    static const double lead_s[] = { 0, 1, 20, 37, 100, 300, 5000 };
    double speed = within(rng, 0.5, 4);
    struct scale_pool p = { .min = below(rng, 2),
                            .available = true,
                            .price_h = once_in(rng, 8) ? 0 : within(rng, 0.5, 4),
                            .lead_s = lead_s[below(rng, COUNT_OF(lead_s))],
                            .perf_known = !once_in(rng, 6),
                            .perf = { .step_s = once_in(rng, 8) ? 0 : 0.011 / speed,
                                      .prefill_token_s = 7e-5 / speed,
                                      .decode_seq_s = once_in(rng, 8) ? 0 : 1.2e-4 / speed,
                                      .kv_read_s = 1e-7 / speed },
                            .seqs_max = 1 + below(rng, 256),
                            .kv_tokens_max = once_in(rng, 4) ? 0 : 20000 + rng_below(rng, 500000),
                            .step_tokens = once_in(rng, 4) ? 0 : 512 + below(rng, 4096),
                            .context_tokens = once_in(rng, 4) ? 0 : 8192 };
    p.max = p.min + below(rng, 12);
    p.ready = below(rng, p.max + 1);
    return p;
}

static void any_service(uint64_t seed, struct service *s)
{
    *s = (struct service){ 0 };
    rng_seed(&s->rng, seed);
    s->config = any_config(&s->rng);
    s->now_us = once_in(&s->rng, 2) ? 0 : (int64_t)1795000000 * SECOND; /* simulated, or the date */
    s->rate = within(&s->rng, 0, 20);
    s->v = (struct scale_view){ .pool_count = 1 + below(&s->rng, 3),
                                .ttft_slo_s = within(&s->rng, 0.2, 3),
                                .tpot_slo_s = within(&s->rng, 0.01, 0.2),
                                .budget_h = once_in(&s->rng, 2) ? within(&s->rng, 1, 30) : 0 };
    for (uint32_t i = 0; i < s->v.pool_count; i++)
        s->v.pool[i] = any_pool(&s->rng);
}

static void fill_lengths(struct rng *rng, struct lengths *l)
{
    *l = (struct lengths){ 0 };
    for (uint32_t n = below(rng, 4); n > 0; n--)
        lengths_add(l, within(rng, 0, 4000), within(rng, 0, 800), 1 + below(rng, 30));
    lengths_mean(l);
}

static void fill_instances(struct service *s)
{
    s->v.instance = s->in;
    s->v.instance_count = 0;
    for (uint32_t i = 0; i < s->v.pool_count; i++) {
        struct scale_pool *p = &s->v.pool[i];
        p->starting = 0;
        p->left_s = 0;
        for (uint32_t k = 0; k < STARTS_MAX; k++) {
            if (s->start[k].ready_us == 0 || s->start[k].pool != i) continue;
            double left_s = fmax(0, (double)(s->start[k].ready_us - s->now_us) / 1e6);
            p->left_s = (p->left_s * p->starting + left_s) / (p->starting + 1);
            p->starting++;
            if (s->v.instance_count < INSTANCES && !once_in(&s->rng, 5))
                s->in[s->v.instance_count++] =
                    (struct scale_instance){ .id = 1000 + k, .pool = i, .left_s = left_s };
        }
        for (uint32_t k = 0; k < p->ready && s->v.instance_count < INSTANCES; k++)
            s->in[s->v.instance_count++] =
                (struct scale_instance){ .id = 100 * i + k,
                                         .pool = i,
                                         .ready = true,
                                         .fresh = !once_in(&s->rng, 6),
                                         .running = below(&s->rng, 40),
                                         .waiting = below(&s->rng, 8),
                                         .kv_tokens = rng_below(&s->rng, 200000),
                                         .kv_tokens_max = once_in(&s->rng, 8) ? 0 : 100000,
                                         .prefill_known = !once_in(&s->rng, 8),
                                         .prefill_tokens = rng_below(&s->rng, 9000) };
    }
}

static void fill_demand(struct service *s, double passed_s)
{
    struct scale_demand *d = &s->v.demand;
    struct rng *rng = &s->rng;
    uint64_t came = (uint64_t)(s->rate * fmax(passed_s, 0) * within(rng, 0.5, 1.5));
    d->present = !once_in(rng, 12);
    d->arrivals_s = s->rate * within(rng, 0.8, 1.2);
    d->arrivals_total = once_in(rng, 90) ? 0 : d->arrivals_total + came;
    d->slo_known = !once_in(rng, 9);
    d->slo_met_total = once_in(rng, 90) ? 0 : d->slo_met_total + came;
    d->slo_missed_total += once_in(rng, 3) ? came / 8 : 0;
    d->prompt_tokens = within(rng, 0, 4000);
    d->output_tokens = within(rng, 0, 600);
    d->in_flight = (uint32_t)(s->rate * within(rng, 0, 20));
    d->waiting = once_in(rng, 4) ? below(rng, 200) : 0;
    d->held = once_in(rng, 6) ? below(rng, 50) : 0;
    d->held_prompt_tokens = d->held * (uint64_t)900;
    d->idle_s = s->rate > 0 ? 0 : d->idle_s + fmax(passed_s, 0);
    d->ttft_known = once_in(rng, 2);
    d->ttft_s = within(rng, 0, 4);
    d->tpot_known = once_in(rng, 2);
    d->tpot_s = within(rng, 0, 0.2);
    fill_lengths(rng, &d->expected);
    fill_lengths(rng, &d->queued);
}

/* Makes the next view, mostly a second later. */
static void live(struct service *s)
{
    static const double passed_s[] = { 0, 0.02, 0.7, 2.5, 40, 900, -0.5, -200 };
    struct rng *rng = &s->rng;
    double step_s = once_in(rng, 12) ? passed_s[below(rng, COUNT_OF(passed_s))] : 1;
    s->now_us = max_i64(0, s->now_us + (int64_t)(step_s * 1e6));
    if (once_in(rng, 40)) s->rate = once_in(rng, 4) ? 0 : within(rng, 0, 60);
    s->rate *= within(rng, 0.97, 1.03);
    for (uint32_t i = 0; i < s->v.pool_count; i++) {
        if (once_in(rng, 30)) s->v.pool[i].available ^= true;
        if (once_in(rng, 90) && s->v.pool[i].ready > 0) s->v.pool[i].ready--; /* an instance died */
        s->v.pool[i].perf.samples = once_in(rng, 50) ? 0 : 1;
    }
    for (uint32_t k = 0; k < STARTS_MAX; k++) {
        if (s->start[k].ready_us == 0 || s->start[k].ready_us > s->now_us) continue;
        s->v.pool[s->start[k].pool].ready++;
        s->start[k].ready_us = 0;
    }
    fill_demand(s, step_s);
    fill_instances(s);
}

/* Launches and drains what is wanted; one verdict in four is lost. */
static void follow(struct service *s, const struct scale_choice *c)
{
    if (once_in(&s->rng, 4)) return;
    for (uint32_t i = 0; i < s->v.pool_count; i++) {
        struct scale_pool *p = &s->v.pool[i];
        if (c->want[i] < p->ready) p->ready = c->want[i];
        uint32_t more = c->want[i] > scale_have(p) ? c->want[i] - scale_have(p) : 0;
        for (uint32_t k = 0; k < STARTS_MAX && more > 0; k++) {
            if (s->start[k].ready_us != 0) continue;
            int64_t lead_us = (int64_t)(p->lead_s * within(&s->rng, 0.5, 2) * 1e6);
            s->start[k] = (struct start){ i, s->now_us + 1 + lead_us };
            more--;
        }
    }
}

/* ---- wild views ---- */

static double wild(struct rng *rng)
{
    static const double ends[] = { 0, 0, 1e-300, 1e-9, 0.5, 1, 40, 1e6, 1e18 };
    return ends[below(rng, COUNT_OF(ends))];
}

static uint64_t wild_count(struct rng *rng)
{
    static const uint64_t ends[] = { 0, 0, 1, 7, 100000, UINT32_MAX, UINT64_MAX };
    return ends[below(rng, COUNT_OF(ends))];
}

static void wild_lengths(struct rng *rng, struct lengths *l)
{
    *l = (struct lengths){ .count = wild(rng),
                           .age_s = wild(rng),
                           .prompt = wild(rng),
                           .output = wild(rng),
                           .prompt_sq = wild(rng),
                           .output_sq = wild(rng),
                           .cross = wild(rng) };
}

static void wild_pool(struct rng *rng, struct scale_pool *p)
{
    *p = (struct scale_pool){ .min = below(rng, 3),
                              .ready = below(rng, 3) * below(rng, 2000),
                              .starting = below(rng, 3),
                              .available = !once_in(rng, 4),
                              .price_h = wild(rng),
                              .lead_s = wild(rng),
                              .left_s = wild(rng),
                              .perf = { wild(rng), wild(rng), wild(rng), wild(rng),
                                        .attend_s = wild(rng) },
                              .seqs_max = 1 + (uint32_t)(wild_count(rng) / 2),
                              .kv_tokens_max = wild_count(rng),
                              .step_tokens = (uint32_t)wild_count(rng),
                              .context_tokens = (uint32_t)wild_count(rng) };
    p->max = once_in(rng, 3) ? SCALE_COUNT_MAX : p->min + below(rng, 6);
    p->perf_known = perf_coef_valid(&p->perf);
}

static void wild_view(struct service *s)
{
    struct rng *rng = &s->rng;
    struct scale_view *v = &s->v;
    *v = (struct scale_view){ .pool_count = below(rng, SCALE_POOLS_MAX + 1),
                              .instance = s->in,
                              .ttft_slo_s = fmax(wild(rng), 1e-3),
                              .tpot_slo_s = fmax(wild(rng), 1e-4),
                              .budget_h = wild(rng) };
    for (uint32_t i = 0; i < v->pool_count; i++)
        wild_pool(rng, &v->pool[i]);
    v->instance_count = v->pool_count ? below(rng, 9) : 0;
    for (uint32_t i = 0; i < v->instance_count; i++)
        s->in[i] = (struct scale_instance){ .id = wild_count(rng),
                                            .pool = below(rng, v->pool_count),
                                            .ready = once_in(rng, 2),
                                            .fresh = !once_in(rng, 4),
                                            .left_s = wild(rng),
                                            .running = (uint32_t)wild_count(rng),
                                            .waiting = (uint32_t)wild_count(rng),
                                            .kv_tokens = wild_count(rng),
                                            .kv_tokens_max = wild_count(rng),
                                            .prefill_known = once_in(rng, 2),
                                            .prefill_tokens = wild_count(rng) };
    v->demand = (struct scale_demand){ .present = !once_in(rng, 8),
                                       .arrivals_s = wild(rng),
                                       .prompt_tokens = wild(rng),
                                       .output_tokens = wild(rng),
                                       .in_flight = (uint32_t)wild_count(rng),
                                       .waiting = (uint32_t)wild_count(rng),
                                       .held = (uint32_t)wild_count(rng),
                                       .idle_s = wild(rng),
                                       .ttft_known = once_in(rng, 2),
                                       .ttft_s = wild(rng),
                                       .tpot_known = once_in(rng, 2),
                                       .tpot_s = wild(rng),
                                       .slo_known = once_in(rng, 2),
                                       .slo_met_total = wild_count(rng),
                                       .slo_missed_total = wild_count(rng),
                                       .arrivals_total = wild_count(rng),
                                       .held_prompt_tokens = wild_count(rng) };
    wild_lengths(rng, &v->demand.expected);
    wild_lengths(rng, &v->demand.queued);
    s->now_us += (int64_t)(wild(rng) < 1 ? 1 : below(rng, 90)) * SECOND;
}

/* ---- rules ---- */

static void check_choice(const char *name, const struct scale_view *v, const struct scale_choice *c)
{
    bool more = false;
    for (uint32_t i = 0; i < v->pool_count; i++) {
        const struct scale_pool *p = &v->pool[i];
        if (c->want[i] < p->min || c->want[i] > p->max)
            fail_msg("%s: %u of pool %u, bounds %u to %u", name, c->want[i], i, p->min, p->max);
        if (!p->available && c->want[i] > p->min && c->want[i] > scale_have(p))
            fail_msg("%s: %u of a pool that cannot be had", name, c->want[i]);
        more |= c->want[i] > p->min && c->want[i] > scale_have(p) && p->price_h > 0;
    }
    for (uint32_t i = v->pool_count; i < SCALE_POOLS_MAX; i++)
        assert_int_equal(c->want[i], 0);
    double cost_h = scale_cost_h(v, c->want);
    if (fabs(c->cost_h - cost_h) > 1e-9 * fmax(1, cost_h))
        fail_msg("%s: cost %g, is %g", name, c->cost_h, cost_h);
    if (more && v->budget_h > 0 && cost_h > v->budget_h * (1 + 1e-6))
        fail_msg("%s: buys for %g of %g", name, cost_h, v->budget_h);
}

/* Returns true if an instance is asked for, can be had and is within the budget. */
static bool can_wake(const struct scale_view *v)
{
    const struct scale_demand *d = &v->demand;
    if (!d->present || scale_have_all(v) > 0 || d->held == 0) return false;
    uint32_t min[SCALE_POOLS_MAX] = { 0 };
    for (uint32_t i = 0; i < v->pool_count; i++)
        min[i] = v->pool[i].min;
    double floor_h = scale_cost_h(v, min);
    for (uint32_t i = 0; i < v->pool_count; i++) {
        const struct scale_pool *p = &v->pool[i];
        if (scale_reach(p) == 0) continue;
        if (v->budget_h <= 0 || floor_h + p->price_h <= v->budget_h) return true;
    }
    return false;
}

static void check(const struct scale_policy *policy, const struct service *s,
                  const struct scale_verdict *got)
{
    const struct scale_view *v = &s->v;
    check_choice(policy->name, v, &got->choice);
    if (got->has_runner_up) check_choice(policy->name, v, &got->runner_up);
    assert_non_null(got->reason);
    assert_true(got->has_runner_up == (got->runner_why != NULL));
    if (!isfinite(got->load) || got->load < 0) fail_msg("%s: load %g", policy->name, got->load);
    if (!isfinite(got->estimate_s)) fail_msg("%s: estimate %g", policy->name, got->estimate_s);
    assert_true(got->again_us > s->now_us);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < v->pool_count; i++)
        sum += got->choice.want[i];
    if (sum == 0 && can_wake(v))
        fail_msg("%s: requests are held and nothing is bought", policy->name);
}

static bool is_same(double a, double b)
{
    return !(a < b) && !(a > b);
}

static void check_same(const char *name, const struct scale_verdict *a,
                       const struct scale_verdict *b)
{
    bool same = memcmp(a->choice.want, b->choice.want, sizeof a->choice.want) == 0 &&
                memcmp(a->runner_up.want, b->runner_up.want, sizeof a->runner_up.want) == 0 &&
                a->reason == b->reason && is_same(a->load, b->load) &&
                is_same(a->estimate_s, b->estimate_s) && a->again_us == b->again_us;
    if (!same) fail_msg("%s: two verdicts on one view", name);
}

static void ask(const struct scale_policy *row, const struct service *s, struct state *state,
                struct scale_verdict *ret)
{
    struct rng rng;
    rng_seed(&rng, 1);
    memset(ret, 0xa5, sizeof *ret); /* a policy writes its whole verdict */
    row->decide(state->bytes, &s->config, &s->v, s->now_us, &rng, ret);
}

/* Checks that nothing is written behind the state. */
static void check_tail(const struct scale_policy *policy, const struct state *state)
{
    const char *bytes = (const char *)state->bytes;
    for (uint32_t i = policy->state_size; i < sizeof state->bytes; i++)
        assert_int_equal(bytes[i], 0);
}

/* Runs one life; from its middle on a copy of the state, elsewhere in memory, decides alike. */
static void one_life(const struct scale_policy *policy, uint64_t seed)
{
    static struct service s;
    static struct state state, copy;
    memset(&state, 0, sizeof state);
    any_service(seed, &s);
    for (uint32_t k = 0; k < LIFE_STEPS; k++) {
        struct scale_verdict got, again;
        live(&s);
        if (k == LIFE_STEPS / 2) copy = state;
        ask(policy, &s, &state, &got);
        check(policy, &s, &got);
        if (k >= LIFE_STEPS / 2) {
            ask(policy, &s, &copy, &again);
            check_same(policy->name, &got, &again);
        }
        follow(&s, &got.choice);
    }
    check_tail(policy, &state);
}

static void lives_are_answered_within_bounds(void **state)
{
    (void)state;
    for (uint32_t row = 0; row < scale_count; row++)
        for (uint64_t seed = 1; seed <= LIVES; seed++)
            one_life(scale_table[row], seed);
}

static void wild_views_are_answered_within_bounds(void **state)
{
    (void)state;
    static struct service s;
    static struct state first, kept;
    for (uint32_t row = 0; row < scale_count; row++) {
        const struct scale_policy *p = scale_table[row];
        memset(&kept, 0, sizeof kept);
        s = (struct service){ .config = SCALE_CONFIG_DEFAULT };
        rng_seed(&s.rng, row + 1);
        for (uint32_t k = 0; k < WILD_VIEWS; k++) {
            struct scale_verdict got;
            wild_view(&s);
            s.config = any_config(&s.rng);
            memset(&first, 0, sizeof first);
            ask(p, &s, &first, &got);
            check(p, &s, &got);
            ask(p, &s, &kept, &got);
            check(p, &s, &got);
        }
        check_tail(p, &kept);
    }
}

static void every_row_has_its_name_and_room_for_its_state(void **state)
{
    (void)state;
    for (uint32_t row = 0; row < scale_count; row++) {
        assert_ptr_equal(scale_find(str_from(scale_table[row]->name)), scale_table[row]);
        assert_true(scale_table[row]->state_size <= SCALE_STATE_BYTES_MAX);
        assert_non_null(scale_shape_find(str_from(scale_table[row]->shaper)));
    }
    assert_non_null(scale_find(str_from(SCALE_DEFAULT)));
    assert_null(scale_find(STR("works")));
}

/* Views without a pool, or with a pool of which nothing is known; no demand. */
static void an_empty_view_is_an_answer(void **state)
{
    (void)state;
    static struct service s;
    static struct state kept;
    for (uint32_t row = 0; row < scale_count; row++) {
        memset(&kept, 0, sizeof kept);
        s = (struct service){ .config = SCALE_CONFIG_DEFAULT };
        for (int pools = 0; pools < 2; pools++) {
            s.v = (struct scale_view){ .pool_count = pools, .ttft_slo_s = 1, .tpot_slo_s = 0.1 };
            for (int present = 0; present < 2; present++) {
                struct scale_verdict got;
                s.v.demand.present = present;
                s.now_us += SECOND;
                ask(scale_table[row], &s, &kept, &got);
                check(scale_table[row], &s, &got);
                assert_int_equal(got.choice.want[0], 0);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_its_name_and_room_for_its_state),
        cmocka_unit_test(lives_are_answered_within_bounds),
        cmocka_unit_test(wild_views_are_answered_within_bounds),
        cmocka_unit_test(an_empty_view_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
