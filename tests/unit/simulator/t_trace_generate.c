/* t_trace_generate.c - generated traces have the rate, the lengths and the sharing that were asked for. */
#include "base/core/bits.h"
#include "simulator/generate.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct trace *make(const char *text, uint64_t seed)
{
    struct generate_spec spec;
    struct err err = { 0 };
    struct trace *t = NULL;
    if (generate_parse(str_from(text), &spec, &err) < 0) fail_msg("%s: %s", text, err.text);
    if (generate_trace(&spec, seed, &t, &err) < 0) fail_msg("%s: %s", text, err.text);
    return t;
}

static void near(double value, double want, double share, const char *what)
{
    if (fabs(value - want) > share * want) fail_msg("%s: %g, want %g", what, value, want);
}

/* Squared coefficient of variation of the answers. */
static double output_scv(const struct trace *t)
{
    double sum = 0, square = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        double output = t->request[i].output_tokens;
        sum += output;
        square += output * output;
    }
    return square * t->count / (sum * sum) - 1;
}

static void poisson_and_lognormal_have_their_moments(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t =
        make("poisson,rate=0.5,prompt=lognormal(64,1),output=lognormal(150,2.3),n=50000", 1);
    struct trace_stats s;
    trace_stats_get(t, &s);
    assert_int_equal(t->count, 50000);
    near(s.rate_s, 0.5, 0.02, "rate");
    near(s.prompt_mean, 64, 0.03, "prompt");
    near(s.output_mean, 150, 0.03, "output");
    near(output_scv(t), 2.3, 0.2, "C2");
    assert_int_equal(t->block_tokens, 0); /* nothing is shared, so nothing is said of it */
}

/* Squared coefficient of variation of the gaps. */
static double gap_scv(const struct trace *t)
{
    double sum = 0, square = 0, n = t->count - 1;
    for (uint32_t i = 1; i < t->count; i++) {
        double gap = (double)(t->request[i].at_us - t->request[i - 1].at_us);
        sum += gap;
        square += gap * gap;
    }
    return square / n / (sum / n * sum / n) - 1;
}

static void spacings_have_their_variation(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double scv;
    } rows[] = {
        { "poisson,rate=100,prompt=1,output=1,n=100000", 1 },
        { "gamma,cv=3,rate=100,prompt=1,output=1,n=100000", 9 },
        { "gamma,cv=0.5,rate=100,prompt=1,output=1,n=100000", 0.25 },
        { "gamma,rate=100,prompt=1,output=1,n=100000", 1 }, /* cv 1 is Poisson */
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(trace_freep) struct trace *t = make(rows[i].text, 2);
        near(gap_scv(t), rows[i].scv, 0.08, rows[i].text);
    }
    CLEANUP(trace_freep) struct trace *t = make("constant,rate=4,prompt=1,output=1,n=9", 2);
    for (uint32_t i = 0; i < t->count; i++)
        assert_int_equal(t->request[i].at_us, i * 250000);
}

static uint32_t count_between(const struct trace *t, double from_s, double to_s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        double at_s = (double)t->request[i].at_us * 1e-6;
        n += at_s >= from_s && at_s < to_s;
    }
    return n;
}

static void schedules_are_followed(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t = make("constant,rate=steps(2:330,0:60,4:360),prompt=1,output=1", 3);
    assert_int_equal(count_between(t, 0, 330), 660);
    assert_int_equal(count_between(t, 330, 390), 0);
    assert_int_equal(count_between(t, 390, 750), 1440);
    assert_int_equal(t->count, 2100); /* the schedule's end is the trace's */

    CLEANUP(trace_freep)
    struct trace *burst =
        make("poisson,rate=bursts(1,50,60,6),prompt=1,output=1,duration=60000", 3);
    struct trace_stats s;
    trace_stats_get(burst, &s);
    near(s.rate_s, (60 * 1 + 6 * 50) / 66.0, 0.1, "mean rate of bursts");
    assert_true(gap_scv(burst) > 3);
}

static void lengths_keep_their_bounds(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t =
        make("constant,rate=1,prompt=normal(4000,300,3500,4500),output=uniform(900,1100),"
             "output_max=1000,n=5000",
             4);
    uint32_t at_bound = 0;
    double sum = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct trace_request *r = &t->request[i];
        assert_true(r->prompt_tokens >= 3500 && r->prompt_tokens <= 4500);
        assert_true(r->output_tokens >= 900 && r->output_tokens <= 1000);
        assert_int_equal(r->output_max, 1000);
        at_bound += r->prompt_tokens == 4500;
        sum += r->prompt_tokens;
    }
    near(sum / t->count, 4000, 0.01, "mean");
    assert_true(at_bound > 150 && at_bound < 350); /* 4.8 % lie beyond and are clipped */
}

static void tenants_have_their_shares(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t = make("poisson,rate=1,prompt=1,output=1,n=40000,tenants=4,heavy=7", 5);
    uint32_t sent[5] = { 0 };
    for (uint32_t i = 0; i < t->count; i++)
        sent[t->request[i].tenant]++;
    assert_int_equal(sent[0], 0);
    near(sent[1], 28000, 0.03, "the heavy one");
    near(sent[4], 4000, 0.1, "a light one");

    CLEANUP(trace_freep)
    struct trace *zipf =
        make("poisson,rate=1,prompt=1,output=1,n=40000,tenants=3,zipf=1,services=2", 5);
    memset(sent, 0, sizeof sent);
    uint32_t second = 0;
    for (uint32_t i = 0; i < zipf->count; i++) {
        assert_true(zipf->request[i].service < 2);
        second += zipf->request[i].service;
        sent[zipf->request[i].tenant]++;
    }
    near(second, 20000, 0.03, "one of two services");
    near(sent[1] / (double)sent[3], 3, 0.1, "1 to 1/3");
}

static uint32_t common_blocks(const struct trace *t, uint32_t a, uint32_t b)
{
    const struct trace_request *x = &t->request[a], *y = &t->request[b];
    uint32_t n = 0;
    while (n < x->block_count && n < y->block_count &&
           t->block[x->block_first + n] == t->block[y->block_first + n])
        n++;
    return n;
}

static void conversations_grow_and_share(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *t =
        make("poisson,rate=0.2,prompt=50,output=30,turns=4,think=lognormal(60,1),n=2000,"
             "system=100,systems=2,block=16",
             6);
    uint32_t last[2001] = { 0 }, checked = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct trace_request *r = &t->request[i];
        assert_true(r->session > 0 && r->session <= 2000 && r->turn >= 1 && r->turn <= 4);
        assert_int_equal(r->prompt_tokens, 100 + 50 + 80 * (r->turn - 1));
        assert_int_equal(r->block_count, ceil_div_u32(r->prompt_tokens, 16));
        uint32_t *before = &last[r->session];
        if (r->turn == 1) {
            assert_int_equal(*before, 0);
        } else {
            /* All whole blocks of the turn before come again, its partial one does not. */
            assert_int_equal(t->request[*before - 1].turn, r->turn - 1);
            uint32_t whole = t->request[*before - 1].prompt_tokens / 16;
            assert_int_equal(common_blocks(t, *before - 1, i), whole);
            checked++;
        }
        *before = i + 1;
    }
    assert_true(checked > 1000);
    /* One of two prefixes, 100 / 16 whole blocks of it. */
    uint64_t first = t->block[t->request[0].block_first];
    uint32_t alike = 0;
    for (uint32_t i = 1; i < t->count; i++) {
        const struct trace_request *r = &t->request[i];
        if (r->session == t->request[0].session) continue;
        bool same = t->block[r->block_first] == first;
        assert_int_equal(common_blocks(t, 0, i), same ? 6 : 0);
        alike += same;
    }
    near(alike, t->count / 2.0, 0.1, "the first's prefix");
}

static void purposes_have_their_streams(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *a =
        make("poisson,rate=1,prompt=lognormal(64,1),output=lognormal(9,1),n=500,tenants=9", 7);
    CLEANUP(trace_freep)
    struct trace *same =
        make("poisson,rate=1,prompt=lognormal(64,1),output=lognormal(9,1),n=500,tenants=9", 7);
    CLEANUP(trace_freep)
    struct trace *faster =
        make("poisson,rate=2,prompt=lognormal(64,1),output=lognormal(9,1),n=500,tenants=9", 7);
    CLEANUP(trace_freep)
    struct trace *other =
        make("poisson,rate=1,prompt=lognormal(64,1),output=lognormal(9,1),n=500,tenants=9", 8);
    assert_memory_equal(a->request, same->request, a->count * sizeof *a->request);
    uint32_t differs = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct trace_request *x = &a->request[i], *y = &faster->request[i];
        assert_true(x->prompt_tokens == y->prompt_tokens && x->output_tokens == y->output_tokens);
        assert_true(x->tenant == y->tenant && llabs(x->at_us - 2 * y->at_us) <= 2);
        differs += other->request[i].prompt_tokens != x->prompt_tokens;
    }
    assert_true(differs > 400);
}

/* Turns at once, and turns beside new conversations, are in order to the microsecond. */
static void conversations_without_pauses_keep_the_order(void **state)
{
    (void)state;
    CLEANUP(trace_freep)
    struct trace *alone = make("poisson,rate=1,n=50,output=5,prompt=5,turns=10000,think=0", 1);
    assert_int_equal(alone->count, 50);
    assert_true(alone->request[49].at_us == alone->request[0].at_us); /* one conversation */
    CLEANUP(trace_freep)
    struct trace *many =
        make("poisson,rate=3,n=20000,output=5,prompt=5,turns=4,think=uniform(0,0.3)", 2);
    assert_int_equal(many->count, 20000);
    for (uint32_t i = 1; i < many->count; i++)
        assert_true(many->request[i].at_us >= many->request[i - 1].at_us);
}

/* Where only the schedule shows it, it is said when the year is over. */
static void longer_than_a_year_is_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "poisson,rate=steps(0.0001:1e9),prompt=1,output=1",
        "poisson,rate=bursts(1e-7,1e-7,10000,10000),n=5,prompt=1,output=1",
        "poisson,rate=1e-6,n=1000,turns=100,think=1e6,prompt=1,output=1",
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct generate_spec spec;
        struct trace *t = NULL;
        struct err err = { 0 };
        assert_int_equal(generate_parse(str_from(rows[i]), &spec, &err), 0);
        int rc = generate_trace(&spec, 1, &t, &err);
        if (rc != -EINVAL || !strstr(err.text, "366 days"))
            fail_msg("%s: %d %s", rows[i], rc, err.text);
    }
    CLEANUP(trace_freep)
    struct trace *cut = make("poisson,rate=1,duration=9,turns=9,think=1e6,prompt=1,output=1", 1);
    assert_true(cut->count > 0); /* a duration ends a trace by itself */
}

static void wrong_sentences_are_explained(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "", "arrivals are poisson, constant or gamma" },
        { "posson,rate=1", "'posson': arrivals are" },
        { "poisson", "needs rate=" },
        { "poisson,rate=1,prompt=1,output=1", "needs n= or duration=" },
        { "poisson,rate=bursts(1,2,3,4),prompt=1,output=1", "needs n= or duration=" },
        { "poisson,rate=1,n=1,output=1", "needs prompt= and output=" },
        { "poisson,rate=1,promt=1", "did you mean 'prompt'?" },
        { "poisson,rate=0,n=1", "rate=0: takes" },
        { "poisson,rate=steps(2),n=1", "steps(RATE:SECONDS,...)" },
        { "poisson,rate=bursts(1,2),n=1", "rate=bursts(1,2): takes" },
        { "poisson,rate=bursts(0,1e-9,1,1),n=1", "fewer than 0.001 arrivals a cycle" },
        { "poisson,rate=1,n=1.5", "n=1.5: takes a whole number in 1..4000000" },
        { "poisson,rate=1,n=1e9", "n=1e9" },
        { "poisson,rate=1,prompt=lognorm(1,2)", "did you mean 'lognormal'?" },
        { "poisson,rate=1,prompt=lognormal(1)", "takes lognormal(MEAN,C2), C2 from" },
        { "poisson,rate=1,prompt=lognormal(9,1e300)",
          "takes lognormal(MEAN,C2), C2 from 0 to 1000" },
        { "poisson,rate=1,prompt=lognormal(9,1",
          "takes NUMBER from 0, lognormal(MEAN,C2), normal" },
        { "poisson,rate=1,prompt=normal(1000,1,1,5)", "MIN <= MEAN <= MAX" },
        { "poisson,rate=1,n=5,n=6,prompt=1,output=1", "n= is given twice" },
        { "poisson,rate=1,n=5,rate=2,prompt=1,output=1", "rate= is given twice" },
        { "poisson,rate=steps(1e9:5),n=1", "takes steps(" },
        { "poisson,rate=bursts(1,1e9,5,5),n=1", "): takes" },
        { "poisson,rate=1,prompt=normal(1,1,5,2)", "takes normal(MEAN,SD,MIN,MAX)" },
        { "poisson,rate=1,prompt=0", "its mean is out of range" },
        { "poisson,rate=1,prompt=", "takes NUMBER" },
        { "poisson,rate=1,n", "KEY=VALUE" },
        { "poisson,rate=1,n=1,prompt=1,output=1,", "'': a generated trace is said as KEY=VALUE" },
        { "poisson,rate=1,prompt=1,output=1,n=1,zipf=1", "need tenants=" },
        { "poisson,rate=1,prompt=1,output=1,n=1,cv=2", "goes with gamma" },
        { "poisson,rate=1,prompt=1,output=1,n=1,turns=2", "go together" },
        { "poisson,rate=1,prompt=1,output=1,n=1,systems=2", "needs system=" },
        { "poisson,rate=1e-7,prompt=1,output=1,n=5", "rate=1e-07: n=5 of them take 579 days" },
        { "poisson,rate=1,prompt=1,output=1,duration=1e9", "takes a number in 0.001..31622400" },
        { "poisson,rate=1,prompt=1,output=1,n=1,system=64,context=64", "does not fit" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct err err = { 0 };
        struct generate_spec spec;
        int rc = generate_parse(str_from(rows[i].text), &spec, &err);
        if (rc != -EINVAL || !strstr(err.text, rows[i].says)) {
            fail_msg("%s: %d %s", rows[i].text, rc, err.text);
        }
    }
    struct generate_spec spec;
    struct trace *t = NULL;
    assert_int_equal(generate_parse(STR("poisson,rate=steps(0:5),prompt=1,output=1"), &spec, NULL),
                     0);
    assert_int_equal(generate_trace(&spec, 1, &t, NULL), -EINVAL); /* nobody came */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(poisson_and_lognormal_have_their_moments),
        cmocka_unit_test(spacings_have_their_variation),
        cmocka_unit_test(schedules_are_followed),
        cmocka_unit_test(lengths_keep_their_bounds),
        cmocka_unit_test(tenants_have_their_shares),
        cmocka_unit_test(conversations_grow_and_share),
        cmocka_unit_test(purposes_have_their_streams),
        cmocka_unit_test(conversations_without_pauses_keep_the_order),
        cmocka_unit_test(longer_than_a_year_is_refused),
        cmocka_unit_test(wrong_sentences_are_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
