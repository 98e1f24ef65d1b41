/* dispatch_rig.c - sets up one dispatch for tests; see dispatch_rig.h. */
#include "tests/unit/router/dispatch_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct dispatch *dispatch;

struct dispatch_config dispatch_config_default(void)
{
    return (struct dispatch_config){ .route = route_find(STR(ROUTE_DEFAULT)),
                                     .predict = predict_find(STR(PREDICT_DEFAULT)),
                                     .index_bytes = 1 << 20,
                                     .requests_max = 64,
                                     .held_max = 4,
                                     .hold_us_max = 10 * SECOND,
                                     .seed = 1 };
}

int core_open(const struct dispatch_config *c)
{
    dispatch = NULL;
    return dispatch_new(c, &dispatch, NULL);
}

int core_drop(void **state)
{
    (void)state;
    struct dispatch_demand d;
    dispatch_demand(dispatch, 0, &d);
    assert_int_equal(d.in_flight, 0);
    assert_int_equal(d.held, 0);
    dispatch_free(dispatch);
    return 0;
}

struct dispatch_endpoint endpoint_of(const char *name)
{
    struct dispatch_endpoint ep = {
        .model = 1,
        .boot = 1,
        .ready = true,
        .has_perf = true,
        .perf = { .step_s = 0.01, .prefill_token_s = 0.001, .decode_seq_s = 0.001 },
        .token_budget = 256,
        .seqs_max = 8
    };
    snprintf(ep.name, sizeof ep.name, "%s", name);
    return ep;
}

uint32_t endpoint_put(const struct dispatch_endpoint *ep)
{
    uint32_t slot = ROUTE_NONE;
    assert_int_equal(dispatch_endpoint_put(dispatch, ep, &slot), 0);
    return slot;
}

struct dispatch_request request_of(uint32_t prompt_tokens)
{
    return (struct dispatch_request){ .model = 1,
                                      .prompt_tokens = prompt_tokens,
                                      .features = { .tenant = 1,
                                                    .prefix = 2,
                                                    .ask = 3,
                                                    .prompt_tokens = prompt_tokens,
                                                    .output_max = 64 } };
}
