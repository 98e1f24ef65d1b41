/* task_mean.c - predicts the mean output of the task so far.
 *
 * BatchLLM estimates the decode of a group from samples of the group. A task is the common
 * beginning of its prompts (`group`; the prefix where no group is named). The mean is shrunk
 * towards that of all tasks (lengths.h), so that one output of a task does not decide its estimate.
 */
#include "base/core/bits.h"
#include "policies/predict/lengths.h"
#include "policies/predict/predict.h"

#define WAYS 4
#define SETS 512

struct task {
    uint64_t key;  /* 0: empty */
    uint64_t used; /* the table's clock when it was last updated */
    struct length_hist hist;
};

struct task_mean {
    uint64_t clock; /* outputs of tasks that have a key */
    struct length_offset p90;
    struct length_hist all;
    struct task task[SETS * WAYS];
};

static uint64_t task_of(const struct predict_features *f)
{
    return f->group ? f->group : f->prefix;
}

static const struct task *find(const struct task_mean *t, uint64_t key)
{
    const struct task *set = &t->task[key % SETS * WAYS];
    for (uint32_t w = 0; w < WAYS; w++) {
        if (set[w].key == key) return &set[w];
    }
    return NULL;
}

static struct task *find_or_make(struct task_mean *t, uint64_t key)
{
    struct task *set = &t->task[key % SETS * WAYS], *oldest = set;
    for (uint32_t w = 0; w < WAYS; w++) {
        if (set[w].key == key) return &set[w];
        if (set[w].used < oldest->used) oldest = &set[w];
    }
    *oldest = (struct task){ .key = key };
    return oldest;
}

static void estimate(const struct task_mean *t, uint64_t key, struct length_estimate *ret)
{
    const struct task *own = key ? find(t, key) : NULL;
    length_prior(ret);
    length_shrink(ret, &t->all);
    if (own) length_shrink(ret, &own->hist);
}

static void init(void *state)
{
    memset(state, 0, sizeof(struct task_mean));
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct task_mean *t = state;
    struct length_estimate e;
    estimate(t, task_of(f), &e);
    length_verdict(&e, &t->p90, f->output_max, ret);
}

static double remaining(const void *state, const struct predict_features *f, uint32_t generated)
{
    struct length_estimate e;
    estimate(state, task_of(f), &e);
    return length_left(&e, f->output_max, generated);
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct task_mean *t = state;
    struct length_estimate e;
    struct predict_verdict said;
    uint64_t key = task_of(f);
    estimate(t, key, &e);
    length_verdict(&e, &t->p90, UINT32_MAX, &said);
    length_offset_observe(&t->p90, 0.9, said.p90, (double)tokens, censored);
    double length = length_to_learn(&e, said.p50, tokens, censored);
    if (length <= 0) return;
    length_learn(&t->all, length);
    if (!key) return;
    struct task *own = find_or_make(t, key);
    own->used = ++t->clock;
    length_learn(&own->hist, length);
}

static void merge(void *state, const void *other)
{
    struct task_mean *t = state;
    const struct task_mean *o = other;
    length_offset_merge(&t->p90, &o->p90);
    length_merge(&t->all, &o->all);
    /* Clocks count outputs, and one table may have seen more: ages are kept, not clock values. */
    const uint64_t clock = max_u64(t->clock, o->clock);
    for (uint32_t i = 0; i < SETS * WAYS; i++)
        if (t->task[i].key) t->task[i].used += clock - t->clock;
    for (uint32_t i = 0; i < SETS * WAYS; i++) {
        if (!o->task[i].key) continue;
        struct task *own = find_or_make(t, o->task[i].key);
        own->used = max_u64(own->used, o->task[i].used + (clock - o->clock));
        length_merge(&own->hist, &o->task[i].hist);
    }
    t->clock = clock;
}

const struct predict_policy predict_task_mean = {
    .name = "task_mean",
    .about = "the mean output of the task, from those seen so far",
    .source = "BatchLLM (2412.03594), section on the decode length of a group",
    .needs = PREDICT_GROUP,
    .state_size = sizeof(struct task_mean),
    .init = init,
    .decide = decide,
    .observe = observe,
    .merge = merge,
    .remaining = remaining,
};
