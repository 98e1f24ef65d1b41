/* stocks.c - feeds the memory of where providers are sold out (core/stock.h), and keeps it over restarts.
 *
 *     stock            {"v":1,"stocks":[...]}: written when something was refused, lost or came back, and the next
 *                      tick is STOCK_FLUSH_US after the last write */
#include "controller/stocks.h"

#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/control_state.h"

#define RECORD_ARENA_BYTES ((size_t)64 << 10)
#define STOCK_FLUSH_US 10000000
#define GAP_H_MAX 0.25 /* a longer pause between ticks is no time of watching */

/* Sums up over the offers that share a memory, and over the instances that were made since its last refusal: those
 * from before say nothing about new ones. */
static void look(struct control *c, struct stock_seen seen[STOCKS_MAX])
{
    struct stocks *all = &c->money.stock.stocks;
    uint32_t of[PLAN_OFFERS_MAX];
    for (uint32_t o = 0; o < c->money.offer_count; o++) {
        of[o] = (uint32_t)(stock_of(all, &c->money.offer[o]) - all->at);
        seen[of[o]].refused += c->money.health[o].refused;
        seen[of[o]].lost += c->money.health[o].lost;
    }
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct intent *i = &c->money.intent[at];
        if (i->state < INTENT_CREATED || i->state > INTENT_DRAINING) continue;
        uint32_t o = control_find_offer(c, i->provider, i->offer);
        if (o == PLAN_NONE || c->observed.detail[at].doomed) continue;
        seen[of[o]].held += i->made_us > all->at[of[o]].refused_us;
    }
}

_Static_assert(PLAN_OFFERS_MAX <= STOCKS_MAX, "no offer's memory gives way to another's");

void control_watch_stock(struct control *c, int64_t now_us)
{
    struct stock_watch *w = &c->money.stock;
    struct stock_seen seen[STOCKS_MAX] = { { 0 } };
    double dt_h = (double)(now_us - w->looked_us) / 3600e6;
    if (w->looked_us == 0 || dt_h < 0 || dt_h > GAP_H_MAX) dt_h = 0;
    w->looked_us = now_us;
    look(c, seen);
    for (uint32_t i = 0; i < w->stocks.count; i++)
        w->news |= stock_observe(&w->stocks.at[i], &seen[i], dt_h, now_us);
    for (uint32_t o = 0; o < c->money.offer_count; o++)
        w->sold_out[o] = stock_out(stock_of(&w->stocks, &c->money.offer[o]), now_us);
}

int control_flush_stock(struct control *c, int64_t now_us)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct err err = { 0 };
    if (!c->money.stock.news || now_us - c->money.stock.kept_us < STOCK_FLUSH_US) return 0;
    int rc = stocks_encode(&c->money.stock.stocks, &text);
    if (rc == 0)
        rc = store_put_if(c->setup.store, STR("stock"), buf_view(&text), STORE_ANY, NULL, &err);
    if (rc < 0) {
        control_store_failed(c, "stock_not_written", "stock", err_text(&err, rc));
        return rc;
    }
    c->money.stock.kept_us = now_us;
    c->money.stock.news = false;
    return 0;
}

/* Reads what was learned before. A record that cannot be read is learned anew: nothing is lost but patience. */
int control_restore_stock(struct control *c, int64_t now_us, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct err why = { 0 };
    arena_init(&arena, RECORD_ARENA_BYTES);
    int rc = store_get(c->setup.store, STR("stock"), &text, NULL, err);
    if (rc == -ENOENT) return 0;
    if (rc < 0) return rc;
    rc = stocks_decode(buf_view(&text), &arena, &c->money.stock.stocks, &why);
    if (rc < 0) log_event(LOG_WARN, "stock_unreadable", "error=%s", err_text(&why, rc));
    for (uint32_t i = 0; i < c->money.stock.stocks.count;
         i++) { /* fleet time may have begun anew */
        struct stock *s = &c->money.stock.stocks.at[i];
        int64_t *const times[] = { &s->seen.since_us, &s->seen.seen_us, &s->refused_us };
        for (size_t k = 0; k < COUNT_OF(times); k++)
            if (*times[k] > now_us) *times[k] = now_us;
    }
    return 0;
}
