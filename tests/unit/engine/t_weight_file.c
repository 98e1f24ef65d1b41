/* t_weight_file.c - tests that packed weights are sealed once, found again, and never trusted when they are not
 * whole. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "engine/kernels/weight.h"
#include "engine/model/weight_file.h"
#include "tests/unit/engine/llama_bench.h"
#include "tests/unit/engine/model_folder.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define VOCAB 40
#define IDS 24

static char cache[256];
static uint64_t bytes_max = 1 << 30;

/* Calls `visit` with the path of each file of the cache whose name ends so; returns how many there are. */
static uint32_t each(const char *end, void (*visit)(const char *path))
{
    DIR *dir = opendir(cache);
    uint32_t count = 0;
    if (!dir) return 0;
    for (const struct dirent *e; (e = readdir(dir));) {
        char path[600];
        if (e->d_name[0] == '.' || !str_ends(str_from(e->d_name), str_from(end))) continue;
        snprintf(path, sizeof path, "%s/%s", cache, e->d_name);
        if (visit) visit(path);
        count++;
    }
    closedir(dir);
    return count;
}

static void drop(const char *path)
{
    must(unlink(path) == 0);
}

static int setup(void **state)
{
    int rc = model_folder_make(state);
    snprintf(cache, sizeof cache, "%s", folder_at("cache"));
    folder_llama("a.gguf", WEIGHT_Q4_0, false, 1);
    folder_llama("b.gguf", WEIGHT_Q8_0, true, 2);
    return rc;
}

static int teardown(void **state)
{
    (void)each("", drop);
    (void)rmdir(cache);
    return model_folder_remove(state);
}

static int empty(void **state)
{
    (void)state;
    (void)each("", drop);
    bytes_max = 1 << 30;
    fault_disarm();
    return 0;
}

/* Loads a model, with the cache or without it, and computes the logits of a prompt's last token. */
static struct model_info logits_of(const char *file, const char *with, float *logits)
{
    struct bench b = { 0 };
    struct err err = { { 0 } };
    uint32_t ids[IDS];
    const struct model_load_options opt = { .weight_cache = with,
                                            .weight_cache_bytes_max = bytes_max };
    if (model_load(folder_at(file), &opt, &b.model, &err) < 0) fail_msg("%s", err.text);
    bench_runner(&b, 16, 1);
    bench_ids(5, VOCAB, ids, IDS);
    bench_feed(&b, ids, IDS, 7, bench_table_up(), logits);
    struct model_info info = *model_info(b.model);
    bench_fini(&b);
    return info;
}

/* Loads with the cache; its logits must be those of weights of one's own. */
static struct model_info load(const char *file)
{
    float own[VOCAB], shared[VOCAB];
    struct model_info before = logits_of(file, NULL, own), info = logits_of(file, cache, shared);
    assert_memory_equal(own, shared, sizeof own);
    assert_string_equal(before.digest, info.digest);
    assert_int_equal(before.parameters, info.parameters);
    return info;
}

static void weights_are_packed_once(void **state)
{
    (void)state;
    struct model_info first = load("a.gguf"), second = load("a.gguf");
    assert_true(first.weights_mapped && !first.weights_found);
    assert_true(second.weights_mapped && second.weights_found);
    assert_int_equal(each(".weights", NULL), 1);
    assert_int_equal(each(".source", NULL), 1);
    assert_int_equal(each(".part", NULL), 0);
    assert_false(load("b.gguf").weights_found);
    assert_true(load("b.gguf").weights_found);
    assert_int_equal(each(".weights", NULL), 2);
}

/* A file with the same bytes elsewhere has the same digest; one with other bytes in the same place has not. */
static void what_counts_is_what_the_file_has(void **state)
{
    (void)state;
    (void)load("a.gguf");
    folder_llama("same.gguf", WEIGHT_Q4_0, false, 1);
    assert_true(load("same.gguf").weights_found);
    assert_int_equal(each(".source", NULL), 2);
    struct timespec as_before[2];
    struct stat st;
    must(stat(folder_at("same.gguf"), &st) == 0);
    as_before[0] = st.st_atim, as_before[1] = st.st_mtim;
    folder_llama("same.gguf", WEIGHT_Q4_0, false, 3);
    must(utimensat(AT_FDCWD, folder_at("same.gguf"), as_before, 0) == 0);
    assert_false(load("same.gguf").weights_found);
}

static void tear(const char *path)
{
    struct stat st;
    must(chmod(path, 0600) == 0 && stat(path, &st) == 0 && truncate(path, st.st_size - 64) == 0);
}

static off_t flip_at;

static void flip(const char *path)
{
    char byte;
    must(chmod(path, 0600) == 0);
    int fd = open(path, O_RDWR);
    must(fd >= 0 && pread(fd, &byte, 1, flip_at) == 1);
    byte ^= 1;
    must(pwrite(fd, &byte, 1, flip_at) == 1);
    close(fd);
}

static void what_is_damaged_is_packed_anew(void **state)
{
    (void)state;
    /* Each member of the header, the weights, and the end. `order` alone is that of another version. */
    static const off_t places[] = { 0, 8, 16, 24, 32, 40, 2 << 20, (2 << 20) + 4097 };
    (void)load("a.gguf");
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        flip_at = places[i];
        (void)each(".weights", flip);
        struct model_info info = load("a.gguf");
        assert_true(info.weights_mapped && !info.weights_found);
        assert_true(load("a.gguf").weights_found);
    }
    (void)each(".weights", tear);
    assert_false(load("a.gguf").weights_found);
    assert_true(load("a.gguf").weights_found);
}

static void open_to_all(const char *path)
{
    must(chmod(path, 0666) == 0);
}

static void what_others_may_write_is_not_read(void **state)
{
    (void)state;
    (void)load("a.gguf");
    (void)each(".weights", open_to_all);
    struct model_info info = load("a.gguf");
    assert_false(info.weights_mapped);
    assert_non_null(strstr(info.cache_trouble, "others may write"));
    (void)each("", drop);
    must(chmod(cache, 0777) == 0);
    assert_non_null(strstr(load("a.gguf").cache_trouble, "others may write"));
    must(chmod(cache, 0700) == 0);
    assert_int_equal(each("", NULL), 0);
}

static void without_room_each_has_its_own(void **state)
{
    (void)state;
    static const struct {
        const char *point, *says;
    } rows[] = { { "weight_file.room", "no room for" }, { "weight_file.map", "cannot be mapped" } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        float logits[VOCAB];
        fault_arm(rows[i].point, 1);
        struct model_info info = logits_of("a.gguf", cache, logits);
        fault_disarm();
        assert_false(info.weights_mapped);
        assert_non_null(strstr(info.cache_trouble, rows[i].says));
        assert_int_equal(each(".weights", NULL) + each(".part", NULL), 0);
    }
    bytes_max = 4096;
    assert_non_null(strstr(load("a.gguf").cache_trouble, "its bound is 4096"));
    /* A disk that is full although there was room is an error of the load, and leaves nothing behind. */
    struct model *m = NULL;
    struct err err = { { 0 } };
    const struct model_load_options opt = { .weight_cache = cache,
                                            .weight_cache_bytes_max = 1 << 30 };
    fault_arm("weight_file.write", 3);
    assert_int_equal(model_load(folder_at("a.gguf"), &opt, &m, &err), -ENOSPC);
    fault_disarm();
    assert_int_equal(each(".weights", NULL) + each(".part", NULL), 0);
}

static void the_bound_is_kept(void **state)
{
    (void)state;
    (void)load("a.gguf");
    struct model_info b = load("b.gguf");
    bytes_max = b.weight_bytes + 8192;
    (void)each(".weights", drop);
    (void)load("b.gguf");
    assert_false(load("a.gguf").weights_found);
    assert_int_equal(each(".weights", NULL), 1); /* b's is gone */
    assert_true(load("a.gguf").weights_found);
    assert_false(load("b.gguf").weights_found);
    assert_int_equal(each(".weights", NULL), 1);
}

/* Four processes load at once: one packs, the others find what it has sealed. One is killed amid it. */
static void many_processes_pack_once(void **state)
{
    (void)state;
    (void)load("a.gguf");
    (void)each(".weights", drop);
    char part[600];
    snprintf(part, sizeof part, "%s/left-1.part", cache);
    int fd = open(part, O_CREAT | O_WRONLY, 0600); /* what a killed process leaves */
    must(fd >= 0);
    close(fd);
    pid_t pid[4];
    int found = 0, status;
    for (int i = 0; i < 4; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            float logits[VOCAB];
            struct model_info info = logits_of("a.gguf", cache, logits);
            _exit(info.weights_mapped ? 10 + info.weights_found : 1);
        }
        must(pid[i] > 0);
    }
    for (int i = 0; i < 4; i++) {
        must(waitpid(pid[i], &status, 0) == pid[i]);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 10 || WEXITSTATUS(status) == 11));
        found += WEXITSTATUS(status) == 11;
    }
    assert_int_equal(found, 3);
    assert_int_equal(each(".weights", NULL), 1);
    assert_int_equal(each(".part", NULL), 0);
}

/* The hash of a tile of each type, of which rows are bytes made here. If one differs, weights are packed in another
 * way than before: raise WEIGHT_FILE_LAYOUT, then change the hash. A new type takes a row. */
static void the_layout_is_the_one_that_is_counted(void **state)
{
    (void)state;
    static const uint64_t layout_2[WEIGHT_TYPE_COUNT] = {
        [WEIGHT_F32] = 0x33a4f39d2d420eb5,   [WEIGHT_F16] = 0x1d965223cd3bfd61,
        [WEIGHT_BF16] = 0x7615157fb4b0ba67,  [WEIGHT_Q8_0] = 0x5f743027eb47c33a,
        [WEIGHT_Q4_0] = 0x472ad032032550d1,  [WEIGHT_Q4_1] = 0x39f9cfcd74165e32,
        [WEIGHT_Q5_0] = 0xf83665b6fd3f08cf,  [WEIGHT_Q5_1] = 0xa661de5f604af055,
        [WEIGHT_Q2_K] = 0x9ae0a80ee5bce143,  [WEIGHT_Q3_K] = 0x7933530148e4d652,
        [WEIGHT_Q4_K] = 0xa29dea3bd8602a65,  [WEIGHT_Q5_K] = 0xd9b499827b46777f,
        [WEIGHT_Q6_K] = 0x138b6f87d920bf69,  [WEIGHT_IQ4_NL] = 0x0d40d09c187ab019,
        [WEIGHT_MXFP4] = 0x1b119192a346b438,
    };
    enum { COLS = 256, ROWS = TILE_ROWS - 1 };
    for (uint32_t type = 0; type < WEIGHT_TYPE_COUNT; type++) {
        size_t row = weight_row_bytes((enum weight_type_id)type, COLS);
        CLEANUP(buf_fini) struct buf raw = { 0 }, tile = { 0 };
        must(buf_reserve(&raw, ROWS * row) == 0 && buf_reserve(&tile, TILE_ROWS * row) == 0);
        for (size_t i = 0; i < ROWS * row; i++)
            raw.data[i] = (char)(i * 7 + i / 251 + type);
        weight_pack((enum weight_type_id)type, raw.data, ROWS, COLS, tile.data);
        uint64_t hash = hash64(tile.data, TILE_ROWS * row, 0);
        if (hash != layout_2[type])
            fail_msg("[WEIGHT_%s] = 0x%016llx,", weight_types[type].name, (unsigned long long)hash);
    }
    assert_int_equal(WEIGHT_FILE_LAYOUT, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(weights_are_packed_once, empty),
        cmocka_unit_test_setup(what_counts_is_what_the_file_has, empty),
        cmocka_unit_test_setup(what_is_damaged_is_packed_anew, empty),
        cmocka_unit_test_setup(what_others_may_write_is_not_read, empty),
        cmocka_unit_test_setup(without_room_each_has_its_own, empty),
        cmocka_unit_test_setup(the_bound_is_kept, empty),
        cmocka_unit_test_setup(many_processes_pack_once, empty),
        cmocka_unit_test(the_layout_is_the_one_that_is_counted),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
