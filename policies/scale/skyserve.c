/* skyserve.c - divide requests a second by a stated rate of one instance.
 *
 *     want = ceil(requests within the last 60 s / 60 / qps_target), evaluated every 20 s
 *     up after 15 such results in a row (300 s), down after 60 (1200 s); from none at once
 *
 * This is SkyServe's request-rate autoscaler. qps_target has no published default: the operator states
 * it (ours starts from 1). Its spot placer and on-demand fallback belong to placement. Deviation: from
 * zero one instance comes at once, where the original evaluates every 5 s. */
#include "base/core/bits.h"
#include "policies/scale/scale.h"

#include <math.h>

#define WINDOW 60
#define PERIOD_S 20
#define UP_TIMES 15
#define DOWN_TIMES 60
#define SECOND_US ((int64_t)1000000)

struct sky {
    int64_t next_us;
    int64_t second[WINDOW + 1]; /* number + 1 of the second that total[] was read in */
    uint64_t total[WINDOW + 1];
    uint32_t up, down;
    uint32_t target; /* plus 1; 0: none yet */
};

/* Returns the requests of the last minute, or of the shorter history, divided by a minute. */
static double rate(struct sky *s, uint64_t total, int64_t now_us)
{
    int64_t now = now_us / SECOND_US, oldest = now;
    uint64_t from = total;
    s->second[now % (WINDOW + 1)] = now + 1;
    s->total[now % (WINDOW + 1)] = total;
    for (uint32_t i = 0; i <= WINDOW; i++) {
        int64_t at = s->second[i] - 1;
        if (at < 0 || at > now || now - at > WINDOW || at > oldest) continue;
        oldest = at;
        from = s->total[i];
    }
    return total > from ? (double)(total - from) / WINDOW : 0;
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct sky *s = state;
    const struct scale_demand *d = &view->demand;
    uint32_t have = scale_have_all(view);
    if (!d->present) {
        scale_keep(view, "no router has reported its demand: keep what there is", ret);
        ret->again_us = now_us + SECOND_US;
        return;
    }
    double load = config->margin * rate(s, d->arrivals_total, now_us) / config->qps_target;
    uint32_t want = (uint32_t)fmin(ceil(load), SCALE_COUNT_MAX * SCALE_POOLS_MAX);
    if (s->target == 0) s->target = max_u32(have, 1) + 1;
    if (scale_due(&s->next_us, PERIOD_S, now_us)) {
        s->up = want + 1 > s->target ? s->up + 1 : 0;
        s->down = want + 1 < s->target ? s->down + 1 : 0;
        if (s->up >= UP_TIMES || s->down >= DOWN_TIMES) {
            s->target = want + 1;
            s->up = s->down = 0;
        }
    }
    bool sleeps = have == 0 && want == 0;
    scale_answer(config, view, sleeps ? 0 : s->target - 1.0,
                 "requests a second against what an instance serves", ret);
    ret->load = load;
    ret->again_us = now_us + SECOND_US;
}

const struct scale_policy scale_skyserve = {
    .name = "skyserve",
    .about = "requests a second divided by a stated rate, 300 s up, 1200 s down",
    .source = "SkyServe's request-rate autoscaler",
    .shaper = "none",
    .state_size = sizeof(struct sky),
    .decide = decide,
};
