/* filters_text.c - filters whose subject is text. */
#include "base/text/jinja/text.h"
#include "base/text/unicode.h"

#define INDENT_MAX 1000

/* The subject as text, as jinja2's soft_str: str() of anything. */
static int subject(struct jinja_run *run, const struct jinja_value *self, struct jinja_text *ret)
{
    return jinja_to_text(run, self, ret);
}

static int change(struct jinja_run *run, const struct jinja_value *self, enum jinja_case to,
                  struct jinja_value *ret)
{
    struct jinja_text t;
    int rc = subject(run, self, &t);
    return rc < 0 ? rc : jinja_change_case(run, t, to, ret);
}

static int filter_upper(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    return change(run, self, JINJA_UPPER, ret);
}

static int filter_lower(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    return change(run, self, JINJA_LOWER, ret);
}

static int filter_capitalize(struct jinja_run *run, struct jinja_value *self,
                             const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    return change(run, self, JINJA_CAPITALIZE, ret);
}

static bool starts_title(uint32_t cp)
{
    return cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' ||
           (unicode_classes(cp) & UNICODE_SPACE);
}

/* jinja2's own title: a word begins behind a blank or one of -({[<. */
static int filter_title(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    struct jinja_text t;
    struct jinja_builder b = { .run = run };
    int rc = subject(run, self, &t);
    for (size_t at = 0; at < t.len && rc == 0;) {
        uint32_t cp;
        size_t end = at, len = unicode_next(str_of(t.data + at, t.len - at), &cp);
        bool separator = starts_title(cp);
        while (end < t.len) {
            size_t step = unicode_next(str_of(t.data + end, t.len - end), &cp);
            if (starts_title(cp) != separator) break;
            end += step;
        }
        struct jinja_value first, rest;
        rc = jinja_change_case(run, jinja_slice(t, at, len), JINJA_UPPER, &first);
        if (rc == 0)
            rc = jinja_change_case(run, jinja_slice(t, at + len, end - at - len), JINJA_LOWER,
                                   &rest);
        if (rc < 0) break;
        jinja_put(&b, first.text);
        jinja_put(&b, rest.text);
        at = end;
    }
    return rc < 0 ? rc : jinja_built(&b, ret);
}

static int filter_trim(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_text t;
    struct str chars = { 0 };
    int rc = subject(run, self, &t);
    if (rc < 0) return rc;
    if (args->at[0].kind != JINJA_ABSENT && args->at[0].kind != JINJA_NONE) {
        struct jinja_text given;
        rc = jinja_arg_text(run, args, 0, &given);
        if (rc < 0) return rc;
        chars = jinja_bytes(given);
    }
    *ret = jinja_string(jinja_strip(t, chars, JINJA_LEFT | JINJA_RIGHT));
    return 0;
}

static int filter_replace(struct jinja_run *run, struct jinja_value *self,
                          const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_text t, from, to;
    int64_t count;
    int rc = subject(run, self, &t);
    if (rc == 0) rc = jinja_to_text(run, &args->at[0], &from);
    if (rc == 0) rc = jinja_to_text(run, &args->at[1], &to);
    if (rc == 0 && args->at[2].kind == JINJA_NONE)
        count = -1;
    else if (rc == 0)
        rc = jinja_arg_int(run, args, 2, -1, &count);
    return rc < 0 ? rc : jinja_replace(run, t, from, to, count, ret);
}

static int filter_string(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    struct jinja_text t;
    int rc = subject(run, self, &t);
    if (rc == 0) *ret = jinja_string(t);
    return rc;
}

static int filter_safe(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    int rc = filter_string(run, self, args, ret);
    if (rc == 0) ret->text.safe = true;
    return rc;
}

static int filter_escape(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    struct jinja_text t;
    int rc = subject(run, self, &t);
    return rc < 0 ? rc : jinja_escape(run, t, ret);
}

static int filter_forceescape(struct jinja_run *run, struct jinja_value *self,
                              const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    struct jinja_text t;
    int rc = subject(run, self, &t);
    t.safe = false;
    return rc < 0 ? rc : jinja_escape(run, t, ret);
}

static int filter_center(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_text t;
    int64_t width;
    int rc = subject(run, self, &t);
    if (rc == 0) rc = jinja_arg_int(run, args, 0, 80, &width);
    return rc < 0 ? rc : jinja_pad(run, t, width, jinja_text_of(STR(" ")), '^', ret);
}

/* What stands before each line. */
static int indention(struct jinja_run *run, const struct jinja_args *args, struct jinja_text *ret)
{
    int64_t width;
    if (args->at[0].kind == JINJA_STRING) {
        *ret = args->at[0].text;
        return 0;
    }
    int rc = jinja_arg_int(run, args, 0, 4, &width);
    if (rc < 0) return rc;
    if (width > INDENT_MAX) return jinja_fail(run, -E2BIG, "indent of more than %d", INDENT_MAX);
    static const char blanks[INDENT_MAX + 1] = { [0 ... INDENT_MAX - 1] = ' ' };
    *ret = jinja_text_of(str_of(blanks, width > 0 ? (size_t)width : 0));
    return 0;
}

static int filter_indent(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_text before;
    struct jinja_value text;
    struct jinja_list *lines = NULL;
    if (self->kind != JINJA_STRING) return jinja_type_error(run, "indent needs a string", self);
    /* jinja2 adds a line end before it splits, so a last line end stays visible. */
    struct jinja_builder with_end = { .run = run };
    jinja_put(&with_end, self->text);
    jinja_put_text(&with_end, "\n");
    int rc = jinja_built(&with_end, &text);
    if (rc == 0) rc = indention(run, args, &before);
    if (rc == 0) rc = jinja_split_lines(run, text.text, false, &lines);
    if (rc < 0) return rc;
    bool first = jinja_arg_true(args, 1), blank = jinja_arg_true(args, 2);
    struct jinja_builder b = { .run = run };
    for (size_t i = 0; i < lines->count && b.rc == 0; i++) {
        struct jinja_text line = lines->items[i].text;
        if (i > 0) jinja_put_text(&b, "\n");
        if (i == 0 ? first : blank || line.len > 0) jinja_put(&b, before);
        jinja_put(&b, line);
    }
    rc = jinja_built(&b, ret);
    if (rc == 0) ret->text.safe = self->text.safe;
    return rc;
}

static int filter_truncate(struct jinja_run *run, struct jinja_value *self,
                           const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_text end = jinja_text_of(STR("..."));
    int64_t length, leeway = 5, count;
    int rc = jinja_length(run, self, &count);
    if (rc == 0) rc = jinja_arg_int(run, args, 0, 255, &length);
    if (rc == 0 && jinja_arg_given(args, 2)) rc = jinja_arg_text(run, args, 2, &end);
    if (rc == 0 && args->at[3].kind != JINJA_NONE) rc = jinja_arg_int(run, args, 3, 5, &leeway);
    if (rc < 0) return rc;
    int64_t end_len = (int64_t)jinja_text_length(end);
    if (length < end_len || leeway < 0)
        return jinja_fail(run, -EDOM, "truncate: the length is below that of the end");
    if (count <= length || count - length <= leeway) {
        *ret = *self;
        return 0;
    }
    if (self->kind != JINJA_STRING) return jinja_type_error(run, "truncate needs a string", self);
    struct jinja_text t = self->text;
    t = jinja_head(t, (size_t)(length - end_len));
    size_t cut = t.len;
    while (!jinja_arg_true(args, 1) && cut > 0 && t.data[cut - 1] != ' ')
        cut--;
    if (cut > 0 && !jinja_arg_true(args, 1)) t = jinja_slice(t, 0, cut - 1);
    struct jinja_builder b = { .run = run };
    jinja_put(&b, t);
    jinja_put(&b, end);
    return jinja_built(&b, ret);
}

static int filter_wordcount(struct jinja_run *run, struct jinja_value *self,
                            const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    struct jinja_text t;
    int64_t count = 0;
    bool inside = false;
    int rc = subject(run, self, &t);
    if (rc < 0) return rc;
    for (size_t at = 0; at < t.len;) {
        uint32_t cp;
        at += unicode_next(str_of(t.data + at, t.len - at), &cp);
        bool word = cp == '_' || (unicode_classes(cp) & (UNICODE_LETTER | UNICODE_NUMBER));
        count += word && !inside;
        inside = word;
    }
    *ret = jinja_int(count);
    return 0;
}

static int filter_format(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_text t;
    struct jinja_list *list = NULL;
    struct jinja_dict *dict = NULL;
    int rc = subject(run, self, &t);
    if (rc == 0) rc = jinja_list_new(run, args->count, &list);
    if (rc == 0) rc = jinja_dict_new(run, &dict);
    for (size_t i = 0; i < args->count && rc == 0; i++)
        rc = jinja_list_push(run, list, args->at[i]);
    for (size_t i = 0; i < args->named_count && rc == 0; i++)
        rc = jinja_dict_set(run, dict, args->named[i].name, args->named[i].value);
    if (rc < 0) return rc;
    if (args->count > 0 && args->named_count > 0)
        return jinja_fail(run, -EDOM, "format takes values by position or by name, not both");
    struct jinja_value values = jinja_list_value(JINJA_TUPLE, list);
    if (dict->count > 0) values = (struct jinja_value){ .kind = JINJA_DICT, .dict = dict };
    return jinja_percent(run, t, &values, ret);
}

static int filter_urlencode(struct jinja_run *run, struct jinja_value *self,
                            const struct jinja_args *args, struct jinja_value *ret)
{
    static const char hex[] = "0123456789ABCDEF", kept[] = "_.-~/";
    (void)args;
    struct jinja_text t;
    struct jinja_builder b = { .run = run };
    int rc = subject(run, self, &t);
    for (size_t i = 0; i < t.len && rc == 0 && b.rc == 0; i++) {
        unsigned char c = (unsigned char)t.data[i];
        bool plain = c < 128 && c > 0 &&
                     ((unicode_classes(c) & (UNICODE_LETTER | UNICODE_NUMBER)) || strchr(kept, c));
        char escaped[3] = { '%', hex[c >> 4], hex[c & 15] };
        if (plain)
            jinja_put(&b, jinja_slice(t, i, 1));
        else
            jinja_put_marked(&b, str_of(escaped, 3), t.mark && t.mark[i]);
    }
    return rc < 0 ? rc : jinja_built(&b, ret);
}

const struct jinja_row jinja_filters_text[] = {
    { "capitalize", "", 0, filter_capitalize },
    { "center", "width", 0, filter_center },
    { "e", "", 0, filter_escape },
    { "escape", "", 0, filter_escape },
    { "forceescape", "", 0, filter_forceescape },
    { "format", NULL, 0, filter_format },
    { "indent", "width,first,blank", 0, filter_indent },
    { "lower", "", 0, filter_lower },
    { "replace", "old,new,count", 2, filter_replace },
    { "safe", "", 0, filter_safe },
    { "string", "", 0, filter_string },
    { "title", "", 0, filter_title },
    { "trim", "chars", 0, filter_trim },
    { "truncate", "length,killwords,end,leeway", 0, filter_truncate },
    { "upper", "", 0, filter_upper },
    { "urlencode", "", 0, filter_urlencode },
    { "wordcount", "", 0, filter_wordcount },
    { 0 },
};
