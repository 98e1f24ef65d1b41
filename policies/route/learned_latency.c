/* learned_latency.c - predict TTFT and TPOT with a model that learns online from served requests.
 *
 *     TTFT = pace_t[instance] * t . (1, uncached, queued prefill, decoding, KV held, waiting)
 *     TPOT = pace_p[instance] * p . (1, decoding, KV held, queued prefill)
 *     score = TTFT + predicted output * TPOT; the least wins
 *
 * t and p are fitted by recursive least squares with forgetting 0.998, for the whole fleet; the
 * features a request was sent with come back with its outcome. A pace says how much slower than the
 * fleet's model an instance is: exp of the smoothed log(measured / modelled) of its requests, 1 at
 * first; t and p are fitted to the measured time divided by the pace. No term of t and p is below 0:
 * the instances of a fleet are about equally busy, so outcomes say little about each term, and a
 * model with a negative term for work would send all requests to the busiest instance. An unexplored
 * fleet starts from a weak prior that prefers short queues. One request in 50 goes to an instance
 * drawn at random, because a model that is wrong about an instance would otherwise never learn it.
 *
 * Deviations: llm-d trains gradient-boosted trees in a side process and weighs headroom under an
 * SLO by 0.8 and 0.2; ours is linear so that it learns in the router in microseconds, and minimises
 * the sum of seconds. Its pools hold like machines; the paces are ours, for unlike machines and for
 * those that something slows down. Errors are clipped at 3 times their usual size.
 * Source: llm-d latency predictor; recursive least squares (Ljung and Soderstrom 1983), projected
 * in the metric of its covariance (Goodwin and Sin 1984).
 */
#include "policies/route/route.h"

#include <math.h>

#define TTFT_TERMS 6
#define TPOT_TERMS 4
#define FORGET 0.998
#define PRIOR_S 1e-3         /* of every term at first: weakly prefers short queues */
#define PRIOR_VARIANCE 100.0 /* of a term, far above any real one, so the first outcomes decide */
#define EXPLORE 50           /* one request in this many goes to a random instance */
#define CLIP 3.0             /* usual errors */
#define CLIP_FROM 20         /* outcomes; until then the usual error is not known */
#define SPREAD_GAIN 0.05     /* an outcome: the usual error is that of about the last 20 */
#define TRACE_MAX 1e6        /* of the covariance: forgetting stops where nothing new is seen */
#define PACE_GAIN 0.05       /* an outcome: the pace is that of about the last 20 */
#define PACE_CLIP 2.0        /* of the error of one logarithm */
#define LEAST_S 1e-4         /* below it a ratio says nothing */

struct fit {
    double theta[TTFT_TERMS];
    double cov[TTFT_TERMS][TTFT_TERMS];
    double spread; /* running mean of |error| */
    uint64_t seen;
};

struct model {
    bool started;
    struct fit ttft, tpot;
    float ttft_pace[ROUTE_INSTANCES_MAX], tpot_pace[ROUTE_INSTANCES_MAX]; /* logarithms */
};

/* Features scaled to about 1. */
enum { F_ONE, F_UNCACHED, F_QUEUED, F_DECODING, F_KV, F_WAITING };

static const uint8_t ttft_terms[TTFT_TERMS] = { F_ONE,      F_UNCACHED, F_QUEUED,
                                                F_DECODING, F_KV,       F_WAITING };
static const uint8_t tpot_terms[TPOT_TERMS] = { F_ONE, F_DECODING, F_KV, F_QUEUED };

static void fit_init(struct fit *f, uint32_t terms)
{
    for (uint32_t i = 0; i < terms; i++) {
        f->theta[i] = PRIOR_S;
        f->cov[i][i] = PRIOR_VARIANCE;
    }
}

static void start(struct model *m)
{
    if (m->started) return;
    fit_init(&m->ttft, TTFT_TERMS);
    fit_init(&m->tpot, TPOT_TERMS);
    m->started = true;
}

static double predict(const struct fit *f, const uint8_t *terms, uint32_t count, const float *x)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += f->theta[i] * (double)x[terms[i]];
    return sum;
}

/* Sets terms below 0 to 0 and corrects the others by their covariance with them. */
static void project(struct fit *f, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        double below = f->theta[i];
        if (below >= 0 || f->cov[i][i] <= 0) continue;
        for (uint32_t j = 0; j < count; j++)
            f->theta[j] -= f->cov[i][j] / f->cov[i][i] * below;
        f->theta[i] = 0;
    }
    for (uint32_t i = 0; i < count; i++)
        f->theta[i] = fmax(f->theta[i], 0);
}

static void learn(struct fit *f, const uint8_t *terms, uint32_t count, const float *x, double y)
{
    double px[TTFT_TERMS], xpx = 0, trace = 0;
    for (uint32_t i = 0; i < count; i++) {
        px[i] = 0;
        for (uint32_t j = 0; j < count; j++)
            px[i] += f->cov[i][j] * (double)x[terms[j]];
        xpx += px[i] * (double)x[terms[i]];
        trace += f->cov[i][i];
    }
    double away = y - predict(f, terms, count, x), error = away;
    if (f->seen++ > CLIP_FROM) error = fmax(fmin(away, CLIP * f->spread), -CLIP * f->spread);
    f->spread += SPREAD_GAIN * (fabs(away) - f->spread);
    double forget = trace < TRACE_MAX ? FORGET : 1;
    for (uint32_t i = 0; i < count; i++) {
        f->theta[i] += px[i] / (forget + xpx) * error;
        for (uint32_t j = 0; j < count; j++)
            f->cov[i][j] = (f->cov[i][j] - px[i] * px[j] / (forget + xpx)) / forget;
    }
    project(f, count);
}

static double modelled(const struct fit *f, const uint8_t *terms, uint32_t count, const float *x)
{
    return fmax(predict(f, terms, count, x), LEAST_S);
}

/* Teaches the model the time that an instance of pace 1 would have taken, and the instance's pace the
 * ratio of the measured time to the model's. */
static void learn_at(struct fit *f, const uint8_t *terms, uint32_t count, float *pace,
                     const float *x, double y)
{
    double ratio = fmax(y, LEAST_S) / modelled(f, terms, count, x);
    learn(f, terms, count, x, y / exp((double)*pace));
    double error = fmax(fmin(log(ratio) - (double)*pace, PACE_CLIP), -PACE_CLIP);
    *pace += (float)(PACE_GAIN * error);
}

static void observe(void *state, const struct route_event *ev)
{
    struct model *m = state;
    start(m);
    if (!(ev->scratch[F_ONE] > 0)) return; /* not a request that this policy has sent */
    if (ev->kind == ROUTE_FIRST_TOKEN && ev->ttft_s >= 0 && isfinite(ev->ttft_s))
        learn_at(&m->ttft, ttft_terms, TTFT_TERMS, &m->ttft_pace[ev->instance_id], ev->scratch,
                 ev->ttft_s);
    if (ev->kind == ROUTE_FINISHED && ev->tpot_s >= 0 && isfinite(ev->tpot_s))
        learn_at(&m->tpot, tpot_terms, TPOT_TERMS, &m->tpot_pace[ev->instance_id], ev->scratch,
                 ev->tpot_s);
}

static double ttft_s(const struct model *m, uint32_t id, const float *x)
{
    return modelled(&m->ttft, ttft_terms, TTFT_TERMS, x) * exp((double)m->ttft_pace[id]);
}

static double tpot_s(const struct model *m, uint32_t id, const float *x)
{
    return modelled(&m->tpot, tpot_terms, TPOT_TERMS, x) * exp((double)m->tpot_pace[id]);
}

static void features(const struct route_instance *in, const struct route_req *req, float *x)
{
    x[F_ONE] = 1;
    x[F_UNCACHED] = (float)(req->prompt_tokens - route_hit_tokens(in, req)) * 1e-3f;
    x[F_QUEUED] = (float)in->prefill_tokens * 1e-3f;
    x[F_DECODING] = (float)in->decoding * 1e-1f;
    x[F_KV] = (float)in->kv_tokens * 1e-5f;
    x[F_WAITING] = (float)in->waiting * 1e-1f;
}

static void decide(void *state, const struct route_view *view, const struct route_req *req,
                   int64_t now_us, struct rng *rng, struct route_verdict *ret)
{
    (void)now_us;
    struct model *m = state;
    start(m);
    bool explore = rng_below(rng, EXPLORE) == 0;
    float x[ROUTE_SCRATCH] = { 0 };
    struct route_best best = ROUTE_BEST_INIT;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!route_takes(in)) continue;
        features(in, req, x);
        double output_s = fmax(req->output_mean, 1) * tpot_s(m, in->id, x);
        double score = explore ? 0 : ttft_s(m, in->id, x) + output_s;
        route_best_offer(&best, i, score, rng);
    }
    route_answer(view, req, best.index, best.second_index, ret);
    if (best.index == ROUTE_NONE) return;
    features(&view->instance[best.index], req, ret->scratch);
    ret->estimate_s = ttft_s(m, view->instance[best.index].id, ret->scratch);
}

const struct route_policy route_learned_latency = {
    .name = "learned_latency",
    .about = "least latency by a linear model that learns from each output",
    .source = "llm-d latency predictor, linear",
    .state_size = sizeof(struct model),
    .observe = observe,
    .decide = decide,
};
