/* fake_kube.c - plays a Kubernetes API server that fails on command.
 *
 *     fake_kube --port P --control-port C --certificate FILE --key FILE [--token TEXT]
 *               [--bookmark-ms N] [--linger-ms N]
 *
 * Port P speaks HTTPS as an API server does: get, list with limit and continue, watch with bookmarks, create,
 * replace, merge patch, apply, delete with preconditions, eviction, the subresources status and scale. It keeps
 * any object of any resource (fake_kube_store.h); apply is a merge patch that may create. With --token a
 * request without that bearer token is a 401. With --linger-ms a deleted pod stays, with a deletionTimestamp,
 * for so long.
 *
 * Port C is plain HTTP, for the test:
 *
 *     POST /script   {"verb": V, "fault": F, "count": N, "code": N, "retry_after": N, "ms": N, "resource": R,
 *                     "message": M}
 *                    the next N requests of that verb ("" is any) and resource fail so:
 *                        status   this code, with Retry-After and the message
 *                        hang     no byte of a reply
 *                        cut      the connection ends mid-reply     lost      carried out, then cut
 *                        slow     a byte every ms                   garbage   a body that is no JSON
 *                        html     this code, a proxy's page         stale     of a list: its next chunk is 410
 *                    for watches also: cut after ms; silent from the head on; expired sends an ERROR frame with
 *                        410, older a bookmark of an older version; broken sends half a frame and then another
 *     POST /set      {"token": T, "bookmark_ms": N, "linger_ms": N, "budget": N}  evictions that are allowed
 *     POST /compact  forgets the history: older versions are 410
 *     POST /restart  cuts all watches; {"empty": true}: loses all objects too, and versions start over
 *     GET /seen      counts of requests by verb, of open watches, of accepted connections, of refused
 *                    tokens; the last user agent
 */
#include "tests/proc/rig/fake_kube.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/config/opt.h"
#include "base/io/loop/clock.h"
#include "base/io/net/tls.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const verb_names[] = { "get",   "list",  "watch",  "create", "replace",
                                          "patch", "apply", "delete", "evict" };

void fake_answer_fini(struct fake_answer *a)
{
    buf_fini(&a->body);
}

static void put_details(struct json_writer *w, const char *cause, int64_t retry_after)
{
    json_key(w, "details");
    json_object(w);
    if (retry_after > 0) json_kv_i64(w, "retryAfterSeconds", retry_after);
    if (cause) {
        json_key(w, "causes");
        json_array(w);
        json_object(w);
        json_kv_text(w, "reason", cause);
        json_object_end(w);
        json_array_end(w);
    }
    json_object_end(w);
}

void fake_say(struct fake_answer *a, int code, const char *reason, const char *message,
              const char *cause, int64_t retry_after)
{
    struct json_writer w;
    a->code = code;
    a->retry_after = retry_after;
    buf_clear(&a->body);
    json_writer_init(&w, &a->body);
    json_object(&w);
    json_kv_text(&w, "kind", "Status");
    json_kv_text(&w, "apiVersion", "v1");
    json_kv_text(&w, "status", code < 300 ? "Success" : "Failure");
    json_kv_text(&w, "message", message);
    json_kv_text(&w, "reason", reason);
    json_kv_i64(&w, "code", code);
    put_details(&w, cause, retry_after);
    json_object_end(&w);
}

void fake_answer_send(struct http_exchange *x, const struct fake_answer *a)
{
    char seconds[24];
    snprintf(seconds, sizeof seconds, "%lld", (long long)a->retry_after);
    if (a->retry_after > 0) http_reply_header(x, "retry-after", str_from(seconds));
    http_reply(x, a->code, FAKE_JSON_TYPE, buf_view(&a->body));
}

/* ---- a reply in pieces ---- */

struct slow {
    struct list node;
    struct fake *fake;
    struct http_exchange *x;
    struct loop_timer timer;
    struct buf body;
    int64_t ms;
};

static void slow_free(struct slow *s)
{
    loop_timer_clear(s->fake->loop, &s->timer);
    list_remove(&s->node);
    buf_fini(&s->body);
    free(s);
}

static void on_slow_left(void *arg, enum http_abort why)
{
    (void)why;
    slow_free(arg);
}

static void on_slow(void *arg)
{
    struct slow *s = arg;
    if (s->body.len == 0) {
        http_stream_end(s->x);
        slow_free(s);
        return;
    }
    http_stream_write(s->x, s->body.data, 1);
    buf_consume(&s->body, 1);
    loop_timer_set(s->fake->loop, &s->timer, loop_now_us(s->fake->loop) + s->ms * 1000);
}

static void on_slow_cut(void *arg)
{
    struct slow *s = arg;
    http_exchange_abort(s->x);
    slow_free(s);
}

/* Holds the exchange: for ever when ms is 0, as a stream of single bytes when it is positive. Negative: a
 * stream that has begun is cut once its bytes have left. */
static void hold(struct fake *f, struct http_exchange *x, struct str body, int64_t ms)
{
    struct slow *s = calloc(1, sizeof *s);
    must(s);
    *s = (struct slow){ .fake = f, .x = x, .ms = ms, .timer = { .fn = on_slow, .arg = s } };
    buf_str(&s->body, body);
    list_push_back(&f->held, &s->node);
    http_exchange_watch(x, on_slow_left, NULL, s);
    if (ms == 0) return;
    if (ms < 0) {
        s->timer.fn = on_slow_cut;
        loop_timer_set(f->loop, &s->timer, loop_now_us(f->loop) + 20000);
        return;
    }
    http_stream_begin(x, 200, FAKE_JSON_TYPE);
    on_slow(s);
}

/* ---- requests ---- */

static struct str segment(struct str *path)
{
    if (path->len > 0 && path->data[0] == '/') *path = str_of(path->data + 1, path->len - 1);
    return str_cut(path, '/');
}

void fake_copy(char *to, size_t bytes, struct str s)
{
    snprintf(to, bytes, STR_FMT, STR_ARG(s));
}

/* Reads /api/v1/... or /apis/GROUP/VERSION/... into key and subresource. */
static bool address(struct str path, struct fake_key *key, char sub[32])
{
    *key = (struct fake_key){ 0 };
    struct str root = segment(&path);
    struct str group = str_eq(root, STR("apis")) ? segment(&path) : STR("");
    struct str version = segment(&path), plural = segment(&path);
    if (!str_eq(root, STR("api")) && !str_eq(root, STR("apis"))) return false;
    if (str_eq(plural, STR("namespaces")) && path.len > 0) {
        struct str rest = path, ns = segment(&rest);
        if (rest.len > 0) { /* else the object is a namespace itself */
            fake_copy(key->ns, sizeof key->ns, ns);
            path = rest;
            plural = segment(&path);
        }
    }
    snprintf(key->resource, sizeof key->resource, STR_FMT "/" STR_FMT "/" STR_FMT, STR_ARG(group),
             STR_ARG(version), STR_ARG(plural));
    fake_copy(key->name, sizeof key->name, segment(&path));
    fake_copy(sub, 32, segment(&path));
    return plural.len > 0;
}

static int verb_of(const struct http_request *req, const struct fake_key *key, const char *sub)
{
    CLEANUP(buf_fini) struct buf watch = { 0 };
    struct str m = req->method;
    if (str_eq(m, STR("GET"))) {
        http_query_value(req->query, "watch", &watch);
        if (str_eq(buf_view(&watch), STR("true"))) return FAKE_WATCH;
        return key->name[0] ? FAKE_GET : FAKE_LIST;
    }
    if (str_eq(m, STR("POST"))) return strcmp(sub, "eviction") == 0 ? FAKE_EVICT : FAKE_CREATE;
    if (str_eq(m, STR("PUT"))) return FAKE_REPLACE;
    if (str_eq(m, STR("DELETE"))) return FAKE_DELETE;
    if (!str_eq(m, STR("PATCH"))) return -1;
    return str_eq(http_request_header(req, "content-type"), STR("application/apply-patch+yaml"))
               ? FAKE_APPLY
               : FAKE_PATCH;
}

/* Takes the rule that applies to a request, one use of it. */
static const struct fake_rule *rule_take(struct fake *f, enum fake_verb verb,
                                         const struct fake_key *key)
{
    for (uint32_t i = 0; i < f->rule_count; i++) {
        struct fake_rule *r = &f->rules[i];
        bool fits = r->count > 0 && (!r->verb[0] || strcmp(r->verb, verb_names[verb]) == 0) &&
                    (!r->resource[0] || str_ends(str_from(key->resource), str_from(r->resource)));
        if (!fits) continue;
        r->count--;
        return r;
    }
    return NULL;
}

/* Sends the answer as the rule says. */
static void send_faulty(struct fake *f, struct http_exchange *x, const struct fake_rule *rule,
                        struct fake_answer *a)
{
    const char *fault = rule->fault;
    if (strcmp(fault, "lost") == 0) {
        http_exchange_abort(x);
    } else if (strcmp(fault, "cut") == 0) {
        http_stream_begin(x, a->code, FAKE_JSON_TYPE);
        http_stream_write(x, a->body.data, a->body.len / 2);
        hold(f, x, STR(""), -1);
    } else if (strcmp(fault, "slow") == 0) {
        hold(f, x, buf_view(&a->body), rule->ms);
    } else if (strcmp(fault, "stale") == 0) {
        fake_compact(&f->store); /* its own continue token is too old at once */
        f->store.oldest = ++f->store.version;
        fake_answer_send(x, a);
    } else if (strcmp(fault, "garbage") == 0) {
        http_reply(x, a->code, FAKE_JSON_TYPE, STR("{\"kind\":"));
    } else {
        fake_answer_send(x, a);
    }
}

static bool is_authorised(struct fake *f, const struct http_request *req)
{
    char wanted[300];
    snprintf(wanted, sizeof wanted, "Bearer %s", f->token);
    return !f->token[0] || str_eq(http_request_header(req, "authorization"), str_from(wanted));
}

static void on_request(void *ctx, struct http_exchange *x)
{
    struct fake *f = ctx;
    const struct http_request *req = http_exchange_request(x);
    CLEANUP(fake_answer_fini) struct fake_answer a = { 0 };
    struct fake_key key;
    char sub[32] = "";
    int verb = address(req->path, &key, sub) ? verb_of(req, &key, sub) : -1;
    fake_copy(f->agent, sizeof f->agent, http_request_header(req, "user-agent"));
    if (verb < 0) {
        fake_say(&a, 404, "NotFound", "no such path", NULL, 0);
        fake_answer_send(x, &a);
        return;
    }
    f->seen[verb]++;
    if (!is_authorised(f, req)) {
        f->refused++;
        fake_say(&a, 401, "Unauthorized", "Unauthorized", NULL, 0);
        fake_answer_send(x, &a);
        return;
    }
    const struct fake_rule *rule = rule_take(f, (enum fake_verb)verb, &key);
    const char *fault = rule ? rule->fault : "";
    if (strcmp(fault, "hang") == 0) {
        hold(f, x, STR(""), 0);
    } else if (strcmp(fault, "status") == 0) {
        fake_say(&a, (int)rule->code, "", rule->message[0] ? rule->message : "as the script says",
                 NULL, rule->retry_after);
        fake_answer_send(x, &a);
    } else if (strcmp(fault, "html") == 0) {
        http_reply(x, (int)rule->code, STR("text/html"), STR("<html>Bad gateway</html>"));
    } else if (verb == FAKE_WATCH) {
        fake_watch_begin(f, x, &key, rule);
    } else {
        fake_perform(f, req, (enum fake_verb)verb, &key, sub, &a);
        if (rule)
            send_faulty(f, x, rule, &a);
        else
            fake_answer_send(x, &a);
        fake_tell_all(f);
    }
}

/* ---- control ---- */

struct setting {
    const char *name;
    int64_t *number;
    char *text;
    size_t bytes;
};

/* Reads the keys of a flat object into the settings. */
static bool read_settings(struct str body, const struct setting *rows, size_t count)
{
    struct json_reader r;
    json_reader_init(&r, body);
    if (json_next(&r) != JSON_OBJECT) return false;
    while (json_next(&r) == JSON_KEY) {
        size_t i = 0;
        while (i < count && !json_key_is(&r, rows[i].name))
            i++;
        json_next(&r);
        if (i == count) return false;
        if (rows[i].number ? json_i64(&r, rows[i].number) < 0
                           : kube_text(&r, rows[i].text, rows[i].bytes) < 0)
            return false;
    }
    return r.token == JSON_OBJECT_END;
}

static bool on_script(struct fake *f, struct str body)
{
    struct fake_rule r = { .count = 1 };
    const struct setting rows[] = {
        { "verb", NULL, r.verb, sizeof r.verb },
        { "fault", NULL, r.fault, sizeof r.fault },
        { "resource", NULL, r.resource, sizeof r.resource },
        { "message", NULL, r.message, sizeof r.message },
        { "count", &r.count, NULL, 0 },
        { "code", &r.code, NULL, 0 },
        { "retry_after", &r.retry_after, NULL, 0 },
        { "ms", &r.ms, NULL, 0 },
    };
    if (!read_settings(body, rows, COUNT_OF(rows))) return false;
    for (uint32_t i = 0; i < f->rule_count; i++) /* rules that are used up make room */
        while (i < f->rule_count && f->rules[i].count == 0)
            f->rules[i] = f->rules[--f->rule_count];
    if (r.count == 0) f->rule_count = 0; /* clears the script */
    if (r.count > 0 && f->rule_count < FAKE_RULES_MAX) f->rules[f->rule_count++] = r;
    return true;
}

static bool on_set(struct fake *f, struct str body)
{
    const struct setting rows[] = {
        { "token", NULL, f->token, sizeof f->token },
        { "bookmark_ms", &f->options.bookmark_ms, NULL, 0 },
        { "linger_ms", &f->options.linger_ms, NULL, 0 },
        { "budget", &f->budget, NULL, 0 },
    };
    return read_settings(body, rows, COUNT_OF(rows));
}

static void on_restart(struct fake *f, struct str body)
{
    fake_watches_cut(f);
    if (str_eq(fake_get(body, "empty"), STR("true"))) fake_store_clear(&f->store);
}

static void reply_seen(struct fake *f, struct http_exchange *x)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    struct http_server_counts counts;
    uint64_t open = 0;
    http_server_counts_get(f->api, &counts);
    LIST_EACH (&f->watches, node)
        open++;
    json_writer_init(&w, &out);
    json_object(&w);
    for (int v = 0; v < FAKE_VERB_COUNT; v++)
        json_kv_u64(&w, verb_names[v], f->seen[v]);
    json_kv_u64(&w, "refused", f->refused);
    json_kv_u64(&w, "watches", open);
    json_kv_u64(&w, "accepted", counts.accepted);
    json_kv_u64(&w, "version", f->store.version);
    json_kv_u64(&w, "objects", f->store.object_count);
    json_kv_text(&w, "agent", f->agent);
    json_object_end(&w);
    http_reply(x, 200, FAKE_JSON_TYPE, buf_view(&out));
}

static void on_control(void *ctx, struct http_exchange *x)
{
    struct fake *f = ctx;
    const struct http_request *req = http_exchange_request(x);
    bool ok = true;
    if (str_eq(req->path, STR("/seen"))) {
        reply_seen(f, x);
        return;
    }
    if (str_eq(req->path, STR("/script")))
        ok = on_script(f, req->body);
    else if (str_eq(req->path, STR("/set")))
        ok = on_set(f, req->body);
    else if (str_eq(req->path, STR("/compact")))
        fake_compact(&f->store);
    else if (str_eq(req->path, STR("/restart")))
        on_restart(f, req->body);
    else
        ok = false;
    http_reply(x, ok ? 200 : 400, STR("text/plain"), ok ? STR("ok") : STR("not understood"));
}

/* ---- start ---- */

#define AT(member) .offset = offsetof(struct fake_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "port", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 65535, AT(port),
      .about = "Port on 127.0.0.1 that speaks HTTPS." },
    { .name = "control_port", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 65535,
      AT(control_port), .about = "Port on 127.0.0.1 for the test." },
    { .name = "certificate", .type = CONFIG_TEXT, .required = true, AT(certificate),
      .about = "PEM file of the server's certificate." },
    { .name = "key", .type = CONFIG_TEXT, .required = true, AT(key), .about = "PEM file of its key." },
    { .name = "token", .type = CONFIG_TEXT, AT(token), .about = "The only token that is accepted." },
    { .name = "bookmark_ms", .type = CONFIG_INT, .default_text = "60000", .min = 0, .max = 1e9,
      AT(bookmark_ms), .about = "Milliseconds between bookmarks; 0: none." },
    { .name = "linger_ms", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e9,
      AT(linger_ms), .about = "Milliseconds that a deleted pod stays." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct fake_options, rows);
static const struct opt_command usage = { .name = "fake_kube",
                                          .about = "An API server that fails on command.",
                                          .options = &record };

int main(int argc, char **argv)
{
    struct fake f = { .budget = -1 };
    struct opt_parsed parsed;
    struct err err = { 0 };
    struct tls *tls = NULL;
    struct http_server *control = NULL;
    signal(SIGPIPE, SIG_IGN);
    int rc = opt_parse(&usage, argc - 1, argv + 1, &f.options, &parsed, &err);
    if (rc < 0) return opt_fail(&usage, &err);
    list_init(&f.watches);
    list_init(&f.held);
    fake_store_init(&f.store);
    fake_copy(f.token, sizeof f.token, f.options.token);
    const struct tls_files files = { .certificate = f.options.certificate, .key = f.options.key };
    rc = tls_server_new(&files, &tls, &err);
    if (rc == 0) rc = loop_new(&f.loop, &err);
    const struct http_server_config api_config = { .host = "127.0.0.1",
                                                   .port = (uint16_t)f.options.port,
                                                   .limits = { .unsent_bytes_max = 64 << 20 },
                                                   .tls = tls,
                                                   .on_request = on_request,
                                                   .ctx = &f };
    const struct http_server_config control_config = { .host = "127.0.0.1",
                                                       .port = (uint16_t)f.options.control_port,
                                                       .on_request = on_control,
                                                       .ctx = &f };
    if (rc == 0) rc = http_server_new(f.loop, &api_config, &f.api, &err);
    if (rc == 0) rc = http_server_new(f.loop, &control_config, &control, &err);
    if (rc == 0) rc = loop_run(f.loop);
    if (rc < 0) fprintf(stderr, "fake_kube: %s\n", err_text(&err, rc));
    http_server_free(f.api);
    http_server_free(control);
    fake_store_fini(&f.store);
    opt_parsed_fini(&parsed);
    return rc < 0;
}
