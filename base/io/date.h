/* date.h - writes and reads dates as text: in the form of RFC 3339, and as HTTP headers have them.
 *
 * Layer:   base/io (base/core)
 * Threads: pure
 * Units:   microseconds since 1970, UTC
 */
#pragma once
#include "base/core/str.h"

#define DATE_BYTES 32 /* with the NUL */

/* Prints 2026-03-01T12:00:00.000000Z; before the year 10000. */
void date_print(int64_t date_us, char ret[DATE_BYTES]);

/* Reads a date with any fraction of a second and any zone. -EINVAL. */
int date_parse(struct str text, int64_t *ret_date_us);

/* Reads Sun, 06 Nov 1994 08:49:37 GMT: the one form that RFC 9110 lets senders write. -EINVAL. */
int date_parse_http(struct str text, int64_t *ret_date_us);
