/* stocks.h - feeds the memory of where providers are sold out, and keeps it over restarts.
 *
 * Layer:   controller, private to it
 * Threads: the loop's
 */
#pragma once
#include "base/core/err.h"
#include "controller/core/plan.h"
#include "controller/core/stock.h"

struct stock_watch {
    struct stocks stocks;
    double sold_out[PLAN_OFFERS_MAX]; /* by offer: the chance of it now */
    int64_t looked_us, kept_us;       /* the last look, and the last write */
    bool news;                        /* since then */
};

struct control;

/* Takes what was refused, lost and made since the last tick, and sets the chances that the plan weighs. */
void control_watch_stock(struct control *c, int64_t now_us);
int control_flush_stock(struct control *c, int64_t now_us);
int control_restore_stock(struct control *c, int64_t now_us, struct err *err);
