/* pack.h - decides by search whether slices fit into given numbers of instances.
 *
 * Layer:   policies (base/core, libm)
 * Threads: pure; the memory is the caller's
 *
 * The solver asks where its relaxation cannot decide: counts are fixed, the sum of loads nearly
 * fills them, and only a search shows whether whole slices fit.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define PACK_SLICES_MAX 256
#define PACK_TYPES_MAX 16
#define PACK_CUTS_MAX 9 /* sums that bound the search: one, and two for each of four types */

struct solver_problem;

struct pack_choice {
    uint32_t type;
    double load;
    double regret[PACK_CUTS_MAX];
};

struct pack_slice {
    uint32_t group, choices;
    double second; /* regret of the second choice in the first sum */
    struct pack_choice choice[PACK_TYPES_MAX];
};

struct pack {
    struct pack_slice slice[PACK_SLICES_MAX];
    uint32_t slices, cuts;
    double weight[PACK_CUTS_MAX][PACK_TYPES_MAX];
    double spare[PACK_SLICES_MAX + 1][PACK_CUTS_MAX]; /* of each sum at each depth */
    double room[PACK_TYPES_MAX];                      /* left on each type */
    uint32_t at[PACK_SLICES_MAX + 1];                 /* choice tried at each depth */
};

/* Result of the search. PACK_FITS: `on` is an assignment that fits. PACK_NEVER: there is none.
 * PACK_UNKNOWN: steps_max steps did not decide it, or there are more slices than PACK_SLICES_MAX. */
enum pack_answer { PACK_FITS, PACK_NEVER, PACK_UNKNOWN };

enum pack_answer pack_slices(const struct solver_problem *p, const uint32_t *room,
                             uint64_t steps_max, struct pack *memory,
                             uint16_t (*on)[PACK_TYPES_MAX], uint64_t *ret_steps);
