/* meters.c - cuts a page of metrics in Prometheus' text format into rows, and sums the rows into meters.
 *
 *     name{label="value",label="value"} 12.5 1395066363000
 *
 * A value of a label may hold any character, with \\, \" and \n escaped, so the end of the labels is the
 * first closing brace outside quotes. */
#include "agent/engines/meters.h"

#include "base/core/bits.h"

#include <errno.h>

void exposition_reader_init(struct exposition_reader *r, struct str text)
{
    *r = (struct exposition_reader){ .rest = text };
}

static struct str behind(struct str s, size_t count)
{
    return str_of(s.data + count, s.len - count);
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':';
}

static size_t name_length(struct str s)
{
    size_t n = 0;
    while (n < s.len && is_name(s.data[n]))
        n++;
    return n;
}

/* Returns the length of the text up to the closing quote, or SIZE_MAX if there is none. */
static size_t quoted_length(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] == '"') return i;
        if (s.data[i] == '\\') i++;
    }
    return SIZE_MAX;
}

/* Returns the length of the labels up to the closing brace, or SIZE_MAX. */
static size_t labels_length(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] == '}') return i;
        if (s.data[i] != '"') continue;
        size_t inside = quoted_length(behind(s, i + 1));
        if (inside == SIZE_MAX) return SIZE_MAX;
        i += inside + 1;
    }
    return SIZE_MAX;
}

/* Reads one line. -EINVAL: malformed; -ENODATA: a row without a finite value. */
static int read_row(struct str line, struct exposition_row *ret)
{
    struct exposition_row row = { .name = str_of(line.data, name_length(line)) };
    if (row.name.len == 0) return -EINVAL;
    struct str rest = str_trim(behind(line, row.name.len));
    if (rest.len > 0 && rest.data[0] == '{') {
        rest = behind(rest, 1);
        size_t len = labels_length(rest);
        if (len == SIZE_MAX) return -EINVAL;
        row.labels = str_of(rest.data, len);
        rest = str_trim(behind(rest, len + 1));
    }
    struct str number = str_cut(&rest, ' ');
    if (str_eq(number, STR("NaN")) || str_ends(number, STR("Inf"))) return -ENODATA;
    if (str_to_f64(number, &row.value) < 0) return -EINVAL;
    *ret = row;
    return 0;
}

bool exposition_next(struct exposition_reader *r, struct exposition_row *ret)
{
    while (r->rest.len > 0) {
        struct str line = str_cut(&r->rest, '\n');
        if (str_ends(line, STR("\r"))) line.len--;
        line = str_trim(line);
        if (line.len == 0 || line.data[0] == '#') continue;
        int rc = read_row(line, ret);
        if (rc == 0) return true;
        r->malformed += rc == -EINVAL;
    }
    return false;
}

bool exposition_label(const struct exposition_row *row, const char *name, struct str *ret)
{
    struct str rest = row->labels, wanted = str_from(name);
    while (rest.len > 0) {
        rest = str_trim(rest);
        struct str key = str_of(rest.data, name_length(rest));
        rest = behind(rest, key.len);
        if (!str_starts(rest, STR("=\""))) return false;
        rest = behind(rest, 2);
        size_t len = quoted_length(rest);
        if (key.len == 0 || len == SIZE_MAX) return false;
        if (str_eq(key, wanted)) {
            *ret = str_of(rest.data, len);
            return true;
        }
        rest = str_trim(behind(rest, len + 1));
        if (rest.len > 0 && rest.data[0] != ',') return false;
        if (rest.len > 0) rest = behind(rest, 1);
    }
    return false;
}

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
