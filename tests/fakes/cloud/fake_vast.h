/* fake_vast.h - speaks the API of Vast.ai over a fake fleet.
 *
 * Layer: tests/fakes/cloud (base/core)
 * Has:   /v1/instances/ (list, pages), /v0/instances/ID/ (show, delete), /v0/bundles/ (search by GPU and country),
 *        /v0/asks/ID/ (order, on demand and by bid). An ask stands for a type in a country. Members and parameters that
 *        neither the documents nor the provider's library have are refused, and counted in fleet->refused_form
 */
#pragma once
#include "tests/fakes/cloud/fake_fleet.h"

extern const struct cloud_fake fake_vast;
