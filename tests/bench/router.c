/* router.c - measures the CPU time of the router for a request and for a streamed chunk, beside nginx
 * and haproxy.
 *
 *     MUSTER_SHARED=../shared MUSTER_BIN=build/muster FAKE_ENGINE_BIN=build/tests/proc/rig/fake_engine \
 *         build/tests/bench/bench_router [ROUNDS [both|requests|chunks [VOCABULARY.gguf]]]
 *
 * Requests: 64 connections send one request after the other, a chat of 2 KB of English with an output of
 * one token. Chunks: 2,000 streams of a token each 500 ms, spread evenly. nginx and haproxy pass the
 * same bytes of the client to a server that sends the bytes that the router sends its clients. Each has
 * one thread for clients; they take turns in each round, and the medians over the rounds are printed as
 * CSV. The CPU time is that of the whole process, user and system. `relay` is the floor of a proxy that
 * sends each chunk at once: it copies bytes between two sockets, with one wait, one read and one send,
 * and looks at none of them. `tunnel` is a router that calls the engine through an agent's tunnel; `agent` is
 * that agent.
 *
 * The router does more than the two: it reads JSON, renders the template, tokenises with a
 * vocabulary of 50,000 tokens, hashes blocks, chooses the engine and makes OpenAI's chunks of frames. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/http/http_server.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/rig.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 64
#define STREAMS 2000
#define PROMPT_BYTES 2048
#define PROMPTS 64
#define REQUESTS 3000 /* a round */
#define WARM 300
#define TOKEN_US 500000
#define CHUNKS_US 6000000
#define ROUNDS_MAX 99
#define STALL_MS 30000

/* The router's bytes for one token, and for a whole response of one token. */
static const char chunk[] =
    "data: "
    "{\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":\"chat.completion.chunk\","
    "\"created\":1790000000,\"model\":\"fake\",\"system_fingerprint\":null,\"choices\":[{\"index\":"
    "0,"
    "\"delta\":{\"content\":\"01234567.\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
static const char whole[] =
    "{\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":\"chat.completion\","
    "\"created\":"
    "1790000000,\"model\":\"fake\",\"system_fingerprint\":null,\"choices\":[{\"index\":0,"
    "\"message\":"
    "{\"role\":\"assistant\",\"content\":\"01234567.\",\"refusal\":null},\"logprobs\":null,"
    "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":500,\"completion_tokens\":1,"
    "\"total_tokens\":501,\"prompt_tokens_details\":{\"cached_tokens\":0}}}";

/* ---- the server behind nginx and haproxy ------------------------------------------------------- */

struct origin_stream {
    struct loop *loop;
    struct http_exchange *x;
    struct loop_timer timer;
};

static void on_left(void *arg, enum http_abort why)
{
    (void)why;
    struct origin_stream *s = arg;
    loop_timer_clear(s->loop, &s->timer);
    free(s);
}

static void on_token(void *arg)
{
    struct origin_stream *s = arg;
    http_stream_write(s->x, chunk, sizeof chunk - 1);
    loop_timer_set(s->loop, &s->timer, loop_now_us(s->loop) + TOKEN_US);
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct loop *loop = ctx;
    if (str_find(http_exchange_request(x)->body, STR("\"stream\":true")) == SIZE_MAX) {
        http_reply(x, 200, STR("application/json"), str_from(whole));
        return;
    }
    struct origin_stream *s = calloc(1, sizeof *s);
    must(s);
    *s = (struct origin_stream){ .loop = loop, .x = x, .timer = { .fn = on_token, .arg = s } };
    http_exchange_watch(x, on_left, NULL, s);
    must(http_stream_begin(x, 200, STR("text/event-stream")) == 0);
    on_token(s);
}

/* Starts the server in a process of its own, which ends with this one. */
static void origin_start(uint16_t port)
{
    struct loop *loop = NULL;
    struct http_server *server = NULL;
    struct http_server_config config = { .host = "127.0.0.1",
                                         .port = port,
                                         .on_request = on_request };
    pid_t pid = fork();
    must(pid >= 0);
    if (pid > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    must(loop_new(&loop, NULL) == 0);
    config.ctx = loop;
    must(http_server_new(loop, &config, &server, NULL) == 0);
    loop_run(loop);
    _exit(0);
}

struct way {
    const char *name;
    struct rig_process process;
    double request_us[ROUNDS_MAX], chunk_us[ROUNDS_MAX];
    struct way *agent; /* measured beside it; NULL: none */
};

/* ---- the bare relay --------------------------------------------------------------------------- */

#define RELAY_EVENTS 512

/* Copies bytes both ways between each client and a connection of its own to the server, for ever.
 * `peer` holds the other socket of each, by descriptor. */
static void relay_run(int listener, uint16_t origin)
{
    static int peer[65536];
    static char bytes[65536];
    struct epoll_event ev[RELAY_EVENTS], add = { .events = EPOLLIN, .data.fd = listener };
    int at = epoll_create1(EPOLL_CLOEXEC);
    must(at >= 0 && epoll_ctl(at, EPOLL_CTL_ADD, listener, &add) == 0);
    for (;;) {
        int n = epoll_wait(at, ev, RELAY_EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int from = ev[i].data.fd;
            if (from == listener) {
                int pair[2] = { accept4(listener, NULL, NULL, SOCK_CLOEXEC),
                                rig_connect(origin, 0) };
                for (int k = 0; k < 2; k++) {
                    must(pair[k] >= 0 && pair[k] < (int)COUNT_OF(peer));
                    peer[pair[k]] = pair[1 - k];
                    add.data.fd = pair[k];
                    must(epoll_ctl(at, EPOLL_CTL_ADD, pair[k], &add) == 0);
                    must(setsockopt(pair[k], IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int)) ==
                         0);
                }
                continue;
            }
            if (peer[from] < 0) continue; /* closed by an earlier event of this batch */
            ssize_t got = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
            if (got > 0 && send(peer[from], bytes, (size_t)got, MSG_NOSIGNAL) == got) continue;
            if (got < 0 && errno == EAGAIN) continue;
            int other = peer[from];
            peer[from] = peer[other] = -1;
            close(from);
            close(other);
        }
    }
}

static void start_relay(struct way *w, uint16_t origin)
{
    w->process.port = rig_port();
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons(w->process.port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(listener >= 0);
    must(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int)) == 0);
    must(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 &&
         listen(listener, 4096) == 0);
    pid_t pid = fork();
    must(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        relay_run(listener, origin);
    }
    close(listener);
    w->process.proc.id.pid = pid;
}

/* ---- measured processes ------------------------------------------------------------------------- */

static double cpu_us(const struct way *w)
{
    clockid_t id;
    struct timespec t;
    must(clock_getcpuclockid((pid_t)w->process.proc.id.pid, &id) == 0 &&
         clock_gettime(id, &t) == 0);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void start_nginx(struct way *w, uint16_t origin)
{
    static char text[2048], path[RIG_PATH];
    w->process.port = rig_port();
    const char *folder = rig_folder();
    snprintf(text, sizeof text,
             "daemon off;\nmaster_process off;\nworker_rlimit_nofile 16384;\npid %s/nginx.pid;\n"
             "error_log stderr crit;\n"
             "events { worker_connections 8192; }\n"
             "http { access_log off; keepalive_requests 1000000; client_body_buffer_size 64k;\n"
             "client_body_temp_path %s/a; proxy_temp_path %s/b; fastcgi_temp_path %s/c;\n"
             "uwsgi_temp_path %s/d; scgi_temp_path %s/e;\n"
             "upstream o { server 127.0.0.1:%u; keepalive 4096; keepalive_requests 1000000; }\n"
             "server { listen 127.0.0.1:%u backlog=4096;\n"
             "location / { proxy_pass http://o; proxy_http_version 1.1;\n"
             "proxy_set_header Connection \"\"; proxy_buffering off; } } }\n",
             folder, folder, folder, folder, folder, folder, origin, w->process.port);
    rig_file(path, "nginx.conf", text);
    w->process =
        rig_start("nginx", ARGS("/usr/sbin/nginx", "-c", path), w->process.port, "/health", 200);
}

static void start_haproxy(struct way *w, uint16_t origin)
{
    static char text[2048], path[RIG_PATH];
    w->process.port = rig_port();
    snprintf(text, sizeof text,
             "global\n  nbthread 1\n  maxconn 8192\ndefaults\n  mode http\n  timeout connect 5s\n"
             "  timeout client 60s\n  timeout server 60s\n  http-reuse always\n"
             "  option http-no-delay\n"
             "frontend f\n  bind 127.0.0.1:%u backlog 4096\n  default_backend o\n"
             "backend o\n  server o 127.0.0.1:%u maxconn 8192\n",
             w->process.port, origin);
    rig_file(path, "haproxy.cfg", text);
    w->process = rig_start("haproxy", ARGS("/usr/sbin/haproxy", "-db", "-f", path), w->process.port,
                           "/health", 200);
}

static struct rig_process engine;

/* Sets the engine's time a token from now on; at 0 it sends an output's end with its last token. */
static void set_token_ms(int ms)
{
    char script[64];
    CLEANUP(buf_fini) struct buf reply = { 0 };
    snprintf(script, sizeof script, "{\"token_ms\":%d}", ms);
    must(rig_call(engine.port, "/script", script, &reply) == 200);
}

static void start_routers(struct way *w, struct way *through, const char *vocabulary)
{
    static char secret[RIG_PATH];
    char far[32], url[32], at[24];
    rig_file(secret, "secret",
             "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n");
    engine = rig_fake_engine(rig_port(),
                             ARGS("--tokens", "1000000", "--running-max", "8192", "--context",
                                  "100000", "--vocab", vocabulary, "--secret-file", secret));
    w->process = rig_server("router", rig_port(), ARGS("--endpoints", engine.at));
    rig_wait_endpoints(&w->process, 1);
    snprintf(far, sizeof far, "tunnel:e:%u", engine.port);
    through->process =
        rig_server("router", rig_port(), ARGS("--endpoints", far, "--secret-file", secret));
    snprintf(url, sizeof url, "http://%s", engine.at);
    snprintf(at, sizeof at, "%s", through->process.at);
    through->agent->process =
        rig_start("agent",
                  ARGS(getenv("MUSTER_BIN"), "agent", "--adopt", url, "--engine-kind", "muster",
                       "--name", "e", "--secret-file", secret, "--tunnel", "--routers", at),
                  0, NULL, 0);
    rig_wait_endpoints(&through->process, 1);
}

/* ---- clients ---------------------------------------------------------------------------------- */

static struct buf prompts[PROMPTS];

/* Makes prompts of English from different places of a book, so that no two begin alike. */
static void make_prompts(const char *book)
{
    struct buf text = { .max = 8 << 20 };
    must(file_read(book, 8 << 20, &text, NULL) == 0 && text.len > PROMPTS * 2 * PROMPT_BYTES);
    for (size_t i = 0; i < PROMPTS; i++) {
        struct json_writer w;
        struct str part = str_of(text.data + i * (text.len / PROMPTS), PROMPT_BYTES);
        while (part.len > 0 && (part.data[part.len - 1] & 0x80))
            part.len--;
        while (part.len > 0 && (part.data[0] & 0x80))
            part = str_of(part.data + 1, part.len - 1);
        json_writer_init(&w, &prompts[i]);
        json_put_str(&w, part);
        must(prompts[i].rc == 0);
    }
    buf_fini(&text);
}

struct client {
    int fd;
    uint32_t got, want; /* bytes of a whole reply; want 0: its head is not whole */
    char last;
    char head[2048];
};

static void ask(const struct client *c, uint32_t number, bool stream)
{
    static char body[4 * PROMPT_BYTES], bytes[5 * PROMPT_BYTES];
    int len = snprintf(body, sizeof body,
                       "{\"model\":\"fake\",\"messages\":[{\"role\":\"user\",\"content\":%.*s}],"
                       "\"max_tokens\":%d,\"ignore_eos\":true,\"stream\":%s}",
                       (int)prompts[number % PROMPTS].len, prompts[number % PROMPTS].data,
                       stream ? 90000 : 1, stream ? "true" : "false");
    must(len > 0 && len < (int)sizeof body);
    int all = snprintf(bytes, sizeof bytes,
                       "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: "
                       "application/json\r\nuser-agent: bench\r\ncontent-length: %d\r\n\r\n%s",
                       len, body);
    must(send(c->fd, bytes, (size_t)all, MSG_NOSIGNAL) == all);
}

/* Reads what has come. Returns true when the reply is whole. */
static bool read_whole(struct client *c)
{
    char bytes[16384];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return false;
    must(n > 0);
    if (c->want == 0) {
        size_t take = min_size((size_t)n, sizeof c->head - 1 - c->got);
        memcpy(c->head + c->got, bytes, take);
        c->head[c->got + take] = 0;
        const char *end = strstr(c->head, "\r\n\r\n"), *length;
        must(strncmp(c->head, "HTTP/1.1 200", 12) == 0);
        length = strcasestr(c->head, "content-length: ");
        must(end && length);
        c->want = (uint32_t)(end + 4 - c->head) + (uint32_t)strtoul(length + 16, NULL, 10);
    }
    c->got += (uint32_t)n;
    if (c->got < c->want) return false;
    c->got = c->want = 0;
    return true;
}

static int open_clients(const struct way *w, struct client *client, uint32_t count)
{
    int at = epoll_create1(EPOLL_CLOEXEC);
    must(at >= 0);
    for (uint32_t i = 0; i < count; i++) {
        client[i] = (struct client){ .fd = rig_connect(w->process.port, 0) };
        struct epoll_event ev = { .events = EPOLLIN, .data.u32 = i };
        must(epoll_ctl(at, EPOLL_CTL_ADD, client[i].fd, &ev) == 0);
    }
    return at;
}

static void close_clients(int at, struct client *client, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        close(client[i].fd);
    close(at);
}

static double request_us(const struct way *w)
{
    static struct client client[CONNECTIONS];
    struct epoll_event ev[CONNECTIONS];
    int at = open_clients(w, client, CONNECTIONS);
    uint32_t asked = 0, done = 0;
    double from_us = 0;
    while (asked < CONNECTIONS)
        ask(&client[asked], asked, false), asked++;
    while (done < WARM + REQUESTS) {
        int n = epoll_wait(at, ev, CONNECTIONS, STALL_MS);
        must(n > 0);
        for (int i = 0; i < n; i++) {
            struct client *c = &client[ev[i].data.u32];
            if (!read_whole(c)) continue;
            if (++done == WARM) from_us = cpu_us(w);
            if (asked < WARM + REQUESTS) ask(c, asked++, false);
        }
    }
    double us = (cpu_us(w) - from_us) / REQUESTS;
    close_clients(at, client, CONNECTIONS);
    return us;
}

/* Reads what has come. Returns how many events end in it. */
static uint32_t count_events(struct client *c)
{
    char bytes[65536];
    uint32_t events = 0;
    ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return 0;
    must(n > 0);
    for (ssize_t i = 0; i < n; i++) {
        events += c->last == '\n' && bytes[i] == '\n';
        c->last = bytes[i];
    }
    return events;
}

static double chunk_us(const struct way *w, uint64_t round)
{
    static struct client client[STREAMS];
    static struct epoll_event ev[STREAMS];
    int at = open_clients(w, client, STREAMS);
    uint32_t asked = 0;
    uint64_t events = 0;
    double from_us = 0, agent_from_us = 0;
    int64_t begun_us = clock_mono_us(), counted_us = 0, now_us = begun_us;
    while (counted_us == 0 || now_us < counted_us + CHUNKS_US) {
        while (asked < STREAMS && now_us >= begun_us + (int64_t)asked * TOKEN_US * 2 / STREAMS)
            ask(&client[asked], asked, true), asked++;
        int n = epoll_wait(at, ev, STREAMS, asked < STREAMS ? 1 : 100);
        must(n >= 0);
        for (int i = 0; i < n; i++)
            events += count_events(&client[ev[i].data.u32]);
        now_us = clock_mono_us();
        if (counted_us == 0 && asked == STREAMS && now_us > begun_us + 6 * TOKEN_US) {
            counted_us = now_us;
            events = 0;
            from_us = cpu_us(w);
            if (w->agent) agent_from_us = cpu_us(w->agent);
        }
    }
    double us = (cpu_us(w) - from_us) / (double)max_u64(events, 1);
    if (w->agent)
        w->agent->chunk_us[round] = (cpu_us(w->agent) - agent_from_us) / (double)max_u64(events, 1);
    fprintf(stderr, "%s: %llu chunks in %.1f s, %.2f us each\n", w->name,
            (unsigned long long)events, (double)(now_us - counted_us) * 1e-6, us);
    close_clients(at, client, STREAMS);
    return us;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show(const char *what, const char *name, double *us, size_t rounds)
{
    qsort(us, rounds, sizeof *us, by_size);
    printf("%s,%s,%.2f,%.2f,%.2f\n", what, name, us[rounds / 2], us[0], us[rounds - 1]);
}

int main(int argc, char **argv)
{
    static struct way agent = { .name = "agent" };
    static struct way way[] = { { .name = "router" },
                                { .name = "nginx" },
                                { .name = "haproxy" },
                                { .name = "relay" },
                                { .name = "tunnel", .agent = &agent } };
    static char vocabulary[512], book[512];
    uint64_t rounds = 5;
    const char *shared = getenv("MUSTER_SHARED");
    if (argc > 1 &&
        (str_to_u64(str_from(argv[1]), &rounds) < 0 || rounds < 1 || rounds > ROUNDS_MAX))
        return 2;
    if (!rig_can_run(ARGS("MUSTER_BIN", "FAKE_ENGINE_BIN", "MUSTER_SHARED", "/usr/sbin/nginx",
                          "/usr/sbin/haproxy")))
        return RIG_SKIP;
    snprintf(vocabulary, sizeof vocabulary, "%s/data/vocab/gpt-2.gguf", shared);
    if (argc > 3) snprintf(vocabulary, sizeof vocabulary, "%s", argv[3]);
    const bool requests = argc < 3 || strcmp(argv[2], "chunks") != 0;
    const bool chunks = argc < 3 || strcmp(argv[2], "requests") != 0;
    snprintf(book, sizeof book, "%s/data/text/sherlock-holmes.txt", shared);
    if (!rig_can_run(ARGS(vocabulary, book))) return RIG_SKIP;
    struct rlimit files;
    must(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &files) == 0);
    make_prompts(book);
    uint16_t origin = rig_port();
    origin_start(origin);
    start_routers(&way[0], &way[4], vocabulary);
    start_nginx(&way[1], origin);
    start_haproxy(&way[2], origin);
    start_relay(&way[3], origin);
    set_token_ms(0);
    for (uint64_t r = 0; requests && r < rounds; r++)
        for (size_t i = 0; i < COUNT_OF(way); i++)
            way[i].request_us[r] = request_us(&way[i]);
    set_token_ms(TOKEN_US / 1000);
    for (uint64_t r = 0; chunks && r < rounds; r++)
        for (size_t i = 0; i < COUNT_OF(way); i++)
            way[i].chunk_us[r] = chunk_us(&way[i], r);
    printf("what,way,cpu_us,least,most\n");
    for (size_t i = 0; requests && i < COUNT_OF(way); i++)
        show("request", way[i].name, way[i].request_us, rounds);
    for (size_t i = 0; chunks && i < COUNT_OF(way); i++)
        show("chunk", way[i].name, way[i].chunk_us, rounds);
    if (chunks) show("chunk", agent.name, agent.chunk_us, rounds);
    return rig_end(0);
}
