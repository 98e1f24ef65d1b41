/* catalog.h - lists every policy of every kind, as the tables of policies/ hold them.
 *
 * Layer: policies (base/core)
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

struct policy_info {
    const char *kind, *name, *about;
    const char *source; /* NULL: the kind records no sources */
    bool is_default;    /* used where the configuration names none */
    bool is_bound;      /* in no table: for the simulator alone; policy_names leaves it out */
};

/* Calls fn for each policy, in the order of the tables. Stops at the first result of fn that is not
 * 0, and returns it. */
int policies_each(int (*fn)(void *ctx, const struct policy_info *policy), void *ctx);

/* Names of all kinds; NULL-terminated. */
extern const char *const policy_kinds[];

#define POLICY_NAMES_MAX 32 /* policies of one kind */

/* Fills ret with the names of a kind's policies, in the order of its table; returns how many. */
uint32_t policy_names(const char *kind, const char *ret[POLICY_NAMES_MAX]);

/* Returns 0 if the kind has a policy of that name. Else -EINVAL and a sentence that begins with
 * `where` (a key, a flag) and holds the nearest name and all names of the kind. */
int policy_check(const char *kind, struct str name, const char *where, struct err *err);
