/* sim_arms.c - run the arms of a comparison and show them as JSON and as tables.
 *
 * An arm is a command line: the given one followed by `--OPTION=VALUE` of each choice, so that every option
 * can be compared. Results are values with intervals, then differences from the first arm on the same
 * seeds.
 */
#include "cli/simulate/sim_arms.h"

#include "base/core/bits.h"
#include "base/io/loop/lock.h"
#include "cli/input_file.h"
#include "cli/simulate/sim_config.h"
#include "cli/simulate/sim_file.h"
#include "simulator/stats.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define DIMENSIONS_MAX 8
#define JOBS_MAX 256
#define GENERATED "gen:"

/* One option and the values that it takes. */
struct dimension {
    struct str option;
    const struct str *value; /* the first still has "option=" before it */
    uint32_t count;
};

static struct str value_of(const struct dimension *d, uint32_t index)
{
    struct str v = d->value[index];
    return index > 0 ? v : str_of(v.data + d->option.len + 1, v.len - d->option.len - 1);
}

/* Returns true if letters and dashes precede a '=', as in "route=a"; "1xmeasured:a=0.02" is a value. */
static bool names_option(struct str text)
{
    struct str name = str_cut(&text, '=');
    for (size_t i = 0; i < name.len; i++)
        if ((name.data[i] < 'a' || name.data[i] > 'z') && name.data[i] != '-') return false;
    return text.data && name.len > 0;
}

/* Reads the choices from "route=a", "b", "c", "order=x", "y": lists were cut at commas already. */
static int read_dimensions(const struct config_texts *texts, struct dimension *ret,
                           uint32_t *ret_count, struct err *err)
{
    static const char *const not_compared[] = { "compare", "seed", "seeds", "jobs", "output" };
    uint32_t count = 0;
    for (size_t i = 0; i < texts->count; i++) {
        struct str text = texts->items[i];
        if (!names_option(text)) {
            if (count == 0)
                return err_set(err, -EINVAL, "--compare: '" STR_FMT "' is not OPTION=A,B,C",
                               STR_ARG(text));
            ret[count - 1].count++;
            continue;
        }
        if (count == DIMENSIONS_MAX)
            return err_set(err, -EINVAL, "--compare: at most %d options", DIMENSIONS_MAX);
        struct str option = str_cut(&text, '=');
        for (size_t k = 0; k < COUNT_OF(not_compared); k++) {
            if (str_eq(option, str_from(not_compared[k])))
                return err_set(err, -EINVAL, "--compare: --%s is not compared", not_compared[k]);
        }
        for (uint32_t k = 0; k < count; k++) {
            if (str_eq(option, ret[k].option))
                return err_set(err, -EINVAL,
                               "--compare: " STR_FMT " is given twice; all its values go behind "
                               "one, as in " STR_FMT "=A,B,C",
                               STR_ARG(option), STR_ARG(option));
        }
        ret[count++] = (struct dimension){ option, &texts->items[i], 1 };
    }
    *ret_count = count;
    return 0;
}

/* ---- an arm --------------------------------------------------------------------------------- */

static bool same_trace(const struct sim_options *a, const struct sim_options *b)
{
    return str_eq(a->trace, b->trace) && a->format == b->format && a->speed == b->speed &&
           a->scale == b->scale && a->requests == b->requests;
}

static int shape(const struct sim_options *o, struct trace *t, struct err *err)
{
    return trace_shape(t, (uint32_t)o->requests, (uint32_t)o->scale, o->speed, err);
}

static bool is_generated(const struct sim_arm *arm)
{
    return str_starts(arm->options.trace, STR(GENERATED));
}

static int read_generated(struct sim_arm *arm, struct err *err)
{
    struct str text = arm->options.trace;
    struct str spec = str_of(text.data + strlen(GENERATED), text.len - strlen(GENERATED));
    int rc = generate_parse(spec, &arm->generate, err);
    return rc < 0 ? err_prefix(err, rc, "--trace") : 0;
}

/* Reads and shapes a file once for all arms that want it alike. */
static int load_trace(struct sim_arms *a, struct sim_arm *arm, struct err *err)
{
    if (is_generated(arm)) return 0;
    for (const struct sim_arm *other = a->arm; other < arm; other++) {
        if (!same_trace(&other->options, &arm->options)) continue;
        arm->trace = other->trace;
        return 0;
    }
    int rc = trace_file_load(arm->options.trace.data, (enum trace_format)arm->options.format,
                             &arm->trace_owned, err);
    if (rc == 0) rc = shape(&arm->options, arm->trace_owned, err);
    arm->trace = arm->trace_owned;
    return rc;
}

/* Makes the arm's command line: the given words, then the choices of combination `number`. */
static int choose(struct sim_arm *arm, int argc, char *const *argv, const struct dimension *dim,
                  uint32_t dims, uint32_t number)
{
    arm->word = calloc((size_t)argc + dims + 1, sizeof *arm->word);
    if (!arm->word) return -ENOMEM;
    memcpy(arm->word, argv, (size_t)argc * sizeof *argv);
    arm->word_count = arm->word_given = argc;
    for (uint32_t d = 0; d < dims; d++) {
        struct str option = dim[d].option, value = value_of(&dim[d], number % dim[d].count);
        number /= dim[d].count;
        buf_printf(&arm->name, "%s" STR_FMT "=" STR_FMT, d > 0 ? " " : "", STR_ARG(option),
                   STR_ARG(value));
        char *word;
        if (asprintf(&word, "--" STR_FMT "=" STR_FMT, STR_ARG(option), STR_ARG(value)) < 0)
            return -ENOMEM;
        arm->word[arm->word_count++] = word;
    }
    return arm->name.rc;
}

static int init_arm(struct sim_arms *a, struct sim_arm *arm, const struct opt_command *usage,
                    struct err *err)
{
    int rc = opt_parse(usage, arm->word_count, arm->word, &arm->options, &arm->parsed, err);
    arm->options.said = arm->parsed.said;
    if (rc == 0) rc = sim_config_make(&arm->options, &arm->config, &arm->control, err);
    if (rc == 0 && is_generated(arm)) rc = read_generated(arm, err);
    if (rc == -ERANGE) return -EINVAL; /* as for a value that is given without --compare */
    if (rc < 0) return rc;
    arm->run = calloc(a->seeds, sizeof *arm->run);
    return arm->run ? 0 : err_set(err, -ENOMEM, "no memory for %u runs", a->seeds);
}

int sim_arms_init(struct sim_arms *a, const struct opt_command *usage, int argc, char *const *argv,
                  const struct sim_options *first, struct err *err)
{
    struct dimension dim[DIMENSIONS_MAX];
    uint32_t dims = 0, combinations = 1;
    *a = (struct sim_arms){ .seeds = (uint32_t)first->seeds };
    int rc = read_dimensions(&first->compare, dim, &dims, err);
    if (rc < 0) return rc;
    for (uint32_t d = 0; d < dims && combinations <= SIM_ARMS_MAX; d++)
        combinations *= dim[d].count;
    if (combinations > SIM_ARMS_MAX)
        return err_set(err, -EINVAL, "--compare: more than %d arms", SIM_ARMS_MAX);
    a->arm = calloc(combinations, sizeof *a->arm);
    if (!a->arm) return err_set(err, -ENOMEM, "no memory for %u arms", combinations);
    for (uint32_t n = 0; rc == 0 && n < combinations; n++) {
        struct sim_arm *arm = &a->arm[a->count++];
        rc = choose(arm, argc, argv, dim, dims, n);
        if (rc < 0) return err_set(err, rc, "no memory for an arm");
        rc = init_arm(a, arm, usage, err);
    }
    uint32_t idle = UINT32_MAX;
    for (uint32_t i = 0; i < a->count && rc == 0; i++)
        idle &= sim_scaling_idle(&a->arm[i].options, &a->arm[i].config);
    return rc == 0 && idle ? sim_scaling_idle_say(idle, err) : rc;
}

void sim_arms_fini(struct sim_arms *a)
{
    for (uint32_t i = 0; i < a->count; i++) {
        struct sim_arm *arm = &a->arm[i];
        for (int w = arm->word_given; w < arm->word_count; w++)
            free(arm->word[w]);
        free(arm->word);
        buf_fini(&arm->name);
        opt_parsed_fini(&arm->parsed);
        trace_free(arm->trace_owned);
        free(arm->run);
    }
    free(a->arm);
    *a = (struct sim_arms){ 0 };
}

/* ---- the runs ------------------------------------------------------------------------------- */

struct workers {
    struct sim_arms *arms;
    struct lock lock;            /* guards what follows */
    uint32_t next, done, failed; /* failed: the first run in order that did; UINT32_MAX: none */
    int rc;
    struct err err;
    bool show;
};

static double thread_cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Runs one arm with one seed. The generator uses the run's seed: every seed has its own trace, the same in
 * every arm. */
static int run_one(const struct sim_arm *arm, uint32_t index, struct report *ret, struct err *err)
{
    CLEANUP(trace_freep) struct trace *generated = NULL;
    struct sim_config config = arm->config;
    struct sim_result result;
    config.seed += index;
    const struct trace *trace = arm->trace;
    if (!trace) {
        int rc = generate_trace(&arm->generate, config.seed, &generated, err);
        if (rc == 0) rc = shape(&arm->options, generated, err);
        if (rc < 0) return err_prefix(err, rc, "--trace");
        trace = generated;
    }
    double before_s = thread_cpu_s();
    int rc = sim_run(&config, trace, &result, err);
    if (rc < 0) return rc;
    result.cpu_s = thread_cpu_s() - before_s;
    rc = report_make(&config, &result, ret);
    sim_result_fini(&result);
    return rc < 0 ? err_set(err, rc, "no memory for a report") : 0;
}

static void note(struct workers *w, uint32_t number, int rc, const struct err *err)
{
    lock_assert_held(&w->lock);
    uint32_t count = w->arms->count * w->arms->seeds;
    w->done++;
    if (rc == -ENODATA && w->arms->count > 1) {
        w->arms->arm[number / w->arms->seeds].missing = *err;
        rc = 0;
    }
    if (rc < 0 && number < w->failed) {
        w->failed = number;
        w->rc = rc;
        w->err = *err;
    }
    if (w->show) fprintf(stderr, "\r%u of %u runs ", w->done, count);
}

static void *work(void *arg)
{
    struct workers *w = arg;
    uint32_t count = w->arms->count * w->arms->seeds;
    lock_take(&w->lock);
    while (w->next < count && w->failed == UINT32_MAX) {
        uint32_t number = w->next++, seed = number % w->arms->seeds;
        struct sim_arm *arm = &w->arms->arm[number / w->arms->seeds];
        struct err err = { 0 };
        lock_drop(&w->lock);
        int rc = run_one(arm, seed, &arm->run[seed], &err);
        lock_take(&w->lock);
        note(w, number, rc, &err);
    }
    lock_drop(&w->lock);
    return NULL;
}

int sim_arms_load(struct sim_arms *a, struct err *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < a->count; i++)
        rc = load_trace(a, &a->arm[i], err);
    return rc;
}

int sim_arms_run(struct sim_arms *a, uint32_t jobs, struct err *err)
{
    uint32_t count = a->count * a->seeds, started = 0;
    pthread_t thread[JOBS_MAX];
    struct workers w = { .arms = a,
                         .lock = LOCK_INIT,
                         .failed = UINT32_MAX,
                         .show = count > 1 && isatty(STDERR_FILENO) };
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (jobs == 0) jobs = cores > 0 ? (uint32_t)cores : 1;
    jobs = min_u32(min_u32(jobs, count), JOBS_MAX);
    /* This thread is one of the workers, so that the work is done even if no thread can be started. */
    while (started + 1 < jobs && pthread_create(&thread[started], NULL, work, &w) == 0)
        started++;
    work(&w);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    lock_fini(&w.lock);
    if (w.show) fputs("\r\033[K", stderr);
    if (w.rc < 0) return err_set(err, w.rc, "%s", err_text(&w.err, w.rc));
    return 0;
}

#define SEEDS_MAX 1000 /* as --seeds */

/* One figure of an arm: over its seeds, and against the first arm on the same seeds. */
struct figure {
    struct stats_mean value, difference;
};

static struct figure figure(const struct sim_arms *a, uint32_t arm, const struct report_metric *m)
{
    double value[SEEDS_MAX], base[SEEDS_MAX];
    for (uint32_t s = 0; s < a->seeds; s++) {
        value[s] = m->value(&a->arm[arm].run[s]);
        base[s] = m->value(&a->arm[0].run[s]);
    }
    return (struct figure){ stats_mean(value, a->seeds), stats_paired(value, base, a->seeds) };
}

static bool alone(const struct sim_arms *a)
{
    return a->count == 1 && a->seeds == 1;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_figures(struct json_writer *w, const struct sim_arms *a, uint32_t arm, bool paired)
{
    json_key(w, paired ? "difference" : "mean");
    json_object(w);
    for (uint32_t i = 0; i < report_metric_count; i++) {
        struct figure f = figure(a, arm, &report_metrics[i]);
        stats_mean_json(w, report_metrics[i].name, paired ? f.difference : f.value);
    }
    json_object_end(w);
}

int sim_arms_json(const struct sim_arms *a, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    if (alone(a)) {
        report_json(a->arm[0].run, &w);
        return buf_byte(out, '\n');
    }
    json_object(&w);
    json_kv_u64(&w, "seeds", a->seeds);
    json_key(&w, "arms");
    json_array(&w);
    for (uint32_t i = 0; i < a->count; i++) {
        json_object(&w);
        json_kv_str(&w, "name", buf_view(&a->arm[i].name));
        if (a->arm[i].missing.text[0]) {
            json_kv_text(&w, "not_applicable", a->arm[i].missing.text);
            json_object_end(&w);
            continue;
        }
        put_figures(&w, a, i, false);
        if (i > 0 && !a->arm[0].missing.text[0]) put_figures(&w, a, i, true);
        json_key(&w, "runs");
        json_array(&w);
        for (uint32_t s = 0; s < a->seeds; s++)
            report_json(&a->arm[i].run[s], &w);
        json_array_end(&w);
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
    return buf_byte(out, '\n');
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Aligns a cell to the right by characters: a plus-minus sign is two bytes. */
static void put_cell(struct buf *out, struct buf *cell, int width)
{
    int shown = (int)cell->len;
    for (size_t i = 0; i < cell->len; i++)
        shown -= ((unsigned char)cell->data[i] & 0xc0) == 0x80;
    buf_printf(out, "  %*s" STR_FMT, shown < width ? width - shown : 0, "",
               STR_ARG(buf_view(cell)));
    buf_clear(cell);
}

static int name_width(const struct sim_arms *a)
{
    size_t width = 8;
    for (uint32_t i = 0; i < a->count; i++)
        width = a->arm[i].name.len > width ? a->arm[i].name.len : width;
    return (int)width;
}

/* Returns true if the column is shown; one that no arm has a number for is left out. */
static bool is_shown(const struct sim_arms *a, const struct report_metric *m)
{
    for (uint32_t i = 0; m->shown && i < a->count; i++)
        if (!a->arm[i].missing.text[0] && !isnan(m->value(a->arm[i].run))) return true;
    return false;
}

static void put_titles(const struct sim_arms *a, const char *what, int width, struct buf *out)
{
    CLEANUP(buf_fini) struct buf cell = { 0 };
    buf_printf(out, "%-*s", name_width(a), what);
    for (uint32_t i = 0; i < report_metric_count; i++) {
        if (!is_shown(a, &report_metrics[i])) continue;
        buf_text(&cell, report_metrics[i].title);
        put_cell(out, &cell, width);
    }
    buf_byte(out, '\n');
}

/* Appends the difference from the first arm: per cent of its mean, or points where the figure is a share. */
static void put_difference(struct buf *cell, const struct figure *f, const struct figure *base,
                           const struct report_metric *m)
{
    if (m->share) {
        stats_mean_text(cell, f->difference, m->factor, 2, true);
    } else if (base->value.mean != 0) {
        stats_mean_text(cell, f->difference, 100 / base->value.mean, 1, true);
        buf_text(cell, isnan(f->difference.mean) ? "" : " %");
    } else {
        stats_mean_text(cell, f->difference, m->factor, m->digits, true);
    }
}

static void put_arm(const struct sim_arms *a, uint32_t arm, bool paired, int width, struct buf *out)
{
    CLEANUP(buf_fini) struct buf cell = { 0 };
    struct str name = a->arm[arm].name.len > 0 ? buf_view(&a->arm[arm].name) : STR("all");
    buf_printf(out, "%-*.*s", name_width(a), (int)name.len, name.data);
    if (a->arm[arm].missing.text[0]) {
        buf_printf(out, "  %s\n", a->arm[arm].missing.text);
        return;
    }
    for (uint32_t i = 0; i < report_metric_count; i++) {
        const struct report_metric *m = &report_metrics[i];
        if (!is_shown(a, m)) continue;
        struct figure f = figure(a, arm, m), base = figure(a, 0, m);
        if (paired) {
            put_difference(&cell, &f, &base, m);
        } else {
            stats_mean_text(&cell, f.value, m->factor, m->digits, false);
        }
        put_cell(out, &cell, width);
    }
    buf_byte(out, '\n');
}

int sim_arms_table(const struct sim_arms *a, struct buf *out)
{
    if (alone(a)) return report_table(a->arm[0].run, out);
    int width = a->seeds > 1 ? 16 : 10;
    put_titles(a, "", width, out);
    for (uint32_t i = 0; i < a->count; i++)
        put_arm(a, i, false, width, out);
    if (a->count > 1 && !a->arm[0].missing.text[0]) {
        buf_byte(out, '\n');
        put_titles(a, "against the first", width, out);
        for (uint32_t i = 1; i < a->count; i++)
            if (!a->arm[i].missing.text[0]) put_arm(a, i, true, width, out);
    }
    bool extrapolated = false;
    for (uint32_t i = 0; i < a->count; i++)
        extrapolated |= a->arm[i].run[0].extrapolated;
    if (a->seeds > 1)
        buf_printf(out, "\n%u seeds; \u00b1 is Student's 95 %% interval, of differences paired\n",
                   a->seeds);
    buf_text(out, "means over completed requests; in quantiles a miss is infinite\n");
    if (extrapolated)
        buf_text(out, "extrapolated: some step times come from no measured table (hardware, "
                      "attention, links, ranges)\n");
    return out->rc;
}
