/* role_rig.h - what tests of roles share: a fleet of equal instances, and what a row makes of it. */
#pragma once
#include "policies/role/role.h"
#include "tests/unit/unit.h"

#define ROLE_RIG_FLEET 4
#define SECOND ((int64_t)1000000)

/* An A100 with a 13B model, about: 25 ms a step, 4 ms for a hundred prompt tokens. */
struct role_instance role_rig_instance(uint32_t id);

struct role_fleet {
    struct role_instance instance[64];
    struct role_view view;
};
/* `count` of them under a demand of 1000 tokens in and 200 out; of the caller's `f`. */
struct role_view *role_rig_fleet(struct role_fleet *f, uint32_t count);

/* What the row of this name says; `state` NULL: an empty one. */
struct role_verdict role_rig_decide(const char *name, const struct role_view *view, void *state);

uint32_t role_rig_count(const struct role_view *view, const struct role_verdict *v, enum role role);

/* Of the first so many in the order of roles for prefill and for decode; the rest do both. */
double role_rig_goodput(const struct role_view *view, uint32_t prefill, uint32_t decode);
