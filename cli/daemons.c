/* daemons.c - start, await, find and stop the processes behind `muster up`, `down` and `run`. */
#include "cli/daemons.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/http/http_fetch.h"
#include "base/io/loop/clock.h"
#include "base/io/net/addr.h"
#include "cli/fleet_file.h"

#include <dirent.h>
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

int daemons_wait(const struct daemons_place *place, const char *role,
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
        bool lives = fleet_file_lives(part); /* first, or another's reply could count */
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
    int on = 1; /* SO_REUSEADDR as the server sets it: lingering connections do not count */
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

/* Walk STATE/instances and read the identities that agents leave there.
 *
 * An agent that was spawned a moment ago has not written its own yet, so the folder is read until
 * two readings QUIET_US apart show no living process. */

#define ID_BYTES_MAX 4096
#define QUIET_US 300000
#define POLL_US 50000 /* while processes die */

static void add(const char *folder, const char *name, const char *file, struct local_procs *ret)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char path[PATH_MAX];
    struct proc_id id;
    int len = snprintf(path, sizeof path, "%s/%s/%s", folder, name, file);
    if (len >= (int)sizeof path || file_read(path, ID_BYTES_MAX, &text, NULL) < 0) return;
    struct str rest = buf_view(&text);
    if (proc_id_parse(str_trim(str_cut(&rest, '\n')), &id) < 0 || !proc_is_alive(&id)) return;
    if (ret->count == LOCALS_MAX)
        ret->dropped++;
    else
        ret->id[ret->count++] = id;
}

int local_procs_find(struct str state, struct local_procs *ret, struct err *err)
{
    static const char *const files[] = { "agent.lock", "engine.id" };
    char folder[PATH_MAX];
    ret->count = ret->dropped = 0;
    int rc = fleet_file_path(state, "instances", folder, err);
    for (size_t i = 0; rc == 0 && i < COUNT_OF(files); i++) {
        DIR *dir = opendir(folder);
        if (!dir && errno == ENOENT) return 0;
        if (!dir) {
            rc = -errno;
            return err_set(err, rc, "cannot read %s: %s", folder, strerror(-rc));
        }
        for (struct dirent *e; (e = readdir(dir));)
            if (e->d_name[0] != '.') add(folder, e->d_name, files[i], ret);
        closedir(dir);
    }
    return rc;
}

static int refuse(const struct local_procs *left, struct err *err)
{
    CLEANUP(buf_fini) struct buf pids = { 0 };
    for (uint32_t i = 0; i < left->count && i < 16; i++)
        buf_printf(&pids, " %lld", (long long)left->id[i].pid);
    return err_set(err, -ETIMEDOUT, "%u instance processes do not end:%s",
                   left->count + left->dropped, pids.data ? pids.data : "");
}

static bool is_new(struct local_procs *seen, const struct proc_id *id)
{
    for (uint32_t i = 0; i < seen->count; i++)
        if (proc_id_eq(&seen->id[i], id)) return false;
    if (seen->count < LOCALS_MAX) seen->id[seen->count++] = *id;
    return true;
}

int local_procs_kill(struct str state, int64_t timeout_us, uint32_t *ret_ended, struct err *err)
{
    int64_t until_us = clock_mono_us() + timeout_us;
    struct local_procs l, seen = { 0 };
    uint32_t quiet = 0, ended = 0;
    for (;;) {
        int rc = local_procs_find(state, &l, err);
        if (rc < 0) return rc;
        for (uint32_t i = 0; i < l.count; i++)
            if (proc_signal_group(&l.id[i], SIGKILL, NULL) == 0) ended += is_new(&seen, &l.id[i]);
        quiet = l.count + l.dropped > 0 ? 0 : quiet + 1;
        if (quiet == 2) break;
        if (clock_mono_us() >= until_us && quiet == 0) return refuse(&l, err);
        usleep(quiet > 0 ? QUIET_US : POLL_US);
    }
    *ret_ended = ended;
    return 0;
}
