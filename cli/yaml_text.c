/* yaml_text.c - walks JSON once with the pull reader and writes each token where YAML has it.
 *
 * Written here and not by libyaml: its emitter breaks long texts into lines and reads a tree of events,
 * while the values of a reply need a dozen rules. Numbers get a point and a sign in their exponent,
 * because YAML 1.1 reads 1e-05 as text. */
#include "cli/yaml_text.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"

#define LEVEL 2 /* spaces */

enum place { AT_TOP, AFTER_KEY, IN_LIST };

struct yaml {
    struct json_reader r;
    struct buf *out;
    struct buf text; /* the string at hand, unescaped */
};

/* ---- texts ---- */

/* Words that YAML 1.1 or 1.2 takes for a bool or null, in small letters. */
static const char *const words[] = { "true", "false", "yes", "no", "on", "off", "y", "n", "null" };

static bool is_word(struct str s)
{
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (str_eq_nocase(s, str_from(words[i]))) return true;
    return false;
}

/* Returns true for characters that YAML prints as they are and breaks no line at. */
static bool is_shown(uint32_t c)
{
    if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return false;
    return c != 0x2028 && c != 0x2029 && c != 0xfeff && c != 0xfffe && c != 0xffff;
}

/* A text that starts with a letter or a slash is no number, date or indicator. */
static bool may_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '/';
}

static bool is_plain(struct str s)
{
    if (s.len == 0 || !may_start(s.data[0]) || is_word(s)) return false;
    char last = s.data[s.len - 1];
    if (last == ' ' || last == ':') return false;
    for (size_t i = 0; i < s.len;) {
        uint32_t c;
        size_t len = utf8_decode(str_of(s.data + i, s.len - i), &c);
        if (len == 0 || !is_shown(c)) return false;
        if (c == '#' && s.data[i - 1] == ' ') return false;
        if (c == ':' && s.data[i + 1] == ' ') return false;
        i += len;
    }
    return true;
}

static void put_quoted(struct str s, struct buf *out)
{
    buf_byte(out, '"');
    for (size_t i = 0; i < s.len;) {
        uint32_t c;
        struct str rest = str_of(s.data + i, s.len - i);
        size_t len = utf8_decode(rest, &c);
        must(len > 0); /* the reader has checked it */
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", (char)c);
        else if (c == '\n')
            buf_text(out, "\\n");
        else if (c == '\t')
            buf_text(out, "\\t");
        else if (is_shown(c))
            buf_append(out, rest.data, len);
        else
            buf_printf(out, c <= 0xff ? "\\x%02X" : "\\u%04X", c);
        i += len;
    }
    buf_byte(out, '"');
}

static void put_text(struct yaml *y)
{
    buf_clear(&y->text);
    if (json_text(&y->r, &y->text) < 0) y->out->rc = -ENOMEM;
    struct str s = buf_view(&y->text);
    if (is_plain(s))
        buf_str(y->out, s);
    else
        put_quoted(s, y->out);
}

static void put_number(struct str n, struct buf *out)
{
    size_t e = str_find(n, STR("e"));
    if (e == SIZE_MAX) e = str_find(n, STR("E"));
    if (e == SIZE_MAX) {
        buf_str(out, n);
        return;
    }
    struct str mantissa = str_of(n.data, e), exponent = str_of(n.data + e + 1, n.len - e - 1);
    buf_str(out, mantissa);
    if (str_find(mantissa, STR(".")) == SIZE_MAX) buf_text(out, ".0");
    bool is_signed = exponent.data[0] == '+' || exponent.data[0] == '-';
    buf_text(out, is_signed ? "e" : "e+");
    buf_str(out, exponent);
}

/* ---- the walk ---- */

static void put_value(struct yaml *y, uint32_t indent, enum place place);

static void begin_line(struct yaml *y, uint32_t indent, bool *goes_on)
{
    if (!*goes_on) buf_printf(y->out, "%*s", (int)indent, "");
    *goes_on = false;
}

/* Writes the members of the object that has begun. With goes_on the first one stands behind "- ". */
static void put_members(struct yaml *y, uint32_t indent, bool goes_on)
{
    while (json_next(&y->r) == JSON_KEY) {
        begin_line(y, indent, &goes_on);
        put_text(y);
        buf_byte(y->out, ':');
        json_next(&y->r);
        put_value(y, indent, AFTER_KEY);
    }
}

static void put_items(struct yaml *y, uint32_t indent, bool goes_on)
{
    while (json_next(&y->r) != JSON_ARRAY_END && y->r.token != JSON_ERROR) {
        begin_line(y, indent, &goes_on);
        buf_text(y->out, "- ");
        put_value(y, indent, IN_LIST);
    }
}

/* Returns true if the object or list that has begun ends at once. */
static bool is_empty(const struct yaml *y)
{
    struct json_reader ahead = y->r;
    enum json_token t = json_next(&ahead);
    return t == JSON_OBJECT_END || t == JSON_ARRAY_END;
}

static void put_scalar(struct yaml *y)
{
    if (y->r.token == JSON_STRING)
        put_text(y);
    else if (y->r.token == JSON_NUMBER)
        put_number(y->r.raw, y->out);
    else if (y->r.token == JSON_NULL)
        buf_text(y->out, "null");
    else
        buf_text(y->out, y->r.token == JSON_TRUE ? "true" : "false");
    buf_byte(y->out, '\n');
}

/* Writes the value that starts with the current token; `indent` is that of its key or its dash. */
static void put_value(struct yaml *y, uint32_t indent, enum place place)
{
    bool object = y->r.token == JSON_OBJECT, list = y->r.token == JSON_ARRAY;
    if (y->r.token == JSON_ERROR) return;
    if ((object || list) && is_empty(y)) {
        json_next(&y->r);
        buf_text(y->out, place == AFTER_KEY ? " " : "");
        buf_text(y->out, object ? "{}\n" : "[]\n");
        return;
    }
    if (object || list) {
        if (place == AFTER_KEY) buf_byte(y->out, '\n');
        bool deeper = place == IN_LIST || (place == AFTER_KEY && object);
        uint32_t inner = indent + (deeper ? LEVEL : 0);
        if (object)
            put_members(y, inner, place == IN_LIST);
        else
            put_items(y, inner, place == IN_LIST);
        return;
    }
    if (place == AFTER_KEY) buf_byte(y->out, ' ');
    put_scalar(y);
}

int yaml_of_json(struct str json, struct buf *out)
{
    struct yaml y = { .out = out };
    json_reader_init(&y.r, json);
    json_next(&y.r);
    put_value(&y, 0, AT_TOP);
    bool whole = y.r.token != JSON_ERROR && json_next(&y.r) == JSON_END;
    buf_fini(&y.text);
    return whole ? out->rc : -EINVAL;
}
