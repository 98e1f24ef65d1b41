/* t_http_diff.c - our HTTP server beside nginx and haproxy on requests drawn from a seed.
 *
 * A proxy before Muster and Muster behind it must not read one stream of bytes as different requests.
 * So each drawn request goes to each server with a well-formed one behind it, the marker, on one
 * connection, and what came back is a word: a letter for each final reply,
 *
 *     a   taken        m   the marker was taken        r   refused
 *
 * What we take, both others must take, and see what follows at the same place: each `a` and `m` of
 * ours stands in their words too. Where we are the stricter one is counted by the odd form of the
 * request and printed. nginx and haproxy run on loopback as whoever runs the test, with files in the
 * test's folder only; absent, they are left out with a sentence. */
#include "base/core/bits.h"
#include "base/io/http/http_server.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "tests/proc/edge/http_draw.h"
#include "tests/proc/rig/rig.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CASES 10000
#define SEED 14
#define AT_ONCE 200
#define WORD_MAX 8
#define GIVE_UP_US 60000000 /* of one connection; servers end theirs after 2 s */
#define SECOND ((int64_t)1000000)
#define CLASSES_MAX 256

static const struct str marker =
    STR("GET /marker HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n");

struct word {
    char letters[WORD_MAX + 1];
};

struct peer {
    const char *name;
    uint16_t port;
    bool runs;
    struct word *word; /* one a case */
};

static struct drawn *cases;

/* ---- our server ------------------------------------------------------------------------------ */

static struct loop *loop;
static struct http_server *ours;

/* As the product does: paths and methods that it does not know are refused. */
static void on_request(void *ctx, struct http_exchange *x)
{
    static const char *const methods[] = { "GET", "POST", "PUT", "DELETE" };
    (void)ctx;
    const struct http_request *req = http_exchange_request(x);
    bool known = false;
    for (size_t i = 0; i < COUNT_OF(methods); i++)
        known |= str_eq(req->method, str_from(methods[i]));
    int status = str_eq(req->path, STR("/marker"))                             ? 204
                 : str_eq(req->path, STR("/")) || str_eq(req->path, STR("/a")) ? 200
                                                                               : 404;
    http_reply(x, known ? status : 405, (struct str){ 0 }, (struct str){ 0 });
}

static uint16_t start_ours(void)
{
    struct err err = { 0 };
    const struct http_server_config config = {
        .host = "127.0.0.1",
        .limits = { .head_us = 2 * SECOND, .body_us = 2 * SECOND, .idle_us = 2 * SECOND },
        .on_request = on_request
    };
    assert_int_equal(loop_new(&loop, &err), 0);
    if (http_server_new(loop, &config, &ours, &err) < 0) fail_msg("%s", err.text);
    return http_server_port(ours);
}

/* ---- the others ------------------------------------------------------------------------------ */

static const char nginx_text[] =
    "daemon off; master_process off; worker_processes 1; pid %s/nginx.pid;\n"
    "error_log stderr crit;\n"
    "events { worker_connections 1024; }\n"
    "http { access_log off; client_body_temp_path %s/b; proxy_temp_path %s/p;\n"
    "  fastcgi_temp_path %s/f; uwsgi_temp_path %s/u; scgi_temp_path %s/s;\n"
    "  client_header_buffer_size 64k; large_client_header_buffers 4 64k;\n"
    "  client_header_timeout 2s; client_body_timeout 2s; keepalive_timeout 2s;\n"
    "  server { listen 127.0.0.1:%u; location = /marker { return 204; }\n"
    "           location = /ready { return 200 ''; }\n"
    "           location / { return 200 ''; } } }\n";

static const char haproxy_text[] =
    "global\n  maxconn 1000\n  nbthread 1\n  tune.bufsize 65536\n  tune.http.maxhdr 256\n"
    "defaults\n  mode http\n  option http-buffer-request\n  timeout client 2s\n"
    "  timeout http-request 2s\n  timeout http-keep-alive 2s\n  timeout connect 2s\n"
    "  timeout server 2s\n"
    "frontend all\n  bind 127.0.0.1:%u\n"
    "  http-request return status 204 if { path /marker }\n"
    "  http-request return status 200\n";

/* Where Debian puts servers is not on everybody's path. */
static const char *program(const char *name)
{
    static char path[64];
    static const char *const folders[] = { "/usr/sbin", "/usr/bin", "/usr/local/sbin",
                                           "/usr/local/bin" };
    for (size_t i = 0; i < COUNT_OF(folders); i++) {
        snprintf(path, sizeof path, "%s/%s", folders[i], name);
        if (access(path, X_OK) == 0) return path;
    }
    printf("skipped: %s is not installed: its reading of HTTP is not compared\n", name);
    return NULL;
}

static void start_nginx(struct peer *p)
{
    char file[RIG_PATH], text[2048];
    const char *at = program("nginx"), *f = rig_folder();
    if (!at) return;
    p->port = rig_port();
    snprintf(text, sizeof text, nginx_text, f, f, f, f, f, f, p->port);
    rig_file(file, "nginx.conf", text);
    rig_start("nginx", ARGS(at, "-e", "stderr", "-p", f, "-c", file), p->port, "/ready", 200);
    p->runs = true;
}

static void start_haproxy(struct peer *p)
{
    char file[RIG_PATH], text[1024];
    const char *at = program("haproxy");
    if (!at) return;
    p->port = rig_port();
    snprintf(text, sizeof text, haproxy_text, p->port);
    rig_file(file, "haproxy.cfg", text);
    rig_start("haproxy", ARGS(at, "-db", "-f", file), p->port, "/ready", 200);
    p->runs = true;
}

/* ---- one connection a case ------------------------------------------------------------------- */

struct talk {
    int fd; /* -1: this place is free */
    uint32_t at;
    size_t sent;
    struct buf text, got;
    int64_t begun_us;
};

/* A letter for each final status line. Bodies of all three hold no line like one. */
static struct word read_word(struct str got)
{
    struct word w = { "" };
    size_t letters = 0;
    for (size_t i = 0; i + 12 < got.len && letters < WORD_MAX; i++) {
        struct str line = str_of(got.data + i, got.len - i);
        bool starts = i == 0 || got.data[i - 1] == '\n' || got.data[i - 1] == '>' || letters > 0;
        if (!starts || !str_starts(line, STR("HTTP/1.")) || line.data[8] != ' ') continue;
        if (line.data[9] == '1') continue; /* 100 Continue */
        bool taken = line.data[9] == '2';
        w.letters[letters++] = (char)(!taken ? 'r' : line.data[11] == '4' ? 'm' : 'a');
    }
    return w;
}

static void talk_begin(struct talk *t, uint16_t port, uint32_t at)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *t = (struct talk){ .at = at, .begun_us = clock_mono_us() };
    t->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(t->fd >= 0);
    if (connect(t->fd, (struct sockaddr *)&to, sizeof to) < 0) assert_int_equal(errno, EINPROGRESS);
    buf_str(&t->text, buf_view(&cases[at].text));
    buf_str(&t->text, marker);
}

/* True when the server has ended the connection. */
static bool talk_on(struct talk *t)
{
    char bytes[4096];
    if (t->sent < t->text.len) {
        ssize_t sent = send(t->fd, t->text.data + t->sent, t->text.len - t->sent, MSG_NOSIGNAL);
        if (sent > 0) t->sent += (size_t)sent;
    }
    for (;;) {
        ssize_t got = recv(t->fd, bytes, sizeof bytes, 0);
        if (got < 0 && errno == EAGAIN) break;
        if (got <= 0) return true;
        buf_append(&t->got, bytes, (size_t)got);
    }
    if (clock_mono_us() - t->begun_us > GIVE_UP_US)
        fail_msg("case %u: the server neither answers nor ends the connection", t->at);
    return false;
}

static void talk_end(struct talk *t, struct peer *p)
{
    p->word[t->at] = read_word(buf_view(&t->got));
    close(t->fd);
    buf_fini(&t->text);
    buf_fini(&t->got);
    t->fd = -1;
}

static void run_all(struct peer *p, bool is_ours)
{
    static struct talk talk[AT_ONCE];
    struct pollfd watch[AT_ONCE];
    uint32_t next = 0, open = 0;
    for (uint32_t i = 0; i < AT_ONCE; i++)
        talk[i].fd = -1;
    do {
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            if (talk[i].fd < 0 && next < CASES) {
                talk_begin(&talk[i], p->port, next++);
                open++;
            }
            short events = talk[i].sent < talk[i].text.len ? POLLIN | POLLOUT : POLLIN;
            watch[i] = (struct pollfd){ .fd = talk[i].fd, .events = events };
        }
        if (is_ours) assert_int_equal(loop_turn(loop, 0), 0);
        poll(watch, AT_ONCE, is_ours ? 1 : 100);
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            if (talk[i].fd < 0 || !talk_on(&talk[i])) continue;
            talk_end(&talk[i], p);
            open--;
        }
    } while (open > 0 || next < CASES);
}

/* ---- judging --------------------------------------------------------------------------------- */

struct class
{
    const char *odd;
    uint32_t count;
};

static void count_class(struct class *classes, const char *odd)
{
    uint32_t i = 0;
    while (classes[i].odd && strcmp(classes[i].odd, odd) != 0)
        i++;
    assert_true(i < CLASSES_MAX - 1);
    classes[i].odd = odd;
    classes[i].count++;
}

static void show(const struct drawn *d)
{
    for (size_t i = 0; i < min_size(d->text.len, 600); i++) {
        unsigned char c = (unsigned char)d->text.data[i];
        printf(c >= ' ' && c < 127 ? "%c" : c == '\n' ? "\\n\n" : c == '\r' ? "\\r" : "\\x%02x", c);
    }
    printf("\n");
}

/* What ours took at place i, theirs took there. Theirs may have ended the connection behind a refusal,
 * and where it may end behind the request anyway. */
static bool agrees(const struct drawn *d, const char *mine, const char *other)
{
    bool may_end = false;
    for (size_t i = 0; mine[i] && (other[i] || !may_end); i++) {
        if (mine[i] != 'r' && mine[i] != other[i]) return false;
        may_end = d->persistence || mine[i] == 'r';
    }
    return true;
}

static uint32_t judge(const struct peer *mine, const struct peer *other)
{
    static struct class classes[CLASSES_MAX];
    uint32_t wrong = 0, both = 0, followed = 0, stricter = 0;
    memset(classes, 0, sizeof classes);
    for (uint32_t i = 0; i < CASES; i++) {
        const struct drawn *d = &cases[i];
        const char *a = mine->word[i].letters, *b = other->word[i].letters;
        if (!agrees(d, a, b)) {
            if (wrong++ >= 300) continue;
            printf("case %u (%s %s): ours '%s', %s '%s'\n", i, d->odd[0] ? d->odd[0] : "plain",
                   d->odd[1] ? d->odd[1] : "", a, other->name, b);
            show(d);
        }
        both += a[0] == 'a' && b[0] == 'a';
        followed += strcmp(a, "am") == 0 && strcmp(b, "am") == 0;
        if (a[0] == 'a' || b[0] != 'a') continue;
        stricter++;
        if (!d->odd[1]) count_class(classes, d->odd[0] ? d->odd[0] : "plain");
    }
    printf(
        "%s: %u of %u taken by both, %u with the marker at the same place; %u taken by %s alone\n",
        other->name, both, CASES, followed, stricter, other->name);
    for (uint32_t i = 0; classes[i].odd; i++)
        printf("    stricter than %s: %-22s %u\n", other->name, classes[i].odd, classes[i].count);
    assert_true(both > CASES / 5 && followed > CASES / 10);
    return wrong;
}

static void what_we_take_others_take_alike(void **state)
{
    (void)state;
    struct rng rng;
    struct peer mine = { .name = "ours" },
                others[] = { { .name = "nginx" }, { .name = "haproxy" } };
    start_nginx(&others[0]);
    start_haproxy(&others[1]);
    if (!others[0].runs && !others[1].runs) skip();
    cases = calloc(CASES, sizeof *cases);
    mine.word = calloc(CASES, sizeof *mine.word);
    assert_true(cases && mine.word);
    rng_seed(&rng, SEED);
    for (uint32_t i = 0; i < CASES; i++)
        http_draw(&rng, &cases[i]);
    mine.port = start_ours();
    run_all(&mine, true);
    uint32_t wrong = 0;
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        if (!others[i].runs) continue;
        others[i].word = calloc(CASES, sizeof *others[i].word);
        assert_non_null(others[i].word);
        run_all(&others[i], false);
        wrong += judge(&mine, &others[i]);
        free(others[i].word);
    }
    http_server_free(ours);
    loop_free(loop);
    for (uint32_t i = 0; i < CASES; i++)
        buf_fini(&cases[i].text);
    free(cases);
    free(mine.word);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    log_set_level(LOG_LEVEL_COUNT - 1);
    const struct CMUnitTest tests[] = { cmocka_unit_test(what_we_take_others_take_alike) };
    return rig_end(cmocka_run_group_tests(tests, NULL, NULL));
}
