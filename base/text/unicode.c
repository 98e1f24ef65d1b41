/* unicode.c - binary search over the rows of unicode_table.c.
 *
 * A two-level page table would save a few comparisons and cost 60 KB of generated source; the
 * tokenizer meets ASCII first of all, which has its own table.
 */
#include "base/text/unicode.h"

uint32_t unicode_classes_slow(uint32_t cp)
{
    if (cp > 0x10FFFF) return 0;
    size_t low = 0, high = unicode_class_rows_count; /* row low starts at or before cp */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (unicode_class_rows[middle].first <= cp)
            low = middle;
        else
            high = middle;
    }
    return unicode_class_rows[low].classes;
}

static const struct unicode_case_row *case_row(const struct unicode_case_row *rows, size_t count,
                                               uint32_t cp)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct unicode_case_row *row = &rows[middle];
        if (cp < row->first)
            high = middle;
        else if (cp > row->last)
            low = middle + 1;
        else
            return (cp - row->first) % row->step == 0 ? row : NULL;
    }
    return NULL;
}

size_t unicode_to_case(enum unicode_case to, uint32_t cp, uint32_t ret[UNICODE_CASE_MAX])
{
    const struct {
        const struct unicode_case_row *rows;
        size_t row_count;
        const struct unicode_case_special *specials;
        size_t special_count;
    } tables[UNICODE_CASE_COUNT] = {
        [UNICODE_UPPER] = { unicode_upper_rows, unicode_upper_rows_count, unicode_upper_specials,
                            unicode_upper_specials_count },
        [UNICODE_LOWER] = { unicode_lower_rows, unicode_lower_rows_count, unicode_lower_specials,
                            unicode_lower_specials_count },
        [UNICODE_TITLE] = { unicode_title_rows, unicode_title_rows_count, unicode_title_specials,
                            unicode_title_specials_count },
    };
    ret[0] = cp;
    const struct unicode_case_row *row = case_row(tables[to].rows, tables[to].row_count, cp);
    if (row) {
        ret[0] = (uint32_t)((int32_t)cp + row->delta);
        return 1;
    }
    for (size_t i = 0; cp >= 0x80 && i < tables[to].special_count; i++) {
        if (tables[to].specials[i].from != cp) continue;
        size_t len = 0;
        for (; len < UNICODE_CASE_MAX && tables[to].specials[i].to[len] != 0; len++)
            ret[len] = tables[to].specials[i].to[len];
        return len;
    }
    return 1;
}

bool unicode_is_lower(uint32_t cp)
{
    return case_row(unicode_is_lower_rows, unicode_is_lower_rows_count, cp) != NULL;
}

bool unicode_is_upper(uint32_t cp)
{
    return case_row(unicode_is_upper_rows, unicode_is_upper_rows_count, cp) != NULL;
}
