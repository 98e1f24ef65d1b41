/* api_call.c - says who may make a call, and ends it with its reply.
 *
 * A guard names who is admitted: a person by the fleet's secret or a token, a part of the fleet by its signature, a
 * scraper by its key. A controller that stands by refuses a call that its guard admits, and names the leader.
 */
#include "controller/api_call.h"

#include "base/core/bits.h"
#include "base/io/http/http_browser.h"
#include "base/io/loop/clock.h"
#include "controller/metrics.h"

#include <stdio.h>

bool api_leads(const struct api *a)
{
    return a->control && (!a->config.leads || a->config.leads(a->config.arg));
}

struct str api_leader(const struct api *a)
{
    return a->config.leader ? a->config.leader(a->config.arg) : (struct str){ 0 };
}

/* ---- replies ---- */

void call_answer(struct call *k, int status, const struct buf *body)
{
    if (body->rc < 0) {
        http_reply(k->x, 500, STR("application/json"),
                   STR("{\"error\":{\"code\":500,\"message\":\"the answer does not fit\"}}"));
        return;
    }
    http_reply_header(k->x, "cache-control", STR("no-store"));
    http_reply(k->x, status, STR("application/json"), buf_view(body));
}

static void count_refusal(struct call *k, const char *reason)
{
    struct str label = str_from(reason);
    if (k->api->metrics) metric_inc(metric_series(k->api->metrics, CONTROL_M_REFUSED, &label));
}

static void put_error(struct json_writer *w, int status, const char *reason, const char *message)
{
    json_key(w, "error");
    json_object(w);
    json_kv_i64(w, "code", status);
    json_kv_text(w, "reason", reason);
    json_kv_text(w, "message", message);
    json_object_end(w);
}

void call_refuse(struct call *k, int status, const char *reason, const char *message)
{
    struct api *a = k->api;
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct json_writer w;
    uint64_t skipped;
    count_refusal(k, reason);
    if (log_pass(&a->refused_limit, loop_now_us(a->loop), 1000000, &skipped))
        log_event(LOG_WARN, "refused", "path=%.*s peer=%.*s status=%d reason=%s skipped=%llu",
                  STR_ARG(k->req->path), STR_ARG(k->req->peer), status, message,
                  (unsigned long long)skipped);
    json_writer_init(&w, &body);
    json_object(&w);
    put_error(&w, status, reason, message);
    json_object_end(&w);
    call_answer(k, status, &body);
}

void call_refuse_standby(struct call *k)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    char message[256];
    struct json_writer w;
    struct str leader = api_leader(k->api);
    if (!k->api->config.leads) {
        call_refuse(k, 503, "starting", "the controller is starting");
        return;
    }
    if (leader.len > 0)
        snprintf(message, sizeof message, "this controller stands by; " STR_FMT " leads",
                 STR_ARG(leader));
    else
        snprintf(message, sizeof message,
                 "this controller stands by, and knows of none that leads");
    count_refusal(k, "standby");
    http_reply_header(k->x, "retry-after", STR("1"));
    json_writer_init(&w, &body);
    json_object(&w);
    put_error(&w, 503, "standby", message);
    json_kv_str(&w, "leader", leader);
    if (leader.len == 0) json_kv_u64(&w, "lease_ms", k->api->config.lease_ms);
    json_object_end(&w);
    call_answer(k, 503, &body);
}

void call_refuse_rc(struct call *k, int rc, const struct err *err)
{
    static const struct {
        int rc, status;
        const char *reason;
    } rows[] = {
        { -ENOENT, 404, "not_found" },
        { -EEXIST, 409, "exists" },
        { -EINVAL, 400, "invalid" },
        { -ERANGE, 400, "range" },
        { -ENOSPC, 503, "full" },
        { -ESTALE, 409, "stale" },
        { -E2BIG, 400, "large" },
        /* of the store; nothing was changed, but for -EREMOTEIO, which leaves it open */
        { -EKEYREVOKED, 503, "standby" },
        { -EREMOTEIO, 503, "unsure" },
        { -ETIMEDOUT, 503, "store_away" },
        { -ENETDOWN, 503, "store_away" },
        { -ECONNREFUSED, 503, "store_away" },
        { -ECONNRESET, 503, "store_away" },
        { -EHOSTUNREACH, 503, "store_away" },
        { -EBUSY, 503, "store_away" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].rc == rc) {
            call_refuse(k, rows[i].status, rows[i].reason, err_text(err, rc));
            return;
        }
    call_refuse(k, 500, "failed", err_text(err, rc));
}

void call_done(struct call *k)
{
    buf_text(&k->api->out, "{\"ok\":true}");
    call_answer(k, 200, &k->api->out);
}

void call_tell_urgent(struct api *a)
{
    if (control_is_urgent(a->control)) a->config.on_urgent(a->config.arg);
}

/* ---- access ---- */

/* Returns true if the guard admits a part of the fleet with this id. An agent may only report. */
static bool part_may(enum call_guard guard, struct str id)
{
    if (guard == GUARD_AGENT) return str_starts(id, STR("agent/"));
    if (guard == GUARD_ROUTER) return str_eq(id, STR("router"));
    return str_eq(id, STR("cli"));
}

static const char *find_token(const struct api *a, struct str text, enum token_role *ret)
{
    return a->control ? control_token_find(a->control, text, ret)
                      : tokens_find(&a->tokens, text, ret);
}

const char *call_by(const struct call *k, char ret_by[BY_BYTES])
{
    const struct auth_note *note = http_exchange_note(k->x);
    enum token_role role = TOKEN_READ;
    const char *token = find_token(k->api, auth_bearer(k->req), &role);
    if (note->who == AUTH_PERSON) {
        snprintf(ret_by, BY_BYTES, "the fleet's secret");
        return token_role_names[TOKEN_ADMIN];
    }
    if (note->who == AUTH_PART && part_may(GUARD_WRITE, auth_gate_id(k->req))) {
        snprintf(ret_by, BY_BYTES, "a command");
        return token_role_names[TOKEN_ADMIN];
    }
    snprintf(ret_by, BY_BYTES, token ? "token %s" : "nobody", token);
    if (token) return token_role_names[role];
    return k->api->config.require_secret ? "none" : token_role_names[TOKEN_READ];
}

static bool may(const struct call *k, enum call_guard guard)
{
    const struct auth_note *note = http_exchange_note(k->x);
    enum token_role role;
    if (note->who == AUTH_PERSON) return true;
    if (guard == GUARD_SCRAPE && key_file_has(k->api->config.scrapers, auth_bearer(k->req)))
        return true;
    if (note->who == AUTH_NOBODY && guard <= GUARD_WRITE &&
        find_token(k->api, auth_bearer(k->req), &role))
        return role == TOKEN_ADMIN || guard <= GUARD_READ;
    return note->who == AUTH_PART && part_may(guard, auth_gate_id(k->req));
}

static enum browser_fault page_fault(const struct call *k, enum call_guard guard)
{
    const struct api *a = k->api;
    const struct http_names names = { .own = str_from(a->config.host),
                                      .port = http_server_port(a->server),
                                      .hosts = a->config.hosts,
                                      .host_count = a->config.host_count };
    if (guard < GUARD_AGENT) return browser_check_site(&names, k->req);
    return http_request_header(k->req, "origin").data ? BROWSER_ORIGIN : BROWSER_OK;
}

static bool refuse_401(struct call *k, const char *reason, const char *sentence)
{
    http_reply_header(k->x, "www-authenticate", STR("Bearer"));
    call_refuse(k, 401, reason, sentence);
    return false;
}

bool call_pass(struct call *k, enum call_guard guard, bool always)
{
    const struct api *a = k->api;
    const struct auth_note *note = http_exchange_note(k->x);
    enum browser_fault fault = page_fault(k, guard);
    if (fault != BROWSER_OK) {
        const struct browser_fault_info *why = browser_fault_info(fault);
        call_refuse(k, why->status, why->name, why->sentence);
        return false;
    }
    if (note->who == AUTH_ASKED_AGAIN)
        return refuse_401(k, "signature", "sign for the epoch and the time of this reply");
    if (guard == GUARD_NONE) return true;
    bool asks = guard >= GUARD_WRITE || a->config.require_secret;
    if (asks && guard != GUARD_JOIN && !may(k, guard))
        return refuse_401(
            k, "secret",
            "send the fleet's secret, or a token that may do this: authorization: Bearer TOKEN");
    if (always ? a->metrics != NULL : api_leads(a)) return true;
    call_refuse_standby(k);
    return false;
}

bool call_is_agent_of(struct call *k, struct str instance)
{
    const struct auth_note *note = http_exchange_note(k->x);
    struct str id = auth_gate_id(k->req), skip = STR("agent/");
    if (note->who != AUTH_PART) return true; /* a person, or an agent of an older release */
    if (str_eq(str_of(id.data + skip.len, id.len - skip.len), instance)) return true;
    call_refuse(k, 403, "instance", "an agent speaks for its own instance");
    return false;
}
