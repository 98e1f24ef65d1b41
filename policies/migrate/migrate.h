/* migrate.h - the interface of migration policies, which choose running sessions to move, and their
 * targets.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the router or the simulator calls
 * Rules:   (1) only a session with movable == true moves, and never twice in one verdict
 *          (2) a moved session fits: the target's free pages, less those that its queue needs, hold
 *              it, and after the move the target is at least as free as the source was
 *          (3) absent is not zero: an instance with present == false is neither source nor target
 *          (4) a draining instance is a source as long as sessions run there, and never a target
 *
 * A move is live: the session goes on at its source while its pages are copied. Each stage copies
 * the pages written during the one before, until so few remain that stopping costs less than
 * another stage (migrate_stops). Units are pages, tokens and seconds.
 */
#pragma once
#include "base/core/rng.h"
#include "base/core/str.h"

#include <stdbool.h>
#include <stdint.h>

#define MIGRATE_INSTANCES_MAX 4096
#define MIGRATE_MOVES_MAX 64 /* of one verdict */

/* A session that runs on an instance. */
struct migrate_session {
    uint64_t id;
    uint32_t tokens; /* with K and V in its pages */
    bool movable;    /* decodes, and no copy of it is under way */
};

struct migrate_instance {
    uint32_t id;
    bool present; /* reported lately */
    bool accepts; /* ready and not draining */
    bool draining;
    uint32_t pages_free;  /* free or only cached */
    uint32_t queue_pages; /* that the head of its queue needs before it can run; 0: no queue */
    uint32_t running;
    double step_s;          /* of a decode step at its present load */
    double receiving_pages; /* of moves on their way here */
    double sending_pages;   /* of moves on their way from here, as of their start */
    int64_t leaves_us;      /* draining: when its provider will take it away; 0: not told */
    const struct migrate_session *session;
    uint32_t session_count;
};

struct migrate_view {
    const struct migrate_instance *instance;
    uint32_t instance_count;
    uint32_t page_tokens; /* at least 1 */
    double page_bytes;    /* of K and V */
    double link_bytes_s;  /* between two instances; 0: they cannot copy */
};

struct migrate_config {
    double low;          /* freeness below which sessions leave an instance */
    int64_t period_us;   /* between looks */
    uint32_t stop_pages; /* with so few left: stop and copy them */
    uint32_t stages_max; /* with the final, stopping one */
};

/* Returns Llumnix's settings, which count blocks of 16 tokens, in pages of `page_tokens`: a
 * threshold of 3, a stop at 16, 3 stages; a look every 100 ms. */
struct migrate_config migrate_config_for(uint32_t page_tokens);

struct migrate_move {
    uint64_t session;
    uint32_t from, to; /* ids */
    uint32_t stages;   /* estimated, as the two below */
    double copy_s;     /* from the first byte until the session goes on at the target */
    double stall_s;    /* the part of it without a token */
};

struct migrate_verdict {
    struct migrate_move move[MIGRATE_MOVES_MAX];
    uint32_t count;
    int64_t again_us; /* ask again no later than this */
};

struct migrate_policy {
    const char *name;    /* as in muster.yaml */
    const char *about;   /* --help and the documents */
    const char *source;  /* paper or system of the rule */
    uint32_t state_size; /* fixed, serialisable; zeroed bytes are the first state */
    void (*decide)(void *state, const struct migrate_config *config,
                   const struct migrate_view *view, int64_t now_us, struct rng *rng,
                   struct migrate_verdict *ret);
};

#define POLICY(name) extern const struct migrate_policy migrate_##name;
#include "policies/migrate/migrate.def"
#undef POLICY

extern const struct migrate_policy *const migrate_table[];
extern const uint32_t migrate_count;
#define MIGRATE_DEFAULT "none"

const struct migrate_policy *migrate_find(struct str name); /* NULL when there is none */

/* Functions that policies share with the code that carries moves out (migrate.c). */

/* Returns true if the session stops while stage number `stage` (from 0) copies the `left` remaining
 * pages; it is at its target afterwards. */
bool migrate_stops(const struct migrate_config *config, uint32_t stage, uint32_t left);

/* Estimates stages, copy_s and stall_s of moving a session of `tokens` over an idle link while it
 * decodes. */
void migrate_estimate(const struct migrate_config *config, const struct migrate_view *view,
                      uint32_t tokens, double step_s, struct migrate_move *ret);

/* Returns the freeness of an instance, its spare pages for each running session:
 *     (free pages - pages on their way here - the queue head's demand) / max(running, 1)
 * It is minus infinity for a draining instance. */
double migrate_freeness(const struct migrate_instance *in);
