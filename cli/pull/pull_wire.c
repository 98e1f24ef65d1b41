/* pull_wire.c - one call after another until a body is whole.
 *
 *     before ─► call ─┬─► on_head, on_data ... ─► whole: 0
 *                     ├─► may pass (cut, 429, 5xx) ─► wait ─► before
 *                     └─► will not pass (404, a reader's error) ─► its sentence
 *
 * A try that got further than all before clears the count of failures, so that a line that is cut every minute still
 * fetches a large file, and one that is dead is given up after a few waits. */
#include "cli/pull/pull_wire.h"

#include "base/core/bits.h"
#include "base/io/loop/clock.h"
#include "cli/pull/pull_file.h"
#include "cli/pull/pull_source.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define SHOWN_BYTES 256

static void on_signal(void *arg, int signo)
{
    struct pull_wire *w = arg;
    (void)signo;
    w->stopped = true;
}

int pull_wire_open(struct pull_wire *w, uint32_t retries, const char *const *environment,
                   struct err *err)
{
    uint64_t seed;
    const struct fetch_config config = { .environ = environment };
    *w = (struct pull_wire){ .retries = retries };
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        return err_set(err, -EIO, "the system gives no random numbers");
    rng_seed(&w->rng, seed);
    signal(SIGPIPE, SIG_IGN);
    int rc = loop_new(&w->loop, err);
    if (rc == 0) rc = loop_signal(w->loop, SIGINT, on_signal, w, err);
    if (rc == 0) rc = loop_signal(w->loop, SIGTERM, on_signal, w, err);
    if (rc == 0) rc = fetch_new(w->loop, &config, &w->fetch, err);
    return rc;
}

void pull_wire_close(struct pull_wire *w)
{
    fetch_free(w->fetch);
    loop_free(w->loop);
    *w = (struct pull_wire){ 0 };
}

bool pull_wire_stopped(struct pull_wire *w)
{
    (void)loop_turn(w->loop, 0);
    return w->stopped;
}

/* ---- one try */

struct attempt {
    struct pull_ask *ask;
    struct fetch_call *call;
    struct err *err;
    bool over, again, free; /* free: not counted as a failure, nor waited for */
    int rc;
    int64_t wait_us;         /* as the server asks; 0: it does not */
    char shown[SHOWN_BYTES]; /* the URL, for sentences */
};

static void end(struct attempt *a, int rc, bool again)
{
    a->over = true;
    a->rc = rc;
    a->again = again;
}

/* Ends the call from one of its callbacks. */
static void stop(struct attempt *a, int rc)
{
    end(a, rc, rc == PULL_AGAIN);
    fetch_cancel(a->call);
}

/* Likewise with a reader's error, or its wish for another try. */
static void stop_read(struct attempt *a, int rc)
{
    if (rc != -ENOSPC && rc != PULL_LARGE) err_prefix(a->err, rc, "%s", a->shown);
    stop(a, rc);
}

static void stop_again(struct attempt *a, int status)
{
    err_set(a->err, -EIO, "%s: the server answers %d", a->shown, status);
    stop(a, PULL_AGAIN);
}

static int64_t retry_after_us(struct str text)
{
    uint64_t seconds;
    if (str_to_u64(text, &seconds) < 0) return 0; /* absent, or a date: our own wait */
    return seconds > PULL_RETRY_AFTER_US_MAX / 1000000 ? -1 : (int64_t)seconds * 1000000;
}

/* Lets the login answer for a refusal: with another key, or another region. Returns true if it does. */
static bool try_login(struct attempt *a, int status)
{
    struct pull_login *l = a->ask->login;
    if (!l) return false;
    switch (pull_login_refused(l, status, fetch_header(a->call, "x-amz-bucket-region"))) {
    case PULL_LOGIN_AGAIN:
        a->free = true;
        stop(a, PULL_AGAIN);
        return true;
    case PULL_LOGIN_MOVED:
        stop(a, err_set(a->err, PULL_MOVED, "%s: the bucket is in region " STR_FMT, a->shown,
                        STR_ARG(pull_login_region(l))));
        return true;
    case PULL_LOGIN_NO:
        break;
    }
    return false;
}

static const char *hint_of(const struct attempt *a)
{
    if (a->ask->login) return "; may these credentials read it?";
    return a->ask->bearer.len > 0
               ? "; may the token in HF_TOKEN read it, and are its terms accepted on its page?"
               : "; a model of the hub that is not open needs a token in HF_TOKEN";
}

static void on_refusal(struct attempt *a, int status)
{
    if (try_login(a, status)) return;
    bool passes = status == 408 || status == 429 || status >= 500;
    a->wait_us = passes ? retry_after_us(fetch_header(a->call, "retry-after")) : 0;
    if (a->wait_us < 0)
        stop(a, err_set(a->err, -EIO,
                        "%s: the server answers %d and wants to be asked again in more than %d s",
                        a->shown, status, PULL_RETRY_AFTER_US_MAX / 1000000));
    else if (passes)
        stop_again(a, status);
    else if (status == 401 || status == 403)
        stop(a, err_set(a->err, -EACCES, "%s: the server refuses it (%d)%s", a->shown, status,
                        hint_of(a)));
    else if (status == 404 || status == 410)
        stop(a, err_set(a->err, -ENOENT, "%s: the server has no such file (%d)", a->shown, status));
    else if (status >= 300 && status < 400)
        stop(a, err_set(a->err, -EIO,
                        "%s: the server redirects (%d) more than %d times, to no URL, or from "
                        "https to http",
                        a->shown, status, FETCH_REDIRECTS_MAX));
    else
        stop(a, err_set(a->err, -EIO, "%s: the server answers %d", a->shown, status));
}

static void on_head(void *arg, int status)
{
    struct attempt *a = arg;
    struct pull_head head = { .status = status,
                              .etag = fetch_header(a->call, "etag"),
                              .modified = fetch_header(a->call, "last-modified"),
                              .range = fetch_header(a->call, "content-range"),
                              .link = fetch_header(a->call, "link"),
                              .length = UINT64_MAX };
    if (status != 200 && status != 206 && status != 416) {
        on_refusal(a, status);
        return;
    }
    (void)str_to_u64(fetch_header(a->call, "content-length"), &head.length);
    int rc = a->ask->on_head(a->ask->arg, &head, a->err);
    if (rc < 0) stop_read(a, rc);
}

static void on_data(void *arg, struct str data)
{
    struct attempt *a = arg;
    int rc = a->ask->on_data(a->ask->arg, data, a->err);
    if (rc < 0) stop_read(a, rc);
}

static void on_end(void *arg, const struct fetch_reply *reply)
{
    struct attempt *a = arg;
    if (reply->end == FETCH_OK) {
        end(a, 0, false);
        return;
    }
    bool passes = reply->end == FETCH_NAME || reply->end == FETCH_CONNECT ||
                  reply->end == FETCH_CUT || reply->end == FETCH_TIMEOUT ||
                  reply->end == FETCH_LOCAL;
    err_set(a->err, -EIO, "%s: %s", a->shown, reply->why);
    end(a, passes ? PULL_AGAIN : -EIO, passes);
}

static int try_once(struct pull_wire *w, struct attempt *a)
{
    const struct fetch_header *headers = NULL;
    size_t header_count = 0;
    int rc = a->ask->login ? pull_login_ready(a->ask->login, a->err) : 0;
    if (rc == 0 && a->ask->login &&
        pull_login_sign(a->ask->login, a->ask->url, &headers, &header_count) < 0)
        rc = err_set(a->err, -ENOMEM, "no memory for a signature");
    if (rc < 0) return rc;
    const struct fetch_request req = {
        .url = a->ask->url,
        .headers = headers,
        .header_count = header_count,
        .bearer = a->ask->bearer,
        .range_from = a->ask->from,
        .if_range = a->ask->from > 0 ? a->ask->if_range : (struct str){ 0 },
        .body_bytes_max = SIZE_MAX,
        .idle_us = PULL_IDLE_US,
        .redirects_max = FETCH_REDIRECTS_MAX,
        .on_head = on_head,
        .on_data = on_data,
        .on_end = on_end,
        .arg = a,
    };
    pull_url_shown(a->ask->url, a->shown, sizeof a->shown);
    rc = fetch_start(w->fetch, &req, &a->call, a->err);
    if (rc < 0) return rc;
    while (!a->over && !w->stopped && rc == 0)
        rc = loop_turn(w->loop, -1);
    if (!a->over) fetch_cancel(a->call);
    (void)loop_turn(w->loop, 0); /* the ended call is freed at the end of a turn */
    if (rc < 0) return err_set(a->err, rc, "waiting: %s", strerror(-rc));
    return a->over ? a->rc : -EINTR;
}

/* ---- tries */

static void on_time(void *arg)
{
    *(bool *)arg = true;
}

static int wait_for(struct pull_wire *w, int64_t us, struct err *err)
{
    bool over = false;
    struct loop_timer timer = { .fn = on_time, .arg = &over };
    int rc = loop_timer_set(w->loop, &timer, clock_mono_us() + us);
    while (rc == 0 && !over && !w->stopped)
        rc = loop_turn(w->loop, -1);
    loop_timer_clear(w->loop, &timer);
    if (rc < 0) return err_set(err, rc, "waiting: %s", strerror(-rc));
    return w->stopped ? -EINTR : 0;
}

static int64_t back_off_us(struct pull_wire *w, uint32_t failures)
{
    int64_t us = PULL_WAIT_US;
    for (uint32_t i = 1; i < failures && us < PULL_WAIT_US_MAX; i++)
        us *= 2;
    us = min_i64(us, PULL_WAIT_US_MAX);
    return us - (int64_t)rng_below(&w->rng, (uint64_t)us / 2);
}

int pull_wire_get(struct pull_wire *w, struct pull_ask *ask, struct err *err)
{
    struct err own = { 0 };
    if (!err) err = &own;
    uint64_t reached = ask->reached;
    for (uint32_t failures = 0, tries = 1;; tries++) {
        struct attempt a = { .ask = ask, .err = err };
        int rc = ask->before ? ask->before(ask->arg, ask, err) : 0;
        if (rc == 0) rc = try_once(w, &a);
        if (rc == 0) return 0;
        if (w->stopped) return err_set(err, -EINTR, "stopped");
        if (rc != PULL_AGAIN) return rc;
        if (a.free && tries < PULL_TRIES_MAX) continue;
        failures = ask->reached > reached ? 1 : failures + 1;
        reached = ask->reached;
        if (failures > w->retries || tries == PULL_TRIES_MAX) {
            char why[ERR_TEXT_MAX];
            snprintf(why, sizeof why, "%s", err->text);
            return err_set(err, -EIO, "%.400s (given up after %u tries)", why, tries);
        }
        int64_t wait_us = a.wait_us > 0 ? a.wait_us : back_off_us(w, failures);
        fprintf(stderr, "%s%s; asking again in %.1f s\n", isatty(STDERR_FILENO) ? "\n" : "",
                err->text, (double)wait_us * 1e-6);
        rc = wait_for(w, wait_us, err);
        if (w->stopped) return err_set(err, -EINTR, "stopped");
        if (rc < 0) return rc;
    }
}

/* ---- small bodies */

struct text {
    struct buf *body, *link;
};

static int text_before(void *arg, struct pull_ask *ask, struct err *err)
{
    struct text *t = arg;
    (void)ask, (void)err;
    buf_clear(t->body);
    if (t->link) buf_clear(t->link);
    return 0;
}

static int text_head(void *arg, const struct pull_head *head, struct err *err)
{
    struct text *t = arg;
    if (t->link) buf_str(t->link, head->link);
    return head->status == 200
               ? 0
               : err_set(err, -EPROTO, "the server answers %d to a whole request", head->status);
}

static int text_data(void *arg, struct str data, struct err *err)
{
    struct text *t = arg;
    if (buf_str(t->body, data) == 0) return 0;
    return err_set(err, t->body->rc, "the server's reply is longer than %zu bytes", t->body->max);
}

int pull_wire_text(struct pull_wire *w, struct str url, struct str bearer, struct pull_login *login,
                   size_t bytes_max, struct buf *ret_body, struct buf *ret_link, struct err *err)
{
    struct text t = { ret_body, ret_link };
    struct pull_ask ask = { .url = url,
                            .bearer = bearer,
                            .login = login,
                            .before = text_before,
                            .on_head = text_head,
                            .on_data = text_data,
                            .arg = &t };
    ret_body->max = bytes_max;
    return pull_wire_get(w, &ask, err);
}
