/* t_notify.c - tests what a service manager hears from a role: messages to a socket of ours, and signs of life
 * that stop when a loop hangs. */
#include "base/core/bits.h"
#include "base/io/loop/loop.h"
#include "base/io/notify.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define WAIT_S 60

/* ---- the manager ---- */

struct manager {
    int fd;
    char folder[32], variable[128], path[80];
};

static void manager_open(struct manager *m, bool abstract)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    struct timeval limit = { .tv_sec = WAIT_S };
    snprintf(m->folder, sizeof m->folder, "/tmp/t_notify.XXXXXX");
    assert_non_null(mkdtemp(m->folder));
    snprintf(m->path, sizeof m->path, "%s/socket", m->folder);
    size_t len = strlen(m->path);
    memcpy(at.sun_path + abstract, m->path, len);
    m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(m->fd >= 0);
    setsockopt(m->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    len += offsetof(struct sockaddr_un, sun_path) + 1;
    assert_int_equal(bind(m->fd, (const void *)&at, (socklen_t)len), 0);
    snprintf(m->variable, sizeof m->variable, "NOTIFY_SOCKET=%s%s", abstract ? "@" : "", m->path);
}

static void manager_close(struct manager *m)
{
    notify_close();
    close(m->fd);
    unlink(m->path);
    rmdir(m->folder);
}

/* Returns the next message, and fails when none comes. */
static const char *heard(const struct manager *m)
{
    static char text[1024];
    ssize_t n = recv(m->fd, text, sizeof text - 1, 0);
    assert_true(n >= 0);
    text[n] = 0;
    return text;
}

static bool heard_nothing(const struct manager *m)
{
    char text[16];
    return recv(m->fd, text, sizeof text, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static void open_at(const struct manager *m, const char *more, const char *still)
{
    const char *environment[] = { "HOME=/", m->variable, more, still, NULL };
    struct err err = { 0 };
    assert_int_equal(notify_open(environment, &err), 0);
}

/* ---- messages ---- */

static void a_role_tells_its_states(void **state)
{
    (void)state;
    for (int abstract = 0; abstract < 2; abstract++) {
        struct manager m;
        manager_open(&m, abstract);
        open_at(&m, NULL, NULL);
        notify_ready("listens at 127.0.0.1:8080");
        assert_string_equal(heard(&m), "READY=1\nSTATUS=listens at 127.0.0.1:8080\n");
        notify_stopping(NULL);
        assert_string_equal(heard(&m), "STOPPING=1\n");
        manager_close(&m);
    }
}

static uint64_t monotonic_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void a_reload_has_its_time(void **state)
{
    (void)state;
    struct manager m;
    unsigned long long at;
    char status[16];
    manager_open(&m, false);
    open_at(&m, NULL, NULL);
    uint64_t before = monotonic_us();
    notify_reloading("reads");
    int n = sscanf(heard(&m), "RELOADING=1\nMONOTONIC_USEC=%llu\nSTATUS=%15s\n", &at, status);
    assert_int_equal(n, 2);
    assert_string_equal(status, "reads");
    assert_true(at >= before && at <= monotonic_us());
    manager_close(&m);
}

static void a_status_cannot_forge_a_line(void **state)
{
    (void)state;
    struct manager m;
    char longer[2 * NOTIFY_TEXT_MAX];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    manager_open(&m, false);
    open_at(&m, NULL, NULL);
    notify_ready("one\nSTOPPING=1");
    assert_string_equal(heard(&m), "READY=1\nSTATUS=one STOPPING=1\n");
    notify_ready(longer);
    assert_int_equal(strlen(heard(&m)), strlen("READY=1\nSTATUS=\n") + NOTIFY_TEXT_MAX);
    manager_close(&m);
}

static void no_manager_hears_nothing(void **state)
{
    (void)state;
    struct notify_watch watch = { 0 };
    struct err err = { 0 };
    const char *environment[] = { "WATCHDOG_USEC=1000", "NOTIFY_SOCKETS=/run/other", NULL };
    assert_int_equal(notify_open(environment, &err), 0);
    notify_ready("nobody listens");
    CLEANUP(loop_freep) struct loop *loop = NULL;
    assert_int_equal(loop_new(&loop, &err), 0);
    assert_int_equal(notify_watch_start(&watch, loop, NULL, 0, &err), 0);
    assert_false(loop_timer_is_set(&watch.timer));
}

static void a_manager_that_left_does_no_harm(void **state)
{
    (void)state;
    struct manager m;
    manager_open(&m, false);
    open_at(&m, NULL, NULL);
    unlink(m.path);
    notify_ready("to nobody");
    assert_true(heard_nothing(&m));
    manager_close(&m);
}

static void children_do_not_inherit(void **state)
{
    (void)state;
    struct manager m;
    manager_open(&m, false);
    setenv("NOTIFY_SOCKET", m.path, 1);
    setenv("WATCHDOG_USEC", "1000000", 1);
    setenv("WATCHDOG_PID", "1", 1);
    open_at(&m, NULL, NULL);
    assert_null(getenv("NOTIFY_SOCKET"));
    assert_null(getenv("WATCHDOG_USEC"));
    assert_null(getenv("WATCHDOG_PID"));
    manager_close(&m);
}

static void wrong_variables_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *one, *two, *says, *why;
    } rows[] = {
        { "NOTIFY_SOCKET=run/notify", NULL, "NOTIFY_SOCKET is 'run/notify'", "a relative path" },
        { "NOTIFY_SOCKET=@", NULL, "NOTIFY_SOCKET is '@'", "no name" },
        { "NOTIFY_SOCKET=/a", "WATCHDOG_USEC=0", "WATCHDOG_USEC", "no time at all" },
        { "NOTIFY_SOCKET=/a", "WATCHDOG_USEC=5s", "WATCHDOG_USEC", "units are not the manager's" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const char *environment[] = { rows[i].one, rows[i].two, NULL };
        struct err err = { 0 };
        if (notify_open(environment, &err) != -EINVAL || !strstr(err.text, rows[i].says))
            fail_msg("%s: '%s'", rows[i].why, err.text);
    }
    char longest[256] = "NOTIFY_SOCKET=/";
    memset(longest + strlen(longest), 'a', 120);
    struct err err = { 0 };
    assert_int_equal(notify_open((const char *const[]){ longest, NULL }, &err), -EINVAL);
    assert_non_null(strstr(err.text, "longer than"));
}

/* ---- signs of life ---- */

static void another_process_is_asked(void **state)
{
    (void)state;
    struct manager m;
    struct notify_watch watch = { 0 };
    struct err err = { 0 };
    CLEANUP(loop_freep) struct loop *loop = NULL;
    assert_int_equal(loop_new(&loop, &err), 0);
    manager_open(&m, false);
    open_at(&m, "WATCHDOG_USEC=3000", "WATCHDOG_PID=1"); /* this process is never 1 here */
    assert_int_equal(notify_watch_start(&watch, loop, NULL, 0, &err), 0);
    assert_false(loop_timer_is_set(&watch.timer));
    char self[64];
    snprintf(self, sizeof self, "WATCHDOG_PID=%d", (int)getpid());
    open_at(&m, "WATCHDOG_USEC=3000", self);
    assert_int_equal(notify_watch_start(&watch, loop, NULL, 0, &err), 0);
    assert_true(loop_timer_is_set(&watch.timer));
    notify_watch_stop(&watch);
    assert_false(loop_timer_is_set(&watch.timer));
    notify_watch_fini(&watch);
    manager_close(&m);
}

/* A loop in a thread of its own that can be made to hang. */
struct hanger {
    struct loop *loop;
    pthread_t thread;
    sem_t hangs, released;
};

static void *hanger_run(void *arg)
{
    struct hanger *h = arg;
    loop_run(h->loop);
    return NULL;
}

static void hang(void *arg)
{
    struct hanger *h = arg;
    sem_post(&h->hangs);
    sem_wait(&h->released);
}

/* Runs the watch's loop until the manager hears something, for at most `periods` of its timer. */
static bool sign_comes(const struct manager *m, struct loop *loop, struct notify_watch *w,
                       int periods)
{
    char text[64];
    for (int i = 0; i < periods;) {
        int64_t due_us = w->timer.node.key;
        assert_int_equal(loop_turn(loop, 100000), 0);
        i += w->timer.node.key != due_us;
        ssize_t n = recv(m->fd, text, sizeof text - 1, MSG_DONTWAIT);
        if (n < 0) continue;
        text[n] = 0;
        assert_string_equal(text, "WATCHDOG=1\n");
        return true;
    }
    return false;
}

static void a_loop_that_hangs_ends_the_signs(void **state)
{
    (void)state;
    struct manager m;
    struct hanger h = { 0 };
    struct notify_watch watch = { 0 };
    struct err err = { 0 };
    CLEANUP(loop_freep) struct loop *loop = NULL;
    sem_init(&h.hangs, 0, 0);
    sem_init(&h.released, 0, 0);
    assert_int_equal(loop_new(&loop, &err), 0);
    assert_int_equal(loop_new(&h.loop, &err), 0);
    assert_int_equal(pthread_create(&h.thread, NULL, hanger_run, &h), 0);
    manager_open(&m, false);
    open_at(&m, "WATCHDOG_USEC=30000", NULL);
    assert_int_equal(notify_watch_start(&watch, loop, (struct loop *const[]){ h.loop }, 1, &err),
                     0);
    for (int i = 0; i < 3; i++) /* a busy machine may miss a period, not a hundred */
        assert_true(sign_comes(&m, loop, &watch, 100));

    assert_int_equal(loop_post(h.loop, hang, &h), 0);
    sem_wait(&h.hangs);
    (void)sign_comes(&m, loop, &watch, 1); /* the answer to the question before */
    assert_false(sign_comes(&m, loop, &watch, 5));

    sem_post(&h.released);
    assert_true(sign_comes(&m, loop, &watch, 1000));
    loop_stop(h.loop);
    pthread_join(h.thread, NULL);
    notify_watch_stop(&watch);
    notify_watch_fini(&watch);
    loop_free(h.loop);
    manager_close(&m);
}

static void a_full_queue_is_no_sign(void **state)
{
    (void)state;
    struct manager m;
    struct notify_watch watch = { 0 };
    struct err err = { 0 };
    CLEANUP(loop_freep) struct loop *loop = NULL;
    CLEANUP(loop_freep) struct loop *full = NULL; /* nobody runs it */
    assert_int_equal(loop_new(&loop, &err), 0);
    assert_int_equal(loop_new(&full, &err), 0);
    while (loop_post(full, hang, NULL) == 0) {
    }
    manager_open(&m, false);
    open_at(&m, "WATCHDOG_USEC=3000", NULL);
    assert_int_equal(notify_watch_start(&watch, loop, (struct loop *const[]){ full }, 1, &err), 0);
    (void)sign_comes(&m, loop, &watch, 1); /* before the first question */
    assert_false(sign_comes(&m, loop, &watch, 5));
    notify_watch_stop(&watch);
    notify_watch_fini(&watch);
    manager_close(&m);
}

static bool is_true(void *arg)
{
    return *(const bool *)arg;
}

static void a_role_that_is_not_well_gives_no_sign(void **state)
{
    (void)state;
    struct manager m;
    bool well = false;
    struct notify_watch watch = { .is_well = is_true, .arg = &well };
    struct err err = { 0 };
    CLEANUP(loop_freep) struct loop *loop = NULL;
    assert_int_equal(loop_new(&loop, &err), 0);
    manager_open(&m, false);
    open_at(&m, "WATCHDOG_USEC=3000", NULL);
    assert_int_equal(notify_watch_start(&watch, loop, NULL, 0, &err), 0);
    assert_false(sign_comes(&m, loop, &watch, 5));
    well = true;
    assert_true(sign_comes(&m, loop, &watch, 2));
    notify_watch_stop(&watch);
    notify_watch_fini(&watch);
    manager_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_role_tells_its_states),
        cmocka_unit_test(a_reload_has_its_time),
        cmocka_unit_test(a_status_cannot_forge_a_line),
        cmocka_unit_test(no_manager_hears_nothing),
        cmocka_unit_test(a_manager_that_left_does_no_harm),
        cmocka_unit_test(children_do_not_inherit),
        cmocka_unit_test(wrong_variables_are_refused),
        cmocka_unit_test(another_process_is_asked),
        cmocka_unit_test(a_loop_that_hangs_ends_the_signs),
        cmocka_unit_test(a_full_queue_is_no_sign),
        cmocka_unit_test(a_role_that_is_not_well_gives_no_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
