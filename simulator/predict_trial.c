/* predict_trial.c - passes over the trace in its order, and observes each output when it is due. */
#include "simulator/predict_trial.h"

#include "base/core/rng.h"

#include <math.h>
#include <stdlib.h>

#define PAIRS 1000000
#define PAIRS_SEED 5
#define FOLLOW_UPS_MIN 100

struct judged {
    double *guess, *truth, *follow_guess, *follow_truth;
};

double predict_concordance(const double *guess, const double *truth, uint32_t count)
{
    if (count < 2) return -1;
    struct rng rng;
    rng_seed(&rng, PAIRS_SEED);
    double right = 0, pairs = 0;
    for (uint32_t i = 0; i < PAIRS; i++) {
        uint64_t a = rng_below(&rng, count), b = rng_below(&rng, count);
        if (truth[a] == truth[b]) continue;
        pairs++;
        right += guess[a] == guess[b] ? 0.5 : (guess[a] < guess[b]) == (truth[a] < truth[b]);
    }
    return pairs > 0 ? right / pairs : -1;
}

static bool is_cut(const struct trace_request *r)
{
    return r->output_max > 0 && r->output_tokens >= r->output_max;
}

struct pass {
    const struct trace_features *f;
    const struct predict_policy *policy;
    void *state;
    int64_t (*now_us)(void);
    uint32_t told; /* requests whose end was observed */
    int64_t observe_us, decide_us;
};

static void tell_until(struct pass *p, int64_t at_us, int64_t delay_us)
{
    const struct trace *t = p->f->trace;
    int64_t from_us = p->now_us ? p->now_us() : 0;
    for (; p->told < t->count && t->request[p->told].at_us + delay_us <= at_us; p->told++) {
        const struct trace_request *r = &t->request[p->told];
        struct predict_features f;
        trace_features_of(p->f, p->told, 0, &f);
        p->policy->observe(p->state, &f, r->output_tokens, is_cut(r));
    }
    p->observe_us += p->now_us ? p->now_us() - from_us : 0;
}

static void judge(struct predict_trial *ret, struct judged *j, const struct predict_verdict *v,
                  double truth, bool follows)
{
    j->guess[ret->judged] = v->mean;
    j->truth[ret->judged++] = truth;
    ret->mae_tokens += fabs(v->p50 - truth);
    ret->true_mean_tokens += truth;
    ret->p90_coverage += truth <= v->p90;
    if (!follows) return;
    j->follow_guess[ret->follow_ups] = v->mean;
    j->follow_truth[ret->follow_ups++] = truth;
}

static void run(struct pass *p, int64_t delay_us, struct judged *j, struct predict_trial *ret)
{
    const struct trace *t = p->f->trace;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct trace_request *r = &t->request[i];
        struct predict_features f;
        struct predict_verdict v;
        tell_until(p, r->at_us, delay_us);
        trace_features_of(p->f, i, 0, &f);
        int64_t from_us = p->now_us ? p->now_us() : 0;
        p->policy->decide(p->state, &f, &v);
        p->decide_us += p->now_us ? p->now_us() - from_us : 0;
        ret->costly_share += v.costly;
        ret->extra_prompt += v.extra_prompt_tokens;
        ret->extra_output += v.extra_output_tokens;
        if (!is_cut(r)) judge(ret, j, &v, (double)r->output_tokens, p->f->previous[i] > 0);
    }
    tell_until(p, INT64_MAX, 0);
}

int predict_trial_run(const struct trace_features *f, const struct predict_policy *policy,
                      int64_t delay_us, int64_t (*now_us)(void), void *state,
                      struct predict_trial *ret, struct err *err)
{
    uint32_t count = f->trace->count;
    if (count == 0) return err_set(err, -EINVAL, "the trace is empty");
    double *numbers = malloc(4 * (size_t)count * sizeof *numbers);
    if (!numbers) return err_set(err, -ENOMEM, "trial of %u requests", count);
    struct judged j = { numbers, numbers + count, numbers + 2 * (size_t)count,
                        numbers + 3 * (size_t)count };
    struct pass p = { .f = f, .policy = policy, .state = state, .now_us = now_us };
    *ret = (struct predict_trial){ 0 };
    run(&p, delay_us, &j, ret);
    double judged = ret->judged ? ret->judged : 1;
    ret->mae_tokens /= judged;
    ret->true_mean_tokens /= judged;
    ret->p90_coverage /= judged;
    ret->costly_share /= count;
    ret->extra_prompt /= count;
    ret->extra_output /= count;
    ret->decide_us = (double)p.decide_us / count;
    ret->observe_us = (double)p.observe_us / count;
    ret->concordance = predict_concordance(j.guess, j.truth, ret->judged);
    bool enough = ret->follow_ups >= FOLLOW_UPS_MIN;
    ret->follow_concordance =
        enough ? predict_concordance(j.follow_guess, j.follow_truth, ret->follow_ups) : -1;
    free(numbers);
    return 0;
}
