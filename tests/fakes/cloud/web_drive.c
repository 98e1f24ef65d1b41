/* web_drive.c - runs calls over a provider in virtual time. */
#include "tests/fakes/cloud/web_drive.h"

#include "base/core/bits.h"
#include "base/core/own.h"

#include <stdlib.h>
#include <string.h>

int web_drive_open(struct web_drive *d, const struct web_settings *settings,
                   const struct web_host *host, uint64_t seed, web_respond_fn respond, void *ctx,
                   struct err *err)
{
    *d = (struct web_drive){ .respond = respond, .ctx = ctx };
    return web_api_open(&d->api, settings, host, seed, err);
}

void web_drive_close(struct web_drive *d)
{
    web_api_close(&d->api);
}

/* Makes the request of the run's turn; *now_us moves on by the time that the reply takes. */
static void answer(struct web_drive *d, const struct web_run *run, int64_t *now_us,
                   struct arena *arena, struct web_reply *ret)
{
    *ret = (struct web_reply){ .sent = true };
    int64_t deadline_us = web_run_deadline_us(run, *now_us);
    int64_t took_us = d->respond(d->ctx, &run->step.ask, *now_us, arena, ret);
    d->asks++;
    if (took_us > deadline_us)
        *ret = (struct web_reply){ .sent = true, .problem = STR("no reply came in time") };
    *now_us += min_i64(took_us, deadline_us);
}

static void finish(struct web_drive *d, struct web_run *run, int64_t now_us)
{
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, 2 * WEB_REPLY_BYTES);
    struct web_reply reply;
    bool answered = false;
    for (;;) {
        enum web_turn turn =
            web_run_turn(run, answered ? &reply : NULL, now_us, now_us + d->date_us);
        answered = turn == WEB_TURN_ASK;
        if (turn == WEB_TURN_DONE) break;
        if (turn == WEB_TURN_WAIT) now_us = max_i64(now_us, run->wait_us);
        if (!answered) continue;
        arena_reset(&arena);
        answer(d, run, &now_us, &arena, &reply);
    }
    d->ended_us = now_us;
}

void web_drive_call(struct web_drive *d, const struct cloud_call *call, int64_t now_us,
                    struct listed *room, struct cloud_event *ret)
{
    struct web_run run;
    struct err err = { 0 };
    int rc = web_run_begin(&run, &d->api, call, room, ret->price, now_us, &err);
    if (rc < 0) {
        ret->id = call->id;
        ret->op = call->op;
        ret->rc = rc;
        ret->class = OFFER_TRANSIENT;
        ret->err = err;
        return;
    }
    finish(d, &run, now_us);
    web_run_event(&run, ret);
    web_run_fini(&run);
}

int web_drive_login(struct web_drive *d, int64_t now_us, struct err *err)
{
    struct web_run run;
    int rc = web_run_begin(&run, &d->api, NULL, NULL, NULL, now_us, err);
    if (rc < 0) return rc;
    finish(d, &run, now_us);
    rc = run.step.rc;
    if (rc < 0 && err) *err = run.step.err;
    web_run_fini(&run);
    return rc;
}

/* ---- as a backend ---- */

/* An event has room for all prices: too large for a stack. */
static void event_free(struct cloud_event **e)
{
    free(*e);
}

static struct cloud_event *event_new(void)
{
    struct cloud_event *e = calloc(1, sizeof *e);
    must(e);
    return e;
}

static void close_nothing(void *ctx)
{
    (void)ctx;
}

static int offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err)
{
    const struct web_settings *s = ((struct web_drive *)ctx)->api.provider.settings;
    if (s->offer_count > max)
        return err_set(err, -E2BIG, STR_FMT " has %u offers; %u fit", STR_ARG(s->name),
                       s->offer_count, max);
    for (uint32_t i = 0; i < s->offer_count; i++)
        ret[i] = s->offer[i].offer;
    *ret_count = s->offer_count;
    return 0;
}

static int create(void *ctx, const struct cloud_request *req, int64_t now_us, struct listed *ret,
                  enum offer_error *ret_class, struct err *err)
{
    CLEANUP(event_free) struct cloud_event *e = event_new();
    const struct cloud_call call = { .op = CLOUD_CREATE, .create = *req };
    web_drive_call(ctx, &call, now_us, NULL, e);
    *ret_class = e->class;
    if (e->rc < 0 && err) *err = e->err;
    if (e->rc == 0) *ret = e->made;
    return e->rc;
}

static int list(void *ctx, int64_t now_us, struct listed *ret, uint32_t max, uint32_t *ret_count,
                struct err *err)
{
    CLEANUP(event_free) struct cloud_event *e = event_new();
    const struct cloud_call call = { .op = CLOUD_LIST };
    struct listed *room = calloc(CLOUD_LIST_MAX, sizeof *room);
    must(room);
    web_drive_call(ctx, &call, now_us, room, e);
    int rc = e->rc;
    if (rc < 0 && err) *err = e->err;
    if (rc == 0 && e->count > max) rc = err_set(err, -E2BIG, "%u are listed", e->count);
    if (rc == 0) {
        memcpy(ret, room, e->count * sizeof *room);
        *ret_count = e->count;
    }
    free(room);
    return rc;
}

static int remove_one(void *ctx, const char *handle, const char *intent, int64_t now_us,
                      struct err *err)
{
    CLEANUP(event_free) struct cloud_event *e = event_new();
    const struct cloud_call call = { .op = CLOUD_REMOVE, .handle = handle, .intent = intent };
    web_drive_call(ctx, &call, now_us, NULL, e);
    if (e->rc < 0 && err) *err = e->err;
    return e->rc;
}

static int turn_one(void *ctx, const char *handle, const char *intent, bool on, int64_t now_us,
                    enum offer_error *ret_class, struct err *err)
{
    CLEANUP(event_free) struct cloud_event *e = event_new();
    const struct cloud_call call = { .op = on ? CLOUD_START : CLOUD_STOP,
                                     .handle = handle,
                                     .intent = intent };
    web_drive_call(ctx, &call, now_us, NULL, e);
    *ret_class = e->class;
    if (e->rc < 0 && err) *err = e->err;
    return e->rc;
}

static int prices(void *ctx, int64_t now_us, struct cloud_price *ret, uint32_t max,
                  uint32_t *ret_count, struct err *err)
{
    CLEANUP(event_free) struct cloud_event *e = event_new();
    const struct cloud_call call = { .op = CLOUD_PRICES };
    web_drive_call(ctx, &call, now_us, NULL, e);
    if (e->rc < 0 && err) *err = e->err;
    if (e->rc < 0) return e->rc;
    if (e->count > max) return err_set(err, -E2BIG, "%u prices", e->count);
    memcpy(ret, e->price, e->count * sizeof *ret);
    *ret_count = e->count;
    return 0;
}

const struct cloud_backend web_drive_backend = {
    .name = "web",
    .about = "a provider's requests answered by a function",
    .close = close_nothing,
    .offers = offers,
    .create = create,
    .list = list,
    .remove = remove_one,
    .turn = turn_one,
    .prices = prices,
};
