/* rig.c - spawn, wait, call, end. */
#include "tests/proc/rig.h"

#include "base/core/own.h"
#include "base/io/addr.h"
#include "base/io/clock.h"
#include "base/io/file.h"

#include <netinet/in.h>
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

uint16_t rig_port(void)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof in;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    close(fd);
    return ntohs(in.sin_port);
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
    snprintf(p.log, sizeof p.log, "%s/%s-%u.log", rig_folder(), name, port);
    struct proc_spec spec = { .argv = argv, .log_path = p.log };
    if (proc_spawn(&spec, &p.proc, &err) < 0) fail_msg("%s: %s", argv[0], err.text);
    if (status != 0) wait_for_status(&p, path, status);
    return p;
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

void rig_wait_number(uint16_t port, const char *path, const char *key, int64_t wanted)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char quoted[64];
    long long found = -1;
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    while (clock_mono_us() < until_us) {
        if (rig_call(port, path, NULL, &reply) == 200) {
            const char *at = strstr(reply.data, quoted);
            if (at && sscanf(at + strlen(quoted), "%lld", &found) == 1 && found == wanted) return;
        }
        usleep(POLL_US);
    }
    fail_msg("%s on port %u: %s is %lld, not %lld", path, port, key, found, (long long)wanted);
}

double rig_metric(uint16_t port, const char *name)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    if (rig_call(port, "/metrics", NULL, &reply) != 200) return -1;
    struct str rest = buf_view(&reply);
    while (rest.len > 0) {
        struct str line = str_cut(&rest, '\n');
        if (!str_starts(line, str_from(name))) continue;
        size_t blank = line.len;
        while (blank > 0 && line.data[blank - 1] != ' ')
            blank--;
        double v;
        if (str_to_f64(str_of(line.data + blank, line.len - blank), &v) == 0) return v;
    }
    return -1;
}
