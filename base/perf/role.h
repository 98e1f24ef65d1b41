/* role.h - the phases of a request that an instance serves.
 *
 * Layer: base/perf
 */
#pragma once

enum role { ROLE_BOTH, ROLE_PREFILL, ROLE_DECODE, ROLE_COUNT };
extern const char *const role_names[ROLE_COUNT + 1]; /* ends with NULL */
