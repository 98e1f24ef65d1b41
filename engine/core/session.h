/* session.h - describes one sequence in the engine: its tokens, its pages, its state.
 *
 * Layer:    engine/core (policies/step.h, policies/draft, base/core)
 * Threads:  the device thread, or the simulator
 * Lifetime: made by sched_submit, ended by the scheduler, freed by sched_release
 *
 *                  admit                     finish, abort, deadline
 *     WAITING ───────────────► RUNNING ─────────────────────────────► ENDED
 *        ▲                        │
 *        └────── preempted ───────┘            (WAITING ends by abort, deadline and displaced as well)
 *
 * A preempted session is parked (it keeps its pages while there is room), swapped (they lie in the
 * swap space) or bare (they are gone and computed again).
 *
 * A session has no phases: `computed` of its `total` tokens have their K and V in pages. A prompt,
 * a cache hit, a preempted session that resumes and one that decodes differ in these two numbers
 * only.
 */
#pragma once
#include "base/core/bits.h"
#include "base/core/block_key.h"
#include "base/core/heap.h"
#include "base/core/list.h"
#include "base/core/own.h"
#include "engine/core/wait_queue.h"
#include "policies/draft/draft.h"
#include "policies/step.h"

enum session_state { SESSION_WAITING, SESSION_RUNNING, SESSION_ENDED };

enum session_end {
    SESSION_END_NONE,
    SESSION_END_STOP,     /* end token or stop string */
    SESSION_END_LENGTH,   /* its own limit or the context */
    SESSION_END_ABORT,    /* the client left, or asked for it */
    SESSION_END_DEADLINE, /* its time was up */
    SESSION_END_ERROR,    /* the executor failed */
    SESSION_END_DISPLACED, /* it never ran; another tenant's request has its place in the full queue */
    SESSION_END_COUNT
};

const char *session_end_name(enum session_end why); /* label in metrics and logs */

/* Input of sched_submit; ids are copied. */
struct sched_request {
    uint64_t id; /* the caller's, for ties and logs */
    void *owner; /* the caller's */
    const uint32_t *ids;
    uint32_t prompt_tokens;
    uint32_t output_max;   /* tokens to generate at most, at least 1 */
    struct block_key salt; /* block_salt(...) of weights, adapter and tenant */
    int64_t arrival_us;
    int64_t deadline_us;                   /* 0: none */
    uint32_t predicted_p50, predicted_p90; /* output tokens; 0: absent, as in all below */
    uint32_t predicted_mean;
    bool has_rank;
    double rank;              /* of a learned ranker, with has_rank */
    uint64_t tenant;          /* for the fair policy; 0: none is named */
    double weight;            /* the tenant's share, from 1e-6 to 1e6; 0: 1 */
    uint64_t group;           /* requests that share the beginning of their prompts */
    uint32_t imported_tokens; /* of ids: their K and V come with the request; < prompt_tokens */
    uint32_t imported_from;   /* the first of them that comes; those before must be cached */
    /* Tokens at score_from and behind it, before score_end, have their log-probabilities computed: a chunk
     * brings the logits before each, and no prefix hit reaches over one. 0 and 0: none have. */
    uint32_t score_from, score_end;
    bool begun;      /* elsewhere: it keeps its place in a full queue */
    bool keep_pages; /* at its end, until sched_release: they are being copied elsewhere */
};

/* The members that each step reads and writes come first and lie together: sessions of many engines, or of one large
 * batch, do not stay in a cache. */
struct session {
    struct list link; /* in the waiting, parked, running or ended list */
    void *owner;
    uint32_t item; /* place in the current batch plus 1; 0: not in it */
    uint32_t prompt_tokens;
    uint32_t total, computed;
    uint32_t total_max; /* capacity of ids; total reaches it at most */
    uint32_t page_count;
    uint32_t window_from;           /* first page of its window: from it on both parts are held */
    uint32_t sealed_pages;          /* of them full and offered to the index */
    uint32_t imported_tokens;       /* brought along and not yet written into pages; 0: none */
    uint32_t imported_from;         /* the first that was brought */
    uint32_t import_from;           /* of them, those before it were found in the cache */
    uint32_t score_next, score_end; /* the next token to score, and the end of those; or equal */
    uint32_t *ids;                  /* prompt, then what was generated */
    uint32_t *pages;
    enum session_state state;
    enum session_end end;
    bool paused; /* its reader is slow: it keeps its pages and takes no step */
    bool held;   /* its pages are being copied for the last time: no step, and none is taken */
    bool abort_asked;
    bool swapped; /* `pages` are places of the swap space; `computed` tokens lie there */
    bool arrived; /* the policies were told of it */
    bool has_rank;
    bool admitted_once;
    bool begun; /* its client already has tokens of it from another engine */
    bool keep_pages;
    uint32_t slice_from; /* tokens it had generated when it was last admitted */
    uint32_t predicted_p50, predicted_p90, predicted_mean;
    int64_t arrival_us, deadline_us;
    int64_t first_token_us; /* 0: not yet */

    struct list unranked; /* waits for its rank in the next plan */
    struct list aborting;
    struct list probing;    /* queued without pages; its rank depends on the prefix cache */
    struct heap_node due;   /* by deadline */
    struct heap_node again; /* by the time its rank is computed again */
    struct wait_node wait;
    struct step_scratch scratch;
    uint64_t id;
    uint32_t cached_tokens; /* of the prompt, found in the cache at the first admission */
    uint32_t preemptions;
    uint32_t reached; /* tokens it had computed when it lost its pages, at the most */

    struct block_key salt;
    struct block_key *keys; /* of full granules */
    uint32_t key_count;

    int64_t admitted_us; /* first admission; 0: not yet */
    int64_t ended_us;
    int64_t waiting_us;   /* when it last began to wait */
    uint32_t hit_tokens;  /* of its known tokens, expected in the cache; while it waits */
    uint32_t tenant_slot; /* of the scheduler */
    double rank;
    uint64_t tenant, group;
    uint32_t round;       /* place in the round of closed batches plus 1; 0: not in it */
    uint32_t draft_place; /* of the draft policy's state plus 1; 0: none */
    struct draft_rates draft_rates;
    uint32_t given[DRAFT_TOKENS_MAX]; /* a draft model's guess, behind given_at known tokens */
    uint32_t given_count, given_at;
};

static inline uint32_t session_generated(const struct session *s)
{
    return s->total - s->prompt_tokens;
}

/* Returns the tokens that need not be computed: those in pages or, for a waiting session, those
 * expected in the cache or imported. Imported tokens count only if all tokens before them are
 * there. */
static inline uint32_t session_known(const struct session *s)
{
    if (s->state != SESSION_WAITING) return s->computed;
    uint32_t known = max_u32(s->computed, s->hit_tokens);
    return s->imported_from <= known ? max_u32(known, s->imported_tokens) : known;
}

/* Returns true if tokens are left to score (sched_request.score_from). */
static inline bool session_scores(const struct session *s)
{
    return s->score_next < s->score_end;
}

/* Returns the tokens that may be taken from the prefix cache: the logits before the next token to score
 * are computed with the token before it. */
static inline uint32_t session_hit_max(const struct session *s)
{
    return session_scores(s) ? s->score_next - 1 : s->total;
}

/* Returns NULL without memory. `total_max` includes the prompt. */
struct session *session_new(const struct sched_request *req, uint32_t total_max,
                            uint32_t page_tokens);
void session_free(struct session *s);
CLEANUP_FREEP(session, struct session)

/* Chains the keys of all full granules among the known tokens. */
void session_extend_keys(struct session *s, uint64_t seed);

/* Returns the key before page `page`: the salt for the first. */
struct block_key session_parent_key(const struct session *s, uint32_t page, uint32_t granules);
