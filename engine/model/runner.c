/* runner.c - runs one step: checks the items and has the architecture compute them. */
#include "engine/model/adapter_step.h"
#include "engine/model/arch.h"

#include <stdlib.h>

#define SCRATCH_ALIGN 64

struct model_runner {
    const struct model *model;
    struct kv_store *kv;
    struct model_runner_options opt;
    struct workers *workers;
    char **scratch; /* one for each thread, all in scratch_memory */
    void *scratch_memory;
    void *state;                   /* the architecture's */
    struct adapter_step *adapters; /* NULL: items have none */
};

static int take_scratch(struct model_runner *r)
{
    uint32_t threads = workers_threads(r->workers);
    r->scratch = calloc(threads, sizeof *r->scratch);
    if (!r->scratch) return -ENOMEM;
    if (posix_memalign(&r->scratch_memory, SCRATCH_ALIGN, threads * OP_SCRATCH_BYTES) != 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < threads; i++)
        r->scratch[i] = (char *)r->scratch_memory + i * OP_SCRATCH_BYTES;
    return 0;
}

int model_runner_new(const struct model *m, struct kv_store *kv,
                     const struct model_runner_options *opt, struct model_runner **ret,
                     struct err *err)
{
    if (opt->seqs_max == 0 || opt->tokens_max < opt->seqs_max)
        return err_set(err, -EINVAL,
                       "a step of %u tokens for %u sequences: at least one token a "
                       "sequence is needed",
                       opt->tokens_max, opt->seqs_max);
    if (opt->threads > MODEL_THREADS_MAX)
        return err_set(err, -EINVAL, "%u threads, at most %d are possible", opt->threads,
                       MODEL_THREADS_MAX);
    if (opt->hidden_layer > m->info.n_layers)
        return err_set(err, -EINVAL, "hidden states of layer %u: the model has %u layers",
                       opt->hidden_layer, m->info.n_layers);
    CLEANUP(model_runner_freep) struct model_runner *r = calloc(1, sizeof *r);
    if (!r) return err_set(err, -ENOMEM, "no memory for a model runner");
    r->model = m;
    r->kv = kv;
    r->opt = *opt;
    int rc = workers_new(opt->threads, &r->workers, err);
    if (rc < 0) return rc;
    rc = take_scratch(r);
    if (rc == 0) rc = m->arch->state_new(m, opt->tokens_max, opt->seqs_max, &r->state);
    if (rc == 0 && opt->lora_rank_max > 0)
        rc = adapter_step_new(opt->tokens_max, opt->seqs_max, opt->lora_rank_max, &r->adapters);
    if (rc < 0)
        return err_set(err, rc, "no memory for steps of %u tokens and %u threads", opt->tokens_max,
                       opt->threads);
    *ret = TAKE(r);
    return 0;
}

void model_runner_free(struct model_runner *r)
{
    if (!r) return;
    workers_free(r->workers);
    if (r->state) r->model->arch->state_free(r->state);
    adapter_step_free(r->adapters);
    free(r->scratch);
    free(r->scratch_memory);
    free(r);
}

/* Checks an item of an encoder. */
static int check_text(const struct model_runner *r, const struct batch_item *item, uint32_t index,
                      struct err *err)
{
    if (item->position > 0)
        return err_set(
            err, -EINVAL,
            "item %u of the batch begins at position %u; an encoder computes whole texts", index,
            item->position);
    if (item->want_logits || item->drafted > 0)
        return err_set(err, -ENOTSUP,
                       "'%s' is an encoder: it gives vectors or scores of texts and no logits, so "
                       "that it cannot generate",
                       r->model->arch->name);
    if (item->score && r->model->info.task != MODEL_SCORE)
        return err_set(err, -ENOTSUP, "item %u of the batch wants a score; the model has no head",
                       index);
    return 0;
}

static int check_item(const struct model_runner *r, const struct batch_item *item, uint32_t index,
                      struct err *err)
{
    const struct model_info *info = &r->model->info;
    uint32_t page_tokens = r->kv->layout.page_tokens;
    uint64_t end = (uint64_t)item->position + item->count;
    if (item->count == 0) return err_set(err, -EINVAL, "item %u of the batch is empty", index);
    if (end > info->context_length)
        return err_set(err, -EINVAL,
                       "item %u of the batch ends at position %llu, the model's "
                       "context is %u",
                       index, (unsigned long long)end, info->context_length);
    for (uint32_t i = 0; i < item->count; i++)
        if (item->ids[i] >= info->vocab_size)
            return err_set(err, -EINVAL,
                           "item %u of the batch has token %u, the vocabulary ends "
                           "at %u",
                           index, item->ids[i], info->vocab_size);
    if (info->task != MODEL_GENERATE) return check_text(r, item, index, err);
    if (end > (uint64_t)item->pages * page_tokens)
        return err_set(err, -EINVAL,
                       "item %u of the batch ends at position %llu, its %u pages "
                       "hold %llu",
                       index, (unsigned long long)end, item->pages,
                       (unsigned long long)item->pages * page_tokens);
    for (uint64_t i = 0; i * page_tokens < end; i++)
        if (item->page_table[i] >= r->kv->pages)
            return err_set(err, -EINVAL, "item %u of the batch has page %u, the store ends at %u",
                           index, item->page_table[i], r->kv->pages);
    if (item->stored > item->count)
        return err_set(err, -EINVAL, "item %u of the batch has %u stored tokens of %u", index,
                       item->stored, item->count);
    if (item->drafted >= item->count || (item->drafted > 0 && !item->want_logits))
        return err_set(err, -EINVAL, "item %u of the batch has %u drafted tokens of %u", index,
                       item->drafted, item->count);
    if (item->rows_before >= item->count - item->drafted ||
        (item->rows_before > 0 && !item->want_logits))
        return err_set(err, -EINVAL,
                       "item %u of the batch wants the logits of %u tokens more than its %u", index,
                       item->rows_before, item->count);
    if (item->want_logits && !item->logits)
        return err_set(err, -EINVAL,
                       "item %u of the batch wants logits and has no memory for "
                       "them",
                       index);
    const struct adapter *a = item->adapter;
    if (a && (a->rank > r->opt.lora_rank_max || a->layers != info->n_layers))
        return err_set(err, -EINVAL,
                       "item %u of the batch has an adapter of rank %u and %u layers, "
                       "the runner was made for %u and %u",
                       index, a->rank, a->layers, r->opt.lora_rank_max, info->n_layers);
    return 0;
}

static bool has_adapter(const struct batch_item *items, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (items[i].adapter) return true;
    return false;
}

int model_step(struct model_runner *r, const struct batch_item *items, uint32_t count,
               struct err *err)
{
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < count; i++)
        tokens += items[i].count;
    if (count > r->opt.seqs_max || tokens > r->opt.tokens_max)
        return err_set(err, -EINVAL,
                       "a batch of %u items and %llu tokens; the runner was made for "
                       "%u and %u",
                       count, (unsigned long long)tokens, r->opt.seqs_max, r->opt.tokens_max);
    for (uint32_t i = 0; i < count; i++) {
        int rc = check_item(r, &items[i], i, err);
        if (rc < 0) return rc;
    }
    if (count == 0) return 0;
    uint32_t layers = r->model->info.n_layers;
    const struct arch_step step = {
        .kv = r->kv,
        .workers = r->workers,
        .scratch = r->scratch,
        .items = items,
        .count = count,
        .hidden_layer = r->opt.hidden_layer > 0 ? r->opt.hidden_layer : layers,
        .adapters = has_adapter(items, count) ? r->adapters : NULL,
        .importance = r->opt.importance,
    };
    r->model->arch->step(r->model, r->state, &step);
    return 0;
}
