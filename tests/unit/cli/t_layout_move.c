/* t_layout_move.c - what `muster plan move` asks: layouts before and after a loss, bytes that lie right, and
 * what SpotServe's mapping is worth. */
#include "base/core/bits.h"
#include "cli/plan/layout_move.h"
#include "policies/move/move.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

static struct layout_move remap;
static struct layout_move_answer answer, other;

static int question(const char *model, uint32_t devices, uint32_t stages, uint32_t lost,
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

/* Nobody is lost and the layout stays: all lies right, in any sensible mapping. */
static void without_a_loss_nothing_is_sent(void **state)
{
    (void)state;
    assert_int_equal(question("llama-3-70b", 16, 4, 0, 4, NULL), 0);
    assert_int_equal(remap.pipelines_after, 4);
    for (uint32_t i = 0; i < move_count; i++) {
        layout_move_ask(&remap, move_table[i], &answer);
        assert_true(mean(answer.sent_bytes) < 1);
        assert_int_equal(answer.in_notice, remap.draws);
        double kv = 4.0 * 8 * 1024 * 4 * model_spec_kv_token_bytes(&remap.model);
        assert_true(fabs(mean(answer.reused_bytes) - remap.restart_bytes - kv) < 1e-6 * kv);
    }
}

/* One device of two pipelines of two stages goes, one pipeline is left: it is whole. */
static void a_whole_pipeline_goes_on(void **state)
{
    (void)state;
    assert_int_equal(question("opt-13b", 4, 2, 1, 2, NULL), 0);
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
    /* 15 devices: five pipelines of three would not hold the KV, three of five use all of them. */
    assert_int_equal(question("llama-3-70b", 16, 4, 1, 0, NULL), 0);
    assert_int_equal(remap.stages_after * remap.pipelines_after, 15);
    /* A model that one device holds needs no pipeline. */
    assert_int_equal(question("llama-3-8b", 8, 2, 3, 0, NULL), 0);
    assert_int_equal(remap.stages_after, 1);
    assert_int_equal(remap.pipelines_after, 5);
}

/* 16 devices in four pipelines of four stages, one to six lost. */
static void mapping_sends_less_than_order_and_restart(void **state)
{
    (void)state;
    double mapped = 0, in_order = 0, restart = 0;
    for (uint32_t lost = 1; lost <= 6; lost++) {
        assert_int_equal(question("llama-3-70b", 16, 4, lost, 0, NULL), 0);
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
    assert_int_equal(question("llama-3-70b", 16, 4, 3, 0, NULL), 0);
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

static void mistakes_have_a_sentence(void **state)
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
        int rc = question("llama-3-70b", rows[i].devices, rows[i].stages, rows[i].lost,
                          rows[i].after, &err);
        if (rc != -EINVAL || !strstr(err.text, rows[i].says))
            fail_msg("row %zu: %d, %s", i, rc, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_loss_nothing_is_sent),
        cmocka_unit_test(a_whole_pipeline_goes_on),
        cmocka_unit_test(the_number_of_stages_is_chosen),
        cmocka_unit_test(mapping_sends_less_than_order_and_restart),
        cmocka_unit_test(equal_seeds_have_equal_answers),
        cmocka_unit_test(mistakes_have_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
