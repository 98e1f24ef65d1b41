/* plan_rows.h - the policies that a planner-only command compares, and their answers as JSON.
 *
 * Layer: cli (policies)
 * Rules: (1) the first policy is --row's, the choice; the others are compared with it
 *        (2) a command keeps its answers in an array of PLAN_ROWS_MAX, by a policy's place here
 */
#pragma once
#include "base/core/err.h"
#include "base/core/json.h"
#include "base/io/config/config.h"

#define PLAN_COMPARE_MAX 8 /* of --compare */
#define PLAN_ROWS_MAX (PLAN_COMPARE_MAX + 1)

struct plan_rows {
    const char *name[PLAN_ROWS_MAX];
    uint32_t at[PLAN_ROWS_MAX]; /* the policy's place in the table of its kind */
    uint32_t count;
};

/* Looks the names up among the policies of `kind`. COMMAND_MISUSED with a sentence that names the
 * option and the policies there are. */
int plan_rows_find(const char *kind, struct str row, const struct config_texts *compare,
                   struct plan_rows *ret, struct err *err);

/* Adds as many of the kind's other policies as fit, for a command that compares all where none is
 * named. */
void plan_rows_others(const char *kind, struct plan_rows *rows);

/* Writes the members of the open object: the choice's name, its answer and those beside it, each by
 * `put_answer` as one value. */
void plan_rows_json(struct json_writer *w, const struct plan_rows *rows,
                    void (*put_answer)(struct json_writer *w, const void *ctx, uint32_t i),
                    const void *ctx);
