/* model_rig.h - holds a model, its pages and a runner for a test, and feeds sequences to them.
 *
 * Failures fail the test that runs.
 */
#pragma once
#include "base/core/own.h"
#include "engine/model/model.h"

#define RIG_PAGES 40

struct model_rig {
    struct model *model;
    struct kv_store *kv;
    struct model_runner *runner;
    uint32_t table[RIG_PAGES]; /* all pages, scattered */
};

/* Loads a model; its runner has one thread, pages of 16 tokens, and four items and 300 tokens a step. */
void model_rig_init(struct model_rig *r, const char *path, const char *kernels,
                    enum kv_type kv_type);
void model_rig_fini(struct model_rig *r);

/* Makes new pages and a new runner. */
void model_rig_runner(struct model_rig *r, uint32_t page_tokens, uint32_t threads,
                      uint32_t lora_rank_max);

/* Feeds ids [from, to) in chunks, with an adapter or NULL; writes the last token's logits. */
void model_rig_feed(struct model_rig *r, const struct adapter *adapter, const uint32_t *ids,
                    uint32_t from, uint32_t to, uint32_t chunk, float *logits);

/* Returns the largest magnitude of n numbers. */
double largest_of(const float *x, uint32_t n);
