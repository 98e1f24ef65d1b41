/* gce_read.h - reads replies of Google Compute Engine: errors as classes, instances as the controller lists them.
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 */
#pragma once
#include "controller/cloud/web/provider.h"

struct gce_reading {
    struct web_op *op;
    int64_t now_us, wall_us;
    bool incomplete; /* a zone is missing from the listing */
};

/* Returns a text in the op's arena; empty: it is not there, or is no text. */
struct str gce_text(struct web_op *op, struct str json, const char *path);

/* Returns the first item of a list; data NULL: there is none. */
struct str gce_first(struct str json, const char *path);

/* Returns the code of a reply or of an operation that has failed; empty: it has none. */
struct str gce_code(struct web_op *op, struct str json);

/* Ends the op with what a reply, or an operation, that has failed means. */
void gce_refuse(const struct web_provider *p, struct web_op *op, const struct web_reply *r,
                struct web_step *ret);

/* Writes ZONE/NAME. -E2BIG. */
int gce_handle(struct str zone, struct str name, char ret[NAME_BYTES]);

/* Returns true if a part of a listing says that it is not whole; an empty page is whole. */
bool gce_is_warning(struct str json);

/* -EINVAL: it is no instance. */
int gce_read_instance(struct str json, const struct gce_reading *r, struct listed *ret);
