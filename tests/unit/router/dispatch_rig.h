/* dispatch_rig.h - sets up one dispatch, with endpoints and requests made by hand.
 *
 * core_open and core_drop run before and after every test: nothing may be in flight or held at its end.
 */
#pragma once
#include "router/core/dispatch.h"

#define SECOND 1000000

extern struct dispatch *dispatch;

/* Returns a router's default policies, and bounds of 64 requests, of which 4 are held for 10 s. */
struct dispatch_config dispatch_config_default(void);

int core_open(const struct dispatch_config *c);
int core_drop(void **state);

/* Returns a ready endpoint of model 1 with a known speed. */
struct dispatch_endpoint endpoint_of(const char *name);
uint32_t endpoint_put(const struct dispatch_endpoint *ep); /* returns its slot */

struct dispatch_request request_of(uint32_t prompt_tokens); /* of model 1 */
