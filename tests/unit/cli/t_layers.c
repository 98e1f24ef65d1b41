/* t_layers.c - what `muster plan layers` asks: speeds, machines, links, room, and layouts whose KV has
 * room. */
#include "base/core/bits.h"
#include "cli/plan/layers.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

static struct layers_plan plan;

static struct layers_work work_of(const char *model, uint32_t batch)
{
    struct layers_work w = {
        .batch = batch, .context_tokens = 1024, .link_bytes_s = 1.25e9, .machine_devices = 8
    };
    assert_int_equal(model_spec_find(str_from(model), &w.model, NULL), 0);
    return w;
}

/* `devices` with commas between them. */
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

/* One device is a pipeline of one stage: the step-time model's own tokens a second. */
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

/* Equal stages on equal devices keep all of them busy, with a batch at each. */
static void equal_devices_are_all_busy(void **state)
{
    (void)state;
    struct layers_work w = work_of("opt-13b", 8); /* 40 layers */
    w.link_bytes_s = 1e12;
    assert_int_equal(question("4xh100,4xh100", &w, NULL), 0);
    struct layers_answer a = ask("gpipe");
    assert_true(fabs(a.layout.rate_s / plan.most_s - 1) < 1e-9);
    assert_int_equal(a.stage_count, 8);
    assert_in_range(a.batches, 8, 9); /* the links hold next to nothing */
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
            ask("gpipe"); /* another row's room is not this one's */
            again = ask(layers_table[i]->name);
            assert_memory_equal(a.layout.part, again.layout.part, sizeof a.layout.part);
            assert_int_equal(a.batches, again.batches);
            assert_true(a.layout.rate_s <= plan.most_s * (1 + 1e-9));
            if (a.layout.found) check(&a);
            found += a.layout.found;
            none += !a.layout.found;
        }
    }
    assert_true(found >= 4 && none >= 1); /* deep pipelines have no room for large batches */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_stand_in_machines_of_their_item),
        cmocka_unit_test(one_device_does_what_its_steps_do),
        cmocka_unit_test(equal_devices_are_all_busy),
        cmocka_unit_test(what_is_under_way_has_room),
        cmocka_unit_test(devices_that_share_nothing_stand_alone),
        cmocka_unit_test(mistakes_have_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
