/* f_regex.c - compiles any bytes as a regular expression, and follows an output. */
#include "tests/fuzz/grammar_run.h"

/* A few bytes may ask for as many states as one grammar may have (a repetition), and a place for as many ways. */
const struct fuzz_cost fuzz_cost = { 60000000, 4000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    grammar_run(GRAMMAR_REGEX, false, data, len);
}
