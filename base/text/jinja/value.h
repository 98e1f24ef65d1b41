/* value.h - what a template computes with: JSON-like data with Python's behaviour, and our own
 * callable things. No host object exists among the kinds.
 *
 * Layer:    base/text/jinja, private to the chat template
 * Lifetime: all in the arena of one rendering
 * Taint:    text may carry one mark a byte: 1 where it came from content. mark == NULL: none did.
 *           Slices point into the same marks; whatever builds text copies them (struct
 *           jinja_builder).
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
    JINJA_RANGE,
    JINJA_VIEW,     /* dict.items() and the like: has a length, no index */
    JINJA_ITERATOR, /* map, select, ...: always true, no length, runs once */
    JINJA_NAMESPACE,
    JINJA_MACRO,
    JINJA_FUNCTION, /* a global of ours */
    JINJA_METHOD,   /* bound to its object */
    JINJA_LOOP,
    JINJA_CYCLER,
    JINJA_JOINER,
    JINJA_KIND_COUNT
};

struct jinja_text {
    const char *data; /* valid UTF-8 */
    const uint8_t *mark;
    size_t len;
    bool safe; /* markupsafe's Markup: adding to it escapes HTML */
};

struct jinja_range {
    int64_t start, stop, step, count;
};

struct jinja_missing {
    const char *owner; /* NULL: a variable; else the type that lacks it */
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
        struct jinja_range range;
        struct jinja_list *list; /* LIST TUPLE VIEW ITERATOR */
        struct jinja_dict *dict; /* DICT NAMESPACE */
        struct jinja_macro *macro;
        const struct jinja_row *function;
        struct jinja_bound *bound;
        struct jinja_loop *loop;
        struct jinja_cycler *cycler;
        struct jinja_joiner *joiner;
    };
};

struct jinja_list {
    struct jinja_value *items;
    size_t count, cap;
    size_t next;      /* ITERATOR: how far it has run */
    const char *view; /* VIEW: "dict_items" ... */
};

struct jinja_entry {
    uint64_t hash;
    struct jinja_value key, value;
};

/* Insertion order in `entries`; `index` (open addressing, positions + 1) once there are many. */
struct jinja_dict {
    struct jinja_entry *entries;
    size_t count, cap;
    uint32_t *index;
    size_t index_cap;
};

struct jinja_macro {
    const struct jinja_node *node; /* MACRO or CALL_BLOCK */
    struct jinja_scope *scope;     /* where it was defined */
};

struct jinja_bound {
    struct jinja_value self;
    const struct jinja_row *method;
};

struct jinja_loop {
    struct jinja_list *items;
    size_t index0;
    struct jinja_value last_changed; /* ABSENT before loop.changed() was asked */
};

struct jinja_cycler {
    struct jinja_list *items;
    size_t pos;
};

struct jinja_joiner {
    struct jinja_text separator;
    bool used;
};

static inline struct jinja_value jinja_undefined(struct str name)
{
    return (struct jinja_value){ .kind = JINJA_UNDEFINED, .missing = { NULL, name } };
}

static inline struct jinja_value jinja_none(void)
{
    return (struct jinja_value){ .kind = JINJA_NONE };
}

static inline struct jinja_value jinja_bool(bool b)
{
    return (struct jinja_value){ .kind = JINJA_BOOL, .boolean = b };
}

static inline struct jinja_value jinja_int(int64_t i)
{
    return (struct jinja_value){ .kind = JINJA_INT, .integer = i };
}

static inline struct jinja_value jinja_float(double d)
{
    return (struct jinja_value){ .kind = JINJA_FLOAT, .real = d };
}

static inline struct jinja_value jinja_string(struct jinja_text t)
{
    return (struct jinja_value){ .kind = JINJA_STRING, .text = t };
}

static inline struct jinja_text jinja_text_of(struct str s)
{
    return (struct jinja_text){ .data = s.data, .len = s.len };
}

static inline struct jinja_value jinja_list_value(enum jinja_kind kind, struct jinja_list *list)
{
    return (struct jinja_value){ .kind = kind, .list = list };
}

static inline struct str jinja_bytes(struct jinja_text t)
{
    return (struct str){ t.data, t.len };
}

/* The bytes [start, start + len) with their marks. */
static inline struct jinja_text jinja_slice(struct jinja_text t, size_t start, size_t len)
{
    return (struct jinja_text){ t.data ? t.data + start : NULL, t.mark ? t.mark + start : NULL, len,
                                t.safe };
}

static inline bool jinja_is_number(const struct jinja_value *v)
{
    return v->kind == JINJA_BOOL || v->kind == JINJA_INT || v->kind == JINJA_FLOAT;
}

/* Of BOOL, INT, FLOAT. */
static inline double jinja_as_float(const struct jinja_value *v)
{
    if (v->kind == JINJA_FLOAT) return v->real;
    return v->kind == JINJA_INT ? (double)v->integer : (double)v->boolean;
}

/* BOOL and INT as an integer; false for others. */
static inline bool jinja_as_int(const struct jinja_value *v, int64_t *ret)
{
    if (v->kind != JINJA_INT && v->kind != JINJA_BOOL) return false;
    *ret = v->kind == JINJA_INT ? v->integer : v->boolean;
    return true;
}

/* Python's name of the type, for messages. */
const char *jinja_type_name(const struct jinja_value *v);
bool jinja_truth(const struct jinja_value *v);

/* Memory of the rendering; -E2BIG at its bound. */
int jinja_alloc(struct jinja_run *run, size_t count, size_t size, void **ret);

int jinja_list_new(struct jinja_run *run, size_t cap, struct jinja_list **ret);
int jinja_list_push(struct jinja_run *run, struct jinja_list *list, struct jinja_value v);

int jinja_dict_new(struct jinja_run *run, struct jinja_dict **ret);

/* Keys are none, booleans, numbers, strings and ranges (and tuples of them); -EDOM for others, as
 * Python's "unhashable type". Put replaces the value of an equal key. */
int jinja_dict_put(struct jinja_run *run, struct jinja_dict *d, struct jinja_value key,
                   struct jinja_value value);
int jinja_dict_get(struct jinja_run *run, const struct jinja_dict *d, const struct jinja_value *key,
                   const struct jinja_value **ret); /* *ret NULL when absent */
const struct jinja_value *jinja_dict_find(const struct jinja_dict *d, struct str key);
int jinja_dict_set(struct jinja_run *run, struct jinja_dict *d, struct str key,
                   struct jinja_value value); /* `key` must outlive the rendering */
void jinja_dict_remove(struct jinja_dict *d, size_t position);

/* Python's ==. Containers deeper than the run's depth are -E2BIG. */
int jinja_equal(struct jinja_run *run, const struct jinja_value *a, const struct jinja_value *b,
                bool *ret);

/* Python's <, as -1, 0 or 1 in *ret; -EDOM when the types have no order. */
int jinja_order(struct jinja_run *run, const struct jinja_value *a, const struct jinja_value *b,
                int *ret);

/* All items of an iterable in a list: a LIST's own, else a new one. -EDOM when not iterable. An
 * iterator has run out afterwards. */
int jinja_items(struct jinja_run *run, const struct jinja_value *v, struct jinja_list **ret);

/* Python's len(); -EDOM for what has none. */
int jinja_length(struct jinja_run *run, const struct jinja_value *v, int64_t *ret);
size_t jinja_text_length(struct jinja_text t); /* in characters */

/* Text that grows in the arena, with marks. { 0 } plus run. Sticky: check rc or the result. */
struct jinja_builder {
    struct jinja_run *run;
    char *data;
    uint8_t *mark; /* NULL while nothing marked was put */
    size_t len, cap;
    int rc;
};

void jinja_put(struct jinja_builder *b, struct jinja_text t);
void jinja_put_str(struct jinja_builder *b, struct str s);                 /* unmarked */
void jinja_put_marked(struct jinja_builder *b, struct str s, bool marked); /* all or nothing */
void jinja_put_text(struct jinja_builder *b, const char *text);
int jinja_built(struct jinja_builder *b, struct jinja_value *ret);

/* Is any byte content? */
bool jinja_is_marked(struct jinja_text t);

/* Python's str(v) and repr(v). */
void jinja_put_value(struct jinja_builder *b, const struct jinja_value *v);
void jinja_put_repr(struct jinja_builder *b, const struct jinja_value *v);
int jinja_to_text(struct jinja_run *run, const struct jinja_value *v, struct jinja_text *ret);
#define JINJA_FLOAT_LEN 32
size_t jinja_float_repr(double d, char out[JINJA_FLOAT_LEN]);
