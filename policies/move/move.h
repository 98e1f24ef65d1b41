/* move.h - the interface of the policies that say which old instance becomes which new one when a
 * fleet's layout changes.
 *
 * Layer:   policies (base/core)
 * Threads: pure; memory is the caller's
 * Rules:   (1) planner-only: no engine takes over another's weights yet; `muster plan move` asks
 *          (2) a policy fills `to` alone; move_weigh says what that is worth
 */
#pragma once
#include "base/core/str.h"

#include <stdbool.h>
#include <stdint.h>

#define MOVE_MAX 64
#define MOVE_NONE UINT32_MAX

/* What `from` (a device that stays) already holds of what `to` (a place of the new layout) needs. */
struct move_problem {
    uint32_t from_count, to_count;
    double reused_bytes[MOVE_MAX][MOVE_MAX]; /* weights and KV that need not be sent; [from][to] */
    double needed_bytes[MOVE_MAX];           /* of the new place, all of it */
    double bytes_s;                          /* of the links that bring the rest; > 0 */
};

struct move_memory {
    double dual_from[MOVE_MAX + 1], dual_to[MOVE_MAX + 1], slack[MOVE_MAX + 1];
    uint32_t match[MOVE_MAX + 1], way[MOVE_MAX + 1];
    bool used[MOVE_MAX + 1];
};

struct move_verdict {
    uint32_t to[MOVE_MAX]; /* of each `from`, each place once; MOVE_NONE: it is not needed */
    double reused_bytes, sent_bytes;
    double seconds; /* until the last place has what it needs, each over its own link */
};

struct move_policy {
    const char *name;
    const char *about;  /* --help and the documents */
    const char *source; /* where the rule comes from */
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

/* Bytes and seconds of ret->to (move.c). */
void move_weigh(const struct move_problem *problem, struct move_verdict *ret);
