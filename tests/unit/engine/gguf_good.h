/* gguf_good.h - a small file of every kind of value, which tests read back or damage. */
#pragma once
#include "tests/unit/engine/gguf_make.h"

void good_put(struct gguf_make *m); /* two tensors, `vector` and `matrix`; finish it yourself */
void good_file(struct buf *ret);    /* nothing but that; appended */

/* gguf_parse over memory, as the file "test.gguf". */
int good_parse(struct str file, struct gguf **ret, struct err *err);
