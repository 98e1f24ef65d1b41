/* generate_draw.h - the tables of a generated trace: distributions of lengths, spacings of arrivals.
 *
 * Layer:   simulator (base/core)
 * Threads: pure
 */
#pragma once
#include "base/core/rng.h"
#include "base/core/str.h"

#define GENERATE_SHAPES_MAX 8

struct generate_shape {
    const char *name;
    const char *form; /* "lognormal(MEAN,C2)" */
    const char *rule; /* for its numbers, in words */
    uint32_t params;
    bool (*valid)(const double *p);
    double (*mean)(const double *p); /* before clipping */
    double (*draw)(const double *p, struct rng *rng);
};
extern const struct generate_shape generate_shapes[]; /* the first: always the same */
extern const uint32_t generate_shape_count;
const struct generate_shape *generate_shape_find(struct str name);

/* Gaps with mean 1; the rate stretches them. */
struct generate_spacing {
    const char *name;
    bool takes_cv;
    bool regular; /* the first arrival opens the schedule */
    double (*gap)(double cv, struct rng *rng);
};
extern const char generate_spacing_names[];
const struct generate_spacing *generate_spacing_find(struct str name);
