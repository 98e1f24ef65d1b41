/* trace_rig.c - starts traces.py as a collector and as a check. */
#include "tests/proc/rig/trace_rig.h"

#include "base/core/own.h"
#include "base/io/file.h"

#include <stdio.h>

#define TRACES "tests/proc/rig/traces.py"

static void path_of(char ret[RIG_PATH])
{
    snprintf(ret, RIG_PATH, "%s/traces.jsonl", rig_folder());
}

bool trace_can_run(void)
{
    if (system("python3 -c 'import http.server' 2>/dev/null") == 0) return true;
    print_message("skipped: python3 is not installed\n");
    return false;
}

struct rig_process trace_collector(void)
{
    char path[RIG_PATH], number[16];
    uint16_t port = rig_port();
    path_of(path);
    snprintf(number, sizeof number, "%u", port);
    return rig_start("collector", ARGS("python3", TRACES, "serve", number, path), port, "/", 200);
}

static void trace_id(uint32_t n, char ret[33])
{
    snprintf(ret, 33, "4bf92f3577b34da6a3ce929d%08x", n);
}

void trace_header(uint32_t n, bool sampled, char ret[TRACE_HEADER_BYTES])
{
    char id[33];
    trace_id(n, id);
    snprintf(ret, TRACE_HEADER_BYTES, "traceparent: 00-%s-" TRACE_CLIENT_SPAN "-0%d%s", id, sampled,
             "\r\ntracestate: a=b,c@d=e f");
}

void trace_request(const char *path, const char *headers, const char *body, struct buf *out)
{
    buf_printf(out,
               "POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n%s\r\n"
               "content-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
               path, headers, strlen(body), body);
}

int trace_ask(uint16_t port, const char *path, const char *headers, const char *body,
              struct buf *reply)
{
    CLEANUP(buf_fini) struct buf request = { 0 };
    int status = 0;
    trace_request(path, headers, body, &request);
    if (rig_raw(port, buf_view(&request), reply) < 0 || reply->len == 0) return 0;
    return sscanf(reply->data, "HTTP/1.1 %d ", &status) == 1 ? status : 0;
}

void trace_check(const char *scenario, uint32_t n)
{
    char path[RIG_PATH], id[33], name[64];
    CLEANUP(buf_fini) struct buf log = { 0 };
    struct proc_exit how = { 0 };
    path_of(path);
    trace_id(n, id);
    snprintf(name, sizeof name, "check-%s-%u", scenario, n);
    struct rig_process check = rig_start(
        name, ARGS("python3", TRACES, "check", path, scenario, id, TRACE_CLIENT_SPAN), 1, NULL, 0);
    assert_int_equal(proc_wait(&check.proc, 2 * (int64_t)RIG_WAIT_US, &how), 0);
    proc_close(&check.proc);
    assert_int_equal(file_read(check.log, 1 << 20, &log, NULL), 0);
    fwrite(log.data, 1, log.len, stdout);
    assert_true(!how.killed && how.code == 0);
}
