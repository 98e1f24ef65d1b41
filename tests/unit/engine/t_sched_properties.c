/* t_sched_properties.c - tests the scheduler's invariants under all policies and random disturbances.
 *
 * A seed draws a scene: a policy of each kind, sizes, and a life of submissions with predictions,
 * ranks and weights that may be absurd, aborts, deadlines, pauses, holds, failed steps, full queues
 * and clocks that are set back. Every plan accounts for the budget, the places and every page
 * (sched_check, rig_execute), and some session advances whenever one can. In the end every request
 * has ended once, with the tokens that its ids alone give.
 */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/rng.h"
#include "tests/unit/engine/sched_rig.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SCENES 1500
#define SENT_MAX 60
#define STEPS_MAX 20000
#define CROWD 10
#define STREAM_MAX 3000 /* steps, a second apart */
#define SECOND 1000000

struct scene {
    struct rig r;
    struct load l;
    struct rng rng;
    bool held[REQUESTS];
    bool tells; /* requests come with absurd numbers */
    uint32_t sent, tenants;
    uint64_t digest; /* of all batches */
    int64_t now_us;  /* the machine's clock, which may be set back */
    char why[160];
};

static uint32_t below(struct scene *c, uint32_t bound)
{
    return (uint32_t)rng_below(&c->rng, bound);
}

/* Gives some layers, or all, a window. */
static void draw_window(struct scene *c, struct sched_config *config)
{
    config->parts = (struct kv_parts){ .window_tokens = 1 + below(c, 100),
                                       .full = below(c, 3),
                                       .window = 1 + below(c, 5),
                                       .numbers = config->pages + below(c, 3 * config->pages) };
}

/* Draws policies and sizes from the seed, so that a few hundred scenes meet each policy many
 * times. */
static struct sched_config draw_config(struct scene *c)
{
    struct sched_config config = rig_config();
    config.policies = (struct step_policies){ .fair = fair_table[below(c, fair_count)],
                                              .order = order_table[below(c, order_count)],
                                              .admit = admit_table[below(c, admit_count)],
                                              .preempt = preempt_table[below(c, preempt_count)],
                                              .chunk = chunk_table[below(c, chunk_count)],
                                              .evict = evict_table[below(c, evict_count)] };
    config.pages = 10 + below(c, 40);
    config.seqs_max = 1 + below(c, 8);
    config.batch_tokens_max = config.seqs_max + below(c, 120);
    config.swap_pages = below(c, 2) * below(c, 60);
    config.swap_page_s = 1e-6 * below(c, 3000);
    config.prefix_cache = below(c, 4) > 0;
    if (below(c, 3) == 0) draw_window(c, &config);
    config.ttft_s_max = 0.02 * below(c, 5);
    config.step_s_max = 2e-3 * below(c, 5);
    if (below(c, 4) == 0) config.waiting_max = 1 + below(c, 8);
    c->tells = below(c, 2);
    c->tenants = below(c, 2) ? 3 : SENT_MAX;
    return config;
}

static uint32_t draw_length(struct scene *c)
{
    static const uint32_t odd[] = { 0, 1, UINT32_MAX, 1u << 31 };
    return c->tells && below(c, 2) ? odd[below(c, COUNT_OF(odd))] : below(c, 2 * OUTPUT_MAX);
}

static double draw_number(struct scene *c)
{
    static const double odd[] = { 0, -1, (double)INFINITY, (double)NAN, 1e-300, 1e300 };
    return c->tells && below(c, 2) ? odd[below(c, COUNT_OF(odd))] : 1 + below(c, 4);
}

static void submit(struct scene *c)
{
    uint32_t i = c->sent++;
    struct load *l = &c->l;
    bool due = below(c, 20) == 0;
    struct sched_request req = {
        .id = i,
        .ids = l->ids[i],
        .prompt_tokens = l->count[i],
        .output_max = l->output_max[i],
        .arrival_us = c->now_us + (int64_t)below(c, 3) * STEP_US - STEP_US,
        .deadline_us = due ? c->r.now_us + (int64_t)below(c, 60) * STEP_US + 1 : 0,
        .predicted_p50 = draw_length(c),
        .predicted_p90 = draw_length(c),
        .predicted_mean = draw_length(c),
        .has_rank = below(c, 2),
        .rank = draw_number(c),
        .tenant = below(c, c->tenants),
        .weight = draw_number(c),
        .group = below(c, 4),
        .begun = below(c, 8) == 0,
    };
    l->cut[i] = due;
    load_took(l, i, sched_submit(c->r.s, &req, &l->session[i], NULL));
}

/* Disturbs one session at random. */
static void disturb(struct scene *c)
{
    uint32_t i = below(c, c->sent);
    struct session *x = c->l.session[i];
    if (!x) return;
    switch (below(c, 12)) {
    case 0:
        sched_abort(c->r.s, x);
        c->l.cut[i] = true;
        break;
    case 1:
    case 2:
        sched_pause(c->r.s, x, true);
        break;
    case 3:
        sched_hold(c->r.s, x, true);
        c->held[i] = true;
        break;
    default:
        break;
    }
}

static void recover(struct scene *c)
{
    for (uint32_t i = 0; i < c->sent; i++) {
        struct session *x = c->l.session[i];
        if (!x || below(c, 8)) continue;
        if (x->paused) sched_pause(c->r.s, x, false);
        if (x->held) sched_hold(c->r.s, x, false);
        c->held[i] = false;
    }
}

static bool anybody_held(const struct scene *c)
{
    for (uint32_t i = 0; i < c->sent; i++)
        if (c->l.session[i] && c->l.session[i]->held) return true;
    return false;
}

static void check_batch(struct scene *c, const struct sched_batch *b)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        const struct session *x = b->item[i].session;
        if (x->paused || x->held || x->state != SESSION_RUNNING || x->item != i + 1)
            fail_msg("%s: %lu has a step", c->why, (unsigned long)x->id);
        seen += b->item[i].count;
        const uint64_t said[] = { x->id, b->item[i].start, b->item[i].count };
        c->digest = hash64(said, sizeof said, c->digest);
    }
    assert_true(seen <= c->r.config.batch_tokens_max && b->count <= c->r.config.seqs_max);
    /* While no pages are locked by held sessions, a step advances some session. */
    if (b->count == 0 && sched_has_work(c->r.s) && !anybody_held(c))
        fail_msg("%s: idle after %u requests", c->why, c->sent);
}

/* Moves the machine's clock mostly forward, sometimes far, sometimes back. */
static void tick(struct scene *c)
{
    uint32_t how = below(c, 40);
    int64_t by = how == 0   ? -(int64_t)below(c, 5000000)
                 : how == 1 ? (int64_t)below(c, 9000000)
                            : (int64_t)below(c, 2 * STEP_US);
    c->now_us += by;
    c->r.now_us = max_i64(c->r.now_us, c->now_us);
}

static void step(struct scene *c)
{
    static const struct perf_coef odd[] = {
        { 0 }, { .step_s = 1e-3, .prefill_token_s = 1e-300, .attend_s = 1, .ratio_p90 = 1e9 }
    };
    struct rig *r = &c->r;
    bool known = !c->tells || below(c, 4);
    tick(c);
    const struct perf_coef *perf = known ? &rig_perf : &odd[below(c, COUNT_OF(odd))];
    const struct sched_batch *b = sched_plan(r->s, c->now_us, perf);
    assert_true(sched_check(r->s));
    rig_execute(r, b);
    check_batch(c, b);
    if (b->count == 0) return;
    tick(c);
    if (below(c, 100) == 0) {
        for (uint32_t i = 0; i < b->count; i++)
            c->l.cut[b->item[i].session->id] = true;
        sched_discard(r->s, c->now_us);
    } else {
        sched_commit(r->s, r->result, c->now_us);
    }
    assert_true(sched_check(r->s));
    r->steps++;
}

static bool open_sessions(const struct scene *c)
{
    for (uint32_t i = 0; i < c->sent; i++)
        if (c->l.session[i]) return true;
    return false;
}

static void check_ends(struct scene *c)
{
    for (uint32_t i = 0; i < SENT_MAX; i++) {
        const struct load *l = &c->l;
        uint32_t want[OUTPUT_MAX];
        uint32_t n = rig_truth(l->ids[i], l->count[i], l->output_max[i], want);
        bool whole = l->end[i] == SESSION_END_STOP || l->end[i] == SESSION_END_LENGTH;
        if (l->ended[i] != 1 || (!whole && !l->cut[i]) || l->answer_count[i] > n ||
            (whole && l->answer_count[i] < n) ||
            memcmp(l->output[i], want, l->answer_count[i] * sizeof *want) != 0)
            fail_msg("%s: request %u", c->why, i);
    }
    struct sched_counts n;
    sched_counts_get(c->r.s, &n);
    assert_int_equal(n.running + n.waiting + n.paused, 0);
    assert_int_equal(sched_index(c->r.s)->pool->held_count, 0);
    assert_false(sched_has_work(c->r.s));
}

static void add_counts(const struct scene *c, struct sched_counts *sum)
{
    struct sched_counts n;
    sched_counts_get(c->r.s, &n);
    sum->preemptions += n.preemptions;
    sum->parked += n.parked;
    sum->swapped_in += n.swapped_in;
    sum->hit_tokens += n.hit_tokens;
    sum->drafted_tokens += n.drafted_tokens;
    sum->accepted_tokens += n.accepted_tokens;
    for (int i = 0; i < SESSION_END_COUNT; i++)
        sum->ended[i] += n.ended[i];
}

static uint64_t discarded,
    window_hits; /* parts of pages, and tokens found, in scenes with windows */

static uint64_t play(uint64_t seed, struct sched_counts *sum, uint64_t *stored)
{
    static struct scene c;
    memset(&c, 0, sizeof c);
    rng_seed(&c.rng, seed);
    struct sched_config config = draw_config(&c);
    config.policies.draft = seed % 2 ? &rig_draft : draft_table[seed / 2 % draft_count];
    const struct step_policies *policies = &config.policies;
    snprintf(c.why, sizeof c.why, "seed %lu: %s, %s, %s, %s, %s, %s, %s", (unsigned long)seed,
             policies->fair->name, policies->order->name, policies->admit->name,
             policies->preempt->name, policies->chunk->name, policies->evict->name,
             config.policies.draft->name);
    load_fill(&c.l, seed);
    rig_init(&c.r, &config);
    c.now_us = 10000000;
    while (c.sent < SENT_MAX || open_sessions(&c)) {
        for (uint32_t n = below(&c, 4); n > 0 && c.sent < SENT_MAX; n--)
            submit(&c);
        if (c.sent > 0 && below(&c, 3) == 0) disturb(&c);
        recover(&c);
        step(&c);
        load_collect(&c.r, &c.l);
        if (c.r.steps > STEPS_MAX) fail_msg("%s: no end in sight", c.why);
    }
    check_ends(&c);
    add_counts(&c, sum);
    *stored += c.r.stored;
    discarded += c.r.discarded;
    if (config.parts.window_tokens > 0) {
        struct sched_counts n;
        sched_counts_get(c.r.s, &n);
        window_hits += n.hit_tokens;
    }
    rig_fini(&c.r);
    return c.digest;
}

static void t_any_rows_any_life(void **state)
{
    (void)state;
    struct sched_counts sum = { 0 };
    uint64_t stored = 0;
    for (uint64_t seed = 1; seed <= SCENES; seed++) {
        uint64_t digest = play(seed, &sum, &stored);
        if (seed % 8 == 0 && play(seed, &sum, &stored) != digest)
            fail_msg("seed %lu: not twice the same", (unsigned long)seed);
    }
    /* The scenes must reach these cases. */
    assert_true(sum.preemptions > 10000 && sum.parked > 1000 && sum.swapped_in > 1000);
    assert_true(sum.hit_tokens > 10000 && stored > 100);
    assert_true(sum.drafted_tokens > 10000 && sum.accepted_tokens > 5000);
    assert_true(sum.accepted_tokens < sum.drafted_tokens);
    assert_true(discarded > 10000 && window_hits > 1000);
    for (int i = SESSION_END_STOP; i < SESSION_END_COUNT; i++)
        assert_true(sum.ended[i] > 1000);
}

static struct session *ask(struct rig *r, uint32_t prompt, uint32_t output)
{
    static const uint32_t ids[PROMPT_MAX];
    struct session *ret = NULL;
    struct sched_request req = { .ids = ids,
                                 .prompt_tokens = prompt,
                                 .output_max = output,
                                 .arrival_us = r->now_us,
                                 .predicted_p50 = output,
                                 .predicted_p90 = output,
                                 .predicted_mean = output,
                                 .has_rank = true,
                                 .rank = output };
    assert_int_equal(sched_submit(r->s, &req, &ret, NULL), 0);
    return ret;
}

/* With one place and an endless crowd of requests that the policy prefers, runs until the other
 * request gets its turn, `to_end` or admitted. Returns the number of steps; 0: never. */
static uint32_t answered_after(const struct order_policy *order, bool to_end)
{
    struct rig r;
    struct sched_config config = rig_config();
    bool large_first = str_eq(str_from(order->name), STR("largest_first"));
    uint32_t short_prompt = large_first ? PROMPT_MAX : 4, short_output = large_first ? 9 : 2;
    config.seqs_max = 1;
    config.policies.order = order;
    config.prefix_cache = false;
    rig_init(&r, &config);
    ask(&r, short_prompt, short_output);
    struct session *other = large_first ? ask(&r, 4, 2) : ask(&r, PROMPT_MAX, OUTPUT_MAX);
    uint32_t steps = 0;
    for (bool done = false; !done && steps < STREAM_MAX; steps++) {
        struct sched_counts n;
        for (sched_counts_get(r.s, &n); n.waiting < CROWD; n.waiting++)
            ask(&r, short_prompt, short_output);
        r.now_us += SECOND;
        const struct sched_batch *b = sched_plan(r.s, r.now_us, &rig_perf);
        assert_int_equal(b->count, 1);
        rig_execute(&r, b);
        r.result[0].stop = false;
        r.now_us += STEP_US;
        sched_commit(r.s, r.result, r.now_us);
        done = !to_end && other->admitted_once;
        for (struct session *x; (x = sched_next_ended(r.s)); sched_release(r.s, x))
            done |= x == other;
    }
    rig_fini(&r);
    return steps < STREAM_MAX ? steps : 0;
}

static void t_who_is_not_preferred_is_answered(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < order_count; i++) {
        const char *name = order_table[i]->name;
        /* This policy is for batches, which end. */
        if (str_eq(str_from(name), STR("batch_llm"))) continue;
        /* This policy is for prefill instances: while prompts keep coming, only prefill is sure to
         * advance. */
        bool to_end = !str_eq(str_from(name), STR("prefill_sjf"));
        uint32_t steps = answered_after(order_table[i], to_end);
        if (steps == 0) fail_msg("%s starves", name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_any_rows_any_life),
        cmocka_unit_test(t_who_is_not_preferred_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
