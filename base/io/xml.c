/* xml.c - reads XML into a tree with expat, the only file that includes it.
 *
 * A tree rather than events: the replies that are read here are small and are asked for by path, in an order of
 * the reader's own. Texts are gathered in one buffer and copied when their element ends, so that an element whose
 * text comes in pieces (an entity, a line's end) costs one copy. */
#include "base/io/xml.h"

#include "base/core/buf.h"
#include "base/core/own.h"

#include <expat.h>
#include <limits.h>

struct level {
    struct xml_node *node, *last; /* last child */
    size_t text_at;               /* where its own text begins in reader.text */
};

struct reader {
    XML_Parser parser;
    struct arena *arena;
    struct xml_node *root;
    struct level level[XML_DEPTH_MAX];
    uint32_t depth, nodes;
    struct buf text;
    int rc;
    const char *why; /* static */
};

static void stop(struct reader *r, int rc, const char *why)
{
    if (r->rc == 0) {
        r->rc = rc;
        r->why = why;
    }
    XML_StopParser(r->parser, XML_FALSE);
}

static struct str trim(struct str s)
{
    while (s.len > 0 && (unsigned char)s.data[0] <= ' ')
        s = str_of(s.data + 1, s.len - 1);
    while (s.len > 0 && (unsigned char)s.data[s.len - 1] <= ' ')
        s.len--;
    return s;
}

static void on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct reader *r = arg;
    (void)attributes;
    if (r->rc < 0) return;
    if (r->depth == XML_DEPTH_MAX || r->nodes == XML_NODES_MAX) {
        stop(r, -E2BIG, r->depth == XML_DEPTH_MAX ? "it is too deep" : "it has too many elements");
        return;
    }
    struct xml_node *n = arena_alloc(r->arena, sizeof *n);
    if (n) n->name = arena_str(r->arena, str_from(name));
    if (!n || !n->name.data) {
        stop(r, -ENOMEM, "no memory for its elements");
        return;
    }
    struct level *above = r->depth > 0 ? &r->level[r->depth - 1] : NULL;
    if (!above)
        r->root = n;
    else if (above->last)
        above->last->next = n;
    else
        above->node->first = n;
    if (above) above->last = n;
    r->level[r->depth++] = (struct level){ .node = n, .text_at = r->text.len };
    r->nodes++;
}

static void on_end(void *arg, const XML_Char *name)
{
    struct reader *r = arg;
    (void)name;
    if (r->rc < 0) return;
    struct level *l = &r->level[--r->depth];
    struct str text = STR("");
    if (r->text.len > l->text_at)
        text = trim(str_of(r->text.data + l->text_at, r->text.len - l->text_at));
    l->node->text = arena_str(r->arena, text);
    r->text.len = l->text_at;
    if (!l->node->text.data) stop(r, -ENOMEM, "no memory for its texts");
}

static void on_text(void *arg, const XML_Char *data, int len)
{
    struct reader *r = arg;
    if (r->rc < 0 || r->depth == 0) return;
    if (buf_append(&r->text, data, (size_t)len) < 0) stop(r, r->text.rc, "no memory for its texts");
}

static void on_doctype(void *arg, const XML_Char *name, const XML_Char *system,
                       const XML_Char *public, int has_internal)
{
    (void)name, (void)system, (void)public, (void)has_internal;
    stop(arg, -EINVAL, "it has a document type");
}

static int parse(struct reader *r, struct str text, struct err *err)
{
    if (text.len > INT_MAX) return err_set(err, -E2BIG, "XML: %zu bytes", text.len);
    enum XML_Status status = XML_Parse(r->parser, text.data, (int)text.len, XML_TRUE);
    if (r->rc < 0) return err_set(err, r->rc, "XML: %s", r->why);
    if (status == XML_STATUS_OK) return 0;
    enum XML_Error code = XML_GetErrorCode(r->parser);
    return err_set(err, code == XML_ERROR_NO_MEMORY ? -ENOMEM : -EINVAL, "XML: line %lu: %s",
                   (unsigned long)XML_GetCurrentLineNumber(r->parser), XML_ErrorString(code));
}

int xml_read(struct arena *arena, struct str text, struct xml_node **ret, struct err *err)
{
    struct reader r = { .parser = XML_ParserCreate(NULL), .arena = arena };
    if (!r.parser) return err_set(err, -ENOMEM, "no memory for a parser of XML");
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_start, on_end);
    XML_SetCharacterDataHandler(r.parser, on_text);
    XML_SetStartDoctypeDeclHandler(r.parser, on_doctype);
    int rc = parse(&r, text, err);
    XML_ParserFree(r.parser);
    buf_fini(&r.text);
    if (rc == 0) *ret = r.root;
    return rc;
}

static const struct xml_node *named(const struct xml_node *n, struct str name)
{
    while (n && !str_eq(n->name, name))
        n = n->next;
    return n;
}

const struct xml_node *xml_at(const struct xml_node *node, const char *path)
{
    struct str rest = str_from(path);
    while (node && rest.len > 0)
        node = named(node->first, str_cut(&rest, '.'));
    return node;
}

const struct xml_node *xml_next(const struct xml_node *node)
{
    return named(node->next, node->name);
}

struct str xml_text(const struct xml_node *node, const char *path)
{
    const struct xml_node *n = xml_at(node, path);
    return n ? n->text : (struct str){ 0 };
}
