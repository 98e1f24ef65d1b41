/* t_instance.c - tests an instance's launch document, its lock, and the record of its engine, which
 * is written before the process becomes that engine. */
#include "agent/instance.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOUR_US ((int64_t)3600 * 1000000)

static char folder[64], path[128];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/t_instance_XXXXXX");
    must(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/spec.json", folder);
    static const struct str args[] = { { "/bin/sh", 7 }, { "-c", 2 }, { "exec sleep 60", 13 } };
    struct launch_spec spec = { .instance = STR("i-1"),
                                .service = STR("chat"),
                                .pool = STR("small"),
                                .offer = STR("o"),
                                .controller_host = STR("127.0.0.1"),
                                .controller_port = 9,
                                .engine_host = STR("127.0.0.1"),
                                .engine_args = args,
                                .engine_arg_count = 3,
                                .share = 0.25,
                                .grace_ms = 5000,
                                .start_wall_us = 77 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    must(launch_spec_encode(&spec, &text) == 0);
    must(file_write_atomic(path, buf_view(&text), 0600, NULL) == 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void the_document_reads_back(void **state)
{
    (void)state;
    struct instance in;
    assert_int_equal(instance_open(&in, str_from(path), NULL), 0);
    assert_true(str_eq(in.spec.instance, STR("i-1")));
    assert_true(str_eq(in.spec.folder, str_from(folder))); /* default: the document's own folder */
    assert_int_equal(in.spec.engine_arg_count, 3);
    assert_true(str_eq(in.spec.engine_args[2], STR("exec sleep 60")));
    /* The document has no boot clock, so its dates count. */
    assert_true(in.start_us < 0);
    assert_true(in.born_us <= clock_mono_us());
    assert_true(in.born_us > clock_mono_us() - HOUR_US);
    instance_close(&in);
}

/* On the machine that wrote the document, in the same boot, its boot clock counts. */
static void the_date_moves_nothing(void **state)
{
    (void)state;
    static const struct {
        uint64_t boot_differs;
        bool ours;
    } rows[] = { { 0, true }, { 1, false } };
    static const struct str args[] = { { "sh", 2 } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct launch_spec spec = { .instance = STR("i-1"),
                                    .service = STR("chat"),
                                    .pool = STR("small"),
                                    .offer = STR("o"),
                                    .controller_host = STR("127.0.0.1"),
                                    .controller_port = 9,
                                    .engine_host = STR("127.0.0.1"),
                                    .engine_args = args,
                                    .engine_arg_count = 1,
                                    .boot = proc_id_self().boot + rows[i].boot_differs,
                                    .born_mono_us = 5000,
                                    .start_mono_us = 7000,
                                    .start_wall_us = clock_wall_us() + 9 * HOUR_US };
        CLEANUP(buf_fini) struct buf text = { 0 };
        must(launch_spec_encode(&spec, &text) == 0);
        must(file_write_atomic(path, buf_view(&text), 0600, NULL) == 0);
        struct instance in;
        assert_int_equal(instance_open(&in, str_from(path), NULL), 0);
        assert_int_equal(in.born_us == 5000 && in.start_us == 7000, rows[i].ours);
        if (!rows[i].ours) assert_true(in.start_us > clock_mono_us() + 8 * HOUR_US);
        instance_close(&in);
    }
}

static void damaged_documents_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } rows[] = {
        { "", "empty" },
        { "{\"v\":1}", "members missing" },
        { "{\"v\":3,\"instance\":\"a\",\"service\":\"s\",\"pool\":\"p\",\"offer\":\"o\","
          "\"controller_host\":\"h\",\"controller_port\":1,\"engine_host\":\"h\","
          "\"engine_args\":[\"x\"]}",
          "another version" },
        { "{\"v\":1,\"instance\":\"a\",\"service\":\"s\",\"pool\":\"p\",\"offer\":\"o\","
          "\"controller_host\":\"h\",\"controller_port\":70000,\"engine_host\":\"h\","
          "\"engine_args\":[\"x\"]}",
          "a port that is none" },
        { "{\"v\":1,\"instance\":\"a\",\"service\":\"s\",\"pool\":\"p\",\"offer\":\"o\","
          "\"controller_host\":\"h\",\"controller_port\":1,\"engine_host\":\"h\","
          "\"engine_args\":[]}",
          "no program" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_int_equal(file_write_atomic(path, str_from(rows[i].text), 0600, NULL), 0);
        struct instance in;
        struct err err = { 0 };
        int rc = instance_open(&in, str_from(path), &err);
        if (rc >= 0 || !err.text[0]) fail_msg("%s: %d", rows[i].why, rc);
        instance_close(&in);
    }
}

static void one_agent_an_instance(void **state)
{
    (void)state;
    struct instance first, second;
    assert_int_equal(instance_open(&first, str_from(path), NULL), 0);
    assert_int_equal(instance_open(&second, str_from(path), NULL), 0);
    assert_int_equal(instance_lock(&first, NULL), 0);
    assert_int_equal(instance_lock(&second, NULL), -EBUSY);
    instance_close(&first);
    assert_int_equal(instance_lock(&second, NULL), 0);
    instance_close(&second);
}

static void an_engine_is_known_by_what_it_wrote(void **state)
{
    (void)state;
    struct instance in;
    struct proc found;
    uint16_t port = 0;
    assert_int_equal(instance_open(&in, str_from(path), NULL), 0);
    assert_int_equal(instance_find_engine(&in, &found, &port), -ENOENT);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        instance_become_engine(&in, 8299, NULL);
        _exit(1);
    }
    for (int i = 0; i < 12000 && instance_find_engine(&in, &found, &port) < 0; i++)
        usleep(5000);
    assert_int_equal(port, 8299);
    assert_int_equal(found.id.pid, pid); /* the same process: its identity outlived the exec */
    proc_close(&found);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(instance_find_engine(&in, &found, &port), -ENOENT); /* dead: not found */
    instance_close(&in);
}

static off_t size_of(const char *file)
{
    char at[256];
    struct stat st;
    snprintf(at, sizeof at, "%s/%s", folder, file);
    return stat(at, &st) == 0 ? st.st_size : -1;
}

/* The engine may be any program: it appends to its own descriptor and knows nothing of the
 * agent. */
static void the_engines_log_is_bounded(void **state)
{
    (void)state;
    struct instance in;
    char log[256], line[1000];
    memset(line, 'x', sizeof line);
    assert_int_equal(instance_open(&in, str_from(path), NULL), 0);
    instance_bound_log(&in, 65536); /* the log does not exist yet */
    snprintf(log, sizeof log, "%s/engine.log", folder);
    int fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    for (int i = 1; i <= 200; i++) {
        assert_int_equal(write(fd, line, sizeof line), sizeof line);
        instance_bound_log(&in, 65536);
        assert_true(size_of("engine.log") < 65536 + (off_t)sizeof line);
        assert_int_equal(size_of("engine.log"), i % 66 * (off_t)sizeof line);
        assert_int_equal(size_of("engine.log.1"), i < 66 ? -1 : 66 * (off_t)sizeof line);
    }
    close(fd);
    instance_close(&in);
}

/* Runs the engine of a document of this kind, whose program is a shell that writes its arguments to a file. */
static void become(enum engine_kind kind, bool kv_events, struct buf *ret_args)
{
    static const struct str args[] = { { "/bin/sh", 7 },
                                       { "-c", 2 },
                                       { "echo \"$VLLM_NO_USAGE_STATS $*\" > \"$0\"", 37 } };
    char out[160];
    struct instance in;
    struct launch_spec spec;
    snprintf(out, sizeof out, "%s/args", folder);
    assert_int_equal(instance_open(&in, str_from(path), NULL), 0);
    struct str command[4] = { args[0], args[1], args[2], str_from(out) };
    spec = in.spec;
    spec.kind = kind;
    spec.engine_args = command;
    spec.engine_arg_count = 4;
    spec.model = STR("/m");
    spec.kv_events = kv_events;
    in.spec = spec;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        instance_become_engine(&in, 8299, NULL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(file_read(out, 4096, ret_args, NULL), 0);
    instance_close(&in);
}

static void an_engine_of_another_kind_gets_a_command_line_of_its_own(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf vllm = { 0 }, quiet = { 0 }, llama = { 0 };
    char socket[128];
    snprintf(socket, sizeof socket, "ipc://%s/kv.events", folder);
    become(ENGINE_VLLM, true, &vllm);
    assert_true(str_starts(buf_view(&vllm), STR("1 --model /m --host 127.0.0.1 --port 8299")));
    assert_non_null(strstr(vllm.data, socket));
    become(ENGINE_VLLM, false, &quiet);
    assert_null(strstr(quiet.data, "kv.events"));
    become(ENGINE_LLAMA_SERVER, true, &llama);
    assert_null(strstr(llama.data, "kv.events")); /* it publishes none */
    assert_true(str_starts(buf_view(&llama), STR(" --model /m --host 127.0.0.1 --port 8299")));
}

static void a_kind_that_is_only_adopted_is_not_started(void **state)
{
    (void)state;
    struct instance in;
    struct err err = { 0 };
    assert_int_equal(instance_open(&in, str_from(path), NULL), 0);
    in.spec.kind = ENGINE_OPENAI;
    assert_int_equal(instance_become_engine(&in, 8299, &err), -EINVAL);
    assert_non_null(strstr(err.text, "openai"));
    instance_close(&in);
}

static void an_adopted_engine_has_the_same_name_each_time(void **state)
{
    (void)state;
    struct instance in[3];
    char events[INSTANCE_SOCKET_BYTES], replay[INSTANCE_SOCKET_BYTES];
    struct launch_spec spec = { .kind = ENGINE_VLLM,
                                .engine_host = STR("10.0.0.7"),
                                .kv_events = true };
    const uint16_t port[] = { 8000, 8000, 8001 };
    for (int i = 0; i < 3; i++)
        assert_int_equal(instance_adopt(&in[i], &spec, port[i], NULL), 0);
    assert_true(str_eq(in[0].spec.instance, in[1].spec.instance));
    assert_false(str_eq(in[0].spec.instance, in[2].spec.instance));
    assert_false(instance_kv_paths(&in[0], events, replay)); /* its folder is not ours */
    for (int i = 0; i < 3; i++)
        instance_close(&in[i]);
    spec.instance = STR("theirs");
    assert_int_equal(instance_adopt(&in[0], &spec, 8000, NULL), 0);
    assert_true(str_eq(in[0].spec.instance, STR("theirs")));
    instance_close(&in[0]);
}

static void nobody_becomes_the_engine_of_a_folder_that_is_gone(void **state)
{
    (void)state;
    struct instance in;
    assert_int_equal(instance_open(&in, str_from(path), NULL), 0);
    assert_int_equal(tear_down(NULL), 0);
    struct err err = { 0 };
    assert_true(instance_become_engine(&in, 8299, &err) < 0); /* success replaces this process */
    instance_close(&in);
}

/* The agent in a Pod of a workload: the document is empty until a child, in place of a kubelet, writes it. */
static void an_empty_document_is_waited_for(void **state)
{
    (void)state;
    struct instance in;
    CLEANUP(buf_fini) struct buf text = { 0 };
    char late[160];
    assert_int_equal(file_read(path, 1 << 16, &text, NULL), 0);
    snprintf(late, sizeof late, "%s/late.json", folder);
    assert_int_equal(file_write_atomic(late, STR(""), 0600, NULL), 0);
    int64_t begin_us = clock_mono_us();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        usleep(300000);
        _exit(file_write_atomic(late, buf_view(&text), 0600, NULL) < 0);
    }
    instance_await(str_from(late));
    assert_true(clock_mono_us() - begin_us >= 300000);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(instance_open(&in, str_from(late), NULL), 0);
    assert_true(str_eq(in.spec.instance, STR("i-1")));
    instance_close(&in);
    instance_await(STR("/nonexistent/launch.json")); /* instance_open says what is wrong with it */
}

int main(void)
{
#define ROW(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ROW(the_document_reads_back),
        ROW(the_date_moves_nothing),
        ROW(damaged_documents_are_refused),
        ROW(one_agent_an_instance),
        ROW(an_engine_is_known_by_what_it_wrote),
        ROW(an_engine_of_another_kind_gets_a_command_line_of_its_own),
        ROW(a_kind_that_is_only_adopted_is_not_started),
        ROW(an_adopted_engine_has_the_same_name_each_time),
        ROW(the_engines_log_is_bounded),
        ROW(an_empty_document_is_waited_for),
        ROW(nobody_becomes_the_engine_of_a_folder_that_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
