/* t_sched_displace.c - tests a full queue: which waiting session loses its place to a newcomer of
 * another tenant, and that each request ends once. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "tests/unit/engine/sched_rig.h"

#include <stdlib.h>
#include <string.h>

#define PLACES 4
#define TENANTS 5
#define STEPS 4000
#define STEPS_LAST 4000

static struct sched_config config_of(const struct fair_policy *fair)
{
    struct sched_config config = rig_config();
    config.seqs_max = 1;
    config.waiting_max = PLACES;
    config.policies.fair = fair;
    return config;
}

static int submit(struct rig *r, uint64_t id, uint64_t tenant, double weight, bool begun,
                  struct session **ret)
{
    static const uint32_t ids[4] = { 1, 2, 3, 4 };
    struct sched_request req = { .id = id,
                                 .ids = ids,
                                 .prompt_tokens = COUNT_OF(ids),
                                 .output_max = 3,
                                 .arrival_us = r->now_us,
                                 .tenant = tenant,
                                 .weight = weight,
                                 .begun = begun };
    struct session *session = NULL;
    int rc = sched_submit(r->s, &req, &session, NULL);
    if (ret) *ret = session;
    return rc;
}

/* Returns the id of the session that was displaced, or -1. */
static int64_t displaced(struct rig *r)
{
    struct session *x = sched_next_ended(r->s);
    if (!x) return -1;
    int64_t id = (int64_t)x->id;
    assert_int_equal(x->end, SESSION_END_DISPLACED);
    assert_int_equal(x->page_count, 0);
    assert_null(sched_next_ended(r->s));
    sched_release(r->s, x);
    assert_true(sched_check(r->s));
    return id;
}

static void the_last_of_the_tenant_that_has_most_gives_way(void **state)
{
    (void)state;
    for (uint32_t f = 0; f < fair_count; f++) {
        struct rig r;
        struct sched_config config = config_of(fair_table[f]);
        bool shares = fair_table[f]->displace != NULL;
        rig_init(&r, &config);
        for (uint64_t id = 0; id < PLACES; id++)
            assert_int_equal(submit(&r, id, 1, 1, false, NULL), 0);
        assert_int_equal(submit(&r, 4, 1, 1, false, NULL), -EAGAIN); /* its tenant has all */
        static const struct {
            uint64_t tenant;
            double weight;
            int64_t out; /* -1: the newcomer is refused */
            const char *why;
        } come[] = {
            { 2, 1, 3, "4 against 1" },
            { 2, 1, 2, "3 against 2" },
            { 2, 1, -1, "2 against 3" },
            { 1, 1, -1, "the same the other way" },
            { 3, 0.5, -1, "a place is worth two to it" },
            { 3, 2, 1, "2 against a half, the first of equals" },
        };
        for (uint64_t i = 0; i < COUNT_OF(come); i++) {
            int64_t out = shares ? come[i].out : -1;
            int rc = submit(&r, 10 + i, come[i].tenant, come[i].weight, false, NULL);
            if (rc != (out < 0 ? -EAGAIN : 0) || displaced(&r) != out)
                fail_msg("%s: %s", fair_table[f]->name, come[i].why);
        }
        struct sched_counts n;
        sched_counts_get(r.s, &n);
        assert_int_equal(n.waiting, PLACES);
        assert_int_equal(n.refused, shares ? 4 : 7);
        assert_int_equal(n.ended[SESSION_END_DISPLACED], shares ? 3 : 0);
        rig_fini(&r);
    }
}

/* None of these four sessions may lose its place: one runs, one has begun elsewhere, one is paused,
 * one has ended. */
static void who_has_begun_keeps_its_place(void **state)
{
    (void)state;
    struct rig r;
    struct sched_config config = config_of(fair_find(STR("vtc")));
    config.waiting_max = 3;
    struct session *runs, *paused, *leaves;
    rig_init(&r, &config);
    assert_int_equal(submit(&r, 0, 1, 1, false, &runs), 0);
    assert_true(rig_step(&r)); /* it runs, so three more can wait */
    assert_int_equal(submit(&r, 1, 1, 1, true, NULL), 0);
    assert_int_equal(submit(&r, 2, 1, 1, false, &paused), 0);
    assert_int_equal(submit(&r, 3, 1, 1, false, &leaves), 0);
    sched_pause(r.s, paused, true);
    sched_abort(r.s, leaves); /* it ends in the next plan */
    assert_int_equal(runs->state, SESSION_RUNNING);
    assert_int_equal(submit(&r, 4, 2, 1, false, NULL), -EAGAIN);
    assert_null(sched_next_ended(r.s));
    sched_pause(r.s, paused, false);
    assert_int_equal(submit(&r, 5, 2, 1, false, NULL), 0);
    assert_int_equal(displaced(&r), 2);
    rig_fini(&r);
}

/* ---- at random ---- */

struct crowd {
    struct rig r;
    struct rng rng;
    uint32_t waiting[TENANTS]; /* never admitted; that is all that wait, as none is preempted */
    double weight[TENANTS];
    uint64_t sent, refused, displaced, whole;
};

/* Returns the tenant that loses a place, by a walk over all; TENANTS: the newcomer is refused. */
static uint32_t who_loses(const struct crowd *c, uint32_t own)
{
    uint32_t most = TENANTS;
    double places = (c->waiting[own] + 1) / c->weight[own];
    for (uint32_t t = 0; t < TENANTS; t++)
        if (c->waiting[t] / c->weight[t] > places) places = c->waiting[t] / c->weight[t];
    /* The scheduler keeps tenants in its own order of slots: of equals any may lose. */
    for (uint32_t t = 0; t < TENANTS && most == TENANTS; t++)
        if (t != own && c->waiting[t] / c->weight[t] >= places) most = t;
    return (c->waiting[own] + 1) / c->weight[own] < places ? most : TENANTS;
}

static void collect(struct crowd *c)
{
    for (struct session *x; (x = sched_next_ended(c->r.s)); sched_release(c->r.s, x))
        c->whole += x->end == SESSION_END_LENGTH || x->end == SESSION_END_STOP;
}

static void arrive(struct crowd *c)
{
    uint32_t own = (uint32_t)rng_below(&c->rng, TENANTS);
    if (rng_below(&c->rng, 2)) own = 0; /* this tenant sends more than half */
    struct sched_counts n;
    sched_counts_get(c->r.s, &n);
    bool full = n.waiting == PLACES;
    uint32_t loses = full ? who_loses(c, own) : TENANTS;
    int rc = submit(&c->r, c->sent++, own, c->weight[own], false, NULL);
    assert_int_equal(rc, full && loses == TENANTS ? -EAGAIN : 0);
    c->refused += rc < 0;
    c->waiting[own] += rc == 0;
    if (!full || rc < 0) return;
    struct session *out = sched_next_ended(c->r.s);
    assert_int_equal(out->end, SESSION_END_DISPLACED);
    uint32_t t = (uint32_t)out->tenant;
    double same = c->waiting[loses] / c->weight[loses];
    assert_true(t != own && c->waiting[t] / c->weight[t] >= same);
    c->waiting[t]--;
    c->displaced++;
    sched_release(c->r.s, out);
}

static void recount(struct crowd *c, const struct sched_batch *b)
{
    for (uint32_t i = 0; i < b->count; i++)
        if (b->item[i].session->computed == 0) c->waiting[b->item[i].session->tenant]--;
}

static void step(struct crowd *c)
{
    struct rig *r = &c->r;
    r->now_us += STEP_US;
    const struct sched_batch *b = sched_plan(r->s, r->now_us, &rig_perf);
    assert_true(sched_check(r->s));
    recount(c, b);
    rig_execute(r, b);
    if (b->count > 0) sched_commit(r->s, r->result, r->now_us);
    assert_true(sched_check(r->s));
    collect(c);
}

static void every_request_is_answered_once_and_by_the_rule(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct crowd c = { .weight = { 1, 1, 2, 0.5, 1 } };
        struct sched_config config = config_of(fair_find(seed & 1 ? STR("vtc") : STR("dlpm")));
        config.prefix_cache = false;
        rng_seed(&c.rng, seed);
        rig_init(&c.r, &config);
        for (uint32_t i = 0; i < STEPS; i++) {
            if (rng_below(&c.rng, 2)) arrive(&c);
            step(&c);
        }
        struct sched_counts n;
        for (uint32_t i = 0; i < STEPS_LAST; i++)
            step(&c);
        sched_counts_get(c.r.s, &n);
        assert_int_equal(n.waiting + n.running, 0);
        assert_true(c.refused > 100 && c.displaced > 50 && c.whole > 500);
        assert_int_equal(c.sent, c.refused + c.displaced + c.whole);
        assert_int_equal(n.ended[SESSION_END_DISPLACED], c.displaced);
        rig_fini(&c.r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_of_the_tenant_that_has_most_gives_way),
        cmocka_unit_test(who_has_begun_keeps_its_place),
        cmocka_unit_test(every_request_is_answered_once_and_by_the_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
