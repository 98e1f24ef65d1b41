/* place_joint.h - the two halves of the row `joint`: where instances stand, how many of which type.
 *
 * Layer: policies
 */
#pragma once
#include "policies/place_mix.h"

/* Spot of this hazard is there often enough for `availability` with nothing beside it. */
bool place_joint_relies_on(const struct place_type *type, double availability);

void place_joint_mix(const struct place_mix *problem, struct place_mix_work *work,
                     struct place_mix_verdict *ret);
