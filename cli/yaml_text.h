/* yaml_text.h - writes JSON as YAML, for `--output yaml`.
 *
 * Layer: cli (base/core)
 * Form:  blocks, two spaces a level, members in their order; an empty list is [], an empty object {}
 * Quote: a text stands plain only where YAML 1.1 and 1.2 both read it as that text; everything else is in
 *        double quotes: what looks like a number, a date, a bool or null, begins with a sign that YAML
 *        gives a meaning, holds ": " or " #", a line end, a control character or a mark that YAML breaks
 *        lines at
 */
#pragma once
#include "base/core/buf.h"

/* Appends one JSON value with a line end behind it. -EINVAL when `json` is none; returns out->rc else. */
int yaml_of_json(struct str json, struct buf *out);
