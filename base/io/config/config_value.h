/* config_value.h - converts one text to one C value and back, alike for files, flags and variables.
 *
 * Layer: base/io (base/core). Pure.
 */
#pragma once
#include "base/io/config/config.h"

struct arena;

/* Writes the value at `into` (the field's C type; see enum config_type). Texts and lists are
 * copied into `arena`; without one the value is only checked, and `into` must not be read. The
 * sentence has no subject: "-3 is below 0 (allowed: 0 to 10)".
 * -EINVAL wrong form, -ERANGE out of bounds, -ENOMEM. */
int config_value_parse(const struct config_field *f, struct str text, struct arena *arena,
                       void *into, struct err *err);

/* Writes the default at `into`, or the type's empty value where there is none. */
int config_value_default(const struct config_field *f, struct arena *arena, void *into);

/* Checks that a list may have `count` items. -ERANGE with the sentence. */
int config_count_check(const struct config_field *f, size_t count, struct err *err);

/* Prints a value as it would be written in a flag: 10s, 64MiB, a,b. */
int config_value_print(const struct config_field *f, const void *from, struct buf *out);

/* Prints the allowed values: "0 to 65535", "at least 1", "one of a, b", "at most 64 items"; nothing
 * when unbounded. */
int config_value_range(const struct config_field *f, struct buf *out);

/* Returns the type in words: "an integer", "a duration such as 250ms or 10s". */
const char *config_type_text(enum config_type type);

int duration_parse(struct str text, int64_t *ret_us); /* -EINVAL, -ERANGE */
int duration_print(int64_t us, struct buf *out);      /* exact, largest whole unit */
int bytes_parse(struct str text, int64_t *ret);
int bytes_print(int64_t bytes, struct buf *out);

/* Prints the flag (max-num-seqs) and the variable (MUSTER_SECTION_MAX_NUM_SEQS) of max_num_seqs. `path`
 * has dots. */
int config_flag_name(const char *path_in_section, struct buf *out);
int config_env_name(const char *path, struct buf *out);
