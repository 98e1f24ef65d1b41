/* hidden.c - the fold and its signs. */
#include "engine/model/hidden.h"

#include <string.h>

/* The top bit of a multiplicative hash (Knuth): signs of neighbours are unrelated. */
static float sign_of(uint32_t i)
{
    return (i * 2654435761u ^ (i * 40503u) >> 7) & 0x80000000u ? -1.0f : 1.0f;
}

void hidden_fold(const float *x, uint32_t count, float ret[MODEL_HIDDEN])
{
    memset(ret, 0, MODEL_HIDDEN * sizeof *ret);
    for (uint32_t i = 0; i < count; i++)
        ret[i % MODEL_HIDDEN] += sign_of(i) * x[i];
}
