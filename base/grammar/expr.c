/* expr.c - makes expressions and sets of code points in an arena; the first failure sticks. */
#include "base/grammar/expr.h"

#include "base/core/bits.h"
#include "base/core/work.h"

#include <stdlib.h>

#define EXPR_BYTES_MAX ((size_t)64 << 20)

const char *const grammar_kind_names[GRAMMAR_KIND_COUNT] = {
    "none", "json_object", "json_schema", "regex", "choice", "gbnf", "structural_tag"
};

void builder_init(struct builder *b, struct err *err)
{
    *b = (struct builder){ .err = err, .nothing = { .kind = EXPR_NOTHING } };
    arena_init(&b->arena, EXPR_BYTES_MAX);
}

void builder_fini(struct builder *b)
{
    arena_fini(&b->arena);
    free(b->rule);
    b->rule = NULL;
}

const struct expr *builder_fail(struct builder *b, int rc, const char *format, ...)
{
    if (b->rc < 0) return &b->nothing;
    va_list ap;
    va_start(ap, format);
    b->rc = err_vset(b->err, rc, format, ap);
    va_end(ap);
    return &b->nothing;
}

static const struct expr *no_memory(struct builder *b)
{
    return builder_fail(b, -E2BIG, "the grammar needs more memory than one may use");
}

uint32_t rule_add(struct builder *b, struct str name)
{
    if (b->rule_count == b->rule_cap) {
        uint32_t cap = b->rule_cap ? 2 * b->rule_cap : 64;
        struct rule *more =
            cap <= GRAMMAR_RULES_MAX ? realloc(b->rule, cap * sizeof *b->rule) : NULL;
        if (!more) {
            builder_fail(b, -E2BIG, "the grammar has more than %u rules", GRAMMAR_RULES_MAX);
            return 0;
        }
        b->rule = more;
        b->rule_cap = cap;
    }
    b->rule[b->rule_count] = (struct rule){ .name = name };
    return b->rule_count++;
}

void rule_set(struct builder *b, uint32_t rule, const struct expr *body)
{
    if (b->rc == 0) b->rule[rule].body = body;
}

static struct expr *expr_new(struct builder *b, enum expr_kind kind)
{
    work_add(16);
    if (b->rc < 0) return NULL;
    if (++b->steps > GRAMMAR_STEPS_MAX) {
        builder_fail(b, -E2BIG, "the grammar takes more than %u steps to compile",
                     GRAMMAR_STEPS_MAX);
        return NULL;
    }
    struct expr *x = arena_alloc(&b->arena, sizeof *x);
    if (!x) {
        no_memory(b);
        return NULL;
    }
    x->kind = kind;
    return x;
}

const struct expr *expr_empty(struct builder *b)
{
    const struct expr *x = expr_new(b, EXPR_EMPTY);
    return x ? x : &b->nothing;
}

const struct expr *expr_nothing(struct builder *b)
{
    return &b->nothing;
}

const struct expr *expr_bytes(struct builder *b, struct str bytes)
{
    if (bytes.len == 0) return expr_empty(b);
    struct expr *x = expr_new(b, EXPR_BYTES);
    if (!x) return &b->nothing;
    x->bytes = arena_str(&b->arena, bytes);
    return x->bytes.data ? x : no_memory(b);
}

const struct expr *expr_text(struct builder *b, const char *text)
{
    return expr_bytes(b, str_from(text));
}

const struct expr *expr_class(struct builder *b, struct code_set set)
{
    if (set.count == 0) return &b->nothing;
    struct expr *x = expr_new(b, EXPR_CLASS);
    struct code_range *copy = arena_array(&b->arena, set.count, sizeof *copy);
    if (!x) return &b->nothing;
    if (!copy) return no_memory(b);
    memcpy(copy, set.range, set.count * sizeof *copy);
    x->set = (struct code_set){ copy, set.count };
    return x;
}

const struct expr *expr_range(struct builder *b, uint32_t from, uint32_t to)
{
    const struct code_range range = { from, to };
    return from <= to ? expr_class(b, (struct code_set){ &range, 1 }) : &b->nothing;
}

const struct expr *expr_list(struct builder *b, enum expr_kind kind, const struct expr *const *item,
                             uint32_t count)
{
    if (count == 1) return item[0];
    struct expr *x = expr_new(b, kind);
    if (!x) return &b->nothing;
    x->item = arena_array(&b->arena, count, sizeof *x->item);
    if (!x->item) return no_memory(b);
    for (uint32_t i = 0; i < count; i++) {
        if (item[i]->kind == EXPR_NOTHING && kind == EXPR_ALT) continue;
        if (item[i]->kind == EXPR_NOTHING) return &b->nothing;
        x->item[x->count++] = item[i];
    }
    if (x->count == 0) return kind == EXPR_ALT ? &b->nothing : expr_empty(b);
    return x->count == 1 ? x->item[0] : x;
}

void expr_push(struct builder *b, struct expr_items *items, const struct expr *x)
{
    if (b->rc < 0) return;
    if (items->count == items->cap) {
        uint32_t cap = items->cap ? 2 * items->cap : 8;
        const struct expr **more = arena_array(&b->arena, cap, sizeof *more);
        if (!more) {
            no_memory(b);
            return;
        }
        if (items->count > 0) memcpy(more, items->item, items->count * sizeof *more);
        items->item = more;
        items->cap = cap;
    }
    items->item[items->count++] = x;
}

const struct expr *expr_of(struct builder *b, enum expr_kind kind, const struct expr_items *items)
{
    return expr_list(b, kind, items->item, items->count);
}

const struct expr *expr_seq2(struct builder *b, const struct expr *x, const struct expr *y)
{
    return EXPR_SEQ_OF(b, x, y);
}

const struct expr *expr_alt2(struct builder *b, const struct expr *x, const struct expr *y)
{
    return EXPR_ALT_OF(b, x, y);
}

const struct expr *expr_repeat(struct builder *b, const struct expr *x, uint32_t min, uint32_t max)
{
    if (x->kind == EXPR_NOTHING) return min > 0 ? &b->nothing : expr_empty(b);
    if (max == 0 || x->kind == EXPR_EMPTY) return expr_empty(b);
    if (min == 1 && max == 1) return x;
    if (max != EXPR_FOREVER && min > max) return &b->nothing;
    if (min > GRAMMAR_REPEAT_MAX || (max > GRAMMAR_REPEAT_MAX && max != EXPR_FOREVER))
        return builder_fail(b, -E2BIG, "a count of repetitions is above %u", GRAMMAR_REPEAT_MAX);
    /* Loops of loops say no more than one, and a text could be read in very many ways: (y*){2,5} is y*, (y+){2,5} is
     * y{2,}, and (y?)+ is y*. */
    bool any = x->kind == EXPR_REPEAT && x->min <= 1 && x->max == EXPR_FOREVER;
    bool lacks = x->kind == EXPR_REPEAT && x->min == 0 && max == EXPR_FOREVER;
    if (any || lacks) return expr_repeat(b, x->item[0], x->min == 0 ? 0 : min, EXPR_FOREVER);
    struct expr *r = expr_new(b, EXPR_REPEAT);
    if (!r) return &b->nothing;
    r->item = arena_array(&b->arena, 1, sizeof *r->item);
    if (!r->item) return no_memory(b);
    r->item[0] = x;
    r->min = min;
    r->max = max;
    return r;
}

const struct expr *expr_optional(struct builder *b, const struct expr *x)
{
    return expr_repeat(b, x, 0, 1);
}

const struct expr *expr_call(struct builder *b, uint32_t rule)
{
    struct expr *x = expr_new(b, EXPR_CALL);
    if (!x) return &b->nothing;
    x->rule = rule;
    return x;
}

static int compare_texts(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

const struct expr *expr_strings(struct builder *b, const struct str *text, uint32_t count)
{
    struct expr *x = count > 0 ? expr_new(b, EXPR_STRINGS) : NULL;
    if (!x) return &b->nothing;
    struct str *copy = arena_array(&b->arena, count, sizeof *copy);
    for (uint32_t i = 0; copy && i < count; i++) {
        copy[i] = arena_str(&b->arena, text[i]);
        if (!copy[i].data) copy = NULL;
    }
    if (!copy) return no_memory(b);
    qsort(copy, count, sizeof *copy, compare_texts);
    work_add(count * 16);
    x->text = copy;
    x->count = count;
    return x;
}

const struct expr *expr_scan(struct builder *b, const struct str *trigger,
                             const struct expr *const *after, uint32_t count, struct scan_way way)
{
    struct expr *x = expr_new(b, EXPR_SCAN);
    size_t bytes = 0;
    if (!x) return &b->nothing;
    struct str *text = arena_array(&b->arena, (size_t)count + 1, sizeof *text);
    x->item = arena_array(&b->arena, (size_t)count + 1, sizeof *x->item);
    if (!text || !x->item) return no_memory(b);
    for (uint32_t i = 0; i < count; i++) {
        must(trigger[i].len > 0);
        bytes += trigger[i].len;
        text[i] = arena_str(&b->arena, trigger[i]);
        x->item[i] = after[i];
        if (!text[i].data) return no_memory(b);
    }
    if (bytes > EXPR_SCAN_BYTES_MAX)
        return builder_fail(b, -E2BIG, "the triggers have %zu bytes, more than %d", bytes,
                            EXPR_SCAN_BYTES_MAX);
    x->text = text;
    x->count = count;
    x->scan = way;
    return x;
}

/* ---- sets of code points ---- */

#define SURROGATE_FROM 0xd800u
#define SURROGATE_TO 0xdfffu

static int compare_ranges(const void *a, const void *b)
{
    const struct code_range *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

struct code_set code_set_without(struct builder *b, struct code_set s, uint32_t from, uint32_t to)
{
    struct code_range *out = arena_array(&b->arena, s.count + 1, sizeof *out);
    uint32_t count = 0;
    if (!out) {
        no_memory(b);
        return (struct code_set){ 0 };
    }
    for (uint32_t i = 0; i < s.count; i++) {
        struct code_range r = s.range[i];
        if (r.to < from || r.from > to) {
            out[count++] = r;
            continue;
        }
        if (r.from < from) out[count++] = (struct code_range){ r.from, from - 1 };
        if (r.to > to) out[count++] = (struct code_range){ to + 1, r.to };
    }
    return (struct code_set){ out, count };
}

static struct code_set negate(struct builder *b, struct code_set s)
{
    struct code_range *out = arena_array(&b->arena, s.count + 1, sizeof *out);
    uint32_t count = 0, next = 0;
    if (!out) {
        no_memory(b);
        return (struct code_set){ 0 };
    }
    for (uint32_t i = 0; i < s.count; i++) {
        if (s.range[i].from > next) out[count++] = (struct code_range){ next, s.range[i].from - 1 };
        next = s.range[i].to + 1;
    }
    if (next <= CODE_POINT_MAX) out[count++] = (struct code_range){ next, CODE_POINT_MAX };
    return (struct code_set){ out, count };
}

struct code_set code_set_make(struct builder *b, const struct code_range *range, uint32_t count,
                              bool negated)
{
    struct code_range *sorted = arena_array(&b->arena, count + 1, sizeof *sorted);
    if (!sorted) {
        no_memory(b);
        return (struct code_set){ 0 };
    }
    work_add((uint64_t)count * 8);
    if (count > 0) memcpy(sorted, range, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_ranges);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (kept > 0 && sorted[i].from <= sorted[kept - 1].to + 1)
            sorted[kept - 1].to = max_u32(sorted[kept - 1].to, sorted[i].to);
        else
            sorted[kept++] = sorted[i];
    }
    struct code_set set = { sorted, kept };
    if (negated) set = negate(b, set);
    return code_set_without(b, set, SURROGATE_FROM, SURROGATE_TO);
}

bool code_set_has(struct code_set s, uint32_t code_point)
{
    for (uint32_t i = 0; i < s.count; i++)
        if (code_point >= s.range[i].from && code_point <= s.range[i].to) return true;
    return false;
}
