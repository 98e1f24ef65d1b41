/* hands.c - the calls behind pause, resume and scale. */
#include "cli/hands.h"

#include "base/core/own.h"
#include "base/wire/order.h"
#include "cli/pick.h"

static int post(const struct remote *api, struct str service, const char *act, struct str body,
                struct err *err)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    buf_text(&path, "/api/v1/services/");
    remote_segment(&path, service);
    buf_printf(&path, "/%s", act);
    return remote_call(api, buf_view(&path), body, &reply, err);
}

int hands_pause(const struct remote *api, struct str service, bool paused, struct err *err)
{
    return post(api, service, paused ? "pause" : "resume", STR("{}"), err);
}

int hands_scale(const struct remote *api, struct str service, struct str pool, int64_t count,
                struct err *err)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    const struct scale_order order = { pool, count };
    scale_order_encode(&order, &body);
    if (body.rc < 0) return err_set(err, body.rc, "no memory for the order");
    return post(api, service, "scale", buf_view(&body), err);
}

struct pools {
    struct str service;
    struct buf names; /* joined by ", " */
    uint32_t count;
};

static int add_pool(void *ctx, struct str item)
{
    struct pools *p = ctx;
    CLEANUP(buf_fini) struct buf service = { 0 };
    int rc = pick_text(item, "service", &service);
    if (rc < 0 || !str_eq(buf_view(&service), p->service)) return rc;
    if (p->count++ > 0) buf_text(&p->names, ", ");
    return pick_text(item, "pool", &p->names);
}

int hands_only_pool(const struct remote *api, struct str service, struct buf *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct pools p = { .service = service };
    int rc = remote_get(api, "/api/v1/pools", &reply, err);
    if (rc < 0) return rc;
    rc = pick_each(buf_view(&reply), "pools", add_pool, &p);
    if (rc < 0)
        rc = err_set(err, -EPROTO, "the controller's list of pools is not understood");
    else if (p.count == 0)
        rc = err_set(err, -ENOENT, "no service '" STR_FMT "'; `muster get services` lists them",
                     STR_ARG(service));
    else if (p.count > 1)
        rc = err_set(err, -EINVAL,
                     STR_FMT " has several pools: name one of " STR_FMT " as " STR_FMT "/POOL",
                     STR_ARG(service), STR_ARG(buf_view(&p.names)), STR_ARG(service));
    else
        rc = buf_str(ret, buf_view(&p.names));
    buf_fini(&p.names);
    return rc;
}
