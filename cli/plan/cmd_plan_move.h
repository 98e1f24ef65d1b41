/* cmd_plan_move.h - turns a fleet of pipelines that lost devices into the problem that move policies solve.
 *
 * Layer: cli (policies)
 * Rules: (1) before the loss device i holds stage i % stages of pipeline i / stages; a stage is an even
 *            share of the layers, and beside their weights it keeps the KV of its pipeline's sequences:
 *            `batch` for each stage, as many as keep all stages busy
 *        (2) after it there are pipelines of stages_after stages, as many as the devices allow; 0 takes
 *            the number of stages with the most tokens a second, by the step-time model, that holds
 *            model and KV; the smaller one on equal terms
 *        (3) new pipeline q takes on the sequences of the q-th pipeline that lost no device. The
 *            sequences of a broken pipeline are computed again, whatever the new layout
 */
#pragma once
#include "base/perf/hardware.h"
#include "base/perf/model_spec.h"
#include "policies/move/move.h"
#include "simulator/stats.h"

#define LAYOUT_MOVE_DRAWS_MAX 10000

struct layout_move {
    struct model_spec model;
    const struct hardware *hardware;
    uint32_t devices, stages, stages_after; /* stages_after: 0 until layout_move_init has chosen */
    uint32_t lost;
    uint32_t batch, context_tokens;
    double link_bytes_s, notice_s;
    uint64_t seed;
    uint32_t draws; /* of lost devices */

    /* Set by layout_move_init. */
    uint32_t pipelines, pipelines_after;
    double layer_bytes, layer_kv_bytes; /* weights of a layer; KV of a pipeline's sequences in it */
    double restart_bytes; /* weights of all places: loaded when no device keeps anything */
    struct move_memory work;
};

/* The results of a policy over all draws, and its mapping of the first. */
struct layout_move_answer {
    double sent_bytes[LAYOUT_MOVE_DRAWS_MAX], reused_bytes[LAYOUT_MOVE_DRAWS_MAX],
        seconds[LAYOUT_MOVE_DRAWS_MAX];
    uint32_t in_notice; /* draws in which the last place was filled within notice_s */
    /* Of the first draw: devices left, and their new places. */
    uint32_t device[MOVE_MAX], to[MOVE_MAX], count;
};

/* Completes the problem. -EINVAL with a sentence when the devices do not make whole pipelines or cannot hold
 * the model, or when too few are left. */
int layout_move_init(struct layout_move *r, struct err *err);

/* Asks a policy for each draw; every policy gets the same losses. */
void layout_move_ask(struct layout_move *r, const struct move_policy *policy,
                     struct layout_move_answer *ret);
