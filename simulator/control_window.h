/* control_window.h - what routers would report of demand: rates, lengths, latencies over a minute.
 *
 * Layer: simulator (policies)
 * Rules: buckets of five seconds, so that a window needs the same memory at any rate; quantiles are
 *        from logarithmic bins four per cent apart
 */
#pragma once
#include "policies/scale_view.h"

struct control_window;

struct control_window *control_window_new(void); /* NULL without memory */
void control_window_free(struct control_window *w);

void control_window_arrived(struct control_window *w, uint32_t prompt, double predicted,
                            int64_t now_us);
/* It waits no more: its first token came, or it was given up. */
void control_window_left(struct control_window *w, uint32_t prompt, double predicted);
void control_window_ttft(struct control_window *w, double seconds, int64_t now_us);
void control_window_tpot(struct control_window *w, double seconds, int64_t now_us);

/* A request kept the promise, or missed it. */
void control_window_judged(struct control_window *w, bool met);

/* Everything of the demand but in_flight, waiting and held. */
void control_window_demand(struct control_window *w, int64_t now_us, struct scale_demand *ret);
