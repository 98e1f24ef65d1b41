/* service_status.c - turns facts of a service into conditions and the status of its object.
 *
 * Numbers are rounded: a status is written when its text has changed, and cents and thousandths are all that people
 * compare. */
#include "controller/objects/service_status.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const service_condition_names[SERVICE_CONDITION_COUNT] = {
    [SERVICE_ACCEPTED] = "Accepted",       [SERVICE_READY] = "Ready",
    [SERVICE_PROGRESSING] = "Progressing", [SERVICE_BUDGET_REACHED] = "BudgetReached",
    [SERVICE_STOCKED_OUT] = "StockedOut",
};
static const char *const truth_names[] = { "Unknown", "False", "True" };

/* ---- attainment ---- */

void attainment_take(struct attainment *a, uint64_t met, uint64_t missed, int64_t now_us)
{
    if (a->count > 0 && now_us - a->taken_us < ATTAINMENT_STEP_US) return;
    a->step[a->next].met = met;
    a->step[a->next].missed = missed;
    a->next = (a->next + 1) % ATTAINMENT_STEPS;
    a->count = min_u32(a->count + 1, ATTAINMENT_STEPS);
    a->taken_us = now_us;
}

double attainment_of(const struct attainment *a, uint64_t met, uint64_t missed)
{
    uint32_t oldest = (a->next + ATTAINMENT_STEPS - a->count) % ATTAINMENT_STEPS;
    if (a->count == 0 || met < a->step[oldest].met || missed < a->step[oldest].missed) return -1;
    double good = (double)(met - a->step[oldest].met);
    double all = good + (double)(missed - a->step[oldest].missed);
    return all > 0 ? good / all : -1;
}

/* ---- conditions ---- */

__attribute__((format(printf, 4, 5))) static void
set(struct service_state *s, enum service_truth truth, const char *reason, const char *format, ...)
{
    va_list ap;
    s->truth = truth;
    snprintf(s->reason, sizeof s->reason, "%s", reason);
    va_start(ap, format);
    vsnprintf(s->message, sizeof s->message, format, ap);
    va_end(ap);
}

static void set_accepted(const struct service_verdict *v, struct service_state *s)
{
    if (!v->tried)
        set(s, SERVICE_UNKNOWN, "Pending", "the controller has not looked at it yet");
    else if (!v->refused)
        set(s, SERVICE_TRUE, "InForce", "generation %lld is in force", (long long)v->generation);
    else
        set(s, SERVICE_FALSE, v->refused, "%.*s%s", 420, v->why.text,
            v->before ? "; the specification before it stays in force" : "");
}

static void set_ready(const struct service_facts *f, struct service_state *s)
{
    if (!f->observed)
        set(s, SERVICE_UNKNOWN, "NotObserved", "the providers have not been listed yet");
    else if (f->ready > 0)
        set(s, SERVICE_TRUE, "Serving", "%u of %u instances are ready", f->ready,
            max_u32(f->desired, f->ready));
    else if (f->decided && f->desired == 0 && (f->drained || f->by_hand))
        set(s, SERVICE_FALSE, "Stopped", "no instance is wanted: %s",
            f->reason ? f->reason : "drained by hand");
    else if (f->decided && f->desired == 0 && !f->paused)
        set(s, SERVICE_TRUE, "Idle", "no instance runs; the first request starts one");
    else if (f->paused && f->starting == 0)
        set(s, SERVICE_FALSE, "Paused", "it was paused without an instance");
    else
        set(s, SERVICE_FALSE, "Starting", "%u instances start, none is ready", f->starting);
}

static void set_progressing(const struct service_facts *f, struct service_state *s)
{
    if (!f->decided)
        set(s, SERVICE_UNKNOWN, "NotDecided", "nothing was decided since the controller's start");
    else if (f->ready != f->desired || f->starting > 0)
        set(s, SERVICE_TRUE, "Scaling", "%u ready, %u wanted, %u starting, %u leaving", f->ready,
            f->desired, f->starting, f->leaving);
    else if (f->leaving > 0)
        set(s, SERVICE_TRUE, "Draining", "%u instances finish their requests", f->leaving);
    else
        set(s, SERVICE_FALSE, "Settled", "as many instances are ready as are wanted");
}

static void set_limits(const struct service_facts *f, struct service_state *budget,
                       struct service_state *stock)
{
    if (!f->decided) {
        set(budget, SERVICE_UNKNOWN, "NotDecided", "nothing was decided since the start");
        set(stock, SERVICE_UNKNOWN, "NotDecided", "nothing was decided since the start");
        return;
    }
    if (f->at_budget)
        set(budget, SERVICE_TRUE, "InstancesHeldBack",
            "more instances would cost more than %.2f dollars an hour", f->budget_h);
    else if (f->budget_h > 0)
        set(budget, SERVICE_FALSE, "WithinBudget", "at most %.2f dollars an hour", f->budget_h);
    else
        set(budget, SERVICE_FALSE, "NoBudget", "spec.budget_per_hour is not set");
    bool again = stock->truth == SERVICE_TRUE && f->missing && f->ready <= stock->ready;
    if (f->stocked_out) {
        if (!again) stock->ready = f->ready;
        set(stock, SERVICE_TRUE, "NoCapacity", "%s", f->stock);
    } else if (!again || !stock->message[0])
        set(stock, SERVICE_FALSE, "CapacityFound", "no pool waits for capacity");
}

void service_conditions(const struct service_verdict *v, const struct service_facts *f,
                        int64_t date_us, struct service_state state[SERVICE_CONDITION_COUNT])
{
    enum service_truth before[SERVICE_CONDITION_COUNT];
    for (int i = 0; i < SERVICE_CONDITION_COUNT; i++)
        before[i] = state[i].truth;
    set_accepted(v, &state[SERVICE_ACCEPTED]);
    if (f->known) {
        set_ready(f, &state[SERVICE_READY]);
        set_progressing(f, &state[SERVICE_PROGRESSING]);
        set_limits(f, &state[SERVICE_BUDGET_REACHED], &state[SERVICE_STOCKED_OUT]);
    } else {
        for (int i = SERVICE_READY; i < SERVICE_CONDITION_COUNT; i++)
            set(&state[i], i == SERVICE_READY ? SERVICE_FALSE : SERVICE_UNKNOWN, "NotInForce",
                "no specification of this object is in force");
    }
    for (int i = 0; i < SERVICE_CONDITION_COUNT; i++)
        if (state[i].truth != before[i] || state[i].since_us == 0) state[i].since_us = date_us;
}

static int read_condition(void *ctx, struct str item)
{
    struct service_state *state = ctx;
    CLEANUP(buf_fini) struct buf type = { 0 }, truth = { 0 }, since = { 0 };
    if (json_path_text(item, "type", &type) < 0 || json_path_text(item, "status", &truth) < 0 ||
        json_path_text(item, "lastTransitionTime", &since) < 0)
        return 0;
    for (int i = 0; i < SERVICE_CONDITION_COUNT; i++) {
        if (!str_eq(buf_view(&type), str_from(service_condition_names[i]))) continue;
        for (size_t t = 0; t < COUNT_OF(truth_names); t++)
            if (str_eq(buf_view(&truth), str_from(truth_names[t])))
                state[i].truth = (enum service_truth)t;
        (void)date_parse(buf_view(&since), &state[i].since_us);
    }
    return 0;
}

void service_conditions_read(struct str object, struct service_state state[SERVICE_CONDITION_COUNT])
{
    (void)json_path_each(object, "status.conditions", read_condition, state);
}

/* ---- the status ---- */

static void put_number(struct json_writer *w, const char *name, double value, double steps)
{
    json_kv_f64(w, name, round(value * steps) / steps);
}

static void put_condition(struct json_writer *w, const char *name, const struct service_state *s,
                          int64_t generation)
{
    char since[DATE_BYTES];
    date_print(s->since_us - s->since_us % 1000000, since);
    snprintf(since + 19, sizeof since - 19, "Z"); /* the conditions of others have whole seconds */
    json_object(w);
    json_kv_text(w, "type", name);
    json_kv_text(w, "status", truth_names[s->truth]);
    json_kv_text(w, "reason", s->reason);
    json_kv_text(w, "message", s->message);
    json_kv_text(w, "lastTransitionTime", since);
    json_kv_i64(w, "observedGeneration", generation);
    json_object_end(w);
}

static void put_pools(struct json_writer *w, const struct service_facts *f)
{
    json_key(w, "pools");
    json_array(w);
    for (uint32_t p = 0; p < f->pool_count; p++) {
        json_object(w);
        json_kv_text(w, "name", f->pool[p].name);
        json_kv_u64(w, "ready", f->pool[p].ready);
        json_kv_u64(w, "instances", f->pool[p].instances);
        if (f->decided) json_kv_u64(w, "desired", f->pool[p].desired);
        json_object_end(w);
    }
    json_array_end(w);
}

int service_status_write(const struct kube_meta *meta, const char *selector,
                         const struct service_verdict *v, const struct service_facts *f,
                         double attainment,
                         const struct service_state state[SERVICE_CONDITION_COUNT], struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "apiVersion", SERVICE_GROUP "/" SERVICE_VERSION);
    json_kv_text(&w, "kind", SERVICE_KIND);
    json_key(&w, "metadata");
    json_object(&w);
    json_kv_text(&w, "name", meta->name);
    json_kv_text(&w, "uid", meta->uid); /* an object that was made anew is another */
    json_object_end(&w);
    json_key(&w, "status");
    json_object(&w);
    json_kv_i64(&w, "observedGeneration", v->generation);
    json_kv_text(&w, "selector", selector);
    if (f->known) {
        json_kv_u64(&w, "replicas", f->instances);
        json_kv_u64(&w, "ready", f->ready);
        if (f->decided) json_kv_u64(&w, "desired", f->desired);
        put_number(&w, "dollarsPerHour", f->cost_h, 10000);
        if (attainment >= 0) put_number(&w, "attainment", attainment, 1000);
        if (f->reason) json_kv_text(&w, "reason", f->reason);
        if (f->blocked) json_kv_text(&w, "blocked", f->blocked);
        put_pools(&w, f);
    } else {
        json_kv_u64(&w, "replicas", 0);
        json_kv_u64(&w, "ready", 0);
    }
    json_key(&w, "conditions");
    json_array(&w);
    for (int i = 0; i < SERVICE_CONDITION_COUNT; i++)
        put_condition(&w, service_condition_names[i], &state[i], v->generation);
    json_array_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    return out->rc;
}
