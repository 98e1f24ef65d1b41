/* fake_runpod.h - speaks version 2 of RunPod's REST API over a fake fleet.
 *
 * Layer: tests/fakes/cloud (base/core)
 * Has:   /pods (list, get, create, delete), /catalog/gpus. Members and parameters that the API does not document are
 *        refused as the API does, and counted in fleet->refused_form
 */
#pragma once
#include "tests/fakes/cloud/fake_fleet.h"

extern const struct cloud_fake fake_runpod;
