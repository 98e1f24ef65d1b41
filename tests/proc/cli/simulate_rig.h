/* simulate_rig.h - runs `muster simulate`, names the load and the fleet that its tests use most, and reads
 * the digests that tell two runs apart.
 */
#pragma once
#include "tests/proc/rig/rig.h"

#define GENERATED                                                                           \
    "gen:poisson,rate=20,prompt=lognormal(300,1),output=lognormal(60,2.3),n=400,tenants=5," \
    "turns=3,think=5,system=64,systems=2"

#define REFERENCE " --fleet 2xref8000 "
#define DIGEST 17 /* as a C string */

/* Runs `muster simulate` with the words of the line; returns its exit code, and in *out its output. */
int simulate(struct buf *out, const char *line, ...) __attribute__((format(printf, 2, 3)));

/* Runs `muster simulate` once with output in JSON, which must succeed, and reads the digest. */
void simulate_digest(char ret[DIGEST], struct buf *out, const char *line, ...)
    __attribute__((format(printf, 3, 4)));

/* Reads the digests of an output in JSON, which has exactly `count` of them. */
void digests(const struct buf *out, char (*ret)[DIGEST], uint32_t count);
