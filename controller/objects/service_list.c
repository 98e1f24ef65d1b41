/* service_list.c - encodes the list of services that come from objects, and merges it into a configuration.
 *
 * The merged text is JSON, which the configuration's parser reads as it reads YAML: services of objects are checked,
 * compared and brought into force by the same code as those of the file. */
#include "controller/objects/service_list.h"

#include "base/core/own.h"
#include "base/io/config/config_tree.h"
#include "base/wire/field.h"

#include <string.h>

#define MERGE_ARENA_BYTES CONFIG_MEMORY_BYTES_MAX

#define TEXT(member, size) \
    FIELD(struct service_entry, member, FIELD_STR, .required = true, .max = (size)-1)
static const struct field entry_fields[] = {
    TEXT(object, KUBE_NAME_BYTES),
    TEXT(uid, KUBE_UID_BYTES),
    TEXT(name, NAME_BYTES),
    TEXT(service, (double)SERVICE_ENTRY_BYTES_MAX),
    FIELD(struct service_entry, generation, FIELD_U64),
    FIELD(struct service_entry, replicas, FIELD_I64, .min = -1, .max = 1e6),
};
static const struct field_set entry_set = FIELD_SET(struct service_entry, entry_fields);

static const struct field list_fields[] = {
    FIELD_ARRAY("services", struct service_list, entry, count, FIELD_LIST, SERVICE_LIST_MAX,
                .of = &entry_set),
};
static const struct field_set list_set = FIELD_SET(struct service_list, list_fields);

int service_list_read(struct str text, struct arena *arena, struct service_list *ret,
                      struct err *err)
{
    *ret = (struct service_list){ 0 };
    if (text.len == 0) return 0;
    return fields_decode(&list_set, text, arena, ret, "the list of services of objects", err);
}

int service_list_write(const struct service_list *list, struct buf *out)
{
    return fields_encode(&list_set, list, out);
}

const struct service_entry *service_list_find(const struct service_list *list, struct str object)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (str_eq(list->entry[i].object, object)) return &list->entry[i];
    return NULL;
}

/* ---- merging ---- */

static struct config_node *child(struct config_node *map, struct str key)
{
    struct config_node *n = map && map->kind == CONFIG_NODE_MAP ? map->first : NULL;
    while (n && !str_eq(n->key, key))
        n = n->next;
    return n;
}

static void append(struct config_node *to, struct config_node *n)
{
    if (to->last)
        to->last->next = n;
    else
        to->first = n;
    to->last = n;
    to->count++;
}

static int new_node(struct arena *arena, enum config_node_kind kind, struct config_node **ret,
                    struct err *err)
{
    *ret = arena_alloc(arena, sizeof **ret);
    if (!*ret) return err_set(err, -ENOMEM, "no memory for the merged configuration");
    **ret = (struct config_node){ .kind = kind };
    return 0;
}

/* Finds the list of services in the tree, or adds an empty one. */
static int find_services(struct config_node **root, const char *name, struct arena *arena,
                         struct config_node **ret, struct err *err)
{
    int rc = *root ? 0 : new_node(arena, CONFIG_NODE_MAP, root, err);
    if (rc < 0) return rc;
    *ret = child(*root, STR("services"));
    if (*ret && (*ret)->kind == CONFIG_NODE_LIST) return 0;
    if (*ret && ((*ret)->kind == CONFIG_NODE_MAP || (*ret)->text.len > 0))
        return err_set(err, -EINVAL, "%s: services is no list", name);
    if (*ret) { /* `services:` with nothing behind it */
        (*ret)->kind = CONFIG_NODE_LIST;
        return 0;
    }
    rc = new_node(arena, CONFIG_NODE_LIST, ret, err);
    if (rc < 0) return rc;
    (*ret)->key = STR("services");
    append(*root, *ret);
    return 0;
}

static int add_service(struct config_node *services, const struct service_entry *e,
                       const char *base, struct arena *arena, struct err *err)
{
    struct config_node *n = NULL;
    for (struct config_node *s = services->first; s; s = s->next) {
        struct config_node *name = child(s, STR("name"));
        if (name && str_eq(name->text, e->name))
            return err_set(err, -EEXIST,
                           "service '" STR_FMT
                           "' is defined twice: in %s, and by musterservice/" STR_FMT
                           "; rename or remove one",
                           STR_ARG(e->name), s->line ? base : "another object", STR_ARG(e->object));
    }
    int rc = config_tree_parse(e->service, e->object.data, arena, &n, err);
    if (rc == 0 && !n) rc = err_set(err, -EINVAL, STR_FMT ": it is empty", STR_ARG(e->object));
    if (rc < 0) return rc;
    n->line = 0; /* not of the base */
    append(services, n);
    return 0;
}

int service_list_merge(struct str base, const char *name, struct str text, struct buf *out,
                       struct err *err)
{
    CLEANUP(arena_fini) struct arena arena;
    struct service_list list;
    struct config_node *root = NULL, *services;
    const char *shown = name ? name : "the configuration";
    arena_init(&arena, MERGE_ARENA_BYTES);
    int rc = service_list_read(text, &arena, &list, err);
    if (rc == 0) rc = config_tree_parse(base.data ? base : STR(""), shown, &arena, &root, err);
    if (rc == 0) rc = find_services(&root, shown, &arena, &services, err);
    for (uint32_t i = 0; rc == 0 && i < list.count; i++)
        rc = add_service(services, &list.entry[i], shown, &arena, err);
    if (rc < 0) return rc;
    config_tree_json(root, out);
    return out->rc < 0 ? err_set(err, out->rc, "no memory for the merged configuration") : 0;
}
