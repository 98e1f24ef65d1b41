/* t_planner.c - tests `muster plan` and its subcommands on inputs with known results. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/cmd_offers.h"
#include "cli/plan/cmd_plan.h"
#include "cli/plan/cmd_plan_layers.h"
#include "cli/plan/cmd_plan_load.h"
#include "cli/plan/cmd_plan_move.h"
#include "policies/load/load.h"
#include "policies/move/move.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- `muster plan`: buckets of a trace, types of a price list, mixes of them ---- */

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
    assert_true(second.cost_h >= answer.cost_h); /* without the most costly type */
    assert_true(answer.cost_h > 0);
}

/* Too much work and an SLO that no type keeps have different messages. */
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
    only[0] = STR("l4"); /* known hardware without a line in the price list */
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

/* ---- the price list: dates in a file, and how old a price is ---- */

#define DAY_S 86400

static struct prices price_list;

/* Runs offers_load on a file with this text. */
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
    assert_int_equal(price_list.count, 7); /* unchanged */
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
    p.day = today + 1; /* may be today in the time zone of the price list's author */
    assert_int_equal(offers_age_s(&p), 0);
    p.day = today + 30; /* the compiled-in price list, read under a clock that is behind */
    assert_int_equal(offers_age_s(&p), -1);
    p.day = PRICE_DATE_UNKNOWN;
    assert_int_equal(offers_age_s(&p), -1);
}

static int planner_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cheapest_offer_of_each_kind_is_asked),
        cmocka_unit_test(what_is_lacking_is_said),
        cmocka_unit_test(a_large_model_is_split),
        cmocka_unit_test(buckets_keep_rate_and_lengths),
        cmocka_unit_test(a_date_to_come_is_refused),
        cmocka_unit_test(ages_are_whole_seconds_or_unknown),
    };
    return cmocka_run_group_tests_name("planner", tests, NULL, NULL);
}

/* ---- `muster plan layers`: speeds, machines, links, memory, and layouts whose KV fits ---- */

static struct layers_plan plan;

static struct layers_work work_of(const char *model, uint32_t batch)
{
    struct layers_work w = {
        .batch = batch, .context_tokens = 1024, .link_bytes_s = 1.25e9, .machine_devices = 8
    };
    assert_int_equal(model_spec_find(str_from(model), &w.model, NULL), 0);
    return w;
}

/* Sets up `plan` for `devices`, separated by commas. */
static int question(const char *devices, const struct layers_work *w, struct err *err)
{
    struct str item[8], rest = str_from(devices);
    size_t count = 0;
    while (rest.len > 0 && count < COUNT_OF(item))
        item[count++] = str_cut(&rest, ',');
    int rc = layers_devices(&plan, item, count, w, err);
    return rc < 0 ? rc : layers_fill(&plan, err);
}

static struct layers_answer ask(const char *row)
{
    struct layers_answer a;
    layers_ask(&plan, layers_find(str_from(row)), &a);
    return a;
}

static void devices_stand_in_machines_of_their_item(void **state)
{
    (void)state;
    struct layers_work w = work_of("llama-3-70b", 8);
    assert_int_equal(question("4xa100,2xl4,12xt4", &w, NULL), 0);
    static const uint32_t machine[] = { 0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3 };
    const struct layers_problem *p = &plan.problem;
    assert_int_equal(p->device_count, COUNT_OF(machine));
    double sum = 0;
    for (uint32_t a = 0; a < p->device_count; a++) {
        assert_int_equal(plan.machine[a], machine[a]);
        sum += p->device[a].layer_tokens_s / p->layers;
        for (uint32_t b = 0; b < p->device_count; b++) {
            bool near = machine[a] == machine[b];
            assert_true(near ? p->bytes_s[a][b] > 1.25e9 : fabs(p->bytes_s[a][b] - 1.25e9) < 1);
            assert_true(near == (p->device[a].machine == p->device[b].machine));
        }
    }
    assert_true(fabs(sum - plan.most_s) <= 1e-9 * sum);
    assert_true(p->device[0].layer_tokens_s > 3 * p->device[4].layer_tokens_s);
    assert_true(p->device[0].layers_max > 3 * p->device[6].layers_max);
    assert_true(p->split_efficiency > 0.3 && p->split_efficiency < 1);
    assert_true(plan.extrapolated);
}

/* One device is a pipeline of one stage, with the tokens a second of the step-time model. */
static void one_device_does_what_its_steps_do(void **state)
{
    (void)state;
    struct layers_work w = work_of("opt-13b", 8);
    struct roofline r;
    struct perf_shape shape = { .decoding_seqs = 8,
                                .kv_tokens_read = (uint64_t)8 * 1024,
                                .kv_tokens_decoding = (uint64_t)8 * 1024 };
    assert_true(roofline_init(&r, hardware_find(STR("rtxpro6000")), &w.model, 1));
    double step_s = roofline_step_s(&r, &shape);
    assert_int_equal(question("1xrtxpro6000", &w, NULL), 0);
    assert_false(plan.extrapolated);
    for (uint32_t i = 0; i < layers_count; i++) {
        struct layers_answer a = ask(layers_table[i]->name);
        assert_true(a.layout.found && a.stage_count == 1 && a.batches == 1);
        assert_true(fabs(a.layout.rate_s - 8 / step_s) <= 1e-9 * a.layout.rate_s);
        assert_true(fabs(a.token_s - step_s) <= 1e-9 * step_s);
    }
}

/* Equal stages on equal devices keep all devices busy, each with its own batch. */
static void equal_devices_are_all_busy(void **state)
{
    (void)state;
    struct layers_work w = work_of("opt-13b", 8); /* 40 layers */
    w.link_bytes_s = 1e12;
    assert_int_equal(question("4xh100,4xh100", &w, NULL), 0);
    struct layers_answer a = ask("gpipe");
    assert_true(fabs(a.layout.rate_s / plan.most_s - 1) < 1e-9);
    assert_int_equal(a.stage_count, 8);
    assert_in_range(a.batches, 8, 9); /* transfers take almost no time */
}

static void check(const struct layers_answer *a)
{
    const struct model_spec *m = &plan.work.model;
    double sequences = (double)a->batches * plan.work.batch, most = 0;
    double kv = sequences * plan.work.context_tokens * model_spec_kv_token_bytes(m) / m->layers;
    double weights = model_spec_weights(m) * m->weight_bytes / m->layers;
    for (uint32_t s = 0; s < a->stage_count; s++) {
        const struct layers_part *part = &a->layout.part[a->stage[s]];
        double share = (double)part->count / __builtin_popcount(part->devices);
        for (uint32_t d = 0; d < plan.problem.device_count; d++)
            if (part->devices >> d & 1) assert_true(share * (weights + kv) <= plan.room_bytes[d]);
        if (s > 0) assert_true(part->first >= a->layout.part[a->stage[s - 1]].first);
        assert_true(a->through_s[a->stage[s]] <= a->most_s[a->stage[s]] * (1 + 1e-6));
        most = fmax(most, a->through_s[a->stage[s]]);
    }
    assert_true(most * a->token_s <= sequences * (1 + 1e-5));
}

static void what_is_under_way_has_room(void **state)
{
    (void)state;
    static const uint32_t batches[] = { 4, 16, 64 };
    uint32_t found = 0, none = 0;
    for (size_t k = 0; k < COUNT_OF(batches); k++) {
        struct layers_work w = work_of("llama-3-70b", batches[k]);
        assert_int_equal(question("2xa100,2xl4,4xt4", &w, NULL), 0);
        for (uint32_t i = 0; i < layers_count; i++) {
            struct layers_answer a = ask(layers_table[i]->name), again;
            ask("gpipe"); /* the memory of another policy's layout must not linger */
            again = ask(layers_table[i]->name);
            assert_memory_equal(a.layout.part, again.layout.part, sizeof a.layout.part);
            assert_int_equal(a.batches, again.batches);
            assert_true(a.layout.rate_s <= plan.most_s * (1 + 1e-9));
            if (a.layout.found) check(&a);
            found += a.layout.found;
            none += !a.layout.found;
        }
    }
    assert_true(found >= 4 && none >= 1); /* deep pipelines have no memory for large batches */
}

static void devices_that_share_nothing_stand_alone(void **state)
{
    (void)state;
    struct layers_work w = work_of("llama-3-70b", 4);
    assert_int_equal(question("4xa100,8xl4", &w, NULL), 0);
    struct layers_answer shared = ask("hexgen");
    w.machine_devices = 1;
    assert_int_equal(question("4xa100,8xl4", &w, NULL), 0);
    struct layers_answer alone = ask("hexgen");
    bool any = false;
    for (uint32_t i = 0; i < shared.layout.part_count; i++)
        any |= __builtin_popcount(shared.layout.part[i].devices) > 1;
    assert_true(any && alone.layout.found);
    for (uint32_t i = 0; i < alone.layout.part_count; i++)
        assert_int_equal(__builtin_popcount(alone.layout.part[i].devices), 1);
}

static void mistakes_have_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *devices;
        int rc;
        const char *says;
    } rows[] = {
        { "", -EINVAL, "--devices is empty" },
        { "4", -EINVAL, "'4' is not COUNTxHARDWARE" },
        { "0xa100", -EINVAL, "'0xa100' is not COUNTxHARDWARE" },
        { "xa100", -EINVAL, "'xa100' is not COUNTxHARDWARE" },
        { "4xa10", -EINVAL, "did you mean 'a10g'?" },
        { "30xa100,3xl4", -EINVAL, "more than 32 devices" },
        { "99999999999xa100", -EINVAL, "more than 32 devices" },
        { "2xt4", -ENOENT, "of the 80 layers of llama-3-70b beside the KV of one batch" },
    };
    struct layers_work w = work_of("llama-3-70b", 8);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct err err = { 0 };
        int rc = question(rows[i].devices, &w, &err);
        if (rc != rows[i].rc || !strstr(err.text, rows[i].says))
            fail_msg("%s: %d, %s", rows[i].devices, rc, err.text);
    }
    struct err err = { 0 };
    w.model.layers = LAYERS_MAX + 1;
    assert_int_equal(question("32xh100", &w, &err), -ERANGE);
    assert_non_null(strstr(err.text, "at most 128"));
}

static int layers_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_stand_in_machines_of_their_item),
        cmocka_unit_test(one_device_does_what_its_steps_do),
        cmocka_unit_test(equal_devices_are_all_busy),
        cmocka_unit_test(what_is_under_way_has_room),
        cmocka_unit_test(devices_that_share_nothing_stand_alone),
        cmocka_unit_test(mistakes_have_a_sentence),
    };
    return cmocka_run_group_tests_name("layers", tests, NULL, NULL);
}

/* ---- `muster plan move`: layouts before and after a loss, and SpotServe's mapping of them ---- */

static struct layout_move remap;
static struct layout_move_answer answer, other;

static int move_question(const char *model, uint32_t devices, uint32_t stages, uint32_t lost,
                         uint32_t stages_after, struct err *err)
{
    remap = (struct layout_move){ .hardware = hardware_find(STR("a100")),
                                  .devices = devices,
                                  .stages = stages,
                                  .stages_after = stages_after,
                                  .lost = lost,
                                  .batch = 8,
                                  .context_tokens = 1024,
                                  .link_bytes_s = 1.25e9,
                                  .notice_s = 30,
                                  .seed = 1,
                                  .draws = 200 };
    assert_int_equal(model_spec_find(str_from(model), &remap.model, NULL), 0);
    return layout_move_init(&remap, err);
}

static double mean(const double *v)
{
    return stats_mean(v, remap.draws).mean;
}

/* No device is lost and the layout stays: every sensible mapping leaves all bytes in place. */
static void without_a_loss_nothing_is_sent(void **state)
{
    (void)state;
    assert_int_equal(move_question("llama-3-70b", 16, 4, 0, 4, NULL), 0);
    assert_int_equal(remap.pipelines_after, 4);
    for (uint32_t i = 0; i < move_count; i++) {
        layout_move_ask(&remap, move_table[i], &answer);
        assert_true(mean(answer.sent_bytes) < 1);
        assert_int_equal(answer.in_notice, remap.draws);
        double kv = 4.0 * 8 * 1024 * 4 * model_spec_kv_token_bytes(&remap.model);
        assert_true(fabs(mean(answer.reused_bytes) - remap.restart_bytes - kv) < 1e-6 * kv);
    }
}

/* Two pipelines of two stages lose one device; the one pipeline that remains is already
 * complete. */
static void a_whole_pipeline_goes_on(void **state)
{
    (void)state;
    assert_int_equal(move_question("opt-13b", 4, 2, 1, 2, NULL), 0);
    assert_int_equal(remap.pipelines_after, 1);
    layout_move_ask(&remap, &move_spotserve, &answer);
    layout_move_ask(&remap, &move_in_order, &other);
    for (uint32_t k = 0; k < remap.draws; k++)
        assert_true(answer.sent_bytes[k] < 1);
    assert_true(mean(other.sent_bytes) > 0.2 * remap.restart_bytes);
    assert_int_equal(answer.count, 3);
    uint32_t used = 0;
    for (uint32_t i = 0; i < answer.count; i++) {
        if (answer.to[i] == MOVE_NONE) continue;
        assert_int_equal(answer.device[i] % 2, answer.to[i]);
        used++;
    }
    assert_int_equal(used, 2);
}

static void the_number_of_stages_is_chosen(void **state)
{
    (void)state;
    /* Of 15 devices, five pipelines of three would not hold the KV, and three of five use all
     * devices. */
    assert_int_equal(move_question("llama-3-70b", 16, 4, 1, 0, NULL), 0);
    assert_int_equal(remap.stages_after * remap.pipelines_after, 15);
    /* A model that one device holds needs no pipeline. */
    assert_int_equal(move_question("llama-3-8b", 8, 2, 3, 0, NULL), 0);
    assert_int_equal(remap.stages_after, 1);
    assert_int_equal(remap.pipelines_after, 5);
}

/* Sums over the loss of one to six of 16 devices in four pipelines of four stages. */
static void mapping_sends_less_than_order_and_restart(void **state)
{
    (void)state;
    double mapped = 0, in_order = 0, restart = 0;
    for (uint32_t lost = 1; lost <= 6; lost++) {
        assert_int_equal(move_question("llama-3-70b", 16, 4, lost, 0, NULL), 0);
        layout_move_ask(&remap, &move_spotserve, &answer);
        layout_move_ask(&remap, &move_in_order, &other);
        for (uint32_t k = 0; k < remap.draws; k++)
            assert_true(answer.reused_bytes[k] >= other.reused_bytes[k] - 1);
        struct stats_mean less = stats_paired(answer.sent_bytes, other.sent_bytes, remap.draws);
        assert_true(less.mean + less.half < 0);
        mapped += mean(answer.sent_bytes);
        in_order += mean(other.sent_bytes);
        restart += remap.restart_bytes;
        print_message("%u lost: %.1f GB sent, in order %.1f, restart %.1f\n", lost,
                      mean(answer.sent_bytes) / 1e9, mean(other.sent_bytes) / 1e9,
                      remap.restart_bytes / 1e9);
    }
    print_message("all: %.1f %% of a restart's bytes, %.1f %% of those in order\n",
                  100 * mapped / restart, 100 * mapped / in_order);
    assert_true(mapped < 0.3 * restart);
    assert_true(mapped < 0.4 * in_order);
}

static void equal_seeds_have_equal_answers(void **state)
{
    (void)state;
    assert_int_equal(move_question("llama-3-70b", 16, 4, 3, 0, NULL), 0);
    memset(&answer, 0, sizeof answer);
    memset(&other, 0, sizeof other);
    layout_move_ask(&remap, &move_spotserve, &answer);
    layout_move_ask(&remap, &move_in_order, &other);
    layout_move_ask(&remap, &move_spotserve, &other);
    assert_memory_equal(&answer, &other, sizeof answer);
    remap.seed = 2;
    layout_move_ask(&remap, &move_spotserve, &other);
    assert_memory_not_equal(answer.sent_bytes, other.sent_bytes, sizeof answer.sent_bytes);
}

static void mistakes_of_a_move_have_a_sentence(void **state)
{
    (void)state;
    static const struct {
        uint32_t devices, stages, lost, after;
        const char *says;
    } rows[] = {
        { 16, 3, 1, 0, "16 devices are no whole pipelines of 3 stages" },
        { 16, 1, 1, 0, "do not hold llama-3-70b beside the KV of 8 sequences" },
        { 16, 4, 16, 0, "16 of 16 devices are lost: none stays" },
        { 16, 4, 15, 0, "the 1 devices that stay hold no pipeline" },
        { 16, 4, 4, 13, "the 12 devices that stay hold no pipeline" },
        { 16, 4, 4, 1, "hold no pipeline of llama-3-70b with its KV in so many stages" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct err err = { 0 };
        int rc = move_question("llama-3-70b", rows[i].devices, rows[i].stages, rows[i].lost,
                               rows[i].after, &err);
        if (rc != -EINVAL || !strstr(err.text, rows[i].says))
            fail_msg("row %zu: %d, %s", i, rc, err.text);
    }
}

static int layout_move_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_loss_nothing_is_sent),
        cmocka_unit_test(a_whole_pipeline_goes_on),
        cmocka_unit_test(the_number_of_stages_is_chosen),
        cmocka_unit_test(mapping_sends_less_than_order_and_restart),
        cmocka_unit_test(equal_seeds_have_equal_answers),
        cmocka_unit_test(mistakes_of_a_move_have_a_sentence),
    };
    return cmocka_run_group_tests_name("layout_move", tests, NULL, NULL);
}

/* ---- `muster plan load`: queues, memories and disks of machines, and ServerlessLLM's choice
 * ---- */

#define SEEDS 5

static struct weight_loads_work usual(double rate_s)
{
    return (struct weight_loads_work){ .model_bytes = 16e9,
                                       .bytes_s = { 20e9, 5e9, 1e9 },
                                       .start_s = 1,
                                       .machines = 8,
                                       .models = 40,
                                       .in_memory = 3,
                                       .on_disk = 12,
                                       .rate_s = rate_s,
                                       .skew = 2.5,
                                       .loads = 4000 };
}

static struct weight_loads_result run(const struct weight_loads_work *w,
                                      const struct load_policy *policy, uint64_t seed)
{
    struct weight_loads_result r;
    assert_int_equal(weight_loads_run(w, policy, seed, &r, NULL), 0);
    return r;
}

/* One model on one machine: the first load comes from the store, all others from memory. */
static void what_was_loaded_lies_in_memory(void **state)
{
    (void)state;
    struct weight_loads_work w = usual(0.001);
    w.machines = w.models = 1;
    w.loads = 100;
    for (uint32_t i = 0; i < load_count; i++) {
        struct weight_loads_result r = run(&w, load_table[i], 1);
        assert_true(fabs(r.share[LOAD_MEMORY] - 0.99) < 1e-9);
        assert_true(fabs(r.share[LOAD_STORE] - 0.01) < 1e-9);
        assert_true(fabs(r.start_s.p50 - 1.8) < 1e-6 && fabs(r.start_s.mean - 1.952) < 1e-6);
    }
    w.in_memory = 0;
    assert_true(fabs(run(&w, &load_least_loaded, 1).share[LOAD_DISK] - 0.99) < 1e-9);
    w.on_disk = 0;
    assert_true(fabs(run(&w, &load_least_loaded, 1).share[LOAD_STORE] - 1) < 1e-9);
}

/* Loads of one machine wait for each other: their mean wait is the formula's for an M/D/1 queue. */
static void weight_loads_of_a_machine_wait(void **state)
{
    (void)state;
    struct weight_loads_work w = usual(0.9 / 0.8);
    w.machines = w.models = 1;
    w.loads = 100000;
    double own_s = 0.8, rho = 0.9, wait_s = own_s * rho / (2 * (1 - rho)), sum = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        sum += run(&w, &load_serverlessllm, seed).start_s.mean / SEEDS;
    print_message("M/D/1 at 0.9: %.2f s, by formula %.2f s\n", sum, 1 + own_s + wait_s);
    assert_true(fabs(sum / (1 + own_s + wait_s) - 1) < 0.05);
}

static void ready_first_starts_sooner(void **state)
{
    (void)state;
    static const double rates_s[] = { 0.2, 0.5, 1.0 };
    for (size_t r = 0; r < COUNT_OF(rates_s); r++) {
        struct weight_loads_work w = usual(rates_s[r]);
        double mean_s[3][SEEDS];
        static const struct load_policy *const policy[3] = { &load_serverlessllm,
                                                             &load_least_loaded,
                                                             &load_nearest_tier };
        for (uint32_t seed = 0; seed < SEEDS; seed++)
            for (int i = 0; i < 3; i++)
                mean_s[i][seed] = run(&w, policy[i], seed + 1).start_s.mean;
        struct stats_mean least = stats_paired(mean_s[1], mean_s[0], SEEDS);
        struct stats_mean nearest = stats_paired(mean_s[2], mean_s[0], SEEDS);
        double ours = stats_mean(mean_s[0], SEEDS).mean;
        print_message("%.1f loads a second: ready in %.2f s; least_loaded later by %.2f +- %.2f, "
                      "nearest_tier by %.2f +- %.2f\n",
                      rates_s[r], ours, least.mean, least.half, nearest.mean, nearest.half);
        assert_true(least.mean - least.half > ours);
        assert_true(nearest.mean > 0.02 * ours);
    }
}

static void equal_seeds_load_equally(void **state)
{
    (void)state;
    struct weight_loads_work w = usual(0.5);
    for (uint32_t i = 0; i < load_count; i++) {
        struct weight_loads_result a = run(&w, load_table[i], 3), b = run(&w, load_table[i], 3);
        assert_memory_equal(&a, &b, sizeof a);
        b = run(&w, load_table[i], 4);
        assert_memory_not_equal(&a, &b, sizeof a);
    }
}

static int weight_loads_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_loaded_lies_in_memory),
        cmocka_unit_test(weight_loads_of_a_machine_wait),
        cmocka_unit_test(ready_first_starts_sooner),
        cmocka_unit_test(equal_seeds_load_equally),
    };
    return cmocka_run_group_tests_name("weight_loads", tests, NULL, NULL);
}

int main(void)
{
    return planner_tests() + layers_tests() + layout_move_tests() + weight_loads_tests();
}
