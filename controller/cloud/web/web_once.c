/* web_once.c - opens a cloud's driver on a loop, and turns it until a call has ended. */
#include "controller/cloud/web/web_once.h"

#include "base/io/loop/loop.h"
#include "controller/cloud/cloud_exec.h"
#include "controller/cloud/web/web_cloud.h"

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
