/* daemons.c - the processes behind `muster up`, `down` and `run`. */
#include "cli/daemons.h"

#include "base/core/own.h"
#include "base/io/http/http_fetch.h"
#include "base/io/loop/clock.h"
#include "base/io/net/addr.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define POLL_US 50000
#define CALL_US 2000000
#define ARGS_MAX 32
#define TAIL_BYTES 2048
#define KILL_US 5000000 /* from SIGKILL to the end */

void daemons_show_log(const char *path)
{
    char tail[TAIL_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    off_t size = lseek(fd, 0, SEEK_END);
    off_t from = size > TAIL_BYTES ? size - TAIL_BYTES : 0;
    ssize_t len = pread(fd, tail, sizeof tail, from);
    close(fd);
    if (len <= 0) return;
    struct str text = str_of(tail, (size_t)len);
    if (from > 0) (void)str_cut(&text, '\n'); /* the first line is cut */
    fprintf(stderr, "--- the end of %s\n" STR_FMT "---\n", path, STR_ARG(text));
}

int daemons_spawn(struct str state, const char *role, const char *const *args, struct proc_id *ret,
                  struct err *err)
{
    char self[PATH_MAX], log[PATH_MAX], name[64];
    const char *argv[ARGS_MAX] = { self, role };
    size_t count = 2;
    struct proc p;
    for (; *args; args++) {
        must(count + 1 < ARGS_MAX);
        argv[count++] = *args;
    }
    snprintf(name, sizeof name, "%s.log", role);
    int rc = proc_self_path(self, sizeof self);
    if (rc < 0) return err_set(err, rc, "the path of this program is not known");
    rc = fleet_file_path(state, name, log, err);
    struct proc_spec spec = { .argv = argv, .log_path = log, .detached = true };
    if (rc == 0) rc = proc_spawn(&spec, &p, err);
    if (rc < 0) return err_prefix(err, rc, "muster %s", role);
    *ret = p.id;
    proc_close(&p);
    return 0;
}

static int health(const struct fleet_file_part *part, const struct fleet_file_tls *tls,
                  struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct http_fetch_request req = { .host = str_from(part->host),
                                      .port = part->port,
                                      .tls = part->tls,
                                      .files = fleet_file_files(tls),
                                      .path = STR("/health"),
                                      .timeout_us = CALL_US };
    int status = 0;
    int rc = http_fetch(&req, &status, &reply, err);
    return rc < 0 ? rc : status;
}

int daemons_wait(const struct fleet_file_place *place, const char *role,
                 const struct fleet_file_part *part, bool ready, int64_t timeout_us,
                 struct err *err)
{
    struct err why = { 0 };
    int64_t until_us = clock_mono_us() + timeout_us;
    char log[PATH_MAX] = "", name[64];
    snprintf(name, sizeof name, "%s.log", role);
    int rc = fleet_file_path(place->state, name, log, err);
    if (rc < 0) return rc;
    for (;;) {
        bool lives = fleet_file_lives(part); /* asked first: else another's answer could be taken */
        int status = health(part, place->tls, &why);
        if (!lives) {
            daemons_show_log(log);
            return err_set(err, -ECHILD, "muster %s has ended; its log %s says why", role, log);
        }
        if (status == 200 || (status > 0 && !ready)) return 0;
        if (clock_mono_us() >= until_us) {
            daemons_show_log(log);
            return err_set(err, -ETIMEDOUT, "muster %s is not healthy at %s:%u; see %s%s%s", role,
                           part->host, part->port, log, status < 0 ? ": " : "",
                           status < 0 ? why.text : "");
        }
        usleep(POLL_US);
    }
}

int daemons_stop(const struct fleet_file_part *part, int64_t timeout_us, struct err *err)
{
    struct proc p;
    struct proc_exit how;
    if (part->id.pid == 0) return 0;
    int rc = proc_adopt(&part->id, &p, err);
    if (rc == -ESRCH) return 0;
    if (rc < 0) return rc;
    proc_signal(&part->id, SIGTERM, NULL);
    rc = proc_wait(&p, timeout_us, &how);
    if (rc == -ETIMEDOUT) {
        proc_signal(&part->id, SIGKILL, NULL);
        rc = proc_wait(&p, KILL_US, &how);
    }
    proc_close(&p);
    if (rc == 0) return 0;
    return err_set(err, rc, "pid %lld does not end", (long long)part->id.pid);
}

int daemons_check_free(const char *listen, const char *flag, struct err *err)
{
    struct addr a;
    struct sockaddr_storage at;
    int on = 1; /* as the server's own: connections that linger do not count */
    int rc = addr_parse(&a, str_from(listen), err);
    if (rc < 0) return rc;
    int fd = socket(a.family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        rc = -errno;
        return err_set(err, rc, "no socket: %s", strerror(-rc));
    }
    socklen_t len = addr_to_sock(&a, &at);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    rc = bind(fd, (const struct sockaddr *)&at, len) < 0 ? -errno : 0;
    close(fd);
    if (rc == 0) return 0;
    if (rc == -EADDRINUSE)
        return err_set(err, rc, "%s is taken by another program; name another place with %s",
                       listen, flag);
    return err_set(err, rc, "cannot listen at %s: %s", listen, strerror(-rc));
}

uint16_t daemons_free_port(void)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof in;
    uint16_t port = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    if (bind(fd, (struct sockaddr *)&in, len) == 0 &&
        getsockname(fd, (struct sockaddr *)&in, &len) == 0)
        port = ntohs(in.sin_port);
    close(fd);
    return port;
}
