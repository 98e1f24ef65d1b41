/* move.h - the interface of move policies, which give devices their places when a fleet's layout
 * changes.
 *
 * Layer:   policies (base/core)
 * Threads: pure; memory is the caller's
 * Rules:   (1) planner-only: no engine takes over another's weights yet; `muster plan move` asks
 *          (2) a policy chooses `to`; move_weigh fills the bytes and seconds
 */
#pragma once
#include "base/core/str.h"

#include <stdbool.h>
#include <stdint.h>

#define MOVE_MAX 64
#define MOVE_NONE UINT32_MAX

/* A mapping of devices that stay (`from`) to places of the new layout (`to`). */
struct move_problem {
    uint32_t from_count, to_count;
    double reused_bytes[MOVE_MAX][MOVE_MAX]; /* weights and KV of `to` held at `from`; [from][to] */
    double needed_bytes[MOVE_MAX];           /* by the place, in all */
    double bytes_s;                          /* of each place's link; > 0 */
};

struct move_memory {
    double dual_from[MOVE_MAX + 1], dual_to[MOVE_MAX + 1], slack[MOVE_MAX + 1];
    uint32_t match[MOVE_MAX + 1], way[MOVE_MAX + 1];
    bool used[MOVE_MAX + 1];
};

struct move_verdict {
    uint32_t to[MOVE_MAX]; /* the place of each `from`, each place once; MOVE_NONE: none */
    double reused_bytes, sent_bytes;
    double seconds; /* until the last place has its bytes, each over its own link */
};

struct move_policy {
    const char *name;
    const char *about;  /* --help and the documents */
    const char *source; /* paper or system of the rule */
    void (*map)(const struct move_problem *problem, struct move_memory *memory,
                struct move_verdict *ret);
};

#define POLICY(name) extern const struct move_policy move_##name;
#include "policies/move/move.def"
#undef POLICY

extern const struct move_policy *const move_table[];
extern const uint32_t move_count;
#define MOVE_DEFAULT "spotserve"

const struct move_policy *move_find(struct str name); /* NULL when there is none */

/* Fills the bytes and seconds of the mapping ret->to (move.c). */
void move_weigh(const struct move_problem *problem, struct move_verdict *ret);
