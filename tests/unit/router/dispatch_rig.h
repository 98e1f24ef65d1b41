/* dispatch_rig.h - one dispatch, with endpoints and requests made by hand.
 *
 * core_open and core_drop stand around every test: nothing may be in flight or held at its end.
 */
#pragma once
#include "router/core/dispatch.h"

#define SECOND 1000000

extern struct dispatch *dispatch;

/* The rows that a router has by default, and room for 64 requests of which 4 are held for 10 s. */
struct dispatch_config dispatch_config_default(void);

int core_open(const struct dispatch_config *c);
int core_drop(void **state);

/* A ready one of model 1, of known speed. */
struct dispatch_endpoint endpoint_of(const char *name);
uint32_t endpoint_put(const struct dispatch_endpoint *ep); /* its slot */

struct dispatch_request request_of(uint32_t prompt_tokens); /* of model 1 */
