/* tls.c - makes TLS contexts from files, and streams over sockets.
 *
 * OpenSSL reads and writes the socket through a BIO of ours, because its own writes with write(), which
 * raises SIGPIPE. Files are checked for changes when a connection begins: no timer, and no work while
 * nothing happens. */
#include "base/io/net/tls.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/loop/lock.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define CIPHERS_1_2 "ECDHE+AESGCM:ECDHE+CHACHA20" /* forward secret and authenticated only */
#define HOST_BYTES 256

enum { FILE_CERTIFICATE, FILE_KEY, FILE_CA, FILE_COUNT };

struct stamp {
    struct timespec changed;
    off_t bytes;
    ino_t inode;
};

struct tls {
    struct lock lock;
    SSL_CTX *ctx;
    bool is_client, is_raw;
    char path[FILE_COUNT][PATH_MAX]; /* "": none */
    struct stamp stamp[FILE_COUNT];  /* of what was last read, good or not */
    int64_t looked_us;
};

struct tls_stream {
    SSL *ssl;
    int fd;
    bool wants_write;
    char problem[TLS_PROBLEM_BYTES];
};

static const unsigned char protocols[] = "\x08http/1.1";
#define PROTOCOLS_BYTES (sizeof protocols - 1)

/* ---- the socket ---- */

static int bio_write(BIO *b, const char *from, int bytes)
{
    const struct tls_stream *s = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    ssize_t count;
    do {
        count = send(s->fd, from, (size_t)bytes, MSG_NOSIGNAL);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EAGAIN) BIO_set_retry_write(b);
    return (int)count;
}

static int bio_read(BIO *b, char *to, int bytes)
{
    const struct tls_stream *s = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    ssize_t count;
    do {
        count = recv(s->fd, to, (size_t)bytes, 0);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EAGAIN) BIO_set_retry_read(b);
    if (count == 0) BIO_set_flags(b, BIO_FLAGS_IN_EOF);
    return (int)count;
}

static long bio_ctrl(BIO *b, int what, long number, void *pointer)
{
    (void)number, (void)pointer;
    if (what == BIO_CTRL_FLUSH) return 1;
    if (what == BIO_CTRL_EOF) return BIO_test_flags(b, BIO_FLAGS_IN_EOF) != 0;
    return 0;
}

static BIO_METHOD *bio_method;

static void bio_method_make(void)
{
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "conn");
    if (!bio_method) return;
    BIO_meth_set_write(bio_method, bio_write);
    BIO_meth_set_read(bio_method, bio_read);
    BIO_meth_set_ctrl(bio_method, bio_ctrl);
}

/* ---- contexts ---- */

static const char *last_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason ? reason : "no reason is known";
}

/* Refuses a key with a passphrase: OpenSSL would ask for it on a terminal. */
static int no_passphrase(char *to, int bytes, int writing, void *arg)
{
    (void)to, (void)bytes, (void)writing, (void)arg;
    return 0;
}

static int choose_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
                           const unsigned char *offered, unsigned int offered_len, void *arg)
{
    (void)ssl, (void)arg;
    unsigned char *chosen;
    int rc =
        SSL_select_next_proto(&chosen, ret_len, protocols, PROTOCOLS_BYTES, offered, offered_len);
    if (rc != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_ALERT_FATAL;
    *ret = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int load_certificate(const struct tls *t, SSL_CTX *ctx, struct err *err)
{
    const char *certificate = t->path[FILE_CERTIFICATE], *key = t->path[FILE_KEY];
    if (!certificate[0]) return 0;
    if (SSL_CTX_use_certificate_chain_file(ctx, certificate) != 1)
        return err_set(err, -EINVAL, "%s: no certificate chain in PEM: %s", certificate,
                       last_reason());
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
        return err_set(err, -EINVAL, "%s: no key in PEM for %s: %s", key, certificate,
                       last_reason());
    return 0;
}

static int load_ca(const struct tls *t, SSL_CTX *ctx, struct err *err)
{
    const char *ca = t->path[FILE_CA];
    if (!ca[0] && !t->is_client) return 0;
    int mode = SSL_VERIFY_PEER | (t->is_client ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT);
    SSL_CTX_set_verify(ctx, mode, NULL);
    if (!ca[0]) {
        if (SSL_CTX_set_default_verify_paths(ctx) == 1) return 0;
        return err_set(err, -EINVAL, "the system's CA certificates: %s", last_reason());
    }
    if (SSL_CTX_load_verify_file(ctx, ca) != 1)
        return err_set(err, -EINVAL, "%s: no CA certificates in PEM: %s", ca, last_reason());
    if (!t->is_client) SSL_CTX_set_client_CA_list(ctx, SSL_load_client_CA_file(ca));
    return 0;
}

static int context_make(const struct tls *t, SSL_CTX **ret, struct err *err)
{
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(t->is_client ? TLS_client_method() : TLS_server_method());
    if (!ctx) return err_set(err, -ENOMEM, "TLS: %s", last_reason());
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(ctx, 0);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    /* A write may send only a part, and its bytes may have moved when it is tried again. Memory of
     * idle streams is given back: thousands of connections are idle. */
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    int rc = SSL_CTX_set_cipher_list(ctx, CIPHERS_1_2) == 1 ? 0 : -EINVAL;
    if (rc < 0) err_set(err, rc, "TLS: %s", last_reason());
    if (t->is_client && !t->is_raw)
        SSL_CTX_set_alpn_protos(ctx, protocols, PROTOCOLS_BYTES);
    else if (!t->is_client)
        SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    if (rc == 0) rc = load_certificate(t, ctx, err);
    if (rc == 0) rc = load_ca(t, ctx, err);
    if (rc < 0) {
        SSL_CTX_free(ctx);
        return rc;
    }
    *ret = ctx;
    return 0;
}

/* ---- files that change ---- */

/* Returns true if a file has changed. A file that is missing for a moment counts as unchanged. */
static bool files_changed(struct tls *t)
{
    bool changed = false;
    for (int i = 0; i < FILE_COUNT; i++) {
        struct stat st;
        if (!t->path[i][0] || stat(t->path[i], &st) < 0) continue;
        struct stamp now = { st.st_mtim, st.st_size, st.st_ino };
        if (now.changed.tv_sec == t->stamp[i].changed.tv_sec &&
            now.changed.tv_nsec == t->stamp[i].changed.tv_nsec && now.bytes == t->stamp[i].bytes &&
            now.inode == t->stamp[i].inode)
            continue;
        t->stamp[i] = now;
        changed = true;
    }
    return changed;
}

static void look(struct tls *t)
{
    lock_assert_held(&t->lock);
    int64_t now_us = clock_mono_us();
    if (now_us - t->looked_us < TLS_LOOK_US) return;
    t->looked_us = now_us;
    if (!files_changed(t)) return;
    SSL_CTX *ctx;
    struct err err = { 0 };
    int rc = context_make(t, &ctx, &err);
    if (rc < 0) {
        log_event(LOG_ERROR, "tls_not_reloaded", "error=%s", err_text(&err, rc));
        return;
    }
    SSL_CTX_free(t->ctx);
    t->ctx = ctx;
    log_event(LOG_INFO, "tls_reloaded", "certificate=%s ca=%s", t->path[FILE_CERTIFICATE],
              t->path[FILE_CA]);
}

/* ---- life ---- */

static int check_files(const struct tls *t, struct err *err)
{
    bool certificate = t->path[FILE_CERTIFICATE][0], key = t->path[FILE_KEY][0];
    if (certificate != key)
        return err_set(err, -EINVAL, "TLS: a %s without a %s", certificate ? "certificate" : "key",
                       certificate ? "key" : "certificate");
    if (!certificate && !t->is_client)
        return err_set(err, -EINVAL, "TLS: a server needs a certificate and its key");
    for (int i = 0; i < FILE_COUNT; i++) {
        struct stat st;
        if (t->path[i][0] && stat(t->path[i], &st) < 0)
            return err_set(err, -errno, "%s: %s", t->path[i], strerror(errno));
    }
    return 0;
}

static int tls_make(const struct tls_files *files, bool is_client, bool is_raw, struct tls **ret,
                    struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, bio_method_make);
    const struct str path[FILE_COUNT] = { files->certificate, files->key, files->ca };
    CLEANUP(tls_freep) struct tls *t = calloc(1, sizeof *t);
    if (!t || !bio_method) return err_set(err, -ENOMEM, "TLS: out of memory");
    lock_init(&t->lock);
    t->is_client = is_client;
    t->is_raw = is_raw;
    for (int i = 0; i < FILE_COUNT; i++) {
        if (path[i].len >= PATH_MAX) return err_set(err, -ENAMETOOLONG, "TLS: a path is too long");
        if (path[i].len) memcpy(t->path[i], path[i].data, path[i].len);
    }
    int rc = check_files(t, err);
    files_changed(t); /* before they are read: a change in between is found later */
    t->looked_us = clock_mono_us();
    /* The system's hundred CAs are not read for a client that may never speak TLS. */
    bool wait = is_client && !t->path[FILE_CERTIFICATE][0] && !t->path[FILE_CA][0];
    if (rc == 0 && !wait) rc = context_make(t, &t->ctx, err);
    if (rc < 0) return rc;
    *ret = TAKE(t);
    return 0;
}

int tls_server_new(const struct tls_files *files, struct tls **ret, struct err *err)
{
    return tls_make(files, false, false, ret, err);
}

int tls_client_new(const struct tls_files *files, struct tls **ret, struct err *err)
{
    return tls_make(files, true, false, ret, err);
}

int tls_client_raw_new(const struct tls_files *files, struct tls **ret, struct err *err)
{
    return tls_make(files, true, true, ret, err);
}

int tls_section_open(const struct tls_section *s, struct tls **ret_server, struct tls **ret_client,
                     struct err *err)
{
    struct tls *server = NULL;
    const struct tls_files serve = { s->certificate, s->key, s->client_ca };
    const struct tls_files call = { s->certificate, s->key, s->ca };
    int rc = 0;
    if (ret_server && (s->certificate.len || s->key.len || s->client_ca.len))
        rc = tls_server_new(&serve, &server, err);
    if (rc == 0 && ret_client) rc = tls_client_new(&call, ret_client, err);
    if (rc < 0) {
        tls_free(server);
        return rc;
    }
    if (ret_server) *ret_server = server;
    return 0;
}

bool tls_url_cut(struct str *text)
{
    struct str s = STR("https://");
    bool is_tls = str_starts(*text, s);
    if (!is_tls) s = STR("http://");
    if (is_tls || str_starts(*text, s)) *text = str_of(text->data + s.len, text->len - s.len);
    return is_tls;
}

void tls_free(struct tls *t)
{
    if (!t) return;
    SSL_CTX_free(t->ctx);
    lock_fini(&t->lock);
    free(t);
}

/* ---- streams ---- */

static int stream_make(struct tls *t, int fd, struct tls_stream **ret)
{
    struct tls_stream *s = FAULT("tls.stream") ? NULL : calloc(1, sizeof *s);
    if (!s) return -ENOMEM;
    s->fd = fd;
    lock_take(&t->lock);
    look(t);
    if (!t->ctx) (void)context_make(t, &t->ctx, NULL);
    s->ssl = t->ctx ? SSL_new(t->ctx) : NULL; /* holds the context for itself */
    lock_drop(&t->lock);
    BIO *bio = s->ssl ? BIO_new(bio_method) : NULL;
    if (!bio) {
        SSL_free(s->ssl);
        free(s);
        return -ENOMEM;
    }
    BIO_set_data(bio, s);
    BIO_set_init(bio, 1);
    SSL_set_bio(s->ssl, bio, bio);
    *ret = s;
    return 0;
}

int tls_accept(struct tls *t, int fd, struct tls_stream **ret)
{
    int rc = stream_make(t, fd, ret);
    if (rc == 0) SSL_set_accept_state((*ret)->ssl);
    return rc;
}

/* Copies a host without brackets: "[::1]" is the same address as "::1". */
static int host_text(struct str host, char ret[HOST_BYTES])
{
    if (str_starts(host, STR("[")) && str_ends(host, STR("]")))
        host = str_of(host.data + 1, host.len - 2);
    if (host.len == 0 || host.len >= HOST_BYTES) return -EINVAL;
    memcpy(ret, host.data, host.len);
    ret[host.len] = 0;
    return 0;
}

int tls_connect(struct tls *t, int fd, struct str host, struct tls_stream **ret)
{
    char name[HOST_BYTES];
    struct tls_stream *s;
    int rc = host_text(host, name);
    if (rc == 0) rc = stream_make(t, fd, &s);
    if (rc < 0) return rc;
    X509_VERIFY_PARAM *param = SSL_get0_param(s->ssl);
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    bool set = X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1; /* an address is not a name */
    if (!set) set = SSL_set1_host(s->ssl, name) == 1 && SSL_set_tlsext_host_name(s->ssl, name) == 1;
    if (!set) {
        tls_stream_free(s);
        return -ENOMEM;
    }
    SSL_set_connect_state(s->ssl);
    *ret = s;
    return 0;
}

void tls_stream_free(struct tls_stream *s)
{
    if (!s) return;
    SSL_free(s->ssl);
    free(s);
}

static void set_problem(struct tls_stream *s, const char *text)
{
    snprintf(s->problem, sizeof s->problem, "%s", text);
}

const char *tls_problem(const struct tls_stream *s)
{
    return s->problem;
}

/* Returns true for an alert by which a peer refuses our certificate, or the want of one. For the want TLS 1.2 has
 * only the alert of any handshake that failed; it follows a server's request for a certificate. */
static bool is_of_ours(SSL *ssl, int reason)
{
    static const int alerts[] = {
        SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, SSL_R_TLSV1_ALERT_UNKNOWN_CA,
        SSL_R_SSLV3_ALERT_BAD_CERTIFICATE,       SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE,
        SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED,   SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED,
        SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN,
    };
    const unsigned char *kinds;
    for (size_t i = 0; i < COUNT_OF(alerts); i++)
        if (reason == alerts[i]) return true;
    return reason == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE && !SSL_is_server(ssl) &&
           !SSL_get_certificate(ssl) && SSL_get0_certificate_types(ssl, &kinds) > 0;
}

/* Turns OpenSSL's `result` into the caller's error. */
static int problem_of(struct tls_stream *s, int result)
{
    int errnum = errno;
    int kind = SSL_get_error(s->ssl, result);
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_REASON(code);
    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return -EAGAIN;
    if (kind == SSL_ERROR_ZERO_RETURN) return 0;
    bool cut = kind == SSL_ERROR_SYSCALL || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    if (cut) {
        set_problem(s, "the peer closed the connection");
        return kind == SSL_ERROR_SYSCALL && errnum > 0 && errnum != EAGAIN ? -errnum : -ECONNRESET;
    }
    const char *text = ERR_reason_error_string(code);
    set_problem(s, text ? text : "TLS failed");
    return is_of_ours(s->ssl, reason) ? -ENOKEY : -EPROTO;
}

static int handshake_problem(struct tls_stream *s, int rc)
{
    int reason = ERR_GET_REASON(ERR_peek_error());
    long verdict = SSL_get_verify_result(s->ssl);
    if (reason == SSL_R_HTTP_REQUEST) return -EPROTONOSUPPORT;
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED && verdict != X509_V_OK) {
        set_problem(s, X509_verify_cert_error_string(verdict));
        return -EKEYREJECTED;
    }
    if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) return -EKEYREJECTED;
    if (reason == SSL_R_WRONG_VERSION_NUMBER) set_problem(s, "the peer does not speak TLS");
    return rc == 0 ? -ECONNRESET : rc;
}

int tls_handshake(struct tls_stream *s)
{
    ERR_clear_error();
    errno = 0;
    int result = SSL_do_handshake(s->ssl);
    s->wants_write = result != 1 && SSL_want_write(s->ssl);
    if (result == 1) return 0;
    int rc = problem_of(s, result);
    if (rc != -EAGAIN) rc = handshake_problem(s, rc);
    ERR_clear_error();
    return rc;
}

ssize_t tls_read(struct tls_stream *s, void *to, size_t bytes_max)
{
    size_t count;
    ERR_clear_error();
    errno = 0;
    int result = SSL_read_ex(s->ssl, to, bytes_max, &count);
    s->wants_write = result != 1 && SSL_want_write(s->ssl); /* to answer a key update */
    return result == 1 ? (ssize_t)count : problem_of(s, result);
}

ssize_t tls_write(struct tls_stream *s, const void *from, size_t bytes)
{
    size_t count;
    ERR_clear_error();
    errno = 0;
    int result = SSL_write_ex(s->ssl, from, bytes, &count);
    if (result == 1) return (ssize_t)count;
    int rc = problem_of(s, result);
    return rc == 0 ? -EPIPE : rc; /* the peer has ended its half, and with it ours */
}

bool tls_wants_write(const struct tls_stream *s)
{
    return s->wants_write;
}

bool tls_pending(const struct tls_stream *s)
{
    return SSL_pending(s->ssl) > 0;
}

void tls_end(struct tls_stream *s)
{
    ERR_clear_error();
    if (SSL_is_init_finished(s->ssl)) (void)SSL_shutdown(s->ssl);
    ERR_clear_error();
}
