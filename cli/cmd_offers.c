/* cmd_offers.c - `muster offers`: list prices of accelerators with their source and age, from a list or from the clouds of
 * a configuration. */
#include "cli/cmd_offers.h"

#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/perf/hardware.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "cli/schema.h"
#include "cli/table.h"
#include "controller/cloud/web/web_once.h"
#include "controller/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Opens each cloud of a configuration for one question. */

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

#define DAY_S 86400

static int64_t now_s(void)
{
    return (int64_t)time(NULL);
}

static bool is_dated_ahead(const struct price *p, int64_t at_s)
{
    return p->day != PRICE_DATE_UNKNOWN && p->day > at_s / DAY_S + 1;
}

static int check_dates(const struct prices *list, struct err *err)
{
    int64_t at_s = now_s();
    for (uint32_t i = 0; i < list->count; i++) {
        const struct price *p = &list->row[i];
        if (!is_dated_ahead(p, at_s)) continue;
        return err_set(err, -EINVAL, "the price of %s at %s is dated %lld days after today (UTC)",
                       p->hardware, p->provider, (long long)(p->day - at_s / DAY_S));
    }
    return 0;
}

int offers_load(struct str path, struct prices *ret, struct err *err)
{
    if (path.len == 0) return prices_parse(prices_text(), ret, err);
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct prices list;
    int rc = file_read(path.data, OFFERS_FILE_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    rc = prices_parse(buf_view(&text), &list, err);
    if (rc == 0) rc = check_dates(&list, err);
    if (rc < 0) return err_prefix(err, rc, "%s", path.data);
    *ret = list;
    return 0;
}

int64_t offers_age_s(const struct price *p)
{
    int64_t at_s = now_s();
    if (p->day == PRICE_DATE_UNKNOWN || is_dated_ahead(p, at_s)) return -1;
    int64_t age_s = at_s - (int64_t)p->day * DAY_S;
    return age_s > 0 ? age_s : 0;
}

struct offers_options {
    struct str hardware, prices, clouds;
    int output;
};

// clang-format off
static const struct config_field rows[] = {
    { .name = "hardware", .type = CONFIG_TEXT, .offset = offsetof(struct offers_options, hardware),
      .about = "Only this accelerator." },
    { .name = "prices", .type = CONFIG_TEXT, .offset = offsetof(struct offers_options, prices),
      .about = "File of prices in place of the list that is compiled in." },
    { .name = "clouds", .type = CONFIG_TEXT, .offset = offsetof(struct offers_options, clouds),
      .about = "Configuration whose clouds are asked for their prices now, in place of a list." },
    REMOTE_OUTPUT_ROW(struct offers_options, output),
};
static const struct table_column columns[] = {
    { "HARDWARE", "hardware", TABLE_TEXT },  { "PROVIDER", "provider", TABLE_TEXT },
    { "ZONE", "zone", TABLE_TEXT },          { "PURCHASE", "purchase", TABLE_TEXT },
    { "$/H", "price_per_h", TABLE_MONEY },   { "AGE", "age_s", TABLE_AGE },
    { "SOURCE", "source", TABLE_TEXT },
};
static const struct table_column cloud_columns[] = {
    { "OFFER", "offer", TABLE_TEXT },        { "TYPE", "type", TABLE_TEXT },
    { "HARDWARE", "hardware", TABLE_TEXT },  { "PROVIDER", "provider", TABLE_TEXT },
    { "ZONE", "zone", TABLE_TEXT },          { "PURCHASE", "purchase", TABLE_TEXT },
    { "$/H", "price_per_h", TABLE_MONEY },   { "AGE", "age_s", TABLE_AGE },
    { "ROOM", "room", TABLE_COUNT },         { "SOURCE", "source", TABLE_TEXT },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct offers_options, rows);
static const struct opt_command usage = {
    .name = "muster offers",
    .about = "List what accelerators cost, from a dated list, or as clouds say now: what `muster "
             "plan` reckons with.",
    .options = &record,
};

static void put_offer(struct json_writer *w, const struct price *p)
{
    int64_t age_s = offers_age_s(p);
    json_object(w);
    json_kv_text(w, "hardware", p->hardware);
    json_kv_text(w, "provider", p->provider);
    json_kv_text(w, "zone", p->zone[0] == '-' ? NULL : p->zone);
    json_kv_text(w, "purchase", p->spot ? "spot" : "on_demand");
    json_kv_f64(w, "price_per_h", p->price_h);
    json_key(w, "age_s");
    if (age_s >= 0)
        json_put_u64(w, (uint64_t)age_s);
    else
        json_put_null(w);
    json_kv_text(w, "source", p->source);
    json_object_end(w);
}

static void put_answer(void *arg, const struct offers_answer *a)
{
    struct json_writer *w = arg;
    const struct offer *o = &a->offer->offer;
    json_object(w);
    json_kv_text(w, "offer", o->name);
    json_kv_str(w, "type", a->offer->type);
    if (a->offer->section->hardware.len > 0)
        json_kv_str(w, "hardware", a->offer->section->hardware);
    json_kv_text(w, "provider", o->provider);
    json_kv_text(w, "zone", o->zone[0] ? o->zone : NULL);
    json_kv_text(w, "purchase", o->spot ? "spot" : "on_demand");
    if (a->price->known) json_kv_f64(w, "price_per_h", a->price->price_h);
    if (a->price->known && !a->offer->price_given) json_kv_u64(w, "age_s", 0);
    if (a->price->room_known) json_kv_u64(w, "room", a->price->room);
    json_kv_str(w, "source", a->offer->price_given ? STR("price_per_hour") : a->cloud->endpoint);
    json_object_end(w);
}

static int offers_of_clouds(const struct offers_options *o, struct err *err)
{
    CLEANUP(buf_fini) struct buf json = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    if (o->hardware.len > 0 || o->prices.len > 0)
        return err_set(err, COMMAND_MISUSED, "--clouds: not with --hardware or --prices");
    json_writer_init(&w, &json);
    json_array(&w);
    int rc = offers_ask(o->clouds, put_answer, &w, err);
    json_array_end(&w);
    if (rc < 0) return err_prefix(err, rc, "--clouds");
    if (o->output == REMOTE_JSON) {
        buf_byte(&json, '\n');
        return command_print(&json, err);
    }
    struct table t = { cloud_columns, COUNT_OF(cloud_columns), 0, colour_wanted(stdout) };
    rc = table_print(&t, buf_view(&json), &out);
    return rc < 0 ? err_set(err, rc, "the table cannot be made") : command_print(&out, err);
}

static int offers(const void *options, struct err *err)
{
    const struct offers_options *o = options;
    CLEANUP(buf_fini) struct buf json = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct prices prices;
    if (o->clouds.len > 0) return offers_of_clouds(o, err);
    const struct hardware *only = o->hardware.len ? hardware_find(o->hardware) : NULL;
    if (o->hardware.len && !only) {
        hardware_unknown(o->hardware, err);
        return err_prefix(err, COMMAND_MISUSED, "--hardware");
    }
    int rc = offers_load(o->prices, &prices, err);
    if (rc < 0) return rc;
    struct json_writer w;
    json_writer_init(&w, &json);
    json_array(&w);
    for (uint32_t i = 0; i < prices.count; i++)
        if (!only || str_eq(str_from(prices.row[i].hardware), str_from(only->name)))
            put_offer(&w, &prices.row[i]);
    json_array_end(&w);
    if (o->output == REMOTE_JSON) {
        buf_byte(&json, '\n');
        return command_print(&json, err);
    }
    struct table t = { columns, COUNT_OF(columns), 0, colour_wanted(stdout) };
    rc = table_print(&t, buf_view(&json), &out);
    return rc < 0 ? err_set(err, rc, "the table cannot be made") : command_print(&out, err);
}

static int run(int argc, char *const *argv)
{
    struct offers_options options;
    return command_run(&usage, argc, argv, &options, offers);
}

const struct command command_offers = {
    .name = "offers",
    .group = "Measure",
    .about = "what accelerators cost, from a dated list or from clouds",
    .run = run,
};
