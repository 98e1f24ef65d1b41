/* proc.c - starts processes, recognises them after a restart of our own, and signals no other process.
 *
 *     parent                              child
 *     prepare argv, environment, files
 *     block signals, fork  ------------>  session, death signal, stdio, close the rest, exec
 *     read the status pipe <------------  nothing (close-on-exec) or {step, errno}
 *
 * Between fork and exec only async-signal-safe calls run, because the parent may have threads:
 * all memory is made before. pidfd calls go through syscall(), whose wrappers are younger than
 * the C libraries we build with.
 */
#include "base/io/proc.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STAT_BYTES_MAX 1024 /* of /proc/PID/stat; a line is about 300 */
#define OOM_BYTES_MAX 4096  /* of a control group's counters; version 2 has ten lines */
#define STATUS_FD 3         /* the status pipe in the child: the last descriptor kept */

extern char **environ;

/* ---- identity ---- */

static ssize_t read_small(const char *path, char *ret, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, ret, size - 1);
    close(fd);
    if (n >= 0) ret[n] = 0;
    return n;
}

static uint64_t boot_digest;
static pthread_once_t boot_once = PTHREAD_ONCE_INIT;

static void boot_read(void)
{
    char text[64];
    ssize_t n = read_small("/proc/sys/kernel/random/boot_id", text, sizeof text);
    if (n > 0) boot_digest = hash64(text, (size_t)n, 0);
}

/* Reads state letter and start time. The name in parentheses may itself hold parentheses and blanks,
 * so fields are counted behind the last ')': the state is the 1st there, the start the 20th. */
static int stat_read(pid_t pid, char *ret_state, uint64_t *ret_start)
{
    char path[32], text[STAT_BYTES_MAX];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (read_small(path, text, sizeof text) <= 0) return -ESRCH;
    const char *end = strrchr(text, ')');
    if (!end || end[1] != ' ') return -ESRCH;
    struct str rest = str_from(end + 2);
    struct str state = str_cut(&rest, ' ');
    for (int field = 4; field < 22; field++)
        str_cut(&rest, ' ');
    uint64_t start;
    if (state.len != 1 || str_to_u64(str_cut(&rest, ' '), &start) < 0) return -ESRCH;
    *ret_state = state.data[0];
    *ret_start = start;
    return 0;
}

/* A limit of 0 stops core files, but not a program to which the kernel hands the dump (core(5), core_pattern). */
int proc_guard_memory(struct err *err)
{
    struct rlimit core;
    int rc = getrlimit(RLIMIT_CORE, &core);
    core.rlim_cur = 0;
    if (rc == 0) rc = setrlimit(RLIMIT_CORE, &core);
    if (rc == 0) rc = prctl(PR_SET_DUMPABLE, 0);
    return rc < 0 ? err_set(err, -errno, "core dumps cannot be turned off: %s", strerror(errno))
                  : 0;
}

int proc_hash_key_draw(struct err *err)
{
    struct hash_key key;
    if (FAULT("proc.random") || getrandom(&key, sizeof key, 0) != sizeof key)
        return err_set(err, -EIO, "no random bytes for the key of this process's tables");
    hash_key_set(&key);
    return 0;
}

int proc_id_of(pid_t pid, struct proc_id *ret)
{
    char state;
    uint64_t start;
    if (pid <= 0 || stat_read(pid, &state, &start) < 0) return -ESRCH;
    pthread_once(&boot_once, boot_read);
    *ret = (struct proc_id){ .pid = pid, .start_ticks = start, .boot = boot_digest };
    return 0;
}

struct proc_id proc_id_self(void)
{
    struct proc_id id = { 0 };
    must(proc_id_of(getpid(), &id) == 0);
    return id;
}

bool proc_id_eq(const struct proc_id *a, const struct proc_id *b)
{
    return a->pid == b->pid && a->start_ticks == b->start_ticks && a->boot == b->boot;
}

bool proc_is_alive(const struct proc_id *id)
{
    char state;
    uint64_t start;
    if (id->pid <= 0 || id->pid > INT_MAX || stat_read((pid_t)id->pid, &state, &start) < 0)
        return false;
    pthread_once(&boot_once, boot_read);
    return start == id->start_ticks && id->boot == boot_digest && state != 'Z' && state != 'X';
}

void proc_id_print(const struct proc_id *id, char ret[PROC_ID_TEXT_MAX])
{
    snprintf(ret, PROC_ID_TEXT_MAX, "pid %" PRId64 " start %" PRIu64 " boot %016" PRIx64, id->pid,
             id->start_ticks, id->boot);
}

int proc_id_parse(struct str text, struct proc_id *ret)
{
    struct str rest = text;
    struct proc_id id;
    uint8_t boot[8];
    bool fits = str_eq(str_cut(&rest, ' '), STR("pid")) &&
                str_to_i64(str_cut(&rest, ' '), &id.pid) == 0 && id.pid > 0 && id.pid <= INT_MAX &&
                str_eq(str_cut(&rest, ' '), STR("start")) &&
                str_to_u64(str_cut(&rest, ' '), &id.start_ticks) == 0 &&
                str_eq(str_cut(&rest, ' '), STR("boot")) && hex_to(rest, boot, sizeof boot) == 0;
    if (!fits) return -EINVAL;
    id.boot = 0;
    for (size_t i = 0; i < sizeof boot; i++)
        id.boot = id.boot << 8 | boot[i];
    *ret = id;
    return 0;
}

int proc_self_path(char *ret, size_t size)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    if (n < 0) return -errno;
    struct str real = str_of(path, (size_t)n);
    /* The file was replaced while we run: the link still opens the running program. */
    if (str_ends(real, STR(" (deleted)"))) real = STR("/proc/self/exe");
    if (real.len >= size) return -ENAMETOOLONG;
    memcpy(ret, real.data, real.len);
    ret[real.len] = 0;
    return 0;
}

/* ---- signals ---- */

static int pidfd_open_id(const struct proc_id *id)
{
    if (id->pid <= 0 || id->pid > INT_MAX) return -ESRCH;
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)id->pid, 0);
    if (fd < 0) return -errno;
    /* Checked after opening: from here on the descriptor means this process and no other. */
    if (proc_is_alive(id)) return fd;
    close(fd);
    return -ESRCH;
}

static int signal_failed(const struct proc_id *id, int signo, int rc, struct err *err)
{
    if (rc == -ESRCH)
        return err_set(err, rc, "signal %d: process %" PRId64 " has ended", signo, id->pid);
    return err_set(err, rc, "signal %d to process %" PRId64 ": %s", signo, id->pid, strerror(-rc));
}

int proc_signal(const struct proc_id *id, int signo, struct err *err)
{
    int fd = pidfd_open_id(id);
    if (fd < 0) return signal_failed(id, signo, fd, err);
    int rc = syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0) < 0 ? -errno : 0;
    close(fd);
    return rc < 0 ? signal_failed(id, signo, rc, err) : 0;
}

int proc_signal_group(const struct proc_id *id, int signo, struct err *err)
{
    int fd = pidfd_open_id(id);
    if (fd < 0) return signal_failed(id, signo, fd, err);
    /* There is no pidfd for a group. A number that is still a group's is not given to a new
     * process, so while one member lives this cannot reach strangers. */
    int rc = getpgid((pid_t)id->pid) != (pid_t)id->pid ? -EPERM
             : kill(-(pid_t)id->pid, signo) < 0        ? -errno
                                                       : 0;
    close(fd);
    return rc < 0 ? signal_failed(id, signo, rc, err) : 0;
}

/* ---- spawn ---- */

enum step { STEP_SESSION, STEP_STDIO, STEP_CWD, STEP_EXEC };

static const char *const step_texts[] = {
    [STEP_SESSION] = "start a session for",
    [STEP_STDIO] = "set up the files of",
    [STEP_CWD] = "enter the folder of",
    [STEP_EXEC] = "run",
};

struct failure {
    int step;
    int code;
};

/* Everything that the child needs, made before the fork. */
struct plan {
    char path[PATH_MAX];
    const char *const *argv;
    const char *cwd;
    char **env;
    pid_t parent;
    int in_fd, log_fd;  /* log_fd -1: our stdout and stderr */
    int out_fd, err_fd; /* -1: as log_fd says */
    int status_fd;
    bool detached;
};

_Noreturn static void child_fail(int fd, enum step step)
{
    struct failure f = { step, errno };
    ssize_t n = write(fd, &f, sizeof f);
    _exit(n == sizeof f ? 127 : 126);
}

static void child_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    struct sigaction plain = { .sa_handler = SIG_DFL };
    for (int signo = 1; signo < NSIG; signo++)
        sigaction(signo, &plain, NULL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

_Noreturn static void child_run(const struct plan *p)
{
    int status = p->status_fd;
    if (setsid() < 0) child_fail(status, STEP_SESSION);
    if (!p->detached) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) child_fail(status, STEP_SESSION);
        if (getppid() != p->parent) _exit(126); /* died before it could be noticed */
    }
    if (dup2(p->in_fd, 0) < 0) child_fail(status, STEP_STDIO);
    if (p->log_fd >= 0 && (dup2(p->log_fd, 1) < 0 || dup2(p->log_fd, 2) < 0))
        child_fail(status, STEP_STDIO);
    if (p->out_fd >= 0 && dup2(p->out_fd, 1) < 0) child_fail(status, STEP_STDIO);
    if (p->err_fd >= 0 && dup2(p->err_fd, 2) < 0) child_fail(status, STEP_STDIO);
    if (status != STATUS_FD) {
        if (dup3(status, STATUS_FD, O_CLOEXEC) < 0) child_fail(status, STEP_STDIO);
        status = STATUS_FD;
    }
    /* Ours are close-on-exec already; this is for the descriptors of libraries. Kernels before
     * 5.9 do not have the call and lose only that. */
    syscall(SYS_close_range, STATUS_FD + 1, ~0U, 0);
    if (p->cwd && chdir(p->cwd) < 0) child_fail(status, STEP_CWD);
    child_signals();
    execve(p->path, (char *const *)(uintptr_t)p->argv, p->env);
    child_fail(status, STEP_EXEC);
}

/* Finds argv[0] along PATH, as execvp would, but before the fork. */
static int path_find(const char *name, char ret[PATH_MAX])
{
    if (strchr(name, '/'))
        return snprintf(ret, PATH_MAX, "%s", name) < PATH_MAX ? 0 : -ENAMETOOLONG;
    const char *path = getenv("PATH");
    struct str rest = str_from(path ? path : "/usr/local/bin:/usr/bin:/bin");
    while (rest.data) {
        struct str folder = str_cut(&rest, ':');
        if (folder.len == 0) folder = STR(".");
        int n = snprintf(ret, PATH_MAX, STR_FMT "/%s", STR_ARG(folder), name);
        struct stat st;
        if (n < PATH_MAX && access(ret, X_OK) == 0 && stat(ret, &st) == 0 && S_ISREG(st.st_mode))
            return 0;
    }
    return -ENOENT;
}

static bool env_has(const char *const *add, const char *entry)
{
    size_t len = strcspn(entry, "=");
    for (; add && *add; add++)
        if (strncmp(*add, entry, len) == 0 && (*add)[len] == '=') return true;
    return false;
}

/* Makes the child's environment: ours without the names in `add`, unless it is `alone`, then `add`. The
 * strings are borrowed, the array is malloc'd. */
static int env_make(const char *const *add, bool alone, char ***ret)
{
    size_t ours = 0, more = 0, n = 0;
    while (!alone && environ && environ[ours])
        ours++;
    while (add && add[more])
        more++;
    if (more > PROC_ARGS_MAX) return -E2BIG;
    char **env = FAULT("proc.alloc") ? NULL : calloc(ours + more + 1, sizeof *env);
    if (!env) return -ENOMEM;
    for (size_t i = 0; i < ours; i++)
        if (!env_has(add, environ[i])) env[n++] = environ[i];
    for (size_t i = 0; i < more; i++)
        env[n++] = (char *)(uintptr_t)add[i];
    *ret = env;
    return 0;
}

/* Moves a descriptor above STATUS_FD, so that dup2 in the child cannot overwrite it. */
static int above_standard(int fd)
{
    if (fd < 0 || fd > STATUS_FD) return fd;
    int up = fcntl(fd, F_DUPFD_CLOEXEC, STATUS_FD + 1);
    int code = errno;
    close(fd);
    errno = code;
    return up;
}

/* Copies a descriptor of the caller above STATUS_FD; leaves *ret alone when there is none. */
static int copy_above(int fd, int *ret)
{
    if (fd <= 0) return 0;
    *ret = fcntl(fd, F_DUPFD_CLOEXEC, STATUS_FD + 1);
    return *ret < 0 ? -errno : 0;
}

static void plan_fini(struct plan *p)
{
    if (p->in_fd >= 0) close(p->in_fd);
    if (p->log_fd >= 0) close(p->log_fd);
    if (p->out_fd >= 0) close(p->out_fd);
    if (p->err_fd >= 0) close(p->err_fd);
    if (p->status_fd >= 0) close(p->status_fd);
    free(p->env);
}

static int plan_make(const struct proc_spec *spec, struct plan *p, int *ret_status, struct err *err)
{
    size_t args = 0;
    while (spec->argv[args])
        args++;
    must(args > 0);
    if (args > PROC_ARGS_MAX) return err_set(err, -E2BIG, "more than %d arguments", PROC_ARGS_MAX);
    int rc = path_find(spec->argv[0], p->path);
    if (rc < 0) return err_set(err, rc, "cannot run %s: %s", spec->argv[0], strerror(-rc));
    rc = env_make(spec->env_add, spec->env_alone, &p->env);
    if (rc < 0) return err_set(err, rc, "cannot run %s: %s", spec->argv[0], strerror(-rc));
    if (spec->in_fd == 0) p->in_fd = above_standard(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (spec->in_fd == 0 && p->in_fd < 0)
        return err_set(err, -errno, "cannot open /dev/null: %s", strerror(errno));
    if (spec->log_path) {
        int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
        p->log_fd = above_standard(open(spec->log_path, flags, 0600));
        if (p->log_fd < 0)
            return err_set(err, -errno, "cannot open the log %s: %s", spec->log_path,
                           strerror(errno));
    }
    rc = copy_above(spec->in_fd, &p->in_fd);
    if (rc == 0) rc = copy_above(spec->out_fd, &p->out_fd);
    if (rc == 0) rc = copy_above(spec->err_fd, &p->err_fd);
    if (rc < 0) return err_set(err, rc, "cannot run %s: %s", spec->argv[0], strerror(-rc));
    int ends[2];
    if (FAULT("proc.pipe") || pipe2(ends, O_CLOEXEC) < 0)
        return err_set(err, -EMFILE, "cannot run %s: no descriptors left", spec->argv[0]);
    *ret_status = ends[0];
    p->status_fd = above_standard(ends[1]);
    if (p->status_fd < 0)
        return err_set(err, -EMFILE, "cannot run %s: no descriptors left", spec->argv[0]);
    return 0;
}

/* Forks with signals blocked, so that no handler of ours runs in the child. */
static pid_t fork_quiet(const struct plan *p)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = FAULT("proc.fork") ? (errno = EAGAIN, -1) : fork();
    if (pid == 0) child_run(p);
    int code = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = code;
    return pid;
}

static void wait_gone(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* Reads the status pipe until exec has closed it or the child has reported a failure. */
static int status_read(int fd, struct failure *ret)
{
    ssize_t n;
    do
        n = read(fd, ret, sizeof *ret);
    while (n < 0 && errno == EINTR);
    return n == sizeof *ret ? -1 : 0;
}

static int child_started(pid_t pid, int status, const char *name, struct proc *ret, struct err *err)
{
    struct failure f = { 0 };
    if (status_read(status, &f) < 0) {
        wait_gone(pid);
        return err_set(err, -f.code, "cannot %s %s: %s", step_texts[f.step], name,
                       strerror(f.code));
    }
    struct proc p = { .child = true };
    p.pidfd = FAULT("proc.pidfd") ? (errno = EMFILE, -1) : (int)syscall(SYS_pidfd_open, pid, 0);
    int rc = p.pidfd < 0 ? -errno : proc_id_of(pid, &p.id);
    if (rc < 0) {
        kill(pid, SIGKILL);
        wait_gone(pid);
        if (p.pidfd >= 0) close(p.pidfd);
        return err_set(err, rc, "cannot watch %s: %s", name, strerror(-rc));
    }
    *ret = p;
    return 0;
}

int proc_spawn(const struct proc_spec *spec, struct proc *ret, struct err *err)
{
    CLEANUP(plan_fini)
    struct plan p = { .argv = spec->argv,
                      .cwd = spec->cwd,
                      .detached = spec->detached,
                      .parent = getpid(),
                      .in_fd = -1,
                      .log_fd = -1,
                      .out_fd = -1,
                      .err_fd = -1,
                      .status_fd = -1 };
    int status = -1;
    int rc = plan_make(spec, &p, &status, err);
    if (rc == 0) {
        pid_t pid = fork_quiet(&p);
        if (pid < 0) {
            rc = err_set(err, -errno, "cannot run %s: %s", spec->argv[0], strerror(errno));
        } else {
            close(p.status_fd); /* else its end would never be seen */
            p.status_fd = -1;
            rc = child_started(pid, status, spec->argv[0], ret, err);
        }
    }
    if (status >= 0) close(status);
    return rc;
}

int proc_adopt(const struct proc_id *id, struct proc *ret, struct err *err)
{
    int fd = pidfd_open_id(id);
    if (fd < 0)
        return err_set(err, fd, "cannot watch process %" PRId64 ": %s", id->pid, strerror(-fd));
    *ret = (struct proc){ .id = *id, .pidfd = fd };
    return 0;
}

void proc_close(struct proc *p)
{
    if (p->id.pid != 0) close(p->pidfd);
    *p = (struct proc){ 0 };
}

/* ---- the end ---- */

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd watch = { .fd = fd, .events = POLLIN };
    return poll(&watch, 1, timeout_ms) > 0;
}

int proc_reap(struct proc *p, struct proc_exit *ret)
{
    if (!is_readable(p->pidfd, 0)) return -EAGAIN;
    struct proc_exit exit = { 0 };
    siginfo_t info = { 0 };
    /* The pid is safe to use: until a child is reaped, no other process gets its pid. */
    if (p->child && waitid(P_PID, (id_t)p->id.pid, &info, WEXITED | WNOHANG) == 0 &&
        info.si_pid != 0) {
        exit.known = true;
        exit.killed = info.si_code != CLD_EXITED;
        exit.code = info.si_status;
    }
    p->child = false;
    *ret = exit;
    return 0;
}

uint32_t proc_reap_all(void)
{
    uint32_t count = 0;
    siginfo_t info = { 0 };
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
        count++;
        info.si_pid = 0;
    }
    return count;
}

int proc_wait(struct proc *p, int64_t timeout_us, struct proc_exit *ret)
{
    int64_t until = clock_mono_us() + timeout_us;
    for (;;) {
        int64_t left_ms = (until - clock_mono_us() + 999) / 1000;
        if (is_readable(p->pidfd, (int)min_i64(max_i64(left_ms, 0), INT_MAX)))
            return proc_reap(p, ret);
        if (left_ms <= 0) return -ETIMEDOUT;
    }
}

uint64_t proc_oom_kills(void)
{
    /* A container sees its own group at the root of the hierarchy, of either version. */
    static const char *const paths[] = { "/sys/fs/cgroup/memory.events",
                                         "/sys/fs/cgroup/memory/memory.oom_control" };
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        if (file_read(paths[i], OOM_BYTES_MAX, &text, NULL) < 0) continue;
        const char *at = strstr(text.data, "oom_kill ");
        if (at) return strtoull(at + strlen("oom_kill "), NULL, 10);
    }
    return 0;
}
