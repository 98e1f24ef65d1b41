/* ledger.c - lists the requests in flight at each endpoint, sums the work that is left of them and adds what
 * other routers have sent.
 *
 * Sums are kept as entries change, so a view costs no walk except where slots are full and the
 * next free one has to be foretold.
 */
#include "router/core/ledger.h"

#include "base/core/arena.h"
#include "base/core/bits.h"

#include <math.h>
#include <stdlib.h>

#define SEQS_PREDICTED_MAX 256 /* running sequences looked at for the next free slot */
#define PREDICTED_US 20000     /* a foretold wait is used again for so long */
#define TENANT_BINS 64         /* two tenants in one bin count as one */

struct account {
    struct list waiting, running;
    struct ledger_sums sums;
    uint32_t heavy;
    uint64_t waiting_prompts; /* whole prompts of those that wait, cached part included */
    double output_left;
    uint32_t tenant_waiting[TENANT_BINS];
    int64_t last_first_us; /* when the latest first token came; the head began no earlier */

    /* slot_wait_s as it was foretold last */
    double predicted_s;
    int64_t predicted_us;
    uint32_t predicted_in_flight;
};

struct ledger {
    struct pool entries;
    uint32_t slots;
    struct account account[];
};

int ledger_new(uint32_t requests_max, uint32_t slots, struct ledger **ret, struct err *err)
{
    struct ledger *l = calloc(1, sizeof *l + slots * sizeof *l->account);
    if (!l || pool_init(&l->entries, sizeof(struct ledger_entry), requests_max) < 0) {
        free(l);
        return err_set(err, -ENOMEM, "ledger: no memory for %u requests", requests_max);
    }
    l->slots = slots;
    for (uint32_t i = 0; i < slots; i++) {
        list_init(&l->account[i].waiting);
        list_init(&l->account[i].running);
    }
    *ret = l;
    return 0;
}

void ledger_free(struct ledger *l)
{
    if (!l) return;
    pool_fini(&l->entries);
    free(l);
}

static uint32_t uncached(const struct ledger_entry *e)
{
    return e->sent.prompt_tokens - e->sent.hit_tokens;
}

/* Every sequence that runs has at least its last token to go. */
static double output_left(const struct ledger_entry *e)
{
    double left = e->output_expected - (double)e->generated;
    return left > 1 ? left : 1;
}

struct ledger_entry *ledger_send(struct ledger *l, uint32_t slot, const struct ledger_sending *s,
                                 int64_t now_us)
{
    must(slot < l->slots && s->hit_tokens < s->prompt_tokens);
    struct ledger_entry *e = pool_take(&l->entries);
    if (!e) return NULL;
    *e = (struct ledger_entry){
        .slot = slot, .sent = *s, .output_expected = s->output_expected, .sent_us = now_us
    };
    struct account *a = &l->account[slot];
    list_push_back(&a->waiting, &e->link);
    a->sums.in_flight++;
    a->sums.waiting++;
    a->sums.prefill_tokens += uncached(e);
    a->sums.uncached_total += uncached(e);
    a->heavy += s->output_expected > ROUTE_HEAVY_TOKENS;
    a->waiting_prompts += s->prompt_tokens;
    a->output_left += output_left(e);
    a->tenant_waiting[s->tenant % TENANT_BINS]++;
    return e;
}

static void leave_waiting(struct account *a, struct ledger_entry *e)
{
    a->sums.waiting--;
    a->sums.prefill_tokens -= uncached(e);
    a->waiting_prompts -= e->sent.prompt_tokens;
    a->tenant_waiting[e->sent.tenant % TENANT_BINS]--;
    list_remove(&e->link);
}

void ledger_tokens(struct ledger *l, struct ledger_entry *e, uint32_t count, int64_t now_us)
{
    struct account *a = &l->account[e->slot];
    if (e->first_us == 0) {
        e->first_us = e->measured_us = max_i64(now_us, 1);
        e->measured_tokens = count;
        a->last_first_us = now_us;
        leave_waiting(a, e);
        list_push_back(&a->running, &e->link);
        a->sums.kv_tokens += e->sent.prompt_tokens;
    }
    a->output_left -= output_left(e);
    e->generated += count;
    a->output_left += output_left(e);
    a->sums.kv_tokens += count;
}

void ledger_expect(struct ledger *l, struct ledger_entry *e, double output_expected)
{
    struct account *a = &l->account[e->slot];
    a->output_left -= output_left(e);
    e->output_expected = output_expected;
    a->output_left += output_left(e);
}

void ledger_end(struct ledger *l, struct ledger_entry *e)
{
    struct account *a = &l->account[e->slot];
    if (e->first_us == 0) {
        leave_waiting(a, e);
    } else {
        a->sums.kv_tokens -= (uint64_t)e->sent.prompt_tokens + e->generated;
        list_remove(&e->link);
    }
    a->sums.in_flight--;
    a->heavy -= e->sent.output_expected > ROUTE_HEAVY_TOKENS;
    /* An empty slot owes nothing: additions and subtractions leave no rest of rounding. */
    a->output_left = a->sums.in_flight > 0 ? a->output_left - output_left(e) : 0;
    pool_give(&l->entries, e);
}

/* Returns the tokens of the head, the oldest waiting prompt, that should be computed by now. */
static uint64_t head_progress(const struct account *a, int64_t now_us,
                              const struct route_instance *in)
{
    if (!in->has_perf || list_empty(&a->waiting)) return 0;
    const struct ledger_entry *head = CONTAINER_OF(a->waiting.next, struct ledger_entry, link);
    double since_s = (double)(now_us - max_i64(head->sent_us, a->last_first_us)) * 1e-6;
    double step_s = in->perf.step_s +
                    in->perf.decode_seq_s * (double)(a->sums.in_flight - a->sums.waiting) +
                    in->perf.kv_read_s * (double)a->sums.kv_tokens;
    double token_s = in->perf.prefill_token_s + step_s / (double)in->token_budget;
    if (since_s <= 0 || token_s <= 0) return 0;
    /* One token stays owed: the first token has not come, whatever the estimate says. */
    double done = since_s / token_s, most = (double)uncached(head) - 1;
    return (uint64_t)(done < most ? done : most);
}

/* Returns the nth smallest, from 0, by Hoare's partitions: qsort would allocate. */
static double nth_smallest(double *v, uint32_t count, uint32_t nth)
{
    uint32_t from = 0, to = count - 1;
    while (from < to) {
        double pivot = v[from + (to - from) / 2];
        uint32_t low = from, high = to;
        for (;; low++, high--) {
            while (v[low] < pivot)
                low++;
            while (v[high] > pivot)
                high--;
            if (low >= high) break;
            double kept = v[low];
            v[low] = v[high];
            v[high] = kept;
        }
        /* Up to `high` none is above the pivot, behind it none is below. */
        if (nth <= high) {
            to = high;
        } else {
            from = high + 1;
        }
    }
    return v[nth];
}

static uint32_t collect_left(const struct list *entries, double *left, uint32_t count)
{
    LIST_EACH (entries, node) {
        if (count == SEQS_PREDICTED_MAX) break;
        left[count++] = output_left(CONTAINER_OF(node, struct ledger_entry, link));
    }
    return count;
}

/* Seconds until one more sequence fits: the nth next of the running ones must end first. */
static double slot_wait_s(const struct account *a, const struct route_instance *in)
{
    double left[SEQS_PREDICTED_MAX];
    uint32_t count = collect_left(&a->running, left, 0);
    count = collect_left(&a->waiting, left, count);
    uint32_t ends = min_u32(a->sums.in_flight - in->seqs_max, count - 1);
    double running = (double)min_u32(a->sums.in_flight, in->seqs_max);
    double tpot_s = in->perf.step_s + in->perf.decode_seq_s * running +
                    in->perf.kv_read_s * (double)a->sums.kv_tokens;
    return nth_smallest(left, count, ends) * tpot_s;
}

static double predicted_s(struct account *a, const struct route_instance *in, int64_t now_us)
{
    if (a->sums.in_flight < in->seqs_max || !in->has_perf) return 0;
    if (a->predicted_in_flight != a->sums.in_flight || now_us - a->predicted_us > PREDICTED_US) {
        a->predicted_s = slot_wait_s(a, in);
        a->predicted_us = now_us;
        a->predicted_in_flight = a->sums.in_flight;
    }
    return a->predicted_s;
}

void ledger_view(struct ledger *l, uint32_t slot, uint64_t tenant, int64_t now_us,
                 struct route_instance *in)
{
    struct account *a = &l->account[slot];
    in->in_flight = a->sums.in_flight;
    in->waiting = a->sums.waiting;
    in->tenant_waiting = a->tenant_waiting[tenant % TENANT_BINS];
    in->decoding = a->sums.in_flight - a->sums.waiting;
    in->heavy = a->heavy;
    in->kv_tokens = a->sums.kv_tokens;
    in->active_tokens = a->sums.kv_tokens + a->waiting_prompts;
    in->output_left = a->output_left;
    in->prefill_tokens = a->sums.prefill_tokens - head_progress(a, now_us, in);
    in->slot_wait_s = predicted_s(a, in, now_us);
}

double ledger_queued_s(struct ledger *l, uint32_t slot, int64_t now_us, struct route_instance *in)
{
    ledger_view(l, slot, 0, now_us, in);
    double steps = in->output_left / (double)max_u32(in->decoding, 1);
    double step_s = in->perf.step_s + in->perf.decode_seq_s * (double)in->decoding +
                    in->perf.kv_read_s * (double)in->kv_tokens;
    return in->perf.prefill_token_s * (double)in->prefill_tokens + steps * step_s;
}

struct ledger_sums ledger_sums(const struct ledger *l, uint32_t slot)
{
    return l->account[slot].sums;
}

const struct ledger_sums *ledger_sums_at(const struct ledger *l, uint32_t slot)
{
    return &l->account[slot].sums;
}

uint32_t ledger_in_flight(const struct ledger *l, uint32_t slot)
{
    return l->account[slot].sums.in_flight;
}

uint32_t ledger_total(const struct ledger *l)
{
    return l->entries.used;
}

/* ---- what others have sent ---- */

/* An engine's last report is compared with the ledger of that moment. A report is a second old when it
 * comes. Comparing it with the present ledger would take the router's own latest requests for work that
 * has vanished, and requests that ended meanwhile for work of others; so the ledger's sums are remembered
 * for as long as reports may lag.
 *
 * For prompts, the engine's own figure is followed: the tokens it owed then, less those it can have
 * computed since, plus those this router sent since. The view takes the larger of this estimate and the
 * ledger's (a prompt without a first token is still owed).
 */

/* Bounds on a report, which comes from outside: beyond them it is nonsense, below them no sum overflows. */
#define SEQS_MAX (1u << 20)
#define TOKENS_MAX (1ull << 50)

void load_boot(struct load *l)
{
    l->reported = l->counting = false;
}

void load_note(struct load *l, const struct ledger_sums *own, int64_t now_us)
{
    struct load_moment *m = &l->moment[l->newest];
    m->at_us = min_i64(m->at_us, now_us); /* a clock that was set back */
    if (l->count == 0 || now_us - m->at_us >= LOAD_MOMENT_US) {
        l->newest = (l->newest + 1) % LOAD_MOMENTS;
        l->count = min_u32(l->count + 1, LOAD_MOMENTS);
        m = &l->moment[l->newest];
        m->at_us = now_us;
    }
    m->sums = *own;
}

/* Returns the ledger's sums at `at_us`: those of the oldest known moment if all are later, the present
 * ones if no moment is known. */
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
    if (l->reported && as_of_us < l->as_of_us) return 0; /* an older report that came late */
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

/* Returns the report's weight: 1 while it is fresh, then falling to 0. */
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

/* After a start the average covers only the time since then, so that a ramp is seen at once. */
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
