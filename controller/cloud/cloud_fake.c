/* cloud_fake.c - plays a provider by a script, and delays a backend's calls by scripted latencies.
 *
 * The fake cloud keeps every instance for ever with the times of its making and its end, so that it can
 * list the fleet of any moment, as a lagging listing does. */

#include "controller/cloud/cloud_fake.h"

#include "base/core/bits.h"
#include "controller/cloud/cloud_call.h"
#include "controller/core/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cloud_delay {
    const struct cloud_backend *backend;
    void *ctx;
    cloud_latency_fn latency;
    struct cloud_driver driver;
    const struct cloud_fence *fence; /* its time is that of the calls */
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
    if (!cloud_fence_holds(d->fence, call->epoch, now_us)) {
        cloud_refuse(call->op, call->id, &d->done[d->done_count++]);
        return 0;
    }
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
    const struct cloud_kept *k = &first.kept;
    memmove(d->late, d->late + 1, --d->late_count * sizeof *d->late);
    if (cloud_fence_holds(d->fence, k->epoch, now_us))
        cloud_perform_kept(d->backend, d->ctx, k, min_i64(first.end_us, now_us), d->room, ret);
    else
        cloud_refuse(k->op, k->id, ret);
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
    const struct cloud_fence *fence = d->fence;
    d->done_count = 0;
    d->fence = NULL; /* the provider has these calls already */
    while (made && d->late_count > 0)
        make_first(d, now_us, &d->done[0]);
    d->fence = fence;
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
    d->fence = pace->fence;
    c.driver = &d->driver;
    c.ctx = d;
    return c;
}

struct fake_cloud {
    struct fake_config config;
    uint64_t epoch; /* the highest that a call had */
    struct offer offer[PLAN_OFFERS_MAX];
    uint32_t offer_count;
    struct fake_instance instance[FAKE_INSTANCES_MAX];
    uint32_t count;
    uint32_t asked[FAKE_OP_COUNT];        /* calls submitted */
    uint32_t calls[FAKE_OP_COUNT];        /* and made */
    uint32_t step_calls[FAKE_SCRIPT_MAX]; /* calls that a step with an offer has seen */
    struct cloud_delay *delay;
};

static const struct cloud_backend backend;

static int64_t latency(void *ctx, const struct cloud_call *call)
{
    static const enum fake_op ops[CLOUD_OP_COUNT] = {
        [CLOUD_CREATE] = FAKE_CREATE, [CLOUD_REMOVE] = FAKE_REMOVE, [CLOUD_STOP] = FAKE_STOP,
        [CLOUD_START] = FAKE_START,   [CLOUD_LIST] = FAKE_LIST,     [CLOUD_PRICES] = FAKE_PRICES
    };
    struct fake_cloud *f = ctx;
    uint32_t nth = ++f->asked[ops[call->op]];
    for (uint32_t i = 0; i < f->config.slow_count; i++) {
        const struct fake_slow *s = &f->config.slow[i];
        if (s->op == ops[call->op] && (s->nth == 0 || s->nth == nth)) return s->latency_us;
    }
    return 0;
}

int fake_cloud_new(const struct fake_config *config, const struct offer *fake_offers,
                   uint32_t offer_count, struct fake_cloud **ret)
{
    if (offer_count > PLAN_OFFERS_MAX) return -E2BIG;
    struct fake_cloud *f = calloc(1, sizeof *f);
    if (!f) return -ENOMEM;
    f->config = *config;
    memcpy(f->offer, fake_offers, offer_count * sizeof *fake_offers);
    f->offer_count = offer_count;
    if (cloud_delay_new(&backend, f, latency, &f->delay) < 0) {
        free(f);
        return -ENOMEM;
    }
    *ret = f;
    return 0;
}

void fake_cloud_free(struct fake_cloud *f)
{
    if (!f) return;
    cloud_delay_free(f->delay);
    free(f);
}

void fake_cloud_turn(struct fake_cloud *f, int64_t now_us)
{
    for (uint32_t m = 0; m < f->config.market_count; m++) {
        const struct fake_market *k = &f->config.market[m];
        if (!k->takes || now_us < k->at_us - k->notice_us) continue;
        for (uint32_t i = 0; i < f->count; i++) {
            struct fake_instance *in = &f->instance[i];
            bool there = strcmp(in->offer, k->offer) == 0 && in->removed_us == 0 && !in->dead;
            if (!there || in->made_us >= k->at_us - k->notice_us) continue; /* sold since */
            if (k->notice_us > 0) in->leaves_us = k->at_us;
            in->dead = now_us >= k->at_us;
        }
    }
}

/* Counts the call and returns the script's fault for it. */
static struct fake_step next_step(struct fake_cloud *f, enum fake_op op, const char *offer)
{
    uint32_t call = ++f->calls[op];
    struct fake_step found = { .fault = FAKE_FINE };
    for (uint32_t i = 0; i < f->config.step_count; i++) {
        const struct fake_step *s = &f->config.script[i];
        if (s->op != op) continue;
        uint32_t at = call;
        if (s->offer) {
            if (!offer || strcmp(offer, s->offer) != 0) continue;
            at = ++f->step_calls[i];
        }
        if (s->nth == 0 || s->nth == at) found = *s;
    }
    return found;
}

static bool exists(const struct fake_instance *in, int64_t at_us)
{
    return in->made_us <= at_us && (in->removed_us == 0 || in->removed_us > at_us);
}

static void fill_listed(const struct fake_instance *in, struct listed *ret)
{
    *ret = (struct listed){ .created_us = in->made_us,
                            .leaves_us = in->leaves_us,
                            .gone = in->dead || in->stopped,
                            .stopped = in->stopped };
    memcpy(ret->handle, in->handle, sizeof ret->handle);
    memcpy(ret->intent, in->intent, sizeof ret->intent);
    memcpy(ret->service, in->service, sizeof ret->service);
    memcpy(ret->pool, in->pool, sizeof ret->pool);
    memcpy(ret->offer, in->offer, sizeof ret->offer);
    /* Two nodes, taken in turn. */
    snprintf(ret->node, sizeof ret->node, "node-%d", in->handle[strlen(in->handle) - 1] & 1);
}

static struct fake_instance *find_key(struct fake_cloud *f, const char *intent)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (strcmp(f->instance[i].intent, intent) == 0) return &f->instance[i];
    return NULL;
}

static struct fake_instance *make(struct fake_cloud *f, const char *intent, const char *service,
                                  const char *pool, const char *offer, int64_t made_us)
{
    must(f->count < FAKE_INSTANCES_MAX);
    struct fake_instance *in = &f->instance[f->count];
    snprintf(in->handle, sizeof in->handle, "fake-%u", f->count++);
    snprintf(in->intent, sizeof in->intent, "%s", intent);
    snprintf(in->service, sizeof in->service, "%s", service);
    snprintf(in->pool, sizeof in->pool, "%s", pool);
    snprintf(in->offer, sizeof in->offer, "%s", offer);
    in->made_us = made_us;
    in->ready_us = made_us + f->config.boot_us;
    return in;
}

static const struct {
    enum offer_error class;
    const char *text;
} refusals[FAKE_FAULT_COUNT] = {
    [FAKE_STOCK_OUT] = { OFFER_CAPACITY, "no capacity for this type here" },
    [FAKE_QUOTA] = { OFFER_QUOTA, "the account's limit is reached" },
    [FAKE_THROTTLE] = { OFFER_THROTTLE, "too many calls, slow down" },
    [FAKE_AUTH] = { OFFER_AUTH, "the credentials are not accepted" },
    [FAKE_INVALID] = { OFFER_INVALID, "a parameter is not understood" },
    [FAKE_LOST_REPLY] = { OFFER_TRANSIENT, "the call timed out" },
    [FAKE_LATE_SUCCESS] = { OFFER_TRANSIENT, "the call timed out" },
    [FAKE_DOWN] = { OFFER_TRANSIENT, "the call timed out" },
};

static int refuse(enum fake_fault fault, enum offer_error *ret_class, struct err *err)
{
    if (ret_class) *ret_class = refusals[fault].class;
    return err_set(err, refusals[fault].class == OFFER_TRANSIENT ? -ETIMEDOUT : -EBUSY, "%s",
                   refusals[fault].text);
}

static int create(void *ctx, const struct cloud_request *req, int64_t now_us, struct listed *ret,
                  enum offer_error *ret_class, struct err *err)
{
    struct fake_cloud *f = ctx;
    struct fake_step step = next_step(f, FAKE_CREATE, req->offer->name);
    bool done = step.fault == FAKE_FINE || step.fault == FAKE_LOST_REPLY ||
                step.fault == FAKE_LATE_SUCCESS || step.fault == FAKE_SLOW_BOOT;
    if (!done) return refuse(step.fault, ret_class, err);

    struct fake_instance *in = f->config.keyless ? NULL : find_key(f, req->intent);
    if (in && in->removed_us) {
        *ret_class = OFFER_INVALID;
        return err_set(err, -EEXIST, "the key %s was used for an instance that is gone",
                       req->intent);
    }
    if (!in) {
        char service[NAME_BYTES], pool[NAME_BYTES];
        must(name_copy(service, sizeof service, req->spec->service) == 0);
        must(name_copy(pool, sizeof pool, req->spec->pool) == 0);
        in = make(f, req->intent, service, pool, req->offer->name, now_us);
        if (step.fault == FAKE_LATE_SUCCESS) in->made_us += step.delay_us;
        in->ready_us = in->made_us + f->config.boot_us;
        if (step.fault == FAKE_SLOW_BOOT) in->ready_us += step.delay_us;
    }
    if (step.fault == FAKE_LOST_REPLY || step.fault == FAKE_LATE_SUCCESS)
        return refuse(step.fault, ret_class, err);
    fill_listed(in, ret);
    return 0;
}

static int list(void *ctx, int64_t now_us, struct listed *ret, uint32_t max, uint32_t *ret_count,
                struct err *err)
{
    struct fake_cloud *f = ctx;
    fake_cloud_turn(f, now_us);
    struct fake_step step = next_step(f, FAKE_LIST, NULL);
    if (step.fault != FAKE_FINE) return refuse(step.fault, NULL, err);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        if (!exists(&f->instance[i], now_us - f->config.lag_us)) continue;
        if (n == max) return err_set(err, -E2BIG, "more than %u instances", max);
        fill_listed(&f->instance[i], &ret[n++]);
    }
    *ret_count = n;
    return 0;
}

static int remove_instance(void *ctx, const char *handle, const char *intent, int64_t now_us,
                           struct err *err)
{
    struct fake_cloud *f = ctx;
    struct fake_step step = next_step(f, FAKE_REMOVE, NULL);
    bool done = step.fault == FAKE_FINE || step.fault == FAKE_LOST_REPLY;
    if (!done) return refuse(step.fault, NULL, err);
    for (uint32_t i = 0; i < f->count; i++) {
        struct fake_instance *in = &f->instance[i];
        bool mine = handle[0] ? strcmp(in->handle, handle) == 0 : strcmp(in->intent, intent) == 0;
        /* A provider cannot remove an instance before it is made: a late success survives this. */
        if (mine && in->made_us <= now_us && in->removed_us == 0) in->removed_us = now_us;
    }
    return step.fault == FAKE_LOST_REPLY ? refuse(step.fault, NULL, err) : 0;
}

static int turn(void *ctx, const char *handle, const char *intent, bool on, int64_t now_us,
                enum offer_error *ret_class, struct err *err)
{
    struct fake_cloud *f = ctx;
    struct fake_step step = next_step(f, on ? FAKE_START : FAKE_STOP, NULL);
    bool done = step.fault == FAKE_FINE || step.fault == FAKE_LOST_REPLY;
    (void)intent;
    if (!done) return refuse(step.fault, ret_class, err);
    for (uint32_t i = 0; i < f->count; i++) {
        struct fake_instance *in = &f->instance[i];
        if (strcmp(in->handle, handle) != 0 || !exists(in, now_us) || in->dead) continue;
        if (on && in->stopped) {
            in->starts++;
            in->ready_us = now_us + f->config.boot_us;
        }
        in->stopped = !on;
        return step.fault == FAKE_LOST_REPLY ? refuse(step.fault, ret_class, err) : 0;
    }
    return refuse(FAKE_INVALID, ret_class, err);
}

static int fake_offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count,
                       struct err *err)
{
    struct fake_cloud *f = ctx;
    if (f->offer_count > max) return err_set(err, -E2BIG, "more than %u offers", max);
    memcpy(ret, f->offer, f->offer_count * sizeof *ret);
    *ret_count = f->offer_count;
    return 0;
}

/* Fills each offer's price from the last market entry that is due; an unknown price stays unknown. */
static int prices(void *ctx, int64_t now_us, struct cloud_price *ret, uint32_t max,
                  uint32_t *ret_count, struct err *err)
{
    struct fake_cloud *f = ctx;
    struct fake_step step = next_step(f, FAKE_PRICES, NULL);
    if (step.fault != FAKE_FINE) return refuse(step.fault, NULL, err);
    must(f->offer_count <= max);
    for (uint32_t i = 0; i < f->offer_count; i++) {
        const struct offer *o = &f->offer[i];
        ret[i] = (struct cloud_price){ .known = o->price_known, .price_h = o->price_h };
        memcpy(ret[i].offer, o->name, sizeof ret[i].offer);
        for (uint32_t m = 0; m < f->config.market_count; m++) {
            const struct fake_market *k = &f->config.market[m];
            if (k->takes || now_us < k->at_us || strcmp(k->offer, o->name) != 0) continue;
            ret[i].price_h = k->price_h;
        }
    }
    *ret_count = f->offer_count;
    return 0;
}

static int fence(void *ctx, uint64_t epoch, uint64_t *ret_seen, struct err *err)
{
    struct fake_cloud *f = ctx;
    if (epoch >= f->epoch) {
        f->epoch = epoch;
        return 0;
    }
    *ret_seen = f->epoch;
    return err_set(err, -EKEYREVOKED, "a call of a later term was made");
}

static const struct cloud_backend backend = {
    .name = "fake",
    .about = "a scripted cloud in memory, for tests",
    .close = close_nothing,
    .offers = fake_offers,
    .create = create,
    .list = list,
    .remove = remove_instance,
    .turn = turn,
    .prices = prices,
    .fence = fence,
};

struct cloud fake_cloud(struct fake_cloud *f)
{
    const struct cloud pace = { .lag_us = f->config.lag_us,
                                .poll_us = f->config.poll_us,
                                .calls_per_s = f->config.calls_per_s,
                                .fence = f->config.fence };
    return cloud_delay_cloud(f->delay, &pace);
}

const struct cloud_backend *fake_cloud_backend(void)
{
    return &backend;
}

void fake_cloud_cut(struct fake_cloud *f, int64_t now_us)
{
    cloud_delay_cut(f->delay, true, now_us);
}

uint32_t fake_cloud_under_way(const struct fake_cloud *f)
{
    return cloud_delay_under_way(f->delay);
}

const struct fake_instance *fake_cloud_instances(const struct fake_cloud *f, uint32_t *ret_count)
{
    *ret_count = f->count;
    return f->instance;
}

uint32_t fake_cloud_running(const struct fake_cloud *f, int64_t now_us)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->count; i++)
        n += exists(&f->instance[i], now_us) && !f->instance[i].dead;
    return n;
}

uint32_t fake_cloud_calls(const struct fake_cloud *f, enum fake_op op)
{
    return f->calls[op];
}

void fake_cloud_kill(struct fake_cloud *f, uint32_t index)
{
    must(index < f->count);
    f->instance[index].dead = true;
}

void fake_cloud_plant(struct fake_cloud *f, const char *intent, const char *service,
                      const char *pool, const char *offer, int64_t now_us)
{
    make(f, intent, service, pool, offer, now_us);
}
