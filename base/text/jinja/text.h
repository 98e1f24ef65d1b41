/* text.h - declares Python's string functions, shared by filters and methods. Marks follow the bytes.
 *
 * Layer: base/text/jinja, private to the chat template
 */
#pragma once
#include "base/text/jinja/row.h"

enum { JINJA_LEFT = 1, JINJA_RIGHT = 2 };

/* Returns a slice without the characters of `chars` (NULL data: blanks) at the chosen ends. */
struct jinja_text jinja_strip(struct jinja_text t, struct str chars, int sides);

/* Replaces at most `count` occurrences of `from` by `to`; count < 0: all. -EDOM if `from` is empty. */
int jinja_replace(struct jinja_run *run, struct jinja_text t, struct jinja_text from,
                  struct jinja_text to, int64_t count, struct jinja_value *ret);

enum jinja_case { JINJA_UPPER, JINJA_LOWER, JINJA_CAPITALIZE };
int jinja_change_case(struct jinja_run *run, struct jinja_text t, enum jinja_case to,
                      struct jinja_value *ret);

/* Splits a text into lines without their ends, as str.splitlines does. */
int jinja_split_lines(struct jinja_run *run, struct jinja_text t, struct jinja_list **ret);
