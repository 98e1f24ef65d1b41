/* run.h - holds the state of one rendering: memory, limits, position.
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

/* The variables of one block; a lookup goes up the chain of parents and ends in run->globals. */
struct jinja_scope {
    struct jinja_scope *parent;
    struct jinja_variable *variables;
    uint32_t count, cap;
};

enum jinja_flow { JINJA_NEXT, JINJA_BREAK, JINJA_CONTINUE };

struct jinja_run {
    struct arena arena;
    struct chat_limits limits; /* no member is 0 */
    uint64_t steps;
    uint32_t depth;
    uint32_t line;              /* of the node being evaluated */
    enum jinja_flow flow;       /* set by break and continue, reset by the loop */
    struct jinja_builder *out;  /* destination of output: the page, a macro's or block's text */
    struct jinja_dict *globals; /* inputs and our functions */
    int64_t now_s;
    struct err *err;
    bool failed; /* err has its sentence */
};

/* Writes "chat template, line N: ..." unless a sentence is there already; returns `code`. */
int jinja_fail(struct jinja_run *run, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Counts work; -E2BIG at steps_max. */
int jinja_charge(struct jinja_run *run, uint64_t steps);

/* Enters one level of recursion, as every recursive function does; -E2BIG at depth_max. Leave only after a
 * successful enter. */
int jinja_enter(struct jinja_run *run);
static inline void jinja_leave(struct jinja_run *run)
{
    run->depth--;
}

#define JINJA_STEP_BYTES 1024 /* copied bytes that count as one step */
#define JINJA_SCAN_STEP 64    /* variables or items looked at that count as one step */

/* Sets a sentence as "expected a string, not 'int'"; returns -EDOM. */
int jinja_type_error(struct jinja_run *run, const char *what, const struct jinja_value *v);

/* Sets the sentence "'x' is undefined" for an UNDEFINED value; returns -EDOM. */
int jinja_undefined_error(struct jinja_run *run, const struct jinja_value *v);
