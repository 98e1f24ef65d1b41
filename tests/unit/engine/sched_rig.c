/* sched_rig.c - implements the fake executor, its oracle and a load. */
#include "tests/unit/engine/sched_rig.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/rng.h"

#include <stdlib.h>
#include <string.h>

const struct perf_coef rig_perf = { .step_s = 2e-3,
                                    .prefill_token_s = 1e-4,
                                    .decode_seq_s = 3e-4,
                                    .kv_read_s = 1e-7,
                                    .attend_s = 1e-7 };

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

void rig_init(struct rig *r, const struct sched_config *config)
{
    struct err err;
    memset(r, 0, sizeof *r);
    r->config = *config;
    int rc = sched_new(config, &r->s, &err);
    if (rc < 0) fail_msg("%s", err_text(&err, rc));
    const uint32_t pages = max_u32(config->pages, config->parts.numbers);
    r->slot = calloc((size_t)pages * config->page_tokens, sizeof *r->slot);
    r->window = calloc((size_t)pages * config->page_tokens, sizeof *r->window);
    r->swap = calloc((size_t)config->swap_pages * config->page_tokens + 1, sizeof *r->swap);
    r->window_swap = calloc((size_t)config->swap_pages * config->page_tokens + 1, sizeof *r->swap);
    r->result = calloc(config->seqs_max, sizeof *r->result);
    r->now_us = 1;
}

void rig_fini(struct rig *r)
{
    sched_free(r->s);
    free(r->slot);
    free(r->swap);
    free(r->window);
    free(r->window_swap);
    free(r->result);
}

uint64_t *rig_slot(struct rig *r, const struct session *session, uint32_t position)
{
    uint32_t pt = r->config.page_tokens;
    must(position / pt < session->page_count);
    return &r->slot[(size_t)session->pages[position / pt] * pt + position % pt];
}

/* Copies the hashes that a session brings from another engine, which its owner points to, into its
 * slots. */
static void import(struct rig *r, const struct sched_item *item)
{
    const uint64_t *brought = item->session->owner;
    for (uint32_t k = item->import_from; k < item->start; k++)
        *rig_slot(r, item->session, k) = brought[k];
}

/* Goes on behind each guess that is the next id. */
static void verify(struct rig *r, const struct sched_item *item, struct sched_result *ret)
{
    const struct session *session = item->session;
    uint32_t known = item->start + item->count - item->drafted;
    *ret = (struct sched_result){ 0 };
    for (;; known++, ret->accepted++) {
        uint64_t state = *rig_slot(r, session, known - 1);
        ret->id = next_id(state);
        ret->stop = stops(state);
        if (ret->stop || ret->accepted == item->drafted || session->ids[known] != ret->id) return;
    }
}

/* Guesses rightly three times in four, and checks that its state is that of one growing sequence. */
static uint32_t guess(void *state, const struct draft_view *view, uint32_t *ret_ids,
                      uint32_t *ret_match)
{
    uint64_t *told = state, now = 0, other = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        now = chain(now, view->ids[i]);
        if (i + 1 == told[0]) other = now;
    }
    if (told[0] > 0) assert_true(told[0] < view->count && told[1] == other);
    told[0] = view->count;
    told[1] = now;
    uint32_t count = (uint32_t)(now % (view->max + 1));
    for (uint32_t i = 0; i < count; i++) {
        ret_ids[i] = next_id(now) + ((now >> 8) % 4 == 0);
        now = chain(now, ret_ids[i]);
    }
    *ret_match = 1 + (uint32_t)(now % 20);
    return count;
}

const struct draft_policy rig_draft = { .name = "rig",
                                        .state_size = 2 * sizeof(uint64_t),
                                        .propose = guess };

static void move_page(struct rig *r, const struct sched_move *m)
{
    const size_t pt = r->config.page_tokens, bytes = pt * sizeof *r->slot;
    const bool out = m->kind == SCHED_SWAP_OUT;
    uint64_t *to = out ? r->swap : r->slot, *window_to = out ? r->window_swap : r->window;
    const uint64_t *from = out ? r->slot : r->swap;
    const uint64_t *window_from = out ? r->window : r->window_swap;
    memcpy(to + m->to * pt, from + m->from * pt, bytes);
    if (m->whole) {
        memcpy(window_to + m->to * pt, window_from + m->from * pt, bytes);
    } else {
        memset(window_to + m->to * pt, 0xee, bytes);
    }
}

static void discard_stale(struct rig *r)
{
    const size_t pt = r->config.page_tokens, bytes = pt * sizeof *r->slot;
    uint32_t page;
    bool whole;
    while (kv_pool_next_stale(sched_index(r->s)->pool, &page, &whole)) {
        if (whole) memset(r->slot + page * pt, 0xee, bytes);
        memset(r->window + page * pt, 0xee, bytes);
        r->discarded++;
    }
}

/* Checks that all that the item's first token sees in layers with a window is there. */
static void check_window(struct rig *r, const struct sched_item *item)
{
    const uint32_t window = r->config.parts.window_tokens, pt = r->config.page_tokens;
    if (window == 0) return;
    for (uint32_t k = item->start + 1 > window ? item->start + 1 - window : 0; k < item->start;
         k++) {
        const size_t at = (size_t)item->session->pages[k / pt] * pt + k % pt;
        if (r->window[at] != r->slot[at]) fail_msg("position %u before %u is gone", k, item->start);
    }
}

void rig_execute(struct rig *r, const struct sched_batch *batch)
{
    uint32_t tokens = 0, moves[2] = { 0 };
    for (uint32_t i = 0; i < batch->move_count; i++) {
        const struct sched_move *m = &batch->move[i];
        move_page(r, m);
        moves[m->kind]++;
    }
    assert_int_equal(moves[SCHED_SWAP_OUT], batch->swapped_out);
    assert_int_equal(moves[SCHED_SWAP_IN], batch->swapped_in);
    discard_stale(r);
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct sched_item *item = &batch->item[i];
        const struct session *session = item->session;
        import(r, item);
        check_window(r, item);
        uint64_t state = item->start ? *rig_slot(r, session, item->start - 1) : 0;
        for (uint32_t k = 0; k < item->count; k++) {
            state = chain(state, session->ids[item->start + k]);
            uint64_t *slot = rig_slot(r, session, item->start + k);
            uint64_t *window = r->window + (slot - r->slot);
            if (k < item->stored)
                assert_true(*slot == state &&
                            (*window == state || !sched_index(r->s)->pool->window));
            else
                *slot = *window = state;
        }
        r->stored += item->stored;
        verify(r, item, &r->result[i]);
        assert_int_equal(item->sample, item->start + item->count - item->drafted == session->total);
        tokens += item->count;
    }
    assert_int_equal(tokens, batch->tokens);
    assert_true(tokens <= r->config.batch_tokens_max);
    if (tokens > r->tokens_max_seen) r->tokens_max_seen = tokens;
}

bool rig_step(struct rig *r)
{
    r->now_us += STEP_US;
    const struct sched_batch *batch = sched_plan(r->s, r->now_us, &rig_perf);
    assert_true(sched_check(r->s));
    rig_execute(r, batch);
    if (batch->count == 0) return false;
    sched_commit(r->s, r->result, r->now_us);
    assert_true(sched_check(r->s));
    r->steps++;
    return true;
}

uint32_t rig_truth(const uint32_t *ids, uint32_t count, uint32_t output_max, uint32_t *ret)
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

void load_fill(struct load *l, uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    memset(l, 0, sizeof *l);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        l->count[i] = 1 + (uint32_t)rng_below(&rng, PROMPT_MAX);
        l->output_max[i] = 1 + (uint32_t)rng_below(&rng, OUTPUT_MAX);
        uint32_t family = (uint32_t)rng_below(&rng, 5); /* a family shares its prefix */
        uint32_t shared = (uint32_t)rng_below(&rng, l->count[i] + 1);
        if (rng_below(&rng, 4) == 0) shared = l->count[i];
        for (uint32_t k = 0; k < l->count[i]; k++) {
            l->ids[i][k] =
                k < shared ? (family * 31 + k * 7) % VOCAB : (uint32_t)rng_below(&rng, VOCAB);
        }
    }
}

void load_collect(struct rig *r, struct load *l)
{
    for (struct session *s; (s = sched_next_ended(r->s));) {
        uint32_t i = (uint32_t)s->id;
        assert_int_equal(s->page_count, 0);
        l->ended[i]++;
        l->end[i] = s->end;
        l->answer_count[i] = session_generated(s);
        if (s->end == SESSION_END_DISPLACED) {
            assert_false(s->admitted_once || s->begun || l->answer_count[i] > 0);
            l->cut[i] = true;
        }
        memcpy(l->output[i], s->ids + s->prompt_tokens, l->answer_count[i] * sizeof(uint32_t));
        l->session[i] = NULL;
        sched_release(r->s, s);
    }
}

bool load_took(struct load *l, uint32_t i, int rc)
{
    if (rc == 0) return true;
    assert_int_equal(rc, -EAGAIN); /* the queue is full */
    l->cut[i] = true;
    l->ended[i]++;
    return false;
}

void load_submit(struct rig *r, struct load *l, uint32_t i, int64_t deadline_us, bool predicted)
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

void load_check(struct rig *r, const struct load *l, const char *why)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        uint32_t want[OUTPUT_MAX];
        uint32_t room = r->config.context_max - l->count[i];
        uint32_t n = rig_truth(l->ids[i], l->count[i], min_u32(room, l->output_max[i]), want);
        if (l->ended[i] != 1) fail_msg("%s: request %u ended %u times", why, i, l->ended[i]);
        bool whole = l->end[i] == SESSION_END_STOP || l->end[i] == SESSION_END_LENGTH;
        if (!l->cut[i] && !whole) fail_msg("%s: request %u ended by %d", why, i, l->end[i]);
        if (whole ? l->answer_count[i] != n : l->answer_count[i] > n) {
            fail_msg("%s: request %u answered %u tokens of %u", why, i, l->answer_count[i], n);
        }
        if (memcmp(l->output[i], want, l->answer_count[i] * sizeof *want) != 0) {
            fail_msg("%s: request %u answered other tokens", why, i);
        }
    }
}

struct sched_config rig_config(void)
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
