/* cloud_call.h - copies a call to a provider, to be made later, and makes it over a backend.
 *
 * Layer:   controller/cloud (controller/core)
 * Threads: pure; a kept call belongs to one thread at a time
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/buf.h"
#include "controller/cloud/cloud.h"

struct cloud_kept {
    enum cloud_op op;
    uint64_t id, epoch;
    char intent[NAME_BYTES], handle[NAME_BYTES];
    struct offer offer;
    struct buf spec, key; /* CREATE; spec as JSON */
    bool stops;           /* CREATE */
    int64_t asked_us;     /* fleet time of the submit */
    int64_t mono_us;      /* the same moment on this machine, where a thread makes the call */
};

/* Copies `call`. -ENOMEM, or -EINVAL for a launch document that cannot be written; then *ret is
 * empty. */
int cloud_keep(const struct cloud_call *call, int64_t now_us, struct cloud_kept *ret,
               struct err *err);
void cloud_kept_fini(struct cloud_kept *k);

/* Makes the call and fills *ret; `room` holds CLOUD_LIST_MAX and lives as long as *ret->item. */
void cloud_perform(const struct cloud_backend *b, void *ctx, const struct cloud_call *call,
                   int64_t now_us, struct listed *room, struct cloud_event *ret);

/* The same for a kept call. */
void cloud_perform_kept(const struct cloud_backend *b, void *ctx, const struct cloud_kept *k,
                        int64_t now_us, struct listed *room, struct cloud_event *ret);

/* Completes a call that is not made, because its term is over. */
void cloud_refuse(enum cloud_op op, uint64_t id, struct cloud_event *ret);
