/* man.h - makes manual pages from the tables of --help and the schema of the configuration.
 *
 * Layer:   cli (base/io/config)
 * Threads: the main one
 */
#pragma once
#include "cli/command.h"

/* Gets one page; `name` is its file, as muster-plan-layers.1. */
typedef int (*man_page_fn)(void *ctx, const char *name, struct str text);

/* Calls fn for muster(1), the page of each command, and muster.yaml(5). Stops at a negative result of fn and
 * returns it. -ENOMEM. */
int man_pages(const struct command *const *commands, const struct config_schema *schema,
              man_page_fn fn, void *ctx);

/* Appends text as man(7) shows it unchanged, with `code` in bold. */
void man_text(struct buf *out, struct str text);
