/* preset.c - the table of presets, which are mostly published systems in terms of our policies. */
#include "policies/preset.h"

#include "base/core/bits.h"

// clang-format off
static const struct preset muster = {
    .name = "muster", .about = "the default policy of every kind", .source = "our own",
};
static const struct preset ref = {
    .name = "ref", .about = "first come first served, whole prompts, admit all, plain LRU",
    .source = "the setting in which routers are compared",
    .fair = "none", .order = "fcfs", .admit = "all", .preempt = "newest", .chunk = "whole",
    .evict = "lru",
};
static const struct preset vllm = {
    .name = "vllm", .about = "first come first served, budgeted chunks, preempts the newest",
    .source = "vLLM (arXiv 2309.06180), with chunks as since its v1",
    .fair = "none", .order = "fcfs", .admit = "fit", .preempt = "newest", .chunk = "budget",
    .evict = "lru",
};
static const struct preset orca = {
    .name = "orca", .about = "a new batch each step, memory reserved to the limit, whole prompts",
    .source = "Orca (OSDI 2022)",
    .fair = "none", .order = "fcfs", .admit = "max_reserve", .preempt = "newest",
    .chunk = "whole", .evict = "lru",
};
static const struct preset static_batch = {
    .name = "static_batch", .about = "a batch runs until its longest output is complete",
    .source = "the baseline of Orca (OSDI 2022)",
    .fair = "none", .order = "fcfs", .admit = "static_batch", .preempt = "newest",
    .chunk = "whole", .evict = "lru",
};
static const struct preset sarathi = {
    .name = "sarathi", .about = "steps of 512 tokens, decodes first",
    .source = "Sarathi-Serve (arXiv 2403.02310)",
    .fair = "none", .order = "fcfs", .admit = "fit", .preempt = "newest", .chunk = "sarathi",
    .evict = "lru",
};
static const struct preset fastserve = {
    .name = "fastserve", .about = "skip-join feedback queues with swap",
    .source = "FastServe (arXiv 2305.05920)",
    .fair = "none", .order = "mlfq", .admit = "fit", .preempt = "newest", .chunk = "budget",
    .evict = "lru", .swap_ratio = 4,
};
static const struct preset trail = {
    .name = "trail", .about = "shortest remaining first, preempting the young only",
    .source = "TRAIL (arXiv 2410.01035)",
    .fair = "none", .order = "srtf", .admit = "fit", .preempt = "most_remaining",
    .chunk = "budget", .evict = "lru",
};
static const struct preset trail_swap = {
    .name = "trail_swap", .about = "trail by swap, and only where the saved wait exceeds the copies",
    .source = "TRAIL (arXiv 2410.01035) with our cost check",
    .fair = "none", .order = "srtf", .admit = "fit", .preempt = "cost_checked",
    .chunk = "budget", .evict = "lru", .swap_ratio = 4,
};
static const struct preset ltr = {
    .name = "ltr", .about = "by learned rank, with a guard against starving",
    .source = "Learning to Rank (arXiv 2408.15792)",
    .fair = "none", .order = "learned_rank", .admit = "fit", .preempt = "newest",
    .chunk = "budget", .evict = "lru",
};
static const struct preset skip_predict = {
    .name = "skip_predict", .about = "predicted shorts by arrival, then longs by what remains",
    .source = "SkipPredict (arXiv 2402.03564)",
    .fair = "none", .order = "skip_predict", .admit = "fit", .preempt = "most_remaining",
    .chunk = "budget", .evict = "lru", .swap_ratio = 4,
};
static const struct preset infermax = {
    .name = "infermax", .about = "admission by length histogram, the cheapest victim",
    .source = "InferMax (arXiv 2411.07447)",
    .fair = "none", .order = "fcfs", .admit = "infermax", .preempt = "least_computed",
    .chunk = "budget", .evict = "lru",
};
static const struct preset batch_llm = {
    .name = "batch_llm", .about = "groups with a shared beginning at one go, by memory",
    .source = "BatchLLM (arXiv 2412.03594)",
    .fair = "none", .order = "batch_llm", .admit = "reserve", .preempt = "newest",
    .chunk = "budget", .evict = "lru",
};
static const struct preset scls = {
    .name = "scls", .about = "static batches of slices of 128 tokens, formed of all that waits",
    .source = "SCLS (arXiv 2406.13511)",
    .fair = "none", .order = "round_robin", .admit = "scls", .preempt = "newest", .chunk = "scls",
    .evict = "lru", .swap_ratio = 4,
};
static const struct preset s3 = {
    .name = "s3", .about = "memory packed by predicted length, doubled on overrun",
    .source = "S3 (arXiv 2306.06000)",
    .fair = "none", .order = "largest_first", .admit = "s3", .preempt = "newest",
    .chunk = "budget", .evict = "lru",
};
static const struct preset split_sjf = {
    .name = "split_sjf", .about = "shortest prompt first on prefill pools, feedback queues on decode",
    .source = "see order prefill_sjf",
    .fair = "none", .order = "prefill_sjf", .admit = "fit", .preempt = "newest",
    .chunk = "budget", .evict = "lru", .swap_ratio = 4,
};
static const struct preset vtc = {
    .name = "vtc", .about = "virtual token counters over first come first served",
    .source = "VTC (arXiv 2401.00588)",
    .fair = "vtc", .order = "fcfs", .admit = "fit", .preempt = "newest", .chunk = "budget",
    .evict = "lru",
};
static const struct preset dlpm = {
    .name = "dlpm", .about = "longest prefix first within each tenant's deficit",
    .source = "DLPM (arXiv 2501.14312)",
    .fair = "dlpm", .order = "longest_prefix", .admit = "fit", .preempt = "newest",
    .chunk = "budget", .evict = "lru",
};
// clang-format on

const struct preset *const preset_table[] = {
    &muster,    &ref,   &vllm,       &orca,      &static_batch, &sarathi,
    &fastserve, &trail, &trail_swap, &ltr,       &skip_predict, &infermax,
    &batch_llm, &scls,  &s3,         &split_sjf, &vtc,          &dlpm,
};
const uint32_t preset_count = COUNT_OF(preset_table);

const struct preset *preset_find(struct str name)
{
    for (uint32_t i = 0; i < preset_count; i++) {
        if (str_eq(str_from(preset_table[i]->name), name)) return preset_table[i];
    }
    return NULL;
}

static struct str name_of(const char *named, const char *otherwise)
{
    return str_from(named ? named : otherwise);
}

void preset_fill(const struct preset *preset, struct step_policies *policies)
{
    const struct preset *p = preset ? preset : &muster;
    if (!policies->fair) policies->fair = fair_find(name_of(p->fair, FAIR_DEFAULT));
    if (!policies->order) policies->order = order_find(name_of(p->order, ORDER_DEFAULT));
    if (!policies->admit) policies->admit = admit_find(name_of(p->admit, ADMIT_DEFAULT));
    if (!policies->preempt) policies->preempt = preempt_find(name_of(p->preempt, PREEMPT_DEFAULT));
    if (!policies->chunk) policies->chunk = chunk_find(name_of(p->chunk, CHUNK_DEFAULT));
    if (!policies->evict) policies->evict = evict_find(name_of(p->evict, EVICT_DEFAULT));
    if (!policies->draft) policies->draft = draft_find(STR(DRAFT_DEFAULT));
}
