/* config.h - the demo's configuration: the file of the user with shares that fit the machine.
 *
 * Layer: cli (controller/config.h, base/io)
 */
#pragma once
#include "base/core/buf.h"
#include "base/io/config/config.h"
#include "cli/demo/sizing.h"

#define DEMO_FIXED_INSTANCES 3 /* the fleet that the policies are compared on */

/* The first service's pools of this machine. -EINVAL names what a demo cannot do without. */
int demo_shape_of(const struct config *config, struct demo_shape *ret, struct err *err);

/* The model file of the first service; lives as long as the configuration. */
const char *demo_model_of(const struct config *config);

/* Appends `text`, a configuration file, in which the section `local` has its cores and shares multiplied
 * by `share`, and first guesses of speed from `machine`. -EINVAL if the result is not the configuration
 * that it should be: the section is written in a style that is not one key a line. */
int demo_config_scale(struct str text, const struct demo_machine *machine, double share,
                      struct buf *out, struct err *err);
