/* controller.h - runs the controller role: one loop that observes, plans and acts.
 *
 * Layer: controller
 */
#pragma once
#include "controller/setup.h"

/* Runs until SIGTERM or SIGINT, which leave the fleet as it is: engines and agents go on, and the
 * next controller takes them over. 0, or a negative errno and err (-EBUSY: another controller has
 * the state folder). */
int controller_main(const struct controller_config *config, struct err *err);
