/* xml.h - reads an XML document of a web service into a tree.
 *
 * Layer:    base/io (libexpat, base/core)
 * Threads:  pure
 * Lifetime: nodes and their texts live in the arena of xml_read
 * Rules:    (1) a document type is refused before anything of it is read: there are no entities of the
 *               document's own to be expanded, and nothing outside it is fetched
 *           (2) XML_DEPTH_MAX and XML_NODES_MAX bound the tree, the arena its bytes
 *           (3) names stand as they were written, prefixes included; attributes and comments are passed over
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/err.h"

#define XML_DEPTH_MAX 32
#define XML_NODES_MAX 200000

struct xml_node {
    struct str name;
    /* Of this element, without that of its children; white space at its ends is cut. */
    struct str text;
    struct xml_node *first, *next;
};

/* -EINVAL: it is no document, or one that rule 1 refuses; -E2BIG: beyond a bound; -ENOMEM. */
int xml_read(struct arena *arena, struct str text, struct xml_node **ret, struct err *err);

/* Returns the first element at a path of names joined by dots below `node`: "reservationSet.item". NULL: there is
 * none, or `node` is NULL. */
const struct xml_node *xml_at(const struct xml_node *node, const char *path);

/* Returns the next element of the same name beside this one; NULL: there is none. */
const struct xml_node *xml_next(const struct xml_node *node);

/* Returns the text at the path; empty: there is none. */
struct str xml_text(const struct xml_node *node, const char *path);
