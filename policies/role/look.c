/* look.c - one look. */
#include "policies/role/look.h"

#include "base/core/bits.h"
#include "base/core/err.h"

void role_look(struct role_look *l, const struct role_view *view, int64_t now_us,
               struct role_verdict *ret)
{
    must(l->row->state_size <= sizeof l->state);
    role_decide(l->row, l->state, view, now_us, &l->rng, ret);
    l->again_us = max_i64(ret->again_us, now_us + ROLE_LOOK_US_MIN);
}
