/* scale_trade.c - reckons whether trades would pay, and follows the one under way. */
#include "policies/scale_trade.h"

#include "policies/scale.h"

#include <math.h>

static double age_s(struct trade *t, int64_t now_us)
{
    if (t->since_us == 0 || t->since_us > now_us) t->since_us = now_us;
    return (double)(now_us - t->since_us) / 1e6;
}

static bool is_of(const struct scale_instance *in, uint32_t pool)
{
    return in->ready && in->pool == pool;
}

/* How fast the pool's instances are: read_s, and its deviation in parts of the mean. */
struct kind {
    double mean, spread;
    bool known; /* all have measured: else nobody can say which is slow */
};

static struct kind kind_of(const struct trade_ask *a)
{
    double sum = 0, squares = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < a->view->instance_count; i++) {
        const struct scale_instance *in = &a->view->instance[i];
        if (!is_of(in, a->pool)) continue;
        if (in->read_s <= 0) return (struct kind){ 0 };
        sum += in->read_s;
        squares += in->read_s * in->read_s;
        count++;
    }
    if (count == 0 || count < a->view->pool[a->pool].ready) return (struct kind){ 0 };
    double mean = sum / count, variance = squares / count - mean * mean;
    return (struct kind){ mean, sqrt(fmax(variance, 0)) / mean, true };
}

/* What a new one brings in place of this one, which goes only if it is the slower. */
static double gain_of(const struct kind *k, const struct scale_instance *in)
{
    if (k->spread <= 0) return 0;
    double z = (in->read_s / k->mean - 1) / k->spread;
    double density = exp(-z * z / 2) / sqrt(2 * M_PI);
    return k->spread * (z * 0.5 * erfc(-z * M_SQRT1_2) + density);
}

/* Puts a gain into its place among the largest; the smallest falls out. */
static void rank(double top[TRADES_MAX], double gain)
{
    for (uint32_t i = 0; i < TRADES_MAX && gain > 0; i++) {
        if (gain <= top[i]) continue;
        double smaller = top[i];
        top[i] = gain;
        gain = smaller;
    }
}

/* Whether new ones in place of the slowest bring what one fewer lacks, and cheaply enough. */
static bool pays(const struct trade_ask *a)
{
    const struct scale_pool *p = &a->view->pool[a->pool];
    struct kind kind = kind_of(a);
    double top[TRADES_MAX] = { 0 }, gained = 0;
    if (!kind.known || a->lacking <= 0) return false;
    for (uint32_t i = 0; i < a->view->instance_count; i++) {
        const struct scale_instance *in = &a->view->instance[i];
        if (is_of(in, a->pool) && p->price_h <= in->price_h) rank(top, gain_of(&kind, in));
    }
    double trades = fmin(a->life_s / fmax(TRADE_RETURN * p->lead_s, 1), TRADES_MAX);
    for (uint32_t k = 0; k + 1 <= trades && gained < a->lacking; k++)
        gained += top[k];
    return gained >= a->lacking;
}

static bool can_grow(const struct trade_ask *a)
{
    const struct scale_view *v = a->view;
    const struct scale_pool *p = &v->pool[a->pool];
    double cost_h = p->price_h;
    for (uint32_t i = 0; i < v->pool_count; i++)
        cost_h += scale_have(&v->pool[i]) * v->pool[i].price_h;
    return scale_reach(p) > scale_have(p) && (v->budget_h <= 0 || cost_h <= v->budget_h);
}

/* No trade is under way, and none begins before that pause. */
static void rest(struct trade *t, double pause_s, int64_t now_us)
{
    *t = (struct trade){ .pool = t->pool, .pause_s = pause_s, .since_us = now_us };
}

/* Begins one when it would have paid for long enough. */
static void watch(struct trade *t, const struct trade_ask *a, int64_t now_us)
{
    const struct scale_pool *p = &a->view->pool[a->pool];
    bool still = p->starting == 0 && a->need == p->ready;
    if (!still || !can_grow(a) || !pays(a)) t->since_us = now_us;
    if (age_s(t, now_us) < fmax(t->pause_s, TRADE_QUIET_S)) return;
    t->count = a->need;
    t->since_us = now_us;
}

/* Notes the one that was asked for as it starts, and when it has told its speed. */
static void see(struct trade *t, const struct trade_ask *a)
{
    for (uint32_t i = 0; i < a->view->instance_count; i++) {
        const struct scale_instance *in = &a->view->instance[i];
        if (in->ready || in->pool != a->pool) continue;
        t->fresh = in->id;
        t->seen = true;
    }
    if (a->view->pool[a->pool].ready > t->count && kind_of(a).known) t->came = true;
}

static bool is_there(const struct trade_ask *a, uint64_t id)
{
    for (uint32_t i = 0; i < a->view->instance_count; i++)
        if (a->view->instance[i].id == id) return true;
    return false;
}

/* The trade under way, and whether it is over. */
static void follow(struct trade *t, const struct trade_ask *a, int64_t now_us)
{
    const struct scale_pool *p = &a->view->pool[a->pool];
    see(t, a);
    bool done = t->came && scale_have(p) <= t->count;
    bool too_late = !t->came && age_s(t, now_us) > p->lead_s + TRADE_PATIENCE_S;
    if (a->need != t->count)
        rest(t, t->pause_s, now_us);
    else if (too_late || (done && t->seen && !is_there(a, t->fresh)))
        rest(t, fmin(2 * fmax(t->pause_s, TRADE_QUIET_S), TRADE_PAUSE_S), now_us);
    else if (done)
        rest(t, 0, now_us);
}

bool trade_extra(const struct trade *t, const struct scale_view *view, uint32_t pool)
{
    return t->count && t->pool == pool && scale_have(&view->pool[pool]) > t->count;
}

uint32_t trade_want(struct trade *t, const struct trade_ask *a, int64_t now_us)
{
    if (t->pool != a->pool) *t = (struct trade){ .pool = a->pool, .since_us = now_us };
    if (t->count)
        follow(t, a, now_us);
    else
        watch(t, a, now_us);
    return t->count && !t->came ? t->count + 1 : a->need;
}
