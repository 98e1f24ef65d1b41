/* resources.h - what `muster get` lists: where each kind is asked for and how it is shown.
 *
 * Layer: cli
 */
#pragma once
#include "cli/table.h"

struct resource {
    const char *name;
    const char *path, *list; /* of the API; the member that holds the items */
    const char *id;          /* an item's member that NAME is compared with */
    const char *empty;       /* what to say when there is none */
    const struct table_column *column;
    uint32_t column_count;
};

extern const struct resource kind_table[];
extern const uint32_t kind_count;

/* Also without the plural's s: one letter is no reason to refuse. NULL when there is none. */
const struct resource *resource_find(struct str name);
