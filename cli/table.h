/* table.h - lists as people read them: columns without borders, ages as 3m12s, a little colour.
 *
 * Layer:  cli (base/core, cli/pick.h)
 * Cells:  what is absent is "-", never 0
 * Colour: only what needs attention, only on a terminal, never with NO_COLOR set
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

#include <stdio.h>

#define TABLE_COLUMNS_MAX 20

enum table_form {
    TABLE_TEXT,
    TABLE_STATE,   /* text; coloured by what it says */
    TABLE_COUNT,   /* number */
    TABLE_DECIMAL, /* number with two digits */
    TABLE_RARE,    /* the same; the column is left out where no row has it; not the last one */
    TABLE_FACTOR,  /* number of any size, four digits of it */
    TABLE_SHARE,   /* of one: as per cent with a digit */
    TABLE_MONEY,   /* dollars */
    TABLE_AGE,     /* seconds */
    TABLE_SINCE,   /* wall-clock microseconds: how long ago */
    TABLE_YES,     /* bool */
    TABLE_LIST,    /* texts, joined by commas */
};

struct table_column {
    const char *title;
    const char *path; /* in a row's JSON object */
    enum table_form form;
};

struct table {
    const struct table_column *column;
    uint32_t column_count;
    int64_t now_us; /* for TABLE_SINCE */
    bool colour;
};

/* Prints the objects of the JSON list `rows`. -EINVAL when it is none. */
int table_print(const struct table *t, struct str rows, struct buf *out);

/* One value in its form, as a cell of a table. */
void table_cell(enum table_form form, struct str row, const char *path, int64_t now_us,
                struct buf *out);

/* "0.4s" "12s" "3m12s" "2h05m" "4d03h" */
void age_text(double seconds, struct buf *out);

bool colour_wanted(FILE *out);
