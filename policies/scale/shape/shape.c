/* shape.c - the table of shapers, the history that they share, and the shaper that follows its signal. */
#include "policies/scale/shape/shape.h"

#include "base/core/bits.h"

#include <string.h>

const struct scale_shaper *const scale_shape_table[] = {
#define POLICY(name) &scale_shape_##name,
#include "policies/scale/shape/shape.def"
#undef POLICY
};
const uint32_t scale_shape_count = COUNT_OF(scale_shape_table);

const struct scale_shaper *scale_shape_find(struct str name)
{
    for (uint32_t i = 0; i < scale_shape_count; i++)
        if (str_eq(name, str_from(scale_shape_table[i]->name))) return scale_shape_table[i];
    return NULL;
}

static int64_t bucket_us(double window_s)
{
    int64_t us = (int64_t)(window_s * 1e6) / (SHAPE_BUCKETS - 1);
    return us > 0 ? us : 1;
}

bool shape_remember(struct shape_ring *r, double window_s, const struct scale_shape_ask *ask,
                    int64_t now_us)
{
    int64_t window_us = (int64_t)(window_s * 1e6);
    if (r->first_us == 0 || now_us < r->last_us || now_us - r->last_us > window_us)
        *r = (struct shape_ring){ .first_us = now_us };
    r->last_us = now_us;
    int64_t slot = now_us / bucket_us(window_s);
    uint32_t at = (uint32_t)((uint64_t)slot % SHAPE_BUCKETS);
    if (r->slot[at] != slot + 1) {
        r->slot[at] = slot + 1;
        memset(r->most[at], 0, sizeof r->most[at]);
        memset(r->least[at], 0xff, sizeof r->least[at]);
    }
    for (uint32_t i = 0; i < ask->pool_count; i++) {
        uint16_t w = (uint16_t)min_u32(ask->want[i], UINT16_MAX - 1);
        if (w > r->most[at][i]) r->most[at][i] = w;
        if (w < r->least[at][i]) r->least[at][i] = w;
    }
    return now_us - r->first_us >= window_us;
}

/* Returns true if the bucket lies within the span. */
static bool in_span(const struct shape_ring *r, double window_s, double span_s, uint32_t bucket)
{
    if (r->slot[bucket] == 0) return false;
    int64_t age = r->last_us / bucket_us(window_s) - (r->slot[bucket] - 1);
    int64_t span = (int64_t)(span_s * 1e6) / bucket_us(window_s);
    return age >= 0 && age < SHAPE_BUCKETS && age <= span;
}

uint32_t shape_most(const struct shape_ring *r, double window_s, double span_s, uint32_t pool)
{
    uint32_t most = 0;
    for (uint32_t b = 0; b < SHAPE_BUCKETS; b++)
        if (in_span(r, window_s, span_s, b)) most = max_u32(most, r->most[b][pool]);
    return most;
}

uint32_t shape_least(const struct shape_ring *r, double window_s, double span_s, uint32_t pool)
{
    uint32_t least = UINT16_MAX;
    for (uint32_t b = 0; b < SHAPE_BUCKETS; b++)
        if (in_span(r, window_s, span_s, b)) least = min_u32(least, r->least[b][pool]);
    return least;
}

/* Lets the fleet follow its signal at once.
 *
 * This is for signals that shape themselves (Dynamo, SkyServe, Ray Serve, BlitzScale, AIBrix). */
static void shape_none(void *state, const struct scale_shape_config *config,
                       const struct scale_shape_ask *ask, int64_t now_us, struct scale_shaped *ret)
{
    (void)state, (void)config, (void)now_us;
    *ret = (struct scale_shaped){ 0 };
    memcpy(ret->target, ask->want, ask->pool_count * sizeof *ask->want);
}

const struct scale_shaper scale_shape_none = {
    .name = "none",
    .about = "follow the signal at once",
    .source = "for signals that shape themselves",
    .shape = shape_none,
};
