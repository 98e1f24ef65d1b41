/* rows.h - declares the field tables that several messages of base/wire share.
 *
 * Layer: base/wire, private to it
 */
#pragma once
#include "base/wire/field.h"

extern const struct field_set wire_perf_set; /* struct perf_coef (report.c) */
