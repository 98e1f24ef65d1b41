/* cloud_delay.c - completes the calls of a backend after a scripted latency. */
#include "controller/cloud/cloud_delay.h"

#include "base/core/bits.h"
#include "controller/cloud/cloud_call.h"

#include <stdlib.h>
#include <string.h>

struct cloud_delay {
    const struct cloud_backend *backend;
    void *ctx;
    cloud_latency_fn latency;
    struct cloud_driver driver;
    struct late {
        struct cloud_kept kept;
        int64_t end_us;
    } late[CLOUD_CALLS_MAX]; /* in the order of their ends */
    uint32_t late_count;
    struct cloud_event done[CLOUD_CALLS_MAX];
    uint32_t done_count;
    struct listed room[CLOUD_LIST_MAX];
};

static int submit(void *ctx, const struct cloud_call *call, int64_t now_us, struct err *err)
{
    struct cloud_delay *d = ctx;
    if (d->late_count + d->done_count == CLOUD_CALLS_MAX)
        return err_set(err, -EBUSY, "%d calls are under way", CLOUD_CALLS_MAX);
    int64_t us = d->latency(d->ctx, call);
    if (us == 0) {
        cloud_perform(d->backend, d->ctx, call, now_us, d->room, &d->done[d->done_count++]);
        return 0;
    }
    struct late l = { .end_us = now_us + us };
    int rc = cloud_keep(call, now_us, &l.kept, err);
    if (rc < 0) return rc;
    uint32_t at = d->late_count++;
    for (; at > 0 && d->late[at - 1].end_us > l.end_us; at--)
        d->late[at] = d->late[at - 1];
    d->late[at] = l;
    return 0;
}

/* Makes the first of the late calls. */
static void make_first(struct cloud_delay *d, int64_t now_us, struct cloud_event *ret)
{
    struct late first = d->late[0];
    memmove(d->late, d->late + 1, --d->late_count * sizeof *d->late);
    cloud_perform_kept(d->backend, d->ctx, &first.kept, min_i64(first.end_us, now_us), d->room,
                       ret);
    cloud_kept_fini(&first.kept);
}

static bool next(void *ctx, int64_t now_us, struct cloud_event *ret)
{
    struct cloud_delay *d = ctx;
    if (d->done_count > 0) {
        *ret = d->done[0];
        memmove(d->done, d->done + 1, --d->done_count * sizeof *d->done);
        return true;
    }
    if (d->late_count == 0 || d->late[0].end_us > now_us) return false;
    make_first(d, now_us, ret);
    return true;
}

void cloud_delay_cut(struct cloud_delay *d, bool made, int64_t now_us)
{
    d->done_count = 0;
    while (made && d->late_count > 0)
        make_first(d, now_us, &d->done[0]);
    for (; d->late_count > 0; d->late_count--)
        cloud_kept_fini(&d->late[d->late_count - 1].kept);
}

uint32_t cloud_delay_under_way(const struct cloud_delay *d)
{
    return d->late_count;
}

static int offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err)
{
    struct cloud_delay *d = ctx;
    return d->backend->offers(d->ctx, ret, max, ret_count, err);
}

static void close_nothing(void *ctx)
{
    (void)ctx;
}

int cloud_delay_new(const struct cloud_backend *backend, void *ctx, cloud_latency_fn latency,
                    struct cloud_delay **ret)
{
    struct cloud_delay *d = calloc(1, sizeof *d);
    if (!d) return -ENOMEM;
    d->backend = backend;
    d->ctx = ctx;
    d->latency = latency;
    d->driver = (struct cloud_driver){ .name = backend->name,
                                       .about = backend->about,
                                       .close = close_nothing,
                                       .offers = offers,
                                       .submit = submit,
                                       .next = next };
    *ret = d;
    return 0;
}

void cloud_delay_free(struct cloud_delay *d)
{
    if (!d) return;
    cloud_delay_cut(d, false, 0);
    free(d);
}

struct cloud cloud_delay_cloud(struct cloud_delay *d, const struct cloud *pace)
{
    struct cloud c = *pace;
    c.driver = &d->driver;
    c.ctx = d;
    return c;
}
