/* streams.h - runs many clients in one thread; each sends a router one question after another and reads the
 * output token by token.
 *
 * Some clients may ask an engine directly, beside those that ask the router: both then meet the same
 * machine at the same time. Client i asks question i modulo the number of questions, at temperature 0, so
 * the text of every output is known. All events go into a history (history.h), which is judged at
 * the end: a lost, repeated or foreign token, a wait above the limits, a second outcome. There is one set
 * of clients at a time.
 *
 * Threads: the clients have one of their own; the test's thread calls these functions
 */
#pragma once
#include "base/core/buf.h"
#include "tests/history/history.h"

#define STREAMS_QUESTIONS_MAX 16
#define STREAMS_CLIENTS_MAX 4096

struct streams_plan {
    uint16_t port;        /* a router's */
    uint16_t engine_port; /* the last clients ask it as a router would; 0: none does */
    uint32_t clients, direct_clients;
    int64_t spread_us;                           /* clients start evenly over this time */
    uint32_t tokens;                             /* of an output */
    const char *expected[STREAMS_QUESTIONS_MAX]; /* texts; NULL: not compared */
    uint32_t questions;
    struct history_limits limits;
    void (*on_text)(struct str text, bool direct); /* optional; in the clients' thread */
};

struct streams_sum {
    uint64_t whole;       /* outputs that came to their proper end */
    uint64_t failed;      /* requests for which no stream began */
    uint64_t broken;      /* streams that began and ended in an error */
    int64_t first_us_max; /* the longest wait for a first token */
    int64_t gap_us_max;   /* the longest wait for a later one */
    char error[600];      /* the reply to the first that failed or broke */
    char violation[256];  /* of the history; empty: there is none */
};

/* Asks one question alone and gets the text of the output. */
void streams_ask(uint16_t port, uint32_t question, uint32_t tokens, struct buf *ret);

void streams_start(const struct streams_plan *plan);
uint64_t streams_whole(void); /* so far */
uint64_t streams_begun(void); /* outputs of which a token has come, so far */

/* Lets every client read its output to the end, then ends them. */
void streams_end(struct streams_sum *ret);
