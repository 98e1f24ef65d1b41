/* weights.c - runs `muster pull` for the engine's model and reads how far it is.
 *
 * The process writes a line for each quarter of a second to its standard output, "DONE TOTAL SEEDED", and its sentences
 * to weights.log in the instance's folder, whose last line says why it failed. */
#include "agent/weights.h"

#include "agent/seed.h"
#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/proc.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES 256
#define WAIT_US 2000000
#define WAIT_US_MAX 60000000
#define END_US 5000000  /* for the process to end, when it is told to */
#define RATE_US 2000000 /* over which the rate is measured */
#define RETRIES "100"   /* of one process, in a row that bring nothing */
#define LOG_BYTES_MAX ((size_t)1 << 20)

enum stage { ASKING, FETCHING, WAITING, THERE, FAILED };

struct weights {
    struct loop *loop;
    const struct instance *in;
    struct weights_config config;
    struct seed *seed;   /* gives the model to others; NULL: it does not */
    uint64_t seeds_hash; /* of the file with those that were named */
    void (*on_end)(void *arg, int rc, const char *why);
    void *arg;
    enum stage stage;
    struct proc pull;
    struct loop_watch ended, lines;
    struct loop_timer timer;
    char line[LINE_BYTES];
    size_t line_len;
    bool line_long; /* what comes until its end is passed over */
    uint32_t failures;
    uint64_t best; /* the most bytes that a try that failed had */
    int64_t since_us, fetch_us, load_us;
    uint64_t done, total, seeded;
    int64_t rate_since_us; /* the rate is counted from there */
    uint64_t rate_from;
    double rate;
    char why[WEIGHTS_WHY_BYTES];
};

/* ---- progress */

static void take_line(struct weights *w)
{
    struct str rest = str_of(w->line, w->line_len);
    struct str done = str_cut(&rest, ' '), total = str_cut(&rest, ' ');
    uint64_t d, t, s;
    if (str_to_u64(done, &d) < 0 || str_to_u64(total, &t) < 0 || str_to_u64(rest, &s) < 0) return;
    int64_t now_us = loop_now_us(w->loop), span_us = now_us - w->rate_since_us;
    w->done = d;
    w->total = t;
    w->seeded = s;
    if (w->rate_since_us == 0 || d < w->rate_from) {
        w->rate_since_us = now_us;
        w->rate_from = d;
    } else if (span_us >= RATE_US) {
        w->rate = (double)(d - w->rate_from) * 1e6 / (double)span_us;
        w->rate_since_us = now_us;
        w->rate_from = d;
    }
}

static void on_lines(void *arg, uint32_t events)
{
    struct weights *w = arg;
    char text[1024];
    ssize_t n = read(w->lines.fd, text, sizeof text);
    (void)events;
    if (n <= 0 && !(n < 0 && (errno == EAGAIN || errno == EINTR))) {
        loop_watch_del(w->loop, &w->lines);
        close(w->lines.fd);
        w->lines.fd = -1;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (text[i] == '\n') {
            if (!w->line_long) take_line(w);
            w->line_len = 0;
            w->line_long = false;
        } else if (w->line_len < sizeof w->line) {
            w->line[w->line_len++] = text[i];
        } else {
            w->line_long = true;
        }
    }
}

/* ---- the process */

static bool is_there(const struct weights *w)
{
    return access(w->in->spec.weights_path.data, F_OK) == 0;
}

static int path_of(const struct weights *w, const char *name, char ret[PATH_MAX])
{
    int n = snprintf(ret, PATH_MAX, STR_FMT "/%s", STR_ARG(w->in->spec.folder), name);
    return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int log_path(const struct weights *w, char ret[PATH_MAX])
{
    return path_of(w, "weights.log", ret);
}

/* Takes the last line of the log as the reason. */
static void take_reason(struct weights *w, const struct proc_exit *how)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char path[PATH_MAX];
    struct str last = { 0 };
    if (log_path(w, path) == 0 && file_read(path, LOG_BYTES_MAX, &text, NULL) == 0)
        for (struct str rest = buf_view(&text); rest.len > 0;) {
            struct str line = str_cut(&rest, '\n');
            if (line.len > 0) last = line;
        }
    if (last.len > 0)
        snprintf(w->why, sizeof w->why, "the model is not there: %.*s",
                 (int)min_size(last.len, sizeof w->why - 32), last.data);
    else
        snprintf(w->why, sizeof w->why, "the model is not there: muster pull ended %s %d",
                 how->killed ? "by signal" : "with status", how->code);
}

static void close_process(struct weights *w)
{
    if (w->pull.id.pid == 0) return;
    loop_watch_del(w->loop, &w->ended);
    proc_close(&w->pull);
    w->pull = (struct proc){ 0 };
}

static void close_lines(struct weights *w)
{
    if (w->lines.fd < 0) return;
    on_lines(w, 0); /* what it said last */
    if (w->lines.fd < 0) return;
    loop_watch_del(w->loop, &w->lines);
    close(w->lines.fd);
    w->lines.fd = -1;
}

/* Gives the model to others, if there is a seal of it. */
static void give(struct weights *w)
{
    const struct launch_spec *s = &w->in->spec;
    char seal[PATH_MAX], host[256];
    struct err err = { 0 };
    if (!w->config.gives || s->weights_sha256.len == 0 || s->engine_tls) return;
    if (path_of(w, "weights.seal", seal) < 0 || access(seal, F_OK) < 0) return;
    snprintf(host, sizeof host, STR_FMT, STR_ARG(s->engine_host));
    const struct seed_config c = { .host = host,
                                   .instance = s->instance,
                                   .held = w->config.held,
                                   .seal = seal,
                                   .model = s->weights_path.data,
                                   .rate = w->config.rate };
    int rc = seed_open(&c, s->weights_sha256, &w->seed, &err);
    if (rc < 0)
        log_event(LOG_WARN, "weights_not_given", "instance=%.*s error=%s", STR_ARG(s->instance),
                  err_text(&err, rc));
    else
        log_event(LOG_INFO, "weights_given", "instance=%.*s port=%u", STR_ARG(s->instance),
                  seed_port(w->seed));
}

static void finish(struct weights *w, enum stage stage)
{
    w->stage = stage;
    if (stage == THERE) give(w);
    w->rate = 0;
    w->fetch_us = loop_now_us(w->loop) - w->since_us;
    log_event(stage == THERE ? LOG_INFO : LOG_ERROR,
              stage == THERE ? "weights_there" : "weights_missing",
              "instance=%.*s bytes=%llu of_agents=%llu seconds=%.3f why=%s",
              STR_ARG(w->in->spec.instance), (unsigned long long)w->done,
              (unsigned long long)w->seeded, (double)w->fetch_us * 1e-6, w->why);
    w->on_end(w->arg, stage == THERE ? 0 : -EIO, w->why);
}

static void wait_again(struct weights *w)
{
    w->failures = w->done > w->best ? 1 : w->failures + 1;
    w->best = w->done > w->best ? w->done : w->best;
    log_event(LOG_WARN, "weights_not_fetched", "instance=%.*s tries=%u why=%s",
              STR_ARG(w->in->spec.instance), w->failures, w->why);
    int64_t us = WAIT_US;
    for (uint32_t i = 1; i < w->failures && us < WAIT_US_MAX; i++)
        us *= 2;
    w->stage = WAITING;
    w->rate = 0;
    w->rate_since_us = 0;
    if (w->failures >= WEIGHTS_FAILURES_MAX ||
        loop_timer_set(w->loop, &w->timer, loop_now_us(w->loop) + min_i64(us, WAIT_US_MAX)) < 0)
        finish(w, FAILED);
}

static void on_ended(void *arg, uint32_t events)
{
    struct weights *w = arg;
    struct proc_exit how = { 0 };
    (void)events;
    if (proc_reap(&w->pull, &how) == -EAGAIN) return;
    close_process(w);
    close_lines(w);
    if (how.known && !how.killed && how.code == 0 && is_there(w)) {
        w->why[0] = 0;
        finish(w, THERE);
        return;
    }
    take_reason(w, &how);
    wait_again(w);
}

static int watch(struct weights *w, int fd)
{
    w->lines = (struct loop_watch){ .fd = fd, .fn = on_lines, .arg = w };
    w->ended = (struct loop_watch){ .fd = w->pull.pidfd, .fn = on_ended, .arg = w };
    int rc = loop_watch_add(w->loop, &w->lines, EPOLLIN);
    if (rc == 0) rc = loop_watch_add(w->loop, &w->ended, EPOLLIN);
    if (rc < 0) { /* its end would go unnoticed: it must not run */
        loop_watch_del(w->loop, &w->lines);
        (void)proc_signal(&w->pull.id, SIGKILL, NULL);
        proc_close(&w->pull);
        w->pull = (struct proc){ 0 };
        w->lines.fd = -1;
    }
    return rc;
}

static int spawn(struct weights *w, struct err *err)
{
    const struct launch_spec *s = &w->in->spec;
    char program[PATH_MAX], log[PATH_MAX], seeds[PATH_MAX], seal[PATH_MAX], max[24];
    int pipe[2];
    const char *argv[24] = { program,     "pull",    s->weights_url.data,  "--config",
                             "/dev/null", "--at",    s->weights_path.data, "--retries",
                             RETRIES,     "--report" };
    size_t n = 10;
    snprintf(max, sizeof max, "%llu", (unsigned long long)s->weights_max);
    int rc = path_of(w, "weights.seeds", seeds);
    if (rc == 0) rc = path_of(w, "weights.seal", seal);
    bool digest = s->weights_sha256.len > 0;
    const char *const pairs[][2] = { { "--sha256", s->weights_sha256.data },
                                     { "--seeds", digest ? seeds : NULL },
                                     { "--seal", digest ? seal : NULL },
                                     { "--endpoint", s->weights_endpoint.data },
                                     { "--max", s->weights_max ? max : NULL } };
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        if (!pairs[i][1] || !pairs[i][1][0]) continue;
        argv[n++] = pairs[i][0];
        argv[n++] = pairs[i][1];
    }
    if (rc == 0) rc = proc_self_path(program, sizeof program);
    if (rc == 0) rc = log_path(w, log);
    if (rc < 0) return err_set(err, rc, "our own program, or the log's path");
    (void)unlink(log); /* its last line is to be of this try */
    if (pipe2(pipe, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_set(err, -errno, "no pipe: %s", strerror(errno));
    const struct proc_spec what = { .argv = argv, .log_path = log, .out_fd = pipe[1] };
    rc = proc_spawn(&what, &w->pull, err);
    close(pipe[1]);
    if (rc == 0) rc = watch(w, pipe[0]);
    if (rc < 0) close(pipe[0]);
    return rc;
}

static void fetch(struct weights *w)
{
    struct err err = { 0 };
    w->stage = FETCHING;
    w->line_len = 0;
    w->line_long = false;
    int rc = spawn(w, &err);
    if (rc == 0) return;
    w->pull = (struct proc){ 0 };
    snprintf(w->why, sizeof w->why, "the model is not there: %.300s", err_text(&err, rc));
    wait_again(w);
}

static void on_time(void *arg)
{
    fetch(arg);
}

/* ---- the agent's side */

/* Holds the list of seeds that pull_seed.c reads. */
struct seed_list {
    const struct wire_seed *seeds;
    uint32_t seed_count;
};
static const struct field list_rows[] = {
    FIELD_ARRAY("seeds", struct seed_list, seeds, seed_count, FIELD_LIST, WIRE_SEEDS_MAX,
                .of = &wire_seed_set),
};
static const struct field_set list_set = FIELD_SET(struct seed_list, list_rows);

int weights_open(struct loop *loop, const struct instance *in, const struct weights_config *config,
                 void (*on_end)(void *arg, int rc, const char *why), void *arg,
                 struct weights **ret, struct err *err)
{
    if (in->spec.weights_url.len == 0 || in->spec.weights_path.len == 0) return 0;
    struct weights *w = calloc(1, sizeof *w);
    if (!w) return err_set(err, -ENOMEM, "no memory for the model's fetch");
    *w =
        (struct weights){ .loop = loop, .in = in, .config = *config, .on_end = on_end, .arg = arg };
    w->lines.fd = -1;
    w->timer = (struct loop_timer){ .fn = on_time, .arg = w };
    w->since_us = loop_now_us(loop);
    *ret = w;
    if (is_there(w)) {
        w->stage = THERE;
        give(w);
    } else if (in->spec.weights_sha256.len == 0 ||
               loop_timer_set(loop, &w->timer, w->since_us + WEIGHTS_ASK_US) < 0) {
        fetch(w); /* without a digest nobody else is believed */
    }
    return 0;
}

void weights_told(struct weights *w, const struct wire_seed *seeds, uint32_t count)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    const struct seed_list list = { seeds, count };
    char path[PATH_MAX];
    if (!weights_is_coming(w) || w->in->spec.weights_sha256.len == 0) return;
    bool written =
        fields_encode(&list_set, &list, &text) == 0 && path_of(w, "weights.seeds", path) == 0;
    uint64_t hash = hash64(text.data, text.len, 0);
    if (written && (hash != w->seeds_hash || w->stage == ASKING) &&
        file_write_atomic(path, buf_view(&text), 0600, NULL) == 0)
        w->seeds_hash = hash;
    if (text.data) explicit_bzero(text.data, text.len); /* it has keys */
    if (w->stage != ASKING) return;
    loop_timer_clear(w->loop, &w->timer);
    fetch(w);
}

void weights_close(struct weights *w)
{
    struct proc_exit how;
    if (!w) return;
    loop_timer_clear(w->loop, &w->timer);
    if (w->pull.id.pid != 0) {
        struct proc pull = w->pull;
        loop_watch_del(w->loop, &w->ended);
        (void)proc_signal(&pull.id, SIGTERM, NULL);
        if (proc_wait(&pull, END_US, &how) < 0) (void)proc_signal(&pull.id, SIGKILL, NULL);
        proc_close(&pull);
        w->pull = (struct proc){ 0 };
    }
    close_lines(w);
    seed_close(w->seed);
    free(w);
}

bool weights_is_coming(const struct weights *w)
{
    return w && (w->stage == ASKING || w->stage == FETCHING || w->stage == WAITING);
}

const char *weights_trouble(const struct weights *w)
{
    return w ? w->why : "";
}

void weights_loaded(struct weights *w, int64_t us)
{
    if (w && w->load_us == 0) w->load_us = us;
}

bool weights_report(const struct weights *w, struct wire_weights *ret)
{
    if (!w) return false;
    int64_t us = weights_is_coming(w) ? loop_now_us(w->loop) - w->since_us : w->fetch_us;
    *ret = (struct wire_weights){ .sha256 = w->in->spec.weights_sha256,
                                  .whole = w->stage == THERE,
                                  .bytes = w->done,
                                  .total = w->total,
                                  .seed_bytes = w->seeded,
                                  .rate = w->rate,
                                  .fetch_s = (double)us * 1e-6,
                                  .load_s = (double)w->load_us * 1e-6,
                                  .port = w->seed ? seed_port(w->seed) : 0 };
    return true;
}
