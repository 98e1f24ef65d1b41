/* history.h - records what clients and the fleet saw, and keeps the first violation.
 *
 * Layer:    tests (base/core)
 * Threads:  one; a test that reads several connections reports events in the order of arrival
 * Lifetime: limits and expected texts are borrowed until history_fini
 * Rules:    (1) pure: time is an argument, nothing is read or started here
 *           (2) the first violation stays; later events are ignored
 *           (3) a test leaves out what it does not know, and that is not judged: an expected length
 *               of 0, an index of HISTORY_INDEX_UNKNOWN, a limit of 0
 */
#pragma once
#include "base/core/str.h"

#define HISTORY_REQUESTS_MAX (1u << 20)
#define HISTORY_INDEX_UNKNOWN UINT64_MAX

enum history_rule {
    HISTORY_KEYS,     /* no tokens and no success without a valid key */
    HISTORY_TOKENS,   /* no token repeated, lost or changed */
    HISTORY_GAPS,     /* no gap above the limit without an error */
    HISTORY_OUTCOMES, /* one outcome a request, and nothing after it */
    HISTORY_REASONS,  /* no instance ended without a reason */
    HISTORY_SPEND,    /* never above the budget */
    HISTORY_RULE_COUNT
};
extern const char *const history_rule_names[HISTORY_RULE_COUNT];

enum history_key {
    HISTORY_KEY_NOT_ASKED, /* the service is open and asks for no key */
    HISTORY_KEY_VALID,
    HISTORY_KEY_MISSING,
    HISTORY_KEY_INVALID, /* unknown or revoked when the request was sent */
};

enum history_outcome {
    HISTORY_FINISHED, /* a success with its proper end */
    HISTORY_ERROR,    /* a status, an error in the stream, or a broken connection */
    HISTORY_LEFT,     /* the client went away by itself */
};

struct history_limits {
    int64_t first_us_max; /* from sending to the first token or the outcome */
    int64_t gap_us_max;   /* from token to token, and to the outcome */
    double spend_h_max;   /* dollars an hour */
    /* Accepted words, NULL-terminated: the reason for an instance's end holds one of them. NULL: any
     * reason that is not empty is accepted. */
    const char *const *reasons;
};

struct history_request;

struct history {
    struct history_limits limits;
    struct history_request *request;
    uint32_t request_count; /* entries of `request`, unused ones included */
    bool violated;
    enum history_rule rule; /* of the violation */
    int64_t at_us;
    char text[256];
};

void history_init(struct history *h, const struct history_limits *limits);
void history_fini(struct history *h);

/* Requests are numbered by the caller, from 0 and densely. */
void history_sent(struct history *h, uint32_t request, enum history_key key, int64_t now_us);

/* Sets the whole output of a request. Either part may be unknown: tokens 0, text.data NULL. */
void history_expects(struct history *h, uint32_t request, uint64_t tokens, struct str text);

/* Records a piece of output: `count` tokens, the first of which has this index in the output. */
void history_tokens(struct history *h, uint32_t request, uint64_t index, uint64_t count,
                    struct str text, int64_t now_us);
void history_over(struct history *h, uint32_t request, enum history_outcome outcome,
                  int64_t now_us);

void history_instance_ended(struct history *h, const char *instance, const char *reason,
                            int64_t now_us);
void history_spend(struct history *h, double dollars_h, int64_t now_us);

/* Ends the history: requests without an outcome are judged too. Returns a sentence for the first
 * violation, which lives as long as `h`; NULL when all was well. */
const char *history_judge(struct history *h, int64_t now_us);
