/* router_rig.h - a router before a few engines, scripted or real, and what each says of itself.
 *
 * Everything is by number: engine[i]. cleanup, the teardown of every test, ends all of it.
 */
#pragma once
#include "tests/proc/rig.h"

#define ENGINES 3

extern struct rig_process engine[ENGINES], router;

/* A scripted engine with further arguments, at its port again once it has one. */
void start_fake(uint32_t i, const char *const *more);

/* Sends to the engines up to the first NULL role; "" is both. Those that run are waited for. */
void start_router(const char *const role[ENGINES], const char *const *more);
int cleanup(void **state);

int64_t seen(uint32_t i, const char *what); /* by a scripted engine */
double counted(const char *what);           /* muster_router_WHAT_total */
