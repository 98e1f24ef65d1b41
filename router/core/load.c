/* load.c - compares an engine's last report with the ledger of that moment, and averages work.
 *
 * A report is a second old when it comes. Comparing it with the ledger of now would take the
 * router's own latest requests for work that has vanished, and what ended meanwhile for work of
 * others; so the ledger's sums are remembered for as long as reports may lag.
 *
 * Of prompts the engine's own figure is followed: what it owed then, less what it can have computed
 * since, plus what this router sent since. Two estimates bound it from below: this one, and the
 * ledger's (a prompt without a first token is still owed).
 */
#include "router/core/load.h"

#include "base/core/bits.h"

#include <math.h>

/* A report comes from outside: beyond these it is nonsense, and below them no sum overflows. */
#define SEQS_MAX (1u << 20)
#define TOKENS_MAX (1ull << 50)

void load_boot(struct load *l)
{
    l->reported = l->counting = false;
}

void load_note(struct load *l, struct ledger_sums own, int64_t now_us)
{
    struct load_moment *m = &l->moment[l->newest];
    m->at_us = min_i64(m->at_us, now_us); /* a clock that was set back */
    if (l->count == 0 || now_us - m->at_us >= LOAD_MOMENT_US) {
        l->newest = (l->newest + 1) % LOAD_MOMENTS;
        l->count = min_u32(l->count + 1, LOAD_MOMENTS);
        m = &l->moment[l->newest];
        m->at_us = now_us;
    }
    m->sums = own;
}

/* The ledger at `at_us`; of the oldest moment known when that is before them all, of now when
 * nothing has changed since. */
static struct ledger_sums own_at(const struct load *l, int64_t at_us, struct ledger_sums now)
{
    struct ledger_sums found = now;
    for (uint32_t i = 0; i < l->count; i++) {
        const struct load_moment *m = &l->moment[(l->newest + LOAD_MOMENTS - i) % LOAD_MOMENTS];
        found = m->sums;
        if (m->at_us <= at_us) break;
    }
    return found;
}

static struct reported_load bounded(const struct reported_load *report)
{
    return (struct reported_load){ .running = min_u32(report->running, SEQS_MAX),
                                   .waiting = min_u32(report->waiting, SEQS_MAX),
                                   .prefill_tokens = min_u64(report->prefill_tokens, TOKENS_MAX),
                                   .kv_tokens = min_u64(report->kv_tokens, TOKENS_MAX),
                                   .head_pages = report->head_pages,
                                   .uncached_total = min_u64(report->uncached_total, TOKENS_MAX) };
}

uint64_t load_report(struct load *l, const struct reported_load *said, struct ledger_sums own,
                     int64_t as_of_us)
{
    if (l->reported && as_of_us < l->as_of_us) return 0; /* an older one that came late */
    const struct reported_load report = bounded(said);
    if (l->reported && report.uncached_total < l->report.uncached_total) {
        l->counting = false; /* the engine counts anew: the old height is never reached again */
    }
    l->own_then = own_at(l, as_of_us, own);
    l->report = report;
    l->reported = true;
    l->as_of_us = as_of_us;
    int64_t others = (int64_t)report.uncached_total - (int64_t)l->own_then.uncached_total;
    if (!l->counting) {
        l->counting = true;
        l->others_most = others;
    }
    /* Own prompts under way make the difference swing: only a new height is new work. */
    int64_t fresh = max_i64(others - l->others_most, 0);
    l->others_most += fresh;
    return (uint64_t)fresh;
}

static uint64_t above(uint64_t reported, uint64_t own)
{
    return reported > own ? reported - own : 0;
}

/* 1 while the report is fresh, then falling to 0. */
static double weight(const struct load *l, int64_t now_us)
{
    if (!l->reported) return 0;
    double old = (double)(now_us - l->as_of_us - TOLD_FRESH_US);
    return fmin(fmax(1 - old / (LOAD_STALE_US - TOLD_FRESH_US), 0), 1);
}

static void add_others(const struct load *l, struct ledger_sums own, double part, int64_t now_us,
                       struct route_instance *in)
{
    const struct reported_load *r = &l->report;
    uint64_t total = above((uint64_t)r->running + r->waiting, l->own_then.in_flight);
    uint64_t waiting = min_u64(above(r->waiting, l->own_then.waiting), total);
    uint32_t others = (uint32_t)(part * (double)total);
    uint32_t others_waiting = (uint32_t)(part * (double)waiting);
    uint64_t kv = (uint64_t)(part * (double)above(r->kv_tokens, l->own_then.kv_tokens));
    in->in_flight += others;
    in->waiting += others_waiting;
    in->decoding += others - others_waiting;
    in->kv_tokens += kv;
    in->active_tokens += kv;

    double step_s = in->perf.step_s + in->perf.decode_seq_s * (double)in->decoding +
                    in->perf.kv_read_s * (double)in->kv_tokens;
    double token_s = in->perf.prefill_token_s + step_s / (double)in->token_budget;
    if (!in->has_perf || token_s <= 0) return;
    double computed = (double)(now_us - l->as_of_us) * 1e-6 / token_s;
    double owed = fmax((double)r->prefill_tokens - computed, 0) * part;
    uint64_t since = own.uncached_total - l->own_then.uncached_total;
    in->prefill_tokens = max_u64(in->prefill_tokens, (uint64_t)owed + since);
}

void load_view(const struct load *l, struct ledger_sums own, int64_t now_us,
               struct route_instance *in)
{
    double part = weight(l, now_us);
    if (part > 0) add_others(l, own, part, now_us, in);
}

uint64_t load_unreported(const struct load *l, struct ledger_sums own)
{
    return l->reported ? own.uncached_total - l->own_then.uncached_total : 0;
}

static double decay(const struct load_meter *m, int64_t over_us, int64_t now_us)
{
    return exp(-(double)max_i64(now_us - m->at_us, 0) / (double)over_us);
}

void load_meter_add(struct load_meter *m, int64_t over_us, double work_s, int64_t now_us)
{
    if (!m->started) *m = (struct load_meter){ .started = true, .since_us = now_us };
    m->sum_s = m->sum_s * decay(m, over_us, now_us) + work_s;
    m->at_us = max_i64(m->at_us, now_us);
}

/* After a start the average is over what there was, so that a ramp is seen at once. */
double load_meter_rate(const struct load_meter *m, int64_t over_us, int64_t now_us)
{
    if (!m->started) return 0;
    double past = (double)max_i64(now_us - m->since_us, LOAD_US_MIN);
    double window_s = (double)over_us * 1e-6 * (1 - exp(-past / (double)over_us));
    return m->sum_s * decay(m, over_us, now_us) / window_s;
}

struct load_model *load_models_get(struct load_models *m, uint64_t name)
{
    struct load_model *stalest = m->model;
    for (uint32_t i = 0; i < m->count; i++) {
        struct load_model *one = &m->model[i];
        if (one->name == name) return one;
        if (one->meter.at_us < stalest->meter.at_us) stalest = one;
    }
    struct load_model *made = m->count < LOAD_MODELS_MAX ? &m->model[m->count++] : stalest;
    *made = (struct load_model){ .name = name };
    return made;
}

void load_models_add(struct load_models *m, uint64_t name, double work_s, int64_t now_us)
{
    if (work_s > 0) load_meter_add(&load_models_get(m, name)->meter, LOAD_US, work_s, now_us);
}

double load_models_rate(const struct load_models *m, uint64_t name, int64_t now_us)
{
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->model[i].name == name) return load_meter_rate(&m->model[i].meter, LOAD_US, now_us);
    }
    return -1;
}
