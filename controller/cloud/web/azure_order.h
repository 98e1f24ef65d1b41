/* azure_order.h - writes the virtual machine that is asked for of Azure.
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 */
#pragma once
#include "controller/cloud/web/web_section.h"

/* Refuses settings that the API would refuse at the first create. -EINVAL and a sentence that names the setting. */
int azure_order_check(const struct web_settings *s, struct err *err);

/* Appends the body of a PUT; an empty zone: Azure chooses. -ENOMEM. */
int azure_order_write(const struct web_settings *s, const struct web_op *op, struct str zone,
                      struct buf *out);
