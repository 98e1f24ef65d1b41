/* perf_fit.c - reads measured tables, and fits the constants of a piece of hardware by Nelder and Mead's
 * simplex (1965).
 *
 * All tables share the reading of lines and named columns; each kind has a function that takes its rows.
 *
 * The measure is the mean relative error, which has corners; a simplex needs no derivative. Four
 * unknowns and a thousand rows take a thousand evaluations, a tenth of a second. A step beyond a bound
 * lands on the bound. */

#include "cli/plan/perf_fit.h"

#include "base/core/bits.h"
#include "base/perf/roofline.h"

#include <math.h>
#include <stdlib.h>

#define COLUMNS_MAX 128
#define WANTED_MAX 24

const char *const perf_kind_names[] = { "mlp", "dense", "attention", "allreduce", "steps", NULL };

/* One line, reduced to the columns that its kind needs. */
struct row {
    double number[WANTED_MAX]; /* in the order of the kind's list */
    struct str text;           /* of the column in `text`, where there is one */
};

struct reader {
    const char *column[WANTED_MAX]; /* numbers; NULL-terminated */
    const char *text;               /* a column that is not a number, or NULL */
    int (*take)(struct perf_table *t, const struct model_spec *model, const struct row *row,
                struct err *err);
};

/* ---- samples and groups ---------------------------------------------------------------------- */

static int add_sample(struct perf_table *t, const struct perf_sample *sample, struct err *err)
{
    if (t->count == PERF_SAMPLES_MAX) return err_set(err, -E2BIG, "more rows than are read");
    if (t->count == t->cap) {
        uint32_t cap = t->cap ? 2 * t->cap : 1024;
        struct perf_sample *grown = realloc(t->sample, cap * sizeof *grown);
        if (!grown) return err_set(err, -ENOMEM, "no memory for the table");
        t->sample = grown;
        t->cap = cap;
    }
    t->sample[t->count++] = *sample;
    return 0;
}

static bool same_shape(const struct model_spec *a, const struct model_spec *b)
{
    return a->hidden == b->hidden && a->heads == b->heads && a->kv_heads == b->kv_heads &&
           a->ffn == b->ffn && a->vocab == b->vocab && a->gated == b->gated;
}

static int find_group(struct perf_table *t, const struct model_spec *model, uint32_t tp,
                      uint32_t *ret, struct err *err)
{
    for (*ret = 0; *ret < t->group_count; ++*ret) {
        const struct perf_group *g = &t->group[*ret];
        if (g->tp == tp && same_shape(&g->model, model)) return 0;
    }
    if (t->group_count == PERF_GROUPS_MAX) return err_set(err, -E2BIG, "too many kinds of row");
    t->group[t->group_count++] = (struct perf_group){ *model, tp };
    return 0;
}

static bool is_count(double v)
{
    return v >= 0 && v <= 1e9 && v == (double)(uint32_t)v;
}

/* ---- kinds ----------------------------------------------------------------------------------- */

enum mlp_column {
    MLP_QKV,
    MLP_OUT,
    MLP_UP,
    MLP_DOWN,
    MLP_NORM_IN,
    MLP_NORM_POST,
    MLP_ROPE,
    MLP_ACT,
    MLP_ADD,
    MLP_HEADS,
    MLP_KV_HEADS,
    MLP_HIDDEN,
    MLP_FFN,
    MLP_VOCAB,
    MLP_TOKENS,
    MLP_TP,
};

/* Takes a row in milliseconds. A layer adds twice to the residual stream; the table has one addition. */
static int take_mlp(struct perf_table *t, const struct model_spec *model, const struct row *row,
                    struct err *err)
{
    (void)model;
    const double *v = row->number;
    for (int i = MLP_HEADS; i <= MLP_TP; i++) {
        if (!is_count(v[i]) || v[i] == 0) return err_set(err, -EINVAL, "a shape of %g", v[i]);
    }
    struct model_spec m = { .name = "table",
                            .layers = 1,
                            .hidden = (uint32_t)v[MLP_HIDDEN],
                            .heads = (uint32_t)v[MLP_HEADS],
                            .kv_heads = (uint32_t)v[MLP_KV_HEADS],
                            .head_dim = (uint32_t)(v[MLP_HIDDEN] / v[MLP_HEADS]),
                            .ffn = (uint32_t)v[MLP_FFN],
                            .vocab = (uint32_t)v[MLP_VOCAB],
                            .gated = true,
                            .weight_bytes = 2,
                            .kv_element_bytes = 2 };
    struct perf_sample s = { .shape = { .prefill_tokens = (uint32_t)v[MLP_TOKENS],
                                        .prefill_chunks = 1 } };
    for (int i = MLP_QKV; i <= MLP_ADD; i++)
        s.seconds += (i == MLP_ADD ? 2 : 1) * v[i] * 1e-3;
    int rc = find_group(t, &m, (uint32_t)v[MLP_TP], &s.group, err);
    return rc < 0 ? rc : add_sample(t, &s, err);
}

/* Takes a row of one kernel, in microseconds; rows with the same tokens make one layer. The final norm and
 * the embedding are not part of a layer; a layer has two norms. */
static int take_dense(struct perf_table *t, const struct model_spec *model, const struct row *row,
                      struct err *err)
{
    static const struct {
        const char *name;
        double times;
    } parts[] = {
        { "qkv_proj", 1 },  { "o_proj", 1 },    { "gate_up_proj", 1 },
        { "down_proj", 1 }, { "layernorm", 2 }, { "rotary_emb", 1 },
        { "act_fn", 1 },    { "embedding", 0 }, { "final_layernorm", 0 },
    };
    double times = -1;
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        if (str_eq(row->text, str_from(parts[i].name))) times = parts[i].times;
    }
    if (times < 0) {
        return err_set(err, -EINVAL, "no kernel '" STR_FMT "' is known", STR_ARG(row->text));
    }
    if (times == 0) return 0;
    if (!is_count(row->number[0]) || row->number[0] == 0) {
        return err_set(err, -EINVAL, "%g tokens", row->number[0]);
    }
    struct perf_sample s = { .shape = { .prefill_tokens = (uint32_t)row->number[0],
                                        .prefill_chunks = 1 },
                             .seconds = times * row->number[1] * 1e-6 };
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->sample[i].shape.prefill_tokens != s.shape.prefill_tokens) continue;
        t->sample[i].seconds += s.seconds;
        return 0;
    }
    int rc = find_group(t, model, 1, &s.group, err);
    return rc < 0 ? rc : add_sample(t, &s, err);
}

static int take_attention(struct perf_table *t, const struct model_spec *model,
                          const struct row *row, struct err *err)
{
    const double *v = row->number;
    for (int i = 0; i < 4; i++) {
        if (!is_count(v[i])) return err_set(err, -EINVAL, "%g tokens", v[i]);
    }
    uint64_t chunk = (uint64_t)v[0], before = (uint64_t)v[1], kv = (uint64_t)(v[2] * v[3]);
    struct perf_sample s = {
        .shape = { .prefill_tokens = (uint32_t)chunk,
                   .prefill_chunks = chunk > 0,
                   .decoding_seqs = (uint32_t)v[2],
                   .kv_tokens_decoding = kv,
                   .kv_tokens_read = kv + chunk * before + chunk * (chunk + 1) / 2 },
        .seconds = v[4] * 1e-6,
    };
    int rc = find_group(t, model, 1, &s.group, err);
    return rc < 0 ? rc : add_sample(t, &s, err);
}

/* Takes a row of bytes and milliseconds. A model of width 1 has two bytes a token, and enough heads to be
 * split over any number of workers in the tables. */
static int take_allreduce(struct perf_table *t, const struct model_spec *model,
                          const struct row *row, struct err *err)
{
    (void)model;
    const double *v = row->number;
    if (!is_count(v[0]) || !is_count(v[1]) || v[0] < 2) {
        return err_set(err, -EINVAL, "%g workers, %g a machine", v[0], v[1]);
    }
    if (v[0] != v[1]) return 0;
    struct model_spec m = { .name = "reduce",
                            .layers = 1,
                            .hidden = 1,
                            .heads = 5040,
                            .kv_heads = 5040,
                            .head_dim = 1,
                            .ffn = 1,
                            .vocab = 1,
                            .weight_bytes = 2,
                            .kv_element_bytes = 2 };
    struct perf_sample s = { .shape = { .prefill_tokens = (uint32_t)(v[2] / 2),
                                        .prefill_chunks = 1 },
                             .seconds = v[3] * 1e-3 };
    int rc = find_group(t, &m, (uint32_t)v[0], &s.group, err);
    return rc < 0 ? rc : add_sample(t, &s, err);
}

/* Takes a row in seconds. Nothing is left out, stalls included: the fit's measure bounds a row's weight. */
static int take_step(struct perf_table *t, const struct model_spec *model, const struct row *row,
                     struct err *err)
{
    const double *v = row->number;
    for (int i = 0; i < 5; i++) {
        if (!(v[i] >= 0 && v[i] <= 1e15)) return err_set(err, -EINVAL, "a shape of %g", v[i]);
    }
    struct perf_sample s = { .shape = { .prefill_tokens = (uint32_t)v[0],
                                        .prefill_chunks = (uint32_t)v[1],
                                        .decoding_seqs = (uint32_t)v[2],
                                        .kv_tokens_read = (uint64_t)v[3],
                                        .kv_tokens_decoding = (uint64_t)v[4] },
                             .seconds = v[5] };
    if (s.shape.kv_tokens_decoding > s.shape.kv_tokens_read) {
        return err_set(err, -EINVAL, "decoding sessions read more than all");
    }
    int rc = find_group(t, model, 1, &s.group, err);
    return rc < 0 ? rc : add_sample(t, &s, err);
}

#define MEDIAN(what) "time_stats." what ".median"

static const struct reader readers[PERF_KIND_COUNT] = {
    [PERF_MLP] = { .column = { [MLP_QKV] = MEDIAN("attn_pre_proj"),
                               [MLP_OUT] = MEDIAN("attn_post_proj"),
                               [MLP_UP] = MEDIAN("mlp_up_proj"),
                               [MLP_DOWN] = MEDIAN("mlp_down_proj"),
                               [MLP_NORM_IN] = MEDIAN("input_layernorm"),
                               [MLP_NORM_POST] = MEDIAN("post_attention_layernorm"),
                               [MLP_ROPE] = MEDIAN("attn_rope"),
                               [MLP_ACT] = MEDIAN("mlp_act"),
                               [MLP_ADD] = MEDIAN("add"),
                               [MLP_HEADS] = "n_head",
                               [MLP_KV_HEADS] = "n_kv_head",
                               [MLP_HIDDEN] = "n_embd",
                               [MLP_FFN] = "n_expanded_embd",
                               [MLP_VOCAB] = "vocab_size",
                               [MLP_TOKENS] = "num_tokens",
                               [MLP_TP] = "num_tensor_parallel_workers" },
                   .take = take_mlp },
    [PERF_DENSE] = { .column = { "tokens", "time_us" }, .text = "layer", .take = take_dense },
    [PERF_ATTENTION] = { .column = { "prefill_chunk", "kv_prefill", "n_decode", "kv_decode",
                                     "time_us" },
                         .take = take_attention },
    [PERF_ALLREDUCE] = { .column = { "num_workers", "devices_per_node", "size",
                                     MEDIAN("all_reduce") },
                         .take = take_allreduce },
    [PERF_STEPS] = { .column = { "prefill_tokens", "prefill_chunks", "decoding_seqs",
                                 "kv_tokens_read", "kv_tokens_decoding", "seconds" },
                     .take = take_step },
};

/* ---- the walk -------------------------------------------------------------------------------- */

/* The places of a kind's wanted columns in this file. */
struct layout {
    uint32_t at[WANTED_MAX], count;
    uint32_t text_at; /* UINT32_MAX: none */
};

static uint32_t column_of(struct str header, const char *name)
{
    for (uint32_t i = 0; i < COLUMNS_MAX && header.data; i++) {
        if (str_eq(str_trim(str_cut(&header, ',')), str_from(name))) return i;
    }
    return UINT32_MAX;
}

static bool find_layout(struct str header, const struct reader *r, struct layout *ret)
{
    *ret = (struct layout){ .text_at = UINT32_MAX };
    for (; ret->count < WANTED_MAX && r->column[ret->count]; ret->count++) {
        ret->at[ret->count] = column_of(header, r->column[ret->count]);
        if (ret->at[ret->count] == UINT32_MAX) return false;
    }
    if (r->text) ret->text_at = column_of(header, r->text);
    return !r->text || ret->text_at != UINT32_MAX;
}

static int read_row(struct str text, const struct layout *layout, struct row *ret, struct err *err)
{
    struct str field[COLUMNS_MAX];
    uint32_t fields = 0;
    while (fields < COLUMNS_MAX && text.data)
        field[fields++] = str_trim(str_cut(&text, ','));
    for (uint32_t i = 0; i < layout->count; i++) {
        uint32_t at = layout->at[i];
        if (at >= fields || str_to_f64(field[at], &ret->number[i]) < 0) {
            return err_set(err, -EINVAL, "column %u is not a number", at + 1);
        }
    }
    if (layout->text_at != UINT32_MAX) {
        if (layout->text_at >= fields) return err_set(err, -EINVAL, "too few columns");
        ret->text = field[layout->text_at];
    }
    return 0;
}

static struct str next_line(struct str *text)
{
    struct str line = str_cut(text, '\n');
    if (str_ends(line, STR("\r"))) line.len--;
    return str_trim(line);
}

static int find_kind(struct str header, struct layout *layout, enum perf_kind *ret, struct err *err)
{
    for (int kind = 0; kind < PERF_KIND_COUNT; kind++) {
        if (!find_layout(header, &readers[kind], layout)) continue;
        *ret = (enum perf_kind)kind;
        return 0;
    }
    return err_set(err, -EINVAL,
                   "the columns are of no table that is known (mlp, dense, "
                   "attention, allreduce, steps)");
}

int perf_table_read(struct str text, const struct model_spec *model, struct perf_table **ret,
                    struct err *err)
{
    CLEANUP(perf_table_freep) struct perf_table *t = calloc(1, sizeof *t);
    if (!t) return err_set(err, -ENOMEM, "no memory for the table");
    struct layout layout;
    int rc = find_kind(next_line(&text), &layout, &t->kind, err);
    if (rc < 0) return rc;
    for (uint32_t line = 2; text.len > 0; line++) {
        struct row row = { 0 };
        struct str content = next_line(&text);
        if (content.len == 0) continue;
        rc = read_row(content, &layout, &row, err);
        if (rc >= 0) rc = readers[t->kind].take(t, model, &row, err);
        if (rc < 0) return err_prefix(err, rc, "line %u", line);
    }
    for (uint32_t i = 0; i < t->count; i++) {
        if (!(t->sample[i].seconds > 0)) return err_set(err, -EINVAL, "a time is not positive");
    }
    if (t->count == 0) return err_set(err, -ENODATA, "the table has no rows");
    *ret = TAKE(t);
    return 0;
}

void perf_table_free(struct perf_table *t)
{
    if (!t) return;
    free(t->sample);
    free(t);
}

#define ROUNDS 1000
#define UNKNOWNS_MAX 6
#define SMALL_WEIGHT 0.25
#define SHARE_MIN 0.01

// clang-format off
#define CONSTANT(name_, unit_, max_) { #name_, unit_, offsetof(struct hardware, name_), max_ }

static const struct perf_constant layer[] = {
    CONSTANT(eff_bytes, "", 1), CONSTANT(eff_flops, "", 1), CONSTANT(eff_rows, "", 1),
    CONSTANT(layer_s, "seconds", 1e-3),
};

static const struct perf_constant attention[] = { CONSTANT(eff_attn, "", 1) };

static const struct perf_constant steps[] = {
    CONSTANT(eff_bytes, "", 1), CONSTANT(eff_flops, "", 1), CONSTANT(eff_rows, "", 1),
    CONSTANT(eff_attn, "", 1), CONSTANT(host_s, "seconds", 1e-2),
    CONSTANT(seq_s, "seconds", 1e-2),
};

static const struct perf_constant reduce[] = { CONSTANT(eff_link, "", 1) };

// clang-format on

const struct perf_constant *perf_constants(enum perf_kind kind, uint32_t *ret_count)
{
    static const struct {
        const struct perf_constant *constant;
        uint32_t count;
    } of[PERF_KIND_COUNT] = {
        [PERF_MLP] = { layer, COUNT_OF(layer) },
        [PERF_DENSE] = { layer, COUNT_OF(layer) },
        [PERF_ATTENTION] = { attention, COUNT_OF(attention) },
        [PERF_ALLREDUCE] = { reduce, COUNT_OF(reduce) },
        [PERF_STEPS] = { steps, COUNT_OF(steps) },
    };
    *ret_count = of[kind].count;
    return of[kind].constant;
}

static bool is_part(const struct perf_shape *s, enum perf_part part)
{
    switch (part) {
    case PERF_SMALL:
        return s->prefill_tokens + s->decoding_seqs <= PERF_SMALL_TOKENS;
    case PERF_DECODE:
        return s->prefill_tokens == 0;
    case PERF_PREFILL:
        return s->decoding_seqs == 0;
    case PERF_MIXED:
        return s->prefill_tokens > 0 && s->decoding_seqs > 0;
    case PERF_ALL:
    case PERF_PART_COUNT:
        break;
    }
    return true;
}

static double predict(const struct roofline *r, enum perf_kind kind, const struct perf_shape *s)
{
    if (kind == PERF_ATTENTION) return roofline_attention_s(r, s);
    if (kind == PERF_ALLREDUCE) return roofline_reduce_s(r, s->prefill_tokens);
    if (kind == PERF_STEPS) return roofline_step_s(r, s);
    return roofline_layer_s(r, s->prefill_tokens);
}

static int make_rooflines(const struct perf_table *t, const struct hardware *h,
                          struct roofline r[PERF_GROUPS_MAX], struct err *err)
{
    for (uint32_t i = 0; i < t->group_count; i++) {
        if (roofline_init(&r[i], h, &t->group[i].model, t->group[i].tp)) continue;
        return err_set(err, -EINVAL, "%s: layers are not shared by %u of it", h->name,
                       t->group[i].tp);
    }
    return 0;
}

/* Returns only the mean relative error, for the search. */
static double mean_error(const struct perf_table *t, const struct roofline *r, enum perf_part part)
{
    double sum = 0, count = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct perf_sample *s = &t->sample[i];
        if (!is_part(&s->shape, part)) continue;
        sum += fabs(predict(&r[s->group], t->kind, &s->shape) / s->seconds - 1);
        count += 1;
    }
    return count > 0 ? sum / count : 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int perf_error_of(const struct perf_table *t, const struct hardware *h, enum perf_part part,
                  uint32_t tp, struct perf_error *ret, struct err *err)
{
    *ret = (struct perf_error){ 0 };
    struct roofline r[PERF_GROUPS_MAX];
    int rc = make_rooflines(t, h, r, err);
    if (rc < 0) return rc;
    double *off = calloc(t->count, sizeof *off), sum = 0;
    if (!off) return err_set(err, -ENOMEM, "no memory for the errors");
    for (uint32_t i = 0; i < t->count; i++) {
        const struct perf_sample *s = &t->sample[i];
        if ((tp && t->group[s->group].tp != tp) || !is_part(&s->shape, part)) continue;
        off[ret->count] = fabs(predict(&r[s->group], t->kind, &s->shape) / s->seconds - 1);
        sum += off[ret->count++];
    }
    if (ret->count > 0) {
        qsort(off, ret->count, sizeof *off, by_size);
        ret->mape = sum / ret->count;
        ret->p90 = off[(uint64_t)ret->count * 9 / 10];
    }
    free(off);
    return 0;
}

/* ---- the search ------------------------------------------------------------------------------ */

struct search {
    const struct perf_table *table;
    const struct perf_constant *constant;
    uint32_t count;
    struct hardware hardware;
};

static double *slot(struct hardware *h, const struct perf_constant *c)
{
    return (double *)(void *)((char *)h + c->offset);
}

static double *at_bounds(const struct search *s, double x[UNKNOWNS_MAX])
{
    for (uint32_t i = 0; i < s->count; i++) {
        double least = s->constant[i].max == 1 ? SHARE_MIN : 0;
        x[i] = fmin(fmax(x[i], least), s->constant[i].max);
    }
    return x;
}

static double cost(struct search *s, double x[UNKNOWNS_MAX])
{
    at_bounds(s, x);
    for (uint32_t i = 0; i < s->count; i++)
        *slot(&s->hardware, &s->constant[i]) = x[i];
    struct roofline r[PERF_GROUPS_MAX];
    if (make_rooflines(s->table, &s->hardware, r, NULL) < 0) return (double)INFINITY;
    double e = mean_error(s->table, r, PERF_ALL);
    bool layers = s->table->kind == PERF_MLP || s->table->kind == PERF_DENSE;
    return layers ? e + SMALL_WEIGHT * mean_error(s->table, r, PERF_SMALL) : e;
}

struct vertex {
    double x[UNKNOWNS_MAX], cost;
};

static void sort_vertices(struct vertex *v, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct vertex moved = v[i];
        uint32_t j = i;
        for (; j > 0 && v[j - 1].cost > moved.cost; j--)
            v[j] = v[j - 1];
        v[j] = moved;
    }
}

/* Returns the point at `step` times the way from the worst vertex through the centre of the others. */
static struct vertex through_centre(struct search *s, const struct vertex *v, double step)
{
    struct vertex ret = { 0 };
    for (uint32_t i = 0; i < s->count; i++) {
        double centre = 0;
        for (uint32_t k = 0; k < s->count; k++)
            centre += v[k].x[i] / s->count;
        ret.x[i] = v[s->count].x[i] + step * (centre - v[s->count].x[i]);
    }
    ret.cost = cost(s, ret.x);
    return ret;
}

static void shrink(struct search *s, struct vertex *v)
{
    for (uint32_t k = 1; k <= s->count; k++) {
        for (uint32_t i = 0; i < s->count; i++)
            v[k].x[i] = (v[0].x[i] + v[k].x[i]) / 2;
        v[k].cost = cost(s, v[k].x);
    }
}

static void improve(struct search *s, struct vertex *v)
{
    uint32_t worst = s->count;
    struct vertex mirrored = through_centre(s, v, 2);
    if (mirrored.cost < v[0].cost) {
        struct vertex further = through_centre(s, v, 3);
        v[worst] = further.cost < mirrored.cost ? further : mirrored;
    } else if (mirrored.cost < v[worst - 1].cost || (worst == 1 && mirrored.cost < v[1].cost)) {
        v[worst] = mirrored;
    } else {
        struct vertex nearer = through_centre(s, v, 0.5);
        if (nearer.cost < v[worst].cost) {
            v[worst] = nearer;
        } else {
            shrink(s, v);
        }
    }
    sort_vertices(v, s->count + 1);
}

int perf_fit(const struct perf_table *t, struct hardware *h, struct err *err)
{
    struct search s = { .table = t, .hardware = *h };
    struct roofline r[PERF_GROUPS_MAX];
    s.constant = perf_constants(t->kind, &s.count);
    must(s.count <= UNKNOWNS_MAX);
    if (t->count < s.count)
        return err_set(err, -EINVAL, "%u rows cannot tell %u constants apart: measure more",
                       t->count, s.count);
    int rc = make_rooflines(t, h, r, err);
    if (rc < 0) return rc;
    struct vertex v[UNKNOWNS_MAX + 1] = { 0 };
    for (uint32_t k = 0; k <= s.count; k++) {
        for (uint32_t i = 0; i < s.count; i++) {
            double start = fmax(*slot(h, &s.constant[i]), 0.01 * s.constant[i].max);
            /* Away from the bound, or the simplex would be flat. */
            v[k].x[i] = i + 1 == k ? start * (start > 0.8 * s.constant[i].max ? 0.8 : 1.2) : start;
        }
        v[k].cost = cost(&s, v[k].x);
    }
    sort_vertices(v, s.count + 1);
    for (uint32_t round = 0; round < ROUNDS; round++)
        improve(&s, v);
    for (uint32_t i = 0; i < s.count; i++)
        *slot(h, &s.constant[i]) = v[0].x[i];
    return 0;
}
