/* cmd_replay.c - `muster replay`: put recorded routing decisions to another policy, one step each.
 *
 * The record is read once; all regrets are kept for their quantiles.
 */
#include "cli/load/cmd_replay.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/command.h"
#include "cli/remote.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTES 65536 /* decisions whose outcome may still come; older ones are forgotten */

struct note {
    uint64_t id; /* 0: empty */
    float scratch[ROUTE_SCRATCH];
};

struct series {
    double *value;
    size_t count, room;
};

struct route_replay {
    const struct route_policy *policy;
    struct rng rng;
    struct series regret, recorded;
    double margin_sum_s;
    uint64_t margins;
    struct judgement out;
    struct record_reader reader;
    struct record_entry entry;
    uint64_t state[ROUTE_STATE_BYTES_MAX / 8];
    struct note note[NOTES];
};

static void route_replay_free(struct route_replay *j)
{
    if (!j) return;
    free(j->regret.value);
    free(j->recorded.value);
    free(j);
}
CLEANUP_FREEP(route_replay, struct route_replay)

static int keep(struct series *s, double value)
{
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 1024;
        double *more = realloc(s->value, room * sizeof *more);
        if (!more) return -ENOMEM;
        s->value = more;
        s->room = room;
    }
    s->value[s->count++] = value;
    return 0;
}

static const struct route_instance *find(const struct route_view *view, uint32_t id)
{
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (view->instance[i].id == id) return &view->instance[i];
    }
    return NULL;
}

/* Returns the least predicted TTFT of the instances that take requests; < 0 when a speed is unknown. */
static double least_s(const struct route_view *view, const struct route_req *req)
{
    double least = -1;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!route_takes(in)) continue;
        if (!in->has_perf) return -1;
        double ttft_s = route_ttft_s(in, req);
        if (least < 0 || ttft_s < least) least = ttft_s;
    }
    return least;
}

static int compare_choices(struct route_replay *j, const struct route_instance *mine,
                           const struct route_instance *theirs)
{
    const struct record_entry *e = &j->entry;
    j->out.prompt_tokens += e->req.prompt_tokens;
    j->out.hit_tokens += route_hit_tokens(mine, &e->req);
    j->out.hit_tokens_recorded += route_hit_tokens(theirs, &e->req);
    double least = least_s(&e->view, &e->req);
    if (least < 0) return 0;
    j->out.judged++;
    int rc = keep(&j->regret, route_ttft_s(mine, &e->req) - least);
    return rc < 0 ? rc : keep(&j->recorded, route_ttft_s(theirs, &e->req) - least);
}

/* Adds the recorded margin between first and second choice; small margins are choices among equals. */
static void note_margin(struct route_replay *j)
{
    const struct route_verdict *v = &j->entry.verdict;
    if (v->runner_up_id == ROUTE_NONE || v->estimate_s < 0 || v->runner_up_s < 0) return;
    j->margin_sum_s += v->runner_up_s - v->estimate_s;
    j->margins++;
}

static int on_decision(struct route_replay *j)
{
    const struct record_entry *e = &j->entry;
    struct route_verdict v;
    j->policy->decide(j->state, &e->view, &e->req, e->at_us, &j->rng, &v);
    const struct route_instance *theirs = find(&e->view, e->verdict.instance_id);
    if (!theirs || !route_takes(theirs)) return 0; /* held or refused then: nothing to compare */
    const struct route_instance *mine = find(&e->view, v.instance_id);
    note_margin(j);
    j->out.decisions++;
    j->out.refused += !mine;
    struct note *n = &j->note[e->id % NOTES];
    n->id = 0;
    if (mine == theirs) {
        j->out.agreed++;
        n->id = e->id;
        memcpy(n->scratch, v.scratch, sizeof n->scratch);
    }
    return mine ? compare_choices(j, mine, theirs) : 0;
}

static void on_event(struct route_replay *j)
{
    if (!j->policy->observe) return;
    struct route_event ev = j->entry.event;
    const struct note *n = &j->note[j->entry.id % NOTES];
    memset(ev.scratch, 0, sizeof ev.scratch);
    if (n->id == j->entry.id) memcpy(ev.scratch, n->scratch, sizeof ev.scratch);
    j->policy->observe(j->state, &ev);
}

static void on_row(struct route_replay *j)
{
    bool first = j->out.recorded[0] == '\0';
    bool same = strcmp(j->out.recorded, j->entry.row) == 0;
    const char *name = first || same ? j->entry.row : "several";
    memmove(j->out.recorded, name, strlen(name) + 1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct route_replay_regret summary(struct series *s)
{
    struct route_replay_regret r = { .mean_s = (double)NAN,
                                     .p50_s = (double)NAN,
                                     .p99_s = (double)NAN };
    if (s->count == 0) return r;
    r.mean_s = 0;
    qsort(s->value, s->count, sizeof *s->value, by_value);
    for (size_t i = 0; i < s->count; i++)
        r.mean_s += s->value[i] / (double)s->count;
    r.p50_s = s->value[s->count / 2];
    r.p99_s = s->value[min_size((size_t)((double)s->count * 0.99), s->count - 1)];
    return r;
}

int route_replay_record(struct str file, const struct route_policy *policy, uint64_t seed,
                        struct judgement *ret, struct err *err)
{
    CLEANUP(route_replay_freep) struct route_replay *j = calloc(1, sizeof *j);
    if (!j) return err_set(err, -ENOMEM, "no memory");
    j->policy = policy;
    rng_seed(&j->rng, seed);
    int rc = record_read_begin(&j->reader, file, err);
    if (rc < 0) return rc;
    while ((rc = record_read(&j->reader, &j->entry, err)) == 1) {
        int kept = 0;
        j->out.entries++;
        if (j->entry.kind == RECORD_ROW) on_row(j);
        if (j->entry.kind == RECORD_DECISION) kept = on_decision(j);
        if (j->entry.kind == RECORD_EVENT) on_event(j);
        if (kept < 0) return err_set(err, kept, "no memory");
    }
    if (rc < 0) return rc;
    j->out.torn = j->reader.torn;
    if (j->out.decisions == 0)
        return err_set(err, -ENODATA, "no request was placed in it%s",
                       j->out.torn ? ", and it ends within an entry" : "");
    j->out.margin_s = j->margins ? j->margin_sum_s / (double)j->margins : (double)NAN;
    j->out.regret = summary(&j->regret);
    j->out.regret_recorded = summary(&j->recorded);
    *ret = j->out;
    return 0;
}

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
      .about = "Routing policy to ask; `muster policies route` lists them." },
    { .name = "seed", .type = CONFIG_INT, .default_text = "1", .min = 0, .max = 9e15, AT(seed),
      .about = "Seed of the policy's chance." },
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
    .about = "Ask another routing policy what it would have done with each recorded decision.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes =
        "One step only: each view is of the world that the recorded choices made, so nothing "
        "is said of\nthe times that the other policy would have reached; `muster simulate` does "
        "that. Regret is the\npredicted TTFT of a choice less the least in the same view, and "
        "absent (- in the table, null\nin JSON) where no decision could be judged. A record that "
        "ends within an entry, its router\nhaving been killed or still writing, is judged as far "
        "as it goes: that is said, and is no failure.\n",
};

static void put_regret(struct json_writer *w, const char *name, const struct route_replay_regret *r)
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

/* Prints a dash for an absent value. */
static void put_cell(struct buf *out, double v, int digits, const char *unit)
{
    if (isnan(v)) {
        buf_printf(out, "  %10s", "-");
    } else {
        buf_printf(out, "  %*.*f%s", 10 - (int)strlen(unit), digits, v, unit);
    }
}

static void put_line(struct buf *out, const char *name, double agreed,
                     const struct route_replay_regret *r, double hit)
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
    buf_printf(out, "%-20s  %10s  %10s  %10s  %10s  %10s\n", "POLICY", "AGREES", "REGRET s",
               "P50 s", "P99 s", "CACHED");
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

static int find_policy(struct str name, const struct route_policy **ret, struct err *err)
{
    const char *names[64];
    *ret = route_find(name);
    if (*ret) return 0;
    for (uint32_t i = 0; i < route_count; i++)
        names[i] = route_table[i]->name;
    const char *near = str_nearest(name, names, route_count);
    return err_set(err, COMMAND_MISUSED,
                   "no routing policy '" STR_FMT "'%s%s; see `muster policies route`",
                   STR_ARG(name), near ? ", did you mean " : "", near ? near : "");
}

static int replay(const void *options, struct err *err)
{
    const struct replay_options *o = options;
    CLEANUP(buf_fini) struct buf file = { .max = RECORD_BYTES_MAX };
    CLEANUP(buf_fini) struct buf out = { 0 };
    const struct route_policy *policy;
    struct judgement j;
    int rc = find_policy(o->route, &policy, err);
    if (rc == 0) rc = file_read(o->file.data, RECORD_BYTES_MAX, &file, err);
    if (rc < 0) return rc;
    rc = route_replay_record(buf_view(&file), policy, (uint64_t)o->seed, &j, err);
    if (rc < 0) return err_prefix(err, rc, "%s", o->file.data);
    if (j.torn) {
        fprintf(stderr, "%s: %s ends within an entry: %llu whole ones were read\n", usage.name,
                o->file.data, (unsigned long long)j.entries);
    }
    if (o->output == REMOTE_JSON) {
        put_json(&j, policy->name, &out);
    } else {
        put_table(&j, policy->name, &out);
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
    .about = "ask another routing policy about recorded decisions",
    .run = run,
};
