/* place_rig.h - what tests of placement among a pool's offers share: a pool, a question, its answer. */
#pragma once
#include "policies/place/place.h"
#include "tests/unit/unit.h"

#define SECOND ((int64_t)1000000)
#define HOUR (3600 * SECOND)

struct place_memory {
    _Alignas(8) char bytes[PLACE_STATE_BYTES_MAX];
};

/* Offer 0 on demand at 1 dollar, the rest spot zones at 0.35. */
struct place_view place_rig_view(uint32_t zones, uint32_t target);

struct place_verdict place_rig_ask(const struct place_policy *p, struct place_memory *s,
                                   const struct place_view *v, int64_t now_us);

/* All that is wanted stands there and runs. */
void place_rig_settle(struct place_view *v, const struct place_verdict *r);

/* Of what is wanted of the first `count` offers. */
uint32_t place_rig_sum(const struct place_verdict *r, uint32_t count);
