/* exposition.h - reads metrics in Prometheus' text format, as engines of other kinds export them.
 *
 * Layer:    base/wire (base/core)
 * Lifetime: names, labels and values point into the text
 * Bounds:   the text's own length; a line is read in one pass. A malformed line is skipped and counted:
 *           one bad series must not hide the others
 */
#pragma once
#include "base/core/str.h"

struct exposition_row {
    struct str name;
    struct str labels; /* between the braces, as written; empty: none */
    double value;      /* finite: rows of NaN and infinities are left out */
};

struct exposition_reader {
    struct str rest;
    uint32_t malformed; /* lines skipped so far */
};

void exposition_reader_init(struct exposition_reader *r, struct str text);

/* Reads the next row; false at the end. Comments and timestamps are skipped. */
bool exposition_next(struct exposition_reader *r, struct exposition_row *ret);

/* Finds a label's value, as it is written between the quotes; false: the row has no such label. */
bool exposition_label(const struct exposition_row *row, const char *name, struct str *ret);
