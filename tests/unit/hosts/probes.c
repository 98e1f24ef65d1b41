/* probes.c - writes views as text; see probes.h. */
#include "tests/unit/hosts/probes.h"

#include "base/core/own.h"

#include <string.h>

const char *const probe_names[PROBE_KIND_COUNT] = { "route", "scale", "place",
                                                    "role",  "power", "migrate" };

static struct probe_log *log_now;

void probe_log_set(struct probe_log *log)
{
    log_now = log;
}

void probe_log_fini(struct probe_log *log)
{
    for (uint32_t k = 0; k < PROBE_KIND_COUNT; k++)
        buf_fini(&log->text[k]);
}

/* Begins a view's text; returns NULL if the view is left out. */
static struct buf *begin(enum probe_kind kind, int64_t now_us)
{
    if (!log_now || now_us - log_now->zero_us < log_now->from_us) return NULL;
    struct buf *out = &log_now->text[kind];
    log_now->count[kind]++;
    buf_printf(out, "%s at %lld\n", probe_names[kind], (long long)(now_us - log_now->zero_us));
    return out;
}

#define U(out, s, member) buf_printf(out, " " #member "=%llu", (unsigned long long)(s)->member)
#define F(out, s, member) buf_printf(out, " " #member "=%a", (double)(s)->member)

static void put_perf(struct buf *out, const struct perf_coef *p)
{
    F(out, p, step_s);
    F(out, p, prefill_token_s);
    F(out, p, decode_seq_s);
    F(out, p, kv_read_s);
    F(out, p, attend_s);
    F(out, p, samples);
}

static void put_lengths(struct buf *out, const char *name, const struct lengths *l)
{
    buf_printf(out, "  %s", name);
    F(out, l, count);
    F(out, l, age_s);
    F(out, l, prompt);
    F(out, l, output);
    F(out, l, prompt_sq);
    F(out, l, output_sq);
    F(out, l, cross);
    for (uint32_t i = 0; i < LENGTH_BINS; i++)
        for (uint32_t k = 0; k < LENGTH_BINS; k++)
            if (l->bin[i][k] > 0 || l->bin[i][k] < 0)
                buf_printf(out, " [%u,%u]=%a", i, k, (double)l->bin[i][k]);
    buf_byte(out, '\n');
}

/* ---- route ---- */

static void put_route_instance(struct buf *out, const struct route_instance *in)
{
    buf_text(out, "  instance");
    U(out, in, id);
    U(out, in, name_hash);
    U(out, in, accepts);
    U(out, in, role);
    U(out, in, has_perf);
    put_perf(out, &in->perf);
    U(out, in, token_budget);
    U(out, in, seqs_max);
    U(out, in, in_flight);
    U(out, in, waiting);
    U(out, in, tenant_waiting);
    U(out, in, decoding);
    U(out, in, heavy);
    U(out, in, kv_tokens);
    U(out, in, active_tokens);
    U(out, in, kv_tokens_max);
    F(out, in, output_left);
    U(out, in, prefill_tokens);
    F(out, in, slot_wait_s);
    U(out, in, hit_tokens);
    F(out, in, prompt_load);
    F(out, in, price_per_hour);
    buf_byte(out, '\n');
}

/* Sends to the instance with the fewest requests in flight, the first of equals. */
static void route_decide_probe(void *state, const struct route_view *view,
                               const struct route_req *req, int64_t now_us, struct rng *rng,
                               struct route_verdict *ret)
{
    (void)state, (void)rng;
    uint32_t best = ROUTE_NONE;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (!route_takes(&view->instance[i])) continue;
        if (best == ROUTE_NONE || view->instance[i].in_flight < view->instance[best].in_flight)
            best = i;
    }
    route_answer(view, req, best, ROUTE_NONE, ret);
    struct buf *out = begin(PROBE_ROUTE, now_us);
    if (!out) return;
    U(out, view, has_load);
    F(out, view, load);
    F(out, view, link_bytes_s);
    U(out, view, kv_bytes_per_token);
    U(out, req, prompt_tokens);
    U(out, req, prefix_hash);
    U(out, req, tenant);
    F(out, req, output_mean);
    F(out, req, output_p50);
    F(out, req, output_p90);
    F(out, req, slo_ttft_s);
    F(out, req, slo_tpot_s);
    buf_byte(out, '\n');
    for (uint32_t i = 0; i < view->instance_count; i++)
        put_route_instance(out, &view->instance[i]);
}

const struct route_policy probe_route = {
    .name = "probe", .about = "a test's", .source = "", .decide = route_decide_probe
};

/* ---- scale ---- */

static void put_pool(struct buf *out, const struct scale_pool *p)
{
    buf_text(out, "  pool");
    U(out, p, min);
    U(out, p, max);
    U(out, p, ready);
    U(out, p, starting);
    U(out, p, available);
    F(out, p, price_h);
    F(out, p, lead_s);
    F(out, p, left_s);
    U(out, p, perf_known);
    put_perf(out, &p->perf);
    U(out, p, seqs_max);
    U(out, p, kv_tokens_max);
    U(out, p, step_tokens);
    U(out, p, context_tokens);
    buf_byte(out, '\n');
}

static void put_scale_instance(struct buf *out, const struct scale_instance *in)
{
    buf_text(out, "  instance");
    U(out, in, pool);
    U(out, in, ready);
    U(out, in, fresh);
    F(out, in, left_s);
    F(out, in, price_h);
    F(out, in, read_s);
    U(out, in, running);
    U(out, in, waiting);
    U(out, in, kv_tokens);
    U(out, in, kv_tokens_max);
    U(out, in, prefill_known);
    U(out, in, prefill_tokens);
    buf_byte(out, '\n');
}

static void put_demand(struct buf *out, const struct scale_demand *d)
{
    buf_text(out, "  demand");
    U(out, d, present);
    F(out, d, age_s);
    F(out, d, arrivals_s);
    F(out, d, prompt_tokens);
    F(out, d, output_tokens);
    U(out, d, in_flight);
    U(out, d, waiting);
    U(out, d, held);
    F(out, d, idle_s);
    U(out, d, ttft_known);
    F(out, d, ttft_s);
    U(out, d, tpot_known);
    F(out, d, tpot_s);
    U(out, d, slo_known);
    U(out, d, slo_met_total);
    U(out, d, slo_missed_total);
    U(out, d, arrivals_total);
    U(out, d, held_prompt_tokens);
    buf_byte(out, '\n');
    put_lengths(out, "expected", &d->expected);
    put_lengths(out, "queued", &d->queued);
}

static void scale_decide_probe(void *state, const struct scale_config *config,
                               const struct scale_view *view, int64_t now_us, struct rng *rng,
                               struct scale_verdict *ret)
{
    (void)state, (void)config, (void)rng;
    scale_keep(view, "kept", ret);
    ret->again_us = now_us;
    struct buf *out = begin(PROBE_SCALE, now_us);
    if (!out) return;
    F(out, view, ttft_slo_s);
    F(out, view, tpot_slo_s);
    F(out, view, budget_h);
    buf_byte(out, '\n');
    for (uint32_t p = 0; p < view->pool_count; p++)
        put_pool(out, &view->pool[p]);
    for (uint32_t i = 0; i < view->instance_count; i++)
        put_scale_instance(out, &view->instance[i]);
    put_demand(out, &view->demand);
}

const struct scale_policy probe_scale = { .name = "probe",
                                          .about = "a test's",
                                          .source = "",
                                          .shaper = "none",
                                          .decide = scale_decide_probe };

/* ---- place ---- */

static void place_choose_probe(void *state, const struct place_view *view, int64_t now_us,
                               struct rng *rng, struct place_verdict *ret)
{
    (void)state, (void)rng;
    *ret = (struct place_verdict){ .missing = -1, .reason = "kept" };
    ret->want[0] = view->target;
    place_finish(view, ret);
    struct buf *out = begin(PROBE_PLACE, now_us);
    if (!out) return;
    U(out, view, target);
    F(out, view, availability);
    buf_byte(out, '\n');
    for (uint32_t i = 0; i < view->offer_count; i++) {
        const struct place_offer *o = &view->offer[i];
        buf_text(out, "  offer");
        U(out, o, usable);
        U(out, o, spot);
        F(out, o, price_h);
        F(out, o, lead_s);
        U(out, o, ready);
        U(out, o, starting);
        U(out, o, lost);
        U(out, o, refused);
        buf_byte(out, '\n');
    }
}

const struct place_policy probe_place = {
    .name = "probe", .about = "a test's", .source = "", .choose = place_choose_probe
};

/* ---- role ---- */

static void role_decide_probe(void *state, const struct role_view *view, int64_t now_us,
                              struct rng *rng, struct role_verdict *ret)
{
    (void)state, (void)rng;
    role_keep(view, "kept", now_us, ret);
    ret->again_us = now_us;
    struct buf *out = begin(PROBE_ROLE, now_us);
    if (!out) return;
    const struct role_demand *d = &view->demand;
    U(out, d, present);
    F(out, d, prompt_mean);
    F(out, d, prompt_m2);
    F(out, d, output_mean);
    F(out, d, output_m2);
    F(out, view, ttft_slo_s);
    F(out, view, tpot_slo_s);
    F(out, view, attainment);
    F(out, view, link_bytes_s);
    F(out, view, token_bytes);
    buf_byte(out, '\n');
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct role_instance *in = &view->instance[i];
        buf_text(out, "  instance");
        U(out, in, ready);
        U(out, in, changing);
        U(out, in, pinned);
        U(out, in, role);
        U(out, in, has_perf);
        put_perf(out, &in->perf);
        U(out, in, token_budget);
        U(out, in, seqs_max);
        U(out, in, kv_tokens_max);
        U(out, in, prompt_pending);
        U(out, in, decode_pending);
        U(out, in, decoding);
        buf_byte(out, '\n');
    }
}

const struct role_policy probe_role = {
    .name = "probe", .about = "a test's", .source = "", .decide = role_decide_probe
};

/* ---- power ---- */

static void power_decide_probe(void *state, const struct power_view *view, int64_t now_us,
                               struct power_verdict *ret)
{
    (void)state;
    for (uint32_t i = 0; i < view->count; i++)
        ret->clock[i] = 1;
    ret->reason = "kept";
    ret->again_us = now_us;
    struct buf *out = begin(PROBE_POWER, now_us);
    if (!out) return;
    F(out, view, ttft_slo_s);
    F(out, view, tpot_slo_s);
    F(out, view, power_limit_watts);
    buf_byte(out, '\n');
    for (uint32_t i = 0; i < view->count; i++) {
        const struct power_instance *in = &view->instance[i];
        buf_text(out, "  instance");
        F(out, in->roofline, watts_idle);
        F(out, in->roofline, watts_max);
        F(out, in->roofline, kv_token_bytes);
        U(out, &in->shape, prefill_tokens);
        U(out, &in->shape, prefill_chunks);
        U(out, &in->shape, decoding_seqs);
        U(out, &in->shape, kv_tokens_read);
        U(out, &in->shape, kv_tokens_decoding);
        F(out, in, busy);
        F(out, in, clock);
        U(out, in, tail_known);
        F(out, in, ttft_s);
        F(out, in, tpot_s);
        U(out, in, waiting);
        U(out, in, priority);
        buf_byte(out, '\n');
    }
}

const struct power_policy probe_power = {
    .name = "probe", .about = "a test's", .source = "", .decide = power_decide_probe
};

/* ---- migrate ---- */

#define LOOK_US 500000

static void put_migrate_instance(struct buf *out, const struct migrate_instance *in)
{
    buf_text(out, "  instance");
    U(out, in, id);
    U(out, in, present);
    U(out, in, accepts);
    U(out, in, draining);
    U(out, in, pages_free);
    U(out, in, queue_pages);
    U(out, in, running);
    F(out, in, step_s);
    F(out, in, receiving_pages);
    F(out, in, sending_pages);
    U(out, in, leaves_us);
    for (uint32_t i = 0; i < in->session_count; i++)
        buf_printf(out, " [%llu %u %d]", (unsigned long long)in->session[i].id,
                   in->session[i].tokens, in->session[i].movable);
    buf_byte(out, '\n');
}

static void migrate_decide_probe(void *state, const struct migrate_config *config,
                                 const struct migrate_view *view, int64_t now_us, struct rng *rng,
                                 struct migrate_verdict *ret)
{
    (void)state, (void)config, (void)rng;
    *ret = (struct migrate_verdict){ .again_us = now_us + LOOK_US };
    struct buf *out = view->instance_count > 0 ? begin(PROBE_MIGRATE, now_us) : NULL;
    if (!out) return;
    U(out, view, page_tokens);
    F(out, view, page_bytes);
    F(out, view, link_bytes_s);
    buf_byte(out, '\n');
    for (uint32_t i = 0; i < view->instance_count; i++)
        put_migrate_instance(out, &view->instance[i]);
}

const struct migrate_policy probe_migrate = {
    .name = "probe", .about = "a test's", .source = "", .decide = migrate_decide_probe
};
