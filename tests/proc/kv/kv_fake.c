/* kv_fake.c - accept, read one request whole, answer, close. */
#include "tests/proc/kv/kv_fake.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/auth/auth.h"
#include "tests/proc/kv/kv_rig.h"

#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static size_t body_bytes(const char *head)
{
    const char *at = strstr(head, "content-length: ");
    return at ? strtoul(at + 16, NULL, 10) : 0;
}

/* Reads one request whole: a peer that answers before would be cut off in the middle. */
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

/* The reply as a peer that holds the secret signs it, whatever it says. */
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

void kv_fake_start(struct kv_fake *f, struct str reply, struct str then)
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

void kv_fake_stop(struct kv_fake *f)
{
    shutdown(f->listener, SHUT_RDWR);
    pthread_join(f->thread, NULL);
    close(f->listener);
    for (uint32_t i = 0; i < f->open_count; i++)
        close(f->open[i]);
}

uint32_t kv_fake_asked(struct kv_fake *f)
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

void kv_fake_wait(struct kv_fake *f, uint32_t times)
{
    struct asked w = { f, times };
    rig_wait(was_asked, &w, "the peer is asked");
}
