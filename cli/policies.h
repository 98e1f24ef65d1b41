/* policies.h - every technique in one list: what the tables of policies/ hold, kind by kind.
 *
 * Layer: cli (policies)
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct policy_row {
    const char *kind, *name, *about;
    const char *source; /* NULL: its kind names none */
    bool is_default;
};

/* Rows in the order of the tables; calls fn for each. Stops at and returns what is not 0. */
int policies_each(int (*fn)(void *ctx, const struct policy_row *row), void *ctx);

/* The kinds in order; NULL-terminated. */
extern const char *const policy_kinds[];
