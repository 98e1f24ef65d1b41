/* t_scheduler.c - whatever the scheduler does, every answer is the one that the ids alone give.
 *
 * The executor is fake and its KV cache is a proof: each slot of a page holds a hash of all ids up
 * to it. A step reads the slot before its first token through the page table, goes on from there,
 * and the next id is a function of the last hash. A page that was given away too early, written
 * while shared, copied wrongly or matched by mistake changes the answer.
 */
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/rng.h"
#include "engine/core/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB 64
#define STEP_US 1000

static const struct perf_coef perf = { .a = 2e-3, .b = 1e-4, .c = 3e-4, .d = 1e-7, .e = 1e-7 };

static uint64_t chain(uint64_t before, uint32_t id)
{
    return hash64(&id, sizeof id, before + 1);
}

static uint32_t next_id(uint64_t state)
{
    return (uint32_t)(state >> 20) % VOCAB;
}

static bool stops(uint64_t state)
{
    return (state >> 50) % 24 == 0;
}

struct rig {
    struct scheduler *s;
    struct sched_config config;
    uint64_t *slot; /* page-major: what each place of each page was computed from */
    uint64_t *swap; /* the same in the swap space */
    struct sched_result *result;
    int64_t now_us;
    uint64_t steps, tokens_max_seen;
};

static void rig_init(struct rig *r, const struct sched_config *config)
{
    struct err err;
    memset(r, 0, sizeof *r);
    r->config = *config;
    int rc = sched_new(config, &r->s, &err);
    if (rc < 0) fail_msg("%s", err_text(&err, rc));
    r->slot = calloc((size_t)config->pages * config->page_tokens, sizeof *r->slot);
    r->swap = calloc((size_t)config->swap_pages * config->page_tokens + 1, sizeof *r->swap);
    r->result = calloc(config->seqs_max, sizeof *r->result);
    r->now_us = 1;
}

static void rig_fini(struct rig *r)
{
    sched_free(r->s);
    free(r->slot);
    free(r->swap);
    free(r->result);
}

static uint64_t *slot_of(struct rig *r, const struct session *session, uint32_t position)
{
    uint32_t pt = r->config.page_tokens;
    must(position / pt < session->page_count);
    return &r->slot[(size_t)session->pages[position / pt] * pt + position % pt];
}

/* What a session brings is in its owner, slot by slot as the other engine computed it. */
static void import(struct rig *r, const struct sched_item *item)
{
    const uint64_t *brought = item->session->owner;
    for (uint32_t k = item->import_from; k < item->start; k++)
        *slot_of(r, item->session, k) = brought[k];
}

static void execute(struct rig *r, const struct sched_batch *batch)
{
    uint32_t pt = r->config.page_tokens, tokens = 0, moves[3] = { 0 };
    for (uint32_t i = 0; i < batch->move_count; i++) {
        const struct sched_move *m = &batch->move[i];
        uint64_t *to = m->kind == SCHED_SWAP_OUT ? r->swap : r->slot;
        const uint64_t *from = m->kind == SCHED_SWAP_IN ? r->swap : r->slot;
        memcpy(to + (size_t)m->to * pt, from + (size_t)m->from * pt, pt * sizeof *to);
        moves[m->kind]++;
    }
    assert_int_equal(moves[SCHED_COPY], batch->copies);
    assert_int_equal(moves[SCHED_SWAP_OUT], batch->swapped_out);
    assert_int_equal(moves[SCHED_SWAP_IN], batch->swapped_in);
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct sched_item *item = &batch->item[i];
        const struct session *session = item->session;
        import(r, item);
        uint64_t state = item->start ? *slot_of(r, session, item->start - 1) : 0;
        for (uint32_t k = 0; k < item->count; k++) {
            state = chain(state, session->ids[item->start + k]);
            *slot_of(r, session, item->start + k) = state;
        }
        r->result[i] = (struct sched_result){ .id = next_id(state), .stop = stops(state) };
        assert_int_equal(item->sample, item->start + item->count == session->total);
        tokens += item->count;
    }
    assert_int_equal(tokens, batch->tokens);
    assert_true(tokens <= r->config.batch_tokens_max);
    if (tokens > r->tokens_max_seen) r->tokens_max_seen = tokens;
}

/* False when nothing could run. */
static bool step(struct rig *r)
{
    r->now_us += STEP_US;
    const struct sched_batch *batch = sched_plan(r->s, r->now_us, &perf);
    assert_true(sched_check(r->s));
    execute(r, batch);
    if (batch->count == 0) return false;
    sched_commit(r->s, r->result, r->now_us);
    assert_true(sched_check(r->s));
    r->steps++;
    return true;
}

/* The oracle: no pages, no batch, no scheduler. Returns how many ids follow. */
static uint32_t truth(const uint32_t *ids, uint32_t count, uint32_t output_max, uint32_t *ret)
{
    uint64_t state = 0;
    for (uint32_t i = 0; i < count; i++)
        state = chain(state, ids[i]);
    uint32_t n = 0;
    while (n < output_max) {
        ret[n] = next_id(state);
        bool last = stops(state);
        state = chain(state, ret[n++]);
        if (last) break;
    }
    return n;
}

#define REQUESTS 300
#define PROMPT_MAX 120
#define OUTPUT_MAX 40

struct load {
    uint32_t ids[REQUESTS][PROMPT_MAX], count[REQUESTS], output_max[REQUESTS];
    struct session *session[REQUESTS];
    uint8_t ended[REQUESTS];
    enum session_end end[REQUESTS];
    bool cut[REQUESTS]; /* aborted or given a deadline: its answer may be a prefix */
    uint32_t answer[REQUESTS][OUTPUT_MAX], answer_count[REQUESTS];
};

static void load_fill(struct load *l, uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    memset(l, 0, sizeof *l);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        l->count[i] = 1 + (uint32_t)rng_below(&rng, PROMPT_MAX);
        l->output_max[i] = 1 + (uint32_t)rng_below(&rng, OUTPUT_MAX);
        uint32_t family = (uint32_t)rng_below(&rng, 5); /* prompts of a family share their start */
        uint32_t shared = (uint32_t)rng_below(&rng, l->count[i] + 1);
        if (rng_below(&rng, 4) == 0) shared = l->count[i];
        for (uint32_t k = 0; k < l->count[i]; k++) {
            l->ids[i][k] =
                k < shared ? (family * 31 + k * 7) % VOCAB : (uint32_t)rng_below(&rng, VOCAB);
        }
    }
}

static void collect(struct rig *r, struct load *l)
{
    for (struct session *s; (s = sched_next_ended(r->s));) {
        uint32_t i = (uint32_t)s->id;
        assert_int_equal(s->page_count, 0);
        l->ended[i]++;
        l->end[i] = s->end;
        l->answer_count[i] = session_generated(s);
        memcpy(l->answer[i], s->ids + s->prompt_tokens, l->answer_count[i] * sizeof(uint32_t));
        l->session[i] = NULL;
        sched_release(r->s, s);
    }
}

static void submit(struct rig *r, struct load *l, uint32_t i, int64_t deadline_us, bool predicted)
{
    struct sched_request req = {
        .id = i,
        .ids = l->ids[i],
        .prompt_tokens = l->count[i],
        .output_max = l->output_max[i],
        .tenant = i % 5,
        .weight = 1 + i % 2,
        .arrival_us = r->now_us,
        .deadline_us = deadline_us,
        .predicted_p50 = predicted ? l->output_max[i] / 2 : 0,
        .predicted_p90 = predicted ? l->output_max[i] : 0,
    };
    assert_int_equal(sched_submit(r->s, &req, &l->session[i], NULL), 0);
}

static void check_answers(struct rig *r, const struct load *l, const char *why)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        uint32_t want[OUTPUT_MAX];
        uint32_t room = r->config.context_max - l->count[i];
        uint32_t n = truth(l->ids[i], l->count[i], min_u32(room, l->output_max[i]), want);
        if (l->ended[i] != 1) fail_msg("%s: request %u ended %u times", why, i, l->ended[i]);
        bool whole = l->end[i] == SESSION_END_STOP || l->end[i] == SESSION_END_LENGTH;
        if (!l->cut[i] && !whole) fail_msg("%s: request %u ended by %d", why, i, l->end[i]);
        if (whole ? l->answer_count[i] != n : l->answer_count[i] > n) {
            fail_msg("%s: request %u answered %u tokens of %u", why, i, l->answer_count[i], n);
        }
        if (memcmp(l->answer[i], want, l->answer_count[i] * sizeof *want) != 0) {
            fail_msg("%s: request %u answered other tokens", why, i);
        }
    }
}

static struct sched_config usual(void)
{
    return (struct sched_config){
        .pages = 64,
        .page_tokens = 16,
        .context_max = PROMPT_MAX + OUTPUT_MAX,
        .seqs_max = 8,
        .batch_tokens_max = 64,
        .waiting_max = REQUESTS,
        .events_max = 64,
        .prefix_cache = true,
        .key_seed = 99,
    };
}

/* Everything at random: arrivals, aborts, deadlines, pauses. */
static void run_load(const struct sched_config *config, uint64_t seed, bool predicted,
                     const char *why, struct sched_counts *ret)
{
    struct rig r;
    static struct load l;
    struct rng rng;
    rng_seed(&rng, seed * 31 + 1);
    load_fill(&l, seed);
    rig_init(&r, config);
    uint32_t sent = 0, idle = 0;
    while (idle < 3) {
        uint32_t arrivals = (uint32_t)rng_below(&rng, 4);
        for (; sent < REQUESTS && arrivals > 0; arrivals--, sent++) {
            int64_t deadline = 0;
            if (rng_below(&rng, 20) == 0) {
                deadline = r.now_us + (int64_t)rng_below(&rng, 60) * STEP_US + 1;
                l.cut[sent] = true;
            }
            submit(&r, &l, sent, deadline, predicted);
        }
        if (sent > 0) {
            uint32_t i = (uint32_t)rng_below(&rng, sent);
            if (l.session[i] && rng_below(&rng, 12) == 0) {
                sched_abort(r.s, l.session[i]);
                l.cut[i] = true;
            }
            i = (uint32_t)rng_below(&rng, sent);
            if (l.session[i] && rng_below(&rng, 6) == 0) sched_pause(r.s, l.session[i], true);
        }
        for (uint32_t i = 0; i < sent; i++) { /* readers catch up after some steps */
            if (l.session[i] && l.session[i]->paused && rng_below(&rng, 8) == 0) {
                sched_pause(r.s, l.session[i], false);
            }
        }
        bool had_work = sched_has_work(r.s);
        bool ran = step(&r);
        collect(&r, &l);
        if (!had_work) assert_false(ran);
        /* Nothing stands idle while somebody could use a step. */
        if (!ran && sched_has_work(r.s))
            fail_msg("%s: idle at step %lu", why, (unsigned long)r.steps);
        bool open = false;
        for (uint32_t i = 0; i < sent; i++)
            open |= l.session[i] != NULL;
        idle = sent == REQUESTS && !open ? idle + 1 : 0;
        if (r.steps > 200000) fail_msg("%s: no end in sight", why);
    }
    check_answers(&r, &l, why);
    assert_int_equal(sched_index(r.s)->pool->held_count, 0);
    sched_counts_get(r.s, ret);
    assert_int_equal(ret->running + ret->waiting + ret->paused + ret->ended_waiting, 0);
    uint64_t ended = 0;
    for (int i = 0; i < SESSION_END_COUNT; i++)
        ended += ret->ended[i];
    assert_int_equal(ended, REQUESTS);
    rig_fini(&r);
}

static void t_every_way_the_same_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *why, *order, *admit, *preempt, *chunk, *evict;
        uint32_t pages, page_tokens, seqs, batch;
        bool cache, predicted;
        uint32_t preemptions_min, copies_min; /* met at least so often, else the row is idle */
    } rows[] = {
        // clang-format off
        { "usual", "fcfs", "reserve", "newest", "budget", "lru", 64, 16, 8, 64, 1, 0, 0, 5 },
        { "one at a time", "fcfs", "reserve", "newest", "budget", "lru", 64, 16, 1, 64, 1, 0, 0, 5 },
        { "no cache", "fcfs", "fit", "newest", "budget", "lru", 64, 16, 8, 64, 0, 0, 0, 0 },
        { "chunks of one token", "fcfs", "fit", "newest", "budget", "lru", 64, 16, 1, 1, 1, 0, 0, 3 },
        { "barely one context of pages", "fcfs", "fit", "newest", "budget", "lru",
          10, 16, 8, 64, 1, 0, 40, 1 },
        { "few pages, the cheapest victim", "fcfs", "fit", "least_computed", "budget", "lru",
          14, 16, 8, 64, 1, 0, 40, 1 },
        { "few pages, nothing found again", "fcfs", "fit", "newest", "budget", "lru",
          12, 16, 8, 64, 0, 0, 40, 0 },
        { "large pages", "fcfs", "fit", "newest", "budget", "probation_2hit",
          12, 32, 8, 64, 1, 0, 10, 0 },
        { "larger pages", "response_ratio", "fit", "newest", "slack", "lru",
          6, 64, 6, 40, 1, 1, 10, 0 },
        { "time in hand", "response_ratio", "reserve", "newest", "deadline", "probation_2hit",
          24, 16, 8, 256, 1, 0, 10, 5 },
        { "predicted lengths", "sjf_work", "reserve", "newest", "budget", "lru",
          34, 16, 8, 64, 1, 1, 0, 5 },
        { "time as the budget", "sjf_work", "reserve", "least_computed", "slack",
          "probation_2hit", 24, 16, 8, 256, 1, 0, 0, 5 },
        // clang-format on
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct sched_config config = usual();
        config.rows.order = order_find(str_from(rows[i].order));
        config.rows.admit = admit_find(str_from(rows[i].admit));
        config.rows.preempt = preempt_find(str_from(rows[i].preempt));
        config.rows.chunk = chunk_find(str_from(rows[i].chunk));
        config.rows.evict = evict_find(str_from(rows[i].evict));
        config.pages = rows[i].pages;
        config.page_tokens = rows[i].page_tokens;
        config.seqs_max = rows[i].seqs;
        config.batch_tokens_max = rows[i].batch;
        config.prefix_cache = rows[i].cache;
        config.step_s_max = 5e-3;
        struct sched_counts total = { 0 };
        for (uint64_t seed = 1; seed <= 6; seed++) {
            struct sched_counts c;
            run_load(&config, seed * 100 + i, rows[i].predicted, rows[i].why, &c);
            total.preemptions += c.preemptions;
            total.hit_tokens += c.hit_tokens;
            total.pages_copied += c.pages_copied;
        }
        /* The rows must meet what they are there for. */
        if (total.preemptions < rows[i].preemptions_min) {
            fail_msg("%s: %lu preemptions", rows[i].why, (unsigned long)total.preemptions);
        }
        if (rows[i].cache != (total.hit_tokens > 0)) fail_msg("%s: hits", rows[i].why);
        if (total.pages_copied < rows[i].copies_min) fail_msg("%s: copies", rows[i].why);
    }
}

/* Every order row, every preset: the same tokens, every page accounted for, and everybody ends. */
static void t_every_row_the_same_tokens(void **state)
{
    (void)state;
    static const struct {
        uint32_t pages, seqs, swap;
        bool cache;
    } sizes[] = { { 64, 8, 0, true },
                  { 14, 8, 0, true },
                  { 14, 8, 40, true },
                  { 12, 4, 9, false },
                  { 24, 3, 100, true } };
    uint64_t swapped = 0, parked = 0;
    for (uint32_t row = 0; row < order_count + preset_count; row++) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            struct sched_config config = usual();
            config.pages = sizes[i].pages;
            config.seqs_max = sizes[i].seqs;
            config.swap_pages = sizes[i].swap;
            config.prefix_cache = sizes[i].cache;
            config.swap_page_s = 1e-6;
            config.step_s_max = 5e-3;
            const char *why;
            if (row < order_count) {
                config.rows.order = order_table[row];
                config.rows.admit = i % 2 ? admit_find(STR("fit")) : NULL;
                why = order_table[row]->name;
            } else {
                config.preset = preset_table[row - order_count];
                why = config.preset->name;
                if (config.preset->swap_ratio > 0 && config.swap_pages == 0)
                    config.swap_pages = config.pages;
            }
            struct sched_counts c, again;
            run_load(&config, row * 100 + i, row % 2, why, &c);
            run_load(&config, row * 100 + i, row % 2, why, &again);
            if (memcmp(&c, &again, sizeof c) != 0) fail_msg("%s: not twice the same", why);
            swapped += c.swapped_in;
            parked += c.parked;
        }
    }
    if (swapped < 1000 || parked < 500)
        fail_msg("%lu pages swapped, %lu parked", (unsigned long)swapped, (unsigned long)parked);
}

static void t_decodes_go_before_prompts(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = usual();
    config.batch_tokens_max = 16;
    load_fill(&l, 4);
    rig_init(&r, &config);
    l.count[0] = 8, l.output_max[0] = OUTPUT_MAX;
    submit(&r, &l, 0, 0, false);
    assert_true(step(&r));
    l.count[1] = PROMPT_MAX, l.output_max[1] = 1;
    submit(&r, &l, 1, 0, false);
    uint32_t steps = 0;
    while (l.session[0] && l.session[1]) {
        uint32_t before = session_generated(l.session[0]);
        const struct sched_batch *batch = sched_plan(r.s, ++r.now_us, &perf);
        assert_ptr_equal(batch->item[0].session, l.session[0]); /* first, and one token */
        assert_int_equal(batch->item[0].count, 1);
        if (batch->count == 2) assert_int_equal(batch->tokens, 16); /* the prompt fills the rest */
        if (batch->count == 2) assert_int_equal(batch->shape.prefill_tokens, 15);
        assert_int_equal(batch->shape.decoding_seqs, 1);
        execute(&r, batch);
        r.result[0].stop = false;
        sched_commit(r.s, r.result, r.now_us);
        assert_int_equal(session_generated(l.session[0]), before + 1);
        collect(&r, &l);
        if (++steps == 8) assert_null(l.session[1]); /* 120 tokens in chunks of 15 */
    }
    rig_fini(&r);
}

static void t_hits_leave_one_token(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = usual();
    load_fill(&l, 8);
    rig_init(&r, &config);
    for (uint32_t i = 0; i < 2; i++) {
        l.count[i] = 64, l.output_max[i] = 1;
        memcpy(l.ids[i], l.ids[0], sizeof l.ids[0]);
        submit(&r, &l, i, 0, false);
        const struct sched_batch *batch = sched_plan(r.s, ++r.now_us, &perf);
        assert_int_equal(batch->tokens, i == 0 ? 64 : 1); /* prompt - 1 tokens at most */
        assert_int_equal(batch->copies, i);               /* the last page is copied, not written */
        assert_int_equal(l.session[i]->cached_tokens, i == 0 ? 0 : 63);
        execute(&r, batch);
        sched_commit(r.s, r.result, r.now_us);
        collect(&r, &l);
    }
    assert_memory_equal(l.answer[0], l.answer[1], sizeof(uint32_t));
    rig_fini(&r);
}

static void t_tenants_do_not_share(void **state)
{
    (void)state;
    struct rig r;
    struct sched_config config = usual();
    rig_init(&r, &config);
    uint32_t ids[64] = { 0 };
    uint64_t hits[3];
    const char *const tenants[] = { "one", "two", "one" };
    for (int i = 0; i < 3; i++) {
        struct session *session;
        struct sched_request req = {
            .ids = ids,
            .prompt_tokens = 64,
            .output_max = 1,
            .salt = block_salt(99, STR("w"), STR(""), str_from(tenants[i])),
        };
        assert_int_equal(sched_submit(r.s, &req, &session, NULL), 0);
        while (step(&r)) {
        }
        session = sched_next_ended(r.s);
        hits[i] = session->cached_tokens;
        sched_release(r.s, session);
    }
    assert_int_equal(hits[0], 0);
    assert_int_equal(hits[1], 0);
    assert_int_equal(hits[2], 63);
    rig_fini(&r);
}

static void t_abort_and_deadline_free_at_the_next_plan(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = usual();
    load_fill(&l, 9);
    rig_init(&r, &config);
    for (uint32_t i = 0; i < 2; i++)
        l.count[i] = 40, l.output_max[i] = OUTPUT_MAX;
    submit(&r, &l, 0, 0, false);
    submit(&r, &l, 1, r.now_us + 2 * STEP_US, false);
    step(&r);
    assert_true(sched_index(r.s)->pool->held_count >= 5);
    assert_int_equal(sched_next_deadline_us(r.s), l.session[1]->deadline_us);
    sched_abort(r.s, l.session[0]);
    assert_true(sched_has_work(r.s));
    step(&r); /* reaches the deadline as well */
    assert_int_equal(sched_index(r.s)->pool->held_count, 0);
    collect(&r, &l);
    assert_int_equal(l.end[0], SESSION_END_ABORT);
    assert_int_equal(l.end[1], SESSION_END_DEADLINE);
    assert_false(sched_has_work(r.s));
    rig_fini(&r);
}

static void t_paused_keeps_pages_until_others_need_them(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = usual();
    config.pages = 10;
    load_fill(&l, 12);
    rig_init(&r, &config);
    for (uint32_t i = 0; i < 2; i++)
        l.count[i] = 100, l.output_max[i] = 20;
    submit(&r, &l, 0, 0, false);
    step(&r), step(&r);
    uint32_t held = l.session[0]->page_count;
    sched_pause(r.s, l.session[0], true);
    assert_false(step(&r));
    assert_false(sched_has_work(r.s));
    assert_int_equal(l.session[0]->page_count, held);
    submit(&r, &l, 1, 0, false); /* needs more than is left */
    assert_true(step(&r));
    assert_int_equal(l.session[0]->state, SESSION_WAITING);
    assert_int_equal(l.session[0]->page_count, 0);
    while (step(&r)) {
    }
    sched_pause(r.s, l.session[0], false);
    while (step(&r)) {
    }
    collect(&r, &l);
    assert_int_equal(l.ended[0] + l.ended[1], 2);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t want[OUTPUT_MAX];
        assert_int_equal(truth(l.ids[i], 100, 20, want), l.answer_count[i]);
        assert_memory_equal(want, l.answer[i], l.answer_count[i] * sizeof *want);
    }
    rig_fini(&r);
}

/* One engine computes a prompt and its first token, another goes on: with nothing, half or most of
 * the prompt in its own cache, and with pages so few that imported sessions are preempted. */
static void t_imported_tokens_are_not_computed_again(void **state)
{
    (void)state;
    static struct load l;
    for (uint32_t seed = 0; seed < 20; seed++) {
        struct rig from, to;
        struct sched_config config = usual();
        load_fill(&l, 100 + seed);
        rig_init(&from, &config);
        if (seed % 2) config.pages = 10; /* one context and no more */
        rig_init(&to, &config);
        uint64_t brought[8][PROMPT_MAX];
        for (uint32_t i = 0; i < 8; i++) {
            struct session *session;
            struct err err;
            struct sched_request req = {
                .ids = l.ids[i], .prompt_tokens = l.count[i], .output_max = 1, .keep_pages = true
            };
            assert_int_equal(sched_submit(from.s, &req, &session, &err), 0);
            while (step(&from)) {
            }
            session = sched_next_ended(from.s);
            assert_true(sched_check(from.s) && session->page_count > 0);
            for (uint32_t k = 0; k < l.count[i]; k++)
                brought[i][k] = *slot_of(&from, session, k);
            uint32_t ids[PROMPT_MAX + 1];
            memcpy(ids, session->ids, session->total * sizeof *ids);
            bool ended = session->end == SESSION_END_STOP;
            sched_release(from.s, session);
            assert_true(sched_check(from.s));
            if (ended) continue;
            struct sched_request next = { .id = i,
                                          .owner = brought[i],
                                          .ids = ids,
                                          .prompt_tokens = l.count[i] + 1,
                                          .output_max = OUTPUT_MAX - 1,
                                          .imported_tokens = l.count[i] };
            assert_int_equal(sched_submit(to.s, &next, &session, &err), 0);
        }
        while (step(&to)) {
        }
        for (struct session *s; (s = sched_next_ended(to.s)); sched_release(to.s, s)) {
            uint32_t expected[OUTPUT_MAX];
            uint32_t n = truth(l.ids[s->id], l.count[s->id], OUTPUT_MAX, expected);
            assert_int_equal(s->total - l.count[s->id], n);
            assert_memory_equal(s->ids + l.count[s->id], expected, n * sizeof *expected);
        }
        rig_fini(&from);
        rig_fini(&to);
    }
}

static void t_an_import_is_one_step_and_leaves_a_token(void **state)
{
    (void)state;
    struct rig r;
    struct sched_config config = usual();
    rig_init(&r, &config);
    uint32_t ids[65] = { 0 };
    uint64_t brought[65] = { 0 };
    struct session *session;
    struct sched_request req = {
        .owner = brought, .ids = ids, .prompt_tokens = 65, .output_max = 4, .imported_tokens = 64
    };
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), 0);
    const struct sched_batch *batch = sched_plan(r.s, ++r.now_us, &perf);
    assert_int_equal(batch->tokens, 1);
    assert_int_equal(batch->item[0].import_from, 0);
    assert_int_equal(batch->item[0].start, 64);
    assert_int_equal(batch->shape.decoding_seqs, 1); /* it decodes at once */
    execute(&r, batch);
    sched_commit(r.s, r.result, r.now_us);
    batch = sched_plan(r.s, ++r.now_us, &perf);
    assert_int_equal(batch->item[0].import_from, batch->item[0].start); /* once */
    sched_discard(r.s, r.now_us);

    /* What lies before the imported part is not cached: all of it is computed. */
    req.imported_from = 32;
    ids[0] = 1;
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), 0);
    batch = sched_plan(r.s, ++r.now_us, &perf);
    assert_int_equal(batch->item[0].start, 0);
    assert_int_equal(batch->item[0].import_from, 0);
    sched_discard(r.s, r.now_us);
    req.imported_tokens = 65;
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), -EINVAL);
    rig_fini(&r);
}

/* While others starve for pages a held session keeps its own and computes nothing; let go of, it
 * goes on with the tokens that it would have had. */
static void t_held_keeps_pages_and_takes_no_step(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = usual();
    config.pages = 12;
    load_fill(&l, 33);
    rig_init(&r, &config);
    for (uint32_t i = 0; i < 3; i++) {
        l.count[i] = 60, l.output_max[i] = OUTPUT_MAX;
        submit(&r, &l, i, 0, false);
    }
    assert_true(step(&r));
    struct session *held = l.session[0];
    assert_int_equal(held->state, SESSION_RUNNING);
    sched_hold(held, true);
    uint32_t pages = held->page_count, computed = held->computed;
    while (step(&r)) {
    }
    assert_int_equal(held->state, SESSION_RUNNING);
    assert_int_equal(held->page_count, pages);
    assert_int_equal(held->computed, computed);
    sched_hold(held, false);
    while (step(&r)) {
    }
    collect(&r, &l);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t want[OUTPUT_MAX], n = truth(l.ids[i], 60, OUTPUT_MAX, want);
        assert_int_equal(l.ended[i], 1);
        assert_int_equal(l.answer_count[i], n);
        assert_memory_equal(l.answer[i], want, n * sizeof *want);
    }
    rig_fini(&r);
}

static void t_bounds_are_answers(void **state)
{
    (void)state;
    struct rig r;
    struct sched_config config = usual();
    config.waiting_max = 2;
    rig_init(&r, &config);
    uint32_t ids[PROMPT_MAX + OUTPUT_MAX] = { 0 };
    struct session *session = NULL;
    struct sched_request req = { .ids = ids, .prompt_tokens = 4, .output_max = 1000000 };
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), 0);
    assert_int_equal(session->total_max, config.context_max);
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), 0);
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), -EAGAIN);
    req.prompt_tokens = config.context_max;
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), -E2BIG);
    req.prompt_tokens = 0;
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), -EINVAL);
    req.prompt_tokens = 4, req.output_max = 0;
    assert_int_equal(sched_submit(r.s, &req, &session, NULL), -EINVAL);
    struct sched_counts c;
    sched_counts_get(r.s, &c);
    assert_int_equal(c.refused, 1);
    rig_fini(&r);
}

static void t_config_is_checked(void **state)
{
    (void)state;
    const struct sched_config good = usual();
    struct sched_config bad[6];
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        bad[i] = good;
    bad[0].page_tokens = 20;
    bad[1].page_tokens = 128;
    bad[2].seqs_max = 0;
    bad[3].batch_tokens_max = good.seqs_max - 1;
    bad[4].pages = 9; /* 144 tokens for a context of 160 */
    bad[5].waiting_max = 0;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct scheduler *s = NULL;
        struct err err = { "" };
        assert_int_equal(sched_new(&bad[i], &s, &err), -EINVAL);
        assert_true(err.text[0] != '\0' && s == NULL);
    }
}

static void t_a_failed_step_ends_its_sessions(void **state)
{
    (void)state;
    struct rig r;
    static struct load l;
    struct sched_config config = usual();
    config.seqs_max = 2;
    config.rows.order = order_find(STR("fcfs"));
    load_fill(&l, 14);
    rig_init(&r, &config);
    for (uint32_t i = 0; i < 3; i++) {
        l.count[i] = 20;
        submit(&r, &l, i, 0, false);
    }
    assert_int_equal(sched_plan(r.s, ++r.now_us, &perf)->count, 2);
    sched_discard(r.s, r.now_us);
    assert_true(sched_check(r.s));
    collect(&r, &l);
    assert_int_equal(l.end[0], SESSION_END_ERROR);
    assert_int_equal(l.end[1], SESSION_END_ERROR);
    assert_non_null(l.session[2]); /* was not in it */
    while (step(&r)) {
    }
    collect(&r, &l);
    assert_int_equal(l.ended[2], 1);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t_every_way_the_same_tokens),
        cmocka_unit_test(t_every_row_the_same_tokens),
        cmocka_unit_test(t_decodes_go_before_prompts),
        cmocka_unit_test(t_hits_leave_one_token),
        cmocka_unit_test(t_tenants_do_not_share),
        cmocka_unit_test(t_abort_and_deadline_free_at_the_next_plan),
        cmocka_unit_test(t_paused_keeps_pages_until_others_need_them),
        cmocka_unit_test(t_imported_tokens_are_not_computed_again),
        cmocka_unit_test(t_an_import_is_one_step_and_leaves_a_token),
        cmocka_unit_test(t_held_keeps_pages_and_takes_no_step),
        cmocka_unit_test(t_bounds_are_answers),
        cmocka_unit_test(t_config_is_checked),
        cmocka_unit_test(t_a_failed_step_ends_its_sessions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
