/* lex.c - cuts a template into data and tags.
 *
 * Blanks are treated as in jinja2 with trim_blocks and lstrip_blocks:
 *   - one line end directly behind %} or #} is removed (not behind }}); "-" there removes all blanks,
 *     "+" keeps the line end;
 *   - blanks between the start of a line and {% or {# are removed (not before {{); "-" removes all
 *     blanks before the tag, line ends too, and "+" keeps them;
 *   - the template's own last line end is removed; CR and CRLF are line ends and become LF.
 *
 * Inside a tag, %} and }} end it only outside of brackets, so that {{ {'a': {}} }} works.
 */
#include "base/text/jinja/lex.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/text/unicode.h"

#include <stdlib.h>

#define TOKENS_MAX ((size_t)1 << 20)
#define BRACKETS_MAX 256 /* open at once in one tag */

struct lexer {
    struct arena *arena;
    struct str src;
    size_t pos;
    uint32_t line;
    bool line_starts; /* pos is at the start of a line */
    struct jinja_tokens *out;
    char brackets[BRACKETS_MAX];
    size_t bracket_count;
    struct err *err;
};

static int fail(const struct lexer *x, const char *problem)
{
    return err_set(x->err, -EINVAL, "chat template, line %u: %s", x->line, problem);
}

static int no_memory(const struct lexer *x)
{
    return err_set(x->err, -ENOMEM, "no memory for the chat template");
}

static int push(struct lexer *x, struct jinja_token t)
{
    struct jinja_tokens *out = x->out;
    if (out->count == TOKENS_MAX) return err_set(x->err, -E2BIG, "chat template: too many tokens");
    if (out->count == out->cap) {
        size_t cap = out->cap ? 2 * out->cap : 256;
        struct jinja_token *at = arena_array(x->arena, cap, sizeof *at);
        if (!at) return no_memory(x);
        if (out->count > 0) memcpy(at, out->at, out->count * sizeof *at);
        out->at = at;
        out->cap = cap;
    }
    t.line = x->line;
    out->at[out->count++] = t;
    return 0;
}

static char peek(const struct lexer *x, size_t ahead)
{
    return x->pos + ahead < x->src.len ? x->src.data[x->pos + ahead] : '\0';
}

static bool looking_at(const struct lexer *x, size_t ahead, const char *text)
{
    size_t len = strlen(text);
    return x->pos + ahead <= x->src.len && len <= x->src.len - x->pos - ahead &&
           memcmp(x->src.data + x->pos + ahead, text, len) == 0;
}

static void advance(struct lexer *x, size_t len)
{
    for (size_t i = 0; i < len; i++)
        x->line += x->src.data[x->pos + i] == '\n';
    x->pos += len;
    if (len > 0) x->line_starts = x->src.data[x->pos - 1] == '\n';
}

/* Counts the bytes of blanks (Python's isspace) from `ahead` on. */
static size_t blanks_at(const struct lexer *x, size_t ahead)
{
    size_t at = x->pos + ahead;
    while (at < x->src.len) {
        uint32_t cp;
        size_t len = unicode_next(str_of(x->src.data + at, x->src.len - at), &cp);
        if (!(unicode_classes(cp) & UNICODE_SPACE)) break;
        at += len;
    }
    return at - x->pos - ahead;
}

/* Returns the length of `s` without the blanks at its end. */
static size_t length_without_blanks(struct str s)
{
    size_t end = 0;
    for (size_t at = 0; at < s.len;) {
        uint32_t cp;
        at += unicode_next(str_of(s.data + at, s.len - at), &cp);
        if (!(unicode_classes(cp) & UNICODE_SPACE)) end = at;
    }
    return end;
}

/* Pushes the text [from, to) before a tag with that sign, less the blanks that the rules remove. */
static int put_data(struct lexer *x, size_t from, size_t to, char sign, bool is_print,
                    bool line_starts)
{
    struct str text = str_of(x->src.data + from, to - from);
    if (sign == '-') {
        text.len = length_without_blanks(text);
    } else if (sign != '+' && !is_print) {
        size_t line = text.len;
        while (line > 0 && text.data[line - 1] != '\n')
            line--;
        struct str last = str_of(text.data + line, text.len - line);
        if ((line > 0 || line_starts) && length_without_blanks(last) == 0) text.len = line;
    }
    if (text.len == 0) return 0;
    return push(x, (struct jinja_token){ .kind = JINJA_TOKEN_DATA, .text = text });
}

/* Returns the length of an end of tag ("%}", "#}") at `ahead` with its sign and the blanks that it removes;
 * 0 if there is none. */
static size_t tag_end(const struct lexer *x, size_t ahead, const char *end)
{
    if (peek(x, ahead) == '-' && looking_at(x, ahead + 1, end)) return 3 + blanks_at(x, ahead + 3);
    if (peek(x, ahead) == '+' && looking_at(x, ahead + 1, end)) return 3;
    if (!looking_at(x, ahead, end)) return 0;
    return peek(x, ahead + 2) == '\n' ? 3 : 2;
}

static int skip_comment(struct lexer *x)
{
    size_t len = 0;
    while (x->pos < x->src.len && (len = tag_end(x, 0, "#}")) == 0)
        advance(x, 1);
    if (len == 0) return fail(x, "a comment {# has no end");
    advance(x, len);
    return 0;
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Lexes a number as 7 or 2.5. Other forms of Python (0xff, 1e9, 1_000) are malformed here. */
static int lex_number(struct lexer *x)
{
    size_t len = 0, point = 0;
    bool after_dot = x->pos > 0 && x->src.data[x->pos - 1] == '.'; /* a.0.5: two indices */
    while (is_digit(peek(x, len)) ||
           (peek(x, len) == '.' && !point && !after_dot && is_digit(peek(x, len + 1)))) {
        if (peek(x, len) == '.') point = len;
        len++;
    }
    char text[64], *end = text;
    if (len >= sizeof text || is_name_byte(peek(x, len))) return fail(x, "a number is malformed");
    memcpy(text, x->src.data + x->pos, len);
    text[len] = '\0';
    struct jinja_token t = { .kind = point ? JINJA_TOKEN_FLOAT : JINJA_TOKEN_INT };
    errno = 0;
    if (point)
        t.real = strtod(text, &end);
    else
        t.integer = strtoll(text, &end, 10);
    if (errno == ERANGE) return fail(x, "a number has more than 64 bits");
    int rc = push(x, t);
    advance(x, len);
    return rc;
}

/* Decodes the character of 4 hexadecimal digits; false for other text and for half a surrogate pair. */
static bool hex_escape(struct str raw, size_t at, char *out, size_t *ret_len)
{
    uint8_t bytes[2];
    if (raw.len - at < 4 || hex_to(str_of(raw.data + at, 4), bytes, 2) < 0) return false;
    uint32_t cp = (uint32_t)bytes[0] << 8 | bytes[1];
    if (cp >= 0xD800 && cp < 0xE000) return false;
    *ret_len = utf8_encode(cp, out);
    return true;
}

/* Decodes one escape behind the backslash at raw[at - 1]; returns the bytes read, or 0 if it is unknown. */
static size_t escape(struct str raw, size_t at, char *out, size_t *ret_len)
{
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    char c = raw.data[at];
    const char *letter = c ? strchr(letters, c) : NULL;
    *ret_len = 1;
    if (letter) *out = values[letter - letters];
    if (letter) return 1;
    if (c == 'u') return hex_escape(raw, at + 1, out, ret_len) ? 5 : 0;
    if (strchr("xUN01234567\n", c)) return 0;
    out[0] = '\\', out[1] = c; /* unknown: the backslash stays, as in Python */
    *ret_len = 2;
    return 1;
}

static int lex_string(struct lexer *x)
{
    char quote = peek(x, 0);
    size_t len = 1;
    bool escaped = false;
    while (x->pos + len < x->src.len && peek(x, len) != quote) {
        escaped = escaped || peek(x, len) == '\\';
        len += peek(x, len) == '\\' ? 2 : 1;
    }
    if (x->pos + len >= x->src.len) return fail(x, "a string has no end");
    struct str raw = str_of(x->src.data + x->pos + 1, len - 1);
    struct jinja_token t = { .kind = JINJA_TOKEN_STRING, .text = raw };
    if (escaped) {
        char *text = arena_alloc(x->arena, raw.len + 4); /* no escape is shorter than its text */
        if (!text) return no_memory(x);
        size_t out = 0;
        for (size_t at = 0; at < raw.len;) {
            if (raw.data[at] != '\\') {
                text[out++] = raw.data[at++];
                continue;
            }
            size_t made, used = escape(raw, at + 1, text + out, &made);
            if (used == 0) return fail(x, "a string has an escape that is not known here");
            out += made;
            at += 1 + used;
        }
        t.text = str_of(text, out);
    }
    int rc = push(x, t);
    advance(x, len + 1);
    return rc;
}

static int track_bracket(struct lexer *x, char c)
{
    static const char opens[] = "([{", closes[] = ")]}";
    const char *open = strchr(opens, c), *close = strchr(closes, c);
    if (open) {
        if (x->bracket_count == BRACKETS_MAX) return fail(x, "too many open brackets");
        x->brackets[x->bracket_count++] = closes[open - opens];
    } else if (close) {
        if (x->bracket_count == 0 || x->brackets[x->bracket_count - 1] != c)
            return fail(x, "a closing bracket does not match");
        x->bracket_count--;
    }
    return 0;
}

static int lex_operator(struct lexer *x)
{
    static const char *const pairs[] = { "//", "==", "!=", ">=", "<=" };
    static const char singles[] = "+-/*%~[](){}><=.:|,;";
    size_t len = 0;
    for (size_t i = 0; i < COUNT_OF(pairs); i++)
        if (looking_at(x, 0, pairs[i])) len = 2;
    if (len == 0 && peek(x, 0) && strchr(singles, peek(x, 0))) len = 1;
    if (len == 0) return fail(x, "an unexpected character in a tag");
    int rc = len == 1 ? track_bracket(x, peek(x, 0)) : 0;
    struct str text = str_of(x->src.data + x->pos, len);
    if (rc == 0) rc = push(x, (struct jinja_token){ .kind = JINJA_TOKEN_OPERATOR, .text = text });
    advance(x, len);
    return rc;
}

static int lex_name(struct lexer *x)
{
    size_t len = 0;
    while (is_name_byte(peek(x, len)) && x->pos + len < x->src.len)
        len++;
    struct str text = str_of(x->src.data + x->pos, len);
    int rc = push(x, (struct jinja_token){ .kind = JINJA_TOKEN_NAME, .text = text });
    advance(x, len);
    return rc;
}

/* Returns the length of the end of this tag; 0 when the tag goes on. */
static size_t end_of_tag(const struct lexer *x, bool is_print)
{
    if (x->bracket_count > 0) return 0;
    if (!is_print) return tag_end(x, 0, "%}");
    if (looking_at(x, 0, "-}}")) return 3 + blanks_at(x, 3);
    return looking_at(x, 0, "}}") ? 2 : 0;
}

static int lex_tag(struct lexer *x, bool is_print)
{
    int rc =
        push(x, (struct jinja_token){ .kind = is_print ? JINJA_TOKEN_PRINT : JINJA_TOKEN_BLOCK });
    while (rc == 0) {
        size_t end = end_of_tag(x, is_print);
        if (end > 0) {
            rc = push(x, (struct jinja_token){ .kind = is_print ? JINJA_TOKEN_PRINT_END
                                                                : JINJA_TOKEN_BLOCK_END });
            advance(x, end);
            return rc;
        }
        size_t blanks = blanks_at(x, 0);
        char c = peek(x, 0);
        if (x->pos >= x->src.len)
            rc = fail(x, is_print ? "{{ has no }}" : "{% has no %}");
        else if (blanks > 0)
            advance(x, blanks);
        else if (is_digit(c))
            rc = lex_number(x);
        else if (is_name_byte(c))
            rc = lex_name(x);
        else if (c == '\'' || c == '"')
            rc = lex_string(x);
        else
            rc = lex_operator(x);
    }
    return rc;
}

/* Lexes the data up to the next tag, then that tag. */
static int lex_next(struct lexer *x)
{
    size_t at = x->pos;
    while (at < x->src.len && !(x->src.data[at] == '{' && at + 1 < x->src.len &&
                                strchr("%{#", x->src.data[at + 1]) && x->src.data[at + 1]))
        at++;
    size_t from = x->pos;
    bool line_starts = x->line_starts;
    if (at >= x->src.len) {
        int rc = push(x, (struct jinja_token){ .kind = JINJA_TOKEN_DATA,
                                               .text = str_of(x->src.data + from, at - from) });
        advance(x, at - from);
        return rc;
    }
    char kind = x->src.data[at + 1];
    char sign = at + 2 < x->src.len ? x->src.data[at + 2] : '\0';
    int rc = put_data(x, from, at, sign, kind == '{', line_starts);
    advance(x, at - from);
    if (rc < 0) return rc;
    advance(x, sign == '-' || sign == '+' ? 3 : 2);
    return kind == '#' ? skip_comment(x) : lex_tag(x, kind == '{');
}

/* Turns CR and CRLF into LF and removes the last line end. */
static int normalise(struct lexer *x, struct str source)
{
    if (source.len > 0 && memchr(source.data, '\r', source.len)) {
        char *text = arena_alloc(x->arena, source.len);
        if (!text) return no_memory(x);
        size_t len = 0;
        for (size_t i = 0; i < source.len; i++) {
            if (source.data[i] == '\n' && i > 0 && source.data[i - 1] == '\r') continue;
            text[len++] = source.data[i] == '\r' ? '\n' : source.data[i];
        }
        source = str_of(text, len);
    }
    if (source.len > 0 && source.data[source.len - 1] == '\n') source.len--;
    x->src = source;
    return 0;
}

int jinja_lex(struct arena *arena, struct str source, struct jinja_tokens *ret, struct err *err)
{
    struct jinja_tokens tokens = { 0 };
    struct lexer x = { .arena = arena, .line = 1, .line_starts = true, .out = &tokens, .err = err };
    int rc = normalise(&x, source);
    while (rc == 0 && x.pos < x.src.len)
        rc = lex_next(&x);
    if (rc == 0) rc = push(&x, (struct jinja_token){ .kind = JINJA_TOKEN_END });
    if (rc == 0) *ret = tokens;
    return rc;
}
