/* f_scheduler.c - drives the engine's scheduler, byte by byte, over pages that prove their contents
 * (sched_rig.h): a session ends once, with the output that its ids alone determine. Sessions need not
 * all end: with one place and one token a step some policies take very long.
 *
 * t_sched_properties draws such runs from seeds; here libFuzzer looks for runs that reach code that no
 * run reached before. */
#include "base/core/bits.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/engine/sched_rig.h"

#include <string.h>

#define SENT_MAX 24
#define LOADS 16
#define LAST_STEPS_MAX 20000 /* after the last choice, for the sessions to end */
#define COUNT_EVERY 64       /* last steps from one recount of pages to the next */

/* More last steps in a row than can pass without a new token or an end: each session may compute all
 * its tokens as often as it may lose its pages before it keeps its place (scheduler.c), and once
 * more. */
#define QUIET_STEPS_MAX (SENT_MAX * (PROMPT_MAX + OUTPUT_MAX) * 4)

struct life {
    struct rig r;
    struct load *l;
    uint32_t sent;
    int64_t now_us;
};

static struct sched_config draw_config(struct fuzz_choices *c)
{
    struct sched_config config = rig_config();
    config.policies = (struct step_policies){ .fair = fair_table[fuzz_u8(c) % fair_count],
                                              .order = order_table[fuzz_u8(c) % order_count],
                                              .admit = admit_table[fuzz_u8(c) % admit_count],
                                              .preempt = preempt_table[fuzz_u8(c) % preempt_count],
                                              .chunk = chunk_table[fuzz_u8(c) % chunk_count],
                                              .evict = evict_table[fuzz_u8(c) % evict_count] };
    config.pages = 10 + fuzz_below(c, 40);
    config.seqs_max = 1 + fuzz_below(c, 8);
    config.batch_tokens_max = config.seqs_max + fuzz_below(c, 120);
    config.swap_pages = fuzz_below(c, 60);
    config.swap_page_s = 1e-5 * fuzz_u8(c);
    config.prefix_cache = fuzz_below(c, 4) > 0;
    config.ttft_s_max = 0.02 * fuzz_below(c, 5);
    config.step_s_max = 2e-3 * fuzz_below(c, 5);
    config.waiting_max = 1 + fuzz_below(c, SENT_MAX);
    return config;
}

static void submit(struct life *f, struct fuzz_choices *c)
{
    if (f->sent == SENT_MAX) return;
    uint32_t i = f->sent++, due = fuzz_below(c, 32);
    struct sched_request req = { .id = i,
                                 .ids = f->l->ids[i],
                                 .prompt_tokens = f->l->count[i],
                                 .output_max = f->l->output_max[i],
                                 .arrival_us = f->now_us - fuzz_below(c, 4) * STEP_US,
                                 .deadline_us = due < 4 ? f->now_us + due * 9 * STEP_US + 1 : 0,
                                 .predicted_p50 = fuzz_u16(c),
                                 .predicted_p90 = fuzz_u16(c),
                                 .predicted_mean = fuzz_u16(c),
                                 .has_rank = due & 1,
                                 .rank = fuzz_u8(c) - 8.0,
                                 .tenant = fuzz_below(c, 4),
                                 .weight = fuzz_below(c, 5),
                                 .group = fuzz_below(c, 4),
                                 .begun = due >= 28 };
    f->l->cut[i] = due < 4;
    load_took(f->l, i, sched_submit(f->r.s, &req, &f->l->session[i], NULL));
}

static void step(struct life *f, bool fails, bool counts)
{
    struct rig *r = &f->r;
    const struct sched_batch *b = sched_plan(r->s, f->now_us, &rig_perf);
    must(!counts || sched_check(r->s));
    rig_execute(r, b);
    if (b->count > 0 && fails) {
        for (uint32_t i = 0; i < b->count; i++)
            f->l->cut[b->item[i].session->id] = true;
        sched_discard(r->s, f->now_us);
    } else if (b->count > 0) {
        sched_commit(r->s, r->result, f->now_us);
    }
    must(!counts || sched_check(r->s));
    load_collect(r, f->l);
}

static void choose(struct life *f, struct fuzz_choices *c)
{
    uint32_t op = fuzz_below(c, 16);
    struct session *x = f->sent ? f->l->session[fuzz_below(c, f->sent)] : NULL;
    if (op < 4) {
        submit(f, c);
    } else if (op == 4 && x) {
        sched_abort(f->r.s, x);
        f->l->cut[x->id] = true;
    } else if (op <= 6 && x) {
        sched_pause(f->r.s, x, !x->paused);
    } else if (op == 7 && x) {
        sched_hold(f->r.s, x, !x->held);
    } else if (op == 8) {
        f->now_us += (fuzz_u8(c) - 32) * (int64_t)50000; /* the clock may be set back */
    } else if (op == 9) {
        sched_swap_observe(f->r.s, 1e-5 * fuzz_u8(c));
    } else {
        f->now_us += STEP_US;
        step(f, op == 15, true);
    }
}

static bool is_open(const struct life *f)
{
    for (uint32_t i = 0; i < f->sent; i++)
        if (f->l->session[i]) return true;
    return false;
}

/* Returns a measure of progress: it grows with each new token and with each session's end. */
static uint64_t had_so_far(const struct life *f)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->sent; i++) {
        struct session *x = f->l->session[i];
        n += x ? session_generated(x) : OUTPUT_MAX + 1;
    }
    return n;
}

/* Resumes all sessions and steps until they have ended, or LAST_STEPS_MAX; checks the progress. */
static void finish(struct life *f)
{
    for (uint32_t i = 0; i < f->sent; i++) {
        struct session *x = f->l->session[i];
        if (x && x->paused) sched_pause(f->r.s, x, false);
        if (x && x->held) sched_hold(f->r.s, x, false);
    }
    uint64_t had = 0;
    for (uint32_t i = 0, quiet = 0; i < LAST_STEPS_MAX && is_open(f); i++) {
        uint64_t has = had_so_far(f);
        quiet = has > had ? 0 : quiet + 1;
        must(quiet < QUIET_STEPS_MAX);
        had = has;
        f->now_us += STEP_US;
        step(f, false, i % COUNT_EVERY == 0);
    }
    if (is_open(f)) return;
    struct sched_counts n;
    sched_counts_get(f->r.s, &n);
    must(n.running + n.waiting + n.paused == 0 && !sched_has_work(f->r.s));
    must(sched_index(f->r.s)->pool->held_count == 0);
}

static void check_answers(const struct life *f)
{
    const struct load *l = f->l;
    for (uint32_t i = 0; i < f->sent; i++) {
        uint32_t want[OUTPUT_MAX];
        if (l->session[i]) continue;
        uint32_t n = rig_truth(l->ids[i], l->count[i], l->output_max[i], want);
        bool whole = l->end[i] == SESSION_END_STOP || l->end[i] == SESSION_END_LENGTH;
        must(l->ended[i] == 1 && (whole || l->cut[i]));
        must(whole ? l->answer_count[i] == n : l->answer_count[i] <= n);
        must(memcmp(l->output[i], want, l->answer_count[i] * sizeof *want) == 0);
    }
}

/* The flat cost is a scheduler and its last steps, some 4,000 units each; one byte may send a prompt
 * of 120 tokens and an output of 40. */
const struct fuzz_cost fuzz_cost = { 100000000, 200000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    static struct load loads[LOADS];
    struct fuzz_choices c = { data, len };
    uint32_t seed = fuzz_below(&c, LOADS);
    struct load *l = &loads[seed];
    if (l->count[0] == 0) load_fill(l, seed + 1);
    memset(l->session, 0, sizeof l->session);
    memset(l->ended, 0, sizeof l->ended);
    memset(l->cut, 0, sizeof l->cut);
    struct life f = { .l = l, .now_us = 10000000 };
    struct sched_config config = draw_config(&c);
    rig_init(&f.r, &config);
    while (c.len > 0)
        choose(&f, &c);
    finish(&f);
    check_answers(&f);
    rig_fini(&f.r);
}
