/* scheduler.h - decides what the engine computes next: plan, execute, commit.
 *
 * Layer:    engine/core (policies, base/core). No I/O, no clock: the simulator links this object
 * Threads:  the device thread, or the simulator
 * Lifetime: sessions belong to the scheduler until sched_release
 * Rules:    (1) one loop: sched_plan -> the executor computes the batch -> sched_commit (or
 *               sched_discard when it failed). Never two plans in a row without one of them.
 *           (2) sessions end in sched_plan (abort, deadline), in commit or discard, and in
 *               sched_submit where the fair policy gives a place in the full queue to another
 *               tenant; each comes out of sched_next_ended exactly once, its pages already released
 *               (those that keep_pages asked for are released by sched_release)
 *           (3) the first running session by the preempt policy's rank always makes progress: with
 *               pages for one whole context there is no deadlock; a session that lost its pages
 *               three times keeps its place until it has computed more than ever before, so that
 *               sessions do not take turns for ever
 *
 * A plan goes through: aborts and deadlines -> running sessions that the order policy replaces by a
 * better one -> decoding sessions, one token each and what the draft policy guesses -> begun prompts, in chunks ->
 * waiting sessions, by tenant (fair) and in order, while they are admitted; or, where the admit policy forms batches,
 * the members of the open one (sched_round.h). A preempted session keeps its tokens and, if it is
 * parked, its pages until another session needs them; then they go to the swap space or are
 * dropped, and tokens that the prefix cache does not hold are computed again.
 *
 * Where layers have a sliding window a session gives up the window part of a page (kv_pool.h) once no token to come
 * sees it; a prefix is a hit only if the pages of the last window before its end are whole; other pages swap
 * without that part. The executor returns memory that pages lost: kv_pool_next_stale.
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/perf/perf.h"
#include "engine/core/kv_index.h"
#include "engine/core/session.h"
#include "policies/preset.h"

#define SCHED_DRAFT_MAX 128  /* guessed tokens of a step */
#define SCHED_SCORED_MAX 128 /* rows of logits before tokens that a step scores */

struct sched_config {
    uint32_t pages, page_tokens; /* pages: those that fit in memory whole */
    struct kv_parts parts;       /* of a model whose layers partly have a window */
    uint32_t context_max;        /* tokens of a session, prompt and output */
    uint32_t seqs_max;           /* running at once */
    uint32_t batch_tokens_max;   /* of one step; at least seqs_max */
    uint32_t waiting_max;
    uint32_t events_max; /* block events kept */
    bool prefix_cache;
    /* a prompt is computed in one step or not yet: batch_tokens_max holds any */
    bool whole_prompts;
    uint64_t key_seed;
    double ttft_s_max;           /* TTFT of the SLO, for the chunk policy; 0: none */
    double step_s_max;           /* and TPOT; 0: none */
    uint32_t swap_pages;         /* places of the swap space; 0: the preset's, often none */
    double swap_page_s;          /* to copy a page one way; 0: not known, counted as free */
    const struct preset *preset; /* for the policies that are NULL; NULL: the default policies */
    struct step_policies policies;
};

/* Consecutive known tokens of one session. `sample`: they reach its last known token, so the
 * executor samples the next one. The K and V of [import_from, start) came with the request and are
 * written into the pages before the step; import_from == start if none did.
 *
 * `stored`: K and V of so many tokens lie in the pages already, which others may share: they are computed
 * for what follows from them and not written again. So it is with the last token of a prompt that was found whole.
 *
 * `drafted`: the last of the tokens are guesses, in ids behind the known ones. The executor samples
 * behind the last known token and goes on for as long as the token is the guess.
 *
 * `scored`: the tokens from score_from on are scored, by the logits behind the token before each; the
 * first of those rows is that of the token score_from - 1, which the item computes. */
struct sched_item {
    struct session *session;
    uint32_t start, count, import_from;
    uint32_t stored;
    uint32_t score_from, scored;
    uint32_t drafted;
    uint32_t guessed, match; /* tokens guessed, and those that the guess rests on */
    bool sample;
};

/* Returns the tokens before the item's last one whose logits are wanted, for scores. */
static inline uint32_t sched_item_rows_before(const struct sched_item *item)
{
    return item->scored > 0 ? item->start + item->count - item->score_from : 0;
}

/* A move copies a page before the step; moves are done one after the other, in order. OUT: to a
 * place of the swap space; IN: from there. Without `whole` the part of layers with a window is left out. */
enum sched_move_kind { SCHED_SWAP_OUT, SCHED_SWAP_IN };

struct sched_move {
    enum sched_move_kind kind;
    uint32_t from, to;
    bool whole;
};

/* The work of one step. With count 0 nothing is computed, but the moves must still be done. */
struct sched_batch {
    struct sched_item *item;
    uint32_t count;
    uint32_t tokens;
    uint32_t score_rows; /* logits before the last token of each item that scores */
    struct sched_move *move;
    uint32_t move_count;
    uint32_t swapped_out, swapped_in; /* of the moves, pages out and in */
    struct perf_shape shape;
};

/* The result of one item, at the item's place; those of items without `sample` are ignored. */
struct sched_result {
    uint32_t accepted; /* guessed tokens that come before the token `id`; at most `drafted` */
    uint32_t id;
    bool stop; /* the session ends with this token */
    bool done; /* the session ends without a token: its prompt was all that it wanted */
};

struct sched_counts {
    uint64_t submitted, refused; /* refused: waiting_max; displaced ones: ended */
    uint64_t ended[SESSION_END_COUNT];
    uint64_t preemptions;             /* sessions that lost their pages */
    uint64_t parked;                  /* sessions that lost their place only */
    uint64_t swaps;                   /* preemptions by swap, of all */
    uint64_t swapped_out, swapped_in; /* pages */
    uint64_t steps;
    uint64_t prompt_tokens, generated_tokens; /* of admitted sessions */
    uint64_t query_tokens, hit_tokens;        /* prefix cache, at first admission */
    uint64_t drafted_tokens, accepted_tokens; /* guesses computed; those that came true */
    uint32_t running, waiting, paused;        /* now */
};

/* A decoding session, for which a draft model may guess. The caller lowers `max` to what its model can. */
struct sched_guess {
    struct session *session;
    uint32_t max; /* tokens that can be of use; 0: none */
    /* The caller's: known tokens but the last that the model has to compute first. */
    uint32_t lacks;
    uint32_t count; /* to guess now */
};

struct scheduler;

/* Returns the units (kv_pool.h) of a session's parts, while a step computes the last `fresh` of its tokens. */
uint64_t sched_units_of(const struct sched_config *c, uint32_t tokens, uint32_t fresh);

/* -EINVAL with a sentence for a configuration that cannot work; -ENOMEM. */
int sched_new(const struct sched_config *config, struct scheduler **ret, struct err *err);
void sched_free(struct scheduler *s); /* frees sessions that were not released as well */
CLEANUP_FREEP(sched, struct scheduler)

/* Queues a request as a session. -EAGAIN: waiting_max are waiting (reply 429), and the fair policy,
 * if any, displaces none of them. -E2BIG: prompt and one token exceed the context. -EINVAL: empty
 * prompt, output_max 0, all of the prompt imported, or tokens to score beyond it. -ENOMEM. */
int sched_submit(struct scheduler *s, const struct sched_request *req, struct session **ret,
                 struct err *err);

void sched_abort(struct scheduler *s, struct session *session); /* takes effect in the next plan */
void sched_pause(struct scheduler *s, struct session *session, bool paused);

/* Holds a session that is about to continue on another engine: from the next plan on it takes no
 * step and no other session takes its pages. The caller lets go of it, or aborts it, soon. */
void sched_hold(struct scheduler *s, struct session *session, bool held);

/* Reports the measured seconds of copying a page to or from the swap space. */
void sched_swap_observe(struct scheduler *s, double page_s);

/* Before a plan, with a draft policy that asks for a draft model: sched_guess_list lists the sessions that will
 * decode, at most seqs_max; sched_guess_lengths says how many tokens to guess for each and returns their
 * sum; sched_guess_give takes a guess, which counts until the session has more tokens. */
uint32_t sched_guess_list(struct scheduler *s, struct sched_guess *ret);
uint32_t sched_guess_lengths(struct scheduler *s, struct sched_guess *guess, uint32_t count,
                             const struct perf_coef *perf, const struct perf_coef *model);
void sched_guess_give(struct session *session, const uint32_t *ids, uint32_t count);

/* Plans one step. The batch is valid until commit or discard; it is empty if nothing can run now. A
 * now_us before the last one counts as the last one. */
const struct sched_batch *sched_plan(struct scheduler *s, int64_t now_us,
                                     const struct perf_coef *perf);
void sched_commit(struct scheduler *s, const struct sched_result *results, int64_t now_us);
void sched_discard(struct scheduler *s, int64_t now_us); /* the sessions of the batch end, ERROR */

struct session *sched_next_ended(struct scheduler *s); /* NULL: none left */
void sched_release(struct scheduler *s, struct session *session);

/* Returns true if a session could use a step now or is to be ended. */
bool sched_has_work(const struct scheduler *s);
int64_t sched_next_deadline_us(const struct scheduler *s); /* INT64_MAX: none */

void sched_counts_get(const struct scheduler *s, struct sched_counts *ret);
/* Returns the prompt tokens that are neither computed, nor imported, nor expected in the cache: the
 * work that a new request waits behind. */
uint64_t sched_prefill_owed(const struct scheduler *s);
/* Returns the pages that the head of the queue lacks before it can run, less those expected in the
 * cache: at least 1 while any session waits, 0 while none does. The head is the first by rank,
 * whatever its tenant. */
uint32_t sched_head_pages(const struct scheduler *s);

/* Returns the policies in force, after preset and defaults. */
const struct step_policies *sched_policies(const struct scheduler *s);
struct kv_index *sched_index(struct scheduler *s); /* events, snapshot, clear, page counts */
bool sched_check(const struct scheduler *s);       /* recounts every page; for tests and debug */
