/* f_seal.c - reads any text as the seal of a model, under the digest that its second line names. One that is taken
 * has the chunks that its sizes need, plain names, and is written as it was read. */
#include "base/core/own.h"
#include "base/wire/seal.h"
#include "tests/fuzz/fuzz.h"

const struct fuzz_cost fuzz_cost = { 4000000, 2000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    CLEANUP(arena_fini) struct arena arena;
    CLEANUP(buf_fini) struct buf again = { 0 };
    struct str text = str_of(data, len), rest = text;
    struct seal s;
    (void)str_cut(&rest, '\n');
    struct str line = str_cut(&rest, '\n');
    (void)str_cut(&line, ' ');
    arena_init(&arena, (size_t)8 << 20);
    if (seal_read(text, line, &arena, &s, NULL) < 0) return;
    must(s.file_count > 0 && s.file_count <= SEAL_FILES_MAX);
    for (uint32_t f = 0; f < s.file_count; f++) {
        must(s.file[f].name.len > 0 && s.file[f].name.data[0] != '/');
        must(str_find(s.file[f].name, STR("..")) != 0);
    }
    must(seal_write(&s, &again) == 0);
    struct seal t;
    must(seal_read(buf_view(&again), line, &arena, &t, NULL) == 0 && t.file_count == s.file_count);
}
