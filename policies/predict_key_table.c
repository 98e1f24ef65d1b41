/* predict_key_table.c - output length from cheap keys, the general ones backing the special ones.
 *
 *     model -> tenant -> (tenant, prompt bucket) -> (tenant, prefix) -> (tenant, ask)
 *           -> (tenant, prefix, ask)
 *
 * Every key holds a decayed count, the mean and a log-spaced histogram of the lengths it saw. A
 * level is shrunk towards its parent with the weight of SHRINK samples, the histogram as the mean:
 *
 *     estimate = (n * own + SHRINK * parent's estimate) / (n + SHRINK)
 *
 * so a key seen twice says little and one seen a hundred times speaks for itself. P50 and P90 are
 * read off the mixed histogram; P90 is then moved by an adaptive conformal offset (Gibbs and
 * Candes 2021) so that nine answers in ten stay below it whatever the histogram's bias. Half of a
 * histogram is needed, not a slope: on real chat traffic the link of prompt and answer length is
 * not monotone.
 *
 * The table is 4-way set-associative; the entry of a set that was used longest ago makes room, so
 * memory is fixed and a flood of new keys cannot push out those in use.
 */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "policies/predict.h"

#include <math.h>

#define BINS 16
#define BIN_GROWTH 1.75 /* bin b starts at 1.75^b: 16 bins reach 4,421 tokens and beyond */
#define WAYS 4
#define SETS 4096
#define SHRINK 4.0
#define COUNT_MAX 64.0    /* older finishes fade once a key has seen this many */
#define FIRST_GUESS 128.0 /* tokens, before anything finished */
#define CONFORMAL_STEP 0.02
#define CONFORMAL_MISS 0.10
#define CONFORMAL_BOUND 2.0 /* the offset stays within exp(+-2) */

enum level { MODEL, TENANT, BUCKET, PREFIX, ASK, PREFIX_ASK, LEVELS };

struct entry {
    uint64_t key; /* 0: empty */
    float count;
    float mean;
    uint32_t used; /* the table's clock when last touched */
    float bin[BINS];
};

struct key_table {
    uint32_t clock;
    float p90_offset; /* added to log p90 */
    struct entry entry[SETS * WAYS];
};

struct estimate {
    double mean;
    double samples;
    double bin[BINS]; /* probabilities */
};

static double bin_start(uint32_t b)
{
    return pow(BIN_GROWTH, (double)b);
}

static uint32_t bin_of(double tokens)
{
    if (tokens <= 1) return 0;
    double b = floor(log(tokens) / log(BIN_GROWTH));
    return b < BINS - 1 ? (uint32_t)b : BINS - 1;
}

/* Powers of two: prompts of one kind differ by less than a factor of two. */
static uint32_t prompt_bucket(uint32_t tokens)
{
    return 32 - (uint32_t)__builtin_clz(tokens | 1);
}

static void level_keys(const struct predict_features *f, uint64_t ret[LEVELS])
{
    const struct {
        uint64_t level, tenant, prefix, ask, bucket;
    } part[LEVELS] = {
        [MODEL] = { MODEL + 1, 0, 0, 0, 0 },
        [TENANT] = { TENANT + 1, f->tenant, 0, 0, 0 },
        [BUCKET] = { BUCKET + 1, f->tenant, 0, 0, prompt_bucket(f->prompt_tokens) },
        [PREFIX] = { PREFIX + 1, f->tenant, f->prefix, 0, 0 },
        [ASK] = { ASK + 1, f->tenant, 0, f->ask, 0 },
        [PREFIX_ASK] = { PREFIX_ASK + 1, f->tenant, f->prefix, f->ask, 0 },
    };
    for (uint32_t i = 0; i < LEVELS; i++) {
        uint64_t key = hash64(&part[i], sizeof part[i], 0);
        ret[i] = key ? key : 1;
    }
}

static struct entry *set_of(struct key_table *t, uint64_t key)
{
    return &t->entry[(key % SETS) * WAYS];
}

static const struct entry *find(const struct key_table *t, uint64_t key)
{
    const struct entry *set = &t->entry[(key % SETS) * WAYS];
    for (uint32_t w = 0; w < WAYS; w++) {
        if (set[w].key == key) return &set[w];
    }
    return NULL;
}

static struct entry *find_or_make(struct key_table *t, uint64_t key)
{
    struct entry *set = set_of(t, key), *oldest = set;
    for (uint32_t w = 0; w < WAYS; w++) {
        if (set[w].key == key) return &set[w];
        if (set[w].key == 0) {
            oldest = &set[w];
            break;
        }
        if (set[w].used < oldest->used) oldest = &set[w];
    }
    *oldest = (struct entry){ .key = key };
    return oldest;
}

/* Before anything finished: lengths spread evenly over the bins up to twice the first guess. */
static void prior(struct estimate *e)
{
    *e = (struct estimate){ .mean = FIRST_GUESS };
    uint32_t top = bin_of(2 * FIRST_GUESS);
    for (uint32_t b = 0; b <= top; b++)
        e->bin[b] = 1.0 / (double)(top + 1);
}

static void shrink(struct estimate *e, const struct entry *own)
{
    double n = (double)own->count;
    e->mean = (n * (double)own->mean + SHRINK * e->mean) / (n + SHRINK);
    for (uint32_t b = 0; b < BINS; b++) {
        e->bin[b] = ((double)own->bin[b] + SHRINK * e->bin[b]) / (n + SHRINK);
    }
    e->samples = n;
}

static void estimate(const struct key_table *t, const struct predict_features *f,
                     struct estimate *ret)
{
    uint64_t key[LEVELS];
    level_keys(f, key);
    prior(ret);
    for (uint32_t i = 0; i < LEVELS; i++) {
        const struct entry *own = find(t, key[i]);
        if (own) shrink(ret, own);
    }
}

/* Length below which a share `q` of the histogram lies; within a bin, log-linear. */
static double quantile(const struct estimate *e, double q)
{
    double below = 0;
    for (uint32_t b = 0; b < BINS; b++) {
        if (below + e->bin[b] >= q && e->bin[b] > 0) {
            return bin_start(b) * pow(BIN_GROWTH, (q - below) / e->bin[b]);
        }
        below += e->bin[b];
    }
    return bin_start(BINS);
}

static double clamp(double tokens, uint32_t output_max)
{
    if (tokens < 1) return 1;
    return tokens < (double)output_max ? tokens : (double)output_max;
}

static void init(void *state)
{
    memset(state, 0, sizeof(struct key_table));
}

static void decide(const void *state, const struct predict_features *f, struct predict_verdict *ret)
{
    const struct key_table *t = state;
    struct estimate e;
    estimate(t, f, &e);
    *ret = (struct predict_verdict){
        .mean = clamp(e.mean, f->output_max),
        .p50 = clamp(quantile(&e, 0.5), f->output_max),
        .p90 = clamp(quantile(&e, 0.9) * exp((double)t->p90_offset), f->output_max),
        .samples = e.samples,
    };
    if (ret->p90 < ret->p50) ret->p90 = ret->p50;
}

static double remaining(const void *state, const struct predict_features *f, uint32_t generated)
{
    struct estimate e;
    estimate(state, f, &e);
    double mass = 0, sum = 0;
    for (uint32_t b = 0; b < BINS; b++) {
        /* The bin's geometric middle stands for it; a bin half passed counts from there on. */
        double middle = bin_start(b) * sqrt(BIN_GROWTH);
        if (middle <= (double)generated) continue;
        mass += e.bin[b];
        sum += e.bin[b] * middle;
    }
    double expected = mass > 1e-6 ? sum / mass : (double)generated * BIN_GROWTH;
    double left = clamp(expected, f->output_max) - (double)generated;
    return left > 1 ? left : 1;
}

/* Moves the offset so that a share CONFORMAL_MISS of answers ends above p90. A censored answer
 * says something only when it already passed the estimate. */
static void calibrate(struct key_table *t, double p90, double tokens, bool censored)
{
    bool missed = tokens > p90;
    if (censored && !missed) return;
    double offset =
        (double)t->p90_offset + CONFORMAL_STEP * ((missed ? 1.0 : 0.0) - CONFORMAL_MISS);
    t->p90_offset = (float)fmax(-CONFORMAL_BOUND, fmin(CONFORMAL_BOUND, offset));
}

static void learn(struct entry *own, uint32_t clock, double tokens)
{
    own->used = clock;
    if ((double)own->count >= COUNT_MAX) {
        float keep = (float)((COUNT_MAX - 1) / COUNT_MAX);
        own->count *= keep;
        for (uint32_t b = 0; b < BINS; b++)
            own->bin[b] *= keep;
    }
    own->count += 1;
    own->mean += ((float)tokens - own->mean) / own->count;
    own->bin[bin_of(tokens)] += 1;
}

static void observe(void *state, const struct predict_features *f, uint32_t tokens, bool censored)
{
    struct key_table *t = state;
    struct predict_features open = *f;
    open.output_max = UINT32_MAX; /* coverage is judged on the estimate before the clamp */
    struct predict_verdict said;
    decide(t, &open, &said);
    calibrate(t, said.p90, (double)tokens, censored);

    double length = (double)tokens;
    if (censored) {
        /* One-sided: below the estimate the cut tells nothing, above it the answer is at least
         * what the histogram expects of answers that got this far. */
        if (length < said.p50) return;
        length += remaining(t, &open, tokens);
    }
    uint64_t key[LEVELS];
    level_keys(f, key);
    t->clock++;
    for (uint32_t i = 0; i < LEVELS; i++)
        learn(find_or_make(t, key[i]), t->clock, length);
}

const struct predict_policy predict_key_table = {
    .name = "key_table",
    .about = "decayed histograms per tenant, prefix and question, the general backing the special",
    .source = "ours; shrinkage after James and Stein, P90 by adaptive conformal inference",
    .state_size = sizeof(struct key_table),
    .init = init,
    .decide = decide,
    .observe = observe,
    .remaining = remaining,
};
