/* t_step_properties.c - tests rules for every policy of the engine's step, on random lives of sessions.
 *
 * A seed draws the life once, and a policy gets it twice: both must give the same bytes, also when the
 * second time continues half-way from a copy of the first one's state, elsewhere in memory.
 */
#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/rng.h"
#include "policies/admit/admit.h"
#include "policies/chunk/chunk.h"
#include "policies/evict/evict.h"
#include "policies/fair/fair.h"
#include "policies/order/order.h"
#include "policies/preempt/preempt.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

#define SESSIONS 12
#define EVENTS 400
#define STATE_MAX 8192
#define SECOND 1000000
#define NOW_US (40 * (int64_t)SECOND)

/* One run of the life: a policy's state, its sessions' scratch, and what it decided. */
struct life {
    uint64_t state[STATE_MAX / 8];
    struct step_scratch scratch[SESSIONS];
    double said[EVENTS];
};

/* Draws the next session of the life, independently of the policy's verdicts. */
static struct step_session draw(struct rng *rng, struct life *l, uint32_t *ret_at, int64_t now_us)
{
    uint32_t at = *ret_at = (uint32_t)rng_below(rng, SESSIONS);
    uint32_t prompt = 1 + (uint32_t)rng_below(rng, 9000);
    double work_s = 0.001 * (double)(1 + rng_below(rng, 9999));
    return (struct step_session){
        .id = at,
        .arrival_us = now_us - (int64_t)rng_below(rng, 9 * SECOND),
        .waiting_us = now_us - (int64_t)rng_below(rng, 5 * SECOND),
        .group = at % 4,
        .prompt_tokens = prompt,
        .uncached = 1 + (uint32_t)rng_below(rng, prompt),
        .generated = (uint32_t)rng_below(rng, 300),
        .computed = (uint32_t)rng_below(rng, prompt),
        .output_max = 1000,
        .predicted_p50 = (uint32_t)rng_below(rng, 200),
        .predicted_p90 = 200 + (uint32_t)rng_below(rng, 400),
        .predicted_mean = (uint32_t)rng_below(rng, 400),
        .remaining = 1 + (double)rng_below(rng, 500),
        .rank = (double)rng_below(rng, 100),
        .has_rank = rng_below(rng, 2) == 0,
        .running = rng_below(rng, 2) == 0,
        .prefill_s = work_s / 3,
        .decode_s = work_s / 2,
        .work_s = work_s,
        .scratch = &l->scratch[at],
    };
}

static struct step_event happen(struct rng *rng, const struct step_session *session)
{
    enum step_event_kind kind = (enum step_event_kind)rng_below(rng, STEP_EVENT_COUNT);
    return (struct step_event){ .kind = kind,
                                .session = kind == STEP_DONE ? NULL : session,
                                .seconds = 0.001 * (double)(1 + rng_below(rng, 80)),
                                .input_tokens = 1 + (uint32_t)rng_below(rng, 512),
                                .output_tokens = 1 + (uint32_t)rng_below(rng, 700),
                                .whole = rng_below(rng, 4) > 0 };
}

static void live_order(const struct order_policy *policy, struct life *l, uint64_t seed,
                       uint32_t from, uint32_t to)
{
    uint64_t before[STATE_MAX / 8];
    for (uint32_t i = from; i < to; i++) {
        struct rng rng;
        rng_seed(&rng, seed * EVENTS + i); /* a run may begin anywhere */
        int64_t now_us = (int64_t)(i + 100) * SECOND / 10;
        uint32_t at;
        struct step_session x = draw(&rng, l, &at, now_us);
        struct step_event ev = happen(&rng, &x);
        if (policy->observe) policy->observe(l->state, &ev);
        memcpy(before, l->state, sizeof before);
        struct order_rank r;
        order_rank_of(policy, l->state, &x, now_us, &r);
        assert_memory_equal(before, l->state, policy->state_size); /* asking changes no state */
        assert_true(isfinite(r.base) && r.slope <= 0 && r.again_us > now_us);
        l->said[i] = order_rank_at(&r, now_us) + (double)r.tie_us;
        if (policy->preempts && policy->yields) l->said[i] += policy->yields(l->state, &x);
    }
}

static void live_admit(const struct admit_policy *policy, struct life *l, uint64_t seed,
                       uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        struct rng rng;
        rng_seed(&rng, seed * EVENTS + i);
        int64_t now_us = (int64_t)(i + 100) * SECOND / 10;
        uint32_t at;
        struct step_session x = draw(&rng, l, &at, now_us);
        struct step_event ev = happen(&rng, &x);
        if (policy->observe) policy->observe(l->state, &ev);
        if (policy->outgrown) policy->outgrown(l->state, &x);
        struct admit_view v = { .pages_available = (uint32_t)rng_below(&rng, 200),
                                .pages_needed = (uint32_t)rng_below(&rng, 60),
                                .pages_growth =
                                    policy->reserve ? policy->reserve(l->state, &x) / 16 : 9,
                                .running = (uint32_t)rng_below(&rng, 16),
                                .running_growth = (uint32_t)rng_below(&rng, 80) };
        v.peak_growth = v.running_growth / 2;
        l->said[i] = (double)v.pages_growth + 0.5 * policy->decide(l->state, &v);
    }
}

/* Runs the life from the beginning, and from a copy after `part` events; compares the results. */
#define TELL(live, row, seed, part)                                    \
    do {                                                               \
        static struct life first, second, third;                       \
        memset(&first, 0, sizeof first);                               \
        memset(&second, 0, sizeof second);                             \
        live(row, &first, seed, 0, EVENTS);                            \
        live(row, &second, seed, 0, part);                             \
        memcpy(&third, &second, sizeof third);                         \
        memset(&second, 0xff, sizeof second);                          \
        live(row, &third, seed, part, EVENTS);                         \
        if (memcmp(&first, &third, sizeof first) != 0)                 \
            fail_msg("%s is not what it was told alone", (row)->name); \
    } while (0)

static void t_state_is_plain_bytes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint32_t part = (uint32_t)seed * 19;
        for (uint32_t i = 0; i < order_count; i++) {
            must(order_table[i]->state_size <= STATE_MAX);
            TELL(live_order, order_table[i], seed, part);
        }
        for (uint32_t i = 0; i < admit_count; i++) {
            must(admit_table[i]->state_size <= STATE_MAX);
            TELL(live_admit, admit_table[i], seed, part);
        }
    }
}

static void t_more_pages_never_close_the_door(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 5);
    static uint64_t memory[STATE_MAX / 8];
    for (int k = 0; k < 2000; k++) {
        struct admit_view v = { .pages_needed = (uint32_t)rng_below(&rng, 60),
                                .pages_growth = (uint32_t)rng_below(&rng, 60),
                                .running = (uint32_t)rng_below(&rng, 16),
                                .running_growth = (uint32_t)rng_below(&rng, 200),
                                .peak_growth = (uint32_t)rng_below(&rng, 200) };
        for (uint32_t i = 0; i < admit_count; i++) {
            memset(memory, 0, sizeof memory);
            bool before = false;
            for (v.pages_available = 0; v.pages_available < 600; v.pages_available += 7) {
                bool now = admit_table[i]->decide(memory, &v);
                if (before && !now) fail_msg("%s closes", admit_table[i]->name);
                before = now;
            }
            assert_true(before); /* with enough pages every session is admitted */
        }
    }
}

static void t_chunks_keep_the_budget(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 6);
    for (int k = 0; k < 20000; k++) {
        struct chunk_view v = { .tokens_left = 1 + (uint32_t)rng_below(&rng, 9000),
                                .budget_left = 1 + (uint32_t)rng_below(&rng, 4096),
                                .computed = (uint32_t)rng_below(&rng, 20000),
                                .perf = { .step_s = 2e-3,
                                          .prefill_token_s = 1e-5,
                                          .decode_seq_s = 3e-4,
                                          .kv_read_s = 1e-8,
                                          .attend_s = 1e-9 },
                                .step_s_max = 0.01 * (double)rng_below(&rng, 9),
                                .aim = (uint32_t)rng_below(&rng, 4096) };
        if (k % 3) {
            v.planned.decoding_seqs = (uint32_t)rng_below(&rng, 200);
            v.planned.kv_tokens_decoding = v.planned.kv_tokens_read = rng_below(&rng, 300000);
            v.planned.prefill_tokens = (uint32_t)rng_below(&rng, 700);
        }
        bool empty = v.planned.decoding_seqs == 0 && v.planned.prefill_tokens == 0;
        for (uint32_t i = 0; i < chunk_count; i++) {
            uint32_t n = chunk_table[i]->decide(&v);
            if (n > v.tokens_left || n > v.budget_left || (empty && n == 0))
                fail_msg("%s: %u of %u, budget %u", chunk_table[i]->name, n, v.tokens_left,
                         v.budget_left);
        }
    }
}

static void t_aims_keep_the_budget(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 8);
    uint32_t wished = 0;
    for (int k = 0; k < 5000; k++) {
        struct chunk_session session[20];
        struct chunk_scene scene = { .session = session,
                                     .count = (uint32_t)rng_below(&rng, COUNT_OF(session)),
                                     .ttft_s_max = 0.1 * (double)(1 + rng_below(&rng, 40)),
                                     .arrivals_s = (double)rng_below(&rng, 12),
                                     .output = 1 + (double)rng_below(&rng, 900) };
        scene.arrived_owed_s = scene.arrivals_s * (double)rng_below(&rng, 4000);
        for (uint32_t i = 0; i < scene.count; i++) {
            session[i] = (struct chunk_session){ (uint32_t)rng_below(&rng, 2) *
                                                     (uint32_t)rng_below(&rng, 9000),
                                                 0.2 * ((double)rng_below(&rng, 20) - 3),
                                                 1 + (double)rng_below(&rng, 900) };
            scene.owed += session[i].owed;
        }
        const struct chunk_view v = { .tokens_left = 1,
                                      .budget_left = 1 + (uint32_t)rng_below(&rng, 4096),
                                      .planned.decoding_seqs = (uint32_t)rng_below(&rng, 200),
                                      .perf = { .step_s = 2e-3,
                                                .prefill_token_s =
                                                    1e-6 * (double)rng_below(&rng, 300),
                                                .decode_seq_s = 1e-4 },
                                      .step_s_max = 0.01 * (double)rng_below(&rng, 9) };
        for (uint32_t i = 0; i < chunk_count; i++) {
            if (!chunk_table[i]->aim) continue;
            uint32_t n = chunk_table[i]->aim(&v, &scene);
            assert_true(n <= v.budget_left);
            assert_int_equal(n, chunk_table[i]->aim(&v, &scene));
            if (v.step_s_max <= 0 || v.planned.decoding_seqs == 0) assert_int_equal(n, 0);
            wished += n > 0;
        }
    }
    assert_true(wished > 500);
}

/* A preempted session is always taken by recompute or swap, and a session's rank never rises with
 * its progress, so that some session advances. */
static void t_somebody_gets_on(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 7);
    for (int k = 0; k < 2000; k++) {
        struct life l = { 0 };
        uint32_t at;
        struct step_session x = draw(&rng, &l, &at, NOW_US);
        struct preempt_view v = { .victim = &x,
                                  .can_swap = k % 2 == 0,
                                  .swap_s = 0.001 * (double)rng_below(&rng, 900),
                                  .recompute_s = 0.001 * (double)rng_below(&rng, 900),
                                  .running = 1 + (uint32_t)rng_below(&rng, 30) };
        for (uint32_t i = 0; i < preempt_count; i++) {
            const struct preempt_policy *policy = preempt_table[i];
            enum preempt_how how = policy->how ? policy->how(&v) : preempt_cheaper(&v);
            assert_int_not_equal(how, PREEMPT_NOT);
            assert_true(v.can_swap || how == PREEMPT_RECOMPUTE);
            assert_true(isfinite(policy->rank(&x)));
            double rank = policy->rank(&x);
            struct step_session on = x; /* a step later: nearer its end, more computed */
            on.generated++, on.computed++, on.work_s *= 0.99;
            assert_true(policy->rank(&on) <= rank);
        }
    }
}

static void t_hits_keep_pages(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 8);
    for (int k = 0; k < 2000; k++) {
        struct evict_page page = { .releases = 1 + rng_below(&rng, 1000000),
                                   .hits = (uint32_t)rng_below(&rng, 50),
                                   .pages_total = 1000,
                                   .floor = (int64_t)rng_below(&rng, 1000000),
                                   .cost = 1 + (double)rng_below(&rng, 9) };
        struct evict_page hit = page, later = page;
        hit.hits++, later.releases++, later.floor += 5;
        for (uint32_t i = 0; i < evict_count; i++) {
            int64_t rank = evict_table[i]->rank(&page);
            assert_true(evict_table[i]->rank(&hit) >= rank);
            assert_true(evict_table[i]->rank(&later) >
                        rank); /* a page that was once hot leaves in the end */
        }
    }
}

/* No place stays empty while a session waits, and equal histories choose alike. */
static void t_fair_rows_conserve_work(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < fair_count; i++) {
        const struct fair_policy *policy = fair_table[i];
        if (!policy->pick) continue;
        must(policy->state_size <= STATE_MAX);
        struct rng rng;
        rng_seed(&rng, 9);
        static uint64_t one[STATE_MAX / 8], two[STATE_MAX / 8];
        memset(one, 0, sizeof one);
        for (int k = 0; k < 3000; k++) {
            struct fair_tenant t[8];
            uint32_t count = 1 + (uint32_t)rng_below(&rng, 8);
            for (uint32_t j = 0; j < count; j++)
                t[j] = (struct fair_tenant){ .slot = j * 31 % FAIR_TENANTS_MAX,
                                             .weight = 1 + (double)rng_below(&rng, 3),
                                             .head_rank = (double)rng_below(&rng, 100) };
            memcpy(two, one, sizeof two);
            uint32_t at = policy->pick(one, t, count);
            assert_in_range(at, 0, count - 1);
            assert_int_equal(policy->pick(two, t, count), at);
            assert_memory_equal(one, two, policy->state_size);
            policy->observe(one, &(struct fair_event){ .kind = k % 2 ? STEP_RAN : STEP_ADMITTED,
                                                       .slot = t[at].slot,
                                                       .weight = t[at].weight,
                                                       .input_tokens = 900,
                                                       .cached_tokens = 300,
                                                       .output_tokens = 40 });
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_state_is_plain_bytes),
        cmocka_unit_test(t_more_pages_never_close_the_door),
        cmocka_unit_test(t_chunks_keep_the_budget),
        cmocka_unit_test(t_aims_keep_the_budget),
        cmocka_unit_test(t_somebody_gets_on),
        cmocka_unit_test(t_hits_keep_pages),
        cmocka_unit_test(t_fair_rows_conserve_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
