/* config_yaml.c - parses the part of YAML that a configuration needs, with a line for every value.
 *
 * It reads libyaml's events rather than its documents: depth, nodes and lines are checked while reading,
 * so a hostile file is refused at the bound and not after its tree was built. Anchors and aliases are
 * refused (a value has one place, and a billion laughs cannot be written); tags are refused (the
 * schema knows the types). This is the only file that includes yaml.h.
 */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/config/config_tree.h"

#include <yaml.h>

struct reader {
    yaml_parser_t parser;
    struct arena *arena;
    const char *name;
    struct err *err;
    struct config_node *open[CONFIG_DEPTH_MAX]; /* containers around the next event */
    uint32_t depth;
    uint32_t nodes;
    struct str key; /* read, its value is still to come */
    uint32_t key_line;
    bool has_key;
    struct config_node *root;
};

static int refuse(struct reader *r, const yaml_event_t *e, const char *what)
{
    return err_set(r->err, -EINVAL, "%s:%zu: %s", r->name, e->start_mark.line + 1, what);
}

static int refuse_syntax(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) return err_set(r->err, -ENOMEM, "%s: no memory", r->name);
    return err_set(r->err, -EINVAL, "%s:%zu: not valid YAML: %s%s%s%s", r->name,
                   p->problem_mark.line + 1, p->problem ? p->problem : "unreadable",
                   p->context ? " (" : "", p->context ? p->context : "", p->context ? ")" : "");
}

static struct config_node *top(struct reader *r)
{
    return r->depth > 0 ? r->open[r->depth - 1] : NULL;
}

static int key_check(struct reader *r, const yaml_event_t *e, struct str key)
{
    if (top(r)->count >= CONFIG_KEYS_MAX) return refuse(r, e, "more keys than a mapping may hold");
    for (const struct config_node *n = top(r)->first; n; n = n->next) {
        if (!str_eq(n->key, key)) continue;
        return err_set(r->err, -EINVAL, "%s:%zu: '" STR_FMT "' was already said in line %u",
                       r->name, e->start_mark.line + 1, STR_ARG(key), n->key_line);
    }
    return 0;
}

/* Hangs a new node under the open container and gives it the key that was read before. */
static int node_add(struct reader *r, const yaml_event_t *e, enum config_node_kind kind,
                    struct config_node **ret)
{
    if (r->nodes >= CONFIG_NODES_MAX) return refuse(r, e, "more values than a file may hold");
    struct config_node *n = arena_alloc(r->arena, sizeof *n);
    if (!n) return err_set(r->err, -ENOMEM, "%s: no memory", r->name);
    r->nodes++;
    *n = (struct config_node){ .kind = kind, .line = (uint32_t)e->start_mark.line + 1 };
    struct config_node *parent = top(r);
    if (!parent) {
        r->root = n;
    } else {
        if (parent->kind == CONFIG_NODE_MAP) n->key = r->key, n->key_line = r->key_line;
        r->has_key = false;
        if (parent->last)
            parent->last->next = n;
        else
            parent->first = n;
        parent->last = n;
        parent->count++;
    }
    *ret = n;
    return 0;
}

static int on_scalar(struct reader *r, const yaml_event_t *e)
{
    if (e->data.scalar.anchor) return refuse(r, e, "anchors are not used here");
    if (e->data.scalar.tag) return refuse(r, e, "tags are not used here");
    struct str text = arena_str(r->arena, str_of(e->data.scalar.value, e->data.scalar.length));
    if (!text.data) return err_set(r->err, -ENOMEM, "%s: no memory", r->name);
    if (top(r) && top(r)->kind == CONFIG_NODE_MAP && !r->has_key) {
        if (text.len == 0) return refuse(r, e, "a key is missing before ':'");
        r->key = text;
        r->key_line = (uint32_t)e->start_mark.line + 1;
        r->has_key = true;
        return key_check(r, e, text);
    }
    struct config_node *n;
    int rc = node_add(r, e, CONFIG_NODE_SCALAR, &n);
    if (rc < 0) return rc;
    n->text = text;
    n->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return 0;
}

static int on_open(struct reader *r, const yaml_event_t *e, enum config_node_kind kind)
{
    bool map = kind == CONFIG_NODE_MAP;
    if (map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor)
        return refuse(r, e, "anchors are not used here");
    if (map ? e->data.mapping_start.tag : e->data.sequence_start.tag)
        return refuse(r, e, "tags are not used here");
    if (top(r) && top(r)->kind == CONFIG_NODE_MAP && !r->has_key)
        return refuse(r, e, "a key must be text");
    if (r->depth == CONFIG_DEPTH_MAX) return refuse(r, e, "nested too deeply");
    struct config_node *n;
    int rc = node_add(r, e, kind, &n);
    if (rc < 0) return rc;
    r->open[r->depth++] = n;
    return 0;
}

static int on_document(struct reader *r, const yaml_event_t *e)
{
    if (r->root) return refuse(r, e, "a second document; a configuration is one");
    if (e->data.document_start.tag_directives.start != e->data.document_start.tag_directives.end)
        return refuse(r, e, "%TAG is not used here");
    return 0;
}

static int on_event(struct reader *r, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_ALIAS_EVENT:
        return refuse(r, e, "aliases are not used here: write the value again");
    case YAML_DOCUMENT_START_EVENT:
        return on_document(r, e);
    case YAML_SCALAR_EVENT:
        return on_scalar(r, e);
    case YAML_MAPPING_START_EVENT:
        return on_open(r, e, CONFIG_NODE_MAP);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(r, e, CONFIG_NODE_LIST);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        must(r->depth > 0);
        r->depth--;
        return 0;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        break;
    }
    return 0;
}

int config_tree_parse(struct str text, const char *name, struct arena *arena,
                      struct config_node **ret, struct err *err)
{
    if (text.len > CONFIG_FILE_BYTES_MAX)
        return err_set(err, -EFBIG, "%s: larger than %zu bytes", name, CONFIG_FILE_BYTES_MAX);
    struct reader r = { .arena = arena, .name = name, .err = err };
    if (!yaml_parser_initialize(&r.parser)) return err_set(err, -ENOMEM, "%s: no memory", name);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)(text.data ? text.data : ""),
                                 text.len);
    int rc = 0;
    bool end = false;
    while (rc == 0 && !end) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r.parser, &event)) {
            rc = refuse_syntax(&r);
            break;
        }
        rc = on_event(&r, &event);
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&r.parser);
    if (rc == 0) *ret = r.root;
    return rc;
}

/* ---- as JSON ---- */

/* A number of JSON is one of YAML, too; those that only YAML has (0x1f, .5, +1) stay texts. */
static bool is_number(struct str text)
{
    struct json_reader r;
    json_reader_init(&r, text);
    return json_next(&r) == JSON_NUMBER && json_next(&r) == JSON_END;
}

static void put_scalar(struct json_writer *w, const struct config_node *n)
{
    static const struct {
        const char *yaml, *json;
    } words[] = { { "", "null" },       { "~", "null" },     { "null", "null" },
                  { "Null", "null" },   { "NULL", "null" },  { "true", "true" },
                  { "True", "true" },   { "TRUE", "true" },  { "false", "false" },
                  { "False", "false" }, { "FALSE", "false" } };
    for (size_t i = 0; n->plain && i < COUNT_OF(words); i++) {
        if (!str_eq(n->text, str_from(words[i].yaml))) continue;
        json_put_raw(w, str_from(words[i].json));
        return;
    }
    if (n->plain && is_number(n->text))
        json_put_raw(w, n->text);
    else
        json_put_str(w, n->text);
}

static void put_node(struct json_writer *w, const struct config_node *n)
{
    if (n->kind == CONFIG_NODE_SCALAR) {
        put_scalar(w, n);
        return;
    }
    bool is_map = n->kind == CONFIG_NODE_MAP;
    if (is_map)
        json_object(w);
    else
        json_array(w);
    for (const struct config_node *c = n->first; c; c = c->next) {
        if (is_map) json_key_str(w, c->key);
        put_node(w, c);
    }
    if (is_map)
        json_object_end(w);
    else
        json_array_end(w);
}

void config_tree_json(const struct config_node *node, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    put_node(&w, node);
}
