/* own.h - defines macros that show in a declaration which function frees a resource.
 *
 * Layer:   base/core (libc)
 * Use:     CLEANUP(buf_fini) struct buf b = { 0 };    runs buf_fini(&b) when b leaves its scope
 *          CLEANUP(card_freep) struct card *c = NULL; runs card_freep(&c)
 *          *ret = TAKE(c);                            hands c on and leaves NULL behind
 */
#pragma once

#define CLEANUP(fn) __attribute__((cleanup(fn)))

#define TAKE(ptr)                            \
    ({                                       \
        __typeof__(ptr) take_value_ = (ptr); \
        (ptr) = NULL;                        \
        take_value_;                         \
    })

/* Declares NAME_freep(TYPE **), the form CLEANUP wants, from NAME_free(TYPE *). */
#define CLEANUP_FREEP(name, type)                                     \
    static inline __attribute__((unused)) void name##_freep(type **p) \
    {                                                                 \
        name##_free(*p);                                              \
        *p = NULL;                                                    \
    }
