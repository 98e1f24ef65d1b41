/* err.h - carries an error sentence beside a negative errno, and aborts on our own bugs with must().
 *
 * Layer:   base/core (libc)
 * Threads: a struct err belongs to its caller
 * Rules:   (1) functions that can fail return 0 or a negative errno
 *          (2) `struct err *` is the last argument and may be NULL
 *          (3) what others send (requests, files, peers) is checked, never must()ed
 */
#pragma once
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#define ERR_TEXT_MAX 512 /* longer sentences are cut at the end */

struct err {
    char text[ERR_TEXT_MAX];
};

/* Writes the sentence and returns `code` (negative), so that a caller can say
 *     return err_set(err, -EINVAL, "port %d: out of range 1..65535", port);
 * `err` may be NULL. */
int err_set(struct err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
int err_vset(struct err *err, int code, const char *format, va_list ap)
    __attribute__((format(printf, 3, 0), cold));

/* Puts "what: " before the sentence that is already there; returns `code`. */
int err_prefix(struct err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Returns the sentence, or the system's text for `code` when none was written. Lives as long as `err`. */
const char *err_text(const struct err *err, int code);

/* Prints the condition that does not hold to stderr and aborts. Compiled in always. */
_Noreturn void must_failed(const char *condition, const char *file, int line) __attribute__((cold));

#define must(condition)                                                                     \
    do {                                                                                    \
        if (__builtin_expect(!(condition), 0)) must_failed(#condition, __FILE__, __LINE__); \
    } while (0)
