/* table.c - print columns in two passes, texts and widths first, then the lines; and filter text
 * that a model wrote. */

#include "cli/table.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "cli/remote.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define GAP 2
#define RESET "\033[0m"

/* States that need attention are yellow or red; the others stay plain except a quiet green for "ready",
 * so that a glance finds trouble. */
static const struct {
    const char *text, *colour;
} state_colours[] = {
    { "ready", "\033[32m" },    { "up", "\033[32m" },      { "starting", "\033[33m" },
    { "draining", "\033[33m" }, { "waiting", "\033[33m" }, { "loading", "\033[33m" },
    { "failing", "\033[31m" },  { "broken", "\033[31m" },  { "down", "\033[31m" },
    { "ending", "\033[90m" },   { "ended", "\033[90m" },
};

bool colour_wanted(FILE *out)
{
    const char *no = getenv("NO_COLOR");
    return isatty(fileno(out)) && !(no && no[0]);
}

void age_text(double seconds, struct buf *out)
{
    if (!(seconds >= 0)) seconds = 0; /* clocks of two processes differ a little */
    if (seconds < 9.95) {
        buf_printf(out, "%.1fs", seconds);
        return;
    }
    uint64_t s = seconds < 1e15 ? (uint64_t)llround(seconds) : (uint64_t)1e15;
    unsigned long long minutes = s / 60, hours = s / 3600, days = s / 86400;
    if (s < 60)
        buf_printf(out, "%llus", (unsigned long long)s);
    else if (s < 3600)
        buf_printf(out, "%llum%02llus", minutes, (unsigned long long)s % 60);
    else if (s < 86400)
        buf_printf(out, "%lluh%02llum", hours, minutes % 60);
    else
        buf_printf(out, "%llud%02lluh", days, hours % 24);
}

static int join_text(void *ctx, struct str item)
{
    struct buf *out = ctx;
    if (out->len > 0) buf_byte(out, ',');
    return json_path_text(item, "", out);
}

static void number_cell(enum table_form form, double v, int64_t now_us, struct buf *out)
{
    switch (form) {
    case TABLE_DECIMAL:
    case TABLE_RARE:
        buf_printf(out, "%.2f", v);
        break;
    case TABLE_FACTOR:
        buf_printf(out, "%.4g", v);
        break;
    case TABLE_SHARE:
        buf_printf(out, "%.1f%%", 100 * v);
        break;
    case TABLE_MONEY: /* whole cents in two digits; other amounts below a dollar in four */
        buf_printf(out, v < 1 && fabs(v * 100 - round(v * 100)) > 1e-6 ? "$%.4f" : "$%.2f", v);
        break;
    case TABLE_AGE:
        age_text(v, out);
        break;
    case TABLE_SINCE:
        age_text(((double)now_us - v) / 1e6, out);
        break;
    case TABLE_COUNT:
    case TABLE_TEXT:
    case TABLE_STATE:
    case TABLE_YES:
    case TABLE_LIST:
        buf_printf(out, "%.0f", v);
        break;
    }
}

void table_cell(enum table_form form, struct str row, const char *path, int64_t now_us,
                struct buf *out)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    double v;
    bool yes;
    int rc;
    if (form == TABLE_TEXT || form == TABLE_STATE)
        rc = json_path_text(row, path, &text);
    else if (form == TABLE_LIST)
        rc = json_path_each(row, path, join_text, &text);
    else if (form == TABLE_YES)
        rc = json_path_bool(row, path, &yes) < 0 ? -ENOENT : buf_text(&text, yes ? "yes" : "no");
    else if ((rc = json_path_f64(row, path, &v)) == 0)
        number_cell(form, v, now_us, &text);
    for (size_t i = 0; i < text.len; i++) /* a cell is one line, without control characters */
        if ((unsigned char)text.data[i] < ' ' || text.data[i] == 0x7f) text.data[i] = ' ';
    if (rc < 0 || text.len == 0)
        buf_byte(out, '-');
    else
        buf_str(out, buf_view(&text));
}

static size_t width_of(struct str text)
{
    size_t width = 0;
    for (size_t i = 0; i < text.len; i++)
        width += ((unsigned char)text.data[i] & 0xc0) != 0x80; /* code points, not bytes */
    return width;
}

struct cells {
    const struct table *t;
    struct buf text; /* NUL-terminated cells, row by row */
    size_t width[TABLE_COLUMNS_MAX];
    bool said[TABLE_COLUMNS_MAX]; /* some row has a value */
    size_t rows;
};

static void cell_ended(struct cells *c, uint32_t column, size_t from)
{
    if (c->text.rc < 0) return;
    size_t width = width_of(str_of(c->text.data + from, c->text.len - from));
    if (width > c->width[column]) c->width[column] = width;
    buf_byte(&c->text, 0);
}

static int add_row(void *ctx, struct str row)
{
    struct cells *c = ctx;
    for (uint32_t i = 0; i < c->t->column_count; i++) {
        size_t from = c->text.len;
        const struct table_column *col = &c->t->column[i];
        table_cell(col->form, row, col->path, c->t->now_us, &c->text);
        c->said[i] |=
            c->text.rc == 0 && !str_eq(str_of(c->text.data + from, c->text.len - from), STR("-"));
        cell_ended(c, i, from);
    }
    c->rows++;
    return c->text.rc;
}

static bool is_number(enum table_form form)
{
    return form == TABLE_COUNT || form == TABLE_DECIMAL || form == TABLE_RARE ||
           form == TABLE_FACTOR || form == TABLE_SHARE || form == TABLE_MONEY ||
           form == TABLE_AGE || form == TABLE_SINCE;
}

static const char *state_colour(struct str text)
{
    for (size_t i = 0; i < COUNT_OF(state_colours); i++)
        if (str_eq(text, str_from(state_colours[i].text))) return state_colours[i].colour;
    return NULL;
}

static void put_cell(const struct table *t, const struct cells *c, uint32_t column, struct str text,
                     bool title, struct buf *out)
{
    const struct table_column *col = &t->column[column];
    if (col->form == TABLE_RARE && !c->said[column]) return;
    size_t pad = c->width[column] - width_of(text);
    bool right = is_number(col->form);
    const char *colour = NULL;
    if (t->colour && title) colour = "\033[1m";
    if (t->colour && !title && col->form == TABLE_STATE) colour = state_colour(text);
    if (right) buf_printf(out, "%*s", (int)pad, "");
    if (colour) buf_text(out, colour);
    buf_str(out, text);
    if (colour) buf_text(out, RESET);
    if (column + 1 == t->column_count) return; /* no blanks at the end of a line */
    buf_printf(out, "%*s", (int)((right ? 0 : pad) + GAP), "");
}

int table_print(const struct table *t, struct str rows, struct buf *out)
{
    must(t->column_count <= TABLE_COLUMNS_MAX);
    struct cells c = { .t = t };
    for (uint32_t i = 0; i < t->column_count; i++)
        c.width[i] = strlen(t->column[i].title);
    int rc = json_path_each(rows, "", add_row, &c);
    for (uint32_t i = 0; rc == 0 && i < t->column_count; i++)
        put_cell(t, &c, i, str_from(t->column[i].title), true, out);
    const char *at = c.text.data;
    for (size_t row = 0; rc == 0 && row < c.rows; row++) {
        buf_byte(out, '\n');
        for (uint32_t i = 0; i < t->column_count; i++) {
            struct str text = str_from(at);
            put_cell(t, &c, i, text, false, out);
            at += text.len + 1;
        }
    }
    if (rc == 0) rc = buf_byte(out, '\n');
    buf_fini(&c.text);
    return rc;
}

#define INSTEAD STR("\xef\xbf\xbd") /* U+FFFD */

/* Returns the length of the character that begins with this byte; 0: none does. */
static uint32_t length_of(unsigned char first)
{
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first < 0xe0) return 2;
    if (first >= 0xe0 && first < 0xf0) return 3;
    return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

static uint32_t decode(const unsigned char *c, uint32_t len)
{
    static const unsigned char mask[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    uint32_t code = c[0] & mask[len];
    for (uint32_t i = 1; i < len; i++)
        code = code << 6 | (c[i] & 0x3f);
    return code;
}

static bool is_shown(uint32_t code, uint32_t len)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (code < least[len] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    if (code == '\n' || code == '\t') return true;
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
    bool mark = code == 0x200e || code == 0x200f || code == 0x061c;
    bool override = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    return !mark && !override;
}

static void put_torn(struct plain *p, struct buf *out)
{
    uint32_t len = p->torn_len;
    if (is_shown(decode(p->torn, len), len)) {
        buf_append(out, p->torn, len);
    } else {
        buf_str(out, INSTEAD);
    }
    p->torn_len = 0;
}

static void give_up(struct plain *p, struct buf *out)
{
    if (p->torn_len > 0) buf_str(out, INSTEAD);
    p->torn_len = 0;
}

int plain_add(struct plain *p, struct str piece, struct buf *out)
{
    for (size_t i = 0; i < piece.len; i++) {
        unsigned char c = (unsigned char)piece.data[i];
        bool goes_on = (c & 0xc0) == 0x80;
        if (!goes_on || p->torn_len == 0) {
            give_up(p, out);
            if (length_of(c) == 0) {
                buf_str(out, INSTEAD);
                continue;
            }
        }
        p->torn[p->torn_len++] = c;
        if (p->torn_len == length_of(p->torn[0])) put_torn(p, out);
    }
    return out->rc;
}

int plain_end(struct plain *p, struct buf *out)
{
    give_up(p, out);
    return out->rc;
}

int plain_whole(struct str text, struct buf *out)
{
    struct plain p = { 0 };
    plain_add(&p, text, out);
    return plain_end(&p, out);
}
