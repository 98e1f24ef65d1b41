/* place.h - the interface of placement policies: what is bought where, and what is put on it.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the controller's loop, `muster plan` or the simulator calls
 * Rules:   (1) a row answers one or more of these questions and leaves the other slots NULL:
 *                choose  at which of a pool's offers (zones, on demand or spot) instances stand
 *                mix     how many instances of which type a workload needs   (place_mix.h)
 *                lay     which layers of a model lie on which devices        (place_layers.h)
 *                move    which old instance becomes which new one            (place_move.h)
 *                load    at which machine weights are loaded                 (place_move.h)
 *          (2) whoever needs an answer looks for the slot and says so when it is NULL; planner-only
 *              rows (lay, move, load) say it in `about`
 *          (3) memory is passed in and its size is fixed; state is plain bytes that only choose
 *              writes
 *          (4) the controller asks choose at each of its turns: no row says when
 *
 * Units are seconds, tokens and dollars an hour.
 */
#pragma once
#include "base/core/rng.h"
#include "base/core/str.h"

#include <stdbool.h>
#include <stdint.h>

#define PLACE_OFFERS_MAX 8
#define PLACE_STATE_BYTES_MAX 1024
#define PLACE_NONE UINT32_MAX

/* One offer of a pool: a type in a zone, on demand or spot. */
struct place_offer {
    bool usable; /* may be asked now: no back-off forbids it, its price is known and affordable */
    bool spot;   /* cheaper, and may be taken away */
    double price_h, lead_s;
    uint32_t ready, starting;
    uint32_t lost;    /* instances that the provider took away, counted since we know the offer */
    uint32_t refused; /* launches that it had no capacity for, counted likewise */
};

struct place_view {
    struct place_offer offer[PLACE_OFFERS_MAX];
    uint32_t offer_count;
    uint32_t target;     /* instances that should be ready at any time */
    double availability; /* share of time in which they should; (0, 1) */
};

struct place_verdict {
    uint32_t want[PLACE_OFFERS_MAX]; /* instances that should stand at each offer; their sum is the
                                      * target, or more: spares and replacements under way */
    uint32_t next;                   /* the offer to ask first; PLACE_NONE when none can be had */
    double cost_h;                   /* of want */
    double missing;     /* predicted share of time below the target; < 0 when unknown */
    const char *reason; /* static sentence */
};

struct place_mix;
struct place_mix_work;
struct place_mix_verdict;
struct place_layers;
struct place_layers_work;
struct place_layout;
struct place_move;
struct place_move_work;
struct place_move_verdict;
struct place_load;
struct place_load_verdict;

struct place_policy {
    const char *name;    /* as in muster.yaml */
    const char *about;   /* --help and the documents */
    const char *source;  /* where the rule comes from */
    uint32_t state_size; /* of choose; zeroed bytes are the first state */
    void (*choose)(void *state, const struct place_view *view, int64_t now_us, struct rng *rng,
                   struct place_verdict *ret);
    void (*mix)(const struct place_mix *problem, struct place_mix_work *work,
                struct place_mix_verdict *ret);
    void (*lay)(const struct place_layers *problem, struct place_layers_work *work, struct rng *rng,
                struct place_layout *ret);
    void (*move)(const struct place_move *problem, struct place_move_work *work,
                 struct place_move_verdict *ret);
    void (*load)(const struct place_load *problem, struct place_load_verdict *ret);
};

extern const struct place_policy *const place_table[];
extern const uint32_t place_count;
#define PLACE_DEFAULT "joint"

const struct place_policy *place_find(struct str name); /* NULL when there is none */

/* Planner-only rows, kinds of their own: no engine runs stages or takes over another's weights, no
 * driver loads weights by machine. Their tables hold rows that lay, move and load; `muster plan`
 * asks them by sub-commands of these names. */
extern const struct place_policy *const layers_table[], *const move_table[], *const load_table[];
extern const uint32_t layers_count, move_count, load_count;
#define LAYERS_DEFAULT "helix"
#define MOVE_DEFAULT "spotserve"
#define LOAD_DEFAULT "serverlessllm"

const struct place_policy *layers_find(struct str name); /* NULL when there is none */

/* What rows share (place.c). */

static inline uint32_t place_have(const struct place_offer *o)
{
    return o->ready + o->starting;
}

/* The cheapest offer that `fits` (NULL: all) of those that may be asked; the earlier on equal
 * prices; PLACE_NONE when there is none. */
uint32_t place_cheapest(const struct place_view *view, const bool *fits);

/* Fills next (the cheapest offer that something is missing at, the earlier on ties) and cost_h from
 * want. */
void place_finish(const struct place_view *view, struct place_verdict *ret);
