/* router_rig.h - starts a router before a few engines, scripted or real, and reads their counters.
 *
 * Engines go by number: engine[i]. cleanup, the teardown of every test, ends all processes. An output
 * that was continued at another engine is compared with the output of one engine alone.
 */
#pragma once
#include "base/core/bits.h"
#include "tests/proc/rig/rig.h"

#include <pthread.h>

#define ENGINES 3

extern struct rig_process engine[ENGINES], router;

/* Starts a scripted engine with further arguments, each time at the same port. */
void start_fake(uint32_t i, const char *const *more);

/* Starts a router over the engines up to the first NULL role ("" is both), and waits until it knows those
 * that run. */
void start_router(const char *const role[ENGINES], const char *const *more);
int cleanup(void **state);

int64_t seen(uint32_t i, const char *what); /* a number of scripted engine i's /seen */
double counted(const char *what);           /* muster_router_WHAT_total */

#define TRIES 8 /* requests, at most, until one meets the scripted event */

/* Asks for one sampled output, which must come whole. `text` gets the strings behind every "text":" of the
 * reply, and `reply` the reply, as C strings. */
void ask_at(uint16_t port, const char *prompt, uint32_t tokens, bool stream, struct buf *text,
            struct buf *reply);

extern const char *ask_temperature; /* "0.8" */
extern const char *ask_more; /* further members of every request: ",\"key\":value"; empty: none */

/* Asks the router and compares text and usage with the output of one engine alone. */
void expect(const char *prompt, uint32_t tokens, bool stream, const struct buf *alone);

/* A client with a thread of its own, which runs asker_run to ask the router. */
struct asker {
    pthread_t thread;
    uint32_t number, tokens;
    const char *prompt;
    struct buf alone, text, reply;
    bool whole;
};

void *asker_run(void *asker);
void asker_fini(struct asker *a);

/* ---- migrations ---- */

void wait_all_at_first(uint32_t requests); /* they run or wait at engine[0] */

/* Slows an engine down to a share of its speed, as a number in JSON. */
void set_clock(uint32_t i, const char *clock);

bool one_has_moved(void *unused); /* for rig_wait: the router has migrated a request */
