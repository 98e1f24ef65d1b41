/* t_kv_transfers.c - tests KV transfers in the simulator: ports, handoffs between prefill and
 * decode instances, live migrations, roles that change, and fetches from peers' caches. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "simulator/flight.h"
#include "simulator/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct trace *make_trace(uint32_t count, int64_t gap_us, uint32_t prompt, uint32_t output)
{
    struct trace *t;
    assert_int_equal(trace_new(&t, NULL), 0);
    for (uint32_t i = 0; i < count; i++) {
        struct trace_request r = { .at_us = i * gap_us,
                                   .prompt_tokens = prompt / 2 + (uint32_t)(rng_at(5, i) % prompt),
                                   .output_tokens =
                                       output / 2 + 1 + (uint32_t)(rng_at(7, i) % output) };
        assert_int_equal(trace_append(t, &r, NULL, (struct str){ 0 }, NULL), 0);
    }
    return t;
}

static struct sim_config config_of(uint32_t both, uint32_t prefill, uint32_t decode)
{
    struct sim_config c = { .seed = 3, .routers = 1, .slo_tpot_s = 0.1 };
    const uint32_t count[ROLE_COUNT] = { both, prefill, decode };
    for (uint32_t role = 0; role < ROLE_COUNT; role++) {
        if (count[role] == 0) continue;
        c.pool[c.pool_count++] = (struct sim_pool){ .hardware = hardware_find(STR("a100")),
                                                    .count = count[role],
                                                    .tp = 1,
                                                    .price_h = 3.6,
                                                    .role = (enum role)role };
    }
    assert_int_equal(model_spec_find(STR("llama-3-8b"), &c.model, NULL), 0);
    c.bias_sigma = c.residual_sigma = 0.05;
    return c;
}

/* Runs the simulator; checks that every output has its full length, whatever is transferred. */
static struct sim_result run(const struct sim_config *c, const struct trace *t)
{
    struct sim_result r;
    struct err err = { 0 };
    int rc = sim_run(c, t, &r, &err);
    if (rc < 0) fail_msg("%s", err_text(&err, rc));
    assert_int_equal(r.ended[SIM_COMPLETED], t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        assert_int_equal(r.outcome[i].generated, t->request[i].output_tokens);
        assert_true(r.outcome[i].first_us > r.outcome[i].arrival_us);
        assert_true(r.outcome[i].last_us >= r.outcome[i].first_us);
    }
    return r;
}

#define NEVER INT64_MAX

/* ---- ports ---- */

static void copies_wait_for_both_ports_in_order(void **state)
{
    (void)state;
    struct kv_link t;
    struct kv_copy copy[4] = { 0 };
    assert_true(kv_link_init(&t, 4, 1e6, 10)); /* a byte a microsecond */
    assert_true(kv_link_next_us(&t) == INT64_MAX);
    assert_true(kv_link_begin(&t, &copy[0], 0, 1, 1000, 100, NEVER));
    assert_true(kv_link_begin(&t, &copy[1], 0, 2, 500, 100, NEVER)); /* waits for 0 to send */
    assert_true(kv_link_begin(&t, &copy[2], 3, 2, 100, 100, NEVER)); /* waits for 2 to receive */
    assert_true(kv_link_begin(&t, &copy[3], 1, 0, 100, 100, NEVER)); /* this direction is free */
    const struct {
        uint32_t which;
        int64_t at_us;
    } expected[] = { { 3, 210 }, { 0, 1110 }, { 1, 1610 }, { 2, 1710 } };
    for (size_t i = 0; i < COUNT_OF(expected); i++) {
        assert_int_equal(kv_link_next_us(&t), expected[i].at_us);
        assert_null(kv_link_over(&t, expected[i].at_us - 1));
        assert_ptr_equal(kv_link_over(&t, expected[i].at_us), &copy[expected[i].which]);
    }
    assert_true(t.bytes == 1700);
    assert_true(kv_link_begin(&t, &copy[0], 0, 1, 1000, 5000, NEVER));
    kv_link_drop(&t, &copy[0]);
    assert_true(kv_link_next_us(&t) == INT64_MAX);
    assert_true(
        kv_link_begin(&t, &copy[1], 0, 1, 1, 5000, NEVER)); /* waits for the dropped bytes */
    assert_int_equal(kv_link_next_us(&t), 6011);
    kv_link_port_new(&t, 0); /* a new instance does not wait for the former one's copies */
    kv_link_port_new(&t, 1);
    assert_true(kv_link_begin(&t, &copy[2], 0, 1, 1, 5000, NEVER));
    assert_int_equal(kv_link_next_us(&t), 5011);
    kv_link_fini(&t);
}

/* ---- handoffs ---- */

static void a_prompt_is_computed_here_and_answered_there(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(400, 100000, 1000, 200);
    t->request[7].output_tokens = 1; /* no decode, no handoff */
    struct sim_config c = config_of(0, 1, 2);
    struct sim_result a = run(&c, t), b = run(&c, t);
    assert_true(a.digest == b.digest);
    assert_int_equal(a.handoffs, 399);
    double bytes = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t whole = t->request[i].prompt_tokens / 16 * 16; /* whole pages */
        assert_int_equal(a.outcome[i].instance, 0); /* the prefill instance makes the first token */
        if (i != 7) bytes += whole * model_spec_kv_token_bytes(&c.model);
    }
    assert_true(fabs(a.link_bytes / bytes - 1) < 1e-9);
    sim_result_fini(&a);
    sim_result_fini(&b);
}

static double tpot_mean_s(const struct sim_result *r)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->offered; i++) {
        const struct sim_outcome *o = &r->outcome[i];
        if (o->generated < 2) continue;
        sum += (double)(o->last_us - o->first_us) * 1e-6 / (o->generated - 1);
        n++;
    }
    return sum / n;
}

/* Decode instances never delay a due token by a prompt, and a slow link shows in the TPOT. */
static void decoding_is_undisturbed_and_the_link_is_paid_for(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(400, 120000, 3000, 200);
    struct sim_config together = config_of(3, 0, 0), split = config_of(0, 1, 2), slow = split;
    slow.link_bytes_s = 0.4e9; /* a prompt's KV takes a second */
    struct sim_result a = run(&together, t), b = run(&split, t), c = run(&slow, t);
    assert_true(sim_histogram_quantile_s(&b.itl, 0.95) < sim_histogram_quantile_s(&a.itl, 0.95));
    assert_true(tpot_mean_s(&c) > tpot_mean_s(&b) + 0.8 / 200);
    sim_result_fini(&a);
    sim_result_fini(&b);
    sim_result_fini(&c);
}

/* Prompts whose pages wait for a slow link delay those behind them without preempting any session,
 * and each stalls for at least as long as its own copy takes. */
static void waiting_for_a_copy_is_no_preemption(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(200, 100000, 1000, 50);
    struct sim_config c = config_of(0, 1, 1);
    c.kv_tokens = 8000;
    c.link_bytes_s = 0.1e9;
    c.drain_s = 1e5;
    struct sim_result r = run(&c, t);
    double copies_s = r.link_bytes / c.link_bytes_s;
    assert_true(copies_s > 10 * 20); /* ten times the time of the arrivals */
    assert_int_equal(r.preemptions, 0);
    assert_int_equal(r.handoffs, 200);
    assert_true(r.stall_s > copies_s);
    assert_true(r.stall_s < 20 * copies_s); /* at most so many fit 8,000 tokens */
    c.link_bytes_s = 1e12;
    struct sim_result fast = run(&c, t);
    assert_true(fast.stall_s > 0 && fast.stall_s < 0.01 * (double)fast.handoffs);
    sim_result_fini(&r);
    sim_result_fini(&fast);
}

/* A mixed fleet serves some requests whole and some by handoff, and no decode instance computes a
 * prompt. */
static void roles_are_kept(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(300, 30000, 1000, 200);
    struct sim_config c = config_of(1, 1, 1);
    struct sim_result r = run(&c, t);
    uint32_t at[3] = { 0 };
    for (uint32_t i = 0; i < t->count; i++)
        at[r.outcome[i].instance]++;
    assert_true(at[0] > 0 && at[1] > 0 && at[2] == 0);
    assert_true(r.handoffs > 0 && r.handoffs <= at[1]);
    sim_result_fini(&r);
}

/* ---- live migration ---- */

/* Makes a trace of which round robin sends the long outputs to one of two instances, so that its
 * pages run out. */
static struct trace *lopsided(uint32_t count)
{
    struct trace *t = make_trace(count, 60000, 200, 100);
    for (uint32_t i = 0; i < count; i += 2)
        t->request[i].output_tokens = 900;
    return t;
}

static void sessions_leave_where_pages_are_short(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = lopsided(400);
    struct sim_config c = config_of(2, 0, 0);
    c.route = route_find(STR("round_robin"));
    c.kv_tokens = 24000;
    struct sim_result stay = run(&c, t);
    c.migrate = migrate_find(STR("llumnix"));
    struct sim_result moved = run(&c, t), again = run(&c, t);
    assert_true(moved.digest == again.digest && moved.digest != stay.digest);
    assert_int_equal(stay.migrations, 0);
    assert_true(moved.migrations > 20);
    assert_true(moved.preemptions < stay.preemptions);
    /* A migration stalls a session about as long as the last stage's copy takes: a few pages. */
    double stall_s = moved.stall_s / (double)moved.migrations;
    assert_true(stall_s > 0 && stall_s < 0.01);
    sim_result_fini(&stay);
    sim_result_fini(&moved);
    sim_result_fini(&again);
}

/* Over a slow link sessions end, or are preempted, before their copies do. */
static void a_copy_that_lost_its_session_is_dropped(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = lopsided(400);
    struct sim_config c = config_of(2, 0, 0);
    c.route = route_find(STR("round_robin"));
    c.migrate = migrate_find(STR("llumnix"));
    c.kv_tokens = 24000;
    c.link_bytes_s = 2e7;
    struct sim_result r = run(&c, t);
    assert_true(r.migrations_dropped > 10);
    sim_result_fini(&r);
}

/* With migration and handoff at once, only decode instances exchange sessions. */
static void decode_instances_balance_among_themselves(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(500, 50000, 400, 900);
    struct sim_config c = config_of(0, 1, 3);
    c.migrate = migrate_find(STR("llumnix"));
    c.kv_tokens = 10000;
    struct sim_result r = run(&c, t);
    assert_int_equal(r.handoffs, 500);
    assert_true(r.migrations > 0);
    sim_result_fini(&r);
}

/* A fleet needs instances for prefill and for decode. */
static void a_fleet_of_one_phase_is_refused(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(20, 100000, 300, 20);
    static const char *const add[] = { "add decode ones", "add prefill ones" };
    for (uint32_t decode = 0; decode < 2; decode++) {
        struct sim_config c = config_of(0, !decode, decode);
        struct sim_result r;
        struct err err;
        assert_int_equal(sim_run(&c, t, &r, &err), -EINVAL);
        assert_non_null(strstr(err.text, add[decode]));
    }
}

/* ---- roles that change ---- */

/* Under every role policy a fleet that starts with whole requests loses nothing, and a tight TPOT
 * makes all but "colocated" disaggregate. */
static void roles_change_while_it_serves(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t = make_trace(1500, 60000, 1500, 200);
    for (uint32_t i = 0; i < role_count; i++) {
        struct sim_config c = config_of(4, 0, 0);
        c.slo_ttft_s = 2, c.slo_tpot_s = 0.014;
        c.role = role_table[i];
        struct sim_result a = run(&c, t), b = run(&c, t);
        assert_true(a.digest == b.digest);
        assert_non_null(a.role_reason);
        bool splits = c.role != role_find(STR("colocated"));
        if ((a.handoffs > 0) != splits || (a.role_changes > 0) != splits)
            fail_msg("%s: %lu changes, %lu handoffs", c.role->name, (unsigned long)a.role_changes,
                     (unsigned long)a.handoffs);
        sim_result_fini(&a);
        sim_result_fini(&b);
    }
}

/* ---- peers' caches ---- */

/* Conversations share long prefixes; an instance busy with its own stream has cached prefixes that
 * are worth fetching. */
static void a_peers_cache_is_fetched_where_that_is_quicker(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *t;
    assert_int_equal(trace_new(&t, NULL), 0);
    t->block_tokens = 512;
    for (uint32_t i = 0; i < 300; i++) {
        uint64_t id[12];
        for (uint32_t b = 0; b < 12; b++)
            id[b] = b < 11 ? 100 * (i % 4) + b : 10000 + i;
        struct trace_request r = { .at_us = i * 60000,
                                   .prompt_tokens = 12 * 512,
                                   .output_tokens = 1 + (uint32_t)(rng_at(7, i) % 40),
                                   .block_count = 12 };
        assert_int_equal(trace_append(t, &r, id, (struct str){ 0 }, NULL), 0);
    }
    struct sim_config c = config_of(4, 0, 0), slow;
    c.route = route_find(STR("mooncake_fetch"));
    struct sim_result a = run(&c, t), b = run(&c, t);
    assert_true(a.digest == b.digest);
    assert_true(a.fetches > 0 && a.fetched_tokens >= 512 * a.fetches);
    assert_true(
        fabs(a.link_bytes / (double)a.fetched_tokens - model_spec_kv_token_bytes(&c.model)) < 1e-6);
    slow = c;
    slow.link_bytes_s = 1e8; /* six seconds a prefix */
    struct sim_result none = run(&slow, t);
    assert_int_equal(none.fetches, 0);
    sim_result_fini(&a);
    sim_result_fini(&b);
    sim_result_fini(&none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_wait_for_both_ports_in_order),
        cmocka_unit_test(a_prompt_is_computed_here_and_answered_there),
        cmocka_unit_test(decoding_is_undisturbed_and_the_link_is_paid_for),
        cmocka_unit_test(waiting_for_a_copy_is_no_preemption),
        cmocka_unit_test(roles_are_kept),
        cmocka_unit_test(sessions_leave_where_pages_are_short),
        cmocka_unit_test(a_copy_that_lost_its_session_is_dropped),
        cmocka_unit_test(decode_instances_balance_among_themselves),
        cmocka_unit_test(a_fleet_of_one_phase_is_refused),
        cmocka_unit_test(roles_change_while_it_serves),
        cmocka_unit_test(a_peers_cache_is_fetched_where_that_is_quicker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
