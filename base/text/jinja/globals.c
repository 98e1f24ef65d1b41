/* globals.c - functions that every template has. */
#include "base/core/bits.h"
#include "base/text/jinja/calendar.h"
#include "base/text/jinja/text.h"

#define RANGE_MAX 100000 /* jinja2's sandbox allows as many */

static int fn_range(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
                    struct jinja_value *ret)
{
    (void)self;
    int64_t a = 0, b = 0, step = 1;
    bool two = jinja_arg_given(args, 1);
    int rc = jinja_arg_int(run, args, 0, 0, two ? &a : &b);
    if (rc == 0 && two) rc = jinja_arg_int(run, args, 1, 0, &b);
    if (rc == 0) rc = jinja_arg_int(run, args, 2, 1, &step);
    if (rc < 0) return rc;
    if (step == 0) return jinja_fail(run, -EDOM, "range: the step must not be 0");
    __int128 span = step > 0 ? (__int128)b - a : (__int128)a - b;
    __int128 stride = step > 0 ? step : -(__int128)step;
    __int128 count = span > 0 ? (span + stride - 1) / stride : 0;
    if (count > RANGE_MAX) return jinja_fail(run, -E2BIG, "a range of more than %d", RANGE_MAX);
    *ret = (struct jinja_value){ .kind = JINJA_RANGE, .range = { a, b, step, (int64_t)count } };
    return 0;
}

/* dict(mapping, a=1) and namespace(mapping, a=1) */
static int new_mapping(struct jinja_run *run, const struct jinja_args *args, enum jinja_kind kind,
                       struct jinja_value *ret)
{
    struct jinja_dict *dict = NULL;
    int rc = jinja_dict_new(run, &dict);
    if (rc < 0) return rc;
    if (args->count > 1 || (args->count == 1 && args->at[0].kind != JINJA_DICT))
        return jinja_fail(run, -EDOM, "a mapping and named values are expected");
    const struct jinja_dict *from = args->count == 1 ? args->at[0].dict : NULL;
    for (size_t i = 0; rc == 0 && from && i < from->count; i++)
        rc = jinja_dict_put(run, dict, from->entries[i].key, from->entries[i].value);
    for (size_t i = 0; rc == 0 && i < args->named_count; i++)
        rc = jinja_dict_set(run, dict, args->named[i].name, args->named[i].value);
    if (rc == 0) *ret = (struct jinja_value){ .kind = kind, .dict = dict };
    return rc;
}

static int fn_dict(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
                   struct jinja_value *ret)
{
    (void)self;
    return new_mapping(run, args, JINJA_DICT, ret);
}

static int fn_namespace(struct jinja_run *run, struct jinja_value *self,
                        const struct jinja_args *args, struct jinja_value *ret)
{
    (void)self;
    return new_mapping(run, args, JINJA_NAMESPACE, ret);
}

static int fn_cycler(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
                     struct jinja_value *ret)
{
    (void)self;
    void *memory;
    struct jinja_list *items = NULL;
    int rc = jinja_alloc(run, 1, sizeof(struct jinja_cycler), &memory);
    if (rc == 0) rc = jinja_list_new(run, args->count, &items);
    for (size_t i = 0; rc == 0 && i < args->count; i++)
        rc = jinja_list_push(run, items, args->at[i]);
    if (rc < 0) return rc;
    if (args->count == 0) return jinja_fail(run, -EDOM, "cycler needs at least one item");
    struct jinja_cycler *cycler = memory;
    cycler->items = items;
    *ret = (struct jinja_value){ .kind = JINJA_CYCLER, .cycler = cycler };
    return 0;
}

static int fn_joiner(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
                     struct jinja_value *ret)
{
    (void)self;
    void *memory;
    struct jinja_text separator = jinja_text_of(STR(", "));
    int rc = jinja_alloc(run, 1, sizeof(struct jinja_joiner), &memory);
    if (rc == 0 && jinja_arg_given(args, 0)) rc = jinja_arg_text(run, args, 0, &separator);
    if (rc < 0) return rc;
    struct jinja_joiner *joiner = memory;
    joiner->separator = separator;
    *ret = (struct jinja_value){ .kind = JINJA_JOINER, .joiner = joiner };
    return 0;
}

static int fn_raise(struct jinja_run *run, struct jinja_value *self, const struct jinja_args *args,
                    struct jinja_value *ret)
{
    (void)self, (void)ret;
    struct jinja_text message;
    int rc = jinja_to_text(run, &args->at[0], &message);
    if (rc < 0 || run->failed) return rc;
    run->failed = true;
    return err_set(run->err, -EPROTO, "%.*s", (int)min_size(message.len, ERR_TEXT_MAX - 1),
                   message.data ? message.data : "");
}

static int fn_strftime(struct jinja_run *run, struct jinja_value *self,
                       const struct jinja_args *args, struct jinja_value *ret)
{
    (void)self;
    struct jinja_text form;
    struct jinja_value time;
    struct jinja_builder plain = { .run = run }, b = { .run = run };
    int rc = jinja_arg_text(run, args, 0, &form);
    if (rc < 0) return rc;
    jinja_put_time(&plain, jinja_bytes(form), run->now_s);
    rc = jinja_built(&plain, &time);
    if (rc < 0) return rc;
    jinja_put_marked(&b, jinja_bytes(time.text), jinja_is_marked(form));
    return jinja_built(&b, ret);
}

static const struct jinja_row table[] = {
    { "range", "start,stop,step", 1, fn_range },
    { "dict", NULL, 0, fn_dict },
    { "namespace", NULL, 0, fn_namespace },
    { "cycler", NULL, 0, fn_cycler },
    { "joiner", "sep", 0, fn_joiner },
    { "raise_exception", "message", 1, fn_raise },
    { "strftime_now", "format", 1, fn_strftime },
};

int jinja_add_globals(struct jinja_run *run)
{
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(table) && rc == 0; i++) {
        struct jinja_value v = { .kind = JINJA_FUNCTION, .function = &table[i] };
        rc = jinja_dict_set(run, run->globals, str_from(table[i].name), v);
    }
    return rc;
}
