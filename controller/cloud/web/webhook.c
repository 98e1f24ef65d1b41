/* webhook.c - sells what a server of anybody's own sells, over the hook protocol: each call is a POST to one URL.
 *
 *     create:  POST, one zone after the other while the error is `capacity`
 *     others:  POST
 *
 * The protocol demands that a create is idempotent by its intent, so that one without a reply is repeated at once.
 * A reply says what it means in its body; a status without one is read as those of other kinds are. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/cloud/web/hook.h"
#include "controller/cloud/web/provider.h"
#include "controller/cloud/web/web_step.h"

#include <string.h>

static const struct web_code no_codes[] = { { 0 } };

/* op->stage is the zone of a create. */
static struct str zone_of(const struct web_op *op)
{
    bool has = op->kind == WEB_CREATE && op->stage < op->offer->zone_count;
    return has ? op->offer->zone[op->stage] : (struct str){ 0 };
}

static void ask(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    const struct buf path = { 0 }; /* the endpoint is the whole URL */
    struct err err = { 0 };
    if (hook_write(p->settings, op, zone_of(op), &body, &err) < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "%s", err.text);
        if (body.data) explicit_bzero(body.data, body.len);
    } else if (web_bearer_send(p, op, "POST", &path, &body, ret) == 0) {
        ret->ask.deadline_us = p->settings->timeout_us;
        ret->ask.reads = op->kind == WEB_LIST || op->kind == WEB_PRICES;
    }
}

static void take_reply(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                       int64_t now_us, struct web_step *ret)
{
    bool well = r->status >= 200 && r->status < 300;
    if (well || (r->status != 0 && hook_is_error(r->body)))
        hook_read(p->settings, op, r->body, now_us, ret);
    else
        web_refuse_reply(p, op, r, no_codes, (struct str){ 0 }, (struct str){ 0 }, ret);
}

static void step(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                 int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    (void)wall_us;
    if (op->kind == WEB_LOGIN) {
        web_bearer_login(p, op, ret);
        return;
    }
    if (!reply) {
        ask(p, op, ret);
        return;
    }
    take_reply(p, op, reply, now_us, ret);
    bool sold_out = op->kind == WEB_CREATE && ret->rc < 0 && ret->class == OFFER_CAPACITY;
    if (!sold_out || op->stage + 1 >= op->offer->zone_count) return;
    op->stage++;
    ask(p, op, ret);
}

static int check(const struct web_settings *s, struct err *err)
{
    return s->endpoint.len > 0
               ? 0
               : err_set(err, -EINVAL, "endpoint: kind webhook needs it: the URL of your server");
}

static const char *const takes[] = { "region",       "image",       "timeout",     "lag",
                                     "offers.zones", "offers.spot", "offers.gpus", NULL };

const struct web_kind web_kind_webhook = {
    .name = "webhook",
    .about = "a server of your own, over the hook protocol",
    .credentials_env = "MUSTER_WEBHOOK_TOKEN",
    .lag_us = 30000000,
    .poll_us = 10000000,
    .calls_per_s = 5,
    .user_data_bytes = HOOK_USER_DATA_BYTES,
    .create_is_keyed = true,
    .takes = takes,
    .check = check,
    .step = step,
};
