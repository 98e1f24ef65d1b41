/* cmd_plan_layers.h - turns a model and unequal devices into the problem that layers policies solve.
 *
 * Layer: cli (policies)
 * Rules: (1) a device's speed is the roofline's for a step in which `batch` sequences decode with
 *            contexts of `context_tokens`. Every layer takes the mean time, so the output matrix and
 *            the host's part are spread evenly over the layers
 *        (2) pipelines are full: beside its layers, a device keeps the KV of all sequences in progress.
 *            Their number is the tokens a second of the busiest part times the seconds of the longest
 *            pipeline (Little's law), in whole batches
 *        (3) the bytes of embedding and output matrix are spread evenly too
 */
#pragma once
#include "base/perf/model_spec.h"
#include "base/perf/roofline.h"
#include "policies/layers/layers.h"

struct layers_work {
    struct model_spec model;
    uint32_t batch, context_tokens;
    double link_bytes_s;      /* between machines */
    uint32_t machine_devices; /* most devices in one machine */
};

struct layers_plan {
    struct layers_work work;
    const struct hardware *hardware[LAYERS_DEVICES_MAX];
    uint32_t machine[LAYERS_DEVICES_MAX];
    double room_bytes[LAYERS_DEVICES_MAX]; /* for weights and KV */
    bool extrapolated;                     /* some step times do not come from measurements */
    double most_s; /* tokens a second when all devices are busy all the time */
    struct layers_problem problem;
    struct layers_memory memory;
};

/* Reads "4xa100,8xl4" into *p; each item has machines of its own. -EINVAL with a sentence. */
int layers_devices(struct layers_plan *p, const struct str *items, size_t count,
                   const struct layers_work *work, struct err *err);

/* Fills the rest of the problem; called after layers_devices. -ENOENT when all devices together cannot
 * hold the model with the KV of one batch, -ERANGE when it has more layers than LAYERS_MAX. */
int layers_fill(struct layers_plan *p, struct err *err);

struct layers_answer {
    struct layers_layout layout;
    uint32_t batches;                 /* in progress, with room for their KV */
    double token_s;                   /* of one step through the longest pipeline, links included */
    uint32_t stage[LAYERS_PARTS_MAX]; /* parts that tokens flow through, by their first layer */
    uint32_t stage_count;
    double through_s[LAYERS_PARTS_MAX], most_s[LAYERS_PARTS_MAX]; /* tokens a second of each part */
};

void layers_ask(struct layers_plan *p, const struct layers_policy *policy,
                struct layers_answer *ret);
