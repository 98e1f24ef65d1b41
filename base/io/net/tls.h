/* tls.h - TLS 1.2 and 1.3 beneath a conn; tls.c is the only file that includes OpenSSL's TLS.
 *
 * Layer:    base/io (base/core, log)
 * Threads:  a struct tls serves any number of threads; a struct tls_stream is its connection's
 * Lifetime: a stream keeps the parts of its struct tls that it needs; the struct may be freed or reloaded
 *           before the stream ends
 * Rules:    (1) HTTP/1.1 is the only protocol (ALPN); a peer that names none is served. A raw client speaks
 *               another one, and names none
 *           (2) a client names the host (SNI, where that is a name) and accepts only a certificate
 *               for it, from the CAs it was given, or the system's
 *           (3) a server with CAs serves only clients that show a certificate of theirs
 *           (4) files that changed are read again at the next connection after TLS_LOOK_US; open
 *               connections continue; files that cannot be used are logged once, and the old
 *               certificate stays in use
 *           (5) no renegotiation, compression, tickets or session cache: each connection is whole
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/core/str.h"

#include <stdint.h>
#include <sys/types.h>

#define TLS_LOOK_US 2000000
#define TLS_PROBLEM_BYTES 192

struct tls_files {          /* paths of PEM files; empty: none */
    struct str certificate; /* the chain, leaf first */
    struct str key;
    struct str ca; /* of the peers; empty: a server asks for no certificate, a client trusts the
                      system's */
};

struct tls;
struct tls_stream;

/* These make a struct tls of files. A server needs certificate and key; a client both or none. -EINVAL,
 * -ENOENT ... name the file. */
int tls_server_new(const struct tls_files *files, struct tls **ret, struct err *err);
int tls_client_new(const struct tls_files *files, struct tls **ret, struct err *err);
int tls_client_raw_new(const struct tls_files *files, struct tls **ret, struct err *err);
void tls_free(struct tls *t);
CLEANUP_FREEP(tls, struct tls)

/* TLS settings of a role: files of its server (certificate "": plain HTTP), and the CAs of the
 * servers that it calls. It shows both the same certificate. */
struct tls_section {
    struct str certificate, key, client_ca, ca;
};

/* Opens both sides of a section. *ret_server NULL: plain. *ret_client reads its files at once; without
 * certificate and CAs it reads the system's CAs when it is first used. Either may be NULL to leave it
 * out. */
int tls_section_open(const struct tls_section *s, struct tls **ret_server, struct tls **ret_client,
                     struct err *err);

/* Takes "https://" or "http://" from the front of an address; returns true for "https://". */
bool tls_url_cut(struct str *text);

/* These make a stream over the connected socket `fd`, which stays the caller's; -ENOMEM. `host` is the
 * name or address that the peer's certificate must be for. */
int tls_accept(struct tls *t, int fd, struct tls_stream **ret);
int tls_connect(struct tls *t, int fd, struct str host, struct tls_stream **ret);
void tls_stream_free(struct tls_stream *s);

/* Goes on with the handshake: 0 when it is done; -EAGAIN (tls_wants_write says for what);
 * -EPROTONOSUPPORT when the peer speaks plain HTTP; -EKEYREJECTED for a certificate of the peer that is not
 * accepted; -ENOKEY when the peer asks for a certificate and accepts none of ours; -EPROTO, -ECONNRESET.
 * tls_problem says more until the stream is freed. */
int tls_handshake(struct tls_stream *s);
const char *tls_problem(const struct tls_stream *s);

/* These work like recv and send: a count, 0 when the peer has ended the stream, -EAGAIN, -ECONNRESET when
 * it was cut without an end, -ENOKEY (with TLS 1.3 a client hears after its handshake that its certificate is
 * refused), -EPROTO. After -EAGAIN tls_write is called again with the same bytes, or
 * with more that begin with them. */
ssize_t tls_read(struct tls_stream *s, void *to, size_t bytes_max);
ssize_t tls_write(struct tls_stream *s, const void *from, size_t bytes);
/* Returns true when the handshake or a read waits for room to write, false when for bytes of the peer. */
bool tls_wants_write(const struct tls_stream *s);
bool tls_pending(
    const struct tls_stream *s);    /* bytes already received, for which no event will come */
void tls_end(struct tls_stream *s); /* sends the close alert */
