/* simulate_rig.h - `muster simulate` with the load and the fleet that its tests name most, and the
 * digests by which two runs are told apart.
 */
#pragma once
#include "tests/proc/rig/rig.h"

#define GENERATED                                                                           \
    "gen:poisson,rate=20,prompt=lognormal(300,1),output=lognormal(60,2.3),n=400,tenants=5," \
    "turns=3,think=5,system=64,systems=2"

#define REFERENCE " --fleet 2xref8000 "
#define DIGEST 17 /* as a C string */

/* Runs it with the words of the line: its exit code, and all that it printed. */
int simulate(struct buf *out, const char *line, ...) __attribute__((format(printf, 2, 3)));

/* Runs it once, with an answer in JSON, which must work. */
void simulate_digest(char ret[DIGEST], struct buf *out, const char *line, ...)
    __attribute__((format(printf, 3, 4)));

/* Of an answer in JSON, which has `count` of them. */
void digests(const struct buf *out, char (*ret)[DIGEST], uint32_t count);
