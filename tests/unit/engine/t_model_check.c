/* t_model_check.c - tests the digest of a model's files against sha256sum's, and when files are read again. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "engine/model/model_check.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static const char *at(const char *name)
{
    static char path[8][PATH_MAX];
    static unsigned turn;
    char *ret = path[turn++ % COUNT_OF(path)];
    snprintf(ret, PATH_MAX, "%s/%s", root, name);
    return ret;
}

static void put(const char *name, const char *text)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", at(name));
    *strrchr(folder, '/') = 0;
    assert_int_equal(file_make_folders(folder, 0700, NULL), 0);
    assert_int_equal(file_write_atomic(at(name), str_from(text), 0600, NULL), 0);
}

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/muster-check-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

/* Runs a line in the root and compares the first word that it prints. */
static void same_as(const char *line, const char *digest)
{
    char command[PATH_MAX], word[SHA256_HEX + 1] = "";
    snprintf(command, sizeof command, "cd %s && %s", root, line);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    assert_int_equal(fscanf(out, "%64s", word), 1);
    pclose(out);
    assert_string_equal(digest, word);
}

static void digests_are_those_of_sha256sum(void **state)
{
    char digest[SHA256_HEX + 1];
    (void)state;
    put("one.gguf", "abc");
    assert_int_equal(model_sha256(at("one.gguf"), NULL, NULL, digest, NULL), 0);
    assert_string_equal(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    put("f/b.json", "1");
    put("f/B.json", "");
    put("f/a b.json", "2");
    put("f/1_Pooling/config.json", "3");
    put("f/.hidden", "4");
    put("f/.git/x", "5");
    assert_int_equal(symlink("../one.gguf", at("f/link.safetensors")), 0);
    assert_int_equal(model_sha256(at("f"), NULL, NULL, digest, NULL), 0);
    same_as("cd f && find -L . -type f -not -path '*/.*' -printf '%P\\n' | LC_ALL=C sort | "
            "xargs -d '\\n' sha256sum | sha256sum",
            digest);
    put("s/m-00001-of-00002.gguf", "6");
    put("s/m-00002-of-00002.gguf", "7");
    put("s/other", "8");
    assert_int_equal(model_sha256(at("s/m-00001-of-00002.gguf"), NULL, NULL, digest, NULL), 0);
    same_as("cd s && sha256sum m-*.gguf | sha256sum", digest);
}

static int check(const char *name, const char *digest, bool *read, struct err *err)
{
    char stamps[PATH_MAX];
    snprintf(stamps, sizeof stamps, "%s", at("stamps"));
    const struct model_check c = { at(name), str_from(digest), stamps, NULL, NULL };
    return model_check(&c, read, err);
}

static void files_are_read_once(void **state)
{
    char digest[SHA256_HEX + 1];
    struct err err = { 0 };
    struct stat st;
    bool read = false;
    (void)state;
    put("f/a.json", "1");
    put("f/b.json", "2");
    assert_int_equal(model_sha256(at("f"), NULL, NULL, digest, NULL), 0);
    assert_int_equal(check("f", digest, &read, &err), 0);
    assert_true(read);
    assert_int_equal(check("f", digest, &read, &err), 0);
    assert_false(read);
    /* Same size and date, other bytes: the system's own time of the change tells. */
    assert_int_equal(stat(at("f/b.json"), &st), 0);
    int fd = open(at("f/b.json"), O_WRONLY);
    assert_int_equal(write(fd, "3", 1), 1);
    const struct timespec times[] = { st.st_atim, st.st_mtim };
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    assert_int_equal(check("f", digest, &read, &err), -EBADMSG);
    assert_non_null(strstr(err.text, digest));
    /* A stamp keeps what was found, so that a wrong model is refused without reading it, too. */
    assert_int_equal(check("f", digest, &read, &err), -EBADMSG);
    assert_false(read);
    put("f/b.json", "2");
    assert_int_equal(check("f", digest, &read, &err), 0);
    assert_true(read);
    put("f/more", "");
    assert_int_equal(check("f", digest, &read, &err), -EBADMSG);
}

static void what_was_computed_is_kept(void **state)
{
    struct model_check_line lines[] = { { .name = "a" }, { .name = "b" } };
    char digest[SHA256_HEX + 1], joined[SHA256_HEX + 1];
    bool read = true;
    (void)state;
    put("f/a", "1");
    put("f/b", "2");
    assert_int_equal(model_sha256(at("f/a"), NULL, NULL, lines[0].digest, NULL), 0);
    assert_int_equal(model_sha256(at("f/b"), NULL, NULL, lines[1].digest, NULL), 0);
    model_check_join(lines, 2, joined);
    assert_int_equal(model_sha256(at("f"), NULL, NULL, digest, NULL), 0);
    assert_string_equal(joined, digest);
    model_check_keep(at("f"), at("stamps"), joined);
    assert_int_equal(check("f", digest, &read, NULL), 0);
    assert_false(read);
}

static void bounds_and_absences_have_sentences(void **state)
{
    char digest[SHA256_HEX + 1];
    struct err err = { 0 };
    (void)state;
    assert_int_equal(model_sha256(at("none"), NULL, NULL, digest, &err), -ENOENT);
    assert_int_equal(mkdir(at("empty"), 0700), 0);
    assert_int_equal(model_sha256(at("empty"), NULL, NULL, digest, &err), -ENOENT);
    put("s/m-00001-of-00002.gguf", "6");
    assert_int_equal(model_sha256(at("s/m-00001-of-00002.gguf"), NULL, NULL, digest, &err),
                     -ENOENT);
    assert_non_null(strstr(err.text, "m-00002-of-00002.gguf"));
    put("deep/1/2/3/4/x", "");
    assert_int_equal(model_sha256(at("deep"), NULL, NULL, digest, &err), 0);
    put("deep/1/2/3/4/5/x", "");
    assert_int_equal(model_sha256(at("deep"), NULL, NULL, digest, &err), -E2BIG);
    put("odd/a\\b", "");
    assert_int_equal(model_sha256(at("odd"), NULL, NULL, digest, &err), -EINVAL);
    assert_int_equal(symlink(".", at("loop")), 0);
    assert_true(model_sha256(at("loop"), NULL, NULL, digest, &err) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(digests_are_those_of_sha256sum, setup, teardown),
        cmocka_unit_test_setup_teardown(files_are_read_once, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_computed_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(bounds_and_absences_have_sentences, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
