/* cloud_fake.c - the scripted cloud.
 *
 * It keeps every instance for ever with the times of its making and its end, so that a listing of
 * any moment can be answered, which is what a lagging listing is. */
#include "controller/cloud/cloud_fake.h"

#include "base/core/bits.h"
#include "controller/core/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_cloud {
    struct fake_config config;
    struct offer offer[PLAN_OFFERS_MAX];
    uint32_t offer_count;
    struct fake_instance instance[FAKE_INSTANCES_MAX];
    uint32_t count;
    uint32_t calls[FAKE_OP_COUNT];
    uint32_t step_calls[FAKE_SCRIPT_MAX]; /* calls that a step with an offer has seen */
};

int fake_cloud_new(const struct fake_config *config, const struct offer *offers,
                   uint32_t offer_count, struct fake_cloud **ret)
{
    if (offer_count > PLAN_OFFERS_MAX) return -E2BIG;
    struct fake_cloud *f = calloc(1, sizeof *f);
    if (!f) return -ENOMEM;
    f->config = *config;
    memcpy(f->offer, offers, offer_count * sizeof *offers);
    f->offer_count = offer_count;
    *ret = f;
    return 0;
}

void fake_cloud_free(struct fake_cloud *f)
{
    free(f);
}

/* The fault that the script has for this call. */
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
    *ret = (struct listed){ .created_us = in->made_us, .gone = in->dead };
    memcpy(ret->handle, in->handle, sizeof ret->handle);
    memcpy(ret->intent, in->intent, sizeof ret->intent);
    memcpy(ret->service, in->service, sizeof ret->service);
    memcpy(ret->pool, in->pool, sizeof ret->pool);
    memcpy(ret->offer, in->offer, sizeof ret->offer);
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

static int get(void *ctx, const char *intent, int64_t now_us, struct listed *ret, struct err *err)
{
    struct fake_cloud *f = ctx;
    struct fake_instance *in = find_key(f, intent);
    if (!in || !exists(in, now_us)) return err_set(err, -ENOENT, "no instance of %s", intent);
    fill_listed(in, ret);
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
        /* A provider cannot remove what it has not made yet: late success survives this. */
        if (mine && in->made_us <= now_us && in->removed_us == 0) in->removed_us = now_us;
    }
    return step.fault == FAKE_LOST_REPLY ? refuse(step.fault, NULL, err) : 0;
}

static int offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err)
{
    struct fake_cloud *f = ctx;
    if (f->offer_count > max) return err_set(err, -E2BIG, "more than %u offers", max);
    memcpy(ret, f->offer, f->offer_count * sizeof *ret);
    *ret_count = f->offer_count;
    return 0;
}

static int price(void *ctx, const char *offer, int64_t now_us, double *ret_price_h,
                 int64_t *ret_age_us, struct err *err)
{
    struct fake_cloud *f = ctx;
    (void)now_us;
    for (uint32_t i = 0; i < f->offer_count; i++) {
        if (strcmp(f->offer[i].name, offer) != 0 || !f->offer[i].price_known) continue;
        *ret_price_h = f->offer[i].price_h;
        *ret_age_us = 0;
        return 0;
    }
    return err_set(err, -ENOENT, "no price of %s", offer);
}

static void close_nothing(void *ctx)
{
    (void)ctx;
}

static const struct cloud_driver driver = {
    .name = "fake",
    .about = "a scripted cloud in memory, for tests",
    .close = close_nothing,
    .offers = offers,
    .create = create,
    .get = get,
    .list = list,
    .remove = remove_instance,
    .price = price,
};

struct cloud fake_cloud(struct fake_cloud *f)
{
    return (struct cloud){ &driver, f, f->config.lag_us };
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
