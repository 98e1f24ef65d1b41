/* sim_compare.c - arms as JSON and as tables: values with intervals, then paired differences. */
#include "base/core/bits.h"
#include "cli/sim_arms.h"
#include "simulator/stats.h"

#include <math.h>
#include <stdlib.h>

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

/* ---- for people ------------------------------------------------------------------------------ */

/* Right-aligned by characters: a plus-minus sign is two bytes. */
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

/* A column that no arm has a number for is left out. */
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

/* Against the first arm: per cent of its mean, or points where the figure is a share already. */
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
        buf_text(out, "extrapolated: hardware or ranges that no measured table stands behind\n");
    return out->rc;
}
