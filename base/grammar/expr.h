/* expr.h - holds the expressions that the front ends make of a description, before they become states.
 *
 * Layer:    base/grammar, private
 * Lifetime: expressions live in the builder's arena
 * Errors:   sticky. The first failure is kept in `rc` and `err`; later calls return an empty
 *           expression, so that a front end checks once at its end
 */
#pragma once
#include "base/core/arena.h"
#include "base/grammar/grammar.h"

#define EXPR_FOREVER UINT32_MAX /* as the upper bound of a repetition */
#define CODE_POINT_MAX 0x10ffffu

enum expr_kind {
    EXPR_EMPTY,   /* the empty text */
    EXPR_NOTHING, /* no text at all */
    EXPR_BYTES,
    EXPR_CLASS, /* one code point of `set`, in UTF-8 */
    EXPR_SEQ,
    EXPR_ALT,
    EXPR_REPEAT,
    EXPR_CALL,    /* of a rule */
    EXPR_STRINGS, /* one of a sorted list of texts; they share their beginnings */
    EXPR_SCAN,    /* any bytes up to a trigger, and what comes behind it */
};

/* Sorted, disjoint ranges of code points without surrogates. */
struct code_range {
    uint32_t from, to;
};

struct code_set {
    const struct code_range *range;
    uint32_t count;
};

/* How a scan goes on. */
struct scan_way {
    bool once;     /* it ends behind the first trigger's item; else the scan begins anew there */
    bool must;     /* it ends at a trigger only; else anywhere before one */
    bool at_start; /* a trigger counts as the very first text only */
};

struct expr {
    enum expr_kind kind;
    struct str bytes;
    struct code_set set;
    const struct expr **item; /* SEQ, ALT: count; REPEAT: the first */
    const struct str *text;   /* STRINGS; SCAN: the triggers */
    struct scan_way scan;     /* SCAN; item[i] comes behind text[i] */
    uint32_t count;
    uint32_t min, max; /* REPEAT */
    uint32_t rule;     /* CALL */
};

struct rule {
    struct str name; /* for messages; empty: made by us */
    const struct expr *body;
};

struct builder {
    struct arena arena;
    struct rule *rule;
    uint32_t rule_count, rule_cap;
    uint32_t steps;
    int rc;
    struct err *err;
    struct expr nothing;
};

void builder_init(struct builder *b, struct err *err);
void builder_fini(struct builder *b);

/* Keeps the first failure; returns an expression that may be used further. */
const struct expr *builder_fail(struct builder *b, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

uint32_t rule_add(struct builder *b, struct str name); /* without a body yet; rule 0 is the root */
void rule_set(struct builder *b, uint32_t rule, const struct expr *body);

const struct expr *expr_empty(struct builder *b);
const struct expr *expr_nothing(struct builder *b);
const struct expr *expr_bytes(struct builder *b, struct str bytes); /* copied */
const struct expr *expr_text(struct builder *b, const char *text);
const struct expr *expr_class(struct builder *b, struct code_set set); /* sorted; copied */
const struct expr *expr_range(struct builder *b, uint32_t from, uint32_t to);
const struct expr *expr_seq2(struct builder *b, const struct expr *x, const struct expr *y);
const struct expr *expr_alt2(struct builder *b, const struct expr *x, const struct expr *y);
const struct expr *expr_list(struct builder *b, enum expr_kind kind, const struct expr *const *item,
                             uint32_t count); /* SEQ or ALT; copied */

/* Items of a list that grows: a long list stays flat, and states are laid by recursion over what nests. */
struct expr_items {
    const struct expr **item;
    uint32_t count, cap;
};

void expr_push(struct builder *b, struct expr_items *items, const struct expr *x);
const struct expr *expr_of(struct builder *b, enum expr_kind kind, const struct expr_items *items);

const struct expr *expr_repeat(struct builder *b, const struct expr *x, uint32_t min, uint32_t max);
const struct expr *expr_optional(struct builder *b, const struct expr *x);
const struct expr *expr_call(struct builder *b, uint32_t rule);
const struct expr *expr_strings(struct builder *b, const struct str *text, uint32_t count);

/* Any bytes without a trigger, then a trigger and its item (`after`), as `way` says. Of triggers that end
 * together the longest counts. No trigger may be empty; they have at most EXPR_SCAN_BYTES_MAX in all. */
#define EXPR_SCAN_BYTES_MAX 16384
const struct expr *expr_scan(struct builder *b, const struct str *trigger,
                             const struct expr *const *after, uint32_t count, struct scan_way way);

#define EXPR_SEQ_OF(b, ...)                                          \
    expr_list((b), EXPR_SEQ, (const struct expr *[]){ __VA_ARGS__ }, \
              (uint32_t)(sizeof((const struct expr *[]){ __VA_ARGS__ }) / sizeof(void *)))
#define EXPR_ALT_OF(b, ...)                                          \
    expr_list((b), EXPR_ALT, (const struct expr *[]){ __VA_ARGS__ }, \
              (uint32_t)(sizeof((const struct expr *[]){ __VA_ARGS__ }) / sizeof(void *)))

/* Makes a set of code points out of ranges in any order: sorts, joins, leaves surrogates out. */
struct code_set code_set_make(struct builder *b, const struct code_range *range, uint32_t count,
                              bool negated);
bool code_set_has(struct code_set s, uint32_t code_point);

/* Returns the set without [from, to]. */
struct code_set code_set_without(struct builder *b, struct code_set s, uint32_t from, uint32_t to);

/* ---- front ends: each fills rule 0 ---- */

void gbnf_build(struct builder *b, struct str text);
void regex_build(struct builder *b, struct str text);
void choice_build(struct builder *b, struct str text);
void json_object_build(struct builder *b);
void json_schema_build(struct builder *b, struct str text);
void tags_build(struct builder *b, struct str text);

/* Describes the values of a JSON Schema; the text lives until the program is made. */
const struct expr *json_schema_expr(struct builder *b, struct str text);

/* Parses a regex. `in_json`: the text is the value of a JSON string and is described as it stands between
 * the quotes. `searches`: it may match anywhere, unless ^ and $ say otherwise. */
const struct expr *regex_expr(struct builder *b, struct str text, bool in_json, bool searches);

/* Describes one character of the set as it stands in a JSON string. */
const struct expr *json_char_expr(struct builder *b, struct code_set set);

/* The rules of JSON that front ends share; each is made on first use. */
enum json_part {
    JSON_PART_VALUE,
    JSON_PART_OBJECT,
    JSON_PART_ARRAY,
    JSON_PART_STRING,
    JSON_PART_CHAR, /* of a string, any way to write it */
    JSON_PART_NUMBER,
    JSON_PART_INTEGER,
    JSON_PART_SPACE, /* where a line break or blanks may stand */
    JSON_PART_COUNT
};

struct json_rules {
    bool made[JSON_PART_COUNT];
    uint32_t rule[JSON_PART_COUNT];
};

const struct expr *json_part(struct builder *b, struct json_rules *j, enum json_part part);

/* Describes the text of a string as JSON writes it, quotes included; one way only. */
const struct expr *json_literal(struct builder *b, struct str text);
