/* streams.h - many clients in one thread, each of which asks a router one question after the other
 * and reads the answer token by token.
 *
 * Clients may ask an engine itself, beside those that ask the router: both then meet the same
 * machine at the same time. Client i asks its question i modulo the number of questions at temperature 0, so the text of
 * every answer is known. What they see is a history (history.h), which is judged at the end: a
 * token that is lost, repeated or foreign, a wait above the limits, a second outcome. One set of
 * clients at a time.
 *
 * Threads: the clients have one of their own; everything here is called by the test's.
 */
#pragma once
#include "base/core/buf.h"
#include "tests/history/history.h"

#define STREAMS_QUESTIONS_MAX 16
#define STREAMS_CLIENTS_MAX 4096

struct streams_plan {
    uint16_t port;        /* a router's */
    uint16_t engine_port; /* asked by the last clients as a router would; 0: by none */
    uint32_t clients, direct_clients;
    int64_t spread_us;                           /* clients start evenly over that time */
    uint32_t tokens;                             /* of an answer */
    const char *expected[STREAMS_QUESTIONS_MAX]; /* texts; NULL: not compared */
    uint32_t questions;
    struct history_limits limits;
    void (*on_text)(struct str text, bool direct); /* optional; in the clients' thread */
};

struct streams_sum {
    uint64_t whole;       /* answers that came to their proper end */
    uint64_t failed;      /* no stream began */
    uint64_t broken;      /* a stream that began and ended in an error */
    int64_t first_us_max; /* the longest wait for a stream's first token */
    int64_t gap_us_max;   /* and for one of the next */
    char error[600];      /* what the first that failed or broke got */
    char violation[256];  /* of the history; empty when all was well */
};

/* The text of the answer to question `question`, asked alone. */
void streams_ask(uint16_t port, uint32_t question, uint32_t tokens, struct buf *ret);

void streams_start(const struct streams_plan *plan);
uint64_t streams_whole(void); /* so far */
uint64_t streams_begun(void); /* answers of which a token has come, so far */

/* Every client ends the answer that it reads. */
void streams_end(struct streams_sum *ret);
