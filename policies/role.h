/* role.h - what an instance is for: whole requests, prompts alone, or answers alone.
 *
 * Layer: policies (base/core)
 */
#pragma once

/* A prefill instance computes a prompt and the first token; a decode instance goes on with the K
 * and V that it gets from there. */
enum role { ROLE_BOTH, ROLE_PREFILL, ROLE_DECODE, ROLE_COUNT };

extern const char *const role_names[ROLE_COUNT];
