/* none.c - never guesses: a decoding sequence computes one token a step. */
#include "policies/draft/draft.h"

const struct draft_policy draft_none = {
    .name = "none",
    .about = "no guesses, one token a step",
    .source = "the usual decoding",
};
