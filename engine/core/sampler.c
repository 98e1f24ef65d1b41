/* sampler.c - filters a ranking of tokens and draws one; sums run in double, in a fixed order.
 *
 * Candidates are taken from the likeliest down only until top-k, top-p or min-p stops; the weight
 * of each is computed once, and the whole is linear in the vocabulary (struct ranking). Without a
 * filter the distribution is walked by id and nothing is ordered at all. Penalties touch only
 * tokens that occurred, counted in scratch that is cleared by walking the same tokens again, so a
 * step costs O(V) reads once and never O(V) writes twice.
 *
 * top-p counts on the distribution that top-k left, as vLLM and transformers do; min-p compares
 * with the likeliest token, which no filter removes.
 */
#include "engine/core/sampler.h"

#include "base/core/bits.h"
#include "base/core/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sampler {
    uint32_t vocab_size;
    float *logit;           /* after penalties */
    uint32_t *count_output; /* occurrences in the output, zero between calls */
    bool *seen;             /* in prompt or output, false between calls */
    struct ranking ranking;
    struct ranked *kept; /* likeliest first */
    double *weight;      /* of each token; set for those that were looked at */
};

int sampler_new(uint32_t vocab_size, struct sampler **ret)
{
    CLEANUP(sampler_freep) struct sampler *s = calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    s->vocab_size = vocab_size;
    s->logit = calloc(vocab_size, sizeof *s->logit);
    s->count_output = calloc(vocab_size, sizeof *s->count_output);
    s->seen = calloc(vocab_size, sizeof *s->seen);
    s->kept = calloc(vocab_size, sizeof *s->kept);
    s->weight = calloc(vocab_size, sizeof *s->weight);
    int rc = ranking_init(&s->ranking, vocab_size);
    bool all = s->logit && s->count_output && s->seen && s->kept && s->weight;
    if (rc < 0 || !all) return -ENOMEM;
    *ret = TAKE(s);
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s) return;
    free(s->logit);
    free(s->count_output);
    free(s->seen);
    ranking_fini(&s->ranking);
    free(s->kept);
    free(s->weight);
    free(s);
}

/* ---- the logits to draw from ---------------------------------------------------------------- */

static void penalise(struct sampler *s, const struct sampler_params *p,
                     const struct sampler_input *in)
{
    float repetition = p->repetition_penalty > 0 ? p->repetition_penalty : 1.0f;
    bool repeats = repetition < 1.0f || repetition > 1.0f;
    bool answers = p->presence_penalty < 0 || p->presence_penalty > 0 || p->frequency_penalty < 0 ||
                   p->frequency_penalty > 0;
    if (!repeats && !answers) return;
    uint32_t from = repeats ? 0 : in->prompt_count;
    for (uint32_t i = from; i < in->count; i++) {
        s->seen[in->ids[i]] = true;
        if (i >= in->prompt_count) s->count_output[in->ids[i]]++;
    }
    for (uint32_t i = from; i < in->count; i++) {
        uint32_t id = in->ids[i];
        if (!s->seen[id]) continue; /* done at an earlier occurrence */
        s->seen[id] = false;
        float *logit = &s->logit[id];
        if (repeats) *logit = *logit > 0 ? *logit / repetition : *logit * repetition;
        if (s->count_output[id] > 0) {
            *logit -= p->presence_penalty + p->frequency_penalty * (float)s->count_output[id];
            s->count_output[id] = 0;
        }
    }
}

/* Takes away all tokens that a mask does not allow, but for `also`. */
static void keep_allowed(struct sampler *s, const struct sampler_input *in)
{
    float kept[SAMPLER_ALSO_MAX];
    must(in->also_count <= SAMPLER_ALSO_MAX);
    for (uint32_t i = 0; i < in->also_count; i++)
        kept[i] = s->logit[in->also[i]];
    for (uint32_t id = 0; id < s->vocab_size; id++) {
        if (!(in->allowed[id / 64] >> (id % 64) & 1)) s->logit[id] = -INFINITY;
    }
    for (uint32_t i = 0; i < in->also_count; i++)
        s->logit[in->also[i]] = kept[i];
}

static void prepare(struct sampler *s, const struct sampler_params *p,
                    const struct sampler_input *in)
{
    memcpy(s->logit, in->logits, s->vocab_size * sizeof *s->logit);
    for (uint32_t i = 0; i < in->bias_count; i++)
        s->logit[in->bias[i].id] += in->bias[i].value;
    penalise(s, p, in);
    if (in->allowed) keep_allowed(s, in);
    for (uint32_t i = 0; i < in->forbidden_count; i++) {
        if (in->forbidden[i] < s->vocab_size) s->logit[in->forbidden[i]] = -INFINITY;
    }
}

/* Finds the lowest id of the highest logit. Returns false if no logit is above -infinity. */
static bool best_token(const float *logit, uint32_t count, uint32_t *ret)
{
    bool found = false;
    for (uint32_t i = 0; i < count; i++) {
        if (!(logit[i] > -INFINITY)) continue; /* NaN as well */
        if (found && !(logit[i] > logit[*ret])) continue;
        *ret = i;
        found = true;
    }
    return found;
}

/* ---- drawing -------------------------------------------------------------------------------- */

static double weight(float logit, float best, double temperature)
{
    if (!(logit > -INFINITY)) return 0; /* NaN as well */
    if (logit >= best) return 1;        /* also where both are infinite */
    return exp(((double)logit - (double)best) / temperature);
}

/* Draws without a filter: walks the distribution by ascending id. */
static uint32_t draw_all(const struct sampler *s, uint32_t best, double temperature, double u)
{
    float top = s->logit[best];
    double sum = 0, below = 0;
    for (uint32_t i = 0; i < s->vocab_size; i++)
        sum += weight(s->logit[i], top, temperature);
    for (uint32_t i = 0; i < s->vocab_size; i++) {
        double w = weight(s->logit[i], top, temperature);
        below += w;
        if (w > 0 && u * sum < below) return i;
    }
    return best; /* u just below 1 and the sums rounded apart */
}

static double weigh(struct sampler *s, uint32_t id, float top, double temperature)
{
    return s->weight[id] = weight(s->logit[id], top, temperature);
}

/* Takes candidates, likeliest first, until a filter stops; *ret_sum is their total weight. */
static uint32_t keep_likely(struct sampler *s, const struct sampler_params *p, float top,
                            double *ret_sum)
{
    double temperature = (double)p->temperature;
    uint32_t count = ranking_begin(&s->ranking, s->logit);
    uint32_t most = p->top_k ? min_u32(p->top_k, count) : count;
    bool nucleus = p->top_p > 0 && p->top_p < 1;

    /* top-p is a share of `total`, the weight of all that top-k leaves. */
    uint32_t kept = 0;
    double total = 0, reached = 0;
    for (uint32_t i = 0; nucleus && p->top_k && i < most; i++) {
        s->kept[i] = ranking_next(&s->ranking);
        total += weigh(s, s->kept[i].id, top, temperature);
    }
    for (uint32_t i = 0; nucleus && !p->top_k && i < s->vocab_size; i++)
        total += weigh(s, i, top, temperature);
    while (kept < most) {
        if (!(nucleus && p->top_k)) s->kept[kept] = ranking_next(&s->ranking);
        uint32_t id = s->kept[kept].id;
        double w = nucleus ? s->weight[id] : weigh(s, id, top, temperature);
        if (kept > 0 && w < (double)p->min_p) break;
        kept++;
        reached += w;
        if (nucleus && reached >= (double)p->top_p * total) break;
    }
    *ret_sum = reached;
    return kept;
}

static uint32_t draw_kept(const struct sampler *s, uint32_t kept, double sum, double u)
{
    double below = 0;
    for (uint32_t i = 0; i < kept; i++) {
        below += s->weight[s->kept[i].id];
        if (u * sum < below) return s->kept[i].id;
    }
    return s->kept[kept - 1].id;
}

static uint32_t draw(struct sampler *s, const struct sampler_params *p, uint32_t best,
                     uint32_t position)
{
    if (!(p->temperature >= SAMPLER_GREEDY_BELOW)) return best;
    double u = rng_at_f64(p->seed, position);
    bool filtered = (p->top_k > 0 && p->top_k < s->vocab_size) || (p->top_p > 0 && p->top_p < 1) ||
                    p->min_p > 0;
    if (!filtered) return draw_all(s, best, (double)p->temperature, u);
    float top = s->logit[best];
    double sum;
    uint32_t kept = keep_likely(s, p, top, &sum);
    return draw_kept(s, kept, sum, u);
}

/* ---- log-probabilities ---------------------------------------------------------------------- */

static int add_logprobs(struct sampler *s, const struct sampler_params *p, const float *logits,
                        struct sampler_result *ret)
{
    uint32_t best = 0;
    if (!best_token(logits, s->vocab_size, &best)) return -EDOM;
    double sum = 0;
    for (uint32_t i = 0; i < s->vocab_size; i++)
        sum += weight(logits[i], logits[best], 1);
    double base = (double)logits[best] + log(sum);
    ret->chosen.logprob = (float)((double)logits[ret->chosen.id] - base);

    uint32_t wanted = min_u32(p->logprobs, SAMPLER_LOGPROBS_MAX);
    if (wanted == 0) return 0;
    uint32_t most = min_u32(wanted, ranking_begin(&s->ranking, logits));
    while (ret->top_count < most) {
        struct ranked c = ranking_next(&s->ranking);
        ret->top[ret->top_count++] =
            (struct sampler_choice){ c.id, (float)((double)c.logit - base) };
    }
    return 0;
}

int sampler_pick(struct sampler *s, const struct sampler_params *p, const struct sampler_input *in,
                 struct sampler_result *ret)
{
    uint32_t best = 0;
    prepare(s, p, in);
    if (!best_token(s->logit, s->vocab_size, &best)) return -EDOM;
    ret->top_count = 0;
    ret->chosen = (struct sampler_choice){ .id = draw(s, p, best, in->count) };
    /* A bias may have made a token of logits that are all -infinity: it has no log-probability. */
    if (p->want_logprob || p->logprobs > 0) (void)add_logprobs(s, p, in->logits, ret);
    return 0;
}

int sampler_score(struct sampler *s, const struct sampler_params *p, const float *logits,
                  uint32_t id, struct sampler_result *ret)
{
    ret->top_count = 0;
    ret->chosen = (struct sampler_choice){ .id = id };
    return add_logprobs(s, p, logits, ret);
}

/* The ranking pops the first tokens off a heap and sorts the rest by radix.
 *
 * Most draws look at few tokens, and a heap of all is built in O(V). A client may ask for nearly
 * all of them (top_p near 1, a flat distribution): popping those costs O(V log V) with a cache miss
 * each, tens of milliseconds on the thread that serves all requests. A sort by the bits of the
 * float, three passes of eleven, is O(V) and gives the very same order, so the sums over it are the
 * same bits. */

#define DIGIT_BITS 11
#define DIGITS 3
#define PLACES (1u << DIGIT_BITS)

int ranking_init(struct ranking *r, uint32_t vocab_size)
{
    *r = (struct ranking){ .vocab_size = vocab_size };
    r->heap = calloc(vocab_size, sizeof *r->heap);
    r->spare = calloc(vocab_size, sizeof *r->spare);
    return r->heap && r->spare ? 0 : -ENOMEM;
}

void ranking_fini(struct ranking *r)
{
    free(r->heap);
    free(r->spare);
    *r = (struct ranking){ 0 };
}

static bool before(struct ranked a, struct ranked b)
{
    if (a.logit > b.logit) return true;
    return !(a.logit < b.logit) && a.id < b.id;
}

/* ---- the heap ---- */

static void sift_down(struct ranking *r, uint32_t at)
{
    struct ranked *heap = r->heap, moved = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= r->count) break;
        if (child + 1 < r->count && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], moved)) break;
        heap[at] = heap[child];
        at = child;
        r->moves++;
    }
    heap[at] = moved;
}

uint32_t ranking_begin(struct ranking *r, const float *logit)
{
    r->logit = logit;
    r->count = r->pops = r->next = 0;
    r->sorted = false;
    for (uint32_t i = 0; i < r->vocab_size; i++) {
        if (logit[i] > -INFINITY) r->heap[r->count++] = (struct ranked){ logit[i], i };
    }
    for (uint32_t i = r->count / 2; i-- > 0;)
        sift_down(r, i);
    return r->count;
}

static struct ranked pop(struct ranking *r)
{
    struct ranked first = r->heap[0];
    r->heap[0] = r->heap[--r->count];
    if (r->count > 0) sift_down(r, 0);
    r->pops++;
    return first;
}

/* ---- the sort ---- */

/* Returns a key that rises as the logit falls. Both zeros are equal, as they are to `before`. */
static uint32_t key_of(float logit)
{
    uint32_t bits;
    float plain = logit + 0.0f; /* -0 + 0 is 0 */
    memcpy(&bits, &plain, sizeof bits);
    return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

static uint32_t digit_of(float logit, uint32_t digit)
{
    return key_of(logit) >> (digit * DIGIT_BITS) & (PLACES - 1);
}

/* Collects the tokens not given out yet, by ascending id; the sort is stable, so equals stay so. */
static void gather_rest(struct ranking *r, uint32_t places[DIGITS][PLACES])
{
    r->count = 0;
    for (uint32_t i = 0; i < r->vocab_size; i++) {
        struct ranked c = { r->logit[i], i };
        if (!(c.logit > -INFINITY) || (r->pops > 0 && !before(r->last, c))) continue;
        r->heap[r->count++] = c;
        for (uint32_t d = 0; d < DIGITS; d++)
            places[d][digit_of(c.logit, d)]++;
    }
}

static void sort_rest(struct ranking *r)
{
    uint32_t places[DIGITS][PLACES] = { 0 };
    gather_rest(r, places);
    struct ranked *from = r->heap, *to = r->spare;
    for (uint32_t d = 0; d < DIGITS; d++) {
        uint32_t sum = 0;
        for (uint32_t p = 0; p < PLACES; p++) {
            uint32_t here = places[d][p];
            places[d][p] = sum;
            sum += here;
        }
        for (uint32_t i = 0; i < r->count; i++)
            to[places[d][digit_of(from[i].logit, d)]++] = from[i];
        struct ranked *was = from;
        from = to;
        to = was;
    }
    r->moves += (uint64_t)(DIGITS + 1) * r->count;
    r->sorted = true;
}

struct ranked ranking_next(struct ranking *r)
{
    if (!r->sorted && r->pops >= r->vocab_size / RANKING_POPS) sort_rest(r);
    r->last = r->sorted ? r->spare[r->next++] : pop(r);
    return r->last;
}
