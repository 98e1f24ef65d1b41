/* parse.c - parses tokens to the tree: texts, outputs, and the statements of the table of tags.
 *
 * A body ends at the tags that its statement names. break and continue need a loop of the same macro or template.
 */
#include "base/core/bits.h"
#include "base/text/jinja/parser.h"

#define ENDS_MAX 4 /* tags that may end a body: elif, else, endif */

static int parse_body(struct jinja_parser *p, const char *const ends[ENDS_MAX],
                      struct jinja_node **ret);

static int parse_target_part(struct jinja_parser *p, struct jinja_node **ret)
{
    struct str name = { 0 };
    int rc = parser_node(p, JINJA_NAME, ret);
    if (rc == 0) rc = parser_expect_name(p, &name);
    if (rc < 0) return rc;
    parser_name(*ret, name);
    if (!parser_skip(p, ".")) return 0;
    (*ret)->kind = JINJA_NSREF;
    return parser_expect_name(p, &(*ret)->attribute);
}

static int parse_target(struct jinja_parser *p, const char *stop, struct jinja_node **ret)
{
    return parser_items(p, parse_target_part, stop, false, ret);
}

/* Parses the body of a tag; the tag may end in a colon. The current token is then the name of the end tag. */
static int parse_tag_body(struct jinja_parser *p, const char *const ends[ENDS_MAX],
                          struct jinja_node **ret)
{
    parser_skip(p, ":");
    int rc = parser_expect_kind(p, JINJA_TOKEN_BLOCK_END, "%}");
    if (rc == 0) rc = parser_enter(p);
    if (rc < 0) return rc;
    rc = parse_body(p, ends, ret);
    p->depth--;
    if (rc == 0 && p->at->kind == JINJA_TOKEN_END)
        rc = parser_fail(p, -EINVAL, "the template ends, but {%% %s %%} is missing", ends[0]);
    return rc;
}

static int parse_to(struct jinja_parser *p, const char *end, struct jinja_node **ret)
{
    const char *const ends[ENDS_MAX] = { end };
    int rc = parse_tag_body(p, ends, ret);
    if (rc == 0) parser_next(p);
    return rc;
}

/* Parses the body of {% else %} up to the end tag, or skips the end tag if that is the current token. */
static int parse_else(struct jinja_parser *p, const char *end, struct jinja_node **ret)
{
    if (parser_skip(p, "else")) return parse_to(p, end, ret);
    parser_next(p);
    return 0;
}

static int parse_if(struct jinja_parser *p, struct jinja_node **ret)
{
    static const char *const ends[ENDS_MAX] = { "endif", "elif", "else" };
    struct jinja_node **tail;
    int rc = parser_node(p, JINJA_IF, ret);
    if (rc < 0) return rc;
    tail = &(*ret)->list;
    p->soft++;
    do {
        rc = parser_node(p, JINJA_BRANCH, tail);
        if (rc == 0) rc = parser_items(p, parser_or, NULL, false, &(*tail)->a);
        if (rc == 0) rc = parse_tag_body(p, ends, &(*tail)->list);
        if (rc < 0) return rc;
        tail = &(*tail)->next;
    } while (parser_skip(p, "elif"));
    rc = parse_else(p, "endif", &(*ret)->other);
    p->soft--;
    return rc;
}

static int parse_for(struct jinja_parser *p, struct jinja_node **ret)
{
    static const char *const ends[ENDS_MAX] = { "endfor", "else" };
    int rc = parser_node(p, JINJA_FOR, ret);
    if (rc < 0) return rc;
    struct jinja_node *node = *ret;
    rc = parse_target(p, "in", &node->b);
    if (rc == 0 && node->b->kind == JINJA_NSREF)
        rc = parser_fail(p, -EINVAL, "an attribute cannot be assigned here");
    if (rc == 0) rc = parser_expect(p, "in");
    if (rc == 0) rc = parser_items(p, parser_or, "recursive", false, &node->a);
    if (rc == 0 && parser_skip(p, "if")) rc = parser_expression(p, &node->c);
    if (rc < 0) return rc;
    if (parser_at(p, "recursive")) return parser_fail(p, -ENOTSUP, "recursive loops");
    p->loops++;
    rc = parse_tag_body(p, ends, &node->list);
    p->loops--;
    return rc < 0 ? rc : parse_else(p, "endfor", &node->other);
}

static int parse_set(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parser_node(p, JINJA_SET, ret);
    if (rc == 0) rc = parse_target(p, NULL, &(*ret)->b);
    if (rc < 0) return rc;
    if (parser_skip(p, "=")) return parser_items(p, parser_expression, NULL, false, &(*ret)->a);
    (*ret)->kind = JINJA_SET_BLOCK;
    rc = parser_filters(p, false, &(*ret)->a);
    return rc < 0 ? rc : parse_to(p, "endset", &(*ret)->list);
}

/* Parses (a, b=1) of a macro, as KEYWORDs. */
static int parse_signature(struct jinja_parser *p, struct jinja_node *node)
{
    struct jinja_node **tail = &node->other;
    bool defaults = false;
    int rc = parser_expect(p, "(");
    while (rc == 0 && !parser_at(p, ")")) {
        struct str name = { 0 };
        if (node->other) rc = parser_expect(p, ",");
        if (rc == 0) rc = parser_node(p, JINJA_KEYWORD, tail);
        if (rc == 0) rc = parser_expect_name(p, &name);
        if (rc < 0) return rc;
        parser_name(*tail, name);
        if (parser_skip(p, "=")) {
            rc = parser_expression(p, &(*tail)->a);
            defaults = true;
        } else if (defaults) {
            return parser_fail(p, -EINVAL, "a parameter without default behind one with");
        }
        tail = &(*tail)->next;
    }
    return rc < 0 ? rc : parser_expect(p, ")");
}

static int parse_macro(struct jinja_parser *p, struct jinja_node **ret)
{
    struct str name = { 0 };
    int rc = parser_node(p, JINJA_MACRO_DEF, ret);
    if (rc == 0) rc = parser_expect_name(p, &name);
    if (rc < 0) return rc;
    parser_name(*ret, name);
    uint32_t loops = p->loops;
    p->loops = 0; /* the body cannot leave a loop around the macro */
    rc = parse_signature(p, *ret);
    if (rc == 0) rc = parse_to(p, "endmacro", &(*ret)->list);
    p->loops = loops;
    return rc;
}

static int parse_filter_block(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parser_node(p, JINJA_FILTER_BLOCK, ret);
    if (rc == 0) rc = parser_filters(p, true, &(*ret)->a);
    return rc < 0 ? rc : parse_to(p, "endfilter", &(*ret)->list);
}

/* Parses {% generation %}, which marks the assistant's output for training; it is printed like other text. */
static int parse_generation(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parser_node(p, JINJA_SCOPE, ret);
    return rc < 0 ? rc : parse_to(p, "endgeneration", &(*ret)->list);
}

/* Parses break and continue; the tag's name is the token before. */
static int parse_jump(struct jinja_parser *p, struct jinja_node **ret)
{
    bool is_break = parser_is_word(p->at - 1, "break");
    if (p->loops == 0) return parser_fail(p, -EINVAL, "break or continue outside of a loop");
    return parser_node(p, is_break ? JINJA_BREAK_LOOP : JINJA_CONTINUE_LOOP, ret);
}

static const struct {
    const char *name;
    parse_fn parse; /* NULL: jinja2 has the tag, but chat templates do not use it */
} tags[] = {
    { "if", parse_if },
    { "for", parse_for },
    { "set", parse_set },
    { "macro", parse_macro },
    { "filter", parse_filter_block },
    { "generation", parse_generation },
    { "break", parse_jump },
    { "continue", parse_jump },
    { "autoescape", NULL },
    { "block", NULL },
    { "call", NULL },
    { "do", NULL },
    { "extends", NULL },
    { "from", NULL },
    { "import", NULL },
    { "include", NULL },
    { "print", NULL },
    { "raw", NULL },
    { "with", NULL },
};

static int parse_statement(struct jinja_parser *p, struct jinja_node **ret)
{
    if (p->at->kind != JINJA_TOKEN_NAME) return parser_unexpected(p, "the name of a tag");
    for (size_t i = 0; i < COUNT_OF(tags); i++) {
        if (!parser_at(p, tags[i].name)) continue;
        if (!tags[i].parse)
            return parser_fail(p, -ENOTSUP, "the tag '%s' is not for chat templates", tags[i].name);
        parser_next(p);
        return tags[i].parse(p, ret);
    }
    struct str name = p->at->text;
    return parser_fail(p, -EINVAL, "no tag is named '%.*s', or it stands where none is open",
                       (int)min_size(name.len, 64), name.data);
}

static int parse_data(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parser_node(p, JINJA_DATA, ret);
    if (rc < 0) return rc;
    (*ret)->constant = jinja_string(jinja_text_of(p->at->text));
    parser_next(p);
    return 0;
}

static int parse_output(struct jinja_parser *p, struct jinja_node **ret)
{
    int rc = parser_node(p, JINJA_PRINT, ret);
    parser_next(p);
    if (rc == 0) rc = parser_items(p, parser_expression, NULL, false, &(*ret)->a);
    return rc < 0 ? rc : parser_expect_kind(p, JINJA_TOKEN_PRINT_END, "}}");
}

static bool at_end_tag(const struct jinja_parser *p, const char *const ends[ENDS_MAX])
{
    for (size_t i = 0; i < ENDS_MAX && ends[i]; i++)
        if (parser_at(p, ends[i])) return true;
    return false;
}

/* Parses statements up to the end or to one of the end tags; the current token is then the name of the tag. */
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
            parser_next(p); /* {% */
            if (at_end_tag(p, ends)) return 0;
            rc = parse_statement(p, tail);
            /* The statement has read all but the %} of its last tag. */
            if (rc == 0) rc = parser_expect_kind(p, JINJA_TOKEN_BLOCK_END, "%}");
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
