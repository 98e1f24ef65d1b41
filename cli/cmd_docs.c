/* cmd_docs.c - `muster docs`: print the pages of documentation that are made from tables in the code. */
#include "agent/metrics.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/command.h"
#include "cli/docs/completion.h"
#include "cli/docs/man.h"
#include "cli/schema.h"
#include "controller/metrics.h"
#include "engine/serve/metrics.h"
#include "router/metrics.h"

#include <limits.h>
#include <stdio.h>

struct docs_options {
    struct str page, where;
};

static const char *const pages[] = { "configuration", "metrics", "man", "completion", NULL };
static const struct config_field no_rows[] = { 0 };
static const struct config_record record = { no_rows, 0, sizeof(struct docs_options), NULL, NULL };
static const struct opt_positional positionals[] = {
    { .name = "PAGE",
      .required = true,
      .offset = offsetof(struct docs_options, page),
      .words = pages,
      .about = "configuration, metrics, man or completion." },
    { .name = "WHERE",
      .offset = offsetof(struct docs_options, where),
      .about = "man: the folder for the pages; without one they go to standard output. completion: "
               "bash, zsh "
               "or fish." },
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
    { "Every role", "Beside its own metrics", metrics_own_table, METRICS_OWN_COUNT },
};

static int put_metrics(struct buf *out)
{
    buf_text(out, "# Metrics\n\n"
                  "Made by `muster docs metrics` from the tables in the code; do not edit. All are "
                  "in the text\nformat of Prometheus, and in OpenMetrics with exemplars for a "
                  "scraper that asks for it. A metric with\nlabels keeps a bounded number of "
                  "series; beyond it values go to one series whose labels are all `other`.\n");
    for (size_t i = 0; i < COUNT_OF(roles); i++) {
        buf_printf(out, "\n## %s\n\n%s.\n\n", roles[i].title, roles[i].where);
        int rc = metrics_markdown(roles[i].table, roles[i].count, out);
        if (rc < 0) return rc;
    }
    return out->rc;
}

struct man {
    struct str folder; /* empty: all pages into out */
    struct buf *out;
    struct err *err;
};

static int keep_page(void *ctx, const char *name, struct str text)
{
    const struct man *m = ctx;
    char path[PATH_MAX];
    if (m->folder.len == 0) return buf_str(m->out, text);
    int len = snprintf(path, sizeof path, STR_FMT "/%s", STR_ARG(m->folder), name);
    if (len >= (int)sizeof path)
        return err_set(m->err, -ENAMETOOLONG, "the path of %s is longer than %d bytes", name,
                       PATH_MAX);
    return file_write_atomic(path, text, 0644, m->err);
}

static int put_man(struct str folder, struct buf *out, struct err *err)
{
    struct man m = { .folder = folder, .out = out, .err = err };
    int rc = folder.len > 0 ? file_make_folders(folder.data, 0755, err) : 0;
    return rc < 0 ? rc : man_pages(command_table, &schema, keep_page, &m);
}

static int put_completion(struct str shell, struct buf *out, struct err *err)
{
    if (completion_script(shell, command_table, out, err) == -EINVAL) return COMMAND_MISUSED;
    return out->rc;
}

static int put_page(const struct docs_options *o, struct buf *out, struct err *err)
{
    bool man = str_eq(o->page, STR("man")), completion = str_eq(o->page, STR("completion"));
    if (o->where.len > 0 && !man && !completion)
        return err_set(err, COMMAND_MISUSED, "'" STR_FMT "': " STR_FMT " takes no further argument",
                       STR_ARG(o->where), STR_ARG(o->page));
    if (man) return put_man(o->where, out, err);
    if (completion) return put_completion(o->where, out, err);
    if (str_eq(o->page, STR("configuration"))) return config_markdown(&schema, out);
    if (str_eq(o->page, STR("metrics"))) return put_metrics(out);
    return err_set(err, COMMAND_MISUSED,
                   "no page '" STR_FMT "': want configuration, metrics, man or completion",
                   STR_ARG(o->page));
}

static int docs(const void *options, struct err *err)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    int rc = put_page(options, &out, err);
    if (rc == COMMAND_MISUSED || (rc < 0 && err->text[0])) return rc;
    if (rc < 0) return err_set(err, rc, "the page cannot be made");
    return out.len > 0 ? command_print(&out, err) : 0; /* pages in a folder print nothing */
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
