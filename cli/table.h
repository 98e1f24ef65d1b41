/* table.h - prints text for a terminal: lists in columns, ages as 3m12s, a little colour, and text that
 * models or other programs wrote.
 *
 * Layer:  cli (base/core, base/io)
 * Cells:  an absent value is "-", never 0
 * Colour: only on a terminal, mostly where something needs attention, never with NO_COLOR set
 * Plain:  (1) newline and tab stay; every other C0 or C1 control, DEL, the bidirectional controls and
 *             bytes that are not UTF-8 become U+FFFD each. Without its ESC or CSI the rest of a
 *             sequence is plain text, so no sequence needs to be known
 *         (2) a character that is split between two pieces is joined; only plain_end gives it up
 *         (3) this applies always, not only on terminals: piped text often ends on one, and a reply is
 *             the same text wherever it goes. The API gives the model's own bytes
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

#include <stdio.h>

#define TABLE_COLUMNS_MAX 40

enum table_form {
    TABLE_TEXT,
    TABLE_STATE,   /* text; its colour depends on the word */
    TABLE_COUNT,   /* number */
    TABLE_DECIMAL, /* number with two digits */
    TABLE_RARE,    /* the same; the column is left out if no row has it; never the last column */
    TABLE_FACTOR,  /* number of any size, with four digits */
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

/* Prints the objects of the JSON list `rows`. -EINVAL when it is not a list. */
int table_print(const struct table *t, struct str rows, struct buf *out);

/* Appends the value at `path` in its form, as a cell of a table. */
void table_cell(enum table_form form, struct str row, const char *path, int64_t now_us,
                struct buf *out);

/* Appends an age as "0.4s", "12s", "3m12s", "2h05m" or "4d03h". */
void age_text(double seconds, struct buf *out);
bool colour_wanted(FILE *out);

struct plain { /* starts as { 0 } */
    unsigned char torn[4];
    uint32_t torn_len;
};

int plain_add(struct plain *p, struct str piece, struct buf *out); /* appends; -ENOMEM, -E2BIG */
int plain_end(struct plain *p, struct buf *out);
int plain_whole(struct str text, struct buf *out); /* one complete text */
