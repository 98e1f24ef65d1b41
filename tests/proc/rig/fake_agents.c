/* fake_agents.c - reports to a controller in the name of many agents, whose engines say that they are idle.
 *
 *     fake_agents HOST:PORT SECRET_FILE PERIOD_MS
 *
 * Lines on standard input: "+ID" begins to report for an instance, "-ID" ends that. Each instance reports once
 * a period, spread evenly, with signatures as real agents have them. An instance that is told to drain reports
 * that it has stopped. At the end of the input it prints {"reports":N,"failed":N,"instances":N} and ends. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/auth/credentials.h"
#include "base/io/auth/signed_call.h"
#include "base/io/loop/clock.h"
#include "base/io/net/addr.h"
#include "base/wire/report.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AGENTS_MAX 2048
#define ID_BYTES 16
#define CALL_US 5000000
#define REPLY_BYTES_MAX ((size_t)64 << 10)

struct rig;

struct fake_agent {
    struct rig *rig;
    struct peer_call call;
    struct loop_timer timer;
    char id[ID_BYTES]; /* empty: the slot is free */
    uint64_t boot, seq;
    bool drains;
};

struct rig {
    struct loop *loop;
    struct http_client *client;
    struct signer *signer;
    struct credentials held;
    struct loop_watch input;
    char line[256];
    size_t line_len;
    char host[ADDR_TEXT_MAX];
    uint16_t port;
    int64_t period_us;
    uint64_t reports, failed;
    uint32_t count;
    struct fake_agent agent[AGENTS_MAX];
};

static void on_reply(struct peer_call *call, enum http_end end)
{
    struct fake_agent *a = CONTAINER_OF(call, struct fake_agent, call);
    CLEANUP(arena_fini) struct arena arena;
    struct agent_reply reply;
    arena_init(&arena, REPLY_BYTES_MAX);
    if (!peer_call_is_good(call, end) ||
        agent_reply_decode(buf_view(&call->body), &arena, &reply, NULL) < 0) {
        a->rig->failed++;
        return;
    }
    a->rig->reports++;
    a->drains = reply.drain || reply.stop;
}

static void report(void *arg)
{
    struct fake_agent *a = arg;
    struct rig *rig = a->rig;
    char name[AUTH_ID_BYTES_MAX];
    loop_timer_set(rig->loop, &a->timer, loop_now_us(rig->loop) + rig->period_us);
    if (a->call.call) return; /* the last one is still under way */
    const struct agent_report r = {
        .instance = str_from(a->id),
        .intent = str_from(a->id),
        .boot = a->boot,
        .seq = ++a->seq,
        .state = a->drains ? AGENT_STOPPED : AGENT_UP,
        .has_engine = !a->drains,
        .engine = { .host = STR("127.0.0.1"),
                    .port = 9,
                    .kind = ENGINE_MUSTER,
                    .health = ENGINE_READY,
                    .model = STR("any"),
                    .digest = STR("0123456789abcdef"),
                    .boot = a->boot,
                    .page_tokens = 16,
                    .context_tokens = 4096,
                    .running_max = 64,
                    .pages_total = 1000,
                    .pages_free = 1000,
                    .has_perf = true,
                    .perf = { .step_s = 0.01, .prefill_token_s = 1e-4, .samples = 100 } },
    };
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct peer_question q = { .host = str_from(rig->host),
                               .port = rig->port,
                               .path = STR("/api/v1/agents/report"),
                               .reply_max = REPLY_BYTES_MAX,
                               .deadline_us = loop_now_us(rig->loop) + CALL_US };
    snprintf(name, sizeof name, "agent/%s", a->id);
    must(credentials_key(&rig->held, str_from(name), &q.as.key) == 0);
    must(agent_report_encode(&r, &body) == 0);
    q.as.id = str_from(name);
    q.body = buf_view(&body);
    if (peer_call_start(&a->call, rig->signer, &q, on_reply, NULL) < 0) rig->failed++;
}

static void add(struct rig *rig, struct str id)
{
    for (uint32_t i = 0; i < AGENTS_MAX; i++) {
        struct fake_agent *a = &rig->agent[i];
        if (a->id[0]) continue;
        *a = (struct fake_agent){ .rig = rig, .boot = i + 1, .call.on_reply = on_reply };
        snprintf(a->id, sizeof a->id, STR_FMT, STR_ARG(id));
        a->timer = (struct loop_timer){ .fn = report, .arg = a };
        loop_timer_set(rig->loop, &a->timer,
                       loop_now_us(rig->loop) + rig->period_us * (i % 100) / 100);
        rig->count++;
        return;
    }
    fprintf(stderr, "fake_agents: more than %d agents\n", AGENTS_MAX);
}

static void drop(struct rig *rig, struct str id)
{
    for (uint32_t i = 0; i < AGENTS_MAX; i++) {
        struct fake_agent *a = &rig->agent[i];
        if (!str_eq(str_from(a->id), id)) continue;
        loop_timer_clear(rig->loop, &a->timer);
        peer_call_fini(&a->call);
        a->id[0] = 0;
        rig->count--;
        return;
    }
}

static void on_line(struct rig *rig, struct str line)
{
    struct str id = line.len > 0 ? str_of(line.data + 1, line.len - 1) : line;
    if (id.len == 0 || id.len >= ID_BYTES) return;
    if (line.data[0] == '+') add(rig, id);
    if (line.data[0] == '-') drop(rig, id);
}

static void on_input(void *arg, uint32_t events)
{
    struct rig *rig = arg;
    (void)events;
    ssize_t n = read(0, rig->line + rig->line_len, sizeof rig->line - rig->line_len);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        loop_stop(rig->loop);
        return;
    }
    rig->line_len += (size_t)n;
    struct str rest = str_of(rig->line, rig->line_len);
    while (memchr(rest.data, '\n', rest.len))
        on_line(rig, str_cut(&rest, '\n'));
    memmove(rig->line, rest.data, rest.len);
    rig->line_len = rest.len;
}

int main(int argc, char **argv)
{
    static struct rig rig;
    struct addr at;
    struct err err = { 0 };
    int64_t ms = 0;
    if (argc != 4 || str_to_i64(str_from(argv[3]), &ms) < 0 || ms < 1) {
        fprintf(stderr, "usage: fake_agents HOST:PORT SECRET_FILE PERIOD_MS\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    rig.period_us = ms * 1000;
    int rc = addr_parse(&at, str_from(argv[1]), &err);
    if (rc == 0) rc = credentials_load(argv[2], &rig.held, &err);
    if (rc == 0) rc = loop_new(&rig.loop, &err);
    const struct http_client_config client = { 0 };
    if (rc == 0) rc = http_client_new(rig.loop, &client, &rig.client, &err);
    const struct signer_config signer = { .loop = rig.loop, .client = rig.client };
    if (rc == 0) rc = signer_new(&signer, &rig.signer, &err);
    if (rc < 0) {
        fprintf(stderr, "fake_agents: %s\n", err.text);
        return 1;
    }
    addr_host(&at, rig.host);
    rig.port = at.port;
    must(fcntl(0, F_SETFL, O_NONBLOCK) == 0);
    rig.input = (struct loop_watch){ .fd = 0, .fn = on_input, .arg = &rig };
    must(loop_watch_add(rig.loop, &rig.input, EPOLLIN) == 0);
    loop_run(rig.loop);
    printf("{\"reports\":%llu,\"failed\":%llu,\"instances\":%u}\n", (unsigned long long)rig.reports,
           (unsigned long long)rig.failed, rig.count);
    return 0;
}
