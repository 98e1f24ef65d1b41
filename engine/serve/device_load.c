/* device_load.c - from a configuration to a model with its pages, its rows and its executor. */
#include "base/core/bits.h"
#include "base/io/clock.h"
#include "engine/serve/device_part.h"

#include <math.h>
#include <unistd.h>

#define MEMORY_PART 4 /* KV pages take at most this part of the memory by default */

static uint32_t pages_wanted(const struct device *d, size_t page_bytes)
{
    const struct sched_config *sc = &d->config.sched;
    uint64_t bytes = d->config.kv_bytes;
    uint64_t context_pages = ceil_div_u32(sc->context_max, sc->page_tokens);
    uint64_t pages = context_pages * sc->seqs_max;
    if (bytes > 0) {
        pages = bytes / page_bytes;
    } else {
        uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
        uint64_t most = memory / MEMORY_PART / page_bytes;
        if (pages > most) pages = most > context_pages ? most : context_pages;
    }
    return pages < KV_PAGES_MAX ? (uint32_t)pages : KV_PAGES_MAX;
}

/* By the flag; without it what the preset asks for, within the same part of the machine's memory
 * that the pages may have. */
static uint32_t swap_pages(const struct device *d, size_t page_bytes)
{
    const struct sched_config *sc = &d->config.sched;
    uint64_t pages = d->config.swap_bytes / page_bytes;
    if (d->config.swap_bytes == 0 && sc->preset) {
        uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
        pages = min_size((size_t)(sc->preset->swap_ratio * (double)sc->pages),
                         memory / MEMORY_PART / page_bytes);
    }
    return pages < KV_PAGES_MAX ? (uint32_t)pages : KV_PAGES_MAX;
}

static void tell_rows(struct device *d)
{
    const struct step_rows *r = sched_rows(executor_sched(d->x));
    const struct preset *preset = d->config.sched.preset;
    const struct predict_policy *predict = d->config.predict;
    meters_policy(d->meters, "preset", preset ? preset->name : NULL);
    meters_policy(d->meters, "fair", r->fair->name);
    meters_policy(d->meters, "order", r->order->name);
    meters_policy(d->meters, "admit", r->admit->name);
    meters_policy(d->meters, "preempt", r->preempt->name);
    meters_policy(d->meters, "chunk", r->chunk->name);
    meters_policy(d->meters, "evict", r->evict->name);
    meters_policy(d->meters, "perf", executor_perf_row(d->x)->name);
    meters_policy(d->meters, "predict", predict ? predict->name : NULL);
}

int device_load(struct device *d, const struct executor_events *events, struct err *err)
{
    int64_t from_us = clock_mono_us();
    int rc = step_log_open(&d->step_log, d->config.step_log, err);
    if (rc == 0) rc = model_load(d->config.model_path.data, &d->config.load, &d->model, err);
    if (rc < 0) return rc;
    const struct model_info *info = model_info(d->model);
    struct sched_config *sc = &d->config.sched;
    if (sc->context_max == 0) sc->context_max = info->context_length;
    if (sc->context_max > info->context_length) {
        return err_set(err, -EINVAL,
                       "--max-model-len %u is more than the %u tokens this model was made for",
                       sc->context_max, info->context_length);
    }
    if (sc->batch_tokens_max < sc->seqs_max) sc->batch_tokens_max = sc->seqs_max;
    size_t page_bytes = info->kv_bytes_per_token * sc->page_tokens;
    if (sc->pages == 0) sc->pages = pages_wanted(d, page_bytes);
    if (sc->pages == 0) {
        return err_set(err, -EINVAL, "--kv-cache-memory-bytes %lu holds no page of %zu bytes",
                       (unsigned long)d->config.kv_bytes, page_bytes);
    }
    sc->swap_pages = swap_pages(d, page_bytes);
    const struct executor_config config = { .sched = *sc,
                                            .threads = d->config.threads,
                                            .cpu_share = d->config.cpu_share,
                                            .perf = d->config.perf,
                                            .hardware = d->config.hardware,
                                            .predict = d->config.predict };
    rc = executor_new(d->model, &config, events, &d->x, err);
    if (rc < 0) return rc;
    d->info = (struct device_info){
        .model = info,
        .context_max = sc->context_max,
        .page_tokens = sc->page_tokens,
        .pages = sc->pages,
        .step_tokens = sc->batch_tokens_max,
        .kv_bytes = (uint64_t)sc->pages * page_bytes,
        .kv = *kv_store_layout(executor_kv(d->x)),
        .prefix_cache = sc->prefix_cache,
        .cores = d->config.threads,
        .hardware = d->config.hardware,
        .load_s = (double)(clock_mono_us() - from_us) * 1e-6,
    };
    if (d->config.cpu_share > 0) d->info.cores = fmin(d->info.cores, d->config.cpu_share);
    tell_rows(d);
    return 0;
}
