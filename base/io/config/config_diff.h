/* config_diff.h - tells where two configurations of one schema differ.
 *
 * Layer: base/io (config). Pure.
 * Lists: items that have a key are compared by it, and their order does not matter:
 *        services[chat].pools[small].max; others by index
 */
#pragma once
#include "base/io/config/config.h"

enum config_change_kind {
    CONFIG_CHANGED,
    CONFIG_ADDED,
    CONFIG_REMOVED
}; /* the latter two: an item */

struct config_change {
    const char *path;
    const char *section;              /* its first part */
    const struct config_field *field; /* of the value; of the list, where an item came or went */
    enum config_change_kind kind;
    struct str from, to; /* as written in a flag; empty for items, and where nothing is set */
};

/* Calls fn for each difference in the schema's order. A result of fn other than 0 ends the walk and is
 * returned. -ENOMEM. */
typedef int (*config_change_fn)(void *ctx, const struct config_change *change);
int config_diff(const struct config *from, const struct config *to, config_change_fn fn, void *ctx);
