/* checks.h - what must hold in every world, each with its name.
 *
 * Layer: tests/sim
 * Rules: (1) a check knows the hidden truth; of the controller it reads the books, never its
 *            opinion of the truth
 *        (2) the first failure stops the world
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum check {
    CHECK_ENDS_ONCE,      /* every accepted request ends exactly once */
    CHECK_WHOLE_ANSWERS,  /* with all of its tokens, each once and in order, or with an error */
    CHECK_GAPS,           /* no client waits longer than the limit for a token, or an error */
    CHECK_KEYS,           /* nobody is served without a key */
    CHECK_REASONS,        /* no instance is ended without a reason that is true */
    CHECK_SPEND,          /* what runs costs no more than the budget */
    CHECK_ONE_PER_INTENT, /* at most one machine runs under an intent */
    CHECK_NO_ORPHAN,      /* nothing runs that no live intent stands for, once all is well */
    CHECK_COUNT_BOUNDS,   /* the fleet stays within its maximum */
    CHECK_BUDGET,         /* nothing is launched over the budget, launches under way included */
    CHECK_BLIND_SHRINK,   /* nothing goes down without fresh word of routers and agents */
    CHECK_SERVING_ENDED,  /* nothing that serves is ended before its drain deadline */
    CHECK_BLAMELESS,      /* no engine rests that gave its router no cause */
    CHECK_RETRIES,        /* retries stay within a tenth of the requests and the floor */
    CHECK_HELD,           /* held requests are bounded in number and time */
    CHECK_LEDGER_EMPTY,   /* when everything ended, nothing is in flight */
    CHECK_RESTORES,       /* a controller comes back on any store it left */
    CHECK_CONVERGES,      /* the fleet is the plan's target within 120 s of health */
    CHECK_SERVES,         /* and answers what is asked of it */
    CHECK_SHRINKS,        /* without demand it is the minimum within 120 s */
    CHECK_REPEATS,        /* two runs of a seed are one */
    CHECK_COUNT
};
extern const char *const check_names[CHECK_COUNT];

struct world;
struct agent;
struct router_node;

void check_fail(struct world *w, enum check check, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void check_before_tick(struct world *w);
void check_after_tick(struct world *w);
void check_router(struct world *w, struct router_node *n);
void check_retries(struct world *w, struct router_node *n);
void check_history(struct world *w); /* what clients saw and the fleet did, after each event */
void check_machine_made(struct world *w, uint32_t index);
void check_spend(struct world *w);
void check_removal(struct world *w, const struct agent *a);

/* Of a world without faults. */
void check_converged(struct world *w);
void check_shrunk(struct world *w);
void check_end(struct world *w);
