/* web_drive.h - runs calls over a provider against a function that answers its requests, in virtual time.
 *
 * Layer:   tests (controller/cloud/web)
 * Threads: one at a time
 * Use:     a test hands in a fake of the provider. Waits cost no time but that of the argument:
 *          a call that is throttled for a minute is done at once, a minute later
 */
#pragma once
#include "controller/cloud/web/web_run.h"

/* Answers a request that begins at now_us (fleet time). Texts of the reply live in `arena`. Returns how long the
 * reply takes; beyond the request's deadline it is lost, although it was carried out. */
typedef int64_t (*web_respond_fn)(void *ctx, const struct web_ask *ask, int64_t now_us,
                                  struct arena *arena, struct web_reply *ret);

struct web_drive {
    struct web_api api;
    web_respond_fn respond;
    void *ctx;
    int64_t date_us;  /* the date less fleet time */
    uint64_t asks;    /* requests made */
    int64_t ended_us; /* fleet time of the last call's end */
};

int web_drive_open(struct web_drive *d, const struct web_settings *settings,
                   const struct web_host *host, uint64_t seed, web_respond_fn respond, void *ctx,
                   struct err *err);
void web_drive_close(struct web_drive *d);

/* Makes the call and fills the event. `room` has CLOUD_LIST_MAX and may be NULL for other calls than lists. */
void web_drive_call(struct web_drive *d, const struct cloud_call *call, int64_t now_us,
                    struct listed *room, struct cloud_event *ret);

/* Logs in and no more. */
int web_drive_login(struct web_drive *d, int64_t now_us, struct err *err);

/* The same calls as a backend, with a struct web_drive as ctx; close does nothing: the fake outlives it. */
extern const struct cloud_backend web_drive_backend;
