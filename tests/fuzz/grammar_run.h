/* grammar_run.h - compiles a description and follows an output through it, for the targets of grammars.
 *
 * Layer: tests
 */
#pragma once
#include "base/grammar/grammar.h"
#include "tests/fuzz/fuzz.h"

/* Splits the input at its first zero byte: the description, and bytes that choose an output. A refusal has a
 * sentence. Where it compiles, each place that may not end allows some byte, the same output fits twice,
 * and masks over a small vocabulary agree with its bytes. `json`: a whole output is JSON. */
void grammar_run(enum grammar_kind kind, bool json, const uint8_t *data, size_t len);
