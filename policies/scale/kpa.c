/* kpa.c - size the fleet in proportion to the requests in flight, with a panic window.
 *
 *     stable = mean of (in_flight + held) over 60 s,  panic = the same over 6 s
 *     ds = ceil(stable / (0.7 * concurrency)),  dp = ceil(panic / (0.7 * concurrency))
 *     panic begins when dp / max(ready, 1) >= 2 and lasts until 60 s after the last such moment;
 *     in panic the count never falls; a state that begins with more than one ready begins in panic
 *
 * This is the published algorithm of Knative's pod autoscaler, target 100 as shipped; its rates are
 * the shaper kpa. The windows are rings of one-second means, so that the state has a fixed size
 * whatever the sampling rate. */
#include "base/core/bits.h"
#include "policies/scale/scale.h"

#include <math.h>

#define STABLE_S 60
#define PANIC_S 6
#define PANIC_RATIO 2.0
#define TARGET_SHARE 0.7
#define SECOND_US ((int64_t)1000000)
#define AGAIN_US (2 * SECOND_US) /* Knative's tick */

struct bucket {
    int64_t second; /* number + 1 of the second that it holds; 0: never written */
    float sum;
    uint32_t samples;
};

struct kpa {
    struct bucket ring[STABLE_S];
    int64_t panic_until_us; /* 0: calm */
    uint32_t panic_count;   /* the most wanted in this panic */
    bool begun;
};

static void sample(struct kpa *k, int64_t second, double value)
{
    struct bucket *b = &k->ring[(uint64_t)second % STABLE_S];
    if (b->second != second + 1) *b = (struct bucket){ .second = second + 1 };
    b->sum += (float)value;
    b->samples++;
}

static double mean_over(const struct kpa *k, int64_t second, int64_t window_s)
{
    double sum = 0;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < STABLE_S; i++) {
        const struct bucket *b = &k->ring[i];
        if (b->second == 0 || b->second - 1 > second || b->second - 1 <= second - window_s)
            continue;
        sum += (double)b->sum / b->samples;
        seen++;
    }
    return seen ? sum / seen : 0;
}

static void panic(struct kpa *k, uint32_t ready, int64_t now_us)
{
    if (k->panic_until_us == 0) k->panic_count = ready;
    k->panic_until_us = now_us + STABLE_S * SECOND_US;
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct kpa *k = state;
    const struct scale_demand *d = &view->demand;
    if (!d->present) {
        scale_keep(view, "no router has reported its demand: keep what there is", ret);
        ret->again_us = now_us + AGAIN_US;
        return;
    }

    uint32_t ready = scale_ready_all(view);
    int64_t second = now_us / SECOND_US;
    sample(k, second, config->margin * ((double)d->in_flight + d->held));

    double target = TARGET_SHARE * config->concurrency;
    double stable = mean_over(k, second, STABLE_S) / target;
    double lately = mean_over(k, second, PANIC_S) / target;
    double want = ceil(stable);
    double want_panic = ceil(lately);

    bool burst = want_panic / max_u32(ready, 1) >= PANIC_RATIO;
    if (burst || (!k->begun && ready > 1)) panic(k, ready, now_us);
    k->begun = true;
    if (k->panic_until_us > now_us + STABLE_S * SECOND_US)
        k->panic_until_us = now_us; /* the wall clock went back */
    bool panicking = k->panic_until_us > now_us;
    if (panicking) {
        want = fmax(fmax(want, want_panic), k->panic_count);
        k->panic_count = (uint32_t)fmin(want, SCALE_COUNT_MAX * SCALE_POOLS_MAX);
    } else {
        k->panic_until_us = 0;
        k->panic_count = 0;
    }
    scale_answer(config, view, want,
                 panicking ? "concurrency is far above the ready, or was just now"
                           : "mean concurrency of the last minute",
                 ret);
    ret->load = panicking ? lately : stable;
    ret->again_us = now_us + AGAIN_US;
}

_Static_assert(sizeof(struct kpa) <= SCALE_STATE_BYTES_MAX, "state of scale_kpa");

const struct scale_policy scale_kpa = {
    .name = "kpa",
    .about = "requests in flight divided by a target per instance, with a panic window",
    .source = "Knative pod autoscaler",
    .shaper = "kpa",
    .state_size = sizeof(struct kpa),
    .decide = decide,
};
