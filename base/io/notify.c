/* notify.c - the messages of sd_notify(3), without libsystemd, and a watchdog that asks every loop.
 *
 * A process whose main thread sends signs of life on a timer looks well while its other threads hang. So the
 * watch posts a task to each loop, and counts a loop as alive only once the task has run there:
 *
 *     timer:  all tasks of the last period have run?  -> WATCHDOG=1, post the next tasks
 *             one has not                             -> nothing; the manager's time runs
 *
 * The socket is opened for each message. There are few of them, and a manager that restarts binds a new socket.
 */
#include "base/io/notify.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/core/str.h"
#include "base/io/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SIGNS 3 /* of life within the manager's time: two may be lost */

struct notify_watched {
    struct loop *loop;
    atomic_bool asked; /* the task is posted and has not run */
    bool refused;      /* it could not be posted: the loop's queue was full */
};

/* Holds the manager's settings. Written by notify_open only, before other threads start. */
static struct {
    struct sockaddr_un address;
    socklen_t length; /* 0: no manager */
    int64_t watchdog_us;
    atomic_bool failed; /* a message could not be sent, and the log says so */
} manager;

/* ---- the manager's variables ---- */

static struct str variable(const char *const *environment, const char *name)
{
    size_t len = strlen(name);
    for (; environment && *environment; environment++)
        if (strncmp(*environment, name, len) == 0 && (*environment)[len] == '=')
            return str_from(*environment + len + 1);
    return (struct str){ 0 };
}

static int read_socket(struct str path, struct err *err)
{
    struct sockaddr_un *to = &manager.address;
    if (path.len == 0) return 0;
    bool abstract = path.data[0] == '@';
    if ((path.data[0] != '/' && !abstract) || path.len < 2)
        return err_set(
            err, -EINVAL,
            "NOTIFY_SOCKET is '%.80s': want the path of a socket, or @NAME of an abstract "
            "one; unset it outside a service",
            path.data);
    if (path.len >= sizeof to->sun_path)
        return err_set(err, -EINVAL, "NOTIFY_SOCKET is longer than %zu bytes",
                       sizeof to->sun_path - 1);
    to->sun_family = AF_UNIX;
    memcpy(to->sun_path, path.data, path.len);
    if (abstract) to->sun_path[0] = 0;
    /* A path ends with its NUL; an abstract name is exactly as long as the address says. */
    manager.length =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path.len + (abstract ? 0 : 1));
    return 0;
}

static int read_watchdog(struct str time, struct str pid, struct err *err)
{
    uint64_t us, wanted;
    if (time.len == 0) return 0;
    if (pid.len > 0 && str_to_u64(pid, &wanted) < 0)
        return err_set(err, -EINVAL, "WATCHDOG_PID is '%.80s': want a number", pid.data);
    if (pid.len > 0 && wanted != (uint64_t)getpid()) return 0; /* meant for another process */
    if (str_to_u64(time, &us) < 0 || us == 0 || us > INT64_MAX)
        return err_set(err, -EINVAL, "WATCHDOG_USEC is '%.80s': want microseconds above 0",
                       time.data);
    manager.watchdog_us = (int64_t)us;
    return 0;
}

int notify_open(const char *const *environment, struct err *err)
{
    notify_close();
    int rc = read_socket(variable(environment, "NOTIFY_SOCKET"), err);
    if (rc == 0 && manager.length > 0)
        rc = read_watchdog(variable(environment, "WATCHDOG_USEC"),
                           variable(environment, "WATCHDOG_PID"), err);
    if (rc < 0) notify_close();
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return rc;
}

void notify_close(void)
{
    memset(&manager.address, 0, sizeof manager.address);
    manager.length = 0;
    manager.watchdog_us = 0;
    atomic_store(&manager.failed, false);
}

/* ---- messages ---- */

static int send_message(const char *text, size_t len, int flags)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    struct timeval limit = { .tv_sec = NOTIFY_SEND_US / 1000000,
                             .tv_usec = NOTIFY_SEND_US % 1000000 };
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    ssize_t n;
    do {
        n = sendto(fd, text, len, flags | MSG_NOSIGNAL, (const void *)&manager.address,
                   manager.length);
    } while (n < 0 && errno == EINTR);
    int rc = n < 0 ? -errno : 0;
    close(fd);
    return rc;
}

static void tell(const char *text, size_t len, int flags)
{
    if (manager.length == 0) return;
    int rc = send_message(text, len, flags);
    if (rc == 0)
        atomic_store(&manager.failed, false);
    else if (!atomic_exchange(&manager.failed, true))
        log_event(LOG_WARN, "notify_failed", "message=%.*s why=%s", (int)strcspn(text, "\n"), text,
                  strerror(-rc));
}

/* Sends `state` lines and a status. */
static void tell_state(const char *state, const char *status)
{
    char text[NOTIFY_TEXT_MAX + 128];
    size_t len = (size_t)snprintf(text, sizeof text, "%s", state);
    if (status) {
        size_t from = len + strlen("STATUS=");
        len +=
            (size_t)snprintf(text + len, sizeof text - len, "STATUS=%.*s", NOTIFY_TEXT_MAX, status);
        for (size_t i = from; i < len; i++) /* a line end would begin a line of the protocol */
            if (text[i] == '\n' || text[i] == '\r') text[i] = ' ';
        text[len++] = '\n';
    }
    tell(text, len, 0);
}

void notify_ready(const char *status)
{
    tell_state("READY=1\n", status);
}

void notify_reloading(const char *status)
{
    /* The manager compares this with times of its own, which stand still while a machine is suspended;
     * clock_mono_us does not. */
    struct timespec now;
    char state[64];
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%llu\n",
             (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000);
    tell_state(state, status);
}

void notify_stopping(const char *status)
{
    tell_state("STOPPING=1\n", status);
}

/* ---- the watchdog ---- */

static void sign(void *arg)
{
    struct notify_watched *w = arg;
    atomic_store(&w->asked, false);
}

static void ask_all(struct notify_watch *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        struct notify_watched *one = &w->watched[i];
        if (atomic_exchange(&one->asked, true)) continue;
        one->refused = loop_post(one->loop, sign, one) < 0;
        if (one->refused) atomic_store(&one->asked, false);
    }
}

static uint32_t silent_loops(const struct notify_watch *w)
{
    uint32_t silent = 0;
    for (uint32_t i = 0; i < w->count; i++)
        silent += w->watched[i].refused || atomic_load(&w->watched[i].asked);
    return silent;
}

static void on_period(void *arg)
{
    struct notify_watch *w = arg;
    loop_assert_owner(w->loop);
    uint32_t silent = silent_loops(w);
    bool well = silent == 0 && (!w->is_well || w->is_well(w->arg));
    /* A lost sign is no reason to wait: the next one comes in time. */
    if (well) tell("WATCHDOG=1\n", strlen("WATCHDOG=1\n"), MSG_DONTWAIT);
    if (!well && !w->held)
        log_event(LOG_ERROR, "watchdog_held", "silent_loops=%u limit_s=%.3f", silent,
                  (double)manager.watchdog_us * 1e-6);
    w->held = !well;
    ask_all(w);
    if (loop_timer_set(w->loop, &w->timer, loop_now_us(w->loop) + w->period_us) < 0)
        log_event(LOG_ERROR, "watchdog_lost", "why=no_memory_for_a_timer");
}

int notify_watch_start(struct notify_watch *w, struct loop *loop, struct loop *const *loops,
                       uint32_t count, struct err *err)
{
    must(count <= NOTIFY_LOOPS_MAX);
    if (manager.watchdog_us == 0) return 0;
    w->loop = loop;
    w->period_us = max_i64(1, manager.watchdog_us / SIGNS);
    w->timer = (struct loop_timer){ .fn = on_period, .arg = w };
    if (count > 0) w->watched = calloc(count, sizeof *w->watched);
    if (count > 0 && !w->watched) return err_set(err, -ENOMEM, "no memory for the watchdog");
    for (uint32_t i = 0; i < count; i++)
        w->watched[i].loop = loops[i];
    w->count = count;
    int rc = loop_timer_set(loop, &w->timer, loop_now_us(loop));
    return rc < 0 ? err_set(err, rc, "no memory for the watchdog's timer") : 0;
}

void notify_watch_release(struct notify_watch *w)
{
    w->count = 0;
}

void notify_watch_stop(struct notify_watch *w)
{
    if (w->loop) loop_timer_clear(w->loop, &w->timer);
}

void notify_watch_fini(struct notify_watch *w)
{
    free(w->watched);
    *w = (struct notify_watch){ 0 };
}
