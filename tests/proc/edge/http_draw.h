/* http_draw.h - requests drawn from a seed: well-formed ones, and ones that servers disagree about.
 *
 * Layer: tests (base/core)
 * What:  each part of a request has its usual forms and its odd ones: blanks where none belong, bare
 *        line ends, folds, repeated and contradicting lengths, codings, chunks. A third of the
 *        requests has none of the odd ones, the others one or two.
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/rng.h"

#define DRAWN_ODD_MAX 2

struct drawn {
    struct buf text;
    const char *odd[DRAWN_ODD_MAX]; /* names of the odd forms in it; NULL: none */
    bool persistence;               /* the connection may end behind it, whoever reads it */
};

void http_draw(struct rng *rng, struct drawn *ret);
