/* build.h - put text together, marks and all, and print values as Python does.
 *
 * Layer: base/text/jinja, private to the chat template
 */
#pragma once
#include "base/text/jinja/kinds.h"

/* Text that grows in the arena, with marks. { 0 } plus run. Sticky: check rc or the result. */
struct jinja_builder {
    struct jinja_run *run;
    char *data;
    uint8_t *mark; /* NULL while nothing marked was put */
    size_t len, cap;
    int rc;
};

/* Room at once for a text that is expected to have so many bytes, instead of by doubling. */
int jinja_expect(struct jinja_builder *b, size_t bytes);
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

/* Python's repr of a float, NUL-terminated; returns its length. */
size_t jinja_float_repr(double d, char out[JINJA_FLOAT_LEN]);
