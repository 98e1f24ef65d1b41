/* arguments.c - two automata over the bytes of a value: JSON, and the arguments of a call in Python. */
#include "base/text/dialogue/arguments.h"

#include "base/core/str.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void put_escaped(struct buf *out, char c)
{
    buf_printf(out, "u%04x", (unsigned)(unsigned char)c);
}

/* Opens a level; false: there are too many. */
static bool push(struct arguments *a, bool object, bool tuple)
{
    if (a->depth == DIALOGUE_DEPTH_MAX) return false;
    uint64_t bit = 1ull << a->depth++;
    a->is_object = object ? a->is_object | bit : a->is_object & ~bit;
    a->is_tuple = tuple ? a->is_tuple | bit : a->is_tuple & ~bit;
    return true;
}

static bool in_object(const struct arguments *a)
{
    return a->depth > 0 && (a->is_object >> (a->depth - 1) & 1);
}

/* ---- JSON ---- */

/* Reads a digit of \u. False: it is none, and what was held is written as text. */
static bool hex_digit(struct arguments *a, char c, struct buf *out)
{
    bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (digit) a->hex[a->hex_len++] = c;
    if (digit && a->hex_len < sizeof a->hex) return true;
    a->in_hex = false;
    buf_text(out, digit ? "\\u" : "\\\\u");
    if (a->hex_len > 0) buf_append(out, a->hex, a->hex_len);
    a->hex_len = 0;
    return digit;
}

/* Reads a byte inside a string; true: it ended. Escapes that JSON does not have get their backslash escaped. */
static bool json_string(struct arguments *a, char c, struct buf *out)
{
    bool escape = a->escape;
    if (a->in_hex && hex_digit(a, c, out)) return false;
    a->escape = !escape && c == '\\';
    if (a->escape) return false;
    if (escape && c == 'u') {
        a->in_hex = true;
        return false;
    }
    if (escape) buf_text(out, c && strchr("\"\\/bfnrt", c) ? "\\" : "\\\\");
    if ((unsigned char)c < 0x20) {
        buf_byte(out, '\\');
        put_escaped(out, c);
        return false;
    }
    buf_byte(out, c);
    return c == '"' && !escape;
}

enum arguments_step arguments_json(struct arguments *a, char c, struct buf *out)
{
    if (a->quote) {
        if (!json_string(a, c, out)) return ARGUMENTS_MORE;
        a->quote = 0;
        return a->depth == 0 ? ARGUMENTS_DONE : ARGUMENTS_MORE;
    }
    if (a->depth == 0 && a->begun && (is_space(c) || c == ',' || c == '}' || c == ']'))
        return ARGUMENTS_BEFORE;
    if (c == '{' || c == '[') {
        if ((a->depth == 0 && a->begun) || !push(a, c == '{', false)) return ARGUMENTS_WRONG;
    } else if (c == '}' || c == ']') {
        if (a->depth == 0 || in_object(a) != (c == '}')) return ARGUMENTS_WRONG;
        a->depth--;
        buf_byte(out, c);
        return a->depth == 0 ? ARGUMENTS_DONE : ARGUMENTS_MORE;
    } else if (c == '"') {
        if (a->depth == 0 && a->begun) return ARGUMENTS_WRONG;
        a->quote = c;
    } else if ((unsigned char)c < 0x20 && !is_space(c)) {
        return ARGUMENTS_WRONG;
    }
    a->begun = true;
    buf_byte(out, c);
    return ARGUMENTS_MORE;
}

/* ---- Python ---- */

enum python_state {
    PYTHON_KEY, /* of an argument, or the end */
    PYTHON_NAME,
    PYTHON_EQUALS,
    PYTHON_VALUE,
    PYTHON_STRING,
    PYTHON_WORD,
    PYTHON_AFTER, /* a value */
};

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static enum arguments_step close_all(struct arguments *a, struct buf *out)
{
    buf_text(out, a->begun ? "}" : "{}");
    return ARGUMENTS_DONE;
}

/* Reads a name, which is held until = shows that it is one. */
static enum arguments_step python_key(struct arguments *a, char c, struct buf *out)
{
    bool digit = c >= '0' && c <= '9';
    if (a->state == PYTHON_KEY) {
        if (is_space(c)) return ARGUMENTS_MORE;
        if (c == ')') return close_all(a, out);
        if (!is_name_char(c) || digit) return ARGUMENTS_WRONG;
        a->state = PYTHON_NAME;
    }
    if (a->state == PYTHON_NAME && is_name_char(c)) {
        if (a->word_len == sizeof a->word) return ARGUMENTS_WRONG;
        a->word[a->word_len++] = c;
        return ARGUMENTS_MORE;
    }
    if (is_space(c)) {
        a->state = PYTHON_EQUALS;
        return ARGUMENTS_MORE;
    }
    if (c != '=') return ARGUMENTS_WRONG;
    buf_text(out, a->begun ? ", \"" : "{\"");
    buf_append(out, a->word, a->word_len);
    buf_text(out, "\": ");
    a->begun = true;
    a->word_len = 0;
    a->state = PYTHON_VALUE;
    return ARGUMENTS_MORE;
}

static enum arguments_step python_string(struct arguments *a, char c, struct buf *out)
{
    bool escape = a->escape;
    if (a->in_hex && hex_digit(a, c, out)) return ARGUMENTS_MORE;
    a->escape = !escape && c == '\\';
    if (a->escape || (escape && c == '\n')) return ARGUMENTS_MORE; /* the latter: a line goes on */
    if (!escape && c == a->quote) {
        buf_byte(out, '"');
        a->quote = 0;
        a->state = PYTHON_AFTER;
        return ARGUMENTS_MORE;
    }
    if (escape && c == 'u') {
        a->in_hex = true;
        return ARGUMENTS_MORE;
    }
    if (escape && c != '\'') buf_text(out, c && strchr("\"\\bfnrt", c) ? "\\" : "\\\\");
    if (!escape && c == '"') buf_byte(out, '\\');
    if ((unsigned char)c < 0x20) {
        buf_byte(out, '\\');
        put_escaped(out, c);
    } else {
        buf_byte(out, c);
    }
    return ARGUMENTS_MORE;
}

/* Ends a bare word: a number, or one of the words for true, false and nothing. */
static bool word_ends(struct arguments *a, struct buf *out)
{
    static const char *const words[][2] = { { "True", "true" },   { "False", "false" },
                                            { "None", "null" },   { "true", "true" },
                                            { "false", "false" }, { "null", "null" } };
    struct str word = str_of(a->word, a->word_len);
    double number;
    bool begins = word.data[0] == '-' || (word.data[0] >= '0' && word.data[0] <= '9');
    a->word_len = 0;
    a->state = PYTHON_AFTER;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (str_eq(word, str_from(words[i][0]))) return buf_text(out, words[i][1]), true;
    /* JSON has no number that ends in a point, and none that begins with a further zero. */
    size_t first = word.data[0] == '-';
    bool zero = word.len > first + 1 && word.data[first] == '0' && word.data[first + 1] >= '0' &&
                word.data[first + 1] <= '9';
    size_t point = str_find(word, STR("."));
    bool bare_point =
        point != SIZE_MAX && (point == first || point + 1 == word.len ||
                              word.data[point + 1] < '0' || word.data[point + 1] > '9');
    for (size_t i = 0; i < word.len; i++)
        begins = begins && strchr("0123456789+-.eE", word.data[i]);
    if (!begins || zero || bare_point || str_to_f64(word, &number) < 0) return false;
    buf_str(out, word);
    return true;
}

static enum arguments_step python_after(struct arguments *a, char c, struct buf *out)
{
    if (is_space(c)) return ARGUMENTS_MORE;
    if (a->is_key != (c == ':')) return ARGUMENTS_WRONG;
    if (c == ':') {
        buf_text(out, ": ");
        a->is_key = false;
        a->state = PYTHON_VALUE;
        return ARGUMENTS_MORE;
    }
    if (c == ',') {
        a->comma_due = a->depth > 0;
        a->is_key = in_object(a);
        a->state = a->depth > 0 ? PYTHON_VALUE : PYTHON_KEY;
        return ARGUMENTS_MORE;
    }
    if (c == ')' && a->depth == 0) return close_all(a, out);
    bool tuple = a->depth > 0 && (a->is_tuple >> (a->depth - 1) & 1);
    if (a->depth == 0 || c != (in_object(a) ? '}' : tuple ? ')' : ']')) return ARGUMENTS_WRONG;
    buf_byte(out, c == '}' ? '}' : ']');
    a->depth--;
    return ARGUMENTS_MORE;
}

static enum arguments_step python_value(struct arguments *a, char c, struct buf *out)
{
    bool closes = c == ')' || c == ']' || c == '}';
    if (is_space(c)) return ARGUMENTS_MORE;
    if (closes && a->depth > 0 && (a->opened || a->comma_due)) {
        a->comma_due = a->is_key = a->opened = false;
        a->state = PYTHON_AFTER;
        return python_after(a, c, out);
    }
    if (a->comma_due) buf_text(out, ", ");
    a->comma_due = a->opened = false;
    if (c == '"' || c == '\'') {
        a->quote = c;
        a->state = PYTHON_STRING;
        buf_byte(out, '"');
        return ARGUMENTS_MORE;
    }
    if (a->is_key) return ARGUMENTS_WRONG;
    if (c == '[' || c == '{' || c == '(') {
        if (!push(a, c == '{', c == '(')) return ARGUMENTS_WRONG;
        a->is_key = c == '{';
        a->opened = true;
        buf_byte(out, c == '{' ? '{' : '[');
        return ARGUMENTS_MORE;
    }
    if (!is_name_char(c) && c != '-') return ARGUMENTS_WRONG;
    a->word[a->word_len++] = c;
    a->state = PYTHON_WORD;
    return ARGUMENTS_MORE;
}

enum arguments_step arguments_python(struct arguments *a, char c, struct buf *out)
{
    switch ((enum python_state)a->state) {
    case PYTHON_KEY:
    case PYTHON_NAME:
    case PYTHON_EQUALS:
        return python_key(a, c, out);
    case PYTHON_STRING:
        return python_string(a, c, out);
    case PYTHON_WORD:
        if (is_name_char(c) || c == '.' || c == '-' || c == '+') {
            if (a->word_len == sizeof a->word) return ARGUMENTS_WRONG;
            a->word[a->word_len++] = c;
            return ARGUMENTS_MORE;
        }
        return word_ends(a, out) ? python_after(a, c, out) : ARGUMENTS_WRONG;
    case PYTHON_AFTER:
        return python_after(a, c, out);
    case PYTHON_VALUE:
        break;
    }
    return python_value(a, c, out);
}
