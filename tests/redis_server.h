/* redis_server.h - runs real Redis servers and sentinels for a test, in a folder of the test's own.
 *
 * Each listens on a Unix socket and on a port that was free a moment ago, and keeps its data in its folder when
 * it is told to. A test that needs one is skipped where the program redis-server is not installed.
 */
#pragma once
#include "base/core/bits.h"
#include "tests/free_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define REDIS_ARGS_MAX 64
#define REDIS_STARTS_US 20000000

struct redis_server {
    pid_t pid; /* 0: it does not run */
    uint16_t port;
    char folder[80], socket[100];
};

static inline bool redis_server_exists(void)
{
    if (system("command -v redis-server >/dev/null 2>&1") == 0) return true;
    printf("skipped: redis-server is not installed\n");
    return false;
}

/* Sends one command as a line and copies the first bytes of the reply. Returns false when none came. */
static inline bool redis_ask(const struct redis_server *s, const char *line, char *reply,
                             size_t size)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    char text[512];
    snprintf(at.sun_path, sizeof at.sun_path, "%s", s->socket);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int bytes = snprintf(text, sizeof text, "%s\r\n", line);
    bool good = connect(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
                write(fd, text, (size_t)bytes) == bytes;
    struct pollfd p = { .fd = fd, .events = POLLIN };
    ssize_t n = good && poll(&p, 1, 2000) > 0 ? read(fd, reply, size - 1) : 0;
    close(fd);
    reply[n > 0 ? n : 0] = 0;
    return n > 0;
}

static inline bool redis_says(const struct redis_server *s, const char *line, const char *wanted)
{
    char reply[2048];
    return redis_ask(s, line, reply, sizeof reply) && strstr(reply, wanted);
}

/* Waits until the reply to a command contains a text. */
static inline bool redis_await(const struct redis_server *s, const char *line, const char *wanted)
{
    for (int64_t us = 0; us < REDIS_STARTS_US; us += 20000) {
        if (redis_says(s, line, wanted)) return true;
        usleep(20000);
    }
    return false;
}

/* Starts a server at its port, again with its data if it kept some. `more`: further words of its command
 * line, NULL-terminated; NULL: none. */
static inline void redis_start(struct redis_server *s, const char *folder, const char *name,
                               const char *const *more)
{
    char port[8], log[128];
    snprintf(s->folder, sizeof s->folder, "%s/%s", folder, name);
    snprintf(s->socket, sizeof s->socket, "%s/socket", s->folder);
    snprintf(log, sizeof log, "%s/log", s->folder);
    mkdir(s->folder, 0700);
    unlink(s->socket);
    if (!s->port) s->port = free_port();
    snprintf(port, sizeof port, "%u", s->port);
    bool sentinel = more && more[0][0] == '/'; /* its configuration file comes first */
    union {
        const char *text[REDIS_ARGS_MAX];
        char *plain[REDIS_ARGS_MAX]; /* as exec has them */
    } argv = { .text = { "redis-server" } };
    const char *const own[] = { "--port",
                                port,
                                "--bind",
                                "127.0.0.1",
                                "--dir",
                                s->folder,
                                "--logfile",
                                log,
                                "--unixsocket",
                                s->socket,
                                "--save",
                                "",
                                "--enable-debug-command",
                                "yes" };
    size_t n = 1, taken = 0;
    if (sentinel) argv.text[n++] = more[taken++];
    for (size_t i = 0; i < COUNT_OF(own) - (sentinel ? 4 : 0); i++)
        argv.text[n++] = own[i];
    while (more && more[taken] && n < REDIS_ARGS_MAX)
        argv.text[n++] = more[taken++];
    if (n == REDIS_ARGS_MAX) abort();
    s->pid = fork();
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* it ends with the test, whatever becomes of that */
        execvp("redis-server", argv.plain);
        _exit(127);
    }
    if (!redis_await(s, "PING", sentinel || !more ? "PONG" : "")) abort();
}

static inline void redis_signal(struct redis_server *s, int number)
{
    if (s->pid > 0) kill(s->pid, number);
}

static inline void redis_kill(struct redis_server *s)
{
    if (s->pid <= 0) return;
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

/* Removes its folder, too. */
static inline void redis_remove(struct redis_server *s)
{
    char line[160];
    redis_kill(s);
    if (!s->folder[0]) return;
    snprintf(line, sizeof line, "rm -rf '%s'", s->folder);
    if (system(line) != 0) printf("%s stays\n", s->folder);
}
