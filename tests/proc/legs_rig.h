/* legs_rig.h - engines, scripted or real, behind a router; and what one alone says to a prompt.
 *
 * Everything is by number: engine[i]. cleanup, the teardown of every test, ends all of it.
 */
#pragma once
#include "base/core/bits.h"
#include "tests/proc/rig.h"

#include <pthread.h>

#define MODEL "models/muster-tiny-q8_0.gguf"
#define ENGINES 3
#define TRIES 8 /* of requests until one met what was scripted */

extern struct rig_process engine[ENGINES], router;

/* A scripted engine of twelve tokens; a real one with the shipped model. At a port that was set. */
void start_fake(uint32_t i, const char *fail, const char *count);
void start_real(uint32_t i, const char *kv_bytes, const char *share);

/* Sends to the engines up to the first NULL role; "" is both. Those that run are waited for. */
void start_router(const char *const role[ENGINES], const char *more, const char *value);
int cleanup(void **state);

/* One whole answer, sampled; what stands behind every "text":" of it, and the reply, as C strings. */
void ask_at(uint16_t port, const char *prompt, uint32_t tokens, bool stream, struct buf *text,
            struct buf *reply);

/* Asks the router and compares the text and the usage with what was answered alone. */
void expect(const char *prompt, uint32_t tokens, bool stream, const struct buf *alone);

int64_t seen(uint32_t i, const char *what); /* by a scripted engine */
double counted(const char *what);           /* muster_router_WHAT_total */

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
