/* fake_webhook.h - a server of the hook protocol over a fake fleet, as somebody would write one from
 * docs/clouds/exec.md.
 *
 * Layer: tests/fakes/cloud (base/core)
 * Has:   create, list, remove, prices. Creates are idempotent by intent. Calls with members that the protocol does not
 *        have, or of another type, are refused and counted in fleet->refused_form
 */
#pragma once
#include "tests/fakes/cloud/fake_fleet.h"

struct fake_webhook {
    struct fake_fleet *fleet;
    const char *token;
    const char *currency; /* NULL: none is said */
};

extern const struct cloud_fake fake_webhook; /* ctx: struct fake_webhook */
