/* t_proc.c - tests our own and foreign child processes: identity, signals, ends, what exec
 * refuses. */
#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "base/io/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SECONDS 1000000
#define WAIT_US (60 * SECONDS)

static char folder[] = "/tmp/t_proc.XXXXXX";
static char log_path[64];

static int clean(void **state)
{
    (void)state;
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    unlink(log_path);
    return 0;
}

static struct proc spawn(const char *script, bool detached)
{
    const char *const argv[] = { "sh", "-c", script, NULL };
    const char *const env[] = { "MUSTER_TEST=new", "PATH=/usr/bin:/bin", NULL };
    struct proc_spec spec = {
        .argv = argv, .env_add = env, .cwd = folder, .log_path = log_path, .detached = detached
    };
    struct proc p = { 0 };
    struct err err = { 0 };
    if (proc_spawn(&spec, &p, &err) < 0) fail_msg("%s", err.text);
    assert_true(p.child);
    return p;
}

static struct proc_exit wait_for(struct proc *p)
{
    struct proc_exit exit = { 0 };
    assert_int_equal(proc_wait(p, WAIT_US, &exit), 0);
    return exit;
}

static void child_runs_as_asked(void **state)
{
    (void)state;
    /* A descriptor without close-on-exec must not reach the child. */
    int leak = open("/dev/null", O_RDONLY);
    setenv("MUSTER_TEST", "old", 1);
    setenv("MUSTER_KEPT", "kept", 1);
    /* `ls` has four: its own three and the folder that it reads. The shell's are not counted,
     * because it holds the ends of its pipes for a moment. */
    struct proc p = spawn("echo $MUSTER_TEST $MUSTER_KEPT; pwd; echo err >&2; cat; "
                          "test $(ps -o sid= -p $$ 2>/dev/null || cut -d' ' -f6 /proc/$$/stat) "
                          "-eq $$ && echo session; ls /proc/self/fd | wc -l; exit 7",
                          true);
    struct proc_exit exit = wait_for(&p);
    proc_close(&p);
    close(leak);
    assert_true(exit.known && !exit.killed);
    assert_int_equal(exit.code, 7);
    CLEANUP(buf_fini) struct buf out = { 0 };
    char expected[160];
    assert_int_equal(file_read(log_path, 4096, &out, NULL), 0);
    snprintf(expected, sizeof expected, "new kept\n%s\nerr\nsession\n4\n", folder);
    assert_string_equal(out.data, expected);
}

/* It reads what it is given, and with env_alone has no variable but those that it was given. */
static void child_gets_input_and_no_more(void **state)
{
    (void)state;
    const char *const argv[] = { "/bin/sh", "-c", "cat; /usr/bin/env | grep -c MUSTER", NULL };
    const char *const env[] = { "MUSTER_TEST=new", NULL };
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    setenv("MUSTER_KEPT", "kept", 1);
    struct proc_spec spec = {
        .argv = argv, .env_add = env, .env_alone = true, .log_path = log_path, .in_fd = ends[0]
    };
    struct proc p = { 0 };
    assert_int_equal(proc_spawn(&spec, &p, NULL), 0);
    close(ends[0]);
    assert_int_equal(write(ends[1], "given\n", 6), 6);
    close(ends[1]);
    wait_for(&p);
    proc_close(&p);
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(file_read(log_path, 100, &out, NULL), 0);
    assert_string_equal(out.data, "given\n1\n");
}

static void log_is_appended(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct proc p = spawn("echo line", true);
        wait_for(&p);
        proc_close(&p);
    }
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(file_read(log_path, 100, &out, NULL), 0);
    assert_string_equal(out.data, "line\nline\n");
}

static void ends_are_told_apart(void **state)
{
    (void)state;
    struct proc p = spawn("sleep 100", true);
    struct proc_exit exit;
    assert_int_equal(proc_reap(&p, &exit), -EAGAIN);
    assert_int_equal(proc_wait(&p, 20000, &exit), -ETIMEDOUT);
    assert_true(proc_is_alive(&p.id));
    assert_int_equal(proc_signal(&p.id, SIGTERM, NULL), 0);
    exit = wait_for(&p);
    assert_true(exit.known && exit.killed);
    assert_int_equal(exit.code, SIGTERM);
    /* An ended child is neither alive nor signalled, and a second reap reports nothing. */
    assert_false(proc_is_alive(&p.id));
    struct err err = { 0 };
    assert_int_equal(proc_signal(&p.id, SIGTERM, &err), -ESRCH);
    assert_non_null(strstr(err.text, "has ended"));
    assert_int_equal(proc_reap(&p, &exit), 0);
    assert_false(exit.known);
    proc_close(&p);
    proc_close(&p);
}

/* A zombie counts as ended, although its number is still taken. */
static void zombie_is_not_alive(void **state)
{
    (void)state;
    struct proc p = spawn("exit 0", true);
    int64_t until = clock_mono_us() + WAIT_US;
    while (proc_is_alive(&p.id) && clock_mono_us() < until)
        usleep(1000);
    assert_false(proc_is_alive(&p.id));
    assert_int_equal(kill((pid_t)p.id.pid, 0), 0);
    assert_int_equal(proc_signal(&p.id, SIGTERM, NULL), -ESRCH);
    wait_for(&p);
    proc_close(&p);
}

static void strangers_get_no_signal(void **state)
{
    (void)state;
    struct proc p = spawn("sleep 100", true);
    struct proc other = { 0 };
    struct proc_id wrong[3] = { p.id, p.id, p.id };
    wrong[0].start_ticks++;
    wrong[1].boot ^= 1;
    wrong[2].pid = 0;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        assert_false(proc_is_alive(&wrong[i]));
        assert_int_equal(proc_signal(&wrong[i], SIGKILL, NULL), -ESRCH);
        assert_int_equal(proc_signal_group(&wrong[i], SIGKILL, NULL), -ESRCH);
        assert_int_equal(proc_adopt(&wrong[i], &other, NULL), -ESRCH);
    }
    assert_true(proc_is_alive(&p.id));
    assert_int_equal(proc_signal_group(&p.id, SIGKILL, NULL), 0);
    wait_for(&p);
    proc_close(&p);
    /* The test's own process is alive. */
    struct proc_id self = proc_id_self();
    assert_true(proc_is_alive(&self));
    assert_int_equal(self.pid, getpid());
}

static void group_dies_with_its_leader(void **state)
{
    (void)state;
    struct proc p = spawn("sleep 100 & echo $! > child; wait", true);
    char child[64];
    snprintf(child, sizeof child, "%s/child", folder);
    CLEANUP(buf_fini) struct buf text = { 0 };
    int64_t until = clock_mono_us() + WAIT_US, pid = 0;
    while (pid == 0 && clock_mono_us() < until) {
        buf_clear(&text);
        usleep(1000);
        if (file_read(child, 32, &text, NULL) == 0 && text.len > 1)
            str_to_i64(str_of(text.data, text.len - 1), &pid);
    }
    struct proc_id grandchild;
    assert_int_equal(proc_id_of((pid_t)pid, &grandchild), 0);
    struct proc adopted = { 0 };
    assert_int_equal(proc_adopt(&grandchild, &adopted, NULL), 0);
    assert_false(adopted.child);
    assert_int_equal(proc_signal_group(&p.id, SIGKILL, NULL), 0);
    struct proc_exit exit = wait_for(&adopted);
    assert_false(exit.known);
    wait_for(&p);
    proc_close(&adopted);
    proc_close(&p);
    unlink(child);
}

static void refusals_are_told_here(void **state)
{
    (void)state;
    static const char *const missing[] = { "muster-no-such-program", NULL };
    static const char *const no_file[] = { "/nonexistent/program", NULL };
    static const char *const not_executable[] = { "/etc/passwd", NULL };
    static const char *const good[] = { "true", NULL };
    const struct {
        struct proc_spec spec;
        int rc;
        const char *sentence;
    } rows[] = {
        { { .argv = missing }, -ENOENT, "cannot run muster-no-such-program" },
        { { .argv = no_file }, -ENOENT, "cannot run /nonexistent/program" },
        { { .argv = not_executable }, -EACCES, "cannot run /etc/passwd" },
        { { .argv = good, .cwd = "/nonexistent" }, -ENOENT, "cannot enter the folder of true" },
        { { .argv = good, .log_path = "/nonexistent/log" }, -ENOENT, "cannot open the log" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct proc p = { 0 };
        struct err err = { 0 };
        assert_int_equal(proc_spawn(&rows[i].spec, &p, &err), rows[i].rc);
        if (!strstr(err.text, rows[i].sentence)) fail_msg("%s", err.text);
        assert_int_equal(p.id.pid, 0);
    }
    static const char *const points[] = { "proc.alloc", "proc.pipe", "proc.fork", "proc.pidfd" };
    for (size_t i = 0; i < COUNT_OF(points); i++) {
        struct proc p = { 0 };
        fault_arm(points[i], 1);
        assert_true(proc_spawn(&(struct proc_spec){ .argv = good }, &p, NULL) < 0);
        fault_disarm();
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie is left */
}

static size_t open_descriptors(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void no_descriptor_is_lost(void **state)
{
    (void)state;
    size_t before = open_descriptors();
    refusals_are_told_here(NULL);
    struct proc p = spawn("exit 0", true);
    wait_for(&p);
    proc_close(&p);
    assert_int_equal(open_descriptors(), before);
}

/* A parent spawns two children and is killed: the detached one lives on and can be adopted, the
 * other dies. */
static void detached_outlives_its_parent(void **state)
{
    (void)state;
    for (int detached = 0; detached < 2; detached++) {
        int ends[2];
        struct proc_id id;
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        pid_t parent = fork();
        if (parent == 0) {
            struct proc p = spawn("sleep 100", detached);
            if (write(ends[1], &p.id, sizeof p.id) == sizeof p.id) pause();
            _exit(1);
        }
        assert_int_equal(read(ends[0], &id, sizeof id), sizeof id);
        struct proc p = { 0 };
        assert_int_equal(proc_adopt(&id, &p, NULL), 0);
        kill(parent, SIGKILL);
        waitpid(parent, NULL, 0);
        struct proc_exit exit;
        if (detached) {
            assert_int_equal(proc_wait(&p, 50000, &exit), -ETIMEDOUT);
            assert_true(proc_is_alive(&id));
            assert_int_equal(proc_signal(&id, SIGKILL, NULL), 0);
        }
        assert_int_equal(proc_wait(&p, WAIT_US, &exit), 0);
        assert_false(exit.known);
        proc_close(&p);
        close(ends[0]);
        close(ends[1]);
    }
}

static void signals_start_plain(void **state)
{
    (void)state;
    sigset_t block;
    sigemptyset(&block);
    sigaddset(&block, SIGTERM);
    sigprocmask(SIG_BLOCK, &block, NULL);
    signal(SIGTERM, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    struct proc p = spawn("grep -E '^Sig(Blk|Ign)' /proc/self/status", true);
    wait_for(&p);
    proc_close(&p);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &block, NULL);
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(file_read(log_path, 1000, &out, NULL), 0);
    assert_string_equal(out.data, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

static void identity_is_text_and_back(void **state)
{
    (void)state;
    struct proc_id self = proc_id_self(), back;
    char text[PROC_ID_TEXT_MAX];
    proc_id_print(&self, text);
    assert_int_equal(proc_id_parse(str_from(text), &back), 0);
    assert_true(proc_id_eq(&self, &back));
    struct proc_id large = { .pid = INT32_MAX, .start_ticks = UINT64_MAX, .boot = UINT64_MAX };
    proc_id_print(&large, text);
    assert_int_equal(proc_id_parse(str_from(text), &back), 0);
    assert_true(proc_id_eq(&large, &back));
    static const char *const wrong[] = { "",
                                         "pid 1",
                                         "pid 0 start 1 boot 0123456789abcdef",
                                         "pid 1 start 1 boot 0123456789abcde",
                                         "pid 1 start 1 boot 0123456789abcdef ",
                                         "pid 2147483648 start 1 boot 0123456789abcdef",
                                         "pid x start 1 boot 0123456789abcdef" };
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_int_equal(proc_id_parse(str_from(wrong[i]), &back), -EINVAL);
    assert_int_equal(proc_id_of(0, &back), -ESRCH);
    char path[4096];
    assert_int_equal(proc_self_path(path, sizeof path), 0);
    assert_true(str_ends(str_from(path), STR("t_proc")));
    assert_int_equal(proc_self_path(path, 4), -ENAMETOOLONG);
}

static void each_process_has_its_own_hash(void **state)
{
    (void)state;
    uint64_t fixed = hash_keyed("key", 3);
    assert_int_equal(proc_hash_key_draw(NULL), 0);
    uint64_t first = hash_keyed("key", 3);
    assert_true(first != fixed && first == hash_keyed("key", 3));
    struct err err = { "" };
    fault_arm("proc.random", 1);
    assert_int_equal(proc_hash_key_draw(&err), -EIO);
    fault_disarm();
    assert_true(err.text[0] && hash_keyed("key", 3) == first);
}

/* Of the child alone: this process goes on to be traced and dumped as it was. */
static void memory_is_guarded(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit core;
        int rc = proc_guard_memory(NULL);
        bool fine = rc == 0 && prctl(PR_GET_DUMPABLE) == 0 && getrlimit(RLIMIT_CORE, &core) == 0 &&
                    core.rlim_cur == 0;
        _exit(fine ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    if (!mkdtemp(folder)) return 1;
#define PROC_TEST(name) cmocka_unit_test_setup(name, clean)
    const struct CMUnitTest tests[] = {
        PROC_TEST(child_runs_as_asked),           PROC_TEST(log_is_appended),
        PROC_TEST(child_gets_input_and_no_more),  PROC_TEST(ends_are_told_apart),
        PROC_TEST(zombie_is_not_alive),           PROC_TEST(strangers_get_no_signal),
        PROC_TEST(group_dies_with_its_leader),    PROC_TEST(refusals_are_told_here),
        PROC_TEST(no_descriptor_is_lost),         PROC_TEST(detached_outlives_its_parent),
        PROC_TEST(signals_start_plain),           PROC_TEST(identity_is_text_and_back),
        PROC_TEST(each_process_has_its_own_hash), PROC_TEST(memory_is_guarded),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    clean(NULL);
    rmdir(folder);
    return failed;
}
