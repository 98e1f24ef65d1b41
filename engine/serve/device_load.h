/* device_load.h - turns the configuration of a device into a model with its pages and an executor.
 *
 * Layer:    engine/serve, private to the device
 * Threads:  device thread; it blocks for as long as the model's file takes to read
 * Lifetime: the executor uses the models: free it first
 */
#pragma once
#include "engine/serve/device.h"

struct device_loaded {
    struct model *model; /* the caller's, as the executor is */
    struct model *draft; /* likewise; NULL: none */
    struct executor *x;
    struct device_info info;
};

/* Loads, and names the policies in the metrics. Refuses (-EINVAL) a context that the model was not made for and
 * a memory for KV that holds no page. -EINTR: load.watch stopped it. On failure *ret is untouched and nothing stays
 * loaded. */
int device_load(const struct device_config *config, struct engine_metrics *metrics,
                const struct executor_events *events, struct device_loaded *ret, struct err *err);
