/* cmd_describe.c - `muster describe`: show all that is known of one service, pool, instance, offer, router or
 * request on one page, with what happened to it of late.
 *
 * A kind is a row of `kinds`: where its objects stand in the controller's status, the lines of its page, and
 * the tables of what belongs to it. A request is asked of the routers, which keep the last ones that ended. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "cli/table.h"

#include <stdio.h>
#include <string.h>

#define DECISIONS_READ 500 /* of one reply of the API */
#define TITLE_WIDTH 18

struct describe_options {
    struct remote_place place;
    struct str kind, name;
    int64_t last;
    int output;
};

#define AT(member) .offset = offsetof(struct describe_options, member)
// clang-format off
static const struct config_field rows[] = {
    REMOTE_ROWS(struct describe_options, place),
    { .name = "last", .letter = 'n', .type = CONFIG_INT, .default_text = "10", .min = 0, .max = 200,
      AT(last), .about = "How many of its last events and decisions to show." },
    REMOTE_TREES_ROW(struct describe_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "KIND", .required = true, AT(kind),
      .about = "service, pool, instance, offer, router or request." },
    { .name = "NAME", .required = true, AT(name),
      .about = "Its name; a pool is POOL or SERVICE/POOL, a request its x-request-id." },
};

/* ---- the pages ---- */

struct line {
    const char *title, *path;
    enum table_form form;
};

static const struct line service_lines[] = {
    { "policy", "policy", TABLE_TEXT },              { "shaper", "shaper", TABLE_TEXT },
    { "mix", "mix", TABLE_TEXT },                    { "place", "place", TABLE_TEXT },
    { "role policy", "role", TABLE_TEXT },           { "power policy", "power", TABLE_TEXT },
    { "SLO TTFT", "slo_ttft_s", TABLE_AGE },         { "SLO TPOT (s)", "slo_tpot_s", TABLE_FACTOR },
    { "budget $/h", "budget_per_h", TABLE_MONEY },   { "cost $/h", "cost_per_h", TABLE_MONEY },
    { "min, over pools", "min", TABLE_COUNT },       { "max, over pools", "max", TABLE_COUNT },
    { "paused", "paused", TABLE_YES },               { "ready", "ready", TABLE_COUNT },
    { "starting", "starting", TABLE_COUNT },         { "draining", "draining", TABLE_COUNT },
    { "requests/s", "demand.arrivals_per_s", TABLE_DECIMAL },
    { "in flight", "demand.in_flight", TABLE_COUNT }, { "held", "demand.held", TABLE_COUNT },
    { "routers fresh", "routers_fresh", TABLE_YES }, { "policy lacks", "policy_lacks", TABLE_TEXT },
    { "reason", "reason", TABLE_TEXT },              { "held back", "blocked", TABLE_TEXT },
};
static const struct line pool_lines[] = {
    { "service", "service", TABLE_TEXT },            { "provider", "provider", TABLE_TEXT },
    { "offers", "offers", TABLE_LIST },              { "role", "role", TABLE_TEXT },
    { "priority", "priority", TABLE_TEXT },          { "min", "min", TABLE_COUNT },
    { "max", "max", TABLE_COUNT },                   { "set by hand", "manual", TABLE_COUNT },
    { "drained", "drained", TABLE_YES },             { "target", "target", TABLE_COUNT },
    { "ready", "ready", TABLE_COUNT },               { "starting", "starting", TABLE_COUNT },
    { "draining", "draining", TABLE_COUNT },         { "ending", "ending", TABLE_COUNT },
};
static const struct line instance_lines[] = {
    { "service", "service", TABLE_TEXT },            { "pool", "pool", TABLE_TEXT },
    { "role", "role", TABLE_TEXT },                  { "phase", "phase", TABLE_TEXT },
    { "intent", "intent", TABLE_TEXT },              { "why", "why", TABLE_TEXT },
    { "trouble", "trouble", TABLE_TEXT },            { "drained by hand", "let_go", TABLE_YES },
    { "provider", "provider", TABLE_TEXT },          { "offer", "offer", TABLE_TEXT },
    { "node", "node", TABLE_TEXT },                  { "age", "age_s", TABLE_AGE },
    { "price $/h", "price_per_h", TABLE_MONEY },     { "cost", "cost", TABLE_MONEY },
    { "agent", "agent", TABLE_TEXT },                { "version", "version", TABLE_TEXT },
    { "heard", "report_age_s", TABLE_AGE },          { "clock ahead (s)", "clock_ahead_s", TABLE_FACTOR },
    { "weights of", "weights.total", TABLE_COUNT },  { "there", "weights.bytes", TABLE_COUNT },
    { "of other agents", "weights.seed_bytes", TABLE_COUNT },
    { "bytes a second", "weights.rate", TABLE_COUNT },
    { "weights (s)", "weights.fetch_s", TABLE_FACTOR },
    { "load (s)", "weights.load_s", TABLE_FACTOR },
    { "hardware", "machine.hardware", TABLE_TEXT },  { "machine", "machine.health", TABLE_TEXT },
    { "machine trouble", "machine.why", TABLE_TEXT },
    { "restarts", "restarts", TABLE_COUNT },         { "engine", "engine.health", TABLE_TEXT },
    { "engine kind", "engine.kind", TABLE_TEXT },    { "host", "engine.host", TABLE_TEXT },
    { "port", "engine.port", TABLE_COUNT },          { "model", "engine.model", TABLE_TEXT },
    { "digest", "engine.digest", TABLE_TEXT },       { "numerics", "engine.numerics", TABLE_TEXT },
    { "running", "engine.running", TABLE_COUNT },    { "of", "engine.running_max", TABLE_COUNT },
    { "waiting", "engine.waiting", TABLE_COUNT },    { "routed", "routed", TABLE_COUNT },
    { "pages", "engine.pages_total", TABLE_COUNT },  { "pages free", "engine.pages_free", TABLE_COUNT },
    { "pages cached", "engine.pages_cached", TABLE_COUNT },
    { "requests", "engine.requests_total", TABLE_COUNT },
    { "step (s)", "perf.step_s", TABLE_FACTOR },
    { "prompt token (s)", "perf.prefill_token_s", TABLE_FACTOR },
    { "clock", "clock", TABLE_DECIMAL },             { "watts", "watts", TABLE_DECIMAL },
    /* of its launch */
    { "to schedule", "lead.schedule", TABLE_AGE },   { "to a new node", "lead.node", TABLE_AGE },
    { "to boot", "lead.boot", TABLE_AGE },           { "to pull", "lead.pull", TABLE_AGE },
    { "to load", "lead.load", TABLE_AGE },           { "to warm", "lead.warm", TABLE_AGE },
    /* of one that has ended: its intent */
    { "state", "state", TABLE_TEXT },                { "wanted ago", "wanted_us", TABLE_SINCE },
    { "ended ago", "ended_us", TABLE_SINCE },        { "handle", "handle", TABLE_TEXT },
};
static const struct line offer_lines[] = {
    { "provider", "provider", TABLE_TEXT },          { "price $/h", "price_per_h", TABLE_MONEY },
    { "share", "share", TABLE_DECIMAL },             { "lead", "lead_s", TABLE_AGE },
    { "to schedule", "lead.schedule", TABLE_AGE },   { "to a new node", "lead.node", TABLE_AGE },
    { "to boot", "lead.boot", TABLE_AGE },           { "to pull", "lead.pull", TABLE_AGE },
    { "to load", "lead.load", TABLE_AGE },           { "to warm", "lead.warm", TABLE_AGE },
    { "hardware", "hardware", TABLE_TEXT },
    { "spot", "spot", TABLE_YES },                   { "price is a default", "price_default", TABLE_YES },
    { "nodes", "nodes", TABLE_COUNT },               { "room", "room", TABLE_COUNT },
    { "available", "available", TABLE_YES },         { "last error", "last_error", TABLE_TEXT },
    { "error", "error", TABLE_TEXT },                { "asked again in", "again_in_s", TABLE_AGE },
};
static const struct line router_lines[] = {
    { "host", "host", TABLE_TEXT },                  { "port", "port", TABLE_COUNT },
    { "heard", "sync_age_s", TABLE_AGE },            { "version", "version", TABLE_TEXT },
    { "clock ahead (s)", "clock_ahead_s", TABLE_FACTOR },
};
static const struct line request_lines[] = {
    { "router", "router", TABLE_TEXT },              { "service", "service", TABLE_TEXT },
    { "tenant", "tenant", TABLE_TEXT },              { "ended", "ended", TABLE_TEXT },
    { "ended ago", "ended_us", TABLE_SINCE },        { "instance", "instance", TABLE_TEXT },
    { "attempts", "attempts", TABLE_COUNT },         { "held", "held", TABLE_YES },
    { "TTFT (s)", "ttft_s", TABLE_FACTOR },          { "TTFT estimated", "ttft_estimate_s", TABLE_FACTOR },
    { "TPOT (s)", "tpot_s", TABLE_FACTOR },          { "e2e (s)", "e2e_s", TABLE_FACTOR },
    { "prompt tokens", "prompt_tokens", TABLE_COUNT }, { "cached", "cached_tokens", TABLE_COUNT },
    { "cached, believed", "cached_believed", TABLE_COUNT },
    { "output tokens", "generated_tokens", TABLE_COUNT },
    { "predicted P50", "predicted_p50", TABLE_COUNT }, { "predicted P90", "predicted_p90", TABLE_COUNT },
    { "routing decision", "decision", TABLE_COUNT },
};

static const struct table_column route_columns[] = {
    { "SERVICE", "service", TABLE_TEXT },
    { "ROUTER", "router", TABLE_TEXT },           { "REQUESTS", "arrivals_total", TABLE_COUNT },
    { "FAILED", "failed_total", TABLE_COUNT },    { "REJECTED", "rejected_total", TABLE_COUNT },
    { "TTFT P50", "ttft_s.p50", TABLE_DECIMAL },  { "P99 (S)", "ttft_s.p99", TABLE_DECIMAL },
    { "SLO MET", "slo_met_total", TABLE_COUNT },  { "MISSED", "slo_missed_total", TABLE_COUNT },
};

#define LINES(list) .line = list, .line_count = COUNT_OF(list)
static const struct kind {
    const char *name, *list, *id; /* of the status; the member that NAME is compared with */
    const struct line *line;
    uint32_t line_count;
    bool pools, instances, routes; /* tables of what belongs to it */
    const char *action; /* member of a decision's action that names it; NULL: the decision's service */
    bool decides;       /* decisions are about it */
} kinds[] = {
    { "service",  "services",  "service",  LINES(service_lines), .pools = true, .instances = true,
      .routes = true, .decides = true },
    { "pool",     "pools",     "pool",     LINES(pool_lines), .instances = true, .action = "pool",
      .decides = true },
    { "instance", "instances", "instance", LINES(instance_lines), .action = "instance", .decides = true },
    { "offer",    "offers",    "offer",    LINES(offer_lines), .instances = true, .action = "offer",
      .decides = true },
    { "router",   "routers",   "router",   LINES(router_lines), .routes = true },
    { "request",  NULL,        "request",  LINES(request_lines) },
};
// clang-format on

static const struct config_record record = CONFIG_RECORD_OF(struct describe_options, rows);
static const struct opt_command usage = {
    .name = "muster describe",
    .about = "Show all that is known of one thing, with its last events and decisions.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes = "`muster explain N` tells a decision in words. Routers keep the last 2048 requests "
             "that ended.",
};

/* Holds the lists that a page is made of; each is JSON. */
struct page {
    const struct describe_options *o;
    const struct kind *kind;
    const struct remote *api;
    struct str service, name; /* of a pool: its service; the name alone */
    struct buf service_name;  /* behind `service`, where the command line does not have it */
    struct buf status, object, pools, instances, routes, events, decisions;
    int64_t now_us;
};

static void page_fini(struct page *p)
{
    struct buf *const all[] = { &p->service_name, &p->status, &p->object, &p->pools,
                                &p->instances,    &p->routes, &p->events, &p->decisions };
    for (size_t i = 0; i < COUNT_OF(all); i++)
        buf_fini(all[i]);
}

/* ---- picking items out of lists ---- */

/* Members that an item must have; an empty `want` asks nothing. */
struct pick {
    const char *path[2];
    struct str want[2];
    struct buf *out;
    uint32_t count;
};

static bool has_text(struct str item, const char *path, struct str want)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    return want.len == 0 ||
           (json_path_text(item, path, &text) == 0 && str_eq(buf_view(&text), want));
}

static int pick_item(void *ctx, struct str item)
{
    struct pick *p = ctx;
    for (size_t i = 0; i < 2; i++)
        if (p->path[i] && !has_text(item, p->path[i], p->want[i])) return 0;
    if (p->count++ > 0) buf_byte(p->out, ',');
    return buf_str(p->out, item);
}

/* Writes the list of the items of `json` at `list` that fit. */
static int pick_list(struct str json, const char *list, struct pick *p)
{
    buf_byte(p->out, '[');
    int rc = json_path_each(json, list, pick_item, p);
    buf_byte(p->out, ']');
    return rc;
}

/* ---- the object ---- */

static int no_such(const struct page *p, struct err *err)
{
    return err_set(err, -ENOENT, "there is no %s '" STR_FMT "'; `muster get %ss` lists them",
                   p->kind->name, STR_ARG(p->o->name), p->kind->name);
}

static int find_object(struct page *p, struct err *err)
{
    struct pick pick = { .path = { p->kind->id, "service" },
                         .want = { p->name, p->service },
                         .out = &p->object };
    int rc = json_path_each(buf_view(&p->status), p->kind->list, pick_item, &pick);
    if (rc < 0) return err_set(err, -EPROTO, "the controller's status is not understood");
    if (pick.count == 0) return -ENOENT;
    if (pick.count > 1)
        return err_set(err, -EINVAL,
                       "several services have a pool " STR_FMT ": name it SERVICE/" STR_FMT,
                       STR_ARG(p->name), STR_ARG(p->name));
    if (p->service.len > 0 || !p->kind->action || strcmp(p->kind->action, "pool") != 0) return 0;
    if (json_path_text(buf_view(&p->object), "service", &p->service_name) < 0)
        return err_set(err, -EPROTO, "the controller's list of pools is not understood");
    p->service = buf_view(&p->service_name);
    return 0;
}

/* Finds an instance that has ended among the intents, which outlive it for a while. */
static int find_intent(struct page *p, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct pick pick = { .path = { "id", NULL }, .want = { p->name }, .out = &p->object };
    int rc = remote_get(p->api, "/api/v1/intents", &reply, err);
    if (rc < 0) return rc;
    rc = json_path_each(buf_view(&reply), "intents", pick_item, &pick);
    if (rc < 0) return err_set(err, -EPROTO, "the controller's list of intents is not understood");
    return pick.count == 1 ? 0 : no_such(p, err);
}

/* ---- a request ---- */

/* Appends an object with one more member before its own. */
static void put_with(struct buf *out, const char *member, struct str text, struct str object)
{
    struct json_writer w;
    buf_printf(out, "{\"%s\":", member);
    json_writer_init(&w, out);
    json_put_str(&w, text);
    buf_byte(out, ',');
    buf_str(out, str_of(object.data + 1, object.len - 1)); /* it is not empty */
}

struct asking {
    struct page *p;
    uint32_t routers, silent;
    bool found;
};

static int ask_router(void *ctx, struct str item)
{
    struct asking *a = ctx;
    CLEANUP(buf_fini) struct buf name = { 0 }, host = { 0 }, path = { 0 }, reply = { 0 };
    struct remote router = *a->p->api;
    struct str request;
    uint64_t port = 0;
    if (json_path_text(item, "router", &name) < 0 || json_path_text(item, "host", &host) < 0 ||
        json_path_u64(item, "port", &port) < 0 || port == 0 || port > UINT16_MAX ||
        host.len >= sizeof router.host)
        return -EPROTO;
    snprintf(router.host, sizeof router.host, "%s", host.data);
    router.port = (uint16_t)port;
    router.is_router = true;
    buf_text(&path, "/admin/requests?id=");
    remote_segment(&path, a->p->o->name);
    a->routers++;
    int rc = remote_get(&router, path.data, &reply, NULL);
    if (rc < 0) {
        a->silent += rc != -ENOENT;
        return 0;
    }
    if (json_path(buf_view(&reply), "request", &request) < 0) return -EPROTO;
    buf_clear(&a->p->object);
    put_with(&a->p->object, "router", buf_view(&name), request);
    a->found = true;
    return 1;
}

static int find_request(struct page *p, struct err *err)
{
    struct asking a = { .p = p };
    int rc = json_path_each(buf_view(&p->status), "routers", ask_router, &a);
    if (rc < 0) return err_set(err, -EPROTO, "a router's answer is not understood");
    if (a.found) return 0;
    return err_set(err, -ENOENT,
                   "none of %u routers knows a request '" STR_FMT "' that has ended of late%s",
                   a.routers, STR_ARG(p->o->name), a.silent ? ", and some did not answer" : "");
}

/* ---- what belongs to it ---- */

struct mention {
    const struct page *p;
    bool found;
};

static int is_named(void *ctx, struct str action)
{
    struct mention *m = ctx;
    m->found |= has_text(action, m->p->kind->action, m->p->name);
    return 0;
}

static bool is_about(const struct page *p, struct str decision)
{
    struct mention m = { .p = p };
    if (!p->kind->action) return has_text(decision, "decision.service", p->name);
    if (!has_text(decision, "decision.service", p->service)) return false;
    return json_path_each(decision, "decision.actions", is_named, &m) == 0 && m.found;
}

struct deciding {
    struct page *p;
    uint32_t count, skip, put;
};

static int count_decision(void *ctx, struct str decision)
{
    struct deciding *d = ctx;
    d->count += is_about(d->p, decision);
    return 0;
}

static int put_decision(void *ctx, struct str decision)
{
    struct deciding *d = ctx;
    if (!is_about(d->p, decision) || d->skip-- > 0) return 0;
    d->skip = 0;
    if (d->put++ > 0) buf_byte(&d->p->decisions, ',');
    return buf_str(&d->p->decisions, decision);
}

/* Keeps the newest decisions about it. */
static int find_decisions(struct page *p, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char path[64];
    struct deciding d = { .p = p };
    snprintf(path, sizeof path, "/api/v1/decisions?limit=%d", DECISIONS_READ);
    int rc = remote_get(p->api, path, &reply, err);
    if (rc < 0) return rc;
    rc = json_path_each(buf_view(&reply), "decisions", count_decision, &d);
    d.skip = d.count > p->o->last ? d.count - (uint32_t)p->o->last : 0;
    buf_byte(&p->decisions, '[');
    if (rc == 0 && p->o->last > 0)
        rc = json_path_each(buf_view(&reply), "decisions", put_decision, &d);
    buf_byte(&p->decisions, ']');
    return rc < 0 ? err_set(err, -EPROTO, "the controller's decisions are not understood") : 0;
}

static int find_events(struct page *p, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { 0 }, path = { 0 };
    struct pick pick = { .path = { "service", NULL }, .want = { p->service }, .out = &p->events };
    if (p->o->last == 0) return buf_text(&p->events, "[]");
    buf_printf(&path, "/api/v1/events?limit=%lld&about=", (long long)p->o->last);
    remote_segment(&path, p->name);
    int rc = path.rc < 0 ? path.rc : remote_get(p->api, path.data, &reply, err);
    if (rc < 0) return rc;
    rc = pick_list(buf_view(&reply), "events", &pick);
    return rc < 0 ? err_set(err, -EPROTO, "the controller's events are not understood") : 0;
}

struct measuring {
    struct page *p;
    struct str service;
};

/* Adds what one router has measured of one service, with the service's name. */
static int put_route(void *ctx, struct str item)
{
    struct measuring *m = ctx;
    struct page *p = m->p;
    bool of_router = !p->kind->decides;
    if (of_router && !has_text(item, "router", p->name)) return 0;
    if (p->routes.len > 1) buf_byte(&p->routes, ',');
    put_with(&p->routes, "service", m->service, item);
    return p->routes.rc;
}

static int each_service(void *ctx, struct str service)
{
    struct page *p = ctx;
    CLEANUP(buf_fini) struct buf name = { 0 };
    bool of_router = !p->kind->decides;
    if (json_path_text(service, "service", &name) < 0) return -EPROTO;
    if (!of_router && !str_eq(buf_view(&name), p->name)) return 0;
    struct measuring m = { p, buf_view(&name) };
    return json_path_each(service, "routers", put_route, &m);
}

static int find_related(struct page *p, struct err *err)
{
    struct str status = buf_view(&p->status);
    const struct kind *k = p->kind;
    struct pick pools = { .path = { "service", NULL }, .want = { p->name }, .out = &p->pools };
    struct pick instances = { .path = { k->id, "service" },
                              .want = { p->name, p->service },
                              .out = &p->instances };
    int rc = k->pools ? pick_list(status, "pools", &pools) : 0;
    if (rc == 0 && k->instances) rc = pick_list(status, "instances", &instances);
    if (k->routes) buf_byte(&p->routes, '[');
    if (rc == 0 && k->routes) rc = json_path_each(status, "services", each_service, p);
    if (k->routes) buf_byte(&p->routes, ']');
    if (rc < 0) return err_set(err, -EPROTO, "the controller's status is not understood");
    if (!k->decides) return 0;
    rc = find_events(p, err);
    return rc < 0 ? rc : find_decisions(p, err);
}

/* ---- printing ---- */

static void put_lines(const struct page *p, struct buf *out)
{
    struct str object = buf_view(&p->object);
    buf_printf(out, "%s " STR_FMT "\n", p->kind->name, STR_ARG(p->o->name));
    for (uint32_t i = 0; i < p->kind->line_count; i++) {
        CLEANUP(buf_fini) struct buf cell = { 0 };
        const struct line *l = &p->kind->line[i];
        table_cell(l->form, object, l->path, p->now_us, &cell);
        if (str_eq(buf_view(&cell), STR("-"))) continue; /* absent: not known, or does not apply */
        buf_printf(out, "  %-*s" STR_FMT "\n", TITLE_WIDTH, l->title, STR_ARG(buf_view(&cell)));
    }
}

static void put_table(const struct page *p, const char *title, const struct table_column *column,
                      uint32_t count, const struct buf *list, struct buf *out)
{
    struct table t = { column, count, p->now_us, colour_wanted(stdout) };
    if (list->len < 3) return; /* "[]", or none */
    buf_printf(out, "\n%s\n", title);
    if (table_print(&t, buf_view(list), out) < 0) buf_text(out, "(not understood)\n");
}

static void put_resource(const struct page *p, const char *title, const char *kind,
                         const struct buf *list, struct buf *out)
{
    const struct resource *k = resource_find(str_from(kind));
    put_table(p, title, k->column, k->column_count, list, out);
}

static int print_page(const struct page *p, struct err *err)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    put_lines(p, &out);
    put_resource(p, "pools", "pools", &p->pools, &out);
    put_resource(p, "instances", "instances", &p->instances, &out);
    put_table(p, "routers", route_columns, COUNT_OF(route_columns), &p->routes, &out);
    put_resource(p, "last decisions", "decisions", &p->decisions, &out);
    put_resource(p, "last events", "events", &p->events, &out);
    return command_print(&out, err);
}

static int print_tree(const struct page *p, struct err *err)
{
    const struct {
        const char *name;
        const struct buf *list;
    } lists[] = { { "pools", &p->pools },
                  { "instances", &p->instances },
                  { "routers", &p->routes },
                  { "decisions", &p->decisions },
                  { "events", &p->events } };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object(&w);
    json_kv_text(&w, "kind", p->kind->name);
    json_kv_str(&w, "name", p->o->name);
    json_key(&w, "object");
    json_put_raw(&w, buf_view(&p->object));
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        if (lists[i].list->len == 0) continue;
        json_key(&w, lists[i].name);
        json_put_raw(&w, buf_view(lists[i].list));
    }
    json_object_end(&w);
    return remote_print(p->o->output, &out, err);
}

/* ---- the command ---- */

static const struct kind *find_kind(struct str name, struct err *err)
{
    const char *names[COUNT_OF(kinds)];
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        names[i] = kinds[i].name;
        struct str plural = str_of(name.data, name.len > 0 ? name.len - 1 : 0);
        bool is = str_eq(name, str_from(names[i]));
        if (is || (str_ends(name, STR("s")) && str_eq(plural, str_from(names[i]))))
            return &kinds[i];
    }
    const char *near = str_nearest(name, names, COUNT_OF(kinds));
    err_set(err, COMMAND_MISUSED,
            "no kind '" STR_FMT "'%s%s%s; want service, pool, instance, offer, router or request",
            STR_ARG(name), near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
    return NULL;
}

static int gather(struct page *p, struct err *err)
{
    double now_us = (double)clock_wall_us();
    int rc = remote_get(p->api, "/api/v1/status", &p->status, err);
    if (rc < 0) return rc;
    json_path_f64(buf_view(&p->status), "now_us", &now_us);
    p->now_us = (int64_t)now_us;
    if (!p->kind->list) return find_request(p, err);
    rc = find_object(p, err);
    if (rc == -ENOENT && str_eq(str_from(p->kind->name), STR("instance")))
        rc = find_intent(p, err);
    else if (rc == -ENOENT)
        rc = no_such(p, err);
    return rc < 0 ? rc : find_related(p, err);
}

static int describe(const void *options, struct err *err)
{
    const struct describe_options *o = options;
    struct remote api;
    struct page p = { .o = o, .api = &api, .name = o->name };
    p.kind = find_kind(o->kind, err);
    if (!p.kind) return COMMAND_MISUSED;
    struct str rest = o->name, first = str_cut(&rest, '/');
    if (rest.data && str_eq(str_from(p.kind->name), STR("pool"))) {
        p.service = first;
        p.name = rest;
    }
    int rc = remote_find(&o->place, &api, err);
    if (rc == 0) rc = gather(&p, err);
    if (rc == 0) rc = o->output == REMOTE_TABLE ? print_page(&p, err) : print_tree(&p, err);
    page_fini(&p);
    return rc;
}

static int run(int argc, char *const *argv)
{
    struct describe_options options;
    return command_run(&usage, argc, argv, &options, describe);
}

const struct command command_describe = {
    .name = "describe",
    .group = "Look",
    .about = "all about one service, pool, instance, offer, router or request",
    .run = run,
};
