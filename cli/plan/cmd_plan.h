/* cmd_plan.h - what stands behind `muster plan` beside the choice of accelerators.
 *
 * Layer: cli
 */
#pragma once
#include "base/core/err.h"
#include "base/core/json.h"
#include "base/io/config/config.h"

/* `muster plan layers`, `move`, `load`: argv is without its own words; returns the exit status. */
int plan_layers_run(int argc, char *const *argv);
int plan_move_run(int argc, char *const *argv);
int plan_load_run(int argc, char *const *argv);

/* The policies that a planner-only command compares, and their answers as JSON.
 *
 * Rules: (1) the first policy is --row's, the choice; the others are compared with it
 *        (2) a command keeps its answers in an array of PLAN_POLICIES_MAX, by a policy's place here
 */

#define PLAN_COMPARE_MAX 8 /* of --compare */
#define PLAN_POLICIES_MAX (PLAN_COMPARE_MAX + 1)

struct plan_policies {
    const char *name[PLAN_POLICIES_MAX];
    uint32_t at[PLAN_POLICIES_MAX]; /* the policy's place in the table of its kind */
    uint32_t count;
};

/* Looks the names up among the policies of `kind`. COMMAND_MISUSED with a sentence that names the
 * option and the policies there are. */
int plan_policies_find(const char *kind, struct str row, const struct config_texts *compare,
                       struct plan_policies *ret, struct err *err);

/* Adds as many of the kind's other policies as fit, for a command that compares all where none is
 * named. */
void plan_policies_others(const char *kind, struct plan_policies *rows);

/* Writes the members of the open object: the choice's name, its answer and those beside it, each by
 * `put_answer` as one value. */
void plan_policies_json(struct json_writer *w, const struct plan_policies *rows,
                        void (*put_answer)(struct json_writer *w, const void *ctx, uint32_t i),
                        const void *ctx);
