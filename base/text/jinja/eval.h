/* eval.h - evaluates the tree: expressions to values (eval.c), statements to output (exec.c).
 *
 * Layer: base/text/jinja, private to the chat template
 */
#pragma once
#include "base/text/jinja/ast.h"
#include "base/text/jinja/row.h"

int jinja_eval(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *node,
               struct jinja_value *ret);

/* Executes statements in order, until an error or a break or continue (run->flow). */
int jinja_exec(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *body);

/* Executes statements and returns their output in *ret. */
int jinja_capture(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *body,
                  struct jinja_value *ret);

int jinja_scope_new(struct jinja_run *run, struct jinja_scope *parent, struct jinja_scope **ret);
int jinja_scope_set(struct jinja_run *run, struct jinja_scope *scope, struct str name,
                    uint64_t hash, struct jinja_value value);

int jinja_eval_args(struct jinja_run *run, struct jinja_scope *scope, const struct jinja_node *node,
                    struct jinja_args *ret);
int jinja_apply_filter(struct jinja_run *run, struct jinja_scope *scope,
                       const struct jinja_node *node, struct jinja_value *self,
                       struct jinja_value *ret);
int jinja_call_macro(struct jinja_run *run, const struct jinja_macro *macro,
                     const struct jinja_args *args, struct jinja_value *ret);
