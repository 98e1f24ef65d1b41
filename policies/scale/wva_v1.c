/* wva_v1.c - add or remove one instance by spare KV memory and queue room of unsaturated instances.
 *
 *     saturated: KV share >= 0.80 or waiting >= 5, by an instance's peaks of the last minute
 *     spare:     mean over the others of (0.80 - KV share) and (5 - waiting)
 *     up one on the cheapest if spare KV < 0.1, spare queue < 3, or all are saturated
 *     down one of the dearest if N >= 2 and the spare left after spreading the load over N - 1
 *     still passes; pools with an instance starting are skipped; every 30 s
 *
 * This is llm-d's workload variant autoscaler, first version, which moves one step at a time by design.
 * Peaks are kept by instance in buckets of ten seconds; instances beyond PEAKS_MAX are judged by their
 * present load. */
#include "policies/scale/scale.h"

#include <math.h>

#define KV_MAX 0.80
#define QUEUE_MAX 5.0
#define SPARE_KV 0.1
#define SPARE_QUEUE 3.0
#define PERIOD_S 30
#define PEAKS_MAX 128
#define BUCKETS 6
#define BUCKET_US ((int64_t)10000000)
#define AGAIN_US ((int64_t)1000000)

struct peak {
    uint64_t id; /* plus 1; 0: free */
    int64_t last;
    float kv[BUCKETS], queue[BUCKETS];
};

struct wva {
    int64_t next_us;
    struct peak peak[PEAKS_MAX];
};
_Static_assert(sizeof(struct wva) <= SCALE_STATE_BYTES_MAX, "state of wva_v1");

static struct peak *peak_of(struct wva *w, uint64_t id, int64_t bucket)
{
    struct peak *vacant = NULL;
    for (uint32_t i = 0; i < PEAKS_MAX; i++) {
        struct peak *p = &w->peak[i];
        if (p->id == id + 1) return p;
        bool old = p->id == 0 || bucket - p->last >= BUCKETS || p->last > bucket;
        if (old && !vacant) vacant = p;
    }
    if (vacant) *vacant = (struct peak){ .id = id + 1, .last = bucket };
    return vacant;
}

/* Records the instance's load and returns its peaks of the last minute. */
static void peaks(struct wva *w, const struct scale_instance *in, int64_t now_us, double *ret_kv,
                  double *ret_queue)
{
    double kv = (double)in->kv_tokens / (double)in->kv_tokens_max;
    int64_t bucket = now_us / BUCKET_US;
    struct peak *p = peak_of(w, in->id, bucket);
    *ret_kv = kv;
    *ret_queue = in->waiting;
    if (!p) return;
    for (int64_t b = p->last + 1; b <= bucket && b <= p->last + BUCKETS; b++)
        p->kv[b % BUCKETS] = p->queue[b % BUCKETS] = 0;
    p->last = bucket;
    uint32_t at = (uint32_t)(bucket % BUCKETS);
    p->kv[at] = fmaxf(p->kv[at], (float)kv);
    p->queue[at] = fmaxf(p->queue[at], (float)in->waiting);
    for (uint32_t i = 0; i < BUCKETS; i++) {
        *ret_kv = fmax(*ret_kv, (double)p->kv[i]);
        *ret_queue = fmax(*ret_queue, (double)p->queue[i]);
    }
}

struct spare {
    uint32_t seen, calm; /* instances that report, and those of them not saturated */
    double kv, queue;    /* loads of the calm, summed */
};

static struct spare survey(struct wva *w, const struct scale_view *view, double margin,
                           int64_t now_us)
{
    struct spare s = { 0 };
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct scale_instance *in = &view->instance[i];
        if (!in->ready || !in->fresh || !in->kv_tokens_max) continue;
        double kv, queue;
        peaks(w, in, now_us, &kv, &queue);
        kv *= margin;
        queue *= margin;
        s.seen++;
        if (kv >= KV_MAX || queue >= QUEUE_MAX) continue;
        s.calm++;
        s.kv += kv;
        s.queue += queue;
    }
    return s;
}

static int step(const struct spare *s)
{
    if (s->calm == 0) return 1;
    double n = s->calm;
    if (KV_MAX - s->kv / n < SPARE_KV || QUEUE_MAX - s->queue / n < SPARE_QUEUE) return 1;
    if (s->seen < 2 || s->calm < 2) return 0;
    bool fits =
        KV_MAX - s->kv / (n - 1) >= SPARE_KV && QUEUE_MAX - s->queue / (n - 1) >= SPARE_QUEUE;
    return fits ? -1 : 0;
}

static bool is_as_it_was(const struct scale_view *view, const struct scale_choice *c)
{
    for (uint32_t i = 0; i < view->pool_count; i++)
        if (c->want[i] != scale_have(&view->pool[i])) return false;
    return true;
}

static void decide(void *state, const struct scale_config *config, const struct scale_view *view,
                   int64_t now_us, struct rng *rng, struct scale_verdict *ret)
{
    (void)rng;
    struct wva *w = state;
    struct spare s = survey(w, view, config->margin, now_us);
    const char *reason = "the spare capacity fits";
    int by = 0;
    bool awake = view->demand.present && scale_is_awake(config, view);
    if (awake && scale_have_all(view) == 0) {
        by = 1;
        reason = "requests came and nothing runs";
    } else if (s.seen == 0) {
        reason = "no instance has reported its KV memory: keep what there is";
    } else if (scale_due(&w->next_us, PERIOD_S, now_us)) {
        by = step(&s);
        if (by > 0) reason = "too little spare KV memory or queue room";
        if (by < 0) reason = "one instance fewer still leaves enough to spare";
    }
    *ret = (struct scale_verdict){ .reason = reason,
                                   .load = s.calm   ? s.kv / s.calm
                                           : s.seen ? 1
                                                    : 0,
                                   .estimate_s = -1,
                                   .again_us = now_us + AGAIN_US };
    scale_nudge(view, by, true, &ret->choice);
    if (by != 0 && is_as_it_was(view, &ret->choice))
        ret->reason = "an instance is starting, or nothing else may change";
}

const struct scale_policy scale_wva_v1 = {
    .name = "wva_v1",
    .about = "one step by spare KV memory and queue room, every 30 s",
    .source = "llm-d workload variant autoscaler, saturation v1",
    .shaper = "none",
    .needs = SCALE_NEEDS_KV,
    .state_size = sizeof(struct wva),
    .decide = decide,
};
