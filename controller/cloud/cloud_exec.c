/* cloud_exec.c - makes calls of the controller with a program.
 *
 *     call ──► line on stdin ──► process ──► line on stdout ──► reply
 *                                   └── stderr ──► log
 *
 * Rejected: one process for all calls, with a line for each: it would have to be restarted, and one that hangs would
 * take the calls behind it with it. A call takes seconds at a provider and milliseconds to start a process. */
#include "controller/cloud/cloud_exec.h"

#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/proc.h"
#include "controller/cloud/cloud_thread.h"
#include "controller/cloud/web/hook.h"
#include "controller/cloud/web/web_step.h"
#include "controller/cloud/web/web_user_data.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ARENA_BYTES ((size_t)1 << 20) /* of one call */
#define KILL_US 5000000               /* a killed process ends within */
#define WORDS_LINES_MAX 20            /* of stderr, logged */
#define LAST_WORDS_MAX 160            /* of stderr in a sentence */

struct cloud_exec {
    const struct web_settings *settings;
    struct cloud_backend backend;
    const char *argv[WEB_WORDS_MAX + 1];
    const char *env[WEB_WORDS_MAX + 1];
    int64_t timeout_us;
};

/* ---- one process ---- */

struct run {
    const struct cloud_exec *x;
    struct proc proc;
    int in, out, words;       /* our ends; -1: closed */
    struct str left;          /* of the call, still to be written */
    struct buf reply, said;   /* of stdout and stderr */
    bool overflow;            /* of stdout */
    const struct str *secret; /* not to be logged */
    uint32_t secret_count;
};

static void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void run_fini(struct run *r)
{
    close_fd(&r->in);
    close_fd(&r->out);
    close_fd(&r->words);
    if (r->proc.id.pid) proc_close(&r->proc);
    buf_fini(&r->reply);
    if (r->said.data) explicit_bzero(r->said.data, r->said.len);
    buf_fini(&r->said);
}

/* Makes a pipe with our end not blocking. */
static int pipe_open(bool we_read, int *ret_ours, int *ret_theirs)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
    *ret_ours = ends[we_read ? 0 : 1];
    *ret_theirs = ends[we_read ? 1 : 0];
    fcntl(*ret_ours, F_SETFL, O_NONBLOCK);
    return 0;
}

static int spawn(struct run *r, struct err *err)
{
    int theirs[3] = { -1, -1, -1 };
    int rc = pipe_open(false, &r->in, &theirs[0]);
    if (rc == 0) rc = pipe_open(true, &r->out, &theirs[1]);
    if (rc == 0) rc = pipe_open(true, &r->words, &theirs[2]);
    if (rc < 0) err_set(err, -EMFILE, "no descriptors left for a program");
    const struct proc_spec spec = { .argv = r->x->argv,
                                    .env_add = r->x->env,
                                    .env_alone = true,
                                    .cwd = "/",
                                    .in_fd = theirs[0],
                                    .out_fd = theirs[1],
                                    .err_fd = theirs[2] };
    if (rc == 0) rc = proc_spawn(&spec, &r->proc, err);
    for (size_t i = 0; i < COUNT_OF(theirs); i++)
        close_fd(&theirs[i]);
    return rc;
}

/* Writes what the pipe takes; a program that reads no more gets no more. */
static void feed(struct run *r)
{
    while (r->left.len > 0) {
        ssize_t n = write(r->in, r->left.data, r->left.len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) break;
        r->left = str_of(r->left.data + n, r->left.len - (size_t)n);
    }
    close_fd(&r->in);
}

/* Reads what is there. Beyond its bound a buffer keeps its beginning, and the rest is read and dropped. */
static void drain(int *fd, struct buf *to, bool *ret_overflow)
{
    char bytes[16384];
    for (;;) {
        ssize_t n = *fd >= 0 ? read(*fd, bytes, sizeof bytes) : 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) break;
        size_t room = to->max - to->len, take = (size_t)n < room ? (size_t)n : room;
        if (take < (size_t)n || buf_append(to, bytes, take) < 0) *ret_overflow = true;
    }
    close_fd(fd);
}

/* Waits until the process has ended. -ETIMEDOUT; -E2BIG: it wrote too much. */
static int attend(struct run *r, int64_t until_us)
{
    bool words_overflow = false;
    for (;;) {
        int64_t left_ms = (until_us - clock_mono_us() + 999) / 1000;
        struct pollfd watch[] = { { .fd = r->proc.pidfd, .events = POLLIN },
                                  { .fd = r->in, .events = POLLOUT },
                                  { .fd = r->out, .events = POLLIN },
                                  { .fd = r->words, .events = POLLIN } };
        if (left_ms <= 0) return -ETIMEDOUT;
        if (poll(watch, COUNT_OF(watch), (int)min_i64(left_ms, INT_MAX)) <= 0) continue;
        if (watch[1].revents && r->in >= 0) feed(r);
        drain(&r->out, &r->reply, &r->overflow);
        drain(&r->words, &r->said, &words_overflow);
        if (r->overflow) return -E2BIG;
        if (watch[0].revents) return 0;
    }
}

static void blot_words(struct run *r)
{
    for (uint32_t i = 0; i < r->secret_count; i++)
        web_blot(r->said.data, r->said.len, r->secret[i]);
    for (const char *const *e = r->x->env; *e; e++) {
        struct str value = str_from(*e);
        str_cut(&value, '=');
        web_blot(r->said.data, r->said.len, value);
    }
}

static void log_words(struct run *r, const char *call, const char *intent)
{
    struct str rest = buf_view(&r->said);
    uint32_t lines = 0;
    while (rest.len > 0 && lines < WORDS_LINES_MAX) {
        struct str line = str_cut(&rest, '\n');
        if (line.len == 0) continue;
        lines++;
        log_event(LOG_WARN, "cloud_program_says", "provider=%s call=%s intent=%s text=%.*s",
                  r->x->backend.name, call, intent, STR_ARG(line));
    }
}

/* Returns the last line of stderr, for a sentence; it may be empty. */
static struct str last_words(const struct run *r)
{
    struct str all = buf_view(&r->said), last = { 0 };
    while (all.len > 0) {
        struct str line = str_trim(str_cut(&all, '\n'));
        if (line.len > 0) last = line;
    }
    if (last.len > LAST_WORDS_MAX) last.len = str_utf8_complete(str_of(last.data, LAST_WORDS_MAX));
    return last;
}

/* Ends what still runs, and says how the process ended. That is not known where cloud_local has collected it first,
 * with its own children: the reply alone then decides. */
static int judge(struct run *r, int rc, struct err *err)
{
    struct proc_exit how = { 0 };
    if (rc < 0) {
        proc_signal_group(&r->proc.id, SIGKILL, NULL);
        proc_wait(&r->proc, KILL_US, &how);
    } else {
        proc_reap(&r->proc, &how);
    }
    blot_words(r);
    struct str last = last_words(r);
    const char *colon = last.len > 0 ? ": " : "";
    if (rc == -ETIMEDOUT)
        return err_set(err, rc, "%s did not end within %lld s%s" STR_FMT, r->x->argv[0],
                       (long long)(r->x->timeout_us / 1000000), colon, STR_ARG(last));
    if (rc == -E2BIG)
        return err_set(err, rc, "%s wrote more than %zu bytes", r->x->argv[0], HOOK_REPLY_BYTES);
    if (how.known && (how.killed || how.code != 0))
        return err_set(err, -EIO, "%s ended with %s %d%s" STR_FMT, r->x->argv[0],
                       how.killed ? "signal" : "status", how.code, colon, STR_ARG(last));
    return 0;
}

/* A program that does not read its call must not end us. */
static void pipe_signal(bool block, sigset_t *before)
{
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (block) {
        pthread_sigmask(SIG_BLOCK, &pipe, before);
        return;
    }
    if (!sigismember(before, SIGPIPE)) sigtimedwait(&pipe, NULL, &(struct timespec){ 0 });
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* Runs the program once. -EINVAL: it could not be started. */
static int run_once(struct run *r, const char *call, const char *intent, struct err *err)
{
    sigset_t before;
    int rc = spawn(r, err);
    if (rc == -ENOENT || rc == -EACCES || rc == -ENOEXEC || rc == -ENOTDIR) return -EINVAL;
    if (rc < 0) return rc;
    pipe_signal(true, &before);
    rc = attend(r, clock_mono_us() + r->x->timeout_us);
    pipe_signal(false, &before);
    rc = judge(r, rc, err);
    log_words(r, call, intent);
    return rc;
}

/* ---- one call ---- */

/* Cuts the one line out of what a program wrote. */
static struct str line_of(const struct buf *reply)
{
    struct str s = buf_view(reply);
    while (s.len > 0 && (unsigned char)s.data[s.len - 1] <= ' ')
        s.len--;
    return s;
}

/* Makes the call of `op` in a zone; step says how it ended. */
static void call(struct cloud_exec *x, struct web_op *op, struct str zone, struct str key,
                 int64_t now_us, struct web_step *step)
{
    CLEANUP(buf_fini) struct buf line = { 0 };
    CLEANUP(buf_fini) struct buf key64 = { 0 };
    const char *name = web_op_names[op->kind], *intent = op->call ? op->call->intent : "";
    struct err err = { 0 };
    base64_put(&key64, key);
    const struct str secrets[] = { key, buf_view(&key64) };
    CLEANUP(run_fini)
    struct run r = { .x = x,
                     .in = -1,
                     .out = -1,
                     .words = -1,
                     .reply = { .max = HOOK_REPLY_BYTES },
                     .said = { .max = EXEC_WORDS_BYTES },
                     .secret = secrets,
                     .secret_count = COUNT_OF(secrets) };
    int rc = hook_write(x->settings, op, zone, &line, &err);
    if (rc == 0 && key64.rc == 0) rc = buf_byte(&line, '\n');
    r.left = buf_view(&line);
    if (rc == 0) rc = run_once(&r, name, intent, &err);
    if (rc == 0)
        hook_read(x->settings, op, line_of(&r.reply), now_us, step);
    else
        web_refuse(step, rc == -EINVAL ? OFFER_INVALID : OFFER_TRANSIENT, "%s of %s: %s", name,
                   x->backend.name, err_text(&err, rc));
    for (size_t i = 0; i < COUNT_OF(secrets); i++)
        web_blot(step->err.text, strlen(step->err.text), secrets[i]);
    if (line.data) explicit_bzero(line.data, line.len);
    if (key64.data) explicit_bzero(key64.data, key64.len);
}

static int end(const struct web_step *step, struct err *err)
{
    if (step->rc < 0) {
        log_event(LOG_WARN, "cloud_call_failed", "error=%s", step->err.text);
        if (err) *err = step->err;
    }
    return step->rc;
}

/* ---- the backend ---- */

static void close_exec(void *ctx)
{
    free(ctx);
}

static int offers(void *ctx, struct offer *ret, uint32_t max, uint32_t *ret_count, struct err *err)
{
    const struct web_settings *s = ((struct cloud_exec *)ctx)->settings;
    if (s->offer_count > max)
        return err_set(err, -E2BIG, STR_FMT " has %u offers; %u fit", STR_ARG(s->name),
                       s->offer_count, max);
    for (uint32_t i = 0; i < s->offer_count; i++)
        ret[i] = s->offer[i].offer;
    *ret_count = s->offer_count;
    return 0;
}

/* Asks one zone after the other while they are sold out. */
static void create_somewhere(struct cloud_exec *x, struct web_op *op, struct str key,
                             int64_t now_us, struct web_step *step)
{
    uint32_t z = 0;
    do {
        struct str zone = op->offer->zone_count > 0 ? op->offer->zone[z] : (struct str){ 0 };
        call(x, op, zone, key, now_us, step);
    } while (step->rc < 0 && step->class == OFFER_CAPACITY && ++z < op->offer->zone_count);
}

static int create(void *ctx, const struct cloud_request *req, int64_t now_us, struct listed *ret,
                  enum offer_error *ret_class, struct err *err)
{
    struct cloud_exec *x = ctx;
    CLEANUP(arena_fini) struct arena arena;
    CLEANUP(buf_fini) struct buf user_data = { 0 };
    struct cloud_kept kept = { .op = CLOUD_CREATE };
    struct web_step step = { 0 };
    arena_init(&arena, ARENA_BYTES);
    struct web_op op = { .kind = WEB_CREATE,
                         .call = &kept,
                         .offer = web_settings_offer(x->settings, str_from(req->offer->name)),
                         .spec = req->spec,
                         .arena = &arena };
    *ret_class = OFFER_INVALID;
    if (!op.offer)
        return err_set(err, -EINVAL, "%s sells no offer %s", x->backend.name, req->offer->name);
    int rc = name_copy(kept.intent, sizeof kept.intent, str_from(req->intent));
    if (rc == 0) rc = web_user_data_write(x->settings, req->spec, req->key, &user_data, err);
    if (rc < 0) return rc;
    op.user_data = buf_view(&user_data);
    create_somewhere(x, &op, req->key, now_us, &step);
    explicit_bzero(user_data.data, user_data.len);
    *ret_class = step.class;
    if (step.rc == 0) *ret = op.made;
    return end(&step, err);
}

static int list(void *ctx, int64_t now_us, struct listed *ret, uint32_t max, uint32_t *ret_count,
                struct err *err)
{
    CLEANUP(arena_fini) struct arena arena;
    struct web_step step = { 0 };
    must(max >= CLOUD_LIST_MAX);
    arena_init(&arena, ARENA_BYTES);
    struct web_op op = { .kind = WEB_LIST, .item = ret, .arena = &arena };
    call(ctx, &op, (struct str){ 0 }, (struct str){ 0 }, now_us, &step);
    if (step.rc == 0) *ret_count = op.count;
    return end(&step, err);
}

static int remove_one(void *ctx, const char *handle, const char *intent, int64_t now_us,
                      struct err *err)
{
    CLEANUP(arena_fini) struct arena arena;
    struct cloud_kept kept = { .op = CLOUD_REMOVE };
    struct web_step step = { 0 };
    arena_init(&arena, ARENA_BYTES);
    struct web_op op = { .kind = WEB_REMOVE, .call = &kept, .arena = &arena };
    int rc = name_copy(kept.intent, sizeof kept.intent, str_from(intent));
    if (rc == 0) rc = name_copy(kept.handle, sizeof kept.handle, str_from(handle));
    if (rc < 0) return err_set(err, rc, "a name is too long");
    call(ctx, &op, (struct str){ 0 }, (struct str){ 0 }, now_us, &step);
    return end(&step, err);
}

static int prices(void *ctx, int64_t now_us, struct cloud_price *ret, uint32_t max,
                  uint32_t *ret_count, struct err *err)
{
    CLEANUP(arena_fini) struct arena arena;
    struct web_step step = { 0 };
    must(max >= CLOUD_PRICES_MAX);
    arena_init(&arena, ARENA_BYTES);
    struct web_op op = { .kind = WEB_PRICES, .price = ret, .arena = &arena };
    call(ctx, &op, (struct str){ 0 }, (struct str){ 0 }, now_us, &step);
    if (step.rc == 0) *ret_count = op.count;
    return end(&step, err);
}

/* ---- opening ---- */

static const char *find_variable(const char *const *environment, struct str name)
{
    for (; environment && *environment; environment++) {
        struct str value = str_from(*environment);
        if (str_eq(str_cut(&value, '='), name)) return *environment;
    }
    return NULL;
}

int cloud_exec_new(const struct web_settings *settings, const char *const *environment,
                   struct cloud_exec **ret, struct err *err)
{
    const struct web_section *s = settings->section;
    struct cloud_exec *x = calloc(1, sizeof *x);
    size_t variables = 0;
    must(x && s->program.count <= WEB_WORDS_MAX && s->environment.count <= WEB_WORDS_MAX);
    x->settings = settings;
    x->timeout_us = settings->timeout_us > 0 ? settings->timeout_us : EXEC_CALL_US;
    x->backend = (struct cloud_backend){ .name = settings->name.data,
                                         .about = settings->kind->about,
                                         .close = close_exec,
                                         .offers = offers,
                                         .create = create,
                                         .list = list,
                                         .remove = remove_one,
                                         .prices = prices };
    for (size_t i = 0; i < s->program.count; i++)
        x->argv[i] = s->program.items[i].data;
    for (size_t i = 0; i < s->environment.count; i++) {
        const char *found = find_variable(environment, s->environment.items[i]);
        if (found) {
            x->env[variables++] = found;
            continue;
        }
        free(x);
        return err_set(err, -EINVAL, "clouds: " STR_FMT ": environment: there is no " STR_FMT,
                       STR_ARG(s->name), STR_ARG(s->environment.items[i]));
    }
    *ret = x;
    return 0;
}

const struct cloud_backend *cloud_exec_backend(const struct cloud_exec *x)
{
    return &x->backend;
}

int cloud_exec_open(const struct web_settings *settings, const char *const *environment,
                    struct cloud *ret, struct err *err)
{
    struct cloud_exec *x;
    int rc = cloud_exec_new(settings, environment, &x, err);
    if (rc < 0) return rc;
    const struct cloud pace = { .lag_us = settings->lag_us,
                                .poll_us = settings->poll_us,
                                .calls_per_s = settings->calls_per_s,
                                .joins = true,
                                .fence = settings->fence };
    log_event(LOG_INFO, "cloud_opened", "provider=%s kind=exec program=%s", x->backend.name,
              x->argv[0]);
    return cloud_thread_new(&x->backend, x, &pace, ret, err);
}

/* ---- the kind ---- */

static int check(const struct web_settings *s, struct err *err)
{
    const struct web_section *from = s->section;
    if (from->endpoint.len > 0 || from->credentials_file.len > 0 || from->credentials_env.len > 0)
        return err_set(
            err, -EINVAL,
            "kind exec reads no endpoint and no credentials: name the program's variables as "
            "`environment`");
    if (from->program.items[0].len == 0 || from->program.items[0].data[0] != '/')
        return err_set(err, -EINVAL, "program: '" STR_FMT "' is no absolute path",
                       STR_ARG(from->program.items[0]));
    return 0;
}

static const char *const takes[] = { "program",     "environment", "timeout",      "lag",
                                     "region",      "image",       "offers.zones", "offers.spot",
                                     "offers.gpus", NULL };
static const char *const wants[] = { "program", NULL };

const struct web_kind web_kind_exec = {
    .name = "exec",
    .about = "a program of your own, over the hook protocol",
    .lag_us = 30000000,
    .poll_us = 10000000,
    .calls_per_s = 5,
    .user_data_bytes = HOOK_USER_DATA_BYTES,
    .takes = takes,
    .wants = wants,
    .check = check,
};
