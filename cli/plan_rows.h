/* plan_rows.h - the rows that a planner-only command asks, and how their answers stand side by side.
 *
 * Layer: cli (policies)
 * Rules: (1) the first row is --row's, the choice; what follows is compared with it
 *        (2) answers are kept by the command, in an array of PLAN_ROWS_MAX, by a row's place here
 */
#pragma once
#include "base/core/err.h"
#include "base/core/json.h"
#include "base/io/config.h"
#include "policies/place.h"

#define PLAN_COMPARE_MAX 8 /* of --compare */
#define PLAN_ROWS_MAX (PLAN_COMPARE_MAX + 1)

/* Rows that answer one question. */
struct plan_kind {
    const char *name; /* as `muster policies` lists it */
    const struct place_policy *const *table;
    const uint32_t *table_count;
};

struct plan_rows {
    const struct place_policy *row[PLAN_ROWS_MAX];
    uint32_t count;
};

/* COMMAND_MISUSED with a sentence that names the option and the rows there are. */
int plan_rows_find(const struct plan_kind *kind, struct str row, const struct config_texts *compare,
                   struct plan_rows *ret, struct err *err);

/* As many of the kind's other rows as fit, for a command that compares all where none is named. */
void plan_rows_others(const struct plan_kind *kind, struct plan_rows *rows);

/* Members of the open object: the choice's name, its answer and those beside it, each written by
 * `put` as one value from the row's place. */
void plan_rows_json(struct json_writer *w, const struct plan_rows *rows,
                    void (*put)(struct json_writer *w, const void *ctx, uint32_t i),
                    const void *ctx);
