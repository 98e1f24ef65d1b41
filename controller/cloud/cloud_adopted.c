/* cloud_adopted.c - keeps a list of adopted engines and completes every call at once.
 *
 * There is no provider to ask: what exists is what has reported. So calls are answered from memory, and
 * their events wait in a ring until the controller takes them in the same turn. */
#include "controller/cloud/cloud_adopted.h"

#include "base/core/own.h"
#include "base/io/log.h"

#include <stdlib.h>
#include <string.h>

struct adopted {
    struct listed listed;
    int64_t heard_us;
};

struct done {
    uint64_t id;
    enum cloud_op op;
};

struct cloud_adopted {
    struct adopted item[ADOPTED_MAX];
    uint32_t count;
    struct done done[CLOUD_CALLS_MAX]; /* ring of calls whose events are due */
    uint32_t done_first, done_count;
    struct listed listing[ADOPTED_MAX];
    struct log_limit full_log;
};

static struct adopted *find(struct cloud_adopted *a, struct str intent)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (str_eq(str_from(a->item[i].listed.intent), intent)) return &a->item[i];
    return NULL;
}

static void drop(struct cloud_adopted *a, struct adopted *item)
{
    *item = a->item[--a->count];
}

static void drop_silent(struct cloud_adopted *a, int64_t now_us)
{
    for (uint32_t i = a->count; i-- > 0;)
        if (now_us - a->item[i].heard_us >= ADOPTED_SILENT_US) drop(a, &a->item[i]);
}

void cloud_adopted_heard(void *ctx, const struct agent_report *r, int64_t now_us)
{
    struct cloud_adopted *a = ctx;
    uint64_t skipped;
    struct adopted *at = find(a, r->instance);
    if (at && r->state == AGENT_STOPPED) {
        drop(a, at);
        return;
    }
    if (at) {
        at->heard_us = now_us;
        return;
    }
    struct listed l = { .offer = ADOPTED_NAME, .created_us = now_us };
    bool fits = name_copy(l.handle, sizeof l.handle, r->instance) == 0 &&
                name_copy(l.intent, INTENT_ID_BYTES, r->instance) == 0 &&
                name_copy(l.service, sizeof l.service, r->service) == 0 &&
                name_copy(l.pool, sizeof l.pool, r->pool) == 0;
    if (r->state == AGENT_STOPPED) return;
    if (fits && a->count < ADOPTED_MAX)
        a->item[a->count++] = (struct adopted){ l, now_us };
    else if (log_pass(&a->full_log, now_us, 60000000, &skipped))
        log_event(LOG_WARN, "adopted_not_listed", "instance=" STR_FMT " known=%u most=%d",
                  STR_ARG(r->instance), a->count, ADOPTED_MAX);
}

void cloud_adopted_offer(struct offer *ret)
{
    *ret = (struct offer){ .name = ADOPTED_NAME, .provider = ADOPTED_NAME, .price_known = true };
}

/* ---- the driver ---- */

static int offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err)
{
    (void)ctx;
    if (max == 0) return err_set(err, -E2BIG, "too many offers");
    cloud_adopted_offer(ret);
    *ret_count = 1;
    return 0;
}

static int submit(void *ctx, const struct cloud_call *call, int64_t now_us, struct err *err)
{
    struct cloud_adopted *a = ctx;
    (void)now_us;
    if (a->done_count == CLOUD_CALLS_MAX)
        return err_set(err, -EBUSY, "%d calls are under way", CLOUD_CALLS_MAX);
    struct adopted *at = call->op == CLOUD_REMOVE ? find(a, str_from(call->intent)) : NULL;
    if (at) drop(a, at);
    a->done[(a->done_first + a->done_count++) % CLOUD_CALLS_MAX] =
        (struct done){ call->id, call->op };
    return 0;
}

static void fill_listing(struct cloud_adopted *a, int64_t now_us, struct cloud_event *ret)
{
    drop_silent(a, now_us);
    for (uint32_t i = 0; i < a->count; i++)
        a->listing[i] = a->item[i].listed;
    ret->item = a->listing;
    ret->count = a->count;
}

static bool next(void *ctx, int64_t now_us, struct cloud_event *ret)
{
    struct cloud_adopted *a = ctx;
    if (a->done_count == 0) return false;
    const struct done d = a->done[a->done_first];
    a->done_first = (a->done_first + 1) % CLOUD_CALLS_MAX;
    a->done_count--;
    *ret = (struct cloud_event){ .id = d.id, .op = d.op };
    if (d.op == CLOUD_LIST) fill_listing(a, now_us, ret);
    if (d.op == CLOUD_PRICES) {
        ret->count = 1;
        ret->price[0] = (struct cloud_price){ .offer = ADOPTED_NAME, .known = true };
    }
    if (d.op == CLOUD_CREATE) {
        ret->class = OFFER_CAPACITY;
        ret->rc = err_set(&ret->err, -ENOSPC, "adopted engines are started by somebody else");
    }
    return true;
}

static void close_adopted(void *ctx)
{
    free(ctx);
}

static const struct cloud_driver driver = {
    .name = ADOPTED_NAME,
    .about = "engines that somebody else started, as their agents report them",
    .close = close_adopted,
    .offers = offers,
    .submit = submit,
    .next = next,
};

int cloud_adopted_open(struct cloud *ret, struct err *err)
{
    struct cloud_adopted *a = calloc(1, sizeof *a);
    if (!a) return err_set(err, -ENOMEM, "no memory");
    *ret = (struct cloud){
        .driver = &driver, .ctx = a, .lag_us = ADOPTED_LAG_US, .poll_us = CLOUD_POLL_US
    };
    return 0;
}
