/* schema_expr.h - writes expressions of the values that a shape allows.
 *
 * Layer:  base/grammar, private
 * Errors: the builder's, sticky; what fails returns an expression of no text
 */
#pragma once
#include "base/grammar/schema_shape.h"

/* Returns a call of the rule for a value that satisfies all of the schemas. The rule's body is made later, once,
 * so a schema may lead to itself. */
const struct expr *schema_value_expr(struct schema *s, const struct source *source, uint32_t count);

/* ---- schema_scalar.c ---- */

const struct expr *schema_quoted(struct builder *b, const struct expr *x);

/* Returns the upper bound of a repetition; UINT64_MAX is none. */
uint32_t schema_repeat_bound(uint64_t most);

const struct expr *schema_string_expr(struct schema *s, const struct shape *shape);

/* `types`: TYPE_INTEGER, with TYPE_NUMBER where decimals are allowed, too. */
const struct expr *schema_number_expr(struct schema *s, const struct shape *shape, uint32_t types,
                                      const struct place *place);

/* ---- schema_structured.c ---- */

const struct expr *schema_array_expr(struct schema *s, const struct shape *shape);
const struct expr *schema_object_expr(struct schema *s, const struct shape *shape);
