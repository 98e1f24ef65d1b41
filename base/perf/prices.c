/* prices.c - reads a list of prices: seven words a line. */
#include "base/perf/prices.h"

#include "base/core/bits.h"
#include "base/perf/hardware.h"

#include <string.h>

#define WORDS 7
#define PRICE_H_MAX 10000.0
#define NAMES_MAX 64

static int put_name(char to[PRICE_NAME_MAX], struct str name, const char *what, uint32_t line,
                    struct err *err)
{
    if (name.len >= PRICE_NAME_MAX)
        return err_set(err, -EINVAL, "line %u: the %s is longer than %d bytes", line, what,
                       PRICE_NAME_MAX - 1);
    memcpy(to, name.data, name.len);
    to[name.len] = '\0';
    return 0;
}

static int put_hardware(struct price *p, struct str name, uint32_t line, struct err *err)
{
    const struct hardware *h = hardware_find(name);
    if (h) return put_name(p->hardware, str_from(h->name), "hardware", line, err);
    const char *names[NAMES_MAX];
    must(hardware_count <= NAMES_MAX);
    for (uint32_t i = 0; i < hardware_count; i++)
        names[i] = hardware_table[i].name;
    const char *near = str_nearest(name, names, hardware_count);
    return err_set(err, -EINVAL, "line %u: no hardware '" STR_FMT "'%s%s%s", line, STR_ARG(name),
                   near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
}

int price_day(struct str text, int32_t *ret)
{
    static const uint8_t month_days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    struct str rest = text;
    struct str part[3];
    uint64_t n[3];
    for (int i = 0; i < 3; i++) {
        part[i] = str_cut(&rest, '-');
        if (part[i].len != (i == 0 ? 4u : 2u) || str_to_u64(part[i], &n[i]) < 0) return -EINVAL;
    }
    if (rest.data || n[0] < 1970 || n[1] < 1 || n[1] > 12 || n[2] < 1) return -EINVAL;
    bool leap = (n[0] % 4 == 0 && n[0] % 100 != 0) || n[0] % 400 == 0;
    if (n[2] > month_days[n[1] - 1] + (uint64_t)(leap && n[1] == 2)) return -EINVAL;
    uint64_t before = n[0] - 1; /* leap days of whole years, less those up to 1969 */
    uint64_t day = (n[0] - 1970) * 365 + before / 4 - before / 100 + before / 400 - 477;
    for (uint64_t m = 1; m < n[1]; m++)
        day += month_days[m - 1] + (uint64_t)(leap && m == 2);
    *ret = (int32_t)(day + n[2] - 1);
    return 0;
}

static int put_row(struct price *p, const struct str word[WORDS], uint32_t line, struct err *err)
{
    int rc = put_hardware(p, word[0], line, err);
    if (rc == 0) rc = put_name(p->provider, word[1], "provider", line, err);
    if (rc == 0) rc = put_name(p->zone, word[2], "zone", line, err);
    if (rc == 0) rc = put_name(p->source, word[6], "source", line, err);
    if (rc < 0) return rc;
    p->spot = str_eq(word[3], STR("spot"));
    if (!p->spot && !str_eq(word[3], STR("on_demand")))
        return err_set(err, -EINVAL, "line %u: purchase is on_demand or spot, not '" STR_FMT "'",
                       line, STR_ARG(word[3]));
    if (str_to_f64(word[4], &p->price_h) < 0 || p->price_h <= 0 || p->price_h > PRICE_H_MAX)
        return err_set(err, -EINVAL,
                       "line %u: the price is dollars an hour, above 0 and up to %g, not '" STR_FMT
                       "'",
                       line, PRICE_H_MAX, STR_ARG(word[4]));
    p->day = PRICE_DATE_UNKNOWN;
    if (!str_eq(word[5], STR("-")) && price_day(word[5], &p->day) < 0)
        return err_set(err, -EINVAL, "line %u: '" STR_FMT "' is no date (2026-11-09, or -)", line,
                       STR_ARG(word[5]));
    return 0;
}

static struct str next_word(struct str *rest)
{
    struct str word = { NULL, 0 };
    while (rest->len > 0 && word.len == 0) {
        *rest = str_trim(*rest);
        word = str_cut(rest, ' ');
        struct str tabbed = word;
        struct str first = str_cut(&tabbed, '\t');
        if (tabbed.data) { /* the word ends at a tab: the text behind the tab is read next */
            *rest = str_of(tabbed.data, tabbed.len + (rest->data ? rest->len + 1 : 0));
            word = first;
        }
    }
    return word;
}

int prices_parse(struct str text, struct prices *ret, struct err *err)
{
    struct str rest = text;
    uint32_t line = 0, count = 0;
    struct price row[PRICES_MAX];
    while (rest.len > 0) {
        struct str content = str_cut(&rest, '\n');
        line++;
        if (content.len > 0 && content.data[content.len - 1] == '\r') content.len--;
        content = str_cut(&content, '#');
        struct str word[WORDS];
        uint32_t n = 0;
        for (struct str w = next_word(&content); w.len > 0; w = next_word(&content)) {
            if (n == WORDS)
                return err_set(err, -EINVAL, "line %u: more than %d words", line, WORDS);
            word[n++] = w;
        }
        if (n == 0) continue;
        if (n < WORDS)
            return err_set(err, -EINVAL,
                           "line %u: %u words; hardware provider zone purchase price date source "
                           "are %d",
                           line, n, WORDS);
        if (count == PRICES_MAX)
            return err_set(err, -E2BIG, "line %u: more than %d offers", line, PRICES_MAX);
        int rc = put_row(&row[count], word, line, err);
        if (rc < 0) return rc;
        count++;
    }
    if (count == 0) return err_set(err, -EINVAL, "no offer is listed");
    memcpy(ret->row, row, count * sizeof *row);
    ret->count = count;
    return 0;
}
