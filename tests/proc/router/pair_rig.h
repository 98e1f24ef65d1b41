/* pair_rig.h - an engine and a router before it, which must answer one request alike; and two engines behind a router,
 * one of which a client kills.
 *
 * Layer: tests/proc (rig)
 */
#pragma once
#include "base/core/bits.h"
#include "tests/proc/rig/rig.h"

struct pair {
    struct rig_process engine, router;
};
extern struct pair pair;

/* Starts both with the shipped model as "muster-tiny"; `flags` are further ones of the engine. */
void pair_start(const char *const *flags);
void pair_start_model(const char *model,
                      const char *const *flags); /* another model as "muster-tiny" */

/* A teardown of cmocka; fails if one of them ended badly. */
int pair_end(void **state);

/* Fails unless all texts follow each other in the reply. */
void pair_must_have(const struct buf *reply, const char *const *text, size_t count);

/* Posts a body to both: each must reply with the status and the texts, in their order. */
void pair_expect(const char *path, const char *body, int status, const char *const *text,
                 size_t count);

/* Starts a router and two slow engines with the shipped model, and runs a Python client that kills the one that serves
 * it: `script URL static-0=PID static-1=PID`. `flags` are further ones of the engines. Fails unless the client is
 * content and an output went on elsewhere. */
void pair_killed(const char *script, const char *const *flags);

#define BOTH(path, body, status, ...)                                \
    pair_expect(path, body, status, (const char *[]){ __VA_ARGS__ }, \
                COUNT_OF(((const char *[]){ __VA_ARGS__ })))
