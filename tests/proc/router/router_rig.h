/* router_rig.h - a router before a few engines, scripted or real, and what each says of itself.
 *
 * Everything is by number: engine[i]. cleanup, the teardown of every test, ends all of it. An output
 * that was continued at another engine is compared with the output of one engine alone.
 */
#pragma once
#include "base/core/bits.h"
#include "tests/proc/rig/rig.h"

#include <pthread.h>

#define ENGINES 3

extern struct rig_process engine[ENGINES], router;

/* A scripted engine with further arguments, at its port again once it has one. */
void start_fake(uint32_t i, const char *const *more);

/* Sends to the engines up to the first NULL role; "" is both. Those that run are waited for. */
void start_router(const char *const role[ENGINES], const char *const *more);
int cleanup(void **state);

int64_t seen(uint32_t i, const char *what); /* by a scripted engine */
double counted(const char *what);           /* muster_router_WHAT_total */

#define TRIES 8 /* of requests until one met what was scripted */

/* One whole answer, sampled; what stands behind every "text":" of it, and the reply, as C strings. */
void ask_at(uint16_t port, const char *prompt, uint32_t tokens, bool stream, struct buf *text,
            struct buf *reply);

/* Asks the router and compares the text and the usage with what was answered alone. */
void expect(const char *prompt, uint32_t tokens, bool stream, const struct buf *alone);

/* A client of its own thread: asker_run asks the router. */
struct asker {
    pthread_t thread;
    uint32_t number, tokens;
    const char *prompt;
    struct buf alone, text, reply;
    bool whole;
};

void *asker_run(void *asker);
void asker_fini(struct asker *a);
