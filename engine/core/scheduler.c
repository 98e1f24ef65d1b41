/* scheduler.c - one path for prompts, cache hits, decoding and resuming: computed -> total.
 *
 * Follows vLLM's V1 scheduler in having no phases, and differs in four points. Decoding sessions
 * are served before begun prompts, so that a long prompt never delays a token that is due
 * (Sarathi-Serve's order). Admission asks whether the answers will fit as well, because
 * preempting by recompute loses more than waiting does once memory is short. A paused session
 * (its reader is slow) is the first to lose its pages. A full hit shares the last page too and
 * copies it on write, instead of recomputing a whole page for the sake of one token.
 *
 * Lists are walked from end to end each step: running is at most seqs_max, waiting at most
 * waiting_max, and a step of the executor is longer than either walk by orders of magnitude.
 */
#include "engine/core/scheduler.h"

#include "base/core/bits.h"

#include <stdlib.h>
#include <string.h>

#define OUTPUT_PRIOR_TOKENS 64.0 /* mean answer before any was seen */
#define OUTPUT_MEAN_RATE 0.05    /* of the running mean of answer lengths */
#define OUTPUT_P90_RATIO 2.3     /* P90 over mean of an exponential: ln 10 */

struct scheduler {
    struct sched_config config;
    struct kv_pool pool;
    struct kv_index index;
    struct list waiting, running, ended;
    struct sched_batch batch;
    struct sched_counts counts;
    struct perf_coef perf; /* of the current plan */
    double output_mean;    /* of answers that ended by themselves or by their limit */
    uint64_t promised;     /* pages that running sessions still need for known tokens */
    uint64_t growth;       /* and those they will need beyond, by their P90 */
    uint64_t kept;         /* pages of ended sessions whose copies are under way */
    uint32_t *match;       /* scratch: pages of one lookup */
    bool planned;          /* between plan and commit */
};

#define SESSION_OF(node) CONTAINER_OF(node, struct session, link)

static int config_check(const struct sched_config *c, struct err *err)
{
    if (c->page_tokens == 0 || c->page_tokens % BLOCK_TOKENS ||
        c->page_tokens > KV_INDEX_TOKENS_MAX) {
        return err_set(err, -EINVAL, "page size %u tokens: must be a multiple of %d up to %d",
                       c->page_tokens, BLOCK_TOKENS, KV_INDEX_TOKENS_MAX);
    }
    if (c->seqs_max == 0 || c->waiting_max == 0 || c->context_max < 2 || c->events_max == 0) {
        return err_set(err, -EINVAL, "a scheduler needs room for at least one session of 2 tokens");
    }
    if (c->batch_tokens_max < c->seqs_max) {
        return err_set(err, -EINVAL,
                       "%u batched tokens a step are fewer than %u sessions: each needs one",
                       c->batch_tokens_max, c->seqs_max);
    }
    if ((uint64_t)c->pages * c->page_tokens < c->context_max) {
        return err_set(err, -EINVAL,
                       "%u pages of %u tokens cannot hold one context of %u tokens: give the KV "
                       "cache more memory or shorten the context",
                       c->pages, c->page_tokens, c->context_max);
    }
    return 0;
}

int sched_new(const struct sched_config *config, struct scheduler **ret, struct err *err)
{
    int rc = config_check(config, err);
    if (rc < 0) return rc;
    CLEANUP(sched_freep) struct scheduler *s = calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    list_init(&s->waiting);
    list_init(&s->running);
    list_init(&s->ended);
    s->config = *config;
    if (!s->config.order) s->config.order = order_find(STR(ORDER_DEFAULT));
    if (!s->config.admit) s->config.admit = admit_find(STR(ADMIT_DEFAULT));
    if (!s->config.preempt) s->config.preempt = preempt_find(STR(PREEMPT_DEFAULT));
    if (!s->config.chunk) s->config.chunk = chunk_find(STR(CHUNK_DEFAULT));
    if (!s->config.evict) s->config.evict = evict_find(STR(EVICT_DEFAULT));
    s->output_mean = OUTPUT_PRIOR_TOKENS;

    uint32_t context_pages = ceil_div_u32(config->context_max, config->page_tokens);
    s->batch.item = calloc(config->seqs_max, sizeof *s->batch.item);
    s->batch.copy = calloc(config->seqs_max, sizeof *s->batch.copy);
    s->match = calloc(context_pages, sizeof *s->match);
    if (!s->batch.item || !s->batch.copy || !s->match) return -ENOMEM;
    rc = kv_pool_init(&s->pool, config->pages);
    if (rc < 0) return err_set(err, rc, "KV pool of %u pages", config->pages);
    rc = kv_index_init(&s->index, &s->pool, config->page_tokens, s->config.evict,
                       config->events_max);
    if (rc < 0) return err_set(err, rc, "index of %u KV pages", config->pages);
    *ret = TAKE(s);
    return 0;
}

static void free_all(struct list *head)
{
    for (struct list *node; (node = list_pop_front(head));)
        session_free(SESSION_OF(node));
}

void sched_free(struct scheduler *s)
{
    if (!s) return;
    free_all(&s->waiting);
    free_all(&s->running);
    free_all(&s->ended);
    kv_index_fini(&s->index);
    kv_pool_fini(&s->pool);
    free(s->batch.item);
    free(s->batch.copy);
    free(s->match);
    free(s);
}

int sched_submit(struct scheduler *s, const struct sched_request *req, struct session **ret,
                 struct err *err)
{
    if (req->prompt_tokens == 0 || req->output_max == 0) {
        return err_set(err, -EINVAL, "a request needs a prompt and at least one token to answer");
    }
    if (req->imported_tokens >= req->prompt_tokens) {
        return err_set(err, -EINVAL, "%u of %u tokens imported: the last is always computed",
                       req->imported_tokens, req->prompt_tokens);
    }
    if (req->prompt_tokens >= s->config.context_max) {
        return err_set(err, -E2BIG, "a prompt of %u tokens leaves no room in a context of %u",
                       req->prompt_tokens, s->config.context_max);
    }
    if (s->counts.waiting >= s->config.waiting_max) {
        s->counts.refused++;
        return err_set(err, -EAGAIN, "%u requests are waiting already", s->counts.waiting);
    }
    uint32_t room = s->config.context_max - req->prompt_tokens;
    uint32_t total_max = req->prompt_tokens + min_u32(room, req->output_max);
    struct session *session = session_new(req, total_max, s->config.page_tokens);
    if (!session) return err_set(err, -ENOMEM, "no memory for %u tokens", total_max);

    session->state = SESSION_WAITING;
    list_push_back(&s->waiting, &session->link);
    s->counts.waiting++;
    s->counts.submitted++;
    *ret = session;
    return 0;
}

void sched_abort(struct scheduler *s, struct session *session)
{
    (void)s;
    session->abort_asked = true;
}

void sched_pause(struct scheduler *s, struct session *session, bool paused)
{
    if (session->paused == paused || session->state == SESSION_ENDED) return;
    session->paused = paused;
    if (paused) {
        s->counts.paused++;
    } else {
        s->counts.paused--;
    }
}

void sched_hold(struct session *session, bool held)
{
    session->held = held;
}

/* ---- lengths and pages -------------------------------------------------------------------- */

static uint32_t pages_for(const struct scheduler *s, uint32_t tokens)
{
    return ceil_div_u32(tokens, s->config.page_tokens);
}

static uint32_t expected_total(const struct scheduler *s, const struct session *session)
{
    double p90 =
        session->predicted_p90 ? (double)session->predicted_p90 : OUTPUT_P90_RATIO * s->output_mean;
    uint32_t output = max_u32((uint32_t)p90, session_generated(session) + 1);
    return min_u32(session->prompt_tokens + min_u32(output, UINT32_MAX / 2), session->total_max);
}

/* Pages that the known tokens still need, and those that the expected answer needs beyond. */
static void add_demand(struct scheduler *s, const struct session *session)
{
    uint32_t known = max_u32(pages_for(s, session->total), session->page_count);
    s->promised += known - session->page_count;
    s->growth += max_u32(pages_for(s, expected_total(s, session)), known) - known;
}

static double work_s(const struct scheduler *s, const struct session *session)
{
    double p50 = session->predicted_p50 ? (double)session->predicted_p50 : s->output_mean;
    double generated = (double)session_generated(session);
    double left = p50 > generated ? p50 - generated : 1;
    double most = (double)session->total_max - (double)session->total;
    if (left > most) left = most > 1 ? most : 1;
    /* The fixed cost of a step is shared by those that run in it. */
    double step_s = s->perf.c + s->perf.a / (1.0 + (double)s->counts.running) +
                    s->perf.d * (double)session->total;
    double seconds = s->perf.b * (double)(session->total - session->computed) + left * step_s;
    return seconds > 1e-9 ? seconds : 1e-9;
}

static struct step_session step_view(const struct scheduler *s, const struct session *session)
{
    return (struct step_session){
        .arrival_us = session->arrival_us,
        .deadline_us = session->deadline_us,
        .prompt_tokens = session->prompt_tokens,
        .generated = session_generated(session),
        .computed = session->computed,
        .output_max = session->total_max - session->prompt_tokens,
        .predicted_p50 = session->predicted_p50,
        .pages = session->page_count,
        .work_s = work_s(s, session),
        .paused = session->paused,
    };
}

/* Tail first: under a clock of releases the tail is then the first to be evicted. */
static void release_pages(struct scheduler *s, struct session *session)
{
    while (session->page_count > 0) {
        kv_index_release(&s->index, session->pages[--session->page_count]);
    }
    session->computed = session->sealed_pages = 0;
}

/* Makes tokens [computed, upto) writable: copies a shared page they begin in, takes new ones.
 * False when a page is missing; what was taken so far stays with the session. */
static bool make_room(struct scheduler *s, struct session *session, uint32_t upto)
{
    uint32_t first = session->computed / s->config.page_tokens;
    if (first < session->page_count && kv_pool_shared(&s->pool, session->pages[first])) {
        uint32_t page = kv_index_take(&s->index);
        if (page == KV_PAGE_NONE) return false;
        uint32_t from = session->pages[first];
        must(s->batch.copy_count < s->config.seqs_max);
        s->batch.copy[s->batch.copy_count++] = (struct sched_copy){ from, page };
        s->counts.pages_copied++;
        session->pages[first] = page;
        kv_index_release(&s->index, from);
    }
    uint32_t pages = pages_for(s, upto);
    while (session->page_count < pages) {
        uint32_t page = kv_index_take(&s->index);
        if (page == KV_PAGE_NONE) return false;
        session->pages[session->page_count++] = page;
    }
    return true;
}

/* ---- the batch ---------------------------------------------------------------------------- */

static void batch_add(struct scheduler *s, struct session *session, uint32_t count)
{
    struct sched_batch *b = &s->batch;
    must(b->count < s->config.seqs_max && count > 0);
    b->item[b->count++] = (struct sched_item){
        .session = session,
        .start = session->computed,
        .count = count,
        .import_from = session->imported_tokens ? session->import_from : session->computed,
        .sample = session->computed + count == session->total,
    };
    session->item = b->count;
    b->tokens += count;
}

static void batch_remove(struct scheduler *s, struct session *session)
{
    if (session->item == 0) return;
    struct sched_batch *b = &s->batch;
    uint32_t at = session->item - 1;
    b->tokens -= b->item[at].count;
    memmove(&b->item[at], &b->item[at + 1], (--b->count - at) * sizeof *b->item);
    for (uint32_t i = at; i < b->count; i++)
        b->item[i].session->item = i + 1;
    session->item = 0;
}

static void batch_shape(struct sched_batch *b)
{
    b->shape = (struct perf_shape){ 0 };
    for (uint32_t i = 0; i < b->count; i++) {
        uint64_t start = b->item[i].start, n = b->item[i].count;
        if (n == 1) {
            b->shape.decoding_seqs++;
            b->shape.kv_tokens_decoding += start + 1;
        } else {
            b->shape.prefill_tokens += (uint32_t)n;
            b->shape.prefill_chunks++;
        }
        b->shape.kv_tokens_read += n * start + n * (n + 1) / 2;
    }
}

/* ---- ends and preemption ------------------------------------------------------------------- */

static void end_session(struct scheduler *s, struct session *session, enum session_end why,
                        int64_t now_us)
{
    batch_remove(s, session);
    if (session->keep_pages) {
        s->kept += session->page_count;
    } else {
        release_pages(s, session);
    }
    sched_pause(s, session, false);
    if (session->state == SESSION_RUNNING) {
        s->counts.running--;
    } else {
        s->counts.waiting--;
    }
    if (why == SESSION_END_STOP || why == SESSION_END_LENGTH) {
        double output = (double)session_generated(session);
        s->output_mean += OUTPUT_MEAN_RATE * (output - s->output_mean);
    }
    session->state = SESSION_ENDED;
    session->end = why;
    session->ended_us = now_us;
    list_remove(&session->link);
    list_push_back(&s->ended, &session->link);
    s->counts.ended[why]++;
    s->counts.ended_waiting++;
}

static void end_due(struct scheduler *s, struct list *head, int64_t now_us)
{
    LIST_EACH_SAFE (head, node) {
        struct session *session = SESSION_OF(node);
        if (session->abort_asked) {
            end_session(s, session, SESSION_END_ABORT, now_us);
        } else if (session->deadline_us && session->deadline_us <= now_us) {
            end_session(s, session, SESSION_END_DEADLINE, now_us);
        }
    }
}

/* By recompute: the pages go (most stay findable in the index), the tokens stay. */
static void preempt(struct scheduler *s, struct session *session)
{
    batch_remove(s, session);
    release_pages(s, session);
    session->state = SESSION_WAITING;
    session->preemptions++;
    list_remove(&session->link);
    list_push_front(&s->waiting, &session->link);
    s->counts.running--;
    s->counts.waiting++;
    s->counts.preemptions++;
}

/* Whether `a` is a better victim than `b`. A paused session cannot use its pages now. */
static bool worse(const struct scheduler *s, const struct session *a, const struct session *b)
{
    if (a->paused != b->paused) return a->paused;
    struct step_session va = step_view(s, a), vb = step_view(s, b);
    double ra = s->config.preempt->rank(&va), rb = s->config.preempt->rank(&vb);
    if (ra > rb || ra < rb) return ra > rb;
    if (a->arrival_us != b->arrival_us) return a->arrival_us > b->arrival_us;
    return a->id > b->id;
}

static struct session *victim(const struct scheduler *s, bool paused_only)
{
    struct session *worst = NULL;
    LIST_EACH (&s->running, node) {
        struct session *session = SESSION_OF(node);
        if (session->held || (paused_only && !session->paused)) continue;
        if (!worst || worse(s, session, worst)) worst = session;
    }
    return worst;
}

/* Room by preempting others; false when `session` itself was the one to go. */
static bool force_room(struct scheduler *s, struct session *session, uint32_t upto)
{
    while (!make_room(s, session, upto)) {
        struct session *out = victim(s, false);
        preempt(s, out);
        if (out == session) return false;
    }
    return true;
}

/* ---- the stages of a plan ------------------------------------------------------------------ */

static void plan_decoding(struct scheduler *s)
{
    /* A preempted session leaves the list, so the walk starts again; those that have an item
     * are passed over. */
    for (bool changed = true; changed;) {
        changed = false;
        LIST_EACH (&s->running, node) {
            struct session *session = SESSION_OF(node);
            if (session->paused || session->held || session->item ||
                session->total - session->computed != 1) {
                continue;
            }
            uint64_t before = s->counts.preemptions;
            if (force_room(s, session, session->total)) batch_add(s, session, 1);
            changed = s->counts.preemptions != before;
            if (changed) break;
        }
    }
}

static uint32_t chunk_tokens(struct scheduler *s, const struct session *session)
{
    uint32_t budget = s->config.batch_tokens_max - s->batch.tokens;
    if (budget == 0) return 0;
    batch_shape(&s->batch);
    struct chunk_view view = {
        .tokens_left = session->total - session->computed,
        .budget_left = budget,
        .computed = session->computed,
        .planned = s->batch.shape,
        .perf = s->perf,
        .step_s_max = s->config.step_s_max,
    };
    uint32_t n = s->config.chunk->decide(&view);
    must(n <= view.tokens_left && n <= budget && (n > 0 || s->batch.count > 0));
    return n;
}

static void plan_begun(struct scheduler *s)
{
    for (bool changed = true; changed;) {
        changed = false;
        LIST_EACH (&s->running, node) {
            struct session *session = SESSION_OF(node);
            if (session->paused || session->held || session->item) continue;
            uint32_t n = chunk_tokens(s, session);
            if (n == 0) return;
            uint64_t before = s->counts.preemptions;
            if (force_room(s, session, session->computed + n)) batch_add(s, session, n);
            changed = s->counts.preemptions != before;
            if (changed) break;
        }
    }
}

static struct session *next_waiting(const struct scheduler *s, int64_t now_us)
{
    struct session *best = NULL;
    double best_rank = 0;
    LIST_EACH (&s->waiting, node) {
        struct session *session = SESSION_OF(node);
        if (session->paused) continue;
        struct step_session view = step_view(s, session);
        double rank = s->config.order->rank(&view, now_us);
        bool first = !best || rank < best_rank;
        if (best && !(rank < best_rank) && !(rank > best_rank)) {
            first = session->arrival_us != best->arrival_us ? session->arrival_us < best->arrival_us
                                                            : session->id < best->id;
        }
        if (!first) continue;
        best = session;
        best_rank = rank;
    }
    return best;
}

/* What of the known tokens is in pages already. At least the last token is always computed:
 * somebody has to give its logits. */
static uint32_t find_pages(struct scheduler *s, struct session *session, uint32_t *ret_pages)
{
    *ret_pages = 0;
    if (!s->config.prefix_cache) return 0;
    session_extend_keys(session, s->config.key_seed);
    *ret_pages = kv_index_match(&s->index, session->salt, session->keys, session->ids,
                                session->total / s->config.page_tokens, s->match);
    return min_u32(*ret_pages * s->config.page_tokens, session->total - 1);
}

static bool may_admit(struct scheduler *s, const struct session *session, uint32_t hit_pages,
                      uint32_t hit_tokens)
{
    if (s->counts.running == 0) return true;
    uint32_t idle_hits = 0;
    for (uint32_t i = 0; i < hit_pages; i++)
        idle_hits += s->pool.refs[s->match[i]] == 0;
    uint64_t taken = idle_hits + s->promised;
    uint32_t available = kv_index_available(&s->index);
    uint32_t needed = pages_for(s, session->total);
    /* A page shared in part is copied before the first write. */
    uint32_t copied = hit_tokens % s->config.page_tokens != 0 && hit_pages > 0;
    struct admit_view view = {
        .pages_total = s->pool.total,
        .pages_available = available > taken ? available - (uint32_t)taken : 0,
        .pages_needed = needed - hit_pages + copied,
        .pages_growth = pages_for(s, expected_total(s, session)) - needed,
        .running = s->counts.running,
        .running_growth = (uint32_t)min_size(s->growth, UINT32_MAX),
    };
    return s->config.admit->decide(&view);
}

static void admit(struct scheduler *s, struct session *session, uint32_t hit_pages,
                  uint32_t hit_tokens, int64_t now_us)
{
    for (uint32_t i = 0; i < hit_pages; i++) {
        kv_index_hit(&s->index, s->match[i]);
        session->pages[i] = s->match[i];
    }
    session->page_count = hit_pages;
    session->computed = hit_tokens;
    session->sealed_pages = hit_tokens / s->config.page_tokens;
    if (!session->admitted_once) {
        session->admitted_once = true;
        session->admitted_us = now_us;
        session->cached_tokens = hit_tokens;
        s->counts.prompt_tokens += session->prompt_tokens;
        s->counts.query_tokens += session->prompt_tokens;
        s->counts.hit_tokens += hit_tokens;
    }
    session->state = SESSION_RUNNING;
    list_remove(&session->link);
    list_push_back(&s->running, &session->link);
    s->counts.waiting--;
    s->counts.running++;
}

/* Imported tokens need pages as computed ones do, less what the cache held already. Until the first
 * commit they can be written again; a session that is preempted later recomputes them. */
static bool import(struct scheduler *s, struct session *session)
{
    if (session->imported_tokens <= session->computed) {
        session->imported_tokens = 0;
        return true;
    }
    if (!make_room(s, session, session->imported_tokens)) return false;
    session->import_from = session->computed;
    session->computed = session->imported_tokens;
    return true;
}

static void sum_demand(struct scheduler *s)
{
    s->promised = s->growth = 0;
    LIST_EACH (&s->running, node)
        add_demand(s, SESSION_OF(node));
}

static void plan_waiting(struct scheduler *s, int64_t now_us)
{
    sum_demand(s);
    while (s->batch.tokens < s->config.batch_tokens_max) {
        struct session *session = next_waiting(s, now_us);
        if (!session) return;
        uint32_t hit_pages, hit_tokens = find_pages(s, session, &hit_pages);
        if (s->counts.running >= s->config.seqs_max ||
            !may_admit(s, session, hit_pages, hit_tokens)) {
            struct session *out = victim(s, true);
            if (!out) return;
            preempt(s, out); /* who cannot run makes way for who can */
            sum_demand(s);
            continue;
        }
        admit(s, session, hit_pages, hit_tokens, now_us);
        if (!import(s, session)) {
            preempt(s, session);
            return;
        }
        uint32_t n = chunk_tokens(s, session);
        if (n == 0 || !make_room(s, session, session->computed + n)) {
            /* Not in this step: no time, or more pages than the admit row thought. */
            if (n > 0) preempt(s, session);
            return;
        }
        batch_add(s, session, n);
        add_demand(s, session);
    }
}

const struct sched_batch *sched_plan(struct scheduler *s, int64_t now_us,
                                     const struct perf_coef *perf)
{
    must(!s->planned);
    s->perf = *perf;
    s->batch.count = s->batch.tokens = s->batch.copy_count = 0;
    end_due(s, &s->waiting, now_us);
    end_due(s, &s->running, now_us);

    uint64_t preempted = s->counts.preemptions;
    plan_decoding(s);
    plan_begun(s);
    /* Who lost his pages in this step must not find them given to a newcomer. */
    if (s->counts.preemptions == preempted) plan_waiting(s, now_us);
    batch_shape(&s->batch);
    s->planned = s->batch.count > 0;
#ifdef MUSTER_DEBUG
    must(sched_check(s));
#endif
    return &s->batch;
}

/* ---- results ------------------------------------------------------------------------------- */

static void seal_full_pages(struct scheduler *s, struct session *session)
{
    uint32_t full = session->computed / s->config.page_tokens;
    if (!s->config.prefix_cache || session->sealed_pages >= full) return;
    session_extend_keys(session, s->config.key_seed);
    for (; session->sealed_pages < full; session->sealed_pages++) {
        uint32_t i = session->sealed_pages;
        kv_index_seal(&s->index, session->pages[i],
                      session_parent_key(session, i, s->index.granules),
                      session->keys + (size_t)i * s->index.granules,
                      session->ids + (size_t)i * s->config.page_tokens);
    }
}

static void take_token(struct scheduler *s, struct session *session,
                       const struct sched_result *result, int64_t now_us)
{
    must(session->total < session->total_max);
    session->ids[session->total++] = result->id;
    s->counts.generated_tokens++;
    if (session_generated(session) == 1) session->first_token_us = now_us;
    if (result->stop) {
        end_session(s, session, SESSION_END_STOP, now_us);
    } else if (session->total == session->total_max) {
        end_session(s, session, SESSION_END_LENGTH, now_us);
    }
}

void sched_commit(struct scheduler *s, const struct sched_result *results, int64_t now_us)
{
    must(s->planned);
    s->planned = false;
    s->counts.steps++;
    for (uint32_t i = 0; i < s->batch.count; i++) {
        struct sched_item *item = &s->batch.item[i];
        item->session->item = 0; /* before an end, which would move the items */
        item->session->computed += item->count;
        item->session->imported_tokens = 0;
        seal_full_pages(s, item->session);
        if (item->sample) take_token(s, item->session, &results[i], now_us);
    }
    s->batch.count = 0;
}

void sched_discard(struct scheduler *s, int64_t now_us)
{
    must(s->planned);
    s->planned = false;
    while (s->batch.count > 0) {
        end_session(s, s->batch.item[s->batch.count - 1].session, SESSION_END_ERROR, now_us);
    }
}

struct session *sched_next_ended(struct scheduler *s)
{
    struct list *node = list_pop_front(&s->ended);
    if (!node) return NULL;
    s->counts.ended_waiting--;
    return SESSION_OF(node);
}

void sched_release(struct scheduler *s, struct session *session)
{
    must(session->state == SESSION_ENDED && !list_linked(&session->link));
    s->kept -= session->page_count;
    release_pages(s, session);
    session_free(session);
}

/* ---- questions ----------------------------------------------------------------------------- */

bool sched_has_work(const struct scheduler *s)
{
    LIST_EACH (&s->running, node) {
        const struct session *session = SESSION_OF(node);
        if ((!session->paused && !session->held) || session->abort_asked) return true;
    }
    LIST_EACH (&s->waiting, node) {
        if (!SESSION_OF(node)->paused || SESSION_OF(node)->abort_asked) return true;
    }
    return false;
}

int64_t sched_next_deadline_us(const struct scheduler *s)
{
    const struct list *const heads[] = { &s->running, &s->waiting };
    int64_t next = INT64_MAX;
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        LIST_EACH (heads[i], node) {
            int64_t at = SESSION_OF(node)->deadline_us;
            if (at && at < next) next = at;
        }
    }
    return next;
}

void sched_counts_get(const struct scheduler *s, struct sched_counts *ret)
{
    *ret = s->counts;
}

struct kv_index *sched_index(struct scheduler *s)
{
    return &s->index;
}

bool sched_check(const struct scheduler *s)
{
    if (!kv_pool_check(&s->pool)) return false;
    uint64_t held = s->kept, refs = 0;
    uint32_t running = 0, waiting = 0;
    LIST_EACH (&s->running, node) {
        const struct session *session = SESSION_OF(node);
        running++;
        held += session->page_count;
        if ((uint64_t)session->page_count * s->config.page_tokens < session->computed) return false;
        if (session->computed >= session->total || session->total > session->total_max)
            return false;
    }
    LIST_EACH (&s->waiting, node) {
        waiting++;
        if (SESSION_OF(node)->page_count > 0 || SESSION_OF(node)->computed > 0) return false;
    }
    for (uint32_t i = 0; i < s->pool.total; i++)
        refs += s->pool.refs[i];
    return held == refs && running == s->counts.running && waiting == s->counts.waiting &&
           running <= s->config.seqs_max;
}
