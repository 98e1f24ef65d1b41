/* err.c - formats error sentences, and aborts when must() fails.
 *
 * The text is a fixed array in the caller's frame: making an error can neither fail nor leak, and
 * costs nothing as long as none occurs. */
#include "base/core/err.h"

#include "base/core/bits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* load_u32 and the other functions of bits.h copy bytes as they lie, and files and keys are defined
 * little-endian. A big-endian port has to swap there first. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bits.h assumes a little-endian host");

int err_set(struct err *err, int code, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    err_vset(err, code, format, ap);
    va_end(ap);
    return code;
}

int err_vset(struct err *err, int code, const char *format, va_list ap)
{
    if (err) vsnprintf(err->text, sizeof err->text, format, ap);
    return code;
}

int err_prefix(struct err *err, int code, const char *format, ...)
{
    if (!err) return code;
    char what[ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, format);
    vsnprintf(what, sizeof what, format, ap);
    va_end(ap);

    char joined[2 * ERR_TEXT_MAX + 2] = { 0 }; /* room for both and ": "; the copy cuts */
    snprintf(joined, sizeof joined, "%s: %s", what, err_text(err, code));
    memcpy(err->text, joined, sizeof err->text - 1);
    err->text[sizeof err->text - 1] = 0;
    return code;
}

const char *err_text(const struct err *err, int code)
{
    if (err && err->text[0]) return err->text;
    const char *name = strerrordesc_np(code < 0 ? -code : code);
    return name ? name : "unknown error";
}

void must_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "muster: broken promise: must(%s) at %s:%d\n", condition, file, line);
    abort();
}
