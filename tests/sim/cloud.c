/* cloud.c - makes cloud calls fail by chance, and machines come and go. */
#include "tests/sim/cloud.h"

#include "base/core/bits.h"
#include "tests/sim/world.h"

#include <stdio.h>
#include <stdlib.h>

#define PRICE_NONE -1.0

static const struct fake_instance *instance_at(const struct world *w, uint32_t index)
{
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->cloud.fake, &count);
    must(index < count);
    return &in[index];
}

bool cloud_runs(const struct world *w, uint32_t index)
{
    const struct fake_instance *in = instance_at(w, index);
    return in->removed_us == 0 && !in->dead;
}

double cloud_price(const struct world *w, const char *offer)
{
    for (uint32_t o = 0; o < SIM_OFFERS; o++)
        if (strcmp(w->cloud.offer[o].name, offer) == 0) return w->cloud.offer[o].price_h;
    return PRICE_NONE;
}

double cloud_machine_price(const struct world *w, uint32_t index)
{
    return cloud_price(w, instance_at(w, index)->offer);
}

/* ---- machines ---- */

static int64_t boot_us(struct world *w)
{
    int64_t us = 1 * SECOND + (int64_t)rng_below(&w->rng_cloud, 4 * SECOND);
    if (!faults_hit(w, FAULT_SLOW_BOOT, 0.3)) return us;
    bool never = rng_below(&w->rng_cloud, 4) == 0;
    return us + (never ? 100000 * SECOND : (int64_t)rng_below(&w->rng_cloud, 60 * SECOND));
}

/* Adds and removes machines as the provider did since the last call. */
static void follow(struct world *w)
{
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->cloud.fake, &count);
    for (uint32_t i = w->agent_count; i < count; i++) {
        double speed = 1;
        for (uint32_t o = 0; o < SIM_OFFERS; o++)
            if (strcmp(w->cloud.offer[o].name, in[i].offer) == 0) speed = w->cloud.speed[o];
        agent_made(w, i, in[i].intent, speed, w->time.now_us + boot_us(w));
        check_machine_made(w, i);
    }
    for (uint32_t i = 0; i < count; i++)
        if (in[i].removed_us || in[i].dead) agent_machine_gone(w, w->agent[i]);
    check_spend(w);
}

void cloud_machine_dies(struct world *w, uint32_t index)
{
    if (w->mutant == MUTANT_REMOVE_DOES_NOT) return;
    fake_cloud_kill(w->cloud.fake, index);
    follow(w);
}

static void taken_away(struct world *w, const struct event *e)
{
    struct cloud_node *n = &w->cloud;
    uint32_t index = (uint32_t)e->what;
    if (cloud_runs(w, index)) cloud_machine_dies(w, index);
    const char *handle = instance_at(w, index)->handle;
    for (uint32_t i = 0; i < n->notice_count; i++) {
        if (strcmp(n->notice[i].handle, handle) != 0) continue;
        n->notice[i] = n->notice[--n->notice_count];
        return;
    }
}

void cloud_gives_notice(struct world *w, uint32_t index, int64_t in_us)
{
    struct cloud_node *n = &w->cloud;
    if (n->notice_count == SIM_NOTICES_MAX) return;
    w->agent[index]->noticed = true;
    struct sim_notice *notice = &n->notice[n->notice_count++];
    notice->leaves_us = w->time.now_us + in_us;
    snprintf(notice->handle, sizeof notice->handle, "%s", instance_at(w, index)->handle);
    timeline_at(&w->time, w->time.now_us + in_us, taken_away, w, index);
}

/* ---- the driver ---- */

static bool no_call(struct world *w, double p)
{
    return faults_hit(w, FAULT_CLOUD_DOWN, p) || w->time.now_us < w->controller->short_until;
}

/* Fails the world if a controller that does not lead any more makes a call. */
static struct world *called(void *ctx)
{
    const struct sim_caller *k = ctx;
    struct world *w = k->w;
    const struct controller_node *n = &w->controllers[k->index];
    if (n != w->controller && !w->cloud.cutting)
        check_fail(w, CHECK_FENCED, "controller %u makes a call in another's term", k->index);
    return w;
}

struct late { /* a create that succeeds after its caller has given up */
    char intent[NAME_BYTES], service[NAME_BYTES], pool[NAME_BYTES];
    struct offer offer;
};

static void keep(char to[NAME_BYTES], struct str from)
{
    must(name_copy(to, NAME_BYTES, from) == 0);
}

static void late_success(struct world *w, const struct event *e)
{
    const struct late *l = e->payload;
    struct launch_spec spec = { .service = str_from(l->service), .pool = str_from(l->pool) };
    struct cloud_request req = { .intent = l->intent, .offer = &l->offer, .spec = &spec };
    struct listed made;
    enum offer_error class;
    fake_cloud_backend()->create(w->cloud.fake, &req, w->time.now_us, &made, &class, NULL);
    follow(w);
}

static int timed_out(enum offer_error *ret_class, struct err *err)
{
    if (ret_class) *ret_class = OFFER_TRANSIENT;
    return err_set(err, -ETIMEDOUT, "the call timed out");
}

static int refused(enum offer_error class, enum offer_error *ret_class, struct err *err)
{
    *ret_class = class;
    return err_set(err, -EBUSY, "%s", offer_error_names[class]);
}

static int create(void *ctx, const struct cloud_request *req, int64_t now_us, struct listed *ret,
                  enum offer_error *ret_class, struct err *err)
{
    struct world *w = called(ctx);
    (void)now_us; /* the caller's clock; the provider has one of its own */
    timeline_note(&w->time, "create", req->intent, 0);
    if (w->mutant == MUTANT_SOLD_OUT) return refused(OFFER_CAPACITY, ret_class, err);
    if (faults_hit(w, FAULT_STOCK_OUT, 0.2)) return refused(OFFER_CAPACITY, ret_class, err);
    if (faults_hit(w, FAULT_THROTTLE, 0.2)) return refused(OFFER_THROTTLE, ret_class, err);
    if (no_call(w, 0.1)) return timed_out(ret_class, err);
    if (faults_hit(w, FAULT_LATE_SUCCESS, 0.2)) {
        struct late *l = calloc(1, sizeof *l);
        must(l);
        keep(l->intent, str_from(req->intent));
        keep(l->service, req->spec->service);
        keep(l->pool, req->spec->pool);
        l->offer = *req->offer;
        int64_t in_us = (int64_t)rng_below(&w->rng_cloud, 20 * SECOND);
        timeline_carry(&w->time, w->time.now_us + in_us, late_success, w, 0, l);
        return timed_out(ret_class, err);
    }
    int rc = fake_cloud_backend()->create(w->cloud.fake, req, w->time.now_us, ret, ret_class, err);
    follow(w);
    if (rc == 0 && faults_hit(w, FAULT_LOST_REPLY, 0.2)) return timed_out(ret_class, err);
    return rc;
}

/* Adds the notices to a listing; their times are of the controller's clock. */
static void put_notices(struct world *w, struct listed *item, uint32_t count)
{
    int64_t ahead_us = controller_now_us(w) - w->time.now_us;
    for (uint32_t n = 0; n < w->cloud.notice_count; n++)
        for (uint32_t i = 0; i < count; i++)
            if (strcmp(item[i].handle, w->cloud.notice[n].handle) == 0)
                item[i].leaves_us = w->cloud.notice[n].leaves_us + ahead_us;
}

static int list(void *ctx, int64_t now_us, struct listed *ret, uint32_t max, uint32_t *ret_count,
                struct err *err)
{
    struct world *w = called(ctx);
    (void)now_us; /* the caller's clock; the provider has one of its own */
    if (no_call(w, 0.1)) return timed_out(NULL, err);
    int rc = fake_cloud_backend()->list(w->cloud.fake, w->time.now_us, ret, max, ret_count, err);
    if (rc == 0 && w->time.now_us < w->cloud.list_empty_us) *ret_count = 0;
    if (rc == 0) put_notices(w, ret, *ret_count);
    return rc;
}

/* Judges a removal, once, while the controller knows what it decided on: a slow call is judged when it is
 * submitted, any other when it is made. */
static void judge_removal(struct world *w, const char *handle, const char *intent)
{
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->cloud.fake, &count);
    for (uint32_t i = 0; i < count; i++) {
        bool mine =
            handle[0] ? strcmp(in[i].handle, handle) == 0 : strcmp(in[i].intent, intent) == 0;
        if (!mine || !cloud_runs(w, i) || w->agent[i]->judged) continue;
        check_removal(w, w->agent[i]);
        reasons_removal(w, w->agent[i]);
    }
}

static void judge_late_removal(struct world *w, const struct cloud_call *call)
{
    uint32_t count;
    const struct fake_instance *in = fake_cloud_instances(w->cloud.fake, &count);
    judge_removal(w, call->handle, call->intent);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(in[i].intent, call->intent) == 0) w->agent[i]->judged = true;
}

static int remove_instance(void *ctx, const char *handle, const char *intent, int64_t now_us,
                           struct err *err)
{
    struct world *w = called(ctx);
    (void)now_us; /* the caller's clock; the provider has one of its own */
    timeline_note(&w->time, "remove", intent, 0);
    if (w->mutant == MUTANT_REMOVE_DOES_NOT) return 0;
    if (no_call(w, 0.2)) return timed_out(NULL, err);
    judge_removal(w, handle, intent);
    int rc = fake_cloud_backend()->remove(w->cloud.fake, handle, intent, w->time.now_us, err);
    follow(w);
    if (rc == 0 && faults_hit(w, FAULT_LOST_REPLY, 0.2)) return timed_out(NULL, err);
    return rc;
}

static int offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err)
{
    struct world *w = ((struct sim_caller *)ctx)->w;
    return fake_cloud_backend()->offers(w->cloud.fake, ret, max, ret_count, err);
}

static int prices(void *ctx, int64_t now_us, struct cloud_price *ret, uint32_t max,
                  uint32_t *ret_count, struct err *err)
{
    struct world *w = called(ctx);
    int rc = fake_cloud_backend()->prices(w->cloud.fake, now_us, ret, max, ret_count, err);
    bool unknown = w->time.now_us < w->cloud.price_unknown_us;
    for (uint32_t i = 0; rc == 0 && unknown && i < *ret_count; i++) {
        ret[i].known = w->mutant == MUTANT_FREE_PRICE;
        ret[i].price_h = 0;
    }
    return rc;
}

/* Returns how long a call takes. */
static int64_t latency(void *ctx, const struct cloud_call *call)
{
    struct world *w = ((struct sim_caller *)ctx)->w;
    if (!faults_hit(w, FAULT_SLOW_CLOUD, 0.5)) return 0;
    if (call->op == CLOUD_REMOVE) judge_late_removal(w, call);
    return (int64_t)rng_below(&w->rng_cloud, SIM_CALL_US);
}

void cloud_cut(struct world *w, const struct controller_node *n)
{
    bool slow = w->faults.on[FAULT_SLOW_CLOUD]; /* otherwise no call is under way */
    w->cloud.cutting = true;
    cloud_delay_cut(w->cloud.caller[n->index].delay, slow && rng_below(&w->rng_cloud, 2) == 0,
                    w->time.now_us);
    w->cloud.cutting = false;
}

static int fence(void *ctx, uint64_t epoch, uint64_t *ret_seen, struct err *err)
{
    struct world *w = ((struct sim_caller *)ctx)->w;
    if (w->mutant == MUTANT_UNFENCED || w->cloud.cutting) return 0;
    return fake_cloud_backend()->fence(w->cloud.fake, epoch, ret_seen, err);
}

static void close_nothing(void *ctx)
{
    (void)ctx;
}

static const struct cloud_backend backend = {
    .name = "sim",
    .about = "the scripted cloud with faults by chance",
    .close = close_nothing,
    .offers = offers,
    .create = create,
    .list = list,
    .remove = remove_instance,
    .prices = prices,
    .fence = fence,
};

struct cloud cloud_outer(struct world *w, const struct controller_node *n)
{
    const struct cloud_node *c = &w->cloud;
    const struct cloud pace = { .lag_us = c->lag_us,
                                .poll_us = c->poll_us,
                                .calls_per_s = c->calls_per_s,
                                .fence = w->controller_count > 1 ? &n->fence : NULL };
    return cloud_delay_cloud(c->caller[n->index].delay, &pace);
}

void cloud_begin(struct world *w)
{
    static const struct {
        const char *name;
        double price, speed;
    } rows[SIM_OFFERS] = { { "s1", 1.0, 1 }, { "s2", 1.2, 1 }, { "l1", 1.9, 2 } };
    struct cloud_node *n = &w->cloud;
    for (uint32_t o = 0; o < SIM_OFFERS; o++) {
        n->offer[o] = (struct offer){ .price_h = rows[o].price,
                                      .price_known = true,
                                      .lead_s = 5,
                                      .seqs_max = ENGINE_SEQS_MAX,
                                      .has_prior = true,
                                      .prior = { .step_s = 0.01 / rows[o].speed,
                                                 .prefill_token_s = 0.0005 / rows[o].speed,
                                                 .decode_seq_s = 0.001 / rows[o].speed } };
        n->speed[o] = rows[o].speed;
        keep(n->offer[o].name, str_from(rows[o].name));
        keep(n->offer[o].provider, STR("sim"));
    }
    if (w->faults.on[FAULT_LISTING_LAG]) n->lag_us = (int64_t)rng_below(&w->rng_cloud, 8) * SECOND;
    struct fake_config config = { .lag_us = n->lag_us, .keyless = w->mutant == MUTANT_KEYLESS };
    must(fake_cloud_new(&config, n->offer, SIM_OFFERS, &n->fake) == 0);
    for (uint32_t i = 0; i < w->controller_count; i++) {
        struct sim_caller *k = &n->caller[i];
        k->w = w;
        k->index = i;
        must(cloud_delay_new(&backend, k, latency, &k->delay) == 0);
    }
    if (!w->faults.on[FAULT_SLOW_CLOUD]) return;
    n->poll_us = (int64_t)rng_below(&w->rng_cloud, 6) * SECOND;
    n->calls_per_s = 0.5 + (double)rng_below(&w->rng_cloud, 4);
}

void cloud_end(struct world *w)
{
    for (uint32_t i = 0; i < w->controller_count; i++)
        cloud_delay_free(w->cloud.caller[i].delay);
    fake_cloud_free(w->cloud.fake);
}
