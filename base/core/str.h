/* str.h - borrowed text with a length; it owns no memory and need not end in NUL.
 *
 * Layer: base/core (libc). All functions are pure; numbers are parsed strictly (whole
 * string, no leading blanks, no locale), so "12x" is an error and not 12.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *data; /* may be NULL when len is 0 */
    size_t len;
};

#define STR(literal) ((struct str){ "" literal, sizeof(literal) - 1 })
#define STR_FMT "%.*s"
#define STR_ARG(s) (int)(s).len, (s).data

static inline struct str str_from(const char *text)
{
    return (struct str){ text, text ? strlen(text) : 0 };
}

static inline struct str str_of(const void *data, size_t len)
{
    return (struct str){ (const char *)data, len };
}

bool str_eq(struct str a, struct str b);
bool str_eq_nocase(struct str a, struct str b); /* ASCII only */
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
int str_cmp(struct str a, struct str b); /* bytewise; a shorter prefix sorts first */
struct str str_trim(struct str s);       /* blanks and tabs at both ends */

/* Cuts *rest at the first `sep`: returns the text before it and leaves the text after it in *rest.
 * Without a `sep` it returns all and sets *rest to { NULL, 0 }. */
struct str str_cut(struct str *rest, char sep);

/* Returns the index of the first occurrence, or SIZE_MAX. An empty needle is found at 0. */
size_t str_find(struct str s, struct str needle);

/* Parse strict decimal; -EINVAL for anything that is not wholly a number, -ERANGE beyond the type. */
int str_to_i64(struct str s, int64_t *ret);
int str_to_u64(struct str s, uint64_t *ret);

/* Splits HOST:PORT at the last colon, without the brackets of an IPv6 address. -EINVAL: there is no host, or no
 * port of 0 to 65535. The host is a part of `text`. */
int str_host_port(struct str text, struct str *ret_host, uint16_t *ret_port);
int str_to_f64(struct str s, double *ret); /* finite only */

/* Returns true if all of `s` is well-formed UTF-8 (no overlong forms, no surrogates). */
bool str_utf8_valid(struct str s);

/* Returns the length of the longest prefix of `s` that does not end inside a UTF-8 sequence. Bytes
 * that can never become valid count as complete: they are replaced later, not waited for. */
size_t str_utf8_complete(struct str s);

/* utf8_decode writes the code point at the start of `s` to *ret and returns its length in bytes, or 0
 * when no whole valid sequence starts there. utf8_encode writes to out[4] and returns the length. */
size_t utf8_decode(struct str s, uint32_t *ret);
size_t utf8_encode(uint32_t code_point, char out[4]);

/* Counts the bytes at the start of `s` that one U+FFFD replaces (the maximal subpart of an ill-formed
 * sequence, as browsers and Python count); 0 when a whole valid sequence starts there. */
size_t utf8_invalid(struct str s);

/* Returns the name with the least edit distance to `word`, for "did you mean"; NULL if that distance
 * is above both 1 and a third of the word's length. */
const char *str_nearest(struct str word, const char *const *names, size_t count);

/* Writes "a, b, c" and a NUL into `ret`, of `bytes` bytes (not 0); the list ends before the first
 * name that does not fit whole. */
void str_list(const char *const *names, size_t count, char *ret, size_t bytes);
