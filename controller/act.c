/* act.c - the only place where intents change and providers are called.
 *
 * Each change goes: a copy takes the event, the copy is written, the copy becomes the intent, the
 * call is made, its answer is another event. A crash between any two of these is repaired by what
 * the next start observes; control_steps names the places, and the tests stop at each.
 *
 *     launch.decided   nothing is written
 *     launch.written   WANTED is durable, no call was made
 *     create.written   CREATING is durable, the call is next
 *     create.called    the provider has answered, nobody wrote it down
 *     create.recorded  CREATED (or ENDED, when refused) is durable
 *     register.recorded, drain.recorded
 *     end.written      ENDING is durable, the remove call is next
 *     end.called       the provider has answered
 *     end.recorded     ENDED is durable */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/credentials.h"
#include "base/io/log.h"
#include "controller/control_state.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const control_steps[] = {
    "launch.decided",    "launch.written", "create.written", "create.called", "create.recorded",
    "register.recorded", "drain.recorded", "end.written",    "end.called",    "end.recorded",
};
const uint32_t control_step_count = COUNT_OF(control_steps);

/* A named moment between two durable or outward effects. -ECANCELED when a test wants the process
 * dead here; with crash_at it is. */
static int step_at(struct control *c, const char *name)
{
    const char *crash = c->setup.crash_at;
    if (crash && strcmp(crash, name) == 0) kill(getpid(), SIGKILL);
    return FAULT(name) ? -ECANCELED : 0;
}

static void count_call(struct control *c, const char *provider, const char *call,
                       const char *result)
{
    struct str labels[3] = { str_from(provider), str_from(call), str_from(result) };
    metric_inc(metric_series(c->metrics, CONTROL_M_CALLS, labels));
}

/* ---- durable first ---- */

static int intent_key(const struct intent *i, char ret[64])
{
    return snprintf(ret, 64, "intent/%s", i->id);
}

/* Writes `i` over the version it was read at; brings i->version up to date. */
static int store_intent(struct control *c, struct intent *i)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char key[64];
    struct err err = { 0 };
    intent_key(i, key);
    int rc = intent_encode(i, &text);
    uint64_t version = 0;
    if (rc == 0)
        rc = store_put_if(c->setup.store, str_from(key), buf_view(&text),
                          i->version ? i->version : STORE_ABSENT, &version, &err);
    if (rc < 0) {
        control_store_failed(c, "intent_not_written", i->id, err_text(&err, rc));
        return rc;
    }
    i->version = version;
    return 0;
}

/* The step behind a record of this state. */
static const char *recorded_step(enum intent_state s)
{
    static const char *const names[INTENT_STATE_COUNT] = {
        [INTENT_CREATED] = "create.recorded",
        [INTENT_REGISTERED] = "register.recorded",
        [INTENT_DRAINING] = "drain.recorded",
        [INTENT_ENDED] = "end.recorded",
    };
    return names[s];
}

static int call_create(struct control *c, uint32_t at, int64_t now_us);
static int call_remove(struct control *c, uint32_t at, int64_t now_us);

static void log_change(const struct intent *i, enum intent_state before)
{
    if (i->state == before) return;
    log_event(LOG_INFO, "intent", "id=%s service=%s pool=%s offer=%s from=%s to=%s why=%s", i->id,
              i->service, i->pool, i->offer, intent_state_names[before],
              intent_state_names[i->state], i->why);
}

int control_apply(struct control *c, uint32_t at, enum intent_event e, const char *why,
                  const char *handle, int64_t now_us)
{
    if (c->intent[at].aside) return 0; /* nothing may be written over its record */
    struct intent copy = c->intent[at];
    enum intent_state before = copy.state;
    enum intent_action action = intent_step(&copy, e, why, now_us);
    bool learned = handle && handle[0] && !copy.handle[0];
    if (learned && name_copy(copy.handle, sizeof copy.handle, str_from(handle)) < 0)
        learned = false;
    if (copy.state == before && action == INTENT_NOTHING && !learned) return 0;

    int rc = store_intent(c, &copy);
    if (rc < 0) return rc;
    c->intent[at] = copy;
    log_change(&copy, before);
    c->urgent |= copy.state != before;

    const char *step = copy.state == before ? NULL : recorded_step(copy.state);
    if (step && (rc = step_at(c, step)) < 0) return rc;
    if (action == INTENT_CALL_CREATE) return call_create(c, at, now_us);
    if (action == INTENT_CALL_REMOVE) return call_remove(c, at, now_us);
    return 0;
}

/* ---- calls ---- */

/* The document for the instance, from its service and pool. -ENOENT: not configured any more. */
static int fill_spec(struct control *c, const struct intent *i, const struct detail *d,
                     struct launch_spec *ret)
{
    if (d->service == PLAN_NONE || d->pool == PLAN_NONE) return -ENOENT;
    const struct control_setup *s = &c->setup;
    const struct control_launch *l = &s->launch[d->service][d->pool];
    *ret = (struct launch_spec){ .instance = str_from(i->id),
                                 .service = str_from(i->service),
                                 .pool = str_from(i->pool),
                                 .offer = str_from(i->offer),
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
                                 .grace_ms = s->grace_ms,
                                 .age_ms = s->age_ms,
                                 .drain_ms = s->drain_ms };
    return 0;
}

static int call_create(struct control *c, uint32_t at, int64_t now_us)
{
    int rc = step_at(c, "create.written");
    if (rc < 0) return rc;
    const struct intent *i = &c->intent[at];
    uint32_t cloud = control_find_cloud(c, i->provider);
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    struct launch_spec spec;
    if (cloud == PLAN_NONE || offer == PLAN_NONE || fill_spec(c, i, &c->detail[at], &spec) < 0)
        return control_apply(c, at, INTENT_END, "its offer is not configured any more", NULL,
                             now_us);

    CLEANUP(buf_fini) struct buf key = { 0 };
    if (c->setup.secret.len > 0)
        rc = credentials_print_instance(c->setup.secret, str_from(i->id), &key);
    if (rc < 0) return rc; /* no memory: the intent stands and the call is made later */
    struct cloud_request req = {
        .intent = i->id, .offer = &c->offer[offer], .spec = &spec, .key = buf_view(&key)
    };
    struct listed made = { 0 };
    enum offer_error class = OFFER_OK;
    struct err err = { 0 };
    struct cloud *cl = &c->cloud[cloud];
    rc = cl->driver->create(cl->ctx, &req, now_us, &made, &class, &err);
    if (rc == 0) class = OFFER_OK;
    int stop = step_at(c, "create.called");
    if (stop < 0) return stop;

    count_call(c, i->provider, "create", offer_error_names[class]);
    offer_answered(&c->health[offer], class, err.text, now_us);
    if (rc == 0) return control_apply(c, at, INTENT_MADE, NULL, made.handle, now_us);
    log_event(LOG_WARN, "create_failed", "id=%s offer=%s class=%s error=%s", i->id, i->offer,
              offer_error_names[class], err_text(&err, rc));
    char why[INTENT_WHY_BYTES];
    snprintf(why, sizeof why, "%s: %s", offer_error_names[class], err_text(&err, rc));
    return control_apply(c, at, class == OFFER_TRANSIENT ? INTENT_UNSURE : INTENT_REFUSED, why,
                         NULL, now_us);
}

static int call_remove(struct control *c, uint32_t at, int64_t now_us)
{
    int rc = step_at(c, "end.written");
    if (rc < 0) return rc;
    const struct intent *i = &c->intent[at];
    uint32_t cloud = control_find_cloud(c, i->provider);
    if (cloud == PLAN_NONE) {
        log_event(LOG_ERROR, "remove_impossible", "id=%s provider=%s", i->id, i->provider);
        return 0; /* tried again when somebody configures the provider */
    }
    struct err err = { 0 };
    struct cloud *cl = &c->cloud[cloud];
    rc = cl->driver->remove(cl->ctx, i->handle, i->id, now_us, &err);
    int stop = step_at(c, "end.called");
    if (stop < 0) return stop;
    count_call(c, i->provider, "remove", rc < 0 ? "failed" : "ok");
    if (rc < 0) log_event(LOG_WARN, "remove_failed", "id=%s error=%s", i->id, err_text(&err, rc));
    return 0; /* the listing tells whether it is gone; until then it is asked again */
}

/* ---- new intents ---- */

static void new_id(struct control *c, char ret[INTENT_ID_BYTES])
{
    do {
        snprintf(ret, INTENT_ID_BYTES, "i-%012llx",
                 (unsigned long long)(rng_u64(&c->rng) & 0xffffffffffffULL));
    } while (control_find(c, ret) != UINT32_MAX);
}

/* Stores `i` as a new intent and gives it a slot. */
static int add_intent(struct control *c, struct intent *i, uint32_t service, uint32_t pool,
                      int64_t now_us, uint32_t *ret_at)
{
    if (c->count == SLOTS_MAX) {
        control_bound_reached(c, "intents");
        return -ENOSPC;
    }
    int rc = store_intent(c, i);
    if (rc < 0) return rc;
    uint32_t at = c->count++;
    c->intent[at] = *i;
    c->seen[at] = (struct sighting){ 0 };
    c->detail[at] = (struct detail){ .service = service, .pool = pool, .phase_us = now_us };
    control_first_role(c, at);
    *ret_at = at;
    return 0;
}

int control_launch_one(struct control *c, const struct plan_action *a, int64_t now_us,
                       char ret_id[INTENT_ID_BYTES])
{
    int rc = step_at(c, "launch.decided");
    if (rc < 0) return rc;
    const struct plan_service *s = &c->service[a->service];
    const struct offer *o = &c->offer[a->offer];
    struct intent i = { .state = INTENT_WANTED,
                        .price_h = o->price_h,
                        .age_limit_us = (int64_t)c->setup.age_ms * 1000,
                        .wanted_us = now_us,
                        .state_us = now_us };
    new_id(c, i.id);
    memcpy(i.service, s->name, sizeof i.service);
    memcpy(i.pool, s->pool[a->pool].name, sizeof i.pool);
    memcpy(i.provider, o->provider, sizeof i.provider);
    memcpy(i.offer, o->name, sizeof i.offer);
    snprintf(i.why, sizeof i.why, "%s", a->why);

    uint32_t at;
    rc = add_intent(c, &i, a->service, a->pool, now_us, &at);
    if (rc < 0) return rc;
    memcpy(ret_id, i.id, INTENT_ID_BYTES);
    log_event(LOG_INFO, "launch", "id=%s service=%s pool=%s offer=%s price_h=%g why=%s", i.id,
              i.service, i.pool, i.offer, i.price_h, i.why);
    rc = step_at(c, "launch.written");
    if (rc < 0) return rc;
    return control_apply(c, at, INTENT_GO, NULL, NULL, now_us);
}

int control_adopt(struct control *c, uint32_t cloud, const struct listed *item, int64_t now_us)
{
    const char *provider = c->cloud[cloud].driver->name;
    uint32_t offer = control_find_offer(c, provider, item->offer);
    struct intent i = { .state = INTENT_CREATED,
                        .adopted = true,
                        .price_h = offer == PLAN_NONE ? 0 : c->offer[offer].price_h,
                        .wanted_us = now_us,
                        .called_us = now_us,
                        .made_us = item->created_us ? item->created_us : now_us,
                        .state_us = now_us,
                        .why = "found at the provider without an intent: adopted" };
    if (name_copy(i.id, sizeof i.id, str_from(item->intent)) < 0) return 0;
    memcpy(i.service, item->service, sizeof i.service);
    memcpy(i.pool, item->pool, sizeof i.pool);
    memcpy(i.offer, item->offer, sizeof i.offer);
    memcpy(i.handle, item->handle, sizeof i.handle);
    must(name_copy(i.provider, sizeof i.provider, str_from(provider)) == 0);

    /* Older than a launch takes, it serves as far as anybody knows, like one that was restored. So
     * does one that the provider will make in the future: their clock and ours are apart. */
    double age_s = (double)(now_us - i.made_us) / 1e6;
    if (offer == PLAN_NONE || age_s < 0 || age_s >= c->offer[offer].lead_s) {
        i.state = INTENT_REGISTERED;
        i.registered_us = now_us;
    }
    uint32_t service = PLAN_NONE, pool = PLAN_NONE, at;
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        if (strcmp(c->service[s].name, i.service) != 0) continue;
        service = s;
        for (uint32_t p = 0; p < c->service[s].pool_count; p++)
            if (strcmp(c->service[s].pool[p].name, i.pool) == 0) pool = p;
    }
    i.made_us = now_us; /* its boot deadline runs from now: the silence before was not ours */
    int rc = add_intent(c, &i, service, pool, now_us, &at);
    if (rc < 0) return rc;
    c->detail[at].lead_learned = true;
    control_count(c, CONTROL_M_ADOPTED, NULL);
    log_event(LOG_WARN, "adopted", "id=%s service=%s pool=%s handle=%s age_s=%.0f", i.id, i.service,
              i.pool, i.handle, age_s);
    return 0;
}

int control_remove_stray(struct control *c, uint32_t cloud, const struct listed *item,
                         int64_t now_us)
{
    struct cloud *cl = &c->cloud[cloud];
    struct err err = { 0 };
    int rc = cl->driver->remove(cl->ctx, item->handle, item->intent, now_us, &err);
    count_call(c, cl->driver->name, "remove", rc < 0 ? "failed" : "ok");
    log_event(LOG_WARN, "stray_removed", "handle=%s intent=%s result=%s", item->handle,
              item->intent, rc < 0 ? err_text(&err, rc) : "ok");
    return 0;
}

/* ---- tombstones ---- */

void control_drop_slot(struct control *c, uint32_t at)
{
    uint32_t last = --c->count;
    c->intent[at] = c->intent[last];
    c->seen[at] = c->seen[last];
    c->detail[at] = c->detail[last];
}

/* Folds its cost into the total, then forgets it. Should we die between the two writes, the cost
 * is counted twice, by one instance: a bounded error on the safe side. */
static int forget(struct control *c, uint32_t at, int64_t now_us)
{
    struct intent *i = &c->intent[at];
    char key[64];
    intent_key(i, key);
    double folded = c->folded_cost + intent_cost(i, now_us);
    int rc = control_store_cost(c, folded);
    struct err err = { 0 };
    if (rc == 0) rc = store_delete_if(c->setup.store, str_from(key), i->version, &err);
    if (rc < 0 && rc != -ENOENT) {
        control_count(c, CONTROL_M_STORE_FAILURES, NULL);
        return rc;
    }
    c->folded_cost = folded;
    control_drop_slot(c, at);
    return 0;
}

int control_bury(struct control *c, int64_t now_us)
{
    for (;;) {
        uint32_t ended = 0, oldest = UINT32_MAX;
        for (uint32_t at = 0; at < c->count; at++) {
            if (intent_is_live(&c->intent[at])) continue;
            ended++;
            if (oldest == UINT32_MAX || c->intent[at].ended_us < c->intent[oldest].ended_us)
                oldest = at;
        }
        if (oldest == UINT32_MAX) return 0;
        bool old = now_us - c->intent[oldest].ended_us >= TOMBSTONE_US;
        if (!old && ended <= CONTROL_TOMBSTONES_MAX) return 0;
        int rc = forget(c, oldest, now_us);
        if (rc < 0) return rc;
    }
}
