/* t_tokenizer_files.c - real vocabularies against the ids that their reference gives.
 *
 * Runs where the shared test data lie (MUSTER_SHARED, or ../shared beside the checkout); the
 * vocabularies belong to their models and are not ours to ship.
 */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/text/detok.h"
#include "base/text/tokenizer.h"
#include "tests/unit/text/gguf_vocab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[4096];

static void read_text(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot read %s", path);
    char chunk[65536];
    size_t len;
    while ((len = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_append(out, chunk, len);
    fclose(f);
}

/* One case: the text up to the separator line, the ids of one line. */
static void check_case(const struct vocab *v, const char *name, int number, struct str text,
                       struct str line)
{
    CLEANUP(ids_fini) struct ids ids = { 0 };
    CLEANUP(buf_fini) struct buf got = { 0 };
    CLEANUP(buf_fini) struct buf back = { 0 };
    assert_int_equal(tokenizer_encode(v, text, false, &ids, NULL), 0);
    for (size_t i = 0; i < ids.count; i++)
        buf_printf(&got, " %u", ids.data[i]);
    if (!str_eq(buf_view(&got), line))
        fail_msg("%s case %d: got" STR_FMT ", expected" STR_FMT, name, number,
                 STR_ARG(buf_view(&got)), STR_ARG(line));
    detok_bytes(v, ids.data, ids.count, false, &back);
    assert_true(str_eq(buf_view(&back), text));
}

static void check_vocab(const char *name)
{
    char path[sizeof folder + 64];
    snprintf(path, sizeof path, "%s/data/vocab/%s.gguf", folder, name);
    CLEANUP(vocab_freep) struct vocab *v = gguf_vocab_load(path);
    if (!v) fail_msg("%s cannot be loaded", path);
    CLEANUP(buf_fini) struct buf cases = { 0 };
    CLEANUP(buf_fini) struct buf ids = { 0 };
    snprintf(path, sizeof path, "%s/data/vocab/cases.txt", folder);
    read_text(path, &cases);
    snprintf(path, sizeof path, "%s/data/vocab/%s.expected-ids.txt", folder, name);
    read_text(path, &ids);
    struct str rest = buf_view(&cases), lines = buf_view(&ids);
    static const struct str separator = STR("\n__ggml_vocab_test__\n");
    int number = 0;
    while (rest.data) {
        size_t len = str_find(rest, separator);
        struct str text = len == SIZE_MAX ? rest : str_of(rest.data, len);
        rest = len == SIZE_MAX
                   ? (struct str){ 0 }
                   : str_of(rest.data + len + separator.len, rest.len - len - separator.len);
        if (!rest.data && text.len > 0) text.len--; /* the file's own last line end */
        check_case(v, name, number++, text, str_cut(&lines, '\n'));
    }
    print_message("%s: %d cases\n", name, number);
    assert_true(number >= 46);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_vocab("gpt-2");
}

static void test_starcoder(void **state)
{
    (void)state;
    check_vocab("starcoder");
}

static void test_falcon(void **state)
{
    (void)state;
    check_vocab("falcon");
}

static void test_deepseek_coder(void **state)
{
    (void)state;
    check_vocab("deepseek-coder");
}

int main(void)
{
    const char *shared = getenv("MUSTER_SHARED");
    snprintf(folder, sizeof folder, "%s", shared ? shared : "../shared");
    char path[sizeof folder + 64];
    snprintf(path, sizeof path, "%s/data/vocab/cases.txt", folder);
    if (access(path, R_OK) != 0) {
        printf("skipped: %s is not here (set MUSTER_SHARED)\n", path);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_starcoder),
        cmocka_unit_test(test_falcon),
        cmocka_unit_test(test_deepseek_coder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
