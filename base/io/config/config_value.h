/* config_value.h - one text to one C value and back: the same rules for files, flags, variables.
 *
 * Layer: base/io (base/core). Pure.
 */
#pragma once
#include "base/io/config/config.h"

struct arena;

/* Writes the value at `into` (the field's C type; see enum config_type). Texts and lists are
 * copied into `arena`; without one a value is checked and what is at `into` is of no use. The
 * sentence has no subject: "-3 is below 0 (allowed: 0 to 10)".
 * -EINVAL wrong form, -ERANGE out of bounds, -ENOMEM. */
int config_value_parse(const struct config_field *f, struct str text, struct arena *arena,
                       void *into, struct err *err);

/* The default, or the type's empty value where there is none. */
int config_value_default(const struct config_field *f, struct arena *arena, void *into);

/* Whether a list may have `count` items. -ERANGE with the sentence. */
int config_count_check(const struct config_field *f, size_t count, struct err *err);

/* As it would be written in a flag: 10s, 64MiB, a,b. */
int config_value_print(const struct config_field *f, const void *from, struct buf *out);

/* "0 to 65535", "at least 1", "one of a, b", "at most 64 items"; nothing when unbounded. */
int config_value_range(const struct config_field *f, struct buf *out);

/* "an integer", "a duration such as 250ms or 10s". */
const char *config_type_text(enum config_type type);

int duration_parse(struct str text, int64_t *ret_us); /* -EINVAL, -ERANGE */
int duration_print(int64_t us, struct buf *out);      /* exact, largest whole unit */
int bytes_parse(struct str text, int64_t *ret);
int bytes_print(int64_t bytes, struct buf *out);

/* max_num_seqs to max-num-seqs, and into MUSTER_SECTION_MAX_NUM_SEQS. `path` has dots. */
int config_flag_name(const char *path_in_section, struct buf *out);
int config_env_name(const char *path, struct buf *out);
