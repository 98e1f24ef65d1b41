/* join.c - asks to be let in, and keeps the key that it gets.
 *
 * Only a reply that opens with the token is believed, so that nobody on the way can send an agent away: anything else
 * is no reply, and another controller is asked. The request is the same each time, byte for byte: a controller that has
 * let the agent in and could not tell it does so when it is asked again, a later one too. */
#include "agent/join.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/auth/join.h"
#include "base/io/auth/signed_call.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/io/net/tls_rows.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define ASK_US 5000000 /* deadline of one question */
#define PAUSE_US 1000000
#define REPLY_BYTES_MAX ((size_t)16 << 10)
#define UNHEARD_US 10000000
#define GRACE_US 900000000 /* where the launch document has none */

struct joining {
    const struct launch_spec *spec;
    struct controllers *controllers;
    struct loop *loop;
    struct http_client *client;
    struct signer *signer;
    struct tls *tls, *serve;
    struct peer_call call;
    struct loop_timer timer;
    struct join join;
    struct buf request, key; /* JSON; the key file's text */
    struct log_limit unheard;
    int64_t until_us;
    char seed_path[PATH_MAX];
    int rc;
    struct err *err;
};

/* ---- files ---- */

static void remove_used(const struct joining *j)
{
    (void)unlink(j->seed_path);
    (void)unlink(j->spec->join_file.data);
}

/* Returns true if the key is there. One of another instance came with the image of a disk. */
static bool has_key(const struct launch_spec *s)
{
    struct credentials held;
    if (access(s->secret_file.data, F_OK) < 0) return false;
    bool is_own = credentials_load(s->secret_file.data, &held, NULL) == 0 && held.has_instance &&
                  str_eq(str_from(held.instance), s->instance);
    credentials_wipe(&held);
    return is_own;
}

static int read_token(const struct launch_spec *s, struct join_token *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = file_check_private(s->join_file.data, err);
    if (rc == 0) rc = file_read(s->join_file.data, JOIN_TOKEN_BYTES_MAX, &text, err);
    if (rc == 0 && join_token_parse(buf_view(&text), ret) < 0)
        rc = err_set(err, -EINVAL, "%s is not the file of a token", s->join_file.data);
    if (rc == 0 && !str_eq(str_from(ret->instance), s->instance))
        rc = err_set(err, -EINVAL, "%s is the token of %s, not of this instance", s->join_file.data,
                     ret->instance);
    if (text.data) explicit_bzero(text.data, text.len);
    return rc;
}

/* Reads the seed, or draws one: file_secret makes it durable before it is used. */
static int read_seed(const struct joining *j, struct hpke_key *ret, struct err *err)
{
    char hex[2 * FILE_SECRET_BYTES + 1];
    _Static_assert(FILE_SECRET_BYTES == HPKE_KEY_BYTES, "a seed is a secret");
    int rc = file_secret(j->seed_path, hex, err);
    if (rc == 0 && hex_to(str_from(hex), ret->byte, sizeof ret->byte) < 0)
        rc = err_set(err, -EINVAL, "%s is no seed", j->seed_path);
    explicit_bzero(hex, sizeof hex);
    return rc;
}

/* ---- the request ---- */

static int write_request(struct joining *j, struct err *err)
{
    CLEANUP(buf_fini) struct buf seal = { 0 };
    struct join_token token;
    struct hpke_key seed;
    char enc_hex[2 * HPKE_KEY_BYTES + 1], seal_hex[256];
    int rc = read_token(j->spec, &token, err);
    if (rc == 0) rc = read_seed(j, &seed, err);
    if (rc < 0) return rc;
    rc = join_ask(&token, &seed, &j->join, &seal);
    explicit_bzero(&seed, sizeof seed);
    explicit_bzero(&token, sizeof token);
    if (rc < 0) return err_set(err, rc, "%s has no key of a controller", j->spec->join_file.data);
    must(2 * seal.len < sizeof seal_hex);
    hex_from(j->join.enc.byte, sizeof j->join.enc.byte, enc_hex);
    hex_from((const uint8_t *)seal.data, seal.len, seal_hex);
    const struct join_request r = { .instance = j->spec->instance,
                                    .enc = str_from(enc_hex),
                                    .seal = str_from(seal_hex) };
    return join_request_encode(&r, &j->request);
}

/* ---- replies ---- */

/* Opens the reply into j->key. 0, -EACCES with the reason in it, or -EBADMSG: it is not a controller's word. */
static int read_reply(struct joining *j)
{
    CLEANUP(arena_fini) struct arena arena;
    struct join_reply r;
    struct hpke_key nonce;
    uint8_t seal[JOIN_SEAL_BYTES_MAX];
    arena_init(&arena, REPLY_BYTES_MAX);
    if (join_reply_decode(buf_view(&j->call.body), &arena, &r, NULL) < 0) return -EBADMSG;
    size_t bytes = r.seal.len / 2;
    if (hex_to(r.nonce, nonce.byte, sizeof nonce.byte) < 0 || bytes > sizeof seal ||
        hex_to(r.seal, seal, bytes) < 0)
        return -EBADMSG;
    buf_clear(&j->key);
    return join_read(&j->join, &nonce, str_of(seal, bytes), &j->key);
}

static void end(struct joining *j, int rc)
{
    j->rc = rc;
    loop_stop(j->loop);
}

/* Goes to the next controller; at once, if this one stands by and names the leader. */
static void ask_elsewhere(struct joining *j, enum http_end how)
{
    CLEANUP(arena_fini) struct arena arena;
    struct standby_reply standby;
    uint64_t skipped;
    int64_t now = loop_now_us(j->loop), pause = PAUSE_US;
    arena_init(&arena, REPLY_BYTES_MAX);
    bool stands_by = how == HTTP_END_OK && j->call.status == 503 &&
                     standby_reply_decode(buf_view(&j->call.body), &arena, &standby) == 0;
    if (!stands_by)
        controllers_missed(j->controllers);
    else if (controllers_stands_by(j->controllers, standby.leader))
        pause = 0;
    if (!stands_by && log_pass(&j->unheard, now, UNHEARD_US, &skipped))
        log_event(LOG_WARN, "join_not_heard",
                  "instance=%.*s error=%s status=%d why=%s skipped=%llu",
                  STR_ARG(j->spec->instance), http_end_text(how), j->call.status,
                  j->call.problem ? j->call.problem : "", (unsigned long long)skipped);
    if (loop_timer_set(j->loop, &j->timer, now + pause) < 0)
        end(j, err_set(j->err, -ENOMEM, "the clock of the join cannot be set"));
}

static void on_reply(struct peer_call *call, enum http_end how)
{
    struct joining *j = CONTAINER_OF(call, struct joining, call);
    int rc = how == HTTP_END_OK && call->body.rc == 0 ? read_reply(j) : -EBADMSG;
    if (rc == 0)
        end(j, file_write_atomic(j->spec->secret_file.data, buf_view(&j->key), 0600, j->err));
    else if (rc == -EACCES)
        end(j, err_set(j->err, -EACCES, "the fleet has refused instance " STR_FMT ": %s",
                       STR_ARG(j->spec->instance), j->key.data));
    else
        ask_elsewhere(j, how);
}

static void ask(void *arg)
{
    struct joining *j = arg;
    int64_t now = loop_now_us(j->loop);
    const struct controller_address *to = controllers_next(j->controllers);
    if (now >= j->until_us || !to) {
        end(j, err_set(j->err, -ETIMEDOUT, "no controller has let instance " STR_FMT " in",
                       STR_ARG(j->spec->instance)));
        return;
    }
    const struct peer_question q = { .host = str_from(to->host),
                                     .port = to->port,
                                     .tls = to->tls,
                                     .path = STR("/api/v1/agents/join"),
                                     .body = buf_view(&j->request),
                                     .reply_max = REPLY_BYTES_MAX,
                                     .deadline_us = now + ASK_US };
    if (peer_call_start(&j->call, j->signer, &q, on_reply, NULL) < 0)
        ask_elsewhere(j, HTTP_END_LOCAL);
}

static void on_signal(void *arg, int signo)
{
    struct joining *j = arg;
    end(j, err_set(j->err, -ECANCELED, "signal %d came before the instance had joined", signo));
}

/* ---- the whole ---- */

static int run(struct joining *j, struct err *err)
{
    const struct launch_spec *s = j->spec;
    const struct tls_section tls = { .certificate = s->tls_certificate,
                                     .key = s->tls_key,
                                     .ca = s->tls_ca };
    int rc = write_request(j, err);
    if (rc == 0) rc = loop_new(&j->loop, err);
    if (rc == 0) rc = tls_section_open(&tls, &j->serve, &j->tls, err);
    const struct http_client_config client = { .tls = j->tls };
    if (rc == 0) rc = http_client_new(j->loop, &client, &j->client, err);
    const struct signer_config signer = { .loop = j->loop, .client = j->client };
    if (rc == 0) rc = signer_new(&signer, &j->signer, err);
    if (rc == 0) rc = loop_signal(j->loop, SIGTERM, on_signal, j, err);
    if (rc == 0) rc = loop_signal(j->loop, SIGINT, on_signal, j, err);
    if (rc < 0) return rc;
    j->until_us = loop_now_us(j->loop) + (s->grace_ms > 0 ? (int64_t)s->grace_ms * 1000 : GRACE_US);
    j->timer = (struct loop_timer){ .fn = ask, .arg = j };
    rc = loop_timer_set(j->loop, &j->timer, loop_now_us(j->loop));
    if (rc == 0) rc = loop_run(j->loop);
    return rc < 0 ? rc : j->rc;
}

static void fini(struct joining *j)
{
    peer_call_fini(&j->call);
    http_client_free(j->client);
    signer_free(j->signer);
    tls_free(j->tls);
    tls_free(j->serve);
    loop_free(j->loop);
    join_wipe(&j->join);
    if (j->key.data) explicit_bzero(j->key.data, j->key.len);
    buf_fini(&j->key);
    buf_fini(&j->request);
}

int join_fleet(const struct instance *in, struct controllers *controllers, struct err *err)
{
    const struct launch_spec *s = &in->spec;
    struct joining j = { .spec = s, .controllers = controllers, .err = err };
    if (s->join_file.len == 0) return 0;
    int n = snprintf(j.seed_path, sizeof j.seed_path, STR_FMT "/join.seed", STR_ARG(s->folder));
    if (s->secret_file.len == 0 || s->folder.len == 0 || n < 0 || (size_t)n >= sizeof j.seed_path)
        return err_set(err, -EINVAL, "the launch document has a token, and no place for the key");
    if (!has_key(s)) {
        log_event(LOG_INFO, "joining", "instance=%.*s", STR_ARG(s->instance));
        int rc = run(&j, err);
        fini(&j);
        if (rc < 0) return rc;
        log_event(LOG_INFO, "joined", "instance=%.*s", STR_ARG(s->instance));
    }
    remove_used(&j);
    return 0;
}
