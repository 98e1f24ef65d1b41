/* build.h - builds text together with its marks, and prints values as Python does.
 *
 * Layer: base/text/jinja, private to the chat template
 */
#pragma once
#include "base/text/jinja/kinds.h"

/* Text with marks that grows in the arena. { 0 } with run set is empty. Errors are sticky: check rc or the
 * result. */
struct jinja_builder {
    struct jinja_run *run;
    char *data;
    uint8_t *mark; /* NULL while all bytes are unmarked */
    size_t len, cap;
    int rc;
};

/* Reserves room at once, instead of by doubling, for a text that is expected to have so many bytes. */
int jinja_expect(struct jinja_builder *b, size_t bytes);
void jinja_put(struct jinja_builder *b, struct jinja_text t);
void jinja_put_str(struct jinja_builder *b, struct str s);                 /* unmarked */
void jinja_put_marked(struct jinja_builder *b, struct str s, bool marked); /* all or no bytes */
void jinja_put_text(struct jinja_builder *b, const char *text);
int jinja_built(struct jinja_builder *b, struct jinja_value *ret);

/* Returns true if any byte of the text is content. */
bool jinja_is_marked(struct jinja_text t);

/* Append Python's str(v) and repr(v); jinja_to_text returns str(v). */
void jinja_put_value(struct jinja_builder *b, const struct jinja_value *v);
void jinja_put_repr(struct jinja_builder *b, const struct jinja_value *v);
int jinja_to_text(struct jinja_run *run, const struct jinja_value *v, struct jinja_text *ret);

#define JINJA_FLOAT_LEN 32

/* Writes Python's repr of a float, NUL-terminated; returns its length. */
size_t jinja_float_repr(double d, char out[JINJA_FLOAT_LEN]);
