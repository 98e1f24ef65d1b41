/* router.h - runs the router role: one decision thread, a few byte loops.
 *
 * Layer:   router
 * Threads: router_main runs on the calling thread and returns when the router has ended
 */
#pragma once
#include "router/config.h"

/* SIGTERM and SIGINT drain; a second one ends at once. 0, or a negative errno and err. */
int router_main(const struct router_config *config, struct err *err);
