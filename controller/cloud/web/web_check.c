/* web_check.c - makes the calls of a cloud that change nothing, one after the other, and says what came of them.
 *
 * It is the driver itself that calls, so that what is checked is what the controller does. */
#include "controller/cloud/web/web_check.h"

#include "base/core/own.h"
#include "controller/cloud/web/web_once.h"

#include <stdio.h>

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
