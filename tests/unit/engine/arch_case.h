/* arch_case.h - makes the small random models of tests/vectors/arch, as GGUF files and as folders.
 *
 * The format is in tests/vectors/arch/README.md. Failures end the program: the vectors are ours.
 */
#pragma once
#include "base/core/buf.h"

#define CASE_LINES_MAX 256

struct arch_case {
    const char *name;
    struct buf text;                   /* lines end with NUL */
    struct buf bin;                    /* logits */
    const char *lines[CASE_LINES_MAX]; /* in text */
    uint32_t line_count;
};

void case_load(struct arch_case *c, const char *name);
void case_fini(struct arch_case *c);

/* Returns what follows `word` and a space in the next line that begins with it, from *at on; NULL if
 * there is none. *at moves behind the line; begin with 0. */
const char *case_next(const struct arch_case *c, const char *word, uint32_t *at);

/* How the file differs from what it should be; all may be NULL. */
struct case_damage {
    const char *without; /* a tensor that is left out */
    const char *longer;  /* a tensor that has a row, or an element, too many */
    const char *more;    /* a tensor that is added, of one float */
    const char *key;     /* a key that is added below the architecture's name (GGUF) */
};

/* Write the model to a file of model_folder, or its tensors and config.json to model_folder. */
void case_gguf(const struct arch_case *c, const char *file, const struct case_damage *damage);
void case_folder(const struct arch_case *c, const struct case_damage *damage);
