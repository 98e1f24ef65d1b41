/* schema.h - the whole configuration: the sections of all roles in one tree.
 *
 * Layer: cli
 */
#pragma once
#include "base/io/config.h"

extern const struct config_schema schema;
