/* layers.h - which layers of a model lie on which devices, and what that lets through.
 *
 * Layer:   policies (base/core)
 * Threads: pure; memory is the caller's
 * Rules:   (1) every layer lies somewhere; a part is a contiguous range on one group of devices
 *          (2) rate_s is tokens a second that the layout lets through, the evaluator of
 *              place_layers.c counts it alike for every row
 *          (3) planner-only: engines do not run stages yet; the rows are asked by `muster plan layers`
 *
 * Speeds are of decode steps: a device passes `layer_tokens_s` / layers tokens a second when it holds
 * so many layers, a link bytes_s / token_bytes.
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
    uint32_t layers_max;   /* that its memory holds */
    uint32_t machine;      /* devices of one machine may share layers (tensor parallelism) */
};

struct layers_problem {
    uint32_t layers;
    double cost[LAYERS_MAX]; /* relative; mean 1 */
    struct layers_device device[LAYERS_DEVICES_MAX];
    uint32_t device_count;
    double token_bytes; /* what one token hands from a layer to the next */
    double bytes_s[LAYERS_DEVICES_MAX][LAYERS_DEVICES_MAX]; /* of the link; 0: none */
    double split_efficiency; /* of two devices that share a layer, each doubling: (0, 1] */
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
    double rate_s; /* tokens a second: the cut, or the slowest stage */
    double flow[LAYERS_PARTS_MAX][LAYERS_PARTS_MAX]; /* tokens a second from part to part */
    double flow_in[LAYERS_PARTS_MAX], flow_out[LAYERS_PARTS_MAX]; /* from clients, to clients */
    const char *why;
};

/* Nodes of the flow network: two a part, a source and a sink. */
#define LAYERS_NODES_MAX (2 * LAYERS_PARTS_MAX + 2)

struct layers_memory {
    double room[LAYERS_NODES_MAX][LAYERS_NODES_MAX]; /* residual capacity */
    uint32_t level[LAYERS_NODES_MAX], next[LAYERS_NODES_MAX];
    double best[LAYERS_PARTS_MAX][LAYERS_MAX + 1]; /* of the chain's programme */
    uint8_t first[LAYERS_PARTS_MAX][LAYERS_MAX + 1], before[LAYERS_PARTS_MAX][LAYERS_MAX + 1];
    struct layers_layout trial;
};

struct layers_policy {
    const char *name;
    const char *about;  /* --help and the documents */
    const char *source; /* where the rule comes from */
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

/* What policies share (layers.c). */

/* Tokens a second of a part by itself; 0 when its memory does not hold it. */
double layers_part_rate(const struct layers_problem *p, const struct layers_part *part);

/* Tokens a second over the best link between two groups. */
double layers_link_rate(const struct layers_problem *p, uint32_t from, uint32_t to);

/* Layers that a group of devices can hold, sharing each. */
uint32_t layers_room(const struct layers_problem *p, uint32_t devices);

/* The chain through groups of devices in the given order, some of them left out, whose slowest part
 * or link is fastest; appends its parts to ret and returns its rate, 0 and no parts without one. */
double layers_chain(const struct layers_problem *p, const uint32_t *group, uint32_t count,
                    struct layers_memory *work, struct layers_layout *ret);

/* Devices in the order of their speed, the fastest first; equal ones as listed. */
void layers_by_speed(const struct layers_problem *p, uint32_t order[LAYERS_DEVICES_MAX]);

/* Fills rate_s and the flows: the largest flow from clients through the parts and back, a token
 * going from a part that ends at layer l to any part that holds l + 1 on (Dinic). */
void layers_flow(const struct layers_problem *p, struct layers_memory *work,
                 struct layers_layout *layout);
