/* cmd_perf.c - `muster perf`: fit constants of the step-time model to measured tables. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/command.h"
#include "cli/input_file.h"
#include "cli/plan/perf_fit.h"
#include "cli/remote.h"
#include "cli/table.h"

#include <stdio.h>

#define TABLE_BYTES_MAX ((size_t)64 << 20)

struct perf_options {
    struct str act, file, hardware, model;
    int kind, output;
};

static const char *const kind_names[] = { "auto",      "mlp",   "dense", "attention",
                                          "allreduce", "steps", NULL };

#define AT(member) .offset = offsetof(struct perf_options, member)
static const char *const actions[] = { "fit", NULL };
// clang-format off
static const struct config_field rows[] = {
    { .name = "hardware", .type = CONFIG_TEXT, .required = true, AT(hardware),
      .about = "What the table was measured on: a row of the hardware table." },
    { .name = "model", .type = CONFIG_TEXT, .default_text = "llama-3-8b", AT(model),
      .about = "dense, attention, steps: the model that the table is of, a shipped name or a file as ./my.spec." },
    { .name = "kind", .type = CONFIG_ENUM, .default_text = "auto", .names = kind_names, AT(kind),
      .about = "Refuse a table of another kind than this." },
    REMOTE_OUTPUT_ROW(struct perf_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "ACTION", .required = true, AT(act), .words = actions, .about = "fit." },
    { .name = "FILE", .required = true, AT(file), .about = "A CSV table of measured times." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct perf_options, rows);
static const struct opt_command usage = {
    .name = "muster perf",
    .about = "Fit the constants of the step-time model to a measured table, and say how far off "
             "the fitted and the shipped ones are.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes = "Tables of vidur (mlp, all_reduce), LLMServingSim (dense, attention) and the engine's "
             "--step-log\n(steps) are known by their columns. Shares of a peak end at 1.",
};

static double value(const struct hardware *h, const struct perf_constant *c)
{
    return *(const double *)(const void *)((const char *)h + c->offset);
}

static void put_constants(struct json_writer *w, enum perf_kind kind,
                          const struct hardware *shipped, const struct hardware *fitted)
{
    uint32_t count = 0;
    const struct perf_constant *c = perf_constants(kind, &count);
    json_key(w, "constants");
    json_array(w);
    for (uint32_t i = 0; i < count; i++) {
        json_object(w);
        json_kv_text(w, "name", c[i].name);
        json_kv_text(w, "unit", c[i].unit);
        json_kv_f64(w, "fitted", value(fitted, &c[i]));
        json_kv_f64(w, "shipped", value(shipped, &c[i]));
        json_object_end(w);
    }
    json_array_end(w);
}

static int put_error(struct json_writer *w, const struct perf_table *t, const char *what,
                     enum perf_part part, uint32_t tp, const struct hardware *hardware[2],
                     struct err *err)
{
    struct perf_error e[2];
    for (int i = 0; i < 2; i++) {
        int rc = perf_error_of(t, hardware[i], part, tp, &e[i], err);
        if (rc < 0) return rc;
    }
    if (e[0].count == 0) return 0;
    json_object(w);
    json_kv_text(w, "part", what);
    json_kv_u64(w, "rows", e[0].count);
    json_kv_f64(w, "fitted_mape", 100 * e[0].mape);
    json_kv_f64(w, "shipped_mape", 100 * e[1].mape);
    json_kv_f64(w, "shipped_p90", 100 * e[1].p90);
    json_object_end(w);
    return 0;
}

static int put_errors(struct json_writer *w, const struct perf_table *t,
                      const struct hardware *hardware[2], struct err *err)
{
    json_key(w, "errors");
    json_array(w);
    int rc = put_error(w, t, "all", PERF_ALL, 0, hardware, err);
    for (uint32_t tp = 1; tp <= 64 && rc >= 0; tp++) {
        char name[32];
        snprintf(name, sizeof name, "degree %u", tp);
        rc = put_error(w, t, name, PERF_ALL, tp, hardware, err);
    }
    if (t->kind == PERF_ATTENTION || t->kind == PERF_STEPS) {
        if (rc >= 0) rc = put_error(w, t, "decode", PERF_DECODE, 0, hardware, err);
        if (rc >= 0) rc = put_error(w, t, "prefill", PERF_PREFILL, 0, hardware, err);
        if (rc >= 0) rc = put_error(w, t, "mixed", PERF_MIXED, 0, hardware, err);
    } else if (t->kind != PERF_ALLREDUCE && rc >= 0) {
        rc = put_error(w, t, "up to 64 tokens", PERF_SMALL, 0, hardware, err);
    }
    json_array_end(w);
    return rc;
}

static int print_part(struct str all, const char *name, const struct table_column *column,
                      uint32_t columns, struct buf *out, struct err *err)
{
    struct str list;
    struct table t = { column, columns, 0, colour_wanted(stdout) };
    int rc = json_path(all, name, &list);
    if (rc >= 0) rc = table_print(&t, list, out);
    return rc < 0 ? err_set(err, rc, "the table cannot be made") : 0;
}

static int print(const struct buf *json, const struct perf_options *o, struct err *err)
{
    static const struct table_column constants[] = {
        { "CONSTANT", "name", TABLE_TEXT },
        { "FITTED", "fitted", TABLE_FACTOR },
        { "SHIPPED", "shipped", TABLE_FACTOR },
        { "UNIT", "unit", TABLE_TEXT },
    };
    static const struct table_column errors[] = {
        { "PART", "part", TABLE_TEXT },
        { "ROWS", "rows", TABLE_COUNT },
        { "FITTED %", "fitted_mape", TABLE_DECIMAL },
        { "SHIPPED %", "shipped_mape", TABLE_DECIMAL },
        { "SHIPPED P90 %", "shipped_p90", TABLE_DECIMAL },
    };
    if (o->output == REMOTE_JSON) return command_print(json, err);
    CLEANUP(buf_fini) struct buf out = { 0 };
    int rc = print_part(buf_view(json), "constants", constants, COUNT_OF(constants), &out, err);
    if (rc < 0) return rc;
    buf_byte(&out, '\n');
    rc = print_part(buf_view(json), "errors", errors, COUNT_OF(errors), &out, err);
    return rc < 0 ? rc : command_print(&out, err);
}

static int perf(const void *options, struct err *err)
{
    const struct perf_options *o = options;
    if (!str_eq(o->act, STR("fit"))) {
        return err_set(err, COMMAND_MISUSED, "no action '" STR_FMT "': want fit", STR_ARG(o->act));
    }
    const struct hardware *shipped = hardware_find(o->hardware);
    if (!shipped) {
        hardware_unknown(o->hardware, err);
        return err_prefix(err, COMMAND_MISUSED, "--hardware");
    }
    struct model_spec model;
    int rc = model_file_find(o->model, &model, err);
    if (rc < 0) return err_prefix(err, rc == -EINVAL ? COMMAND_MISUSED : rc, "--model");
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(perf_table_freep) struct perf_table *t = NULL;
    buf_init(&text, TABLE_BYTES_MAX);
    rc = file_read(o->file.data, TABLE_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    rc = perf_table_read(buf_view(&text), &model, &t, err);
    if (rc < 0) return err_prefix(err, rc, STR_FMT, STR_ARG(o->file));
    if (o->kind > 0 && o->kind - 1 != (int)t->kind) {
        return err_set(err, COMMAND_MISUSED, STR_FMT ": a table of the kind %s, not %s",
                       STR_ARG(o->file), perf_kind_names[t->kind], kind_names[o->kind]);
    }
    struct hardware fitted = *shipped;
    rc = perf_fit(t, &fitted, err);
    if (rc < 0) return err_prefix(err, rc, STR_FMT, STR_ARG(o->file));

    CLEANUP(buf_fini) struct buf json = { 0 };
    struct json_writer w;
    json_writer_init(&w, &json);
    json_object(&w);
    json_kv_text(&w, "hardware", shipped->name);
    json_kv_text(&w, "kind", perf_kind_names[t->kind]);
    put_constants(&w, t->kind, shipped, &fitted);
    rc = put_errors(&w, t, (const struct hardware *[2]){ &fitted, shipped }, err);
    json_object_end(&w);
    buf_byte(&json, '\n');
    return rc < 0 ? rc : print(&json, o, err);
}

static int run(int argc, char *const *argv)
{
    struct perf_options options;
    return command_run(&usage, argc, argv, &options, perf);
}

const struct command command_perf = {
    .name = "perf",
    .group = "Look",
    .about = "fit the step-time model to measured tables",
    .run = run,
};
