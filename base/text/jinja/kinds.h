/* kinds.h - defines the values of a template: JSON-like data with Python's behaviour, and our own
 * functions, methods and macros. No kind is an object of the host.
 *
 * Layer:    base/text/jinja, private to the chat template
 * Lifetime: all in the arena of one rendering
 * Taint:    text may carry one mark for each byte: 1 where the byte came from content. mark == NULL:
 *           no byte did. Slices point into the same marks; functions that build text copy them
 *           (struct jinja_builder).
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/err.h"
#include "base/core/str.h"

struct jinja_run;
struct jinja_node;
struct jinja_scope;
struct jinja_row;

enum jinja_kind {
    JINJA_ABSENT, /* an argument that was not given; never a value of the template */
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_VIEW,     /* dict.items() and the like: has a length, no index */
    JINJA_ITERATOR, /* map, select, ...: always true, no length, runs once */
    JINJA_NAMESPACE,
    JINJA_MACRO,
    JINJA_FUNCTION, /* a global function of globals.c */
    JINJA_METHOD,   /* bound to its object */
    JINJA_LOOP,
    JINJA_KIND_COUNT
};

struct jinja_text {
    const char *data; /* valid UTF-8 */
    const uint8_t *mark;
    size_t len;
    bool safe; /* markupsafe's Markup: adding to it escapes HTML */
};

struct jinja_missing {
    const char *owner; /* NULL: a variable; else the type without this attribute */
    struct str name;
};

struct jinja_value {
    enum jinja_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct jinja_text text;
        struct jinja_missing missing;
        struct jinja_list *list; /* LIST TUPLE VIEW ITERATOR */
        struct jinja_dict *dict; /* DICT NAMESPACE */
        struct jinja_macro *macro;
        const struct jinja_row *function;
        struct jinja_bound *bound;
        struct jinja_loop *loop;
    };
};

struct jinja_list {
    struct jinja_value *items;
    size_t count, cap;
    size_t next;      /* ITERATOR: position of the next item */
    const char *view; /* VIEW: "dict_items" ... */
};

struct jinja_entry {
    uint64_t hash;
    struct jinja_value key, value;
};

/* `entries` are in insertion order; `index` (open addressing, positions + 1) exists once they are many. */
struct jinja_dict {
    struct jinja_entry *entries;
    size_t count, cap;
    uint32_t *index;
    size_t index_cap;
};

struct jinja_macro {
    const struct jinja_node *node; /* JINJA_MACRO_DEF */
    struct jinja_scope *scope;     /* where it was defined */
};

struct jinja_bound {
    struct jinja_value self;
    const struct jinja_row *method;
};

struct jinja_loop {
    struct jinja_list *items;
    size_t index0;
};
