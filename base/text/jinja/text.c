/* text.c - implements Python's string functions over marked UTF-8. */
#include "base/text/jinja/text.h"

#include "base/core/bits.h"
#include "base/text/unicode.h"

static size_t char_length(struct jinja_text t, size_t at)
{
    uint32_t cp;
    return unicode_next(str_of(t.data + at, t.len - at), &cp);
}

static size_t last_char_start(struct jinja_text t)
{
    size_t at = t.len - 1;
    while (at > 0 && ((unsigned char)t.data[at] & 0xC0) == 0x80)
        at--;
    return at;
}

/* Returns true if the character at [at, at + len) is to be stripped. */
static bool is_stripped(struct jinja_text t, size_t at, size_t len, struct str chars)
{
    struct str c = str_of(t.data + at, len);
    if (chars.data) return str_find(chars, c) != SIZE_MAX;
    uint32_t cp;
    unicode_next(c, &cp);
    return unicode_classes(cp) & UNICODE_SPACE;
}

struct jinja_text jinja_strip(struct jinja_text t, struct str chars, int sides)
{
    size_t start = 0;
    while ((sides & JINJA_LEFT) && start < t.len) {
        size_t len = char_length(t, start);
        if (!is_stripped(t, start, len, chars)) break;
        start += len;
    }
    t = jinja_slice(t, start, t.len - start);
    while ((sides & JINJA_RIGHT) && t.len > 0) {
        size_t at = last_char_start(t);
        if (!is_stripped(t, at, t.len - at, chars)) break;
        t = jinja_slice(t, 0, at);
    }
    return t;
}

int jinja_replace(struct jinja_run *run, struct jinja_text t, struct jinja_text from,
                  struct jinja_text to, int64_t count, struct jinja_value *ret)
{
    if (from.len == 0) return jinja_fail(run, -EDOM, "replace needs a text to look for");
    struct jinja_builder b = { .run = run };
    int rc = jinja_charge(run, t.len / JINJA_STEP_BYTES);
    if (rc < 0) return rc;
    size_t done = 0;
    for (; count != 0 && b.rc == 0; count--) {
        size_t at = str_find(str_of(t.data + done, t.len - done), jinja_bytes(from));
        if (at == SIZE_MAX) break;
        jinja_put(&b, jinja_slice(t, done, at));
        jinja_put(&b, to);
        done += at + from.len;
    }
    jinja_put(&b, jinja_slice(t, done, t.len - done));
    return jinja_built(&b, ret);
}

#define SIGMA 0x3A3u
#define SMALL_SIGMA 0x3C3u
#define FINAL_SIGMA 0x3C2u

/* Returns the case that a character takes. */
static enum unicode_case case_for(enum jinja_case to, bool first)
{
    if (to == JINJA_UPPER) return UNICODE_UPPER;
    return to == JINJA_CAPITALIZE && first ? UNICODE_TITLE : UNICODE_LOWER;
}

int jinja_change_case(struct jinja_run *run, struct jinja_text t, enum jinja_case to,
                      struct jinja_value *ret)
{
    struct jinja_builder b = { .run = run };
    bool after_cased = false;
    for (size_t at = 0; at < t.len && b.rc == 0;) {
        uint32_t cp, next = UNICODE_BAD, made[UNICODE_CASE_MAX];
        size_t len = unicode_next(str_of(t.data + at, t.len - at), &cp);
        if (at + len < t.len) unicode_next(str_of(t.data + at + len, t.len - at - len), &next);
        enum unicode_case target = case_for(to, at == 0);
        size_t count = unicode_to_case(target, cp, made);
        /* The only rule of lower case that depends on neighbours: sigma at the end of a word. */
        if (cp == SIGMA && target == UNICODE_LOWER)
            made[0] = after_cased && !unicode_is_cased(next) ? FINAL_SIGMA : SMALL_SIGMA;
        for (size_t i = 0; i < count; i++) {
            char text[4];
            size_t made_len = utf8_encode(made[i], text);
            jinja_put_marked(&b, str_of(text, made_len), t.mark && t.mark[at]);
        }
        after_cased = unicode_is_cased(cp);
        at += len;
    }
    return jinja_built(&b, ret);
}

static bool is_line_end(uint32_t cp)
{
    return (cp >= '\n' && cp <= '\r') || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

int jinja_split_lines(struct jinja_run *run, struct jinja_text t, struct jinja_list **ret)
{
    struct jinja_list *lines = NULL;
    int rc = jinja_list_new(run, 0, &lines);
    size_t start = 0;
    t.safe = false;
    for (size_t at = 0; at < t.len && rc == 0;) {
        uint32_t cp;
        size_t len = unicode_next(str_of(t.data + at, t.len - at), &cp), end = at;
        at += len;
        if (!is_line_end(cp)) continue;
        if (cp == '\r' && at < t.len && t.data[at] == '\n') at++;
        rc = jinja_list_push(run, lines, jinja_string(jinja_slice(t, start, end - start)));
        start = at;
    }
    if (rc == 0 && start < t.len)
        rc = jinja_list_push(run, lines, jinja_string(jinja_slice(t, start, t.len - start)));
    if (rc == 0) *ret = lines;
    return rc;
}
