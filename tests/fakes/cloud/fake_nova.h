/* fake_nova.h - speaks OpenStack's Compute API 2.1 and Identity v3 over a fake fleet.
 *
 * Layer: tests/fakes/cloud (base/core)
 * Has:   /identity/v3/auth/tokens (password, application credential), /compute/v2.1: /servers and /servers/detail
 *        (name, pages), get, create, delete, shelve and unshelve, /flavors. The token of open() is the password and the secret. A machine
 *        that is ordered where there is none is made in ERROR, as Nova makes it; one that is unshelved where there is none
 *        looks for a host for a while and stays shelved
 */
#pragma once
#include "tests/fakes/cloud/fake_fleet.h"

struct fake_nova {
    struct fake_fleet *fleet;
    const char *password;
    int64_t date_us;
    int64_t token_us; /* that a token lives; 0: an hour */
    bool two_regions; /* the catalogue has Compute in two */
    uint32_t logins;
    int64_t revoked_us; /* tokens that were issued before are refused */
    int64_t task_us;    /* that shelving and the look for a host take; 0: two seconds each */
    int64_t looked_us
        [FLEET_MACHINES_MAX]; /* of a machine: its last unshelving that found no host; 0: none */
};

extern const struct cloud_fake fake_nova; /* ctx: struct fake_nova */
