/* web_once.c - opens a cloud's driver on a loop, turns it until a call has ended, and checks a cloud by calls that change
 * nothing.
 *
 * It is the driver itself that calls, so that what is checked is what the controller does. */
#include "controller/cloud/web/web_once.h"

#include "base/core/own.h"
#include "base/io/loop/loop.h"
#include "controller/cloud/cloud_exec.h"
#include "controller/cloud/web/web_cloud.h"

#include <stdio.h>
#include <stdlib.h>

#define TURN_US 20000

struct web_once {
    struct loop *loop;
    struct cloud cloud;
    struct cloud_event event;
};

int web_once_open(const struct web_settings *settings, const char *const *environment,
                  struct web_once **ret, struct err *err)
{
    struct web_once *o = calloc(1, sizeof *o);
    must(o);
    int rc = loop_new(&o->loop, err);
    if (rc == 0)
        rc = settings->kind->step
                 ? web_cloud_open(o->loop, settings, environment, 1, &o->cloud, err)
                 : cloud_exec_open(settings, environment, &o->cloud, err);
    if (rc < 0) {
        web_once_free(o);
        return rc;
    }
    *ret = o;
    return 0;
}

void web_once_free(struct web_once *o)
{
    if (!o) return;
    if (o->cloud.driver) cloud_close(&o->cloud);
    loop_free(o->loop);
    free(o);
}

const struct cloud_event *web_once_call(struct web_once *o, enum cloud_op op)
{
    const struct cloud_call what = { .op = op, .id = 1 };
    const struct cloud_driver *d = o->cloud.driver;
    o->event = (struct cloud_event){ .op = op };
    o->event.rc = d->submit(o->cloud.ctx, &what, loop_now_us(o->loop), &o->event.err);
    while (o->event.rc == 0 && !d->next(o->cloud.ctx, loop_now_us(o->loop), &o->event))
        if (loop_turn(o->loop, TURN_US) < 0) break;
    return &o->event;
}

/* ---- the check: the calls that change nothing, one after the other ---- */

struct check {
    const struct web_settings *settings;
    struct web_once *once;
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

static bool check_list(struct check *c)
{
    const struct cloud_event *e = web_once_call(c->once, CLOUD_LIST);
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
    const struct cloud_event *e = web_once_call(c->once, CLOUD_PRICES);
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
    CLEANUP(web_once_freep) struct web_once *once = NULL;
    int rc = web_once_open(settings, environment, &once, err);
    if (rc < 0) return rc;
    struct check c = { .settings = settings, .once = once, .fn = fn, .arg = arg };
    if (check_list(&c)) check_prices(&c);
    return 0;
}
