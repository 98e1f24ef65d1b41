/* meters.c - sums the rows of a page of metrics into meters. */
#include "agent/engines/meters.h"

#include "base/core/bits.h"

/* Engines that compute with several devices write a row for each device, and all say the same. */
static const char *const rank_labels[] = { "tp_rank", "pp_rank", "moe_ep_rank" };

static bool is_repeated(const struct exposition_row *row)
{
    struct str value;
    for (size_t i = 0; i < COUNT_OF(rank_labels); i++)
        if (exposition_label(row, rank_labels[i], &value) && !str_eq(value, STR("0"))) return true;
    return exposition_label(row, "priority", &value) && value.len > 0;
}

static void add(struct meters *m, const struct meter_row *what, double value)
{
    double *at = &m->value[what->meter];
    bool first = !m->has[what->meter];
    m->has[what->meter] = true;
    if (first || (what->most && value > *at))
        *at = value;
    else if (!what->most)
        *at += value;
}

void meters_read(struct str page, const struct meter_row *row, uint32_t count, struct meters *ret)
{
    struct exposition_reader r;
    struct exposition_row found;
    struct meters m = { 0 };
    exposition_reader_init(&r, page);
    while (exposition_next(&r, &found)) {
        for (uint32_t i = 0; i < count; i++) {
            if (!str_eq(found.name, str_from(row[i].series)) || is_repeated(&found)) continue;
            struct str text;
            double value = found.value;
            if (row[i].label &&
                (!exposition_label(&found, row[i].label, &text) || str_to_f64(text, &value) < 0))
                continue;
            add(&m, &row[i], value);
        }
    }
    *ret = m;
}
