/* seed.c - serves chunks of files from a thread with a loop of its own. */
#include "agent/seed.h"

#include "base/core/bits.h"
#include "base/core/list.h"
#include "base/io/auth/auth_gate.h"
#include "base/io/file.h"
#include "base/io/http/http_browser.h"
#include "base/io/loop/loop.h"
#include "base/wire/seal.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "/internal/weights/"
#define PIECE_BYTES ((size_t)256 << 10)
#define UNSENT_BYTES_MAX ((size_t)1 << 20) /* of a stream, in memory */
#define CONNECTIONS_MAX 64
#define WAIT_US 20000 /* before an empty budget is looked at again */
#define BURST_US 100000
#define ARENA_BYTES (2 * SEAL_BYTES_MAX)
#define TEXT STR("text/plain")

struct seed {
    struct seed_config config;
    char instance[CREDENTIALS_NAME_BYTES + 1], host[256];
    struct loop *loop;
    struct http_server *server;
    struct auth_gate gate;
    pthread_t thread;
    bool runs;
    struct buf text; /* the seal */
    struct arena arena;
    struct seal seal;
    char base[PATH_MAX]; /* of the files' names; of one file its path */
    struct list streams;
    uint32_t stream_count;
    double tokens; /* bytes that may be sent */
    int64_t filled_us;
    char piece[PIECE_BYTES];
};

struct stream {
    struct list link;
    struct seed *seed;
    struct http_exchange *x;
    int fd;
    uint64_t at, end;
    struct loop_timer timer;
};

static void refuse(struct http_exchange *x, int status, const char *sentence)
{
    if (status == 503) http_reply_header(x, "retry-after", STR("1"));
    http_reply(x, status, TEXT, str_from(sentence));
}

/* ---- a stream ---- */

static void stream_free(struct stream *t)
{
    loop_timer_clear(t->seed->loop, &t->timer);
    list_remove(&t->link);
    t->seed->stream_count--;
    close(t->fd);
    free(t);
}

static void on_left(void *arg, enum http_abort why)
{
    (void)why;
    stream_free(arg);
}

/* Takes bytes out of the budget; 0: none until it has grown again. */
static size_t take_budget(struct seed *s, size_t wanted)
{
    double rate = (double)s->config.rate;
    if (s->config.rate == 0) return wanted;
    int64_t now_us = loop_now_us(s->loop);
    s->tokens += rate * (double)(now_us - s->filled_us) * 1e-6;
    s->filled_us = now_us;
    double most = rate * BURST_US * 1e-6 + PIECE_BYTES;
    if (s->tokens > most) s->tokens = most;
    if (s->tokens < (double)wanted) return 0;
    s->tokens -= (double)wanted;
    return wanted;
}

static void pump(void *arg)
{
    struct stream *t = arg;
    while (t->at < t->end && !http_stream_full(t->x)) {
        size_t want = (size_t)min_u64(t->end - t->at, PIECE_BYTES);
        if (take_budget(t->seed, want) == 0) {
            if (loop_timer_set(t->seed->loop, &t->timer, loop_now_us(t->seed->loop) + WAIT_US) == 0)
                return;
            break;
        }
        ssize_t n = pread(t->fd, t->seed->piece, want, (off_t)t->at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break; /* it is shorter than the seal says, or the disk fails */
        int rc = http_stream_write(t->x, t->seed->piece, (size_t)n);
        if (rc == -EAGAIN) return; /* the same bytes again, when there is room */
        if (rc < 0) break;
        t->at += (uint64_t)n;
    }
    if (t->at < t->end && http_stream_full(t->x)) return;
    struct http_exchange *x = t->x;
    bool whole = t->at == t->end;
    stream_free(t);
    if (whole)
        http_stream_end(x);
    else
        http_exchange_abort(x);
}

static int open_file(const struct seed *s, uint32_t f)
{
    char path[PATH_MAX];
    const struct seal_file *file = &s->seal.file[f];
    bool one = str_eq(file->name, STR(SEAL_ONE_FILE));
    int n = one ? snprintf(path, sizeof path, "%s", s->base)
                : snprintf(path, sizeof path, "%s/" STR_FMT, s->base, STR_ARG(file->name));
    return n < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

static void send_chunk(struct seed *s, struct http_exchange *x, uint32_t f, uint32_t c)
{
    struct stream *t = s->stream_count < SEED_STREAMS_MAX ? calloc(1, sizeof *t) : NULL;
    if (!t) {
        refuse(x, 503, "as many chunks are under way as may be\n");
        return;
    }
    uint64_t from = c * SEAL_CHUNK_BYTES;
    *t = (struct stream){ .seed = s,
                          .x = x,
                          .fd = open_file(s, f),
                          .at = from,
                          .end = from + seal_chunk_bytes(s->seal.file[f].bytes, c) };
    t->timer = (struct loop_timer){ .fn = pump, .arg = t };
    if (t->fd < 0 || http_stream_begin(x, 200, STR("application/octet-stream")) < 0) {
        if (t->fd >= 0) close(t->fd);
        free(t);
        refuse(x, 404, "the file is gone\n");
        return;
    }
    list_push_back(&s->streams, &t->link);
    s->stream_count++;
    http_exchange_watch(x, on_left, pump, t);
    pump(t);
}

/* ---- requests ---- */

static bool is_owner(const struct seed *s, struct str id)
{
    (void)str_cut(&id, '/');
    return str_eq(str_cut(&id, '/'), str_from(s->instance));
}

static bool pass(struct seed *s, struct http_exchange *x, const struct auth_note *note)
{
    const struct http_request *req = http_exchange_request(x);
    const struct http_names names = { .own = str_from(s->host), .port = seed_port(s) };
    if (note->who == AUTH_ASKED_AGAIN) {
        refuse(x, 401, "sign for the epoch and the time of this reply\n");
        return false;
    }
    if (note->who == AUTH_PERSON || (note->who == AUTH_PART && is_owner(s, auth_gate_id(req))))
        return true;
    if (!credentials_held(s->config.held) && browser_peer_is_local(req) &&
        browser_check(&names, req) == BROWSER_OK)
        return true;
    refuse(x, 401, "this path is for agents of the fleet\n");
    return false;
}

static void on_head(void *ctx, struct http_exchange *x)
{
    struct seed *s = ctx;
    const struct http_request *req = http_exchange_request(x);
    struct auth_note *note = http_exchange_note(x);
    _Static_assert(sizeof *note <= HTTP_NOTE_BYTES, "a note holds it");
    auth_gate_head(&s->gate, x, note, loop_now_us(s->loop));
    if (!str_eq(req->method, STR("GET")))
        refuse(x, 405, "only GET is served\n");
    else
        (void)pass(s, x, note);
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct seed *s = ctx;
    struct str path = http_exchange_request(x)->path, prefix = STR(PREFIX);
    uint64_t f, c;
    if (!auth_gate_body(http_exchange_note(x), http_exchange_request(x))) {
        refuse(x, 401, "the body is not what was signed\n");
        return;
    }
    struct str rest = str_of(path.data + min_size(prefix.len, path.len),
                             path.len - min_size(prefix.len, path.len));
    struct str model = str_cut(&rest, '/');
    if (!str_starts(path, prefix) || !str_eq_nocase(model, str_from(s->seal.sha256))) {
        refuse(x, 404, "this agent has no such model\n");
        return;
    }
    if (!rest.data) {
        http_reply(x, 200, TEXT, buf_view(&s->text));
        return;
    }
    struct str file = str_cut(&rest, '/');
    if (str_to_u64(file, &f) < 0 || str_to_u64(rest, &c) < 0 || f >= s->seal.file_count ||
        c >= seal_chunks(s->seal.file[f].bytes))
        refuse(x, 404, "the model has no such chunk\n");
    else
        send_chunk(s, x, (uint32_t)f, (uint32_t)c);
}

static void on_reply(void *ctx, struct http_exchange *x, int status, const struct str *body)
{
    struct seed *s = ctx;
    auth_gate_reply(&s->gate, x, http_exchange_note(x), status, body, loop_now_us(s->loop));
}

/* ---- life ---- */

static int listen_at(struct seed *s, uint16_t port, struct err *err)
{
    const struct http_server_config server = {
        .host = s->host,
        .port = port,
        .limits = { .connections_max = CONNECTIONS_MAX,
                    .connections_address_max = CONNECTIONS_MAX,
                    .body_bytes_max = 4096,
                    .unsent_bytes_max = UNSENT_BYTES_MAX },
        .on_head = on_head,
        .on_request = on_request,
        .on_reply = on_reply,
        .ctx = s,
    };
    return http_server_new(s->loop, &server, &s->server, err);
}

/* Finds where the files lie, and that they have the sizes of the seal. */
static int check_files(struct seed *s, struct err *err)
{
    struct stat st;
    snprintf(s->base, sizeof s->base, "%s", s->config.model);
    bool one = str_eq(s->seal.file[0].name, STR(SEAL_ONE_FILE));
    char *slash = strrchr(s->base, '/');
    if (!one && slash && stat(s->base, &st) == 0 && !S_ISDIR(st.st_mode)) *slash = 0;
    for (uint32_t f = 0; f < s->seal.file_count; f++) {
        int fd = open_file(s, f);
        bool fits = fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == s->seal.file[f].bytes;
        if (fd >= 0) close(fd);
        if (!fits) return err_set(err, -EINVAL, "the seal is of other files than lie there");
    }
    return 0;
}

static void *serve(void *arg)
{
    struct seed *s = arg;
    (void)loop_run(s->loop);
    return NULL;
}

static int open_parts(struct seed *s, struct str sha256, struct err *err)
{
    static const char *const ids[] = { "weights/", NULL };
    uint64_t epoch;
    int rc = file_read(s->config.seal, SEAL_BYTES_MAX, &s->text, err);
    if (rc == 0) rc = seal_read(buf_view(&s->text), sha256, &s->arena, &s->seal, err);
    if (rc == 0) rc = check_files(s, err);
    if (rc == 0) rc = loop_new(&s->loop, err);
    if (rc < 0) return rc;
    if (getrandom(&epoch, sizeof epoch, 0) != sizeof epoch)
        return err_set(err, -EIO, "the system gives no random bytes");
    auth_gate_init(&s->gate, s->config.held, ids, epoch, loop_now_us(s->loop));
    s->filled_us = loop_now_us(s->loop);
    rc = -EADDRINUSE;
    for (uint32_t i = 0; rc == -EADDRINUSE && i < SEED_PORT_COUNT; i++)
        rc = listen_at(s, (uint16_t)(SEED_PORT_FIRST + i), err);
    if (rc == 0 && pthread_create(&s->thread, NULL, serve, s) != 0)
        rc = err_set(err, -EAGAIN, "no thread");
    s->runs = rc == 0;
    return rc;
}

int seed_open(const struct seed_config *config, struct str sha256, struct seed **ret,
              struct err *err)
{
    struct seed *s = calloc(1, sizeof *s);
    if (!s) return err_set(err, -ENOMEM, "no memory");
    s->config = *config;
    snprintf(s->host, sizeof s->host, "%s", config->host);
    snprintf(s->instance, sizeof s->instance, STR_FMT, STR_ARG(config->instance));
    list_init(&s->streams);
    arena_init(&s->arena, ARENA_BYTES);
    int rc = open_parts(s, sha256, err);
    if (rc < 0)
        seed_close(s);
    else
        *ret = s;
    return rc;
}

void seed_close(struct seed *s)
{
    if (!s) return;
    if (s->runs) {
        loop_stop(s->loop);
        pthread_join(s->thread, NULL);
    }
    LIST_EACH_SAFE (&s->streams, node) {
        struct stream *t = CONTAINER_OF(node, struct stream, link);
        http_exchange_abort(t->x);
        stream_free(t);
    }
    http_server_free(s->server);
    if (s->loop) auth_gate_fini(&s->gate);
    loop_free(s->loop);
    arena_fini(&s->arena);
    buf_fini(&s->text);
    free(s);
}

uint16_t seed_port(const struct seed *s)
{
    return http_server_port(s->server);
}
