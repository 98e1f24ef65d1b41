/* config_load.h - what the sources of one configuration share while it is loaded.
 *
 * Layer: base/io, config.c and config_file.c only
 * Rules: (1) what is wrong in a source is a problem, and loading goes on; what stops it is l->rc
 */
#pragma once
#include "base/io/config_tree.h"

#include <stdarg.h>

struct config_loader {
    struct config *c;
    struct config_problems *problems;
    struct buf path; /* of the value at hand */
    int rc;          /* -ENOMEM: loading stops */
};

/* A sentence behind `where`; kept up to CONFIG_PROBLEMS_MAX, then only counted. */
void config_problem_add(struct config_loader *l, const char *where, const char *what, va_list ap)
    __attribute__((format(printf, 3, 0)));
void config_problem(struct config_loader *l, const char *what, ...)
    __attribute__((format(printf, 2, 3)));

/* A record's values as its rows say, those of records in it too; makes their slots. -ENOMEM. */
int config_defaults(struct arena *arena, const struct config_record *record, char *base,
                    struct config_slot *slots);

/* src->path or src->text into l->c. What cannot be read is returned. */
int config_file_load(struct config_loader *l, const struct config_sources *src, struct err *err);
