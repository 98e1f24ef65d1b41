/* web_check.c - makes the calls of a cloud that change nothing, one after the other, and says what came of them.
 *
 * It is the driver itself that calls, so that what is checked is what the controller does. */
#include "controller/cloud/web/web_check.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_cloud.h"

#include <stdio.h>
#include <stdlib.h>

#define TURN_US 20000

struct check {
    const struct web_settings *settings;
    struct loop *loop;
    struct cloud cloud;
    struct cloud_event event;
    cloud_finding_fn fn;
    void *arg;
};

static void say(struct check *c, const char *what, enum cloud_health health, const char *next,
                const char *format, ...) __attribute__((format(printf, 5, 6)));

static void say(struct check *c, const char *what, enum cloud_health health, const char *next,
                const char *format, ...)
{
    struct cloud_finding f = { .what = what, .health = health, .next = next };
    char text[sizeof f.why];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    snprintf(f.why, sizeof f.why, STR_FMT ": %.120s", STR_ARG(c->settings->name), text);
    c->fn(c->arg, &f);
}

/* Makes a call and waits for its event. */
static const struct cloud_event *call(struct check *c, enum cloud_op op)
{
    const struct cloud_call what = { .op = op, .id = 1 };
    const struct cloud_driver *d = c->cloud.driver;
    c->event = (struct cloud_event){ 0 };
    c->event.rc = d->submit(c->cloud.ctx, &what, loop_now_us(c->loop), &c->event.err);
    while (c->event.rc == 0 && !d->next(c->cloud.ctx, loop_now_us(c->loop), &c->event))
        if (loop_turn(c->loop, TURN_US) < 0) break;
    return &c->event;
}

static bool check_list(struct check *c)
{
    const struct cloud_event *e = call(c, CLOUD_LIST);
    if (e->rc == 0) {
        say(c, "credentials", CLOUD_FINE, NULL, "they are taken, and %u instances are listed",
            e->count);
        return true;
    }
    if (e->class == OFFER_AUTH)
        say(c, "credentials", CLOUD_BROKEN,
            "correct credentials_file or credentials_env, or their rights", "%s",
            err_text(&e->err, e->rc));
    else
        say(c, "listing", CLOUD_BROKEN, "see docs/clouds and the provider's status page", "%s",
            err_text(&e->err, e->rc));
    return false;
}

static void check_prices(struct check *c)
{
    const struct cloud_event *e = call(c, CLOUD_PRICES);
    uint32_t unknown = 0;
    const char *first = "";
    if (e->rc < 0) {
        say(c, "prices", CLOUD_DOUBTFUL, "give offers a price_per_hour, or the account the right",
            "%s", err_text(&e->err, e->rc));
        return;
    }
    for (uint32_t i = 0; i < e->count; i++) {
        if (e->price[i].known) continue;
        first = unknown++ == 0 ? e->price[i].offer : first;
    }
    if (unknown > 0)
        say(c, "prices", CLOUD_DOUBTFUL,
            "correct its type and zones, add exchange_rates, or set price_per_hour",
            "%u of %u offers have none, of them %s", unknown, e->count, first);
    else
        say(c, "prices", CLOUD_FINE, NULL, "%u offers have one", e->count);
}

int web_check(const struct web_settings *settings, const char *const *environment,
              cloud_finding_fn fn, void *arg, struct err *err)
{
    struct check *c = calloc(1, sizeof *c);
    must(c);
    c->settings = settings;
    c->fn = fn;
    c->arg = arg;
    int rc = loop_new(&c->loop, err);
    if (rc == 0) rc = web_cloud_open(c->loop, settings, environment, 1, &c->cloud, err);
    if (rc == 0 && check_list(c)) check_prices(c);
    if (rc == 0) cloud_close(&c->cloud);
    loop_free(c->loop);
    free(c);
    return rc;
}
