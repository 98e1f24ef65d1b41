/* fan.h - serves one client request for several outputs: a request for each, one exchange for all.
 *
 *     first output of a prompt ── its first token ──► its other outputs arrive
 *
 * Each output is placed, retried and continued by itself. The others of a prompt wait for its first one, so
 * that they are placed by the prefix cache that it has filled.
 *
 * Layer:    router
 * Threads:  the byte loop's
 * Lifetime: in the arena of the first output's request; all requests of a fan are given back together
 * Rules:    (1) client.x of each request is the one exchange while its output is open, then NULL
 *           (2) the first failure ends the client's request, and the other outputs with it
 *           (3) a stream ends when the last output ends; usage and [DONE] come behind all of them
 *           (4) of best_of outputs the n with the highest mean log-probability of a token are sent, the
 *               best first
 *           (5) for limits, queues and metrics each output is a request
 */
#pragma once
#include "router/request.h"

struct fan_output {
    struct request *r;
    bool arrived;
    struct buf text, logprobs, prompt_logprobs; /* of a whole response */
    bool relayed; /* it is another engine's, with these as they stood there */
    struct buf reasoning, tool_calls;
    enum finish finish;
    double mean; /* log-probability of a token; with best_of above n */
};

struct fan {
    /* Outputs; those whose requests the decision thread still knows or will. */
    uint32_t count, held;
    uint32_t n, best_of;
    bool headed; /* the head of a stream is sent */
    struct usage usage;
    struct fan_output output[];
};

/* A prompt that is not the first of its request, ready to be placed. */
struct fan_prompt {
    struct ids ids;
    struct str echo;
    struct block_key *keys;
    uint32_t key_count;
};

/* Makes the requests of the outputs behind the first, whose client members are complete; the first is to
 * arrive next, and fan_begin then. -EAGAIN: the pool is empty, -ENOMEM: client.problem says so. */
int fan_make(struct request *first, const struct snapshot_model *m);
void fan_begin(struct request *first); /* the first outputs of the other prompts arrive */

void fan_go_on(struct request *r);         /* the prompt of its output is computed */
bool fan_is_last(const struct request *r); /* no other output is open */
void fan_count(struct request *r);         /* its tokens, at its end */
void fan_drop(struct request *r);          /* the exchange is gone: ends all outputs but `r` */
void fan_left(struct request *r);          /* the client has left: ends all */

/* Takes one output from an engine of another kind, whole: its text and what else the response says. Returns
 * 0, or negative without memory. */
int fan_take(struct request *r, struct str text, const struct openai_delta *delta);

/* Keeps the end of a whole output, and if it is the last, appends the whole response to `out`. Returns 1
 * then, 0 if others are open; negative without memory. */
int fan_keep(struct request *r, struct buf *out);

/* TELL_DONE came: gives all requests back if it was the last. */
void fan_done(struct request *r);
void fan_dissolve(struct request *r); /* at the loop's end: each is given back by itself */
