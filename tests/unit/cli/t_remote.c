/* t_remote.c - tests where commands look for the controller, and the file that describes a
 * fleet. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/remote.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/muster-remote-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const files[] = { "fleet.json", "secret", "other" };
    char path[PATH_MAX];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static void put(const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(file_write_atomic(path, str_from(text), 0600, NULL), 0);
}

static struct fleet_file sample(void)
{
    struct fleet_file s = { .controller = { proc_id_self(), "127.0.0.1", 4001 },
                            .router = { proc_id_self(), "::1", 4002 } };
    snprintf(s.config, sizeof s.config, "/somewhere/muster.yaml");
    snprintf(s.secret, sizeof s.secret, "%s/other", folder);
    return s;
}

static void the_file_reads_back(void **state)
{
    struct fleet_file s = sample(), back;
    (void)state;
    assert_int_equal(fleet_file_write(str_from(folder), &s, NULL), 0);
    assert_int_equal(fleet_file_read(str_from(folder), &back, NULL), 0);
    assert_true(proc_id_eq(&s.controller.id, &back.controller.id));
    assert_true(fleet_file_lives(&back.controller));
    assert_string_equal(back.router.host, "::1");
    assert_int_equal(back.router.port, 4002);
    assert_string_equal(back.config, s.config);
    assert_string_equal(back.secret, s.secret);
    s.router.id.pid = 0; /* the router was not started */
    assert_int_equal(fleet_file_write(str_from(folder), &s, NULL), 0);
    assert_int_equal(fleet_file_read(str_from(folder), &back, NULL), 0);
    assert_int_equal(back.router.id.pid, 0);
    assert_int_equal(fleet_file_remove(str_from(folder), NULL), 0);
    assert_int_equal(fleet_file_read(str_from(folder), &back, NULL), -ENOENT);
    assert_int_equal(fleet_file_remove(str_from(folder), NULL), 0); /* absent: no error */
}

static void damaged_files_are_named(void **state)
{
    static const struct {
        const char *text, *why;
        int rc;
    } rows[] = {
        { "", "empty", -EINVAL },
        { "{}", "no version", -EINVAL },
        { "{\"v\":2,\"config\":\"\",\"secret\":\"\"}", "of the future", -EPROTO },
        { "{\"v\":1,\"secret\":\"\"}", "no config", -EINVAL },
        { "{\"v\":1,\"config\":\"c\",\"secret\":\"s\",\"controller\":{}}", "no process", -EINVAL },
        { "{\"v\":1,\"config\":\"c\",\"secret\":\"s\",\"controller\":{\"process\":\"pid 1 start 1 "
          "boot 0000000000000001\",\"host\":\"h\",\"port\":65536}}",
          "no port", -EINVAL },
        { "{\"v\":1,\"config\":\"c\",\"secret\":\"s\",\"controller\":{\"process\":\"pid 1 start 1 "
          "boot 0000000000000001\",\"host\":"
          "\"01234567890123456789012345678901234567890123456789012345678901234\",\"port\":1}}",
          "a host that does not fit", -EINVAL },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fleet_file s;
        struct err err = { 0 };
        put("fleet.json", rows[i].text);
        int rc = fleet_file_read(str_from(folder), &s, &err);
        if (rc != rows[i].rc) fail_msg("%s: %d", rows[i].why, rc);
        assert_non_null(strstr(err.text, "fleet.json"));
    }
}

static void the_nearest_place_wins(void **state)
{
    struct fleet_file s = sample();
    struct remote r;
    struct remote_place place = { .state = str_from(folder) };
    (void)state;
    assert_int_equal(remote_find(&place, &r, NULL), 0);
    assert_string_equal(r.host, "127.0.0.1");
    assert_int_equal(r.port, 8090); /* neither file nor option names another */
    assert_string_equal(r.secret, "");

    put("secret", "abc\n");
    assert_int_equal(remote_find(&place, &r, NULL), 0);
    assert_string_equal(r.secret, "abc");

    put("other", "def");
    assert_int_equal(fleet_file_write(str_from(folder), &s, NULL), 0);
    assert_int_equal(remote_find(&place, &r, NULL), 0);
    assert_int_equal(r.port, 4001);
    assert_string_equal(r.secret, "def"); /* the fleet file's own */

    place.controller = STR("[::1]:99");
    assert_int_equal(remote_find(&place, &r, NULL), 0);
    assert_string_equal(r.host, "::1");
    assert_int_equal(r.port, 99);
}

static void wrong_addresses_are_refused(void **state)
{
    static const char *const texts[] = { "host", ":1", "h:0", "h:65536", "h:1x", "[]:1", "h:" };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct remote r;
        struct err err = { 0 };
        struct remote_place place = { .controller = str_from(texts[i]), .state = str_from(folder) };
        if (remote_find(&place, &r, &err) != -EINVAL) fail_msg("taken: %s", texts[i]);
        assert_non_null(strstr(err.text, "--controller"));
    }
}

static void names_become_segments(void **state)
{
    CLEANUP(buf_fini) struct buf path = { 0 };
    (void)state;
    remote_segment(&path, STR("a-b_c.1/../x?y z\303\244"));
    assert_string_equal(path.data, "a-b_c.1%2F..%2Fx%3Fy%20z%C3%A4");
}

static void urls_can_be_opened(void **state)
{
    static const struct {
        const char *host, *url;
    } rows[] = {
        { "127.0.0.1", "http://127.0.0.1:80" },
        { "0.0.0.0", "http://127.0.0.1:80" },
        { "::", "http://[::1]:80" },
        { "fe80::1", "http://[fe80::1]:80" },
        { "example.org", "http://example.org:80" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf url = { 0 };
        struct fleet_file_part p = { .port = 80 };
        snprintf(p.host, sizeof p.host, "%s", rows[i].host);
        fleet_file_url(&p, &url);
        assert_string_equal(url.data, rows[i].url);
    }
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(the_file_reads_back),          IN_FOLDER(damaged_files_are_named),
        IN_FOLDER(the_nearest_place_wins),       IN_FOLDER(wrong_addresses_are_refused),
        cmocka_unit_test(names_become_segments), cmocka_unit_test(urls_can_be_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
