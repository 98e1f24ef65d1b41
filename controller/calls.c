/* calls.c - makes all calls to providers, within their budgets, and never waits for one.
 *
 *     act.c: due ──► submit ──► driver ──► event ──► the intent's next state (act.c)
 *     poll, own calls ──► listing or prices ──► event ──► the cached listing, the offers
 *
 * An intent has one call at a time: `due` from the moment at which it is wanted, `call` while it is
 * under way. A call that does not fit the provider's budget stays due and is made at a later turn.
 * A late listing comes first: without it nothing can be proven, not even that an instance is gone, and
 * repeated removes would use up the budget for ever. Removes come next, because they end a cost.
 *
 * Right before a call is submitted we ask once more if we lead: the tick may have begun in another time. The
 * driver asks again when it makes the call (cloud.h).
 *
 * A call without an event for OVERDUE_US is given up: the driver has broken its contract, and the listing
 * will show the effect of the call. An event that comes even later belongs to no call and changes
 * nothing. */
#include "base/core/bits.h"
#include "base/io/auth/join.h"
#include "base/io/log.h"
#include "controller/charges.h"
#include "controller/control_state.h"
#include "controller/stops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define OVERDUE_US 120000000 /* the longest known call of a provider takes under a minute */
#define BUDGET_S 5           /* seconds of the budget that may be saved up */
#define PRICE_POLLS 10       /* listings for one request for prices */
#define PRICE_STALE_US ((int64_t)900 * 1000000) /* an older price is unknown */
#define LATE_POLLS 2                            /* a listing this many polls late goes first */

static void count_call(struct control *c, const char *provider, const char *call,
                       const char *result)
{
    struct str labels[3] = { str_from(provider), str_from(call), str_from(result) };
    metric_inc(metric_series(c->metrics, CONTROL_M_CALLS, labels));
}

/* ---- the budget ---- */

/* Takes a call out of the provider's budget, a token bucket. */
static bool take_token(struct provider *p, int64_t now_us)
{
    double rate = p->cloud.calls_per_s;
    if (rate <= 0) return true;
    double most = fmax(1, rate * BUDGET_S);
    double added = rate * (double)(now_us - p->filled_us) / 1e6;
    p->tokens = p->filled_us ? fmin(most, p->tokens + added) : most;
    p->filled_us = now_us;
    if (p->tokens < 1) return false;
    p->tokens--;
    return true;
}

/* Submits a call within the budget. -EAGAIN: try later. */
static int submit(struct control *c, struct provider *p, const struct cloud_call *call,
                  int64_t now_us)
{
    struct err err = { 0 };
    const struct control_term *term = &c->setup.term;
    if (term->leads && !term->leads(term->arg)) {
        control_count(c, CONTROL_M_CALLS_DEFERRED, p->cloud.driver->name);
        return -EAGAIN;
    }
    if (!take_token(p, now_us)) {
        control_count(c, CONTROL_M_CALLS_DEFERRED, p->cloud.driver->name);
        return -EAGAIN;
    }
    struct cloud_call now = *call;
    now.epoch = term->epoch;
    int rc = p->cloud.driver->submit(p->cloud.ctx, &now, now_us, &err);
    if (rc == 0) return 0;
    control_count(c, CONTROL_M_CALLS_DEFERRED, p->cloud.driver->name);
    if (rc != -EBUSY)
        log_event(LOG_WARN, "call_not_made", "provider=%s call=%s error=%s", p->cloud.driver->name,
                  cloud_op_names[call->op], err_text(&err, rc));
    return -EAGAIN;
}

/* ---- calls about one intent ---- */

void control_launch_spec(const struct control_setup *s, const struct control_launch *l,
                         struct launch_spec *ret)
{
    *ret = (struct launch_spec){ .controllers = s->controllers,
                                 .controller_count = s->controller_count,
                                 .controller_host = s->host,
                                 .controller_port = s->port,
                                 .controller_tls = s->tls,
                                 .engine_tls = l->tls_certificate.len > 0,
                                 .tls_ca = s->tls_ca,
                                 .tls_certificate = l->tls_certificate,
                                 .tls_key = l->tls_key,
                                 .secret_file = s->secret_file,
                                 .kind = l->kind,
                                 .engine_host = s->engine_host,
                                 .engine_args = l->engine_args,
                                 .engine_arg_count = l->engine_arg_count,
                                 .engine_flags = l->engine_flags,
                                 .engine_flag_count = l->engine_flag_count,
                                 .model = l->model,
                                 .served_name = l->served_name,
                                 .device = l->device,
                                 .tokenizer = l->tokenizer,
                                 .weights_url = l->weights_url,
                                 .weights_endpoint = l->weights_endpoint,
                                 .weights_path = l->weights_path,
                                 .weights_sha256 = l->weights_sha256,
                                 .weights_max = l->weights_max,
                                 .context_tokens = l->context_tokens,
                                 .seqs_max = l->seqs_max,
                                 .kv_events = l->kv_events,
                                 .tunnel = l->tunnel,
                                 .grace_ms = s->grace_ms,
                                 .age_ms = s->age_ms,
                                 .drain_ms = s->drain_ms };
}

/* Fills the instance's launch document from its service and pool. -ENOENT: not configured any more. */
static int fill_spec(struct control *c, const struct intent *i, const struct detail *d,
                     struct launch_spec *ret)
{
    if (d->service == PLAN_NONE || d->pool == PLAN_NONE) return -ENOENT;
    struct launch_spec spec;
    control_launch_spec(&c->setup, &c->setup.launch[d->service][d->pool], &spec);
    spec.instance = str_from(i->id);
    spec.service = str_from(i->service);
    spec.pool = str_from(i->pool);
    spec.offer = str_from(i->offer);
    *ret = spec;
    return 0;
}

/* Appends what lets the instance in: its own key, or a token where others may read it. Nothing without a secret: then
 * instances have the fleet's. */
static int put_key(const struct control *c, uint32_t cloud, const struct intent *i, struct buf *out)
{
    struct str secret = c->setup.secret, id = str_from(i->id);
    if (secret.len == 0) return 0;
    return c->observed.provider[cloud].cloud.joins ? join_token_print(secret, id, out)
                                                   : credentials_print_instance(secret, id, out);
}

static void sent(struct control *c, uint32_t at, uint64_t id, int64_t now_us)
{
    struct detail *d = &c->observed.detail[at];
    d->due = CLOUD_NONE;
    d->call = id;
    d->call_us = now_us;
}

static int submit_create(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    uint32_t cloud = control_find_cloud(c, i->provider);
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    struct launch_spec spec;
    if (cloud == PLAN_NONE || offer == PLAN_NONE ||
        fill_spec(c, i, &c->observed.detail[at], &spec) < 0) {
        c->observed.detail[at].due = CLOUD_NONE;
        return control_apply(c, at, INTENT_END, "its offer is not configured any more", NULL,
                             now_us);
    }
    CLEANUP(buf_fini) struct buf key = { 0 };
    if (put_key(c, cloud, i, &key) < 0) return 0; /* no memory: it stays due */
    struct cloud_call call = {
        .op = CLOUD_CREATE,
        .id = ++c->money.call_last,
        .create = { .intent = i->id,
                    .offer = &c->money.offer[offer],
                    .spec = &spec,
                    .key = buf_view(&key),
                    .stops = control_may_stop(c, c->observed.detail[at].service,
                                              c->observed.detail[at].pool, offer) },
    };
    if (submit(c, &c->observed.provider[cloud], &call, now_us) == 0) sent(c, at, call.id, now_us);
    if (key.data) explicit_bzero(key.data, key.len);
    return 0;
}

/* Submits a call about an instance that is there. */
static int submit_about(struct control *c, uint32_t at, enum cloud_op op, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    uint32_t cloud = control_find_cloud(c, i->provider);
    if (cloud == PLAN_NONE) { /* asked again once the provider is configured */
        log_event(LOG_ERROR, "call_impossible", "id=%s provider=%s call=%s", i->id, i->provider,
                  cloud_op_names[op]);
        c->observed.detail[at].due = CLOUD_NONE;
        return 0;
    }
    /* A twin that came late has another handle than the one that is gone: it is removed by its own. */
    const struct listed *item = control_find_item(&c->observed.provider[cloud].listing, i);
    struct cloud_call call = { .op = op,
                               .id = ++c->money.call_last,
                               .handle = item ? item->handle : i->handle,
                               .intent = i->id };
    if (submit(c, &c->observed.provider[cloud], &call, now_us) == 0) sent(c, at, call.id, now_us);
    return 0;
}

int control_call(struct control *c, uint32_t at, enum cloud_op op, int64_t now_us)
{
    struct detail *d = &c->observed.detail[at];
    d->due = op;
    if (d->call) return 0; /* made when the one under way has ended */
    return op == CLOUD_CREATE ? submit_create(c, at, now_us) : submit_about(c, at, op, now_us);
}

bool control_is_calling(const struct detail *d)
{
    return d->call != 0 || d->due != CLOUD_NONE;
}

int control_call_stray(struct control *c, uint32_t cloud, const struct listed *item, int64_t now_us)
{
    struct cloud_call call = { .op = CLOUD_REMOVE,
                               .id = ++c->money.call_last,
                               .handle = item->handle,
                               .intent = item->intent };
    return submit(c, &c->observed.provider[cloud], &call, now_us);
}

/* ---- events ---- */

static int take_created(struct control *c, uint32_t at, const struct cloud_event *e, int64_t now_us)
{
    int stop = control_step_at(c, "create.called");
    if (stop < 0) return stop;
    const struct intent *i = &c->money.intent[at];
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    count_call(c, i->provider, "create", offer_error_names[e->class]);
    if (offer != PLAN_NONE) {
        offer_answered(&c->money.health[offer], e->class, e->err.text, now_us);
        measure_create(c, offer, e->class);
    }
    if (e->rc == 0) {
        /* Of an offer with several prices the provider says which it is; the bill counts by it. */
        c->observed.detail[at].told_price_h = e->made.price_h;
        c->observed.detail[at].told_us = e->made.created_us;
        return control_apply(c, at, INTENT_MADE, NULL, e->made.handle, now_us);
    }
    log_event(LOG_WARN, "create_failed", "id=%s offer=%s class=%s error=%s", i->id, i->offer,
              offer_error_names[e->class], err_text(&e->err, e->rc));
    char why[INTENT_WHY_BYTES];
    snprintf(why, sizeof why, "%s: %s", offer_error_names[e->class], err_text(&e->err, e->rc));
    const struct event_note note = { .what = "refused",
                                     .by = i->provider,
                                     .service = i->service,
                                     .pool = i->pool,
                                     .instance = i->id,
                                     .offer = i->offer,
                                     .text = why };
    control_note(c, &note, now_us);
    return control_apply(c, at, e->class == OFFER_TRANSIENT ? INTENT_UNSURE : INTENT_REFUSED, why,
                         NULL, now_us);
}

static int take_removed(struct control *c, uint32_t at, const struct cloud_event *e, int64_t now_us)
{
    int stop = control_step_at(c, "end.called");
    if (stop < 0) return stop;
    const struct intent *i = &c->money.intent[at];
    count_call(c, i->provider, "remove", e->rc < 0 ? "failed" : "ok");
    if (e->rc < 0)
        log_event(LOG_WARN, "remove_failed", "id=%s error=%s", i->id, err_text(&e->err, e->rc));
    struct detail *d = &c->observed.detail[at];
    if (e->rc == 0 && (d->taken_us == 0 || d->taken_us < d->shown_us)) d->taken_us = now_us;
    return 0; /* the listing shows if it is gone; until then the call is repeated */
}

static int take_stopped(struct control *c, uint32_t at, const struct cloud_event *e, int64_t now_us)
{
    int stop = control_step_at(c, "stop.called");
    if (stop < 0) return stop;
    const struct intent *i = &c->money.intent[at];
    count_call(c, i->provider, "stop", e->rc < 0 ? "failed" : "ok");
    if (e->rc == 0) {
        c->observed.detail[at].taken_us = now_us;
        return 0; /* the listing shows when it is stopped */
    }
    log_event(LOG_WARN, "stop_failed", "id=%s error=%s", i->id, err_text(&e->err, e->rc));
    if (i->state != INTENT_STOPPING || e->class != OFFER_INVALID) return 0; /* asked again */
    return control_apply(c, at, INTENT_REFUSED, err_text(&e->err, e->rc), NULL, now_us);
}

/* A start that is refused counts like a refused create: the provider has no room for this offer. */
static int take_started(struct control *c, uint32_t at, const struct cloud_event *e, int64_t now_us)
{
    int stop = control_step_at(c, "start.called");
    if (stop < 0) return stop;
    const struct intent *i = &c->money.intent[at];
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    count_call(c, i->provider, "start", offer_error_names[e->class]);
    if (offer != PLAN_NONE) {
        offer_answered(&c->money.health[offer], e->class, e->err.text, now_us);
        measure_create(c, offer, e->class);
    }
    if (e->rc == 0 || i->state != INTENT_STARTING) return 0;
    char why[INTENT_WHY_BYTES];
    snprintf(why, sizeof why, "%s: %s", offer_error_names[e->class], err_text(&e->err, e->rc));
    log_event(LOG_WARN, "start_failed", "id=%s offer=%s error=%s", i->id, i->offer, why);
    enum intent_event event = e->class == OFFER_TRANSIENT ? INTENT_UNSURE
                              : e->class == OFFER_INVALID ? INTENT_END
                                                          : INTENT_REFUSED;
    return control_apply(c, at, event, why, NULL, now_us);
}

static int take_event_of(struct control *c, uint32_t at, const struct cloud_event *e,
                         int64_t now_us)
{
    switch (e->op) {
    case CLOUD_CREATE:
        return take_created(c, at, e, now_us);
    case CLOUD_STOP:
        return take_stopped(c, at, e, now_us);
    case CLOUD_START:
        return take_started(c, at, e, now_us);
    case CLOUD_REMOVE:
    case CLOUD_NONE:
    case CLOUD_LIST:
    case CLOUD_PRICES:
    case CLOUD_OP_COUNT:
        break;
    }
    return take_removed(c, at, e, now_us);
}

static int take_of_intent(struct control *c, const struct cloud_event *e, int64_t now_us)
{
    for (uint32_t at = 0; at < c->money.count; at++) {
        struct detail *d = &c->observed.detail[at];
        if (d->call != e->id) continue;
        d->call = 0;
        d->answered_us = now_us;
        int rc = take_event_of(c, at, e, now_us);
        return rc == -ECANCELED ? rc : 0; /* a record that was not written was logged and counted */
    }
    return 0;
}

static void take_listing(struct control *c, uint32_t cloud, const struct cloud_event *e)
{
    struct provider *p = &c->observed.provider[cloud];
    const char *name = p->cloud.driver->name;
    if (e->id != p->list_call) return;
    p->list_call = 0;
    count_call(c, name, "list", e->rc < 0 ? "failed" : "ok");
    if (e->rc < 0) { /* the cached listing stays, and grows old */
        control_count(c, CONTROL_M_LIST_FAILURES, name);
        log_event(LOG_WARN, "list_failed", "provider=%s error=%s", name, err_text(&e->err, e->rc));
        return;
    }
    memcpy(p->listed, e->item, e->count * sizeof *e->item);
    p->listing.count = e->count;
    p->listing.taken_us = p->list_sent_us;
    p->is_new = true;
    /* A lagging listing shows the world since the controller's start only once the lag has passed. A store without
     * intents makes no exception: it may be one that was lost with the controller before, whose last instances no
     * listing shows yet. */
    if (p->list_sent_us >= c->started_us + p->cloud.lag_us) p->observed = true;
}

/* Takes what a provider says of an offer besides its price. */
static void take_stock(struct offer *o, const struct cloud_price *p)
{
    o->price_default = p->is_default;
    o->room_known = p->room_known;
    o->nodes = p->nodes;
    o->room = p->room;
    if (p->reserved_known) o->reserved = p->reserved;
    if (p->hardware[0]) memcpy(o->hardware, p->hardware, sizeof o->hardware);
}

static void take_prices(struct control *c, uint32_t cloud, const struct cloud_event *e,
                        int64_t now_us)
{
    struct provider *p = &c->observed.provider[cloud];
    if (e->id != p->price_call) return;
    p->price_call = 0;
    count_call(c, p->cloud.driver->name, "prices", e->rc < 0 ? "failed" : "ok");
    if (e->rc < 0) {
        log_event(LOG_WARN, "prices_failed", "provider=%s error=%s", p->cloud.driver->name,
                  err_text(&e->err, e->rc));
        return;
    }
    for (uint32_t i = 0; i < e->count; i++) {
        uint32_t o = control_find_offer(c, p->cloud.driver->name, e->price[i].offer);
        if (o == PLAN_NONE) continue;
        if (e->price[i].known)
            control_reprice(c, o, e->price[i].price_h + c->money.offer[o].disk_h, now_us);
        c->money.offer[o].price_known = e->price[i].known;
        c->money.priced_us[o] = now_us;
        take_stock(&c->money.offer[o], &e->price[i]);
    }
}

static int take_events(struct control *c, int64_t now_us)
{
    for (uint32_t k = 0; k < c->setup.cloud_count; k++) {
        struct provider *p = &c->observed.provider[k];
        while (p->cloud.driver->next(p->cloud.ctx, now_us, &c->money.event)) {
            int rc = 0;
            c->money.epoch_seen = max_u64(c->money.epoch_seen, c->money.event.epoch_seen);
            switch (c->money.event.op) {
            case CLOUD_CREATE:
            case CLOUD_REMOVE:
            case CLOUD_STOP:
            case CLOUD_START:
                rc = take_of_intent(c, &c->money.event, now_us);
                p->list_soon = true;
                c->urgent = true;
                break;
            case CLOUD_LIST:
                take_listing(c, k, &c->money.event);
                break;
            case CLOUD_PRICES:
                take_prices(c, k, &c->money.event, now_us);
                break;
            case CLOUD_NONE:
            case CLOUD_OP_COUNT:
                break;
            }
            if (rc < 0) return rc;
        }
    }
    return 0;
}

/* ---- the turn ---- */

static int64_t listing_age_us(const struct provider *p, int64_t now_us)
{
    return now_us - p->list_sent_us;
}

/* Returns the least time between two listings, so that they take half of the budget at most. */
static int64_t share_us(const struct provider *p)
{
    return p->cloud.calls_per_s > 0 ? (int64_t)(2e6 / p->cloud.calls_per_s) : 0;
}

static int64_t poll_us(const struct provider *p)
{
    return max_i64(p->cloud.poll_us, share_us(p));
}

static bool has_news(const struct provider *p)
{
    return p->cloud.driver->has_news && p->cloud.driver->has_news(p->cloud.ctx);
}

static void submit_listing(struct control *c, struct provider *p, int64_t now_us)
{
    struct cloud_call call = { .op = CLOUD_LIST, .id = ++c->money.call_last };
    if (p->list_call || submit(c, p, &call, now_us) < 0) return;
    p->list_call = call.id;
    p->list_sent_us = now_us;
    p->list_soon = false;
}

static void submit_prices(struct control *c, struct provider *p, int64_t now_us)
{
    int64_t every_us = poll_us(p) * PRICE_POLLS;
    if (p->price_call || (p->price_sent_us && now_us - p->price_sent_us < every_us)) return;
    struct cloud_call call = { .op = CLOUD_PRICES, .id = ++c->money.call_last };
    if (submit(c, p, &call, now_us) < 0) return;
    p->price_call = call.id;
    p->price_sent_us = now_us;
}

/* Makes the calls of this kind that are due and whose intent has none under way. */
static int submit_due(struct control *c, enum cloud_op op, int64_t now_us)
{
    for (uint32_t at = 0; at < c->money.count; at++) {
        const struct detail *d = &c->observed.detail[at];
        if (d->due != op || d->call) continue;
        int rc = control_call(c, at, op, now_us);
        if (rc == -ECANCELED) return rc;
    }
    return 0;
}

/* Gives up calls whose driver has not completed them. */
static void drop_overdue(struct control *c, int64_t now_us)
{
    for (uint32_t at = 0; at < c->money.count; at++) {
        struct detail *d = &c->observed.detail[at];
        if (!d->call || now_us - d->call_us < OVERDUE_US) continue;
        d->call = 0;
        d->answered_us = now_us;
        count_call(c, c->money.intent[at].provider, "any", "overdue");
        log_event(LOG_ERROR, "call_overdue", "id=%s provider=%s", c->money.intent[at].id,
                  c->money.intent[at].provider);
    }
    for (uint32_t k = 0; k < c->setup.cloud_count; k++) {
        struct provider *p = &c->observed.provider[k];
        if (p->list_call && now_us - p->list_sent_us >= OVERDUE_US) p->list_call = 0;
        if (p->price_call && now_us - p->price_sent_us >= OVERDUE_US) p->price_call = 0;
    }
}

static void age_prices(struct control *c, int64_t now_us)
{
    for (uint32_t o = 0; o < c->money.offer_count; o++)
        if (c->money.priced_us[o] && now_us - c->money.priced_us[o] > PRICE_STALE_US)
            c->money.offer[o].price_known = false;
}

int control_calls(struct control *c, int64_t now_us)
{
    owner_assert(&c->owner);
    int rc = take_events(c, now_us);
    if (rc < 0) return rc;
    drop_overdue(c, now_us);
    age_prices(c, now_us);
    for (uint32_t k = 0; k < c->setup.cloud_count; k++) {
        struct provider *p = &c->observed.provider[k];
        int64_t late_us = poll_us(p) * LATE_POLLS;
        if (!p->list_sent_us || listing_age_us(p, now_us) > late_us) submit_listing(c, p, now_us);
    }
    static const enum cloud_op order[] = { CLOUD_REMOVE, CLOUD_STOP, CLOUD_START, CLOUD_CREATE };
    for (size_t i = 0; i < COUNT_OF(order) && rc == 0; i++)
        rc = submit_due(c, order[i], now_us);
    for (uint32_t k = 0; rc == 0 && k < c->setup.cloud_count; k++) {
        struct provider *p = &c->observed.provider[k];
        if (has_news(p)) p->list_soon = c->urgent = true;
        int64_t every_us = p->list_soon ? share_us(p) : poll_us(p);
        bool due = listing_age_us(p, now_us) >= every_us;
        if (due && p->list_sent_us != now_us) submit_listing(c, p, now_us);
        submit_prices(c, p, now_us);
    }
    return rc < 0 ? rc : take_events(c, now_us);
}

void control_watch_clouds(struct control *c, void (*fn)(void *arg), void *arg)
{
    for (uint32_t k = 0; k < c->setup.cloud_count; k++) {
        const struct cloud *cl = &c->observed.provider[k].cloud;
        if (cl->driver->watch) cl->driver->watch(cl->ctx, fn, arg);
    }
}
