/* key_table.c - predicts from histograms of lengths by key; general keys back up special ones.
 *
 *     model -> tenant -> (tenant, octave of the prompt) -> (tenant, eighth of an octave)
 *           -> (tenant, half octave of the previous output) -> (tenant, prefix) -> (tenant, ask)
 *           -> (tenant, prefix, ask)
 *
 * Every key holds a decayed count, the mean and a log-spaced histogram of its lengths. It is shrunk
 * towards its parent (lengths.h): a key seen twice has little weight, one seen a hundred times
 * nearly all. P50 and P90 are quantiles of the mixed histogram; P90 is then moved by an adaptive
 * conformal offset, so that nine outputs in ten stay below it whatever the histogram's bias.
 * Histograms by key replace a slope because on real chat traffic output length is not monotone in
 * prompt length; the relation is fine-grained, hence the eighths. Keys of features that a request
 * lacks (no previous output, no text) are left out of its chain.
 *
 * The table is 4-way set-associative; the least recently updated entry of a set makes room, so
 * memory is fixed and a flood of new keys cannot evict those in use.
 */
#include "policies/predict/key_table.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "policies/predict/predict.h"

#include <math.h>

enum level { MODEL, TENANT, OCTAVE, EIGHTH, PREVIOUS, PREFIX, ASK, PREFIX_ASK, LEVELS };

/* Returns the octave, because prompts of one kind differ by less than a factor of two. */
static uint32_t octave(uint32_t tokens)
{
    return 32 - (uint32_t)__builtin_clz(tokens | 1);
}

static uint64_t key_of(enum level level, uint64_t tenant, uint64_t a, uint64_t b)
{
    uint64_t part[4] = { (uint64_t)level + 1, tenant, a, b };
    uint64_t key = hash64(part, sizeof part, 0);
    return key ? key : 1;
}

/* Fills ret with the key of each level; 0 where the request lacks the level's feature. */
static void level_keys(const struct predict_features *f, uint64_t ret[LEVELS])
{
    uint64_t t = f->tenant;
    ret[MODEL] = key_of(MODEL, 0, 0, 0);
    ret[TENANT] = t ? key_of(TENANT, t, 0, 0) : 0;
    ret[OCTAVE] = key_of(OCTAVE, t, octave(f->prompt_tokens), 0);
    ret[EIGHTH] = key_of(EIGHTH, t, (uint64_t)(log2((double)f->prompt_tokens + 1) * 8), 0);
    uint64_t half = f->previous_tokens ? 1 + (uint64_t)(log2((double)f->previous_tokens) * 2) : 0;
    ret[PREVIOUS] = half ? key_of(PREVIOUS, t, half, 0) : 0;
    ret[PREFIX] = f->prefix ? key_of(PREFIX, t, f->prefix, 0) : 0;
    ret[ASK] = f->ask ? key_of(ASK, t, f->ask, 0) : 0;
    ret[PREFIX_ASK] = f->prefix && f->ask ? key_of(PREFIX_ASK, t, f->prefix, f->ask) : 0;
}

static const struct key_entry *find(const struct key_table *t, uint64_t key)
{
    const struct key_entry *set = &t->entry[key % KEY_TABLE_SETS * KEY_TABLE_WAYS];
    for (uint32_t w = 0; w < KEY_TABLE_WAYS; w++) {
        if (set[w].key == key) return &set[w];
    }
    return NULL;
}

static struct key_entry *find_or_make(struct key_table *t, uint64_t key)
{
    struct key_entry *set = &t->entry[key % KEY_TABLE_SETS * KEY_TABLE_WAYS], *oldest = set;
    for (uint32_t w = 0; w < KEY_TABLE_WAYS; w++) {
        if (set[w].key == key) return &set[w];
        if (set[w].key == 0) {
            oldest = &set[w];
            break;
        }
        if (set[w].used < oldest->used) oldest = &set[w];
    }
    *oldest = (struct key_entry){ .key = key };
    return oldest;
}

static void estimate(const struct key_table *t, const uint64_t key[LEVELS],
                     struct length_estimate *ret)
{
    length_prior(ret);
    for (uint32_t i = 0; i < LEVELS; i++) {
        const struct key_entry *own = key[i] ? find(t, key[i]) : NULL;
        if (own) length_shrink(ret, &own->hist);
    }
}

static void init(void *state)
{
    memset(state, 0, sizeof(struct key_table));
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct key_table *t = state;
    struct length_estimate e;
    uint64_t key[LEVELS];
    level_keys(f, key);
    estimate(t, key, &e);
    length_verdict(&e, &t->p90, f->output_max, ret);
}

static double remaining(const void *state, const struct predict_features *f, uint32_t generated)
{
    struct length_estimate e;
    uint64_t key[LEVELS];
    level_keys(f, key);
    estimate(state, key, &e);
    return length_left(&e, f->output_max, generated);
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct key_table *t = state;
    struct length_estimate e;
    struct predict_verdict said;
    uint64_t key[LEVELS];
    level_keys(f, key);
    estimate(t, key, &e);
    length_verdict(&e, &t->p90, UINT32_MAX, &said); /* judged before the clamp */
    length_offset_observe(&t->p90, 0.9, said.p90, (double)tokens, censored);
    double length = length_to_learn(&e, said.p50, tokens, censored);
    if (length <= 0) return;
    t->clock++;
    for (uint32_t i = 0; i < LEVELS; i++) {
        if (!key[i]) continue;
        struct key_entry *own = find_or_make(t, key[i]);
        own->used = t->clock;
        length_learn(&own->hist, length);
    }
}

static void merge(void *state, const void *other)
{
    struct key_table *t = state;
    const struct key_table *o = other;
    /* Clocks count outputs, and one table may have seen more: ages are kept, not clock values. */
    const uint64_t clock = max_u64(t->clock, o->clock);
    for (uint32_t i = 0; i < KEY_TABLE_SETS * KEY_TABLE_WAYS; i++)
        if (t->entry[i].key) t->entry[i].used += clock - t->clock;
    for (uint32_t i = 0; i < KEY_TABLE_SETS * KEY_TABLE_WAYS; i++) {
        if (o->entry[i].key == 0) continue;
        struct key_entry *own = find_or_make(t, o->entry[i].key);
        own->used = max_u64(own->used, o->entry[i].used + (clock - o->clock));
        length_merge(&own->hist, &o->entry[i].hist);
    }
    t->clock = clock;
    length_offset_merge(&t->p90, &o->p90);
}

const struct predict_policy predict_key_table = {
    .name = "key_table",
    .about = "decayed histograms per tenant, prefix and question, the general backing the special",
    .source = "ours; shrinkage after James and Stein, P90 by adaptive conformal inference",
    .state_size = sizeof(struct key_table),
    .init = init,
    .decide = decide,
    .observe = observe,
    .merge = merge,
    .remaining = remaining,
};
