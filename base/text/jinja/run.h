/* run.h - the state of one rendering: memory, limits, position.
 *
 * Layer:   base/text/jinja, private to the chat template
 * Errors:  functions return 0 or a negative errno after jinja_fail has written the sentence
 */
#pragma once
#include "base/text/chat_template.h"
#include "base/text/jinja/value.h"

struct jinja_variable {
    uint64_t hash;
    struct str name;
    struct jinja_value value;
};

/* Names of one block; reading goes up the chain and ends in run->globals. */
struct jinja_scope {
    struct jinja_scope *parent;
    struct jinja_variable *variables;
    uint32_t count, cap;
};

enum jinja_flow { JINJA_NEXT, JINJA_BREAK, JINJA_CONTINUE };

struct jinja_run {
    struct arena arena;
    struct chat_limits limits; /* no field 0 */
    uint64_t steps;
    uint32_t depth;
    uint32_t line;              /* of the node at work */
    enum jinja_flow flow;       /* set by break and continue, taken back by the loop */
    struct jinja_builder *out;  /* where output goes: the page, a macro's or block's text */
    struct jinja_dict *globals; /* inputs and our functions */
    int64_t now_s;
    struct err *err;
    bool failed; /* err has its sentence */
};

/* Writes "line N: ..." unless a sentence is there already; returns `code`. */
int jinja_fail(struct jinja_run *run, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Counts work; -E2BIG at steps_max. */
int jinja_charge(struct jinja_run *run, uint64_t steps);

/* Around everything that recurses; -E2BIG at depth_max. Leave only after a successful enter. */
int jinja_enter(struct jinja_run *run);
static inline void jinja_leave(struct jinja_run *run)
{
    run->depth--;
}

#define JINJA_STEP_BYTES 1024 /* copied bytes that count as one step */
#define JINJA_SCAN_STEP 64    /* variables or items looked at that count as one step */

/* "expected a string, not 'int'" and the like; returns -EDOM. */
int jinja_type_error(struct jinja_run *run, const char *what, const struct jinja_value *v);

/* For UNDEFINED: "'x' is undefined"; returns -EDOM. */
int jinja_undefined_error(struct jinja_run *run, const struct jinja_value *v);
