/* legs_rig.h - answers that may go on at another engine, and what one engine alone says to a prompt.
 */
#pragma once
#include "base/core/bits.h"
#include "tests/proc/router_rig.h"

#include <pthread.h>

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
