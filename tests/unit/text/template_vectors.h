/* template_vectors.h - compare renderings with the records of tests/vectors/template/make.py. */
#pragma once
#include "base/core/str.h"

#include <stdio.h>

struct template_score {
    unsigned equal;   /* the same text */
    unsigned refused; /* both refuse, with the template's own sentence where it raised one */
    unsigned beyond;  /* the oracle's sandbox forbids it or lacks the filter, we render it */
    unsigned differ;
};

/* Reads records up to the end of `f`; each difference is told on stderr. */
struct template_score template_vectors_check(FILE *f);
