/* paged.c - runs the product's scheduler over modelled hardware, as one kind of instance.
 *
 *     submit ──► sched_submit            step ends ──► tokens ──► sched_commit ──► sched_plan
 *                    │ idle: plan                                                     │
 *                    └──────────────────────► step of world_step_us(shape) ◄──────────┘
 *
 * The engine's estimate of its own speed is fitted from the steps it has seen, as in the product; the
 * world's roofline, bias and residual stay on the other side of world_step_us.
 */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "engine/core/scheduler.h"
#include "policies/perf/perf_model.h"
#include "simulator/flight.h"
#include "simulator/instance.h"

#include <math.h>
#include <stdlib.h>

#define EVENTS_MAX 4096
#define EVENTS_READ 64
#define FETCH_AHEAD 6 /* sessions; a step touches each once, and few are in a cache */
#define CONTEXT_MAX 262144
#define COEF_STEPS 16 /* coefficients change slowly, and asking the policy takes a microsecond */

struct paged {
    struct instance base;
    struct world_engine world;
    struct scheduler *sched;
    const struct perf_policy *perf; /* estimates its speed */
    struct perf_coef coef;          /* the estimate as of some steps ago, which it reports */
    _Alignas(8) char perf_state[PERF_STATE_BYTES_MAX];
    struct sched_result *result;
    const struct sched_batch *batch; /* under way; NULL: idle */
    struct perf_shape shape;
    uint32_t *ids;   /* of the prompt being submitted; context_max places */
    uint32_t *match; /* scratch: pages of one look into the index */
    uint32_t output_max, context_max;
    struct kv_event *event; /* scratch: EVENTS_READ, too many bytes to clear in every step */
    uint64_t event_seq;
    int64_t step_us;   /* of the step under way */
    double page_s;     /* to copy a page to or from host memory */
    double copy_s;     /* of copies that the next step waits for */
    bool copied;       /* the step under way copies pages */
    double step_clock; /* of the step under way */
    struct instance_stats stats;
    struct wire_work work; /* since it became ready, without its span */
    struct list kept;      /* ended sessions whose pages are being copied */
    uint32_t stopping;     /* flights that stand still once the step ends */
};

static struct paged *paged_of(struct instance *in)
{
    return CONTAINER_OF(in, struct paged, base);
}

/* Returns true if the step is outside of the measured tables, which have steps of some sizes at full
 * clock. A machine with measured coefficients needs none. */
static bool is_beyond_tables(const struct paged *p, const struct perf_shape *shape)
{
    return !p->world.has_step &&
           (p->step_clock < 1 || !roofline_range_ok(&p->world.roofline, shape));
}

static void begin_step(struct paged *p, int64_t now_us)
{
    const struct sched_batch *b = sched_plan(p->sched, now_us, &p->coef);
    p->batch = NULL;
    p->base.next_us = INT64_MAX;
    p->copy_s += (double)(b->swapped_out + b->swapped_in) * p->page_s;
    if (b->count == 0) return;
    p->batch = b;
    p->shape = b->shape;
    p->step_clock = p->base.clock;
    p->stats.extrapolated |= is_beyond_tables(p, &b->shape);
    p->step_us = world_step_us(&p->world, &b->shape, p->stats.steps++, p->step_clock) +
                 (int64_t)(p->copy_s * 1e6);
    p->copied = p->copy_s > 0;
    p->copy_s = 0;
    p->base.next_us = now_us + p->step_us;
}

/* Without block ids there is no prefix cache, and nothing reads a token's id. */
static uint32_t answer_id(const struct paged *p, const struct flight *f, uint32_t nth)
{
    if (p->base.config.block_tokens == 0) return 0;
    return (uint32_t)rng_at(f->request, nth) & 0x7fffffffu;
}

/* Asks for the memory of the sessions that come next, of the flights of those before them, and of the
 * ledger's entries of the first of these. */
static void fetch_ahead(const struct sched_batch *b, uint32_t i)
{
    if (i + 2 * FETCH_AHEAD < b->count)
        __builtin_prefetch(&b->item[i + 2 * FETCH_AHEAD].session->owner);
    const struct flight *f =
        i + FETCH_AHEAD < b->count ? b->item[i + FETCH_AHEAD].session->owner : NULL;
    if (f) { /* else it went on elsewhere */
        __builtin_prefetch(&f->last_us);
        __builtin_prefetch(&f->routed.kv);
        __builtin_prefetch(&f->routed.dispatch.entry);
    }
    f = i + FETCH_AHEAD / 2 < b->count ? b->item[i + FETCH_AHEAD / 2].session->owner : NULL;
    if (f && f->routed.dispatch.entry) __builtin_prefetch(&f->routed.dispatch.entry->generated);
}

/* Makes the next token of each session that samples one in this step. */
static void produce(struct paged *p, int64_t now_us)
{
    const struct instance_hooks *h = &p->base.config.hooks;
    for (uint32_t i = 0; i < p->batch->count; i++) {
        const struct sched_item *item = &p->batch->item[i];
        fetch_ahead(p->batch, i);
        if (!item->sample) continue;
        struct flight *f = item->session->owner;
        uint32_t nth = f->generated + 1;
        p->result[i] = (struct sched_result){
            .id = answer_id(p, f, nth),
            .stop = world_is_last(p->base.config.world, f->request, nth),
        };
        if (nth == 1) f->cached_tokens = item->session->cached_tokens;
        h->tokens(h->arg, f, 1, now_us, now_us);
    }
}

static uint32_t answer_max(const struct paged *p, const struct flight *f)
{
    const struct trace_request *r = &p->base.config.world->trace->request[f->request];
    return r->output_max ? min_u32(r->output_max, p->output_max) : p->output_max;
}

static void forget(struct paged *p, struct flight *f)
{
    if (f->routed.kv.state == KVT_STOPPING) p->stopping--;
    f->session = NULL;
}

/* Returns true if the session ended for its slice alone. */
static bool is_slice_over(const struct paged *p, const struct flight *f, const struct session *s)
{
    return f->routed.dispatch.slice_tokens > 0 && s->end == SESSION_END_LENGTH &&
           f->generated < answer_max(p, f) && s->total < p->context_max;
}

static void tell_ends(struct paged *p, int64_t now_us)
{
    const struct instance_hooks *h = &p->base.config.hooks;
    for (struct session *s; (s = sched_next_ended(p->sched));) {
        struct flight *f = s->owner;
        if (f && s->keep_pages && s->end == SESSION_END_LENGTH && f->generated < answer_max(p, f)) {
            list_push_back(&p->kept, &s->link);
            h->prefilled(h->arg, f, now_us);
            continue;
        }
        bool displaced = s->end == SESSION_END_DISPLACED, goes_on = f && is_slice_over(p, f, s);
        sched_release(p->sched, s);
        if (!f) continue; /* it went on elsewhere */
        forget(p, f);
        if (displaced) {
            h->displaced(h->arg, f, now_us);
        } else if (goes_on) {
            h->sliced(h->arg, f, now_us);
        } else {
            h->ended(h->arg, f, now_us);
        }
    }
}

/* Tells that flights stand still: those of the step that has ended are in no batch now. */
static void tell_stands(struct paged *p, int64_t now_us)
{
    const struct instance_hooks *h = &p->base.config.hooks;
    for (; p->stopping > 0; p->stopping--) {
        LIST_EACH (&p->base.flights, node) {
            struct flight *f = CONTAINER_OF(node, struct flight, on_instance);
            if (f->routed.kv.state != KVT_STOPPING) continue;
            h->stands(h->arg, f, now_us);
            break;
        }
    }
}

static void tell_blocks(struct paged *p, int64_t now_us)
{
    const struct instance_hooks *h = &p->base.config.hooks;
    const struct kv_index *x = sched_index(p->sched);
    for (int n; (n = kv_index_events(x, p->event_seq, p->event, EVENTS_READ)) != 0;) {
        must(n > 0); /* read after every step: the ring holds what one step can make */
        for (int i = 0; i < n; i++) {
            const struct kv_event *e = &p->event[i];
            p->event_seq = e->seq;
            for (uint32_t k = 0; k < e->key_count; k++)
                h->block(h->arg, &p->base, e->key[k], e->add, now_us);
        }
    }
}

/* Counts a step's work and learns its time, unless it had a copy or a lower clock: such a time says nothing
 * about the engine's own speed. */
static void learn(struct paged *p, double seconds)
{
    struct wire_work *w = &p->work;
    w->busy_s += seconds;
    w->prefill_tokens += p->shape.prefill_tokens;
    w->prefill_chunks += p->shape.prefill_chunks;
    w->decoding_seqs += p->shape.decoding_seqs;
    w->kv_tokens += p->shape.kv_tokens_read;
    w->kv_tokens_decoding += p->shape.kv_tokens_decoding;
    w->steps++;
    if (p->copied || p->step_clock < 1) return;
    p->perf->observe(p->perf_state, &p->shape, seconds);
    if (p->stats.steps % COEF_STEPS == 0) p->perf->coef(p->perf_state, &p->coef);
}

static void work(struct instance *in, int64_t now_us, struct instance_work *ret)
{
    const struct paged *p = paged_of(in);
    *ret = (struct instance_work){ .roofline = p->world.has_step ? NULL : &p->world.roofline,
                                   .work = p->work };
    ret->work.span_s = (double)(now_us - in->ready_us) * 1e-6;
}

static void advance(struct instance *in, int64_t now_us)
{
    struct paged *p = paged_of(in);
    double seconds = (double)p->step_us * 1e-6;
    p->stats.busy_s += seconds;
    p->stats.energy_j += seconds * world_step_watts(&p->world, &p->shape, p->step_clock);
    produce(p, now_us);
    sched_commit(p->sched, p->result, now_us);
    learn(p, seconds);
    tell_blocks(p, now_us);
    tell_ends(p, now_us);
    tell_stands(p, now_us);
    begin_step(p, now_us);
}

static int submit(struct instance *in, struct flight *f, int64_t now_us, struct err *err)
{
    struct paged *p = paged_of(in);
    const struct trace *t = in->config.world->trace;
    const struct trace_request *r = &t->request[f->request];
    bool prefill_only = f->routed.kv.state == KVT_PREFILLING;
    uint32_t slice = f->routed.dispatch.slice_tokens ? f->routed.dispatch.slice_tokens : UINT32_MAX;
    if (r->prompt_tokens + f->generated >= p->context_max) {
        return err_set(err, -E2BIG, "simulator: a context of %u tokens", p->context_max);
    }
    if (in->config.block_tokens) prompt_ids(t, r, p->ids);
    for (uint32_t nth = 1; nth <= f->generated; nth++)
        p->ids[r->prompt_tokens + nth - 1] = answer_id(p, f, nth);
    struct sched_request req = {
        .id = f->request,
        .owner = f,
        .ids = p->ids,
        .prompt_tokens = r->prompt_tokens + f->generated,
        .output_max = prefill_only ? 1 : min_u32(answer_max(p, f) - f->generated, slice),
        .keep_pages = prefill_only,
        .imported_tokens = f->imported_tokens,
        .imported_from = f->imported_from,
        .salt = f->salt,
        .arrival_us = f->generated && !f->routed.dispatch.slice_tokens ? f->arrival_us : now_us,
        .predicted_p50 = (uint32_t)fmin(f->routed.dispatch.length.p50, UINT32_MAX),
        .predicted_p90 = (uint32_t)fmin(f->routed.dispatch.length.p90, UINT32_MAX),
        .predicted_mean = (uint32_t)fmin(f->routed.dispatch.length.mean, UINT32_MAX),
        .has_rank = f->routed.dispatch.length.has_rank,
        .rank = f->routed.dispatch.length.rank,
        .tenant = r->tenant,
        .weight = sim_tenant_weight(in->config.sim, r->tenant),
        .begun = f->generated > 0,
        .group = r->group ? hash64(&r->group, sizeof r->group, f->salt.lo) | 1 : 0,
    };
    int rc = sched_submit(p->sched, &req, &f->session, err);
    if (rc < 0) return rc;
    f->imported_tokens = f->imported_from = 0;
    if (!p->batch) begin_step(p, now_us);
    return 0;
}

static void load(struct instance *in, int64_t now_us, struct instance_load *ret)
{
    (void)now_us;
    const struct paged *p = paged_of(in);
    struct sched_counts c;
    sched_counts_get(p->sched, &c);
    const struct kv_pool *pool = sched_index(p->sched)->pool;
    uint32_t page_tokens = sched_index(p->sched)->page_tokens;
    *ret = (struct instance_load){
        .running = c.running,
        .waiting = c.waiting,
        .head_pages = sched_head_pages(p->sched),
        .prefill_tokens = sched_prefill_owed(p->sched),
        .kv_tokens = (uint64_t)pool->held_count * page_tokens,
        .kv_tokens_max = (uint64_t)pool->total * page_tokens,
        .pages_cached = pool->cached_count,
        .perf = p->coef,
    };
}

static void stats(struct instance *in, struct instance_stats *ret)
{
    const struct paged *p = paged_of(in);
    struct sched_counts c;
    sched_counts_get(p->sched, &c);
    *ret = p->stats;
    ret->preemptions = c.preemptions;
    ret->swaps = c.swaps;
    ret->prompt_tokens = c.query_tokens;
    ret->hit_tokens = c.hit_tokens;
}

/* ---- KV transfer ------------------------------------------------------------------------------ */

static uint32_t cached(struct instance *in, const struct flight *f)
{
    struct paged *p = paged_of(in);
    const struct kv_index *x = sched_index(p->sched);
    if (f->key_count == 0) return 0;
    prompt_ids(in->config.world->trace, &in->config.world->trace->request[f->request], p->ids);
    uint32_t pages =
        kv_index_match(x, f->salt, f->keys, p->ids, f->key_count / x->granules, p->match);
    return min_u32(pages * x->page_tokens, f->routed.dispatch.prompt_tokens - 1);
}

static void hold(struct instance *in, struct flight *f, int64_t now_us)
{
    struct paged *p = paged_of(in);
    sched_hold(p->sched, f->session, true);
    if (f->session->item) {
        p->stopping++;
    } else {
        in->config.hooks.stands(in->config.hooks.arg, f, now_us);
    }
}

static void resume(struct instance *in, struct flight *f, int64_t now_us)
{
    struct paged *p = paged_of(in);
    sched_hold(p->sched, f->session, false);
    if (!p->batch) begin_step(p, now_us);
}

/* Releases a flight's session. The pages of one that ran are released in the next plan. */
static void give(struct instance *in, struct flight *f, int64_t now_us)
{
    struct paged *p = paged_of(in);
    struct session *s = f->session;
    forget(p, f);
    s->owner = NULL;
    if (s->state == SESSION_ENDED) {
        list_remove(&s->link);
        sched_release(p->sched, s);
    } else {
        sched_abort(p->sched, s);
    }
    if (p->batch) return;
    begin_step(p, now_us);
    tell_ends(p, now_us);
}

static void free_paged(struct instance *in)
{
    struct paged *p = paged_of(in);
    for (struct list *node; (node = list_pop_front(&p->kept));)
        sched_release(p->sched, CONTAINER_OF(node, struct session, link));
    sched_free(p->sched);
    free(p->result);
    free(p->ids);
    free(p->match);
    free(p->event);
    free(p);
}

static const struct instance_kind kind = {
    .submit = submit,
    .advance = advance,
    .load = load,
    .stats = stats,
    .free = free_paged,
    .work = work,
    .cached = cached,
    .hold = hold,
    .resume = resume,
    .give = give,
};

void paged_limits(const struct sim_config *sim, const struct sim_pool *pool,
                  struct instance_limits *ret)
{
    struct roofline roofline;
    if (!pool->has_step)
        roofline_init(&roofline, pool->hardware, sim_pool_model(sim, pool), pool->tp);
    uint64_t kv_tokens =
        sim->kv_tokens || pool->has_step ? sim->kv_tokens : roofline_kv_tokens(&roofline);
    uint32_t page = sim->page_tokens;
    uint64_t pages = min_u64(kv_tokens / page, KV_PAGES_MAX);
    *ret = (struct instance_limits){
        .kv_tokens = pages * page,
        .context_max = (uint32_t)min_u64(pages * page, CONTEXT_MAX),
        .seqs_max = sim->seqs_max,
        .batch_tokens_max = max_u32(sim->batch_tokens_max, sim->seqs_max),
        .page_tokens = page,
        .prior = pool->step,
    };
    if (pool->has_step) return;
    ret->extrapolated = !roofline.validated;
    roofline_linear(&roofline, ROOFLINE_POINT_DEFAULT, &ret->prior);
}

static int make_scheduler(struct paged *p, const struct instance_limits *l, struct err *err)
{
    const struct sim_config *sim = p->base.config.sim;
    /* The bytes of a page are unknown for a machine with measured steps only. */
    double page_bytes = p->world.has_step ? 0 : p->world.roofline.kv_token_bytes * l->page_tokens;
    /* Without block ids there are no events, and their ring is most of an idle instance's memory. */
    bool named = p->base.config.block_tokens > 0;
    uint32_t pages = (uint32_t)(l->kv_tokens / l->page_tokens);
    double swap_pages = page_bytes > 0 ? (double)sim->swap_bytes / page_bytes : 0;
    struct sim_slo slo = sim_slo_of(sim, p->base.config.pool->service);
    struct sched_config config = {
        .pages = pages,
        .page_tokens = l->page_tokens,
        .context_max = l->context_max,
        .seqs_max = l->seqs_max,
        .batch_tokens_max = l->batch_tokens_max,
        .waiting_max = sim->bounds.waiting_max,
        .events_max = named ? max_u32(EVENTS_MAX, 2 * pages) : 1,
        .prefix_cache = named,
        .key_seed = p->base.config.key_seed,
        .step_s_max = p->base.config.pool->role == ROLE_PREFILL ? 0 : slo.tpot_s,
        .ttft_s_max = slo.ttft_s,
        .swap_pages = (uint32_t)fmin(swap_pages, KV_PAGES_MAX),
        .swap_page_s = page_bytes / sim->swap_bps,
        .preset = sim->preset,
        .policies = sim->step,
    };
    p->page_s = config.swap_page_s;
    return sched_new(&config, &p->sched, err);
}

static void believe(struct paged *p, const struct perf_coef *prior)
{
    struct perf_setup setup = { .roofline = p->world.has_step ? NULL : &p->world.roofline,
                                .prior = prior };
    p->perf = p->base.config.sim->perf;
    if (p->perf->needs_roofline && !setup.roofline) p->perf = perf_find(STR(PERF_DEFAULT_UNKNOWN));
    p->perf->init(p->perf_state, &setup);
    p->perf->coef(p->perf_state, &p->coef);
    p->base.clock = 1;
}

int paged_new(const struct instance_config *config, struct instance **ret, struct err *err)
{
    struct instance_limits l;
    paged_limits(config->sim, config->pool, &l);
    struct paged *p = calloc(1, sizeof *p);
    if (!p) return err_set(err, -ENOMEM, "simulator: no memory for an instance");
    p->base = (struct instance){ .kind = &kind, .config = *config, .next_us = INT64_MAX };
    world_engine_init(config->world, config->serial, config->pool,
                      sim_pool_model(config->sim, config->pool), &p->world);
    believe(p, &l.prior);
    list_init(&p->kept);
    p->context_max = l.context_max;
    p->output_max = config->sim->output_max;
    p->result = calloc(l.seqs_max, sizeof *p->result);
    p->ids = calloc(l.context_max, sizeof *p->ids);
    p->match = calloc(ceil_div_u32(l.context_max, l.page_tokens), sizeof *p->match);
    p->event = calloc(EVENTS_READ, sizeof *p->event);
    int rc = p->result && p->ids && p->match && p->event
                 ? make_scheduler(p, &l, err)
                 : err_set(err, -ENOMEM, "simulator: no memory for an instance");
    if (rc < 0) {
        free_paged(&p->base);
        return rc;
    }
    list_init(&p->base.flights);
    *ret = &p->base;
    return 0;
}
