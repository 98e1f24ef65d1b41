/* remote.c - finds and calls the controller, and lists the resources of `muster get`. */

#include "cli/remote.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/http/http_fetch.h"
#include "cli/command.h"
#include "cli/yaml_text.h"

#include <stdio.h>

#define REPLY_BYTES_MAX ((size_t)16 << 20)
#define CALL_US 10000000
#define SECRET_NAME "secret" /* in the state directory, when no other file is named */

const char *const remote_outputs[] = { "table", "json", NULL };
const char *const remote_trees[] = { "table", "json", "yaml", NULL };
const char *const remote_forms[] = { "table", "json", "yaml", "wide", NULL };

int remote_print(int output, struct buf *json, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (output != REMOTE_YAML) {
        buf_byte(json, '\n');
        return command_print(json, err);
    }
    int rc = json->rc < 0 ? json->rc : yaml_of_json(buf_view(json), &text);
    return rc < 0 ? err_set(err, rc, "the reply cannot be written as YAML")
                  : command_print(&text, err);
}

static int split(struct str text, char *ret_host, size_t size, uint16_t *ret_port, struct err *err)
{
    struct str host;
    if (str_host_port(text, &host, ret_port) < 0 || *ret_port == 0)
        return err_set(err, -EINVAL, "--controller '" STR_FMT "': want HOST:PORT", STR_ARG(text));
    if (host.len >= size)
        return err_set(err, -EINVAL, "--controller '" STR_FMT "': the host has 1 to %zu bytes",
                       STR_ARG(text), size - 1);
    memcpy(ret_host, host.data, host.len);
    ret_host[host.len] = 0;
    return 0;
}

static int find_address(const struct remote_place *place, const struct fleet_file *f,
                        struct remote *a, struct err *err)
{
    struct str named = place->controller;
    if (place->ca.len >= sizeof a->tls.ca) return err_set(err, -ENAMETOOLONG, "--ca: too long");
    a->tls = f->tls;
    if (place->ca.len) snprintf(a->tls.ca, sizeof a->tls.ca, STR_FMT, STR_ARG(place->ca));
    a->tls.on = f->controller.tls;
    if (named.len > 0) {
        a->tls.on = tls_url_cut(&named);
        return split(named, a->host, sizeof a->host, &a->port, err);
    }
    if (f->controller.id.pid == 0)
        return split(STR(REMOTE_DEFAULT), a->host, sizeof a->host, &a->port, err);
    snprintf(a->host, sizeof a->host, "%s", f->controller.host);
    a->port = f->controller.port;
    return 0;
}

/* Reads the secret's file. Without a file there is no secret; a file that cannot be read is an error,
 * because the call would otherwise be refused for a reason that is hard to guess. */
static int find_secret(const struct fleet_file *f, struct remote *a, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char path[PATH_MAX];
    int rc = 0;
    if (f->secret[0])
        snprintf(path, sizeof path, "%s", f->secret);
    else
        rc = fleet_file_path(str_from(a->state), SECRET_NAME, path, err);
    if (rc == 0) rc = file_read(path, sizeof a->secret - 1, &text, err);
    if (rc == -ENOENT || rc == -ENOTDIR) return 0;
    if (rc < 0) return rc;
    struct str secret = buf_view(&text);
    while (secret.len > 0 && (unsigned char)secret.data[secret.len - 1] <= ' ')
        secret.len--;
    if (secret.len > 0) memcpy(a->secret, secret.data, secret.len);
    a->secret[secret.len] = 0;
    return 0;
}

static int find_token(struct str text, struct remote *a, struct err *err)
{
    CLEANUP(buf_fini) struct buf file = { 0 };
    if (str_starts(text, STR("@"))) {
        int rc = file_read(text.data + 1, sizeof a->token, &file, err);
        if (rc < 0) return err_prefix(err, rc, "--token");
        struct str rest = buf_view(&file);
        text = str_trim(str_cut(&rest, '\n'));
    }
    if (text.len >= sizeof a->token || !http_header_valid(STR("authorization"), text))
        return err_set(err, -EINVAL, "--token: this is no token");
    if (text.len > 0) memcpy(a->token, text.data, text.len);
    return 0;
}

int remote_find(const struct remote_place *place, struct remote *ret, struct err *err)
{
    struct remote a = { 0 };
    int len = snprintf(a.state, sizeof a.state, STR_FMT, STR_ARG(place->state));
    if (len < 0 || (size_t)len >= sizeof a.state)
        return err_set(err, -ENAMETOOLONG, "--state: longer than %zu bytes", sizeof a.state - 1);
    struct fleet_file f = { 0 };
    int rc = fleet_file_read(place->state, &f, err);
    if (rc < 0 && rc != -ENOENT) return rc;
    rc = find_address(place, &f, &a, err);
    if (rc == 0) rc = find_token(place->token, &a, err);
    if (rc == 0 && !a.token[0]) rc = find_secret(&f, &a, err);
    a.send_secret = place->send_secret;
    if (rc == 0) *ret = a;
    return rc;
}

static bool stands_by(int status, struct str reply)
{
    CLEANUP(buf_fini) struct buf reason = { 0 };
    return status == 503 && json_path_text(reply, "error.reason", &reason) == 0 &&
           str_eq(buf_view(&reason), STR("standby"));
}

static int refused(const struct remote *a, int status, struct str reply, struct err *err)
{
    CLEANUP(buf_fini) struct buf why = { 0 };
    if (json_path_text(reply, "error.message", &why) < 0 || why.len == 0)
        buf_printf(&why, "the controller answered %d", status);
    if (status == 401 || status == 403)
        return err_set(err, -EACCES,
                       "the controller at %s:%u refuses us (" STR_FMT "); it wants the secret of "
                       "its state directory: name that with --state (now %s)",
                       a->host, a->port, STR_ARG(buf_view(&why)), a->state);
    if (stands_by(status, reply)) return err_set(err, -EAGAIN, STR_FMT, STR_ARG(buf_view(&why)));
    int rc = status == 404 ? -ENOENT : status >= 400 && status < 500 ? -EINVAL : -EPROTO;
    return err_set(err, rc, STR_FMT, STR_ARG(buf_view(&why)));
}

/* Asks once. *ret_status: of a whole reply. */
static int ask(const struct remote *a, struct str method, struct str path, struct str body,
               struct buf *reply, int *ret_status, struct err *err)
{
    char id[sizeof a->host + 16] = "cli";
    bool v6 = a->is_router && str_find(str_from(a->host), STR(":")) != SIZE_MAX;
    if (a->is_router)
        snprintf(id, sizeof id, "cli/%s%s%s:%u", v6 ? "[" : "", a->host, v6 ? "]" : "", a->port);
    struct signed_as as = { .id = str_from(id) };
    if (!a->secret[0] || auth_key_of(str_from(a->secret), as.id, &as.key) < 0)
        as = (struct signed_as){ 0 };
    struct http_fetch_request req = { .host = str_from(a->host),
                                      .port = a->port,
                                      .tls = a->tls.on,
                                      .files = fleet_file_files(&a->tls),
                                      .method = method,
                                      .path = path,
                                      .bearer = str_from(a->token),
                                      .body = body,
                                      .json = true,
                                      .as = &as,
                                      .secret = str_from(a->send_secret ? a->secret : ""),
                                      .timeout_us = CALL_US };
    buf_clear(reply);
    reply->max = REPLY_BYTES_MAX;
    int rc = http_fetch(&req, ret_status, reply, err);
    if (rc == -ECONNREFUSED)
        return err_set(err, rc,
                       "no controller answers at %s:%u; start a fleet with `muster up -f "
                       "muster.yaml`, or name one with --controller or --state",
                       a->host, a->port);
    if (rc == -EBADMSG)
        return err_set(
            err, rc,
            "what answers at %s:%u does not know the secret of %s: it is another fleet's "
            "controller, or somebody else's program",
            a->host, a->port, a->state);
    return rc;
}

/* Returns true if the reply is that of a controller that stands by, and names the one that leads. */
static bool names_leader(const struct remote *a, int status, struct str reply, struct remote *ret)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (status != 503 || json_path_text(reply, "leader", &text) < 0 || text.len == 0) return false;
    struct str at = buf_view(&text);
    *ret = *a;
    ret->tls.on = tls_url_cut(&at);
    return split(at, ret->host, sizeof ret->host, &ret->port, NULL) == 0;
}

int remote_request(const struct remote *a, struct str method, struct str path, struct str body,
                   struct buf *reply, struct err *err)
{
    struct remote leader;
    int status = 0, rc = ask(a, method, path, body, reply, &status, err);
    if (rc == 0 && names_leader(a, status, buf_view(reply), &leader)) {
        a = &leader;
        rc = ask(a, method, path, body, reply, &status, err);
    }
    if (rc < 0) return rc;
    return status >= 200 && status < 300 ? 0 : refused(a, status, buf_view(reply), err);
}

int remote_call(const struct remote *a, struct str path, struct str body, struct buf *reply,
                struct err *err)
{
    return remote_request(a, (struct str){ 0 }, path, body, reply, err);
}

int remote_get(const struct remote *a, const char *path, struct buf *reply, struct err *err)
{
    return remote_call(a, str_from(path), (struct str){ 0 }, reply, err);
}

void remote_segment(struct buf *path, struct str name)
{
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_' || c == '.';
        if (plain)
            buf_byte(path, (char)c);
        else
            buf_printf(path, "%%%02X", c);
    }
}

// clang-format off
static const struct table_column service_columns[] = {
    { "SERVICE", "service", TABLE_TEXT },        { "READY", "ready", TABLE_COUNT },
    { "STARTING", "starting", TABLE_COUNT },     { "DRAINING", "draining", TABLE_COUNT },
    { "MIN", "min", TABLE_COUNT },               { "MAX", "max", TABLE_COUNT },
    { "REQ/S", "demand.arrivals_per_s", TABLE_DECIMAL },
    { "IN FLIGHT", "demand.in_flight", TABLE_COUNT },
    { "HELD", "demand.held", TABLE_COUNT },      { "$/H", "cost_per_h", TABLE_MONEY },
    { "PAUSED", "paused", TABLE_YES },           { "POLICY", "policy", TABLE_TEXT },
    { "REASON", "reason", TABLE_TEXT },
};

static const struct table_column service_wide[] = {
    { "SLO TTFT", "slo_ttft_s", TABLE_AGE },     { "SLO TPOT", "slo_tpot_s", TABLE_FACTOR },
    { "BUDGET $/H", "budget_per_h", TABLE_MONEY },
    { "TODAY $", "cost_today", TABLE_MONEY },    { "BUDGET $/DAY", "budget_per_day", TABLE_MONEY },
    { "MONTH $", "cost_this_month", TABLE_MONEY },
    { "BUDGET $/MONTH", "budget_per_month", TABLE_MONEY },
    { "MONTH $/MTOK", "cost_per_mtoken_this_month", TABLE_MONEY },
    { "SHAPER", "shaper", TABLE_TEXT },          { "MIX", "mix", TABLE_TEXT },
    { "PLACE", "place", TABLE_TEXT },            { "ROUTERS FRESH", "routers_fresh", TABLE_YES },
    { "LACKS", "policy_lacks", TABLE_TEXT },     { "HELD BACK", "blocked", TABLE_TEXT },
};

static const struct table_column pool_columns[] = {
    { "SERVICE", "service", TABLE_TEXT },    { "POOL", "pool", TABLE_TEXT },
    { "ROLE", "role", TABLE_TEXT },
    { "READY", "ready", TABLE_COUNT },       { "STARTING", "starting", TABLE_COUNT },
    { "DRAINING", "draining", TABLE_COUNT }, { "TARGET", "target", TABLE_COUNT },
    { "MIN", "min", TABLE_COUNT },           { "MAX", "max", TABLE_COUNT },
    { "BY HAND", "manual", TABLE_COUNT },    { "DRAINED", "drained", TABLE_YES },
    { "PROVIDER", "provider", TABLE_TEXT },
    { "OFFERS", "offers", TABLE_LIST },
};

static const struct table_column pool_wide[] = {
    { "ENDING", "ending", TABLE_COUNT },     { "PRIORITY", "priority", TABLE_TEXT },
};

static const struct table_column instance_columns[] = {
    { "INSTANCE", "instance", TABLE_TEXT },   { "SERVICE", "service", TABLE_TEXT },
    { "POOL", "pool", TABLE_TEXT },           { "ROLE", "role", TABLE_TEXT },
    { "PHASE", "phase", TABLE_STATE },
    { "WEIGHTS %", "weights.percent", TABLE_RARE },
    { "AGENT", "agent", TABLE_STATE },        { "ENGINE", "engine.health", TABLE_STATE },
    { "PORT", "engine.port", TABLE_COUNT },   { "AGE", "age_s", TABLE_AGE },
    { "RUNNING", "engine.running", TABLE_COUNT },
    { "WAITING", "engine.waiting", TABLE_COUNT },
    { "RESTARTS", "restarts", TABLE_COUNT },
    { "CLOCK", "clock", TABLE_RARE },
    { "$/H", "price_per_h", TABLE_MONEY },
    { "COST", "cost", TABLE_MONEY },          { "WHY", "why", TABLE_TEXT },
    { "TROUBLE", "trouble", TABLE_TEXT },
};

static const struct table_column instance_wide[] = {
    { "PROVIDER", "provider", TABLE_TEXT },   { "OFFER", "offer", TABLE_TEXT },
    { "NODE", "node", TABLE_TEXT },           { "HARDWARE", "machine.hardware", TABLE_TEXT },
    { "MACHINE", "machine.health", TABLE_STATE }, { "VERSION", "version", TABLE_TEXT },
    { "INTENT", "intent", TABLE_STATE },      { "HOST", "engine.host", TABLE_TEXT },
    { "KIND", "engine.kind", TABLE_TEXT },    { "MODEL", "engine.model", TABLE_TEXT },
    { "ROUTED", "routed", TABLE_COUNT },      { "PAGES FREE", "engine.pages_free", TABLE_COUNT },
    { "CACHED", "engine.pages_cached", TABLE_COUNT },
    { "HEARD", "report_age_s", TABLE_AGE },   { "DIGEST", "engine.digest", TABLE_TEXT },
    { "TO SCHEDULE", "lead.schedule", TABLE_AGE }, { "TO NODE", "lead.node", TABLE_AGE },
    { "TO BOOT", "lead.boot", TABLE_AGE },    { "TO PULL", "lead.pull", TABLE_AGE },
    { "TO LOAD", "lead.load", TABLE_AGE },    { "TO WARM", "lead.warm", TABLE_AGE },
};

static const struct table_column intent_columns[] = {
    { "INTENT", "id", TABLE_TEXT },           { "STATE", "state", TABLE_STATE },
    { "SERVICE", "service", TABLE_TEXT },     { "POOL", "pool", TABLE_TEXT },
    { "PROVIDER", "provider", TABLE_TEXT },   { "OFFER", "offer", TABLE_TEXT },
    { "HANDLE", "handle", TABLE_TEXT },       { "CALLS", "create_calls", TABLE_COUNT },
    { "WANTED", "wanted_us", TABLE_SINCE },   { "CREATED", "created_us", TABLE_SINCE },
    { "ENDED", "ended_us", TABLE_SINCE },     { "WHY", "why", TABLE_TEXT },
};

static const struct table_column intent_wide[] = {
    { "ADOPTED", "adopted", TABLE_YES },      { "REGISTERED", "registered_us", TABLE_SINCE },
    { "DRAINED", "drain_us", TABLE_SINCE },
};

static const struct table_column offer_columns[] = {
    { "OFFER", "offer", TABLE_TEXT },          { "PROVIDER", "provider", TABLE_TEXT },
    { "$/H", "price_per_h", TABLE_MONEY },     { "SHARE", "share", TABLE_DECIMAL },
    { "LEAD", "lead_s", TABLE_AGE },           { "AVAILABLE", "available", TABLE_YES },
    { "SOLD OUT", "sold_out", TABLE_DECIMAL },
    { "AGAIN IN", "again_in_s", TABLE_AGE },   { "LAST ERROR", "last_error", TABLE_TEXT },
    { "ERROR", "error", TABLE_TEXT },
};

static const struct table_column offer_wide[] = {
    { "SPOT", "spot", TABLE_YES },             { "RESERVED", "reserved", TABLE_COUNT },
    { "STOPPED", "stopped", TABLE_COUNT },     { "RESTART", "restart_s", TABLE_AGE },
    { "START $", "start_cost", TABLE_MONEY },  { "HARDWARE", "hardware", TABLE_TEXT },
    { "NODES", "nodes", TABLE_COUNT },         { "ROOM", "room", TABLE_COUNT },
    { "SCHEDULE", "lead.schedule", TABLE_AGE }, { "NODE", "lead.node", TABLE_AGE },
    { "BOOT", "lead.boot", TABLE_AGE },        { "PULL", "lead.pull", TABLE_AGE },
    { "LOAD", "lead.load", TABLE_AGE },        { "WARM", "lead.warm", TABLE_AGE },
    { "DEFAULT PRICE", "price_default", TABLE_YES },
};

static const struct table_column decision_columns[] = {
    { "ID", "id", TABLE_COUNT },               { "AGE", "decision.at_us", TABLE_SINCE },
    { "SERVICE", "decision.service", TABLE_TEXT },
    { "$/H", "decision.cost_per_h", TABLE_MONEY },
    { "$/H AFTER", "decision.cost_per_h_after", TABLE_MONEY },
    { "REASON", "decision.reason", TABLE_TEXT }, { "HELD BACK", "decision.blocked", TABLE_TEXT },
};

static const struct table_column decision_wide[] = {
    { "KIND", "decision.kind", TABLE_TEXT },    { "POLICY", "decision.policy", TABLE_TEXT },
    { "REPORTS", "decision.inputs.reports_fresh", TABLE_COUNT },
    { "OF", "decision.inputs.reports_expected", TABLE_COUNT },
};

static const struct table_column event_columns[] = {
    { "AGE", "at_us", TABLE_SINCE },           { "WHAT", "what", TABLE_TEXT },
    { "BY", "by", TABLE_TEXT },                { "SERVICE", "service", TABLE_TEXT },
    { "POOL", "pool", TABLE_TEXT },            { "INSTANCE", "instance", TABLE_TEXT },
    { "TEXT", "text", TABLE_TEXT },
};

static const struct table_column event_wide[] = {
    { "OFFER", "offer", TABLE_TEXT },          { "ORDER", "order", TABLE_YES },
};

static const struct table_column config_columns[] = {
    { "GENERATION", "generation", TABLE_COUNT }, { "SOURCE", "source", TABLE_TEXT },
    { "NAME", "name", TABLE_TEXT },              { "BY", "by", TABLE_TEXT },
    { "AGE", "at_us", TABLE_SINCE },             { "FILE DIFFERS", "file_differs", TABLE_YES },
    { "REFUSED SINCE", "refused.why", TABLE_TEXT },
};

static const struct table_column config_wide[] = {
    { "FILE", "file", TABLE_TEXT },              { "REFUSED BY", "refused.by", TABLE_TEXT },
    { "REFUSED", "refused.at_us", TABLE_SINCE },
};

static const struct table_column tenant_columns[] = {
    { "TENANT", "tenant", TABLE_TEXT },
    { "REQ/MIN", "requests_per_min", TABLE_COUNT },
    { "TOKENS/MIN", "tokens_per_min", TABLE_COUNT },
    { "CONCURRENT", "concurrency", TABLE_COUNT },
    { "WEIGHT", "weight", TABLE_FACTOR },
    { "REQUESTS", "requests_total", TABLE_COUNT },
    { "REJECTED", "rejected_total", TABLE_COUNT },
    { "PROMPT", "prompt_tokens_total", TABLE_COUNT },
    { "CACHED", "cached_tokens_total", TABLE_COUNT },
    { "GENERATED", "generated_tokens_total", TABLE_COUNT },
    { "AGE", "created_us", TABLE_SINCE },
};

static const struct table_column tenant_wide[] = {
    { "MTOK/MONTH", "mtokens_this_month", TABLE_DECIMAL },
    { "TODAY $", "cost_today", TABLE_MONEY },  { "MONTH $", "cost_this_month", TABLE_MONEY },
};

static const struct table_column cost_columns[] = {
    { "SERVICE", "service", TABLE_TEXT },      { "POOL", "pool", TABLE_TEXT },
    { "$/H", "per_h", TABLE_MONEY },           { "TODAY $", "today", TABLE_MONEY },
    { "MONTH $", "this_month", TABLE_MONEY },  { "TOTAL $", "total", TABLE_MONEY },
    { "MONTH $/MTOK", "per_mtoken_this_month", TABLE_MONEY },
};

static const struct table_column cost_wide[] = {
    { "MTOK TODAY", "mtokens_today", TABLE_DECIMAL },
    { "MTOK/MONTH", "mtokens_this_month", TABLE_DECIMAL },
    { "MTOK TOTAL", "mtokens_total", TABLE_DECIMAL },
    { "TODAY $/MTOK", "per_mtoken_today", TABLE_MONEY },
    { "TOTAL $/MTOK", "per_mtoken", TABLE_MONEY },
};

static const struct table_column token_columns[] = {
    { "TOKEN", "token", TABLE_TEXT }, { "ROLE", "role", TABLE_TEXT },
    { "AGE", "created_us", TABLE_SINCE },
};

#define COLUMNS(list) .column = list, .column_count = COUNT_OF(list)
#define WIDE(list) .wide = list, .wide_count = COUNT_OF(list)

const struct resource kind_table[] = {
    { "services", "/api/v1/services", "services", "service",
      "The configuration names no service.", COLUMNS(service_columns), WIDE(service_wide) },
    { "pools", "/api/v1/pools", "pools", "pool",
      "The configuration names no pool.", COLUMNS(pool_columns), WIDE(pool_wide) },
    { "instances", "/api/v1/instances", "instances", "instance",
      "No instance is there; one starts when a request comes or a minimum asks for it.",
      COLUMNS(instance_columns), WIDE(instance_wide) },
    { "intents", "/api/v1/intents", "intents", "id",
      "No intent is recorded: nothing was launched yet.", COLUMNS(intent_columns), WIDE(intent_wide) },
    { "offers", "/api/v1/offers", "offers", "offer",
      "No provider offers anything.", COLUMNS(offer_columns), WIDE(offer_wide) },
    { "decisions", "/api/v1/decisions", "decisions", "id",
      "Nothing was decided yet.", COLUMNS(decision_columns), WIDE(decision_wide) },
    { "config", "/api/v1/config", "config", "source",
      "The controller tells no configuration.", COLUMNS(config_columns), WIDE(config_wide) },
    { "events", "/api/v1/events", "events", NULL,
      "Nothing has happened yet.", COLUMNS(event_columns), WIDE(event_wide) },
    { "tenants", "/api/v1/tenants", "tenants", "tenant",
      "There is no tenant. `muster keys create NAME` makes one; `muster keys open` serves requests "
      "without a key once there was one.",
      COLUMNS(tenant_columns), WIDE(tenant_wide) },
    { "cost", "/api/v1/cost", "cost.bill", "service",
      "The configuration names no service.", COLUMNS(cost_columns), WIDE(cost_wide) },
    { "tokens", "/api/v1/tokens", "tokens", "token",
      "There is no token. `muster tokens create NAME --role admin` makes one.",
      COLUMNS(token_columns) },
};

// clang-format on
const uint32_t kind_count = COUNT_OF(kind_table);

const struct resource *resource_find(struct str name)
{
    for (uint32_t i = 0; i < kind_count; i++) {
        struct str full = str_from(kind_table[i].name);
        if (str_eq(full, name) || str_eq(str_of(full.data, full.len - 1), name))
            return &kind_table[i];
    }
    return NULL;
}

void resource_columns(const struct resource *k, bool wide, struct resource_columns *ret)
{
    uint32_t more = wide ? k->wide_count : 0;
    must(k->column_count + more <= TABLE_COLUMNS_MAX);
    memcpy(ret->column, k->column, k->column_count * sizeof *k->column);
    if (more) memcpy(ret->column + k->column_count, k->wide, more * sizeof *k->wide);
    ret->count = k->column_count + more;
}
