/* apa.h - AIBrix's pod autoscaler, with its stabiliser as shipped or corrected.
 *
 * Layer: policies (base/core)
 */
#pragma once
#include "policies/scale/scale.h"

#define APA_PERIOD_S 10
#define APA_WINDOW 30 /* recommendations that the stabiliser looks back on: 300 s */

struct apa {
    int64_t next_us;
    uint32_t count;            /* recommendations so far */
    uint16_t past[APA_WINDOW]; /* the last of them, a ring */
    uint32_t want;             /* the last recommendation, stabilised */
};

/* Decides as AIBrix does. With `inverted`, as shipped, the fleet shrinks to the least recommendation
 * of the window, else to the most. */
void apa_decide(struct apa *a, const struct scale_config *config, const struct scale_view *view,
                int64_t now_us, bool inverted, struct scale_verdict *ret);
