/* f_structural_tag.c - compiles any bytes as a structural tag, and follows an output. */
#include "tests/fuzz/grammar_run.h"

/* As f_grammar: a few bytes may ask for as many states as one grammar may have. */
const struct fuzz_cost fuzz_cost = { 60000000, 4000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    grammar_run(GRAMMAR_TAGS, false, data, len);
}
