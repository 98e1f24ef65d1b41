/* last_hour.c - samples the fleet every few seconds.
 *
 * TTFT and TPOT are those of the router that measured most of the first service: quantiles of
 * several routers cannot be added, and the console draws the same one. */
#include "controller/last_hour.h"

#include "base/core/json.h"
#include "controller/control_state.h"

static const struct service_demand *busiest(const struct control *c, int64_t now_us)
{
    const struct service_demand *best = NULL;
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->observed.router[r];
        const struct demand_seen *d = &rt->demand[0];
        if (!rt->id[0] || !d->present || !control_router_is_fresh(rt, now_us)) continue;
        if (d->last.ttft_s.count == 0) continue;
        if (!best || d->last.ttft_s.count > best->ttft_s.count) best = &d->last;
    }
    return best;
}

static struct hour_sample sample(const struct control *c, int64_t now_us)
{
    struct hour_sample s = { .at_us = now_us };
    for (uint32_t i = 0; i < c->setup.service_count; i++) {
        const struct scale_demand *d = &c->observed.demand[i].sum;
        if (!d->present) continue;
        s.arrivals_s += d->arrivals_s;
        s.in_flight += d->in_flight;
        s.held += d->held;
    }
    for (uint32_t at = 0; at < c->money.count; at++)
        s.ready +=
            intent_is_live(&c->money.intent[at]) && c->observed.detail[at].phase == PHASE_READY;
    const struct service_demand *d = c->setup.service_count > 0 ? busiest(c, now_us) : NULL;
    if (!d) return s;
    s.ttft_known = true;
    s.ttft_p50_s = d->ttft_s.p50;
    s.ttft_p99_s = d->ttft_s.p99;
    s.tpot_known = d->tpot_s.count > 0;
    s.tpot_p50_s = d->tpot_s.p50;
    return s;
}

static const struct hour_sample *sample_at(const struct last_hour *h, uint32_t i)
{
    return &h->sample[(h->first + i) % LAST_HOUR_SAMPLES_MAX];
}

void last_hour_keep(struct control *c, int64_t now_us)
{
    struct last_hour *h = &c->last_hour;
    if (h->count > 0 && now_us - sample_at(h, h->count - 1)->at_us < LAST_HOUR_PERIOD_US) return;
    if (h->count == LAST_HOUR_SAMPLES_MAX) {
        h->first = (h->first + 1) % LAST_HOUR_SAMPLES_MAX;
        h->count--;
    }
    h->sample[(h->first + h->count++) % LAST_HOUR_SAMPLES_MAX] = sample(c, now_us);
}

static void put_known(struct json_writer *w, const char *name, bool known, double value)
{
    json_key(w, name);
    if (known)
        json_put_f64(w, value);
    else
        json_put_null(w);
}

void last_hour_put(struct json_writer *w, const struct control *c)
{
    const struct last_hour *h = &c->last_hour;
    json_key(w, "history");
    json_object(w);
    json_kv_f64(w, "period_s", LAST_HOUR_PERIOD_US / 1e6);
    json_key(w, "samples");
    json_array(w);
    for (uint32_t i = 0; i < h->count; i++) {
        const struct hour_sample *s = sample_at(h, i);
        json_object(w);
        json_kv_i64(w, "at_us", s->at_us + c->date_ahead_us);
        json_kv_f64(w, "arrivals_per_s", s->arrivals_s);
        json_kv_u64(w, "in_flight", s->in_flight);
        json_kv_u64(w, "held", s->held);
        json_kv_u64(w, "ready", s->ready);
        put_known(w, "ttft_p50_s", s->ttft_known, s->ttft_p50_s);
        put_known(w, "ttft_p99_s", s->ttft_known, s->ttft_p99_s);
        put_known(w, "tpot_p50_s", s->tpot_known, s->tpot_p50_s);
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}
