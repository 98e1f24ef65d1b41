/* line.h - log length as a line over one number, least squares that forgets.
 *
 * Layer:   policies (base/core)
 * Threads: pure
 */
#pragma once
#include "policies/predict/lengths.h"

struct length_line {
    double n, x, y, xx, xy;  /* decayed sums, x and y logarithms */
    double none_n, none_log; /* log-mean where the number is absent */
    struct length_band band;
};

void length_line_init(struct length_line *l);
double length_line_at(const struct length_line *l, uint32_t number); /* 0: absent */
void length_line_observe(struct length_line *l, uint32_t number, uint32_t tokens, bool censored);
void length_line_merge(struct length_line *l, const struct length_line *other);
