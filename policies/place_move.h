/* place_move.h - two questions after a change: which old instance becomes which new one, and at which
 * machine weights are loaded.
 *
 * Layer:   policies (base/core)
 * Threads: pure; memory is the caller's
 * Rules:   planner-only: no engine moves weights yet; the rows are asked by tests
 */
#pragma once
#include "policies/place.h"

#define MOVE_MAX 64
#define LOAD_SERVERS_MAX 64
#define LOAD_TIERS 4

/* What `from` (a device that stays) already holds of what `to` (a place of the new layout) needs. */
struct place_move {
    uint32_t from_count, to_count;
    double reused_bytes[MOVE_MAX][MOVE_MAX]; /* weights and KV that need not be sent; [from][to] */
    double needed_bytes[MOVE_MAX];           /* of the new place, all of it */
    double bytes_s;                          /* of the links that bring the rest */
};

struct place_move_work {
    double dual_from[MOVE_MAX + 1], dual_to[MOVE_MAX + 1], slack[MOVE_MAX + 1];
    uint32_t match[MOVE_MAX + 1], way[MOVE_MAX + 1];
    bool used[MOVE_MAX + 1];
};

struct place_move_verdict {
    uint32_t to[MOVE_MAX]; /* of each `from`; PLACE_NONE: it is not needed */
    double reused_bytes, sent_bytes;
    double seconds; /* until the last place has what it needs, each over its own link */
};

/* A model is to be loaded: where is it ready first? */
struct load_server {
    bool usable;
    double queued_bytes[LOAD_TIERS]; /* loads that wait before ours, by the tier they come from */
    uint32_t tier; /* the nearest that has the model: 0 memory ... LOAD_TIERS - 1 */
};

struct place_load {
    struct load_server server[LOAD_SERVERS_MAX];
    uint32_t server_count;
    double model_bytes;
    double bytes_s[LOAD_TIERS]; /* of loading from each tier */
    double start_s;             /* of an engine, weights apart */
};

struct place_load_verdict {
    uint32_t server;             /* PLACE_NONE: none may be used */
    double ready_s, runner_up_s; /* < 0: there is none */
};
