/* checks.h - named checks that must hold in every world.
 *
 * Layer: tests/sim
 * Rules: (1) a check knows the hidden truth; from the controller it reads the intents and the plan,
 *            never the controller's opinion of the truth
 *        (2) the first failure stops the world
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum check {
    CHECK_ENDS_ONCE,      /* every accepted request ends exactly once */
    CHECK_WHOLE_ANSWERS,  /* it has all of its tokens, each once and in order, or an error */
    CHECK_GAPS,           /* no client waits longer than the limit for a token, or an error */
    CHECK_KEYS,           /* no request is served without a key */
    CHECK_REASONS,        /* no instance is ended without a reason that is true */
    CHECK_SPEND,          /* the running machines cost no more than the budget */
    CHECK_ONE_PER_INTENT, /* at most one machine runs under an intent */
    CHECK_NO_ORPHAN,      /* every running machine has a live intent, once the faults are over */
    CHECK_COUNT_BOUNDS,   /* the fleet stays within its maximum */
    CHECK_BUDGET,         /* no launch exceeds the budget, launches under way included */
    CHECK_BLIND_SHRINK,   /* the fleet shrinks only on fresh reports of routers and agents */
    CHECK_SERVING_ENDED,  /* no instance that serves is ended before its drain deadline */
    CHECK_BLAMELESS,      /* a router suspends only engines that gave it cause */
    CHECK_RETRIES,        /* retries stay within a tenth of the requests and the floor */
    CHECK_HELD,           /* held requests are bounded in number and time */
    CHECK_LEDGER_EMPTY,   /* when all requests have ended, none is in flight */
    CHECK_RESTORES,       /* a controller starts on any store that it left */
    CHECK_CONVERGES,      /* the fleet reaches the plan's target within 120 s of health */
    CHECK_SERVES,         /* and then serves its requests */
    CHECK_SHRINKS,        /* without demand it reaches the minimum within 120 s */
    CHECK_FENCED,         /* one controller leads at a time, and no other calls the provider */
    CHECK_REPEATS,        /* two runs of a seed have one digest */
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
void check_history(struct world *w); /* fails the world once its history has broken a rule */
void check_machine_made(struct world *w, uint32_t index);
void check_spend(struct world *w);
void check_removal(struct world *w, const struct agent *a);

/* Checks of a world without faults: at the end of the phase with demand, of the silence, and of all. */
void check_converged(struct world *w);
void check_shrunk(struct world *w);
void check_end(struct world *w);
