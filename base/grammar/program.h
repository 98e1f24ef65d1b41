/* program.h - holds a compiled grammar: states with edges over bytes and calls of rules.
 *
 * Layer:    base/grammar, private
 * Lifetime: part of a struct grammar
 *
 * A rule has one start and one end; nothing leaves the end. An edge reads one byte of a range, calls a rule
 * and goes on behind it, or goes on at once. Rules are numbered so that a rule which calls another before
 * it has read a byte comes first (program_order): the matcher enters rules in that order.
 */
#pragma once
#include "base/grammar/expr.h"

enum edge_kind { EDGE_BYTES, EDGE_EMPTY, EDGE_CALL };

struct edge {
    uint32_t to;
    uint32_t rule;     /* EDGE_CALL */
    uint8_t kind;      /* enum edge_kind */
    uint8_t low, high; /* EDGE_BYTES */
};

struct program_rule {
    uint32_t start, end;
    uint32_t order; /* place among the rules: callers before what they call first */
    bool nullable;  /* it derives the empty text */
};

struct grammar {
    uint32_t more_owners; /* beside the first: grammar_ref */
    struct program_rule *rule;
    uint32_t rule_count;
    uint32_t *first; /* edges of state s: edge[first[s]] up to first[s + 1] */
    bool *is_end;    /* of its rule */
    bool *reads;     /* it has an edge that reads a byte */
    uint32_t state_count;
    struct edge *edge;
    uint32_t edge_count;
};

/* Turns the builder's rules into a program. Errors as grammar_compile. */
int program_make(struct builder *b, struct grammar **ret);
