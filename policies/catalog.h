/* catalog.h - every technique in one list: what the tables of policies/ hold, kind by kind.
 *
 * Layer: policies (base/core)
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

struct policy_info {
    const char *kind, *name, *about;
    const char *source; /* NULL: its kind names none */
    bool is_default;    /* taken where none is named; a kind that nobody asks has none */
    bool is_bound; /* in no table: the simulator alone can have it, policy_names leaves it out */
};

/* Rows in the order of the tables; calls fn for each. Stops at and returns what is not 0. */
int policies_each(int (*fn)(void *ctx, const struct policy_info *row), void *ctx);

/* The kinds in order; NULL-terminated. */
extern const char *const policy_kinds[];

#define POLICY_NAMES_MAX 32 /* rows of one kind */

/* The names of a kind's rows, in their order; how many. */
uint32_t policy_names(const char *kind, const char *ret[POLICY_NAMES_MAX]);

/* 0 when the kind has a row of that name. Else -EINVAL and a sentence that begins with `where` (a
 * key, a flag) and holds the nearest name and all the others. */
int policy_check(const char *kind, struct str name, const char *where, struct err *err);
