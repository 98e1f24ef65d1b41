/* device_load.c - loads the model, sizes its pages, and makes the executor.
 *
 *     pages = kv_bytes / page, or as many as seqs_max whole contexts take, within a quarter of the memory
 *
 * One context always fits, whatever the memory: an engine that cannot serve one full request is of no use. Where layers
 * have a sliding window a context takes less than its pages would whole, and pages count what fits whole.
 *
 * A draft model has as many pages of its own, within the same memory, and never more than seqs_max whole contexts
 * take: it keeps nothing of sequences that have ended. */
#include "engine/serve/device_load.h"

#include "base/core/bits.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "engine/model/model_check.h"

#include <math.h>
#include <unistd.h>

#define MEMORY_PART 4 /* KV pages take at most this part of the memory by default */

static uint64_t memory_part_bytes(void)
{
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
    return bytes / MEMORY_PART;
}

static uint32_t pages_wanted(const struct sched_config *sc, uint64_t bytes, size_t page_bytes)
{
    const uint64_t whole = max_u32(sc->parts.full + sc->parts.window, 1);
    uint64_t context_pages =
        (sched_units_of(sc, sc->context_max, sc->batch_tokens_max) + whole - 1) / whole;
    uint64_t pages = context_pages * sc->seqs_max;
    if (page_bytes > 0 && bytes > 0) {
        pages = bytes / page_bytes;
    } else if (page_bytes > 0) { /* those of an encoder hold nothing */
        uint64_t most = memory_part_bytes() / page_bytes;
        if (pages > most) pages = most > context_pages ? most : context_pages;
    }
    return pages < KV_PAGES_MAX ? (uint32_t)pages : KV_PAGES_MAX;
}

/* Returns the places of the swap space: by the flag; without it what the preset asks for, within
 * the same part of the machine's memory that the pages may have. */
static uint32_t swap_pages(const struct sched_config *sc, uint64_t bytes, size_t page_bytes)
{
    if (page_bytes == 0) return 0;
    uint64_t pages = bytes / page_bytes;
    if (bytes == 0 && sc->preset) {
        pages = min_size((size_t)(sc->preset->swap_ratio * (double)sc->pages),
                         memory_part_bytes() / page_bytes);
    }
    return pages < KV_PAGES_MAX ? (uint32_t)pages : KV_PAGES_MAX;
}

/* An encoder computes a text whole, and keeps nothing of it. The scheduler's context has room for one token
 * behind a prompt, which an encoder's text may fill. */
static void use_whole_texts(struct sched_config *sc)
{
    sc->whole_prompts = true;
    sc->prefix_cache = false;
    sc->batch_tokens_max = max_u32(sc->batch_tokens_max, sc->context_max);
    sc->context_max++;
}

/* Sizes the pages of both models: those of the target have `page_bytes`, those of the draft model `draft_bytes`, 0
 * without one. Returns the draft model's. */
static uint32_t size_pages(struct sched_config *sc, uint64_t bytes, size_t page_bytes,
                           size_t draft_bytes)
{
    uint64_t most = (uint64_t)ceil_div_u32(sc->context_max, sc->page_tokens) * sc->seqs_max;
    bool given = sc->pages > 0;
    if (!given) sc->pages = pages_wanted(sc, bytes, page_bytes + draft_bytes);
    if (draft_bytes == 0) return 0;
    if (sc->pages <= most) return sc->pages;
    if (!given) sc->pages = pages_wanted(sc, bytes - most * draft_bytes, page_bytes);
    return (uint32_t)most;
}

/* Loads the draft model and checks that it can guess for the other. */
static int load_draft(const struct device_config *config, const struct model_info *target,
                      struct model **ret, struct err *err)
{
    struct model_load_options opt = config->load;
    opt.no_sampling = true;
    CLEANUP(model_freep) struct model *model = NULL;
    int rc = model_load(config->draft_model.data, &opt, &model, err);
    if (rc >= 0) rc = drafter_check(model_info(model), target, err);
    if (rc < 0) {
        return err_prefix(err, rc, "--draft-model " STR_FMT, STR_ARG(config->draft_model));
    }
    *ret = TAKE(model);
    return 0;
}

static void tell_policies(const struct device_config *config, struct executor *x,
                          struct engine_metrics *metrics)
{
    const struct step_policies *r = sched_policies(executor_sched(x));
    const struct preset *preset = config->sched.preset;
    const struct predict_policy *predict = config->predict;
    engine_metrics_policy(metrics, "preset", preset ? preset->name : NULL);
    engine_metrics_policy(metrics, "fair", r->fair->name);
    engine_metrics_policy(metrics, "order", r->order->name);
    engine_metrics_policy(metrics, "admit", r->admit->name);
    engine_metrics_policy(metrics, "preempt", r->preempt->name);
    engine_metrics_policy(metrics, "chunk", r->chunk->name);
    engine_metrics_policy(metrics, "evict", r->evict->name);
    engine_metrics_policy(metrics, "draft", r->draft->name);
    engine_metrics_policy(metrics, "perf", executor_perf_policy(x)->name);
    engine_metrics_policy(metrics, "predict", predict ? predict->name : NULL);
}

static bool goes_on(void *arg, uint64_t done, uint64_t total)
{
    const struct gguf_watch *watch = arg;
    (void)done, (void)total;
    return !watch->goes_on || watch->goes_on(watch->arg);
}

/* Compares the model with the digest that it must have, before a byte of it is trusted. */
static int check_model(const struct device_config *config, struct err *err)
{
    struct gguf_watch watch = config->load.watch;
    const struct model_check check = {
        .path = config->model_path.data,
        .sha256 = config->model_sha256,
        .stamps = config->model_stamps.len > 0 ? config->model_stamps.data : NULL,
        .progress = goes_on,
        .arg = &watch,
    };
    int64_t from_us = clock_mono_us();
    bool read = false;
    if (config->model_sha256.len == 0) return 0;
    int rc = model_check(&check, &read, err);
    if (rc < 0) return rc;
    log_event(LOG_INFO, "model_checked", "model=%s sha256=%.12s read=%s seconds=%.1f",
              config->model_path.data, config->model_sha256.data, read ? "yes" : "no",
              (double)(clock_mono_us() - from_us) * 1e-6);
    return 0;
}

int device_load(const struct device_config *config, struct engine_metrics *metrics,
                const struct executor_events *events, struct device_loaded *ret, struct err *err)
{
    CLEANUP(model_freep) struct model *model = NULL;
    CLEANUP(model_freep) struct model *draft = NULL;
    struct executor *x;
    int64_t from_us = clock_mono_us();
    int rc = check_model(config, err);
    if (rc == 0) rc = model_load(config->model_path.data, &config->load, &model, err);
    if (rc < 0) return rc;
    const struct model_info *info = model_info(model);
    if (config->draft_model.len > 0) rc = load_draft(config, info, &draft, err);
    if (rc < 0) return rc;
    struct sched_config sc = config->sched;
    if (sc.context_max == 0) sc.context_max = info->context_length;
    if (sc.context_max > info->context_length) {
        return err_set(err, -EINVAL,
                       "--max-model-len %u is more than the %u tokens this model was made for",
                       sc.context_max, info->context_length);
    }
    const uint32_t context_max = sc.context_max;
    if (info->task != MODEL_GENERATE) use_whole_texts(&sc);
    if (sc.batch_tokens_max < sc.seqs_max) sc.batch_tokens_max = sc.seqs_max;
    const struct kv_layout layout = kv_layout_of(model, sc.page_tokens);
    const struct kv_layout draft_layout = kv_layout_of(draft ? draft : model, sc.page_tokens);
    size_t page_bytes = kv_page_bytes(&layout);
    sc.parts = executor_parts(model, &sc);
    size_t draft_bytes = draft ? kv_page_bytes(&draft_layout) : 0;
    uint32_t draft_pages = size_pages(&sc, config->kv_bytes, page_bytes, draft_bytes);
    if (sc.pages == 0) {
        return err_set(err, -EINVAL, "--kv-cache-memory-bytes %lu holds no page of %zu bytes",
                       (unsigned long)config->kv_bytes, page_bytes + draft_bytes);
    }
    sc.parts = executor_parts(model, &sc);
    sc.swap_pages = swap_pages(&sc, config->swap_bytes, page_bytes);
    const uint32_t rank_max = config->adapters && adapters_config(config->adapters)->count_max > 0
                                  ? adapters_config(config->adapters)->rank_max
                                  : 0;
    if (config->adapters) {
        rc = adapters_load_all(config->adapters, model, config->lora_modules,
                               config->lora_module_count, err);
        if (rc < 0) return rc;
    }
    const struct executor_config executor = { .sched = sc,
                                              .threads = config->threads,
                                              .lora_rank_max = rank_max,
                                              .cpu_share = config->cpu_share,
                                              .perf = config->perf,
                                              .hardware = config->hardware,
                                              .draft_model = draft,
                                              .draft_pages = draft_pages,
                                              .predict = config->predict,
                                              .predict_file = config->predict_file,
                                              .predict_layer = config->predict_layer,
                                              .predict_every = config->predict_every };
    rc = executor_new(model, &executor, events, &x, err);
    if (rc < 0) return rc;
    executor_measure(x, clock_mono_us);
    *ret = (struct device_loaded){ .x = x };
    ret->info = (struct device_info){
        .model = info,
        .loaded = model,
        .context_max = context_max,
        .page_tokens = sc.page_tokens,
        .pages = sc.pages,
        .step_tokens = sc.batch_tokens_max,
        .kv_bytes = (uint64_t)sc.pages * page_bytes,
        .draft_kv_bytes = (uint64_t)draft_pages * draft_bytes,
        .kv = *kv_store_layout(executor_kv(x)),
        .prefix_cache = sc.prefix_cache,
        .cores = config->threads,
        .hardware = config->hardware,
        .load_s = (double)(clock_mono_us() - from_us) * 1e-6,
    };
    if (config->cpu_share > 0) ret->info.cores = fmin(ret->info.cores, config->cpu_share);
    tell_policies(config, x, metrics);
    metric_set(engine_metric(metrics, EM_DRAFT_KV_BYTES), (double)ret->info.draft_kv_bytes);
    ret->draft = TAKE(draft);
    ret->model = TAKE(model);
    return 0;
}
