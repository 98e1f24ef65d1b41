/* fake_lambda.h - speaks the API of Lambda Cloud over a fake fleet.
 *
 * Layer: tests/fakes/cloud (base/core)
 * Has:   /instances (list, get), /instance-types, /instance-operations/launch and terminate. Members that the API does
 *        not document are refused as the API does, and counted in fleet->refused_form
 */
#pragma once
#include "tests/fakes/cloud/fake_fleet.h"

extern const struct cloud_fake fake_lambda;
