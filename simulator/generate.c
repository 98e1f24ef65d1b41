/* generate.c - generates requests in order of time: a new conversation's first turn, or the next of another.
 *
 * Gaps of mean 1 are drawn and laid along the integral of the rate, so that every spacing works
 * with every schedule. A conversation's prompt is the shared prefix, the turns so far, and the tokens
 * that this turn adds; its blocks but the last, partial one keep their ids from turn to turn.
 *
 * The parser of a specification, and its help, use two tables: its keys, and its distributions. */

#include "simulator/generate.h"

#include "base/core/bits.h"
#include "base/core/heap.h"
#include "base/core/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

enum purpose { ARRIVALS = 0x67656e, BURSTS, TENANT, SYSTEM, LENGTHS, THINK, BLOCKS, SERVICE };

#define LIVE_MAX 1000000 /* conversations at once */

/* Walks the rate's integral forwards. */
struct clockwork {
    const struct generate_spec *spec;
    struct rng gaps, bursts;
    uint32_t step;
    double at_s, step_ends_s;
    bool started;
};

struct conversation {
    struct heap_node node; /* first: by the next turn's time */
    uint32_t number, turn, turns, tenant, system, service;
    uint32_t spoken; /* tokens of prompt and output so far */
    struct rng lengths, think;
};

struct generator {
    const struct generate_spec *spec;
    uint64_t seed;
    struct clockwork clock;
    double *weight; /* cumulative, one a tenant */
    uint32_t conversations;
    struct heap live;
    uint64_t *block; /* scratch: context / block_tokens */
    struct trace *trace;
};

static double draw(const struct generate_dist *d, struct rng *rng)
{
    return d->shape->draw(d->param, rng);
}

static uint32_t draw_count(const struct generate_dist *d, struct rng *rng, double max)
{
    return (uint32_t)fmin(fmax(round(draw(d, rng)), 1), max);
}

static double step_length_s(struct clockwork *c)
{
    double for_s = c->spec->step[c->step].for_s;
    return c->spec->bursts ? rng_exp(&c->bursts, for_s) : for_s;
}

static void clockwork_init(struct clockwork *c, const struct generate_spec *spec, uint64_t seed)
{
    *c = (struct clockwork){ .spec = spec };
    rng_stream(&c->gaps, seed, 0, ARRIVALS);
    rng_stream(&c->bursts, seed, 0, BURSTS);
    c->step_ends_s = step_length_s(c);
}

/* Returns the time of the next arrival in seconds; INFINITY when the schedule has ended. Evenly spaced
 * arrivals begin with the schedule, others a gap after it. */
static double clockwork_next(struct clockwork *c)
{
    double gap = c->spec->spacing->gap(c->spec->cv > 0 ? c->spec->cv : 1, &c->gaps);
    if (!c->started && c->spec->spacing->regular) gap = 0;
    c->started = true;
    for (;;) {
        double rate = c->spec->step[c->step].rate;
        double left = (c->step_ends_s - c->at_s) * rate;
        if (gap < left) {
            c->at_s += gap / rate;
            return c->at_s;
        }
        if (rate > 0) gap -= left;
        c->at_s = c->step_ends_s;
        c->step++;
        if (c->step == c->spec->step_count && c->spec->bursts) c->step = 0;
        if (c->step == c->spec->step_count) {
            c->step--; /* stays at the end for further calls */
            return (double)INFINITY;
        }
        c->step_ends_s += step_length_s(c);
    }
}

/* Fills the tenants' cumulative weights: tenant k (from 1) weighs 1 / k^zipf, the first `heavy` times that. */
static int weigh_tenants(struct generator *g, struct err *err)
{
    uint32_t count = (uint32_t)g->spec->tenants;
    if (count == 0) return 0;
    g->weight = malloc(count * sizeof *g->weight);
    if (!g->weight) return err_set(err, -ENOMEM, "no memory for tenants");
    double sum = 0;
    for (uint32_t k = 0; k < count; k++) {
        double w = pow(k + 1, -g->spec->zipf);
        if (k == 0 && g->spec->heavy > 0) w *= g->spec->heavy;
        g->weight[k] = sum += w;
    }
    return 0;
}

static uint32_t pick_tenant(const struct generator *g, uint32_t number)
{
    uint32_t count = (uint32_t)g->spec->tenants;
    if (count == 0) return 0;
    struct rng rng;
    rng_stream(&rng, g->seed, number, TENANT);
    double at = rng_f64(&rng) * g->weight[count - 1];
    uint32_t low = 0, high = count - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (g->weight[middle] > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low + 1;
}

static uint32_t pick_system(const struct generator *g, uint32_t number, uint32_t tenant)
{
    uint64_t systems = g->spec->systems > 0 ? (uint64_t)g->spec->systems : 1;
    if (tenant > 0) return (uint32_t)(tenant % systems);
    struct rng rng;
    rng_stream(&rng, g->seed, number, SYSTEM);
    return (uint32_t)rng_below(&rng, systems);
}

static void conversation_init(struct generator *g, struct conversation *c)
{
    uint32_t number = ++g->conversations;
    *c = (struct conversation){ .number = number, .turns = 1 };
    rng_stream(&c->lengths, g->seed, number, LENGTHS);
    rng_stream(&c->think, g->seed, number, THINK);
    c->tenant = pick_tenant(g, number);
    c->system = pick_system(g, number, c->tenant);
    struct rng rng;
    rng_stream(&rng, g->seed, number, SERVICE);
    c->service = (uint32_t)rng_below(&rng, (uint64_t)g->spec->services);
    if (g->spec->turns.shape) c->turns = draw_count(&g->spec->turns, &c->think, 1e6);
    c->spoken = (uint32_t)g->spec->system_tokens;
}

/* Names a prompt's blocks: first those of its shared prefix, then those of its conversation. A partial
 * last block is shared with no other prompt. */
static uint32_t name_blocks(struct generator *g, const struct conversation *c, uint32_t prompt)
{
    if (g->trace->block_tokens == 0) return 0;
    uint32_t size = g->trace->block_tokens, count = ceil_div_u32(prompt, size);
    uint32_t shared = (uint32_t)g->spec->system_tokens / size;
    uint64_t system = rng_at(rng_at(g->seed, c->system), SYSTEM);
    uint64_t own = rng_at(rng_at(g->seed, c->number), BLOCKS);
    for (uint32_t i = 0; i < count; i++)
        g->block[i] = rng_at(i < shared ? system : own, i);
    if (prompt % size > 0) g->block[count - 1] = rng_at(rng_at(own, count - 1), c->turn);
    return count;
}

static int say(struct generator *g, struct conversation *c, int64_t at_us, struct err *err)
{
    const struct generate_spec *s = g->spec;
    double room = s->context - c->spoken;
    uint32_t added = draw_count(&s->prompt, &c->lengths, fmax(room, 1));
    uint32_t prompt = c->spoken + added;
    uint32_t output = draw_count(&s->output, &c->lengths, s->output_max > 0 ? s->output_max : 1e7);
    c->turn++;
    struct trace_request r = {
        .at_us = at_us,
        .prompt_tokens = prompt,
        .output_tokens = output,
        .output_max = (uint32_t)s->output_max,
        .tenant = c->tenant,
        .service = c->service,
        .session = s->turns.shape ? c->number : 0,
        .turn = s->turns.shape ? c->turn : 0,
        .block_count = name_blocks(g, c, prompt),
    };
    c->spoken = prompt + output;
    return trace_append(g->trace, &r, g->block, (struct str){ 0 }, err);
}

static bool goes_on(const struct generator *g, const struct conversation *c)
{
    return c->turn < c->turns && c->spoken < g->spec->context;
}

static int64_t next_turn_us(struct generator *g, struct conversation *c, int64_t at_us)
{
    double think_s = draw(&g->spec->think_s, &c->think);
    return at_us + (int64_t)(fmin(fmax(think_s, 0), TRACE_SPAN_S_MAX) * 1e6);
}

static int open_conversation(struct generator *g, int64_t at_us, struct err *err)
{
    struct conversation first;
    conversation_init(g, &first);
    int rc = say(g, &first, at_us, err);
    if (rc < 0 || !goes_on(g, &first)) return rc;
    struct conversation *c = malloc(sizeof *c);
    if (!c) return err_set(err, -ENOMEM, "no memory for a conversation");
    *c = first;
    rc = heap_push(&g->live, &c->node, next_turn_us(g, c, at_us));
    if (rc == 0) return 0;
    free(c);
    return err_set(err, rc, "more than %d conversations at once", LIVE_MAX);
}

static int continue_conversation(struct generator *g, struct err *err)
{
    struct conversation *c = (struct conversation *)heap_pop(&g->live); /* its first member */
    int64_t at_us = c->node.key;
    int rc = say(g, c, at_us, err);
    if (rc == 0 && goes_on(g, c)) return heap_push(&g->live, &c->node, next_turn_us(g, c, at_us));
    free(c);
    return rc;
}

/* Ends the generation, with an error if the longest span cuts requests off. */
static int ended(const struct generator *g, bool at_span, struct err *err)
{
    if (at_span && g->spec->duration_s <= 0) {
        return err_set(err, -EINVAL,
                       "%u requests take the %.0f days that a trace spans at most, and more follow",
                       g->trace->count, TRACE_SPAN_S_MAX / 86400);
    }
    return g->trace->count > 0 ? 0 : err_set(err, -EINVAL, "no request was generated");
}

static int run(struct generator *g, struct err *err)
{
    double n = g->spec->n > 0 ? g->spec->n : TRACE_REQUESTS_MAX + 1.0;
    double end_us = (g->spec->duration_s > 0 ? g->spec->duration_s : TRACE_SPAN_S_MAX) * 1e6;
    double start_us = clockwork_next(&g->clock) * 1e6;
    while (g->trace->count < n) {
        const struct heap_node *turn = heap_peek(&g->live);
        double turn_us = turn ? (double)turn->key : (double)INFINITY;
        double at_us = fmin(start_us, turn_us);
        if (!(at_us < end_us)) return ended(g, isfinite(at_us), err);
        int rc = turn_us < start_us ? continue_conversation(g, err)
                                    : open_conversation(g, (int64_t)start_us, err);
        if (rc < 0) return rc;
        if (turn_us >= start_us) start_us = clockwork_next(&g->clock) * 1e6;
    }
    return ended(g, false, err);
}

int generate_trace(const struct generate_spec *spec, uint64_t seed, struct trace **ret,
                   struct err *err)
{
    CLEANUP(trace_freep) struct trace *trace = NULL;
    struct generator g = { .spec = spec, .seed = seed };
    int rc = trace_new(&trace, err);
    if (rc == 0) rc = weigh_tenants(&g, err);
    if (rc == 0 && (spec->turns.shape || spec->system_tokens > 0)) {
        trace->block_tokens = (uint32_t)spec->block_tokens;
        g.block = malloc((size_t)(spec->context / spec->block_tokens + 2) * sizeof *g.block);
        if (!g.block) rc = err_set(err, -ENOMEM, "no memory for blocks");
    }
    if (rc == 0) {
        g.trace = trace;
        clockwork_init(&g.clock, spec, seed);
        heap_init(&g.live, LIVE_MAX);
        rc = run(&g, err);
        struct heap_node *left;
        while ((left = heap_pop(&g.live)))
            free(left);
        heap_fini(&g.live);
    }
    free(g.weight);
    free(g.block);
    if (rc == 0) *ret = TAKE(trace);
    return rc;
}

/* ---- distributions and spacings ----
 *
 *     lognormal: s^2 = ln(1 + C2), m = ln(mean) - s^2 / 2, with C2 the squared coefficient of variation
 *     gamma:     shape 1 / cv^2, mean 1 (Marsaglia and Tsang 2000; below shape 1 by the boost
 *                U^(1/shape) of shape + 1)
 */

static bool any_valid(const double *p)
{
    return p[0] >= 0;
}

static double first_mean(const double *p)
{
    return p[0];
}

static double fixed_draw(const double *p, struct rng *rng)
{
    (void)rng;
    return p[0];
}

#define LOGNORMAL_C2_MAX 1000 /* beyond it the mean of any trace is far from MEAN */

static bool lognormal_valid(const double *p)
{
    return p[0] > 0 && p[1] >= 0 && p[1] <= LOGNORMAL_C2_MAX;
}

static double lognormal_draw(const double *p, struct rng *rng)
{
    double variance = log1p(p[1]);
    return exp(log(p[0]) - variance / 2 + sqrt(variance) * rng_normal(rng));
}

static bool normal_valid(const double *p)
{
    return p[1] >= 0 && p[2] >= 0 && p[2] <= p[0] && p[0] <= p[3];
}

static double normal_draw(const double *p, struct rng *rng)
{
    return fmin(fmax(p[0] + p[1] * rng_normal(rng), p[2]), p[3]);
}

static bool uniform_valid(const double *p)
{
    return p[0] >= 0 && p[0] <= p[1];
}

static double uniform_mean(const double *p)
{
    return (p[0] + p[1]) / 2;
}

static double uniform_draw(const double *p, struct rng *rng)
{
    return p[0] + (p[1] - p[0]) * rng_f64(rng);
}

static double exponential_draw(const double *p, struct rng *rng)
{
    return rng_exp(rng, p[0]);
}

// clang-format off
const struct generate_shape generate_shapes[] = {
    { "fixed", "NUMBER", "from 0", 1, any_valid, first_mean, fixed_draw },
    { "lognormal", "lognormal(MEAN,C2)", "C2 from 0 to 1000", 2, lognormal_valid, first_mean,
      lognormal_draw },
    { "normal", "normal(MEAN,SD,MIN,MAX)", "none below 0 and MIN <= MEAN <= MAX", 4, normal_valid,
      first_mean, normal_draw },
    { "uniform", "uniform(MIN,MAX)", "0 <= MIN <= MAX", 2, uniform_valid, uniform_mean,
      uniform_draw },
    { "exponential", "exponential(MEAN)", "from 0", 1, any_valid, first_mean, exponential_draw },
};

// clang-format on
const uint32_t generate_shape_count = COUNT_OF(generate_shapes);
_Static_assert(COUNT_OF(generate_shapes) <= GENERATE_SHAPES_MAX, "names fit the callers' arrays");

const struct generate_shape *generate_shape_find(struct str name)
{
    for (uint32_t i = 0; i < generate_shape_count; i++)
        if (str_eq(name, str_from(generate_shapes[i].name))) return &generate_shapes[i];
    return NULL;
}

static double poisson_gap(double cv, struct rng *rng)
{
    (void)cv;
    return rng_exp(rng, 1);
}

static double constant_gap(double cv, struct rng *rng)
{
    (void)cv, (void)rng;
    return 1;
}

/* Draws from a gamma distribution of shape at least 1 and mean `shape`. */
static double gamma_draw(double shape, struct rng *rng)
{
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = rng_normal(rng), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        double u = 1 - rng_f64(rng); /* in (0, 1]: its logarithm exists */
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) return d * v;
    }
}

static double gamma_gap(double cv, struct rng *rng)
{
    double shape = 1 / (cv * cv);
    if (shape >= 1) return gamma_draw(shape, rng) / shape;
    double boost = pow(1 - rng_f64(rng), 1 / shape);
    return gamma_draw(shape + 1, rng) * boost / shape;
}

static const struct generate_spacing spacings[] = {
    { "poisson", false, false, poisson_gap },
    { "constant", false, true, constant_gap },
    { "gamma", true, false, gamma_gap },
};

const char generate_spacing_names[] = "poisson, constant or gamma";

const struct generate_spacing *generate_spacing_find(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(spacings); i++)
        if (str_eq(name, str_from(spacings[i].name))) return &spacings[i];
    return NULL;
}
