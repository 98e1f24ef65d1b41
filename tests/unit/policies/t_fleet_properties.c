/* t_fleet_properties.c - tests what holds for every policy that looks at a fleet, on random fleets.
 *
 * A seed draws a fleet's life: instances that a place policy wants start and are lost, step times are
 * learned, clocks are set back. Verdicts stay within their bounds, are equal for equal bytes of state,
 * and depend neither on the order in which a view lists instances nor on when its clock began. (Views
 * without a past: t_place, t_power, t_migrate.) */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "policies/migrate/migrate.h"
#include "policies/perf/perf_model.h"
#include "policies/place/place.h"
#include "policies/role/role.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#define ROUNDS 300
#define SECOND ((int64_t)1000000)
#define EPOCH_US (1700000000 * SECOND)
#define NEAR 1e-9

static bool chance(struct rng *r, double p)
{
    return rng_f64(r) < p;
}

static double between(struct rng *r, double low, double high)
{
    return low + (high - low) * rng_f64(r);
}

/* Returns a time up to a minute later, now and then an hour earlier. */
static int64_t later(struct rng *r, int64_t now_us)
{
    if (chance(r, 0.03)) return now_us - 3600 * SECOND;
    return now_us + (int64_t)between(r, 0, 60e6);
}

static void shuffle(struct rng *r, uint32_t *at, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        at[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t k = (uint32_t)rng_below(r, i), swap = at[i - 1];
        at[i - 1] = at[k];
        at[k] = swap;
    }
}

/* ---- place ---- */

static void draw_offers(struct rng *r, struct place_view *v)
{
    *v = (struct place_view){ .offer_count = 1 + (uint32_t)rng_below(r, PLACE_OFFERS_MAX),
                              .availability = between(r, 0.9, 0.9999) };
    for (uint32_t i = 0; i < v->offer_count; i++)
        v->offer[i] = (struct place_offer){ .spot = chance(r, 0.7),
                                            .price_h = chance(r, 0.3) ? 1 : between(r, 0.1, 9),
                                            .lead_s = between(r, 0, 600) };
}

/* Starts what was wanted, and loses or refuses some of it. */
static void change_offers(struct rng *r, struct place_view *v, const struct place_verdict *wanted)
{
    if (chance(r, 0.1)) v->target = (uint32_t)rng_below(r, 12);
    for (uint32_t i = 0; i < v->offer_count; i++) {
        struct place_offer *o = &v->offer[i];
        o->usable = chance(r, 0.8);
        o->ready = min_u32(o->ready + o->starting, wanted->want[i]);
        o->starting = wanted->want[i] - o->ready;
        if (o->starting > 0 && chance(r, 0.2)) o->refused++, o->starting = 0;
        if (o->ready > 0 && chance(r, 0.1)) o->lost += o->ready, o->ready = 0;
        if (chance(r, 0.01)) o->lost = o->refused = 0; /* the counters restarted */
    }
}

static void check_place(const struct place_view *v, const struct place_verdict *got)
{
    uint32_t sum = 0, have = 0;
    bool usable = false;
    double cost = 0;
    for (uint32_t i = 0; i < v->offer_count; i++) {
        const struct place_offer *o = &v->offer[i];
        sum += got->want[i];
        have += place_have(o);
        usable |= o->usable;
        cost += got->want[i] * o->price_h;
        if (!o->usable) assert_true(got->want[i] <= place_have(o));
    }
    assert_true(usable ? sum >= v->target : sum >= min_u32(v->target, have));
    assert_true(sum <= have + (v->target + 1) * PLACE_OFFERS_MAX);
    assert_true(fabs(cost - got->cost_h) < NEAR * (1 + cost) && isfinite(got->missing));
    assert_non_null(got->reason);
    if (got->next == PLACE_NONE) return;
    assert_true(got->next < v->offer_count && v->offer[got->next].usable);
    assert_true(got->want[got->next] > place_have(&v->offer[got->next]));
}

static void ask_place(const struct place_policy *policy, void *state, const struct place_view *v,
                      int64_t now_us, struct place_verdict *ret)
{
    struct rng rng;
    rng_seed(&rng, 1);
    policy->choose(state, v, now_us, &rng, ret);
}

static void place_rows_serve_the_target(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < place_count; p++) {
        const struct place_policy *policy = place_table[p];
        for (uint64_t seed = 0; seed < 20; seed++) {
            _Alignas(8) char bytes[PLACE_STATE_BYTES_MAX] = { 0 }, copy[PLACE_STATE_BYTES_MAX];
            _Alignas(8) char dated[PLACE_STATE_BYTES_MAX] = { 0 }; /* its clock counts since 1970 */
            struct place_verdict got = { 0 }, again;
            struct place_view v;
            struct rng r;
            rng_seed(&r, seed);
            draw_offers(&r, &v);
            v.target = 1 + (uint32_t)rng_below(&r, 12);
            int64_t now_us = SECOND;
            for (int turn = 0; turn < ROUNDS; turn++) {
                change_offers(&r, &v, &got);
                now_us = now_us > 7200 * SECOND ? later(&r, now_us) : now_us + 30 * SECOND;
                memcpy(copy, bytes, sizeof copy);
                ask_place(policy, bytes, &v, now_us, &got);
                check_place(&v, &got);
                ask_place(policy, copy, &v, now_us, &again);
                assert_memory_equal(bytes, copy, sizeof bytes);
                assert_memory_equal(got.want, again.want, sizeof got.want);
                ask_place(policy, dated, &v, now_us + EPOCH_US, &again);
                assert_memory_equal(got.want, again.want, sizeof got.want);
                assert_true(got.next == again.next);
            }
        }
    }
}

/* ---- role ---- */

#define ROLE_COUNT_MAX 24

static void draw_roles(struct rng *r, struct role_view *v, struct role_instance *in)
{
    double prompt = between(r, 1, 4000), output = between(r, 1, 900);
    bool alike = chance(r, 0.5);
    *v = (struct role_view){ .instance = in,
                             .instance_count = 1 + (uint32_t)rng_below(r, ROLE_COUNT_MAX),
                             .demand = { chance(r, 0.85), prompt, prompt * prompt * 2, output,
                                         output * output * 2 },
                             .ttft_slo_s = between(r, 0.1, 4),
                             .tpot_slo_s = between(r, 0.01, 0.2),
                             .attainment = between(r, 0.5, 0.999),
                             .link_bytes_s = chance(r, 0.9) ? 25e9 : 0,
                             .token_bytes = 131072,
                             .evaluator = &role_closed_form };
    for (uint32_t i = 0; i < v->instance_count; i++) {
        double speed = alike ? 1 : between(r, 0.5, 2);
        in[i] = (struct role_instance){ .id = i,
                                        .ready = chance(r, 0.85),
                                        .changing = chance(r, 0.05),
                                        .pinned = chance(r, 0.1),
                                        .role = (enum role)rng_below(r, ROLE_COUNT),
                                        .has_perf = chance(r, 0.9),
                                        .perf = { .step_s = 0.01 * speed,
                                                  .prefill_token_s = 1e-4 * speed,
                                                  .decode_seq_s = 1e-4,
                                                  .kv_read_s = 4e-7 * speed,
                                                  .attend_s = 1e-8 },
                                        .token_budget = 2048,
                                        .seqs_max = 256,
                                        .kv_tokens_max = chance(r, 0.9) ? 200000 : 0,
                                        .prompt_pending = rng_below(r, 20000),
                                        .decode_pending = rng_below(r, 250000),
                                        .decoding = (uint32_t)rng_below(r, 200) };
    }
}

static void check_roles(const struct role_view *v, const struct role_verdict *got)
{
    uint32_t of[ROLE_COUNT] = { 0 }, changes = 0, fixed = 0;
    for (uint32_t i = 0; i < v->instance_count; i++) {
        const struct role_instance *in = &v->instance[i];
        assert_in_range(got->role[i], 0, ROLE_COUNT - 1);
        if (!in->ready || in->changing) assert_int_equal(got->role[i], in->role);
        if (in->pinned && got->role[i] != ROLE_BOTH) assert_int_equal(got->role[i], in->role);
        changes += got->role[i] != in->role;
        fixed += in->ready && in->changing;
        if (in->ready) of[got->role[i]]++;
    }
    assert_int_equal(got->changes, changes);
    assert_true(got->again_us > 0 && got->reason);
    assert_false(isnan(got->goodput_rps) || isnan(got->runner_up_rps));
    if (fixed == 0) assert_true(of[ROLE_BOTH] || !of[ROLE_PREFILL] == !of[ROLE_DECODE]);
}

static void role_rows_leave_no_phase_to_nobody(void **state)
{
    (void)state;
    static struct role_verdict got, again;
    static _Alignas(8) char bytes[ROLE_STATE_BYTES_MAX], copy[ROLE_STATE_BYTES_MAX];
    for (uint32_t p = 0; p < role_count; p++) {
        struct rng r, of_row;
        rng_seed(&r, 7 + p);
        memset(bytes, 0, sizeof bytes);
        for (int turn = 0; turn < ROUNDS / 4; turn++) {
            struct role_instance in[ROLE_COUNT_MAX], mixed[ROLE_COUNT_MAX];
            uint32_t at[ROLE_COUNT_MAX];
            struct role_view v;
            draw_roles(&r, &v, in);
            memcpy(copy, bytes, sizeof copy);
            rng_seed(&of_row, 1);
            role_decide(role_table[p], bytes, &v, 1000, &of_row, &got);
            check_roles(&v, &got);

            shuffle(&r, at, v.instance_count);
            for (uint32_t i = 0; i < v.instance_count; i++)
                mixed[i] = in[at[i]];
            v.instance = mixed;
            rng_seed(&of_row, 1);
            role_decide(role_table[p], copy, &v, 1000, &of_row, &again);
            for (uint32_t i = 0; i < v.instance_count; i++)
                assert_int_equal(again.role[i], got.role[at[i]]);
            assert_memory_equal(bytes, copy, sizeof bytes);
        }
    }
}

/* ---- migrate ---- */

#define MIGRATE_COUNT 10
#define SESSIONS 8

static uint32_t draw_migrate(struct rng *r, struct migrate_instance *in,
                             struct migrate_session (*session)[SESSIONS])
{
    uint32_t count = 1 + (uint32_t)rng_below(r, MIGRATE_COUNT);
    for (uint32_t i = 0; i < count; i++) {
        in[i] = (struct migrate_instance){ .id = 3 * i,
                                           .present = chance(r, 0.9),
                                           .draining = chance(r, 0.15),
                                           .pages_free = (uint32_t)rng_below(r, 300),
                                           .queue_pages = chance(r, 0.3) ? 100 : 0,
                                           .running = (uint32_t)rng_below(r, SESSIONS + 1),
                                           .step_s = chance(r, 0.9) ? 0.02 : 0,
                                           .receiving_pages = (double)rng_below(r, 40),
                                           .session = session[i],
                                           .session_count = SESSIONS };
        in[i].accepts = !in[i].draining && chance(r, 0.9);
        for (uint32_t k = 0; k < SESSIONS; k++)
            session[i][k] = (struct migrate_session){ .id = 100 * i + k,
                                                      .tokens = (uint32_t)rng_below(r, 2000),
                                                      .movable = chance(r, 0.6) };
    }
    return count;
}

static const struct migrate_instance *of_id(const struct migrate_view *v, uint32_t id)
{
    uint32_t i = 0;
    for (; v->instance[i].id != id; i++)
        assert_true(i + 1 < v->instance_count);
    return &v->instance[i];
}

static void check_move(const struct migrate_view *v, const struct migrate_move *m)
{
    const struct migrate_instance *from = of_id(v, m->from), *to = of_id(v, m->to);
    const struct migrate_session *s = from->session;
    for (; s->id != m->session; s++)
        assert_true(s + 1 < from->session + from->session_count);
    assert_true(s->movable && from != to && from->present && to->present && to->accepts);
    double room = to->pages_free - to->receiving_pages - to->queue_pages;
    double pages = ceil((s->tokens + 1.0) / v->page_tokens);
    assert_true(room >= pages);
    assert_true((room - pages) / (to->running + 1) >= migrate_freeness(from));
    assert_true(m->stages >= 1 && m->stall_s >= 0 && m->copy_s >= m->stall_s &&
                isfinite(m->copy_s));
}

static void migrate_rows_move_what_fits(void **state)
{
    (void)state;
    struct migrate_config config = migrate_config_for(16);
    uint32_t moved = 0;
    for (uint32_t p = 0; p < migrate_count; p++) {
        struct rng r, of_row;
        rng_seed(&r, 11);
        for (int turn = 0; turn < ROUNDS; turn++) {
            static struct migrate_session session[MIGRATE_COUNT][SESSIONS];
            struct migrate_instance in[MIGRATE_COUNT], mixed[MIGRATE_COUNT];
            static struct migrate_verdict a, b;
            uint32_t at[MIGRATE_COUNT], count = draw_migrate(&r, in, session);
            struct migrate_view v = { in, count, 16, 2e6, 10e9 };
            rng_seed(&of_row, 1);
            migrate_table[p]->decide(NULL, &config, &v, 1000, &of_row, &a);
            for (uint32_t i = 0; i < a.count; i++) {
                check_move(&v, &a.move[i]);
                for (uint32_t k = 0; k < i; k++)
                    assert_true(a.move[k].session != a.move[i].session);
            }
            moved += a.count;
            assert_true(a.again_us > 1000);
            shuffle(&r, at, count);
            for (uint32_t i = 0; i < count; i++)
                mixed[i] = in[at[i]];
            v.instance = mixed;
            rng_seed(&of_row, 1);
            migrate_table[p]->decide(NULL, &config, &v, 1000, &of_row, &b);
            assert_int_equal(a.count, b.count);
            for (uint32_t i = 0; i < a.count; i++)
                assert_true(a.move[i].session == b.move[i].session && a.move[i].to == b.move[i].to);
        }
    }
    assert_true(moved > ROUNDS / 4);
}

/* ---- perf ---- */

static void perf_rows_stay_finite(void **state)
{
    (void)state;
    static const double odd[] = { 0, -1, 1e-9, 1e6 };
    struct model_spec m;
    struct roofline of;
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &m, NULL), 0);
    assert_true(roofline_init(&of, hardware_find(STR("l4")), &m, 1));
    for (uint32_t p = 0; p < perf_count; p++) {
        const struct perf_policy *policy = perf_table[p];
        static _Alignas(8) char bytes[PERF_STATE_BYTES_MAX], copy[PERF_STATE_BYTES_MAX];
        struct rng r;
        rng_seed(&r, p);
        policy->init(bytes, &(struct perf_setup){ .roofline = &of });
        for (int turn = 0; turn < 10 * ROUNDS; turn++) {
            uint64_t seqs = rng_below(&r, 300), n = chance(&r, 0.4) ? rng_below(&r, 9000) : 0;
            struct perf_shape s = { .decoding_seqs = (uint32_t)seqs,
                                    .prefill_tokens = (uint32_t)n,
                                    .prefill_chunks = n > 0,
                                    .kv_tokens_decoding = seqs * rng_below(&r, 60000) };
            s.kv_tokens_read = s.kv_tokens_decoding + n * rng_below(&r, 60000) + n * (n + 1) / 2;
            double seconds = roofline_step_s(&of, &s) * between(&r, 0.5, 2);
            if (chance(&r, 0.02)) seconds = odd[rng_below(&r, COUNT_OF(odd))];
            if (chance(&r, 0.01)) seconds = chance(&r, 0.5) ? (double)NAN : (double)INFINITY;
            memcpy(copy, bytes, sizeof copy);
            policy->observe(bytes, &s, seconds);
            policy->observe(copy, &s, seconds);
            assert_memory_equal(bytes, copy, policy->state_size);
            double expected = policy->step_s(bytes, &s);
            struct perf_coef c;
            policy->coef(bytes, &c);
            assert_true(isfinite(expected) && expected >= 0 && perf_coef_valid(&c));
            assert_true(isfinite(c.ratio_p90) && c.ratio_p90 > 0);
            double watts = policy->watts ? policy->watts(bytes, &s, between(&r, 0.2, 1)) : 0;
            assert_true(isfinite(watts) && watts >= 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(place_rows_serve_the_target),
        cmocka_unit_test(role_rows_leave_no_phase_to_nobody),
        cmocka_unit_test(migrate_rows_move_what_fits),
        cmocka_unit_test(perf_rows_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
