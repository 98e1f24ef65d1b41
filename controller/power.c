/* power.c - the power row of each service, in its time.
 *
 *     reports ── work between two looks ──► busy share, mean step ┐
 *     reports ── hardware, cores, model ──► roofline              ├─► power_decide ─► clocks
 *     routers ── p99 of their windows ────► tails of the service  ┘
 *
 * The hardware is the row that the engine was told, else, where its offer is a share of a core, the
 * row of a CPU. Watts are those of the cores that an instance may use. Engines keep a clock by
 * injecting idle time.
 *
 * Tails: one answer in a hundred shows only among a hundred. A router's window is short, so the
 * windows of the last two minutes are put together: the largest of their P99 is at least the P99 of
 * all, which errs on the side of the promise. */
#include "controller/power.h"

#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/control_state.h"

#include <math.h>
#include <stdlib.h>

#define AGAIN_US_MIN 5000000   /* reports come once a second; a window should hold some steps */
#define AGAIN_US_MAX 120000000 /* beyond: the wall clock was set back */
#define WINDOW_US 14000000     /* a second less than routers measure over: no answer is left out */
#define TAIL_MIN 100           /* fewer answers say nothing of one in a hundred */
#define MEAN_MAX 1e9           /* of a peer's numbers: far above any step */

struct power_room {
    struct roofline roofline[CONTROL_INSTANCES_MAX];
    struct power_instance instance[CONTROL_INSTANCES_MAX];
    double clock[CONTROL_INSTANCES_MAX];
    uint32_t slot[CONTROL_INSTANCES_MAX];
    uint32_t count;
};

struct power_room *power_room_new(void)
{
    must(WIRE_CLOCK_MIN == POWER_CLOCK_MIN); /* of the wire and of the rows; no constant to clang */
    struct power_room *r = calloc(1, sizeof *r);
    must(r);
    return r;
}

void power_room_free(struct power_room *r)
{
    free(r);
}

/* ---- tails ---- */

static void add_quantile(const struct wire_quantiles *q, uint64_t *count, double *worst_s)
{
    if (q->count == 0) return;
    *count += q->count;
    *worst_s = fmax(*worst_s, q->p99);
}

static struct power_tail tail_now(const struct control *c, uint32_t service, int64_t now_us)
{
    struct power_tail t = { 0 };
    for (uint32_t r = 0; r < CONTROL_ROUTERS_MAX; r++) {
        const struct router *rt = &c->router[r];
        if (!rt->id[0] || !control_router_is_fresh(rt, now_us) || !rt->demand[service].present)
            continue;
        add_quantile(&rt->demand[service].last.ttft_s, &t.ttft_count, &t.ttft_s);
        add_quantile(&rt->demand[service].last.tpot_s, &t.tpot_count, &t.tpot_s);
    }
    return t;
}

static void take_window(struct control *c, uint32_t service, int64_t now_us)
{
    struct service_power *p = &c->power[service];
    int64_t past_us = now_us - p->window_us;
    if (past_us >= 0 && past_us < WINDOW_US) return;
    p->window_us = now_us;
    p->window[p->window_next++ % POWER_WINDOWS] = tail_now(c, service, now_us);
}

/* The windows put together, and the one under way, which may hold answers of the last again: of its
 * own it counts only where it is enough. False: too few answers. */
static bool tail_of(const struct control *c, uint32_t service, int64_t now_us,
                    struct power_tail *ret)
{
    const struct power_tail now = tail_now(c, service, now_us);
    struct power_tail sum = { 0 };
    for (uint32_t i = 0; i < POWER_WINDOWS; i++) {
        const struct power_tail *w = &c->power[service].window[i];
        sum.ttft_count += w->ttft_count;
        sum.tpot_count += w->tpot_count;
        sum.ttft_s = fmax(sum.ttft_s, w->ttft_s);
        sum.tpot_s = fmax(sum.tpot_s, w->tpot_s);
    }
    sum.ttft_s = fmax(sum.ttft_s, now.ttft_s);
    sum.tpot_s = fmax(sum.tpot_s, now.tpot_s);
    sum.ttft_count = max_u64(sum.ttft_count, now.ttft_count);
    sum.tpot_count = max_u64(sum.tpot_count, now.tpot_count);
    *ret = sum;
    return sum.ttft_count >= TAIL_MIN && sum.tpot_count >= TAIL_MIN;
}

/* ---- instances ---- */

/* False: nothing is known of its hardware, or of its model. */
static bool model_roofline(const struct control *c, uint32_t at, struct roofline *ret)
{
    const struct detail *d = &c->detail[at];
    const struct wire_spec *s = &d->engine.spec;
    const struct intent *i = &c->intent[at];
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    double share = offer == PLAN_NONE ? 0 : c->offer[offer].share;
    const struct hardware *hw = d->power.hardware;
    if (!hw && share > 0) hw = hardware_find(STR("cpu"));
    if (!hw || !d->engine.has_spec) return false;
    const struct model_spec spec = { .name = "served",
                                     .layers = s->layers,
                                     .hidden = s->hidden,
                                     .heads = s->heads,
                                     .kv_heads = s->kv_heads,
                                     .head_dim = s->head_dim,
                                     .ffn = s->ffn,
                                     .vocab = s->vocab,
                                     .gated = s->gated,
                                     .weight_bytes = s->weight_bytes,
                                     .kv_element_bytes = s->kv_element_bytes };
    if (!roofline_init(ret, hw, &spec, 1)) return false;
    double cores = d->engine.cores > 0 ? d->engine.cores : share;
    if (hw->cores <= 0) return true;
    if (cores <= 0) return false;
    double slower = hw->cores / cores;
    const double factor[ROOFLINE_PARTS] = { slower, slower, slower, slower, slower };
    roofline_scale(ret, factor);
    ret->watts_idle /= slower;
    ret->watts_max /= slower;
    return true;
}

/* Rounded: a session that decodes in nine steps of ten is one. */
static double mean(uint64_t now, uint64_t before, double steps)
{
    return fmin(MEAN_MAX, round((double)(now - before) / steps));
}

/* What lies between the last look and now, or since the engine's start where that is nearer. */
static void show_work(const struct wire_work *now, const struct wire_work *seen,
                      struct power_instance *ret)
{
    static const struct wire_work none;
    bool rose = now->steps >= seen->steps && now->span_s > seen->span_s &&
                now->busy_s >= seen->busy_s && now->prefill_tokens >= seen->prefill_tokens &&
                now->prefill_chunks >= seen->prefill_chunks &&
                now->decoding_seqs >= seen->decoding_seqs && now->kv_tokens >= seen->kv_tokens &&
                now->kv_tokens_decoding >= seen->kv_tokens_decoding;
    if (!rose) seen = &none;
    double span_s = now->span_s - seen->span_s, steps = (double)(now->steps - seen->steps);
    ret->busy = span_s > 0 ? fmin(1, (now->busy_s - seen->busy_s) / span_s) : 0;
    ret->shape = (struct perf_shape){ 0 };
    if (steps < 1) return;
    struct perf_shape *s = &ret->shape;
    s->prefill_tokens = (uint32_t)mean(now->prefill_tokens, seen->prefill_tokens, steps);
    s->prefill_chunks = (uint32_t)mean(now->prefill_chunks, seen->prefill_chunks, steps);
    s->decoding_seqs = (uint32_t)mean(now->decoding_seqs, seen->decoding_seqs, steps);
    s->kv_tokens_read = (uint64_t)mean(now->kv_tokens, seen->kv_tokens, steps);
    s->kv_tokens_decoding =
        (uint64_t)mean(now->kv_tokens_decoding, seen->kv_tokens_decoding, steps);
    /* What a peer says need not fit together, what a roofline is asked must. */
    if (s->prefill_tokens + s->decoding_seqs == 0) s->decoding_seqs = 1;
    s->prefill_chunks = s->prefill_tokens ? max_u32(1, s->prefill_chunks) : 0;
    s->prefill_chunks = min_u32(s->prefill_chunks, s->prefill_tokens);
    s->kv_tokens_decoding = min_u64(s->kv_tokens_decoding, s->kv_tokens_read);
}

static bool is_shown(const struct control *c, uint32_t at, uint32_t service, int64_t now_us)
{
    const struct detail *d = &c->detail[at];
    if (d->service != service || !intent_is_live(&c->intent[at]) || !d->has_engine) return false;
    if (!c->seen[at].engine_ready) return false;
    return sighting_is_fresh(&c->seen[at], &c->setup.merge, now_us);
}

static enum priority priority_of(const struct control *c, const struct detail *d)
{
    return d->pool == PLAN_NONE ? PRIORITY_HIGH : c->service[d->service].pool[d->pool].priority;
}

static void show(struct control *c, uint32_t service, int64_t now_us)
{
    struct power_room *room = c->power_room;
    struct service_power *p = &c->power[service];
    struct power_tail tail;
    bool known = tail_of(c, service, now_us, &tail);
    room->count = p->shown = p->unmodelled = 0;
    for (uint32_t at = 0; at < c->count; at++) {
        struct detail *d = &c->detail[at];
        if (d->service == service) d->power.watts_known = false;
        if (!is_shown(c, at, service, now_us)) continue;
        uint32_t n = room->count;
        bool clocked = d->engine.clock > 0 && d->engine.has_work && n < CONTROL_INSTANCES_MAX;
        bool modelled = clocked && model_roofline(c, at, &room->roofline[n]);
        p->shown++;
        if (!modelled) p->unmodelled++;
        if (!clocked) continue;
        struct power_instance *in = &room->instance[n];
        *in = (struct power_instance){ .roofline = modelled ? &room->roofline[n] : NULL,
                                       .clock = d->engine.clock,
                                       .injects_idle = true,
                                       .tail_known = known,
                                       .ttft_s = tail.ttft_s,
                                       .tpot_s = tail.tpot_s,
                                       .waiting = d->engine.waiting,
                                       .priority = priority_of(c, d) };
        static const struct wire_work none;
        show_work(&d->engine.work, d->power.boot == d->engine.boot ? &d->power.seen : &none, in);
        d->power.boot = d->engine.boot;
        d->power.seen = d->engine.work;
        d->power.watts = power_watts(in, in->clock);
        d->power.watts_known = modelled;
        room->slot[room->count++] = at;
    }
}

/* ---- the look ---- */

static void obey(struct control *c, uint32_t service, const struct power_verdict *v)
{
    struct power_room *room = c->power_room;
    struct service_power *p = &c->power[service];
    uint32_t changed = 0;
    double least = 1;
    for (uint32_t i = 0; i < room->count; i++) {
        struct instance_power *in = &c->detail[room->slot[i]].power;
        changed += fabs(in->clock - v->clock[i]) > POWER_RUNG / 2;
        in->clock = v->clock[i];
        least = fmin(least, in->clock);
    }
    p->reason = v->reason;
    if (changed > 0)
        log_event(LOG_INFO, "clocks", "service=%s changed=%u least=%.2f watts=%.1f reason=%s",
                  c->service[service].name, changed, least, p->watts, v->reason);
}

static void look(struct control *c, uint32_t service, int64_t now_us)
{
    const struct plan_service *sv = &c->service[service];
    struct service_power *p = &c->power[service];
    struct power_room *room = c->power_room;
    show(c, service, now_us);
    struct power_view view = { .instance = room->instance,
                               .count = room->count,
                               .ttft_slo_s = sv->ttft_slo_s,
                               .tpot_slo_s = sv->tpot_slo_s,
                               .row_watts_max = sv->row_watts_max };
    for (uint32_t i = 0; i < room->count; i++)
        view.row_watts += c->detail[room->slot[i]].power.watts;
    p->watts = view.row_watts;
    p->asked = true;
    struct power_verdict v = { .clock = room->clock };
    power_decide(sv->power, p->state, &view, now_us, &v);
    obey(c, service, &v);
    p->due_us = min_i64(max_i64(v.again_us, now_us + AGAIN_US_MIN), now_us + AGAIN_US_MAX);
    struct str name = str_from(sv->name);
    metric_set(metric_series(c->metrics, CONTROL_M_WATTS, &name), view.row_watts);
    if (view.row_watts_max > 0 && view.row_watts > view.row_watts_max)
        control_count(c, CONTROL_M_BREAKER, sv->name);
}

void control_power(struct control *c, int64_t now_us)
{
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        const struct service_power *p = &c->power[s];
        if (!c->service[s].power) continue;
        take_window(c, s, now_us);
        if (now_us < p->due_us && p->due_us - now_us <= AGAIN_US_MAX) continue;
        look(c, s, now_us);
    }
}

double control_clock(const struct control *c, uint32_t at)
{
    const struct detail *d = &c->detail[at];
    if (d->service == PLAN_NONE) return 0;
    return c->service[d->service].power ? d->power.clock : 1;
}
