/* cloud_call.c - copies calls to providers, and makes them.
 *
 * A create call points to the controller's configuration and to texts on its stack. The copy holds
 * the launch document in its written form, which has a codec and bounds of its own. */
#include "controller/cloud/cloud_call.h"

#include "base/core/bits.h"
#include "base/core/own.h"

#include <string.h>

const char *const cloud_op_names[CLOUD_OP_COUNT] = {
    [CLOUD_NONE] = "none",     [CLOUD_CREATE] = "create", [CLOUD_REMOVE] = "remove",
    [CLOUD_STOP] = "stop",     [CLOUD_START] = "start",   [CLOUD_LIST] = "list",
    [CLOUD_PRICES] = "prices",
};

static int keep_name(char to[NAME_BYTES], const char *from, struct err *err)
{
    if (!from || name_copy(to, NAME_BYTES, str_from(from)) == 0) return 0;
    return err_set(err, -EINVAL, "'%s' is longer than an id can be", from);
}

int cloud_keep(const struct cloud_call *call, int64_t now_us, struct cloud_kept *ret,
               struct err *err)
{
    struct cloud_kept k = {
        .op = call->op, .id = call->id, .epoch = call->epoch, .asked_us = now_us
    };
    bool creates = call->op == CLOUD_CREATE;
    int rc = keep_name(k.intent, creates ? call->create.intent : call->intent, err);
    if (rc == 0) rc = keep_name(k.handle, call->handle, err);
    if (rc == 0 && creates) {
        k.offer = *call->create.offer;
        k.stops = call->create.stops;
        buf_str(&k.key, call->create.key);
        rc = launch_spec_encode(call->create.spec, &k.spec);
        if (rc == 0) rc = k.key.rc;
        if (rc < 0) err_set(err, rc, "the launch document of %s", k.intent);
    }
    if (rc < 0) {
        cloud_kept_fini(&k);
        return rc;
    }
    *ret = k;
    return 0;
}

void cloud_kept_fini(struct cloud_kept *k)
{
    if (k->key.data) explicit_bzero(k->key.data, k->key.len);
    buf_fini(&k->key);
    buf_fini(&k->spec);
}

static void event_begin(enum cloud_op op, uint64_t id, struct cloud_event *ret)
{
    ret->id = id;
    ret->op = op;
    ret->rc = 0;
    ret->class = OFFER_OK;
    ret->err.text[0] = 0;
    ret->epoch_seen = 0;
    ret->made = (struct listed){ 0 };
    ret->item = NULL;
    ret->count = 0;
}

void cloud_refuse(enum cloud_op op, uint64_t id, struct cloud_event *ret)
{
    event_begin(op, id, ret);
    ret->class = OFFER_TRANSIENT;
    ret->rc = err_set(&ret->err, -EKEYREVOKED, "the call was not made: its term is over");
}

void cloud_perform(const struct cloud_backend *b, void *ctx, const struct cloud_call *call,
                   int64_t now_us, struct listed *room, struct cloud_event *ret)
{
    event_begin(call->op, call->id, ret);
    if (b->fence && call->epoch) ret->rc = b->fence(ctx, call->epoch, &ret->epoch_seen, &ret->err);
    if (ret->rc < 0) {
        ret->class = OFFER_TRANSIENT;
        return;
    }
    switch (call->op) {
    case CLOUD_CREATE:
        ret->rc = b->create(ctx, &call->create, now_us, &ret->made, &ret->class, &ret->err);
        break;
    case CLOUD_REMOVE:
        ret->rc = b->remove(ctx, call->handle, call->intent, now_us, &ret->err);
        break;
    case CLOUD_STOP:
    case CLOUD_START:
        ret->class = OFFER_INVALID;
        if (b->turn)
            ret->rc = b->turn(ctx, call->handle, call->intent, call->op == CLOUD_START, now_us,
                              &ret->class, &ret->err);
        else
            ret->rc = err_set(&ret->err, -EOPNOTSUPP, "%s stops no instances", b->name);
        break;
    case CLOUD_LIST:
        ret->item = room;
        ret->rc = b->list(ctx, now_us, room, CLOUD_LIST_MAX, &ret->count, &ret->err);
        break;
    case CLOUD_PRICES:
        ret->rc = b->prices(ctx, now_us, ret->price, CLOUD_PRICES_MAX, &ret->count, &ret->err);
        break;
    case CLOUD_NONE:
    case CLOUD_OP_COUNT:
        break;
    }
    if (ret->rc == 0) ret->class = OFFER_OK;
}

void cloud_perform_kept(const struct cloud_backend *b, void *ctx, const struct cloud_kept *k,
                        int64_t now_us, struct listed *room, struct cloud_event *ret)
{
    struct cloud_call call = {
        .op = k->op, .id = k->id, .epoch = k->epoch, .handle = k->handle, .intent = k->intent
    };
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, 2 * LAUNCH_BYTES_MAX);
    struct launch_spec spec;
    if (k->op == CLOUD_CREATE) {
        call.create = (struct cloud_request){
            .intent = k->intent,
            .offer = &k->offer,
            .spec = &spec,
            .key = buf_view(&k->key),
            .stops = k->stops,
        };
        struct err err = { 0 };
        int rc = launch_spec_decode(buf_view(&k->spec), &arena, &spec, &err);
        if (rc < 0) { /* no memory: nothing was asked of the provider */
            *ret = (struct cloud_event){
                .id = k->id, .op = k->op, .rc = rc, .class = OFFER_TRANSIENT, .err = err
            };
            return;
        }
    }
    cloud_perform(b, ctx, &call, now_us, room, ret);
}
