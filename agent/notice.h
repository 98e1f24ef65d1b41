/* notice.h - watches for the notice with which a provider takes the machine away.
 *
 * Layer:   agent (base/io)
 * Threads: the agent's loop
 * Bounds:  one request at a time, NOTICE_ASKS_MAX in a round; NOTICE_POLL_US between rounds, as Amazon recommends
 */
#pragma once
#include "agent/metadata.h"
#include "base/io/loop/loop.h"

#define NOTICE_POLL_US 5000000
#define NOTICE_POLL_SHORT_US 1000000 /* where the whole notice is 30 s */
#define NOTICE_ASK_US 2000000        /* deadline of a request */
#define NOTICE_ASKS_MAX 4

struct notice_watch;

/* Is called at each notice: the machine goes in left_us; left_us < 0: it is at risk, and may stay. */
typedef void notice_fn(void *arg, int64_t left_us, const char *why);

/* Begins to ask. `metadata` names source, service and machine, whose texts are borrowed. */
int notice_open(struct loop *l, const struct metadata *metadata, notice_fn *fn, void *arg,
                struct notice_watch **ret, struct err *err);
void notice_close(struct notice_watch *w); /* NULL is fine */
