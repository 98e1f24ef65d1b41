/* gce_order.h - writes the instance that is asked for of Google Compute Engine.
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 */
#pragma once
#include "controller/cloud/web/web_section.h"

/* Refuses settings that the API would refuse at the first create. -EINVAL and a sentence that names the setting. */
int gce_order_check(const struct web_settings *s, struct err *err);

/* Refuses machines that have no image, neither by the section nor by an instance template, and settings that need one
 * of them. -EINVAL likewise. */
int gce_template_check(const struct web_settings *s, struct err *err);

/* Returns the region of a zone. */
struct str gce_region(struct str zone);

/* Appends the body of a regionInstances.bulkInsert of one instance. Errors as gce_order_write. */
int gce_order_write_bulk(const struct web_settings *s, const struct web_op *op, struct buf *out,
                         struct err *err);

/* Appends the body of an instances.insert. -EINVAL and a sentence: a tag does not fit; -ENOMEM. */
int gce_order_write(const struct web_settings *s, const struct web_op *op, struct str zone,
                    struct buf *out, struct err *err);

/* Appends the partial URL of the user's instance template, which is set. */
void gce_template(const struct web_settings *s, struct buf *out);
