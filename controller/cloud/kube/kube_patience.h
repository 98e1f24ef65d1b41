/* kube_patience.h - learns how long Pods of an offer wait for a node, and so when a wait means a stock-out.
 *
 *     limit = mean + 4 deviations, doubled for each stock-out in a row,
 *             at least a quarter of and at most four times kubernetes.wait
 *
 * That is how TCP learns its retransmission time (RFC 6298): what is slower than the limit is never observed, so
 * a stock-out must raise it until a Pod gets a node again. Without an autoscaler the few Pods that wait wait for
 * others to end; with one they wait for a machine.
 *
 * Layer:   controller/cloud/kube (base/core)
 * Threads: pure
 */
#pragma once
#include "base/core/bits.h"

#include <math.h>
#include <stdint.h>

#define PATIENCE_WEIGHT 0.25 /* of the newest wait, in mean and deviation */
#define PATIENCE_SPAN 4      /* to both sides of kubernetes.wait */

struct kube_patience {
    double mean_s, deviation_s;
    uint32_t waits;  /* observed */
    uint32_t misses; /* stock-outs since the last of them */
};

/* A Pod that no node took at first was taken after so long. */
static inline void kube_patience_learn(struct kube_patience *p, double waited_s)
{
    double off_s = waited_s - p->mean_s;
    p->deviation_s = p->waits == 0
                         ? waited_s / 2
                         : p->deviation_s + PATIENCE_WEIGHT * (fabs(off_s) - p->deviation_s);
    p->mean_s = p->waits == 0 ? waited_s : p->mean_s + PATIENCE_WEIGHT * off_s;
    p->waits++;
    p->misses = 0;
}

/* A Pod waited for the limit in vain. */
static inline void kube_patience_miss(struct kube_patience *p)
{
    p->misses++;
}

static inline int64_t kube_patience_us(const struct kube_patience *p, int64_t wait_us)
{
    if (p->waits == 0) return wait_us;
    double limit_us = (p->mean_s + 4 * p->deviation_s) * 1e6;
    for (uint32_t i = 0; i < p->misses && limit_us < (double)wait_us * PATIENCE_SPAN; i++)
        limit_us *= 2;
    limit_us = fmax(limit_us, (double)wait_us / PATIENCE_SPAN);
    return (int64_t)fmin(limit_us, (double)wait_us * PATIENCE_SPAN);
}
