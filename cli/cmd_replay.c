/* cmd_replay.c - `muster replay`: recorded routing decisions put to another row, one step each. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/cmd_run.h"
#include "cli/command.h"
#include "cli/judge.h"
#include "cli/remote.h"

#include <math.h>
#include <stdio.h>

#define RECORD_BYTES_MAX ((size_t)4 << 30)

struct replay_options {
    struct str file, route;
    int64_t seed;
    int output;
};

#define AT(member) .offset = offsetof(struct replay_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "route", .letter = 'r', .type = CONFIG_TEXT, .default_text = ROUTE_DEFAULT, AT(route),
      .about = "Routing row to ask; `muster policies route` lists them." },
    { .name = "seed", .type = CONFIG_INT, .default_text = "1", .min = 0, .max = 9e15, AT(seed),
      .about = "Seed of the row's chance." },
    REMOTE_OUTPUT_ROW(struct replay_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "LOG", .required = true, AT(file),
      .about = "File that a router wrote with router.record." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct replay_options, rows);
static const struct opt_command usage = {
    .name = "muster replay",
    .about = "Ask another routing row what it would have done with each recorded decision.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes =
        "One step only: each view is of the world that the recorded choices made, so nothing "
        "is said of\nthe times that the other row would have reached; `muster simulate` does "
        "that. Regret is the\npredicted TTFT of a choice less the least in the same view, and "
        "absent (- in the table, null\nin JSON) where no decision could be judged. A record that "
        "ends within an entry, its router\nhaving been killed or still writing, is judged as far "
        "as it goes: that is said, and is no failure.\n",
};

static void put_regret(struct json_writer *w, const char *name, const struct judge_regret *r)
{
    json_key(w, name);
    json_object(w);
    json_kv_f64(w, "mean", r->mean_s);
    json_kv_f64(w, "p50", r->p50_s);
    json_kv_f64(w, "p99", r->p99_s);
    json_object_end(w);
}

static void put_json(const struct judgement *j, const char *route, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "route", route);
    json_kv_text(&w, "recorded", j->recorded);
    json_kv_u64(&w, "entries", j->entries);
    json_kv_bool(&w, "torn", j->torn);
    json_kv_u64(&w, "decisions", j->decisions);
    json_kv_u64(&w, "agreed", j->agreed);
    json_kv_u64(&w, "refused", j->refused);
    json_kv_u64(&w, "judged", j->judged);
    put_regret(&w, "regret_s", &j->regret);
    put_regret(&w, "regret_recorded_s", &j->regret_recorded);
    json_kv_f64(&w, "margin_recorded_s", j->margin_s);
    json_kv_u64(&w, "prompt_tokens", j->prompt_tokens);
    json_kv_u64(&w, "hit_tokens", j->hit_tokens);
    json_kv_u64(&w, "hit_tokens_recorded", j->hit_tokens_recorded);
    json_object_end(&w);
    buf_byte(out, '\n');
}

/* What is absent is a dash. */
static void put_cell(struct buf *out, double v, int digits, const char *unit)
{
    if (isnan(v)) {
        buf_printf(out, "  %10s", "-");
    } else {
        buf_printf(out, "  %*.*f%s", 10 - (int)strlen(unit), digits, v, unit);
    }
}

static void put_line(struct buf *out, const char *name, double agreed, const struct judge_regret *r,
                     double hit)
{
    buf_printf(out, "%-20s", name);
    put_cell(out, 100 * agreed, 1, " %");
    put_cell(out, r->mean_s, 4, "");
    put_cell(out, r->p50_s, 4, "");
    put_cell(out, r->p99_s, 4, "");
    put_cell(out, 100 * hit, 1, " %");
    buf_byte(out, '\n');
}

static void put_table(const struct judgement *j, const char *route, struct buf *out)
{
    double all = (double)j->decisions;
    double prompt = j->prompt_tokens ? (double)j->prompt_tokens : (double)NAN;
    buf_printf(out, "%-20s  %10s  %10s  %10s  %10s  %10s\n", "ROW", "AGREES", "REGRET s", "P50 s",
               "P99 s", "CACHED");
    put_line(out, j->recorded, 1, &j->regret_recorded, (double)j->hit_tokens_recorded / prompt);
    put_line(out, route, (double)j->agreed / all, &j->regret, (double)j->hit_tokens / prompt);
    buf_printf(out, "%llu decisions by %s", (unsigned long long)j->decisions, j->recorded);
    if (j->refused) buf_printf(out, "; %llu not placed", (unsigned long long)j->refused);
    if (j->judged < j->decisions) {
        buf_printf(out, "; %llu without regret, some speed was unknown",
                   (unsigned long long)(j->decisions - j->refused - j->judged));
    }
    if (!isnan(j->margin_s))
        buf_printf(out, "; second choices: %.4f s later in the mean", j->margin_s);
    buf_byte(out, '\n');
}

static int find_row(struct str name, const struct route_policy **ret, struct err *err)
{
    const char *names[64];
    *ret = route_find(name);
    if (*ret) return 0;
    for (uint32_t i = 0; i < route_count; i++)
        names[i] = route_table[i]->name;
    const char *near = str_nearest(name, names, route_count);
    return err_set(err, COMMAND_MISUSED,
                   "no routing row '" STR_FMT "'%s%s; see `muster policies route`", STR_ARG(name),
                   near ? ", did you mean " : "", near ? near : "");
}

static int replay(const void *options, struct err *err)
{
    const struct replay_options *o = options;
    CLEANUP(buf_fini) struct buf file = { .max = RECORD_BYTES_MAX };
    CLEANUP(buf_fini) struct buf out = { 0 };
    const struct route_policy *row;
    struct judgement j;
    int rc = find_row(o->route, &row, err);
    if (rc == 0) rc = file_read(o->file.data, RECORD_BYTES_MAX, &file, err);
    if (rc < 0) return rc;
    rc = judge_record(buf_view(&file), row, (uint64_t)o->seed, &j, err);
    if (rc < 0) return err_prefix(err, rc, "%s", o->file.data);
    if (j.torn) {
        fprintf(stderr, "%s: %s ends within an entry: %llu whole ones were read\n", usage.name,
                o->file.data, (unsigned long long)j.entries);
    }
    if (o->output == REMOTE_JSON) {
        put_json(&j, row->name, &out);
    } else {
        put_table(&j, row->name, &out);
    }
    return command_print(&out, err);
}

static int run(int argc, char *const *argv)
{
    struct replay_options o = { 0 };
    return command_run(&usage, argc, argv, &o, replay);
}

const struct command command_replay = {
    .name = "replay",
    .group = "Measure",
    .about = "ask another routing row about recorded decisions",
    .run = run,
};
