/* t_sim_control.c - tests the simulated controller and cloud over a toy fleet. */
#include "base/core/bits.h"
#include "fleet/telemetry.h"
#include "simulator/control.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct toy_request {
    int64_t at_us;
    uint32_t prompt, output;
};

struct toy_setup {
    struct sim_control_setup control; /* one pool */
    uint32_t chunk;
    const struct toy_request *request;
    uint32_t count;
};

struct toy_result {
    struct sim_control_totals totals;
    uint32_t met, ttft_met, tpot_met;
    double attainment, ttft_p90_s, tpot_p90_s;
    double end_s;
};

#define REPLICAS_MAX 512
#define BATCH_MAX 1024

struct session {
    uint64_t end_step;
    uint32_t request;
};

struct replica {
    uint32_t number, pool;
    bool used, serves, drains;
    int64_t next_us; /* end of the step under way; INT64_MAX: idle */
    uint64_t step;
    struct session heap[BATCH_MAX];
    uint32_t batch;
    uint64_t kv_final; /* tokens that all admitted sessions will hold in the end */
    double kv_read;    /* tokens that decoding sessions hold now */
    uint32_t *queue;   /* requests not admitted yet, a ring */
    uint32_t head, queued, room;
    uint32_t filling; /* request whose prompt is being computed; UINT32_MAX: none */
    uint32_t filled;
    uint32_t chunk_now;     /* prompt tokens of the step under way */
    uint64_t prompt_tokens; /* in line and not computed */
};

struct fleet {
    const struct toy_setup *setup;
    struct sim_control *control;
    struct telemetry *telemetry; /* of its one router */
    struct replica *replica;
    uint32_t *held; /* requests held because no instance serves */
    uint32_t held_count;
    int64_t *first_us;
    struct telemetry_place *place;
    double mean_output;
    uint64_t ended;
    struct toy_result *ret;
    uint32_t ttft_bins[4096], tpot_bins[4096];
    int64_t now_us;
};

static const struct perf_coef *perf(const struct fleet *f)
{
    return &f->setup->control.pool[0].prior;
}

static void push(struct replica *r, struct session s)
{
    uint32_t i = r->batch++;
    must(r->batch <= BATCH_MAX);
    for (; i > 0 && r->heap[(i - 1) / 2].end_step > s.end_step; i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = s;
}

static struct session pop(struct replica *r)
{
    struct session top = r->heap[0], last = r->heap[--r->batch];
    uint32_t i = 0;
    for (;;) {
        uint32_t k = 2 * i + 1;
        if (k >= r->batch) break;
        if (k + 1 < r->batch && r->heap[k + 1].end_step < r->heap[k].end_step) k++;
        if (r->heap[k].end_step >= last.end_step) break;
        r->heap[i] = r->heap[k];
        i = k;
    }
    r->heap[i] = last;
    return top;
}

static void enqueue(struct replica *r, const struct toy_request *q, uint32_t request)
{
    if (r->queued == r->room) {
        uint32_t room = max_u32(64, r->room * 2);
        uint32_t *to = malloc(room * sizeof *to);
        must(to);
        for (uint32_t i = 0; i < r->queued; i++)
            to[i] = r->queue[(r->head + i) % r->room];
        free(r->queue);
        r->queue = to;
        r->room = room;
        r->head = 0;
    }
    r->queue[(r->head + r->queued++) % r->room] = request;
    r->prompt_tokens += q->prompt;
}

static void begin_step(struct fleet *f, struct replica *r)
{
    const struct sim_control_pool *p = &f->setup->control.pool[0];
    if (r->filling == UINT32_MAX && r->queued && r->batch + 1 <= p->seqs_max) {
        uint32_t request = r->queue[r->head];
        const struct toy_request *q = &f->setup->request[request];
        uint64_t need = (uint64_t)q->prompt + q->output;
        if (r->kv_final + need <= p->kv_tokens_max || r->batch == 0) {
            r->head = (r->head + 1) % r->room;
            r->queued--;
            r->filling = request;
            r->filled = 0;
            r->kv_final += need;
        }
    }
    r->chunk_now = 0;
    if (r->filling != UINT32_MAX)
        r->chunk_now = min_u32(f->setup->chunk, f->setup->request[r->filling].prompt - r->filled);
    if (r->batch == 0 && r->chunk_now == 0) {
        r->next_us = INT64_MAX;
        return;
    }
    const struct perf_coef *c = perf(f);
    double s = c->step_s + c->prefill_token_s * r->chunk_now + c->decode_seq_s * r->batch +
               c->kv_read_s * r->kv_read;
    r->next_us = f->now_us + max_i64(1, (int64_t)(s * 1e6));
}

static void bin(uint32_t bins[4096], double seconds)
{
    double k = log(fmax(seconds, 1e-4) / 1e-4) / log(1.005);
    bins[min_u32((uint32_t)k, 4095)]++;
}

static void end_session(struct fleet *f, struct replica *r, uint32_t request)
{
    const struct toy_request *q = &f->setup->request[request];
    const struct sim_control_service *s = &f->setup->control.service[0];
    r->kv_final -= (uint64_t)q->prompt + q->output;
    r->kv_read -= (double)q->prompt + q->output;
    double ttft = (double)(f->first_us[request] - q->at_us) / 1e6;
    double tpot =
        q->output > 1 ? (double)(f->now_us - f->first_us[request]) / 1e6 / (q->output - 1) : -1;
    const struct telemetry_outcome ended = { .ttft_s = ttft,
                                             .tpot_s = fmax(tpot, 0),
                                             .e2e_s = (double)(f->now_us - q->at_us) / 1e6,
                                             .ttft_slo_s = s->ttft_slo_s,
                                             .tpot_slo_s = s->tpot_slo_s,
                                             .prompt_tokens = q->prompt,
                                             .generated_tokens = q->output };
    telemetry_finished(f->telemetry, &ended, f->now_us);
    f->ended++;
    f->mean_output += ((double)q->output - f->mean_output) / fmin((double)f->ended, 1000);
    bool a = ttft <= s->ttft_slo_s, b = tpot <= s->tpot_slo_s;
    f->ret->ttft_met += a;
    f->ret->tpot_met += b;
    f->ret->met += a && b;
    bin(f->ttft_bins, ttft);
    if (tpot >= 0) bin(f->tpot_bins, tpot);
}

static void finish_step(struct fleet *f, struct replica *r)
{
    r->step++;
    r->kv_read += r->batch;
    while (r->batch && r->heap[0].end_step <= r->step) {
        struct session s = pop(r);
        end_session(f, r, s.request);
    }
    if (r->filling != UINT32_MAX) {
        const struct toy_request *q = &f->setup->request[r->filling];
        r->filled += r->chunk_now;
        r->prompt_tokens -= r->chunk_now;
        if (r->filled == q->prompt) {
            uint32_t request = r->filling;
            r->filling = UINT32_MAX;
            f->first_us[request] = f->now_us;
            telemetry_unqueued(f->telemetry, &f->place[request]);
            r->kv_read += (double)q->prompt + 1;
            if (q->output <= 1)
                end_session(f, r, request);
            else
                push(r, (struct session){ r->step + q->output - 1, request });
        }
    }
    begin_step(f, r);
}

static bool is_idle(const struct replica *r)
{
    return r->batch == 0 && r->filling == UINT32_MAX && r->queued == 0;
}

static struct replica *pick(struct fleet *f)
{
    struct replica *best = NULL;
    double best_work = HUGE_VAL;
    for (uint32_t i = 0; i < REPLICAS_MAX; i++) {
        struct replica *r = &f->replica[i];
        if (!r->used || !r->serves || r->drains) continue;
        double work = (double)r->kv_final;
        for (uint32_t k = 0; k < r->queued && k < 64; k++) {
            const struct toy_request *q = &f->setup->request[r->queue[(r->head + k) % r->room]];
            work += (double)q->prompt + q->output;
        }
        if (work >= best_work) continue;
        best = r;
        best_work = work;
    }
    return best;
}

static void submit(struct fleet *f, uint32_t request)
{
    struct replica *r = pick(f);
    if (!r) {
        f->held[f->held_count++] = request;
        sim_control_hurry(f->control, 0, f->now_us);
        return;
    }
    enqueue(r, &f->setup->request[request], request);
    if (r->next_us == INT64_MAX) begin_step(f, r);
}

static void release_held(struct fleet *f)
{
    uint32_t n = f->held_count;
    f->held_count = 0;
    for (uint32_t i = 0; i < n; i++)
        submit(f, f->held[i]);
}

static struct replica *of(struct fleet *f, uint32_t number)
{
    for (uint32_t i = 0; i < REPLICAS_MAX; i++)
        if (f->replica[i].used && f->replica[i].number == number) return &f->replica[i];
    return NULL;
}

/* Loses an instance's requests: each never ends and so is a miss. */
static void gone(struct fleet *f, struct replica *r)
{
    for (uint32_t i = 0; i < r->queued; i++) {
        uint32_t k = r->queue[(r->head + i) % r->room];
        telemetry_unqueued(f->telemetry, &f->place[k]);
        telemetry_failed(f->telemetry);
    }
    if (r->filling != UINT32_MAX) {
        telemetry_unqueued(f->telemetry, &f->place[r->filling]);
        telemetry_failed(f->telemetry);
    }
    for (uint32_t i = 0; i < r->batch; i++)
        telemetry_failed(f->telemetry);
    free(r->queue);
    memset(r, 0, sizeof *r);
}

static void act(struct fleet *f, const struct sim_control_action *a)
{
    struct replica *r = of(f, a->number);
    switch (a->act) {
    case SIM_LAUNCH:
        r = f->replica;
        while (r->used)
            r++;
        *r = (struct replica){
            .used = true, .number = a->number, .next_us = INT64_MAX, .filling = UINT32_MAX
        };
        break;
    case SIM_SERVE:
        r->serves = true;
        release_held(f);
        break;
    case SIM_KEEP:
        r->drains = false;
        break;
    case SIM_DRAIN:
        r->drains = true;
        break;
    case SIM_GONE:
        gone(f, r);
        break;
    }
}

static void drop_drained(struct fleet *f)
{
    for (uint32_t i = 0; i < REPLICAS_MAX; i++) {
        struct replica *r = &f->replica[i];
        if (!r->used || !r->drains || !is_idle(r)) continue;
        sim_control_emptied(f->control, r->number, f->now_us);
        free(r->queue);
        memset(r, 0, sizeof *r);
    }
}

static void control(struct fleet *f)
{
    static struct sim_load load[REPLICAS_MAX];
    static struct service_demand demand;
    telemetry_report(f->telemetry, f->now_us, &demand);
    demand.held = f->held_count;
    for (uint32_t i = 0; i < f->held_count; i++)
        demand.held_prompt_tokens += f->setup->request[f->held[i]].prompt;
    struct sim_control_input in = { .demand = &demand, .load = load };
    for (uint32_t i = 0; i < REPLICAS_MAX; i++) {
        const struct replica *r = &f->replica[i];
        if (!r->used || !r->serves) continue;
        demand.in_flight += r->batch + (r->filling != UINT32_MAX) + r->queued;
        load[in.load_count++] = (struct sim_load){ .number = r->number,
                                                   .running = r->batch + (r->filling != UINT32_MAX),
                                                   .waiting = r->queued,
                                                   .kv_tokens = (uint64_t)r->kv_read,
                                                   .prefill_tokens = r->prompt_tokens,
                                                   .has_perf = true,
                                                   .perf = *perf(f) };
    }
    struct sim_control_action actions[SIM_CONTROL_ACTIONS_MAX];
    uint32_t n = sim_control_advance(f->control, f->now_us, &in, actions);
    for (uint32_t i = 0; i < n; i++)
        act(f, &actions[i]);
    drop_drained(f);
}

static double quantile(const uint32_t bins[4096], double q)
{
    uint64_t total = 0, sum = 0;
    for (uint32_t i = 0; i < 4096; i++)
        total += bins[i];
    for (uint32_t i = 0; i < 4096; i++) {
        sum += bins[i];
        if ((double)sum >= q * (double)total) return 1e-4 * pow(1.005, i + 0.5);
    }
    return HUGE_VAL;
}

static bool step_replicas(struct fleet *f, int64_t *ret_next)
{
    int64_t next = INT64_MAX;
    bool busy = false, ended = false;
    for (uint32_t i = 0; i < REPLICAS_MAX; i++) {
        struct replica *r = &f->replica[i];
        if (!r->used) continue;
        if (r->next_us <= f->now_us) {
            finish_step(f, r);
            ended |= r->drains && is_idle(r);
        }
        busy |= !is_idle(r);
        next = min_i64(next, r->next_us);
    }
    if (ended) drop_drained(f);
    *ret_next = next;
    return busy;
}

static int toy_run(const struct toy_setup *setup, struct toy_result *ret)
{
    *ret = (struct toy_result){ 0 };
    struct fleet *f = calloc(1, sizeof *f);
    must(f);
    f->setup = setup;
    f->ret = ret;
    f->replica = calloc(REPLICAS_MAX, sizeof *f->replica);
    f->telemetry = calloc(1, sizeof *f->telemetry);
    f->held = calloc(setup->count + 1, sizeof *f->held);
    f->first_us = calloc(setup->count + 1, sizeof *f->first_us);
    f->place = calloc(setup->count + 1, sizeof *f->place);
    must(f->replica && f->telemetry && f->held && f->first_us && f->place);
    f->mean_output = setup->count ? setup->request[0].output : 1;
    struct err err = { 0 };
    int rc = sim_control_new(&setup->control, &f->control, &err);
    uint32_t next = 0;
    control(f);
    for (bool busy = true; rc == 0 && (next < setup->count || busy || f->held_count);) {
        int64_t step_us;
        busy = step_replicas(f, &step_us);
        int64_t at = min_i64(step_us, sim_control_next_us(f->control));
        if (next < setup->count) at = min_i64(at, setup->request[next].at_us);
        f->now_us = max_i64(f->now_us, at);
        while (next < setup->count && setup->request[next].at_us <= f->now_us) {
            uint32_t prompt = setup->request[next].prompt;
            telemetry_arrived(f->telemetry, prompt, f->mean_output, f->now_us);
            telemetry_queued(f->telemetry, &f->place[next], prompt, f->mean_output, f->now_us);
            submit(f, next++);
            busy = true;
        }
        if (sim_control_next_us(f->control) <= f->now_us) control(f);
    }
    if (rc == 0) {
        sim_control_finish(f->control, f->now_us, &ret->totals);
        ret->attainment = setup->count ? (double)ret->met / setup->count : 1;
        ret->ttft_p90_s = quantile(f->ttft_bins, 0.9);
        ret->tpot_p90_s = quantile(f->tpot_bins, 0.9);
        ret->end_s = (double)f->now_us / 1e6;
    }
    sim_control_free(f->control);
    for (uint32_t i = 0; i < REPLICAS_MAX; i++)
        free(f->replica[i].queue);
    free(f->replica);
    free(f->telemetry);
    free(f->held);
    free(f->first_us);
    free(f->place);
    free(f);
    return rc;
}

#define SECOND ((int64_t)1000000)

static struct toy_request *constant_rate(double rate, double seconds, uint32_t *ret_count)
{
    uint32_t n = (uint32_t)(rate * seconds);
    struct toy_request *r = calloc(n + 1, sizeof *r);
    assert_non_null(r);
    for (uint32_t i = 0; i < n; i++)
        r[i] = (struct toy_request){ (int64_t)(i / rate * 1e6), 1000, 200 };
    *ret_count = n;
    return r;
}

static struct toy_setup a_setup(const char *policy, double lead_s)
{
    struct toy_setup s = {
        .control = { .seed = 1,
                     .pool_count = 1,
                     .service = { { .policy = scale_find(str_from(policy)),
                                    .scale = SCALE_CONFIG_DEFAULT,
                                    .ttft_slo_s = 2,
                                    .tpot_slo_s = 0.1 } },
                     .pool = { { .price_h = 3.6,
                                 .lead_s = lead_s,
                                 .min = 1,
                                 .max = 16,
                                 .start = 1,
                                 .prior = { .step_s = 0.02,
                                            .prefill_token_s = 5e-5,
                                            .decode_seq_s = 2e-4,
                                            .kv_read_s = 1e-7 },
                                 .seqs_max = 256,
                                 .kv_tokens_max = 200000 } } },
        .chunk = 2048,
    };
    return s;
}

static void costs_run_from_launch_to_termination(void **state)
{
    (void)state;
    struct toy_setup s = a_setup("static", 50);
    struct toy_result r;
    s.control.service[0].scale.count = 3;
    struct toy_request *q = constant_rate(1, 400, &s.count);
    s.request = q;
    assert_int_equal(toy_run(&s, &r), 0);
    /* One instance from the start and two launched with the first decision at 0 make three all the
     * time. */
    assert_true(fabs(r.totals.instance_seconds - 3 * r.end_s) < 1e-3);
    assert_true(fabs(r.totals.cost_usd - r.totals.instance_seconds * 3.6 / 3600) < 1e-6);
    assert_int_equal(r.totals.launches, 2);
    assert_int_equal(r.totals.instances_max, 3);
    double phases = 0;
    for (uint32_t k = 0; k < SIM_PHASE_COUNT; k++)
        phases += r.totals.phase_s[k];
    assert_true(fabs(phases - 2 * 50) < 1e-6); /* sigma 0: exactly the lead */
    free(q);
}

static void same_seed_same_run(void **state)
{
    (void)state;
    for (uint32_t row = 0; row < scale_count; row++) {
        struct toy_setup s = a_setup(scale_table[row]->name, 20);
        s.control.lead_sigma = 0.2;
        s.control.pool[0].life_s = 900;
        s.control.pool[0].fail_share = 0.2;
        struct toy_request *q = constant_rate(20, 300, &s.count);
        s.request = q;
        struct toy_result a, b, other;
        assert_int_equal(toy_run(&s, &a), 0);
        assert_int_equal(toy_run(&s, &b), 0);
        assert_memory_equal(&a, &b, sizeof a);
        s.control.seed = 2;
        assert_int_equal(toy_run(&s, &other), 0);
        if (a.totals.launches > 0)
            assert_true(memcmp(&a.totals.phase_s, &other.totals.phase_s, sizeof a.totals.phase_s));
        free(q);
    }
}

static void chance_belongs_to_the_instance(void **state)
{
    (void)state;
    /* The first launch takes equally long under any policy. */
    double first[2];
    static const char *const rows[] = { "static", "keda_queue" };
    for (int i = 0; i < 2; i++) {
        struct toy_setup s = a_setup(rows[i], 30);
        s.control.lead_sigma = 0.3;
        s.control.service[0].scale.count = 2;
        s.control.pool[0].max = 2;
        struct toy_request *q = constant_rate(30, 120, &s.count);
        s.request = q;
        struct toy_result r;
        assert_int_equal(toy_run(&s, &r), 0);
        assert_int_equal(r.totals.launches, 1);
        first[i] = r.totals.phase_s[SIM_PROVISION];
        free(q);
    }
    assert_true(fabs(first[0] - first[1]) < 1e-12);
}

static void lost_instances_are_replaced(void **state)
{
    (void)state;
    struct toy_setup s = a_setup("static", 10);
    s.control.service[0].scale.count = 2;
    s.control.pool[0].life_s = 200;
    struct toy_request *q = constant_rate(2, 2000, &s.count);
    s.request = q;
    struct toy_result r;
    assert_int_equal(toy_run(&s, &r), 0);
    assert_true(r.totals.lost > 5);
    assert_int_equal(r.totals.launches, r.totals.lost + 1);
    assert_true(r.attainment < 1 && r.attainment > 0.7);
    free(q);
}

static uint32_t lost_seen;

static void choose_and_look(void *state, const struct place_view *view, int64_t now_us,
                            struct rng *rng, struct place_verdict *ret)
{
    lost_seen = view->offer[0].lost;
    place_find(STR("order"))->choose(state, view, now_us, rng, ret);
}

static void spot_goes_with_its_zone_on_notice(void **state)
{
    (void)state;
    static const struct place_policy looking = { .name = "looking", .choose = choose_and_look };
    struct toy_setup s = a_setup("static", 10);
    s.control.service[0].scale.count = 2;
    s.control.pool[0].spot = true;
    s.control.zone[0] = (struct sim_zone){ .up_s = 300, .down_s = 60 };
    s.control.notice_s = 30;
    s.control.service[0].place = &looking;
    struct toy_request *q = constant_rate(1, 3000, &s.count);
    s.request = q;
    struct toy_result r;
    assert_int_equal(toy_run(&s, &r), 0);
    /* Outputs take about ten seconds here and the notice is thirty, so no running request is
     * lost. */
    assert_true(r.totals.launches > 4);
    assert_int_equal(r.totals.lost, 0);
    assert_true(lost_seen >= 2); /* place policies count the losses, as in the product */
    assert_true(r.attainment > 0.5);
    free(q);
}

/* Demand doubles for a while: a fleet that follows it attains more of the SLO than one that does
 * not, and costs less than one that always stands at its peak. */
static void the_fleet_follows_demand(void **state)
{
    (void)state;
    uint32_t n = 0;
    struct toy_request *q = calloc(60000, sizeof *q);
    assert_non_null(q);
    for (double t = 0; t<1500; t += t> 300 && t < 900 ? 1.0 / 30 : 1.0 / 5)
        q[n++] = (struct toy_request){ (int64_t)(t * 1e6), 1000, 200 };
    double attainment[3], cost[3];
    static const struct {
        const char *row;
        uint32_t count;
    } fleets[] = { { "work", 0 }, { "static", 1 }, { "static", 8 } };
    for (int i = 0; i < 3; i++) {
        struct toy_setup s = a_setup(fleets[i].row, 15);
        s.control.service[0].scale.count = fleets[i].count;
        s.request = q;
        s.count = n;
        struct toy_result r;
        assert_int_equal(toy_run(&s, &r), 0);
        attainment[i] = r.attainment;
        cost[i] = r.totals.cost_usd;
    }
    assert_true(attainment[0] > attainment[1] + 0.2);
    assert_true(cost[0] < cost[2]);
    free(q);
}

static void setups_are_checked(void **state)
{
    (void)state;
    struct sim_control_setup s = a_setup("work", 10).control;
    struct sim_control *c = NULL;
    struct err err = { 0 };
    s.pool[0].start = 17;
    assert_int_equal(sim_control_new(&s, &c, &err), -EINVAL);
    assert_null(c);
    s = a_setup("work", 10).control;
    s.service[0].tpot_slo_s = 0;
    assert_int_equal(sim_control_new(&s, &c, &err), -EINVAL);
    s = a_setup("work", 10).control;
    s.pool_count = 0;
    assert_int_equal(sim_control_new(&s, &c, &err), -EINVAL);
}

static int control_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_run_from_launch_to_termination),
        cmocka_unit_test(same_seed_same_run),
        cmocka_unit_test(chance_belongs_to_the_instance),
        cmocka_unit_test(lost_instances_are_replaced),
        cmocka_unit_test(spot_goes_with_its_zone_on_notice),
        cmocka_unit_test(the_fleet_follows_demand),
        cmocka_unit_test(setups_are_checked),
    };
    return cmocka_run_group_tests_name("control", tests, NULL, NULL);
}

int main(void)
{
    return control_tests();
}
