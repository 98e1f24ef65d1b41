/* methods_text.c - methods of strings. */
#include "base/core/bits.h"
#include "base/text/jinja/text.h"
#include "base/text/unicode.h"

static int strip(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
                 int sides, struct jinja_value *ret)
{
    struct jinja_text chars = { 0 };
    bool named = jinja_arg_given(args, 0) && args->at[0].kind != JINJA_NONE;
    int rc = named ? jinja_arg_text(run, args, 0, &chars) : 0;
    if (rc < 0) return rc;
    if (named && !chars.data) chars.data = "";
    *ret = jinja_string(jinja_strip(self->text, jinja_bytes(chars), sides));
    return 0;
}

static int method_strip(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    return strip(run, self, args, JINJA_LEFT | JINJA_RIGHT, ret);
}

static int method_lstrip(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    return strip(run, self, args, JINJA_LEFT, ret);
}

static int method_rstrip(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    return strip(run, self, args, JINJA_RIGHT, ret);
}

#define CASE_METHOD(name, to)                                                        \
    static int method_##name(struct jinja_run *run, struct jinja_value *self,        \
                             const struct jinja_args *args, struct jinja_value *ret) \
    {                                                                                \
        (void)args;                                                                  \
        return jinja_change_case(run, self->text, to, ret);                          \
    }

CASE_METHOD(upper, JINJA_UPPER)
CASE_METHOD(lower, JINJA_LOWER)
CASE_METHOD(title, JINJA_TITLE)
CASE_METHOD(capitalize, JINJA_CAPITALIZE)
CASE_METHOD(swapcase, JINJA_SWAP)

/* The prefix or suffix, or any of a tuple of them. */
static int has_end(struct jinja_run *run, const struct jinja_value *self,
                   const struct jinja_value *end, bool at_start, struct jinja_value *ret)
{
    const struct jinja_value *ends = end;
    size_t count = 1;
    if (end->kind == JINJA_TUPLE) ends = end->list->items, count = end->list->count;
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        if (ends[i].kind != JINJA_STRING)
            return jinja_type_error(run, "a string or a tuple of strings is needed", &ends[i]);
        struct str s = jinja_bytes(self->text), part = jinja_bytes(ends[i].text);
        found = found || (at_start ? str_starts(s, part) : str_ends(s, part));
    }
    *ret = jinja_bool(found);
    return 0;
}

static int method_startswith(struct jinja_run *run, struct jinja_value *self,
                             const struct jinja_args *args, struct jinja_value *ret)
{
    return has_end(run, self, &args->at[0], true, ret);
}

static int method_endswith(struct jinja_run *run, struct jinja_value *self,
                           const struct jinja_args *args, struct jinja_value *ret)
{
    return has_end(run, self, &args->at[0], false, ret);
}

static int method_removeprefix(struct jinja_run *run, struct jinja_value *self,
                               const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_text part, t = self->text;
    int rc = jinja_arg_text(run, args, 0, &part);
    if (rc < 0) return rc;
    bool has = str_starts(jinja_bytes(t), jinja_bytes(part));
    *ret = jinja_string(has ? jinja_slice(t, part.len, t.len - part.len) : t);
    return 0;
}

static int method_removesuffix(struct jinja_run *run, struct jinja_value *self,
                               const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_text part, t = self->text;
    int rc = jinja_arg_text(run, args, 0, &part);
    if (rc < 0) return rc;
    bool has = str_ends(jinja_bytes(t), jinja_bytes(part));
    *ret = jinja_string(has ? jinja_slice(t, 0, t.len - part.len) : t);
    return 0;
}

static int method_replace(struct jinja_run *run, struct jinja_value *self,
                          const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_text from, to;
    int64_t count;
    int rc = jinja_arg_text(run, args, 0, &from);
    if (rc == 0) rc = jinja_arg_text(run, args, 1, &to);
    if (rc == 0) rc = jinja_arg_int(run, args, 2, -1, &count);
    return rc < 0 ? rc : jinja_replace(run, self->text, from, to, count, ret);
}

/* Last occurrence, or SIZE_MAX. */
static size_t find_last(struct str s, struct str needle)
{
    if (needle.len > s.len) return SIZE_MAX;
    for (size_t at = s.len - needle.len + 1; at-- > 0;)
        if (memcmp(s.data + at, needle.data, needle.len) == 0) return at;
    return SIZE_MAX;
}

/* Runs of anything but blanks; at most `max` cuts, the rest stays whole. */
static int split_blanks(struct jinja_run *run, struct jinja_text t, int64_t max,
                        struct jinja_list *into)
{
    int rc = 0;
    t = jinja_strip(t, (struct str){ 0 }, JINJA_LEFT);
    while (rc == 0 && t.len > 0) {
        size_t end = 0;
        if (max-- == 0) {
            t = jinja_strip(t, (struct str){ 0 }, JINJA_RIGHT);
            return jinja_list_push(run, into, jinja_string(t));
        }
        while (end < t.len) {
            uint32_t cp;
            size_t len = unicode_next(str_of(t.data + end, t.len - end), &cp);
            if (unicode_classes(cp) & UNICODE_SPACE) break;
            end += len;
        }
        rc = jinja_list_push(run, into, jinja_string(jinja_slice(t, 0, end)));
        t = jinja_strip(jinja_slice(t, end, t.len - end), (struct str){ 0 }, JINJA_LEFT);
    }
    return rc;
}

static int split_at(struct jinja_run *run, struct jinja_text t, struct str separator, int64_t max,
                    struct jinja_list *into)
{
    int rc = 0;
    while (rc == 0) {
        size_t at = max-- == 0 ? SIZE_MAX : str_find(jinja_bytes(t), separator);
        if (at == SIZE_MAX) return jinja_list_push(run, into, jinja_string(t));
        rc = jinja_list_push(run, into, jinja_string(jinja_slice(t, 0, at)));
        t = jinja_slice(t, at + separator.len, t.len - at - separator.len);
    }
    return rc;
}

/* From the right, so the parts come out in reverse. */
static int split_at_right(struct jinja_run *run, struct jinja_text t, struct str separator,
                          int64_t max, struct jinja_list *into)
{
    int rc = 0;
    for (bool more = true; rc == 0 && more;) {
        size_t at = max-- == 0 ? SIZE_MAX : find_last(jinja_bytes(t), separator);
        more = at != SIZE_MAX;
        size_t start = more ? at + separator.len : 0;
        rc = jinja_list_push(run, into, jinja_string(jinja_slice(t, start, t.len - start)));
        if (more) t = jinja_slice(t, 0, at);
    }
    for (size_t i = 0; i < into->count / 2; i++) {
        struct jinja_value swap = into->items[i];
        into->items[i] = into->items[into->count - 1 - i];
        into->items[into->count - 1 - i] = swap;
    }
    return rc;
}

static int split(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
                 bool right, struct jinja_value *ret)
{
    struct jinja_text t = self->text, separator = { 0 };
    struct jinja_list *list = NULL;
    int64_t max;
    bool blanks = !jinja_arg_given(args, 0) || args->at[0].kind == JINJA_NONE;
    t.safe = false;
    int rc = jinja_arg_int(run, args, 1, -1, &max);
    if (rc == 0 && !blanks) rc = jinja_arg_text(run, args, 0, &separator);
    if (rc == 0) rc = jinja_list_new(run, 0, &list);
    if (rc == 0) rc = jinja_charge(run, t.len / JINJA_STEP_BYTES);
    if (rc < 0) return rc;
    if (!blanks && separator.len == 0) return jinja_fail(run, -EDOM, "empty separator");
    if (blanks && right && max >= 0)
        return jinja_fail(run, -EDOM, "rsplit at blanks has no limit here");
    if (blanks)
        rc = split_blanks(run, t, max, list);
    else if (right)
        rc = split_at_right(run, t, jinja_bytes(separator), max, list);
    else
        rc = split_at(run, t, jinja_bytes(separator), max, list);
    if (rc == 0) *ret = jinja_list_value(JINJA_LIST, list);
    return rc;
}

static int method_split(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    return split(run, self, args, false, ret);
}

static int method_rsplit(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    return split(run, self, args, true, ret);
}

static int method_splitlines(struct jinja_run *run, struct jinja_value *self,
                             const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *lines = NULL;
    int rc = jinja_split_lines(run, self->text, jinja_arg_true(args, 0), &lines);
    if (rc == 0) *ret = jinja_list_value(JINJA_LIST, lines);
    return rc;
}

/* (before, separator, after) */
static int partition(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
                     bool right, struct jinja_value *ret)
{
    struct jinja_text t = self->text, separator, nothing = { .data = "" };
    struct jinja_list *parts = NULL;
    int rc = jinja_arg_text(run, args, 0, &separator);
    if (rc == 0) rc = jinja_list_new(run, 3, &parts);
    if (rc < 0) return rc;
    if (separator.len == 0) return jinja_fail(run, -EDOM, "empty separator");
    size_t at = right ? find_last(jinja_bytes(t), jinja_bytes(separator))
                      : str_find(jinja_bytes(t), jinja_bytes(separator));
    struct jinja_text before = right ? nothing : t, middle = nothing, after = right ? t : nothing;
    if (at != SIZE_MAX) {
        before = jinja_slice(t, 0, at);
        middle = jinja_slice(t, at, separator.len);
        after = jinja_slice(t, at + separator.len, t.len - at - separator.len);
    }
    rc = jinja_list_push(run, parts, jinja_string(before));
    if (rc == 0) rc = jinja_list_push(run, parts, jinja_string(middle));
    if (rc == 0) rc = jinja_list_push(run, parts, jinja_string(after));
    if (rc == 0) *ret = jinja_list_value(JINJA_TUPLE, parts);
    return rc;
}

static int method_partition(struct jinja_run *run, struct jinja_value *self,
                            const struct jinja_args *args, struct jinja_value *ret)
{
    return partition(run, self, args, false, ret);
}

static int method_rpartition(struct jinja_run *run, struct jinja_value *self,
                             const struct jinja_args *args, struct jinja_value *ret)
{
    return partition(run, self, args, true, ret);
}

/* Position in characters of the first or last occurrence, -1 when there is none. */
static int find(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
                bool last, bool must_exist, struct jinja_value *ret)
{
    struct jinja_text needle, t = self->text;
    int rc = jinja_arg_text(run, args, 0, &needle);
    if (rc < 0) return rc;
    size_t at = last ? find_last(jinja_bytes(t), jinja_bytes(needle))
                     : str_find(jinja_bytes(t), jinja_bytes(needle));
    if (at == SIZE_MAX && must_exist) return jinja_fail(run, -EDOM, "substring not found");
    *ret = jinja_int(at == SIZE_MAX ? -1 : (int64_t)jinja_text_length(jinja_slice(t, 0, at)));
    return 0;
}

static int method_find(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    return find(run, self, args, false, false, ret);
}

static int method_rfind(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    return find(run, self, args, true, false, ret);
}

static int method_index(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    return find(run, self, args, false, true, ret);
}

static int method_count(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_text needle;
    int rc = jinja_arg_text(run, args, 0, &needle);
    if (rc < 0) return rc;
    int64_t count = 0;
    struct str rest = jinja_bytes(self->text);
    for (size_t at; needle.len > 0 && (at = str_find(rest, jinja_bytes(needle))) != SIZE_MAX;
         count++)
        rest = str_of(rest.data + at + needle.len, rest.len - at - needle.len);
    if (needle.len == 0) count = (int64_t)jinja_text_length(self->text) + 1;
    *ret = jinja_int(count);
    return 0;
}

static int method_join(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_list *items = NULL;
    int rc = jinja_items(run, &args->at[0], &items);
    return rc < 0 ? rc : jinja_join(run, self->text, items, false, ret);
}

static int method_format(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    return jinja_format(run, self->text, args, ret);
}

static int pad(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
               char align, struct jinja_value *ret)
{
    struct jinja_text fill = jinja_text_of(STR(" "));
    int64_t width;
    int rc = jinja_arg_int(run, args, 0, 0, &width);
    if (rc == 0 && jinja_arg_given(args, 1)) rc = jinja_arg_text(run, args, 1, &fill);
    if (rc < 0) return rc;
    if (jinja_text_length(fill) != 1)
        return jinja_fail(run, -EDOM, "the fill must be one character");
    return jinja_pad(run, self->text, width, fill, align, ret);
}

static int method_center(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    return pad(run, self, args, '^', ret);
}

static int method_ljust(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    return pad(run, self, args, '<', ret);
}

static int method_rjust(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    return pad(run, self, args, '>', ret);
}

static int method_zfill(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_text t = self->text, sign = { .data = "" };
    int64_t width;
    struct jinja_value digits;
    int rc = jinja_arg_int(run, args, 0, 0, &width);
    if (rc < 0) return rc;
    if (t.len > 0 && (t.data[0] == '-' || t.data[0] == '+')) {
        sign = jinja_slice(t, 0, 1);
        t = jinja_slice(t, 1, t.len - 1);
        if (width > INT64_MIN) width--;
    }
    rc = jinja_pad(run, t, width, jinja_text_of(STR("0")), '>', &digits);
    struct jinja_builder b = { .run = run };
    jinja_put(&b, sign);
    if (rc == 0) jinja_put(&b, digits.text);
    return rc < 0 ? rc : jinja_built(&b, ret);
}

/* At least one character, and all of one of these classes. */
static bool all_of(struct jinja_text t, uint32_t classes)
{
    for (size_t at = 0; at < t.len;) {
        uint32_t cp;
        at += unicode_next(str_of(t.data + at, t.len - at), &cp);
        if (!(unicode_classes(cp) & classes)) return false;
    }
    return t.len > 0;
}

#define CLASS_METHOD(name, condition)                                                \
    static int method_##name(struct jinja_run *run, struct jinja_value *self,        \
                             const struct jinja_args *args, struct jinja_value *ret) \
    {                                                                                \
        (void)run, (void)args;                                                       \
        *ret = jinja_bool(condition);                                                \
        return 0;                                                                    \
    }

CLASS_METHOD(isdigit, all_of(self->text, UNICODE_DIGIT))
CLASS_METHOD(isalpha, all_of(self->text, UNICODE_LETTER))
CLASS_METHOD(isalnum, all_of(self->text, UNICODE_LETTER | UNICODE_NUMBER))
CLASS_METHOD(isspace, all_of(self->text, UNICODE_SPACE))
CLASS_METHOD(isnumeric, all_of(self->text, UNICODE_NUMBER))
CLASS_METHOD(islower, jinja_is_case(self->text, false))
CLASS_METHOD(isupper, jinja_is_case(self->text, true))

const struct jinja_row jinja_methods_text[] = {
    { "capitalize", "", 0, method_capitalize },
    { "center", "width,fillchar", 1, method_center },
    { "count", "sub", 1, method_count },
    { "endswith", "suffix", 1, method_endswith },
    { "find", "sub", 1, method_find },
    { "format", NULL, 0, method_format },
    { "index", "sub", 1, method_index },
    { "isalnum", "", 0, method_isalnum },
    { "isalpha", "", 0, method_isalpha },
    { "isdecimal", "", 0, method_isdigit },
    { "isdigit", "", 0, method_isdigit },
    { "islower", "", 0, method_islower },
    { "isnumeric", "", 0, method_isnumeric },
    { "isspace", "", 0, method_isspace },
    { "isupper", "", 0, method_isupper },
    { "join", "iterable", 1, method_join },
    { "ljust", "width,fillchar", 1, method_ljust },
    { "lower", "", 0, method_lower },
    { "lstrip", "chars", 0, method_lstrip },
    { "partition", "sep", 1, method_partition },
    { "removeprefix", "prefix", 1, method_removeprefix },
    { "removesuffix", "suffix", 1, method_removesuffix },
    { "replace", "old,new,count", 2, method_replace },
    { "rfind", "sub", 1, method_rfind },
    { "rjust", "width,fillchar", 1, method_rjust },
    { "rpartition", "sep", 1, method_rpartition },
    { "rsplit", "sep,maxsplit", 0, method_rsplit },
    { "rstrip", "chars", 0, method_rstrip },
    { "split", "sep,maxsplit", 0, method_split },
    { "splitlines", "keepends", 0, method_splitlines },
    { "startswith", "prefix", 1, method_startswith },
    { "strip", "chars", 0, method_strip },
    { "swapcase", "", 0, method_swapcase },
    { "title", "", 0, method_title },
    { "upper", "", 0, method_upper },
    { "zfill", "width", 1, method_zfill },
    { 0 },
};
