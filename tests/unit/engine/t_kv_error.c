/* t_kv_error.c - measures what K and V in Q8 and Q4 change in the shipped model's logits, against F16.
 *
 * Every position of the longest text of tests/vectors/model (1,972 tokens) is compared; the figures that are
 * printed stand in docs/models.md. */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/own.h"
#include "engine/model/model.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MODEL_PATH "models/muster-tiny-q8_0.gguf"
#define IDS_MAX 2048
#define PAGE_TOKENS 64
#define CHUNK 32

static uint32_t ids[IDS_MAX], id_count, table[IDS_MAX / PAGE_TOKENS];

struct rig {
    struct model *model;
    struct kv_store *kv;
    struct model_runner *runner;
    float *logits; /* of CHUNK tokens */
};

static void rig_fini(struct rig *r)
{
    model_runner_free(r->runner);
    kv_store_free(r->kv);
    model_free(r->model);
    free(r->logits);
}

static void rig_init(struct rig *r, enum kv_type type)
{
    const struct model_load_options load = { .kv_type = type };
    const struct model_runner_options run = { .tokens_max = CHUNK, .seqs_max = 1, .threads = 1 };
    struct err err = { { 0 } };
    *r = (struct rig){ 0 };
    int rc = model_load(MODEL_PATH, &load, &r->model, &err);
    if (rc == 0) rc = kv_store_new(r->model, COUNT_OF(table), PAGE_TOKENS, &r->kv, &err);
    if (rc == 0) rc = model_runner_new(r->model, r->kv, &run, &r->runner, &err);
    if (rc < 0) fail_msg("%s", err.text);
    r->logits = calloc((size_t)CHUNK * model_info(r->model)->vocab_size, sizeof *r->logits);
    must(r->logits);
}

/* Computes the logits of tokens [at, at + count). */
static void step(struct rig *r, uint32_t at, uint32_t count)
{
    struct err err = { { 0 } };
    const struct batch_item item = { .ids = ids + at,
                                     .count = count,
                                     .position = at,
                                     .page_table = table,
                                     .pages = COUNT_OF(table),
                                     .drafted = count - 1,
                                     .want_logits = true,
                                     .logits = r->logits };
    if (model_step(r->runner, &item, 1, &err) < 0) fail_msg("%s", err.text);
}

/* Of all positions; differences are relative to the largest |logit| of their position. */
struct difference {
    double largest, mean, nats; /* nats: the mean KL divergence from F16 */
    uint32_t same_choice, positions;
};

static double log_sum(const float *logits, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += exp((double)logits[i]);
    return log(sum);
}

static void add_position(struct difference *d, const float *want, const float *got, uint32_t count)
{
    double top = 0, largest = 0, sum = 0, nats = 0;
    double want_sum = log_sum(want, count), got_sum = log_sum(got, count);
    uint32_t want_choice = 0, got_choice = 0;
    for (uint32_t i = 0; i < count; i++) {
        double w = (double)want[i], off = fabs((double)got[i] - w);
        top = fmax(top, fabs(w));
        largest = fmax(largest, off);
        sum += off;
        nats += exp(w - want_sum) * ((w - want_sum) - ((double)got[i] - got_sum));
        if (want[i] > want[want_choice]) want_choice = i;
        if (got[i] > got[got_choice]) got_choice = i;
    }
    d->largest = fmax(d->largest, largest / top);
    d->mean += sum / count / top;
    d->nats += nats;
    d->same_choice += want_choice == got_choice;
    d->positions++;
}

static void read_ids(void)
{
    FILE *file = fopen("tests/vectors/model/logits.txt", "r");
    if (!file) fail_msg("logits.txt ships with the tests");
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, file) > 0) {
        if (strncmp(line, "ids ", 4) != 0) continue;
        char *at = line + 4, *end = at;
        for (id_count = 0; id_count < IDS_MAX; id_count++, at = end) { /* the last is the longest */
            ids[id_count] = (uint32_t)strtoul(at, &end, 10);
            if (end == at) break;
        }
    }
    free(line);
    fclose(file);
    for (uint32_t i = 0; i < COUNT_OF(table); i++)
        table[i] = i;
    assert_true(id_count > 1900);
}

static void t_logits_stay_near_those_of_f16(void **state)
{
    (void)state;
    static const struct {
        enum kv_type type;
        double largest, mean, nats, same; /* bounds: about twice what was measured */
    } rows[] = {
        { KV_Q8, 0.08, 0.0035, 4e-4, 0.97 },
        { KV_Q4, 0.25, 0.013, 0.007, 0.91 },
    };
    CLEANUP(rig_fini) struct rig f16;
    read_ids();
    rig_init(&f16, KV_F16);
    uint32_t vocab = model_info(f16.model)->vocab_size;
    for (size_t n = 0; n < COUNT_OF(rows); n++) {
        CLEANUP(rig_fini) struct rig r;
        struct difference d = { 0 };
        rig_init(&r, rows[n].type);
        for (uint32_t at = 0; at < id_count; at += CHUNK) {
            uint32_t count = min_u32(CHUNK, id_count - at);
            step(&f16, at, count);
            step(&r, at, count);
            for (uint32_t i = 0; i < count; i++)
                add_position(&d, f16.logits + (size_t)i * vocab, r.logits + (size_t)i * vocab,
                             vocab);
        }
        double mean = d.mean / d.positions, nats = d.nats / d.positions;
        double same = (double)d.same_choice / d.positions;
        print_message(
            "%s: largest %.4f, mean %.5f of the largest logit; %.2g nats; same choice %.4f "
            "of %u positions\n",
            kv_type_name(rows[n].type), d.largest, mean, nats, same, d.positions);
        assert_true(d.largest < rows[n].largest && mean < rows[n].mean);
        assert_true(nats < rows[n].nats && same > rows[n].same);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(t_logits_stay_near_those_of_f16) };
    return cmocka_run_group_tests_name("kv_error", tests, NULL, NULL);
}
