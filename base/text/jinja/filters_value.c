/* filters_value.c - filters for any value, and finding a filter by its name. */
#include "base/core/bits.h"
#include "base/text/jinja/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int filter_default(struct jinja_run *run, struct jinja_value *self,
                          const struct jinja_args *args, struct jinja_value *ret)
{
    (void)run;
    bool missing = self->kind == JINJA_UNDEFINED || (jinja_arg_true(args, 1) && !jinja_truth(self));
    *ret = *self;
    if (missing)
        *ret = jinja_arg_given(args, 0) ? args->at[0] : jinja_string(jinja_text_of(STR("")));
    return 0;
}

static int filter_abs(struct jinja_run *run, struct jinja_value *self,
                      const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    int64_t i;
    if (self->kind == JINJA_FLOAT) {
        *ret = jinja_float(fabs(self->real));
        return 0;
    }
    if (!jinja_as_int(self, &i)) return jinja_type_error(run, "abs needs a number", self);
    if (i == INT64_MIN) return jinja_fail(run, -EDOM, "an integer of more than 64 bits");
    *ret = jinja_int(i < 0 ? -i : i);
    return 0;
}

/* Python's float(text): blanks around, underscores between digits, nan and inf by name. */
static bool text_to_float(struct jinja_text t, double *ret)
{
    struct str s = jinja_bytes(jinja_strip(t, (struct str){ 0 }, JINJA_LEFT | JINJA_RIGHT));
    char text[400];
    size_t len = 0;
    if (s.len == 0 || s.len >= sizeof text) return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        if (c == 'x' || c == 'X' || c == 'p' || c == 'P' || c == '(') return false; /* only C's */
        if (c != '_') text[len++] = c;
    }
    text[len] = '\0';
    char *end;
    *ret = strtod(text, &end);
    return len > 0 && *end == '\0';
}

static bool text_to_int(struct jinja_text t, int base, int64_t *ret)
{
    struct str s = jinja_bytes(jinja_strip(t, (struct str){ 0 }, JINJA_LEFT | JINJA_RIGHT));
    char text[80], *end;
    size_t len = 0;
    if (s.len == 0 || s.len >= sizeof text) return false;
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] != '_') text[len++] = s.data[i];
    text[len] = '\0';
    errno = 0;
    long long value = strtoll(text, &end, base);
    *ret = value;
    return len > 0 && *end == '\0' && end != text && errno == 0;
}

static bool value_to_float(const struct jinja_value *v, double *ret)
{
    if (v->kind == JINJA_STRING) return text_to_float(v->text, ret);
    if (!jinja_is_number(v)) return false;
    *ret = jinja_as_float(v);
    return true;
}

static bool float_to_int(double d, int64_t *ret)
{
    if (!(d > -9.2e18 && d < 9.2e18)) return false;
    *ret = (int64_t)d;
    return true;
}

static int filter_int(struct jinja_run *run, struct jinja_value *self,
                      const struct jinja_args *args, struct jinja_value *ret)
{
    int64_t base, value;
    double d;
    int rc = jinja_arg_int(run, args, 1, 10, &base);
    if (rc < 0) return rc;
    if (base != 0 && (base < 2 || base > 36)) base = 10;
    if (self->kind == JINJA_UNDEFINED) return jinja_undefined_error(run, self);
    if (jinja_as_int(self, &value) ||
        (self->kind == JINJA_STRING && text_to_int(self->text, (int)base, &value)) ||
        (value_to_float(self, &d) && float_to_int(d, &value)))
        *ret = jinja_int(value);
    else
        *ret = jinja_arg_given(args, 0) ? args->at[0] : jinja_int(0);
    return 0;
}

static int filter_float(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    double d;
    if (self->kind == JINJA_UNDEFINED) return jinja_undefined_error(run, self);
    if (value_to_float(self, &d))
        *ret = jinja_float(d);
    else
        *ret = jinja_arg_given(args, 0) ? args->at[0] : jinja_float(0);
    return 0;
}

/* Half to even at the decimal digits, as Python: the shortest text rounds, not the binary. */
static double round_common(double d, int precision)
{
    char text[400];
    if (precision >= 0) {
        snprintf(text, sizeof text, "%.*f", precision > 300 ? 300 : precision, d);
        return strtod(text, NULL);
    }
    double unit = pow(10, -precision);
    return nearbyint(d / unit) * unit;
}

static int filter_round(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_text method = jinja_text_of(STR("common"));
    int64_t precision, whole;
    int rc = jinja_arg_int(run, args, 0, 0, &precision);
    if (rc == 0 && jinja_arg_given(args, 1)) rc = jinja_arg_text(run, args, 1, &method);
    if (rc < 0) return rc;
    if (!jinja_is_number(self)) return jinja_type_error(run, "round needs a number", self);
    if (precision < -300 || precision > 300) return jinja_fail(run, -EDOM, "round: bad precision");
    double d = jinja_as_float(self), unit = pow(10, (double)precision);
    if (str_eq(jinja_bytes(method), STR("common"))) {
        bool is_int = jinja_as_int(self, &whole);
        double rounded = is_int && precision >= 0 ? d : round_common(d, (int)precision);
        if (is_int && precision < 0 && !float_to_int(rounded, &whole))
            return jinja_fail(run, -EDOM, "an integer of more than 64 bits");
        *ret = is_int ? jinja_int(whole) : jinja_float(rounded);
        return 0;
    }
    if (str_eq(jinja_bytes(method), STR("ceil")))
        *ret = jinja_float(ceil(d * unit) / unit);
    else if (str_eq(jinja_bytes(method), STR("floor")))
        *ret = jinja_float(floor(d * unit) / unit);
    else
        return jinja_fail(run, -EDOM, "round goes by \"common\", \"ceil\" or \"floor\"");
    return 0;
}

/* (item, key) of json.dumps. */
static int read_separators(struct jinja_run *run, const struct jinja_value *v,
                           struct jinja_json_style *style)
{
    struct jinja_list *parts = NULL;
    if (v->kind == JINJA_ABSENT || v->kind == JINJA_NONE) return 0;
    int rc = jinja_items(run, v, &parts);
    if (rc < 0) return rc;
    if (parts->count != 2 || parts->items[0].kind != JINJA_STRING ||
        parts->items[1].kind != JINJA_STRING)
        return jinja_fail(run, -EDOM, "separators are two strings");
    style->item_separator = jinja_bytes(parts->items[0].text);
    style->key_separator = jinja_bytes(parts->items[1].text);
    return 0;
}

static int filter_tojson(struct jinja_run *run, struct jinja_value *self,
                         const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_json_style style = { .indent = jinja_none() };
    style.ascii = jinja_arg_true(args, 0);
    style.sort_keys = jinja_arg_true(args, 3);
    const struct jinja_value *indent = &args->at[1];
    int64_t width;
    if (indent->kind == JINJA_STRING)
        style.indent = *indent;
    else if (jinja_as_int(indent, &width))
        style.indent = jinja_int(width);
    else if (indent->kind != JINJA_ABSENT && indent->kind != JINJA_NONE)
        return jinja_type_error(run, "indent is a number or a string", indent);
    int rc = read_separators(run, &args->at[2], &style);
    return rc < 0 ? rc : jinja_to_json(run, self, &style, ret);
}

/* Not jinja2's: some templates ask for it where tool calls carry their arguments as text. */
static int filter_from_json(struct jinja_run *run, struct jinja_value *self,
                            const struct jinja_args *args, struct jinja_value *ret)
{
    (void)args;
    if (self->kind != JINJA_STRING) return jinja_type_error(run, "from_json needs a string", self);
    return jinja_from_json(run, jinja_bytes(self->text), "from_json", jinja_is_marked(self->text),
                           ret);
}

static int filter_attr(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    struct jinja_text name;
    int rc = jinja_arg_text(run, args, 0, &name);
    if (rc < 0) return rc;
    if (self->kind == JINJA_DICT && !jinja_method_find(JINJA_DICT, jinja_bytes(name))) {
        *ret = jinja_undefined(jinja_bytes(name)); /* attributes only, no keys */
        return 0;
    }
    return jinja_attribute(run, self, jinja_bytes(name), ret);
}

const struct jinja_row jinja_filters_value[] = {
    { "abs", "", 0, filter_abs },
    { "attr", "name", 1, filter_attr },
    { "d", "default_value,boolean", 0, filter_default },
    { "default", "default_value,boolean", 0, filter_default },
    { "float", "default", 0, filter_float },
    { "from_json", "", 0, filter_from_json },
    { "int", "default,base", 0, filter_int },
    { "round", "precision,method", 0, filter_round },
    { "tojson", "ensure_ascii,indent,separators,sort_keys", 0, filter_tojson },
    { 0 },
};

const struct jinja_row *jinja_filter_find(struct str name)
{
    static const struct jinja_row *const tables[] = { jinja_filters_text, jinja_filters_list,
                                                      jinja_filters_order, jinja_filters_value };
    for (size_t i = 0; i < COUNT_OF(tables); i++)
        for (const struct jinja_row *row = tables[i]; row->name; row++)
            if (str_eq(name, str_from(row->name))) return row;
    return NULL;
}
