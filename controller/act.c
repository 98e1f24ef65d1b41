/* act.c - shows the plan the fleet, carries out its actions and records why: the only place where
 * intents change.
 *
 * A change has these steps: a copy takes the event, the copy is stored, the copy becomes the intent, the
 * call is submitted (calls.c), its completion is another event. The observation after the next start
 * repairs a crash between any two of them; control_steps names the places, and the tests stop at each.
 *
 *     launch.decided   nothing is written
 *     launch.written   WANTED is durable, no call was made
 *     create.written   CREATING is durable, the call is next
 *     create.called    the provider has answered, nothing of it is written
 *     create.recorded  CREATED (or ENDED, when refused) is durable
 *     register.recorded, drain.recorded
 *     end.written      ENDING is durable, the remove call is next
 *     end.called       the provider has answered
 *     end.recorded     ENDED is durable
 *     stop.written     STOPPING is durable, the stop call is next
 *     stop.called      the provider has answered
 *     stop.recorded    STOPPED is durable
 *     start.decided    nothing is written: a stopped instance is to be started
 *     start.written    STARTING is durable, the start call is next
 *     start.called     the provider has answered */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/log.h"
#include "controller/charges.h"
#include "controller/control_state.h"
#include "controller/core/plan_view.h"
#include "controller/joins.h"
#include "controller/stops.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const control_steps[] = {
    "launch.decided",    "launch.written", "create.written", "create.called", "create.recorded",
    "register.recorded", "drain.recorded", "end.written",    "end.called",    "end.recorded",
};

const uint32_t control_step_count = COUNT_OF(control_steps);

const char *const control_stop_steps[] = {
    "stop.written",  "stop.called",   "stop.recorded",
    "start.decided", "start.written", "start.called",
};

const uint32_t control_stop_step_count = COUNT_OF(control_stop_steps);

int control_step_at(struct control *c, const char *name)
{
    const char *crash = c->setup.crash_at;
    if (crash && strcmp(crash, name) == 0) {
        kill(getpid(), SIGKILL);
        _exit(128 + SIGKILL); /* the first process of a container is not killed by its own signal */
    }
    return FAULT(name) ? -ECANCELED : 0;
}

/* ---- durable first ---- */

static int intent_key(const struct intent *i, char ret[64])
{
    return snprintf(ret, 64, "intent/%s", i->id);
}

/* Stores `i` over the version it was read at, and updates i->version. */
int control_store_intent(struct control *c, struct intent *i)
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

/* Returns the step that follows the record of this state. */
static const char *recorded_step(enum intent_state s)
{
    static const char *const names[INTENT_STATE_COUNT] = {
        [INTENT_CREATED] = "create.recorded", [INTENT_REGISTERED] = "register.recorded",
        [INTENT_DRAINING] = "drain.recorded", [INTENT_STOPPED] = "stop.recorded",
        [INTENT_ENDED] = "end.recorded",
    };
    return names[s];
}

static void note(struct control *c, const struct intent *i, const char *what, int64_t now_us)
{
    const struct event_note event = { .what = what,
                                      .service = i->service,
                                      .pool = i->pool,
                                      .instance = i->id,
                                      .offer = i->offer,
                                      .text = i->why };
    control_note(c, &event, now_us);
}

static void note_change(struct control *c, const struct intent *i, enum intent_state before,
                        int64_t now_us)
{
    if (i->state == before) return;
    log_event(LOG_INFO, "intent", "id=%s service=%s pool=%s offer=%s from=%s to=%s why=%s", i->id,
              i->service, i->pool, i->offer, intent_state_names[before],
              intent_state_names[i->state], i->why);
    note(c, i, intent_state_names[i->state], now_us);
}

/* Makes `copy` the intent at `at` and submits the call that the change asks for. */
static int adopt_change(struct control *c, uint32_t at, struct intent *copy,
                        enum intent_action action, int64_t now_us)
{
    enum intent_state before = c->money.intent[at].state;
    int rc = control_store_intent(c, copy);
    if (rc < 0) return rc;
    c->money.intent[at] = *copy;
    note_change(c, copy, before, now_us);
    c->urgent |= copy->state != before;

    const char *step = copy->state == before ? NULL : recorded_step(copy->state);
    if (step && (rc = control_step_at(c, step)) < 0) return rc;
    if (action == INTENT_NOTHING) return 0;
    static const struct {
        const char *step;
        enum cloud_op op;
    } calls[INTENT_ACTION_COUNT] = {
        [INTENT_CALL_CREATE] = { "create.written", CLOUD_CREATE },
        [INTENT_CALL_REMOVE] = { "end.written", CLOUD_REMOVE },
        [INTENT_CALL_STOP] = { "stop.written", CLOUD_STOP },
        [INTENT_CALL_START] = { "start.written", CLOUD_START },
    };
    int stop = control_step_at(c, calls[action].step);
    if (stop < 0) return stop;
    return control_call(c, at, calls[action].op, now_us);
}

int control_apply(struct control *c, uint32_t at, enum intent_event e, const char *why,
                  const char *handle, int64_t now_us)
{
    if (c->money.intent[at].aside) return 0; /* nothing may be written over its record */
    struct intent copy = c->money.intent[at];
    enum intent_state before = copy.state;
    enum intent_action action = intent_step(&copy, e, why, now_us);
    control_settle_charge(c, at, &copy, now_us);
    control_settle_stop(c, at, &copy, action, now_us);
    bool learned = handle && handle[0] && !copy.handle[0];
    if (learned && name_copy(copy.handle, sizeof copy.handle, str_from(handle)) < 0)
        learned = false;
    if (copy.state == before && action == INTENT_NOTHING && !learned) return 0;
    if (copy.state != before &&
        intent_is_parked(&copy)) { /* of the call before, and of another life */
        struct detail *d = &c->observed.detail[at];
        d->taken_us = 0;
        if (copy.state != INTENT_STOPPING) d->gone_us = 0;
    }
    return adopt_change(c, at, &copy, action, now_us);
}

int control_let_go(struct control *c, uint32_t at, bool let_go, const char *why, int64_t now_us)
{
    must(!c->money.intent[at].aside);
    struct intent copy = c->money.intent[at];
    enum intent_action action =
        intent_step(&copy, let_go ? INTENT_DRAIN : INTENT_KEEP, why, now_us);
    control_settle_charge(c, at, &copy, now_us);
    copy.let_go = let_go && intent_is_live(&copy);
    int rc = adopt_change(c, at, &copy, action, now_us);
    control_see_phase(c, at, now_us); /* views show the order at once, not after the next tick */
    return rc;
}

int control_keep_join(struct control *c, uint32_t at, const char *mark, int64_t now_us)
{
    struct intent copy = c->money.intent[at];
    if (!mark) {
        copy.contested_us = now_us;
    } else {
        must(name_copy(copy.joined, sizeof copy.joined, str_from(mark)) == 0);
        copy.joined_us = now_us;
    }
    return adopt_change(c, at, &copy, INTENT_NOTHING, now_us);
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
    if (c->money.count == SLOTS_MAX) {
        control_bound_reached(c, "intents");
        return -ENOSPC;
    }
    int rc = control_store_intent(c, i);
    if (rc < 0) return rc;
    uint32_t at = c->money.count++;
    c->money.intent[at] = *i;
    c->observed.seen[at] = (struct sighting){ 0 };
    c->observed.detail[at] =
        (struct detail){ .service = service, .pool = pool, .phase_us = now_us };
    control_first_role(c, at);
    *ret_at = at;
    return 0;
}

/* Begins another life of a stopped instance: what was seen of the one before says nothing of it. */
static int start_again(struct control *c, uint32_t at, const char *why, int64_t now_us)
{
    struct detail *d = &c->observed.detail[at];
    int rc = control_step_at(c, "start.decided");
    if (rc < 0) return rc;
    c->observed.seen[at] = (struct sighting){ 0 };
    d->has_engine = d->lead_learned = d->doomed = d->at_risk = false;
    d->trouble[0] = d->notice_why[0] = 0;
    d->leaves_us = d->noticed_us = 0;
    d->lead = d->told = (struct lead){ 0 };
    d->restarts = d->unfinished = 0;
    log_event(LOG_INFO, "start", "id=%s service=%s pool=%s offer=%s why=%s", c->money.intent[at].id,
              c->money.intent[at].service, c->money.intent[at].pool, c->money.intent[at].offer,
              why);
    return control_apply(c, at, INTENT_WAKE, why, NULL, now_us);
}

int control_launch_one(struct control *c, const struct plan_action *a, int64_t now_us,
                       char ret_id[INTENT_ID_BYTES])
{
    int rc = control_step_at(c, "launch.decided");
    if (rc < 0) return rc;
    uint32_t stopped = control_find_stopped(c, a->service, a->pool, a->offer);
    if (stopped != PLAN_NONE) {
        memcpy(ret_id, c->money.intent[stopped].id, INTENT_ID_BYTES);
        return start_again(c, stopped, a->why, now_us);
    }
    const struct plan_service *s = &c->desired.service[a->service];
    const struct offer *o = &c->money.offer[a->offer];
    struct intent i = { .state = INTENT_WANTED,
                        .price_h = control_price_of_next(c, a->offer),
                        .charge = { .billing = o->billing },
                        .age_limit_us = (int64_t)c->setup.age_ms * 1000,
                        .wanted_us = now_us,
                        .state_us = now_us };
    new_id(c, i.id);
    memcpy(i.service, s->name, sizeof i.service);
    memcpy(i.pool, s->pool[a->pool].name, sizeof i.pool);
    memcpy(i.provider, o->provider, sizeof i.provider);
    memcpy(i.offer, o->name, sizeof i.offer);
    snprintf(i.why, sizeof i.why, "%s", a->why);
    control_mark(c, a->service, a->pool, a->offer, i.mark);

    uint32_t at;
    rc = add_intent(c, &i, a->service, a->pool, now_us, &at);
    if (rc < 0) return rc;
    memcpy(ret_id, i.id, INTENT_ID_BYTES);
    log_event(LOG_INFO, "launch", "id=%s service=%s pool=%s offer=%s price_h=%g why=%s", i.id,
              i.service, i.pool, i.offer, i.price_h, i.why);
    note(c, &i, "launch", now_us);
    rc = control_step_at(c, "launch.written");
    if (rc < 0) return rc;
    return control_apply(c, at, INTENT_GO, NULL, NULL, now_us);
}

int control_adopt(struct control *c, uint32_t cloud, const struct listed *item, int64_t now_us)
{
    const char *provider = c->observed.provider[cloud].cloud.driver->name;
    uint32_t offer = control_find_offer(c, provider, item->offer);
    struct intent i = { .state = INTENT_CREATED,
                        .adopted = true,
                        .price_h = offer == PLAN_NONE ? 0 : c->money.offer[offer].price_h,
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

    /* An instance older than a launch takes counts as serving, like a restored one. So does one with a
     * creation time in the future: the provider's clock and ours differ. */
    double age_s = (double)(now_us - i.made_us) / 1e6;
    if (offer == PLAN_NONE || age_s < 0 || age_s >= c->money.offer[offer].lead_s) {
        i.state = INTENT_REGISTERED;
        i.registered_us = now_us;
    }
    uint32_t service = PLAN_NONE, pool = PLAN_NONE, at;
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        if (strcmp(c->desired.service[s].name, i.service) != 0) continue;
        service = s;
        for (uint32_t p = 0; p < c->desired.service[s].pool_count; p++)
            if (strcmp(c->desired.service[s].pool[p].name, i.pool) == 0) pool = p;
    }
    i.charge.from_us = i.made_us; /* it is billed from there */
    if (offer != PLAN_NONE) i.charge.billing = c->money.offer[offer].billing;
    i.made_us = now_us; /* its boot deadline runs from now: it could not report to us before */
    int rc = add_intent(c, &i, service, pool, now_us, &at);
    if (rc < 0) return rc;
    c->observed.detail[at].lead_learned = true;
    control_count(c, CONTROL_M_ADOPTED, NULL);
    log_event(LOG_WARN, "adopted", "id=%s service=%s pool=%s handle=%s age_s=%.0f", i.id, i.service,
              i.pool, i.handle, age_s);
    note(c, &i, "adopt", now_us);
    return 0;
}

int control_remove_stray(struct control *c, uint32_t cloud, const struct listed *item,
                         int64_t now_us)
{
    /* A call that is not submitted is made again with the next listing that shows the instance. */
    if (control_call_stray(c, cloud, item, now_us) < 0) return -EAGAIN;
    control_count(c, CONTROL_M_STRAYS, c->observed.provider[cloud].cloud.driver->name);
    log_event(LOG_WARN, "stray_removed", "handle=%s intent=%s", item->handle, item->intent);
    const struct event_note note = { .what = "remove",
                                     .service = item->service,
                                     .pool = item->pool,
                                     .instance = item->handle,
                                     .offer = item->offer,
                                     .text = "listed without an intent that it belongs to" };
    control_note(c, &note, now_us);
    return 0;
}

/* ---- tombstones ---- */

void control_drop_slot(struct control *c, uint32_t at)
{
    uint32_t last = --c->money.count;
    free(c->observed.detail[at].adapters);
    free(c->observed.detail[at].machine.known);
    c->money.intent[at] = c->money.intent[last];
    c->observed.seen[at] = c->observed.seen[last];
    c->observed.detail[at] = c->observed.detail[last];
}

/* Folds an intent's cost into the bill, then deletes it. After a crash between the two writes the bill says that
 * it has taken this one already. */
static int forget(struct control *c, uint32_t at, int64_t now_us)
{
    struct intent *i = &c->money.intent[at];
    char key[64];
    intent_key(i, key);
    struct bill folded = c->money.bill;
    const struct bill_periods period = bill_periods_at(now_us, c->date_ahead_us);
    bill_fold(&folded, i, &period);
    int rc = control_store_cost(c, &folded);
    struct err err = { 0 };
    if (rc == 0) rc = store_delete_if(c->setup.store, str_from(key), i->version, &err);
    if (rc < 0 && rc != -ENOENT) {
        control_count(c, CONTROL_M_STORE_FAILURES, NULL);
        return rc;
    }
    c->money.bill = folded;
    control_drop_slot(c, at);
    return 0;
}

int control_bury(struct control *c, int64_t now_us)
{
    for (;;) {
        uint32_t ended = 0, oldest = UINT32_MAX;
        for (uint32_t at = 0; at < c->money.count; at++) {
            if (intent_is_live(&c->money.intent[at])) continue;
            ended++;
            if (oldest == UINT32_MAX ||
                c->money.intent[at].ended_us < c->money.intent[oldest].ended_us)
                oldest = at;
        }
        if (oldest == UINT32_MAX) return 0;
        bool old = now_us - c->money.intent[oldest].ended_us >= TOMBSTONE_US;
        if (!old && ended <= CONTROL_TOMBSTONES_MAX) return 0;
        int rc = forget(c, oldest, now_us);
        if (rc < 0) return rc;
    }
}

/* Returns the id's hexadecimal digits as a number, unique to the instance. */
static uint64_t id_number(const char *id)
{
    return strtoull(id + strlen("i-"), NULL, 16);
}

static void fill_instance(const struct control *c, uint32_t at, int64_t now_us,
                          struct plan_instance *ret)
{
    const struct intent *i = &c->money.intent[at];
    const struct sighting *s = &c->observed.seen[at];
    const struct detail *d = &c->observed.detail[at];
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    bool heard = s->heard_us && d->has_engine;
    const struct instance_facts facts = {
        .id = i->id,
        .number = id_number(i->id),
        .service = d->service,
        .pool = d->pool,
        .offer = offer,
        .phase = merge_phase(i, s, &c->setup.merge, now_us),
        .fresh = sighting_is_fresh(s, &c->setup.merge, now_us),
        .doomed = d->doomed || i->let_go,
        .at_risk = d->at_risk,
        .failing = d->machine.health == MACHINE_FAILING,
        .pinned = i->aside,
        .routed = d->routed,
        .price_h = i->price_h,
        .lead_s = offer == PLAN_NONE ? 0 : offer_lead_s(&c->money.offer[offer], i->starts > 0),
        .since_us = d->phase_us,
        .context_tokens = heard ? d->engine.context_tokens : 0,
        .step_tokens = heard ? d->engine.step_tokens : 0,
    };
    plan_instance_see(&facts, s, ret);
}

void control_build_view(struct control *c, int64_t now_us, struct plan_view *ret)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at < c->money.count && n < CONTROL_INSTANCES_MAX; at++) {
        if (!intent_is_live(&c->money.intent[at])) continue;
        fill_instance(c, at, now_us, &c->desired.view_instance[n]);
        c->desired.view_slot[n++] = at;
    }
    plan_pick_failing(c->desired.view_instance, n);
    /* Live intents that may exist and cannot be read. */
    uint32_t unseen = c->people.aside.intents;
    for (uint32_t at = 0; at < c->money.count && unseen > 0; at++)
        unseen -= c->money.intent[at].aside;
    *ret = (struct plan_view){ .service = c->desired.service,
                               .service_count = c->setup.service_count,
                               .offer = c->money.offer,
                               .health = c->money.health,
                               .sold_out = c->money.stock.sold_out,
                               .instance = c->desired.view_instance,
                               .instance_count = n,
                               .demand = c->observed.demand,
                               .mix_room = c->desired.mix_room,
                               .mix = c->desired.mix,
                               .room = CONTROL_INSTANCES_MAX -
                                       min_u32(n + unseen, CONTROL_INSTANCES_MAX) };
}

static int carry_out_one(struct control *c, const struct plan_action *a, int64_t now_us,
                         char ret_id[INTENT_ID_BYTES])
{
    static const enum intent_event events[PLAN_ACT_COUNT] = {
        [PLAN_CANCEL] = INTENT_DRAIN,
        [PLAN_DRAIN] = INTENT_DRAIN,
        [PLAN_KEEP] = INTENT_KEEP,
    };
    control_count(c, CONTROL_M_ACTIONS, plan_act_names[a->act]);
    if (a->act == PLAN_LAUNCH) return control_launch_one(c, a, now_us, ret_id);
    uint32_t at = c->desired.view_slot[a->instance];
    char why[INTENT_WHY_BYTES];
    snprintf(why, sizeof why, "%s", a->why);
    if (c->desired.view_instance[a->instance].failing)
        snprintf(why, sizeof why, "%s: %.120s", a->why, c->observed.detail[at].machine.why);
    return control_apply(c, at, events[a->act], why, NULL, now_us);
}

int control_keep_decision(struct control *c, uint32_t service, struct str text)
{
    struct err err = { 0 };
    uint64_t seq;
    int rc = store_append(c->setup.store, &c->desired.decision_log, text, &seq, &err);
    if (rc < 0) {
        control_store_failed(c, "decision_not_written", c->desired.service[service].name,
                             err_text(&err, rc));
        return rc;
    }
    c->desired.decision_last = seq;
    control_count(c, CONTROL_M_DECISIONS, NULL);
    return 0;
}

static void record(struct control *c, const struct plan_view *view, const struct plan_decision *d,
                   const char (*launched)[INTENT_ID_BYTES], int64_t now_us)
{
    if (!record_is_news(&c->desired.last[d->service], d)) return;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (record_encode(view, &c->desired.plan, d, launched, now_us + c->date_ahead_us, &text) < 0) {
        control_store_failed(c, "decision_not_written", c->desired.service[d->service].name,
                             "no memory");
        return;
    }
    if (control_keep_decision(c, d->service, buf_view(&text)) < 0) return;
    log_event(LOG_INFO, "decision", "id=%llu service=%s actions=%u reason=%s blocked=%s",
              (unsigned long long)c->desired.decision_last, c->desired.service[d->service].name,
              d->action_count, d->reason, d->blocked ? d->blocked : "");
}

int control_carry_out(struct control *c, int64_t now_us)
{
    char launched[PLAN_ACTIONS_MAX][INTENT_ID_BYTES] = { { 0 } };
    struct plan_view view;
    control_build_view(c, now_us, &view);
    plan(&view, c->desired.memory, now_us, &c->rng, &c->desired.plan);
    if (c->desired.plan.dropped) control_bound_reached(c, "plan_actions");
    /* Cancels and drains go first: a crash in between leaves the fleet too small, which costs
     * nothing, and never over its maximum. */
    static const enum plan_act order[] = { PLAN_CANCEL, PLAN_DRAIN, PLAN_KEEP, PLAN_LAUNCH };
    bool unwritten = false; /* an instance that could not go down still counts: none is added */
    for (uint32_t k = 0; k < COUNT_OF(order); k++)
        for (uint32_t i = 0; i < c->desired.plan.action_count; i++) {
            enum plan_act act = c->desired.plan.action[i].act;
            bool grows = act == PLAN_LAUNCH || act == PLAN_KEEP;
            if (act != order[k] || (grows && unwritten)) continue;
            int rc = carry_out_one(c, &c->desired.plan.action[i], now_us, launched[i]);
            if (rc == -ECANCELED) return rc;
            unwritten |= rc < 0;
        }
    const char(*ids)[INTENT_ID_BYTES] = (const char(*)[INTENT_ID_BYTES])launched;
    for (uint32_t i = 0; i < c->desired.plan.decision_count; i++)
        record(c, &view, &c->desired.plan.decision[i], ids, now_us);
    return 0;
}
