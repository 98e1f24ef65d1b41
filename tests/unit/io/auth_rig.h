/* auth_rig.h - lets a test's server accept only signed requests and sign its replies.
 *
 * The server holds the fleet's secret; its ctx is a struct whose first member is a struct auth_rig.
 */
#pragma once
#include "base/io/auth/auth_gate.h"
#include "base/io/loop/clock.h"
#include "tests/unit/unit.h"

struct auth_rig {
    struct credentials held;
    struct auth_gate gate;
    uint32_t again; /* requests that got epoch and time as reply */
};

static inline void auth_rig_init(struct auth_rig *r, struct str secret)
{
    static const char *const ids[] = { "engine/", "ticket/", "agent/", "router", "cli", NULL };
    credentials_of_secret(secret, &r->held);
    auth_gate_init(&r->gate, &r->held, ids, 4711, clock_mono_us());
    r->again = 0;
}

static inline void auth_rig_fini(struct auth_rig *r)
{
    auth_gate_fini(&r->gate);
}

static inline void auth_rig_on_head(void *ctx, struct http_exchange *x)
{
    struct auth_rig *r = ctx;
    enum auth_identity who = auth_gate_head(&r->gate, x, http_exchange_note(x), clock_mono_us());
    r->again += who == AUTH_ASKED_AGAIN;
    if (who == AUTH_ASKED_AGAIN)
        http_reply(x, 401, STR("text/plain"), STR("again\n"));
    else if (who != AUTH_PART)
        fail_msg("not signed");
}

static inline void auth_rig_on_reply(void *ctx, struct http_exchange *x, int status,
                                     const struct str *body)
{
    struct auth_rig *r = ctx;
    auth_gate_reply(&r->gate, x, http_exchange_note(x), status, body, clock_mono_us());
}
