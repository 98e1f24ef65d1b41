/* scale_trade.h - slow instances are traded for new ones where that makes one superfluous.
 *
 * Layer: policies (base/core)
 * Rules: state is plain bytes of a fixed size
 *
 * Machines of one type are not equally fast, which who rents them can turn to account (Farley et
 * al., More for your money, SoCC 2012). A new one is taken to be like those there are: with x_i the
 * read_s of instance i over the mean of its pool (perf_read_s) and s their standard deviation, one in
 * place of i, which goes only if it is the slower, brings so much of an instance:
 *
 *     gain_i = E[max(0, x_i - x_new)] = s (z Phi(z) + phi(z)),     z = (x_i - 1) / s
 *
 * With enough of that one instance fewer would do. Trades pay if there is a k with
 *
 *     sum of the k largest gains >= lacking          what the need is above one fewer
 *     TRADE_RETURN k lead <= life                    each pays its lead, and the saving is a guess
 *
 * A trade asks for one more than is needed until that one has measured its speed; then the fleet is
 * one too large, and the plan gives up the one whose work costs the most, be it the new one. So the
 * search is sequential, with recall, one machine at a time.
 *
 * It has to pay for TRADE_QUIET_S while the fleet stands still: noise is no reason. Where the new one
 * was the one to go, the next trade waits twice as long, TRADE_PAUSE_S at most: a cloud may give the
 * same machine again. Nothing is traded for what is dearer. The cache of the one that goes is not
 * priced.
 */
#pragma once
#include "policies/scale_view.h"

#define TRADE_RETURN 3.0
#define TRADE_QUIET_S 15.0
#define TRADE_PAUSE_S 3600.0
#define TRADE_PATIENCE_S 60.0 /* beyond its lead: what has not measured by then is no trade */
#define TRADES_MAX 32         /* k, at most */

struct trade {
    uint32_t pool;    /* that all of this is about */
    int64_t since_us; /* since when one would pay; of a trade: since it began; 0: never asked */
    double pause_s;   /* for which it has to; 0: TRADE_QUIET_S */
    uint32_t count;   /* instances before the trade under way; 0: none is */
    bool seen, came;  /* the one that it asked for starts; has measured its speed */
    uint64_t fresh;   /* its id */
};

struct trade_ask {
    const struct scale_view *view;
    uint32_t pool;
    uint32_t need;  /* instances of it, trade_extra left out */
    double lacking; /* of an instance, for one fewer to do */
    double life_s;
};

/* Whether one of the pool's instances, the one that starts or else one that is ready, is there for a
 * trade alone. */
bool trade_extra(const struct trade *t, const struct scale_view *view, uint32_t pool);

/* Begins, follows and ends trades; what is to be asked for in place of ask->need. */
uint32_t trade_want(struct trade *t, const struct trade_ask *ask, int64_t now_us);
