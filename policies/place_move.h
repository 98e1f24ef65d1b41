/* place_move.h - two questions after a change: which old instance becomes which new one, and at which
 * machine weights are loaded.
 *
 * Layer:   policies (base/core)
 * Threads: pure; memory is the caller's
 * Rules:   (1) planner-only: no engine moves weights yet; `muster plan move` and `muster plan load` ask
 *          (2) a row of `move` fills `to` alone; move_weigh says what that is worth
 */
#pragma once
#include "policies/place.h"

#define MOVE_MAX 64
#define LOAD_SERVERS_MAX 64

/* What `from` (a device that stays) already holds of what `to` (a place of the new layout) needs. */
struct place_move {
    uint32_t from_count, to_count;
    double reused_bytes[MOVE_MAX][MOVE_MAX]; /* weights and KV that need not be sent; [from][to] */
    double needed_bytes[MOVE_MAX];           /* of the new place, all of it */
    double bytes_s;                          /* of the links that bring the rest; > 0 */
};

struct place_move_work {
    double dual_from[MOVE_MAX + 1], dual_to[MOVE_MAX + 1], slack[MOVE_MAX + 1];
    uint32_t match[MOVE_MAX + 1], way[MOVE_MAX + 1];
    bool used[MOVE_MAX + 1];
};

struct place_move_verdict {
    uint32_t to[MOVE_MAX]; /* of each `from`, each place once; PLACE_NONE: it is not needed */
    double reused_bytes, sent_bytes;
    double seconds; /* until the last place has what it needs, each over its own link */
};

/* Bytes and seconds of ret->to (place_move.c). */
void move_weigh(const struct place_move *problem, struct place_move_verdict *ret);

/* Where a machine has a model, the nearest first. */
enum load_tier {
    LOAD_MEMORY,
    LOAD_DISK,
    LOAD_STORE, /* shared by all; has every model */
    LOAD_TIER_COUNT
};

/* A model is to be loaded: where is it ready first? */
struct load_server {
    bool usable;
    double queued_bytes[LOAD_TIER_COUNT]; /* loads before ours, by the tier they come from */
    enum load_tier tier;                  /* the nearest that has the model */
};

struct place_load {
    struct load_server server[LOAD_SERVERS_MAX];
    uint32_t server_count;
    double model_bytes;
    double bytes_s[LOAD_TIER_COUNT]; /* of loading from each tier; > 0 */
    double start_s;                  /* of an engine, weights apart */
};

struct place_load_verdict {
    uint32_t server;             /* PLACE_NONE: none may be used */
    double ready_s, runner_up_s; /* < 0: there is none */
};

/* What rows of `load` share (place_move.c): seconds of the queue there; until the engine is ready. */
double load_queue_s(const struct place_load *problem, uint32_t server);
double load_ready_s(const struct place_load *problem, uint32_t server);

/* The usable server of the least score; the earlier on equal ones. */
void load_least(const struct place_load *problem,
                double (*score)(const struct place_load *problem, uint32_t server),
                struct place_load_verdict *ret);
