/* rows.h - tables that more than one message of base/wire is built from.
 *
 * Layer: base/wire, private to it
 */
#pragma once
#include "base/wire/field.h"

extern const struct field_set wire_perf_set; /* struct perf_coef (report.c) */
