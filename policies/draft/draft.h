/* draft.h - the interface of draft policies, which guess the next tokens of a decoding sequence.
 *
 * Layer:   policies (base/perf, base/core)
 * Threads: pure; the engine's device thread calls
 * Rules:   (1) a guess changes no output: the engine computes the guessed tokens in one step and keeps
 *              the prefix that it would have chosen itself
 *          (2) propose writes at most view->max ids, each of them an id of the sequence or of view->given
 *          (3) state belongs to one sequence, whose ids only grow; zeroed bytes are a new state
 *
 * Length (length.c): the guesses of a step are cut to the tokens whose expected gain is worth their
 * seconds. With tokens E and seconds T of the decoding sequences so far, one more guessed token is
 * computed while
 *
 *     probability that it is accepted / seconds of one more token  >  E / T
 *
 * It is accepted only if all guesses before it are, so its probability is a product. The more sequences
 * decode, the larger is E / T, up to the rate at which tokens cost their arithmetic alone: then no
 * guess is worth it, and drafting is off. The step-time model learns the seconds of one more token only
 * from steps that differ in their tokens, so now and then a few likely ones are computed all the same
 * (`least`). Source: SmartSpec (arXiv 2406.14066), which maximises the same ratio with one length for
 * the whole batch; ours differs by sequence.
 *
 * A draft model guesses before the step, one token of each sequence in each of its passes, and its seconds
 * are part of the price. draft_ask therefore says beforehand how many tokens of each sequence are worth
 * both: that of the pass, which all its sequences share, and that of verifying them.
 */
#pragma once
#include "base/core/str.h"
#include "base/perf/perf.h"

#include <stdint.h>

#define DRAFT_TOKENS_MAX 16 /* guessed for one sequence at once */
#define DRAFT_WINDOW 8192   /* latest tokens of a sequence in which policies look */

struct draft_view {
    const uint32_t *ids;   /* prompt and output */
    uint32_t count;        /* at least 1 */
    uint32_t max;          /* tokens wanted at most; at least 1, at most DRAFT_TOKENS_MAX */
    const uint32_t *given; /* what a draft model guessed, where the caller runs one */
    uint32_t given_count;
};

struct draft_policy {
    const char *name;
    const char *about;
    const char *source;
    uint32_t state_size; /* bytes for each running sequence; 0: none */
    bool asks;           /* it rests on view->given: the caller runs a draft model */
    /* Writes the guess into ret_ids and returns its length. *ret_match: the latest tokens of the
     * sequence on which it rests; at least 1 with a guess. NULL: the policy never guesses. */
    uint32_t (*propose)(void *state, const struct draft_view *view, uint32_t *ret_ids,
                        uint32_t *ret_match);
};

#define POLICY(name) extern const struct draft_policy draft_##name;
#include "policies/draft/draft.def"
#undef POLICY

extern const struct draft_policy *const draft_table[];
extern const uint32_t draft_count;
#define DRAFT_DEFAULT "none"

const struct draft_policy *draft_find(struct str name); /* NULL when there is none */

/* ---- acceptance (length.c) ---- */

/* Guesses compared with the tokens that came, by the length of the match they rest on: 1, 2, 3 or 4,
 * 5 to 8, 9 to 16, more. A guess with others accepted before it rests on a longer match. Old
 * comparisons fade. { 0 } has seen none. */
#define DRAFT_CLASSES 6
struct draft_rates {
    float compared[DRAFT_CLASSES], equal[DRAFT_CLASSES];
};

/* Counts a guess on `match` tokens: the first `equal` of it came, and the next did not, if `missed`. */
void draft_rates_observe(struct draft_rates *rates, uint32_t match, uint32_t equal, bool missed);

/* Returns the probability that a guess on `match` tokens comes true: that of the sequence, which
 * begins as that of `all` sequences. */
double draft_rate(const struct draft_rates *own, const struct draft_rates *all, uint32_t match);

/* ---- length (length.c) ---- */

/* A decoding sequence in the step. */
struct draft_place {
    const struct draft_rates *own;
    uint32_t guessed, match; /* what propose returned; guessed 0: nothing */
    uint32_t context;        /* tokens to which a further one attends */
    uint32_t lacks;          /* draft_ask: known tokens that the draft model computes first */
    double left;             /* draft_ask: output tokens expected still, at least 1 */
    uint32_t take;           /* of the guess, to compute now */
    double reach;            /* probability that all that is taken is accepted */
};

#define DRAFT_PROBE_STEPS 32 /* with guesses, and none of them computed */
#define DRAFT_PROBE_TOKENS 2
/* Less likely guesses are never computed: they gain little at any price. */
#define DRAFT_RATE_MIN 0.15

/* The step to which guesses are added: its decoding sequences have one token each. */
struct draft_step {
    struct perf_coef perf;
    struct perf_shape shape;
    uint32_t least, most; /* guessed tokens in sum; `least` to probe, if they are likely enough */
};

/* Sets `take` and `reach` of each place; returns the tokens taken. */
uint32_t draft_allot(struct draft_place *place, uint32_t count, const struct draft_rates *all,
                     const struct draft_step *step);

/* ---- what a draft model is asked for (length.c) ---- */

#define DRAFT_PROBE_GAP_MAX 1024 /* steps between two probes of a model that is always wrong */

struct draft_ask {
    struct draft_step step; /* `least` counts for nothing */
    struct perf_coef model; /* the draft model's */
    bool longer;            /* one token more than is worth it, to learn how often it comes true */
};

/* Sets `take` of each place to the tokens to ask for, up to `guessed`, and returns their sum. */
uint32_t draft_ask(struct draft_place *place, uint32_t count, const struct draft_rates *all,
                   const struct draft_ask *ask);

/* Asks for up to DRAFT_PROBE_TOKENS of one sequence whatever they are worth: of the one that lacks the fewest tokens,
 * if they are at most `lacks_max`. Sets `take` and returns the sum, as draft_ask. */
uint32_t draft_probe(struct draft_place *place, uint32_t count, uint32_t lacks_max);
