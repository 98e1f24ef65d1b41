/* text.h - Python's string functions, shared by filters and methods. Marks follow the bytes.
 *
 * Layer: base/text/jinja, private to the chat template
 */
#pragma once
#include "base/text/jinja/row.h"

enum { JINJA_LEFT = 1, JINJA_RIGHT = 2 };

/* Without the characters of `chars` (NULL data: blanks) at the chosen ends. A slice. */
struct jinja_text jinja_strip(struct jinja_text t, struct str chars, int sides);

/* At most `count` of `from` become `to`; count < 0: all. An empty `from` stands between all
 * characters. */
int jinja_replace(struct jinja_run *run, struct jinja_text t, struct jinja_text from,
                  struct jinja_text to, int64_t count, struct jinja_value *ret);

enum jinja_case { JINJA_UPPER, JINJA_LOWER, JINJA_TITLE, JINJA_CAPITALIZE, JINJA_SWAP };
int jinja_change_case(struct jinja_run *run, struct jinja_text t, enum jinja_case to,
                      struct jinja_value *ret);

/* All characters of that case, and at least one that has a case at all. */
bool jinja_is_case(struct jinja_text t, bool upper);

/* str.splitlines: the lines, with their ends when `keep_ends`. */
int jinja_split_lines(struct jinja_run *run, struct jinja_text t, bool keep_ends,
                      struct jinja_list **ret);

/* Filled with `fill` (one character) to `width` characters; align '<', '^' or '>'. */
int jinja_pad(struct jinja_run *run, struct jinja_text t, int64_t width, struct jinja_text fill,
              char align, struct jinja_value *ret);

/* str(d).join(...): the items as str() when `any`, else they must be strings. */
int jinja_join(struct jinja_run *run, struct jinja_text between, const struct jinja_list *items,
               bool any, struct jinja_value *ret);

/* The first `count` characters. */
struct jinja_text jinja_head(struct jinja_text t, size_t count);
