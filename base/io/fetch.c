/* fetch.c - keeps calls from start to end; each is a handle of libcurl.
 *
 *     fetch_start ─► waiting ─► name (resolver.h) ─► libcurl ─► on_head, on_data ... ─► on_end
 *                       └──────── deadline, fetch_cancel ────────┘
 *
 * libcurl must not be entered from one of its own callbacks, and callers start and cancel calls from
 * theirs. So fetch_start only queues and fetch_cancel only marks; deferred tasks (`launch`, `reap`) enter
 * libcurl at the end of the turn.
 *
 * The address of a host comes from our resolver and reaches libcurl as CURLOPT_CONNECT_TO: the URL keeps
 * its name for TLS and the Host header, and a connection is reused for the same name at the same address.
 * A redirect is followed here for the same reason: libcurl would resolve its host itself.
 *
 * HTTP/1.1 is the default although libcurl speaks HTTP/2: libcurl sends no pings, so behind a connection
 * whose peer vanished every later call of the same host would time out in turn. In HTTP/1.1 a call that
 * times out takes its connection with it.
 */
#include "base/io/fetch.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/fetch_call.h"
#include "base/io/loop/clock.h"
#include "base/io/net/addr.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define RUNNING_MAX 64
#define WAITING_MAX 256
#define CONNECT_US 10000000

static void call_end(struct fetch_call *call, enum fetch_end end, const char *why);

const char *fetch_end_name(enum fetch_end end)
{
    static const char *const names[FETCH_END_COUNT] = {
        [FETCH_OK] = "ok",           [FETCH_NAME] = "name",
        [FETCH_CONNECT] = "connect", [FETCH_TLS] = "tls",
        [FETCH_CUT] = "cut",         [FETCH_TIMEOUT] = "timeout",
        [FETCH_LARGE] = "too_large", [FETCH_MALFORMED] = "malformed",
        [FETCH_LOCAL] = "local",     [FETCH_CANCELLED] = "cancelled",
    };
    return names[end];
}

/* ---- a call's end ---- */

static enum fetch_end end_of(const struct fetch_call *call, CURLcode code)
{
    long ready_us = 0;
    switch ((int)code) {
    case CURLE_OK:
        return FETCH_OK;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return FETCH_NAME;
    case CURLE_COULDNT_CONNECT:
        return FETCH_CONNECT;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
        return FETCH_TLS;
    case CURLE_OPERATION_TIMEDOUT:
        curl_easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &ready_us);
        return ready_us == 0 ? FETCH_CONNECT : FETCH_TIMEOUT;
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_FAIL_REWIND: /* see on_curl_read */
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return FETCH_CUT;
    case CURLE_WRITE_ERROR:
        return call->too_large ? FETCH_LARGE : FETCH_LOCAL;
    case CURLE_UNSUPPORTED_PROTOCOL: /* HTTP/0.9: no status line */
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
        return FETCH_MALFORMED;
    default:
        return FETCH_LOCAL;
    }
}

static void call_follow(struct fetch_call *call);

void fetch_call_done(struct fetch_call *call, CURLcode code)
{
    enum fetch_end end = end_of(call, code);
    if (end == FETCH_OK && call->next) {
        call_follow(call);
        return;
    }
    const char *why = call->curl_error[0] ? call->curl_error : curl_easy_strerror(code);
    if (code == CURLE_SEND_FAIL_REWIND) why = "the connection was closed without a reply";
    call_end(call, end, why);
}

static void call_free(struct fetch_call *call)
{
    must(!call->fetch->inside);
    if (call->added) curl_multi_remove_handle(call->fetch->multi, call->easy);
    if (call->easy) curl_easy_cleanup(call->easy);
    curl_slist_free_all(call->headers);
    curl_slist_free_all(call->connect_to);
    curl_url_cleanup(call->url);
    curl_url_cleanup(call->next);
    buf_fini(&call->head);
    buf_fini(&call->body);
    if (call->sends.data) explicit_bzero(call->sends.data, call->sends.cap); /* may hold secrets */
    buf_fini(&call->sends);
    free(call);
}

/* Stops everything that could call back, and leaves the memory to `reap`. */
static void call_stop(struct fetch_call *call)
{
    struct fetch *f = call->fetch;
    if (call->state == FETCH_WAITING)
        f->counts.waiting--;
    else
        f->counts.running--;
    loop_timer_clear(f->loop, &call->deadline);
    loop_timer_clear(f->loop, &call->idle);
    loop_timer_clear(f->loop, &call->name_timer);
    resolver_leave(f->resolver, &call->name);
    call->state = FETCH_ENDED;
    list_remove(&call->node);
    list_push_back(&f->ended, &call->node);
    loop_defer(f->loop, &f->reap);
    if (!list_empty(&f->waiting)) loop_defer(f->loop, &f->launch);
}

static void call_end(struct fetch_call *call, enum fetch_end end, const char *why)
{
    struct fetch *f = call->fetch;
    char problem[FETCH_PROBLEM_BYTES] = "";
    long request_bytes = 0, connects = 0;
    if (end != FETCH_OK)
        snprintf(problem, sizeof problem, "%s %s: %s", call->method, call->target, why);
    curl_easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &request_bytes);
    if (curl_easy_getinfo(call->easy, CURLINFO_NUM_CONNECTS, &connects) == CURLE_OK)
        f->counts.connects += (uint64_t)connects;
    if (end == FETCH_CONNECT) resolver_doubt(f->resolver, &call->name);
    call_stop(call);
    f->counts.ended[end]++;
    struct fetch_reply reply = { .end = end,
                                 .status = call->status,
                                 .sent = request_bytes > 0,
                                 .problem = problem,
                                 .why = end == FETCH_OK ? "" : why,
                                 .body = buf_view(&call->body) };
    call->on_end(call->arg, &reply);
}

void fetch_cancel(struct fetch_call *call)
{
    if (call->state == FETCH_ENDED) return; /* its on_end is on the stack */
    call_stop(call);
    call->fetch->counts.ended[FETCH_CANCELLED]++;
}

/* Looked for anew after each end, whose callback may cancel any other call. */
static struct fetch_call *unwatched_find(const struct fetch *f)
{
    LIST_EACH (&f->running, node) {
        struct fetch_call *call = CONTAINER_OF(node, struct fetch_call, node);
        if (call->no_watch) return call;
    }
    return NULL;
}

static void on_reap(void *arg)
{
    struct fetch *f = arg;
    struct fetch_call *unwatched;
    while ((unwatched = unwatched_find(f)))
        call_end(unwatched, FETCH_LOCAL, "a socket cannot be watched");
    for (struct list *node; (node = list_pop_front(&f->ended));)
        call_free(CONTAINER_OF(node, struct fetch_call, node));
}

static void on_deadline(void *arg)
{
    struct fetch_call *call = arg;
    call_end(call, FETCH_TIMEOUT,
             call->state == FETCH_WAITING ? "the deadline passed before its turn came"
             : call->status == 0          ? "no reply before the deadline"
                                          : "the reply was not whole at the deadline");
}

static void on_idle(void *arg)
{
    struct fetch_call *call = arg;
    int64_t at_us = call->heard_us + call->idle_us;
    if (loop_now_us(call->fetch->loop) < at_us) {
        loop_timer_set(call->fetch->loop, &call->idle, at_us); /* room: it was just in the heap */
        return;
    }
    char why[96];
    snprintf(why, sizeof why, "no byte came for %.1f s", (double)call->idle_us / 1e6);
    call_end(call, FETCH_TIMEOUT, why);
}

/* ---- the reply ---- */

struct str fetch_header(const struct fetch_call *call, const char *name)
{
    struct str wanted = str_from(name);
    for (struct str rest = buf_view(&call->head); rest.len > 0;) {
        struct str line = str_cut(&rest, '\n');
        struct str value = line;
        if (!str_eq_nocase(str_cut(&value, ':'), wanted)) continue;
        if (value.len > 0 && value.data[value.len - 1] == '\r') value.len--;
        return str_trim(value);
    }
    return (struct str){ 0 };
}

/* Returns where a redirect leads, or NULL if it is not followed: the reply is then the caller's. */
static CURLU *redirect_of(const struct fetch_call *call)
{
    static const int statuses[] = { 301, 302, 303, 307, 308 };
    bool redirect = false;
    for (size_t i = 0; i < COUNT_OF(statuses); i++)
        redirect |= call->status == statuses[i];
    struct str where = fetch_header(call, "location");
    char text[4096], *scheme = NULL;
    if (!redirect || call->redirects_left == 0 || where.len == 0 || where.len >= sizeof text)
        return NULL;
    memcpy(text, where.data, where.len);
    text[where.len] = 0;
    bool plain = !str_starts(str_from(call->target), STR("https://")); /* never from TLS to none */
    CURLU *next = curl_url_dup(call->url);
    bool follow = next &&
                  curl_url_set(next, CURLUPART_URL, text, CURLU_DISALLOW_USER) == CURLUE_OK &&
                  curl_url_get(next, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                  (strcmp(scheme, "https") == 0 || (plain && strcmp(scheme, "http") == 0));
    curl_free(scheme);
    if (follow) return next;
    curl_url_cleanup(next);
    return NULL;
}

static void head_ended(struct fetch_call *call)
{
    long status = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200) return; /* an interim head; another follows */
    call->status = (int)status;
    call->head_done = true;
    call->next = redirect_of(call);
    if (!call->next && call->on_head) call->on_head(call->arg, call->status);
}

static size_t on_curl_header(char *data, size_t size, size_t count, void *arg)
{
    struct fetch_call *call = arg;
    struct str line = str_of(data, size * count);
    if (call->state == FETCH_ENDED) return 0;
    call->heard_us = loop_now_us(call->fetch->loop);
    if (call->head_done) return line.len; /* a trailer */
    if (str_starts(line, STR("HTTP/"))) buf_clear(&call->head);
    if (buf_str(&call->head, line) < 0) {
        call->too_large = call->head.rc == -E2BIG;
        return 0;
    }
    if (str_eq(line, STR("\r\n")) || str_eq(line, STR("\n"))) head_ended(call);
    return call->state == FETCH_ENDED ? 0 : line.len;
}

static size_t on_curl_data(char *data, size_t size, size_t count, void *arg)
{
    struct fetch_call *call = arg;
    struct str part = str_of(data, size * count);
    if (call->state == FETCH_ENDED) return 0;
    call->heard_us = loop_now_us(call->fetch->loop);
    call->too_large = part.len > call->body_bytes_max - call->body_bytes;
    if (call->too_large) return 0;
    if (call->body_bytes_max != SIZE_MAX) call->body_bytes += part.len;
    if (call->next) return part.len; /* of a redirect that is followed */
    if (call->on_data)
        call->on_data(call->arg, part);
    else if (buf_str(&call->body, part) < 0)
        return 0;
    return call->state == FETCH_ENDED ? 0 : part.len;
}

/* ---- starting ---- */

static void on_name_late(void *arg)
{
    call_end(arg, FETCH_NAME, "the resolver does not answer");
}

static void call_go(struct fetch_call *call, const struct addr *found)
{
    struct fetch *f = call->fetch;
    struct addr addr = *found;
    char at[ADDR_TEXT_MAX], line[FETCH_HOST_BYTES + ADDR_TEXT_MAX + 8];
    CURLcode code = CURLE_OK;
    addr.port = call->proxy.host[0] ? call->proxy.port : call->to.port;
    addr_text(&addr, at);
    if (call->proxy.host[0]) {
        snprintf(line, sizeof line, "http://%s", at);
        code = curl_easy_setopt(call->easy, CURLOPT_PROXY, line);
        fetch_host_port(call->to.host, call->to.port, at, sizeof at);
    }
    curl_slist_free_all(call->connect_to);
    call->connect_to = NULL;
    if (!call->proxy.host[0] || call->tls_name[0]) {
        snprintf(line, sizeof line, "::%s", at);
        call->connect_to = curl_slist_append(NULL, line);
        if (!call->connect_to) code = CURLE_OUT_OF_MEMORY;
    }
    if (code == CURLE_OK) code = curl_easy_setopt(call->easy, CURLOPT_CONNECT_TO, call->connect_to);
    CURLMcode added = CURLM_OUT_OF_MEMORY;
    if (code == CURLE_OK && !FAULT("fetch.add"))
        added = curl_multi_add_handle(f->multi, call->easy);
    if (added != CURLM_OK) {
        call_end(call, FETCH_LOCAL, curl_multi_strerror(added));
        return;
    }
    call->added = true;
    call->state = FETCH_RUNNING;
    call->heard_us = loop_now_us(f->loop);
    if (call->idle_us > 0 &&
        loop_timer_set(f->loop, &call->idle, call->heard_us + call->idle_us) < 0)
        call_end(call, FETCH_LOCAL, "no timer is left");
}

static void on_name(void *arg, int rc, const struct addr *found)
{
    struct fetch_call *call = arg;
    loop_timer_clear(call->fetch->loop, &call->name_timer);
    if (rc < 0)
        call_end(call, FETCH_NAME, "the host's name is not known");
    else
        call_go(call, found);
}

/* Finds the address that the call connects to. */
static void call_find(struct fetch_call *call)
{
    struct fetch *f = call->fetch;
    const struct fetch_endpoint *to = call->proxy.host[0] ? &call->proxy : &call->to;
    struct addr addr;
    if (addr_from_literal(&addr, str_from(to->host), to->port) == 0) {
        call_go(call, &addr);
        return;
    }
    call->name = (struct resolver_use){ .fn = on_name, .arg = call };
    int rc = resolver_ask(f->resolver, str_from(to->host), &call->name, &addr);
    if (rc == -EINPROGRESS) {
        call->state = FETCH_FINDING;
        rc =
            loop_timer_set(f->loop, &call->name_timer, loop_now_us(f->loop) + f->config.connect_us);
        if (rc == 0) return;
    }
    if (rc == 0)
        call_go(call, &addr);
    else if (rc == -ENOENT)
        call_end(call, FETCH_NAME, "the host's name is not known");
    else if (rc == -EINVAL)
        call_end(call, FETCH_NAME, "the host is no name and no address");
    else
        call_end(call, FETCH_LOCAL, strerror(-rc));
}

static void on_launch(void *arg)
{
    struct fetch *f = arg;
    uint64_t left = f->counts.waiting; /* a call that fails here may start another */
    while (left-- > 0 && f->counts.running < f->config.running_max && !list_empty(&f->waiting)) {
        struct list *node = list_pop_front(&f->waiting);
        struct fetch_call *call = CONTAINER_OF(node, struct fetch_call, node);
        list_push_back(&f->running, node);
        call->state = FETCH_FINDING;
        f->counts.waiting--;
        f->counts.running++;
        call_find(call);
    }
}

/* Goes on with a redirect. Headers of the request, which may hold credentials, go only to the same
 * scheme, host and port. */
static void call_follow(struct fetch_call *call)
{
    struct fetch *f = call->fetch;
    struct fetch_endpoint before = call->to;
    curl_multi_remove_handle(f->multi, call->easy);
    call->added = false;
    call->state = FETCH_FINDING;
    curl_url_cleanup(call->url);
    call->url = TAKE(call->next);
    call->redirects_left--;
    call->head_done = false;
    call->body_bytes = 0;
    loop_timer_clear(f->loop, &call->idle);
    resolver_leave(f->resolver, &call->name);
    if (fetch_endpoint_of(call->url, &call->to) < 0) {
        call_end(call, FETCH_MALFORMED, "a redirect leads to no host");
        return;
    }
    if (strcasecmp(before.host, call->to.host) != 0 || before.port != call->to.port) {
        curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, NULL);
        curl_slist_free_all(call->headers);
        call->headers = NULL;
        if (fetch_open_headers(call, NULL) < 0) {
            call_end(call, FETCH_LOCAL, "out of memory");
            return;
        }
        curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
    }
    curl_easy_setopt(call->easy, CURLOPT_CURLU, call->url);
    call_find(call);
}

/* Has libcurl hand the reply to this call. */
static int call_listen(struct fetch_call *call, struct err *err)
{
    CURL *e = call->easy;
    CURLcode code = curl_easy_setopt(e, CURLOPT_PRIVATE, call);
    if (code == CURLE_OK) code = curl_easy_setopt(e, CURLOPT_ERRORBUFFER, call->curl_error);
    if (code == CURLE_OK) code = curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_curl_header);
    if (code == CURLE_OK) code = curl_easy_setopt(e, CURLOPT_HEADERDATA, call);
    if (code == CURLE_OK) code = curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_curl_data);
    if (code == CURLE_OK) code = curl_easy_setopt(e, CURLOPT_WRITEDATA, call);
    return code == CURLE_OK ? 0 : err_set(err, -ENOMEM, "%s", curl_easy_strerror(code));
}

int fetch_start(struct fetch *f, const struct fetch_request *req, struct fetch_call **ret,
                struct err *err)
{
    loop_assert_owner(f->loop);
    must(req->on_end);
    if (f->freeing) return err_set(err, -EAGAIN, "the client is being closed");
    if (f->counts.waiting >= f->config.waiting_max) {
        f->counts.refused++;
        return err_set(err, -EAGAIN, "%u calls wait already", f->config.waiting_max);
    }
    struct fetch_call *call = FAULT("fetch.call") ? NULL : calloc(1, sizeof *call);
    if (!call) return err_set(err, -ENOMEM, "out of memory");
    call->fetch = f;
    call->idle_us = req->idle_us;
    call->body_bytes_max = req->body_bytes_max ? req->body_bytes_max : FETCH_BODY_BYTES;
    call->on_head = req->on_head;
    call->on_data = req->on_data;
    call->on_end = req->on_end;
    call->arg = req->arg;
    call->deadline = (struct loop_timer){ .fn = on_deadline, .arg = call };
    call->idle = (struct loop_timer){ .fn = on_idle, .arg = call };
    call->name_timer = (struct loop_timer){ .fn = on_name_late, .arg = call };
    buf_init(&call->head, FETCH_HEAD_BYTES_MAX);
    buf_init(&call->body, call->body_bytes_max);
    int rc = fetch_call_fill(call, req, err);
    if (rc == 0) rc = call_listen(call, err);
    if (rc == 0 && req->deadline_us != 0) {
        rc = loop_timer_set(f->loop, &call->deadline, req->deadline_us);
        if (rc < 0) err_set(err, rc, "no timer is left");
    }
    if (rc < 0) {
        bool inside = f->inside; /* a handle that was never added may be freed anywhere */
        f->inside = false;
        call_free(call);
        f->inside = inside;
        return rc;
    }
    list_push_back(&f->waiting, &call->node);
    f->counts.waiting++;
    f->counts.calls++;
    loop_defer(f->loop, &f->launch);
    *ret = call;
    return 0;
}

/* ---- life ---- */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_ready;

static void curl_begin(void)
{
    curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
}

int fetch_new(struct loop *l, const struct fetch_config *config, struct fetch **ret,
              struct err *err)
{
    pthread_once(&curl_once, curl_begin);
    if (curl_ready != CURLE_OK)
        return err_set(err, -EIO, "libcurl does not start: %s", curl_easy_strerror(curl_ready));
    CLEANUP(fetch_freep) struct fetch *f = calloc(1, sizeof *f);
    if (!f) return err_set(err, -ENOMEM, "out of memory");
    f->loop = l;
    f->config = *config;
    if (f->config.running_max == 0) f->config.running_max = RUNNING_MAX;
    if (f->config.waiting_max == 0) f->config.waiting_max = WAITING_MAX;
    if (f->config.connect_us == 0) f->config.connect_us = CONNECT_US;
    f->launch = (struct loop_task){ .fn = on_launch, .arg = f };
    f->reap = (struct loop_task){ .fn = on_reap, .arg = f };
    list_init(&f->waiting);
    list_init(&f->running);
    list_init(&f->ended);
    if (fetch_drive_init(f) < 0) return err_set(err, -ENOMEM, "out of memory");
    int rc = resolver_new(l, config->names, &f->resolver, err);
    if (rc < 0) return rc;
    *ret = TAKE(f);
    return 0;
}

void fetch_free(struct fetch *f)
{
    if (!f) return;
    must(!f->inside);
    f->freeing = true;
    for (struct list *lists[] = { &f->waiting, &f->running }, **l = lists; l < lists + 2; l++)
        while (!list_empty(*l))
            call_end(CONTAINER_OF((*l)->next, struct fetch_call, node), FETCH_CANCELLED,
                     "the client is closed");
    on_reap(f);
    loop_defer_clear(f->loop, &f->reap);
    loop_defer_clear(f->loop, &f->launch);
    fetch_drive_fini(f);
    resolver_free(f->resolver);
    free(f);
}

void fetch_counts_get(const struct fetch *f, struct fetch_counts *ret)
{
    *ret = f->counts;
}
