/* join.h - judges an agent that shows the token of an instance: a token lets one agent in, for a while.
 *
 * Layer:   controller/core (base/core)
 * Threads: pure; the controller's loop calls
 * Rules:   (1) the first agent with the token is the instance, and its mark is durable before it is told so. The same
 *              mark again is the same agent, which did not hear the reply
 *          (2) another mark while the token is valid: two have had the token, and one of them has stolen it. Which one
 *              cannot be known, so the instance is contested
 *          (3) a token is valid from the create call for within_us, and only until its agent has reported: where the
 *              record of a first mark may have been lost, with a store or a release that keeps none, the token counts
 *              as used
 */
#pragma once
#include "controller/core/intent.h"

struct join_config {
    /* Of the create call, or of the provider's word that the instance is there. */
    int64_t within_us;
    bool replaces; /* a contested instance is ended, so that another is made */
};

enum join_verdict {
    JOIN_FIRST,  /* to be kept, then let in */
    JOIN_AGAIN,  /* let in, as before */
    JOIN_TAKEN,  /* refused: another has joined with the token; the instance is contested */
    JOIN_LATE,   /* refused: the token has expired */
    JOIN_CLOSED, /* refused: the instance takes no agent any more, or not yet */
    JOIN_VERDICT_COUNT
};
extern const char *const join_verdict_names[JOIN_VERDICT_COUNT];   /* first again taken ... */
extern const char *const join_verdict_reasons[JOIN_VERDICT_COUNT]; /* sentences for people */

/* `mark` tells agents apart (base/io/auth/join.h), and is not empty. */
enum join_verdict join_judge(const struct intent *i, const char *mark, int64_t within_us,
                             int64_t now_us);

static inline bool join_is_welcome(enum join_verdict v)
{
    return v == JOIN_FIRST || v == JOIN_AGAIN;
}
