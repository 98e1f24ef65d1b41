/* json_number.h - describes the numbers of an interval, as JSON writes them.
 *
 * Layer: base/grammar, private
 */
#pragma once
#include "base/grammar/expr.h"

/* The whole numbers of [low, high]. */
const struct expr *json_whole_between(struct builder *b, int64_t low, int64_t high);

/* The decimal numbers of [low, high] millionths, with at most six digits behind the point. */
const struct expr *json_millionths_between(struct builder *b, int64_t low, int64_t high);
