/* t_numa.c - tests the lists of memory nodes, and in a real engine where its memory goes. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "engine/numa.h"
#include "tests/unit/engine/serve_rig.h"
#include "tests/unit/engine/tiny_model.h"

#include <stdio.h>
#include <unistd.h>

#define MAPS_BYTES_MAX ((size_t)16 << 20)

static void lists_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        int rc;
        uint32_t count;
        unsigned long first; /* word of the mask */
    } rows[] = {
        { "0", 0, 1, 1 },
        { "0-1", 0, 2, 3 },
        { "0-1,3", 0, 3, 11 },
        { "2,0-2", 0, 3, 7 },
        { "64", 0, 1, 0 },
        { "0,1023", 0, 2, 1 },
        { "0-1023", 0, 1024, ~0ul },
        { "1024", -E2BIG, 0, 0 },
        { "0-99999999999", -E2BIG, 0, 0 },
        { "", -EINVAL, 0, 0 },
        { "1-0", -EINVAL, 0, 0 },
        { "0-", -EINVAL, 0, 0 },
        { "-1", -EINVAL, 0, 0 },
        { "0 1", -EINVAL, 0, 0 },
        { "99999999999999999999", -EINVAL, 0, 0 },
        { "a", -EINVAL, 0, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct numa_nodes nodes = { .count = 7 };
        struct err err = { { 0 } };
        int rc = numa_nodes_parse(str_from(rows[i].list), &nodes, &err);
        if (rc != rows[i].rc) fail_msg("\"%s\": %d, %s", rows[i].list, rc, err.text);
        assert_int_equal(nodes.count, rc == 0 ? rows[i].count : 7);
        assert_true(rc < 0 || nodes.mask[0] == rows[i].first);
        assert_true(rc == 0 || err.text[0]);
    }
}

/* Counts the mappings of a process whose pages are spread. */
static uint32_t spread_maps(const struct engine *e)
{
    CLEANUP(buf_fini) struct buf maps = { 0 };
    char path[64];
    uint32_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/numa_maps", (int)e->pid);
    assert_int_equal(file_read(path, MAPS_BYTES_MAX, &maps, NULL), 0);
    for (struct str rest = buf_view(&maps); rest.len > 0;) {
        struct str line = str_cut(&rest, '\n');
        str_cut(&line, ' ');
        count += str_starts(line, STR("interleave:"));
    }
    return count;
}

static void memory_goes_where_it_is_told(void **state)
{
    (void)state;
    const char *const on[] = { "--numa", "interleave", NULL };
    const char *const off[] = { "--numa", "off", NULL };
    struct engine e = { .model_fd = -1 };
    char path[64];
    int fd = tiny_model_path(TINY_CONTEXT, path);
    engine_spawn(&e, path, on);
    if (access("/proc/self/numa_maps", R_OK) == 0 && engine_log_has(&e, "engine_ready")) {
        engine_read_port(&e);
        assert_true(spread_maps(&e) > 10);
        engine_close(&e);
        engine_open(&e, off);
        assert_int_equal(spread_maps(&e), 0);
        engine_close(&e);
    } else {
        printf("skipped: no memory policies here: %s\n", e.log.len ? e.log.data : "no numa_maps");
        engine_fini(&e);
    }
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(memory_goes_where_it_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
