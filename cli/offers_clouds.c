/* offers_clouds.c - opens each cloud of a configuration for one question. */
#include "cli/offers_clouds.h"

#include "base/core/own.h"
#include "base/io/log.h"
#include "base/perf/hardware.h"
#include "cli/schema.h"
#include "controller/cloud/web/web_once.h"
#include "controller/config.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ARENA_BYTES ((size_t)4 << 20)
#define DAY_S 86400

static const char *const *environment(void)
{
    return (const char *const *)environ;
}

static int ask(const struct web_settings *cloud, offers_fn *fn, void *arg, struct err *err)
{
    CLEANUP(web_once_freep) struct web_once *once = NULL;
    int rc = web_once_open(cloud, environment(), &once, err);
    if (rc < 0) return rc;
    const struct cloud_event *e = web_once_call(once, CLOUD_PRICES);
    *err = e->err;
    for (uint32_t i = 0; i < e->count && e->rc == 0; i++) {
        const struct web_offer *offer = web_settings_offer(cloud, str_from(e->price[i].offer));
        if (offer) fn(arg, &(struct offers_answer){ cloud, offer, &e->price[i] });
    }
    return e->rc;
}

int offers_ask(struct str file, offers_fn *fn, void *arg, struct err *err)
{
    CLEANUP(config_freep) struct config *config = NULL;
    CLEANUP(arena_fini) struct arena arena;
    struct config_sources sources = { .environ = environment(), .path = file.data };
    struct controller_config c = { 0 };
    struct web_settings *cloud;
    uint32_t answered = 0;
    arena_init(&arena, ARENA_BYTES);
    log_set_level(LOG_ERROR); /* what a cloud's driver warns of is said below */
    int rc = config_load(&schema, &sources, &config, NULL, err);
    if (rc < 0) return rc;
    controller_config_fill(&c, config);
    if (c.cloud_count == 0)
        return err_set(err, -ENOENT, STR_FMT " has no section `clouds`", STR_ARG(file));
    rc = web_settings_make_all(c.cloud, c.cloud_count, &arena, &cloud, err);
    for (size_t i = 0; i < c.cloud_count && rc == 0; i++) {
        struct err why = { 0 };
        int asked = ask(&cloud[i], fn, arg, &why);
        answered += asked == 0;
        if (asked < 0)
            fprintf(stderr, STR_FMT ": %s\n", STR_ARG(cloud[i].name), err_text(&why, asked));
    }
    if (rc == 0 && answered == 0)
        return err_set(err, -EIO, "no cloud of " STR_FMT " has answered", STR_ARG(file));
    return rc;
}

/* ---- a list of prices ---- */

struct gathering {
    struct prices *prices;
    int rc;
    struct err *err;
};

static void copy(char to[PRICE_NAME_MAX], struct str from)
{
    size_t len = from.len < PRICE_NAME_MAX - 1 ? from.len : PRICE_NAME_MAX - 1;
    memcpy(to, from.data, len);
    to[len] = 0;
}

static void gather(void *arg, const struct offers_answer *a)
{
    struct gathering *g = arg;
    const struct hardware *h = hardware_find(a->offer->section->hardware);
    if (!h || !a->price->known || g->rc < 0) return;
    if (g->prices->count == PRICES_MAX) {
        g->rc = err_set(g->err, -E2BIG, "more than %d offers have a price", PRICES_MAX);
        return;
    }
    /* A price of the file is as old as the file: nobody knows its day. */
    struct price *p = &g->prices->row[g->prices->count++];
    *p = (struct price){ .spot = a->offer->offer.spot,
                         .price_h = a->price->price_h,
                         .day = a->offer->price_given ? PRICE_DATE_UNKNOWN
                                                      : (int32_t)(time(NULL) / DAY_S) };
    copy(p->hardware, str_from(h->name));
    copy(p->provider, a->cloud->name);
    copy(p->zone, a->offer->offer.zone[0] ? str_from(a->offer->offer.zone) : STR("-"));
    copy(p->source, str_from(a->offer->offer.name));
}

int offers_ask_prices(struct str file, struct prices *ret, struct err *err)
{
    struct gathering g = { .prices = ret, .err = err };
    ret->count = 0;
    int rc = offers_ask(file, gather, &g, err);
    if (rc == 0) rc = g.rc;
    if (rc == 0 && ret->count == 0)
        return err_set(err, -ENOENT, "no offer of " STR_FMT " has both a price and `hardware`",
                       STR_ARG(file));
    return rc;
}
