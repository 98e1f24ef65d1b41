/* rig.c - starts, calls, observes and ends processes. */
#include "tests/proc/rig/rig.h"

#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "base/io/net/addr.h"
#include "tests/free_port.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define POLL_US 20000

const char *rig_folder(void)
{
    static char folder[64];
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "/tmp/muster-test-XXXXXX");
        assert_non_null(mkdtemp(folder));
    }
    return folder;
}

void rig_file(char path[RIG_PATH], const char *name, const char *text)
{
    snprintf(path, RIG_PATH, "%s/%s", rig_folder(), name);
    assert_int_equal(file_write_atomic(path, str_from(text), 0600, NULL), 0);
}

bool rig_can_run(const char *const *words)
{
    for (; *words; words++) {
        bool there = strchr(*words, '/') ? access(*words, R_OK) == 0 : getenv(*words) != NULL;
        if (!there) print_message("skipped: %s is missing\n", *words);
        if (!there) return false;
    }
    return true;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

/* Returns true if the process's command line names our folder and has `word` as an argument. */
static bool is_ours(pid_t pid, const char *word)
{
    char path[64];
    CLEANUP(buf_fini) struct buf words = { 0 };
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    if (pid == getpid() || file_read(path, 65536, &words, NULL) < 0) return false;
    bool found = !word;
    for (struct str rest = buf_view(&words); word && rest.len > 0;)
        found |= str_eq(str_cut(&rest, '\0'), str_from(word));
    return found && str_find(buf_view(&words), str_from(rig_folder())) != SIZE_MAX;
}

/* Counts our processes, and sends each `signo` unless that is 0. */
static uint32_t each_of_ours(const char *word, int signo)
{
    uint32_t count = 0;
    DIR *dir = opendir("/proc");
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        int64_t pid;
        struct proc_id id;
        if (str_to_i64(str_from(entry->d_name), &pid) < 0) continue;
        if (proc_id_of((pid_t)pid, &id) < 0 || !is_ours((pid_t)pid, word)) continue;
        if (signo) proc_signal(&id, signo, NULL);
        count++;
    }
    closedir(dir);
    return count;
}

uint32_t rig_count(const char *word)
{
    return each_of_ours(word, 0);
}

int rig_end(int failed)
{
    each_of_ours(NULL, SIGKILL);
    if (failed == 0) nftw(rig_folder(), remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return failed;
}

uint16_t rig_port(void)
{
    return free_port();
}

static void show_log(const struct rig_process *p)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (file_read(p->log, 1 << 20, &text, NULL) == 0) {
        print_message("--- %s\n%.*s---\n", p->log, (int)text.len, text.data);
    }
}

static void wait_for_status(struct rig_process *p, const char *path, int status)
{
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    while (clock_mono_us() < until_us) {
        if (rig_call(p->port, path, NULL, NULL) == status) return;
        if (!rig_is_alive(p)) break;
        usleep(POLL_US);
    }
    show_log(p);
    fail_msg("%s: no %d from %s on port %u", p->log, status, path, p->port);
}

struct rig_process rig_start(const char *name, const char *const *argv, uint16_t port,
                             const char *path, int status)
{
    struct rig_process p = { .port = port };
    struct err err = { 0 };
    snprintf(p.at, sizeof p.at, "127.0.0.1:%u", port);
    snprintf(p.log, sizeof p.log, "%s/%s-%u.log", rig_folder(), name, port);
    struct proc_spec spec = { .argv = argv, .log_path = p.log };
    if (proc_spawn(&spec, &p.proc, &err) < 0) fail_msg("%s: %s", argv[0], err.text);
    if (status != 0) wait_for_status(&p, path, status);
    return p;
}

void rig_add_args(const char *argv[RIG_ARGS_MAX], size_t count, const char *const *more)
{
    for (; *more; more++) {
        assert_true(count < RIG_ARGS_MAX - 1);
        argv[count++] = *more;
    }
}

struct rig_process rig_server(const char *role, uint16_t port, const char *const *more)
{
    char listen[24];
    const char *argv[RIG_ARGS_MAX] = { getenv("MUSTER_BIN"), role, "--listen", listen };
    snprintf(listen, sizeof listen, "127.0.0.1:%u", port);
    rig_add_args(argv, 4, more);
    return rig_start(role, argv, port, "/health", 200);
}

struct rig_process rig_fake_engine(uint16_t port, const char *const *more)
{
    char number[8];
    const char *argv[RIG_ARGS_MAX] = { getenv("FAKE_ENGINE_BIN"), "--port", number };
    snprintf(number, sizeof number, "%u", port);
    rig_add_args(argv, 3, more);
    return rig_start("engine", argv, port, "/seen", 200);
}

struct wait_endpoints {
    uint16_t port;
    uint32_t count;
};

static bool has_endpoints(void *arg)
{
    const struct wait_endpoints *w = arg;
    return rig_metric(w->port, "muster_router_endpoints") == w->count;
}

void rig_wait_endpoints(const struct rig_process *router, uint32_t count)
{
    struct wait_endpoints w = { router->port, count };
    rig_wait(has_endpoints, &w, "the router knows the engines");
}

void rig_hurry_agents(void)
{
    setenv("MUSTER_AGENT_REPORT", "200ms", 1);
    setenv("MUSTER_AGENT_SETTLE", "200ms", 1);
}

bool rig_is_alive(const struct rig_process *p)
{
    return p->proc.id.pid != 0 && proc_is_alive(&p->proc.id);
}

static int end_with(struct rig_process *p, int signo)
{
    if (p->proc.id.pid == 0) return 0;
    struct proc_exit how = { 0 };
    proc_signal(&p->proc.id, signo, NULL);
    if (proc_wait(&p->proc, RIG_WAIT_US, &how) < 0) {
        show_log(p);
        proc_signal(&p->proc.id, SIGKILL, NULL);
        proc_wait(&p->proc, RIG_WAIT_US, &how);
        fail_msg("%s: did not end on signal %d", p->log, signo);
    }
    proc_close(&p->proc);
    p->proc.id.pid = 0;
    return how.killed ? 128 + how.code : how.code;
}

void rig_kill(struct rig_process *p)
{
    end_with(p, SIGKILL);
}

int rig_stop(struct rig_process *p)
{
    return end_with(p, SIGTERM);
}

int rig_client(const char *name, const char *const *argv, uint32_t waits)
{
    struct rig_process p = rig_start(name, argv, 1, NULL, 0);
    struct proc_exit how = { 0 };
    struct buf log = { 0 };
    int rc = proc_wait(&p.proc, waits * (int64_t)RIG_WAIT_US, &how);
    int read = file_read(p.log, 1 << 20, &log, NULL);
    print_message("%.*s", (int)log.len, log.len ? log.data : "");
    buf_fini(&log); /* an assertion that fails leaves this function */
    assert_int_equal(rc, 0);
    assert_int_equal(read, 0);
    proc_close(&p.proc);
    return how.killed ? 128 + how.code : how.code;
}

int rig_run(struct buf *out, const char *const *args)
{
    char log[192];
    const char *argv[RIG_ARGS_MAX] = { getenv("MUSTER_BIN") };
    struct proc p;
    struct proc_exit how;
    struct err err = { 0 };
    rig_add_args(argv, 1, args);
    snprintf(log, sizeof log, "%s/command.log", rig_folder());
    unlink(log);
    struct proc_spec spec = { .argv = argv, .log_path = log };
    if (proc_spawn(&spec, &p, &err) < 0) fail_msg("%s", err.text);
    int rc = proc_wait(&p, RIG_COMMAND_US, &how);
    if (rc < 0) proc_signal(&p.id, SIGKILL, NULL);
    proc_close(&p);
    buf_clear(out);
    file_read(log, 1 << 20, out, NULL);
    buf_byte(out, 0);
    if (rc < 0) fail_msg("muster %s does not end:\n%s", argv[1], out->data);
    return how.killed ? 128 + how.code : how.code;
}

int rig_muster(const char *command, const char *line, struct buf *out)
{
    char text[2048];
    const char *args[RIG_ARGS_MAX] = { command };
    uint32_t count = 1;
    snprintf(text, sizeof text, "%s", line);
    for (char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        assert_true(count + 1 < RIG_ARGS_MAX);
        args[count++] = at;
        at += strcspn(at, " ");
        if (*at) *at++ = '\0';
    }
    int rc = rig_run(out, args);
    out->len--; /* without the NUL: the caller may append */
    assert_true(rc < 128);
    return rc;
}

void rig_expect(const char *command, const struct rig_row *rows, size_t count)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    for (size_t i = 0; i < count; i++) {
        int status = rig_muster(command, rows[i].line, &out);
        if (status != rows[i].status || !strstr(out.data, rows[i].says))
            fail_msg("%s %s: %d, %.300s", command, rows[i].line, status, out.data);
    }
}

int rig_call_with(uint16_t port, const char *path, const char *header, const char *body,
                  struct buf *reply)
{
    CLEANUP(buf_fini) struct buf unread = { 0 };
    struct http_header headers[2] = { { STR("content-type"), STR("application/json") } };
    struct str value = str_from(header);
    if (header) {
        headers[1].name = str_cut(&value, ':');
        headers[1].value = str_trim(value);
    }
    struct http_fetch_request req = { .host = STR("127.0.0.1"),
                                      .port = port,
                                      .path = str_from(path),
                                      .headers = headers,
                                      .header_count = header ? 2 : 1,
                                      .body = str_from(body),
                                      .timeout_us = RIG_WAIT_US };
    int status = 0;
    if (reply) buf_clear(reply);
    if (http_fetch(&req, &status, reply ? reply : &unread, NULL) < 0) return 0;
    return status;
}

int rig_call(uint16_t port, const char *path, const char *body, struct buf *reply)
{
    return rig_call_with(port, path, NULL, body, reply);
}

void rig_bearer(const char *secret_path, char ret[RIG_BEARER])
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    assert_int_equal(file_read(secret_path, 128, &text, NULL), 0);
    struct str rest = buf_view(&text), word = str_cut(&rest, '\n');
    snprintf(ret, RIG_BEARER, "authorization: Bearer " STR_FMT, STR_ARG(word));
}

/* ---- plain sockets ---- */

int rig_connect(uint16_t port, int receive_bytes)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (receive_bytes > 0) { /* before connecting: the window is announced then */
        int rc = setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
        assert_int_equal(rc, 0);
    }
    if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        fail_msg("port %u: %s", port, strerror(errno));
    }
    return fd;
}

/* Sends some of the rest. A server may answer and close while we still send: then we send no more and
 * only read. */
static void send_more(int fd, struct str *rest)
{
    ssize_t sent = send(fd, rest->data, rest->len, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) rest->len = 0;
    if (sent <= 0) return;
    rest->data += sent;
    rest->len -= (size_t)sent;
}

int rig_raw(uint16_t port, struct str bytes, struct buf *reply)
{
    int fd = rig_connect(port, 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    buf_clear(reply);
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    int rc = -ETIMEDOUT;
    while (rc == -ETIMEDOUT && clock_mono_us() < until_us) {
        char part[16384];
        struct pollfd poller = { .fd = fd,
                                 .events = (short)(POLLIN | (bytes.len > 0 ? POLLOUT : 0)) };
        poll(&poller, 1, POLL_US / 1000);
        if (bytes.len > 0 && (poller.revents & POLLOUT)) send_more(fd, &bytes);
        ssize_t got = recv(fd, part, sizeof part, 0);
        if (got > 0) buf_append(reply, part, (size_t)got);
        if (got == 0) rc = 0;
        if (got < 0 && errno != EAGAIN) rc = -errno;
    }
    close(fd);
    return rc;
}

/* ---- looking at processes ---- */

void rig_wait(bool (*is_so)(void *arg), void *arg, const char *what)
{
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    while (!is_so(arg)) {
        if (clock_mono_us() > until_us) fail_msg("never: %s", what);
        usleep(POLL_US);
    }
}

uint32_t rig_descriptors(const struct rig_process *p)
{
    char path[64];
    uint32_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)p->proc.id.pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

int64_t rig_rss_kib(const struct rig_process *p)
{
    char path[64], line[256];
    long long kib = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)p->proc.id.pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (kib < 0 && fgets(line, sizeof line, f))
        (void)sscanf(line, "RssAnon: %lld", &kib);
    fclose(f);
    return kib;
}

int64_t rig_number(uint16_t port, const char *path, const char *key)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char quoted[64];
    long long found = -1;
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    if (rig_call(port, path, NULL, &reply) != 200) return -1;
    const char *at = strstr(reply.data, quoted);
    if (at) (void)sscanf(at + strlen(quoted), "%lld", &found);
    return found;
}

void rig_wait_number(uint16_t port, const char *path, const char *key, int64_t wanted)
{
    int64_t until_us = clock_mono_us() + RIG_WAIT_US, found;
    while ((found = rig_number(port, path, key)) != wanted) {
        if (clock_mono_us() > until_us) {
            fail_msg("%s on port %u: %s is %lld, not %lld", path, port, key, (long long)found,
                     (long long)wanted);
        }
        usleep(POLL_US);
    }
}

double rig_metric(uint16_t port, const char *name)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    if (rig_call(port, "/metrics", NULL, &reply) != 200) return -1;
    struct str rest = buf_view(&reply);
    double sum = 0;
    bool found = false;
    while (rest.len > 0) {
        struct str line = str_cut(&rest, '\n');
        size_t after = strlen(name);
        if (!str_starts(line, str_from(name)) || line.len == after) continue;
        if (!strchr(" {,}", line.data[after])) continue; /* a longer name */
        size_t blank = line.len;
        while (blank > 0 && line.data[blank - 1] != ' ')
            blank--;
        double v;
        if (str_to_f64(str_of(line.data + blank, line.len - blank), &v) < 0) continue;
        found = true;
        sum += v;
    }
    return found ? sum : -1;
}

struct counter {
    uint16_t port;
    const char *name;
    double wanted;
};

static bool has_reached(void *arg)
{
    const struct counter *c = arg;
    return rig_metric(c->port, c->name) >= c->wanted;
}

void rig_wait_more(uint16_t port, const char *name, double more)
{
    double before = rig_metric(port, name);
    struct counter c = { port, name, (before > 0 ? before : 0) + more };
    rig_wait(has_reached, &c, name);
}
