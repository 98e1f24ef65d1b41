/* model_rig.c - makes and feeds the model of a test. */
#include "tests/unit/engine/model_rig.h"

#include "base/core/bits.h"
#include "tests/unit/unit.h"

#include <math.h>

void model_rig_runner(struct model_rig *r, uint32_t page_tokens, uint32_t threads,
                      uint32_t lora_rank_max)
{
    const struct model_runner_options opt = {
        .tokens_max = 300, .seqs_max = 4, .threads = threads, .lora_rank_max = lora_rank_max
    };
    struct err err = { { 0 } };
    model_runner_free(r->runner);
    kv_store_free(r->kv);
    r->runner = NULL, r->kv = NULL;
    if (kv_store_new(r->model, RIG_PAGES, page_tokens, &r->kv, &err) < 0 ||
        model_runner_new(r->model, r->kv, &opt, &r->runner, &err) < 0)
        fail_msg("%s", err.text);
}

void model_rig_init(struct model_rig *r, const char *path, const char *kernels,
                    enum kv_type kv_type)
{
    const struct model_load_options opt = { .kv_type = kv_type, .kernels = kernels };
    struct err err = { { 0 } };
    *r = (struct model_rig){ 0 };
    if (model_load(path, &opt, &r->model, &err) < 0) fail_msg("%s", err.text);
    model_rig_runner(r, 16, 1, 0);
    for (uint32_t i = 0; i < RIG_PAGES; i++)
        r->table[i] = (i * 13 + 5) % RIG_PAGES;
}

void model_rig_fini(struct model_rig *r)
{
    model_runner_free(r->runner);
    kv_store_free(r->kv);
    model_free(r->model);
}

void model_rig_feed(struct model_rig *r, const struct adapter *adapter, const uint32_t *ids,
                    uint32_t from, uint32_t to, uint32_t chunk, float *logits)
{
    struct err err = { { 0 } };
    for (uint32_t at = from; at < to; at += chunk) {
        uint32_t n = min_u32(chunk, to - at);
        const struct batch_item item = { .ids = ids + at,
                                         .count = n,
                                         .position = at,
                                         .page_table = r->table,
                                         .pages = RIG_PAGES,
                                         .want_logits = at + n == to,
                                         .logits = logits,
                                         .adapter = adapter };
        if (model_step(r->runner, &item, 1, &err) < 0) fail_msg("%s", err.text);
    }
}

double largest_of(const float *x, uint32_t n)
{
    double top = 0;
    for (uint32_t i = 0; i < n; i++)
        top = fmax(top, fabs((double)x[i]));
    return top;
}
