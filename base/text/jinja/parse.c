/* parse.c - statements.
 *
 * Each tag is a row of a table. What jinja2 has and chat templates do not use (include, import,
 * extends, block) is refused by name: those need other files, and there are none.
 */
#include "base/text/jinja/parse.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/text/jinja/row.h"

#include <stdarg.h>
#include <stdio.h>

#define ENDS_MAX 4 /* tags that may end a body: elif, else, endif */

static int parse_body(struct jinja_parser *p, const char *const ends[ENDS_MAX],
                      struct jinja_node **ret);

uint64_t jinja_name_hash(struct str name)
{
    return hash_keyed(name.data, name.len);
}

int jinja_parse_fail(struct jinja_parser *p, int code, const char *format, ...)
{
    char text[ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    return err_set(p->err, code, "chat template, line %u: %s", p->at->line, text);
}

int jinja_parse_enter(struct jinja_parser *p)
{
    if (p->depth >= JINJA_PARSE_DEPTH_MAX)
        return jinja_parse_fail(p, -E2BIG, "nested deeper than %d", JINJA_PARSE_DEPTH_MAX);
    p->depth++;
    return 0;
}

int jinja_parse_node(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node **ret)
{
    struct jinja_node *node = arena_alloc(&p->template->arena, sizeof *node);
    if (!node) return jinja_parse_fail(p, -ENOMEM, "no memory");
    node->kind = kind;
    node->line = p->at->line;
    *ret = node;
    return 0;
}

void jinja_next(struct jinja_parser *p)
{
    if (p->at->kind != JINJA_TOKEN_END) p->at++;
}

bool jinja_at_name(const struct jinja_parser *p, const char *name)
{
    return p->at->kind == JINJA_TOKEN_NAME && str_eq(p->at->text, str_from(name));
}

bool jinja_at_op(const struct jinja_parser *p, const char *op)
{
    return p->at->kind == JINJA_TOKEN_OPERATOR && str_eq(p->at->text, str_from(op));
}

bool jinja_skip_name(struct jinja_parser *p, const char *name)
{
    if (!jinja_at_name(p, name)) return false;
    jinja_next(p);
    return true;
}

bool jinja_skip_op(struct jinja_parser *p, const char *op)
{
    if (!jinja_at_op(p, op)) return false;
    jinja_next(p);
    return true;
}

static int unexpected(struct jinja_parser *p, const char *wanted)
{
    static const char *const names[] = {
        [JINJA_TOKEN_END] = "the end of the template",
        [JINJA_TOKEN_DATA] = "text",
        [JINJA_TOKEN_BLOCK] = "{%",
        [JINJA_TOKEN_BLOCK_END] = "%}",
        [JINJA_TOKEN_PRINT] = "{{",
        [JINJA_TOKEN_PRINT_END] = "}}",
        [JINJA_TOKEN_STRING] = "a string",
        [JINJA_TOKEN_INT] = "a number",
        [JINJA_TOKEN_FLOAT] = "a number",
    };
    struct str got = p->at->text;
    if (p->at->kind != JINJA_TOKEN_NAME && p->at->kind != JINJA_TOKEN_OPERATOR)
        got = str_from(names[p->at->kind]);
    return jinja_parse_fail(p, -EINVAL, "'%s' expected, found '%.*s'", wanted,
                            (int)min_size(got.len, 64), got.data);
}

int jinja_expect_op(struct jinja_parser *p, const char *op)
{
    return jinja_skip_op(p, op) ? 0 : unexpected(p, op);
}

int jinja_expect_name(struct jinja_parser *p, struct str *ret)
{
    if (p->at->kind != JINJA_TOKEN_NAME) return unexpected(p, "a name");
    *ret = p->at->text;
    jinja_next(p);
    return 0;
}

static int expect_block_end(struct jinja_parser *p)
{
    if (p->at->kind != JINJA_TOKEN_BLOCK_END) return unexpected(p, "%}");
    jinja_next(p);
    return 0;
}

/* A tag's body: the tag may end in a colon. Leaves the parser behind the name that ended it. */
static int parse_tag_body(struct jinja_parser *p, const char *const ends[ENDS_MAX],
                          struct jinja_node **ret)
{
    jinja_skip_op(p, ":");
    int rc = expect_block_end(p);
    if (rc == 0) rc = jinja_parse_enter(p);
    if (rc < 0) return rc;
    rc = parse_body(p, ends, ret);
    p->depth--;
    if (rc == 0 && p->at->kind == JINJA_TOKEN_END)
        rc = jinja_parse_fail(p, -EINVAL, "the template ends, but {%% %s %%} is missing", ends[0]);
    return rc;
}

static int parse_to(struct jinja_parser *p, const char *end, struct jinja_node **ret)
{
    const char *const ends[ENDS_MAX] = { end };
    int rc = parse_tag_body(p, ends, ret);
    if (rc == 0) jinja_next(p);
    return rc;
}

static int parse_if(struct jinja_parser *p, struct jinja_node **ret)
{
    static const char *const ends[ENDS_MAX] = { "endif", "elif", "else" };
    struct jinja_node *node = NULL, *branch = NULL, **tail;
    int rc = jinja_parse_node(p, JINJA_IF, &node);
    if (rc < 0) return rc;
    tail = &node->list;
    p->soft++;
    do {
        rc = jinja_parse_node(p, JINJA_BRANCH, &branch);
        if (rc == 0) rc = jinja_parse_tuple(p, false, NULL, &branch->a);
        if (rc == 0) rc = parse_tag_body(p, ends, &branch->list);
        if (rc < 0) return rc;
        *tail = branch;
        tail = &branch->next;
    } while (jinja_skip_name(p, "elif"));
    if (jinja_skip_name(p, "else"))
        rc = parse_to(p, "endif", &node->other);
    else
        jinja_next(p);
    p->soft--;
    *ret = node;
    return rc;
}

static int parse_for(struct jinja_parser *p, struct jinja_node **ret)
{
    static const char *const ends[ENDS_MAX] = { "endfor", "else" };
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_FOR, &node);
    if (rc == 0) rc = jinja_parse_target(p, false, "in", &node->b);
    if (rc < 0) return rc;
    if (!jinja_skip_name(p, "in")) return unexpected(p, "in");
    rc = jinja_parse_tuple(p, false, "recursive", &node->a);
    if (rc == 0 && jinja_skip_name(p, "if")) rc = jinja_parse_expression(p, &node->c);
    if (rc < 0) return rc;
    if (jinja_at_name(p, "recursive")) return jinja_parse_fail(p, -ENOTSUP, "recursive loops");
    p->loops++;
    rc = parse_tag_body(p, ends, &node->list);
    p->loops--;
    if (rc < 0) return rc;
    if (jinja_skip_name(p, "else"))
        rc = parse_to(p, "endfor", &node->other);
    else
        jinja_next(p);
    *ret = node;
    return rc;
}

static int parse_set(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_SET, &node);
    if (rc == 0) rc = jinja_parse_target(p, true, NULL, &node->b);
    if (rc < 0) return rc;
    *ret = node;
    if (jinja_skip_op(p, "=")) return jinja_parse_tuple(p, true, NULL, &node->a);
    node->kind = JINJA_SET_BLOCK;
    rc = jinja_parse_filters(p, false, &node->a);
    return rc < 0 ? rc : parse_to(p, "endset", &node->list);
}

/* (a, b=1) of a macro or a call block, as KEYWORDs. */
static int parse_signature(struct jinja_parser *p, struct jinja_node *node)
{
    struct jinja_node **tail = &node->other;
    bool defaults = false;
    int rc = jinja_expect_op(p, "(");
    while (rc == 0 && !jinja_at_op(p, ")")) {
        struct jinja_node *param = NULL;
        if (node->other) rc = jinja_expect_op(p, ",");
        if (rc == 0) rc = jinja_parse_node(p, JINJA_KEYWORD, &param);
        if (rc == 0) rc = jinja_expect_name(p, &param->name);
        if (rc < 0) return rc;
        param->hash = jinja_name_hash(param->name);
        if (jinja_skip_op(p, "=")) {
            rc = jinja_parse_expression(p, &param->a);
            defaults = true;
        } else if (defaults) {
            return jinja_parse_fail(p, -EINVAL, "a parameter without default behind one with");
        }
        *tail = param;
        tail = &param->next;
    }
    return rc < 0 ? rc : jinja_expect_op(p, ")");
}

/* The body of a macro has its own loops and tells what it uses. */
static int parse_macro_body(struct jinja_parser *p, const char *end, struct jinja_node *node)
{
    uint8_t uses = p->uses;
    uint32_t loops = p->loops;
    p->uses = 0;
    p->loops = 0;
    int rc = parse_to(p, end, &node->list);
    node->uses = p->uses;
    p->uses = uses | node->uses; /* an inner macro's caller may be the outer one's */
    p->loops = loops;
    return rc;
}

static int parse_macro(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_MACRO_DEF, &node);
    if (rc == 0) rc = jinja_expect_name(p, &node->name);
    if (rc == 0) rc = parse_signature(p, node);
    if (rc == 0) rc = parse_macro_body(p, "endmacro", node);
    if (rc < 0) return rc;
    node->hash = jinja_name_hash(node->name);
    *ret = node;
    return 0;
}

static int parse_call_block(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_CALL_BLOCK, &node);
    if (rc == 0 && jinja_at_op(p, "(")) rc = parse_signature(p, node);
    if (rc == 0) rc = jinja_parse_expression(p, &node->a);
    if (rc == 0 && node->a->kind != JINJA_CALL)
        rc = jinja_parse_fail(p, -EINVAL, "{%% call %%} needs a call");
    if (rc == 0) rc = parse_macro_body(p, "endcall", node);
    if (rc == 0) *ret = node;
    return rc;
}

static int parse_filter_block(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_FILTER_BLOCK, &node);
    if (rc == 0) rc = jinja_parse_filters(p, true, &node->a);
    if (rc == 0) rc = parse_to(p, "endfilter", &node->list);
    if (rc == 0) *ret = node;
    return rc;
}

static int parse_binding(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_KEYWORD, &node);
    if (rc < 0) return rc;
    *ret = node;
    rc = jinja_expect_name(p, &node->name);
    node->hash = jinja_name_hash(node->name);
    if (rc == 0) rc = jinja_expect_op(p, "=");
    return rc < 0 ? rc : jinja_parse_expression(p, &node->a);
}

static int parse_with(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL, **tail;
    int rc = jinja_parse_node(p, JINJA_WITH, &node);
    if (rc < 0) return rc;
    *ret = node;
    tail = &node->other;
    while (p->at->kind != JINJA_TOKEN_BLOCK_END) {
        if (node->other) rc = jinja_expect_op(p, ",");
        if (rc == 0) rc = parse_binding(p, tail);
        if (rc < 0) return rc;
        tail = &(*tail)->next;
    }
    return parse_to(p, "endwith", &node->list);
}

/* What an assistant said, marked for training: printed like anything else. */
static int parse_generation(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_SCOPE, &node);
    if (rc == 0) rc = parse_to(p, "endgeneration", &node->list);
    if (rc == 0) *ret = node;
    return rc;
}

static int parse_print(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_PRINT, &node);
    if (rc == 0) rc = jinja_parse_expression(p, &node->a);
    if (rc == 0) *ret = node;
    return rc;
}

static int parse_jump(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node **ret)
{
    if (p->loops == 0) return jinja_parse_fail(p, -EINVAL, "break or continue outside of a loop");
    return jinja_parse_node(p, kind, ret);
}

static int parse_break(struct jinja_parser *p, struct jinja_node **ret)
{
    return parse_jump(p, JINJA_BREAK_LOOP, ret);
}

static int parse_continue(struct jinja_parser *p, struct jinja_node **ret)
{
    return parse_jump(p, JINJA_CONTINUE_LOOP, ret);
}

static int parse_refused(struct jinja_parser *p, struct jinja_node **ret)
{
    (void)ret;
    return jinja_parse_fail(p, -ENOTSUP, "this tag is not for chat templates");
}

static const struct {
    const char *name;
    int (*parse)(struct jinja_parser *p, struct jinja_node **ret);
} tags[] = {
    { "if", parse_if },
    { "for", parse_for },
    { "set", parse_set },
    { "macro", parse_macro },
    { "call", parse_call_block },
    { "filter", parse_filter_block },
    { "with", parse_with },
    { "generation", parse_generation },
    { "print", parse_print },
    { "break", parse_break },
    { "continue", parse_continue },
    { "include", parse_refused },
    { "import", parse_refused },
    { "from", parse_refused },
    { "extends", parse_refused },
    { "block", parse_refused },
    { "autoescape", parse_refused },
};

static int parse_statement(struct jinja_parser *p, struct jinja_node **ret)
{
    if (p->at->kind != JINJA_TOKEN_NAME) return unexpected(p, "the name of a tag");
    for (size_t i = 0; i < COUNT_OF(tags); i++)
        if (jinja_skip_name(p, tags[i].name)) return tags[i].parse(p, ret);
    struct str name = p->at->text;
    return jinja_parse_fail(p, -EINVAL, "no tag is named '%.*s', or it stands where none is open",
                            (int)min_size(name.len, 64), name.data);
}

static int parse_data(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = jinja_parse_node(p, JINJA_DATA, ret);
    if (rc < 0) return rc;
    (*ret)->constant = jinja_string(jinja_text_of(p->at->text));
    jinja_next(p);
    return 0;
}

static int parse_output(struct jinja_parser *p, struct jinja_node **ret)
{
    struct jinja_node *node = NULL;
    int rc = jinja_parse_node(p, JINJA_PRINT, &node);
    jinja_next(p);
    if (rc == 0) rc = jinja_parse_tuple(p, true, NULL, &node->a);
    if (rc < 0) return rc;
    if (p->at->kind != JINJA_TOKEN_PRINT_END) return unexpected(p, "}}");
    jinja_next(p);
    *ret = node;
    return 0;
}

static bool at_end_tag(const struct jinja_parser *p, const char *const ends[ENDS_MAX])
{
    for (size_t i = 0; i < ENDS_MAX && ends[i]; i++)
        if (jinja_at_name(p, ends[i])) return true;
    return false;
}

/* Statements up to one of the end tags (left at hand) or the end of the template. */
static int parse_body(struct jinja_parser *p, const char *const ends[ENDS_MAX],
                      struct jinja_node **ret)
{
    struct jinja_node **tail = ret;
    while (p->at->kind != JINJA_TOKEN_END) {
        int rc;
        if (p->at->kind == JINJA_TOKEN_DATA) {
            rc = parse_data(p, tail);
        } else if (p->at->kind == JINJA_TOKEN_PRINT) {
            rc = parse_output(p, tail);
        } else {
            jinja_next(p); /* {% */
            if (at_end_tag(p, ends)) return 0;
            rc = parse_statement(p, tail);
            /* What ends a body stands before the %} of its own tag. */
            if (rc == 0) rc = expect_block_end(p);
        }
        if (rc < 0) return rc;
        tail = &(*tail)->next;
    }
    return 0;
}

int jinja_parse(struct chat_template *template, const struct jinja_tokens *tokens, struct err *err)
{
    static const char *const no_ends[ENDS_MAX] = { 0 };
    struct jinja_parser p = { .template = template, .at = tokens->at, .err = err };
    return parse_body(&p, no_ends, &template->body);
}
