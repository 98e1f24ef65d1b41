/* fake_hetzner.h - speaks the API of Hetzner Cloud over a fake fleet.
 *
 * Layer: tests/fakes/cloud (base/core)
 * Has:   /servers (list by label and name, pages, get, create, delete), /server_types, /locations, /images, /pricing,
 *        /actions. Requests with members, parameters or values that the API does not document are refused as the
 *        API does, and counted in fleet->refused_form
 */
#pragma once
#include "tests/fakes/cloud/fake_fleet.h"

struct fake_hetzner {
    struct fake_fleet *fleet;
    const char *token;
    const char *currency; /* NULL: EUR */
    int64_t date_us;      /* the date less the fleet's time */
};

extern const struct cloud_fake fake_hetzner; /* ctx: struct fake_hetzner */
