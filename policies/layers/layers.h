/* layers.h - the interface of layer policies, which lay a model's layers on devices, and the flow
 * of a layout.
 *
 * Layer:   policies (base/core)
 * Threads: pure; memory is the caller's
 * Rules:   (1) every layer lies somewhere; a part is a contiguous range on one group of devices
 *          (2) rate_s is the tokens a second that the layout lets through; layers_flow counts it
 *              alike for every policy
 *          (3) planner-only: engines do not run stages yet; only `muster plan layers` asks
 *
 * Speeds are those of decode steps: a device that holds n layers passes layer_tokens_s / n tokens a
 * second, a link bytes_s / token_bytes.
 */
#pragma once
#include "base/core/rng.h"
#include "base/core/str.h"

#include <stdbool.h>
#include <stdint.h>

#define LAYERS_DEVICES_MAX 32
#define LAYERS_MAX 128
#define LAYERS_PARTS_MAX 32

struct layers_device {
    double layer_tokens_s; /* tokens a second through one layer of the mean cost */
    uint32_t layers_max;   /* that its memory can hold */
    uint32_t machine;      /* devices of one machine may share layers (tensor parallelism) */
};

struct layers_problem {
    uint32_t layers;
    double cost[LAYERS_MAX]; /* relative; mean 1 */
    struct layers_device device[LAYERS_DEVICES_MAX];
    uint32_t device_count;
    double token_bytes; /* of the activations of one token between two layers */
    double bytes_s[LAYERS_DEVICES_MAX][LAYERS_DEVICES_MAX]; /* of the link; 0: none */
    double split_efficiency; /* of each doubling of the devices that share a layer: (0, 1] */
    uint32_t rounds_max;     /* of searches; 0: LAYERS_ROUNDS */
};
#define LAYERS_ROUNDS 400

/* Layers [first, first + count) on `devices` (a set of bits). */
struct layers_part {
    uint32_t first, count;
    uint32_t devices;
};

struct layers_layout {
    bool found;
    struct layers_part part[LAYERS_PARTS_MAX];
    uint32_t part_count;
    double rate_s; /* tokens a second: the largest flow; of one chain, its slowest stage */
    double flow[LAYERS_PARTS_MAX][LAYERS_PARTS_MAX]; /* tokens a second from part to part */
    double flow_in[LAYERS_PARTS_MAX], flow_out[LAYERS_PARTS_MAX]; /* from clients, to clients */
    const char *why;
};

/* Nodes of the flow network: two for each part, a source and a sink. */
#define LAYERS_NODES_MAX (2 * LAYERS_PARTS_MAX + 2)

struct layers_memory {
    double room[LAYERS_NODES_MAX][LAYERS_NODES_MAX]; /* residual capacity */
    uint32_t level[LAYERS_NODES_MAX], next[LAYERS_NODES_MAX];
    double best[LAYERS_PARTS_MAX][LAYERS_MAX + 1]; /* of the dynamic programme of layers_chain */
    uint8_t first[LAYERS_PARTS_MAX][LAYERS_MAX + 1], before[LAYERS_PARTS_MAX][LAYERS_MAX + 1];
    struct layers_layout trial;
};

struct layers_policy {
    const char *name;
    const char *about;  /* --help and the documents */
    const char *source; /* paper or system of the rule */
    void (*lay)(const struct layers_problem *problem, struct layers_memory *memory, struct rng *rng,
                struct layers_layout *ret);
};

#define POLICY(name) extern const struct layers_policy layers_##name;
#include "policies/layers/layers.def"
#undef POLICY

extern const struct layers_policy *const layers_table[];
extern const uint32_t layers_count;
#define LAYERS_DEFAULT "helix"

const struct layers_policy *layers_find(struct str name); /* NULL when there is none */

/* Functions that policies share (layers.c). */

/* Returns the tokens a second of a part by itself; 0 if its memory cannot hold it or its devices
 * are of several machines. */
double layers_part_rate(const struct layers_problem *p, const struct layers_part *part);

/* Returns the tokens a second over the best link between two groups. */
double layers_link_rate(const struct layers_problem *p, uint32_t from, uint32_t to);

/* Returns the layers that a group of devices can hold when it shares each of them. */
uint32_t layers_room(const struct layers_problem *p, uint32_t devices);

/* Finds the chain through groups of devices in the given order, some of them left out, whose
 * slowest part or link is fastest. Appends its parts to ret and returns its rate; 0 and no parts if
 * there is none. */
double layers_chain(const struct layers_problem *p, const uint32_t *group, uint32_t count,
                    struct layers_memory *work, struct layers_layout *ret);

/* Sorts devices by speed, the fastest first; equal ones as listed. */
void layers_by_speed(const struct layers_problem *p, uint32_t order[LAYERS_DEVICES_MAX]);

/* Fills found, rate_s and the flows: the largest flow from clients through the parts and back
 * (Dinic). A token goes from a part whose last layer is l to any part that holds layer l + 1. */
void layers_flow(const struct layers_problem *p, struct layers_memory *work,
                 struct layers_layout *layout);
