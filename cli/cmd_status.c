/* cmd_status.c - `muster status`: show the fleet on one screen. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "cli/table.h"

#include <stdio.h>

struct status_options {
    struct remote_place place;
    int output;
};

// clang-format off
static const struct config_field rows[] = {
    REMOTE_ROWS(struct status_options, place),
    REMOTE_FORMS_ROW(struct status_options, output),
};
static const struct table_column service_columns[] = {
    { "SERVICE", "service", TABLE_TEXT },     { "READY", "ready", TABLE_COUNT },
    { "STARTING", "starting", TABLE_COUNT },  { "DRAINING", "draining", TABLE_COUNT },
    { "REQ/S", "demand.arrivals_per_s", TABLE_DECIMAL },
    { "IN FLIGHT", "demand.in_flight", TABLE_COUNT },
    { "HELD", "demand.held", TABLE_COUNT },   { "PAUSED", "paused", TABLE_YES },
    { "$/H", "cost_per_h", TABLE_MONEY },     { "REASON", "reason", TABLE_TEXT },
};
static const struct table_column latency_columns[] = {
    { "ROUTER", "router", TABLE_TEXT },           { "REQUESTS", "arrivals_total", TABLE_COUNT },
    { "FAILED", "failed_total", TABLE_COUNT },    { "TTFT P50", "ttft_s.p50", TABLE_DECIMAL },
    { "P99 (S)", "ttft_s.p99", TABLE_DECIMAL },   { "TPOT P50", "tpot_s.p50", TABLE_DECIMAL },
    { "P99 (S)", "tpot_s.p99", TABLE_DECIMAL },   { "SLO MET", "slo_met_total", TABLE_COUNT },
    { "MISSED", "slo_missed_total", TABLE_COUNT },
};
static const struct table_column instance_columns[] = {
    { "INSTANCE", "instance", TABLE_TEXT },       { "SERVICE", "service", TABLE_TEXT },
    { "POOL", "pool", TABLE_TEXT },               { "ROLE", "role", TABLE_TEXT },
    { "PHASE", "phase", TABLE_STATE },           { "WEIGHTS %", "weights.percent", TABLE_RARE },
    { "AGE", "age_s", TABLE_AGE },                { "RUNNING", "engine.running", TABLE_COUNT },
    { "WAITING", "engine.waiting", TABLE_COUNT },
    { "PAGES CACHED", "engine.pages_cached", TABLE_COUNT },
    { "RESTARTS", "restarts", TABLE_COUNT },      { "COST", "cost", TABLE_MONEY },
    { "TROUBLE", "trouble", TABLE_TEXT },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct status_options, rows);
static const struct opt_command usage = {
    .name = "muster status",
    .about = "Show the fleet: services, latencies, instances, cost.",
    .options = &record,
};

struct page {
    struct buf *out;
    int64_t now_us;
    bool colour, wide;
};

static bool list_is_empty(struct str list)
{
    return list.len < 3; /* "[]" */
}

static void put_table(const struct page *p, const struct table_column *column, uint32_t count,
                      struct str list)
{
    struct table t = { column, count, p->now_us, p->colour };
    buf_byte(p->out, '\n');
    if (table_print(&t, list, p->out) < 0) buf_text(p->out, "(not understood)\n");
}

/* Puts the table of a resource: the page's own columns, or with --output wide all that `muster get` has. */
static void put_resource(const struct page *p, const char *name, const struct table_column *column,
                         uint32_t count, struct str list)
{
    struct resource_columns all;
    if (!p->wide) {
        put_table(p, column, count, list);
        return;
    }
    resource_columns(resource_find(str_from(name)), true, &all);
    put_table(p, all.column, all.count, list);
}

static int put_latency(void *ctx, struct str service)
{
    const struct page *p = ctx;
    struct str routers;
    if (json_path(service, "routers", &routers) < 0 || list_is_empty(routers)) return 0;
    put_table(p, latency_columns, COUNT_OF(latency_columns), routers);
    return 0;
}

static void put_head(const struct page *p, const struct remote *api, struct str reply)
{
    struct buf *out = p->out;
    bool observed = false, complete = true;
    json_path_bool(reply, "observed", &observed);
    json_path_bool(reply, "complete", &complete); /* absent in older releases */
    buf_printf(out, "controller  http://%s:%u, up ", api->host, api->port);
    table_cell(TABLE_AGE, reply, "uptime_s", p->now_us, out);
    if (!observed)
        buf_text(out, ", still observing the providers");
    else if (!complete)
        buf_text(out, ", not every instance was heard yet");
    buf_text(out, "\ncost        ");
    table_cell(TABLE_MONEY, reply, "cost.per_h", p->now_us, out);
    buf_text(out, " an hour now, ");
    table_cell(TABLE_MONEY, reply, "cost.total", p->now_us, out);
    buf_text(out, " in all\n");
}

static int put_router(void *ctx, struct str router)
{
    const struct page *p = ctx;
    buf_text(p->out, "router      ");
    table_cell(TABLE_TEXT, router, "router", p->now_us, p->out);
    buf_text(p->out, " http://");
    table_cell(TABLE_TEXT, router, "host", p->now_us, p->out);
    buf_byte(p->out, ':');
    table_cell(TABLE_COUNT, router, "port", p->now_us, p->out);
    buf_text(p->out, ", heard ");
    table_cell(TABLE_AGE, router, "sync_age_s", p->now_us, p->out);
    return buf_text(p->out, " ago\n");
}

static int put_unreadable(void *ctx, struct str one)
{
    const struct page *p = ctx;
    buf_text(p->out, "unreadable  ");
    table_cell(TABLE_TEXT, one, "record", p->now_us, p->out);
    buf_text(p->out, ": ");
    table_cell(TABLE_TEXT, one, "error", p->now_us, p->out);
    return buf_text(p->out, "\n");
}

static int put_page(const struct remote *api, struct str reply, bool wide, struct buf *out)
{
    double now_us = (double)clock_wall_us();
    struct str services, instances;
    json_path_f64(reply, "now_us", &now_us);
    struct page p = { out, (int64_t)now_us, colour_wanted(stdout), wide };
    put_head(&p, api, reply);
    int rc = json_path_each(reply, "routers", put_router, &p);
    if (rc == 0 && json_path_each(reply, "unreadable", put_unreadable, &p) == -EINVAL) rc = -EINVAL;
    if (rc == 0) rc = json_path(reply, "services", &services);
    if (rc == 0) rc = json_path(reply, "instances", &instances);
    if (rc < 0) return rc;
    if (list_is_empty(services)) return buf_text(out, "\nThe configuration names no service.\n");
    put_resource(&p, "services", service_columns, COUNT_OF(service_columns), services);
    rc = json_path_each(services, "", put_latency, &p);
    if (rc < 0) return rc;
    if (list_is_empty(instances)) return buf_text(out, "\nNo instance is there.\n");
    put_resource(&p, "instances", instance_columns, COUNT_OF(instance_columns), instances);
    return out->rc;
}

static int status(const void *options, struct err *err)
{
    const struct status_options *o = options;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct remote api;
    int rc = remote_find(&o->place, &api, err);
    if (rc == 0) rc = remote_get(&api, "/api/v1/status", &reply, err);
    if (rc < 0) return rc;
    if (o->output == REMOTE_JSON || o->output == REMOTE_YAML)
        return remote_print(o->output, &reply, err);
    rc = put_page(&api, buf_view(&reply), o->output == REMOTE_WIDE, &out);
    if (rc < 0) return err_set(err, -EPROTO, "the controller's status is not understood");
    return command_print(&out, err);
}

static int run(int argc, char *const *argv)
{
    struct status_options options;
    return command_run(&usage, argc, argv, &options, status);
}

const struct command command_status = {
    .name = "status",
    .group = "Look",
    .about = "the fleet on one screen",
    .run = run,
};
