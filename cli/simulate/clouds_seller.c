/* clouds_seller.c - providers that answer out of a market: stock, prices, start-up times, outages, lost replies. */
#include "base/core/bits.h"
#include "cli/simulate/clouds_world.h"
#include "controller/cloud/cloud_fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CREATE_US (2 * CLOUDS_SECOND)
#define REMOVE_US CLOUDS_SECOND

struct shop {
    const struct market *market;
    uint32_t provider;
    struct cloud_backend backend; /* under the provider's name */
    struct cloud_delay *delay;
    struct offer offer[PLAN_OFFERS_MAX];
    uint32_t offer_count;
    struct clouds_machine machine[CLOUDS_MACHINES_MAX];
    char service[CLOUDS_MACHINES_MAX][NAME_BYTES], pool[CLOUDS_MACHINES_MAX][NAME_BYTES];
    uint32_t offer_of[CLOUDS_MACHINES_MAX];
    uint32_t count;
    uint64_t made, calls;
    uint32_t refused;
};

struct clouds_shops {
    struct shop shop[MARKET_PROVIDERS];
};

static int64_t second_of(int64_t now_us)
{
    return (now_us - CLOUDS_START) / CLOUDS_SECOND;
}

static void drop(struct shop *s, uint32_t at)
{
    uint32_t last = --s->count;
    s->machine[at] = s->machine[last];
    s->offer_of[at] = s->offer_of[last];
    memcpy(s->service[at], s->service[last], sizeof s->service[at]);
    memcpy(s->pool[at], s->pool[last], sizeof s->pool[at]);
}

static void turn(void *ctx, int64_t now_us)
{
    struct shop *s = ctx;
    for (uint32_t i = s->count; i-- > 0;)
        if (s->machine[i].goes_us && s->machine[i].goes_us <= now_us) drop(s, i);
}

static int no_reply(enum offer_error *ret_class, struct err *err)
{
    if (ret_class) *ret_class = OFFER_TRANSIENT;
    return err_set(err, -ETIMEDOUT, "no reply came");
}

static bool answers(struct shop *s, int64_t now_us)
{
    turn(s, now_us);
    return market_answers(s->market, s->provider, second_of(now_us));
}

static void fill_listed(const struct shop *s, uint32_t at, struct listed *ret)
{
    const struct clouds_machine *m = &s->machine[at];
    *ret = (struct listed){ .created_us = m->made_us, .leaves_us = m->goes_us };
    snprintf(ret->handle, sizeof ret->handle, "m-%llu", (unsigned long long)m->number);
    memcpy(ret->intent, m->intent, sizeof ret->intent);
    memcpy(ret->service, s->service[at], sizeof ret->service);
    memcpy(ret->pool, s->pool[at], sizeof ret->pool);
    memcpy(ret->offer, s->offer[s->offer_of[at]].name, sizeof ret->offer);
}

static uint32_t offer_of(const struct shop *s, const char *name)
{
    uint32_t i = 0;
    while (i < s->offer_count && strcmp(s->offer[i].name, name) != 0)
        i++;
    must(i < s->offer_count);
    return i;
}

/* Returns the zone in which the market has it, the offer's own or the first; MARKET_ZONES: in none. */
static uint32_t find_zone(const struct shop *s, uint32_t pool, uint32_t zone, int64_t now_us)
{
    bool spot = zone < MARKET_ZONES;
    for (uint32_t z = 0; z < MARKET_ZONES; z++)
        if ((!spot || z == zone) && market_has(s->market, pool, z, spot, second_of(now_us)))
            return z;
    return MARKET_ZONES;
}

static int create(void *ctx, const struct cloud_request *req, int64_t now_us, struct listed *ret,
                  enum offer_error *ret_class, struct err *err)
{
    struct shop *s = ctx;
    uint32_t pool, zone, at = 0;
    uint64_t call = ++s->calls * MARKET_PROVIDERS + s->provider;
    if (!answers(s, now_us)) return no_reply(ret_class, err);
    uint32_t offer = offer_of(s, req->offer->name);
    clouds_offer_at(s->provider, offer, &pool, &zone);
    while (at < s->count && strcmp(s->machine[at].intent, req->intent) != 0)
        at++;
    if (at == s->count) {
        uint32_t where = find_zone(s, pool, zone, now_us);
        if (where == MARKET_ZONES) {
            s->refused++;
            *ret_class = OFFER_CAPACITY;
            return err_set(err, -EBUSY, "no capacity for this type here");
        }
        must(s->count < CLOUDS_MACHINES_MAX);
        uint64_t number = ++s->made * MARKET_PROVIDERS + s->provider;
        double lead_s = market_lead_of_s(s->market, pool, number);
        struct clouds_machine *m = &s->machine[s->count++];
        *m = (struct clouds_machine){ .number = number,
                                      .pool = pool,
                                      .zone = where,
                                      .spot = zone < MARKET_ZONES,
                                      .made_us = now_us,
                                      .ready_us = now_us + (int64_t)(lead_s * CLOUDS_SECOND) };
        snprintf(m->intent, sizeof m->intent, "%s", req->intent);
        must(name_copy(s->service[at], NAME_BYTES, req->spec->service) == 0);
        must(name_copy(s->pool[at], NAME_BYTES, req->spec->pool) == 0);
        s->offer_of[at] = offer;
    }
    if (market_loses_reply(s->market, call)) return no_reply(ret_class, err);
    fill_listed(s, at, ret);
    return 0;
}

static int list(void *ctx, int64_t now_us, struct listed *ret, uint32_t max, uint32_t *ret_count,
                struct err *err)
{
    struct shop *s = ctx;
    if (!answers(s, now_us)) return no_reply(NULL, err);
    must(s->count <= max);
    for (uint32_t i = 0; i < s->count; i++)
        fill_listed(s, i, &ret[i]);
    *ret_count = s->count;
    return 0;
}

static int remove_machine(void *ctx, const char *handle, const char *intent, int64_t now_us,
                          struct err *err)
{
    struct shop *s = ctx;
    (void)handle; /* it is the intent's, in other letters */
    uint64_t call = ++s->calls * MARKET_PROVIDERS + s->provider;
    if (!answers(s, now_us)) return no_reply(NULL, err);
    for (uint32_t i = s->count; i-- > 0;)
        if (strcmp(s->machine[i].intent, intent) == 0) drop(s, i);
    return market_loses_reply(s->market, call) ? no_reply(NULL, err) : 0;
}

static int offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err)
{
    const struct shop *s = ctx;
    if (s->offer_count > max) return err_set(err, -E2BIG, "more than %u offers", max);
    memcpy(ret, s->offer, s->offer_count * sizeof *ret);
    *ret_count = s->offer_count;
    return 0;
}

static int prices(void *ctx, int64_t now_us, struct cloud_price *ret, uint32_t max,
                  uint32_t *ret_count, struct err *err)
{
    struct shop *s = ctx;
    uint32_t pool, zone;
    if (!answers(s, now_us)) return no_reply(NULL, err);
    must(s->offer_count <= max);
    for (uint32_t i = 0; i < s->offer_count; i++) {
        clouds_offer_at(s->provider, i, &pool, &zone);
        double price_h = market_price_h(s->market, pool, zone < MARKET_ZONES, second_of(now_us));
        ret[i] = (struct cloud_price){ .known = true, .price_h = price_h };
        memcpy(ret[i].offer, s->offer[i].name, sizeof ret[i].offer);
    }
    *ret_count = s->offer_count;
    return 0;
}

static void close_nothing(void *ctx)
{
    (void)ctx;
}

static int64_t latency(void *ctx, const struct cloud_call *call)
{
    (void)ctx;
    return call->op == CLOUD_CREATE ? CREATE_US : call->op == CLOUD_REMOVE ? REMOVE_US : 0;
}

static uint32_t machines(void *ctx, int64_t now_us, struct clouds_machine *ret)
{
    struct shop *s = ctx;
    turn(s, now_us);
    memcpy(ret, s->machine, s->count * sizeof *ret);
    return s->count;
}

static void take(void *ctx, const struct clouds_machine *m, int64_t notice_us, int64_t now_us)
{
    struct shop *s = ctx;
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->machine[i].number != m->number) continue;
        s->machine[i].goes_us = now_us + notice_us;
        s->machine[i].lost = true;
    }
    turn(s, now_us);
}

int clouds_shops_new(const struct market *market, struct clouds_shops **ret,
                     struct clouds_seller *ret_sellers, struct err *err)
{
    struct clouds_shops *all = calloc(1, sizeof *all);
    if (!all) return err_set(err, -ENOMEM, "no memory for the providers");
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++) {
        struct shop *s = &all->shop[p];
        s->market = market;
        s->provider = p;
        s->offer_count = clouds_offers(p, s->offer);
        s->backend = (struct cloud_backend){ .name = market_provider[p].name,
                                             .about = "a provider of a generated market",
                                             .close = close_nothing,
                                             .offers = offers,
                                             .create = create,
                                             .list = list,
                                             .remove = remove_machine,
                                             .prices = prices };
        if (cloud_delay_new(&s->backend, s, latency, &s->delay) < 0) {
            clouds_shops_free(all);
            return err_set(err, -ENOMEM, "no memory for the providers");
        }
        ret_sellers[p] = (struct clouds_seller){
            .cloud = cloud_delay_cloud(s->delay, &(struct cloud){ .poll_us = CLOUDS_BUSY_US }),
            .ctx = s,
            .turn = turn,
            .machines = machines,
            .take = take,
        };
    }
    *ret = all;
    return 0;
}

void clouds_shops_free(struct clouds_shops *s)
{
    if (!s) return;
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        cloud_delay_free(s->shop[p].delay);
    free(s);
}

uint32_t clouds_shops_refused(const struct clouds_shops *s)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        n += s->shop[p].refused;
    return n;
}
