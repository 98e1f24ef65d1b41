/* cmd_docs.c - `muster docs`: print the pages of documentation that are made from tables in the code. */
#include "agent/metrics.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "cli/command.h"
#include "cli/schema.h"
#include "controller/control_metrics.h"
#include "engine/serve/metrics.h"
#include "router/metrics.h"

struct docs_options {
    struct str page;
};

static const struct config_field no_rows[] = { 0 };
static const struct config_record record = { no_rows, 0, sizeof(struct docs_options), NULL, NULL };
static const struct opt_positional positionals[] = {
    { .name = "PAGE",
      .required = true,
      .offset = offsetof(struct docs_options, page),
      .about = "configuration or metrics." },
};
static const struct opt_command usage = {
    .name = "muster docs",
    .about = "Print a page of the documentation that is made from the program's own tables.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
};

static const struct {
    const char *title, *where;
    const struct metric_desc *table;
    uint32_t count;
} roles[] = {
    { "Router", "`GET /metrics` of the router, port 8080", router_metric_table, RM_COUNT },
    { "Controller", "`GET /metrics` of the controller, port 8090", control_metric_table,
      CONTROL_M_COUNT },
    { "Engine", "`GET /metrics` of each engine, ports from 8200", engine_metric_table, EM_COUNT },
    { "Agent", "`GET /metrics` of the agent of an engine of another kind, ports from 8100",
      agent_metric_table, AM_COUNT },
};

static int put_metrics(struct buf *out)
{
    buf_text(out, "# Metrics\n\n"
                  "Made by `muster docs metrics` from the tables in the code; do not edit. All are "
                  "in the text\nformat of Prometheus. A metric with labels keeps a bounded number "
                  "of series; beyond it values\ngo to one series whose labels are all `other`.\n");
    for (size_t i = 0; i < COUNT_OF(roles); i++) {
        buf_printf(out, "\n## %s\n\n%s.\n\n", roles[i].title, roles[i].where);
        int rc = metrics_markdown(roles[i].table, roles[i].count, out);
        if (rc < 0) return rc;
    }
    return out->rc;
}

static int docs(const void *options, struct err *err)
{
    const struct docs_options *o = options;
    CLEANUP(buf_fini) struct buf out = { 0 };
    int rc;
    if (str_eq(o->page, STR("configuration")))
        rc = config_markdown(&schema, &out);
    else if (str_eq(o->page, STR("metrics")))
        rc = put_metrics(&out);
    else
        return err_set(err, COMMAND_MISUSED, "no page '" STR_FMT "': want configuration or metrics",
                       STR_ARG(o->page));
    return rc < 0 ? err_set(err, rc, "the page cannot be made") : command_print(&out, err);
}

static int run(int argc, char *const *argv)
{
    struct docs_options options;
    return command_run(&usage, argc, argv, &options, docs);
}

const struct command command_docs = {
    .name = "docs",
    .group = "Configure",
    .about = "print the pages made from the program's tables",
    .run = run,
};
