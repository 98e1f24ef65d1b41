/* generate_spec.c - parses the specification of a generated trace, and prints its help, by two tables: its keys, and
 * its distributions.
 */
#include "base/core/bits.h"
#include "simulator/generate.h"
#include "simulator/generate_draw.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DAY_S 86400.0
#define KEYS_MAX 32             /* bits of a set of keys */
#define CYCLE_SECONDS_MAX 1e9   /* of bursts: beyond, a step no longer moves the time */
#define CYCLE_ARRIVALS_MIN 1e-3 /* of bursts: a schedule is walked step by step */

enum form { FORM_NUMBER, FORM_COUNT, FORM_DIST, FORM_RATE };

struct key {
    const char *name;
    enum form form;
    size_t offset;
    double min, max; /* of numbers, and of a distribution's mean */
    const char *about;
};

#define AT(member) offsetof(struct generate_spec, member)

static const struct key keys[] = {
    { "rate", FORM_RATE, 0, 0, 1e6,
      "arrivals a second: 0.5, steps(2:330,4:360), bursts(1,9,60,5)" },
    { "n", FORM_COUNT, AT(n), 1, TRACE_REQUESTS_MAX, "requests; or until the duration ends" },
    { "duration", FORM_NUMBER, AT(duration_s), 1e-3, TRACE_SPAN_S_MAX, "seconds of arrivals" },
    { "cv", FORM_NUMBER, AT(cv), 0.01, 20, "coefficient of variation of gamma's gaps" },
    { "prompt", FORM_DIST, AT(prompt), 1, 1e7, "tokens a request (a turn) adds" },
    { "output", FORM_DIST, AT(output), 1, 1e7, "tokens of an answer" },
    { "output_max", FORM_COUNT, AT(output_max), 1, 1e7, "limit that requests state" },
    { "tenants", FORM_COUNT, AT(tenants), 1, GENERATE_TENANTS_MAX, "tenants that send" },
    { "zipf", FORM_NUMBER, AT(zipf), 0, 5, "tenant k sends in proportion to 1 / k^zipf" },
    { "heavy", FORM_NUMBER, AT(heavy), 1, 1e6, "tenant 1 sends this many times its share" },
    { "services", FORM_COUNT, AT(services), 1, 1000, "services that requests are for, evenly" },
    { "turns", FORM_DIST, AT(turns), 1, 1e4, "turns of a conversation, which arrivals then start" },
    { "think", FORM_DIST, AT(think_s), 0, 1e6, "seconds between turns, answers included" },
    { "system", FORM_COUNT, AT(system_tokens), 1, 1e6, "tokens of a shared prefix" },
    { "systems", FORM_COUNT, AT(systems), 1, 1e6,
      "different shared prefixes, a tenant keeps its own" },
    { "block", FORM_COUNT, AT(block_tokens), 1, 65536, "tokens of a block of the trace" },
    { "context", FORM_COUNT, AT(context), 16, 1e7, "prompts end here, and conversations" },
};

_Static_assert(COUNT_OF(keys) <= KEYS_MAX, "a set of keys is a word");

static int wrong(struct str value, const char *name, const char *takes, struct err *err)
{
    return err_set(err, -EINVAL, "%s=" STR_FMT ": takes %s", name, STR_ARG(value), takes);
}

static int read_number(struct str text, const struct key *k, double *ret, struct err *err)
{
    double v;
    if (str_to_f64(text, &v) < 0 || v < k->min || v > k->max ||
        (k->form == FORM_COUNT && v != floor(v))) {
        return err_set(err, -EINVAL, "%s=" STR_FMT ": takes a %s in %.10g..%.10g", k->name,
                       STR_ARG(text), k->form == FORM_COUNT ? "whole number" : "number", k->min,
                       k->max);
    }
    *ret = v;
    return 0;
}

/* Splits name(a,b,c) into the name and the part in brackets; false without brackets. */
static bool split_call(struct str text, struct str *name, struct str *inside)
{
    size_t open = str_find(text, STR("("));
    if (open == SIZE_MAX || !str_ends(text, STR(")"))) return false;
    *name = str_of(text.data, open);
    *inside = str_of(text.data + open + 1, text.len - open - 2);
    return true;
}

static uint32_t read_numbers(struct str inside, double *ret, uint32_t max)
{
    uint32_t count = 0;
    while (inside.len > 0) {
        if (count == max || str_to_f64(str_trim(str_cut(&inside, ',')), &ret[count]) < 0) return 0;
        count++;
    }
    return count;
}

/* Says what a distribution takes: the rule of the shape that was named, or all forms. */
static int wrong_dist(struct str text, const char *name, const struct generate_shape *shape,
                      struct err *err)
{
    if (shape != &generate_shapes[0]) {
        return err_set(err, -EINVAL, "%s=" STR_FMT ": takes %s, %s", name, STR_ARG(text),
                       shape->form, shape->rule);
    }
    int rc = err_set(err, -EINVAL, "%s=" STR_FMT ": takes %s %s", name, STR_ARG(text), shape->form,
                     shape->rule);
    for (uint32_t i = 1; i < generate_shape_count && err; i++) {
        size_t at = strlen(err->text);
        snprintf(err->text + at, sizeof err->text - at, ", %s", generate_shapes[i].form);
    }
    return rc;
}

static int read_dist(struct str text, const struct key *k, struct generate_dist *ret,
                     struct err *err)
{
    struct str name = text, inside = text;
    struct generate_dist d = { .shape = &generate_shapes[0] }; /* a bare number is always drawn */
    if (split_call(text, &name, &inside)) {
        d.shape = generate_shape_find(name);
        if (!d.shape) {
            const char *names[GENERATE_SHAPES_MAX];
            for (uint32_t i = 0; i < generate_shape_count; i++)
                names[i] = generate_shapes[i].name;
            const char *near = str_nearest(name, names, generate_shape_count);
            return err_set(err, -EINVAL, "%s: no distribution '" STR_FMT "'%s%s%s", k->name,
                           STR_ARG(name), near ? ", did you mean '" : "", near ? near : "",
                           near ? "'?" : "");
        }
    }
    uint32_t count = read_numbers(inside, d.param, GENERATE_PARAMS_MAX);
    if (count != d.shape->params || !d.shape->valid(d.param)) {
        return wrong_dist(text, k->name, d.shape, err);
    }
    double mean = d.shape->mean(d.param);
    if (mean < k->min || mean > k->max) {
        return err_set(err, -EINVAL, "%s=" STR_FMT ": its mean is out of range %.10g..%.10g",
                       k->name, STR_ARG(text), k->min, k->max);
    }
    *ret = d;
    return 0;
}

static int read_steps(struct str inside, const struct key *k, struct generate_spec *s)
{
    s->step_count = 0;
    while (inside.len > 0) {
        struct str item = str_cut(&inside, ',');
        struct generate_rate step;
        struct str rate = str_trim(str_cut(&item, ':'));
        if (s->step_count == GENERATE_STEPS_MAX || str_to_f64(rate, &step.rate) < 0 ||
            str_to_f64(str_trim(item), &step.for_s) < 0 || step.rate < 0 || step.rate > k->max ||
            step.for_s <= 0) {
            return -EINVAL;
        }
        s->step[s->step_count++] = step;
    }
    return s->step_count > 0 ? 0 : -EINVAL;
}

static int read_rate(struct str text, const struct key *k, struct generate_spec *s, struct err *err)
{
    struct str name, inside;
    double v[4];
    s->bursts = false;
    if (!split_call(text, &name, &inside)) {
        if (str_to_f64(text, &v[0]) < 0 || v[0] <= k->min || v[0] > k->max) {
            return wrong(text, k->name, k->about, err);
        }
        s->step[0] = (struct generate_rate){ v[0], (double)INFINITY };
        s->step_count = 1;
        return 0;
    }
    if (str_eq(name, STR("steps"))) {
        return read_steps(inside, k, s) == 0
                   ? 0
                   : wrong(text, k->name, "steps(RATE:SECONDS,...), at most 64 of them", err);
    }
    if (!str_eq(name, STR("bursts")) || read_numbers(inside, v, 4) != 4 || v[0] < 0 || v[1] <= 0 ||
        fmax(v[0], v[1]) > k->max || fmin(v[2], v[3]) <= 0 ||
        fmax(v[2], v[3]) > CYCLE_SECONDS_MAX) {
        return wrong(text, k->name, k->about, err);
    }
    if (v[0] * v[2] + v[1] * v[3] < CYCLE_ARRIVALS_MIN) {
        return err_set(err, -EINVAL, "%s=" STR_FMT ": fewer than %g arrivals a cycle", k->name,
                       STR_ARG(text), CYCLE_ARRIVALS_MIN);
    }
    s->bursts = true;
    s->step[0] = (struct generate_rate){ v[0], v[2] };
    s->step[1] = (struct generate_rate){ v[1], v[3] };
    s->step_count = 2;
    return 0;
}

/* Reads one key; *seen has a bit for each key that was given. */
static int read_key(struct str name, struct str value, struct generate_spec *s, uint32_t *seen,
                    struct err *err)
{
    const char *names[COUNT_OF(keys)];
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        const struct key *k = &keys[i];
        void *at = (char *)s + k->offset;
        names[i] = k->name;
        if (!str_eq(name, str_from(k->name))) continue;
        if (*seen & (1u << i)) return err_set(err, -EINVAL, "%s= is given twice", k->name);
        *seen |= 1u << i;
        if (k->form == FORM_RATE) return read_rate(value, k, s, err);
        if (k->form == FORM_DIST) return read_dist(value, k, at, err);
        return read_number(value, k, at, err);
    }
    const char *near = str_nearest(name, names, COUNT_OF(keys));
    return err_set(err, -EINVAL, "no '" STR_FMT "' of a generated trace%s%s%s", STR_ARG(name),
                   near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* Cuts the text at the first comma outside of brackets. */
static struct str cut_outside(struct str *rest)
{
    uint32_t depth = 0;
    for (size_t i = 0; i < rest->len; i++) {
        char c = rest->data[i];
        if (c == '(') depth++;
        if (c == ')' && depth > 0) depth--;
        if (c != ',' || depth > 0) continue;
        struct str item = str_of(rest->data, i);
        *rest = str_of(rest->data + i + 1, rest->len - i - 1);
        return item;
    }
    struct str item = *rest;
    *rest = (struct str){ 0 };
    return item;
}

/* Returns how long n requests take at a steady rate; 0 where the rate is a schedule. */
static double steady_span_s(const struct generate_spec *s)
{
    if (s->bursts || isfinite(s->step[s->step_count - 1].for_s) || s->duration_s > 0) return 0;
    double turns = s->turns.shape ? s->turns.shape->mean(s->turns.param) : 1;
    return s->n / (s->step[0].rate * turns);
}

static int check(const struct generate_spec *s, struct err *err)
{
    if (s->step_count == 0) return err_set(err, -EINVAL, "a generated trace needs rate=");
    bool ends = !s->bursts && isfinite(s->step[s->step_count - 1].for_s);
    if (!ends && s->n == 0 && s->duration_s == 0) {
        return err_set(err, -EINVAL, "a generated trace needs n= or duration=");
    }
    if (steady_span_s(s) > TRACE_SPAN_S_MAX) {
        return err_set(err, -EINVAL, "rate=%g: n=%g of them take %.3g days, at most %.0f",
                       s->step[0].rate, s->n, steady_span_s(s) / DAY_S, TRACE_SPAN_S_MAX / DAY_S);
    }
    if (!s->prompt.shape || !s->output.shape) {
        return err_set(err, -EINVAL, "a generated trace needs prompt= and output=");
    }
    if (s->tenants == 0 && (s->zipf > 0 || s->heavy > 0)) {
        return err_set(err, -EINVAL, "zipf= and heavy= need tenants=");
    }
    if (s->cv > 0 && !s->spacing->takes_cv) {
        return err_set(err, -EINVAL, "cv= goes with gamma, not with %s", s->spacing->name);
    }
    if (s->systems > 0 && s->system_tokens == 0) {
        return err_set(err, -EINVAL, "systems= needs system=");
    }
    if (!s->turns.shape != !s->think_s.shape) {
        return err_set(err, -EINVAL, "turns= and think= go together");
    }
    if (s->system_tokens >= s->context) {
        return err_set(err, -EINVAL, "system=%g does not fit context=%g", s->system_tokens,
                       s->context);
    }
    return 0;
}

int generate_parse(struct str text, struct generate_spec *ret, struct err *err)
{
    struct generate_spec s = { .block_tokens = 16, .context = 131072 };
    struct str rest = text, first = str_trim(cut_outside(&rest));
    uint32_t seen = 0;
    s.spacing = generate_spacing_find(first);
    if (!s.spacing) {
        return err_set(err, -EINVAL, "'" STR_FMT "': arrivals are %s", STR_ARG(first),
                       generate_spacing_names);
    }
    while (rest.data) { /* also the empty text behind a last comma, which is refused */
        struct str value = str_trim(cut_outside(&rest));
        if (str_find(value, STR("=")) == SIZE_MAX) {
            return err_set(err, -EINVAL, "'" STR_FMT "': a generated trace is said as KEY=VALUE",
                           STR_ARG(value));
        }
        struct str name = str_trim(str_cut(&value, '='));
        int rc = read_key(name, str_trim(value), &s, &seen, err);
        if (rc < 0) return rc;
    }
    int rc = check(&s, err);
    if (rc == 0) *ret = s;
    return rc;
}

int generate_help(struct buf *out)
{
    buf_printf(
        out,
        "  --trace gen:ARRIVALS,KEY=VALUE,...   arrivals are %s;\n"
        "  for example gen:poisson,rate=0.5,prompt=lognormal(64,1),output=lognormal(150,2.3),"
        "n=5000\n",
        generate_spacing_names);
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        buf_printf(out, "    %-10s %s%s\n", keys[i].name, keys[i].about,
                   keys[i].form == FORM_DIST ? " (a distribution)" : "");
    }
    buf_text(out, "  distributions:\n   ");
    for (uint32_t i = 0; i < generate_shape_count; i++)
        buf_printf(out, "%s %s", i > 0 ? "," : "", generate_shapes[i].form);
    buf_byte(out, '\n');
    return out->rc;
}
