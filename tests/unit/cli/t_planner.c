/* t_planner.c - what `muster plan` asks: buckets of a trace, types of a price list, the answers. */
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/cmd_offers.h"
#include "cli/plan/planner.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct planner planner;
static struct prices prices;

static const char list[] = "a100 dear   - on_demand 3.00 2026-11-01 x\n"
                           "a100 cheap  - on_demand 1.50 2026-11-01 x\n"
                           "h100 only   - on_demand 3.00 2026-11-01 x\n"
                           "h100 only   - spot      1.00 2026-11-01 x\n"
                           "t4   only   - on_demand 0.50 2026-11-01 x\n";

static struct model_spec model_of(const char *name)
{
    struct model_spec m;
    assert_int_equal(model_spec_find(str_from(name), &m, NULL), 0);
    return m;
}

static int types(const char *model, const struct planner_slo *slo, struct err *err)
{
    struct model_spec m = model_of(model);
    assert_int_equal(prices_parse(str_from(list), &prices, err), 0);
    return planner_types(&planner, &prices, &m, NULL, 0, slo, err);
}

static void the_cheapest_offer_of_each_kind_is_asked(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct planner_slo slo = { .slo_ttft_s = 1, .slo_tpot_s = 0.05 };
    planner_lengths(&planner, 1000, 200, 40);
    assert_int_equal(types("llama-3-8b", &slo, &err), 0);
    for (uint32_t t = 0; t < planner.mix.type_count; t++) {
        assert_string_not_equal(planner.type[t].price->provider, "dear");
        assert_false(planner.type[t].price->spot);
    }
    uint32_t without = planner.mix.type_count;
    slo.spot = true;
    assert_int_equal(types("llama-3-8b", &slo, &err), 0);
    assert_int_equal(planner.mix.type_count, without + 1);

    struct mix_verdict answer, second;
    planner_ask(&planner, &mix_joint, &answer, &second);
    assert_true(answer.found && second.found);
    assert_true(second.cost_h >= answer.cost_h); /* without what carries most of the cost */
    assert_true(answer.cost_h > 0);
}

/* Too much work is another lack than a promise that no type keeps. */
static void what_is_lacking_is_said(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct mix_verdict answer, second;
    struct planner_slo slo = { .slo_ttft_s = 1, .slo_tpot_s = 0.05 };
    planner_lengths(&planner, 1000, 200, 1e6);
    assert_int_equal(types("llama-3-8b", &slo, &err), 0);
    planner_ask(&planner, &mix_joint, &answer, &second);
    assert_false(answer.found);
    assert_string_equal(answer.why, "it takes more instances of these types than can be asked for");
    slo.slo_tpot_s = 1e-4;
    planner_lengths(&planner, 1000, 200, 1);
    assert_int_equal(types("llama-3-8b", &slo, &err), 0);
    planner_ask(&planner, &mix_joint, &answer, &second);
    assert_false(answer.found);
    assert_string_equal(answer.why, "no type serves the work in time");
}

static void a_large_model_is_split(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct planner_slo slo = { .slo_ttft_s = 5, .slo_tpot_s = 0.2 };
    planner_lengths(&planner, 1000, 200, 1);
    assert_int_equal(types("llama-2-70b", &slo, &err), 0);
    for (uint32_t t = 0; t < planner.mix.type_count; t++) {
        assert_true(planner.type[t].tp > 1);
        assert_true(fabs(planner.mix.type[t].price_h -
                         planner.type[t].tp * planner.type[t].price->price_h) < 1e-9);
    }
    struct str only[] = { STR("t4") };
    struct model_spec m = model_of("llama-2-70b");
    int rc = planner_types(&planner, &prices, &m, only, 1, &slo, &err);
    assert_int_equal(rc, -ENOENT);
    assert_non_null(strstr(err.text, "holds llama-2-70b"));
    only[0] = STR("l4"); /* known, and in no line of the list */
    rc = planner_types(&planner, &prices, &m, only, 1, &slo, &err);
    assert_int_equal(rc, -ENOENT);
    assert_non_null(strstr(err.text, "no offer of what is asked for, on demand"));
}

static void buckets_keep_rate_and_lengths(void **state)
{
    (void)state;
    CLEANUP(trace_freep) struct trace *trace = NULL;
    struct err err = { 0 };
    assert_int_equal(trace_new(&trace, &err), 0);
    for (uint32_t i = 0; i < 1000; i++) {
        struct trace_request r = { .at_us = (int64_t)i * 100000,
                                   .prompt_tokens = 1 + (i * 37) % 20000,
                                   .output_tokens = 1 + (i * 13) % 900 };
        assert_int_equal(trace_append(trace, &r, NULL, (struct str){ NULL, 0 }, &err), 0);
    }
    planner_trace(&planner, trace, 25);
    double rate = 0, prompt = 0, output = 0;
    for (uint32_t b = 0; b < planner.mix.bucket_count; b++) {
        const struct mix_bucket *k = &planner.mix.bucket[b];
        rate += k->rate_s;
        prompt += k->rate_s * k->prompt_tokens;
        output += k->rate_s * k->output_tokens;
    }
    assert_true(planner.mix.bucket_count > 4);
    assert_true(fabs(rate - 25) < 1e-6);
    assert_true(fabs(prompt / rate - planner.mean.prompt_tokens) < 1e-6 * prompt);
    assert_true(fabs(output / rate - planner.mean.output_tokens) < 1e-6 * output);
}

/* The price price_list: a file's dates, and how old a price is. */

#define DAY_S 86400

static struct prices price_list;

/* What offers_load says of a file with this text. */
static int load(const char *text, struct err *err)
{
    char folder[] = "/tmp/muster-offers-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/prices.txt", folder);
    assert_int_equal(file_write_atomic(path, str_from(text), 0600, NULL), 0);
    int rc = offers_load(str_from(path), &price_list, err);
    unlink(path);
    rmdir(folder);
    return rc;
}

static void a_date_to_come_is_refused(void **state)
{
    (void)state;
    struct err err = { 0 };
    assert_int_equal(load("h100 aws - on_demand 6.88 2026-11-09 x\n", &err), 0);
    price_list.count = 7;
    assert_int_equal(load("h100 aws - on_demand 6.88 2026-11-09 x\n"
                          "l4 gcp - on_demand 0.71 2999-01-01 x\n",
                          &err),
                     -EINVAL);
    assert_non_null(
        strstr(err_text(&err, -EINVAL), "prices.txt: the price of l4 at gcp is dated "));
    assert_non_null(strstr(err_text(&err, -EINVAL), " days after today"));
    assert_int_equal(price_list.count, 7); /* untouched */
    assert_int_equal(offers_load((struct str){ 0 }, &price_list, &err), 0);
}

static void ages_are_whole_seconds_or_unknown(void **state)
{
    (void)state;
    int64_t now_s = (int64_t)time(NULL);
    int32_t today = (int32_t)(now_s / DAY_S);
    struct price p = { .day = today - 30 };
    int64_t age_s = offers_age_s(&p);
    assert_in_range(age_s, now_s - (today - 30) * (int64_t)DAY_S, 32 * DAY_S);
    p.day = today + 1; /* it may be today where the price_list was written */
    assert_int_equal(offers_age_s(&p), 0);
    p.day = today + 30; /* the compiled-in price_list under a clock that is behind */
    assert_int_equal(offers_age_s(&p), -1);
    p.day = PRICE_DATE_UNKNOWN;
    assert_int_equal(offers_age_s(&p), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cheapest_offer_of_each_kind_is_asked),
        cmocka_unit_test(what_is_lacking_is_said),
        cmocka_unit_test(a_large_model_is_split),
        cmocka_unit_test(buckets_keep_rate_and_lengths),
        cmocka_unit_test(a_date_to_come_is_refused),
        cmocka_unit_test(ages_are_whole_seconds_or_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
