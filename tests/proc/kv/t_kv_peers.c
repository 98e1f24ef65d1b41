/* t_kv_peers.c - fetches K and V from peers that are dead, strange, slow or lying, while clients leave.
 *
 * The engine computes what it did not get, keeps the valid part of what came, and leaks nothing. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/auth/auth.h"
#include "tests/proc/kv/kv_rig.h"
#include "tests/proc/rig/rig.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KV_FAKE_OPEN_MAX 64

struct kv_fake {
    int listener;
    uint16_t port;
    pthread_t thread;
    struct str reply; /* sent to each request before the connection is closed; empty: no reply */
    struct str then;  /* if not empty: sent from the second request on */
    atomic_uint asked;
    int open[KV_FAKE_OPEN_MAX]; /* connections that get no reply */
    uint32_t open_count;
};

/* The fake peer accepts a connection, reads one whole request, replies and closes. */

static size_t body_bytes(const char *head)
{
    const char *at = strstr(head, "content-length: ");
    return at ? strtoul(at + 16, NULL, 10) : 0;
}

/* Reads one whole request: if the peer replied and closed earlier, its reply could be cut off. */
static bool read_request(int fd, struct buf *in)
{
    for (;;) {
        char chunk[4096];
        ssize_t n = recv(fd, chunk, sizeof chunk, 0);
        if (n <= 0) return false;
        buf_append(in, chunk, (size_t)n);
        const char *end = strstr(in->data, "\r\n\r\n");
        if (end && in->len >= (size_t)(end - in->data) + 4 + body_bytes(in->data)) return true;
    }
}

/* Signs any reply as a peer that holds the secret would. */
static void sign(struct str request, struct str reply, struct buf *out)
{
    static const struct auth_receiver receiver = { .epoch = 1 };
    struct auth_request a;
    struct auth_key key;
    int status = 0;
    size_t line = str_find(reply, STR("\r\n")), head = str_find(reply, STR("\r\n\r\n"));
    const char *at = strstr(request.data, "authorization: ");
    if (at && head != SIZE_MAX && sscanf(reply.data, "HTTP/1.1 %d", &status) == 1) {
        struct str value = str_of(at + 15, strcspn(at + 15, "\r"));
        const struct str body = str_of(reply.data + head + 4, reply.len - head - 4);
        char text[AUTH_TEXT_BYTES_MAX];
        if (auth_request_parse(value, &a) == 0 && auth_key_of(kv_rig_secret(), a.id, &key) == 0) {
            auth_reply_sign(&receiver, &a, &key, status, &body, 1, text);
            buf_append(out, reply.data, line + 2);
            buf_printf(out, AUTH_REPLY_HEADER ": %s\r\n", text);
            reply = str_of(reply.data + line + 2, reply.len - line - 2);
        }
    }
    buf_append(out, reply.data, reply.len);
}

static void *fake_main(void *arg)
{
    struct kv_fake *f = arg;
    int fd;
    while ((fd = accept(f->listener, NULL, NULL)) >= 0) {
        CLEANUP(buf_fini) struct buf in = { 0 }, out = { 0 };
        if (!read_request(fd, &in)) {
            close(fd);
            continue;
        }
        atomic_fetch_add(&f->asked, 1);
        if (f->reply.len == 0 && f->open_count < COUNT_OF(f->open)) {
            f->open[f->open_count++] = fd;
            continue;
        }
        bool again = f->then.len > 0 && atomic_load(&f->asked) > 1;
        sign(buf_view(&in), again ? f->then : f->reply, &out);
        struct str rest = buf_view(&out);
        while (rest.len > 0) {
            ssize_t n = send(fd, rest.data, rest.len, MSG_NOSIGNAL);
            if (n <= 0) break;
            rest.data += n;
            rest.len -= (size_t)n;
        }
        close(fd);
    }
    return NULL;
}

/* The bytes are borrowed until kv_fake_stop. */
static void kv_fake_start(struct kv_fake *f, struct str reply, struct str then)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof at;
    *f = (struct kv_fake){ .reply = reply, .then = then };
    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(f->listener >= 0);
    assert_int_equal(bind(f->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(f->listener, 64), 0);
    assert_int_equal(getsockname(f->listener, (struct sockaddr *)&at, &len), 0);
    f->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&f->thread, NULL, fake_main, f), 0);
}

static void kv_fake_stop(struct kv_fake *f)
{
    shutdown(f->listener, SHUT_RDWR);
    pthread_join(f->thread, NULL);
    close(f->listener);
    for (uint32_t i = 0; i < f->open_count; i++)
        close(f->open[i]);
}

static uint32_t kv_fake_asked(struct kv_fake *f)
{
    return atomic_load(&f->asked);
}

struct asked {
    struct kv_fake *fake;
    uint32_t times;
};

static bool was_asked(void *arg)
{
    const struct asked *w = arg;
    return atomic_load(&w->fake->asked) >= w->times;
}

static void kv_fake_wait(struct kv_fake *f, uint32_t times)
{
    struct asked w = { f, times };
    rig_wait(was_asked, &w, "the peer is asked");
}

#define ENDED(how) "muster_engine_kv_fetches_total{end=\"" how "\"}"
#define FETCHED "muster_engine_kv_fetched_tokens_total"
#define PROMPT 100

static const struct str nothing;

/* Computes a prompt at A, then at B with that peer: both outputs are equal, and B finds `cached` tokens. */
static void answered(uint32_t seed, uint16_t peer_port, uint32_t cached)
{
    CLEANUP(kv_answer_fini) struct kv_answer want = { 0 };
    CLEANUP(kv_answer_fini) struct kv_answer got = { 0 };
    struct generate_request req = kv_request(PROMPT, seed);
    kv_generate(&kv_a, &req, &want);
    kv_from_port(&req, peer_port);
    kv_generate(&kv_b, &req, &got);
    assert_int_equal(got.status, 200);
    assert_int_equal(got.finish, FINISH_LENGTH);
    assert_int_equal(got.usage.cached_tokens, cached);
    assert_int_equal(got.count, want.count);
    assert_memory_equal(got.ids, want.ids, want.count * sizeof *want.ids);
}

static void a_dead_peer_costs_nothing_but_its_work(void **state)
{
    (void)state;
    answered(1, rig_port(), 0);
    assert_true(kv_metric(&kv_b, ENDED("failed")) == 1);
    struct generate_request req = kv_request(PROMPT, 2);
    struct kv_fetch_reply got = kv_fetch_now(&kv_b, req.ids, PROMPT, "one", rig_port());
    assert_true(got.tokens == 0 && got.pulled == 0);
    assert_true(kv_metric(&kv_b, ENDED("failed")) == 2);
}

static void a_peer_of_another_fleet_gives_nothing(void **state)
{
    (void)state;
    char secret[256];
    snprintf(secret, sizeof secret, "%s/other-secret", rig_folder()); /* made when absent */
    struct rig_process other =
        rig_server("engine", rig_port(), ARGS("--model", kv_tiny, "--secret-file", secret));
    answered(3, other.port, 0);
    assert_true(kv_metric(&kv_b, ENDED("failed")) == 1);
    kv_engine_stop(&other);
}

static void a_peer_with_another_model_gives_nothing(void **state)
{
    (void)state;
    CLEANUP(kv_answer_fini) struct kv_answer x = { 0 };
    struct rig_process other = kv_engine(KV_OTHER_MODEL, NULL);
    struct generate_request req = kv_request(PROMPT, 4);
    kv_generate(&other, &req, &x);
    assert_int_equal(x.status, 200);
    answered(4, other.port, 0);
    assert_true(kv_metric(&kv_b, ENDED("misfit")) == 1);
    kv_engine_stop(&other);
    /* Pages of another size do not fit either. */
    const char *const args[] = { "--block-size", "48", NULL };
    other = kv_engine(kv_tiny, args);
    req = kv_request(PROMPT, 5);
    kv_generate(&other, &req, &x);
    answered(5, other.port, 0);
    assert_true(kv_metric(&kv_b, ENDED("misfit")) == 2);
    kv_engine_stop(&other);
}

static void without_a_prefix_cache_nothing_is_fetched(void **state)
{
    (void)state;
    const char *const args[] = { "--no-enable-prefix-caching", NULL };
    CLEANUP(kv_answer_fini) struct kv_answer x = { 0 };
    struct rig_process c = kv_engine(kv_tiny, args);
    struct generate_request req = kv_request(PROMPT, 6);
    kv_generate(&kv_a, &req, &x);
    kv_from(&req, &kv_a);
    kv_generate(&c, &req, &x);
    assert_true(x.status == 200 && x.usage.cached_tokens == 0);
    struct kv_fetch_reply got = kv_fetch_now(&c, req.ids, PROMPT, "one", kv_a.port);
    assert_true(got.tokens == 0 && got.pulled == 0);
    assert_true(kv_metric(&c, "muster_engine_kv_pages{state=\"cached\"}") == 0);
    kv_engine_stop(&c);
}

/* ---- garbage ---------------------------------------------------------------------------------- */

/* Gets A's reply to a read of this prompt from its beginning. */
static void true_answer(uint32_t seed, struct buf *ret)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(kv_answer_fini) struct kv_answer x = { 0 };
    struct generate_request req = kv_request(PROMPT, seed);
    kv_generate(&kv_a, &req, &x);
    const struct kv_read_request read = { req.ids, PROMPT, STR("one"), 0 };
    assert_int_equal(kv_read_request_encode(&read, &body), 0);
    assert_int_equal(kv_post(&kv_a, "/internal/kv/read", &body, ret), 200);
}

static void put_reply(struct buf *out, const char *status, struct str body, size_t said)
{
    buf_clear(out);
    buf_printf(out, "HTTP/1.1 %s\r\ncontent-length: %zu\r\n\r\n", status, said);
    buf_str(out, body);
}

/* A way to spoil a true reply: another number in its head, or another length. */
struct spoilt {
    const char *why, *end;
    uint32_t at, value; /* of the head, when at > 0 */
    int64_t more;       /* bytes at the end, or fewer */
};

static void lies_are_left_unused(void **state)
{
    (void)state;
    static const struct spoilt rows[] = {
        { "another version", "misfit", 8, 9, 0 },
        { "another type", "misfit", 12, 1, 0 },
        { "fewer layers", "misfit", 16, 1, 0 },
        { "more heads", "misfit", 20, 4, 0 },
        { "wider heads", "misfit", 24, 32, 0 },
        { "larger pages", "misfit", 28, 32, 0 },
        { "no page size", "misfit", 28, 0, 0 },
        { "from elsewhere", "misfit", 32, 16, 0 },
        { "less than came", "misfit", 36, 80, 0 },
        { "more than came", "misfit", 36, 112, 0 },
        { "more than there can be", "misfit", 36, UINT32_MAX, 0 },
        { "another digest", "misfit", 40, 0x30303030, 0 },
        { "other numerics", "misfit", 104, 0x30303030, 0 },
        { "no magic", "misfit", 4, 0, 0 },
        { "cut short", "misfit", 0, 0, -1 },
        { "head only", "misfit", 0, 0, -6 * 16 * 256 },
        { "half a head", "misfit", 0, 0, -6 * 16 * 256 - 100 },
        { "one byte more", "misfit", 0, 0, 1 },
        { "more than fits", "misfit", 0, 0, 9 << 20 },
    };
    double misfits = 0;
    for (uint32_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf answer = { 0 };
        CLEANUP(buf_fini) struct buf reply = { 0 };
        struct kv_fake f;
        true_answer(20 + i, &answer);
        assert_int_equal(answer.len, KV_HEAD_BYTES + 6 * 16 * 256);
        if (rows[i].at > 0) store_u32(answer.data + rows[i].at, rows[i].value);
        for (int64_t k = 0; k < rows[i].more; k++)
            buf_byte(&answer, 'x');
        if (rows[i].more < 0) answer.len -= (size_t)-rows[i].more;
        put_reply(&reply, "200 OK", buf_view(&answer), answer.len);
        kv_fake_start(&f, buf_view(&reply), nothing);
        answered(20 + i, f.port, 0);
        kv_fake_stop(&f);
        if (!(kv_metric(&kv_b, ENDED("misfit")) == ++misfits))
            fail_msg("%s was taken", rows[i].why);
    }
    assert_true(kv_metric(&kv_b, FETCHED) == 0);
    assert_true(kv_metric(&kv_b, "muster_engine_kv_pages{state=\"held\"}") == 0);
}

static void no_http_no_answer(void **state)
{
    (void)state;
    static const char *const replies[] = {
        "\x16\x03\x01 not http at all\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nmusterKV and then no more",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\n{}",
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    };
    for (uint32_t i = 0; i < COUNT_OF(replies); i++) {
        struct kv_fake f;
        kv_fake_start(&f, str_from(replies[i]), nothing);
        answered(50 + i, f.port, 0);
        kv_fake_stop(&f);
        assert_true(kv_metric(&kv_b, ENDED("failed")) == i + 1);
    }
    /* The fake itself works: a true reply from it is used. */
    CLEANUP(buf_fini) struct buf answer = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct kv_fake f;
    true_answer(60, &answer);
    put_reply(&reply, "200 OK", buf_view(&answer), answer.len);
    kv_fake_start(&f, buf_view(&reply), nothing);
    answered(60, f.port, 96);
    kv_fake_stop(&f);
}

static void what_came_before_a_failure_is_kept(void **state)
{
    (void)state;
    const char *const args[] = { "--kv-cache-dtype", "f32", "--kv-cache-memory-bytes", "80MiB",
                                 NULL };
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(buf_fini) struct buf answer = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(kv_answer_fini) struct kv_answer want = { 0 };
    CLEANUP(kv_answer_fini) struct kv_answer got = { 0 };
    struct rig_process c = kv_engine(kv_wide, args), d = kv_engine(kv_wide, args);
    struct generate_request req = kv_request(1200, 70);
    kv_generate(&c, &req, &want);
    const struct kv_read_request read = { req.ids, req.id_count, req.tenant, 0 };
    assert_int_equal(kv_read_request_encode(&read, &body), 0);
    assert_int_equal(kv_post(&c, "/internal/kv/read", &body, &answer), 200);
    put_reply(&reply, "200 OK", buf_view(&answer), answer.len);
    struct kv_fake f;
    const struct str garbage = STR("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\ngarbage");
    kv_fake_start(&f, buf_view(&reply), garbage);
    kv_from_port(&req, f.port);
    kv_generate(&d, &req, &got);
    assert_int_equal(got.usage.cached_tokens, 512);
    assert_true(kv_metric(&d, FETCHED) == 512 && kv_metric(&d, ENDED("misfit")) == 1);
    assert_true(got.count == want.count && got.finish == want.finish);
    assert_memory_equal(got.ids, want.ids, want.count * sizeof *want.ids);
    kv_fake_stop(&f);
    kv_engine_stop(&c);
    kv_engine_stop(&d);
}

/* A reply with fewer tokens than requested is the peer's last: the engine does not ask for the rest. */
static void a_short_answer_is_the_last(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf answer = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct kv_fake f;
    true_answer(71, &answer);
    store_u32(answer.data + 36, 48);
    answer.len = KV_HEAD_BYTES + 3 * 16 * 256;
    put_reply(&reply, "200 OK", buf_view(&answer), answer.len);
    kv_fake_start(&f, buf_view(&reply), nothing);
    answered(71, f.port, 48);
    assert_int_equal(kv_fake_asked(&f), 1);
    kv_fake_stop(&f);
    assert_true(kv_metric(&kv_b, FETCHED) == 48 && kv_metric(&kv_b, ENDED("dry")) == 1);
    struct generate_request req = kv_request(PROMPT, 71);
    assert_int_equal(kv_fetch_now(&kv_b, req.ids, PROMPT, "one", kv_a.port).tokens, 96);
}

static void requests_of_strangers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path, *body, *says;
    } rows[] = {
        { "/internal/kv/read", "{}", "is missing" },
        { "/internal/kv/read", "{\"v\":1,\"ids\":[999999]}", "token id 999999" },
        { "/internal/kv/pull", "[", "kv fetch" },
        { "/internal/kv/pull", "{\"v\":1,\"ids\":[1,2],\"host\":\"h\"}",
          "\\\"port\\\" is missing" },
        { "/internal/kv/pull", "{\"v\":1,\"ids\":[999999],\"host\":\"h\",\"port\":1}", "999999" },
    };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf many = { 0 };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf body = { 0 };
        buf_text(&body, rows[i].body);
        assert_int_equal(rig_call(kv_b.port, rows[i].path, rows[i].body, NULL), 401);
        assert_int_equal(kv_post(&kv_b, rows[i].path, &body, &reply), 400);
        if (!strstr(reply.data, rows[i].says)) fail_msg("%s: %s", rows[i].body, reply.data);
    }
    buf_text(&many, "{\"v\":1,\"ids\":[7");
    for (int i = 0; i < 4096; i++)
        buf_text(&many, ",7");
    buf_text(&many, "]}");
    assert_int_equal(kv_post(&kv_b, "/internal/kv/read", &many, &reply), 400);
    assert_non_null(strstr(reply.data, "4097 ids"));
}

/* ---- a peer that never answers ---------------------------------------------------------------- */

/* Sends a request on a connection of its own, which the caller closes. */
static int send_request(const struct rig_process *e, const char *path, const struct buf *body)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_printf(&text, "POST %s HTTP/1.1\r\nhost: x\r\n%s\r\ncontent-length: %zu\r\n\r\n%s", path,
               kv_rig_header(), body->len, body->data);
    int fd = rig_connect(e->port, 0);
    assert_int_equal(send(fd, text.data, text.len, MSG_NOSIGNAL), (ssize_t)text.len);
    return fd;
}

static int send_generate(const struct rig_process *e, uint32_t seed, uint32_t deadline_ms,
                         uint16_t peer_port)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct generate_request req = kv_request(PROMPT, seed);
    kv_from_port(&req, peer_port);
    req.deadline_ms = deadline_ms;
    assert_int_equal(generate_encode(&req, &body), 0);
    return send_request(e, "/internal/generate", &body);
}

static int send_fetch(const struct rig_process *e, uint32_t seed, uint16_t peer_port)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct generate_request req = kv_request(PROMPT, seed);
    struct kv_ticket ticket;
    kv_ticket_make(peer_port, STR("one"), &ticket);
    const struct kv_fetch_request fetch = { req.ids,
                                            PROMPT,
                                            STR("one"),
                                            STR("127.0.0.1"),
                                            peer_port,
                                            str_from(ticket.text),
                                            str_from(ticket.key),
                                            false };
    assert_int_equal(kv_fetch_request_encode(&fetch, &body), 0);
    return send_request(e, "/internal/kv/pull", &body);
}

static int64_t in_flight(const struct rig_process *e)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf none = { 0 };
    buf_text(&none, "{}");
    assert_int_equal(kv_post(e, "/internal/drain", &none, &reply), 200);
    const char *at = strstr(reply.data, "\"in_flight\":");
    assert_non_null(at);
    return strtoll(at + 12, NULL, 10);
}

static void clients_leave_during_a_fetch(void **state)
{
    (void)state;
    struct kv_fake f;
    kv_fake_start(&f, nothing, nothing);
    int generate = send_generate(&kv_b, 80, 0, f.port), fetch = send_fetch(&kv_b, 81, f.port);
    kv_fake_wait(&f, 2);
    assert_true(kv_metric(&kv_b, "muster_engine_requests_running") == 0);
    close(generate);
    close(fetch);
    kv_wait_metric(&kv_b, ENDED("left"), 2);
    assert_int_equal(in_flight(&kv_b), 0);
    kv_fake_stop(&f);
}

static void a_deadline_holds_and_a_drain_counts(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf seen = { 0 };
    struct kv_fake f, g; /* one for each request: f's may arrive at any time */
    kv_fake_start(&f, nothing, nothing);
    kv_fake_start(&g, nothing, nothing);
    int fd = send_generate(&kv_b, 82, 100, f.port);
    while (!seen.data || !strstr(seen.data, "the request's time was up")) {
        char chunk[4096];
        ssize_t n = recv(fd, chunk, sizeof chunk, 0);
        assert_true(n > 0);
        buf_append(&seen, chunk, (size_t)n);
    }
    close(fd);
    assert_true(kv_metric(&kv_b, ENDED("late")) == 1);
    kv_wait_metric(&kv_b, "muster_engine_requests_finished_total{reason=\"deadline\"}", 1);
    fd = send_generate(&kv_b, 85, 0, g.port);
    kv_fake_wait(&g, 1);
    assert_int_equal(in_flight(&kv_b), 1);
    close(fd);
    kv_wait_metric(&kv_b, ENDED("left"), 1);
    assert_int_equal(in_flight(&kv_b), 0);
    kv_fake_stop(&f);
    kv_fake_stop(&g);
}

static void too_many_fetches_are_not_begun(void **state)
{
    (void)state;
    enum { MOST = 16 }; /* KV_FETCHES_MAX of base/wire/kv_wire.h */
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct kv_fake f;
    int fd[MOST];
    kv_fake_start(&f, nothing, nothing);
    for (uint32_t i = 0; i < MOST; i++)
        fd[i] = send_fetch(&kv_b, 90 + i, f.port);
    kv_fake_wait(&f, MOST);
    answered(89, kv_a.port, 0); /* computed at once, although A has it */
    assert_true(kv_metric(&kv_b, ENDED("busy")) == 1);
    struct generate_request req = kv_request(PROMPT, 88);
    const struct kv_fetch_request fetch = { .ids = req.ids,
                                            .id_count = PROMPT,
                                            .tenant = STR("one"),
                                            .host = STR("127.0.0.1"),
                                            .port = kv_a.port };
    assert_int_equal(kv_fetch_request_encode(&fetch, &body), 0);
    assert_int_equal(kv_post(&kv_b, "/internal/kv/pull", &body, &reply), 429);
    for (uint32_t i = 0; i < MOST; i++)
        close(fd[i]);
    kv_wait_metric(&kv_b, ENDED("left"), MOST);
    answered(87, kv_a.port, 96); /* there is room again */
    kv_fake_stop(&f);
}

/* The engine ends while a request and a pull both wait for a fetch from the peer. */
static void an_engine_may_end_during_a_fetch(void **state)
{
    (void)state;
    const char *const args[] = { "--drain", "0", NULL };
    struct kv_fake f;
    kv_fake_start(&f, nothing, nothing);
    struct rig_process c = kv_engine(kv_tiny, args);
    int generate = send_generate(&c, 83, 0, f.port), fetch = send_fetch(&c, 84, f.port);
    kv_fake_wait(&f, 2);
    kv_engine_stop(&c);
    close(generate);
    close(fetch);
    kv_fake_stop(&f);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", KV_OTHER_MODEL))) return RIG_SKIP;
    kv_rig_open();
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, kv_two_open, kv_two_close)
    const struct CMUnitTest tests[] = {
        CASE(a_dead_peer_costs_nothing_but_its_work),
        CASE(a_peer_of_another_fleet_gives_nothing),
        CASE(a_peer_with_another_model_gives_nothing),
        CASE(without_a_prefix_cache_nothing_is_fetched),
        CASE(lies_are_left_unused),
        CASE(no_http_no_answer),
        CASE(what_came_before_a_failure_is_kept),
        CASE(a_short_answer_is_the_last),
        CASE(requests_of_strangers_are_refused),
        CASE(clients_leave_during_a_fetch),
        CASE(a_deadline_holds_and_a_drain_counts),
        CASE(too_many_fetches_are_not_begun),
        CASE(an_engine_may_end_during_a_fetch),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kv_rig_close();
    return rig_end(failed);
}
