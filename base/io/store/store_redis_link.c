/* store_redis_link.c - logs in to Redis, finds the master through Sentinel and the server of a cluster that has the
 * fleet's keys, and exchanges commands and replies.
 *
 * hiredis formats the commands and reads the replies, and touches no socket: store_redis_conn.c says why. */
#include "base/io/store/store_redis_link.h"

#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/own.h"
#include "base/core/rng.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "base/io/net/tls.h"
#include "base/io/store/store_redis_conn.h"
#include "base/io/store/store_redis_url.h"

#include <hiredis/hiredis.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define PASSWORD_BYTES_MAX 4096
#define READ_BYTES 16384 /* at a time */
#define WORDS_MAX 16     /* of a command */

#if HIREDIS_MAJOR < 1
typedef int array_length;
#else
typedef size_t array_length;
#endif

struct redis_link {
    /* from the configuration */
    struct redis_url url;
    char password_file[PATH_MAX];
    int64_t timeout_us, back_off_us_max;
    struct tls *tls;

    uint32_t host_at;        /* the one to try next */
    struct redis_host moved; /* the server that another one named; port 0: none */

    struct redis_conn conn;
    struct buf out;               /* commands that are not sent yet */
    redisReader *reader;          /* of this connection; NULL: none yet */
    redisReply *reply;            /* taken last */
    redisReplyObjectFunctions fn; /* hiredis's own, but for arrays, which make_array makes */
    void *(*make_array)(const redisReadTask *task, array_length elements);
    uint64_t line;
    bool replicas;
    uint32_t pending; /* replies that were asked for and not taken */

    uint32_t failures; /* in a row */
    int64_t again_us;
    bool failed;  /* in this call */
    bool refused; /* the last failure was an error that the server replied */
    bool ever;    /* a connection was made once */
    struct rng rng;
};

/* ---- replies ---- */

static void reply_drop(struct redis_link *l)
{
    if (l->reply) freeReplyObject(l->reply);
    l->reply = NULL;
}

static void hang_up(struct redis_link *l)
{
    reply_drop(l);
    redis_conn_close(&l->conn);
    if (l->reader) redisReaderFree(l->reader);
    l->reader = NULL;
    buf_clear(&l->out);
    l->pending = 0;
}

static struct str text_of(const redisReply *r)
{
    bool text = r && (r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS ||
                      r->type == REDIS_REPLY_ERROR);
    return text ? str_of(r->str, (size_t)r->len) : (struct str){ 0 };
}

bool redis_is_nil(const struct redis_link *l)
{
    return !l->reply || l->reply->type == REDIS_REPLY_NIL;
}

size_t redis_count(const struct redis_link *l)
{
    return l->reply && l->reply->type == REDIS_REPLY_ARRAY ? l->reply->elements : 0;
}

struct str redis_text(const struct redis_link *l, size_t at)
{
    return at < redis_count(l) ? text_of(l->reply->element[at]) : (struct str){ 0 };
}

bool redis_has(const struct redis_link *l, size_t at)
{
    return at < redis_count(l) && l->reply->element[at]->type != REDIS_REPLY_NIL;
}

struct str redis_whole(const struct redis_link *l)
{
    return text_of(l->reply);
}

int64_t redis_number(const struct redis_link *l)
{
    return l->reply && l->reply->type == REDIS_REPLY_INTEGER ? l->reply->integer : 0;
}

/* Refuses an array whose announced length is over the bound, before memory is taken for it. */
static void *array_bounded(const redisReadTask *task, array_length elements)
{
    const struct redis_link *l = task->privdata;
    return elements > REDIS_REPLY_ELEMENTS_MAX ? NULL : l->make_array(task, elements);
}

static int reader_make(struct redis_link *l)
{
    redisReader *r = l->reader = redisReaderCreate();
    if (!r) return -ENOMEM;
    l->fn = *r->fn;
    l->make_array = l->fn.createArray;
    l->fn.createArray = array_bounded;
    r->fn = &l->fn;
    r->privdata = l;
    return 0;
}

/* ---- one connection ---- */

/* Ends the connection after a failure whose sentence is set. */
static int gone(struct redis_link *l, int rc)
{
    l->failed = true;
    l->refused = false;
    hang_up(l);
    return rc;
}

static int fail(struct redis_link *l, int rc, struct err *err, const char *what, const char *why)
{
    err_set(err, rc, "store: Redis: %s: %s", what, why);
    return gone(l, rc);
}

static int connected(struct redis_link *l, int rc, struct err *err)
{
    if (rc < 0) return gone(l, rc);
    if (reader_make(l) < 0) return fail(l, -ENOMEM, err, "a connection", "no memory");
    return 0;
}

static int connect_host(struct redis_link *l, struct redis_host *h, struct err *err)
{
    hang_up(l);
    return connected(l, redis_conn_host(&l->conn, h, err), err);
}

/* ---- commands ---- */

void redis_send(struct redis_link *l, const struct str *word, size_t count)
{
    const char *text[WORDS_MAX];
    size_t bytes[WORDS_MAX];
    char *command = NULL;
    must(count <= COUNT_OF(text));
    if (!l->conn.open) return; /* redis_take says so */
    for (size_t i = 0; i < count; i++) {
        text[i] = word[i].data ? word[i].data : "";
        bytes[i] = word[i].len;
    }
    long long len = redisFormatCommandArgv(&command, (int)count, text, bytes);
    /* Without memory the buffer has an error, which redis_take finds. */
    if (len < 0)
        l->out.rc = -ENOMEM;
    else
        (void)buf_append(&l->out, command, (size_t)len);
    redisFreeCommand(command);
    l->pending++;
}

static int flush(struct redis_link *l, struct err *err)
{
    if (l->out.rc < 0) return fail(l, -ENOMEM, err, "a command", "no memory");
    int rc = redis_conn_write(&l->conn, l->out.data, l->out.len, err);
    if (rc < 0) return gone(l, rc);
    buf_clear(&l->out);
    return 0;
}

static int read_some(struct redis_link *l, size_t *bytes, struct err *err)
{
    char some[READ_BYTES];
    size_t n;
    int rc = redis_conn_read(&l->conn, some, sizeof some, &n, err);
    if (rc < 0) return gone(l, rc);
    *bytes += n;
    if (*bytes > REDIS_REPLY_BYTES_MAX)
        return fail(l, -EMSGSIZE, err, "a reply", "it is larger than any that was asked for");
    if (redisReaderFeed(l->reader, some, n) != REDIS_OK)
        return fail(l, -EPROTO, err, "a reply is not understood", l->reader->errstr);
    return 0;
}

/* Points to the server that "MOVED SLOT HOST:PORT" names. An empty host is the one that answered. */
static bool follow(struct redis_link *l, struct str text)
{
    uint16_t port;
    struct str rest = text, name;
    (void)str_cut(&rest, ' ');
    (void)str_cut(&rest, ' ');
    if (str_host_port(rest, &name, &port) < 0 || port == 0 || name.len >= REDIS_HOST_BYTES)
        return false;
    if (redis_conn_is_resolving(&l->conn, &l->moved))
        return false; /* its name is under way; the next call comes again */
    l->moved = (struct redis_host){ .port = port };
    memcpy(l->moved.name, name.data, name.len);
    return true;
}

/* The server's refusals by their first word. */
static const struct {
    const char *word;
    int rc;
    bool away; /* it cannot serve: calls wait before they try it again */
    const char *next;
} refusals[] = {
    { "MOVED", -EXDEV, false, "" },
    { "READONLY", -EXDEV, false, "" },
    { "ASK", -EBUSY, true, "; the cluster is moving the fleet's keys" },
    { "TRYAGAIN", -EBUSY, true, "" },
    { "LOADING", -EBUSY, true, "" },
    { "BUSY", -EBUSY, true, "" },
    { "CLUSTERDOWN", -EBUSY, true, "" },
    { "MASTERDOWN", -EBUSY, true, "" },
    { "NOREPLICAS", -EBUSY, true, "" },
    { "NOAUTH", -EACCES, true, "; name controller.store_password_file" },
    { "WRONGPASS", -EACCES, true, "; see the user in controller.store and the password file" },
    { "NOPERM", -EACCES, true, "; the user needs the commands and keys of docs/security.md" },
    { "OOM", -ENOSPC, false, "" },
    { "MISCONF", -ENOSPC, false, "" },
    { "WRONGTYPE", -EILSEQ, false, "; the keys belong to another program" },
};

static int take_refusal(struct redis_link *l, struct str text, struct err *err)
{
    struct str rest = text, word = str_cut(&rest, ' ');
    int rc = -EIO;
    const char *next = "";
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        if (!str_eq(word, str_from(refusals[i].word))) continue;
        rc = refusals[i].rc;
        next = refusals[i].next;
        l->failed |= refusals[i].away;
    }
    if (str_eq(word, STR("MOVED")) && !follow(l, text)) rc = -EBUSY;
    if (str_eq(word, STR("READONLY"))) l->moved.port = 0; /* a replica by now: found anew */
    l->refused = true;
    err_set(err, rc, "store: Redis: %.*s%s", (int)min_size(text.len, 200), text.data, next);
    hang_up(l);
    return rc;
}

/* Returns the error in a reply, which may be in the list of a transaction's replies; NULL: none. */
static const redisReply *error_in(const redisReply *r)
{
    if (r->type == REDIS_REPLY_ERROR) return r;
    for (size_t i = 0; r->type == REDIS_REPLY_ARRAY && i < r->elements; i++)
        if (r->element[i]->type == REDIS_REPLY_ERROR) return r->element[i];
    return NULL;
}

int redis_take(struct redis_link *l, struct err *err)
{
    void *reply = NULL;
    size_t bytes = 0;
    reply_drop(l);
    if (!l->conn.open) return err_set(err, -ENOTCONN, "store: Redis: the connection is gone");
    int rc = flush(l, err);
    while (rc == 0 && !reply) {
        if (redisReaderGetReply(l->reader, &reply) != REDIS_OK)
            return fail(l, -EPROTO, err, "a reply is not understood", l->reader->errstr);
        if (!reply) rc = read_some(l, &bytes, err);
    }
    if (rc < 0) return rc;
    l->reply = reply;
    l->pending--;
    const redisReply *error = error_in(reply);
    return error ? take_refusal(l, text_of(error), err) : 0;
}

bool redis_was_refused(const struct redis_link *l)
{
    return l->refused;
}

/* ---- log-in ---- */

static int authenticate(struct redis_link *l, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (!l->password_file[0]) return 0;
    /* Read at each log-in, so that a password may change. */
    int rc = file_read(l->password_file, PASSWORD_BYTES_MAX, &text, err);
    if (rc < 0) {
        l->failed = true;
        hang_up(l);
        return rc;
    }
    struct str rest = buf_view(&text), password = str_trim(str_cut(&rest, '\n'));
    if (l->url.user[0])
        REDIS_SEND(l, STR("AUTH"), str_from(l->url.user), password);
    else
        REDIS_SEND(l, STR("AUTH"), password);
    rc = redis_take(l, err);
    explicit_bzero(text.data, text.len);
    return rc;
}

static int select_db(struct redis_link *l, struct err *err)
{
    char text[24];
    if (l->url.db == 0) return 0;
    snprintf(text, sizeof text, "%llu", (unsigned long long)l->url.db);
    REDIS_SEND(l, STR("SELECT"), str_from(text));
    return redis_take(l, err);
}

/* Asks if the server is a master, and if it has replicas. */
static int check_role(struct redis_link *l, struct err *err)
{
    if (!l->url.sentinel) return 0;
    REDIS_SEND(l, STR("ROLE"));
    int rc = redis_take(l, err);
    if (rc < 0) return rc;
    if (!str_eq(redis_text(l, 0), STR("master")))
        return fail(l, -EBUSY, err, l->url.master, "the server that Sentinel names is no master");
    l->replicas = redis_count(l) > 2 && l->reply->element[2]->type == REDIS_REPLY_ARRAY &&
                  l->reply->element[2]->elements > 0;
    return 0;
}

/* Asks the sentinel that is connected for the master, and hangs up. */
static int ask_sentinel(struct redis_link *l, struct redis_host *ret, struct err *err)
{
    uint64_t port;
    REDIS_SEND(l, STR("SENTINEL"), STR("get-master-addr-by-name"), str_from(l->url.master));
    int rc = redis_take(l, err);
    if (rc == -EACCES && l->password_file[0]) { /* it wants a password too */
        rc = connect_host(l, &l->url.host[l->host_at], err);
        if (rc == 0) rc = authenticate(l, err);
        if (rc < 0) return rc;
        REDIS_SEND(l, STR("SENTINEL"), STR("get-master-addr-by-name"), str_from(l->url.master));
        rc = redis_take(l, err);
    }
    if (rc < 0) return rc;
    struct str name = redis_text(l, 0);
    if (redis_is_nil(l) || name.len == 0 || name.len >= sizeof ret->name ||
        str_to_u64(redis_text(l, 1), &port) < 0 || port < 1 || port > 65535)
        return fail(l, -ENOENT, err, l->url.master, "the sentinel knows no master of this name");
    struct redis_host h = { .port = (uint16_t)port };
    memcpy(h.name, name.data, name.len);
    hang_up(l);
    *ret = h;
    return 0;
}

/* Asks the sentinels one after the other, each for its share of the time that is left. */
static int connect_by_sentinel(struct redis_link *l, struct err *err)
{
    struct redis_host master;
    int64_t whole_us = l->conn.deadline_us;
    int rc = -ENOENT;
    for (uint32_t i = 0; i < l->url.host_count; i++) {
        int64_t left_us = whole_us - clock_mono_us();
        l->conn.deadline_us = whole_us - left_us + left_us / (l->url.host_count - i + 1);
        rc = connect_host(l, &l->url.host[l->host_at], err);
        if (rc == 0) rc = ask_sentinel(l, &master, err);
        l->conn.deadline_us = whole_us;
        if (rc == 0) break;
        l->host_at = (l->host_at + 1) % l->url.host_count;
    }
    if (rc < 0) return rc;
    if (redis_conn_is_resolving(&l->conn, &l->moved))
        return fail(l, -EBUSY, err, master.name, "its name is not resolved yet");
    bool same = strcmp(master.name, l->moved.name) == 0 && master.port == l->moved.port;
    if (!same) l->moved = master;
    return connect_host(l, &l->moved, err);
}

static int connect_any(struct redis_link *l, struct err *err)
{
    if (l->url.unix_socket) return connected(l, redis_conn_path(&l->conn, l->url.path, err), err);
    if (l->url.sentinel) return connect_by_sentinel(l, err);
    if (l->moved.port) return connect_host(l, &l->moved, err);
    int rc = connect_host(l, &l->url.host[l->host_at], err);
    if (rc < 0) l->host_at = (l->host_at + 1) % l->url.host_count;
    return rc;
}

/* Keeps a failure to connect apart from what calls return about their keys: a socket that is not there is
 * no entry that is not there. */
static int plain(int rc)
{
    static const int of_keys[] = { -ENOENT,    -EEXIST, -ESTALE, -EKEYREVOKED,
                                   -EREMOTEIO, -EXDEV,  -EAGAIN };
    for (size_t i = 0; i < COUNT_OF(of_keys); i++)
        if (rc == of_keys[i]) return -EHOSTUNREACH;
    return rc;
}

int redis_ready(struct redis_link *l, struct err *err)
{
    if (l->conn.open && (l->pending > 0 || redis_conn_was_cut(&l->conn))) hang_up(l);
    if (l->conn.open) return 0;
    l->replicas = false;
    int rc = connect_any(l, err);
    if (rc < 0) l->moved.port = l->url.sentinel ? l->moved.port : 0;
    if (rc == 0) rc = authenticate(l, err);
    if (rc == 0) rc = select_db(l, err);
    if (rc == 0) rc = check_role(l, err);
    if (rc < 0) return rc == -EXDEV ? rc : plain(rc);
    l->line++;
    l->ever = true;
    l->failed = false; /* another sentinel may have failed before */
    return 0;
}

/* ---- calls ---- */

int redis_begin(struct redis_link *l, struct err *err)
{
    int64_t now_us = clock_mono_us();
    l->failed = false;
    l->conn.deadline_us = now_us + l->timeout_us;
    if (now_us >= l->again_us) return 0;
    return err_set(err, -ENETDOWN,
                   "store: Redis could not be reached %u times in a row; tried again in %lld ms",
                   l->failures, (long long)(l->again_us - now_us) / 1000);
}

void redis_end(struct redis_link *l, bool failed)
{
    reply_drop(l);
    if (!l->failed && !failed) {
        l->failures = 0;
        l->again_us = 0;
        return;
    }
    int64_t most_us = REDIS_BACK_OFF_MIN_US;
    for (uint32_t i = 0; i < l->failures && most_us < l->back_off_us_max; i++)
        most_us *= 2;
    most_us = min_i64(most_us, l->back_off_us_max);
    l->failures++;
    /* Half of it by chance, so that all processes do not come back in one moment. */
    l->again_us =
        clock_mono_us() + most_us / 2 + (int64_t)rng_below(&l->rng, (uint64_t)most_us / 2);
}

uint64_t redis_line(const struct redis_link *l)
{
    return l->line;
}

bool redis_is_up(const struct redis_link *l)
{
    return l->ever && l->failures == 0;
}

bool redis_has_replicas(const struct redis_link *l)
{
    return l->replicas;
}

/* ---- life ---- */

int redis_link_new(const struct store_redis_config *config, struct redis_link **ret,
                   struct err *err)
{
    struct redis_link *l = calloc(1, sizeof *l);
    uint64_t seed;
    if (!l) return err_set(err, -ENOMEM, "store: no memory");
    l->timeout_us = config->timeout_us;
    l->back_off_us_max = config->again_us_max ? config->again_us_max : REDIS_BACK_OFF_MAX_US;
    int rc = redis_url_read(config->url, &l->url, err);
    if (rc == 0 && config->password_file.len >= sizeof l->password_file)
        rc = err_set(err, -ENAMETOOLONG, "controller.store_password_file: the path is too long");
    if (rc == 0 && config->password_file.len)
        memcpy(l->password_file, config->password_file.data, config->password_file.len);
    const struct tls_files files = { config->certificate, config->key, config->ca };
    if (rc == 0 && l->url.is_tls) rc = tls_client_raw_new(&files, &l->tls, err);
    l->conn.tls = l->tls;
    if (rc == 0 && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        rc = err_set(err, -EIO, "the system gives no random bytes");
    if (rc < 0) {
        redis_link_free(l);
        return rc;
    }
    rng_seed(&l->rng, seed);
    *ret = l;
    return 0;
}

void redis_link_free(struct redis_link *l)
{
    if (!l) return;
    hang_up(l);
    buf_fini(&l->out);
    tls_free(l->tls);
    /* While the system's resolver writes to the connection it cannot be freed, and the process ends. */
    if (redis_conn_fini(&l->conn)) free(l);
}
